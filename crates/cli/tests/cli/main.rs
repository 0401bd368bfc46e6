//! The binary as a user meets it: one module per subject. Every test runs the real program.
//!
//! `BANKFULL_KILLS` and `BANKFULL_SEED` change how often and when `resume` kills; where ssh, mounts
//! or memory are missing, the tests that need them say so and pass.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "in a test, what cannot be arranged is a failure, and is told on standard output"
)]

mod faults;
mod gather;
mod generated;
mod harness;
mod help;
mod memory;
mod merge;
mod output;
mod probe;
mod report;
mod resume;
mod routes;
mod usage;

use std::process::{Command, Output};

/// Variables that would change what the program does.
const OUR_VARIABLES: [&str; 3] = ["BANKFULL_TOKEN", "BANKFULL_STATE_DIR", "BANKFULL_SSH"];

/// Runs the program with `arguments` and none of our environment variables.
fn bankfull(arguments: &[&str]) -> std::io::Result<Output> {
    command().args(arguments).output()
}

/// The program, to be called with more than arguments.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bankfull"));
    for name in OUR_VARIABLES {
        command.env_remove(name);
    }
    // Nothing of a test stays where the user's own things are.
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command
}

/// What was written to standard output.
fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What was written to standard error.
fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
