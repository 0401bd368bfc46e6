//! Rounds of a limited path: measurements, results, and reductions over several.

use crate::path_control::{Reason, State};
use crate::units::Rate;
use std::time::Duration;

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
pub(super) struct Cut {
    pub(super) window: f64,
    pub(super) queue: Duration,
    pub(super) rate: Rate,
    /// Reductions since then.
    pub(super) count: u32,
    /// True if the queue overflowed.
    pub(super) has_lost: bool,
}
