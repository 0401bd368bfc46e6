//! Control algorithms of bankfull: observation and time in, decision and reason out.
//!
//! Contents: unit types ([`Bytes`], [`Rate`]); the stage meter ([`StageMeter`], [`limited_by`]) and
//! the current bottleneck ([`bottleneck()`]); loss samples ([`LossSample`]); the number of streams
//! at the start ([`initial_streams`]) and during a transfer ([`streams`]); division of a rate among
//! streams ([`StreamShares`]) and pacing ([`pacing`]); the controller of window and pacing rate
//! ([`Controller`]): delay-based control ([`delay`]) or SOBAS ([`sobas`]), and what both share
//! ([`path_control`]); model-based congestion control and CUBIC ([`congestion`]); incast control
//! ([`ictcp`]); receive-buffer sizing ([`rrda`]); rate limits by the time of day ([`Schedule`]);
//! constants of TCP ([`tcp`]).
//!
//! This crate has no clock, I/O, threads or dependencies. Time is an argument; the lints in its
//! `clippy.toml` forbid the rest.

mod bottleneck;
pub mod congestion;
mod controller;
pub mod delay;
pub mod ictcp;
mod loss;
mod meter;
pub mod pacing;
pub mod path_control;
mod probe_schedule;
pub mod rrda;
mod schedule;
mod shares;
pub mod sobas;
pub mod streams;
pub mod tcp;
mod units;

pub use bottleneck::{Bottleneck, LimitSamples, bottleneck};
pub use controller::{Controller, ControllerKind};
pub use loss::LossSample;
pub use meter::{Limit, Stage, StageMeter, StageTimes, limited_by};
pub use probe_schedule::ProbeSchedule;
pub use schedule::{Schedule, time_of};
pub use shares::StreamShares;
pub use streams::initial_streams;
pub use units::{Bytes, Rate, UnitError};
