//! Reasons for a window.

use std::fmt;

/// Reason for the size of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Initial share of the capacity.
    Initial,
    /// Window used and bandwidth available: doubled.
    SlowStart,
    /// Window used and bandwidth available: one step more.
    Increased,
    /// Window used and below its fair share.
    BelowShare,
    /// Throughput far below what the window allows, or loss elsewhere on the path.
    Unused,
    /// Little bandwidth available and other connections have less.
    FairShare,
    /// Overflow of the port's queue.
    Overflowed,
}

impl Reason {
    /// Returns the stable name used in machine-readable output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::SlowStart => "slow-start",
            Self::Increased => "increased",
            Self::BelowShare => "below-share",
            Self::Unused => "unused",
            Self::FairShare => "fair-share",
            Self::Overflowed => "overflowed",
        }
    }
}

/// Prints one clause for a trace or a report.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initial => "initial share of the port",
            Self::SlowStart => "window used and bandwidth available: doubled",
            Self::Increased => "window used and bandwidth available",
            Self::BelowShare => "below its fair share",
            Self::Unused => "throughput far below the window, or loss on the path",
            Self::FairShare => "other connections have less",
            Self::Overflowed => "overflow of the port's queue",
        })
    }
}
