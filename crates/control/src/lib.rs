//! Decisions of the bankfull mover: observation + now in, decision + reason out.
//!
//! What lives here: the unit types ([`Bytes`], [`Rate`]), the stage meter that names what limited a
//! transfer ([`StageMeter`], [`limited_by`]) and who holds it up right now ([`holder()`]), how many
//! connections one begins with ([`streams_for`]) and how many are best ([`streams`]), what each has
//! of a rate ([`Shares`]), how it is sent ([`pacing`]), the controller of window and pacing
//! ([`sobas`]), that of the windows and turns of many senders ([`ictcp`]), and that of buffers
//! between what arrives and what processes it ([`rrda`]).
//!
//! What never lives here: a clock, input or output, a thread, a third-party crate. Time is an
//! argument; the lint table in this crate's `clippy.toml` refuses the rest.

pub mod cubic;
pub mod delivery;
mod holder;
pub mod ictcp;
mod losses;
mod meter;
pub mod pacing;
pub mod rrda;
mod shares;
pub mod sobas;
pub mod streams;
mod units;

pub use holder::{Holder, Looks, holder};
pub use losses::Losses;
pub use meter::{Limit, Stage, StageMeter, StageTimes, limited_by};
pub use shares::Shares;
pub use streams::streams_for;
pub use units::{Bytes, Rate, UnitError};
