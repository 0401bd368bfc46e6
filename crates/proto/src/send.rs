//! The sender's books: which files are announced, wanted, on their way, acknowledged and settled.
//!
//! The rules it keeps: a block is handed out once; it is handed out again only when its connection
//! ended without an acknowledgement, or when the receiver found it damaged; a file is sealed only
//! when all its blocks are acknowledged, or ahead of that when all were read. It reads no file and
//! knows no socket: the engine asks [`SendLedger::next_work`] and reports what happened.

use crate::blocks::{BlockSet, Layout};
use crate::hash::{BlockHash, FileHash, merge};
use crate::limits::{PACK_BYTES_TARGET, PACK_FILES_MAX};
use crate::wire::WireError;
use crate::wire::control::{Entry, EntryKind, FileRuns, Verdict, Want};
use crate::wire::data::PACK_RECORD_BYTES;
use std::collections::{HashMap, VecDeque};

/// A block that verification refused this often is given up with its file: the third time in a row
/// is no accident of the path. (ours)
const NACKS_MAX: u32 = 3;

/// A stream takes no more than one of so many shares of the small files that wait: at first they
/// are few, as many as the receiver could answer for in a round trip, and the other streams must
/// find something too, or they do not open their windows. (ours: as many as a transfer begins
/// with on a long path)
const PACK_SHARES: usize = 16;

/// Fewer files than that are not worth a pack of their own, where others wait. (ours: 32 KiB of
/// files of 4 KiB, twice the window that a connection begins with)
const PACK_FILES_MIN: usize = 8;

/// Something for a stream to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Send this block.
    Block {
        /// File number.
        file: u64,
        /// Block number.
        index: u64,
    },
    /// Send these small files in one pack.
    Pack(Vec<u64>),
    /// Hash this file and compare; then call [`SendLedger::compared`].
    Compare {
        /// File number.
        file: u64,
        /// The receiver's hash.
        hash: FileHash,
    },
}

/// What follows from a message of the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There is work for the streams.
    Work,
    /// Every block is at the receiver: check that the source is unchanged, then seal or abort.
    Seal,
    /// Every block was read, and the receiver takes a seal now: check the source, then ask
    /// [`SendLedger::seal_ahead`].
    SealAhead,
    /// The file is settled.
    Settled,
    /// Give the file up: it failed verification too often.
    GiveUp,
    /// Nothing.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Announced,
    Comparing,
    Sending,
    Sealed,
}

#[derive(Debug)]
struct File {
    state: State,
    body: Body,
    /// How often each block was refused.
    nacks: HashMap<u64, u32>,
    /// Whether the receiver takes a seal ahead, and whether it was sent.
    takes_ahead: bool,
    ahead: bool,
}

impl File {
    /// Whether the receiver has a seal that counts once it has all blocks.
    fn is_sealed_ahead(&self) -> bool {
        self.ahead && self.nacks.is_empty()
    }
}

#[derive(Debug)]
enum Body {
    Symlink,
    Packed { size: u64 },
    Blocks(Box<Blocks>),
}

#[derive(Debug)]
struct Blocks {
    layout: Layout,
    /// At the receiver.
    there: BlockSet,
    /// Handed out or at the receiver.
    taken: BlockSet,
    /// No block before this one is free: handing out a file's blocks in order stays linear.
    cursor: u64,
    hashes: HashMap<u64, BlockHash>,
    /// Read by this side, or at the receiver before.
    read: BlockSet,
}

/// The sender's books. See the module's documentation.
#[derive(Debug, Default)]
pub struct SendLedger {
    files: HashMap<u64, File>,
    blocks: VecDeque<u64>,
    small: VecDeque<u64>,
    compare: VecDeque<(u64, FileHash)>,
    /// Handed out and not yet acknowledged, with the stream it went to. Packed files count as block
    /// 0.
    in_flight: HashMap<(u64, u64), u32>,
    all_announced: bool,
}

impl SendLedger {
    /// Empty books.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Enters an announced file or symlink. Directories are not the ledger's business.
    ///
    /// # Errors
    /// [`WireError::BadLayout`] for a block size that is not allowed.
    pub fn announce(&mut self, entry: &Entry) -> Result<(), WireError> {
        let body = match (entry.kind, entry.block_bytes) {
            (EntryKind::Dir, _) => return Ok(()),
            (EntryKind::Symlink, _) => Body::Symlink,
            (EntryKind::File, 0) => Body::Packed { size: entry.size },
            (EntryKind::File, block_bytes) => {
                let layout = Layout::new(entry.size, block_bytes)?;
                let empty = BlockSet::new(layout.count());
                Body::Blocks(Box::new(Blocks {
                    layout,
                    there: empty.clone(),
                    taken: empty.clone(),
                    read: empty,
                    cursor: 0,
                    hashes: HashMap::new(),
                }))
            }
        };
        let file = File {
            state: State::Announced,
            body,
            nacks: HashMap::new(),
            takes_ahead: false,
            ahead: false,
        };
        self.files.insert(entry.id, file);
        Ok(())
    }

    /// No more entries will be announced, but for files that are announced again.
    pub fn end_of_entries(&mut self) {
        self.all_announced = true;
    }

    /// Whether every announced file is settled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.all_announced && self.files.is_empty()
    }

    /// How many files are not settled yet.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.files.len()
    }

    /// Takes in blocks that the receiver has, ahead of the file's want.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadRun`], [`WireError::Unexpected`] once the file's
    /// want was taken in: nobody would look again whether it is complete.
    pub fn on_have(&mut self, have: &FileRuns) -> Result<(), WireError> {
        if self.files.get(&have.file).is_some_and(|file| file.state != State::Announced) {
            return Err(WireError::Unexpected(
                "blocks reported after what is wanted of their file",
            ));
        }
        let blocks = self.blocks_mut(have.file)?;
        for run in &have.runs {
            blocks.there.insert_run(*run)?;
            blocks.taken.insert_run(*run)?;
            blocks.read.insert_run(*run)?;
        }
        Ok(())
    }

    /// Takes in the receiver's verdict on a file.
    ///
    /// # Errors
    /// [`WireError::BadFileId`] for a file that is not waiting for one, [`WireError::BadRun`],
    /// [`WireError::Malformed`] for a comparison without a hash.
    pub fn on_want(&mut self, want: &Want) -> Result<Next, WireError> {
        let file = self.files.get(&want.file).ok_or(WireError::BadFileId(want.file))?;
        if file.state != State::Announced {
            return Err(WireError::BadFileId(want.file));
        }
        if let Some(file) = self.files.get_mut(&want.file) {
            file.takes_ahead = want.ahead.unwrap_or_default();
        }
        match want.verdict {
            Verdict::Skip | Verdict::WouldSend | Verdict::Refused => {
                self.files.remove(&want.file);
                Ok(Next::Settled)
            }
            Verdict::IfDiffers => {
                let hash = want.hash.ok_or_else(|| {
                    WireError::Malformed("a comparison without a hash".to_owned())
                })?;
                self.have_of(want)?;
                if let Some(file) = self.files.get_mut(&want.file) {
                    file.state = State::Comparing;
                }
                self.compare.push_back((want.file, FileHash(hash)));
                Ok(Next::Work)
            }
            Verdict::Send => {
                self.have_of(want)?;
                Ok(self.queue(want.file))
            }
        }
    }

    /// Takes in the blocks that a want itself reports.
    fn have_of(&mut self, want: &Want) -> Result<(), WireError> {
        if want.have.is_empty() {
            return Ok(());
        }
        self.on_have(&FileRuns { file: want.file, runs: want.have.clone() })
    }

    /// Queues a wanted file; says what is next for it.
    fn queue(&mut self, id: u64) -> Next {
        let Some(file) = self.files.get_mut(&id) else { return Next::Nothing };
        file.state = State::Sending;
        match &file.body {
            Body::Symlink => Next::Nothing,
            Body::Packed { .. } => {
                self.small.push_back(id);
                Next::Work
            }
            Body::Blocks(blocks) if blocks.there.is_full() => {
                file.state = State::Sealed;
                Next::Seal
            }
            Body::Blocks(_) => {
                self.blocks.push_back(id);
                Next::Work
            }
        }
    }

    /// Marks blocks as holes: the receiver learns of them by a message that comes before the seal,
    /// so no stream carries them and nobody acknowledges them. Call it before the want is taken in.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadRun`].
    pub fn on_holes(&mut self, holes: &FileRuns) -> Result<(), WireError> {
        self.on_have(holes)
    }

    /// Hands out something to do for `stream`. Odd streams look for blocks first and even ones for
    /// packs, so that small files and big ones share the streams whatever order they come in.
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
        while let Some(&id) = self.blocks.front() {
            if let Some(File { body: Body::Blocks(blocks), .. }) = self.files.get_mut(&id)
                && let Some(index) = blocks.taken.next_missing(blocks.cursor)
            {
                blocks.taken.insert(index);
                blocks.cursor = index + 1;
                self.in_flight.insert((id, index), stream);
                return Some(Work::Block { file: id, index });
            }
            self.blocks.pop_front();
        }
        None
    }

    /// Hands out the next block of a file ahead of its turn to the stream that is about to send
    /// another one of it, so that it may be read meanwhile. Not where less than `least` blocks are
    /// left, which others may send sooner, nor where something else would come next.
    pub fn block_ahead(&mut self, stream: u32, file: u64, least: u64) -> Option<u64> {
        let is_pack_first = stream.is_multiple_of(2) && !self.small.is_empty();
        if !self.compare.is_empty() || is_pack_first || self.blocks.front() != Some(&file) {
            return None;
        }
        let Some(File { body: Body::Blocks(blocks), .. }) = self.files.get(&file) else {
            return None;
        };
        if blocks.layout.count().saturating_sub(blocks.cursor) < least.max(1) {
            return None;
        }
        match self.next_block(stream)? {
            Work::Block { file: of, index } if of == file => Some(index),
            // Its blocks were taken: this one waits for whoever asks.
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
        let files_max = (self.small.len() / PACK_SHARES).clamp(PACK_FILES_MIN, PACK_FILES_MAX);
        while pack.len() < files_max && bytes < PACK_BYTES_TARGET {
            let Some(id) = self.small.pop_front() else { break };
            // A file dropped meanwhile is no longer in the books.
            if let Some(File { body: Body::Packed { size }, .. }) = self.files.get(&id) {
                bytes += *size as usize + PACK_RECORD_BYTES;
                pack.push(id);
                self.in_flight.insert((id, 0), stream);
            }
        }
        (!pack.is_empty()).then_some(Work::Pack(pack))
    }

    /// Whether a file is still to be sent: work handed out earlier may be moot by now.
    #[must_use]
    pub fn is_open(&self, file: u64) -> bool {
        self.files.contains_key(&file)
    }

    /// Content bytes of a file that were at the receiver before this session; `None` for a file
    /// that does not travel in blocks. Holes count: ask before they are entered to leave them out.
    #[must_use]
    pub fn bytes_there(&self, file: u64) -> Option<u64> {
        match self.files.get(&file).map(|f| &f.body) {
            Some(Body::Blocks(blocks)) => {
                let runs = blocks.there.runs().flat_map(|r| r.first..r.first + r.count);
                Some(runs.map(|index| blocks.layout.len_of(index)).sum())
            }
            _ => None,
        }
    }

    /// Reports the hash of a block that was read and is being sent, so that the whole file's can be
    /// merged; says whether that was the last one.
    pub fn sent_block(&mut self, file: u64, index: u64, hash: BlockHash) -> Next {
        let Some(file) = self.files.get_mut(&file) else { return Next::Nothing };
        let Body::Blocks(blocks) = &mut file.body else { return Next::Nothing };
        blocks.hashes.insert(index, hash);
        let is_last = blocks.read.insert(index) && blocks.read.is_full();
        match is_last && file.takes_ahead {
            true => Next::SealAhead,
            false => Next::Nothing,
        }
    }

    /// Whether to send a seal ahead, now that the source was found unchanged. Not where a block
    /// arrived damaged, or all are there by now: that has another one follow.
    pub fn seal_ahead(&mut self, file: u64) -> bool {
        let Some(file) = self.files.get_mut(&file) else { return false };
        file.ahead = file.state == State::Sending && file.nacks.is_empty();
        file.ahead
    }

    /// Whether a block is being sent again of a file that may be sealed by now: then it has to be
    /// of the same source as before.
    #[must_use]
    pub fn is_sent_again(&self, file: u64, index: u64) -> bool {
        self.files.get(&file).is_some_and(|file| match &file.body {
            Body::Blocks(blocks) => file.takes_ahead && blocks.read.contains(index),
            _ => false,
        })
    }

    /// Reports a comparison's outcome: equal settles the file, else it is queued.
    pub fn compared(&mut self, file: u64, equal: bool) -> Next {
        if equal {
            self.files.remove(&file);
            return Next::Settled;
        }
        self.queue(file)
    }

    /// Takes in acknowledged blocks.
    ///
    /// # Errors
    /// [`WireError::BadFileId`], [`WireError::BadRun`].
    pub fn on_acks(&mut self, acks: &FileRuns) -> Result<Next, WireError> {
        if !self.files.contains_key(&acks.file) {
            // Given up on this side while the acknowledgement travelled.
            return Ok(Next::Nothing);
        }
        let file = acks.file;
        let blocks = self.blocks_mut(file)?;
        for run in &acks.runs {
            blocks.there.insert_run(*run)?;
            blocks.taken.insert_run(*run)?;
        }
        let full = blocks.there.is_full();
        for run in &acks.runs {
            for index in run.first..run.first + run.count {
                self.in_flight.remove(&(file, index));
            }
        }
        match self.files.get_mut(&file) {
            Some(entry) if full && entry.state == State::Sending => {
                entry.state = State::Sealed;
                Ok(if entry.is_sealed_ahead() { Next::Nothing } else { Next::Seal })
            }
            _ => Ok(Next::Nothing),
        }
    }

    /// BLAKE3 of the whole file, when all its blocks were read in this session.
    #[must_use]
    pub fn whole_hash(&self, file: u64) -> Option<FileHash> {
        let Some(File { body: Body::Blocks(blocks), .. }) = self.files.get(&file) else {
            return None;
        };
        let hashes: Option<Vec<BlockHash>> =
            (0..blocks.layout.count()).map(|i| blocks.hashes.get(&i).copied()).collect();
        merge(&blocks.layout, &hashes?)
    }

    /// Takes in that a file is in place at the receiver.
    ///
    /// # Errors
    /// [`WireError::Unexpected`] when it was not sealed (or packed, or a symlink).
    pub fn on_finished(&mut self, id: u64) -> Result<Next, WireError> {
        let Some(file) = self.files.get(&id) else { return Ok(Next::Nothing) };
        let ready = match file.body {
            Body::Symlink => true,
            Body::Packed { .. } => file.state == State::Sending,
            Body::Blocks(_) => file.state == State::Sealed || file.is_sealed_ahead(),
        };
        if !ready {
            return Err(WireError::Unexpected("a file finished before it was sent"));
        }
        self.drop_file(id);
        Ok(Next::Settled)
    }

    /// Forgets a file: the receiver failed it, or this side gave it up.
    pub fn drop_file(&mut self, id: u64) {
        if let Some(file) = self.files.remove(&id) {
            match file.body {
                Body::Blocks(_) => self.in_flight.retain(|(of, _), _| *of != id),
                _ => {
                    self.in_flight.remove(&(id, 0));
                }
            }
        }
    }

    /// Takes in that a block arrived damaged.
    ///
    /// # Errors
    /// [`WireError::BadBlock`] for a block that was not on its way.
    pub fn on_nack(&mut self, id: u64, index: u64) -> Result<Next, WireError> {
        let Some(file) = self.files.get_mut(&id) else { return Ok(Next::Nothing) };
        if self.in_flight.remove(&(id, index)).is_none() {
            return Err(WireError::Unexpected("a complaint about a block that was not sent"));
        }
        let nacks = file.nacks.entry(index).or_default();
        *nacks += 1;
        if *nacks >= NACKS_MAX {
            return Ok(Next::GiveUp);
        }
        self.requeue(id, index);
        Ok(Next::Work)
    }

    /// Takes in that a connection is closed: what it carried and nobody acknowledged goes back into
    /// the queue. Returns whether there is work again.
    pub fn stream_ended(&mut self, stream: u32) -> bool {
        let mut lost: Vec<(u64, u64)> =
            self.in_flight.iter().filter(|(_, s)| **s == stream).map(|(key, _)| *key).collect();
        // Put back from the last to the first, they come out in the order they went in.
        lost.sort_unstable();
        for (id, index) in lost.iter().rev() {
            self.in_flight.remove(&(*id, *index));
            self.requeue(*id, *index);
        }
        !lost.is_empty()
    }

    fn requeue(&mut self, id: u64, index: u64) {
        match self.files.get_mut(&id).map(|f| &mut f.body) {
            Some(Body::Packed { .. }) => self.small.push_front(id),
            Some(Body::Blocks(blocks)) => {
                blocks.taken.remove(index);
                blocks.cursor = blocks.cursor.min(index);
                if !self.blocks.contains(&id) {
                    self.blocks.push_front(id);
                }
            }
            _ => {}
        }
    }

    fn blocks_mut(&mut self, id: u64) -> Result<&mut Blocks, WireError> {
        match self.files.get_mut(&id).map(|f| &mut f.body) {
            Some(Body::Blocks(blocks)) => Ok(blocks),
            _ => Err(WireError::BadFileId(id)),
        }
    }
}
