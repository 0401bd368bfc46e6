//! How many connections: those that a transfer begins with ([`streams_for`]), and what samples of
//! its throughput tell about the best number (Yildirim, Yin, Kosar 2009).
//!
//! What lives here: the three models of throughput over the number of streams ([`model`]), which
//! numbers to sample ([`ExpSelection`], [`Halving`]), what follows from the samples ([`best`]),
//! whether BBR does better ([`Verdict`]), and what takes samples while a transfer runs ([`Tuner`]),
//! by the rule between SOBAS and the number of streams ([`Situation`]). What never lives here:
//! sockets, clocks.
//! `docs/algorithms/streams.md` tells what is not as in the paper and why.

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

pub use best::{Best, Curve, Model, Why, best};
pub use rule::{Course, Ground, Situation};
pub use select::{ExpSelection, Halving};
pub use start::streams_for;
pub use trial::Verdict;
pub use tuner::{Decision, Reason, Seen, Tuner};

use crate::units::Rate;

/// What so many streams carried together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Streams; one at least.
    pub streams: u32,
    /// Data per second of all of them together.
    pub rate: Rate,
}
