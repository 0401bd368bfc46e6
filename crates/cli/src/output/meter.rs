//! Turns a growing number of bytes into a rate. Time is an argument.

use bankfull::{Bytes, Rate};
use std::time::Duration;

/// A rate that forgets: an exponentially weighted mean over about `memory`, exact from the first
/// observation on because the weight of what was never observed is taken out.
#[derive(Debug)]
pub(super) struct Meter {
    memory: Duration,
    last: Option<(Duration, Bytes)>,
    /// Weighted mean in bit/s, as if the rate had been zero for ever before the first observation.
    mean_bps: f64,
    /// Weight of the time observed: 0 at the start, towards 1.
    weight: f64,
}

impl Meter {
    /// A meter with nothing observed.
    pub(super) fn new(memory: Duration) -> Self {
        Self { memory, last: None, mean_bps: 0.0, weight: 0.0 }
    }

    /// Takes the number of bytes at time `now`.
    pub(super) fn observe(&mut self, now: Duration, bytes: Bytes) {
        let (last_time, last_bytes) = *self.last.get_or_insert((now, bytes));
        let passed = now.saturating_sub(last_time);
        if passed.is_zero() {
            return;
        }
        let bps = (bytes - last_bytes).0 as f64 * 8.0 / passed.as_secs_f64();
        let forget = (-passed.as_secs_f64() / self.memory.as_secs_f64()).exp();
        self.mean_bps = self.mean_bps * forget + bps * (1.0 - forget);
        self.weight = self.weight * forget + (1.0 - forget);
        self.last = Some((now, bytes));
    }

    /// The rate now; zero before two observations.
    pub(super) fn rate(&self) -> Rate {
        Rate::from_bits_per_sec(self.mean_bps / self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A meter with a memory of one second that saw `rates` in byte/s, ten observations a second.
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
    fn a_steady_rate_is_shown_as_it_is_from_the_start() {
        assert_eq!(meter(&[(1, 1000)]).bytes_per_sec(), 1000);
        assert_eq!(meter(&[(60, 1000)]).bytes_per_sec(), 1000);
    }

    #[test]
    fn a_stall_brings_the_rate_to_nothing_within_seconds() {
        assert!(meter(&[(10, 1000), (1, 0)]).bytes_per_sec() < 400);
        assert!(meter(&[(10, 1000), (5, 0)]).bytes_per_sec() < 10);
    }

    #[test]
    fn nothing_observed_is_rate_zero() {
        assert_eq!(Meter::new(Duration::from_secs(1)).rate(), Rate::default());
    }
}
