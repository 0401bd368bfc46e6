//! What keeps a lab from working, in one line each.

use std::io;
use thiserror::Error;

/// Result of what a lab does.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why something in the lab failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// Namespaces and interfaces need root.
    #[error(
        "the lab makes network namespaces and needs root: use sudo, or see bankfull-lab doctor"
    )]
    NotRoot,
    /// The machine lacks something: what, and how to get it.
    #[error("{0} is missing: {1}")]
    Missing(&'static str, &'static str),
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Connections cannot have the congestion control that was asked for: why, and what helps.
    /// Whoever asked adds how to ask for none.
    #[error("{0}")]
    Congestion(String),
    /// A program that the lab needs failed: which, and what it said.
    #[error("`{0}` failed: {1}")]
    Command(String, String),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl LabError {
    /// A congestion control that the kernel does not have.
    pub(crate) fn no_congestion(name: &str) -> Self {
        let text =
            format!("this kernel has no congestion control {name:?}: try `modprobe tcp_{name}`");
        Self::Congestion(text)
    }

    /// A failed system call.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }
}
