use super::*;
use crate::pacing;
use crate::units::Bytes;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn mbit(rate: f64) -> Rate {
    Rate::from_bits_per_sec(rate * 1e6)
}

/// A transfer as the controller sees it, 10 ms by 10 ms, over a path of 20 ms.
struct Script {
    sobas: Sobas,
    seen: Observation,
    last: Option<Decision>,
}

impl Script {
    fn new() -> Self {
        Self::capped(None)
    }

    fn capped(rate_max: Option<Rate>) -> Self {
        Self::with(rate_max, None)
    }

    fn with(rate_max: Option<Rate>, remembered: Option<Remembered>) -> Self {
        let (window_max, probe_time) = (Bytes::mib(64), 300 * MS);
        let config = Config { window_max, probe_time, rate_max, remembered };
        let seen = Observation { streams: 1, rtt: Some(20 * MS), ..Observation::default() };
        Self { sobas: Sobas::new(config), seen, last: None }
    }

    /// The same, with 1 Gbit/s of capacity known and 947 Mbit/s coming.
    fn held() -> Self {
        let mut script = Self::new();
        script.last = script.told(mbit(965.0));
        script.run(100, 947.0);
        script
    }

    /// The same, when losses without a queue have made it stand aside.
    fn aside() -> Self {
        let mut script = Self::held();
        for _ in 0..10 {
            script.seen.retransmits += 3;
            script.run(8, 300.0);
        }
        assert_eq!(script.state(), State::Disabled);
        script
    }

    /// `ticks` of 10 ms at a rate; every decision on the way.
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

    /// The trains tell, when a round trip is known.
    fn told(&mut self, capacity: Rate) -> Option<Decision> {
        self.run(1, 0.0);
        self.sobas.on_capacity(self.seen.now, capacity)
    }

    fn state(&self) -> State {
        self.sobas.state()
    }
}

#[test]
fn the_start_is_held_below_the_capacity_and_the_window_is_rate_times_round_trip() {
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
fn a_capacity_that_is_known_before_the_round_trip_waits_for_it() {
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
fn what_is_far_below_the_first_windows_of_all_connections_is_no_limit() {
    // 16 first windows in 20 ms are 92.7 Mbit/s.
    for (rate, state) in [(20.0, State::Disabled), (80.0, State::Limited)] {
        let mut script = Script::new();
        script.seen.streams = 16;
        script.run(100, rate);
        script.seen.rtt = Some(40 * MS);
        let decision = script.run(20, rate)[0];
        assert_eq!(decision.state, state, "{decision:?}");
        let is_told = matches!(decision.reason, Reason::TooManyStreams(_));
        assert_eq!(is_told, state == State::Disabled, "{decision:?}");
    }
}

#[test]
fn without_an_estimate_nothing_is_held_at_first() {
    let mut script = Script::new();
    let decisions = script.run(31, 100.0);
    assert_eq!(decisions.len(), 1);
    let decision = decisions[0];
    assert_eq!((decision.state, decision.pacing), (State::StartOpen, None));
    assert_eq!((decision.window, decision.reason), (Bytes::mib(64), Reason::CapacityUnknown));
}

#[test]
fn an_even_rate_that_we_hold_grows_until_no_more_comes() {
    let mut script = Script::new();
    script.told(mbit(965.0));
    let states: Vec<State> = script.run(60, 947.0).iter().map(|d| d.state).collect();
    assert_eq!(states, [State::Growing, State::Limited]);
}

#[test]
fn what_the_user_wants_at_most_is_held_and_no_more_is_looked_for() {
    let mut script = Script::capped(Some(mbit(300.0)));
    let decision = script.told(mbit(965.0)).unwrap();
    assert_eq!((decision.state, decision.pacing), (State::StartBounded, Some(mbit(300.0))));
    let decisions = script.run(3_000, 294.0);
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    let decision = decisions[0];
    assert_eq!((decision.state, decision.pacing), (State::Limited, Some(mbit(300.0))));
    assert_eq!(decision.reason, Reason::RateMax(mbit(300.0)));
    assert_eq!(decision.window, Bytes::mib(64), "the sender holds it");
}

#[test]
fn a_rate_that_is_all_the_user_wants_is_no_full_path() {
    // Nothing is known of the path, the rate is even, and its round trip varies.
    let mut script = Script::capped(Some(mbit(300.0)));
    let decisions = script.run(31, 294.0);
    assert_eq!((decisions[0].state, decisions[0].pacing), (State::StartOpen, Some(mbit(300.0))));
    script.seen.rtt = Some(23 * MS);
    assert_eq!(script.run(3, 294.0), []);
    script.seen.rtt = Some(20 * MS);
    assert_eq!(script.run(1_000, 294.0), []);
    // A path that is slower is found all the same.
    script.seen.rtt = Some(30 * MS);
    script.run(20, 200.0);
    let decision = script.last.unwrap();
    assert_eq!(decision.state, State::Limited);
    assert!(decision.pacing.unwrap() < mbit(210.0), "{decision:?}");
}

#[test]
fn a_slow_disk_does_not_look_like_a_full_path() {
    let mut script = Script::new();
    script.told(mbit(965.0));
    script.seen.holder = Holder::Source;
    // An even rate, then a drop: both of the source.
    assert_eq!(script.run(300, 200.0), []);
    assert_eq!(script.run(300, 50.0), []);
    assert_eq!(script.state(), State::StartBounded);
}

#[test]
fn a_drop_after_an_even_rate_lowers_the_limit_only_when_a_queue_stood() {
    let mut script = Script::held();
    script.run(100, 947.0);
    assert_eq!(script.run(12, 600.0), [], "without a queue it is not ours");
    let mut script = Script::held();
    script.run(100, 947.0);
    script.seen.rtt = Some(25 * MS);
    script.run(20, 600.0);
    let decision = script.last.unwrap();
    assert!(decision.pacing.unwrap() < mbit(850.0), "{decision:?}");
}

#[test]
fn losses_without_a_queue_end_in_standing_aside_and_calm_ends_that() {
    let mut script = Script::aside();
    let decision = script.last.unwrap();
    let beyond = mbit(965.0 * 1.05);
    assert_eq!((decision.window, decision.pacing), (Bytes::mib(64), Some(beyond)));
    script.run(1100, 300.0);
    assert_eq!(script.state(), State::Avoidance);
}

#[test]
fn under_a_control_that_takes_no_loss_for_congestion_the_pace_holds_a_path_that_loses() {
    let mut script = Script::aside();
    assert!(script.sobas.loses_without_queue());
    let usual = Some(Losses { resent: 10, segments: 10_000 });
    let held = script.sobas.on_loss_proof(script.seen.now, usual).unwrap();
    assert_eq!((held.state, held.reason), (State::Avoidance, Reason::LossProof));
    assert_eq!(held.pacing.map(|rate| rate.bits_per_sec() / 100_000), Some(9457));
    assert_eq!(script.sobas.on_loss_proof(script.seen.now, usual), None);
    for _ in 0..30 {
        script.seen.retransmits += 3;
        script.run(10, 940.0);
    }
    assert_eq!(script.state(), State::Limited);
    assert_eq!(script.last.unwrap().window, Bytes::mib(64), "room for repairs");
    // A queue of ours makes them losses of ours.
    script.seen.rtt = Some(28 * MS);
    script.seen.retransmits += 300;
    script.run(30, 940.0);
    let paced = |script: &Script| script.last.unwrap().pacing.unwrap();
    assert!(paced(&script) < mbit(940.0), "{:?}", script.last);
    let left = script.sobas.on_loss_proof(script.seen.now, None).unwrap();
    assert_eq!((left.state, left.reason), (State::Disabled, Reason::LossCounts));
}

#[test]
fn what_the_trains_told_is_given_up_where_more_comes_while_nothing_is_held() {
    let mut script = Script::aside();
    script.run(40, 1000.0);
    let decision = script.last.unwrap();
    assert_eq!((decision.state, decision.pacing), (State::Disabled, None));
}

#[test]
fn losses_of_the_first_windows_tell_nothing_and_later_ones_do() {
    let mut script = Script::new();
    script.told(mbit(965.0));
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
fn whether_more_came_is_judged_over_a_tenth_of_a_second() {
    let mut script = Script::new();
    script.told(mbit(965.0));
    while script.state() != State::Growing {
        script.run(1, 947.0);
    }
    let stepped_at = script.seen.now;
    // A window lasts 40 ms; what TCP sends at once moves it by some percent.
    let mut noise = [980.0, 915.0].into_iter().cycle();
    while script.state() == State::Growing {
        assert!(script.seen.now < stepped_at + 300 * MS, "{:?}", script.last);
        script.run(4, noise.next().unwrap());
    }
    assert!(script.seen.now >= stepped_at + 140 * MS, "{:?}", script.last);
    let reason = script.last.unwrap().reason;
    assert!(matches!(reason, Reason::NothingToGain(rate) if rate < mbit(970.0)), "{reason}");
}

#[test]
fn a_rate_that_fell_while_more_was_allowed_tells_nothing_and_it_is_tried_again_soon() {
    for (then, is_soon) in [(930.0, true), (947.0, false)] {
        let mut script = Script::held();
        while script.state() != State::Reprobing {
            script.run(1, 947.0);
        }
        while script.state() == State::Reprobing {
            script.run(1, then);
        }
        assert_eq!(script.state(), State::Limited);
        let limited_at = script.seen.now;
        while script.state() == State::Limited {
            script.run(1, 949.0);
        }
        let looked_after = script.seen.now - limited_at;
        assert_eq!(looked_after < SECOND, is_soon, "{then}: {looked_after:?}");
        assert_eq!(looked_after < 9 * SECOND, is_soon, "{then}: {looked_after:?}");
    }
}

#[test]
fn a_loss_lowers_what_is_held_only_where_all_of_that_comes() {
    for (comes, lowers) in [(947.0, true), (800.0, false)] {
        let mut script = Script::held();
        script.seen.rtt = Some(20_600 * MS / 1000);
        script.run(40, comes);
        let before = script.last.unwrap();
        assert_eq!(before.state, State::Limited);
        script.seen.retransmits += 3;
        script.run(4, comes);
        let after = script.last.unwrap();
        assert_eq!(matches!(after.reason, Reason::Overflowed(_)), lowers, "{after:?}");
        assert_eq!(after.pacing < before.pacing, lowers, "{after:?}");
    }
}

#[test]
fn a_receiver_that_reads_late_makes_no_queue_and_is_tried_again_soon() {
    let mut script = Script::held();
    let before = script.last.unwrap();
    script.seen.holder = Holder::Receiver;
    script.seen.rtt = Some(22 * MS);
    assert_eq!(script.run(20, 947.0), [], "its lateness is no queue");
    // More is looked for all the same: it may come.
    script.seen.rtt = Some(20 * MS);
    let looks = script.run(1000, 947.0);
    let held = looks.iter().find(|d| d.reason == Reason::HeldBy(Holder::Receiver)).unwrap();
    let again = looks.iter().find(|d| d.at > held.at).unwrap();
    assert_eq!((again.state, again.reason), (State::Reprobing, Reason::TimeToLook));
    assert!(again.at - held.at < SECOND, "{looks:?}");
    let rising = looks.last().unwrap().pacing.unwrap();
    assert!(rising >= before.pacing.unwrap(), "{looks:?}");
    let steps = script.run(100, 1100.0);
    assert!(steps.iter().any(|d| matches!(d.reason, Reason::RateRose(_))), "{steps:?}");
}

#[test]
fn a_path_that_is_cut_keeps_its_limit() {
    let mut script = Script::held();
    let before = script.last;
    script.seen.rtt = None;
    assert_eq!(script.run(500, 0.0), []);
    script.seen.rtt = Some(20 * MS);
    script.run(20, 947.0);
    assert_eq!(script.last.unwrap().pacing, before.unwrap().pacing);
}

/// Whatever is seen, what is decided can be set: no window or rate of nothing.
#[test]
fn decisions_stay_within_bounds_whatever_comes() {
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for case in 0..200 {
        let rate_max = (case % 2 > 0).then(|| mbit(1.0 + next(1_000) as f64));
        let mut script = Script::capped(rate_max);
        if case % 3 > 0 {
            script.sobas.on_capacity(Duration::ZERO, mbit(10.0 + next(100_000) as f64));
        }
        for _ in 0..500 {
            script.seen.rtt = (next(4) > 0).then(|| Duration::from_micros(next(300_000)));
            script.seen.retransmits += next(3);
            script.seen.probes_lost += next(2);
            script.seen.holder =
                [Holder::Path, Holder::Path, Holder::Source, Holder::Receiver][next(4) as usize];
            let rate = next(20_000) as f64;
            for decision in script.run(1 + next(9) as u32, rate) {
                let least = Bytes(2 * pacing::SEGMENT_DATA.0);
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
fn on_a_short_path_nothing_is_held_whatever_was_told_before() {
    let mut script = Script::held();
    script.seen.rtt = Some(Duration::from_micros(200));
    let decisions = script.run(300, 947.0);
    assert_eq!(decisions.len(), 1);
    let decision = decisions[0];
    assert_eq!((decision.state, decision.reason), (State::Disabled, Reason::ShortPath));
    assert_eq!((decision.window, decision.pacing), (Bytes::mib(64), None));
    assert_eq!(script.sobas.on_capacity(SECOND, mbit(965.0)), None);
}

#[test]
fn an_earlier_transfer_tells_where_to_begin_if_no_train_does_and_the_path_is_the_same() {
    let rate = mbit(900.0);
    let state = |rtt: Duration| {
        let mut script = Script::with(None, Some(Remembered { rate, rtt }));
        script.run(40, 10.0);
        let decision = script.last.unwrap();
        (decision.state, decision.pacing.map(|rate| rate.bits_per_sec() / 1_000_000))
    };
    assert_eq!(state(19 * MS), (State::StartBounded, Some(882)));
    assert_eq!(state(40 * MS), (State::StartOpen, None), "another path");
    let mut script = Script::with(None, Some(Remembered { rate, rtt: 20 * MS }));
    let told = script.told(mbit(500.0)).unwrap();
    assert_eq!(told.reason, Reason::CapacityKnown(mbit(500.0)), "trains know better");
}

#[test]
fn what_is_remembered_waits_for_the_first_connection_and_so_does_a_late_capacity() {
    let remembered = Some(Remembered { rate: mbit(900.0), rtt: 20 * MS });
    let mut script = Script::with(None, remembered);
    script.seen.rtt = None;
    // The first connection takes longer than the wait for probes.
    assert_eq!(script.run(50, 0.0), []);
    script.seen.rtt = Some(20 * MS);
    assert_eq!(script.run(1, 0.0)[0].reason, Reason::Remembered(mbit(900.0)));
    let mut script = Script::new();
    script.seen.rtt = None;
    // Data that came tells that there is a connection, though its round trip is not known.
    let decided = script.run(50, 100.0);
    assert_eq!(decided[0].reason, Reason::CapacityUnknown);
    assert_eq!(script.sobas.on_capacity(script.seen.now, mbit(965.0)), None);
    script.seen.rtt = Some(20 * MS);
    assert_eq!(script.run(1, 100.0)[0].reason, Reason::CapacityKnown(mbit(965.0)));
}

#[test]
fn more_is_looked_for_where_losses_go_on_that_the_connections_do_not_mind() {
    let mut script = Script::held();
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
    let looked = decided.iter().filter(|d| d.reason == Reason::TimeToLook).count();
    assert!(looked > 0, "{decided:?}");
    assert!(decided.iter().all(|d| d.reason != Reason::LostWithoutQueue), "{decided:?}");
}
