//! Why bytes from a peer or a journal were refused.

use thiserror::Error;

/// Bytes that are not what the protocol allows here. The peer is at fault, or the bytes were
/// damaged on the way; nothing of them was acted upon.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The connection does not begin with the protocol's magic.
    #[error("the far side does not speak the bankfull protocol")]
    BadMagic,
    /// The two sides share no protocol version.
    #[error(
        "the far side speaks protocol versions {peer_min} to {peer_max}, this side {} to {}: \
         install matching bankfull versions",
        super::VERSION_MIN,
        super::VERSION_MAX
    )]
    NoCommonVersion {
        /// Lowest version of the peer.
        peer_min: u16,
        /// Highest version of the peer.
        peer_max: u16,
    },
    /// A frame longer than allowed.
    #[error("a frame of {len} bytes is over the limit of {max}")]
    FrameTooLong {
        /// Announced length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The stream ended inside a frame or a header.
    #[error("the data ended in the middle of {0}")]
    Truncated(&'static str),
    /// A message whose encoding is wrong.
    #[error("a malformed message: {0}")]
    Malformed(String),
    /// A field outside its limits.
    #[error("{what} is over the limit of {max}")]
    OverLimit {
        /// What was too large.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// A data header whose check value does not fit its bytes.
    #[error("a data header is damaged")]
    BadHeader,
    /// A data header of a kind this version does not know.
    #[error("a data frame of unknown kind {0}")]
    UnknownDataKind(u8),
    /// A name that is no plain path component.
    #[error(
        "the name {0:?} is not allowed: a name must not be empty, '.', '..' or hold '/' or NUL"
    )]
    BadName(String),
    /// A name that no congestion control can have.
    #[error(
        "{0:?} is no name of a congestion control: it has 1 to {max} of a-z, 0-9, '-' and '_'",
        max = crate::limits::CONGESTION_BYTES_MAX
    )]
    BadCongestion(String),
    /// A block layout outside the limits.
    #[error("a file of {size} bytes in blocks of {block_bytes} is not allowed")]
    BadLayout {
        /// File size in bytes.
        size: u64,
        /// Block size in bytes.
        block_bytes: u32,
    },
    /// A block that is no block of its file: not aligned, past the end, or of the wrong length.
    #[error("no block at offset {offset} of {len} bytes in a file of {size} bytes")]
    BadBlock {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
        /// File size in bytes.
        size: u64,
    },
    /// A run of blocks outside its file.
    #[error("blocks {first} + {count} do not fit a file of {blocks} blocks")]
    BadRun {
        /// First block.
        first: u64,
        /// Number of blocks.
        count: u64,
        /// Blocks of the file.
        blocks: u64,
    },
    /// A message that does not belong here in the session.
    #[error("an unexpected message: {0}")]
    Unexpected(&'static str),
    /// A file number that was never announced, or announced twice.
    #[error("file number {0} is unknown or used twice")]
    BadFileId(u64),
    /// A block that was already received and verified.
    #[error("block {index} of file number {file} came twice")]
    DuplicateBlock {
        /// File number.
        file: u64,
        /// Block number.
        index: u64,
    },
}
