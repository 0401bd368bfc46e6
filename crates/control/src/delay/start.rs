//! The start of a transfer: from the capacity estimate, if any, to a full path or a loss.

use super::DelayController;
use super::limiter::USED_SHARE;
use super::path::{Path, bytes_at, scaled};
use super::samples::{MIN_ROUND, REPAIR_TIME, STANDING_SAMPLES};
use super::target::Level;
use crate::bottleneck::Bottleneck;
use crate::path_control::{
    Config, Decision, Observation, RATE_DEVIATION, Reason, Start, State, TICK,
};
use crate::tcp::BW_GROWTH;
use crate::units::Rate;
use std::time::Duration;

/// Initial windows per RTT up to which losses do not count: two doublings of slow start.
/// (chosen: until then, the rate is that of the initial windows)
const INITIAL_WINDOW_FACTOR: f64 = 4.0;

impl DelayController {
    /// Replaces the user's maximum rate and starts again, with what is known of the path.
    pub fn on_rate_max(&mut self, now: Duration, rate_max: Option<Rate>) -> Decision {
        let before = std::mem::replace(self, Self::new(Config { rate_max, ..self.config }));
        self.config.capacity_timeout = Duration::ZERO;
        self.path = Path { rate_max, capacity: before.path.train_capacity, ..before.path };
        let started = match self.path.is_short() {
            true => self.enter_disabled(now, Reason::ShortPath),
            false => match self.start_with_estimate(now) {
                Some(started) => started,
                None => self.start_without_estimate(now),
            },
        };
        let reason = Reason::RateMaxChanged(rate_max);
        Decision { reason, ..started }
    }

    /// Starts below the capacity, once both capacity and RTT are known.
    pub(super) fn start_with_estimate(&mut self, now: Duration) -> Option<Decision> {
        let start = Start::with_capacity(self.state, self.path.capacity, self.min_rtt())?;
        Some(self.enter_start(now, start))
    }

    /// Starts without a capacity: from the cached path if the RTT matches, otherwise without a
    /// limit.
    pub(super) fn start_without_estimate(&mut self, now: Duration) -> Decision {
        self.enter_start(now, Start::without_capacity(&self.config, self.min_rtt()))
    }

    fn enter_start(&mut self, now: Duration, start: Start) -> Decision {
        self.start_rate = start.rate.unwrap_or_default();
        self.enter(start.state, now, start.reason)
    }

    /// Waits for the capacity; the streams may have filled the path before.
    pub(super) fn observe_probing(&mut self, latest: &Observation) -> Option<Decision> {
        let is_early = self.path.first_data_at.is_none() && self.min_rtt().is_zero();
        if !is_early && latest.now >= self.config.capacity_timeout {
            return Some(self.start_without_estimate(latest.now));
        }
        self.observe_start(latest)
    }

    /// Ends the start: the path is full, slow start has ended, or segments were lost.
    pub(super) fn observe_start(&mut self, latest: &Observation) -> Option<Decision> {
        let rtt = self.min_rtt().max(TICK * 2);
        let now = self.path.samples.rate_over(rtt);
        let before = self.path.samples.rate_before(rtt, rtt);
        let has_begun = self.path.first_data_at.is_some_and(|at| latest.now > at + rtt * 2);
        if !has_begun || now.bits_per_sec() == 0 {
            return None;
        }
        if self.path.samples.retransmits_since(latest.now.saturating_sub(MIN_ROUND)) > 0
            && !self.is_initial_window_rate(now, latest.now)
        {
            self.lost_at.get_or_insert(latest.now);
        }
        if let Some(lost_at) = self.lost_at {
            // The repair delivers late and all at once.
            let repair = rtt * REPAIR_TIME.0;
            if latest.now < lost_at + repair.max(MIN_ROUND * 2) {
                return None;
            }
            let rate = self.path.samples.highest_rate(repair);
            let rate =
                if self.state == State::StartBounded { rate.min(self.start_rate) } else { rate };
            let queue = self.path.samples.largest_queue(lost_at.saturating_sub(rtt));
            if self.limiter.target.level(queue, self.min_rtt()) == Level::Low {
                self.limiter.on_start_loss(&self.path, lost_at);
            }
            return Some(self.enter_limited(rate, latest.now, Reason::StartOverflowed));
        }
        if now > scaled(before, BW_GROWTH) || latest.bottleneck != Bottleneck::Path {
            return None;
        }
        let queue = self.path.samples.latest_queue(STANDING_SAMPLES, Duration::ZERO);
        if self.limiter.target.level(queue, self.min_rtt()) == Level::High {
            let rate = self.path.samples.rate_over(rtt / 2).max(now);
            if self.is_initial_window_rate(rate, latest.now) {
                return None;
            }
            // A queue of others: they have the rest of the line.
            if self.path.is_minor_share(rate) {
                return Some(self.enter_disabled(latest.now, Reason::SharedQueue(queue)));
            }
            let decision = self.enter_limited(rate, latest.now, Reason::QueueGrew(rate, queue));
            self.limiter.begin_draining(&self.path, rate, queue);
            return Some(decision);
        }
        // Slow start has reached its limit, or ended early.
        let long = rtt * 2;
        let (now, before) =
            (self.path.samples.rate_over(long), self.path.samples.rate_before(long, long));
        let is_flat = now < scaled(before, 1.0 + RATE_DEVIATION / 2.0);
        let has_settled = self.path.first_data_at.is_some_and(|at| latest.now > at + long * 2);
        if !is_flat || !has_settled || before.bits_per_sec() == 0 {
            return None;
        }
        let is_bound =
            self.state == State::StartBounded && now > scaled(self.start_rate, USED_SHARE);
        let rate = if is_bound { now.max(self.start_rate) } else { now };
        Some(self.enter_limited(rate, latest.now, Reason::TargetReached(now)))
    }

    /// Returns true if a rate is that of the initial windows.
    ///
    /// They are not paced, so their queue and losses say nothing about the path.
    fn is_initial_window_rate(&self, rate: Rate, now: Duration) -> bool {
        self.path.is_starting(now)
            && bytes_at(rate, self.min_rtt()) < INITIAL_WINDOW_FACTOR * self.path.initial_windows()
    }
}
