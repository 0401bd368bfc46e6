//! Block layout of files, and sets of block numbers.

use crate::error::WireError;
use crate::limits::{MAX_BLOCK_BYTES, MAX_FILE_BLOCKS, MAX_FILE_BYTES, MIN_BLOCK_BYTES};
use std::collections::BTreeMap;
use std::ops::Range;

/// Number of blocks above which blocks grow beyond the minimum size. (chosen: even distribution
/// over the streams, short journals and acknowledgements)
const TARGET_BLOCK_COUNT: u64 = 1024;

/// Division of a file into blocks. The block size is a power of two, so that the BLAKE3 chaining
/// values of the blocks merge to the hash of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    size: u64,
    block_bytes: u32,
}

impl Layout {
    /// Returns the default layout of a file of `size` bytes.
    #[must_use]
    pub fn for_size(size: u64) -> Self {
        let block_bytes = (size / TARGET_BLOCK_COUNT)
            .clamp(u64::from(MIN_BLOCK_BYTES), u64::from(MAX_BLOCK_BYTES))
            .next_power_of_two();
        // The clamp keeps it within u32.
        Self { size, block_bytes: block_bytes as u32 }
    }

    /// Returns a layout with the given block size. Uses the default one if that size is not
    /// allowed.
    #[must_use]
    pub fn with_block_bytes(size: u64, block_bytes: u64) -> Self {
        let layout = u32::try_from(block_bytes).ok().and_then(|bytes| Self::new(size, bytes).ok());
        layout.unwrap_or_else(|| Self::for_size(size))
    }

    /// Creates the layout that a peer announced or a journal holds.
    ///
    /// # Errors
    /// [`WireError::BadLayout`] if block size, file size or number of blocks is not allowed.
    pub fn new(size: u64, block_bytes: u32) -> Result<Self, WireError> {
        let fits = (MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&block_bytes);
        if !fits || !block_bytes.is_power_of_two() || size > MAX_FILE_BYTES {
            return Err(WireError::BadLayout { size, block_bytes });
        }
        let layout = Self { size, block_bytes };
        if layout.count() > MAX_FILE_BLOCKS {
            return Err(WireError::BadLayout { size, block_bytes });
        }
        Ok(layout)
    }

    /// Returns the file size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the size of all blocks but the last, in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Returns the number of blocks; 0 for an empty file.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.size.div_ceil(u64::from(self.block_bytes))
    }

    /// Returns the byte range of block `index`, or `None` past the end.
    #[must_use]
    pub fn range(&self, index: u64) -> Option<Range<u64>> {
        let start = index.checked_mul(u64::from(self.block_bytes))?;
        if start >= self.size {
            return None;
        }
        Some(start..self.size.min(start + u64::from(self.block_bytes)))
    }

    /// Returns the length of block `index` in bytes; 0 past the end.
    #[must_use]
    pub fn block_len(&self, index: u64) -> u64 {
        self.range(index).map_or(0, |r| r.end - r.start)
    }

    /// Returns the byte range of a run of blocks, clipped to the file.
    #[must_use]
    pub fn byte_range(&self, run: Run) -> Range<u64> {
        let at = |index: u64| index.saturating_mul(u64::from(self.block_bytes)).min(self.size);
        at(run.first)..at(run.first.saturating_add(run.count))
    }

    /// Returns the length of a run of blocks in bytes, clipped to the file.
    #[must_use]
    pub fn run_len(&self, run: Run) -> u64 {
        let range = self.byte_range(run);
        range.end - range.start
    }

    /// Returns the number of the block at exactly `[offset, offset + len)`.
    ///
    /// # Errors
    /// [`WireError::BadBlock`] for any range that is not a block of this file.
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

/// Set of block numbers `0..len`, stored as runs. Its memory depends on the content, not on `len`,
/// which comes from a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSet {
    /// First block of each run, and the block after its last. Adjacent runs are merged.
    runs: BTreeMap<u64, u64>,
    len: u64,
    count: u64,
}

impl BlockSet {
    /// Creates an empty set over blocks `0..len`.
    #[must_use]
    pub fn new(len: u64) -> Self {
        Self { runs: BTreeMap::new(), len, count: 0 }
    }

    /// Returns the upper bound of the block numbers.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of blocks in the set.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True if the set holds every block.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count == self.len
    }

    /// Returns the run that contains block `index`.
    fn run_containing(&self, index: u64) -> Option<Range<u64>> {
        let (&first, &end) = self.runs.range(..=index).next_back()?;
        (index < end).then_some(first..end)
    }

    /// True if block `index` is in the set.
    #[must_use]
    pub fn contains(&self, index: u64) -> bool {
        self.run_containing(index).is_some()
    }

    /// Inserts a block; true if it is new. A number past the end is ignored.
    pub fn insert(&mut self, index: u64) -> bool {
        if index >= self.len || self.contains(index) {
            return false;
        }
        self.insert_range(index..index + 1);
        true
    }

    /// Removes a block; true if it was in the set.
    pub fn remove(&mut self, index: u64) -> bool {
        let is_in_set = self.contains(index);
        if is_in_set {
            self.remove_range(index..index + 1);
        }
        is_in_set
    }

    /// Removes a range of blocks; its cost depends on the runs in the range, not on its length.
    pub fn remove_range(&mut self, range: Range<u64>) {
        while let Some((&start, &end)) = self.runs.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.runs.remove(&start);
            self.count -= end.min(range.end) - start.max(range.start);
            if range.end < end {
                self.runs.insert(range.end, end);
            }
            if start < range.start {
                self.runs.insert(start, range.start);
            }
        }
    }

    /// Returns the first block at or after `from` that is not in the set.
    #[must_use]
    pub fn next_missing(&self, from: u64) -> Option<u64> {
        let missing = self.run_containing(from).map_or(from, |run| run.end);
        (missing < self.len).then_some(missing)
    }

    /// Iterates over the runs of consecutive blocks, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().map(|(&first, &end)| Run { first, count: end - first })
    }

    /// Removes the first run of blocks.
    pub fn remove_first_run(&mut self) {
        if let Some((first, end)) = self.runs.pop_first() {
            self.count -= end - first;
        }
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Iterates over the parts of a range that are in the set, ascending.
    pub fn runs_within(&self, range: Range<u64>) -> impl Iterator<Item = Run> + '_ {
        let first = self.run_containing(range.start).map_or(range.start, |run| run.start);
        self.runs.range(first..range.end.max(first)).map(move |(&start, &end)| {
            let first = start.max(range.start);
            Run { first, count: end.min(range.end) - first }
        })
    }

    /// Inserts a run of blocks. Returns the parts of it that are new.
    ///
    /// # Errors
    /// [`WireError::BadRun`] if the run is empty or ends past the file.
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

    /// Inserts a range of blocks that lies within the set's bounds.
    pub(crate) fn insert_range(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut first, mut end) = (range.start, range.end);
        // Merge all runs that overlap or touch. The last of them starts at `end` at most.
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

/// Run of consecutive blocks `first .. first + count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, minicbor::Encode, minicbor::Decode)]
pub struct Run {
    /// Number of the first block.
    #[n(0)]
    pub first: u64,
    /// Number of blocks; at least 1.
    #[n(1)]
    pub count: u64,
}

impl Run {
    /// Returns the block numbers, in a file of `blocks` blocks.
    ///
    /// # Errors
    /// [`WireError::BadRun`] if the run is empty or ends past the file.
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
    fn layout_block_size_grows_from_1_to_16_mib() {
        let cases = [
            (0, 1 << 20),
            (1, 1 << 20),
            (1 << 30, 1 << 20),
            (4 << 30, 4 << 20),
            (5 << 30, 8 << 20),
            (1 << 40, 16 << 20),
            (MAX_FILE_BYTES, 16 << 20),
        ];
        for (size, block) in cases {
            assert_eq!(Layout::for_size(size).block_bytes(), block, "size {size}");
        }
    }

    #[test]
    fn layout_block_size_must_be_a_power_of_two() {
        for bad in [0, 1, 1 << 19, (1 << 20) + 1, 3 << 20, 1 << 25] {
            assert!(Layout::new(1, bad).is_err(), "{bad}");
        }
        assert!(Layout::new(MAX_FILE_BYTES + 1, 1 << 24).is_err());
    }

    #[test]
    fn layout_too_many_blocks_are_refused() {
        for block in [MIN_BLOCK_BYTES, MAX_BLOCK_BYTES] {
            let largest = MAX_FILE_BLOCKS * u64::from(block);
            assert!(Layout::new(largest, block).is_ok());
            assert!(Layout::new(largest + 1, block).is_err());
            assert!(Layout::new(MAX_FILE_BYTES, block).is_err());
        }
    }

    proptest! {
        #[test]
        fn layout_blocks_cover_the_file_exactly_once(size in 0u64..(1 << 36)) {
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
        fn layout_index_of_accepts_exact_blocks_only(
            size in 1u64..(8 << 20), offset in 0u64..(16 << 20), len in 0u32..(2 << 20),
        ) {
            let layout = Layout::for_size(size);
            if let Ok(index) = layout.index_of(offset, len) {
                prop_assert_eq!(layout.range(index), Some(offset..offset + u64::from(len)));
            }
        }

        #[test]
        fn block_set_agrees_with_a_btree_set(len in 1u64..300, ops in prop::collection::vec(
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
        fn block_set_insert_run_returns_the_new_parts(
            present in prop::collection::btree_set(0u64..60, 0..40),
            first in 0u64..60,
            count in 1u64..30,
        ) {
            let mut set = BlockSet::new(60);
            for &index in &present {
                set.insert(index);
            }
            let run = Run { first, count: count.min(60 - first) };
            let expected: Vec<u64> =
                (first..first + run.count).filter(|index| !present.contains(index)).collect();
            let fresh = set.insert_run(run).unwrap();
            let fresh: Vec<u64> = fresh.iter().flat_map(|r| r.first..r.first + r.count).collect();
            prop_assert_eq!(&fresh, &expected);
            prop_assert_eq!(set.count(), (present.len() + expected.len()) as u64);
            prop_assert!(set.insert_run(run).unwrap().is_empty());
        }

        #[test]
        fn block_set_ranges_agree_with_single_blocks(
            present in prop::collection::btree_set(0u64..60, 0..40),
            first in 0u64..60,
            count in 1u64..30,
        ) {
            let mut set = BlockSet::new(60);
            for &index in &present {
                set.insert(index);
            }
            let range = first..first + count;
            let within: Vec<u64> =
                set.runs_within(range.clone()).flat_map(|r| r.first..r.first + r.count).collect();
            let expected: Vec<u64> = present.range(range.clone()).copied().collect();
            prop_assert_eq!(within, expected);
            let mut one_by_one = set.clone();
            range.clone().for_each(|index| { one_by_one.remove(index); });
            set.remove_range(range);
            prop_assert_eq!(set, one_by_one);
        }

        #[test]
        fn layout_byte_range_is_the_sum_of_its_blocks(
            size in 0u64..(40 << 20), first in 0u64..50, count in 0u64..50,
        ) {
            let layout = Layout::new(size, MIN_BLOCK_BYTES).unwrap();
            let expected: u64 = (first..first + count).map(|index| layout.block_len(index)).sum();
            let range = layout.byte_range(Run { first, count });
            prop_assert_eq!(range.end - range.start, expected);
        }

        #[test]
        fn block_set_run_past_the_end_is_refused(len in 1u64..100, first: u64, count: u64) {
            let mut set = BlockSet::new(len);
            let fits = count > 0 && first.checked_add(count).is_some_and(|end| end <= len);
            prop_assert_eq!(set.insert_run(Run { first, count }).is_ok(), fits);
        }
    }
}
