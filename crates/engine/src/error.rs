//! What can end a transfer or server, with the cause that a program needs to react to it.

use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Cause, Failure};
use std::io;
use thiserror::Error;

/// Why a transfer or server could not go on. Its text is one line that says what happened, to what,
/// and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    /// The cause in the protocol's terms, where it is known more exactly.
    cause: Option<Cause>,
    /// The peer said so.
    heard: bool,
}

/// Causes that a program may want to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request makes no sense, or source and destination do not fit each other.
    Usage,
    /// A source does not exist or cannot be read at all.
    Source,
    /// The far side refused: wrong token, unknown or changed fingerprint, read-only, not permitted.
    Refused,
    /// The far side could not be reached, or the connection was lost.
    Network,
    /// A local file or directory could not be used.
    Local,
    /// The far side does not speak the protocol, or broke it.
    Protocol,
    /// The two sides share no protocol version.
    Version,
    /// The far side could not be started over ssh.
    FarSide,
    /// Ended by the user.
    Interrupted,
    /// Nothing was heard from the far side for too long.
    Timeout,
}

impl Error {
    /// An error of a kind with its one line.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None, heard: false }
    }

    /// The cause.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether it was stated in the protocol's terms, so that the peer can be told.
    pub(crate) fn is_said(&self) -> bool {
        self.cause.is_some()
    }

    /// Whether it is no more than the loss of a connection, or its silence.
    pub(crate) fn is_loss(&self) -> bool {
        let is_network = matches!(self.kind, ErrorKind::Network | ErrorKind::Timeout);
        is_network && !self.heard && !self.is_said()
    }

    /// A local file or directory could not be used: what was tried, and the operating system's
    /// words without their number.
    pub fn local(what: impl std::fmt::Display, error: &io::Error) -> Self {
        Self::new(ErrorKind::Local, format!("{what}: {}", plain(error)))
    }

    /// Why there is no thread.
    #[must_use]
    pub fn no_thread(why: &io::Error) -> Self {
        let text = "cannot start a thread (see ulimit -u, and pids.max of the container)";
        Self::local(text, why)
    }

    /// A connection failed or was lost.
    pub(crate) fn network(what: impl std::fmt::Display, error: &io::Error) -> Self {
        let kind = if is_timeout(error) { ErrorKind::Timeout } else { ErrorKind::Network };
        Self::new(kind, format!("{what}: {}", plain(error)))
    }

    /// The same, said by the peer.
    pub(crate) fn heard(self) -> Self {
        Self { heard: true, ..self }
    }

    /// A failure of this host. What the operating system does not permit is a refusal for a peer
    /// that hears of it, and a local matter for whoever is here.
    pub(crate) fn here(failure: Failure) -> Self {
        let is_denied = failure.cause() == Cause::Permission;
        let error = Self::from(failure);
        if is_denied { Self { kind: ErrorKind::Local, ..error } } else { error }
    }

    pub(crate) fn interrupted() -> Self {
        Self::new(
            ErrorKind::Interrupted,
            "interrupted; run the same command again to continue where it stopped",
        )
    }

    /// This error as a peer is told.
    pub(crate) fn to_failure(&self) -> Failure {
        let cause = match self.kind {
            ErrorKind::Usage => Cause::Usage,
            ErrorKind::Source => Cause::NotFound,
            ErrorKind::Refused => Cause::Permission,
            ErrorKind::Local => Cause::Io,
            ErrorKind::Protocol => Cause::Protocol,
            ErrorKind::Version => Cause::NoCommonVersion,
            ErrorKind::Interrupted => Cause::Cancelled,
            ErrorKind::Timeout => Cause::Timeout,
            ErrorKind::Network | ErrorKind::FarSide => Cause::Other,
        };
        Failure::new(self.cause.unwrap_or(cause), self.message.clone())
    }

    /// The error that a peer told us.
    pub(crate) fn from_peer(failure: &Failure) -> Self {
        let kind = match failure.cause() {
            Cause::Usage | Cause::NotADirectory | Cause::IsADirectory => ErrorKind::Usage,
            Cause::NotFound | Cause::SourceVanished => ErrorKind::Source,
            Cause::Permission
            | Cause::BadToken
            | Cause::ReadOnly
            | Cause::UnencryptedRefused
            | Cause::OutsideRoot
            | Cause::Busy => ErrorKind::Refused,
            Cause::NoCommonVersion => ErrorKind::Version,
            Cause::Protocol => ErrorKind::Protocol,
            Cause::Timeout => ErrorKind::Timeout,
            Cause::Cancelled => ErrorKind::Network,
            _ => ErrorKind::Local,
        };
        let text = format!("the far side says: {}", printable(&failure.text));
        Self { heard: true, ..Self::new(kind, text) }
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        let kind = match error {
            WireError::NoCommonVersion { .. } => ErrorKind::Version,
            _ => ErrorKind::Protocol,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let told = Self::from_peer(&failure);
        Self { cause: Some(failure.cause()), ..Self::new(told.kind, failure.text) }
    }
}

/// Whether a socket call gave up waiting.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// The operating system's words without "(os error N)".
pub(crate) fn plain(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return "the far side closed it".to_owned();
    }
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => lowercase_first(&text[..end]),
        None => text,
    }
}

/// A text as it stands within a sentence.
pub(crate) fn lowercase_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

/// The way out where a port refuses connections.
pub(crate) const NOBODY_LISTENS: &str =
    " (is `bankfull serve` running there? bankfull://HOST:PORT/ names another port)";

/// The way out where a daemon cannot be reached.
pub(crate) fn way_to_reach(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => NOBODY_LISTENS,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            " (check the address, and the network of this host)"
        }
        _ if is_timeout(error) => {
            " (is the host up, and do firewalls let its port through? bankfull://HOST:PORT/ names \
             another port)"
        }
        _ => "",
    }
}

/// Text from a peer, safe for a terminal: control characters become escapes.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

/// The cause of a failed system call on a file.
pub(crate) fn cause_of(error: &io::Error) -> Cause {
    match error.kind() {
        io::ErrorKind::NotFound => Cause::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Cause::Permission,
        io::ErrorKind::NotADirectory => Cause::NotADirectory,
        io::ErrorKind::IsADirectory => Cause::IsADirectory,
        io::ErrorKind::CrossesDevices => Cause::OutsideRoot,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Cause::NoSpace,
        _ => Cause::Io,
    }
}

/// A failure of a file, in one line.
pub(crate) fn failure(what: impl std::fmt::Display, error: &io::Error) -> Failure {
    let cause = cause_of(error);
    let hint = match cause {
        Cause::Permission if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            " (mount it writable, or choose another destination)"
        }
        // A small file is not kept in part, but those that are whole are.
        Cause::NoSpace => {
            " (free some space and run the same command again: what arrived whole is kept)"
        }
        Cause::Permission => " (check the permissions of the user that bankfull runs as)",
        _ => "",
    };
    Failure::new(cause, format!("{what}: {}{hint}", plain(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_cannot_be_reached_is_told_with_a_way_out_that_fits() {
        // Linux: ENETUNREACH 101, ETIMEDOUT 110, ECONNREFUSED 111, EHOSTUNREACH 113.
        for (code, words) in [
            (101, "check the address"),
            (110, "do firewalls let its port through?"),
            (111, "is `bankfull serve` running there?"),
            (113, "check the address"),
        ] {
            let way = way_to_reach(&io::Error::from_raw_os_error(code));
            assert!(way.contains(words), "{code}: {way}");
        }
    }

    #[test]
    fn a_failure_has_the_systems_words_without_a_number_and_a_hint_that_fits() {
        // Linux: EACCES 13, EROFS 30.
        let shown = |code| failure("cannot write a", &io::Error::from_raw_os_error(code)).text;
        assert_eq!(
            shown(13),
            "cannot write a: permission denied (check the permissions of the user that bankfull \
             runs as)"
        );
        assert_eq!(
            shown(30),
            "cannot write a: read-only file system (mount it writable, or choose another \
             destination)"
        );
    }
}
