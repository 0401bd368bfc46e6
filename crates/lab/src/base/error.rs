//! Errors of the lab, one line each.

use std::io;
use thiserror::Error;

/// Result of a lab operation.
pub type Result<T> = std::result::Result<T, LabError>;

/// Error of a lab operation.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// Namespaces and interfaces need root.
    #[error(
        "the lab creates network namespaces and needs root: use sudo, or run bankfull-lab doctor"
    )]
    NotRoot,
    /// A requirement is missing: its name, and the remedy.
    #[error("{0} is missing: {1}")]
    Missing(&'static str, &'static str),
    /// The request is invalid.
    #[error("{0}")]
    Usage(String),
    /// The requested congestion control is unavailable: reason and remedy.
    ///
    /// The caller adds the flag or key that requests none.
    #[error("{0}")]
    Congestion(String),
    /// A required program failed: its name, and its error output.
    #[error("`{0}` failed: {1}")]
    Command(String, String),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// Failed operation.
        what: String,
        /// Error of the system.
        source: io::Error,
    },
}

impl LabError {
    /// Error for a congestion control that the kernel lacks.
    pub(crate) fn no_congestion(name: &str) -> Self {
        let text =
            format!("this kernel has no congestion control {name:?}: try `modprobe tcp_{name}`");
        Self::Congestion(text)
    }

    /// Error of a failed system call.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }
}
