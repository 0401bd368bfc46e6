//! The start of a transfer: below the rate that packet trains or an earlier transfer found.

use super::capacity::{MIN_TRAIN_TIME, RATE_DEVIATION};
use super::decision::{CachedPath, Config};
use super::reason::{Reason, State};
use crate::units::Rate;
use std::time::Duration;

/// Factor of the estimated rate at the start. (chosen: the error of trains is about a percent, and
/// a shallow buffer drops any excess)
pub(crate) const START_GAIN: f64 = 0.98;

/// Deviation from the RTT of the cached path within which the path is the same.
const CACHED_RTT_DEVIATION: f64 = 2.0 * RATE_DEVIATION;

/// RTT below which nothing is limited: the batching of receivers dominates, as in trains.
const SHORT_PATH_RTT: Duration = MIN_TRAIN_TIME;

/// The start of a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Start {
    /// [`State::StartBounded`] or [`State::StartOpen`].
    pub(crate) state: State,
    /// Rate that bounds the start, if any.
    pub(crate) rate: Option<Rate>,
    /// Source of the rate.
    pub(crate) reason: Reason,
}

impl Start {
    /// Returns the start below a capacity, once both capacity and RTT are known.
    pub(crate) fn with_capacity(
        state: State,
        capacity: Option<Rate>,
        min_rtt: Duration,
    ) -> Option<Self> {
        let can_start = matches!(state, State::Probing | State::StartOpen);
        let capacity =
            capacity.filter(|_| can_start && !min_rtt.is_zero() && !is_short_path(min_rtt))?;
        Some(Self::below(capacity, Reason::CapacityKnown(capacity)))
    }

    /// Returns the start without a capacity: from the cached path if the RTT matches.
    pub(crate) fn without_capacity(config: &Config, min_rtt: Duration) -> Self {
        let is_same = |cached: &CachedPath| {
            min_rtt.abs_diff(cached.rtt) <= cached.rtt.mul_f64(CACHED_RTT_DEVIATION)
        };
        match config.cached_path.filter(is_same) {
            Some(cached) => Self::below(cached.rate, Reason::CachedRate(cached.rate)),
            None => Self { state: State::StartOpen, rate: None, reason: Reason::CapacityUnknown },
        }
    }

    fn below(rate: Rate, reason: Reason) -> Self {
        let rate = Rate::from_bits_per_sec(rate.bits_per_sec() as f64 * START_GAIN);
        Self { state: State::StartBounded, rate: Some(rate), reason }
    }
}

/// Returns true if an RTT is too short to distinguish a queue from host delays.
///
/// False for an unknown RTT (zero).
pub(crate) fn is_short_path(min_rtt: Duration) -> bool {
    (Duration::from_nanos(1)..SHORT_PATH_RTT).contains(&min_rtt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    const MS: Duration = Duration::from_millis(1);

    fn mbit(rate: f64) -> Rate {
        Rate::from_bits_per_sec(rate * 1e6)
    }

    #[test]
    fn capacity_starts_once_the_rtt_is_known() {
        let of = |state, rtt| Start::with_capacity(state, Some(mbit(100.0)), rtt);
        let (rate, reason) = (Some(mbit(98.0)), Reason::CapacityKnown(mbit(100.0)));
        let start = Some(Start { state: State::StartBounded, rate, reason });
        assert_eq!([of(State::Probing, MS * 20), of(State::StartOpen, MS * 20)], [start; 2]);
        assert_eq!(of(State::Limited, MS * 20), None, "it has begun");
        assert_eq!(
            [of(State::Probing, Duration::ZERO), of(State::Probing, MS * 3 / 10)],
            [None; 2]
        );
        assert_eq!(Start::with_capacity(State::Probing, None, MS * 20), None);
    }

    #[test]
    fn cached_path_bounds_the_start_at_its_rtt() {
        let cached_path = Some(CachedPath { rate: mbit(900.0), rtt: MS * 20 });
        let (window_max, capacity_timeout) = (Bytes::mib(1), MS);
        let config = Config { window_max, capacity_timeout, rate_max: None, cached_path };
        let rate = |rtt: u32| Start::without_capacity(&config, MS * rtt).rate;
        assert_eq!([rate(19), rate(24)], [Some(mbit(882.0)); 2]);
        assert_eq!([rate(15), rate(26), rate(0)], [None; 3], "another path");
        let open = Start::without_capacity(&Config { cached_path: None, ..config }, MS * 20);
        assert_eq!((open.state, open.reason), (State::StartOpen, Reason::CapacityUnknown));
    }
}
