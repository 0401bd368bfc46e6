//! The receiver's books: which files it waits for, which blocks of them are on their way in,
//! verified, or still missing.
//!
//! It refuses what a correct sender cannot do (a block twice, past the end, of a file that was not
//! asked for) and ignores what a correct sender may do late (blocks of a file that was given up
//! meanwhile). It writes no file and hashes nothing.

use crate::blocks::{BlockSet, Layout, Run};
use crate::hash::{BlockHash, FileHash, merge};
use crate::journal::Here;
use crate::wire::WireError;
use crate::wire::control::FileRuns;
use std::collections::{HashMap, HashSet};

/// Whether to take in a block or packed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Take it; the number is the block's.
    Take(u64),
    /// Its file was given up: read past it.
    Ignore,
}

/// What a seal leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seal {
    /// The file is complete; its hash, unless it has holes.
    Complete(Option<FileHash>),
    /// The two sides merged different hashes: the file must not be used.
    Mismatch,
    /// The file was given up meanwhile or sealed before, or a seal ahead counts for nothing.
    Ignore,
    /// Blocks of it are still on their way: it counts when they are here.
    Later,
}

#[derive(Debug)]
enum File {
    Packed { size: u64, claimed: bool },
    Blocks(Box<Blocks>),
}

#[derive(Debug)]
struct Blocks {
    layout: Layout,
    verified: BlockSet,
    claimed: HashSet<u64>,
    hashes: HashMap<u64, BlockHash>,
    /// A seal that came ahead of blocks, with the sender's hash of the file.
    sealed: Option<Option<FileHash>>,
    /// A block arrived damaged: a seal ahead counts for nothing.
    was_damaged: bool,
    /// It was sealed and is complete: what the sender still says of it counts no more.
    is_closing: bool,
}

impl Blocks {
    /// What a seal leads to when all blocks are here; only the first one counts.
    fn seal(&mut self, theirs: Option<FileHash>) -> Seal {
        if std::mem::replace(&mut self.is_closing, true) {
            return Seal::Ignore;
        }
        let hashes: Option<Vec<BlockHash>> =
            (0..self.layout.count()).map(|i| self.hashes.get(&i).copied()).collect();
        let ours = hashes.and_then(|hashes| merge(&self.layout, &hashes));
        match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours != theirs => Seal::Mismatch,
            _ => Seal::Complete(ours),
        }
    }
}

/// The receiver's books. See the module's documentation.
#[derive(Debug, Default)]
pub struct ReceiveLedger {
    last_id: u64,
    open: HashMap<u64, File>,
    given_up: HashSet<u64>,
}

impl ReceiveLedger {
    /// Empty books.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the number of an announced entry.
    ///
    /// # Errors
    /// [`WireError::BadFileId`] unless numbers ascend.
    pub fn announce(&mut self, id: u64) -> Result<(), WireError> {
        if id <= self.last_id {
            return Err(WireError::BadFileId(id));
        }
        self.last_id = id;
        Ok(())
    }

    /// Waits for a small file in a pack.
    pub fn expect_packed(&mut self, id: u64, size: u64) {
        self.open.insert(id, File::Packed { size, claimed: false });
    }

    /// Waits for the blocks of a file, some of which may be here from an earlier session.
    pub fn expect_blocks(&mut self, id: u64, layout: Layout, here: &Here) {
        let verified = here.set(layout.count());
        let hashed = here.blocks.iter().filter_map(|&(index, hash)| Some((index, hash?)));
        let hashes = hashed.collect();
        let blocks = Blocks {
            layout,
            verified,
            claimed: HashSet::new(),
            hashes,
            sealed: None,
            was_damaged: false,
            is_closing: false,
        };
        self.open.insert(id, File::Blocks(Box::new(blocks)));
    }

    /// Layout of a file that is received in blocks.
    #[must_use]
    pub fn layout(&self, id: u64) -> Option<Layout> {
        match self.open.get(&id) {
            Some(File::Blocks(blocks)) => Some(blocks.layout),
            _ => None,
        }
    }

    /// The blocks of a file that are here, as runs.
    #[must_use]
    pub fn here(&self, id: u64) -> Option<&BlockSet> {
        match self.open.get(&id) {
            Some(File::Blocks(blocks)) => Some(&blocks.verified),
            _ => None,
        }
    }

    /// Claims an arriving block.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadBlock`], [`WireError::DuplicateBlock`].
    pub fn claim_block(&mut self, id: u64, offset: u64, len: u32) -> Result<Claim, WireError> {
        if self.given_up.contains(&id) {
            return Ok(Claim::Ignore);
        }
        let Some(File::Blocks(blocks)) = self.open.get_mut(&id) else {
            return Err(WireError::BadFileId(id));
        };
        let index = blocks.layout.index_of(offset, len)?;
        if blocks.verified.contains(index) || !blocks.claimed.insert(index) {
            return Err(WireError::DuplicateBlock { file: id, index });
        }
        Ok(Claim::Take(index))
    }

    /// Claims an arriving small file of `len` bytes.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadBlock`] for another length than announced,
    /// [`WireError::DuplicateBlock`].
    pub fn claim_packed(&mut self, id: u64, len: u64) -> Result<Claim, WireError> {
        if self.given_up.contains(&id) {
            return Ok(Claim::Ignore);
        }
        match self.open.get_mut(&id) {
            Some(File::Packed { claimed: true, .. }) => {
                Err(WireError::DuplicateBlock { file: id, index: 0 })
            }
            Some(File::Packed { size, .. }) if *size != len => {
                Err(WireError::BadBlock { offset: 0, len: len as u32, size: *size })
            }
            Some(File::Packed { claimed, .. }) => {
                *claimed = true;
                Ok(Claim::Take(0))
            }
            _ => Err(WireError::BadFileId(id)),
        }
    }

    /// Gives a claim back: the block did not arrive whole, or failed verification.
    pub fn release(&mut self, id: u64, index: u64) {
        match self.open.get_mut(&id) {
            Some(File::Packed { claimed, .. }) => *claimed = false,
            Some(File::Blocks(blocks)) => {
                blocks.claimed.remove(&index);
            }
            None => {}
        }
    }

    /// Enters a verified and journalled block. False when the file was given up meanwhile.
    pub fn verified(&mut self, id: u64, index: u64, hash: BlockHash) -> bool {
        let Some(File::Blocks(blocks)) = self.open.get_mut(&id) else { return false };
        blocks.claimed.remove(&index);
        blocks.verified.insert(index);
        blocks.hashes.insert(index, hash);
        true
    }

    /// Enters a journalled block that was copied without being hashed. False when it was here
    /// before, or the file was given up meanwhile.
    pub fn copied(&mut self, id: u64, index: u64) -> bool {
        let Some(File::Blocks(blocks)) = self.open.get_mut(&id) else { return false };
        blocks.claimed.remove(&index);
        blocks.verified.insert(index)
    }

    /// Enters blocks that are holes in the source. Returns those that were not here before.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadRun`], [`WireError::DuplicateBlock`] for a block
    /// that is on its way in.
    pub fn holes(&mut self, holes: &FileRuns) -> Result<Vec<Run>, WireError> {
        if self.given_up.contains(&holes.file) {
            return Ok(Vec::new());
        }
        let Some(File::Blocks(blocks)) = self.open.get_mut(&holes.file) else {
            return Err(WireError::BadFileId(holes.file));
        };
        let mut fresh = Vec::new();
        let mut end = 0;
        for run in &holes.runs {
            // Ascending and apart, so that each is looked at once.
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
        }
        Ok(fresh)
    }

    /// Takes in the sender's seal: all blocks must be here.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::Unexpected`] when blocks are missing.
    pub fn seal(&mut self, id: u64, theirs: Option<FileHash>) -> Result<Seal, WireError> {
        if self.given_up.contains(&id) {
            return Ok(Seal::Ignore);
        }
        let Some(File::Blocks(blocks)) = self.open.get_mut(&id) else {
            return Err(WireError::BadFileId(id));
        };
        if !blocks.verified.is_full() {
            return Err(WireError::Unexpected("a file was sealed with blocks missing"));
        }
        Ok(blocks.seal(theirs))
    }

    /// Takes in a seal that may come ahead of blocks. Those that are missing have it wait, see
    /// [`seal_now`](Self::seal_now); where one arrived damaged, it counts for nothing.
    ///
    /// # Errors
    /// [`WireError::BadFileId`].
    pub fn seal_ahead(&mut self, id: u64, theirs: Option<FileHash>) -> Result<Seal, WireError> {
        if self.given_up.contains(&id) {
            return Ok(Seal::Ignore);
        }
        let Some(File::Blocks(blocks)) = self.open.get_mut(&id) else {
            return Err(WireError::BadFileId(id));
        };
        if blocks.was_damaged {
            return Ok(Seal::Ignore);
        }
        if blocks.verified.is_full() {
            return Ok(blocks.seal(theirs));
        }
        blocks.sealed = Some(theirs);
        Ok(Seal::Later)
    }

    /// Whether a block that was just verified was the last one of a file that is sealed: then what
    /// that leads to, once.
    pub fn seal_now(&mut self, id: u64) -> Option<Seal> {
        let Some(File::Blocks(blocks)) = self.open.get_mut(&id) else { return None };
        if !blocks.verified.is_full() {
            return None;
        }
        blocks.sealed.take().map(|theirs| blocks.seal(theirs))
    }

    /// Gives the claim of a block back that arrived damaged: the sender will be told, and seal the
    /// file when all is here.
    pub fn damaged(&mut self, id: u64, index: u64) {
        self.release(id, index);
        if let Some(File::Blocks(blocks)) = self.open.get_mut(&id) {
            (blocks.sealed, blocks.was_damaged) = (None, true);
        }
    }

    /// The file is in place.
    pub fn finish(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// The sender gives a file up. False for one that is settled on this side already, which the
    /// sender may not have heard yet: it stays what it is.
    ///
    /// # Errors
    /// [`WireError::BadFileId`] for a file that was never announced.
    pub fn aborted(&mut self, id: u64) -> Result<bool, WireError> {
        if id > self.last_id {
            return Err(WireError::BadFileId(id));
        }
        let is_open = |file: &File| !matches!(file, File::Blocks(blocks) if blocks.is_closing);
        let is_open = self.open.get(&id).is_some_and(is_open);
        if is_open {
            self.give_up(id);
        }
        Ok(is_open)
    }

    /// The file is given up; what still comes of it is ignored.
    pub fn give_up(&mut self, id: u64) {
        self.open.remove(&id);
        self.given_up.insert(id);
    }

    /// Numbers of the files still waited for.
    pub fn open_ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.open.keys().copied()
    }
}
