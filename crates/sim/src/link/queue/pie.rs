//! PIE (RFC 8033): drops at arrival with a probability that follows the queueing delay.
//!
//! Like Linux (net/sched/sch_pie.c) where the RFC leaves a choice: the queueing delay is that of
//! the latest packet that left, not the delay of one that arrives.

use crate::link::time::{PICOS_PER_SEC, Picos, picos};
use fastrand::Rng;
use std::collections::VecDeque;
use std::time::Duration;

/// Weights of the distance from the target and of the change, per second (RFC 8033 §4.2).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;

/// Time after idle in which nothing is dropped (RFC 8033 §4.1, MAX_BURST: 150 ms).
const MAX_BURST: Duration = Duration::from_millis(150);

/// Probability above which ECN-capable packets are dropped as well (RFC 8033 §5.1: 10 %).
const MAX_MARK_PROBABILITY: f64 = 0.1;

/// Probability below which a delay of half of the target saves a packet (RFC 8033 §4.1).
const SAFE_PROBABILITY: f64 = 0.2;

/// Bytes of two packets, which are never too many (RFC 8033 §4.1, 2 * MEAN_PKTSIZE).
const SAFE_BACKLOG_BYTES: u64 = 3000;

/// Probability is scaled down while it is small: limits and divisors (RFC 8033 §4.2).
const SCALES: [(f64, f64); 6] = [
    (0.000_001, 2048.0),
    (0.000_01, 512.0),
    (0.000_1, 128.0),
    (0.001, 32.0),
    (0.01, 8.0),
    (0.1, 2.0),
];

/// Largest growth at once above 10 % (RFC 8033 §4.2: 0.02).
const MAX_GROWTH: f64 = 0.02;

/// Delay above which the probability grows by 2 % per update (RFC 8033 §5.5: 250 ms).
const HIGH_DELAY: Duration = Duration::from_millis(250);

/// Factor of the probability per update while there is no delay (RFC 8033 §4.2: 0.98).
const DECAY: f64 = 0.98;

/// Bounds of the accumulated probability between drops, which spread them (RFC 8033 §5.4).
const DERANDOMIZATION: (f64, f64) = (0.85, 8.5);

/// Parameters of PIE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieConfig {
    /// Target of the queueing delay.
    pub target: Duration,
    /// Interval between changes of the probability (T_UPDATE).
    pub interval: Duration,
}

impl Default for PieConfig {
    /// Returns the values of RFC 8033 §4.2: 15 ms each.
    fn default() -> Self {
        Self { target: Duration::from_millis(15), interval: Duration::from_millis(15) }
    }
}

/// Fate of an arriving packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::link) enum Verdict {
    Pass,
    Mark,
    Drop,
}

/// State of PIE.
#[derive(Debug, Clone)]
pub(in crate::link) struct Pie {
    target: f64,
    interval: Duration,
    rng: Rng,
    probability: f64,
    accumulated: f64,
    /// Rest of the time in which nothing is dropped, in seconds.
    burst: f64,
    last_delay: f64,
    next_update: Picos,
    /// Arrival and departure of the packets that wait.
    waiting: VecDeque<(Picos, Picos)>,
    /// Queueing delay of the latest packet that left.
    latest_delay: Picos,
}

impl Pie {
    pub(in crate::link) fn new(config: PieConfig, seed: u64) -> Self {
        // An interval of zero would never end.
        let interval = config.interval.max(Duration::from_micros(1));
        Self {
            target: config.target.as_secs_f64(),
            interval,
            rng: Rng::with_seed(seed),
            probability: 0.0,
            accumulated: 0.0,
            burst: MAX_BURST.as_secs_f64(),
            last_delay: 0.0,
            next_update: picos(interval),
            waiting: VecDeque::new(),
            latest_delay: 0,
        }
    }

    /// Returns when the probability must be updated with the delay of that time.
    pub(in crate::link) fn next_update(&self) -> Picos {
        self.next_update
    }

    /// Records a packet that arrives, and leaves the queue at a later time.
    pub(in crate::link) fn on_queued(&mut self, arrival: Picos, departure: Picos) {
        self.waiting.push_back((arrival, departure));
    }

    /// Returns the queueing delay of the latest packet that left; zero if no other one waited then.
    fn delay_at(&mut self, now: Picos) -> Picos {
        while let Some(&(arrival, departure)) = self.waiting.front()
            && departure <= now
        {
            self.waiting.pop_front();
            let is_last = self.waiting.front().is_none_or(|&(next, _)| next > departure);
            self.latest_delay = if is_last { 0 } else { departure - arrival };
        }
        self.latest_delay
    }

    /// Updates the probability at [`Self::next_update`].
    pub(in crate::link) fn update(&mut self) {
        let delay = self.delay_at(self.next_update) as f64 / PICOS_PER_SEC;
        let last_delay = std::mem::replace(&mut self.last_delay, delay);
        self.next_update += picos(self.interval);
        let mut change = ALPHA * (delay - self.target) + BETA * (delay - last_delay);
        let scale = SCALES.iter().find(|(limit, _)| self.probability < *limit);
        change /= scale.map_or(1.0, |&(_, divisor)| divisor);
        if self.probability >= MAX_MARK_PROBABILITY {
            change = change.min(MAX_GROWTH);
        }
        if delay > HIGH_DELAY.as_secs_f64() {
            change += MAX_GROWTH;
        }
        self.probability = (self.probability + change).clamp(0.0, 1.0);
        let is_idle = delay == 0.0 && last_delay == 0.0;
        if is_idle {
            self.probability *= DECAY;
        }
        self.burst = (self.burst - self.interval.as_secs_f64()).max(0.0);
        if self.probability == 0.0 && delay < self.target / 2.0 && last_delay < self.target / 2.0 {
            self.burst = MAX_BURST.as_secs_f64();
            self.accumulated = 0.0;
        }
    }

    /// Decides on a packet that arrives behind `backlog` bytes.
    pub(in crate::link) fn judge(&mut self, backlog: u64, can_be_marked: bool) -> Verdict {
        let is_safe = self.last_delay < self.target / 2.0 && self.probability < SAFE_PROBABILITY;
        if self.burst > 0.0 || is_safe || backlog <= SAFE_BACKLOG_BYTES {
            return Verdict::Pass;
        }
        self.accumulated += self.probability;
        let (low, high) = DERANDOMIZATION;
        let hits = self.accumulated >= high
            || (self.accumulated >= low && self.rng.f64() < self.probability);
        match hits {
            false => Verdict::Pass,
            true => {
                self.accumulated = 0.0;
                let marks = can_be_marked && self.probability <= MAX_MARK_PROBABILITY;
                if marks { Verdict::Mark } else { Verdict::Drop }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Picos = 1_000_000_000;

    #[test]
    fn delay_is_that_of_the_latest_packet_that_left() {
        let mut pie = Pie::new(PieConfig::default(), 1);
        // Packets every 4 ms, sent every 10 ms.
        (0..20).for_each(|n| pie.on_queued(4 * n * MS, 10 * n * MS));
        assert_eq!(pie.delay_at(5 * MS), 0, "the first one left an empty queue");
        assert_eq!(pie.delay_at(45 * MS), 24 * MS, "not 45 ms, of one that arrives now");
        assert_eq!(pie.delay_at(49 * MS), 24 * MS, "none has left since");
        assert_eq!(pie.delay_at(500 * MS), 0, "the last one left an empty queue");
    }

    #[test]
    fn probability_changes_once_an_interval() {
        for (interval, updates) in [(15, 6), (20, 5), (0, 100_000)] {
            let interval = Duration::from_millis(interval);
            let mut pie = Pie::new(PieConfig { interval, ..PieConfig::default() }, 1);
            let times = std::iter::from_fn(|| {
                let at = pie.next_update();
                pie.update();
                (at <= 100 * MS).then_some(at)
            });
            assert_eq!(times.count(), updates, "{interval:?}");
        }
    }
}
