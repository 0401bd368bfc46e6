//! The number of data streams: at the start of a transfer ([`initial_streams`]) and while it runs
//! ([`StreamTuner`]), after Yildirim, Yin and Kosar (2009).
//!
//! Contents: three models of throughput over the number of streams ([`model`]), the numbers to
//! sample ([`ExpSelection`], [`Halving`]), the choice from samples ([`best_streams`]), the outcome
//! of a BBR trial ([`TrialOutcome`]), and the policy between SOBAS and the number of streams
//! ([`PathConditions`]). No sockets, no clock. `docs/algorithms/streams.md` explains the
//! differences from the paper.

mod best;
#[cfg(test)]
mod dice;
pub mod model;
mod rule;
mod sampler;
mod select;
mod start;
mod trial;
mod tuner;

pub use best::{ChoiceReason, Curve, Model, StreamChoice, best_streams};
pub use rule::{LimitingFactor, PathConditions, SearchDirection};
pub use select::{ExpSelection, Halving};
pub use start::initial_streams;
pub use trial::TrialOutcome;
pub use tuner::{Change, Decision, HostLoad, Observation, Reason, StreamTuner};

use crate::units::Rate;

/// Throughput of a number of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Number of streams, at least 1.
    pub streams: u32,
    /// Total payload rate of the streams.
    pub rate: Rate,
}
