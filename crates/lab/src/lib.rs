//! An emulated network on one machine, for whatever runs on Linux.
//!
//! What lives here: hosts as network namespaces ([`hosts`]), the live emulator that carries their
//! packets ([`emulator`]), both together as a network at work ([`network`]); scenarios
//! ([`scenario`]), the tools that they compare ([`tools`]), their running ([`runner`]) and what
//! comes of them ([`results`]); the mover's block engines, measured by themselves ([`engines`]);
//! and the commands of `bankfull-lab` ([`commands`]).
//!
//! What never lives here: the model of a link (that is `bankfull-sim`'s), and anything else of the
//! mover itself: the lab runs it like any other program.

pub mod commands;
mod data;
pub mod deadline;
pub mod emulator;
pub mod engines;
pub mod error;
pub mod flows;
pub mod hosts;
pub mod machine;
pub mod network;
mod observer;
mod programs;
pub mod report;
pub mod results;
pub mod runner;
pub mod scenario;
pub mod signals;
pub mod tables;
pub mod text;
pub mod tools;

use std::io::Write;

/// Tells the user something: standard output is for data.
pub fn say(text: &str) {
    // Whoever closed standard error does not want to hear it.
    let _ = writeln!(std::io::stderr(), "{text}");
}
