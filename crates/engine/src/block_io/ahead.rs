//! Ranges of files in memory whose pieces are read ahead of whoever uses them, several at a time:
//! what keeps a disk busy that nobody reads ahead for, since the page cache is passed by.

use super::read::ReadRange;
use super::uninterrupted;
use super::workers::Workers;
use bankfull_sys::{DirectAlign, Reads};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Pieces that are on their way from the disk while earlier ones are used. (measured: see
/// docs/block-io.md)
const AHEAD: usize = 4;

/// A piece of its own is handed out while the others are read.
const SLOTS: usize = AHEAD + 1;

/// Who reads: the kernel by itself, or threads where it does not let this process have that.
enum Requests {
    Ring(Box<Reads>),
    Threads(Workers),
}

impl Requests {
    fn begin(&mut self, index: usize, file: &File, offset: u64, len: usize) -> io::Result<()> {
        match self {
            Self::Ring(reads) => reads.begin(index, file, offset, len),
            Self::Threads(workers) => workers.begin(index, file, offset, len),
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
/// cache.
pub(crate) struct Ahead {
    requests: Requests,
    piece_bytes: usize,
    is_direct: bool,
    /// What is read from, where it is not the caller's own file.
    direct: Option<(File, DirectAlign)>,
    range: Range<u64>,
    /// Pieces that were begun and handed out.
    begun: u64,
    used: u64,
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
            direct: None,
            range: 0..0,
            begun: 0,
            used: 0,
        }
    }

    /// Where a piece begins.
    fn offset_of(&self, piece: u64) -> u64 {
        self.range.start + piece * self.piece_bytes as u64
    }

    fn slot_of(piece: u64) -> usize {
        (piece % SLOTS as u64) as usize
    }

    /// Begins all that there is room for.
    fn begin(&mut self, file: &File) -> io::Result<()> {
        while self.begun <= self.used + AHEAD as u64 && self.offset_of(self.begun) < self.range.end
        {
            let (index, at) = (Self::slot_of(self.begun), self.offset_of(self.begun));
            let len = (self.range.end - at).min(self.piece_bytes as u64);
            match &self.direct {
                Some((direct, align)) => {
                    // Whole units; behind the end of the file nothing comes.
                    let len = len.next_multiple_of(u64::from(align.offset)) as usize;
                    self.requests.begin(index, direct, at, len)?;
                }
                None => self.requests.begin(index, file, at, len as usize)?,
            }
            self.begun += 1;
        }
        Ok(())
    }

    /// Goes on through the page cache from where the next piece begins.
    fn go_through(&mut self, file: &File, at: u64) -> io::Result<&[u8]> {
        let left = at..self.range.end;
        self.settle();
        (self.direct, self.range) = (None, left);
        self.next(file)
    }

    /// Waits for what was begun and is not wanted any more.
    fn settle(&mut self) {
        for piece in self.used..self.begun {
            let _ = self.requests.bytes(Self::slot_of(piece));
        }
        (self.begun, self.used, self.range) = (0, 0, 0..0);
    }
}

/// Whether a file ends where less of it came than was asked for; else why no more came.
fn check_end(file: &File, at: u64) -> io::Result<()> {
    match uninterrupted(|| file.read_at(&mut [0], at))? {
        0 => Ok(()),
        _ => Err(io::Error::other("the disk gave a part of what was asked for")),
    }
}

impl ReadRange for Ahead {
    fn start(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.settle();
        if self.is_direct {
            let opened = bankfull_sys::open_direct(file, false)?;
            let fits = |align: &DirectAlign| {
                let unit = u64::from(align.offset.max(align.memory));
                range.start.is_multiple_of(unit) && (self.piece_bytes as u64).is_multiple_of(unit)
            };
            self.direct = opened.filter(|(_, align)| fits(align));
            if self.direct.is_none() {
                return Err(io::ErrorKind::Unsupported.into());
            }
        }
        self.range = range;
        self.begin(file)
    }

    fn next(&mut self, file: &File) -> io::Result<&[u8]> {
        // What was handed out last is not needed any more: its buffer is the next to be filled.
        self.begin(file)?;
        let (index, at) = (Self::slot_of(self.used), self.offset_of(self.used));
        if self.used == self.begun || at >= self.range.end {
            return Ok(&[]);
        }
        let len = (self.range.end - at).min(self.piece_bytes as u64) as usize;
        let came = match self.requests.bytes(index) {
            Ok(came) => came.len().min(len),
            // The disk wants something else than the kernel has told.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput && self.direct.is_some() => {
                return self.go_through(file, at);
            }
            Err(e) => return Err(e),
        };
        self.used += 1;
        if came < len {
            self.range.end = at;
            check_end(file, at + came as u64)?;
        }
        Ok(&self.requests.bytes(index)?[..came])
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn finish(&mut self) -> bool {
        self.settle();
        self.direct = None;
        true
    }
}
