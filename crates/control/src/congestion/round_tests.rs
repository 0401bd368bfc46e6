//! Tests of single rounds and states, without a path.

use super::*;

const MTU: u64 = 1200;
const MS: Duration = Duration::from_millis(1);

/// Controller in `Cruise`: 1.2 MB/s, minimum RTT 10 ms.
fn cruising() -> ModelBased {
    let mut control = ModelBased::new(Duration::ZERO, Bytes(MTU));
    for n in 0..100 {
        control.on_sent(MS * n, Bytes(MTU));
        if n >= 10 {
            control.on_ack(MS * n, MS * (n - 10), Bytes(MTU), false);
        }
    }
    control.state = State::Cruise(3);
    control.round.index = 100;
    control
}

#[test]
fn continued_overflows_reduce_twice_more_and_then_no_more() {
    let mut control = cruising();
    let full = control.bw().unwrap();
    let mut overflow = |at: u64| {
        control.bw_shortterm = f64::INFINITY;
        let round = Round { index: at, max_bw: full * 0.9, ..Round::default() };
        control.on_overflow(&round);
        control.bw_shortterm / full
    };
    assert!((overflow(100) - CUBIC_BETA).abs() < 1e-9);
    assert_eq!(overflow(101), f64::INFINITY, "losses of earlier data");
    let later = [102, 104].map(&mut overflow);
    assert!(later.iter().all(|rest| (rest - 0.9).abs() < 1e-9), "{later:?}");
    // Flows that do not reduce overflow the queue in each cycle.
    assert!([106, 113, 120, 127].map(&mut overflow).iter().all(|rest| rest.is_infinite()));
    assert!((overflow(127 + CYCLE_ROUNDS) - CUBIC_BETA).abs() < 1e-9);
}

#[test]
fn marks_reduce_while_a_queue_stands() {
    let mut control = cruising();
    let full = control.bw().unwrap();
    let min_rtt = control.min_rtt.unwrap().0;
    let mut left = |marks: &[bool], queue: Duration| {
        for &is_marked in marks {
            (control.state, control.round.max_bw) = (State::Cruise(9), full);
            control.round.min_rtt = Some(min_rtt + queue);
            if is_marked {
                control.on_marked();
            }
            control.on_round_end(MS * 100);
        }
        control.bw().unwrap() / full
    };
    assert!((left(&[false], MS * 9) - 1.0).abs() < 1e-9);
    assert!((left(&[true], MS) - 1.0).abs() < 1e-9, "no standing queue");
    assert!((left(&[true; 2], MS * 9) - CUBIC_BETA).abs() < 1e-9, "the second is of earlier data");
    assert!((left(&[true], MS * 9) - CUBIC_BETA.powi(2)).abs() < 1e-9, "each counts");
    (control.state, control.round.app_limited) = (State::Startup, true);
    control.on_marked();
    control.on_round_end(MS * 100);
    assert_eq!(control.state, State::Drain);
}

#[test]
fn marks_shorten_the_cruise_after_lossy_probes() {
    let mut control = cruising();
    control.state = State::Cruise(MAX_CRUISE_ROUNDS);
    let full = control.bw().unwrap();
    let mut least = full;
    for _ in 0..MAX_CRUISE_ROUNDS {
        control.round.max_bw = full;
        control.round.min_rtt = Some(MS * 20);
        control.on_marked();
        control.on_round_end(MS * 100);
        least = least.min(control.bw().unwrap());
    }
    assert!(least > full * 0.1, "{}", least / full);
}

#[test]
fn growth_after_reduction_waits_for_next_cycle() {
    for (since, state) in [(REGROWTH_ROUNDS, State::Cruise(6)), (REGROWTH_ROUNDS + 1, State::Up)] {
        let mut control = cruising();
        control.overflows.last_reduction = control.round.index - since;
        control.probe.prior_bw = control.bw().unwrap() / BW_GROWTH;
        control.end_probe(0.0);
        assert_eq!(control.state, state, "{since} rounds after a reduction");
    }
}

#[test]
fn queue_in_probe_rtt_widens_window() {
    let queued = Round { min_rtt: Some(MS * 30), ..Round::default() };
    let mut control = cruising();
    let alone = control.window().0;
    control.end_probe_rtt(&queued, true, MS * 100);
    let bw = control.bw().unwrap();
    let widened = (control.window().0 - alone) as f64;
    assert!((widened - bw * 0.02).abs() < 2.0, "{widened}");
    // An expired minimum RTT is replaced instead.
    control.end_probe_rtt(&queued, true, MS * 11_000);
    assert_eq!(control.min_rtt, Some((MS * 30, MS * 11_000)));
    assert_eq!(control.probe.cross_traffic_delay, Duration::ZERO);
}

#[test]
fn outage_is_followed_by_a_probe() {
    for (share, state) in [(0.4, State::Drain), (0.6, State::Cruise(2))] {
        let mut control = cruising();
        let max_bw = control.bw().unwrap() * share;
        control.round = Round { lost_bytes: 3, acked_bytes: 7, max_bw, ..control.round };
        control.on_round_end(MS * 100);
        assert_eq!(control.state, state, "{share} of the bandwidth");
        if state == State::Drain {
            control.on_end_acks(Bytes(0), false);
            assert_eq!(control.state, State::Cruise(0));
        }
    }
}

#[test]
fn restart_takes_no_rtt_from_before() {
    let mut control = cruising();
    control.restart(MTU * INITIAL_CWND_DATAGRAMS);
    let round = |ms: u32, max_bw| Round { min_rtt: Some(MS * ms), max_bw, ..Round::default() };
    let before = control.startup.rtt;
    // The queue of the path before, and growth from nothing.
    control.check_full_bw(&Round { app_limited: true, ..round(80, 1e6) }, false);
    control.check_full_bw(&round(20, 1e6), false);
    assert_eq!(control.startup.rtt, before);
    control.check_full_bw(&round(20, 2e6), false);
    assert_eq!(control.startup.rtt, before.max(Some(MS * 20)));
}

#[test]
fn excessive_loss_in_two_rounds_forgets_maximum() {
    for (queue, rounds, left) in [(MS * 40, 2, 0.4), (MS * 40, 1, 1.0), (Duration::ZERO, 2, 1.0)] {
        let mut control = cruising();
        let (max_bw, min_rtt) = (control.max_bw.get().unwrap(), control.min_rtt.unwrap().0);
        for n in 0..rounds {
            let lossy = Round { lost_bytes: 3, acked_bytes: 7, ..control.round };
            // The second is short of acknowledgements.
            let bw = max_bw * (0.4 - 0.1 * f64::from(n));
            control.round = Round { min_rtt: Some(min_rtt + queue), max_bw: bw, ..lossy };
            control.on_round_end(MS * 100);
        }
        let found = control.max_bw.get().unwrap() / max_bw;
        assert!((found - left).abs() < 1e-9, "{found} after {rounds} with a queue of {queue:?}");
    }
}
