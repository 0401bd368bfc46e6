//! Ranges of files in memory whose pieces are read ahead of whoever uses them, several at a time:
//! what keeps a disk busy that nobody reads ahead for, since the page cache is passed by. Where
//! it is known what comes next, reading goes on into that while the present range is used.

use super::read::{Buffered, ReadRange};
use super::workers::Workers;
use bankfull_sys::{DirectAlign, Reads};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Pieces that are on their way from the disk while earlier ones are used. [ours: with the one in
/// use they hold a block of 1 MiB, the least there is, in pieces of 256 KiB]
const AHEAD: usize = 4;

/// A piece of its own is handed out while the others are read.
const SLOTS: usize = AHEAD + 1;

/// Who reads: the kernel by itself, or threads where it does not let this process have that.
enum Requests {
    Ring(Box<Reads>),
    Threads(Workers),
}

impl Requests {
    fn begin(&mut self, index: usize, file: &Arc<File>, at: u64, len: usize) -> io::Result<()> {
        match self {
            Self::Ring(reads) => reads.begin(index, file, at, len),
            Self::Threads(workers) => workers.begin(index, file, at, len),
        }
    }

    fn bytes(&mut self, index: usize) -> io::Result<&[u8]> {
        match self {
            Self::Ring(reads) => reads.bytes(index),
            Self::Threads(workers) => workers.bytes(index),
        }
    }
}

/// Through buffers that are filled ahead of whoever uses them, by `io_uring` or past the page
/// cache. What does not come so is read through the page cache.
pub(crate) struct Ahead {
    requests: Requests,
    piece_bytes: usize,
    is_direct: bool,
    source: Option<Source>,
    /// What is left of the range in use, and what presumably comes next.
    range: Range<u64>,
    following: Range<u64>,
    /// What is left of both to be begun, and what was begun and not handed out, in order.
    to_begin: VecDeque<Range<u64>>,
    begun: VecDeque<Piece>,
    next_slot: usize,
    /// What reads the rest of the range, once something did not come.
    through: Option<Buffered>,
    is_through: bool,
}

/// What is read from: a descriptor of its own, which stays open while something is read.
struct Source {
    file: Arc<File>,
    /// Device and inode, which no other file has while it is open.
    id: (u64, u64),
    /// Bytes of which offsets and lengths are multiples.
    unit: u64,
}

struct Piece {
    slot: usize,
    at: u64,
    len: usize,
}

impl Ahead {
    /// By `io_uring`; `None` where the kernel does not let this process have it.
    pub(super) fn by_ring(piece_bytes: usize) -> io::Result<Option<Self>> {
        let reads = Reads::new(SLOTS, piece_bytes.max(1))?;
        Ok(reads.map(|reads| Self::new(Requests::Ring(Box::new(reads)), piece_bytes, false)))
    }

    /// Past the page cache, by `io_uring` where this process may have it, else by threads.
    pub(super) fn past_cache(piece_bytes: usize) -> io::Result<Self> {
        match Self::by_ring(piece_bytes) {
            Ok(Some(ahead)) => Ok(Self { is_direct: true, ..ahead }),
            _ => Self::past_cache_by_threads(piece_bytes),
        }
    }

    pub(super) fn past_cache_by_threads(piece_bytes: usize) -> io::Result<Self> {
        let workers = Workers::new(SLOTS, piece_bytes.max(1))?;
        Ok(Self::new(Requests::Threads(workers), piece_bytes, true))
    }

    fn new(requests: Requests, piece_bytes: usize, is_direct: bool) -> Self {
        Self {
            requests,
            piece_bytes: piece_bytes.max(1),
            is_direct,
            source: None,
            range: 0..0,
            following: 0..0,
            to_begin: VecDeque::new(),
            begun: VecDeque::new(),
            next_slot: 0,
            through: None,
            is_through: false,
        }
    }

    /// Another range of the same file presumably comes next: it is read when the present one is.
    pub(super) fn follow(&mut self, next: Range<u64>) {
        let fits = self.source.as_ref().is_some_and(|source| self.fits(source.unit, &next));
        if fits && !self.is_through && self.following.is_empty() {
            self.following = next.clone();
            self.to_begin.push_back(next);
        }
    }

    /// Waits for what was begun, and forgets it, with the file.
    pub(super) fn forget(&mut self) {
        self.settle();
        self.source = None;
    }

    fn settle(&mut self) {
        self.to_begin.clear();
        for piece in std::mem::take(&mut self.begun) {
            let _ = self.requests.bytes(piece.slot);
        }
        (self.range, self.following) = (0..0, 0..0);
        self.is_through = false;
    }

    fn fits(&self, unit: u64, range: &Range<u64>) -> bool {
        range.start.is_multiple_of(unit) && (self.piece_bytes as u64).is_multiple_of(unit)
    }

    /// Begins all that there is room for.
    fn begin(&mut self) -> io::Result<()> {
        let Some(Source { file, unit, .. }) = &self.source else { return Ok(()) };
        while self.begun.len() < SLOTS
            && let Some(left) = self.to_begin.front_mut()
        {
            if left.is_empty() {
                self.to_begin.pop_front();
                continue;
            }
            let (slot, at) = (self.next_slot, left.start);
            let len = (left.end - at).min(self.piece_bytes as u64);
            // Whole units; behind the end of the file nothing comes.
            self.requests.begin(slot, file, at, len.next_multiple_of(*unit) as usize)?;
            left.start += len;
            self.begun.push_back(Piece { slot, at, len: len as usize });
            self.next_slot = (slot + 1) % SLOTS;
        }
        Ok(())
    }

    /// Reads the rest of the range through the page cache.
    fn go_through(&mut self, file: &File) -> io::Result<&[u8]> {
        let left = self.range.clone();
        self.settle();
        self.is_through = true;
        let piece_bytes = self.piece_bytes;
        let through = self.through.get_or_insert_with(|| Buffered::new(piece_bytes));
        through.start(file, left)?;
        through.next(file)
    }

    /// What is read from, where it is the same file still.
    fn same_source(&mut self, id: (u64, u64)) -> Option<Source> {
        self.source.take_if(|source| source.id == id)
    }

    fn open(&self, file: &File, id: (u64, u64)) -> io::Result<Source> {
        if !self.is_direct {
            return Ok(Source { file: Arc::new(file.try_clone()?), id, unit: 1 });
        }
        let opened = bankfull_sys::open_direct(file, false)?;
        let (direct, DirectAlign { memory, offset }) = opened.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Source { file: Arc::new(direct), id, unit: u64::from(offset.max(memory)) })
    }
}

impl ReadRange for Ahead {
    fn start(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        let stat = file.metadata()?;
        let id = (stat.dev(), stat.ino());
        let is_same = self.source.as_ref().is_some_and(|source| source.id == id);
        if is_same && !range.is_empty() && self.range.is_empty() && self.following == range {
            (self.range, self.following) = (range, 0..0);
            return Ok(());
        }
        self.settle();
        let source = self.same_source(id).map_or_else(|| self.open(file, id), Ok)?;
        if !self.fits(source.unit, &range) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.source = Some(source);
        self.range = range.clone();
        self.to_begin.push_back(range);
        Ok(())
    }

    fn next(&mut self, file: &File) -> io::Result<&[u8]> {
        if self.is_through {
            return self.through.as_mut().map_or(Ok(&[]), |through| through.next(file));
        }
        if self.range.is_empty() {
            return Ok(&[]);
        }
        // What was handed out last is not needed any more: its buffer is the next to be filled.
        if self.begin().is_err() {
            // What was begun comes, and the rest through the cache.
            self.to_begin.clear();
        }
        let at = self.range.start;
        let Some(piece) = self.begun.pop_front_if(|piece| piece.at == at) else {
            return self.go_through(file);
        };
        // Less than was asked for: the file has ended, or the disk gives no more, or wants
        // something else than the kernel has told. Whoever reads it again finds out.
        let is_whole = self.requests.bytes(piece.slot).is_ok_and(|came| came.len() >= piece.len);
        if !is_whole {
            return self.go_through(file);
        }
        self.range.start += piece.len as u64;
        Ok(&self.requests.bytes(piece.slot)?[..piece.len])
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn finish(&mut self) -> bool {
        // What follows may be on its way.
        if self.following.is_empty() || !self.range.is_empty() {
            self.forget();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const PIECE: usize = 4096;

    fn file_of(bytes: usize) -> (File, Vec<u8>) {
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        (file, content)
    }

    /// By threads, from a file as it is: so it is to be had everywhere.
    fn ahead() -> Ahead {
        let workers = Workers::new(SLOTS, PIECE).unwrap();
        Ahead::new(Requests::Threads(workers), PIECE, false)
    }

    fn all_of(way: &mut Ahead, file: &File) -> Vec<u8> {
        let mut came = Vec::new();
        loop {
            match way.next(file).unwrap() {
                [] => return came,
                piece => came.extend_from_slice(piece),
            }
        }
    }

    #[test]
    fn what_follows_is_on_its_way_before_the_present_range_is_used_up() {
        let (file, content) = file_of(20 * PIECE);
        let piece = PIECE as u64;
        let mut way = ahead();
        way.start(&file, 0..3 * piece).unwrap();
        way.follow(10 * piece..14 * piece);
        assert_eq!(way.next(&file).unwrap(), &content[..PIECE]);
        let begun: Vec<u64> = way.begun.iter().map(|one| one.at / piece).collect();
        assert_eq!(begun, [1, 2, 10, 11]);
        assert!(all_of(&mut way, &file) == content[PIECE..3 * PIECE], "no more than the range");
        assert!(way.finish());
        way.start(&file, 10 * piece..14 * piece).unwrap();
        assert_eq!(way.begun.front().map(|one| one.at), Some(10 * piece), "it is not read again");
        assert!(all_of(&mut way, &file) == content[10 * PIECE..14 * PIECE]);
    }

    #[test]
    fn what_was_to_follow_and_does_not_is_not_taken_for_something_else() {
        let (file, content) = file_of(20 * PIECE);
        let (other, _) = file_of(20 * PIECE);
        other.set_len(0).unwrap();
        let piece = PIECE as u64;
        let mut way = ahead();
        let follow = |way: &mut Ahead| {
            way.start(&file, 0..2 * piece).unwrap();
            way.follow(5 * piece..7 * piece);
            all_of(way, &file);
            way.finish();
            assert!(!way.begun.is_empty());
        };
        follow(&mut way);
        way.start(&file, 3 * piece..4 * piece).unwrap();
        assert!(all_of(&mut way, &file) == content[3 * PIECE..4 * PIECE]);
        follow(&mut way);
        way.start(&other, 5 * piece..7 * piece).unwrap();
        assert!(all_of(&mut way, &other).is_empty(), "of another file");
        follow(&mut way);
        way.forget();
        file.set_len(0).unwrap();
        way.start(&file, 5 * piece..7 * piece).unwrap();
        assert!(all_of(&mut way, &file).is_empty(), "it was read anew");
    }

    #[test]
    fn what_cannot_be_begun_or_does_not_come_whole_is_read_through_the_cache() {
        let (file, content) = file_of(20 * PIECE);
        let mut way = ahead();
        way.start(&file, 0..20 * PIECE as u64).unwrap();
        assert_eq!(way.next(&file).unwrap(), &content[..PIECE]);
        // Nothing can be begun there.
        way.next_slot = SLOTS;
        assert!(all_of(&mut way, &file) == content[PIECE..] && way.is_through);
        // What it reads from gives less than the file has.
        let (short, _) = file_of(PIECE + 10);
        let mut way = ahead();
        way.start(&file, 0..20 * PIECE as u64).unwrap();
        if let Some(source) = &mut way.source {
            source.file = Arc::new(short);
        }
        assert!(all_of(&mut way, &file) == content && way.is_through);
        // What it reads from cannot be read.
        way.start(&file, 0..2 * PIECE as u64).unwrap();
        if let Some(source) = &mut way.source {
            source.file = Arc::new(File::open("/").unwrap());
        }
        assert!(all_of(&mut way, &file) == content[..2 * PIECE] && way.is_through);
        way.start(&file, 0..PIECE as u64).unwrap();
        assert!(!way.is_through, "the next range is tried anew");
    }
}
