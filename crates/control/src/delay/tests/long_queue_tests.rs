//! Tests of a path on which TCP keeps a long queue, and BBR replaces it.

use super::*;

/// Path with a long queue of TCP, on which BBR begins.
fn left_to_bbr() -> Fluid {
    let mut fluid = Fluid::new(10.0, 50);
    fluid.run(3_000);
    // The rate falls, a delay stands in spite of lower rates, and TCP fills a buffer of a second.
    (fluid.buffer, fluid.extra_delay, fluid.capacity) = (MS * 1_000, MS * 150, 4.0);
    fluid.run(7_000);
    assert!(fluid.controller.path_state().has_long_queue, "{:?}", fluid.decisions.last());
    let baseline = LossSample { retransmits: 0, segments: 10_000 };
    let found = fluid.controller.on_loss_tolerant_cc(fluid.now, Some(baseline));
    assert_eq!(
        found.map(|one| (one.state, one.reason)),
        Some((State::Disabled, Reason::ShortQueueCc))
    );
    fluid.apply(found);
    fluid
}

/// Reason and window of the last decision.
fn last(fluid: &Fluid) -> (Reason, u64) {
    fluid.decisions.last().map(|one| (one.reason, one.window.0)).unwrap()
}

#[test]
fn long_queue_of_tcp_leaves_the_path_to_bbr() {
    let mut fluid = left_to_bbr();
    // Two BDPs of the rate and the RTT without the queue, in which it drains.
    assert!((40_000..60_000).contains(&last(&fluid).1), "{:?}", last(&fluid));
    fluid.run(6_000);
    assert!((40_000..60_000).contains(&last(&fluid).1), "a queue of three RTTs stands");
    fluid.run(5_000);
    assert_eq!(last(&fluid), (Reason::ShortQueueCc, 1 << 30));
    // Without losses and with a short queue, BBR runs on without a window limit.
    (fluid.extra_delay, fluid.queue, fluid.window) = (Duration::ZERO, 0.0, 4e5);
    fluid.requests.clear();
    fluid.run(60_000);
    assert_eq!(fluid.controller.state(), State::Disabled);
    let ended = fluid.controller.on_loss_tolerant_cc(fluid.now, None);
    assert_eq!(
        ended.map(|one| (one.state, one.reason)),
        Some((State::Disabled, Reason::LossSensitiveCc))
    );
    // A short queue of TCP no longer counts as long, and the path is limited again.
    fluid.run(25_000);
    assert!(!fluid.controller.path_state().has_long_queue);
    assert!(fluid.has_reason(|reason| matches!(reason, Reason::Quiet)));
}

#[test]
fn drain_ends_once_the_queue_is_short() {
    let mut fluid = left_to_bbr();
    (fluid.extra_delay, fluid.queue) = (Duration::ZERO, 0.0);
    fluid.run(1_000);
    assert_eq!(last(&fluid), (Reason::ShortQueueCc, 1 << 30));
}

#[test]
fn short_route_ends_the_drain_of_a_long_queue() {
    let mut fluid = left_to_bbr();
    (fluid.rtt, fluid.extra_delay, fluid.queue) = (MS * 3 / 10, Duration::ZERO, 0.0);
    fluid.run(20);
    assert_eq!(last(&fluid), (Reason::ShortPath, 1 << 30));
    assert_eq!(fluid.controller.on_loss_tolerant_cc(fluid.now, None), None);
    assert!(!fluid.controller.is_bbr_for_queue);
}
