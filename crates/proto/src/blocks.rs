//! Block arithmetic: how a file is cut, and sets of block numbers. Knows nothing of files on disk.

use crate::limits::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, FILE_BLOCKS_MAX, FILE_BYTES_MAX};
use crate::wire::WireError;
use std::collections::BTreeMap;
use std::ops::Range;

/// A file is cut into at most about this many blocks before blocks grow beyond the minimum: enough
/// to share out evenly among streams, few enough to keep journals and acknowledgements small.
/// (ours)
const BLOCKS_AIMED_AT: u64 = 1024;

/// How a file of a given size is cut into blocks. Blocks are a power of two in size, so that their
/// BLAKE3 chaining values merge to the file's true root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    size: u64,
    block_bytes: u32,
}

impl Layout {
    /// The layout that a sender picks for a file of `size` bytes.
    #[must_use]
    pub fn for_size(size: u64) -> Self {
        let aimed = (size / BLOCKS_AIMED_AT)
            .clamp(u64::from(BLOCK_BYTES_MIN), u64::from(BLOCK_BYTES_MAX))
            .next_power_of_two();
        // The clamp keeps it within u32.
        Self { size, block_bytes: aimed as u32 }
    }

    /// One whose blocks have so many bytes, where they may, and a file of that size may have so
    /// many of them; else the one that a sender picks.
    #[must_use]
    pub fn in_blocks_of(size: u64, block_bytes: u64) -> Self {
        let chosen = u32::try_from(block_bytes).ok().and_then(|bytes| Self::new(size, bytes).ok());
        chosen.unwrap_or_else(|| Self::for_size(size))
    }

    /// A layout announced by a peer or read from a journal.
    ///
    /// # Errors
    /// [`WireError::BadLayout`] when the block size is no power of two within the limits, or the
    /// file is larger than a file can be, or has more blocks than are allowed.
    pub fn new(size: u64, block_bytes: u32) -> Result<Self, WireError> {
        let fits = (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes);
        if !fits || !block_bytes.is_power_of_two() || size > FILE_BYTES_MAX {
            return Err(WireError::BadLayout { size, block_bytes });
        }
        let layout = Self { size, block_bytes };
        if layout.count() > FILE_BLOCKS_MAX {
            return Err(WireError::BadLayout { size, block_bytes });
        }
        Ok(layout)
    }

    /// Size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Size of every block but the last, in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Number of blocks. An empty file has none.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.size.div_ceil(u64::from(self.block_bytes))
    }

    /// The bytes of block `index`; `None` past the end.
    #[must_use]
    pub fn range(&self, index: u64) -> Option<Range<u64>> {
        let start = index.checked_mul(u64::from(self.block_bytes))?;
        if start >= self.size {
            return None;
        }
        Some(start..self.size.min(start + u64::from(self.block_bytes)))
    }

    /// Length of block `index` in bytes; zero past the end.
    #[must_use]
    pub fn len_of(&self, index: u64) -> u64 {
        self.range(index).map_or(0, |r| r.end - r.start)
    }

    /// The bytes of a run of blocks; what is past the end counts nothing.
    #[must_use]
    pub fn range_of(&self, run: Run) -> Range<u64> {
        let at = |index: u64| index.saturating_mul(u64::from(self.block_bytes)).min(self.size);
        at(run.first)..at(run.first.saturating_add(run.count))
    }

    /// The block that is exactly `[offset, offset + len)`.
    ///
    /// # Errors
    /// [`WireError::BadBlock`] when no block of this file has these bounds: not aligned, past the
    /// end, too long or too short.
    pub fn index_of(&self, offset: u64, len: u32) -> Result<u64, WireError> {
        let index = offset / u64::from(self.block_bytes);
        match self.range(index) {
            Some(range) if range.start == offset && range.end - range.start == u64::from(len) => {
                Ok(index)
            }
            _ => Err(WireError::BadBlock { offset, len, size: self.size }),
        }
    }
}

/// A set of block numbers `0..len`, as runs: what it costs depends on what is put in, not on `len`,
/// which is a peer's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSet {
    /// First block of each run, and the block behind its last. Runs do not touch.
    runs: BTreeMap<u64, u64>,
    len: u64,
    count: u64,
}

impl BlockSet {
    /// An empty set over blocks `0..len`.
    #[must_use]
    pub fn new(len: u64) -> Self {
        Self { runs: BTreeMap::new(), len, count: 0 }
    }

    /// Number of blocks that the set may hold.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// How many blocks are in the set.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether no block is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether every block is in the set.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count == self.len
    }

    /// The run that block `index` is in.
    fn run_of(&self, index: u64) -> Option<Range<u64>> {
        let (&first, &end) = self.runs.range(..=index).next_back()?;
        (index < end).then_some(first..end)
    }

    /// Whether block `index` is in the set.
    #[must_use]
    pub fn contains(&self, index: u64) -> bool {
        self.run_of(index).is_some()
    }

    /// Puts a block in; true when it was not there. A number past the end changes nothing.
    pub fn insert(&mut self, index: u64) -> bool {
        if index >= self.len || self.contains(index) {
            return false;
        }
        self.insert_range(index..index + 1);
        true
    }

    /// Takes a block out; true when it was there.
    pub fn remove(&mut self, index: u64) -> bool {
        let Some(run) = self.run_of(index) else { return false };
        self.runs.remove(&run.start);
        if run.start < index {
            self.runs.insert(run.start, index);
        }
        if index + 1 < run.end {
            self.runs.insert(index + 1, run.end);
        }
        self.count -= 1;
        true
    }

    /// The first block at or after `from` that is not in the set.
    #[must_use]
    pub fn next_missing(&self, from: u64) -> Option<u64> {
        let missing = self.run_of(from).map_or(from, |run| run.end);
        (missing < self.len).then_some(missing)
    }

    /// The set as runs of consecutive blocks, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().map(|(&first, &end)| Run { first, count: end - first })
    }

    /// Puts a run of blocks in. Returns what of it was not there.
    ///
    /// # Errors
    /// [`WireError::BadRun`] when the run is empty or reaches past the end.
    pub fn insert_run(&mut self, run: Run) -> Result<Vec<Run>, WireError> {
        let range = run.within(self.len)?;
        let mut fresh = Vec::new();
        let mut at = range.start;
        while let Some(first) = self.next_missing(at).filter(|&first| first < range.end) {
            let next = self.runs.range(first..).next().map_or(range.end, |(&next, _)| next);
            at = next.min(range.end);
            fresh.push(Run { first, count: at - first });
        }
        self.insert_range(range);
        Ok(fresh)
    }

    fn insert_range(&mut self, range: Range<u64>) {
        let (mut first, mut end) = (range.start, range.end);
        // Whatever overlaps or touches becomes one with it. Runs behind it start at `end` at most.
        while let Some((&start, &stop)) = self.runs.range(..=end).next_back() {
            if stop < first {
                break;
            }
            first = first.min(start);
            end = end.max(stop);
            self.runs.remove(&start);
            self.count -= stop - start;
        }
        self.runs.insert(first, end);
        self.count += end - first;
    }
}

/// Consecutive blocks `first .. first + count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, minicbor::Encode, minicbor::Decode)]
pub struct Run {
    /// Number of the first block.
    #[n(0)]
    pub first: u64,
    /// How many blocks; at least 1.
    #[n(1)]
    pub count: u64,
}

impl Run {
    /// The numbers of the blocks, in a file of `blocks` blocks.
    ///
    /// # Errors
    /// [`WireError::BadRun`] when the run is empty or reaches past the end.
    pub fn within(&self, blocks: u64) -> Result<Range<u64>, WireError> {
        match self.first.checked_add(self.count) {
            Some(end) if end <= blocks && self.count > 0 => Ok(self.first..end),
            _ => Err(WireError::BadRun { first: self.first, count: self.count, blocks }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn blocks_grow_with_the_file_between_1_and_16_mib() {
        let cases = [
            (0, 1 << 20),
            (1, 1 << 20),
            (1 << 30, 1 << 20),
            (4 << 30, 4 << 20),
            (5 << 30, 8 << 20),
            (1 << 40, 16 << 20),
            (FILE_BYTES_MAX, 16 << 20),
        ];
        for (size, block) in cases {
            assert_eq!(Layout::for_size(size).block_bytes(), block, "size {size}");
        }
    }

    #[test]
    fn a_layout_from_a_peer_must_be_a_power_of_two_within_the_limits() {
        for bad in [0, 1, 1 << 19, (1 << 20) + 1, 3 << 20, 1 << 25] {
            assert!(Layout::new(1, bad).is_err(), "{bad}");
        }
        assert!(Layout::new(FILE_BYTES_MAX + 1, 1 << 24).is_err());
    }

    #[test]
    fn a_layout_from_a_peer_has_no_more_blocks_than_are_allowed() {
        for block in [BLOCK_BYTES_MIN, BLOCK_BYTES_MAX] {
            let most = FILE_BLOCKS_MAX * u64::from(block);
            assert!(Layout::new(most, block).is_ok());
            assert!(Layout::new(most + 1, block).is_err());
            assert!(Layout::new(FILE_BYTES_MAX, block).is_err());
        }
    }

    proptest! {
        #[test]
        fn blocks_cover_the_file_exactly_once(size in 0u64..(1 << 36)) {
            let layout = Layout::for_size(size);
            let mut at = 0;
            for index in 0..layout.count() {
                let range = layout.range(index).unwrap();
                prop_assert_eq!(range.start, at);
                let len = (range.end - range.start) as u32;
                prop_assert_eq!(layout.index_of(range.start, len).unwrap(), index);
                at = range.end;
            }
            prop_assert_eq!(at, size);
            prop_assert!(layout.range(layout.count()).is_none());
        }

        #[test]
        fn only_exact_blocks_have_an_index(
            size in 1u64..(8 << 20), offset in 0u64..(16 << 20), len in 0u32..(2 << 20),
        ) {
            let layout = Layout::for_size(size);
            if let Ok(index) = layout.index_of(offset, len) {
                prop_assert_eq!(layout.range(index), Some(offset..offset + u64::from(len)));
            }
        }

        #[test]
        fn a_block_set_behaves_like_a_set(len in 1u64..300, ops in prop::collection::vec(
            (any::<bool>(), 0u64..310), 0..200,
        )) {
            let mut set = BlockSet::new(len);
            let mut model = BTreeSet::new();
            for (insert, index) in ops {
                if insert {
                    prop_assert_eq!(set.insert(index), index < len && model.insert(index));
                } else {
                    prop_assert_eq!(set.remove(index), model.remove(&index));
                }
            }
            prop_assert_eq!(set.count(), model.len() as u64);
            let from_runs: BTreeSet<u64> =
                set.runs().flat_map(|r| r.first..r.first + r.count).collect();
            prop_assert_eq!(&from_runs, &model);
            for from in 0..len {
                let expected = (from..len).find(|i| !model.contains(i));
                prop_assert_eq!(set.next_missing(from), expected);
            }
            let mut rebuilt = BlockSet::new(len);
            for run in set.runs() {
                prop_assert_eq!(rebuilt.insert_run(run).unwrap(), [run]);
            }
            prop_assert_eq!(rebuilt, set);
        }

        #[test]
        fn a_run_put_in_tells_what_was_missing(
            there in prop::collection::btree_set(0u64..60, 0..40),
            first in 0u64..60,
            count in 1u64..30,
        ) {
            let mut set = BlockSet::new(60);
            for &index in &there {
                set.insert(index);
            }
            let run = Run { first, count: count.min(60 - first) };
            let expected: Vec<u64> =
                (first..first + run.count).filter(|index| !there.contains(index)).collect();
            let fresh = set.insert_run(run).unwrap();
            let fresh: Vec<u64> = fresh.iter().flat_map(|r| r.first..r.first + r.count).collect();
            prop_assert_eq!(&fresh, &expected);
            prop_assert_eq!(set.count(), (there.len() + expected.len()) as u64);
            prop_assert!(set.insert_run(run).unwrap().is_empty());
        }

        #[test]
        fn the_bytes_of_a_run_are_those_of_its_blocks(
            size in 0u64..(40 << 20), first in 0u64..50, count in 0u64..50,
        ) {
            let layout = Layout::new(size, BLOCK_BYTES_MIN).unwrap();
            let expected: u64 = (first..first + count).map(|index| layout.len_of(index)).sum();
            let range = layout.range_of(Run { first, count });
            prop_assert_eq!(range.end - range.start, expected);
        }

        #[test]
        fn a_run_past_the_end_is_refused(len in 1u64..100, first: u64, count: u64) {
            let mut set = BlockSet::new(len);
            let fits = count > 0 && first.checked_add(count).is_some_and(|end| end <= len);
            prop_assert_eq!(set.insert_run(Run { first, count }).is_ok(), fits);
        }
    }
}
