//! The number of data streams: at the start of a transfer ([`initial_streams`]) and while it runs
//! ([`StreamTuner`]), after Yildirim, Yin and Kosar (2009).
//!
//! Contents: three models of throughput over the number of streams ([`model`]), the numbers to
//! sample ([`ExpSelection`], [`Halving`]), the choice from samples ([`best_streams`]), the outcome
//! of a BBR trial ([`TrialOutcome`]), and the policy between the window and the number of streams
//! ([`PathConditions`]). No sockets, no clock. `docs/algorithms/streams.md` explains the
//! differences from the paper.

pub mod model;
mod model_fit;
mod observation;
mod policy;
mod sampler;
mod select;
mod start;
#[cfg(test)]
mod test_rng;
mod trial;
mod tuner;

pub use model_fit::{ChoiceReason, Curve, Model, StreamChoice, best_streams};
pub use observation::{HostLoad, Observation, Sample};
pub use policy::{LimitingFactor, PathConditions, SearchDirection};
pub use select::{ExpSelection, Halving};
pub use start::{MIN_INITIAL_STREAMS, initial_streams};
pub use trial::TrialOutcome;
pub use tuner::{Change, Decision, Reason, StreamTuner};
