//! Use of a rate limit that may change: the time in which the data rate reached it.

use bankfull_control::{Bytes, Rate};
use std::time::Duration;

/// Share of an allowed rate above which that limit, not the network, was the bottleneck.
/// (chosen: short transfers spend much of their time starting and ending)
const MIN_LIMITED_SHARE: f64 = 0.5;

/// Returns true if a rate reaches a limit.
pub(super) fn is_reached(rate: Rate, limit: Option<Rate>) -> bool {
    let share = |limit: Rate| limit.bits_per_sec() as f64 * MIN_LIMITED_SHARE;
    limit.is_some_and(|limit| rate.bits_per_sec() as f64 >= share(limit))
}

/// Returns true if a time is most of the duration of a session.
pub(super) fn is_most(time: Duration, duration: Duration) -> bool {
    !time.is_zero() && time.as_secs_f64() >= duration.as_secs_f64() * MIN_LIMITED_SHARE
}

/// Time in which a limit was reached, before its last change.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct LimitUse {
    /// Time of the last change, since the start.
    changed_at: Duration,
    /// Bytes carried until then.
    carried: Bytes,
    reached: Duration,
}

impl LimitUse {
    /// Ends the interval of a limit at a time since the start.
    pub(super) fn end_interval(&mut self, now: Duration, carried: Bytes, limit: Option<Rate>) {
        let reached = self.reached_until(now, carried, limit);
        *self = Self { changed_at: now, carried, reached };
    }

    /// Returns the time in which the limits were reached; `limit` is the present one.
    pub(super) fn reached_until(
        &self,
        now: Duration,
        carried: Bytes,
        limit: Option<Rate>,
    ) -> Duration {
        let interval = now.saturating_sub(self.changed_at);
        let rate = Bytes(carried.0.saturating_sub(self.carried.0)).per(interval);
        if is_reached(rate, limit) { self.reached + interval } else { self.reached }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reached_time_is_that_of_each_limit() {
        let secs = Duration::from_secs;
        let limit = |bytes| Some(Rate::from_bytes_per_sec(bytes));
        let mut used = LimitUse::default();
        used.end_interval(secs(10), Bytes(10_000), limit(1_000));
        used.end_interval(secs(15), Bytes(1_000_000), None);
        assert_eq!(used.reached_until(secs(17), Bytes(1_000_100), limit(1_000)), secs(10));
        assert_eq!(used.reached_until(secs(17), Bytes(1_002_000), limit(1_000)), secs(12));
        assert_eq!(used.reached_until(secs(10), Bytes(0), None), secs(10), "a clock that lags");
        assert!(is_most(secs(10), secs(20)) && !is_most(secs(9), secs(20)));
        assert!(!is_most(Duration::ZERO, Duration::ZERO));
    }
}
