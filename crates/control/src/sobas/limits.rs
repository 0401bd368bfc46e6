//! Limits of a path: the window for a rate, the threshold of a queue, and comparisons with the
//! target.

use super::interval::Interval;
use super::{MIN_RATE_INTERVAL, RATE_ERROR, Sobas, is_short_path, scaled};
use crate::bottleneck::Bottleneck;
use crate::pacing;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Initial window of a stream in segments (RFC 6928).
const INITIAL_WINDOW_SEGMENTS: u64 = 10;

/// Least RTT for the rate of the initial windows. (as `SHORT_PATH_RTT`)
const MIN_RTT: Duration = Duration::from_millis(2);

/// Initial windows per RTT up to which losses do not count: two rounds of slow start. (chosen: by
/// trial)
const INITIAL_WINDOW_FACTOR: f64 = 4.0;

/// RTTs, and minimum time, from the first data in which such losses do not count. (chosen: two
/// rounds, and TCP's loss repair)
const INITIAL_WINDOW_TIME: (u32, Duration) = (8, Duration::from_millis(500));

/// Share of the target from which the target limits the rate. (chosen: within 5 %)
const TARGET_LIMITED_SHARE: f64 = 0.95;

/// Headroom of the window above rate × RTT, as a share of it. (chosen: with a burst and a step it
/// fits in a buffer of 0.1 RTT)
const WINDOW_HEADROOM: f64 = 0.02;

/// Largest part of a burst in the window, as a share of rate × RTT. (chosen: as above)
const MAX_BURST_SHARE: f64 = 0.03;

/// Share of the RTT from which queueing delay counts as a queue. (chosen: half of the queue that
/// may remain, 10 % or 3 ms)
const MIN_QUEUE_RTT_SHARE: f64 = 0.04;

/// Queueing delay from which a queue counts. (chosen: as above)
const MIN_QUEUE_TIME: Duration = Duration::from_micros(400);

/// The same in bursts of TCP on the line. (chosen: a probe may follow one burst and precede the
/// next)
const MIN_QUEUE_BURSTS: f64 = 1.5;

/// Share of the capacity below which a standing queue is not self-induced alone. (chosen: by trial)
const MIN_OWN_SHARE: f64 = 0.3;

impl Sobas {
    /// Returns the current rate, over an interval long enough for comparisons.
    pub(super) fn current_rate(&self) -> Rate {
        self.sampler.rate_over(self.sampler.interval_length().max(MIN_RATE_INTERVAL))
    }

    /// Returns true if the RTT is too short to distinguish a queue from host delays.
    pub(super) fn is_short_path(&self) -> bool {
        is_short_path(self.min_rtt())
    }

    /// Returns the initial windows of all streams together.
    fn initial_windows(&self) -> Bytes {
        Bytes(INITIAL_WINDOW_SEGMENTS * pacing::DEFAULT_MSS.0 * u64::from(self.streams))
    }

    /// Returns true if a rate is that of the initial windows.
    ///
    /// They are not paced, so their queue and losses say nothing about the path.
    pub(super) fn is_initial_window_rate(&self, rate: Rate, now: Duration) -> bool {
        let (round_trips, least) = INITIAL_WINDOW_TIME;
        let time = (self.min_rtt() * round_trips).max(least);
        let in_flight = rate.bytes_per_sec() as f64 * self.min_rtt().as_secs_f64();
        self.first_data_at.is_none_or(|began| now < began + time)
            && in_flight < INITIAL_WINDOW_FACTOR * self.initial_windows().0 as f64
    }

    /// Returns the smallest target: the rate of the initial windows.
    pub(super) fn min_rate(&self) -> Rate {
        self.initial_windows().per(self.min_rtt().max(MIN_RTT))
    }

    /// Returns the window for a rate: rate × RTT with headroom.
    pub(super) fn window_for(&self, rate: Rate) -> Bytes {
        let rtt = self.min_rtt();
        let bytes_per_sec = rate.bits_per_sec() as f64 / 8.0;
        let fills = bytes_per_sec * rtt.as_secs_f64();
        let least = pacing::DEFAULT_MSS.0 as f64 * f64::from(self.streams.max(2));
        let burst = (pacing::tso_burst(rate).0 as f64).min(fills * MAX_BURST_SHARE).max(least);
        Bytes((fills * (1.0 + WINDOW_HEADROOM) + burst) as u64)
    }

    /// Returns the queueing delay from which a self-induced queue is too long.
    pub(super) fn queue_threshold(&self) -> Duration {
        let rtt = self.min_rtt();
        let burst = self.target_rate.and_then(|rate| rate.time_for(pacing::tso_burst(rate)));
        let bursts = burst.unwrap_or_default().mul_f64(MIN_QUEUE_BURSTS);
        MIN_QUEUE_TIME.max(rtt.mul_f64(MIN_QUEUE_RTT_SHARE)).max(bursts)
    }

    /// Returns true if the target limited the rate of the interval.
    pub(super) fn is_target_limited(&self, window: &Interval) -> bool {
        let held = self
            .target_rate
            .is_some_and(|target| window.rate >= scaled(target, TARGET_LIMITED_SHARE));
        held && window.bottleneck == Bottleneck::Path
    }

    /// Returns true if the rate reaches the target, so that the target may grow. TCP stays below it
    /// while it repairs a loss.
    pub(super) fn is_target_reached(&self) -> bool {
        let rate = self.current_rate();
        self.target_rate.is_some_and(|target| rate >= scaled(target, 1.0 - 2.0 * RATE_ERROR))
    }

    /// Returns true if the target is the user's maximum.
    pub(super) fn is_target_at_rate_max(&self) -> bool {
        self.target_rate.is_some() && self.target_rate == self.config.rate_max
    }

    /// Returns true if a rate is the user's maximum; its flatness then says nothing about the path.
    pub(super) fn reaches_rate_max(&self, rate: Rate) -> bool {
        self.config.rate_max.is_some_and(|max| rate >= scaled(max, TARGET_LIMITED_SHARE))
    }

    /// Returns true if `rate` is a small share of the line. A queue is then hardly self-induced.
    pub(super) fn has_small_share(&self, rate: Rate) -> bool {
        self.capacity.is_some_and(|capacity| rate < scaled(capacity, MIN_OWN_SHARE))
    }
}
