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
        Some(self.queue_until + self.rtt)
    }

    /// Runs a transfer, and returns the part of the line that was filled in the second half.
    fn run(&mut self, time: Duration) -> f64 {
        let mut control = Delivery::new(Duration::ZERO, Bytes(MTU));
        let (mut now, mut in_flight, mut srtt) = (Duration::ZERO, 0_u64, self.rtt);
        let mut events: BTreeMap<(Duration, u64), (Duration, bool)> = BTreeMap::new();
        let (mut number, mut next_send, mut half) = (0, Duration::ZERO, None);
        while now < time {
            if half.is_none() && now >= time / 2 {
                half = Some(self.delivered);
            }
            let may_send = in_flight + MTU <= control.window().0;
            let due = events.keys().next().map(|&(at, _)| at);
            if may_send && due.is_none_or(|due| next_send <= due) {
                now = now.max(next_send);
                control.on_sent(now);
                in_flight += MTU;
                number += 1;
                let acked = self.pass(now);
                if half.is_some() {
                    self.waits = self.waits.max(self.queue_until.saturating_sub(now));
                }
                let at = acked.unwrap_or(now + srtt.mul_f64(1.125));
                events.insert((at, number), (now, acked.is_some()));
                let pace = control.window().0 as f64 * 1.25 / srtt.as_secs_f64();
                next_send = now + Duration::from_secs_f64(MTU as f64 / pace);
                continue;
            }
            let Some(((at, _), (sent, is_acked))) = events.pop_first() else { break };
            now = now.max(at);
            in_flight -= MTU;
            if is_acked {
                self.delivered += MTU;
                srtt = srtt.mul_f64(0.875) + (now - sent).mul_f64(0.125);
                control.on_ack(now, sent, Bytes(MTU), false);
            } else {
                control.on_lost(Bytes(MTU), false);
            }
        }
        let bytes = (self.delivered - half.unwrap()) as f64;
        bytes / (time / 2).as_secs_f64() / self.rate
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
fn a_path_that_is_gone_is_begun_anew() {
    let mut control = Delivery::new(Duration::ZERO, Bytes(MTU));
    for n in 0..1000 {
        control.on_sent(MS * n);
        if n >= 10 {
            control.on_ack(MS * n, MS * (n - 10), Bytes(MTU), false);
        }
    }
    let before = control.window();
    control.on_lost(Bytes(MTU), true);
    assert!(control.window() == Bytes(MTU * LEAST) && control.window() < before);
    assert_eq!(control.rate(), None);
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
