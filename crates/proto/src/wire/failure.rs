//! Failures as messages report them: a stable code and a text for people.

use super::bounds::at_most;
use crate::error::WireError;
use crate::limits::MAX_TEXT_BYTES;
use minicbor::{Decode, Encode};

/// A failure: a stable code and a text for people.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Failure {
    /// Code of the [`Cause`].
    #[n(0)]
    pub code: u16,
    /// One line: the event, the object, the remedy.
    #[n(1)]
    pub text: String,
}

impl Failure {
    /// Creates a failure. A text over [`MAX_TEXT_BYTES`] is truncated.
    #[must_use]
    pub fn new(cause: Cause, text: impl Into<String>) -> Self {
        let mut text: String = text.into();
        if text.len() > MAX_TEXT_BYTES {
            let end = (0..=MAX_TEXT_BYTES).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
            text.truncate(end);
        }
        Self { code: cause as u16, text }
    }

    /// Returns the cause; unknown codes read as [`Cause::Other`].
    #[must_use]
    pub fn cause(&self) -> Cause {
        Cause::from_code(self.code)
    }

    pub(super) fn check(&self) -> Result<(), WireError> {
        at_most("the text of a failure", self.text.len(), MAX_TEXT_BYTES)
    }
}

/// Cause of a failure, with its stable code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
#[non_exhaustive]
pub enum Cause {
    /// Any other cause.
    Other = 0,
    /// No such file or directory.
    NotFound = 1,
    /// Permission denied by the operating system.
    Permission = 2,
    /// Something other than a directory where one is needed.
    NotADirectory = 3,
    /// Directory in the way of a file.
    IsADirectory = 4,
    /// Disk or quota full.
    NoSpace = 5,
    /// Source modified while it was read.
    SourceChanged = 6,
    /// Source removed after it was listed.
    SourceVanished = 7,
    /// File system error.
    Io = 8,
    /// Access token wrong or missing.
    BadToken = 9,
    /// No common protocol version.
    NoCommonVersion = 10,
    /// Limit of the peer reached: connections, sessions.
    Busy = 11,
    /// Protocol violation by the peer.
    Protocol = 12,
    /// Write request to a read-only daemon.
    ReadOnly = 13,
    /// Unencrypted data streams not allowed by the peer.
    UnencryptedRefused = 14,
    /// Nothing received for the timeout.
    Timeout = 15,
    /// Ended by the user or by a shutdown.
    Cancelled = 16,
    /// Repeated verification failure of the content.
    Verification = 17,
    /// Path outside the daemon's root.
    OutsideRoot = 18,
    /// Invalid request, such as two sources of one name.
    Usage = 19,
    /// No failure: a warning for the user.
    Warning = 20,
    /// More entries to delete than the user allows.
    DeleteLimit = 21,
}

impl Cause {
    /// Returns the stable name used in JSON lines and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::NotFound => "not-found",
            Self::Permission => "permission",
            Self::NotADirectory => "not-a-directory",
            Self::IsADirectory => "is-a-directory",
            Self::NoSpace => "no-space",
            Self::SourceChanged => "source-changed",
            Self::SourceVanished => "source-vanished",
            Self::Io => "io",
            Self::BadToken => "bad-token",
            Self::NoCommonVersion => "no-common-version",
            Self::Busy => "busy",
            Self::Protocol => "protocol",
            Self::ReadOnly => "read-only",
            Self::UnencryptedRefused => "unencrypted-refused",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Verification => "verification",
            Self::OutsideRoot => "outside-root",
            Self::Usage => "usage",
            Self::Warning => "warning",
            Self::DeleteLimit => "delete-limit",
        }
    }

    /// Returns the cause of a code; unknown codes read as [`Cause::Other`].
    fn from_code(code: u16) -> Self {
        const ALL: [Cause; 22] = [
            Cause::Other,
            Cause::NotFound,
            Cause::Permission,
            Cause::NotADirectory,
            Cause::IsADirectory,
            Cause::NoSpace,
            Cause::SourceChanged,
            Cause::SourceVanished,
            Cause::Io,
            Cause::BadToken,
            Cause::NoCommonVersion,
            Cause::Busy,
            Cause::Protocol,
            Cause::ReadOnly,
            Cause::UnencryptedRefused,
            Cause::Timeout,
            Cause::Cancelled,
            Cause::Verification,
            Cause::OutsideRoot,
            Cause::Usage,
            Cause::Warning,
            Cause::DeleteLimit,
        ];
        ALL.get(usize::from(code)).copied().unwrap_or(Cause::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_unknown_code_reads_as_other() {
        let failure = Failure { code: 60_000, text: String::new() };
        assert_eq!(failure.cause(), Cause::Other);
        for code in 0..=20 {
            assert_eq!(Cause::from_code(code) as u16, code);
        }
    }
}
