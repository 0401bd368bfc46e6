//! Emulated networks without a network: links whose time is an argument.
//!
//! What lives here: the model of a link ([`Link`]: rate, delay, drop-tail buffer, loss, cross
//! traffic), and named paths ([`presets`]). The same link runs in virtual time and, driven by the
//! lab, in real time between real hosts.
//!
//! What never lives here: a clock, a socket, a thread, a file. Time is a [`std::time::Duration`]
//! since some beginning and must not go backwards; randomness comes from a seed.

pub mod cross;
pub mod link;
pub mod loss;
pub mod presets;

pub use cross::Cross;
pub use link::{Burst, Counts, Link, LinkConfig, Run};
pub use loss::Loss;
pub use presets::PathConfig;
