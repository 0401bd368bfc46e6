use super::*;
use std::collections::BTreeMap;

const MTU: u64 = 1200;
const MS: Duration = Duration::from_millis(1);

/// A sender and a path with one queue, packet by packet.
struct Path {
    rate: f64,
    rtt: Duration,
    buffer: u64,
    loss: f64,
    /// Acknowledgements come at multiples of this.
    together: Duration,
    random: u64,
    /// What this flow does not have.
    queue_until: Duration,
    dropped: u64,
    delivered: u64,
    /// The longest wait in the queue in the second half.
    waits: Duration,
}

impl Path {
    fn new(mbit: f64, rtt: Duration, buffer: f64, loss: f64) -> Self {
        let rate = mbit * 1e6 / 8.0;
        Self {
            rate,
            rtt,
            buffer: (rate * rtt.as_secs_f64() * buffer) as u64,
            loss,
            together: Duration::ZERO,
            random: 88_172_645_463_325_252,
            queue_until: Duration::ZERO,
            dropped: 0,
            delivered: 0,
            waits: Duration::ZERO,
        }
    }

    fn chance(&mut self) -> f64 {
        // xorshift64 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// When a packet is acknowledged that is sent now.
    fn pass(&mut self, now: Duration) -> Option<Duration> {
        let start = self.queue_until.max(now);
        let waiting = (start - now).as_secs_f64() * self.rate;
        if waiting + MTU as f64 > (self.buffer + MTU) as f64 {
            self.dropped += 1;
            return None;
        }
        self.queue_until = start + Duration::from_secs_f64(MTU as f64 / self.rate);
        if self.chance() < self.loss {
            return None;
        }
        let acked = self.queue_until + self.rtt;
        let beyond = acked.as_nanos().checked_rem(self.together.as_nanos()).unwrap_or(0);
        let wait = if beyond == 0 { 0 } else { self.together.as_nanos() - beyond };
        Some(acked + Duration::from_nanos(wait as u64))
    }

    /// Runs a transfer, and returns the part of the line that was filled in the second half.
    fn run(&mut self, time: Duration) -> f64 {
        self.run_all(self.flows(1, 0, Duration::ZERO), time)[0]
    }

    /// Runs as many of ours, and so many of CUBIC that have the line for a tenth of the time before
    /// them; the parts of the line that each of ours had in the second half.
    fn run_beside(&mut self, ours: usize, cubic: usize, time: Duration) -> Vec<f64> {
        let flows = self.flows(ours, cubic, time / 10);
        self.run_all(flows, time).split_off(cubic)
    }

    /// So many of CUBIC, and then ours, which begin when it is said.
    fn flows(&self, ours: usize, cubic: usize, begin: Duration) -> Vec<Flow> {
        let cubic = (0..cubic).map(|_| Flow::new(Way::Cubic(Rival::new(10.0)), self.rtt));
        let ours = (0..ours).map(|_| {
            let way = Way::Ours(Box::new(Delivery::new(begin, Bytes(MTU))));
            Flow { next_send: begin, ..Flow::new(way, self.rtt) }
        });
        cubic.chain(ours).collect()
    }

    /// The parts of the line that flows had in the second half.
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
        mut look: impl FnMut(Duration, &[Flow]),
    ) {
        let (mut now, mut number) = (Duration::ZERO, 0_u64);
        let mut events: BTreeMap<(Duration, u64), (usize, Duration, bool)> = BTreeMap::new();
        while now < time {
            look(now, flows);
            let due = events.keys().next().map(|&(at, _)| at);
            let ready = (0..flows.len()).filter(|&at| flows[at].may_send());
            let next = ready.min_by_key(|&at| flows[at].next_send);
            if let Some(at) = next
                && due.is_none_or(|due| flows[at].next_send <= due)
            {
                now = now.max(flows[at].next_send);
                number += 1;
                let acked = self.pass(now);
                if now >= time / 2 {
                    self.waits = self.waits.max(self.queue_until.saturating_sub(now));
                }
                flows[at].send(now);
                // What is lost is missed an eighth of a round trip later.
                let noticed = acked.unwrap_or(now + flows[at].srtt.mul_f64(1.125));
                events.insert((noticed, number), (at, now, acked.is_some()));
                continue;
            }
            let Some(((at, _), (flow, sent, is_acked))) = events.pop_first() else { break };
            now = now.max(at);
            flows[flow].hear(now, sent, is_acked);
        }
    }
}

/// Who decides on a window.
enum Way {
    Ours(Box<Delivery>),
    Cubic(Rival),
}

/// A sender.
struct Flow {
    way: Way,
    in_flight: u64,
    srtt: Duration,
    next_send: Duration,
    delivered: u64,
    /// CUBIC's slow start, until something is lost; and until when losses are of the same round.
    is_new: bool,
    recovers_until: Duration,
    /// It has nothing more to send from then on; and between these only one as often as that.
    ends: Duration,
    rests: Option<(Duration, Duration, Duration)>,
}

impl Flow {
    fn new(way: Way, rtt: Duration) -> Self {
        Self {
            way,
            in_flight: 0,
            srtt: rtt,
            next_send: Duration::ZERO,
            delivered: 0,
            is_new: true,
            recovers_until: Duration::ZERO,
            ends: Duration::MAX,
            rests: None,
        }
    }

    fn window(&self) -> u64 {
        match &self.way {
            Way::Ours(control) => control.window().0,
            Way::Cubic(rival) => rival.window(MTU),
        }
    }

    fn may_send(&self) -> bool {
        self.in_flight + MTU <= self.window() && self.next_send < self.ends
    }

    /// Whether it has little to send now.
    fn rests(&self, now: Duration) -> bool {
        self.rests.is_some_and(|(from, until, _)| (from..until).contains(&now))
    }

    fn send(&mut self, now: Duration) {
        if let Way::Ours(control) = &mut self.way {
            control.on_sent(now);
        }
        self.in_flight += MTU;
        let pace = self.window() as f64 * 1.25 / self.srtt.as_secs_f64();
        self.next_send = now + Duration::from_secs_f64(MTU as f64 / pace);
        if let Some((_, until, every)) = self.rests.filter(|_| self.rests(now)) {
            self.next_send = until.min(now + every);
        }
    }

    fn hear(&mut self, now: Duration, sent: Duration, is_acked: bool) {
        self.in_flight -= MTU;
        // What the window kept back is not sent in the past.
        self.next_send = self.next_send.max(now);
        if is_acked {
            self.delivered += MTU;
            self.srtt = self.srtt.mul_f64(0.875) + (now - sent).mul_f64(0.125);
        }
        let is_idle = self.rests(now);
        match (&mut self.way, is_acked) {
            (Way::Ours(control), true) => {
                control.on_ack(now, sent, Bytes(MTU), is_idle);
                control.on_acks_end(Bytes(self.in_flight), is_idle);
            }
            (Way::Ours(control), false) => control.on_lost(Bytes(MTU), false),
            (Way::Cubic(rival), true) if self.is_new => rival.window += 1.0,
            (Way::Cubic(rival), true) => rival.grow(1.0, now, self.srtt),
            (Way::Cubic(rival), false) => {
                if sent >= self.recovers_until {
                    rival.on_lost();
                    (self.recovers_until, self.is_new) = (now, false);
                }
            }
        }
    }
}

#[test]
fn paths_are_filled_and_hardly_anything_waits_or_overflows() {
    for (mbit, ms) in [(1000.0, 1), (200.0, 100), (50.0, 250), (5.0, 20)] {
        let mut path = Path::new(mbit, MS * ms, 1.0, 0.0);
        let part = path.run(MS * ms * 400);
        assert!(part > 0.95, "{mbit} Mbit/s, {ms} ms: {part}");
        let most = (MS * ms).mul_f64(0.35) + MS * 5;
        assert!(path.waits < most, "{mbit} Mbit/s, {ms} ms: {:?}", path.waits);
        // The first window may be too much for the queue of a narrow path.
        assert!(path.dropped < FIRST, "{mbit} Mbit/s, {ms} ms: {}", path.dropped);
    }
}

#[test]
fn random_loss_costs_what_is_lost_and_little_more() {
    for (loss, least) in [(0.01, 0.92), (0.02, 0.9), (0.05, 0.85)] {
        for ms in [100, 250] {
            let part = Path::new(200.0, MS * ms, 1.0, loss).run(MS * ms * 300);
            assert!(part > least, "{loss}, {ms} ms: {part}");
        }
    }
}

#[test]
fn a_short_queue_is_not_overflowed_for_long() {
    let mut path = Path::new(100.0, MS * 40, 0.1, 0.0);
    let part = path.run(MS * 40 * 400);
    assert!(part > 0.85, "{part}");
    let share = path.dropped as f64 / (path.delivered / MTU) as f64;
    assert!(share < 0.02, "{share}");
}

#[test]
fn beside_cubic_it_has_its_share() {
    for (mbit, ms) in [(100.0, 20), (100.0, 80)] {
        for buffer in [0.5, 1.0, 2.0] {
            for cubic in [1, 4] {
                let mut path = Path::new(mbit, MS * ms, buffer, 0.0);
                let part = path.run_beside(1, cubic, Duration::from_secs(40))[0];
                let share = part * (cubic + 1) as f64;
                // Another of CUBIC that comes later has no equal part after so long either.
                let of = format!("{ms} ms, a buffer of {buffer}, beside {cubic}: {share}");
                assert!((0.4..2.5).contains(&share), "{of}");
            }
        }
    }
}

/// A cable of 1 Gbit/s whose ends sleep and wake.
fn cable(queue: u64, loss: f64) -> Path {
    let rtt = Duration::from_micros(40);
    let together = Duration::from_micros(400);
    Path { buffer: queue, together, ..Path::new(1000.0, rtt, 0.0, loss) }
}

#[test]
fn a_short_path_is_filled_though_acknowledgements_come_together() {
    // Rate × shortest round trip is 5 kB, and 50 kB are delivered between acknowledgements.
    for loss in [0.0, 0.01, 0.05] {
        let mut path = cable(200_000, loss);
        let part = path.run(Duration::from_secs(4));
        assert!(part > 0.9, "{loss}: {part}");
        let share = path.dropped as f64 / (path.delivered / MTU) as f64;
        assert!(share < 0.002, "{loss}: {share}");
    }
}

#[test]
fn where_the_queue_is_small_less_is_in_flight() {
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
fn two_share_a_path() {
    let mut path = Path::new(100.0, MS * 20, 1.0, 0.0);
    let parts = path.run_beside(2, 0, Duration::from_secs(40));
    assert!(parts.iter().all(|part| (0.3..0.7).contains(part)), "{parts:?}");
    assert!(parts.iter().sum::<f64>() > 0.95, "{parts:?}");
}

#[test]
fn when_others_have_left_the_line_is_filled_and_the_queue_empty_again() {
    let mut path = Path::new(100.0, MS * 20, 2.0, 0.0);
    let mut flows = path.flows(1, 2, Duration::from_secs(2));
    flows[..2].iter_mut().for_each(|flow| flow.ends = Duration::from_secs(15));
    let part = path.run_all(flows, Duration::from_secs(60))[2];
    assert!(part > 0.95, "{part}");
    assert!(path.waits < MS * 15, "{:?}", path.waits);
}

#[test]
fn a_pause_does_not_count_and_neither_does_a_trickle() {
    // One in flight when there is more to send again; and what is delivered after a pause.
    for every in [MS * 40, MS * 1010] {
        let mut path = Path::new(100.0, MS * 50, 1.0, 0.0);
        let mut flows = path.flows(1, 0, Duration::ZERO);
        flows[0].rests = Some((Duration::from_secs(5), Duration::from_secs(30), every));
        let (mut before, mut least) = (None, u64::MAX);
        path.run_until(&mut flows, Duration::from_millis(30_500), |now, flows| {
            if now >= Duration::from_secs(30) {
                before.get_or_insert(flows[0].delivered);
                least = least.min(flows[0].window());
            }
        });
        // Of ten round trips the first brings nothing.
        let part = (flows[0].delivered - before.unwrap()) as f64 / (path.rate * 0.45);
        assert!(part > 0.85, "{part} after {every:?}");
        assert!(least as f64 > path.rate * 0.05 * 0.8, "{least} after {every:?}");
    }
}

#[test]
fn a_path_that_is_gone_is_begun_anew() {
    // 10 Mbit/s, and 1 Gbit/s.
    for every in [MS, Duration::from_micros(10)] {
        let mut control = Delivery::new(Duration::ZERO, Bytes(MTU));
        for n in 0..10_000 {
            control.on_sent(every * n);
            if n >= 10 {
                control.on_ack(every * n, every * (n - 10), Bytes(MTU), false);
            }
        }
        let before = control.window();
        control.on_lost(Bytes(MTU), true);
        assert!(control.window() == Bytes(MTU * LEAST) && control.window() < before);
        assert_eq!(control.rate(), None);
    }
}

#[test]
fn a_sender_with_little_to_send_does_not_take_that_for_the_path() {
    let mut control = Delivery::new(Duration::ZERO, Bytes(MTU));
    let mut now = Duration::ZERO;
    for _ in 0..100 {
        control.on_sent(now);
        now += MS * 20;
        control.on_ack(now, now - MS * 20, Bytes(MTU), true);
    }
    assert!(control.window() >= Bytes(MTU * FIRST), "{:?}", control.window());
    assert_eq!(control.phase, Phase::Startup);
}
