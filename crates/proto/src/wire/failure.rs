//! Why something failed, as peers tell each other: a cause with a stable number, and a text for
//! people. What a program makes of a cause is its own matter.

use crate::limits::TEXT_BYTES_MAX;
use minicbor::{Decode, Encode};

/// Why something failed: a stable code, and a text for people.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Failure {
    /// The cause; see [`Cause`].
    #[n(0)]
    pub code: u16,
    /// One line that says what happened, to what, and what to do.
    #[n(1)]
    pub text: String,
}

impl Failure {
    /// A failure with its cause and text. The text is cut to what fits a message.
    #[must_use]
    pub fn new(cause: Cause, text: impl Into<String>) -> Self {
        let mut text: String = text.into();
        if text.len() > TEXT_BYTES_MAX {
            let end = (0..=TEXT_BYTES_MAX).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
            text.truncate(end);
        }
        Self { code: cause as u16, text }
    }

    /// The cause, [`Cause::Other`] for codes of the future.
    #[must_use]
    pub fn cause(&self) -> Cause {
        Cause::from_code(self.code)
    }
}

/// Causes with stable numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
#[non_exhaustive]
pub enum Cause {
    /// None of the others.
    Other = 0,
    /// No such file or directory.
    NotFound = 1,
    /// Not permitted by the operating system.
    Permission = 2,
    /// A directory is needed where something else is.
    NotADirectory = 3,
    /// A directory is in the way.
    IsADirectory = 4,
    /// The disk or quota is full.
    NoSpace = 5,
    /// The source changed while it was read.
    Changed = 6,
    /// The source vanished after it was listed.
    Vanished = 7,
    /// An error of the file system.
    Io = 8,
    /// The token is wrong or missing.
    Token = 9,
    /// No common protocol version.
    Version = 10,
    /// A limit of the far side is reached (connections, sessions).
    Busy = 11,
    /// The peer broke the protocol.
    Protocol = 12,
    /// The daemon is read-only.
    ReadOnly = 13,
    /// Unencrypted data is not allowed by the far side.
    PlainRefused = 14,
    /// Nothing was heard for too long.
    Timeout = 15,
    /// Ended by the user or a shutdown.
    Cancelled = 16,
    /// Content did not verify, repeatedly.
    Verification = 17,
    /// The path would leave the daemon's root.
    Escape = 18,
    /// The request makes no sense (two sources of one name …).
    Usage = 19,
    /// Nothing failed: something that the user should know.
    Remark = 20,
}

impl Cause {
    pub(super) fn from_code(code: u16) -> Self {
        const ALL: [Cause; 21] = [
            Cause::Other,
            Cause::NotFound,
            Cause::Permission,
            Cause::NotADirectory,
            Cause::IsADirectory,
            Cause::NoSpace,
            Cause::Changed,
            Cause::Vanished,
            Cause::Io,
            Cause::Token,
            Cause::Version,
            Cause::Busy,
            Cause::Protocol,
            Cause::ReadOnly,
            Cause::PlainRefused,
            Cause::Timeout,
            Cause::Cancelled,
            Cause::Verification,
            Cause::Escape,
            Cause::Usage,
            Cause::Remark,
        ];
        ALL.get(usize::from(code)).copied().unwrap_or(Cause::Other)
    }
}
