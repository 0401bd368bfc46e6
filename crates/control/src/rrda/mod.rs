//! RRDA: a receive buffer that grows while more arrives than is processed, and shrinks when that
//! is over, by what memory is free (Liu, Zhang, Zhou, Xue, *A Rate and Resource Detection Based
//! Receive Buffer Adaptation Approach for High-speed Data Transportation*, 2011).
//!
//! What lives here: the rule, for any buffer between something that arrives and something that
//! processes it: the receive buffer of a UDP socket, or the staging before a disk. All is counted
//! in bytes per epoch; an epoch is [`EPOCH`] unless said otherwise. `docs/algorithms/rrda.md` tells
//! what is different from the paper, and why.
//!
//! What never lives here: a buffer, a socket or a clock. Whoever runs it tells what an epoch was
//! like, and sets the size.

pub mod backlog;
pub mod staging;
#[cfg(test)]
mod tests;

use crate::units::Bytes;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

/// How often a buffer is looked at. (paper, §V-A: Δt)
pub const EPOCH: Duration = Duration::from_millis(100);

/// What the epoch adds to the smoothed difference. (paper, §V-A: ω)
const SMOOTHING: f64 = 0.5;

/// So many epochs in a row say the same before it is a trend. (paper, §V-A: k)
const TREND: usize = 3;

/// A trend is provided for so many epochs ahead. (paper, §V-A: β, which has no unit there; with
/// what comes in an epoch as the unit, sixteen are 1.6 s)
const AHEAD: f64 = 16.0;

/// What was in use within so many epochs may be needed again. (ours: 4 s, longer than the 3 s
/// between two pauses of a disk that flushes, and short enough that a buffer is back within 5 s)
const REMEMBERED: usize = 40;

/// Memory is short where more than this part of it is in use. (ours: a buffer that was needed is
/// not given back sooner for the sake of memory that nobody wants)
const SCARCE: f64 = 0.5;

/// There is room for so many times what was in use. (ours: the next burst may be longer)
const SPARE: u64 = 2;

/// The bounds of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// It is never smaller.
    pub min: Bytes,
    /// It is never larger, unless more than that is in use.
    pub max: Bytes,
}

/// What an epoch was like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// What arrived, with what was discarded. (paper, §II-A: v_recv)
    pub arrived: Bytes,
    /// What was taken out and processed. (paper, §II-A: v_srv)
    pub processed: Bytes,
    /// What was discarded for want of room.
    pub discarded: Bytes,
    /// The most that stood in the buffer.
    pub used: Bytes,
    /// Memory in use, as part of all there is. (paper, §III-B: α)
    pub memory: f64,
}

/// Why the size is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No trend, or there is room for it.
    Kept,
    /// More arrives than is processed, for several epochs.
    Surplus,
    /// Something was discarded: there was no room.
    Discarded,
    /// More is processed than arrives, for several epochs.
    Draining,
    /// Less was in use for seconds.
    Unused,
    /// Its bounds have changed, or more stands in it than it was granted.
    Bound,
}

impl Reason {
    fn is_growth(self) -> bool {
        matches!(self, Self::Discarded | Self::Surplus)
    }

    /// A word for it, as events and tables have it.
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

/// The size of a buffer.
#[derive(Debug, Clone)]
pub struct Rrda {
    bounds: Bounds,
    size: u64,
    /// What arrived beyond what was processed, smoothed: of the last epochs. (paper, §III-A: v'_b)
    surplus: VecDeque<f64>,
    /// The most that was needed in each of the last epochs.
    used: VecDeque<u64>,
}

impl Rrda {
    /// A buffer of the least size, or of the given one.
    #[must_use]
    pub fn new(bounds: Bounds, size: Option<Bytes>) -> Self {
        let bounds = Bounds { max: bounds.max.max(bounds.min), ..bounds };
        let size = size.unwrap_or(bounds.min).clamp(bounds.min, bounds.max);
        Self { bounds, size: size.0, surplus: VecDeque::new(), used: VecDeque::new() }
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// Other bounds, since there is more memory or less.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = Bounds { max: bounds.max.max(bounds.min), ..bounds };
    }

    /// It has another size than was ordered: no more was granted, or something else set it.
    pub fn on_granted(&mut self, size: Bytes) {
        self.size = size.0;
    }

    /// In the midst of an epoch so much stands in it, and so much was discarded since the epoch
    /// began. The size that it is to have at once: it may only grow, since what has no room now is
    /// not helped by the end of the epoch, which counts the same once more.
    pub fn on_look(&mut self, used: Bytes, discarded: Bytes, memory: f64) -> (Bytes, Reason) {
        // As much again as stands there, so that it is there before something is discarded.
        let spare = (1.0 - part(memory)) * used.0 as f64 * (SPARE - 1) as f64;
        let (more, reason) = match ahead(discarded.0 as f64, memory) {
            lacking if lacking as f64 > spare => (lacking, Reason::Discarded),
            _ => (spare as u64, Reason::Surplus),
        };
        match used.0.saturating_add(more) {
            wanted if wanted > self.size => self.resize(wanted, used.0, reason),
            _ => (Bytes(self.size), Reason::Kept),
        }
    }

    /// An epoch is over. The size that the buffer is to have now.
    pub fn on_epoch(&mut self, epoch: &Epoch) -> (Bytes, Reason) {
        let surplus = self.smooth(epoch);
        // What was discarded needed room as well.
        let needed = epoch.used.0.saturating_add(epoch.discarded.0);
        remember(&mut self.used, needed, REMEMBERED);
        let memory = part(epoch.memory);
        let most_used = self.used.iter().copied().max().unwrap_or_default();
        // Discarding proves what a trend only shows.
        let lacks_room = epoch.discarded > Bytes(0);
        let (wanted, reason) = if lacks_room || self.is_trend(|surplus| surplus > 0.0) {
            // One burst within an epoch is no trend, and yet too much.
            let surplus = surplus.max(epoch.discarded.0 as f64);
            let needed = epoch.used.0.saturating_add(ahead(surplus, memory));
            match needed > self.size {
                true if lacks_room => (needed, Reason::Discarded),
                true => (needed, Reason::Surplus),
                false => (self.size, Reason::Kept),
            }
        } else if self.is_trend(|surplus| surplus < 0.0) {
            let behind = (memory * AHEAD * -surplus) as u64;
            // What was needed a moment ago may be again, and more: room for that is kept unless
            // memory is short.
            let free = ((1.0 - memory) / (1.0 - SCARCE)).min(1.0);
            let kept = most_used.saturating_mul(SPARE) as f64 * free;
            let wanted = self.size.saturating_sub(behind).max(kept as u64).min(self.size);
            (wanted, Reason::Draining)
        } else {
            (self.size, Reason::Kept)
        };
        let is_remembered = self.used.len() == REMEMBERED;
        let enough = most_used.saturating_mul(SPARE);
        let (wanted, reason) = match is_remembered && enough < wanted && !reason.is_growth() {
            true => (enough, Reason::Unused),
            false => (wanted, reason),
        };
        self.resize(wanted, epoch.used.0, reason)
    }

    /// Within its bounds, and never below what is in use.
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

    /// What arrived beyond what was processed, smoothed. (paper, §III-A, equation 1)
    fn smooth(&mut self, epoch: &Epoch) -> f64 {
        let surplus = epoch.arrived.0 as f64 - epoch.processed.0 as f64;
        let before = self.surplus.back().copied().unwrap_or_default();
        let smoothed = SMOOTHING * surplus + (1.0 - SMOOTHING) * before;
        remember(&mut self.surplus, smoothed, TREND);
        smoothed
    }

    /// Whether it was so in all of the last epochs. (paper, §III-A, equation 2)
    fn is_trend(&self, is_so: impl Fn(f64) -> bool) -> bool {
        self.surplus.len() == TREND && self.surplus.iter().all(|&surplus| is_so(surplus))
    }
}

/// What is provided for where so much more comes in an epoch than is processed. (paper, §III-B,
/// equation 4)
fn ahead(surplus: f64, memory: f64) -> u64 {
    ((1.0 - part(memory)) * AHEAD * surplus) as u64
}

/// A part of all: what is no number tells nothing of a lack.
fn part(memory: f64) -> f64 {
    if memory.is_nan() { 0.0 } else { memory.clamp(0.0, 1.0) }
}

fn remember<T>(all: &mut VecDeque<T>, one: T, most: usize) {
    if all.len() == most {
        all.pop_front();
    }
    all.push_back(one);
}
