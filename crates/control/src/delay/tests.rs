//! Tests of the controller over a fluid model of a path: one queue, and a delay of an RTT.

mod long_queue_tests;

use super::*;
use crate::bottleneck::Bottleneck;
use std::collections::VecDeque;

const MS: Duration = Duration::from_millis(1);

/// Interval of observations, and steps of the model in it.
const TICK: Duration = Duration::from_millis(10);
const STEPS: u32 = 20;

/// A path with one queue, and the transfer over it.
struct Fluid {
    now: Duration,
    /// Capacity in Mbit/s.
    capacity: f64,
    rtt: Duration,
    /// Smallest RTT so far, as TCP remembers it for five minutes.
    tcp_min_rtt: Duration,
    streams: u32,
    /// Delay that is no queue.
    extra_delay: Duration,
    /// Part of the RTT by which the reverse path is longer.
    reverse_path: Duration,
    /// Longest queueing delay.
    buffer: Duration,
    /// Share of the segments that the path drops at random.
    loss: f64,
    /// Share of window and pacing rate that TCP reaches.
    reached: f64,
    /// Data in the queue, in bits.
    queue: f64,
    /// Delivered data that is not acknowledged yet, by step.
    unacknowledged: VecDeque<f64>,
    received: f64,
    retransmits: f64,
    /// Windows in bits and rates in bit/s, which take effect after an RTT.
    requests: VecDeque<(Duration, f64, f64)>,
    window: f64,
    pacing: f64,
    controller: DelayController,
    decisions: Vec<Decision>,
}

impl Fluid {
    /// Returns a path of a capacity in Mbit/s, and an RTT in ms.
    ///
    /// Packet trains measured the capacity.
    fn new(capacity: f64, rtt: u32) -> Self {
        let config = Config {
            window_max: Bytes::gib(1),
            capacity_timeout: MS * 600,
            rate_max: None,
            cached_path: None,
        };
        let mut fluid = Self {
            now: Duration::ZERO,
            capacity,
            rtt: MS * rtt,
            tcp_min_rtt: MS * rtt,
            streams: 4,
            extra_delay: Duration::ZERO,
            reverse_path: Duration::ZERO,
            buffer: MS * 200,
            loss: 0.0,
            reached: 1.0,
            queue: 0.0,
            unacknowledged: VecDeque::new(),
            received: 0.0,
            retransmits: 0.0,
            requests: VecDeque::new(),
            window: 8e5,
            pacing: f64::INFINITY,
            controller: DelayController::new(config),
            decisions: Vec::new(),
        };
        let decision = fluid.controller.on_capacity(Duration::ZERO, mbit(capacity));
        fluid.apply(decision);
        fluid
    }

    fn apply(&mut self, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        let pacing = decision.pacing.map_or(f64::INFINITY, |rate| rate.bits_per_sec() as f64);
        let window = (decision.window.0 * 8) as f64;
        self.requests.push_back((self.now + self.rtt, window, pacing));
        self.decisions.push(decision);
    }

    fn delay(&self) -> Duration {
        Duration::from_secs_f64(self.queue / (self.capacity * 1e6))
    }

    /// Runs for a time in ms; returns the mean rate in Mbit/s, and the queue at the end in ms.
    fn run(&mut self, ms: u32) -> (f64, f64) {
        let (end, from) = (self.now + MS * ms, self.received);
        while self.now < end {
            self.tick();
        }
        ((self.received - from) / f64::from(ms) / 1e3, self.delay().as_secs_f64() * 1e3)
    }

    fn tick(&mut self) {
        self.now += TICK;
        while self.requests.front().is_some_and(|(at, ..)| *at <= self.now) {
            if let Some((_, window, pacing)) = self.requests.pop_front() {
                (self.window, self.pacing) = (window * self.reached, pacing * self.reached);
            }
        }
        for _ in 0..STEPS {
            self.step(TICK / STEPS);
        }
        self.tcp_min_rtt = self.tcp_min_rtt.min(self.rtt);
        let delay = self.extra_delay + self.delay();
        let forward = Duration::from_secs(10) + (self.rtt - self.reverse_path) / 2 + delay;
        self.observe(Some((self.rtt + delay, forward)));
    }

    /// Delivers neither data nor probes for a time in ms.
    fn fail(&mut self, ms: u32) {
        let end = self.now + MS * ms;
        while self.now < end {
            self.now += TICK;
            self.observe(None);
        }
    }

    /// Observes the path, with RTT and one-way delay of a probe.
    fn observe(&mut self, probe: Option<(Duration, Duration)>) {
        let decision = self.controller.observe(&Observation {
            now: self.now,
            streams: self.streams,
            received: Bytes((self.received / 8.0) as u64),
            rtt: probe.map(|(rtt, _)| rtt),
            forward_delay: probe.map(|(_, forward)| forward),
            tcp_min_rtt: Some(self.tcp_min_rtt),
            retransmits: self.retransmits as u64,
            mss: Bytes(1448),
            bottleneck: Bottleneck::Path,
            ..Observation::default()
        });
        self.apply(decision);
    }

    /// Moves data for a time.
    fn step(&mut self, time: Duration) {
        let round_trip = (self.rtt + self.extra_delay).div_duration_f64(time).round() as usize;
        while self.unacknowledged.len() >= round_trip {
            self.unacknowledged.pop_front();
        }
        let in_flight = self.queue + self.unacknowledged.iter().sum::<f64>();
        let sent = (self.window - in_flight).clamp(0.0, self.pacing * time.as_secs_f64());
        let lost = sent * self.loss;
        let capacity = self.capacity * 1e6 * time.as_secs_f64();
        let delivered = (self.queue + sent - lost).min(capacity);
        let buffer = self.buffer.as_secs_f64() * self.capacity * 1e6;
        let overflow = (self.queue + sent - lost - delivered - buffer).max(0.0);
        self.queue += sent - lost - delivered - overflow;
        self.unacknowledged.push_back(delivered);
        self.received += delivered;
        self.retransmits += (overflow + lost) / (1448.0 * 8.0);
    }

    fn states(&self) -> Vec<State> {
        let mut states: Vec<State> = self.decisions.iter().map(|decision| decision.state).collect();
        states.dedup();
        states
    }

    fn has_reason(&self, is_one: impl Fn(&Reason) -> bool) -> bool {
        self.decisions.iter().any(|decision| is_one(&decision.reason))
    }
}

fn mbit(rate: f64) -> Rate {
    Rate::from_bits_per_sec(rate * 1e6)
}

/// Asserts that a path is full with a queue of a few milliseconds.
fn assert_full(fluid: &mut Fluid, ms: u32) {
    let (rate, queue) = fluid.run(ms);
    let reasons: Vec<_> = fluid.decisions.iter().map(|one| one.reason.to_string()).collect();
    assert!(rate > 0.97 * fluid.capacity, "{rate} of {} {reasons:#?}", fluid.capacity);
    assert!(queue < 5.0, "{queue} {reasons:#?}");
}

#[test]
fn path_is_filled_with_a_short_queue() {
    for (capacity, rtt) in [(10.0, 20), (100.0, 5), (100.0, 40), (1_000.0, 100), (300.0, 300)] {
        let mut fluid = Fluid::new(capacity, rtt);
        fluid.run(2_000 + 20 * rtt);
        assert_full(&mut fluid, 5_000);
        assert_eq!(fluid.retransmits, 0.0, "{capacity} {rtt}");
        assert_eq!(fluid.states()[0], State::StartBounded);
        assert_eq!(fluid.controller.path_state(), PathState::default());
        assert!(matches!(fluid.controller.state(), State::Limited | State::Growing));
    }
}

#[test]
fn changed_rate_is_followed_in_a_second_or_ten_rtts() {
    for rtt in [10, 50, 150] {
        let mut fluid = Fluid::new(200.0, rtt);
        fluid.run(5_000);
        for capacity in [100.0, 200.0, 100.0, 50.0, 100.0] {
            fluid.capacity = capacity;
            fluid.run((10 * rtt).max(1_000));
            let (rate, _) = fluid.run(rtt.max(200));
            assert!(rate >= 0.9 * capacity, "{rate} of {capacity} at {rtt} ms");
            assert_full(&mut fluid, 4_000);
        }
    }
}

/// Asserts that the path is full within a second or 20 RTTs.
///
/// The controller must not fall back to TCP.
fn assert_recovers(fluid: &mut Fluid) {
    let rtts = u32::try_from(fluid.rtt.as_millis()).unwrap() * 20;
    fluid.run(rtts.max(1000));
    assert_full(fluid, 1000);
    assert!(!fluid.states().contains(&State::Disabled), "{:?}", fluid.states());
}

#[test]
fn longer_route_after_an_outage_is_no_queue() {
    for (longer, reverse_path) in [(50, 0), (60, 0), (120, 0), (300, 0), (110, 60)] {
        let mut fluid = Fluid::new(100.0, 50);
        fluid.run(3000);
        fluid.fail(300);
        (fluid.rtt, fluid.reverse_path) = (MS * longer, MS * reverse_path);
        assert_recovers(&mut fluid);
    }
}

#[test]
fn outage_in_a_trial_discards_it() {
    let mut fluid = Fluid::new(100.0, 50);
    while !fluid.has_reason(|reason| *reason == Reason::ProbeUp) {
        fluid.tick();
    }
    fluid.fail(300);
    fluid.rtt = MS * 120;
    let rate = |fluid: &mut Fluid| (fluid.run(2400), fluid.run(1000).0).1;
    assert!(rate(&mut fluid) > 99.0);
    // The window hunted until then, so the target has to narrow again.
    fluid.run(10_000);
    assert_recovers(&mut fluid);
}

#[test]
fn segments_that_an_outage_loses_reduce_nothing() {
    let mut fluid = Fluid::new(100.0, 50);
    fluid.run(3000);
    let decisions = fluid.decisions.len();
    fluid.fail(300);
    for _ in 0..20 {
        fluid.retransmits += 10.0;
        fluid.tick();
    }
    assert_recovers(&mut fluid);
    let mut reasons = fluid.decisions[decisions..].iter().map(|one| &one.reason);
    assert_eq!(reasons.next(), Some(&Reason::Interrupted(MS * 310)));
    assert!(reasons.all(|reason| !matches!(reason, Reason::Overflowed(_))));
}

#[test]
fn path_that_fails_repeatedly_is_left_to_tcp() {
    let mut fluid = Fluid::new(100.0, 50);
    for _ in 0..3 {
        fluid.run(1500);
        fluid.fail(300);
    }
    fluid.run(100);
    assert!(fluid.has_reason(|reason| *reason == Reason::Unsteady));
}

#[test]
fn delay_that_is_no_queue_is_not_reduced() {
    let mut fluid = Fluid::new(100.0, 40);
    fluid.run(4_000);
    // A change of route.
    fluid.extra_delay = MS * 20;
    fluid.run(2_000);
    assert_full(&mut fluid, 4_000);
    assert!(fluid.has_reason(|reason| matches!(reason, Reason::CongestedQueue(_))));
    fluid.extra_delay = Duration::ZERO;
    fluid.run(2_000);
    assert_full(&mut fluid, 20_000);
}

#[test]
fn trains_that_measured_too_little_are_refuted() {
    let mut fluid = Fluid::new(50.0, 40);
    fluid.capacity = 200.0;
    fluid.run(5_000);
    assert_full(&mut fluid, 5_000);
}

#[test]
fn shallow_buffer_overflows_once() {
    let mut fluid = Fluid::new(100.0, 50);
    fluid.buffer = MS;
    fluid.run(3_000);
    let lost = fluid.retransmits;
    let (rate, queue) = fluid.run(8_000);
    assert!(rate > 95.0 && queue < 1.0, "{rate} {queue}");
    let reasons: Vec<_> = fluid.decisions.iter().map(|one| one.reason.to_string()).collect();
    assert!(fluid.retransmits - lost < 100.0, "{} {reasons:#?}", fluid.retransmits - lost);
}

#[test]
fn random_loss_leaves_the_path_to_tcp_and_bbr_returns() {
    let mut fluid = Fluid::new(100.0, 50);
    fluid.loss = 0.001;
    fluid.run(3_000);
    let overflowed = |decision: &&Decision| decision.reason == Reason::StartOverflowed;
    let started = fluid.decisions.iter().find(overflowed).map(|decision| decision.at);
    let left = fluid.decisions.iter().find(|decision| decision.state == State::Disabled);
    let time = left.map(|left| left.at).zip(started).map(|(left, start)| left - start);
    // The loss of the start is the first event; four more would take 1.2 s at least.
    assert!(time.is_some_and(|time| time < REPAIR_TIME.1 * 4), "{time:?}");
    assert_eq!(fluid.controller.state(), State::Disabled);
    assert!(fluid.controller.path_state().is_lossy);
    let baseline = LossSample { retransmits: 20, segments: 10_000 };
    let decision = fluid.controller.on_loss_tolerant_cc(fluid.now, Some(baseline));
    assert_eq!(decision.map(|decision| decision.window), Some(Bytes::gib(1)));
    fluid.apply(decision);
    fluid.run(3_000);
    let (rate, queue) = fluid.run(5_000);
    assert!(rate > 90.0 && queue < 10.0, "{rate} {queue}");
    let ended = fluid.controller.on_loss_tolerant_cc(fluid.now, None);
    assert_eq!(ended.map(|decision| decision.reason), Some(Reason::LossSensitiveCc));
}

#[test]
fn overflow_of_others_leaves_half_of_the_line_to_them_under_bbr() {
    let mut fluid = Fluid::new(300.0, 30);
    fluid.run(3_000);
    // Others fill the queue, and leave a third of the line.
    fluid.buffer = MS * 10;
    (fluid.capacity, fluid.extra_delay, fluid.loss) = (100.0, MS * 20, 0.002);
    fluid.run(3_000);
    assert!(fluid.has_reason(|reason| matches!(reason, Reason::SharedOverflow(_))));
    let found = fluid.controller.path_state();
    assert!(found.is_lossy && found.has_cross_traffic_queue, "{found:?}");
    let baseline = LossSample { retransmits: 20, segments: 10_000 };
    let mut pacing = |baseline| {
        let decision = fluid.controller.on_loss_tolerant_cc(fluid.now, baseline);
        decision.map(|decision| (decision.state, decision.window, decision.pacing))
    };
    let open = Bytes::gib(1);
    let half = Some((State::Disabled, open, Some(mbit(150.0))));
    assert_eq!(pacing(Some(baseline)), half);
    assert_eq!(pacing(None), Some((State::Disabled, open, Some(mbit(300.0 / 0.98)))));
}

#[test]
fn half_of_the_line_ends_ten_seconds_after_the_others() {
    let mut fluid = Fluid::new(300.0, 30);
    fluid.run(3_000);
    fluid.buffer = MS * 10;
    (fluid.capacity, fluid.extra_delay, fluid.loss) = (100.0, MS * 20, 0.002);
    fluid.run(3_000);
    let baseline = LossSample { retransmits: 20, segments: 10_000 };
    let decision = fluid.controller.on_loss_tolerant_cc(fluid.now, Some(baseline));
    fluid.apply(decision);
    // Earlier returns were brief. The others end, and the random loss stays.
    fluid.controller.quiet_time = MS * 640_000;
    fluid.buffer = MS * 200;
    (fluid.capacity, fluid.extra_delay) = (300.0, Duration::ZERO);
    fluid.run(11_000);
    assert!(fluid.has_reason(|reason| matches!(reason, Reason::Quiet)));
    fluid.run(4_000);
    let (rate, _) = fluid.run(5_000);
    assert!(rate > 270.0, "{rate}");
}

#[test]
fn slow_reverse_path_ends_with_the_return() {
    let mut fluid = Fluid::new(100.0, 40);
    fluid.run(3_000);
    fluid.controller.path.is_reverse_path_slow = true;
    // The window stays: the sender of the model would overflow the queue for good.
    let _ = fluid.controller.enter_disabled(fluid.now, Reason::AckQueue(MS * 30));
    fluid.run(8_000);
    assert!(fluid.controller.path_state().is_ack_limited);
    fluid.run(4_000);
    assert!(!fluid.controller.path_state().is_ack_limited);
}

/// A path of a capacity in Mbit/s, with an RTT of 0.3 ms.
fn short_path(capacity: f64) -> Fluid {
    let rtt = MS * 3 / 10;
    Fluid { rtt, tcp_min_rtt: rtt, ..Fluid::new(capacity, 1) }
}

#[test]
fn short_path_ends_with_a_longer_route() {
    let mut fluid = short_path(100.0);
    // TCP fills its buffer: a queue of 40 ms.
    fluid.controller.config.window_max = Bytes::kib(480);
    fluid.run(3_000);
    assert!(fluid.controller.path_state().is_short);
    // A queue does not make the path longer.
    fluid.extra_delay = MS * 30;
    fluid.run(15_000);
    assert!(fluid.controller.path_state().is_short);
    (fluid.rtt, fluid.extra_delay) = (MS * 40, Duration::ZERO);
    fluid.run(25_000);
    assert!(!fluid.controller.path_state().is_short);
    let (rate, queue) = fluid.run(5_000);
    assert!(rate > 95.0 && queue < 3.0, "{rate} Mbit/s, {queue} ms");
}

#[test]
fn brief_returns_double_the_quiet_time() {
    let mut fluid = Fluid::new(100.0, 40);
    fluid.run(2_000);
    let mut now = fluid.now;
    let controller = &mut fluid.controller;
    let mut wait = |limited: Duration| {
        now += limited;
        controller.enter_disabled(now, Reason::Unsteady);
        let time = controller.quiet_time;
        now += time;
        controller.returned_at = Some(now);
        time.as_secs()
    };
    let times: Vec<u64> = [1, 1, 19, 1, 1, 1, 1, 640, 1].map(|s| wait(MS * s * 1_000)).into();
    assert_eq!(times, [10, 20, 40, 80, 160, 320, 640, 10, 20]);
}

#[test]
fn host_that_does_not_keep_up_changes_nothing() {
    let mut fluid = Fluid::new(100.0, 40);
    fluid.run(4_000);
    let before = fluid.decisions.len();
    for n in 0..300 {
        let decision = fluid.controller.observe(&Observation {
            now: fluid.now + TICK * n,
            rtt: Some(MS * 90),
            forward_delay: Some(Duration::from_secs(10) + MS * 70),
            received: Bytes((fluid.received / 8.0) as u64 + u64::from(n) * 10_000),
            bottleneck: Bottleneck::Receiver,
            ..Observation::default()
        });
        assert_eq!(decision, None);
    }
    assert_eq!(fluid.decisions.len(), before);
}

#[test]
fn rate_max_is_kept_by_pacing_alone() {
    let mut fluid = Fluid::new(100.0, 40);
    fluid.run(2_000);
    let decision = fluid.controller.on_rate_max(fluid.now, Some(mbit(20.0)));
    assert_eq!((decision.pacing, decision.window), (Some(mbit(20.0)), Bytes::gib(1)));
    fluid.apply(Some(decision));
    fluid.run(2_000);
    let (rate, queue) = fluid.run(4_000);
    assert!((19.0..=20.5).contains(&rate) && queue < 1.0, "{rate} {queue}");
    let decision = fluid.controller.on_rate_max(fluid.now, None);
    fluid.apply(Some(decision));
    fluid.run(4_000);
    assert_full(&mut fluid, 4_000);
}

#[test]
fn short_path_is_not_limited() {
    let mut fluid = short_path(1_000.0);
    fluid.run(100);
    assert_eq!(fluid.controller.state(), State::Disabled);
    assert!(fluid.controller.path_state().is_short);
    assert!(fluid.decisions.iter().all(|decision| decision.window == Bytes::gib(1)));
}

#[test]
fn start_without_a_capacity_ends_at_a_queue() {
    let mut fluid = Fluid::new(100.0, 40);
    let config = Config { capacity_timeout: MS * 100, ..fluid.controller.config };
    fluid.controller = DelayController::new(config);
    (fluid.window, fluid.pacing) = (8e6, f64::INFINITY);
    fluid.requests.clear();
    fluid.run(3_000);
    assert_full(&mut fluid, 5_000);
    assert!(fluid.states().contains(&State::StartOpen) || fluid.states()[1] == State::Limited);
}

#[test]
fn cached_rate_starts_a_path_without_trains() {
    let cached = crate::path_control::CachedPath { rate: mbit(80.0), rtt: MS * 42 };
    let config = Config {
        window_max: Bytes::gib(1),
        capacity_timeout: Duration::ZERO,
        rate_max: None,
        cached_path: Some(cached),
    };
    let mut controller = DelayController::new(config);
    let observation = Observation { rtt: Some(MS * 40), ..Observation::default() };
    let decision = controller.observe(&observation);
    let expected = (State::StartBounded, Some(mbit(78.4)), Reason::CachedRate(mbit(80.0)));
    assert_eq!(decision.map(|one| (one.state, one.pacing, one.reason)), Some(expected));
    let mut other = DelayController::new(config);
    let decision = other.observe(&Observation { rtt: Some(MS * 80), ..observation });
    assert_eq!(decision.map(|one| one.state), Some(State::StartOpen), "another route");
}

#[test]
fn capacity_below_the_rate_of_the_data_is_dropped() {
    let mut late = Fluid::new(100.0, 40);
    late.run(1_000);
    late.controller.on_capacity(late.now, mbit(20.0));
    assert_eq!(late.controller.line_capacity(), Some(mbit(100.0)), "a fair share of it");

    let mut early = Fluid::new(20.0, 40);
    early.capacity = 100.0;
    early.run(6_000);
    assert_eq!(early.controller.line_capacity(), None);
    // BBR is not paced at it either.
    let baseline_loss = Some(LossSample { retransmits: 1, segments: 1_000 });
    let decision = early.controller.on_loss_tolerant_cc(early.now, baseline_loss);
    let pacing = decision.and_then(|decision| decision.pacing);
    assert!(pacing.is_some_and(|rate| rate > mbit(80.0)), "{pacing:?}");
}

#[test]
fn path_left_to_tcp_is_not_paced_at_a_dropped_capacity() {
    let mut fluid = Fluid::new(100.0, 50);
    fluid.loss = 0.001;
    fluid.run(3_000);
    assert_eq!(fluid.controller.state(), State::Disabled);
    assert!(fluid.decisions.last().is_some_and(|decision| decision.pacing.is_some()));
    // Losses go on, and the pacing rate does not hold yet.
    (fluid.capacity, fluid.window, fluid.pacing) = (300.0, 1e9, 2e8);
    fluid.run(1_000);
    assert_eq!(fluid.controller.line_capacity(), None);
    let last = fluid.decisions.last();
    assert!(last.is_some_and(|decision| decision.pacing.is_none()), "{last:?}");
}

#[test]
fn window_that_tcp_never_reaches_still_grows() {
    for share in [0.85, 0.95] {
        let mut fluid = Fluid::new(100.0, 20);
        fluid.reached = share;
        fluid.run(500);
        // A brief overflow lowers the capacity, beyond which the whole window has to be in use.
        fluid.retransmits += 10.0;
        fluid.queue = fluid.capacity * 1e6 * 0.05;
        fluid.run(20_000);
        assert_full(&mut fluid, 5_000);
    }
}

#[test]
fn base_delay_is_measured_on_a_path_of_a_few_segments() {
    // Two segments take longer than the RTT.
    let mut fluid = Fluid::new(2.0, 10);
    fluid.streams = 1;
    fluid.run(2_000);
    for _ in 0..6 {
        let (rate, _) = fluid.run(5_000);
        assert!(rate > 1.8, "{rate} {:#?}", fluid.decisions.last());
    }
    assert!(fluid.has_reason(|reason| matches!(reason, Reason::BaseDelayExpired)));
    let least = Bytes(2 * 1448);
    assert!(fluid.decisions.iter().skip(1).all(|decision| decision.window >= least));
}
