//! Ledger of the receiver: outstanding files, and their claimed, verified and missing blocks.
//!
//! Violations by the sender are errors: a duplicate block, a block past the end, a block of a file
//! that was not wanted. Late data of a file that was given up is ignored. The ledger neither writes
//! nor hashes.

use crate::blocks::{BlockSet, Layout, Run};
use crate::error::WireError;
use crate::hash::{BlockHash, FileHash, merge};
use crate::limits::{HOLE_RUNS_PER_ENTRY, MAX_OUTSTANDING_FILES};
use crate::wire::control::{FileEnd, FileRuns};
use std::collections::{HashMap, HashSet};

/// Runs of files given up whose late data is ignored: data of earlier ones has arrived.
const MAX_GIVEN_UP_RUNS: usize = 2 * MAX_OUTSTANDING_FILES as usize;

/// Handling of an arriving block or packed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Accepted, with the block number.
    Accept(u64),
    /// Ignored: the file was given up. Read past the payload.
    Ignore,
}

/// Result of a file digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestOutcome {
    /// The file is complete. Holds its hash if all blocks have one.
    Complete(Option<FileHash>),
    /// The hashes of the two sides differ: the file must be failed.
    Mismatch,
    /// The digest is ignored: the file was given up or is complete, or a damaged block voids an
    /// early digest.
    Ignored,
    /// Blocks are missing: the early digest applies when all have arrived.
    Pending,
}

#[derive(Debug)]
enum File {
    Packed { size: u64, is_claimed: bool },
    Blocks(Box<Blocks>),
}

#[derive(Debug)]
struct Blocks {
    layout: Layout,
    verified: BlockSet,
    /// Left by an earlier session and not checked yet.
    unchecked: BlockSet,
    claimed: HashSet<u64>,
    hashes: HashMap<u64, BlockHash>,
    /// Pending early file digest, with the sender's hash of the file.
    early_digest: Option<Option<FileHash>>,
    /// A block arrived damaged, which voids early file digests.
    was_damaged: bool,
    /// The file is complete; later messages about it are ignored.
    is_closing: bool,
    /// End of a file that was announced without its size; `None` for any other file.
    end: Option<End>,
    /// Runs of holes that the sender reported.
    hole_runs: usize,
}

/// End of a file that was announced without its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Unknown,
    Known,
}

impl Blocks {
    /// Applies a file digest when all blocks have arrived. Only the first one counts.
    fn apply_digest(&mut self, remote: Option<FileHash>) -> DigestOutcome {
        if std::mem::replace(&mut self.is_closing, true) {
            return DigestOutcome::Ignored;
        }
        let hashes: Option<Vec<BlockHash>> =
            (0..self.layout.count()).map(|i| self.hashes.get(&i).copied()).collect();
        let local = hashes.and_then(|hashes| merge(&self.layout, &hashes));
        match (local, remote) {
            (Some(local), Some(remote)) if local != remote => DigestOutcome::Mismatch,
            _ => DigestOutcome::Complete(local),
        }
    }
}

/// Ledger of the receiver.
#[derive(Debug)]
pub struct ReceiveLedger {
    last_id: u64,
    outstanding: HashMap<u64, File>,
    /// Runs of holes of the outstanding files.
    hole_runs: usize,
    /// Numbers of files, as runs: many may fail one after the other. Only the latest
    /// [`MAX_GIVEN_UP_RUNS`].
    given_up: BlockSet,
}

impl Default for ReceiveLedger {
    fn default() -> Self {
        let given_up = BlockSet::new(u64::MAX);
        Self { last_id: 0, outstanding: HashMap::new(), hole_runs: 0, given_up }
    }
}

impl ReceiveLedger {
    /// Creates an empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records an announced entry.
    ///
    /// # Errors
    /// [`WireError::BadFileId`] unless the number is higher than all before.
    pub fn announce(&mut self, id: u64) -> Result<(), WireError> {
        if id <= self.last_id {
            return Err(WireError::BadFileId(id));
        }
        self.last_id = id;
        Ok(())
    }

    /// Adds a wanted packed file.
    pub fn expect_packed(&mut self, id: u64, size: u64) {
        self.outstanding.insert(id, File::Packed { size, is_claimed: false });
    }

    /// Adds a wanted file of blocks, with those that an earlier session left.
    ///
    /// Each of them is pending until [`on_block_checked`](Self::on_block_checked) or
    /// [`on_check_failed`](Self::on_check_failed).
    pub fn expect_blocks(&mut self, id: u64, layout: Layout, left: &BlockSet) {
        self.insert_blocks(id, layout, left, None);
    }

    /// Adds a wanted file of blocks whose number is not known yet.
    pub fn expect_open_ended(&mut self, id: u64, layout: Layout) {
        self.insert_blocks(id, layout, &BlockSet::new(layout.count()), Some(End::Unknown));
    }

    fn insert_blocks(&mut self, id: u64, layout: Layout, left: &BlockSet, end: Option<End>) {
        let blocks = Blocks {
            layout,
            verified: BlockSet::new(layout.count()),
            unchecked: left.clone(),
            claimed: HashSet::new(),
            hashes: HashMap::new(),
            early_digest: None,
            was_damaged: false,
            is_closing: false,
            end,
            hole_runs: 0,
        };
        self.outstanding.insert(id, File::Blocks(Box::new(blocks)));
    }

    /// Returns the layout of an outstanding file of blocks.
    #[must_use]
    pub fn layout(&self, id: u64) -> Option<Layout> {
        match self.outstanding.get(&id) {
            Some(File::Blocks(blocks)) => Some(blocks.layout),
            _ => None,
        }
    }

    /// Returns the verified blocks of an outstanding file.
    #[must_use]
    pub fn verified_blocks(&self, id: u64) -> Option<&BlockSet> {
        match self.outstanding.get(&id) {
            Some(File::Blocks(blocks)) => Some(&blocks.verified),
            _ => None,
        }
    }

    /// Claims an arriving block.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadBlock`], [`WireError::DuplicateBlock`].
    pub fn claim_block(&mut self, id: u64, offset: u64, len: u32) -> Result<Claim, WireError> {
        if self.given_up.contains(id) {
            return Ok(Claim::Ignore);
        }
        let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&id) else {
            return Err(WireError::BadFileId(id));
        };
        let index = blocks.layout.index_of(offset, len)?;
        let is_here = blocks.verified.contains(index) || blocks.unchecked.contains(index);
        if is_here || !blocks.claimed.insert(index) {
            return Err(WireError::DuplicateBlock { file: id, index });
        }
        Ok(Claim::Accept(index))
    }

    /// Claims an arriving packed file of `len` bytes.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadBlock`] for a length other than announced,
    /// [`WireError::DuplicateBlock`].
    pub fn claim_packed(&mut self, id: u64, len: u64) -> Result<Claim, WireError> {
        if self.given_up.contains(id) {
            return Ok(Claim::Ignore);
        }
        match self.outstanding.get_mut(&id) {
            Some(File::Packed { is_claimed: true, .. }) => {
                Err(WireError::DuplicateBlock { file: id, index: 0 })
            }
            Some(File::Packed { size, .. }) if *size != len => {
                Err(WireError::BadBlock { offset: 0, len: len as u32, size: *size })
            }
            Some(File::Packed { is_claimed, .. }) => {
                *is_claimed = true;
                Ok(Claim::Accept(0))
            }
            _ => Err(WireError::BadFileId(id)),
        }
    }

    /// Releases the claim of a block that did not arrive in whole.
    pub fn release(&mut self, id: u64, index: u64) {
        match self.outstanding.get_mut(&id) {
            Some(File::Packed { is_claimed, .. }) => *is_claimed = false,
            Some(File::Blocks(blocks)) => {
                blocks.claimed.remove(&index);
            }
            None => {}
        }
    }

    /// Records a verified and journalled block. False if the file was given up.
    pub fn on_block_verified(&mut self, id: u64, index: u64, hash: BlockHash) -> bool {
        let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&id) else { return false };
        blocks.claimed.remove(&index);
        blocks.verified.insert(index);
        // The hash of an open-ended file cannot be merged: its last block is padded.
        if blocks.end.is_none() {
            blocks.hashes.insert(index, hash);
        }
        true
    }

    /// Records a journalled block that was copied without a hash. False if it was verified before,
    /// or the file was given up.
    pub fn on_block_copied(&mut self, id: u64, index: u64) -> bool {
        let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&id) else { return false };
        blocks.claimed.remove(&index);
        blocks.verified.insert(index)
    }

    /// Records that a block of an earlier session is intact. False if it was not pending any more.
    pub fn on_block_checked(&mut self, id: u64, index: u64, hash: Option<BlockHash>) -> bool {
        let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&id) else { return false };
        if !blocks.unchecked.remove(index) {
            return false;
        }
        blocks.verified.insert(index);
        blocks.hashes.extend(hash.map(|hash| (index, hash)));
        true
    }

    /// Records that a block of an earlier session is damaged: it must be sent, which voids early
    /// file digests. False if it was not pending any more.
    pub fn on_check_failed(&mut self, id: u64, index: u64) -> bool {
        let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&id) else { return false };
        let was_pending = blocks.unchecked.remove(index);
        if was_pending {
            (blocks.early_digest, blocks.was_damaged) = (None, true);
        }
        was_pending
    }

    /// Records holes of the source. Returns those that are new.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadRun`], [`WireError::DuplicateBlock`] for a claimed
    /// block.
    pub fn on_holes(&mut self, holes: &FileRuns) -> Result<Vec<Run>, WireError> {
        if self.given_up.contains(holes.file) {
            return Ok(Vec::new());
        }
        let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&holes.file) else {
            return Err(WireError::BadFileId(holes.file));
        };
        blocks.hole_runs += holes.runs.len();
        self.hole_runs += holes.runs.len();
        let mut fresh = Vec::new();
        let mut end = 0;
        for run in &holes.runs {
            // Runs must ascend and not overlap.
            if run.first < end {
                let blocks = blocks.layout.count();
                return Err(WireError::BadRun { first: run.first, count: run.count, blocks });
            }
            let range = run.within(blocks.layout.count())?;
            end = range.end;
            if let Some(&index) = blocks.claimed.iter().find(|index| range.contains(index)) {
                return Err(WireError::DuplicateBlock { file: holes.file, index });
            }
            fresh.append(&mut blocks.verified.insert_run(*run)?);
            // The range is cleared, whatever an earlier session left there.
            blocks.unchecked.remove_range(range);
        }
        Ok(fresh)
    }

    /// Records the size of an open-ended file. False if the file was given up.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadLayout`] for a size above the announced one,
    /// [`WireError::Unexpected`] for any other file, a second end, or blocks beyond it.
    pub fn on_file_end(&mut self, end: FileEnd) -> Result<bool, WireError> {
        if self.given_up.contains(end.file) {
            return Ok(false);
        }
        let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&end.file) else {
            return Err(WireError::BadFileId(end.file));
        };
        if blocks.end != Some(End::Unknown) {
            return Err(WireError::Unexpected("the end of a file whose size is known"));
        }
        let (layout, block_bytes) = (blocks.layout, blocks.layout.block_bytes());
        if end.size > layout.size() {
            return Err(WireError::BadLayout { size: end.size, block_bytes });
        }
        let rest = end.size.div_ceil(u64::from(block_bytes))..layout.count();
        let is_beyond = |index: &u64| rest.contains(index);
        let last = blocks.verified.runs().last().map(|run| run.first + run.count - 1);
        if last.iter().chain(&blocks.claimed).any(is_beyond) {
            return Err(WireError::Unexpected("the end of a file before blocks that arrived"));
        }
        blocks.end = Some(End::Known);
        blocks.verified.insert_range(rest);
        Ok(true)
    }

    /// Applies a file digest, for which all blocks must have arrived.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::Unexpected`] if blocks are missing.
    pub fn on_file_digest(
        &mut self,
        id: u64,
        remote: Option<FileHash>,
    ) -> Result<DigestOutcome, WireError> {
        if self.given_up.contains(id) {
            return Ok(DigestOutcome::Ignored);
        }
        let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&id) else {
            return Err(WireError::BadFileId(id));
        };
        if !blocks.verified.is_full() {
            return Err(WireError::Unexpected("a file digest with blocks missing"));
        }
        Ok(blocks.apply_digest(remote))
    }

    /// Applies an early file digest, or keeps it for
    /// [`apply_early_digest`](Self::apply_early_digest) until all blocks have arrived.
    ///
    /// # Errors
    /// [`WireError::BadFileId`].
    pub fn on_early_digest(
        &mut self,
        id: u64,
        remote: Option<FileHash>,
    ) -> Result<DigestOutcome, WireError> {
        if self.given_up.contains(id) {
            return Ok(DigestOutcome::Ignored);
        }
        let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&id) else {
            return Err(WireError::BadFileId(id));
        };
        if blocks.was_damaged {
            return Ok(DigestOutcome::Ignored);
        }
        if blocks.verified.is_full() {
            return Ok(blocks.apply_digest(remote));
        }
        blocks.early_digest = Some(remote);
        Ok(DigestOutcome::Pending)
    }

    /// Applies a pending early file digest if all blocks have arrived. Call after each verified
    /// block. Returns a result once.
    pub fn apply_early_digest(&mut self, id: u64) -> Option<DigestOutcome> {
        let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&id) else { return None };
        if !blocks.verified.is_full() {
            return None;
        }
        blocks.early_digest.take().map(|remote| blocks.apply_digest(remote))
    }

    /// Releases the claim of a damaged block and voids early file digests.
    pub fn on_block_damaged(&mut self, id: u64, index: u64) {
        self.release(id, index);
        if let Some(File::Blocks(blocks)) = self.outstanding.get_mut(&id) {
            (blocks.early_digest, blocks.was_damaged) = (None, true);
        }
    }

    /// Removes a file that is in place.
    pub fn finish(&mut self, id: u64) {
        if let Some(File::Blocks(blocks)) = self.outstanding.remove(&id) {
            self.hole_runs -= blocks.hole_runs;
        }
    }

    /// Records that the sender gave a file up. False if the file is already completed, which the
    /// sender may not know yet.
    ///
    /// # Errors
    /// [`WireError::BadFileId`] for a file that was never announced.
    pub fn on_aborted(&mut self, id: u64) -> Result<bool, WireError> {
        if id > self.last_id {
            return Err(WireError::BadFileId(id));
        }
        let is_receiving = |file: &File| !matches!(file, File::Blocks(blocks) if blocks.is_closing);
        let is_receiving = self.outstanding.get(&id).is_some_and(is_receiving);
        if is_receiving {
            self.give_up(id);
        }
        Ok(is_receiving)
    }

    /// Gives a file up; its late data is ignored.
    pub fn give_up(&mut self, id: u64) {
        self.finish(id);
        self.given_up.insert(id);
        if self.given_up.run_count() > MAX_GIVEN_UP_RUNS {
            self.given_up.remove_first_run();
        }
    }

    /// Returns the number of outstanding files, with their holes.
    #[must_use]
    pub fn outstanding_files(&self) -> usize {
        self.outstanding.len() + self.hole_runs / HOLE_RUNS_PER_ENTRY
    }

    /// Iterates over the numbers of the outstanding files.
    pub fn outstanding_ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.outstanding.keys().copied()
    }
}
