//! Limits of the process, for a transfer and for a daemon's connections.

use crate::base::error::{Error, ErrorKind};

/// Descriptors that a transfer needs. (measured: 32 suffice for a tree of 300 directories by a
/// daemon, 20 do not)
pub(super) const MIN_OPEN_FILES: u64 = 32;

/// Fails if the process may open too few files to work.
pub(super) fn check_open_files(limit: u64, needed: u64) -> Result<(), Error> {
    if limit >= needed {
        return Ok(());
    }
    let text = format!(
        "a process may open {limit} files here, and {needed} are needed: raise the limit with \
         ulimit -n"
    );
    Err(Error::new(ErrorKind::Local, text))
}

/// Limits of a daemon's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Authenticated connections: control connections and data streams of all clients.
    pub connections: usize,
    /// Connections that have not authenticated.
    pub unauthenticated: usize,
    /// Files and sockets that the process may open.
    pub open_files: u64,
}

/// Limit of open files that is assumed if it cannot be read. (getrlimit(2): the usual soft limit)
pub(super) const USUAL_OPEN_FILES: u64 = 1024;

/// Descriptors kept for the port, the log, and the directories and files of sessions. (chosen: a
/// sixteenth of the usual limit)
pub(super) const RESERVED_OPEN_FILES: u64 = 64;

/// Descriptors of an authenticated connection: 5 for control, 3 for a data stream, and its share
/// of open files. (counted in /proc/PID/fd: 11 with one stream and one part file, 3 per further
/// stream)
const OPEN_FILES_PER_CONNECTION: u64 = 8;

/// Descriptors of a connection that has not authenticated: its socket, and a handle to close it.
const OPEN_FILES_PER_STRANGER: u64 = 2;

/// Threads kept for the port, probes, QUIC, signals and output. (counted in /proc/PID/task: 7)
const RESERVED_THREADS: u64 = 10;

/// Threads of an authenticated connection. (counted in /proc/PID/task: 13 for a session that
/// receives by one stream, which are two connections, and 2 per further stream)
const THREADS_PER_CONNECTION: u64 = 7;

/// Maximum number of connections that have not authenticated. (chosen: the data streams of a few
/// dozen clients that connect at once; each costs a thread)
const MAX_STRANGERS: u64 = 512;

/// Minimum number of connections that have not authenticated. (chosen: those of a client that
/// begins)
const MIN_STRANGERS: u64 = 8;

/// Limits of a daemon's connections. Strangers have a quarter of the descriptors.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionLimits {
    /// Authenticated connections, control and data together.
    pub(super) connections: usize,
    /// Connections that have not authenticated.
    pub(super) strangers: usize,
    pub(super) open_files: u64,
    /// Number of connections that the user wanted, if a limit allows fewer.
    lowered: Option<(LimitedBy, usize)>,
}

/// Limit of the process that lowered the number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitedBy {
    OpenFiles(u64),
    Threads(u64),
}

impl ConnectionLimits {
    /// Fits `wanted` connections into the limits of open files and threads.
    pub(super) fn new(wanted: usize, open_files: u64, threads: Option<u64>) -> Self {
        let by_files = Self::within(
            open_files.saturating_sub(RESERVED_OPEN_FILES),
            (OPEN_FILES_PER_STRANGER, OPEN_FILES_PER_CONNECTION),
        );
        let by_threads = threads.map_or((MAX_STRANGERS, usize::MAX), |threads| {
            Self::within(threads.saturating_sub(RESERVED_THREADS), (1, THREADS_PER_CONNECTION))
        });
        let limited_by = match threads {
            Some(threads) if by_threads.1 < by_files.1 => LimitedBy::Threads(threads),
            _ => LimitedBy::OpenFiles(open_files),
        };
        let possible = by_files.1.min(by_threads.1);
        Self {
            connections: wanted.min(possible),
            strangers: by_files.0.min(by_threads.0) as usize,
            open_files,
            lowered: (possible < wanted).then_some((limited_by, wanted)),
        }
    }

    /// Returns the strangers and connections that a number of descriptors or threads suffices for.
    fn within(usable: u64, (per_stranger, per_connection): (u64, u64)) -> (u64, usize) {
        let strangers = (usable / 4 / per_stranger).clamp(MIN_STRANGERS, MAX_STRANGERS);
        let left = usable - (strangers * per_stranger).min(usable);
        // The fewest that --max-connections accepts.
        let connections = usize::try_from(left / per_connection).unwrap_or(usize::MAX).max(2);
        (strangers, connections)
    }

    /// Returns the warning that fewer connections are served than wanted.
    pub(super) fn warning(&self) -> Option<String> {
        let (limited_by, wanted) = self.lowered?;
        let why = match limited_by {
            LimitedBy::OpenFiles(files) => format!(
                "a process may open {files} files here (raise the limit with ulimit -n or \
                 LimitNOFILE=)"
            ),
            LimitedBy::Threads(threads) => format!(
                "this user or container may have {threads} threads (raise the limit with \
                 ulimit -u, LimitNPROC= or TasksMax=)"
            ),
        };
        Some(format!("{} connections are served instead of {wanted}: {why}", self.connections))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_the_lower_of_two_limits() {
        let limits = |files, threads| {
            let limits = ConnectionLimits::new(160, files, threads);
            (limits.connections, limits.strangers, limits.lowered.map(|(by, _)| by))
        };
        assert_eq!(limits(1 << 20, None), (160, 512, None));
        assert_eq!(limits(1 << 20, Some(10_000)), (160, 512, None));
        assert_eq!(limits(200, None), (12, 17, Some(LimitedBy::OpenFiles(200))));
        assert_eq!(limits(1 << 20, Some(60)), (5, 12, Some(LimitedBy::Threads(60))));
        assert_eq!(limits(200, Some(10_000)), (12, 17, Some(LimitedBy::OpenFiles(200))));
        assert_eq!(limits(1 << 20, Some(1)).0, 2);
        let text = ConnectionLimits::new(160, 1 << 20, Some(60)).warning().unwrap();
        assert!(text.contains("5 connections are served instead of 160"), "{text}");
    }
}
