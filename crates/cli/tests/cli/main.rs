//! Tests of the binary, one module per subject. Every test runs the real program.
//!
//! `BANKFULL_KILLS` and `BANKFULL_SEED` change number and moments of kills in `resume`. Tests
//! without the ssh, mounts or memory that they need print a message and pass.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails if its setup fails, and reports on standard output"
)]

mod configuration;
mod deletion;
mod doctor;
mod dry_run;
mod earlier;
mod equivalence;
mod faults;
mod gather;
mod generated;
mod golden;
mod guides;
mod habits;
mod harness;
mod help;
mod itemize;
mod log;
mod ls;
mod memory;
mod merge;
mod metadata;
mod metrics;
mod names;
mod notify;
mod other_kinds;
mod output;
mod patterns;
mod probe;
mod report;
mod resume;
mod routes;
mod rsync;
mod selection;
mod service;
mod share_limits;
mod shares;
mod snapshots;
mod standard_input;
mod standard_output;
mod usage;

use std::process::{Command, Output};

/// Variables that would change the behaviour of the program.
const VARIABLES: [&str; 4] =
    ["BANKFULL_TOKEN", "BANKFULL_STATE_DIR", "BANKFULL_SSH", "BANKFULL_LOG"];

/// Runs the program with `arguments` and without these variables.
fn bankfull(arguments: &[&str]) -> std::io::Result<Output> {
    command().args(arguments).output()
}

/// Returns the program for further arguments.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bankfull"));
    for name in VARIABLES {
        command.env_remove(name);
    }
    // The configuration of the user does not apply.
    command.env("BANKFULL_CONFIG", "");
    // Tests must not write to the user's state directory.
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command
}

/// Returns standard output.
fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns standard error.
fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
