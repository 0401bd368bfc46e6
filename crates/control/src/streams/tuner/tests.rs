use super::*;
use crate::streams::HostLoad;

const TICK: Duration = Duration::from_millis(10);

/// A transfer whose rate is a function of its number of streams, in Mbit/s.
struct Transfer {
    tuner: StreamTuner,
    seen: Observation,
    bits: f64,
    /// Stream counts of all decisions, in order.
    decisions: Vec<u32>,
    last: Option<Decision>,
}

impl Transfer {
    fn new(streams: u32, most: u32) -> Self {
        let seen = Observation {
            now: Duration::ZERO,
            active_streams: 0,
            received: Bytes(0),
            min_rtt: Duration::from_millis(20),
            state: State::StartBounded,
            path: PathState::default(),
            has_bbr: false,
            retransmits: 0,
            mss: pacing::DEFAULT_MSS,
            capacity: None,
            rate_max: None,
            min_streams: 1,
            max_inflight_bytes: Bytes::mib(64),
            hosts: HostLoad { cpus: 8, ..HostLoad::default() },
        };
        let tuner = StreamTuner::new(streams, most);
        Self { tuner, seen, bits: 0.0, decisions: Vec::new(), last: None }
    }

    /// Runs for `seconds`. `app_limited` is the share of app-limited samples, `busy` the CPU share
    /// of a stream.
    fn run(&mut self, seconds: f64, mbit: impl Fn(f64) -> f64, app_limited: f64, busy: f64) {
        for tick in 0..(seconds / TICK.as_secs_f64()) as u64 {
            self.seen.now += TICK;
            self.seen.active_streams = self.tuner.streams();
            self.bits += mbit(self.tuner.streams().into()) * 1e6 * TICK.as_secs_f64();
            self.seen.received = Bytes((self.bits / 8.0) as u64);
            self.seen.hosts.samples[1].add(false);
            self.seen.hosts.samples[0]
                .add((tick as f64 * app_limited).fract() + app_limited >= 1.0);
            self.seen.hosts.busy[0] += TICK.mul_f64(busy * f64::from(self.tuner.streams()));
            if let Some(decision) = self.tuner.observe(&self.seen) {
                self.decisions.push(decision.streams);
                self.last = Some(decision);
            }
        }
    }

    fn on_path(&mut self, state: State, seconds: f64, mbit: impl Fn(f64) -> f64) {
        self.seen.state = state;
        self.run(seconds, mbit, 0.0, 0.1);
    }
}

fn full(_: f64) -> f64 {
    900.0
}

#[test]
fn full_path_is_not_searched() {
    let mut copy = Transfer::new(16, 64);
    copy.on_path(State::StartBounded, 1.0, full);
    copy.on_path(State::Limited, 120.0, full);
    assert_eq!(copy.decisions, [0; 0]);
}

#[test]
fn rate_max_is_not_searched() {
    let decisions = |rate_max| {
        let mut copy = Transfer::new(4, 64);
        (copy.seen.rate_max, copy.seen.capacity) = (rate_max, rate_max);
        (copy.seen.state, copy.seen.path.is_short) = (State::Disabled, true);
        copy.run(20.0, |_| 40.0, 1.0, 0.1);
        copy.decisions
    };
    assert_eq!(decisions(Some(Rate::from_bits_per_sec(40e6))), [0; 0]);
    assert_ne!(decisions(None), [0; 0], "then the source is the bottleneck");
}

#[test]
fn rate_max_that_changes_starts_the_search_again() {
    let decisions_after = |limit: Option<f64>| {
        let mut copy = Transfer::new(16, 64);
        copy.seen.state = State::Limited;
        copy.run(10.0, |n| (150.0 * n).min(900.0), 0.8, 0.1);
        assert_eq!(copy.decisions, [8, 4, 8]);
        copy.seen.rate_max = limit.map(Rate::from_bits_per_sec);
        copy.run(5.0, |_| 900.0, 0.8, 0.1);
        assert_eq!(copy.decisions, [8, 4, 8], "{limit:?}");
        copy.seen.rate_max = None;
        copy.run(8.0, |_| 900.0, 0.8, 0.1);
        copy.decisions.split_off(3)
    };
    assert_eq!(decisions_after(None), [0; 0], "the result stands");
    assert_eq!(decisions_after(Some(900e6))[..2], [4, 2], "the limit may have been its cause");
}

#[test]
fn search_ends_when_the_rate_limit_changes() {
    let mut copy = Transfer::new(16, 64);
    copy.seen.state = State::Limited;
    for _ in 0..100 {
        if copy.decisions.is_empty() {
            copy.run(0.1, |n| (150.0 * n).min(900.0), 0.8, 0.1);
        }
    }
    assert_eq!(copy.decisions, [8]);
    let limit = Some(Rate::from_bits_per_sec(100e6));
    (copy.seen.rate_max, copy.seen.capacity) = (limit, limit);
    // The sender pauses until the buffers of both hosts are empty.
    copy.run(1.0, |_| 300.0, 0.0, 0.1);
    copy.run(1.0, |_| 10.0, 0.8, 0.1);
    copy.run(60.0, |_| 100.0, 0.8, 0.1);
    assert_eq!(copy.decisions, [8, 16]);
    assert_eq!(copy.last.unwrap().reason, Reason::SearchAbandoned);
}

#[test]
fn fast_line_keeps_streams_with_full_super_packets() {
    let begins = |mbit: f64, least| {
        let mut copy = Transfer::new(16, 64);
        (copy.seen.capacity, copy.seen.min_streams) =
            (Some(Rate::from_bits_per_sec(mbit * 1e6)), least);
        copy.on_path(State::StartBounded, 1.0, |_| 0.0);
        copy.tuner.streams()
    };
    assert_eq!([1e3, 2e3, 2.5e3, 4.8e3, 8e3].map(|mbit| begins(mbit, 1)), [16, 16, 8, 8, 14]);
    assert_eq!((begins(4.8e3, 12), begins(2e4, 1)), (12, 16));
    // A larger number at the start is a result from the path cache.
    let mut copy = Transfer::new(64, 64);
    copy.seen.capacity = Some(Rate::from_bits_per_sec(4.8e9));
    copy.on_path(State::StartBounded, 1.0, |_| 0.0);
    assert_eq!(copy.decisions, [0; 0]);
    // Only once: later results take precedence.
    let mut copy = Transfer::new(16, 64);
    copy.seen.capacity = Some(Rate::from_bits_per_sec(4.8e9));
    copy.on_path(State::Disabled, 15.0, |n| n * 10.0);
    assert_eq!((copy.decisions[..2].to_vec(), copy.tuner.streams()), (vec![8, 16], 64));
}

#[test]
fn host_limit_reduces_streams_until_rate_falls() {
    let mut copy = Transfer::new(16, 64);
    copy.seen.state = State::Limited;
    copy.run(120.0, |n| 900.0 - n, 0.8, 0.1);
    assert_eq!(copy.decisions, [8, 4, 2], "nothing has changed since");
    let mut copy = Transfer::new(16, 64);
    copy.seen.state = State::Limited;
    copy.run(10.0, |n| (150.0 * n).min(900.0), 0.8, 0.1);
    assert_eq!(copy.decisions, [8, 4, 8]);
    assert_eq!(copy.last.unwrap().reason, Reason::SearchResult(ChoiceReason::Fewest));
}

#[test]
fn small_windows_add_streams_immediately() {
    let mut copy = Transfer::new(4, 64);
    copy.seen.min_streams = 7;
    copy.on_path(State::Probing, 0.1, |_| 0.0);
    let (change, reason) = (Change::Streams, Reason::WindowLimit);
    let windows = Decision { at: TICK, streams: 7, bbr: false, change, reason };
    assert_eq!((copy.last, copy.decisions.len()), (Some(windows), 1));
    copy.on_path(State::Limited, 20.0, full);
    assert_eq!(copy.tuner.streams(), 7);
}

#[test]
fn congested_path_adds_streams_until_flat() {
    let mut copy = Transfer::new(4, 64);
    let share = |n: f64| 900.0 * n / (n + 12.0);
    copy.on_path(State::Disabled, 15.0, share);
    assert_eq!(copy.decisions[..3], [8, 16, 32]);
    let found = copy.tuner.streams();
    assert!(found >= 32 && share(found.into()) > 600.0, "{:?}", copy.decisions);
    // A peak between two samples is found.
    let mut copy = Transfer::new(4, 64);
    let peak = |n: f64| n / (1e-6 * n * n - 8e-6 * n + 1e-4).sqrt();
    copy.on_path(State::Disabled, 15.0, peak);
    let best = (1..=64).map(|n| peak(n.into())).fold(0.0, f64::max);
    assert!(peak(copy.tuner.streams().into()) > 0.95 * best, "{:?}", copy.decisions);
}

#[test]
fn new_limiting_factor_reverses_the_search() {
    let mut copy = Transfer::new(4, 16);
    let share = |n: f64| 900.0 * n / (n + 12.0);
    copy.on_path(State::Limited, 15.0, full);
    assert_eq!(copy.tuner.streams(), 4);
    copy.on_path(State::Disabled, 15.0, share);
    assert_eq!(copy.tuner.streams(), 16);
    copy.run(30.0, full, 0.9, 0.1);
    assert_eq!(copy.tuner.streams(), 2);
    copy.on_path(State::Disabled, 40.0, share);
    assert_eq!(copy.tuner.streams(), 16);
}

#[test]
fn alternating_path_bounds_the_searches() {
    let mut copy = Transfer::new(8, 16);
    for _ in 0..60 {
        copy.run(12.0, full, 0.9, 0.1);
        copy.on_path(State::Disabled, 12.0, full);
    }
    assert!(copy.decisions.len() < 20, "{:?}", copy.decisions);
}

#[test]
fn slow_disk_reduces_and_idle_cpus_add_streams() {
    let mut disk = Transfer::new(8, 64);
    disk.seen.state = State::Limited;
    disk.run(20.0, |n| 120.0 + 400.0 / n, 0.8, 0.1);
    assert_eq!(disk.tuner.streams(), 2, "{:?}", disk.decisions);
    let mut encryption = Transfer::new(2, 64);
    encryption.seen.state = State::Limited;
    encryption.run(20.0, |n| 500.0 * n, 0.8, 0.95);
    assert_eq!(encryption.tuner.streams(), 8, "{:?}", encryption.decisions);
}

#[test]
fn host_limited_interval_restarts_the_sample() {
    let mut copy = Transfer::new(4, 64);
    let share = |n: f64| 900.0 * n / (n + 12.0);
    copy.on_path(State::Disabled, 2.0, share);
    // A stalled sender gives no sample.
    copy.run(3.0, |_| 1.0, 0.9, 0.1);
    copy.on_path(State::Disabled, 10.0, share);
    assert!(copy.tuner.streams() >= 16, "{:?}", copy.decisions);
}

#[test]
fn oversubscribed_path_takes_a_quarter_of_the_streams() {
    let mut copy = Transfer::new(16, 64);
    copy.seen.path.is_oversubscribed = true;
    copy.on_path(State::Limited, 1.0, |n| 10.0 / n);
    assert_eq!(copy.decisions, [4, 2], "it stays so");
    assert_eq!(copy.last.unwrap().reason, Reason::KnownFit(LimitingFactor::FewSegments));
}

#[test]
fn fixed_stream_count_is_kept() {
    let mut copy = Transfer::new(4, 4);
    copy.seen.min_streams = 9;
    copy.on_path(State::Disabled, 30.0, |n| n);
    assert_eq!(copy.decisions, [0; 0]);
}

/// Runs on a path of 80 ms that loses one segment in a thousand. The loss is the same at any rate.
///
/// With `others`, cross traffic makes that one in twenty as soon as BBR takes more. `mbit` is the
/// rate without and with BBR. Returns (BBR, reason) of all decisions.
fn lossy(copy: &mut Transfer, seconds: f64, mbit: [f64; 2], others: bool) -> Vec<(bool, Reason)> {
    let (mut reported, mut lost) = (Vec::new(), copy.seen.retransmits as f64);
    copy.seen.state = State::Disabled;
    copy.seen.min_rtt = Duration::from_millis(80);
    (copy.seen.path.is_lossy, copy.seen.has_bbr) = (true, true);
    for _ in 0..(seconds / TICK.as_secs_f64()) as u64 {
        copy.seen.now += TICK;
        copy.seen.active_streams = copy.tuner.streams();
        let is_bbr = copy.tuner.bbr().is_some();
        let bits = mbit[usize::from(is_bbr)] * 1e6 * TICK.as_secs_f64();
        copy.bits += bits;
        copy.seen.received = Bytes((copy.bits / 8.0) as u64);
        lost += bits / 8.0 / 1448.0 * if is_bbr && others { 0.05 } else { 0.001 };
        copy.seen.retransmits = lost as u64;
        copy.seen.hosts.samples.iter_mut().for_each(|samples| samples.add(false));
        if let Some(decision) = copy.tuner.observe(&copy.seen) {
            assert_eq!(decision.bbr, copy.tuner.bbr().is_some());
            reported.push((decision.bbr, decision.reason));
        }
    }
    reported
}

#[test]
fn random_loss_keeps_bbr_and_stream_count() {
    let mut copy = Transfer::new(16, 64);
    let reported = lossy(&mut copy, 9.0, [200.0, 450.0], false);
    assert!(
        matches!(reported[0], (true, Reason::TryBbr(LimitingFactor::LossWithoutQueue))),
        "{reported:?}"
    );
    assert!(
        matches!(reported[1], (true, Reason::BbrTrial(TrialOutcome::Kept(..)))),
        "{reported:?}"
    );
    assert_eq!((reported.len(), copy.tuner.streams()), (2, 16));
    // With cross traffic, the losses of BBR are congestion.
    let reported = lossy(&mut copy, 2.0, [200.0, 450.0], true);
    let [(false, grew), (false, then)] = reported[..] else { panic!("{reported:?}") };
    assert_eq!((grew, then), (Reason::LossIncreased, Reason::TryMore(LimitingFactor::Congestion)));
}

#[test]
fn congested_path_abandons_bbr_and_adds_streams() {
    let mut copy = Transfer::new(16, 64);
    let reported = lossy(&mut copy, 60.0, [200.0, 450.0], true);
    assert!(
        matches!(reported[1], (false, Reason::BbrTrial(TrialOutcome::MoreLoss))),
        "{reported:?}"
    );
    assert!(reported[2..].iter().all(|(bbr, _)| !bbr) && reported.len() > 2, "{reported:?}");
}

#[test]
fn full_line_trial_is_repeated_once_not_full() {
    let mut copy = Transfer::new(16, 64);
    copy.seen.capacity = Some(Rate::from_bits_per_sec(200e6));
    let reported = lossy(&mut copy, 6.0, [192.0, 150.0], false);
    assert!(
        matches!(reported[1], (false, Reason::BbrTrial(TrialOutcome::NoGain(..)))),
        "{reported:?}"
    );
    assert_eq!(lossy(&mut copy, 30.0, [192.0, 150.0], false), [], "nothing has changed");
    let reported = lossy(&mut copy, 20.0, [120.0, 190.0], false);
    assert!(
        matches!(reported[1], (true, Reason::BbrTrial(TrialOutcome::Kept(..)))),
        "{reported:?}"
    );
    assert_eq!((reported.len(), copy.tuner.streams()), (2, 16));
}

#[test]
fn trial_is_deferred_on_a_limited_path() {
    let mut copy = Transfer::new(16, 64);
    assert_eq!(lossy(&mut copy, 0.55, [200.0, 450.0], false), [], "a sample is being taken");
    copy.on_path(State::Limited, 3.0, |_| 200.0);
    assert_eq!((copy.decisions.len(), copy.tuner.bbr()), (0, None));
    let reported = lossy(&mut copy, 9.0, [200.0, 450.0], false);
    assert!(
        matches!(reported[1], (true, Reason::BbrTrial(TrialOutcome::Kept(..)))),
        "{reported:?}"
    );
}

#[test]
fn fills_line_has_an_upper_bound() {
    let mbit = |rate: f64| Rate::from_bits_per_sec(rate * 1e6);
    let fills_line = |rate| fills_line(mbit(rate), Some(mbit(100.0)));
    assert_eq!([80.0, 95.0, 105.0, 150.0].map(fills_line), [false, true, true, false]);
}

#[test]
fn search_result_is_stable_without_changes() {
    // The RTT shifts the end of a search within an interval.
    for rtt in 20..=60 {
        let mut copy = Transfer::new(8, 16);
        (copy.seen.state, copy.seen.min_rtt) = (State::Limited, Duration::from_millis(rtt));
        copy.run(120.0, |n| (150.0 * n).min(900.0), 0.8, 0.1);
        assert_eq!(copy.decisions, [4, 8], "{rtt} ms");
    }
}

#[test]
fn full_windows_without_capacity_add_streams() {
    // Four windows of 1 MiB are 1.7 Gbit/s over 20 ms.
    let mut copy = Transfer::new(4, 64);
    copy.seen.max_inflight_bytes = Bytes::mib(1);
    let carries = |n: f64| (n * 410.0).min(2000.0);
    copy.on_path(State::StartOpen, 15.0, carries);
    assert!(carries(copy.tuner.streams().into()) > 1900.0, "{:?}", copy.decisions);
    let mut wide = Transfer::new(4, 64);
    wide.on_path(State::StartOpen, 15.0, carries);
    assert_eq!(wide.decisions, [0; 0]);
}

#[test]
fn sample_counts_the_active_streams() {
    let seen = |now: u64, active_streams| Observation {
        now: Duration::from_millis(now),
        active_streams,
        received: Bytes(now * 1000),
        ..Transfer::new(4, 64).seen
    };
    let mut sampler = Sampler::new(16, Duration::ZERO);
    let taken = (1..800).find_map(|look| sampler.observe(&seen(look * 10, 9)));
    assert_eq!(taken.unwrap().0.streams, 9);
    let mut sampler = Sampler::new(16, Duration::ZERO);
    let taken = (1..200).find_map(|look| sampler.observe(&seen(look * 10, 16)));
    assert_eq!(taken.unwrap().0.streams, 16);
}
