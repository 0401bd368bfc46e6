//! Which numbers of streams to sample.

use super::Sample;
use super::best::NEAR_BEST;
use std::cmp::Ordering;

/// It is enough when an added stream brings less than this share of what one of the first brought.
/// [design: 5 %]
const SLOPE: f64 = 0.05;

/// At most so many samples. [design: 6]
const SAMPLES_MAX: usize = 6;

/// ExpSelection (Yildirim 2009, section 3.2): twice as many streams at each sample, until more of
/// them bring next to nothing.
#[derive(Debug, Clone)]
pub struct ExpSelection {
    first: u32,
    most: u32,
    samples: Vec<Sample>,
    is_over: bool,
}

impl ExpSelection {
    /// Begins with `first` streams, and never asks for more than `most`; one at least.
    #[must_use]
    pub fn new(first: u32, most: u32) -> Self {
        let most = most.max(1);
        Self { first: first.clamp(1, most), most, samples: Vec::new(), is_over: false }
    }

    /// With how many streams the next sample is to be taken; `None` when there are enough.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        if self.is_over {
            return None;
        }
        let next = self.samples.last().map_or(self.first, |last| last.streams.saturating_mul(2));
        Some(next.min(self.most))
    }

    /// Takes the next sample.
    pub fn take(&mut self, sample: Sample) {
        let last = self.samples.last().copied();
        self.samples.push(sample);
        let is_full = self.samples.len() >= SAMPLES_MAX || sample.streams >= self.most;
        self.is_over = is_full || last.is_some_and(|last| !self.is_worth_it(last, sample));
    }

    /// What was sampled, in order.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Whether the streams that were added bring enough.
    fn is_worth_it(&self, last: Sample, sample: Sample) -> bool {
        let Some(first) = self.samples.first() else { return true };
        let rate = |sample: Sample| sample.rate.bits_per_sec() as f64;
        let one = rate(*first) / f64::from(first.streams.max(1));
        let added = f64::from(sample.streams) - f64::from(last.streams);
        let slope = (rate(sample) - rate(last)) / added;
        // Where it is not a number, there is nothing to compare.
        slope.partial_cmp(&(SLOPE * one)) == Some(Ordering::Greater)
    }
}

/// Half as many streams at each sample, until fewer of them bring less. (ours: the other way round,
/// for a path that is full)
#[derive(Debug, Clone)]
pub struct Halving {
    first: u32,
    least: u32,
    samples: Vec<Sample>,
    is_over: bool,
}

impl Halving {
    /// Begins with `first` streams, and never asks for less than `least`; one at least.
    #[must_use]
    pub fn new(first: u32, least: u32) -> Self {
        let least = least.max(1);
        Self { first: first.max(least), least, samples: Vec::new(), is_over: false }
    }

    /// With how many it began.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.first
    }

    /// With how many streams the next sample is to be taken; `None` when there are enough.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        let next = self.samples.last().map_or(self.first, |last| last.streams / 2);
        (!self.is_over).then_some(next.max(self.least))
    }

    /// Takes the next sample.
    pub fn take(&mut self, sample: Sample) {
        let rate = |sample: &Sample| sample.rate.bits_per_sec() as f64;
        let highest = self.samples.iter().map(rate).fold(0.0, f64::max);
        let brings_less = rate(&sample) < highest * NEAR_BEST;
        self.samples.push(sample);
        let is_full = self.samples.len() >= SAMPLES_MAX || sample.streams <= self.least;
        self.is_over = is_full || brings_less;
    }

    /// What was sampled, in order.
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
    fn it_halves_until_fewer_bring_less() {
        let sampled = |first, least, mbit: fn(u32) -> f64| {
            let mut halving = Halving::new(first, least);
            while let Some(streams) = halving.next() {
                let rate = Rate::from_bits_per_sec(mbit(streams) * 1e6);
                halving.take(Sample { streams, rate });
            }
            halving.samples().iter().map(|sample| sample.streams).collect::<Vec<_>>()
        };
        assert_eq!(sampled(16, 2, |_| 95.0), [16, 8, 4, 2]);
        assert_eq!(sampled(16, 7, |_| 95.0), [16, 8, 7]);
        assert_eq!(sampled(16, 1, |n| f64::from(n).min(5.0)), [16, 8, 4]);
        assert_eq!(sampled(64, 0, |_| 95.0), [64, 32, 16, 8, 4, 2]);
        assert_eq!(sampled(2, 4, |_| 0.0), [4]);
    }

    /// The numbers that are sampled where n streams carry `mbit(n)`.
    fn sampled(first: u32, most: u32, mbit: impl Fn(f64) -> f64) -> Vec<u32> {
        let mut selection = ExpSelection::new(first, most);
        while let Some(streams) = selection.next() {
            let rate = Rate::from_bits_per_sec(mbit(f64::from(streams)) * 1e6);
            selection.take(Sample { streams, rate });
        }
        selection.samples().iter().map(|sample| sample.streams).collect()
    }

    #[test]
    fn it_doubles_until_more_bring_next_to_nothing() {
        assert_eq!(sampled(1, 64, |n| (20.0 * n).min(95.0)), [1, 2, 4, 8, 16]);
        assert_eq!(sampled(1, 64, |_| 95.0), [1, 2]);
        assert_eq!(sampled(1, 64, |n| 90.0 - n), [1, 2]);
        assert_eq!(sampled(4, 64, |n| 900.0 + n), [4, 8]);
    }

    #[test]
    fn it_asks_for_six_samples_at_most_and_for_no_more_streams_than_may_be() {
        assert_eq!(sampled(1, 1000, |n| n), [1, 2, 4, 8, 16, 32]);
        assert_eq!(sampled(4, 50, |n| n), [4, 8, 16, 32, 50]);
        assert_eq!(sampled(0, 0, |n| n), [1]);
        assert_eq!(sampled(9, 4, |n| n), [4]);
    }

    #[test]
    fn where_nothing_comes_it_ends() {
        assert_eq!(sampled(1, 64, |_| 0.0), [1, 2]);
    }
}
