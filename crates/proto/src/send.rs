//! Ledger of the sender: announced, wanted, in-flight, acknowledged and completed files.
//!
//! A block is assigned to a stream once. It is assigned again only if its stream ended without an
//! acknowledgement, or if the receiver found it damaged. A file digest is due when all blocks are
//! acknowledged; an early one when all are read. The engine calls [`SendLedger::next_work`] and
//! reports events.

use crate::blocks::{Layout, Run};
use crate::error::WireError;
use crate::hash::{BlockHash, FileHash, merge};
use crate::limits::{HOLE_RUNS_PER_ENTRY, MAX_FILE_RUNS, MAX_PACK_FILES, PACK_TARGET_BYTES};
use crate::open_dirs::OpenDirs;
use crate::wire::control::{Entry, EntryKind, FileEnd, FileRuns, Verdict, Want};
use crate::wire::data::PACK_RECORD_BYTES;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

use crate::outgoing::{Blocks, Body, End, File, State};
pub use crate::work::{NextStep, Work};

/// Number of verification failures of a block after which its file is given up. (chosen: three in a
/// row are not damage by the path)
const MAX_NACKS: u32 = 3;

/// Divisor of the waiting small files: a pack takes at most this share of them. Early in a transfer
/// few files wait, and the other streams need some to open their windows. (chosen: the initial
/// number of streams on a long path)
const PACK_SHARE_DIVISOR: usize = 16;

/// Minimum of files, and of bytes, in a pack while more files wait. (chosen: files of 4 KiB, and
/// twice the initial TCP window; measured with 200 000 files of 50 to 200 bytes over 50 ms: 9.7 s
/// without the minimum of bytes, 7.7 s with it)
const MIN_PACK_FILES: usize = 8;
const MIN_PACK_BYTES: usize = 32 << 10;

/// Checks the number of runs of a file that the receiver has reported.
fn check_runs(runs: usize) -> Result<(), WireError> {
    let (what, max) = ("the number of runs of a file", MAX_FILE_RUNS);
    if runs > max { Err(WireError::OverLimit { what, max }) } else { Ok(()) }
}

/// Ledger of the sender.
#[derive(Debug, Default)]
pub struct SendLedger {
    /// Keyed, like `in_flight`, by numbers that this side assigns: an unkeyed hash is safe.
    files: FxHashMap<u64, File>,
    dirs: OpenDirs,
    /// Queue of files with unassigned blocks.
    block_files: VecDeque<u64>,
    /// Queue of packed files.
    packed_files: VecDeque<u64>,
    /// Queue of files to compare.
    compare: VecDeque<(u64, FileHash)>,
    /// Assigned and unacknowledged blocks, with their stream. A packed file counts as block 0.
    in_flight: FxHashMap<(u64, u64), u32>,
    /// Sum of the weights of all files.
    extra_weight: usize,
    /// Runs of holes of all files.
    hole_runs: usize,
    all_announced: bool,
}

impl SendLedger {
    /// Records an announced entry. The walk then is in the directory that it announces.
    ///
    /// # Errors
    /// [`WireError::BadLayout`] for an invalid block size.
    pub fn announce(&mut self, entry: &Entry) -> Result<(), WireError> {
        let body = match (entry.kind, entry.block_bytes) {
            (EntryKind::Dir, _) => {
                self.dirs.enter(entry.id, entry.parent, entry.extra_weight());
                return Ok(());
            }
            (EntryKind::Symlink | EntryKind::HardLink | EntryKind::Special, _) => Body::None,
            (EntryKind::File, 0) => Body::Packed { size: entry.size },
            (EntryKind::File, block_bytes) => {
                let layout = Layout::new(entry.size, block_bytes)?;
                Body::Blocks(Box::new(Blocks::new(layout, entry.is_open_ended())))
            }
        };
        let file = File::new(entry, body);
        self.extra_weight += file.weight;
        self.files.insert(entry.id, file);
        self.dirs.add_entry(entry.parent);
        Ok(())
    }

    /// Records that the walk has left a directory: no further entry of it is announced, but for
    /// files that are retried.
    pub fn on_dir_left(&mut self, id: u64) {
        self.dirs.leave(id);
    }

    /// Returns the number of completed directories to announce.
    ///
    /// None once the ledger is complete: `Finish` may follow, which covers them.
    #[must_use]
    pub fn completed_dirs(&self) -> usize {
        if self.is_complete() { 0 } else { self.dirs.completed() }
    }

    /// Returns the completed directories to announce, each once and after its subdirectories.
    pub fn take_completed_dirs(&mut self) -> Vec<u64> {
        if self.is_complete() { Vec::new() } else { self.dirs.take_completed() }
    }

    /// Records the end of the walk. Only retried files are announced after it.
    pub fn on_entries_end(&mut self) {
        self.all_announced = true;
    }

    /// True if all files are announced and completed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.all_announced && self.files.is_empty()
    }

    /// Returns the number of outstanding files, symlinks and other entries, with their weights.
    #[must_use]
    pub fn outstanding_files(&self) -> usize {
        self.files.len() + self.extra_weight
    }

    /// Returns the number of directories that the walk has left and that are not completed.
    #[must_use]
    pub fn outstanding_dirs(&self) -> usize {
        self.dirs.left()
    }

    /// Records blocks that an earlier session left at the receiver, before the file's want.
    ///
    /// The receiver acknowledges those that are intact.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadRun`], [`WireError::Unexpected`] after the file's
    /// want.
    pub fn on_have(&mut self, have: &FileRuns) -> Result<(), WireError> {
        let blocks = self.blocks_before_want(have.file)?;
        for run in &have.runs {
            blocks.unconfirmed.insert_run(*run)?;
            blocks.assigned.insert_run(*run)?;
            blocks.read.insert_run(*run)?;
        }
        check_runs(blocks.unconfirmed.run_count())
    }

    /// Returns the blocks of a file whose want has not arrived.
    fn blocks_before_want(&mut self, id: u64) -> Result<&mut Blocks, WireError> {
        if self.files.get(&id).is_some_and(|file| file.state != State::Announced) {
            return Err(WireError::Unexpected("blocks reported after the want of their file"));
        }
        self.blocks_mut(id)
    }

    /// Records the want of a file.
    ///
    /// # Errors
    /// [`WireError::BadFileId`] for a file that expects no want, [`WireError::BadRun`],
    /// [`WireError::Malformed`] for a comparison without a hash.
    pub fn on_want(&mut self, want: &Want) -> Result<NextStep, WireError> {
        let file = self.files.get(&want.file).ok_or(WireError::BadFileId(want.file))?;
        if file.state != State::Announced {
            return Err(WireError::BadFileId(want.file));
        }
        if let Some(file) = self.files.get_mut(&want.file) {
            file.accepts_early_digest = want.accepts_early_digest.unwrap_or_default();
        }
        match want.verdict {
            Verdict::Skip | Verdict::WouldSend | Verdict::Refused => {
                self.drop_file(want.file);
                Ok(NextStep::Completed)
            }
            Verdict::IfDiffers => {
                let hash = want.hash.ok_or_else(|| {
                    WireError::Malformed("a comparison without a hash".to_owned())
                })?;
                self.record_have(want)?;
                if let Some(file) = self.files.get_mut(&want.file) {
                    file.state = State::Comparing;
                }
                self.compare.push_back((want.file, FileHash(hash)));
                Ok(NextStep::Work)
            }
            Verdict::Send => {
                self.record_have(want)?;
                Ok(self.queue(want.file))
            }
        }
    }

    /// Records the blocks that a want reports.
    fn record_have(&mut self, want: &Want) -> Result<(), WireError> {
        if want.have.is_empty() {
            return Ok(());
        }
        self.on_have(&FileRuns { file: want.file, runs: want.have.clone() })
    }

    /// Queues a wanted file and returns its next step.
    fn queue(&mut self, id: u64) -> NextStep {
        let Some(file) = self.files.get_mut(&id) else { return NextStep::Nothing };
        file.state = State::Sending;
        match &file.body {
            Body::None => NextStep::Nothing,
            Body::Packed { .. } => {
                self.packed_files.push_back(id);
                NextStep::Work
            }
            Body::Blocks(blocks) if blocks.at_receiver.is_full() => {
                file.state = State::Acknowledged;
                NextStep::SendDigest
            }
            Body::Blocks(_) => {
                self.block_files.push_back(id);
                NextStep::Work
            }
        }
    }

    /// Records holes, which no stream carries and no acknowledgement covers. Call before
    /// [`SendLedger::on_want`], or [`SendLedger::on_compared`] of a file that differs.
    ///
    /// Returns those to announce: further ones than the limit of outstanding files allows are data.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadRun`].
    pub fn on_holes(&mut self, mut holes: FileRuns, max_files: u32) -> Result<FileRuns, WireError> {
        let is_early = |state| matches!(state, State::Announced | State::Comparing);
        if self.files.get(&holes.file).is_some_and(|file| !is_early(file.state)) {
            return Err(WireError::Unexpected("holes of a file that is being sent"));
        }
        let max = HOLE_RUNS_PER_ENTRY.saturating_mul(max_files as usize);
        holes.runs.truncate(max.saturating_sub(self.hole_runs));
        let blocks = self.blocks_mut(holes.file)?;
        for run in &holes.runs {
            blocks.at_receiver.insert_run(*run)?;
            blocks.assigned.insert_run(*run)?;
            blocks.read.insert_run(*run)?;
        }
        blocks.hole_runs += holes.runs.len();
        self.hole_runs += holes.runs.len();
        Ok(holes)
    }

    /// Returns the bytes of acknowledged blocks that an earlier session left. Call before
    /// [`SendLedger::on_acks`].
    #[must_use]
    pub fn resumed_bytes(&self, acks: &FileRuns) -> u64 {
        let Some(File { body: Body::Blocks(blocks), state, .. }) = self.files.get(&acks.file)
        else {
            return 0;
        };
        let count = blocks.layout.count();
        let valid = acks.runs.iter().filter(|run| run.within(count).is_ok());
        // Nothing is sent before the want.
        if *state == State::Announced {
            return valid.map(|run| blocks.layout.run_len(*run)).sum();
        }
        let resumed =
            valid.flat_map(|run| blocks.unconfirmed.runs_within(run.first..run.first + run.count));
        resumed.map(|run| blocks.layout.run_len(run)).sum()
    }

    /// True if the receiver still checks a block that an earlier session left.
    #[must_use]
    pub fn is_unconfirmed(&self, file: u64, index: u64) -> bool {
        match self.files.get(&file).map(|file| &file.body) {
            Some(Body::Blocks(blocks)) => blocks.unconfirmed.contains(index),
            _ => false,
        }
    }

    /// Returns the bytes of a file that the receiver still checks.
    #[must_use]
    pub fn unconfirmed_bytes(&self, file: u64) -> u64 {
        match self.files.get(&file).map(|file| &file.body) {
            Some(Body::Blocks(blocks)) => {
                // Without holes, and acknowledgements that overtook the report.
                let confirmed = |run: Run| {
                    let runs = blocks.at_receiver.runs_within(run.first..run.first + run.count);
                    runs.map(|run| blocks.layout.run_len(run)).sum::<u64>()
                };
                let left = blocks.unconfirmed.runs();
                left.map(|run| blocks.layout.run_len(run) - confirmed(run)).sum()
            }
            _ => 0,
        }
    }

    /// Assigns work to `stream`. Odd streams prefer blocks and even ones packs, so that large and
    /// small files share the streams in any order.
    pub fn next_work(&mut self, stream: u32) -> Option<Work> {
        if let Some((file, hash)) = self.compare.pop_front() {
            return Some(Work::Compare { file, hash });
        }
        if stream % 2 == 1 {
            self.next_block(stream).or_else(|| self.next_pack(stream))
        } else {
            self.next_pack(stream).or_else(|| self.next_block(stream))
        }
    }

    fn next_block(&mut self, stream: u32) -> Option<Work> {
        while let Some(&id) = self.block_files.front() {
            if let Some(File { body: Body::Blocks(blocks), .. }) = self.files.get_mut(&id)
                && let Some(index) = blocks.assigned.next_missing(blocks.cursor)
            {
                blocks.assigned.insert(index);
                blocks.cursor = index + 1;
                self.in_flight.insert((id, index), stream);
                return Some(Work::Block { file: id, index });
            }
            self.block_files.pop_front();
        }
        None
    }

    /// Assigns a file's next block to a stream that still sends another one. The block can then be
    /// read early.
    ///
    /// Returns `None` if fewer than `min_left` blocks are left, which other streams may send
    /// sooner, or if other work is next.
    pub fn prefetch_block(&mut self, stream: u32, file: u64, min_left: u64) -> Option<u64> {
        let is_pack_first = stream.is_multiple_of(2) && !self.packed_files.is_empty();
        if !self.compare.is_empty() || is_pack_first || self.block_files.front() != Some(&file) {
            return None;
        }
        let Some(File { body: Body::Blocks(blocks), .. }) = self.files.get(&file) else {
            return None;
        };
        let left = blocks.layout.count().saturating_sub(blocks.cursor);
        // The next block of an open-ended file may be the last one for a while.
        if left < min_left.max(1) || blocks.end.is_some() {
            return None;
        }
        match self.next_block(stream)? {
            Work::Block { file: of, index } if of == file => Some(index),
            // All its blocks are assigned. Return the block of the other file to the queue.
            Work::Block { file: of, index } => {
                self.in_flight.remove(&(of, index));
                self.requeue(of, index);
                None
            }
            _ => None,
        }
    }

    fn next_pack(&mut self, stream: u32) -> Option<Work> {
        let mut pack = Vec::new();
        let mut bytes = 0;
        let share = (self.packed_files.len() / PACK_SHARE_DIVISOR).max(MIN_PACK_FILES);
        let is_below = |files, bytes| {
            let is_small = files < share || bytes < MIN_PACK_BYTES;
            is_small && files < MAX_PACK_FILES && bytes < PACK_TARGET_BYTES
        };
        while is_below(pack.len(), bytes) {
            let Some(id) = self.packed_files.pop_front() else { break };
            // Skip files that were dropped since.
            if let Some(File { body: Body::Packed { size }, .. }) = self.files.get(&id) {
                bytes += *size as usize + PACK_RECORD_BYTES;
                pack.push(id);
                self.in_flight.insert((id, 0), stream);
            }
        }
        (!pack.is_empty()).then_some(Work::Pack(pack))
    }

    /// True if a file is outstanding. Assigned work may be obsolete if its file is not.
    #[must_use]
    pub fn is_outstanding(&self, file: u64) -> bool {
        self.files.contains_key(&file)
    }

    /// Records the hash of a block that was read and is being sent.
    pub fn on_block_sent(&mut self, file: u64, index: u64, hash: BlockHash) -> NextStep {
        let Some(file) = self.files.get_mut(&file) else { return NextStep::Nothing };
        let Body::Blocks(blocks) = &mut file.body else { return NextStep::Nothing };
        // The hash of an open-ended file cannot be merged: its last block is padded.
        if blocks.end.is_none() {
            blocks.hashes.insert(index, hash);
        }
        let is_last = blocks.read.insert(index) && blocks.read.is_full();
        if is_last && file.accepts_early_digest {
            NextStep::SendEarlyDigest
        } else {
            NextStep::Nothing
        }
    }

    /// Records an early file digest; true if it may be sent. False after a damaged block, or if all
    /// blocks are acknowledged: a final digest follows then.
    pub fn record_early_digest(&mut self, file: u64) -> bool {
        let Some(file) = self.files.get_mut(&file) else { return false };
        file.early_digest_sent = file.state == State::Sending && file.nacks.is_empty();
        file.early_digest_sent
    }

    /// True if a block is sent again, perhaps after an early file digest. The source must be
    /// unchanged then.
    #[must_use]
    pub fn is_resend(&self, file: u64, index: u64) -> bool {
        self.files.get(&file).is_some_and(|file| match &file.body {
            Body::Blocks(blocks) => file.accepts_early_digest && blocks.read.contains(index),
            _ => false,
        })
    }

    /// Lets the streams send a block of an open-ended file.
    pub fn on_block_available(&mut self, file: u64, index: u64) {
        self.requeue(file, index);
    }

    /// Records the size of an open-ended file, whose blocks are all available.
    pub fn on_file_end(&mut self, file: u64, size: u64) {
        if let Ok(Blocks { end: end @ Some(End::Unknown), .. }) = self.blocks_mut(file) {
            *end = Some(End::Known(size));
        }
    }

    /// Returns the end of an open-ended file once it is wanted, and the next step. Only once.
    pub fn take_file_end(&mut self, file: u64) -> Option<(FileEnd, NextStep)> {
        let (size, next) = self.files.get_mut(&file)?.take_end()?;
        Some((FileEnd { file, size }, next))
    }

    /// Records the result of a comparison: equal completes the file, else it is queued.
    pub fn on_compared(&mut self, file: u64, equal: bool) -> NextStep {
        if equal {
            self.drop_file(file);
            return NextStep::Completed;
        }
        self.queue(file)
    }

    /// Records acknowledged blocks.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadRun`].
    pub fn on_acks(&mut self, acks: &FileRuns) -> Result<NextStep, WireError> {
        if !self.files.contains_key(&acks.file) {
            // The file was given up while the acknowledgement was in flight.
            return Ok(NextStep::Nothing);
        }
        let file = acks.file;
        let blocks = self.blocks_mut(file)?;
        for run in &acks.runs {
            blocks.at_receiver.insert_run(*run)?;
            blocks.assigned.insert_run(*run)?;
        }
        check_runs(blocks.at_receiver.run_count().saturating_sub(blocks.hole_runs))?;
        let is_full = blocks.at_receiver.is_full();
        for run in &acks.runs {
            blocks.unconfirmed.remove_range(run.first..run.first + run.count);
        }
        for run in &acks.runs {
            self.remove_in_flight(file, *run);
        }
        match self.files.get_mut(&file) {
            Some(entry) if is_full && entry.state == State::Sending => {
                entry.state = State::Acknowledged;
                Ok(if entry.has_early_digest() { NextStep::Nothing } else { NextStep::SendDigest })
            }
            _ => Ok(NextStep::Nothing),
        }
    }

    /// Removes acknowledged blocks from those in flight. A peer chooses the length of the run.
    fn remove_in_flight(&mut self, file: u64, run: Run) {
        let acked = run.first..run.first + run.count;
        if run.count > self.in_flight.len() as u64 {
            self.in_flight.retain(|(of, index), _| *of != file || !acked.contains(index));
            return;
        }
        for index in acked {
            self.in_flight.remove(&(file, index));
        }
    }

    /// Returns BLAKE3 of the file, if all its blocks were read in this session.
    #[must_use]
    pub fn file_hash(&self, file: u64) -> Option<FileHash> {
        let Some(File { body: Body::Blocks(blocks), .. }) = self.files.get(&file) else {
            return None;
        };
        let hashes: Option<Vec<BlockHash>> =
            (0..blocks.layout.count()).map(|i| blocks.hashes.get(&i).copied()).collect();
        merge(&blocks.layout, &hashes?)
    }

    /// Records that a file is in place at the receiver.
    ///
    /// # Errors
    /// [`WireError::Unexpected`] before its file digest (blocks) or want (packed).
    pub fn on_finished(&mut self, id: u64) -> Result<NextStep, WireError> {
        let Some(file) = self.files.get(&id) else { return Ok(NextStep::Nothing) };
        let may_finish = match file.body {
            Body::None => true,
            Body::Packed { .. } => file.state == State::Sending,
            Body::Blocks(_) => file.state == State::Acknowledged || file.has_early_digest(),
        };
        if !may_finish {
            return Err(WireError::Unexpected("a file finished before it was sent"));
        }
        self.drop_file(id);
        Ok(NextStep::Completed)
    }

    /// Removes a file that either side gave up.
    pub fn drop_file(&mut self, id: u64) {
        if let Some(file) = self.files.remove(&id) {
            self.extra_weight -= file.weight;
            self.dirs.remove_entry(file.parent);
            if let Body::Blocks(blocks) = &file.body {
                self.hole_runs -= blocks.hole_runs;
            }
            match file.body {
                Body::Blocks(_) if file.state == State::Announced => {}
                Body::Blocks(_) => self.in_flight.retain(|(of, _), _| *of != id),
                _ => {
                    self.in_flight.remove(&(id, 0));
                }
            }
        }
    }

    /// Records a damaged block.
    ///
    /// # Errors
    /// [`WireError::Unexpected`] for a block that neither is in flight nor is being checked.
    pub fn on_nack(&mut self, id: u64, index: u64) -> Result<NextStep, WireError> {
        let Some(file) = self.files.get_mut(&id) else { return Ok(NextStep::Nothing) };
        let mut was_left = false;
        if let Body::Blocks(blocks) = &mut file.body {
            was_left = blocks.unconfirmed.remove(index);
            if was_left && blocks.at_receiver.contains(index) {
                return Ok(Self::on_nack_of_hole(file, index));
            }
        }
        if self.in_flight.remove(&(id, index)).is_none() && !was_left {
            return Err(WireError::Unexpected("a Nack of a block that was not sent"));
        }
        let nacks = file.nacks.entry(index).or_default();
        *nacks += 1;
        if *nacks >= MAX_NACKS {
            return Ok(NextStep::GiveUp);
        }
        self.requeue(id, index);
        Ok(NextStep::Work)
    }

    /// Voids the early digest of a file, as the receiver did on finding the damage.
    ///
    /// The receiver had not yet received the report that the block is a hole.
    fn on_nack_of_hole(file: &mut File, index: u64) -> NextStep {
        let is_due = file.state == State::Acknowledged && file.has_early_digest();
        *file.nacks.entry(index).or_default() += 1;
        if is_due { NextStep::SendDigest } else { NextStep::Nothing }
    }

    /// Records the end of a stream and requeues its unacknowledged work; true if there is any.
    pub fn on_stream_ended(&mut self, stream: u32) -> bool {
        let mut lost: Vec<(u64, u64)> =
            self.in_flight.iter().filter(|(_, s)| **s == stream).map(|(key, _)| *key).collect();
        // Requeueing in reverse keeps the original order.
        lost.sort_unstable();
        for (id, index) in lost.iter().rev() {
            self.in_flight.remove(&(*id, *index));
            self.requeue(*id, *index);
        }
        !lost.is_empty()
    }

    fn requeue(&mut self, id: u64, index: u64) {
        let Some(File { body, state, .. }) = self.files.get_mut(&id) else { return };
        match body {
            Body::Packed { .. } => self.packed_files.push_front(id),
            Body::Blocks(blocks) => {
                blocks.assigned.remove(index);
                blocks.cursor = blocks.cursor.min(index);
                // A file that is still being compared is queued after the comparison.
                if *state == State::Sending && !self.block_files.contains(&id) {
                    self.block_files.push_front(id);
                }
            }
            Body::None => {}
        }
    }

    fn blocks_mut(&mut self, id: u64) -> Result<&mut Blocks, WireError> {
        match self.files.get_mut(&id).map(|f| &mut f.body) {
            Some(Body::Blocks(blocks)) => Ok(blocks),
            _ => Err(WireError::BadFileId(id)),
        }
    }
}
