//! Decisions of the bankfull mover: observation + now in, decision + reason out.
//!
//! What lives here: the unit types ([`Bytes`], [`Rate`]), the stage meter that names what limited a
//! transfer ([`StageMeter`], [`limited_by`]), and how many connections one begins with
//! ([`streams_for`]). The controllers (window, streams, incast, receive buffers) join them.
//!
//! What never lives here: a clock, input or output, a thread, a third-party crate. Time is an
//! argument; the lint table in this crate's `clippy.toml` refuses the rest.

mod meter;
mod streams;
mod units;

pub use meter::{Limit, Stage, StageMeter, StageTimes, limited_by};
pub use streams::streams_for;
pub use units::{Bytes, Rate, UnitError};
