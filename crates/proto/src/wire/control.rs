//! Control messages: CBOR (RFC 8949), each an array of the message's number and its body; bodies
//! are maps with integer keys, so that a newer peer may add keys that an older one skips.
//!
//! Decoding checks every bound and every name: a [`Message`] that came out of [`decode`] is safe to
//! act upon as far as its own fields go. Whether it belongs *here* is [`crate::session`]'s matter.

use super::attach::CONTROL_MAGIC;
use super::{WireError, bounds};
use crate::blocks::Run;
use bankfull_control::StageTimes;
use minicbor::{Decode, Encode};

pub use super::bounds::{check_congestion, check_name};
pub use super::course::{Ask, Course, Pace, Sight, stage_nanos, stage_times};
pub use super::failure::{Cause, Failure};

/// What each side writes first on a control connection.
pub const MAGIC: [u8; 8] = CONTROL_MAGIC;

/// A control message.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[non_exhaustive]
pub enum Message {
    /// Client → server, first.
    #[n(0)]
    Hello(#[n(0)] Hello),
    /// Server → client: accepted.
    #[n(1)]
    Welcome(#[n(0)] Welcome),
    /// Either → either: the session ends here, and why.
    #[n(2)]
    Error(#[n(0)] Failure),
    /// Client → server: what to transfer.
    #[n(3)]
    Open(#[n(0)] Open),
    /// Server → client: the request is understood and allowed.
    #[n(4)]
    Opened(#[n(0)] Opened),
    /// Sender → receiver: more entries of the tree.
    #[n(5)]
    Entries(#[n(0)] Vec<Entry>),
    /// Sender → receiver: the walk is over; these are the totals.
    #[n(6)]
    EntriesEnd(#[n(0)] Totals),
    /// Either → either: something failed that the other side knows nothing of: in the source it
    /// could not be read and was left out; at the destination it could not be set right.
    #[n(7)]
    Problem(#[n(0)] Problem),
    /// Receiver → sender: what to do with announced files.
    #[n(8)]
    Wants(#[n(0)] Vec<Want>),
    /// Receiver → sender: blocks already here, ahead of a want whose list is too long for one
    /// message.
    #[n(9)]
    Have(#[n(0)] FileRuns),
    /// Sender → receiver: blocks that are holes; nothing will be sent for them.
    #[n(10)]
    Holes(#[n(0)] FileRuns),
    /// Sender → receiver: every block is acknowledged and the source did not change meanwhile.
    #[n(11)]
    Sealed(#[n(0)] Sealed),
    /// Sender → receiver: no more of this file will come.
    #[n(12)]
    Aborted(#[n(0)] Aborted),
    /// Sender → receiver: content compared equal (answer to [`Verdict::IfDiffers`]).
    #[n(13)]
    Unchanged(#[n(0)] Vec<u64>),
    /// Receiver → sender: blocks verified and journalled.
    #[n(14)]
    Acks(#[n(0)] Vec<FileRuns>),
    /// Receiver → sender: a block or packed file failed verification; send it again.
    #[n(15)]
    Nack(#[n(0)] Nack),
    /// Receiver → sender: files in place under their final names.
    #[n(16)]
    Finished(#[n(0)] Vec<u64>),
    /// Receiver → sender: a file cannot be received.
    #[n(17)]
    Failed(#[n(0)] Failed),
    /// Sender → receiver: this data connection is broken, close it.
    #[n(18)]
    StreamLost(#[n(0)] u32),
    /// Receiver → sender: this data connection is closed; all that arrived on it is acknowledged.
    #[n(19)]
    StreamEnded(#[n(0)] u32),
    /// Sender → receiver: every file is settled; finish up.
    #[n(20)]
    Finish(#[n(0)] SideReport),
    /// Receiver → sender: finished up.
    #[n(21)]
    Done(#[n(0)] SideReport),
    /// Either → either: still here.
    #[n(22)]
    Ping,
    /// Either → either, over ssh only: bytes of the one data connection, where none of its own
    /// could be made. Empty at its end.
    #[n(23)]
    Tunnel(#[n(0)] Bytes),
    /// Sender → receiver, in a dry run: content compared different, and would be sent.
    #[n(24)]
    Differs(#[n(0)] Vec<u64>),
    /// Receiver → sender: how fast to send from now on.
    #[n(25)]
    Pace(#[n(0)] Pace),
    /// Sender → receiver: how its data connections are doing.
    #[n(26)]
    Sight(#[n(0)] Sight),
    /// Receiver → sender: more packet trains are wanted, of so many packets each.
    #[n(27)]
    Trains(#[n(0)] u32),
    /// Receiver → sender: what it holds, and what it sees of the path.
    #[n(28)]
    Course(#[n(0)] Course),
    /// Sender → receiver, where [`Want::ahead`] allows it: every block was read and is on its way,
    /// and the source did not change meanwhile. As good as [`Message::Sealed`] once all of them are
    /// there, unless one arrives damaged: then `Sealed` follows after all.
    #[n(29)]
    SealedAhead(#[n(0)] Sealed),
    /// Receiver → sender, where [`Opened::asks`] says so: up to where data connections may send.
    #[n(30)]
    Asks(#[n(0)] Vec<Ask>),
}

/// First message of the client.
#[derive(Debug, Clone, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    /// Lowest protocol version spoken.
    #[n(0)]
    pub version_min: u16,
    /// Highest protocol version spoken.
    #[n(1)]
    pub version_max: u16,
    /// Name and version of the software, for messages to people.
    #[n(2)]
    pub software: String,
    /// The daemon's access token.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub token: Option<Vec<u8>>,
}

/// Answer to [`Hello`].
#[derive(Debug, Clone, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Welcome {
    /// The version both will speak.
    #[n(0)]
    pub version: u16,
    /// Name and version of the software.
    #[n(1)]
    pub software: String,
    /// Names the session on data connections.
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    pub session: [u8; 16],
    /// Key of the session's proofs and tags.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub session_key: [u8; 32],
    /// Most data connections allowed.
    #[n(4)]
    pub streams_max: u32,
    /// Whether unencrypted data connections are allowed.
    #[n(5)]
    pub plain_allowed: bool,
    /// An agent's own data port; absent where data goes to the port of this connection.
    #[n(6)]
    pub data_port: Option<u16>,
    /// Addresses under which the agent may be reachable, best first.
    #[n(7)]
    pub data_hosts: Vec<String>,
    /// SHA-256 of the agent's certificate.
    #[n(8)]
    #[cbor(with = "minicbor::bytes")]
    pub fingerprint: Option<[u8; 32]>,
    /// Milliseconds of silence after which the server gives up, where it says so. The client shows
    /// signs of life often enough for that.
    #[n(9)]
    pub timeout_ms: Option<u64>,
}

/// Which way the files go, seen from the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Direction {
    /// Client sends, server receives.
    #[default]
    #[n(0)]
    Push,
    /// Server sends, client receives.
    #[n(1)]
    Pull,
}

/// When received files are flushed to the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Fsync {
    /// Left to the kernel.
    #[default]
    #[n(0)]
    None,
    /// Each file before it is renamed into place, and its directory after.
    #[n(1)]
    File,
    /// The destination file system once, at the end.
    #[n(2)]
    End,
}

/// What the client wants.
#[derive(Debug, Clone, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Open {
    /// Which way.
    #[n(0)]
    pub direction: Direction,
    /// Push: the one destination. Pull: the sources. As typed by the user, resolved by the server.
    #[n(1)]
    pub paths: Vec<PathBytes>,
    /// Push: what will come.
    #[n(2)]
    pub sources: Vec<Source>,
    /// Flush policy of the receiver.
    #[n(3)]
    pub fsync: Fsync,
    /// Compare content instead of size and time.
    #[n(4)]
    pub checksum: bool,
    /// Say what would be done; change nothing.
    #[n(5)]
    pub dry_run: bool,
    /// Data connections without encryption.
    #[n(6)]
    pub plain: bool,
    /// How many data connections the client will open.
    #[n(7)]
    pub streams: u32,
    /// Milliseconds of silence after which the client gives up; 0 where it does not say. The server
    /// shows signs of life often enough for that.
    #[n(8)]
    pub timeout_ms: u64,
    /// Window and pacing are left as the receiver's host has them; absent: they are tuned.
    #[n(9)]
    pub untuned: Option<bool>,
    /// Most data per second, in bytes, of all data connections; absent: what the path carries.
    #[n(10)]
    pub rate_max: Option<u64>,
    /// The receive windows of all data connections together, in bytes, which the receiver holds all
    /// the time; absent: as the receiver likes.
    #[n(11)]
    pub window: Option<u64>,
    /// Pull: the congestion control of the data connections; absent: the server's own.
    #[n(12)]
    pub congestion: Option<String>,
    /// Nothing is copied: the side that sends sends filler for so many milliseconds, to see what
    /// the path carries.
    #[n(13)]
    pub probe_ms: Option<u32>,
    /// Push: what an earlier copy found the path to carry, in bytes per second, and its shortest
    /// round trip in microseconds: where to begin if nothing else tells.
    #[n(14)]
    pub remembered: Option<[u64; 2]>,
    /// Most data connections, as the receiver finds best; absent: as many as at first.
    #[n(15)]
    pub streams_most: Option<u32>,
    /// Pull: the client will ask for what is to be sent, see [`Message::Asks`]. Push: the client
    /// sends only what it is asked for, if the server likes.
    #[n(16)]
    pub asks: Option<bool>,
    /// Pull: by which block engine the server reads and sends; absent: as it finds best.
    #[n(17)]
    pub engine: Option<String>,
    /// Pull: bytes of the blocks into which the server cuts files; absent: as it finds best.
    #[n(18)]
    pub block_bytes: Option<u32>,
    /// Whether the server passes its page cache by; absent: as it finds best.
    #[n(19)]
    pub direct: Option<bool>,
    /// Pull: how many files and symlinks may be announced and not settled; absent: any number.
    #[n(20)]
    pub unsettled_most: Option<u32>,
}

/// Answer to [`Open`].
#[derive(Debug, Clone, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Opened {
    /// Pull: what will come.
    #[n(0)]
    pub sources: Vec<Source>,
    /// Push: where each source lands.
    #[n(1)]
    pub landing: Vec<PathBytes>,
    /// Nothing of a file is sent but what [`Message::Asks`] asks for. Only where [`Open::asks`] was
    /// there.
    #[n(2)]
    pub asks: Option<bool>,
}

/// A path as bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct PathBytes(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub Vec<u8>,
);

/// Raw bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Bytes(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub Vec<u8>,
);

/// One operand of the command.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Source {
    /// Last component of its path; may be empty for a source whose contents land in the
    /// destination.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// Whether it is a directory.
    #[n(1)]
    pub is_dir: bool,
    /// Whether the directory's contents land in the destination, not the directory itself.
    #[n(2)]
    pub contents: bool,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum EntryKind {
    /// A regular file.
    #[n(0)]
    File,
    /// A directory.
    #[n(1)]
    Dir,
    /// A symbolic link, carried as such.
    #[n(2)]
    Symlink,
}

/// A file, directory or symlink of the tree. Directories come before what is in them.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// Number of the entry; ascending within a session, from 1.
    #[n(0)]
    pub id: u64,
    /// Number of its directory; 0 is the destination itself.
    #[n(1)]
    pub parent: u64,
    /// Name within its directory; empty only for the destination itself (parent 0, a directory).
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// What it is.
    #[n(3)]
    pub kind: EntryKind,
    /// Permission bits, the low 12.
    #[n(4)]
    pub mode: u32,
    /// Modification time, seconds since 1970.
    #[n(5)]
    pub mtime_secs: i64,
    /// Modification time, nanoseconds of the second.
    #[n(6)]
    pub mtime_nanos: u32,
    /// Size in bytes; 0 for all but files.
    #[n(7)]
    pub size: u64,
    /// Opaque value that differs when the file was written since (from inode and change time).
    #[n(8)]
    pub version: u64,
    /// Owner, by number.
    #[n(9)]
    pub uid: u32,
    /// Group, by number.
    #[n(10)]
    pub gid: u32,
    /// Block size in bytes for files that travel in blocks; 0 for those that travel in packs.
    #[n(11)]
    pub block_bytes: u32,
    /// Whether the source has holes.
    #[n(12)]
    pub sparse: bool,
    /// Target of a symlink.
    #[n(13)]
    #[cbor(with = "minicbor::bytes")]
    pub target: Vec<u8>,
}

/// Totals of the walk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Totals {
    /// Regular files.
    #[n(0)]
    pub files: u64,
    /// Directories.
    #[n(1)]
    pub dirs: u64,
    /// Symlinks.
    #[n(2)]
    pub symlinks: u64,
    /// Bytes in regular files.
    #[n(3)]
    pub bytes: u64,
    /// Sockets, devices and FIFOs, which are left out.
    #[n(4)]
    pub specials: u64,
}

/// Part of the source that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Problem {
    /// Path as the user would write it.
    #[n(0)]
    pub path: PathBytes,
    /// Why.
    #[n(1)]
    pub failure: Failure,
}

/// What the receiver wants of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Verdict {
    /// Send what is not in the runs.
    #[n(0)]
    Send,
    /// It is here already, unchanged.
    #[n(1)]
    Skip,
    /// Compare with the hash; send it when different, else say [`Message::Unchanged`].
    #[n(2)]
    IfDiffers,
    /// It cannot be received; see the failure.
    #[n(3)]
    Refused,
    /// A dry run: it would be sent.
    #[n(4)]
    WouldSend,
}

/// The receiver's answer to an announced file or symlink.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Want {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// What to do.
    #[n(1)]
    pub verdict: Verdict,
    /// Blocks already here and verified.
    #[n(2)]
    pub have: Vec<Run>,
    /// BLAKE3 of the file that is here, with [`Verdict::IfDiffers`].
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub hash: Option<[u8; 32]>,
    /// Why, with [`Verdict::Refused`].
    #[n(4)]
    pub failure: Option<Failure>,
    /// Whether the file may be sealed before its blocks are acknowledged.
    #[n(5)]
    pub ahead: Option<bool>,
}

/// Runs of blocks of one file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct FileRuns {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// The runs.
    #[n(1)]
    pub runs: Vec<Run>,
}

/// End of a file on the sender's side.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Sealed {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// BLAKE3 of the whole file, where the sender read all of it in this session.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub hash: Option<[u8; 32]>,
}

/// A file given up by the sender.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Aborted {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// Why.
    #[n(1)]
    pub failure: Failure,
    /// Whether it will be announced again under a new number.
    #[n(2)]
    pub again: bool,
}

/// A block that arrived damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Nack {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// Block number; 0 for a packed file.
    #[n(1)]
    pub index: u64,
}

/// A file given up by the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Failed {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// Why.
    #[n(1)]
    pub failure: Failure,
}

/// What one side did and where its time went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SideReport {
    /// Nanoseconds in each stage: read, compute, network, write, idle.
    #[n(0)]
    pub stage_nanos: [u64; 5],
    /// Segments retransmitted by this side's data connections.
    #[n(1)]
    pub retransmits: u64,
    /// Files that failed on this side.
    #[n(2)]
    pub failed: u64,
}

impl SideReport {
    /// A report from stage times.
    #[must_use]
    pub fn new(times: &StageTimes, retransmits: u64, failed: u64) -> Self {
        Self { stage_nanos: stage_nanos(times), retransmits, failed }
    }

    /// The stage times in it.
    #[must_use]
    pub fn times(&self) -> StageTimes {
        stage_times(self.stage_nanos)
    }
}

/// Encodes a message with its frame prefix.
///
/// # Errors
/// [`WireError::FrameTooLong`] when it does not fit a frame.
pub fn encode(message: &Message) -> Result<Vec<u8>, WireError> {
    let mut out = vec![0; super::frame::PREFIX_BYTES];
    let _: Result<(), minicbor::encode::Error<std::convert::Infallible>> =
        minicbor::encode(message, &mut out);
    let prefix = super::frame::prefix(out.len() - super::frame::PREFIX_BYTES)?;
    out[..super::frame::PREFIX_BYTES].copy_from_slice(&prefix);
    Ok(out)
}

/// Decodes the body of a frame and checks its bounds.
///
/// # Errors
/// [`WireError::Malformed`], [`WireError::OverLimit`], [`WireError::BadName`].
pub fn decode(body: &[u8]) -> Result<Message, WireError> {
    let mut decoder = minicbor::Decoder::new(body);
    let message: Message = decoder.decode().map_err(|e| WireError::Malformed(e.to_string()))?;
    if decoder.position() != body.len() {
        return Err(WireError::Malformed("bytes after the message".into()));
    }
    bounds::check(&message)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{ENTRY_BATCH_COUNT_MAX, TEXT_BYTES_MAX};
    use proptest::prelude::*;

    fn entry() -> Entry {
        Entry {
            id: 7,
            parent: 0,
            name: b"na\xffme\n".to_vec(),
            kind: EntryKind::File,
            mode: 0o644,
            mtime_secs: -5,
            mtime_nanos: 999_999_999,
            size: 3 << 30,
            version: 99,
            uid: 1,
            gid: 2,
            block_bytes: 4 << 20,
            sparse: true,
            target: Vec::new(),
        }
    }

    fn round_trip(message: &Message) -> Result<Message, WireError> {
        decode(&encode(message).unwrap()[super::super::frame::PREFIX_BYTES..])
    }

    #[test]
    fn names_that_are_not_utf8_travel_unharmed() {
        let message = Message::Entries(vec![entry()]);
        assert_eq!(round_trip(&message), Ok(message));
    }

    #[test]
    fn names_that_could_leave_the_root_are_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"/etc", b"../x", b"a\0b", &[b'x'; 256]] {
            let message = Message::Entries(vec![Entry { name: bad.to_vec(), ..entry() }]);
            assert!(matches!(round_trip(&message), Err(WireError::BadName(_))), "{bad:?}");
        }
        let dir = Entry { name: vec![], kind: EntryKind::Dir, ..entry() };
        assert!(round_trip(&Message::Entries(vec![dir.clone()])).is_ok());
        let nested = Entry { parent: 3, ..dir };
        assert!(round_trip(&Message::Entries(vec![nested])).is_err());
    }

    #[test]
    fn sizes_and_counts_over_their_limits_are_refused() {
        let packed = Entry { block_bytes: 0, ..entry() };
        assert!(round_trip(&Message::Entries(vec![packed])).is_err());
        let odd = Entry { block_bytes: 3 << 20, ..entry() };
        assert!(round_trip(&Message::Entries(vec![odd])).is_err());
        let huge = Entry { size: 1 << 62, ..entry() };
        assert!(round_trip(&Message::Entries(vec![huge])).is_err());
        let nanos = Entry { mtime_nanos: 1_000_000_000, ..entry() };
        assert!(round_trip(&Message::Entries(vec![nanos])).is_err());
        let small = Entry { name: b"x".to_vec(), ..entry() };
        assert!(round_trip(&Message::Entries(vec![small; ENTRY_BATCH_COUNT_MAX + 1])).is_err());
    }

    #[test]
    fn texts_and_runs_out_of_bounds_are_refused_wherever_they_stand() {
        let failure = Failure { code: 0, text: "x".repeat(TEXT_BYTES_MAX + 1) };
        let want = Want {
            file: 1,
            verdict: Verdict::Refused,
            have: Vec::new(),
            hash: None,
            failure: Some(failure.clone()),
            ahead: None,
        };
        let path = PathBytes(b"p".to_vec());
        let texts = [
            Message::Error(failure.clone()),
            Message::Problem(Problem { path, failure: failure.clone() }),
            Message::Wants(vec![want.clone()]),
            Message::Aborted(Aborted { file: 1, failure: failure.clone(), again: false }),
            Message::Failed(Failed { file: 1, failure }),
        ];
        for message in texts {
            assert!(matches!(round_trip(&message), Err(WireError::OverLimit { .. })));
        }
        for (first, count) in [(0, 0), (u64::MAX, 1), (1, u64::MAX)] {
            let runs = FileRuns { file: 1, runs: vec![Run { first, count }] };
            let have = runs.runs.clone();
            let want = Want { have, failure: None, verdict: Verdict::Send, ..want.clone() };
            let lists = [
                Message::Acks(vec![runs.clone()]),
                Message::Have(runs.clone()),
                Message::Holes(runs),
                Message::Wants(vec![want]),
            ];
            for message in lists {
                assert!(matches!(round_trip(&message), Err(WireError::BadRun { .. })));
            }
        }
    }

    #[test]
    fn a_congestion_control_is_named_as_the_kernel_names_them() {
        let open = |name: &str| {
            Message::Open(Open { congestion: Some(name.to_owned()), ..Open::default() })
        };
        for name in ["reno", "bbr", "a-b_3", "fifteen-letters"] {
            assert_eq!(round_trip(&open(name)), Ok(open(name)));
        }
        for name in ["", "sixteen-letters-", "Reno", "../x", "a b", "a\0", "é"] {
            assert!(matches!(round_trip(&open(name)), Err(WireError::BadCongestion(_))), "{name}");
        }
    }

    #[test]
    fn unknown_keys_of_a_newer_peer_are_skipped() {
        let mut body = Vec::new();
        let mut e = minicbor::Encoder::new(&mut body);
        e.array(2).unwrap().u8(0).unwrap().array(1).unwrap();
        e.map(4).unwrap().u8(0).unwrap().u16(1).unwrap().u8(1).unwrap().u16(3).unwrap();
        e.u8(2).unwrap().str("future").unwrap().u8(200).unwrap().array(1).unwrap().u8(9).unwrap();
        let hello =
            Hello { version_min: 1, version_max: 3, software: "future".into(), token: None };
        assert_eq!(decode(&body), Ok(Message::Hello(hello)));
    }

    #[test]
    fn bytes_after_a_message_are_refused() {
        let mut body = encode(&Message::Ping).unwrap()[4..].to_vec();
        body.push(0);
        assert!(decode(&body).is_err());
    }

    #[test]
    fn a_code_of_the_future_reads_as_other() {
        let failure = Failure { code: 60_000, text: String::new() };
        assert_eq!(failure.cause(), Cause::Other);
        for code in 0..20 {
            assert_eq!(Cause::from_code(code) as u16, code);
        }
    }

    proptest! {
        #[test]
        fn decoding_rubbish_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&body);
        }

        #[test]
        fn a_damaged_message_never_panics(at in 0usize..100, value: u8) {
            let mut body = encode(&Message::Entries(vec![entry(); 2])).unwrap()[4..].to_vec();
            let at = at % body.len();
            body[at] = value;
            let _ = decode(&body);
        }
    }
}
