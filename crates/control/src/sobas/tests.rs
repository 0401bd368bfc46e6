use super::*;
use crate::bottleneck::Bottleneck;
use crate::path_control::CachedPath;

const MS: Duration = Duration::from_millis(1);

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
        Self::with_config(None, None)
    }

    fn with_config(rate_max: Option<Rate>, cached_path: Option<CachedPath>) -> Self {
        let (window_max, capacity_timeout) = (Bytes::mib(64), 300 * MS);
        let config = Config { window_max, capacity_timeout, rate_max, cached_path };
        let seen = Observation { streams: 1, rtt: Some(20 * MS), ..Observation::default() };
        Self { sobas: Sobas::new(config), seen, last: None }
    }

    /// A script with a known capacity, before any data.
    fn with_capacity(mbits: f64) -> Self {
        let mut script = Self::new();
        script.run(1, 0.0);
        script.last = script.sobas.on_capacity(script.seen.now, mbit(mbits));
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

    fn state(&self) -> State {
        self.sobas.state()
    }
}

/// Returns the window as a multiple of rate × RTT.
fn headroom(decision: &Decision, mbits: f64, rtt: Duration) -> f64 {
    decision.window.0 as f64 / (mbits * 1e6 / 8.0 * rtt.as_secs_f64())
}

#[test]
fn start_is_bounded_below_the_capacity() {
    let mut script = Script::with_capacity(965.0);
    let decision = script.last.unwrap();
    let expected = (State::StartBounded, Some(mbit(945.7)), Reason::CapacityKnown(mbit(965.0)));
    assert_eq!((decision.state, decision.pacing, decision.reason), expected);
    assert!((1.04..1.06).contains(&headroom(&decision, 945.7, 20 * MS)), "{decision:?}");
    assert_eq!(script.sobas.on_capacity(20 * MS, mbit(500.0)), None, "it has begun");
}

#[test]
fn capacity_and_data_may_precede_the_first_rtt() {
    let mut script = Script::new();
    script.seen.rtt = None;
    assert_eq!(script.run(50, 0.0), [], "nothing is known of the path");
    assert_eq!(script.sobas.on_capacity(script.seen.now, mbit(965.0)), None);
    script.seen.rtt = Some(20 * MS);
    assert_eq!(script.run(1, 0.0)[0].reason, Reason::CapacityKnown(mbit(965.0)));
    let mut script = Script::new();
    script.seen.rtt = None;
    let decisions = script.run(50, 100.0);
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    let decision = decisions[0];
    assert_eq!((decision.state, decision.reason), (State::StartOpen, Reason::CapacityUnknown));
    assert_eq!((decision.window, decision.pacing), (Bytes::mib(64), None));
    assert_eq!(script.sobas.on_capacity(script.seen.now, mbit(965.0)), None);
    script.seen.rtt = Some(20 * MS);
    assert_eq!(script.run(1, 100.0)[0].reason, Reason::CapacityKnown(mbit(965.0)));
}

#[test]
fn cached_path_bounds_the_start() {
    let cached_path = Some(CachedPath { rate: mbit(900.0), rtt: 20 * MS });
    let mut script = Script::with_config(None, cached_path);
    let decision = script.run(40, 10.0)[0];
    assert_eq!((decision.state, decision.pacing), (State::StartBounded, Some(mbit(882.0))));
}

#[test]
fn flat_rate_below_the_limit_sizes_the_window() {
    let mut script = Script::with_capacity(965.0);
    script.run(4, 200.0);
    script.run(4, 400.0);
    script.seen.rtt = Some(24 * MS);
    let decision = script.run(8, 600.0)[0];
    let expected = (State::Limited, Some(mbit(600.0)), Reason::FlatRate(mbit(600.0)));
    assert_eq!((decision.state, decision.pacing, decision.reason), expected);
    assert!((1.04..1.06).contains(&headroom(&decision, 600.0, 24 * MS)), "{decision:?}");
    // The window is sized once.
    script.seen.retransmits += 100;
    script.seen.probes_lost += 10;
    assert_eq!(script.run(1_000, 300.0), []);
    assert_eq!(script.sobas.state(), State::Limited);
}

#[test]
fn limited_rate_grows_by_a_segment_per_rtt_until_flat() {
    let mut script = Script::with_capacity(965.0);
    script.seen.streams = 2;
    script.seen.mss = Bytes(1448);
    let first = script.last.unwrap();
    let decisions = script.run(40, 940.0);
    let states: Vec<State> = decisions.iter().map(|d| d.state).collect();
    let growing = State::Growing;
    assert_eq!(states, [growing, growing, growing, growing, growing, State::Limited]);
    let windows = [first, decisions[0], decisions[1]].map(|decision| decision.window.0);
    for step in windows.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1448.0) {
        assert!((4.1..4.3).contains(&step), "two RTTs and streams, with headroom: {windows:?}");
    }
    assert_eq!(decisions[5].pacing, Some(mbit(940.0)));
}

#[test]
fn drop_after_a_constant_rate_sizes_the_window() {
    let mut script = Script::with_capacity(965.0);
    script.seen.retransmits = 1;
    script.run(4, 10.0);
    script.run(4, 100.0);
    assert_eq!(script.run(8, 600.0), [], "after a loss, five intervals are flat");
    script.seen.rtt = Some(22 * MS);
    let decision = script.run(4, 400.0)[0];
    assert_eq!((decision.state, decision.reason), {
        (State::Limited, Reason::Overflowed(mbit(600.0)))
    });
    assert!((1.04..1.06).contains(&headroom(&decision, 600.0, 22 * MS)), "{decision:?}");
}

#[test]
fn lost_probes_leave_the_path_to_tcp() {
    let mut script = Script::with_capacity(965.0);
    script.run(4, 200.0);
    script.seen.probes_lost += 1;
    let decision = script.run(8, 600.0)[0];
    assert_eq!((decision.state, decision.reason), (State::Disabled, Reason::CongestedLoss));
    assert_eq!((decision.window, decision.pacing), (Bytes::mib(64), None));
    assert!(script.sobas.path_state().is_lossy);
    assert_eq!(script.run(1_000, 600.0), []);
}

#[test]
fn host_limited_rate_is_not_flat() {
    let mut script = Script::with_capacity(965.0);
    script.seen.bottleneck = Bottleneck::Sender;
    assert_eq!(script.run(300, 200.0), []);
    assert_eq!(script.run(300, 50.0), []);
    assert_eq!(script.state(), State::StartBounded);
}

#[test]
fn interrupted_path_is_not_flat() {
    let mut script = Script::with_capacity(965.0);
    script.seen.rtt = None;
    assert_eq!(script.run(500, 0.0), []);
}

#[test]
fn short_path_has_no_limit() {
    let mut script = Script::with_capacity(965.0);
    script.seen.rtt = Some(Duration::from_micros(200));
    let decisions = script.run(300, 947.0);
    assert_eq!(decisions.len(), 1);
    let decision = decisions[0];
    assert_eq!((decision.state, decision.reason), (State::Disabled, Reason::ShortPath));
    assert_eq!((decision.window, decision.pacing), (Bytes::mib(64), None));
    assert!(script.sobas.path_state().is_short);
    let restarted = script.sobas.on_rate_max(script.seen.now, Some(mbit(1.0)));
    assert_eq!((restarted.state, restarted.pacing), (State::Disabled, Some(mbit(1.0))));
}

#[test]
fn rate_max_paces_and_a_change_starts_again() {
    let mut script = Script::with_config(Some(mbit(300.0)), None);
    script.run(1, 0.0);
    let decision = script.sobas.on_capacity(script.seen.now, mbit(965.0)).unwrap();
    assert_eq!((decision.state, decision.pacing), (State::StartBounded, Some(mbit(300.0))));
    script.run(100, 294.0);
    assert_eq!(script.last.unwrap().pacing, Some(mbit(294.0)));
    let open = script.sobas.on_rate_max(script.seen.now, None);
    assert_eq!((open.state, open.reason), (State::StartBounded, Reason::RateMaxChanged(None)));
    script.run(100, 947.0);
    assert_eq!((script.state(), script.last.unwrap().pacing), (State::Limited, Some(mbit(947.0))));
    let mut unknown = Script::new();
    unknown.run(5, 100.0);
    let lower = unknown.sobas.on_rate_max(unknown.seen.now, Some(mbit(50.0)));
    assert_eq!((lower.state, lower.pacing), (State::StartOpen, Some(mbit(50.0))));
}

/// Windows and rates of all decisions can be set, for any input.
#[test]
fn decisions_stay_within_bounds_for_random_input() {
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut states = std::collections::HashSet::new();
    for case in 0..400 {
        let rate_max = (case % 2 > 0).then(|| mbit(1.0 + next(1_000) as f64));
        let mut script = Script::with_config(rate_max, None);
        if case % 3 > 0 {
            script.sobas.on_capacity(Duration::ZERO, mbit(10.0 + next(100_000) as f64));
        }
        let usual = 1 + next(20_000);
        for _ in 0..200 {
            script.seen.rtt = (next(4) > 0).then(|| Duration::from_micros(next(300_000)));
            script.seen.retransmits += next(3);
            script.seen.probes_lost += next(20) / 19;
            script.seen.bottleneck = match next(40) {
                0 => Bottleneck::Sender,
                1 => Bottleneck::Receiver,
                _ => Bottleneck::Path,
            };
            let rate = if next(8) == 0 { next(20_000) } else { usual };
            for decision in script.run(1 + next(9) as u32, rate as f64) {
                states.insert(decision.state);
                let least = Bytes(2 * pacing::DEFAULT_MSS.0);
                assert!((least..=Bytes::mib(64)).contains(&decision.window), "{decision:?}");
                let paced = decision.pacing.is_none_or(|rate| rate.bytes_per_sec() > 10_000);
                assert!(paced, "{decision:?}");
                let most = rate_max.unwrap_or(mbit(1e9));
                assert!(rate_max.is_none() || decision.pacing.is_some(), "{decision:?}");
                assert!(decision.pacing.is_none_or(|rate| rate <= most), "{decision:?}");
                assert!(!decision.reason.to_string().is_empty());
            }
        }
    }
    assert_eq!(states.len(), 5, "{states:?}");
}
