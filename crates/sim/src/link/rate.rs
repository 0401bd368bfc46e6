//! Rate of a line over time, and the policer.

use super::time::{PICOS_PER_SEC, Picos, Stretch, picos};
use super::trace::Trace;
use bankfull_control::{Bytes, Rate};
use fastrand::Rng;
use std::sync::Arc;
use std::time::Duration;

/// Variation of a link's rate.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum RateVariation {
    /// None.
    #[default]
    Constant,
    /// Alternation between the link's rate and another.
    Square {
        /// Other rate.
        other: Rate,
        /// Duration of each level.
        period: Duration,
    },
    /// Geometric random walk between a minimum and the link's rate, reflected at both.
    Walk {
        /// Minimum rate.
        least: Rate,
        /// Duration of a step, which changes the rate by a factor of at most [`WALK_FACTOR`].
        step: Duration,
    },
    /// Other rates from given times on, in ascending order.
    Steps(Vec<(Duration, Rate)>),
    /// Delivery opportunities of a recorded link.
    Trace(Arc<Trace>),
}

/// Largest factor between consecutive rates of a random walk. (chosen: an octave in a few steps)
pub const WALK_FACTOR: f64 = 1.25;

/// Token bucket that drops the packets which exceed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policer {
    /// Rate at which tokens arrive.
    pub rate: Rate,
    /// Size of the bucket.
    pub burst: Bytes,
}

/// Rate over time. Times must not decrease.
#[derive(Debug, Clone)]
pub(super) struct RateSchedule {
    nominal: Rate,
    variation: RateVariation,
    silences: Vec<(Picos, Picos)>,
    rng: Rng,
    /// Present stretch, without regard to silences, and its number.
    stretch: Stretch,
    number: usize,
    walk: f64,
}

impl RateSchedule {
    pub(super) fn new(
        rate: Rate,
        variation: &RateVariation,
        silences: &[(Duration, Duration)],
        seed: u64,
    ) -> Self {
        let silences = silences.iter().map(|&(at, length)| (picos(at), picos(at + length)));
        let mut schedule = Self {
            nominal: rate,
            variation: variation.clone(),
            silences: silences.collect(),
            rng: Rng::with_seed(seed),
            stretch: Stretch { picos_per_byte: 0.0, end: 0 },
            number: 0,
            walk: rate.bits_per_sec() as f64,
        };
        schedule.stretch = schedule.stretch_of(0, 0);
        schedule
    }

    /// Returns the rate at a time, and until when it holds.
    pub(super) fn at(&mut self, at: Picos) -> Stretch {
        while at >= self.stretch.end && self.stretch.end < Picos::MAX {
            self.number += 1;
            self.stretch = self.stretch_of(self.number, self.stretch.end);
        }
        let mut stretch = self.stretch;
        for &(start, end) in &self.silences {
            if (start..end).contains(&at) {
                return Stretch { picos_per_byte: f64::INFINITY, end };
            }
            if start > at {
                stretch.end = stretch.end.min(start);
            }
        }
        stretch
    }

    pub(super) fn nominal_picos_per_byte(&self) -> f64 {
        picos_per_byte(self.nominal)
    }

    /// Returns the stretch of a number, which begins at `start`.
    fn stretch_of(&mut self, number: usize, start: Picos) -> Stretch {
        let of = |rate: Rate, end| Stretch { picos_per_byte: picos_per_byte(rate), end };
        match &self.variation {
            RateVariation::Constant => of(self.nominal, Picos::MAX),
            RateVariation::Square { other, period } => {
                let rate = if number.is_multiple_of(2) { self.nominal } else { *other };
                of(rate, start + picos(*period).max(1))
            }
            RateVariation::Walk { least, step } => {
                if number > 0 {
                    let (least, most) = (least.bits_per_sec(), self.nominal.bits_per_sec());
                    let change = WALK_FACTOR.ln() * (2.0 * self.rng.f64() - 1.0);
                    self.walk = reflect(self.walk.ln() + change, least, most).exp();
                }
                of(Rate::from_bits_per_sec(self.walk), start + picos(*step).max(1))
            }
            RateVariation::Steps(steps) => {
                let rate = number.checked_sub(1).and_then(|at| steps.get(at));
                let end = steps.get(number).map_or(Picos::MAX, |&(at, _)| picos(at));
                of(rate.map_or(self.nominal, |&(_, rate)| rate), end)
            }
            RateVariation::Trace(trace) => trace.stretch(start),
        }
    }

    /// Returns the bytes that can be sent in an interval; advances the schedule to its end.
    pub(super) fn bytes_between(&mut self, from: Picos, to: Picos) -> f64 {
        let (mut at, mut bytes) = (from, 0.0);
        while at < to {
            let stretch = self.at(at);
            let end = stretch.end.min(to);
            bytes += (end - at) as f64 / stretch.picos_per_byte;
            at = end;
        }
        bytes
    }
}

/// Returns the logarithm of a rate between two bounds, reflected at them.
fn reflect(rate: f64, least: u64, most: u64) -> f64 {
    let (low, high) = ((least.max(1) as f64).ln(), (most.max(1) as f64).ln());
    let mirrored = if rate > high { 2.0 * high - rate } else { rate };
    let mirrored = if mirrored < low { 2.0 * low - mirrored } else { mirrored };
    mirrored.clamp(low.min(high), high)
}

fn picos_per_byte(rate: Rate) -> f64 {
    match rate.bits_per_sec() {
        0 => f64::INFINITY,
        bits => 8.0 * PICOS_PER_SEC / bits as f64,
    }
}

/// Token bucket in operation.
#[derive(Debug, Clone)]
pub(super) struct TokenBucket {
    picos_per_byte: f64,
    burst: Picos,
    /// Time at which the bucket is full.
    full_at: Picos,
}

impl TokenBucket {
    pub(super) fn new(policer: &Policer) -> Self {
        let picos_per_byte = picos_per_byte(policer.rate);
        let burst = (policer.burst.0 as f64 * picos_per_byte).min(1e18) as Picos;
        Self { picos_per_byte, burst, full_at: 0 }
    }

    /// Takes tokens for a packet; returns whether there were enough.
    pub(super) fn take(&mut self, now: Picos, bytes: u32) -> bool {
        let full_at =
            self.full_at.max(now) + (f64::from(bytes) * self.picos_per_byte).min(1e18) as Picos;
        let conforms = full_at - now <= self.burst;
        if conforms {
            self.full_at = full_at;
        }
        conforms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn mbit(rate: f64) -> Rate {
        Rate::from_bits_per_sec(rate * 1e6)
    }

    fn mean_mbit(variation: &RateVariation, from: Duration, to: Duration) -> f64 {
        let mut schedule = RateSchedule::new(mbit(80.0), variation, &[], 3);
        let bytes = schedule.bytes_between(picos(from), picos(to));
        bytes * 8e-6 / (to - from).as_secs_f64()
    }

    #[test]
    fn square_wave_and_steps_have_their_levels() {
        let square = RateVariation::Square { other: mbit(20.0), period: MS * 300 };
        assert_eq!(mean_mbit(&square, Duration::ZERO, MS * 300).round(), 80.0);
        assert_eq!(mean_mbit(&square, MS * 300, MS * 600).round(), 20.0);
        assert_eq!(mean_mbit(&square, Duration::ZERO, MS * 6000).round(), 50.0);
        let steps = RateVariation::Steps(vec![(MS * 10, mbit(40.0)), (MS * 30, mbit(8.0))]);
        assert_eq!(mean_mbit(&steps, Duration::ZERO, MS * 10).round(), 80.0);
        assert_eq!(mean_mbit(&steps, MS * 10, MS * 30).round(), 40.0);
        assert_eq!(mean_mbit(&steps, MS * 30, MS * 99).round(), 8.0);
    }

    #[test]
    fn random_walk_stays_between_its_bounds_and_moves() {
        let walk = RateVariation::Walk { least: mbit(10.0), step: MS * 100 };
        let rates: Vec<f64> =
            (0..500).map(|n| mean_mbit(&walk, MS * 100 * n, MS * 100 * (n + 1))).collect();
        assert!(rates.iter().all(|rate| (9.99..80.01).contains(rate)), "{rates:?}");
        assert!(rates.windows(2).all(|w| (w[1] / w[0]).ln().abs() <= WALK_FACTOR.ln() + 1e-9));
        let low = rates.iter().filter(|&&rate| rate < 20.0).count();
        let high = rates.iter().filter(|&&rate| rate > 40.0).count();
        assert!(low > 50 && high > 50, "it visits all of the range: {low} {high}");
    }

    #[test]
    fn silent_line_sends_nothing() {
        let mut schedule =
            RateSchedule::new(mbit(80.0), &RateVariation::Constant, &[(MS * 10, MS * 300)], 1);
        let bytes = |schedule: &mut RateSchedule, from: u32, to: u32| {
            schedule.bytes_between(picos(MS * from), picos(MS * to)).round()
        };
        assert_eq!(bytes(&mut schedule, 0, 10), 100_000.0);
        assert_eq!(bytes(&mut schedule, 10, 310), 0.0);
        assert_eq!(bytes(&mut schedule, 310, 311), 10_000.0);
    }

    #[test]
    fn policer_passes_its_rate_and_one_bucket() {
        let mut bucket = TokenBucket::new(&Policer { rate: mbit(8.0), burst: Bytes(15_000) });
        let passed = (0..100).filter(|_| bucket.take(0, 1500)).count();
        assert_eq!(passed, 10, "the bucket");
        let passed = (1..=1000u64).filter(|n| bucket.take(picos(MS) * n, 1500)).count();
        assert_eq!(passed, 666, "1000 bytes a millisecond");
    }
}
