//! Rate of a growing byte count. Time is an argument.

use bankfull::{Bytes, Rate};
use std::time::Duration;

/// Exponentially weighted mean rate with a time constant. It is exact from the first observation
/// on, as the weight of the time before it is removed.
#[derive(Debug)]
pub(super) struct Meter {
    time_constant: Duration,
    last: Option<(Duration, Bytes)>,
    /// Weighted mean in bit/s, as if the rate had been zero before the first observation.
    mean_bps: f64,
    /// Weight of the observed time: 0 at the start, approaching 1.
    weight: f64,
}

impl Meter {
    /// Creates a meter without observations.
    pub(super) fn new(time_constant: Duration) -> Self {
        Self { time_constant, last: None, mean_bps: 0.0, weight: 0.0 }
    }

    /// Records the number of bytes at time `now`.
    pub(super) fn observe(&mut self, now: Duration, bytes: Bytes) {
        let (last_time, last_bytes) = *self.last.get_or_insert((now, bytes));
        let passed = now.saturating_sub(last_time);
        if passed.is_zero() {
            return;
        }
        let bps = (bytes - last_bytes).0 as f64 * 8.0 / passed.as_secs_f64();
        let forget = (-passed.as_secs_f64() / self.time_constant.as_secs_f64()).exp();
        self.mean_bps = self.mean_bps * forget + bps * (1.0 - forget);
        self.weight = self.weight * forget + (1.0 - forget);
        self.last = Some((now, bytes));
    }

    /// Returns the time of the last observation.
    pub(super) fn last_time(&self) -> Option<Duration> {
        self.last.map(|(time, _)| time)
    }

    /// Returns the present rate; zero before two observations.
    pub(super) fn rate(&self) -> Rate {
        Rate::from_bits_per_sec(self.mean_bps / self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a meter with a time constant of 1 s over (seconds, byte/s), ten observations per
    /// second.
    fn meter(rates: &[(u64, u64)]) -> Rate {
        let mut meter = Meter::new(Duration::from_secs(1));
        let (mut now, mut bytes) = (Duration::ZERO, Bytes(0));
        meter.observe(now, bytes);
        for &(seconds, rate) in rates {
            for _ in 0..seconds * 10 {
                now += Duration::from_millis(100);
                bytes += Bytes(rate / 10);
                meter.observe(now, bytes);
            }
        }
        meter.rate()
    }

    #[test]
    fn steady_rate_is_exact_from_the_start() {
        assert_eq!(meter(&[(1, 1000)]).bytes_per_sec(), 1000);
        assert_eq!(meter(&[(60, 1000)]).bytes_per_sec(), 1000);
    }

    #[test]
    fn stall_lowers_the_rate_within_seconds() {
        assert!(meter(&[(10, 1000), (1, 0)]).bytes_per_sec() < 400);
        assert!(meter(&[(10, 1000), (5, 0)]).bytes_per_sec() < 10);
    }

    #[test]
    fn rate_without_observations_is_zero() {
        assert_eq!(Meter::new(Duration::from_secs(1)).rate(), Rate::default());
    }
}
