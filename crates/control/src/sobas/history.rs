//! The latest intervals, and the patterns that SOBAS looks for in them.

use super::interval::Interval;
use crate::bottleneck::Bottleneck;
use crate::units::Rate;
use std::collections::VecDeque;
use std::time::Duration;

/// Largest spread of flat rates, as a share of their mean. (chosen: ±2.5 %)
const FLAT_SPREAD: f64 = 0.05;

/// Intervals of a flat rate: in the start, and later. (SOBAS paper §IV.B, footnote 3)
pub(super) const FLAT_INTERVALS: (usize, usize) = (2, 5);

/// Share of a flat rate below which a fall is a drop. (chosen: more than 15 %)
pub(super) const DROP_SHARE: f64 = 0.85;

/// Intervals in which losses without a queue are counted, and their number that is congestion.
/// (chosen: by trial)
const LOSSY_INTERVALS: (usize, usize) = (20, 3);

/// Intervals after a queue in which a loss is attributed to it. (chosen: the loss is reported an
/// RTT later)
const QUEUE_MEMORY_INTERVALS: usize = 4;

/// Largest deviation of three steady rates from their mean. (chosen: batching moves an interval by
/// a few percent, bursts of cross traffic by half)
const STEADY_SPREAD: f64 = 0.2;

/// The latest intervals, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct IntervalHistory(VecDeque<Interval>);

impl IntervalHistory {
    pub(super) fn push(&mut self, interval: Interval) {
        self.0.push_back(interval);
        if self.0.len() > LOSSY_INTERVALS.0 {
            self.0.pop_front();
        }
    }

    /// Returns the standing queue of the last interval but one.
    pub(super) fn previous_standing_queue(&self) -> Duration {
        self.0.iter().rev().nth(1).map(|interval| interval.standing_queue).unwrap_or_default()
    }

    /// Returns true if the last `count` rates are nearly equal and limited by the path ("flat-rate"
    /// in the paper).
    pub(super) fn is_flat(&self, count: usize) -> bool {
        let last: Vec<&Interval> = self.0.iter().rev().take(count).collect();
        if last.len() < count || last.iter().any(|interval| interval.bottleneck != Bottleneck::Path)
        {
            return false;
        }
        let rates = || last.iter().map(|interval| interval.rate.bits_per_sec());
        let (Some(low), Some(high)) = (rates().min(), rates().max()) else { return false };
        let mean = rates().sum::<u64>() as f64 / count as f64;
        (high - low) as f64 <= FLAT_SPREAD * mean
    }

    /// Returns true if the last three rates differ little.
    pub(super) fn is_steady(&self) -> bool {
        let rates = || self.0.iter().rev().take(3).map(|interval| interval.rate.bits_per_sec());
        let mean = rates().sum::<u64>() as f64 / 3.0;
        rates().all(|rate| (rate as f64 - mean).abs() <= STEADY_SPREAD * mean)
    }

    /// Returns true if the last rate fell after two nearly equal ones ("const-rate-drop" in the
    /// paper).
    pub(super) fn has_dropped(&self) -> bool {
        let mut last = self.0.iter().rev();
        let (Some(interval), Some(a), Some(b)) = (last.next(), last.next(), last.next()) else {
            return false;
        };
        let rate = |interval: &Interval| interval.rate.bits_per_sec() as f64;
        let (a, b) = (rate(a), rate(b));
        let is_flat = (a - b).abs() <= FLAT_SPREAD * (a + b) / 2.0;
        is_flat && rate(interval) < DROP_SHARE * a.min(b) && interval.bottleneck == Bottleneck::Path
    }

    /// Returns true if there was a self-induced queue recently.
    pub(super) fn has_recent_queue(&self, allowed: Duration) -> bool {
        let least = allowed / 2;
        self.0.iter().rev().take(QUEUE_MEMORY_INTERVALS).any(|interval| interval.mean_queue > least)
    }

    /// Returns true if losses continue without a queue.
    pub(super) fn has_loss_without_queue(&self, allowed: Duration) -> bool {
        let least = allowed / 2;
        let lossy = self.0.iter().filter(|interval| {
            (interval.retransmits > 0 || interval.probes_lost > 0) && interval.mean_queue <= least
        });
        lossy.count() >= LOSSY_INTERVALS.1
    }

    /// Returns the median rate of the last three intervals.
    pub(super) fn median_rate(&self) -> Rate {
        let mut rates: Vec<Rate> =
            self.0.iter().rev().take(3).map(|interval| interval.rate).collect();
        rates.sort_unstable();
        rates.get(rates.len() / 2).copied().unwrap_or_default()
    }
}
