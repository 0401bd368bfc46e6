//! Random paths and flows: all data that was sent is delivered.

use crate::{MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_sim::tcp::{Algorithm, MSS};
use bankfull_sim::world::{FlowConfig, FlowId, Route, World};
use bankfull_sim::{CrossTraffic, LinkConfig, Loss};
use fastrand::Rng;
use std::time::Duration;

const SEEDS: u64 = 400;

fn random_loss(rng: &mut Rng) -> Loss {
    match rng.u8(0..4) {
        0 | 1 => Loss::None,
        2 => Loss::Random { probability: rng.f64() * 0.2 },
        _ => Loss::GilbertElliott {
            to_bad: rng.f64() * 0.02,
            to_good: 0.05 + rng.f64() * 0.2,
            loss_good: 0.0,
            loss_bad: rng.f64() * 0.8,
        },
    }
}

fn random_link(rng: &mut Rng) -> LinkConfig {
    let rate_mbit = 10_f64.powf(rng.f64() * 4.0 - 1.0);
    let cross = match rng.u8(0..3) {
        0 => CrossTraffic::Poisson { rate: mbit(rate_mbit * rng.f64() * 0.6) },
        _ => CrossTraffic::None,
    };
    LinkConfig {
        rate: (rng.u8(0..5) > 0).then(|| mbit(rate_mbit)),
        delay: Duration::from_micros(rng.u64(0..100_000)),
        buffer: Bytes(rng.u64(3000..400_000)),
        loss: random_loss(rng),
        cross,
        ..LinkConfig::default()
    }
}

fn random_flow(rng: &mut Rng, route: &Route) -> FlowConfig {
    let mut config = FlowConfig::new(route);
    config.start = Duration::from_millis(rng.u64(0..500));
    config.bytes = Some(Bytes(rng.u64(0..400_000)));
    config.receive_window = Bytes(rng.u64(0..100) * MSS + rng.u64(0..MSS));
    config.pacing = (rng.bool()).then(|| mbit(10_f64.powf(rng.f64() * 4.0 - 1.0)));
    config.algorithm = match rng.u8(0..4) {
        0 => Algorithm::NewReno,
        1 => Algorithm::Cubic,
        2 => Algorithm::Bbr,
        _ => Algorithm::Ledbat,
    };
    config
}

/// Applies random settings, as a faulty controller would.
fn apply_random_settings(rng: &mut Rng, world: &mut World, flows: &[FlowId]) {
    for &flow in flows {
        match rng.u8(0..12) {
            0 => world.set_receive_window(flow, Bytes(rng.u64(0..200_000))),
            1 => world.set_pacing(flow, Some(mbit(0.1 + rng.f64() * 50.0))),
            2 => world.set_pacing(flow, None),
            3 if world.now() < SEC * 20 => world.write(flow, Bytes(rng.u64(0..20_000))),
            4 if rng.u8(0..20) == 0 => world.finish(flow),
            _ => {}
        }
    }
}

#[test]
fn random_flows_deliver_all_data() {
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let mut world = World::new(seed);
        let links: Vec<_> = (0..3).map(|_| world.add_link(random_link(&mut rng))).collect();
        let uplink = rng.bool().then_some(links[2]);
        let forward = uplink.into_iter().chain([links[0]]).collect();
        let route = Route { forward, reverse: vec![links[1]] };
        let flows: Vec<_> = (0..rng.usize(1..5))
            .map(|_| {
                let config = random_flow(&mut rng, &route);
                world.add_flow(config)
            })
            .collect();
        world.run_with(SEC * 30, MS * 50, |world| apply_random_settings(&mut rng, world, &flows));
        flows.iter().for_each(|&flow| world.set_pacing(flow, None));
        let is_done = world.run_until_done(SEC * 20_000);
        let stats: Vec<_> = flows.iter().map(|&f| world.stats(f)).collect();
        assert!(is_done, "seed {seed} hangs: {stats:?}");
        world.run_until(world.now() + SEC * 2000);
        for &flow in &flows {
            let stats = world.stats(flow);
            assert_eq!(stats.acked, stats.delivered, "seed {seed}: the sender learns of it");
            assert!(stats.sender.retransmits <= stats.sender.segments, "seed {seed}");
        }
    }
}
