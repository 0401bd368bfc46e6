//! Path MTU discovery: flows go on after the MTU of a link falls.

use super::{DATA_SHARE, MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_sim::PathConfig;
use bankfull_sim::link::{Jitter, Reordering};
use bankfull_sim::loss::Loss;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::world::{FlowConfig, FlowId, World};
use fastrand::Rng;
use std::time::Duration;

/// Algorithms whose senders act on reports of the MTU.
const TCP: [Algorithm; 4] =
    [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr, Algorithm::Ledbat];

/// Returns a path whose MTU changes: 100 Mbit/s, 30 ms, a queue of two BDP.
fn path(mtu_changes: &[(Duration, u32)]) -> PathConfig {
    let mut path = PathConfig::new(mbit(100.0), MS * 30, Bytes(750_000));
    path.forward.impairments.mtu_changes = mtu_changes.to_vec();
    path
}

/// Runs an endless flow; returns its share of the line.
///
/// The share is that from second `from` to second `to`.
fn share(path: &PathConfig, algorithm: Algorithm, from: u32, to: u32) -> (World, FlowId, f64) {
    let mut world = World::new(1);
    let route = world.add_path(path);
    let flow = world.add_flow(FlowConfig { algorithm, ..FlowConfig::new(&route) });
    world.run_until(SEC * from);
    let before = world.stats(flow).delivered;
    world.run_until(SEC * to);
    let bits = (world.stats(flow).delivered - before).0 as f64 * 8.0;
    let line = 1e8 * DATA_SHARE * f64::from(to - from);
    (world, flow, bits / line)
}

#[test]
fn flow_goes_on_after_fall_of_mtu() {
    for algorithm in TCP {
        let path = path(&[(SEC * 6, 1280)]);
        let (world, flow, share) = share(&path, algorithm, 6, 12);
        let sender = world.stats(flow).sender;
        assert!(share > 0.9, "{algorithm:?}: {share} {sender:?}");
        assert_eq!(sender.timeouts, 0, "{algorithm:?}");
    }
}

#[test]
fn fall_of_mtu_in_slow_start_costs_little() {
    for algorithm in TCP {
        let [fallen, level] =
            [&[(MS * 100, 1280)][..], &[]].map(|changes| share(&path(changes), algorithm, 0, 5).2);
        assert!(fallen > 0.93 * level, "{algorithm:?}: {fallen} {level}");
    }
}

#[test]
fn rise_of_mtu_after_fall_changes_nothing() {
    for algorithm in TCP.into_iter().chain([Algorithm::Quic]) {
        let fall = (SEC * 4, 1280);
        let [risen, fallen] = [&[fall, (SEC * 8, 1500)][..], &[fall]].map(|changes| {
            let (world, flow, share) = share(&path(changes), algorithm, 8, 12);
            assert!(share > 0.9, "{algorithm:?}: {share}");
            world.stats(flow)
        });
        assert_eq!(risen, fallen, "{algorithm:?}");
    }
}

#[test]
fn retransmission_repeats_lost_report_of_mtu() {
    for algorithm in TCP.into_iter().chain([Algorithm::Quic]) {
        let mut world = World::new(1);
        let route = world.add_path(&path(&[(SEC * 6, 1280)]));
        let flow = world.add_flow(FlowConfig { algorithm, ..FlowConfig::new(&route) });
        world.run_until(SEC * 6);
        let before = world.stats(flow);
        world.set_cut(route.reverse[0], true);
        // Longer than the packets in flight take, and a probe.
        world.run_until(SEC * 6 + MS * 350);
        world.set_cut(route.reverse[0], false);
        world.run_until(SEC * 12);
        let after = world.stats(flow);
        let share = (after.delivered - before.delivered).0 as f64 * 8.0 / (6e8 * DATA_SHARE);
        assert!(share > 0.75, "{algorithm:?}: {share} {:?}", after.sender);
        assert!(after.sender.timeouts > before.sender.timeouts, "{algorithm:?}");
    }
}

#[test]
fn quic_sender_detects_black_hole_by_losses() {
    let (world, flow, share) = share(&path(&[(SEC * 6, 1280)]), Algorithm::Quic, 6, 12);
    // On an emulated path a sender lost 0.07 to 0.17 of 15 s (docs/algorithms/quic.md).
    assert!((0.8..0.96).contains(&share), "{share} {:?}", world.stats(flow).sender);
}

#[test]
fn random_falls_of_mtu_lose_no_data() {
    let all = [&TCP[..], &[Algorithm::Quic]].concat();
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let mut mtu = 1500;
        let changes: Vec<_> = (1..4)
            .map(|n| {
                // The smallest MTU of QUIC: 1200 bytes and headers.
                mtu = rng.u32(1228..=mtu);
                (MS * n * rng.u32(1..400), mtu)
            })
            .collect();
        let mut path = path(&changes);
        path.forward.impairments.mtu_changes.sort_unstable();
        path.forward.loss = Loss::Random { probability: rng.f64() * 0.02 };
        path.reverse.loss = Loss::Random { probability: rng.f64() * 0.3 };
        let (max, period) = (MS * rng.u32(0..20), Duration::ZERO);
        path.forward.impairments.jitter = Some(Jitter { max, period, reorders: rng.bool() });
        let delay = MS * rng.u32(0..100);
        path.forward.impairments.reordering = Some(Reordering { share: rng.f64() * 0.1, delay });
        path.forward.impairments.duplication = rng.f64() * 0.1;
        let mut world = World::new(seed);
        let route = world.add_path(&path);
        let algorithm = all[seed as usize % all.len()];
        let bytes = Some(Bytes(rng.u64(1..3_000_000)));
        let config = FlowConfig { algorithm, bytes, ..FlowConfig::new(&route) };
        let flow = world.add_flow(config);
        assert!(world.run_until_done(SEC * 100), "{seed} {algorithm:?} {:?}", world.stats(flow));
        assert_eq!(Some(world.stats(flow).delivered), bytes, "{seed} {algorithm:?}");
    }
}
