//! Errors of the guard.

use aya::programs::ProgramError;
use std::fmt::Display;

/// Lines of a verifier's log that an error shows. (chosen: the last ones name the instruction)
const VERIFIER_LINES: usize = 3;

/// Reason why the guard cannot run: one line with what happened, to what, and the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Returns the error of an operation on a thing.
    pub(crate) fn of(operation: impl Display, error: impl Display) -> Self {
        Self(format!("cannot {operation}: {error}"))
    }

    /// Returns the error of a program that the kernel did not load.
    pub(crate) fn of_program(name: &str, error: &ProgramError) -> Self {
        let ProgramError::LoadError { io_error, verifier_log } = error else {
            return Self::of(format_args!("load the BPF program {name}"), error);
        };
        let log = verifier_log.to_string();
        let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(VERIFIER_LINES)..].join("; ");
        Self(format!("the kernel rejected the BPF program {name} ({io_error}): {last}"))
    }
}
