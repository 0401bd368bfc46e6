//! Work that the sender's ledger assigns, and the next step after an event.

use crate::hash::FileHash;

/// Work for a data stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Send this block.
    Block {
        /// File number.
        file: u64,
        /// Block number.
        index: u64,
    },
    /// Send these files in one pack.
    Pack(Vec<u64>),
    /// Hash this file and compare, then call [`crate::send::SendLedger::on_compared`].
    Compare {
        /// File number.
        file: u64,
        /// Hash of the receiver's file.
        hash: FileHash,
    },
}

/// Next step after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Wake the streams: there is work.
    Work,
    /// Check that the source is unchanged, then send the file digest or abort. All blocks are at
    /// the receiver.
    SendDigest,
    /// Check that the source is unchanged, then record the early digest. All blocks are read.
    SendEarlyDigest,
    /// None: the file is completed.
    Completed,
    /// Give the file up: verification failed too often.
    GiveUp,
    /// None.
    Nothing,
}
