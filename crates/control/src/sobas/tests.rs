use super::*;
use crate::pacing;
use crate::path_control::{CachedPath, PathState};
use crate::units::Bytes;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn mbit(rate: f64) -> Rate {
    Rate::from_bits_per_sec(rate * 1e6)
}

/// A transfer as seen by the controller. Ticks of 10 ms over a path of 20 ms.
struct Script {
    sobas: Sobas,
    seen: Observation,
    last: Option<Decision>,
}

impl Script {
    fn new() -> Self {
        Self::with_rate_max(None)
    }

    fn with_rate_max(rate_max: Option<Rate>) -> Self {
        Self::with_config(rate_max, None)
    }

    fn with_config(rate_max: Option<Rate>, cached_path: Option<CachedPath>) -> Self {
        let (window_max, capacity_timeout) = (Bytes::mib(64), 300 * MS);
        let config = Config { window_max, capacity_timeout, rate_max, cached_path };
        let seen = Observation { streams: 1, rtt: Some(20 * MS), ..Observation::default() };
        Self { sobas: Sobas::new(config), seen, last: None }
    }

    /// A script with a known capacity of 965 Mbit/s, receiving 947 Mbit/s.
    fn limited() -> Self {
        let mut script = Self::new();
        script.last = script.report_capacity(mbit(965.0));
        script.run(100, 947.0);
        script
    }

    /// The same after losses without a queue have disabled the limit.
    fn disabled() -> Self {
        let mut script = Self::limited();
        for _ in 0..10 {
            script.seen.retransmits += 3;
            script.run(8, 300.0);
        }
        assert_eq!(script.state(), State::Disabled);
        script
    }

    /// Runs `ticks` of 10 ms at a rate; returns all decisions.
    fn run(&mut self, ticks: u32, rate_mbit: f64) -> Vec<Decision> {
        let mut all = Vec::new();
        for _ in 0..ticks {
            self.seen.now += 10 * MS;
            self.seen.received += Bytes((rate_mbit * 1e6 / 8.0 / 100.0) as u64);
            all.extend(self.sobas.observe(&self.seen));
        }
        self.last = all.last().copied().or(self.last);
        all
    }

    /// Reports the capacity after the first RTT.
    fn report_capacity(&mut self, capacity: Rate) -> Option<Decision> {
        self.run(1, 0.0);
        self.sobas.on_capacity(self.seen.now, capacity)
    }

    fn state(&self) -> State {
        self.sobas.state()
    }
}

#[test]
fn start_is_bounded_below_capacity() {
    let mut script = Script::new();
    script.run(2, 0.0);
    let decision = script.sobas.on_capacity(20 * MS, mbit(965.0)).unwrap();
    assert_eq!(decision.state, State::StartBounded);
    let pacing = decision.pacing.unwrap();
    assert_eq!(pacing.bits_per_sec() / 100_000, 9457);
    let fills = pacing.bytes_per_sec() as f64 * 0.02;
    assert!((1.02..1.06).contains(&(decision.window.0 as f64 / fills)), "{decision:?}");
    assert_eq!(script.sobas.on_capacity(20 * MS, mbit(500.0)), None, "it has begun");
}

#[test]
fn capacity_before_first_rtt_is_deferred() {
    let mut script = Script::new();
    script.seen.rtt = None;
    script.run(1, 0.0);
    assert_eq!(script.sobas.on_capacity(10 * MS, mbit(965.0)), None);
    script.seen.rtt = Some(20 * MS);
    let decision = script.run(1, 0.0)[0];
    assert_eq!((decision.state, decision.reason), {
        (State::StartBounded, Reason::CapacityKnown(mbit(965.0)))
    });
    assert!(decision.window > Bytes::mib(2), "{decision:?}");
}

#[test]
fn rate_below_initial_windows_disables() {
    // 16 initial windows in 20 ms are 92.7 Mbit/s.
    for (rate, state) in [(20.0, State::Disabled), (80.0, State::Limited)] {
        let mut script = Script::new();
        script.seen.streams = 16;
        script.run(100, rate);
        script.seen.rtt = Some(40 * MS);
        let decision = script.run(20, rate)[0];
        assert_eq!(decision.state, state, "{decision:?}");
        let is_oversubscribed = matches!(decision.reason, Reason::TooManyStreams(_));
        assert_eq!(is_oversubscribed, state == State::Disabled, "{decision:?}");
    }
}

#[test]
fn start_without_capacity_is_open() {
    let mut script = Script::new();
    let decisions = script.run(31, 100.0);
    assert_eq!(decisions.len(), 1);
    let decision = decisions[0];
    assert_eq!((decision.state, decision.pacing), (State::StartOpen, None));
    assert_eq!((decision.window, decision.reason), (Bytes::mib(64), Reason::CapacityUnknown));
}

#[test]
fn target_limited_flat_rate_grows_until_no_gain() {
    let mut script = Script::new();
    script.report_capacity(mbit(965.0));
    let states: Vec<State> = script.run(60, 947.0).iter().map(|d| d.state).collect();
    assert_eq!(states, [State::Growing, State::Limited]);
}

#[test]
fn rate_max_is_kept_without_probing_up() {
    let mut script = Script::with_rate_max(Some(mbit(300.0)));
    let decision = script.report_capacity(mbit(965.0)).unwrap();
    assert_eq!((decision.state, decision.pacing), (State::StartBounded, Some(mbit(300.0))));
    let decisions = script.run(3_000, 294.0);
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    let decision = decisions[0];
    assert_eq!((decision.state, decision.pacing), (State::Limited, Some(mbit(300.0))));
    assert_eq!(decision.reason, Reason::RateMax(mbit(300.0)));
    assert_eq!(decision.window, Bytes::mib(64), "the sender holds it");
}

#[test]
fn flat_rate_at_rate_max_is_not_a_full_path() {
    // Unknown capacity, a flat rate and a varying RTT.
    let mut script = Script::with_rate_max(Some(mbit(300.0)));
    let decisions = script.run(31, 294.0);
    assert_eq!((decisions[0].state, decisions[0].pacing), (State::StartOpen, Some(mbit(300.0))));
    script.seen.rtt = Some(23 * MS);
    assert_eq!(script.run(3, 294.0), []);
    script.seen.rtt = Some(20 * MS);
    assert_eq!(script.run(1_000, 294.0), []);
    // A slower path is still detected.
    script.seen.rtt = Some(30 * MS);
    script.run(20, 200.0);
    let decision = script.last.unwrap();
    assert_eq!(decision.state, State::Limited);
    assert!(decision.pacing.unwrap() < mbit(210.0), "{decision:?}");
}

#[test]
fn rate_max_that_changes_limits_at_once_and_lets_grow() {
    let mut script = Script::limited();
    let lower = script.sobas.on_rate_max(script.seen.now, Some(mbit(100.0)));
    assert_eq!(lower.pacing, Some(mbit(100.0)));
    assert_eq!(lower.window, Bytes::mib(64), "the sender holds it");
    assert_eq!(lower.reason, Reason::RateMaxChanged(Some(mbit(100.0))));
    let decisions = script.run(3_000, 98.0);
    let is_kept = |decision: &Decision| decision.pacing == Some(mbit(100.0));
    assert!(decisions.len() <= 1 && decisions.iter().all(is_kept), "{decisions:?}");
    // Without the maximum, the path is filled as by a new transfer.
    let open = script.sobas.on_rate_max(script.seen.now, None);
    assert_eq!((open.state, open.reason), (State::StartBounded, Reason::RateMaxChanged(None)));
    assert!(open.pacing.unwrap() > mbit(900.0), "{open:?}");
    let states: Vec<State> = script.run(100, 947.0).iter().map(|d| d.state).collect();
    assert_eq!(states, [State::Growing, State::Limited]);
}

#[test]
fn rate_max_change_before_the_capacity_is_known() {
    let mut script = Script::new();
    script.run(31, 100.0);
    let lower = script.sobas.on_rate_max(script.seen.now, Some(mbit(50.0)));
    assert_eq!((lower.state, lower.pacing), (State::StartOpen, Some(mbit(50.0))));
    assert_eq!(script.run(500, 49.0), []);
    let open = script.sobas.on_rate_max(script.seen.now, None);
    assert_eq!((open.state, open.pacing, open.window), (State::StartOpen, None, Bytes::mib(64)));
}

#[test]
fn sender_limited_rate_is_not_a_full_path() {
    let mut script = Script::new();
    script.report_capacity(mbit(965.0));
    script.seen.bottleneck = Bottleneck::Sender;
    // A flat rate and then a drop, both caused by the sender.
    assert_eq!(script.run(300, 200.0), []);
    assert_eq!(script.run(300, 50.0), []);
    assert_eq!(script.state(), State::StartBounded);
}

#[test]
fn rate_drop_lowers_limit_only_with_queue() {
    let mut script = Script::limited();
    script.run(100, 947.0);
    assert_eq!(script.run(12, 600.0), [], "not self-induced without a queue");
    let mut script = Script::limited();
    script.run(100, 947.0);
    script.seen.rtt = Some(25 * MS);
    script.run(20, 600.0);
    let decision = script.last.unwrap();
    assert!(decision.pacing.unwrap() < mbit(850.0), "{decision:?}");
}

#[test]
fn disabled_after_loss_without_queue_until_quiet() {
    let mut script = Script::disabled();
    let decision = script.last.unwrap();
    let beyond = mbit(965.0 * 1.05);
    assert_eq!((decision.window, decision.pacing), (Bytes::mib(64), Some(beyond)));
    script.run(1100, 300.0);
    assert_eq!(script.state(), State::Avoidance);
}

#[test]
fn loss_tolerant_cc_paces_a_lossy_path() {
    let mut script = Script::disabled();
    assert!(script.sobas.has_loss_without_queue());
    let baseline_loss = Some(LossSample { retransmits: 10, segments: 10_000 });
    let held = script.sobas.on_loss_tolerant_cc(script.seen.now, baseline_loss).unwrap();
    assert_eq!((held.state, held.reason), (State::Avoidance, Reason::LossTolerantCc));
    assert_eq!(held.pacing.map(|rate| rate.bits_per_sec() / 100_000), Some(9457));
    assert_eq!(script.sobas.on_loss_tolerant_cc(script.seen.now, baseline_loss), None);
    for _ in 0..30 {
        script.seen.retransmits += 3;
        script.run(10, 940.0);
    }
    assert_eq!(script.state(), State::Limited);
    assert_eq!(script.last.unwrap().window, Bytes::mib(64), "room for repairs");
    // With a self-induced queue, they are self-induced losses.
    script.seen.rtt = Some(28 * MS);
    script.seen.retransmits += 300;
    script.run(30, 940.0);
    let paced = |script: &Script| script.last.unwrap().pacing.unwrap();
    assert!(paced(&script) < mbit(940.0), "{:?}", script.last);
    let left = script.sobas.on_loss_tolerant_cc(script.seen.now, None).unwrap();
    assert_eq!((left.state, left.reason), (State::Disabled, Reason::LossSensitiveCc));
}

#[test]
fn disabled_higher_rate_refutes_train_capacity() {
    let mut script = Script::disabled();
    script.run(40, 1000.0);
    let decision = script.last.unwrap();
    assert_eq!((decision.state, decision.pacing), (State::Disabled, None));
}

#[test]
fn initial_window_losses_are_ignored() {
    let mut script = Script::new();
    script.report_capacity(mbit(965.0));
    for _ in 0..12 {
        script.seen.retransmits += 1;
        script.run(4, 20.0);
    }
    assert_eq!(script.state(), State::StartBounded);
    for _ in 0..20 {
        script.seen.retransmits += 1;
        script.run(4, 20.0);
    }
    assert_eq!(script.state(), State::Disabled, "{:?}", script.last);
}

#[test]
fn growth_is_evaluated_over_100_ms() {
    let mut script = Script::new();
    script.report_capacity(mbit(965.0));
    while script.state() != State::Growing {
        script.run(1, 947.0);
    }
    let stepped_at = script.seen.now;
    // An interval is 40 ms; bursts of TCP vary it by some percent.
    let mut noise = [980.0, 915.0].into_iter().cycle();
    while script.state() == State::Growing {
        assert!(script.seen.now < stepped_at + 300 * MS, "{:?}", script.last);
        script.run(4, noise.next().unwrap());
    }
    assert!(script.seen.now >= stepped_at + 140 * MS, "{:?}", script.last);
    let reason = script.last.unwrap().reason;
    assert!(matches!(reason, Reason::NoGain(rate) if rate < mbit(970.0)), "{reason}");
}

#[test]
fn probe_up_is_repeated_soon_after_a_falling_rate() {
    for (probe_rate, is_soon) in [(930.0, true), (947.0, false)] {
        let mut script = Script::limited();
        while script.state() != State::Reprobing {
            script.run(1, 947.0);
        }
        while script.state() == State::Reprobing {
            script.run(1, probe_rate);
        }
        assert_eq!(script.state(), State::Limited);
        let limited_at = script.seen.now;
        while script.state() == State::Limited {
            script.run(1, 949.0);
        }
        let probed_after = script.seen.now - limited_at;
        assert_eq!(probed_after < SECOND, is_soon, "{probe_rate}: {probed_after:?}");
        assert_eq!(probed_after < 9 * SECOND, is_soon, "{probe_rate}: {probed_after:?}");
    }
}

#[test]
fn overflow_lowers_limit_only_at_target_rate() {
    for (rate, lowers) in [(947.0, true), (800.0, false)] {
        let mut script = Script::limited();
        script.seen.rtt = Some(20_600 * MS / 1000);
        script.run(40, rate);
        let before = script.last.unwrap();
        assert_eq!(before.state, State::Limited);
        script.seen.retransmits += 3;
        script.run(4, rate);
        let after = script.last.unwrap();
        assert_eq!(matches!(after.reason, Reason::Overflowed(_)), lowers, "{after:?}");
        assert_eq!(after.pacing < before.pacing, lowers, "{after:?}");
    }
}

#[test]
fn receiver_limited_delay_is_not_a_queue() {
    let mut script = Script::limited();
    let before = script.last.unwrap();
    script.seen.bottleneck = Bottleneck::Receiver;
    script.seen.rtt = Some(22 * MS);
    assert_eq!(script.run(20, 947.0), [], "late answers are not a queue");
    // Probing continues, as more may be available.
    script.seen.rtt = Some(20 * MS);
    let decisions = script.run(1000, 947.0);
    let held =
        decisions.iter().find(|d| d.reason == Reason::LimitedBy(Bottleneck::Receiver)).unwrap();
    let again = decisions.iter().find(|d| d.at > held.at).unwrap();
    assert_eq!((again.state, again.reason), (State::Reprobing, Reason::ProbeUp));
    assert!(again.at - held.at < SECOND, "{decisions:?}");
    let rising = decisions.last().unwrap().pacing.unwrap();
    assert!(rising >= before.pacing.unwrap(), "{decisions:?}");
    let steps = script.run(100, 1100.0);
    assert!(steps.iter().any(|d| matches!(d.reason, Reason::RateRose(_))), "{steps:?}");
}

#[test]
fn limit_survives_an_interrupted_path() {
    let mut script = Script::limited();
    let before = script.last;
    script.seen.rtt = None;
    assert_eq!(script.run(500, 0.0), []);
    script.seen.rtt = Some(20 * MS);
    script.run(20, 947.0);
    assert_eq!(script.last.unwrap().pacing, before.unwrap().pacing);
}

/// Windows and rates of all decisions can be set, for any input.
#[test]
fn decisions_stay_within_bounds_for_random_input() {
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for case in 0..200 {
        let rate_max = (case % 2 > 0).then(|| mbit(1.0 + next(1_000) as f64));
        let mut script = Script::with_rate_max(rate_max);
        if case % 3 > 0 {
            script.sobas.on_capacity(Duration::ZERO, mbit(10.0 + next(100_000) as f64));
        }
        for _ in 0..500 {
            script.seen.rtt = (next(4) > 0).then(|| Duration::from_micros(next(300_000)));
            script.seen.retransmits += next(3);
            script.seen.probes_lost += next(2);
            script.seen.bottleneck =
                [Bottleneck::Path, Bottleneck::Path, Bottleneck::Sender, Bottleneck::Receiver]
                    [next(4) as usize];
            let rate = next(20_000) as f64;
            for decision in script.run(1 + next(9) as u32, rate) {
                let least = Bytes(2 * pacing::DEFAULT_MSS.0);
                assert!(decision.window >= least, "{decision:?}");
                assert!(decision.window <= Bytes::mib(64), "{decision:?}");
                let paced = decision.pacing.is_none_or(|rate| rate.bytes_per_sec() > 10_000);
                assert!(paced, "{decision:?}");
                let most = rate_max.unwrap_or(mbit(1e9));
                assert!(rate_max.is_none() || decision.pacing.is_some(), "{decision:?}");
                assert!(decision.pacing.is_none_or(|rate| rate <= most), "{decision:?}");
                assert!(!decision.reason.to_string().is_empty());
            }
        }
    }
}

#[test]
fn short_path_disables_any_limit() {
    let mut script = Script::limited();
    script.seen.rtt = Some(Duration::from_micros(200));
    let decisions = script.run(300, 947.0);
    assert_eq!(decisions.len(), 1);
    let decision = decisions[0];
    assert_eq!((decision.state, decision.reason), (State::Disabled, Reason::ShortPath));
    assert_eq!((decision.window, decision.pacing), (Bytes::mib(64), None));
    assert_eq!(script.sobas.on_capacity(SECOND, mbit(965.0)), None);
}

#[test]
fn cached_path_bounds_the_start_on_same_path() {
    let rate = mbit(900.0);
    let state = |rtt: Duration| {
        let mut script = Script::with_config(None, Some(CachedPath { rate, rtt }));
        script.run(40, 10.0);
        let decision = script.last.unwrap();
        (decision.state, decision.pacing.map(|rate| rate.bits_per_sec() / 1_000_000))
    };
    assert_eq!(state(19 * MS), (State::StartBounded, Some(882)));
    assert_eq!(state(40 * MS), (State::StartOpen, None), "another path");
    let mut script = Script::with_config(None, Some(CachedPath { rate, rtt: 20 * MS }));
    let decision = script.report_capacity(mbit(500.0)).unwrap();
    assert_eq!(decision.reason, Reason::CapacityKnown(mbit(500.0)), "trains know better");
}

#[test]
fn cached_path_and_late_capacity_wait_for_rtt() {
    let cached_path = Some(CachedPath { rate: mbit(900.0), rtt: 20 * MS });
    let mut script = Script::with_config(None, cached_path);
    script.seen.rtt = None;
    // Connecting takes longer than the capacity timeout.
    assert_eq!(script.run(50, 0.0), []);
    script.seen.rtt = Some(20 * MS);
    assert_eq!(script.run(1, 0.0)[0].reason, Reason::CachedRate(mbit(900.0)));
    let mut script = Script::new();
    script.seen.rtt = None;
    // Received data proves a stream, though its RTT is unknown.
    let decided = script.run(50, 100.0);
    assert_eq!(decided[0].reason, Reason::CapacityUnknown);
    assert_eq!(script.sobas.on_capacity(script.seen.now, mbit(965.0)), None);
    script.seen.rtt = Some(20 * MS);
    assert_eq!(script.run(1, 100.0)[0].reason, Reason::CapacityKnown(mbit(965.0)));
}

#[test]
fn probe_up_continues_despite_tolerated_loss() {
    let mut script = Script::limited();
    let lossy = |script: &mut Script, ticks, mbit| {
        let mut decided = Vec::new();
        for _ in 0..ticks {
            script.seen.retransmits += 1;
            decided.extend(script.run(1, mbit));
        }
        decided
    };
    script.run(100, 947.0);
    let decided = lossy(&mut script, 1500, 947.0);
    let probes = decided.iter().filter(|d| d.reason == Reason::ProbeUp).count();
    assert!(probes > 0, "{decided:?}");
    assert!(decided.iter().all(|d| d.reason != Reason::LostWithoutQueue), "{decided:?}");
}

#[test]
fn path_state_names_the_reason_of_the_last_decision() {
    let none = Script::new().sobas.path_state();
    assert_eq!(none, PathState::default());
    assert_eq!(Script::limited().sobas.path_state(), PathState { is_full: true, ..none });
    assert_eq!(Script::disabled().sobas.path_state(), PathState { is_lossy: true, ..none });
    let mut short = Script::limited();
    short.seen.rtt = Some(Duration::from_micros(200));
    short.run(2, 947.0);
    assert_eq!(short.sobas.path_state(), PathState { is_short: true, ..none });
    let mut many = Script::new();
    many.seen.streams = 16;
    many.run(100, 20.0);
    many.seen.rtt = Some(40 * MS);
    many.run(20, 20.0);
    assert_eq!(many.sobas.path_state(), PathState { is_oversubscribed: true, ..none });
}

#[test]
fn path_state_follows_from_decision_and_loss() {
    let mut rng = 7_u64;
    let mut next = |below: u64| {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (rng >> 33) % below
    };
    let mut seen = Vec::new();
    for case in 0..60 {
        let mut script = Script::new();
        script.seen.streams = 1 + (case % 3) * 8;
        let mut last = script.report_capacity(mbit(10.0 + next(2_000) as f64));
        for _ in 0..200 {
            script.seen.rtt = Some(Duration::from_micros(1_000 + next(80_000)));
            script.seen.retransmits += next(2);
            last = script.run(1 + next(9) as u32, next(2_000) as f64).last().copied().or(last);
            let baseline = LossSample { retransmits: 10, segments: 10_000 };
            let tolerated = (next(20) == 0).then(|| Some(baseline).filter(|_| case % 2 > 0));
            let switched = tolerated
                .and_then(|baseline| script.sobas.on_loss_tolerant_cc(script.seen.now, baseline));
            last = switched.or(last);
            let disabled = last.filter(|last| last.state == State::Disabled);
            let reason = disabled.map(|last| last.reason);
            let is_lost_without_queue = last.is_some_and(|last| {
                let reason = last.reason;
                matches!(reason, Reason::LostWithoutQueue | Reason::CongestedLoss)
                    || reason == Reason::LossSensitiveCc
            });
            let expected = PathState {
                is_lossy: is_lost_without_queue || script.sobas.has_loss_without_queue(),
                is_short: reason == Some(Reason::ShortPath),
                is_oversubscribed: matches!(reason, Some(Reason::TooManyStreams(_))),
                is_full: last.is_some_and(|last| {
                    [State::Limited, State::Growing, State::Reprobing].contains(&last.state)
                }),
                is_ack_limited: false,
                has_foreign_queue: false,
            };
            assert_eq!(script.sobas.path_state(), expected, "{last:?}");
            seen.push(expected);
        }
    }
    for of in [|s: &PathState| s.is_lossy, |s: &PathState| s.is_short, |s: &PathState| s.is_full] {
        assert!(seen.iter().any(of) && !seen.iter().all(of));
    }
}
