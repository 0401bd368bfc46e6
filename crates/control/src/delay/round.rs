//! Rounds of a limited path: measurements, results, and reductions over several.

use crate::path_control::{Reason, State, TICK};
use crate::units::Rate;
use std::time::Duration;

/// Consecutive probes that show a standing queue. (chosen: bursts during two or three probes are no
/// standing queue; measured, docs/algorithms/sensitivity.md: with twice as many, the queue is
/// detected late)
pub(super) const STANDING_SAMPLES: usize = 4;

/// Shortest measurement of a round.
pub(super) const MIN_ROUND: Duration = TICK.saturating_mul(STANDING_SAMPLES as u32);

/// Measurements of a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) now: Duration,
    pub(super) rate: Rate,
    /// Queueing delay present all the time.
    pub(super) queue: Duration,
    pub(super) retransmits: u64,
}

/// Result of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Outcome {
    /// The window stays.
    Kept,
    /// The window has changed.
    Changed(State, Reason),
    /// The path is better left to TCP.
    Left(Reason),
}

/// State before the first of the latest reductions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reductions {
    pub(super) window: f64,
    pub(super) queue: Duration,
    pub(super) rate: Rate,
    /// Reductions since then.
    pub(super) count: u32,
    /// True if the queue overflowed.
    pub(super) has_lost: bool,
}
