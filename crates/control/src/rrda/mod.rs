//! RRDA: adapts the size of a receive buffer to arrival, processing and free memory.
//!
//! The buffer grows while more arrives than is processed and shrinks afterwards (Liu, Zhang, Zhou,
//! Xue, *A Rate and Resource Detection Based Receive Buffer Adaptation Approach for High-speed Data
//! Transportation*, 2011). The rule fits any buffer between an arrival and its processing: the
//! receive buffer of a UDP socket, or the buffer pool before a disk ([`pool`]). Rates are in bytes
//! per epoch of [`EPOCH_INTERVAL`]. `docs/algorithms/rrda.md` explains the differences from the
//! paper.
//!
//! Out of scope: buffers, sockets and clocks. The caller reports each epoch and sets the size.

pub mod backlog;
pub mod pool;
#[cfg(test)]
mod tests;

use crate::units::Bytes;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Length of an epoch. (paper, §V-A: Δt)
pub const EPOCH_INTERVAL: Duration = Duration::from_millis(100);

/// Weight of an epoch in the smoothed surplus. (paper, §V-A: ω)
const EMA_WEIGHT: f64 = 0.5;

/// Epochs in a row with the same sign that form a trend. (paper, §V-A: k)
const TREND_EPOCHS: usize = 3;

/// Epochs that growth provides for. (paper, §V-A: β, without a unit there; with the surplus in
/// bytes per epoch, 16 epochs are 1.6 s)
const LOOKAHEAD_EPOCHS: f64 = 16.0;

/// Epochs whose peak usage may recur. (chosen: 4 s are longer than the 3 s between two pauses of a
/// flushing disk, and a buffer is back to its minimum within 5 s)
const USAGE_HISTORY_EPOCHS: usize = 40;

/// Memory utilization above which memory is scarce. (chosen: below it, memory has no other use)
const SCARCE_MEMORY_FRACTION: f64 = 0.5;

/// Size to keep, in multiples of peak usage. (chosen: the next burst may be longer)
const HEADROOM_FACTOR: u64 = 2;

/// Bounds of a buffer size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Minimum size.
    pub min: Bytes,
    /// Maximum size, unless more is in use.
    pub max: Bytes,
}

/// Observation of one epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// Bytes that arrived, discarded ones included. (paper, §II-A: v_recv)
    pub arrived: Bytes,
    /// Bytes taken out and processed. (paper, §II-A: v_srv)
    pub processed: Bytes,
    /// Bytes discarded because the buffer was full.
    pub discarded: Bytes,
    /// Peak usage of the buffer.
    pub used: Bytes,
    /// Memory utilization: used / total, 0 to 1. (paper, §III-B: α)
    pub memory: f64,
}

/// Reason for the current size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No trend, or the size covers it.
    Kept,
    /// More arrives than is processed, for several epochs.
    Surplus,
    /// Data was discarded because the buffer was full.
    Discarded,
    /// More is processed than arrives, for several epochs.
    Draining,
    /// Less was in use for seconds.
    Unused,
    /// The bounds have changed, or more is in use than was granted.
    Bound,
}

impl Reason {
    fn is_growth(self) -> bool {
        matches!(self, Self::Discarded | Self::Surplus)
    }

    /// Returns the stable name used in events and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Surplus => "surplus",
            Self::Discarded => "discarded",
            Self::Draining => "draining",
            Self::Unused => "unused",
            Self::Bound => "bound",
        }
    }
}

/// Prints one clause for a log or a report.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "no reason to change",
            Self::Surplus => "more arrives than is processed",
            Self::Discarded => "data was discarded because the buffer was full",
            Self::Draining => "more is processed than arrives",
            Self::Unused => "less was in use for seconds",
            Self::Bound => "the bounds have changed, or more is in use than was granted",
        })
    }
}

/// Controller of one buffer's size.
#[derive(Debug, Clone)]
pub struct Rrda {
    bounds: Bounds,
    size: u64,
    /// Smoothed difference of arrival and processing in the last epochs. (paper, §III-A: v'_b)
    surplus: VecDeque<f64>,
    /// Peak demand in each of the last epochs.
    usage: VecDeque<u64>,
}

impl Rrda {
    /// Creates a controller with the given size, or else the minimum.
    #[must_use]
    pub fn new(bounds: Bounds, size: Option<Bytes>) -> Self {
        let bounds = Bounds { max: bounds.max.max(bounds.min), ..bounds };
        let size = size.unwrap_or(bounds.min).clamp(bounds.min, bounds.max);
        Self { bounds, size: size.0, surplus: VecDeque::new(), usage: VecDeque::new() }
    }

    /// Returns the current size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// Sets the bounds, which the next epoch applies.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = Bounds { max: bounds.max.max(bounds.min), ..bounds };
    }

    /// Records the size that the system granted.
    pub fn on_granted(&mut self, size: Bytes) {
        self.size = size.0;
    }

    /// Applies a sample within an epoch: current usage, bytes discarded since the epoch began, and
    /// memory utilization. Returns the size to set immediately, which only grows. The end of the
    /// epoch counts the same bytes again without growing further.
    pub fn on_sample(&mut self, used: Bytes, discarded: Bytes, memory: f64) -> (Bytes, Reason) {
        // Headroom before anything is discarded: as much again as is in use.
        let spare = (1.0 - memory_fraction(memory)) * used.0 as f64 * (HEADROOM_FACTOR - 1) as f64;
        let (more, reason) = match lookahead_bytes(discarded.0 as f64, memory) {
            missing if missing as f64 > spare => (missing, Reason::Discarded),
            _ => (spare as u64, Reason::Surplus),
        };
        match used.0.saturating_add(more) {
            wanted if wanted > self.size => self.resize(wanted, used.0, reason),
            _ => (Bytes(self.size), Reason::Kept),
        }
    }

    /// Applies a complete epoch. Returns the size to set.
    pub fn on_epoch(&mut self, epoch: &Epoch) -> (Bytes, Reason) {
        let surplus = self.smooth(epoch);
        // Discarded bytes needed room as well.
        let needed = epoch.used.0.saturating_add(epoch.discarded.0);
        push_bounded(&mut self.usage, needed, USAGE_HISTORY_EPOCHS);
        let memory = memory_fraction(epoch.memory);
        let peak_usage = self.usage.iter().copied().max().unwrap_or_default();
        // A discard proves a lack of room without a trend.
        let has_discarded = epoch.discarded > Bytes(0);
        let (wanted, reason) = if has_discarded || self.is_trend(|surplus| surplus > 0.0) {
            // A burst within the epoch counts in full, although the mean may hide it.
            let surplus = surplus.max(epoch.discarded.0 as f64);
            let needed = epoch.used.0.saturating_add(lookahead_bytes(surplus, memory));
            match needed > self.size {
                true if has_discarded => (needed, Reason::Discarded),
                true => (needed, Reason::Surplus),
                false => (self.size, Reason::Kept),
            }
        } else if self.is_trend(|surplus| surplus < 0.0) {
            let shrink_by = (memory * LOOKAHEAD_EPOCHS * -surplus) as u64;
            // Recent usage may recur and be exceeded: keep headroom unless memory is scarce.
            let free = ((1.0 - memory) / (1.0 - SCARCE_MEMORY_FRACTION)).min(1.0);
            let kept = peak_usage.saturating_mul(HEADROOM_FACTOR) as f64 * free;
            let wanted = self.size.saturating_sub(shrink_by).max(kept as u64).min(self.size);
            (wanted, Reason::Draining)
        } else {
            (self.size, Reason::Kept)
        };
        let is_history_full = self.usage.len() == USAGE_HISTORY_EPOCHS;
        let enough = peak_usage.saturating_mul(HEADROOM_FACTOR);
        let (wanted, reason) = match is_history_full && enough < wanted && !reason.is_growth() {
            true => (enough, Reason::Unused),
            false => (wanted, reason),
        };
        self.resize(wanted, epoch.used.0, reason)
    }

    /// Sets the size within the bounds, and never below current usage.
    fn resize(&mut self, wanted: u64, used: u64, reason: Reason) -> (Bytes, Reason) {
        let size = wanted.clamp(self.bounds.min.0, self.bounds.max.0).max(used);
        let reason = match size.cmp(&self.size) {
            Ordering::Equal => Reason::Kept,
            Ordering::Greater if reason.is_growth() => reason,
            Ordering::Less if matches!(reason, Reason::Draining | Reason::Unused) => reason,
            _ => Reason::Bound,
        };
        self.size = size;
        (Bytes(size), reason)
    }

    /// Returns the smoothed surplus, the epoch included. (paper, §III-A, equation 1)
    fn smooth(&mut self, epoch: &Epoch) -> f64 {
        let surplus = epoch.arrived.0 as f64 - epoch.processed.0 as f64;
        let before = self.surplus.back().copied().unwrap_or_default();
        let smoothed = EMA_WEIGHT * surplus + (1.0 - EMA_WEIGHT) * before;
        push_bounded(&mut self.surplus, smoothed, TREND_EPOCHS);
        smoothed
    }

    /// True if the surplus had one sign in all of the last epochs. (paper, §III-A, equation 2)
    fn is_trend(&self, has_sign: impl Fn(f64) -> bool) -> bool {
        self.surplus.len() == TREND_EPOCHS && self.surplus.iter().all(|&surplus| has_sign(surplus))
    }
}

/// Returns the growth for a surplus in bytes per epoch. (paper, §III-B, equation 4)
fn lookahead_bytes(surplus: f64, memory: f64) -> u64 {
    ((1.0 - memory_fraction(memory)) * LOOKAHEAD_EPOCHS * surplus) as u64
}

/// Clamps a memory utilization to 0 to 1; NaN counts as all memory free.
fn memory_fraction(memory: f64) -> f64 {
    if memory.is_nan() { 0.0 } else { memory.clamp(0.0, 1.0) }
}

/// Appends an item and drops the oldest beyond the capacity.
fn push_bounded<T>(items: &mut VecDeque<T>, item: T, capacity: usize) {
    if items.len() == capacity {
        items.pop_front();
    }
    items.push_back(item);
}
