//! The journal of a partly received file: which blocks are verified and written, so that a resume
//! re-reads nothing but this, and re-sends only what is missing.
//!
//! A header names the source's version; then fixed-size records are appended, one per block, each
//! with its own check value. A torn tail (the power went while a record was written) is cut off.
//!
//! What survives what: after a `kill -9` the kernel still holds every write, so every record is as
//! good as its data. After a power loss, data may be missing behind a record that did reach the
//! disk. The header therefore carries the boot's identity: under another boot only records
//! that a *barrier* covers (written after their data was flushed) are believed outright; blocks of
//! other records are read once and compared with the hash in their record. Nothing is sent again
//! that is really there. This module does no I/O: see the engine for the order of writes.

use crate::blocks::{BlockSet, Layout, Run};
use crate::hash::BlockHash;
use crate::wire::WireError;
use crate::wire::control::Entry;

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 64;
/// Length of a record in bytes.
pub const RECORD_BYTES: usize = 48;

const MAGIC: [u8; 8] = *b"BKFLJRN1";
const KIND_BLOCK: u8 = 1;
const KIND_HOLES: u8 = 2;
const KIND_BARRIER: u8 = 3;
const KIND_COPIED: u8 = 4;

/// Stands for the identity of a boot that the host does not tell.
const UNKNOWN_BOOT: [u8; 16] = [0; 16];

/// What the journal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// How the file is cut.
    pub layout: Layout,
    /// Modification time of the source, seconds since 1970.
    pub mtime_secs: i64,
    /// Modification time of the source, nanoseconds of the second.
    pub mtime_nanos: u32,
    /// The source's version; see [`Entry::version`].
    pub version: u64,
    /// Identity of the boot under which the records were written.
    pub boot: [u8; 16],
}

impl Header {
    /// A header for a file about to be received.
    #[must_use]
    pub fn for_entry(entry: &Entry, layout: Layout, boot: [u8; 16]) -> Self {
        Self {
            layout,
            mtime_secs: entry.mtime_secs,
            mtime_nanos: entry.mtime_nanos,
            version: entry.version,
            boot,
        }
    }

    /// Whether the journal is about this very version of the source, cut the same way.
    #[must_use]
    pub fn is_about(&self, entry: &Entry) -> bool {
        self.layout.size() == entry.size
            && self.layout.block_bytes() == entry.block_bytes
            && (self.mtime_secs, self.mtime_nanos) == (entry.mtime_secs, entry.mtime_nanos)
            && self.version == entry.version
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..16].copy_from_slice(&self.layout.size().to_be_bytes());
        out[16..24].copy_from_slice(&self.mtime_secs.to_be_bytes());
        out[24..28].copy_from_slice(&self.mtime_nanos.to_be_bytes());
        out[28..32].copy_from_slice(&self.layout.block_bytes().to_be_bytes());
        out[32..40].copy_from_slice(&self.version.to_be_bytes());
        out[40..56].copy_from_slice(&self.boot);
        let check: [u8; 8] = check_of(&out[..56]);
        out[56..64].copy_from_slice(&check);
        out
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`WireError::BadHeader`] for damaged or foreign bytes, [`WireError::BadLayout`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        if bytes[0..8] != MAGIC || bytes[56..64] != check_of::<8>(&bytes[..56]) {
            return Err(WireError::BadHeader);
        }
        let layout =
            Layout::new(u64::from_be_bytes(at(bytes, 8)), u32::from_be_bytes(at(bytes, 28)))?;
        Ok(Self {
            layout,
            mtime_secs: i64::from_be_bytes(at(bytes, 16)),
            mtime_nanos: u32::from_be_bytes(at(bytes, 24)),
            version: u64::from_be_bytes(at(bytes, 32)),
            boot: at(bytes, 40),
        })
    }
}

/// One appended line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A block is verified and written.
    Block {
        /// Block number.
        index: u64,
        /// Its hash.
        hash: BlockHash,
    },
    /// Blocks are holes in the source: nothing to write.
    Holes {
        /// Which.
        run: Run,
    },
    /// A block was copied by the kernel within this host, and nobody hashed it: after a power loss
    /// it counts for nothing unless a barrier covers it.
    Copied {
        /// Block number.
        index: u64,
    },
    /// The data of the first records has been flushed to the disk. Others may have been appended
    /// while the flush went on.
    Barrier {
        /// How many records, from the first.
        covers: u64,
    },
}

impl Record {
    /// Encodes the record.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let (kind, index, hash) = match *self {
            Self::Block { index, hash } => (KIND_BLOCK, index, hash.0),
            Self::Holes { run } => (KIND_HOLES, run.first, counted(run.count)),
            Self::Copied { index } => (KIND_COPIED, index, [0; 32]),
            Self::Barrier { covers } => (KIND_BARRIER, covers, [0; 32]),
        };
        let mut out = [0; RECORD_BYTES];
        out[0..8].copy_from_slice(&index.to_be_bytes());
        out[8] = kind;
        out[12..44].copy_from_slice(&hash);
        let check: [u8; 4] = check_of(&out[..44]);
        out[44..48].copy_from_slice(&check);
        out
    }

    /// Decodes a record; `None` for damaged bytes or a kind of the future.
    #[must_use]
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        if bytes[44..48] != check_of::<4>(&bytes[..44]) {
            return None;
        }
        let index = u64::from_be_bytes(at(bytes, 0));
        match bytes[8] {
            KIND_BLOCK => Some(Self::Block { index, hash: BlockHash(at(bytes, 12)) }),
            KIND_HOLES => {
                let count = u64::from_be_bytes(at(bytes, 12));
                Some(Self::Holes { run: Run { first: index, count } })
            }
            KIND_COPIED => Some(Self::Copied { index }),
            KIND_BARRIER => Some(Self::Barrier { covers: index }),
            _ => None,
        }
    }
}

/// Blocks of a file that are here from an earlier session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Here {
    /// Those with content: number and hash. Kernel copies have no hash.
    pub blocks: Vec<(u64, Option<BlockHash>)>,
    /// Those that are holes.
    pub holes: Vec<Run>,
}

impl Here {
    /// Their numbers, in a file of `blocks` blocks; others are left out.
    #[must_use]
    pub fn set(&self, blocks: u64) -> BlockSet {
        let mut set = BlockSet::new(blocks);
        for (index, _) in &self.blocks {
            set.insert(*index);
        }
        for run in &self.holes {
            // One that reaches past the end is none of this file.
            let _ = set.insert_run(*run);
        }
        set
    }
}

/// A journal read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// What it is about.
    pub header: Header,
    /// Blocks to believe without another look.
    pub trusted: Here,
    /// Blocks to read once and compare with their hash first.
    pub doubtful: Vec<(u64, BlockHash)>,
    /// Length of the undamaged part in bytes: where to append.
    pub valid_bytes: u64,
}

/// Reads a journal back, under the boot `boot`. An unknown boot (all zeros) is another one each
/// time.
///
/// # Errors
/// [`WireError::Truncated`] or [`WireError::BadHeader`] when even the header is damaged: then there
/// is no journal.
pub fn replay(bytes: &[u8], boot: &[u8; 16]) -> Result<Replay, WireError> {
    let (header, mut rest) =
        bytes.split_first_chunk::<HEADER_BYTES>().ok_or(WireError::Truncated("a journal"))?;
    let header = Header::decode(header)?;
    let mut records = Vec::new();
    while let Some((bytes, after)) = rest.split_first_chunk::<RECORD_BYTES>() {
        let Some(record) = Record::decode(bytes) else { break };
        records.push(record);
        rest = after;
    }
    let believed = if header.boot == *boot && *boot != UNKNOWN_BOOT {
        records.len()
    } else {
        let covered = records.iter().enumerate().map(|(at, record)| match *record {
            Record::Barrier { covers } => covers.min(at as u64) as usize,
            _ => 0,
        });
        covered.max().unwrap_or(0)
    };
    let mut replay = Replay {
        header,
        trusted: Here::default(),
        doubtful: Vec::new(),
        valid_bytes: (HEADER_BYTES + records.len() * RECORD_BYTES) as u64,
    };
    let blocks = header.layout.count();
    for (at, record) in records.iter().enumerate() {
        match *record {
            Record::Block { index, hash } if index < blocks && at < believed => {
                replay.trusted.blocks.push((index, Some(hash)));
            }
            Record::Block { index, hash } if index < blocks => replay.doubtful.push((index, hash)),
            Record::Copied { index } if index < blocks && at < believed => {
                replay.trusted.blocks.push((index, None));
            }
            // A hole needs no data on the disk.
            Record::Holes { run } if run.within(blocks).is_ok() => replay.trusted.holes.push(run),
            _ => {}
        }
    }
    Ok(replay)
}

/// A count in the place of a hash.
fn counted(count: u64) -> [u8; 32] {
    let mut out = [0; 32];
    out[..8].copy_from_slice(&count.to_be_bytes());
    out
}

fn check_of<const N: usize>(bytes: &[u8]) -> [u8; N] {
    at(blake3::hash(bytes).as_bytes(), 0)
}

fn at<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[from..from + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BLOCK_BYTES_MIN;
    use proptest::prelude::*;

    const BOOT: [u8; 16] = [1; 16];
    const OTHER_BOOT: [u8; 16] = [2; 16];

    fn header() -> Header {
        let layout = Layout::new(100 * u64::from(BLOCK_BYTES_MIN), BLOCK_BYTES_MIN).unwrap();
        Header { layout, mtime_secs: -1, mtime_nanos: 5, version: 77, boot: BOOT }
    }

    fn journal(records: &[Record]) -> Vec<u8> {
        let mut bytes = header().encode().to_vec();
        for record in records {
            bytes.extend_from_slice(&record.encode());
        }
        bytes
    }

    const HOLES: Record = Record::Holes { run: Run { first: 5, count: 3 } };

    fn block(index: u64) -> Record {
        Record::Block { index, hash: BlockHash([index as u8; 32]) }
    }

    #[test]
    fn under_the_same_boot_every_record_is_believed() {
        let replay = replay(&journal(&[block(3), HOLES, block(9)]), &BOOT);
        let replay = replay.unwrap();
        assert_eq!(replay.header, header());
        let indices: Vec<u64> = replay.trusted.blocks.iter().map(|(i, _)| *i).collect();
        assert_eq!(indices, [3, 9]);
        assert_eq!(replay.trusted.holes, [Run { first: 5, count: 3 }]);
        assert!(replay.doubtful.is_empty());
    }

    #[test]
    fn under_another_boot_blocks_after_the_last_barrier_are_doubted() {
        let bytes = journal(&[block(1), block(2), Record::Barrier { covers: 1 }, HOLES]);
        let replay = replay(&bytes, &OTHER_BOOT).unwrap();
        let trusted: Vec<u64> = replay.trusted.blocks.iter().map(|(i, _)| *i).collect();
        assert_eq!((trusted, replay.trusted.holes.len()), (vec![1], 1));
        assert_eq!(replay.doubtful, [(2, BlockHash([2; 32]))]);
    }

    #[test]
    fn an_unknown_boot_is_never_taken_for_the_same() {
        let unknown = Header { boot: [0; 16], ..header() };
        let mut bytes = unknown.encode().to_vec();
        bytes.extend_from_slice(&block(1).encode());
        let replay = replay(&bytes, &[0; 16]).unwrap();
        assert_eq!((replay.trusted.blocks.len(), replay.doubtful.len()), (0, 1));
    }

    #[test]
    fn an_unhashed_copy_is_believed_only_under_its_boot_or_behind_a_barrier() {
        let copied = |index| Record::Copied { index };
        let bytes = journal(&[copied(1), Record::Barrier { covers: 1 }, copied(2)]);
        let indices = |boot| -> Vec<u64> {
            replay(&bytes, boot).unwrap().trusted.blocks.iter().map(|(i, _)| *i).collect()
        };
        assert_eq!(indices(&BOOT), [1, 2]);
        assert_eq!(indices(&OTHER_BOOT), [1]);
    }

    #[test]
    fn a_damaged_header_is_no_journal() {
        let mut bytes = journal(&[block(1)]);
        bytes[20] ^= 1;
        assert_eq!(replay(&bytes, &BOOT), Err(WireError::BadHeader));
        assert!(replay(&bytes[..30], &BOOT).is_err());
    }

    #[test]
    fn records_past_the_end_of_the_file_are_ignored() {
        let past = |first, count| Record::Holes { run: Run { first, count } };
        let records = [block(99), block(100), past(99, 2), past(7, 0), past(u64::MAX, 2)];
        let replay = replay(&journal(&records), &BOOT).unwrap();
        assert_eq!((replay.trusted.blocks.len(), replay.trusted.holes.len()), (1, 0));
    }

    proptest! {
        #[test]
        fn a_journal_cut_or_damaged_anywhere_keeps_exactly_the_records_before(
            count in 0u64..20, cut in 0usize..1100, flip: bool,
        ) {
            let mut bytes = journal(&(0..count).map(block).collect::<Vec<_>>());
            let at = HEADER_BYTES + cut % (bytes.len() - HEADER_BYTES + 1);
            if flip && at < bytes.len() {
                bytes[at] ^= 0x40;
            } else {
                bytes.truncate(at);
            }
            let whole = (at - HEADER_BYTES) / RECORD_BYTES;
            let replay = replay(&bytes, &BOOT).unwrap();
            prop_assert_eq!(replay.trusted.blocks.len(), whole);
            prop_assert_eq!(replay.valid_bytes as usize, HEADER_BYTES + whole * RECORD_BYTES);
        }
    }
}
