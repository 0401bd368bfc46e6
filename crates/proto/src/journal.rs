//! Journal of a part file: the verified blocks, so that a resume sends only the missing ones.
//!
//! A header with the version of the source is followed by fixed-size records, one per block, each
//! with its own check value. A torn record at the end is cut off.
//!
//! After a `kill -9` the kernel still holds all writes, and every record is valid. After a power
//! loss a record may be on the disk without its data. The header therefore holds the boot ID: under
//! another boot only records covered by a *barrier* (appended after a flush of the data) are
//! durable. The engine is responsible for the order of writes; [`crate::part`] has the use of the
//! recorded blocks.

use crate::blocks::{BlockSet, Layout, Run};
use crate::error::WireError;
use crate::hash::BlockHash;
use crate::wire::control::Entry;
use std::collections::BTreeMap;

/// Size of the header in bytes.
pub const HEADER_BYTES: usize = 64;
/// Size of a record in bytes.
pub const RECORD_BYTES: usize = 48;

const MAGIC: [u8; 8] = *b"BKFLJRN1";
const KIND_BLOCK: u8 = 1;
const KIND_HOLES: u8 = 2;
const KIND_BARRIER: u8 = 3;
const KIND_COPIED: u8 = 4;
const KIND_DAMAGED: u8 = 5;
const KIND_CLOSED: u8 = 6;

/// Boot ID of a host that does not provide one. Never equal to another boot.
const UNKNOWN_BOOT: [u8; 16] = [0; 16];

/// Header of a journal: the version of the source, and its layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Block layout of the file.
    pub layout: Layout,
    /// Modification time of the source, seconds since 1970.
    pub mtime_secs: i64,
    /// Modification time of the source, nanoseconds of the second.
    pub mtime_nanos: u32,
    /// Version of the source; see [`Entry::version`].
    pub version: u64,
    /// Boot ID under which the records were written.
    pub boot: [u8; 16],
}

impl Header {
    /// Creates the header of a new part file.
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

    /// True if the journal belongs to this version of the source, with the same layout.
    #[must_use]
    pub fn matches_entry(&self, entry: &Entry) -> bool {
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

/// Record of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// Verified and written block.
    Block {
        /// Block number.
        index: u64,
        /// Hash of the block.
        hash: BlockHash,
    },
    /// Holes of the source, which need no data.
    Holes {
        /// Run of blocks.
        run: Run,
    },
    /// Block copied within the host, without a hash. Lost after a power loss unless a barrier
    /// covers it.
    Copied {
        /// Block number.
        index: u64,
    },
    /// Block that was found damaged: its earlier records are void.
    Damaged {
        /// Block number.
        index: u64,
    },
    /// Barrier: the data of the first records is flushed to the disk. Records may have been
    /// appended during the flush.
    Barrier {
        /// Number of covered records, from the first.
        covers: u64,
    },
    /// Orderly end of a session, after which the part file changes no more. Counts only as the last
    /// record.
    Closed {
        /// Change time of the part file then.
        part_changed: ChangeTime,
    },
}

/// Change time of a file: seconds since 1970 and nanoseconds. Programs cannot set it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeTime {
    /// Whole seconds, rounded down.
    pub secs: i64,
    /// Nanoseconds of the second.
    pub nanos: u32,
}

impl Record {
    /// Encodes the record.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let (kind, index, hash) = match *self {
            Self::Block { index, hash } => (KIND_BLOCK, index, hash.0),
            Self::Holes { run } => (KIND_HOLES, run.first, counted(run.count)),
            Self::Copied { index } => (KIND_COPIED, index, [0; 32]),
            Self::Damaged { index } => (KIND_DAMAGED, index, [0; 32]),
            Self::Barrier { covers } => (KIND_BARRIER, covers, [0; 32]),
            Self::Closed { part_changed: ChangeTime { secs, nanos } } => {
                (KIND_CLOSED, secs.cast_unsigned(), counted(nanos.into()))
            }
        };
        let mut out = [0; RECORD_BYTES];
        out[0..8].copy_from_slice(&index.to_be_bytes());
        out[8] = kind;
        out[12..44].copy_from_slice(&hash);
        let check: [u8; 4] = check_of(&out[..44]);
        out[44..48].copy_from_slice(&check);
        out
    }

    /// Decodes a record; `None` for damaged bytes and unknown kinds.
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
            KIND_DAMAGED => Some(Self::Damaged { index }),
            KIND_BARRIER => Some(Self::Barrier { covers: index }),
            KIND_CLOSED => {
                let nanos = u32::try_from(u64::from_be_bytes(at(bytes, 12))).ok()?;
                Some(Self::Closed { part_changed: ChangeTime { secs: index.cast_signed(), nanos } })
            }
            _ => None,
        }
    }
}

/// Block in the journal of an earlier session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedBlock {
    /// Block number.
    pub index: u64,
    /// Hash, unless it was copied within the host.
    pub hash: Option<BlockHash>,
    /// True if its data cannot have been lost with the power since.
    pub is_durable: bool,
}

/// Blocks in the journal of an earlier session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedBlocks {
    /// Blocks with content, in ascending order.
    pub blocks: Vec<RecordedBlock>,
    /// Holes.
    pub holes: Vec<Run>,
}

impl RecordedBlocks {
    /// Returns the numbers of the blocks with content, below `count`.
    #[must_use]
    pub fn block_set(&self, count: u64) -> BlockSet {
        let mut set = BlockSet::new(count);
        for block in &self.blocks {
            set.insert(block.index);
        }
        set
    }

    /// Returns the numbers of all blocks, holes too, below `count`.
    #[must_use]
    pub fn set(&self, count: u64) -> BlockSet {
        let mut set = self.block_set(count);
        for run in &self.holes {
            // Ignore a run past the end of the file.
            let _ = set.insert_run(*run);
        }
        set
    }
}

/// Contents of a journal after [`replay`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Header of the journal.
    pub header: Header,
    /// Blocks that it records.
    pub recorded: RecordedBlocks,
    /// Change time of the part file at the session's orderly end, if it had one.
    pub closed: Option<ChangeTime>,
    /// Length in bytes of the undamaged records without a final `Closed`. New records go there.
    pub valid_bytes: u64,
}

/// Reads a journal under the boot ID `boot`. An unknown boot ID (all zeros) never matches.
///
/// # Errors
/// [`WireError::Truncated`] or [`WireError::BadHeader`] if the header is damaged.
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
    let trusted = if header.boot == *boot && *boot != UNKNOWN_BOOT {
        records.len()
    } else {
        let covered = records.iter().enumerate().map(|(at, record)| match *record {
            Record::Barrier { covers } => covers.min(at as u64) as usize,
            _ => 0,
        });
        covered.max().unwrap_or(0)
    };
    let closed = match records.last() {
        Some(&Record::Closed { part_changed }) => Some(part_changed),
        _ => None,
    };
    // The next record overwrites a final `Closed`.
    let kept = records.len() - usize::from(closed.is_some());
    let valid_bytes = (HEADER_BYTES + kept * RECORD_BYTES) as u64;
    let count = header.layout.count();
    let mut blocks = BTreeMap::new();
    let mut holes = Vec::new();
    for (at, record) in records.iter().enumerate() {
        match *record {
            Record::Block { index, hash } if index < count => {
                blocks.insert(index, (Some(hash), at < trusted));
            }
            // Without a hash it cannot be checked.
            Record::Copied { index } if index < count && at < trusted => {
                blocks.insert(index, (None, true));
            }
            Record::Damaged { index } => drop(blocks.remove(&index)),
            // A hole needs no data on the disk.
            Record::Holes { run } if run.within(count).is_ok() => holes.push(run),
            _ => {}
        }
    }
    let recorded = |(index, (hash, is_durable))| RecordedBlock { index, hash, is_durable };
    let blocks = blocks.into_iter().map(recorded).collect();
    Ok(Replay { header, recorded: RecordedBlocks { blocks, holes }, closed, valid_bytes })
}

/// Returns a count in the hash field of a record.
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
    use crate::limits::MIN_BLOCK_BYTES;
    use proptest::prelude::*;

    const BOOT: [u8; 16] = [1; 16];
    const OTHER_BOOT: [u8; 16] = [2; 16];

    fn header() -> Header {
        let layout = Layout::new(100 * u64::from(MIN_BLOCK_BYTES), MIN_BLOCK_BYTES).unwrap();
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

    /// Returns the numbers of the recorded blocks: all, and those that are durable.
    fn recorded(bytes: &[u8], boot: &[u8; 16]) -> (Vec<u64>, Vec<u64>) {
        let blocks = replay(bytes, boot).unwrap().recorded.blocks;
        let all = blocks.iter().map(|block| block.index).collect();
        let durable = blocks.iter().filter(|block| block.is_durable);
        (all, durable.map(|block| block.index).collect())
    }

    #[test]
    fn replay_same_boot_trusts_every_record() {
        let bytes = journal(&[block(9), HOLES, block(3)]);
        let replay = replay(&bytes, &BOOT).unwrap();
        assert_eq!(replay.header, header());
        assert_eq!(replay.recorded.blocks[0].hash, Some(BlockHash([3; 32])));
        assert_eq!(replay.recorded.holes, [Run { first: 5, count: 3 }]);
        assert_eq!(recorded(&bytes, &BOOT), (vec![3, 9], vec![3, 9]));
    }

    #[test]
    fn replay_other_boot_suspects_blocks_after_the_barrier() {
        let bytes = journal(&[block(1), block(2), Record::Barrier { covers: 1 }, HOLES]);
        assert_eq!(recorded(&bytes, &OTHER_BOOT), (vec![1, 2], vec![1]));
        assert_eq!(replay(&bytes, &OTHER_BOOT).unwrap().recorded.holes.len(), 1);
    }

    #[test]
    fn replay_last_record_of_a_block_counts() {
        let again = Record::Block { index: 1, hash: BlockHash([9; 32]) };
        let damaged = Record::Damaged { index: 1 };
        let bytes = journal(&[block(1), block(2), damaged, Record::Damaged { index: 7 }]);
        assert_eq!(recorded(&bytes, &BOOT).0, [2]);
        let bytes = journal(&[block(1), damaged, again]);
        let blocks = replay(&bytes, &BOOT).unwrap().recorded.blocks;
        let hash = Some(BlockHash([9; 32]));
        assert_eq!(blocks, [RecordedBlock { index: 1, hash, is_durable: true }]);
    }

    #[test]
    fn replay_orderly_end_counts_as_last_record_only() {
        let part_changed = ChangeTime { secs: -5, nanos: 999_999_999 };
        let closed = Record::Closed { part_changed };
        let replayed = |records: &[Record]| replay(&journal(records), &BOOT).unwrap();
        let ended = replayed(&[block(1), closed]);
        assert_eq!((ended.recorded.blocks.len(), ended.closed), (1, Some(part_changed)));
        assert_eq!(ended.valid_bytes as usize, HEADER_BYTES + RECORD_BYTES);
        let continued = replayed(&[block(1), closed, block(2)]);
        assert_eq!((continued.recorded.blocks.len(), continued.closed), (2, None));
    }

    #[test]
    fn replay_unknown_boot_never_matches() {
        let unknown = Header { boot: [0; 16], ..header() };
        let mut bytes = unknown.encode().to_vec();
        bytes.extend_from_slice(&block(1).encode());
        assert_eq!(recorded(&bytes, &[0; 16]), (vec![1], vec![]));
    }

    #[test]
    fn replay_copied_block_needs_same_boot_or_barrier() {
        let copied = |index| Record::Copied { index };
        let bytes = journal(&[copied(1), Record::Barrier { covers: 1 }, copied(2)]);
        assert_eq!(recorded(&bytes, &BOOT).0, [1, 2]);
        assert_eq!(recorded(&bytes, &OTHER_BOOT).0, [1]);
    }

    #[test]
    fn replay_damaged_header_is_an_error() {
        let mut bytes = journal(&[block(1)]);
        bytes[20] ^= 1;
        assert_eq!(replay(&bytes, &BOOT), Err(WireError::BadHeader));
        assert!(replay(&bytes[..30], &BOOT).is_err());
    }

    #[test]
    fn replay_records_past_the_end_are_ignored() {
        let past = |first, count| Record::Holes { run: Run { first, count } };
        let records = [block(99), block(100), past(99, 2), past(7, 0), past(u64::MAX, 2)];
        let replay = replay(&journal(&records), &BOOT).unwrap();
        assert_eq!((replay.recorded.blocks.len(), replay.recorded.holes.len()), (1, 0));
    }

    proptest! {
        #[test]
        fn replay_keeps_exactly_the_records_before_the_damage(
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
            prop_assert_eq!(replay.recorded.blocks.len(), whole);
            prop_assert_eq!(replay.valid_bytes as usize, HEADER_BYTES + whole * RECORD_BYTES);
        }
    }
}
