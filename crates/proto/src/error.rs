//! Errors of decoding and of the ledgers: bytes from a peer or a journal that were refused.

use crate::limits::{MAX_CONGESTION_NAME_BYTES, MAX_VERSION, MIN_VERSION};
use thiserror::Error;

/// A violation of the protocol. The peer is at fault, or the bytes were damaged in transit; no part
/// of the refused message was applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// First bytes of a connection that are not the protocol's magic.
    #[error("the peer does not speak the bankfull protocol")]
    BadMagic,
    /// Version ranges of the two sides that do not overlap.
    #[error(
        "the peer speaks protocol versions {peer_min} to {peer_max}, this side {MIN_VERSION} to \
         {MAX_VERSION}: install matching bankfull versions"
    )]
    NoCommonVersion {
        /// Lowest version of the peer.
        peer_min: u16,
        /// Highest version of the peer.
        peer_max: u16,
    },
    /// Frame over the length limit.
    #[error("a frame of {len} bytes is over the limit of {max}")]
    FrameTooLong {
        /// Announced length in bytes.
        len: usize,
        /// Limit in bytes.
        max: usize,
    },
    /// End of the data inside a frame or header.
    #[error("the data ended in the middle of {0}")]
    Truncated(&'static str),
    /// Message with invalid encoding.
    #[error("malformed message: {0}")]
    Malformed(String),
    /// Field over its limit.
    #[error("{what} is over the limit of {max}")]
    OverLimit {
        /// Name of the field.
        what: &'static str,
        /// Limit of the field.
        max: usize,
    },
    /// Header with a wrong check value.
    #[error("a data header is damaged")]
    BadHeader,
    /// Data header of an unknown kind.
    #[error("a data frame of unknown kind {0}")]
    UnknownDataKind(u8),
    /// Name that is not a plain path component.
    #[error(
        "the name {0:?} is not allowed: a name must not be empty, '.' or '..' and must not contain \
         '/' or NUL"
    )]
    BadName(String),
    /// Invalid name of a congestion control algorithm.
    #[error(
        "{0:?} is not a valid name of a congestion control: use 1 to {MAX_CONGESTION_NAME_BYTES} \
         of a-z, 0-9, '-' and '_'"
    )]
    BadCongestion(String),
    /// Block layout outside the limits.
    #[error("a file of {size} bytes in blocks of {block_bytes} is not allowed")]
    BadLayout {
        /// File size in bytes.
        size: u64,
        /// Block size in bytes.
        block_bytes: u32,
    },
    /// Range that is not a block of its file: not aligned, past the end, or of the wrong length.
    #[error("no block at offset {offset} of {len} bytes in a file of {size} bytes")]
    BadBlock {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
        /// File size in bytes.
        size: u64,
    },
    /// Empty run of blocks, or one that ends past its file.
    #[error("blocks {first} + {count} do not fit a file of {blocks} blocks")]
    BadRun {
        /// First block.
        first: u64,
        /// Number of blocks.
        count: u64,
        /// Blocks of the file.
        blocks: u64,
    },
    /// Message that is not allowed in the current state of the session.
    #[error("unexpected message: {0}")]
    Unexpected(&'static str),
    /// Source or entry that is not part of the request.
    #[error("not requested: {0}")]
    Unrequested(String),
    /// File number that was never announced, or announced twice.
    #[error("file number {0} is unknown or used twice")]
    BadFileId(u64),
    /// Block that was received before.
    #[error("block {index} of file number {file} was received twice")]
    DuplicateBlock {
        /// File number.
        file: u64,
        /// Block number.
        index: u64,
    },
}
