//! Foundations: errors, termination signals, deadlines, age of builds, and messages to the user.

pub mod deadline;
pub mod error;
pub mod signals;
pub mod stale;

use std::io::Write;

/// Prints a line to standard error; standard output is for results.
pub fn notify(text: &str) {
    // A closed standard error is not a failure.
    let _ = writeln!(std::io::stderr(), "{text}");
}
