//! Events of a running transfer or server, passed to a sink of the caller. This module draws
//! nothing and formats nothing.

use super::error::Error;
use bankfull_control::{Bytes, Rate, StageTimes};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Receives the events of a transfer or server. Several threads call it, so it must not block for
/// long: queue the event and show it later.
pub trait EventSink: Send + Sync {
    /// Receives one event.
    fn event(&self, event: Event);

    /// False if the sink ignores [`Event::Completed`], which is then not created.
    fn wants_completed(&self) -> bool {
        true
    }
}

/// Drops every event.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _event: Event) {}

    fn wants_completed(&self) -> bool {
        false
    }
}

/// Path of the bytes between the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// Within this host.
    Local,
    /// To a daemon, over TCP.
    Daemon,
    /// To a daemon, over QUIC.
    Quic,
    /// Control over ssh, data over separate connections.
    Ssh,
    /// Control and data over ssh, because the data port is unreachable.
    SshOnly,
}

impl Route {
    /// Returns the stable name used in JSON lines and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Daemon => "daemon",
            Self::Quic => "quic",
            Self::Ssh => "ssh",
            Self::SshOnly => "ssh-only",
        }
    }
}

/// Final outcome of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Copied, and in place under its final name.
    Copied,
    /// Not sent: the destination had it already.
    Unchanged,
    /// Not sent: the rules for what exists leave it out.
    LeftOut,
    /// Dry run: it would be sent.
    WouldCopy,
    /// Deleted at the destination: the source does not have it.
    Deleted,
    /// Dry run: it would be deleted.
    WouldDelete,
}

/// Kind of a listed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListedKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedEntry {
    /// Path beneath the listed directory; the name of a single file.
    pub path: PathBuf,
    /// Kind.
    pub kind: ListedKind,
    /// Mode bits.
    pub mode: u32,
    /// Size; 0 for anything but a file.
    pub bytes: u64,
    /// Modification time; `None` if this host cannot represent it.
    pub modified: Option<SystemTime>,
    /// Name of the owner, or the number if there is no name.
    pub owner: OsString,
    /// Name of the group, or the number if there is no name.
    pub group: OsString,
    /// Target of a symbolic link.
    pub target: Option<PathBuf>,
}

/// An event of a transfer or server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The two sides have agreed on the transfer.
    Connected {
        /// Path of the bytes.
        route: Route,
        /// Name and version of the peer's software.
        software: String,
        /// True if data is encrypted in transit.
        encrypted: bool,
        /// Time since the transfer began.
        at: Duration,
    },
    /// Destination of an operand: once per source, before any data is sent.
    Destination {
        /// The operand as typed.
        source: PathBuf,
        /// Its resolved destination, with the host if that is remote.
        destination: PathBuf,
    },
    /// Progress of the transfer; about ten times per second.
    Progress(Progress),
    /// A file, directory or symlink has its final outcome.
    Completed {
        /// Path on this side: at the source when sending, else at the destination.
        path: PathBuf,
        /// Final outcome.
        outcome: Outcome,
        /// Size.
        bytes: Bytes,
        /// BLAKE3 of the file in hexadecimal, if this side knows it.
        blake3: Option<String>,
    },
    /// An entry of a listing.
    Listed(Box<ListedEntry>),
    /// A change at the destination, if the user asked for itemized changes.
    Changed(ItemizedChange),
    /// A file could not be copied; the transfer goes on.
    FileFailed {
        /// Path relative to the destination, or in the source.
        path: PathBuf,
        /// One line: what happened, and the way out.
        message: String,
        /// Stable name of the cause, such as `no-space`.
        cause: &'static str,
        /// True if the source disappeared after it was listed.
        vanished: bool,
    },
    /// A new decision on window, pacing or streams.
    Tuning(TuningDecision),
    /// A new limit of a receive buffer.
    BufferLimit(BufferLimit),
    /// Telemetry of the data streams; about ten times per second.
    Sample(Sample),
    /// This program is copied to a host, for the agent there.
    Deploying {
        /// Program and version.
        software: String,
        /// The host.
        host: String,
    },
    /// A message to the user that is not the failure of a file.
    Warning {
        /// One line.
        message: String,
    },
    /// The session was lost; after a pause, another one resumes the transfer.
    Reconnecting {
        /// One line: what happened.
        message: String,
        /// Time until the next attempt.
        pause: Duration,
        /// Time until the transfer is given up.
        left: Duration,
    },
    /// A client has connected to the server.
    ClientConnected {
        /// Address of the client.
        peer: String,
    },
    /// A client's session has ended.
    ClientDone {
        /// Address of the client.
        peer: String,
        /// Request of the client, once it was read.
        request: Option<ClientRequest>,
        /// Summary, or the error that ended the session.
        result: Result<Summary, Error>,
    },
}

/// Request of a server's client, and how its session has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientRequest {
    /// Name of the client's token, if it has one.
    pub token: Option<String>,
    /// `send` or `receive` of the server, or `probe`.
    pub direction: &'static str,
    /// The first hundred paths, as the client named them; long ones are cut.
    pub paths: Vec<String>,
    /// Number of further paths.
    pub left_out_paths: usize,
    /// True if files of the server are removed once the client has them.
    pub removes_sources: bool,
    /// `complete`, `partial` with files that failed, `interrupted`, `refused` or `failed`.
    pub outcome: &'static str,
    /// Bytes verified at the destination, also of a session that failed.
    pub bytes: Bytes,
    /// Files completed, also of a session that failed.
    pub files: u64,
    /// Duration of the session.
    pub elapsed: Duration,
}

/// Change of an entry at the destination, in the notation of rsync.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemizedChange {
    /// The 11 characters of rsync's `--itemize-changes`.
    pub columns: String,
    /// Path beneath the destination; empty for the destination itself.
    pub path: PathBuf,
    /// True if the entry is a directory.
    pub is_dir: bool,
    /// Target, if the entry is a symlink.
    pub target: Option<PathBuf>,
    /// First name of the inode, if the entry becomes a further one.
    pub first_name: Option<PathBuf>,
}

/// Progress of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Regular files found so far.
    pub files_total: u64,
    /// Bytes in the regular files found so far.
    pub bytes_total: Bytes,
    /// True if the walk has ended, so that the totals are final.
    pub total_is_final: bool,
    /// Completed files: copied, unchanged or failed.
    pub files_done: u64,
    /// Completed bytes: verified at the destination, now or by an earlier run.
    pub bytes_done: Bytes,
    /// Bytes that an earlier run left and the receiver still checks.
    pub bytes_unchecked: Bytes,
    /// Bytes verified at the destination by this run.
    pub bytes_moved: Bytes,
    /// Bytes carried by the data streams, verified or not; at least `bytes_moved`. They grow
    /// steadily, whereas a block counts as moved at its end.
    pub bytes_carried: Bytes,
    /// Time since the start.
    pub elapsed: Duration,
}

/// Controller behind a tuning decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Controller {
    /// Window and pacing of a session's streams, by SOBAS as in its paper.
    #[default]
    Sobas,
    /// The same, by delay-based control.
    Delay,
    /// Number of streams, and their congestion control.
    Streams,
    /// Windows of all sessions that receive over an interface.
    Ictcp,
    /// Windows of a QUIC connection.
    QuicWindow,
    /// Rate limit of the user by the time of day.
    RateLimit,
}

impl Controller {
    /// Returns the stable name used in JSON lines and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sobas => "sobas",
            Self::Delay => "delay",
            Self::Streams => "streams",
            Self::Ictcp => "ictcp",
            Self::QuicWindow => "quic-window",
            Self::RateLimit => "rate-limit",
        }
    }
}

/// A decision of a controller about the data streams.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct TuningDecision {
    /// Time since the start of the transfer; on a server, since the client's request.
    pub at: Duration,
    /// The controller.
    pub controller: Controller,
    /// State of the controller, in one word.
    pub state: String,
    /// Window set, of all data streams together; `None`: left to the kernel.
    pub window: Option<Bytes>,
    /// Pacing rate of the data, of all data streams together; `None`: not paced.
    pub pacing: Option<Rate>,
    /// New number of data streams, if that is what was decided.
    pub streams: Option<u32>,
    /// Reason, in a clause.
    pub reason: String,
}

/// Receive buffers whose size RRDA controls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveBufferKind {
    /// Received data that waits in memory for the disk.
    #[default]
    Staging,
    /// Receive buffer of the UDP socket of QUIC.
    UdpSocket,
}

impl ReceiveBufferKind {
    /// Returns the stable name used in JSON lines and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Staging => "staging",
            Self::UdpSocket => "udp-socket",
        }
    }
}

/// Size limit of a receive buffer. It applies to the whole receiving process, which decides it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferLimit {
    /// Time of the decision since the start of the transfer; of a remote receiver, time of its
    /// report.
    pub at: Duration,
    /// The buffer.
    pub buffer: ReceiveBufferKind,
    /// The limit.
    pub size: Bytes,
    /// Reason of the change, in a clause.
    pub reason: String,
}

/// Telemetry of all data streams together. Counters are totals since the start.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// Time since the start of the transfer.
    pub at: Duration,
    /// Number of data streams.
    pub streams: u32,
    /// Bytes on the wire, encryption and framing included.
    pub carried: Bytes,
    /// RTT samples since the last event: of probes, or TCP's smoothed RTT if no datagram gets
    /// through.
    pub rtts: Vec<Duration>,
    /// Probes answered or lost.
    pub probes: u64,
    /// Probes lost on the data's direction of the path.
    pub probes_lost: u64,
    /// Capacity of the path for data, measured by packet trains.
    pub capacity: Option<Rate>,
    /// Receive window set; `None`: left to the kernel.
    pub window: Option<Bytes>,
    /// Receive window that the sender sees, if its kernel reports it.
    pub granted: Option<Bytes>,
    /// Pacing rate of the data; `None`: not paced.
    pub pacing: Option<Rate>,
    /// Retransmitted segments; `None` if only the peer knows.
    pub retransmits: Option<u64>,
    /// Peak of received data that waited for the disk since the last event. Covers the whole
    /// receiving process; `None` if the receiver does not report it.
    pub buffered_peak: Option<Bytes>,
    /// Limit of that data.
    pub buffer_limit: Option<Bytes>,
    /// Times of the sender's stages, summed over its threads.
    pub sender: StageTimes,
    /// Times of the receiver's stages, summed over its threads.
    pub receiver: StageTimes,
    /// Share of recent samples that were app-limited: the sender had nothing to send. 0 to 1.
    pub app_limited_share: f64,
    /// Share of recent samples that were receiver-limited: the receiver had not read. 0 to 1.
    pub receiver_limited_share: f64,
}

/// Result of a transfer.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Regular files copied by this run.
    pub files: u64,
    /// Directories in the tree.
    pub dirs: u64,
    /// Directories created by this run.
    pub dirs_created: u64,
    /// Symlinks in the tree.
    pub symlinks: u64,
    /// Symlinks created by this run; others existed already.
    pub symlinks_created: u64,
    /// Content bytes that this run transferred and verified. Files that failed later are included,
    /// as their verified blocks are kept for the next run.
    pub bytes: Bytes,
    /// Bytes on data streams as counted by this side, with headers and encryption.
    pub wire_bytes: Bytes,
    /// Duration of the whole command.
    pub elapsed: Duration,
    /// Data streams kept at a time, idle ones included.
    pub streams: u32,
    /// Segments retransmitted on data streams.
    pub retransmits: u64,
    /// Bytes from earlier runs of files completed or continued by this run.
    pub resumed_bytes: Bytes,
    /// Bytes from earlier runs that were damaged at the destination, and were sent again.
    pub damaged_bytes: Bytes,
    /// Files that the destination had already.
    pub skipped_files: u64,
    /// Bytes in the skipped files.
    pub skipped_bytes: Bytes,
    /// Skipped files that became hard links to earlier copies (`--link-dest`).
    pub linked_files: u64,
    /// Bytes in those files.
    pub linked_bytes: Bytes,
    /// Files that the rules for what exists left out.
    pub left_out_files: u64,
    /// Bytes in those files.
    pub left_out_bytes: Bytes,
    /// Files and symlinks that a dry run would have copied.
    pub would_copy_entries: u64,
    /// Bytes in those files.
    pub would_copy_bytes: Bytes,
    /// Entries that were deleted at the destination, or would be in a dry run.
    pub deleted: u64,
    /// True if nothing was deleted because it would have been too much.
    pub is_delete_limited: bool,
    /// Files, directories and symlinks that could not be copied.
    pub failed_files: u64,
    /// Failed entries whose source disappeared after it was listed.
    pub vanished_files: u64,
    /// Further names of files and other entries, copied as hard links.
    pub hard_links: u64,
    /// Hard links that this run created.
    pub hard_links_created: u64,
    /// Sockets, devices and FIFOs that were copied, or existed already.
    pub special_files: u64,
    /// Sockets, devices and FIFOs that this run created.
    pub special_files_created: u64,
    /// Sockets, devices and FIFOs that were not copied.
    pub special_files_skipped: u64,
    /// Stage that limited the transfer, as a stable name such as `network` or `source-read`.
    pub limited_by: &'static str,
    /// Stage that limited the transfer, as text for people.
    pub limited_by_text: String,
}

impl Summary {
    /// Adds the counters of another transfer; times and limits stay.
    pub(crate) fn add(&mut self, other: &Self) {
        // A peer reports some of the numbers, so that any sum may be too large.
        let counts = [
            (&mut self.files, other.files),
            (&mut self.dirs, other.dirs),
            (&mut self.dirs_created, other.dirs_created),
            (&mut self.symlinks, other.symlinks),
            (&mut self.symlinks_created, other.symlinks_created),
            (&mut self.retransmits, other.retransmits),
            (&mut self.skipped_files, other.skipped_files),
            (&mut self.linked_files, other.linked_files),
            (&mut self.left_out_files, other.left_out_files),
            (&mut self.would_copy_entries, other.would_copy_entries),
            (&mut self.deleted, other.deleted),
            (&mut self.failed_files, other.failed_files),
            (&mut self.vanished_files, other.vanished_files),
            (&mut self.hard_links, other.hard_links),
            (&mut self.hard_links_created, other.hard_links_created),
            (&mut self.special_files, other.special_files),
            (&mut self.special_files_created, other.special_files_created),
            (&mut self.special_files_skipped, other.special_files_skipped),
            (&mut self.bytes.0, other.bytes.0),
            (&mut self.wire_bytes.0, other.wire_bytes.0),
            (&mut self.resumed_bytes.0, other.resumed_bytes.0),
            (&mut self.damaged_bytes.0, other.damaged_bytes.0),
            (&mut self.skipped_bytes.0, other.skipped_bytes.0),
            (&mut self.linked_bytes.0, other.linked_bytes.0),
            (&mut self.left_out_bytes.0, other.left_out_bytes.0),
            (&mut self.would_copy_bytes.0, other.would_copy_bytes.0),
        ];
        counts.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.streams = self.streams.saturating_add(other.streams);
        self.is_delete_limited |= other.is_delete_limited;
    }

    /// Content bits per second over the whole command.
    #[must_use]
    pub fn goodput(&self) -> Rate {
        self.bytes.per(self.elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_reported_numbers_saturate() {
        let most = Summary {
            retransmits: u64::MAX,
            dirs_created: u64::MAX,
            linked_bytes: Bytes(u64::MAX),
            ..Summary::default()
        };
        let mut sum = Summary { retransmits: 5, linked_bytes: Bytes(7), ..most.clone() };
        sum.add(&most);
        assert_eq!((sum.retransmits, sum.dirs_created), (u64::MAX, u64::MAX));
        assert_eq!(sum.linked_bytes, Bytes(u64::MAX));
    }
}
