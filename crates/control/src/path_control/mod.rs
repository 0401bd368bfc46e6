//! Input, output and start that the controllers of window and pacing rate share.
//!
//! Contents: configuration ([`Config`]), input ([`Observation`]) and output ([`Decision`] with its
//! [`State`] and [`Reason`], [`PathState`]) of [`crate::Controller`]; the capacity of a path from
//! packet trains ([`capacity`]) and the start that follows from it. The controllers are
//! [`crate::delay`] and [`crate::sobas`].

pub mod capacity;
mod decision;
mod observation;
mod path_state;
mod reason;
mod start;

pub(crate) use capacity::RATE_DEVIATION;
pub use decision::{CachedPath, Config, Decision};
pub use observation::{Observation, SPARSE_SAMPLING_RTT, TICK};
pub use path_state::PathState;
pub use reason::{Reason, State};
pub(crate) use start::{START_GAIN, Start, is_short_path};
