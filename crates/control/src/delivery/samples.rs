//! What was delivered when something was sent, and the most that was delivered lately.

use std::collections::VecDeque;
use std::time::Duration;

/// What had been delivered when something was sent.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    points: VecDeque<Point>,
    /// When something was delivered last.
    last: Duration,
    /// More could have been in flight by then, had there been more to send.
    is_idle: bool,
}

/// A moment in which something was sent.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: Duration,
    /// What had been delivered by then, and when for the last time.
    delivered: u64,
    last: Duration,
    is_idle: bool,
}

impl Sent {
    pub(super) fn new(now: Duration) -> Self {
        Self { points: VecDeque::new(), last: now, is_idle: false }
    }

    pub(super) fn on_sent(&mut self, now: Duration, delivered: u64) {
        if self.points.is_empty() {
            // What was delivered before a pause says nothing of the time of the pause.
            self.last = now;
        }
        if self.points.back().is_none_or(|point| point.at < now) {
            let (last, is_idle) = (self.last, self.is_idle);
            self.points.push_back(Point { at: now, delivered, last, is_idle });
        }
    }

    /// All that is delivered now was told; nothing is on its way any more, or something is.
    pub(super) fn on_acks_end(&mut self, is_all: bool, is_idle: bool) {
        self.is_idle = is_idle;
        if is_all {
            self.points.clear();
        }
    }

    /// The rate, in bytes per second, at which things were delivered from the moment in which
    /// something was sent to the one in which that was delivered, which is now; and whether more
    /// could have been sent then.
    pub(super) fn rate(
        &mut self,
        now: Duration,
        sent: Duration,
        delivered: u64,
        rtt: Duration,
    ) -> Option<(f64, bool)> {
        while self.points.front().is_some_and(|point| point.at < sent) {
            self.points.pop_front();
        }
        self.last = now;
        let point = self.points.front().filter(|point| point.at == sent)?;
        // Acknowledgements that come together would tell of a time that is too short.
        let time = now.saturating_sub(point.last).max(rtt).as_secs_f64();
        let bytes = (delivered - point.delivered) as f64;
        (time > 0.0).then_some((bytes / time, point.is_idle))
    }
}

/// The most of the last rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Most {
    /// Of these rounds, each less than the one before.
    rates: VecDeque<(u64, f64)>,
}

impl Most {
    /// One that was measured while there was not enough to send counts only if it is more.
    pub(super) fn add(&mut self, round: u64, rate: f64, is_idle: bool) {
        if is_idle && self.get().is_some_and(|most| rate < most) {
            return;
        }
        while self.rates.back().is_some_and(|&(_, last)| last <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((round, rate));
    }

    /// Rounds before this one do not count any more, as long as there are others.
    pub(super) fn forget(&mut self, round: u64) {
        while self.rates.len() > 1 && self.rates.front().is_some_and(|&(at, _)| at < round) {
            self.rates.pop_front();
        }
    }

    pub(super) fn shrink(&mut self, factor: f64) {
        for (_, rate) in &mut self.rates {
            *rate *= factor;
        }
    }

    pub(super) fn get(&self) -> Option<f64> {
        self.rates.front().map(|&(_, rate)| rate)
    }
}
