use super::cubic::Cubic;
use super::*;
use std::collections::BTreeMap;

const MTU: u64 = 1200;
const MS: Duration = Duration::from_millis(1);

/// Path with one queue, simulated packet by packet.
struct Path {
    /// Bytes per second.
    rate: f64,
    rtt: Duration,
    /// Queue capacity in bytes.
    buffer: u64,
    loss: f64,
    /// Time of a rate change, and the rate from then on.
    next_rate: Option<(Duration, f64)>,
    /// ACKs are delayed to multiples of this.
    ack_interval: Duration,
    random: u64,
    /// Time at which the queue is empty.
    queue_until: Duration,
    dropped: u64,
    delivered: u64,
    /// Longest delay in the queue, in the second half of a run.
    max_queue_delay: Duration,
}

impl Path {
    fn new(mbit: f64, rtt: Duration, buffer: f64, loss: f64) -> Self {
        let rate = mbit * 1e6 / 8.0;
        Self {
            rate,
            rtt,
            buffer: (rate * rtt.as_secs_f64() * buffer) as u64,
            loss,
            next_rate: None,
            ack_interval: Duration::ZERO,
            random: 88_172_645_463_325_252,
            queue_until: Duration::ZERO,
            dropped: 0,
            delivered: 0,
            max_queue_delay: Duration::ZERO,
        }
    }

    fn random_unit(&mut self) -> f64 {
        // xorshift64 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Sends a packet; returns the time of its ACK, or `None` if it is lost.
    fn transmit(&mut self, now: Duration) -> Option<Duration> {
        if let Some((_, rate)) = self.next_rate.take_if(|(at, _)| *at <= now) {
            self.rate = rate;
        }
        let start = self.queue_until.max(now);
        let waiting = (start - now).as_secs_f64() * self.rate;
        if waiting + MTU as f64 > (self.buffer + MTU) as f64 {
            self.dropped += 1;
            return None;
        }
        self.queue_until = start + Duration::from_secs_f64(MTU as f64 / self.rate);
        if self.random_unit() < self.loss {
            return None;
        }
        let acked = self.queue_until + self.rtt;
        let beyond = acked.as_nanos().checked_rem(self.ack_interval.as_nanos()).unwrap_or(0);
        let wait = if beyond == 0 { 0 } else { self.ack_interval.as_nanos() - beyond };
        Some(acked + Duration::from_nanos(wait as u64))
    }

    /// Runs one flow; returns the fraction of the capacity that it used in the second half.
    fn run(&mut self, time: Duration) -> f64 {
        self.run_all(self.flows(1, 0, Duration::ZERO), time)[0]
    }

    /// Runs CUBIC flows, and model-based ones that start after a tenth of the time. Returns the
    /// fraction of the capacity that each model-based flow used in the second half.
    fn run_with_cubic(&mut self, model_based: usize, cubic: usize, time: Duration) -> Vec<f64> {
        let flows = self.flows(model_based, cubic, time / 10);
        self.run_all(flows, time).split_off(cubic)
    }

    /// Returns CUBIC flows that start at zero, then model-based ones that start at `begin`.
    fn flows(&self, model_based: usize, cubic: usize, begin: Duration) -> Vec<Flow> {
        let cubic = (0..cubic).map(|_| {
            Flow::new(
                Algorithm::Cubic(CubicWindow { cubic: Cubic::default(), cwnd: 10.0 }),
                self.rtt,
            )
        });
        let model_based = (0..model_based).map(|_| {
            let algorithm = Algorithm::ModelBased(Box::new(ModelBased::new(begin, Bytes(MTU))));
            Flow { next_send: begin, ..Flow::new(algorithm, self.rtt) }
        });
        cubic.chain(model_based).collect()
    }

    /// Returns the fraction of the capacity that each flow used in the second half.
    fn run_all(&mut self, mut flows: Vec<Flow>, time: Duration) -> Vec<f64> {
        let mut half: Option<Vec<u64>> = None;
        self.run_until(&mut flows, time, |now, flows| {
            if half.is_none() && now >= time / 2 {
                half = Some(flows.iter().map(|flow| flow.delivered).collect());
            }
        });
        self.delivered = flows.iter().map(|flow| flow.delivered).sum();
        let share = |(flow, half): (&Flow, u64)| {
            (flow.delivered - half) as f64 / (time / 2).as_secs_f64() / self.rate
        };
        flows.iter().zip(half.unwrap()).map(share).collect()
    }

    fn run_until(
        &mut self,
        flows: &mut [Flow],
        time: Duration,
        mut observe: impl FnMut(Duration, &[Flow]),
    ) {
        let (mut now, mut number) = (Duration::ZERO, 0_u64);
        let mut events: BTreeMap<(Duration, u64), (usize, Duration, bool)> = BTreeMap::new();
        while now < time {
            observe(now, flows);
            let due = events.keys().next().map(|&(at, _)| at);
            let ready = (0..flows.len()).filter(|&at| flows[at].may_send());
            let next = ready.min_by_key(|&at| flows[at].next_send);
            if let Some(at) = next
                && due.is_none_or(|due| flows[at].next_send <= due)
            {
                now = now.max(flows[at].next_send);
                number += 1;
                let acked = self.transmit(now);
                if now >= time / 2 {
                    self.max_queue_delay =
                        self.max_queue_delay.max(self.queue_until.saturating_sub(now));
                }
                flows[at].send(now);
                // Loss is detected after 9/8 of the smoothed RTT.
                let reported = acked.unwrap_or(now + flows[at].srtt.mul_f64(1.125));
                events.insert((reported, number), (at, now, acked.is_some()));
                continue;
            }
            let Some(((at, _), (flow, sent, is_acked))) = events.pop_first() else { break };
            now = now.max(at);
            flows[flow].on_feedback(now, sent, is_acked);
        }
    }
}

/// Congestion controller of a flow.
enum Algorithm {
    ModelBased(Box<ModelBased>),
    Cubic(CubicWindow),
}

/// Window of CUBIC, in packets.
struct CubicWindow {
    cubic: Cubic,
    cwnd: f64,
}

/// Sender with its congestion controller.
struct Flow {
    algorithm: Algorithm,
    in_flight: u64,
    srtt: Duration,
    next_send: Duration,
    delivered: u64,
    /// CUBIC: no loss yet; and the time of sending before which losses belong to the last event.
    in_slow_start: bool,
    recovery_until: Duration,
    /// Time after which there is no more data.
    ends_at: Duration,
    /// Start and end of an app-limited phase, and the interval of its sends.
    app_limited_phase: Option<(Duration, Duration, Duration)>,
}

impl Flow {
    fn new(algorithm: Algorithm, rtt: Duration) -> Self {
        Self {
            algorithm,
            in_flight: 0,
            srtt: rtt,
            next_send: Duration::ZERO,
            delivered: 0,
            in_slow_start: true,
            recovery_until: Duration::ZERO,
            ends_at: Duration::MAX,
            app_limited_phase: None,
        }
    }

    fn window(&self) -> u64 {
        match &self.algorithm {
            Algorithm::ModelBased(control) => control.window().0,
            Algorithm::Cubic(window) => (window.cwnd * MTU as f64) as u64,
        }
    }

    fn may_send(&self) -> bool {
        self.in_flight + MTU <= self.window() && self.next_send < self.ends_at
    }

    /// True if the flow is app-limited now.
    fn is_app_limited(&self, now: Duration) -> bool {
        self.app_limited_phase.is_some_and(|(from, until, _)| (from..until).contains(&now))
    }

    fn send(&mut self, now: Duration) {
        if let Algorithm::ModelBased(control) = &mut self.algorithm {
            control.on_sent(now, Bytes(MTU));
        }
        self.in_flight += MTU;
        // As quinn-proto's pacer, unless the controller paces.
        let pace = self.window() as f64 * 1.25 / self.srtt.as_secs_f64();
        self.next_send = now + Duration::from_secs_f64(MTU as f64 / pace);
        if let Algorithm::ModelBased(control) = &self.algorithm {
            self.next_send = self.next_send.max(control.next_send());
        }
        if let Some((_, until, every)) = self.app_limited_phase.filter(|_| self.is_app_limited(now))
        {
            self.next_send = until.min(now + every);
        }
    }

    fn on_feedback(&mut self, now: Duration, sent: Duration, is_acked: bool) {
        self.in_flight -= MTU;
        // Data that the window held back is sent now at the earliest.
        self.next_send = self.next_send.max(now);
        if is_acked {
            self.delivered += MTU;
            self.srtt = self.srtt.mul_f64(0.875) + (now - sent).mul_f64(0.125);
        }
        let app_limited = self.is_app_limited(now);
        match (&mut self.algorithm, is_acked) {
            (Algorithm::ModelBased(control), true) => {
                control.on_ack(now, sent, Bytes(MTU), app_limited);
                control.on_end_acks(Bytes(self.in_flight), app_limited);
            }
            (Algorithm::ModelBased(control), false) => control.on_lost(Bytes(MTU), false),
            (Algorithm::Cubic(window), true) if self.in_slow_start => window.cwnd += 1.0,
            (Algorithm::Cubic(window), true) => {
                window.cwnd = window.cubic.next_window(window.cwnd, 1.0, now, self.srtt);
            }
            (Algorithm::Cubic(window), false) => {
                if sent >= self.recovery_until {
                    window.cubic.on_loss(window.cwnd);
                    window.cwnd = (window.cwnd * cubic::BETA).max(1.0);
                    (self.recovery_until, self.in_slow_start) = (now, false);
                }
            }
        }
    }
}

#[test]
fn path_is_filled_with_short_queue() {
    for (mbit, ms) in [(1000.0, 1), (200.0, 100), (50.0, 250), (5.0, 20)] {
        let mut path = Path::new(mbit, MS * ms, 1.0, 0.0);
        let part = path.run(MS * ms * 400);
        assert!(part > 0.95, "{mbit} Mbit/s, {ms} ms: {part}");
        let most = (MS * ms).mul_f64(0.35) + MS * 5;
        assert!(path.max_queue_delay < most, "{mbit} Mbit/s, {ms} ms: {:?}", path.max_queue_delay);
        // The initial window may overflow the queue of a slow path.
        assert!(path.dropped < INITIAL_CWND_DATAGRAMS, "{mbit} Mbit/s, {ms} ms: {}", path.dropped);
    }
}

#[test]
fn random_loss_costs_little_goodput() {
    for (loss, least) in [(0.01, 0.92), (0.02, 0.9), (0.05, 0.85)] {
        for ms in [100, 250] {
            let part = Path::new(200.0, MS * ms, 1.0, loss).run(MS * ms * 300);
            assert!(part > least, "{loss}, {ms} ms: {part}");
        }
    }
}

#[test]
fn short_queue_drops_under_two_percent() {
    let mut path = Path::new(100.0, MS * 40, 0.1, 0.0);
    let part = path.run(MS * 40 * 400);
    assert!(part > 0.85, "{part}");
    let share = path.dropped as f64 / (path.delivered / MTU) as f64;
    assert!(share < 0.02, "{share}");
}

#[test]
fn cubic_cross_traffic_leaves_fair_share() {
    for (mbit, ms) in [(100.0, 20), (100.0, 80)] {
        for buffer in [0.5, 1.0, 2.0] {
            for cubic in [1, 4] {
                let mut path = Path::new(mbit, MS * ms, buffer, 0.0);
                let part = path.run_with_cubic(1, cubic, Duration::from_secs(40))[0];
                let share = part * (cubic + 1) as f64;
                // A CUBIC flow that starts late does not reach an equal share within 40 s either.
                let of = format!("{ms} ms, a buffer of {buffer}, beside {cubic}: {share}");
                assert!((0.4..2.5).contains(&share), "{of}");
            }
        }
    }
}

/// Cable of 1 Gbit/s between hosts that aggregate ACKs.
fn cable(queue: u64, loss: f64) -> Path {
    let rtt = Duration::from_micros(40);
    let ack_interval = Duration::from_micros(400);
    Path { buffer: queue, ack_interval, ..Path::new(1000.0, rtt, 0.0, loss) }
}

#[test]
fn short_path_with_aggregated_acks_is_filled() {
    // The BDP is 5 kB, and 50 kB are delivered between two ACKs.
    for loss in [0.0, 0.01, 0.05] {
        let mut path = cable(200_000, loss);
        let part = path.run(Duration::from_secs(4));
        assert!(part > 0.9, "{loss}: {part}");
        let share = path.dropped as f64 / (path.delivered / MTU) as f64;
        assert!(share < 0.002, "{loss}: {share}");
    }
}

#[test]
fn small_queue_limits_extra_acked() {
    for (queue, least) in [(64_000, 0.85), (20_000, 0.4)] {
        for loss in [0.0, 0.02] {
            let mut path = cable(queue, loss);
            let part = path.run(Duration::from_secs(12));
            assert!(part > least, "{queue}, {loss}: {part}");
            let share = path.dropped as f64 / (path.delivered / MTU) as f64;
            assert!(share < 0.01, "{queue}, {loss}: {share}");
        }
    }
}

#[test]
fn two_flows_share_evenly() {
    let mut path = Path::new(100.0, MS * 20, 1.0, 0.0);
    let parts = path.run_with_cubic(2, 0, Duration::from_secs(40));
    assert!(parts.iter().all(|part| (0.3..0.7).contains(part)), "{parts:?}");
    assert!(parts.iter().sum::<f64>() > 0.95, "{parts:?}");
}

#[test]
fn cross_traffic_end_refills_path_and_drains_queue() {
    let mut path = Path::new(100.0, MS * 20, 2.0, 0.0);
    let mut flows = path.flows(1, 2, Duration::from_secs(2));
    flows[..2].iter_mut().for_each(|flow| flow.ends_at = Duration::from_secs(15));
    let part = path.run_all(flows, Duration::from_secs(60))[2];
    assert!(part > 0.95, "{part}");
    assert!(path.max_queue_delay < MS * 15, "{:?}", path.max_queue_delay);
}

#[test]
fn app_limited_phase_keeps_window() {
    // With one packet in flight when the phase ends, and with none.
    for every in [MS * 40, MS * 1010] {
        let mut path = Path::new(100.0, MS * 50, 1.0, 0.0);
        let mut flows = path.flows(1, 0, Duration::ZERO);
        flows[0].app_limited_phase = Some((Duration::from_secs(5), Duration::from_secs(30), every));
        let (mut before, mut least) = (None, u64::MAX);
        path.run_until(&mut flows, Duration::from_millis(30_500), |now, flows| {
            if now >= Duration::from_secs(30) {
                before.get_or_insert(flows[0].delivered);
                least = least.min(flows[0].window());
            }
        });
        // The first of ten RTTs delivers nothing.
        let part = (flows[0].delivered - before.unwrap()) as f64 / (path.rate * 0.45);
        assert!(part > 0.85, "{part} after {every:?}");
        assert!(least as f64 > path.rate * 0.05 * 0.8, "{least} after {every:?}");
    }
}

#[test]
fn app_limited_sender_follows_a_slower_line() {
    let mut path = Path::new(100.0, MS * 40, 1.0, 0.0);
    path.next_rate = Some((Duration::from_secs(5), path.rate / 5.0));
    let mut flows = path.flows(1, 0, Duration::ZERO);
    // The sends take three fifths of the initial line rate, three times the later one.
    let every = MS / 6;
    flows[0].app_limited_phase = Some((Duration::from_secs(4), Duration::from_secs(20), every));
    path.run_until(&mut flows, Duration::from_secs(20), |_, _| {});
    let sent = path.dropped + flows[0].delivered / MTU;
    assert!(path.dropped * 30 < sent, "{} of {sent} dropped", path.dropped);
    // 5 s of the first line, of which 1 s is app-limited, and 15 s of the second.
    let part = flows[0].delivered as f64 / (path.rate * (5.0 * 4.6 + 15.0));
    assert!(part > 0.9, "{part}");
}

#[test]
fn persistent_congestion_resets_model() {
    // 10 Mbit/s, and 1 Gbit/s.
    for every in [MS, Duration::from_micros(10)] {
        let mut control = ModelBased::new(Duration::ZERO, Bytes(MTU));
        for n in 0..10_000 {
            control.on_sent(every * n, Bytes(MTU));
            if n >= 10 {
                control.on_ack(every * n, every * (n - 10), Bytes(MTU), false);
            }
        }
        let before = control.window();
        control.on_lost(Bytes(MTU), true);
        assert!(
            control.window() == Bytes(MTU * FAST_RETRANSMIT_SEGMENTS) && control.window() < before
        );
        assert_eq!(control.max_bw(), None);
    }
}

#[test]
fn smaller_mtu_restarts_startup() {
    let mut control = ModelBased::new(Duration::ZERO, Bytes(MTU));
    control.on_sent(Duration::ZERO, Bytes(MTU));
    control.on_ack(MS * 10, Duration::ZERO, Bytes(MTU), false);
    control.state = State::Cruise(3);
    control.on_mtu_update(Bytes(MTU + 100));
    assert_eq!((control.state, control.max_bw().is_some()), (State::Cruise(3), true));
    control.on_mtu_update(Bytes(1_200));
    assert_eq!((control.state, control.max_bw()), (State::Startup, None));
    assert_eq!(control.window(), Bytes(1_200 * INITIAL_CWND_DATAGRAMS));
}

#[test]
fn pacer_waits_no_longer_than_a_window_takes() {
    let mut control = ModelBased::new(Duration::ZERO, Bytes(MTU));
    control.on_sent(Duration::ZERO, Bytes(MTU));
    control.on_ack(MS * 10, Duration::ZERO, Bytes(MTU), false);
    control.state = State::Cruise(3);
    // 0.1 Mbit/s: a datagram takes more than 100 ms.
    control.bw_shortterm = 12_500.0;
    for _ in 0..10 {
        control.on_sent(MS * 20, Bytes(MTU));
    }
    assert_eq!(control.next_send(), MS * 40);
}

#[test]
fn app_limited_sender_stays_in_startup() {
    let mut control = ModelBased::new(Duration::ZERO, Bytes(MTU));
    let mut now = Duration::ZERO;
    for _ in 0..100 {
        control.on_sent(now, Bytes(MTU));
        now += MS * 20;
        control.on_ack(now, now - MS * 20, Bytes(MTU), true);
    }
    assert!(control.window() >= Bytes(MTU * INITIAL_CWND_DATAGRAMS), "{:?}", control.window());
    assert_eq!(control.state, State::Startup);
}

#[test]
fn startup_finds_share_beside_slow_start() {
    // A CUBIC flow whose slow start has filled the queue when this sender begins.
    for (ms, buffer, least) in [(40, 1.0, 0.35), (50, 2.0, 0.3), (80, 1.0, 0.4)] {
        let mut path = Path::new(100.0, MS * ms, buffer, 0.0);
        let mut flows = path.flows(1, 1, MS * 100);
        path.run_until(&mut flows, Duration::from_secs(15), |_, _| {});
        let part = flows[1].delivered as f64 / (path.rate * 15.0);
        assert!(part > least, "{ms} ms, a buffer of {buffer}: {part}");
    }
}
