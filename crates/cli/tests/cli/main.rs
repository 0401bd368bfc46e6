//! The binary as a user meets it: one module per subject. Every test runs the real program.

mod generated;
mod help;
mod usage;

use std::process::{Command, Output};

/// Runs the program with `arguments` and none of our environment variables.
fn bankfull(arguments: &[&str]) -> std::io::Result<Output> {
    command().args(arguments).output()
}

/// The program, to be called with more than arguments.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bankfull"));
    for name in ["BANKFULL_TOKEN", "BANKFULL_STATE_DIR", "BANKFULL_SSH"] {
        command.env_remove(name);
    }
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
