//! Flows that share a link.

use crate::{DATA_SHARE, MS, SEC, alone, mbit, port, preset};
use bankfull_control::Bytes;
use bankfull_sim::link::queue::QueueConfig;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::world::{FlowConfig, World};
use bankfull_sim::{Loss, PathConfig};

#[test]
fn equal_flows_share_fairly_in_the_long_run() {
    for (algorithm, seconds) in [(Algorithm::NewReno, 300), (Algorithm::Cubic, 300)] {
        let mut world = World::new(3);
        let route = world.add_path(&PathConfig::new(mbit(100.0), MS * 20, Bytes(125_000)));
        let flows = [0, 2].map(|start| {
            let mut config = FlowConfig::new(&route);
            config.algorithm = algorithm;
            config.start = SEC * start;
            world.add_flow(config)
        });
        world.run_until(SEC * seconds);
        let rates = flows.map(|f| world.report(f).goodput.bits_per_sec() as f64);
        let total = rates[0] + rates[1];
        assert!(total > 0.8 * 1e8 * DATA_SHARE, "{algorithm:?}: {rates:?}");
        let share = rates[0] / total;
        assert!((share - 0.5).abs() < 0.1, "{algorithm:?}: {rates:?}");
    }
}

#[test]
fn quic_and_cubic_share_behind_codel_with_ecn() {
    let mut path = PathConfig::new(mbit(100.0), MS * 20, Bytes(2_000_000));
    path.forward.queue = QueueConfig::Codel(Default::default());
    path.forward.ecn = true;
    let mut world = World::new(3);
    let route = world.add_path(&path);
    let flows = [Algorithm::Cubic, Algorithm::Quic].map(|algorithm| {
        world.add_flow(FlowConfig { algorithm, ecn: true, ..FlowConfig::new(&route) })
    });
    world.run_until(SEC * 30);
    let [cubic, quic] = flows.map(|flow| world.report(flow));
    let share = quic.goodput.bits_per_sec() as f64 / (1e8 * DATA_SHARE);
    assert!((0.4..0.75).contains(&share), "{share}");
    assert!(quic.stats.sender.marked > 0);
    assert_eq!((cubic.stats.sender.retransmits, quic.stats.sender.retransmits), (0, 0));
}

#[test]
fn marks_cost_a_quic_sender_alone_no_more_than_drops() {
    let share = |ecn: bool| {
        let mut path = PathConfig::new(mbit(100.0), MS * 100, Bytes(5_000_000));
        (path.forward.queue, path.forward.ecn) = (QueueConfig::Codel(Default::default()), ecn);
        let mut world = World::new(3);
        let route = world.add_path(&path);
        let config = FlowConfig { algorithm: Algorithm::Quic, ecn, ..FlowConfig::new(&route) };
        let flow = world.add_flow(config);
        world.run_until(SEC * 20);
        world.report(flow).goodput.bits_per_sec() as f64 / (1e8 * DATA_SHARE)
    };
    let (drops, marks) = (share(false), share(true));
    assert!(drops > 0.9 && marks > drops - 0.03, "{drops} {marks}");
}

#[test]
fn uplink_limits_only_its_host() {
    let mut world = World::new(3);
    let shared = world.add_path(&PathConfig::new(mbit(1000.0), MS * 10, Bytes(1_250_000)));
    let uplink = world.add_link(port(100.0, 1 << 20, MS));
    let slow = world.add_flow(FlowConfig::new(&shared.with_uplink(uplink)));
    let mut config = FlowConfig::new(&shared);
    config.pacing = Some(mbit(600.0));
    let fast = world.add_flow(config);
    world.run_until(SEC * 20);
    let [slow, fast] = [slow, fast].map(|f| world.report(f).goodput.bits_per_sec() / 1_000_000);
    assert!((90..=97).contains(&slow), "{slow}");
    assert!((580..=600).contains(&fast), "{fast}");
}

#[test]
fn finished_flow_leaves_its_share() {
    let mut world = World::new(3);
    let route = world.add_path(&PathConfig::new(mbit(100.0), MS * 20, Bytes(250_000)));
    let [first, second] = [0, 1].map(|_| world.add_flow(FlowConfig::new(&route)));
    world.run_until(SEC * 10);
    world.finish(first);
    assert!(world.run_until_done(SEC * 11), "data in flight arrives");
    world.run_until(SEC * 20);
    // A loss delays the data after it, so single samples may be low.
    let late = &world.report(second).samples[150..];
    assert!(late.iter().all(|&rate| rate > mbit(60.0)), "{late:?}");
    assert!(world.report(first).completion.is_some());
}

#[test]
fn lost_acks_cost_little() {
    let mut path = PathConfig::new(mbit(100.0), MS * 20, Bytes(250_000));
    path.reverse.loss = Loss::Random { probability: 0.1 };
    let report = alone(&path, SEC * 20, |_| ());
    assert!(report.goodput.bits_per_sec() > 90_000_000, "{report:?}");
    assert_eq!(report.stats.sender.timeouts, 0);
}

#[test]
fn seed_determines_everything() {
    let run = |seed| {
        let mut world = World::new(seed);
        let route = world.add_path(&preset("lossy"));
        let flows: Vec<_> = (0..4).map(|_| world.add_flow(FlowConfig::new(&route))).collect();
        world.run_until(SEC * 5);
        flows.iter().map(|&f| world.report(f)).collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
