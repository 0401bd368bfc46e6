//! Progress of single files: wants, acknowledgements, file digests, files given up.

use crate::blocks::Run;
use crate::error::WireError;
use crate::wire::bounds::check_runs;
use crate::wire::failure::Failure;
use minicbor::{Decode, Encode};

/// Action that the receiver requests for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Verdict {
    /// Send the missing blocks.
    #[n(0)]
    Send,
    /// Skip: the file is present and unchanged.
    #[n(1)]
    Skip,
    /// Compare with the hash; send if different, else answer [`super::Message::Unchanged`].
    #[n(2)]
    IfDiffers,
    /// Refused; see the failure.
    #[n(3)]
    Refused,
    /// Dry run: the file would be sent.
    #[n(4)]
    WouldSend,
}

impl Verdict {
    /// True if a want with this verdict completes its file.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Skip | Self::Refused | Self::WouldSend)
    }
}

/// The receiver's answer to an announced file or symlink.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Want {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// Requested action.
    #[n(1)]
    pub verdict: Verdict,
    /// Verified blocks at the receiver.
    #[n(2)]
    pub have: Vec<Run>,
    /// BLAKE3 of the receiver's file, with [`Verdict::IfDiffers`].
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub hash: Option<[u8; 32]>,
    /// Failure, with [`Verdict::Refused`].
    #[n(4)]
    pub failure: Option<Failure>,
    /// True if the receiver accepts [`super::Message::EarlyFileDigest`] for this file.
    #[n(5)]
    pub accepts_early_digest: Option<bool>,
}

/// Runs of blocks of one file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct FileRuns {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// Runs of blocks.
    #[n(1)]
    pub runs: Vec<Run>,
}

/// Digest of a source file, which ends the file on the sender's side.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct FileDigest {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// BLAKE3 of the file, if the sender read all of it in this session.
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
    /// Cause.
    #[n(1)]
    pub failure: Failure,
    /// True if the file will be announced again under a new number.
    #[n(2)]
    pub will_retry: bool,
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

/// Size of a file that was announced without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct FileEnd {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// Size in bytes. A last block that extends beyond it is padded with zeros.
    #[n(1)]
    pub size: u64,
}

/// A file given up by the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Failed {
    /// Number of the entry.
    #[n(0)]
    pub file: u64,
    /// Cause.
    #[n(1)]
    pub failure: Failure,
}

impl Want {
    pub(super) fn check(&self) -> Result<(), WireError> {
        self.failure.as_ref().map_or(Ok(()), Failure::check)?;
        check_runs(&self.have)
    }
}

impl FileRuns {
    pub(super) fn check(&self) -> Result<(), WireError> {
        check_runs(&self.runs)
    }
}
