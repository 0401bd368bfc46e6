//! Selection of the stream counts to sample.

use super::model_fit::NEAR_BEST_SHARE;
use super::observation::Sample;
use crate::path_control::RATE_DEVIATION;
use std::cmp::Ordering;

/// ExpSelection (Yildirim 2009 §3.2): doubles the number of streams until the throughput is flat.
#[derive(Debug, Clone)]
pub struct ExpSelection {
    first: u32,
    max: u32,
    samples: Vec<Sample>,
    is_complete: bool,
}

impl ExpSelection {
    /// Returns a selection from `first` up to `max` streams; both at least 1.
    #[must_use]
    pub fn new(first: u32, max: u32) -> Self {
        let max = max.max(1);
        Self { first: first.clamp(1, max), max, samples: Vec::new(), is_complete: false }
    }

    /// Returns the number of streams of the next sample; `None` when complete.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        if self.is_complete {
            return None;
        }
        let next = self.samples.last().map_or(self.first, |last| last.streams.saturating_mul(2));
        Some(next.min(self.max))
    }

    /// Records the next sample.
    pub fn record(&mut self, sample: Sample) {
        let last = self.samples.last().copied();
        self.samples.push(sample);
        let is_last = sample.streams >= self.max;
        self.is_complete =
            is_last || last.is_some_and(|last| !self.has_sufficient_slope(last, sample));
    }

    /// Returns the samples in order.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns true if the added streams gain enough.
    fn has_sufficient_slope(&self, last: Sample, sample: Sample) -> bool {
        let Some(first) = self.samples.first() else { return true };
        let rate = |sample: Sample| sample.rate.bits_per_sec() as f64;
        let one = rate(*first) / f64::from(first.streams.max(1));
        let added = f64::from(sample.streams) - f64::from(last.streams);
        let slope = (rate(sample) - rate(last)) / added;
        // Less than the error of a rate shows no gain; NaN compares as insufficient.
        slope.partial_cmp(&(RATE_DEVIATION * one)) == Some(Ordering::Greater)
    }
}

/// Halves the number of streams until the throughput falls. (chosen: the reverse of ExpSelection,
/// for a full path)
#[derive(Debug, Clone)]
pub struct Halving {
    first: u32,
    min: u32,
    samples: Vec<Sample>,
    is_complete: bool,
}

impl Halving {
    /// Returns a selection from `first` down to `min` streams; both at least 1.
    #[must_use]
    pub fn new(first: u32, min: u32) -> Self {
        let min = min.max(1);
        Self { first: first.max(min), min, samples: Vec::new(), is_complete: false }
    }

    /// Returns the number of streams of the first sample.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Returns the number of streams of the next sample; `None` when complete.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        let next = self.samples.last().map_or(self.first, |last| last.streams / 2);
        (!self.is_complete).then_some(next.max(self.min))
    }

    /// Records the next sample.
    pub fn record(&mut self, sample: Sample) {
        let rate = |sample: &Sample| sample.rate.bits_per_sec() as f64;
        let highest = self.samples.iter().map(rate).fold(0.0, f64::max);
        let brings_less = rate(&sample) < highest * NEAR_BEST_SHARE;
        self.samples.push(sample);
        let is_last = sample.streams <= self.min;
        self.is_complete = is_last || brings_less;
    }

    /// Returns the samples in order.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    #[test]
    fn halving_stops_when_throughput_falls() {
        let sampled = |first, min, mbit: fn(u32) -> f64| {
            let mut halving = Halving::new(first, min);
            while let Some(streams) = halving.next() {
                let rate = Rate::from_bits_per_sec(mbit(streams) * 1e6);
                halving.record(Sample { streams, rate });
            }
            halving.samples().iter().map(|sample| sample.streams).collect::<Vec<_>>()
        };
        assert_eq!(sampled(16, 2, |_| 95.0), [16, 8, 4, 2]);
        assert_eq!(sampled(16, 7, |_| 95.0), [16, 8, 7]);
        assert_eq!(sampled(16, 1, |n| f64::from(n).min(5.0)), [16, 8, 4]);
        assert_eq!(sampled(64, 0, |_| 95.0), [64, 32, 16, 8, 4, 2, 1]);
        assert_eq!(sampled(2, 4, |_| 0.0), [4]);
    }

    /// Returns the sampled stream counts if n streams carry `mbit(n)`.
    fn sampled(first: u32, max: u32, mbit: impl Fn(f64) -> f64) -> Vec<u32> {
        let mut selection = ExpSelection::new(first, max);
        while let Some(streams) = selection.next() {
            let rate = Rate::from_bits_per_sec(mbit(f64::from(streams)) * 1e6);
            selection.record(Sample { streams, rate });
        }
        selection.samples().iter().map(|sample| sample.streams).collect()
    }

    #[test]
    fn exp_selection_stops_on_a_flat_slope() {
        assert_eq!(sampled(1, 64, |n| (20.0 * n).min(95.0)), [1, 2, 4, 8, 16]);
        assert_eq!(sampled(1, 64, |_| 95.0), [1, 2]);
        assert_eq!(sampled(1, 64, |n| 90.0 - n), [1, 2]);
        assert_eq!(sampled(4, 64, |n| 900.0 + n), [4, 8]);
    }

    #[test]
    fn exp_selection_is_bounded() {
        assert_eq!(sampled(1, 100, |n| n), [1, 2, 4, 8, 16, 32, 64, 100]);
        assert_eq!(sampled(4, 50, |n| n), [4, 8, 16, 32, 50]);
        assert_eq!(sampled(0, 0, |n| n), [1]);
        assert_eq!(sampled(9, 4, |n| n), [4]);
    }

    #[test]
    fn exp_selection_zero_throughput_ends() {
        assert_eq!(sampled(1, 64, |_| 0.0), [1, 2]);
    }
}
