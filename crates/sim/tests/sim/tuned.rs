//! Tuned transfers that choose their number of streams, and what they observe of a path.

use crate::{MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::{FlowConfig, LinkConfig, Loss, PathConfig, TunedTransfer, TunerConfig, World};
use std::time::Duration;

/// Runs a transfer that chooses its streams; returns it with its goodput in Mbit/s.
fn automatic(path: &PathConfig, time: Duration) -> (TunedTransfer, f64) {
    let mut world = World::with_external(1);
    let route = world.add_path(path);
    let config = TunerConfig::automatic(path.rtt());
    let mut tuned = TunedTransfer::new(&mut world, path, &route, &config);
    world.run_with(time, MS, |world| tuned.tick(world));
    let goodput = tuned.delivered(&world).per(time).bits_per_sec() as f64 / 1e6;
    (tuned, goodput)
}

#[test]
fn random_loss_makes_streams_run_bbr() {
    let mut path = PathConfig::new(mbit(100.0), MS * 60, Bytes(750_000));
    path.forward.loss = Loss::Random { probability: 0.005 };
    let (tuned, goodput) = automatic(&path, SEC * 15);
    assert!(tuned.has_bbr() && goodput > 60.0, "{goodput}\n{}", tuned.trace_lines());
}

#[test]
fn number_of_streams_starts_as_rtt_suggests() {
    let path = |rtt| PathConfig::new(mbit(100.0), rtt, Bytes(500_000));
    let initial = |rtt| automatic(&path(rtt), MS * 100).0.streams();
    assert_eq!([MS * 20, MS * 40, MS * 100].map(initial), [4, 8, 16]);
}

#[test]
fn trains_measure_the_narrower_of_two_links() {
    let mut path = PathConfig::new(mbit(300.0), MS * 30, Bytes(500_000));
    let (rate, buffer) = (Some(mbit(100.0)), Bytes(200_000));
    path.first_hop = Some(LinkConfig { rate, buffer, ..LinkConfig::default() });
    let (tuned, _) = automatic(&path, SEC);
    let trace = tuned.trace_lines();
    assert!(trace.contains("packet trains measured 96.5 Mbit/s"), "{trace}");
}

#[test]
fn switch_to_bbr_at_run_time_overcomes_random_loss() {
    let mut path = PathConfig::new(mbit(100.0), MS * 60, Bytes(750_000));
    path.forward.loss = Loss::Random { probability: 0.01 };
    let mut world = World::new(1);
    let route = world.add_path(&path);
    let flow = world.add_flow(FlowConfig::new(&route));
    let mut seen = Bytes(0);
    let mut goodput = |algorithm| {
        world.set_algorithm(flow, algorithm);
        world.run_until(world.now() + SEC * 10);
        let delivered = world.stats(flow).delivered;
        let grown = delivered - std::mem::replace(&mut seen, delivered);
        grown.per(SEC * 10).bits_per_sec() as f64 / 1e6
    };
    let each = [Algorithm::Cubic, Algorithm::Bbr, Algorithm::Cubic].map(&mut goodput);
    assert!(each[0] < 10.0 && each[1] > 70.0 && each[2] < 30.0, "{each:?}");
}
