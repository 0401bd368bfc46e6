//! Errors that end a transfer or server, with a kind that programs can act on.

use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Cause, Failure, Message, PathBytes, Problem};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use thiserror::Error;

/// Reason why a transfer or server could not go on. The text is one line: what happened, to what,
/// and the way out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    /// Cause in the protocol's terms, if known.
    cause: Option<Cause>,
    /// True if the peer reported it.
    is_from_peer: bool,
    /// Cause that the peer reported, if it reported the error.
    peer_cause: Option<Cause>,
    /// True if the peer closed the connection without sending anything.
    is_dropped: bool,
    /// Name and fingerprint of a daemon that is refused because it is unknown.
    unknown_daemon: Option<Box<(String, String)>>,
}

/// Kinds of errors that a program may handle differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Invalid request, or source and destination that do not fit each other.
    Usage,
    /// A source that does not exist or cannot be read.
    Source,
    /// Refused by the peer (wrong token, read-only, not permitted), or an untrusted fingerprint.
    Refused,
    /// An unreachable peer, or a lost connection.
    Network,
    /// A local file or directory that cannot be used.
    Local,
    /// A peer that does not speak the protocol, or violates it.
    Protocol,
    /// No protocol version in common.
    Version,
    /// An agent that could not be started over ssh.
    AgentStart,
    /// Ended by the user.
    Interrupted,
    /// Silence of the peer beyond the timeout.
    Timeout,
}

/// Start of the message of an error that a peer reported.
const PEER_REPORTED: &str = "the peer reported: ";

impl Error {
    /// An error of a kind, with its one-line message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        let (cause, peer_cause, unknown_daemon) = (None, None, None);
        let (is_from_peer, is_dropped) = (false, false);
        Self { kind, message, cause, is_from_peer, peer_cause, is_dropped, unknown_daemon }
    }

    /// A daemon whose fingerprint is not known yet.
    #[must_use]
    pub fn unknown_daemon_refused(host: &str, fingerprint: &str) -> Self {
        let text = format!(
            "{host} is not known yet; its fingerprint is {fingerprint}: compare it with what the \
             server printed, then add --fingerprint {fingerprint}, or --accept-new to remember it"
        );
        let unknown_daemon = Some(Box::new((host.to_owned(), fingerprint.to_owned())));
        Self { unknown_daemon, ..Self::new(ErrorKind::Refused, text) }
    }

    /// Name and fingerprint of the daemon, if it was refused because it is unknown.
    #[must_use]
    pub fn unknown_daemon(&self) -> Option<(&str, &str)> {
        self.unknown_daemon.as_deref().map(|(host, fingerprint)| (&**host, &**fingerprint))
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// True if it has a protocol cause, which can be sent to the peer.
    pub(crate) fn has_protocol_cause(&self) -> bool {
        self.cause.is_some()
    }

    /// True if the user of either side, or the end of a server, caused it.
    pub(crate) fn is_cancellation(&self) -> bool {
        let is_own = self.kind == ErrorKind::Interrupted || self.cause == Some(Cause::Cancelled);
        is_own || self.peer_cause == Some(Cause::Cancelled)
    }

    /// True if the peer ended the session because it stops.
    pub(crate) fn is_end_of_server(&self) -> bool {
        self.is_from_peer && self.peer_cause == Some(Cause::Cancelled)
    }

    /// Returns the error of a peer that closed the connection without sending anything.
    pub(crate) fn dropped(self) -> Self {
        Self { is_dropped: true, ..self }
    }

    /// True if the peer closed the connection without sending anything.
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    /// True if the peer has no room for this client at present.
    pub(crate) fn is_busy(&self) -> bool {
        self.peer_cause == Some(Cause::Busy)
    }

    /// True if it is only the loss or the silence of a connection.
    pub(crate) fn is_connection_loss(&self) -> bool {
        let is_network = matches!(self.kind, ErrorKind::Network | ErrorKind::Timeout);
        is_network && !self.is_from_peer && !self.has_protocol_cause()
    }

    /// A local file or directory cannot be used: the failed action, and the system's message
    /// without its number.
    pub fn local(what: impl std::fmt::Display, error: &io::Error) -> Self {
        Self::new(ErrorKind::Local, format!("{what}: {}", os_message(error)))
    }

    /// A thread cannot be started.
    #[must_use]
    pub fn thread_start(why: &io::Error) -> Self {
        let text = "cannot start a thread (see ulimit -u, and pids.max of the container)";
        Self::local(text, why)
    }

    /// The system has no memory for received data.
    pub(crate) fn memory(why: &io::Error) -> Self {
        let text = "no memory for received data (see ulimit -v, and memory.max of the container)";
        Self::local(text, why)
    }

    /// A connection failed or was lost.
    pub(crate) fn network(what: impl std::fmt::Display, error: &io::Error) -> Self {
        let kind = if is_timeout(error) { ErrorKind::Timeout } else { ErrorKind::Network };
        Self::new(kind, format!("{what}: {}", os_message(error)))
    }

    /// A failure on this host. `Permission` means "refused" only to a peer; here it is a local
    /// error.
    pub(crate) fn on_this_host(failure: Failure) -> Self {
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

    /// Failure message for the peer.
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
            ErrorKind::Network | ErrorKind::AgentStart => Cause::Other,
        };
        Failure::new(self.cause.unwrap_or(cause), self.message.clone())
    }

    /// Error from a failure message of the peer.
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
        let text = format!("{PEER_REPORTED}{}", printable(&failure.text));
        let peer_cause = Some(failure.cause());
        Self { is_from_peer: true, peer_cause, ..Self::new(kind, text) }
    }

    /// Names the peer in the message of an error that it reported.
    pub(crate) fn naming_peer(self, host: &str) -> Self {
        match self.message.strip_prefix(PEER_REPORTED) {
            Some(text) => Self { message: format!("{} reported: {text}", printable(host)), ..self },
            None => self,
        }
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
        let peer_error = Self::from_peer(&failure);
        Self { cause: Some(failure.cause()), ..Self::new(peer_error.kind, failure.text) }
    }
}

/// True if a socket call timed out.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// Message of the operating system without "(os error N)".
pub(crate) fn os_message(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return "closed by the peer".to_owned();
    }
    if error.kind() == io::ErrorKind::CrossesDevices {
        return "it leads out of the directory, or to another file system".to_owned();
    }
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => lowercase_first(&text[..end]),
        None => text,
    }
}

/// Lowercases the first letter, for use within a sentence.
pub(crate) fn lowercase_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

/// Hint when a port refuses connections.
pub(crate) const NO_LISTENER_HINT: &str =
    " (is `bankfull serve` running there? bankfull://HOST:PORT/ names another port)";

/// Hint when a daemon is unreachable.
pub(crate) fn reachability_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => NO_LISTENER_HINT,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            " (check the address and the network of this host)"
        }
        _ if is_timeout(error) => {
            " (is the host up, and does a firewall block the port? bankfull://HOST:PORT/ names \
             another port)"
        }
        _ => "",
    }
}

/// Characters that change the order of text on a terminal. (Unicode Standard Annex 9, §2)
const BIDI_MARKS: [char; 12] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
    '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
];

/// True for control characters and bidirectional marks, which a program escapes before display.
///
/// Otherwise a peer's text could control the terminal, or be displayed as something else.
#[must_use]
pub fn is_terminal_control(c: char) -> bool {
    c.is_control() || BIDI_MARKS.contains(&c)
}

/// Escapes control characters and bidirectional marks. A peer's text is then safe on a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| if is_terminal_control(c) { c.escape_default().collect() } else { vec![c] })
        .collect()
}

/// Protocol cause of a failed system call on a file.
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

/// One-line failure of a file operation.
pub(crate) fn failure(what: impl std::fmt::Display, error: &io::Error) -> Failure {
    let cause = cause_of(error);
    let hint = match cause {
        Cause::Permission if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            " (mount it writable, or choose another destination)"
        }
        // A quota of the daemon has its own way out.
        Cause::NoSpace if error.raw_os_error().is_none() => "",
        Cause::NoSpace => " (free some space, then run the same command again to resume)",
        _ if error.kind() == io::ErrorKind::FileTooLarge => {
            " (see ulimit -f, and the limits of the file system)"
        }
        Cause::Permission => " (check the permissions of the user that bankfull runs as)",
        _ => "",
    };
    Failure::new(cause, format!("{what}: {}{hint}", os_message(error)))
}

/// Failure to flush a destination; the next run would take its files for complete ones.
pub(crate) fn flush_failure(error: &io::Error) -> Failure {
    let text = format!(
        "cannot flush the destination to disk: {}: files of this copy may lack data although \
         their sizes and times are right; mount the repaired disk anew, and copy with --checksum",
        os_message(error)
    );
    Failure::new(cause_of(error), text)
}

/// Builds a message about a failure or a warning for the peer.
pub(crate) fn problem_message(path: PathBuf, failure: Failure) -> Message {
    Message::Problem(Problem { path: PathBytes(path.into_os_string().into_vec()), failure })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reachability_hint_fits_the_system_error() {
        // Linux: ENETUNREACH 101, ETIMEDOUT 110, ECONNREFUSED 111, EHOSTUNREACH 113.
        for (code, words) in [
            (101, "check the address"),
            (110, "does a firewall block the port?"),
            (111, "is `bankfull serve` running there?"),
            (113, "check the address"),
        ] {
            let hint = reachability_hint(&io::Error::from_raw_os_error(code));
            assert!(hint.contains(words), "{code}: {hint}");
        }
    }

    #[test]
    fn failure_has_system_message_without_number_and_hint() {
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
