//! What a transfer tells while it runs: typed events into a sink that the caller passes in. This
//! module draws nothing and formats nothing.

use crate::error::Error;
use bankfull_control::{Bytes, Rate, StageTimes};
use std::path::PathBuf;
use std::time::Duration;

/// Takes the events of a transfer or server. Called from several threads, so it must not block for
/// long: an event is best put aside and shown later.
pub trait EventSink: Send + Sync {
    /// Takes one event.
    fn event(&self, event: Event);
}

/// Drops every event.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _event: Event) {}
}

/// How the bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// Within this host.
    Local,
    /// To a daemon, by TCP.
    Daemon,
    /// To a daemon, by QUIC.
    Quic,
    /// Control over ssh, data over connections of their own.
    Ssh,
    /// Control and data over ssh, because the data port could not be reached.
    SshOnly,
}

/// How a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Copied and in place under its final name.
    Copied,
    /// Not sent: the destination had it already.
    Unchanged,
    /// A dry run: it would be sent.
    WouldCopy,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The two sides understand each other.
    Connected {
        /// How the bytes will travel.
        route: Route,
        /// Name and version of the far side's software.
        software: String,
        /// Whether data is encrypted on its way.
        encrypted: bool,
    },
    /// Where an operand lands: once per source, before anything is moved.
    Landing {
        /// The operand as typed.
        source: PathBuf,
        /// The place it gets, with its host where that is another one.
        destination: PathBuf,
    },
    /// How far the transfer is; about ten times a second.
    Progress(Progress),
    /// A file, directory or symlink of the tree is settled.
    Settled {
        /// Its path on this side: at the source when sending, at the destination otherwise.
        path: PathBuf,
        /// How it ended.
        outcome: Outcome,
        /// Its size.
        bytes: Bytes,
        /// BLAKE3 of the file in hexadecimal, where this side knows it.
        blake3: Option<String>,
    },
    /// A file that could not be copied; the transfer goes on.
    FileFailed {
        /// Path relative to the destination, or in the source.
        path: PathBuf,
        /// One line that says what happened and what to do.
        message: String,
        /// Whether the source disappeared after it was listed.
        vanished: bool,
    },
    /// What is held of window and pacing from now on, and why.
    Tuned(Tuned),
    /// How much of what has arrived may wait to be written from now on, and why.
    Staging(Staging),
    /// How the data connections do; about ten times a second.
    Sample(Sample),
    /// Something worth knowing that is no failure of a file.
    Notice {
        /// One line.
        message: String,
    },
    /// A client came to the server.
    ClientConnected {
        /// Its address.
        peer: String,
    },
    /// A client's session ended.
    ClientDone {
        /// Its address.
        peer: String,
        /// How it ended: a summary, or the error.
        result: Result<Summary, Error>,
    },
}

/// How far a transfer is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Regular files found so far.
    pub files_total: u64,
    /// Bytes in them.
    pub bytes_total: Bytes,
    /// Whether the walk is over, so that the totals are final.
    pub total_is_final: bool,
    /// Files settled: copied, unchanged or failed.
    pub files_done: u64,
    /// Bytes settled: verified at the destination, now or by an earlier run.
    pub bytes_done: Bytes,
    /// Bytes verified at the destination by this run: what a rate is made of.
    pub bytes_moved: Bytes,
    /// Time since the start.
    pub elapsed: Duration,
}

/// A decision about a transfer's data connections, made by the side that receives.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Tuned {
    /// When, since the transfer began; on a server since the client was heard.
    pub at: Duration,
    /// Where the controller stands now, in one word.
    pub state: String,
    /// The receive window that is held, of all connections together; `None`: none is.
    pub window: Option<Bytes>,
    /// The rate of data to which the sender paces them together; `None`: to none.
    pub pacing: Option<Rate>,
    /// How many data connections are to carry data from now on, where that is what was decided.
    pub streams: Option<u32>,
    /// Why, in a clause.
    pub reason: String,
}

/// How much of what has arrived may wait in memory until it is written, of all that the receiving
/// process takes in; decided there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Staging {
    /// Since when, from the beginning of the transfer; of a receiver on the far side, when it has
    /// told.
    pub at: Duration,
    /// So much may wait.
    pub size: Bytes,
    /// Why it is another size than before, in a clause.
    pub reason: String,
}

/// How a transfer's data connections do, all together. Counts are from the beginning.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// When, since the transfer began.
    pub at: Duration,
    /// How many there are.
    pub streams: u32,
    /// What they have carried, encryption and framing included.
    pub carried: Bytes,
    /// Round trips that were measured since the last sample; TCP's own, smoothed, where no datagram
    /// gets through.
    pub rtts: Vec<Duration>,
    /// How many probes were answered or lost, and how many of them were lost on the way that the
    /// data goes.
    pub probes: u64,
    /// See above.
    pub probes_lost: u64,
    /// The rate of data that the line carries, as packet trains told it.
    pub capacity: Option<Rate>,
    /// The receive window that is held; `None`: none is.
    pub window: Option<Bytes>,
    /// The receive window that the sender sees, where its kernel tells.
    pub granted: Option<Bytes>,
    /// The rate of data to which they are paced; `None`: to none.
    pub pacing: Option<Rate>,
    /// Segments sent again; `None` where only the other side knows.
    pub retransmits: Option<u64>,
    /// The most that had come and waited to be written since the last sample, of all that the
    /// receiving process takes in; `None` where it does not tell.
    pub buffered_peak: Option<Bytes>,
    /// How much may wait there.
    pub buffer_limit: Option<Bytes>,
    /// What the sender's threads have spent their time with, summed.
    pub sender: StageTimes,
    /// What the receiver's threads have.
    pub receiver: StageTimes,
    /// How often of late the sender had nothing to send, 0 to 1.
    pub source_share: f64,
    /// How often of late the receiver had not come to read, 0 to 1.
    pub receiver_share: f64,
}

/// What a transfer did.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Regular files copied by this run.
    pub files: u64,
    /// Directories in the tree.
    pub dirs: u64,
    /// Symlinks in the tree.
    pub symlinks: u64,
    /// Symlinks made by this run: the others were there already.
    pub links_made: u64,
    /// Content bytes that this run brought and verified, those of files that failed later included:
    /// what is verified is kept for the next run.
    pub bytes: Bytes,
    /// Bytes on data connections, with headers and encryption, as this side counted them.
    pub wire_bytes: Bytes,
    /// From the start of the command to its end.
    pub elapsed: Duration,
    /// Data connections kept at a time, those that rest included.
    pub streams: u32,
    /// Segments retransmitted on data connections.
    pub retransmits: u64,
    /// Bytes that earlier runs had brought of files completed or continued by this run.
    pub resumed_bytes: Bytes,
    /// Files that the destination had already.
    pub skipped_files: u64,
    /// Bytes in them.
    pub skipped_bytes: Bytes,
    /// Files and symlinks that a dry run would have copied.
    pub would_copy_entries: u64,
    /// Bytes in them.
    pub would_copy_bytes: Bytes,
    /// Files, directories and symlinks that could not be copied.
    pub failed_files: u64,
    /// How many of those disappeared from the source after they were listed.
    pub vanished_files: u64,
    /// Sockets, devices and FIFOs left out.
    pub special_files_skipped: u64,
    /// What limited the transfer: a stable name such as `network` or `source-read`.
    pub limited_by: &'static str,
    /// The same for people.
    pub limited_by_text: String,
}

impl Summary {
    /// Adds the counts of another transfer; times and limits stay.
    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.dirs += other.dirs;
        self.symlinks += other.symlinks;
        self.links_made += other.links_made;
        self.bytes += other.bytes;
        self.wire_bytes += other.wire_bytes;
        self.streams += other.streams;
        self.retransmits += other.retransmits;
        self.resumed_bytes += other.resumed_bytes;
        self.skipped_files += other.skipped_files;
        self.skipped_bytes += other.skipped_bytes;
        self.would_copy_entries += other.would_copy_entries;
        self.would_copy_bytes += other.would_copy_bytes;
        self.failed_files += other.failed_files;
        self.vanished_files += other.vanished_files;
        self.special_files_skipped += other.special_files_skipped;
    }

    /// Content bits per second over the whole command.
    #[must_use]
    pub fn goodput(&self) -> Rate {
        self.bytes.per(self.elapsed)
    }
}
