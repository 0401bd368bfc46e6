//! Why a window is what it is, in a type for programs and in words for people.

use std::fmt;

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It begins with its share of what the port carries.
    Began,
    /// All of it was used, and the port has room: twice as much.
    Doubled,
    /// All of it was used, and the port has room: a step more.
    Grew,
    /// It is less than its share, and all of it was used.
    BelowShare,
    /// Much less came than may, or something was lost on its own way.
    Unused,
    /// The port has little room, and others have less.
    Fair,
    /// The port's queue has overflowed.
    Overflowed,
}

impl Reason {
    /// The stable name used in machine-readable output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Doubled => "doubled",
            Self::Grew => "grew",
            Self::BelowShare => "below-share",
            Self::Unused => "unused",
            Self::Fair => "fair",
            Self::Overflowed => "overflowed",
        }
    }
}

/// One clause, for a trace or a report.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Began => "it begins with its share of the port",
            Self::Doubled => "all of it was used and the port has room: twice as much",
            Self::Grew => "all of it was used and the port has room",
            Self::BelowShare => "it was less than a fair share",
            Self::Unused => "much less comes than may",
            Self::Fair => "others have less",
            Self::Overflowed => "the port's queue has overflowed",
        })
    }
}
