//! The start of a transfer: from the capacity estimate, if any, to a full path or a loss.

use super::history::{DROP_SHARE, FLAT_INTERVALS};
use super::interval::Interval;
use super::{MIN_RATE_INTERVAL, Sobas, scaled};
use crate::bottleneck::Bottleneck;
use crate::path_control::{Config, Decision, Observation, Reason, Start, State};
use crate::units::Rate;
use std::time::Duration;

/// RTT samples in a row above the minimum that make a queue in the start. (chosen: one or two are
/// chance)
const START_QUEUE_SAMPLES: usize = 3;

/// Growth of the rate per RTT below which slow start has ended. (chosen: slow start doubles it;
/// between 1 and 2, nearer to 1)
const MIN_START_GROWTH: f64 = 1.3;

/// Shortest interval for rates in the start; otherwise one RTT. (chosen: two ticks)
const MIN_START_RATE_INTERVAL: Duration = Duration::from_millis(20);

impl Sobas {
    /// Replaces the user's maximum rate and starts again, with what is known of the path.
    pub fn on_rate_max(&mut self, now: Duration, rate_max: Option<Rate>) -> Decision {
        let before = std::mem::replace(self, Self::new(Config { rate_max, ..self.config }));
        self.config.capacity_timeout = Duration::ZERO;
        self.sampler = before.sampler;
        (self.streams, self.baseline_loss) = (before.streams, before.baseline_loss);
        (self.first_data_at, self.train_capacity) = (before.first_data_at, before.train_capacity);
        self.capacity = before.train_capacity;
        let started = match self.is_short_path() {
            true => self.enter_disabled(now, Reason::ShortPath),
            false => match self.start_with_estimate(now) {
                Some(started) => started,
                None => self.start_without_estimate(now),
            },
        };
        let reason = Reason::RateMaxChanged(rate_max);
        self.last_reason = Some(reason);
        Decision { reason, ..started }
    }

    /// Starts below the capacity, once both capacity and RTT are known.
    pub(super) fn start_with_estimate(&mut self, now: Duration) -> Option<Decision> {
        let start = Start::with_capacity(self.state, self.capacity, self.min_rtt())?;
        Some(self.enter_start(now, start))
    }

    /// Starts without a capacity: from the cached path if the RTT matches, otherwise without a
    /// limit.
    pub(super) fn start_without_estimate(&mut self, now: Duration) -> Decision {
        self.enter_start(now, Start::without_capacity(&self.config, self.min_rtt()))
    }

    fn enter_start(&mut self, now: Duration, start: Start) -> Decision {
        self.target_rate = start.rate;
        self.enter(start.state, now, start.reason)
    }

    /// Ends the start as soon as the RTT grows while the rate does not.
    pub(super) fn check_start_queue(&mut self, observation: &Observation) -> Option<Decision> {
        let is_start = matches!(self.state, State::StartBounded | State::StartOpen);
        if !is_start || observation.rtt.is_none() || observation.bottleneck != Bottleneck::Path {
            return None;
        }
        let queue = self.sampler.standing_queue(START_QUEUE_SAMPLES);
        if queue <= self.queue_threshold() {
            return None;
        }
        let round_trip = self.min_rtt().max(MIN_START_RATE_INTERVAL);
        let now = self.sampler.rate_over(round_trip);
        let before = self.sampler.rate_before(round_trip, round_trip);
        if now > scaled(before, MIN_START_GROWTH) {
            return None;
        }
        // The latest half RTT is closest to the path's rate.
        let rate = self.sampler.rate_over(round_trip / 2).max(now);
        if self.is_initial_window_rate(rate, observation.now) || self.reaches_rate_max(rate) {
            return None;
        }
        let reason = Reason::QueueGrew(rate, queue);
        if self.has_small_share(rate) {
            return Some(self.enter(State::Avoidance, observation.now, reason));
        }
        Some(self.enter_limited(rate, observation.now, reason))
    }

    pub(super) fn update_start(&mut self, interval: &Interval) -> Option<Decision> {
        if interval.retransmits > 0 {
            return self.on_start_loss(interval);
        }
        if !self.history.is_flat(FLAT_INTERVALS.0) {
            return None;
        }
        if interval.standing_queue > self.queue_threshold() {
            let reason = Reason::FlatRate(interval.rate);
            return Some(self.enter_limited(interval.rate, interval.at, reason));
        }
        let intervals =
            MIN_RATE_INTERVAL.div_duration_f64(self.sampler.interval_length()).ceil() as usize;
        if !self.history.is_flat(intervals.max(FLAT_INTERVALS.0)) {
            return None;
        }
        // Otherwise something else limits: small socket buffers, or slow start that ended early.
        let reason = Reason::TargetReached(self.current_rate());
        self.is_target_limited(interval).then(|| self.step_up(interval, reason))
    }

    /// Handles losses in the start. Those of the unpaced initial windows do not count: a shallow
    /// buffer may not hold them.
    fn on_start_loss(&mut self, interval: &Interval) -> Option<Decision> {
        if self.is_initial_window_rate(self.max_lossless_rate, interval.at) {
            return None;
        }
        if self.state == State::StartOpen {
            // Slow start doubled the rate up to here: no estimate of the path's rate.
            return Some(self.enter(State::Avoidance, interval.at, Reason::StartOverflowed));
        }
        let near = self.capacity.is_some_and(|c| self.max_lossless_rate > scaled(c, DROP_SHARE));
        if near || self.history.has_recent_queue(self.queue_threshold()) {
            return Some(self.reduce_after_overflow(interval));
        }
        Some(self.enter(State::Avoidance, interval.at, Reason::LostWithoutQueue))
    }
}
