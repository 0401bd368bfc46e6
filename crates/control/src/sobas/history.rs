//! The latest windows, and the signatures that SOBAS looks for in them.

use super::measure::Window;
use crate::holder::Holder;
use crate::units::Rate;
use std::collections::VecDeque;
use std::time::Duration;

/// Rates are even that differ from their mean by less than half of this. [algorithms: 5 %]
const FLAT_SPREAD: f64 = 0.05;

/// So many windows must be even: in the start, and later. [SOBAS, section IV.B, footnote 3]
pub(super) const FLAT_WINDOWS: (usize, usize) = (2, 5);

/// A fall to below this share of an even rate is a drop. [algorithms: by more than 15 %]
pub(super) const DROP_SHARE: f64 = 0.85;

/// Windows in which losses without a queue are counted, and how many of them are congestion. (ours)
const LOSSY_WINDOWS: (usize, usize) = (20, 3);

/// A loss is ours when a queue stood within so many windows. (ours: the loss is told of a round
/// trip later)
const QUEUE_WINDOWS: usize = 4;

/// Three windows are steady that differ by less than this from their mean. (ours: what comes in
/// bunches moves a window by a few percent, bursts of others by half)
const STEADY_SPREAD: f64 = 0.2;

/// The latest windows, the last at the end.
#[derive(Debug, Clone, Default)]
pub(super) struct History(VecDeque<Window>);

impl History {
    pub(super) fn push(&mut self, window: Window) {
        self.0.push_back(window);
        if self.0.len() > LOSSY_WINDOWS.0 {
            self.0.pop_front();
        }
    }

    /// The queue that stood in the last window but one.
    pub(super) fn standing_before(&self) -> Duration {
        self.0.iter().rev().nth(1).map(|window| window.standing).unwrap_or_default()
    }

    /// Flat-rate: the last windows are nearly equal, and the path limited all of them.
    pub(super) fn is_even(&self, count: usize) -> bool {
        let last: Vec<&Window> = self.0.iter().rev().take(count).collect();
        if last.len() < count || last.iter().any(|window| window.holder != Holder::Path) {
            return false;
        }
        let rates = || last.iter().map(|window| window.rate.bits_per_sec());
        let (Some(low), Some(high)) = (rates().min(), rates().max()) else { return false };
        let mean = rates().sum::<u64>() as f64 / count as f64;
        (high - low) as f64 <= FLAT_SPREAD * mean
    }

    /// Whether the last three windows differ little.
    pub(super) fn is_steady(&self) -> bool {
        let rates = || self.0.iter().rev().take(3).map(|window| window.rate.bits_per_sec());
        let mean = rates().sum::<u64>() as f64 / 3.0;
        rates().all(|rate| (rate as f64 - mean).abs() <= STEADY_SPREAD * mean)
    }

    /// Const-rate-drop: two windows were nearly equal, and the last one fell.
    pub(super) fn has_dropped(&self) -> bool {
        let mut last = self.0.iter().rev();
        let (Some(window), Some(a), Some(b)) = (last.next(), last.next(), last.next()) else {
            return false;
        };
        let rate = |window: &Window| window.rate.bits_per_sec() as f64;
        let (a, b) = (rate(a), rate(b));
        let is_even = (a - b).abs() <= FLAT_SPREAD * (a + b) / 2.0;
        is_even && rate(window) < DROP_SHARE * a.min(b) && window.holder == Holder::Path
    }

    /// Whether a queue of ours was there lately.
    pub(super) fn has_seen_queue(&self, allowed: Duration) -> bool {
        let least = allowed / 2;
        self.0.iter().rev().take(QUEUE_WINDOWS).any(|window| window.queue > least)
    }

    /// Whether losses go on without one.
    pub(super) fn is_congested(&self, allowed: Duration) -> bool {
        let least = allowed / 2;
        let lossy = self.0.iter().filter(|window| {
            (window.retransmits > 0 || window.probes_lost > 0) && window.queue <= least
        });
        lossy.count() >= LOSSY_WINDOWS.1
    }

    /// The median of the last three windows.
    pub(super) fn steady_rate(&self) -> Rate {
        let mut rates: Vec<Rate> = self.0.iter().rev().take(3).map(|window| window.rate).collect();
        rates.sort_unstable();
        rates.get(rates.len() / 2).copied().unwrap_or_default()
    }
}
