//! An emulated network on one machine, for whatever runs on Linux.
//!
//! What lives here: hosts as network namespaces ([`hosts`]), the live emulator that carries their
//! packets ([`emulator`]), both together as a network at work ([`network`]), and what the command
//! `bankfull-lab` does with them ([`commands`]).
//!
//! What never lives here: the model of a link (that is `bankfull-sim`'s), and anything of the mover
//! itself: the lab runs it like any other program.

pub mod commands;
pub mod emulator;
pub mod error;
pub mod hosts;
pub mod network;

use std::io::Write;

/// Tells the user something: standard output is for data.
pub fn say(text: &str) {
    // Whoever closed standard error does not want to hear it.
    let _ = writeln!(std::io::stderr(), "{text}");
}
