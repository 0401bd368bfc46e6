//! Control messages: CBOR (RFC 8949), each an array of message number and body.
//!
//! Bodies are maps with integer keys, so that a newer peer can add keys that an older one skips.
//! [`decode`] checks the limits and names of each message; whether a message may arrive now is
//! checked by the session guard.

mod bytes;
mod changes;
mod deletion;
mod earlier;
mod entries;
mod feedback;
mod greeting;
mod metadata;
mod open;
mod rules;
mod transfer;

use super::attach::CONTROL_MAGIC;
use super::bounds::at_most;
use super::frame;
use crate::error::WireError;
use crate::limits::{
    MAX_CREDITS, MAX_ENTRIES_PER_BATCH, MAX_LIST_PART_BYTES, MAX_LIST_PART_NAMES, MAX_PATH_BYTES,
    MAX_TRAIN_PACKETS,
};
use minicbor::{Decode, Encode};

pub use super::bounds::{WHOLE_SOURCE, check_congestion, check_listed, check_name};
pub use super::failure::{Cause, Failure};
pub use bytes::{Bytes, PathBytes};
pub use changes::{Change, ChangeAction, ChangedKind, Differences};
pub use deletion::{DeleteRules, LeftOut};
pub use earlier::{BackupRules, EarlierRules};
pub use entries::{Entry, EntryKind, Problem, Totals};
pub use feedback::{
    Created, Credit, RateLimit, RateRequest, ReceiverReport, SenderReport, SideSummary,
    stage_nanos, stage_times,
};
pub use greeting::{Hello, KEY_PROOF_CONTEXT, KEY_PROOF_LABEL, KeyProof, Welcome};
pub use metadata::{
    Account, AccountKind, ExtraMetadata, MetadataRules, Special, SpecialKind, Xattr,
};
pub use open::{Direction, Fsync, Open, Opened, Source};
pub use rules::{ComparisonRules, WalkRules};
pub use transfer::{Aborted, Failed, FileDigest, FileEnd, FileRuns, Nack, Verdict, Want};

/// First bytes of a control connection, in both directions.
pub const MAGIC: [u8; 8] = CONTROL_MAGIC;

/// A control message.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[non_exhaustive]
pub enum Message {
    /// Client → server: first message.
    #[n(0)]
    Hello(#[n(0)] Hello),
    /// Server → client: answer to [`Message::Hello`].
    #[n(1)]
    Welcome(#[n(0)] Welcome),
    /// Either direction: end of the session, with its cause.
    #[n(2)]
    Error(#[n(0)] Failure),
    /// Client → server: request of a transfer.
    #[n(3)]
    Open(#[n(0)] Open),
    /// Server → client: acceptance of the request.
    #[n(4)]
    Opened(#[n(0)] Opened),
    /// Sender → receiver: announced entries of the tree.
    #[n(5)]
    Entries(#[n(0)] Vec<Entry>),
    /// Sender → receiver: end of the walk, with its totals.
    #[n(6)]
    EntriesEnd(#[n(0)] Totals),
    /// Either direction: a part of the source that was left out, or of the destination that could
    /// not be set.
    #[n(7)]
    Problem(#[n(0)] Problem),
    /// Receiver → sender: answers to announced files.
    #[n(8)]
    Wants(#[n(0)] Vec<Want>),
    /// Receiver → sender: verified blocks of a file, before its want. Used for lists that do not
    /// fit the want.
    #[n(9)]
    Have(#[n(0)] FileRuns),
    /// Sender → receiver: blocks that are holes and will not be sent.
    #[n(10)]
    Holes(#[n(0)] FileRuns),
    /// Sender → receiver: every block is acknowledged and the source is unchanged.
    #[n(11)]
    FileDigest(#[n(0)] FileDigest),
    /// Sender → receiver: the file is given up.
    #[n(12)]
    Aborted(#[n(0)] Aborted),
    /// Sender → receiver: files with equal content, in answer to [`Verdict::IfDiffers`].
    #[n(13)]
    Unchanged(#[n(0)] Vec<u64>),
    /// Receiver → sender: blocks that are verified and journalled.
    #[n(14)]
    Acks(#[n(0)] Vec<FileRuns>),
    /// Receiver → sender: a damaged block or packed file, to be sent again.
    #[n(15)]
    Nack(#[n(0)] Nack),
    /// Receiver → sender: files in place under their final names.
    #[n(16)]
    Finished(#[n(0)] Vec<u64>),
    /// Receiver → sender: the file is given up.
    #[n(17)]
    Failed(#[n(0)] Failed),
    /// Sender → receiver: number of a broken data stream, to be closed.
    #[n(18)]
    StreamLost(#[n(0)] u32),
    /// Receiver → sender: number of a closed data stream. Everything that arrived on it is
    /// acknowledged.
    #[n(19)]
    StreamEnded(#[n(0)] u32),
    /// Sender → receiver: every file is completed.
    #[n(20)]
    Finish(#[n(0)] SideSummary),
    /// Receiver → sender: end of the transfer.
    #[n(21)]
    Done(#[n(0)] SideSummary),
    /// Either direction: heartbeat.
    #[n(22)]
    Ping,
    /// Either direction, over ssh only: bytes of the tunnelled data stream; empty at its end.
    #[n(23)]
    Tunnel(#[n(0)] Bytes),
    /// Sender → receiver, dry run only: files with different content.
    #[n(24)]
    Differs(#[n(0)] Vec<u64>),
    /// Receiver → sender: requested rate, stream count and congestion control.
    #[n(25)]
    RateRequest(#[n(0)] RateRequest),
    /// Sender → receiver: statistics of the data streams.
    #[n(26)]
    SenderReport(#[n(0)] SenderReport),
    /// Receiver → sender: request for more packet trains, with the packets per train.
    #[n(27)]
    TrainRequest(#[n(0)] u32),
    /// Receiver → sender: state of the controller, and measurements of the path.
    #[n(28)]
    ReceiverReport(#[n(0)] ReceiverReport),
    /// Sender → receiver, if [`Want::accepts_early_digest`] is set: every block is read and sent,
    /// and the source is unchanged. Replaces [`Message::FileDigest`] once all blocks have arrived;
    /// a damaged block voids it.
    #[n(29)]
    EarlyFileDigest(#[n(0)] FileDigest),
    /// Receiver → sender, if [`Opened::credit`] is set: byte offsets up to which data streams may
    /// send.
    #[n(30)]
    Credits(#[n(0)] Vec<Credit>),
    /// Sender → receiver: completed directories. No further entry beneath them is announced.
    #[n(31)]
    CompletedDirs(#[n(0)] Vec<u64>),
    /// Sender → receiver, if [`WalkRules::listed`] is set in a pull: request of the next names.
    #[n(32)]
    ListRequest,
    /// Receiver → sender: next names of the list, in answer to [`Message::ListRequest`]; none at
    /// its end.
    #[n(33)]
    ListPart(#[n(0)] Vec<PathBytes>),
    /// Sender → receiver: accounts of owner and group numbers, before the entries that have them.
    #[n(34)]
    Accounts(#[n(0)] Vec<Account>),
    /// Sender → receiver, if the receiver deletes: names at the source that are not announced.
    #[n(35)]
    LeftOut(#[n(0)] Vec<LeftOut>),
    /// Receiver → sender: deleted entries, for people.
    #[n(36)]
    Deleted(#[n(0)] Vec<PathBytes>),
    /// Receiver → sender, if [`Opened::itemizes`] is set: changed entries, for people.
    #[n(37)]
    Changes(#[n(0)] Vec<Change>),
    /// Sender → receiver, if [`ExtraMetadata::open_ended`] is set: size of a wanted file.
    #[n(38)]
    FileEnd(#[n(0)] FileEnd),
    /// Client → server, if [`Opened::rate_changes`] is set: the user's rate limit from now on.
    #[n(39)]
    RateLimit(#[n(0)] RateLimit),
}

impl Message {
    /// Checks the limits and names of a decoded message.
    fn check(&self) -> Result<(), WireError> {
        match self {
            Self::Hello(hello) => hello.check(),
            Self::Welcome(welcome) => welcome.check(),
            Self::Error(failure) => failure.check(),
            Self::Open(open) => open.check(),
            Self::Opened(opened) => opened.check(),
            Self::Entries(entries) => {
                at_most("a batch of entries", entries.len(), MAX_ENTRIES_PER_BATCH)?;
                entries.iter().try_for_each(Entry::check)
            }
            Self::CompletedDirs(dirs) => {
                at_most("a batch of directories", dirs.len(), MAX_ENTRIES_PER_BATCH)
            }
            Self::LeftOut(names) => deletion::check_left_out(names),
            Self::Deleted(paths) => deletion::check_deleted(paths),
            Self::Changes(changes) => changes::check_changes(changes),
            Self::Accounts(accounts) => metadata::check_accounts(accounts),
            Self::Problem(problem) => problem.failure.check(),
            Self::Wants(wants) => wants.iter().try_for_each(Want::check),
            Self::Have(runs) | Self::Holes(runs) => runs.check(),
            Self::Acks(acks) => acks.iter().try_for_each(FileRuns::check),
            Self::Aborted(aborted) => aborted.failure.check(),
            Self::Failed(failed) => failed.failure.check(),
            Self::TrainRequest(packets) => {
                at_most("the packets of a train", *packets as usize, MAX_TRAIN_PACKETS as usize)
            }
            Self::ReceiverReport(report) => report.check(),
            Self::ListPart(names) => {
                at_most("the names in a part of a list", names.len(), MAX_LIST_PART_NAMES)?;
                let bytes = names.iter().map(|name| name.0.len()).sum();
                at_most("the bytes of a part of a list", bytes, MAX_LIST_PART_BYTES)?;
                names.iter().try_for_each(|name| {
                    at_most("a name in a list", name.0.len(), MAX_PATH_BYTES)?;
                    check_listed(&name.0)
                })
            }
            Self::Credits(credits) => at_most("the number of credits", credits.len(), MAX_CREDITS),
            _ => Ok(()),
        }
    }
}

/// Encodes a message with its frame prefix.
///
/// # Errors
/// [`WireError::FrameTooLong`] for a message over the frame limit.
pub fn encode(message: &Message) -> Result<Vec<u8>, WireError> {
    let mut out = vec![0; frame::PREFIX_BYTES];
    let _: Result<(), minicbor::encode::Error<std::convert::Infallible>> =
        minicbor::encode(message, &mut out);
    let prefix = frame::prefix(out.len() - frame::PREFIX_BYTES)?;
    out[..frame::PREFIX_BYTES].copy_from_slice(&prefix);
    Ok(out)
}

/// Decodes the body of a frame and checks its limits.
///
/// # Errors
/// [`WireError::Malformed`], [`WireError::OverLimit`], [`WireError::BadName`] and others that name
/// the field.
pub fn decode(body: &[u8]) -> Result<Message, WireError> {
    let mut decoder = minicbor::Decoder::new(body);
    let message: Message = decoder.decode().map_err(|e| WireError::Malformed(e.to_string()))?;
    if decoder.position() != body.len() {
        return Err(WireError::Malformed("bytes after the message".into()));
    }
    message.check()?;
    Ok(message)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::blocks::Run;
    use crate::limits::MAX_TEXT_BYTES;
    use proptest::prelude::*;

    pub(crate) fn entry() -> Entry {
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
            extra: None,
        }
    }

    pub(super) fn round_trip(message: &Message) -> Result<Message, WireError> {
        decode(&encode(message).unwrap()[frame::PREFIX_BYTES..])
    }

    #[test]
    fn texts_and_runs_over_limit_are_refused_in_every_message() {
        let failure = Failure { code: 0, text: "x".repeat(MAX_TEXT_BYTES + 1) };
        let want = Want {
            file: 1,
            verdict: Verdict::Refused,
            have: Vec::new(),
            hash: None,
            failure: Some(failure.clone()),
            accepts_early_digest: None,
        };
        let path = PathBytes(b"p".to_vec());
        let texts = [
            Message::Error(failure.clone()),
            Message::Problem(Problem { path, failure: failure.clone() }),
            Message::Wants(vec![want.clone()]),
            Message::Aborted(Aborted { file: 1, failure: failure.clone(), will_retry: false }),
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
    fn decode_trailing_bytes_are_refused() {
        let mut body = encode(&Message::Ping).unwrap()[4..].to_vec();
        body.push(0);
        assert!(decode(&body).is_err());
    }

    proptest! {
        #[test]
        fn decode_random_bytes_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&body);
        }

        #[test]
        fn decode_damaged_message_never_panics(at in 0usize..100, value: u8) {
            let mut body = encode(&Message::Entries(vec![entry(); 2])).unwrap()[4..].to_vec();
            let at = at % body.len();
            body[at] = value;
            let _ = decode(&body);
        }
    }
}
