//! Errors of the guard.

use aya::programs::ProgramError;
use std::fmt::Display;
use std::io;

/// Lines of a verifier's log that an error shows. (chosen: the last ones name the instruction)
const VERIFIER_LINES: usize = 3;

/// Reason why the guard cannot run: one line with event, object and remedy.
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
        Self::of_rejection(name, io_error, &verifier_log.to_string())
    }

    /// Returns the error of a program that the verifier rejected: the last lines of its log.
    fn of_rejection(name: &str, io_error: &io::Error, log: &str) -> Self {
        let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(VERIFIER_LINES)..].join("; ");
        Self(format!("the kernel rejected the BPF program {name} ({io_error}): {last}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_program_is_named_with_the_verifiers_last_lines() {
        let lines =
            ["0: (b7) r0 = 0", "", "1: (79) r1 = *(u64 *)(r2 +0)", "R2 !read_ok", "processed 2"];
        let denied = io::Error::from_raw_os_error(13);
        let text = Error::of_rejection("follow", &denied, &lines.join("\n")).to_string();
        assert!(text.starts_with("the kernel rejected the BPF program follow ("), "{text}");
        assert!(text.ends_with("r1 = *(u64 *)(r2 +0); R2 !read_ok; processed 2"), "{text}");
    }
}
