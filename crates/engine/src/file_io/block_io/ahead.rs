//! Prefetching reader of file ranges: several chunks are read at a time before they are used. It
//! replaces the kernel's readahead when the page cache is bypassed, and continues into the next
//! range if that is known.

use super::buffered::{Buffered, ReadRange};
use super::workers::ReadThreads;
use bankfull_sys::{DirectAlign, ReadRing};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Chunks that are read from the disk while one is in use. (chosen: with that one they
/// hold the smallest block, 1 MiB, in chunks of 256 KiB)
const PREFETCHED_CHUNKS: usize = 4;

/// Buffers: the chunk in use, and those being read.
const BUFFERS: usize = PREFETCHED_CHUNKS + 1;

/// Executor of the reads: the kernel's `io_uring`, or threads if it is unavailable.
enum ReadBackend {
    Ring(Box<ReadRing>),
    Threads(ReadThreads),
}

impl ReadBackend {
    fn begin(&mut self, index: usize, file: &Arc<File>, at: u64, len: usize) -> io::Result<()> {
        match self {
            Self::Ring(reads) => reads.begin(index, file, at, len),
            Self::Threads(threads) => threads.begin(index, file, at, len),
        }
    }

    fn bytes(&mut self, index: usize) -> io::Result<&[u8]> {
        match self {
            Self::Ring(reads) => reads.bytes(index),
            Self::Threads(threads) => threads.bytes(index),
        }
    }
}

/// Reads ranges into buffers ahead of their use, by `io_uring` or past the page cache. A read that
/// fails is repeated through the page cache.
pub(crate) struct Prefetcher {
    backend: ReadBackend,
    chunk_bytes: usize,
    is_direct: bool,
    source: Option<Source>,
    /// Rest of the current range, and the expected next range.
    range: Range<u64>,
    next_range: Range<u64>,
    /// Rest of both that is not started, and reads started but not returned, in order.
    to_start: VecDeque<Range<u64>>,
    started: VecDeque<StartedRead>,
    next_slot: usize,
    /// Reader for the rest of the range after a failed read.
    fallback: Option<Buffered>,
    is_fallback: bool,
}

/// File to read from: a descriptor of its own, open while reads are in progress.
struct Source {
    file: Arc<File>,
    /// Device and inode, unique while the file is open.
    id: (u64, u64),
    /// Offsets and lengths are multiples of this, in bytes.
    alignment: u64,
}

/// Read of a chunk in progress.
struct StartedRead {
    slot: usize,
    at: u64,
    len: usize,
}

impl Prefetcher {
    /// Reader by `io_uring`; `None` if the kernel denies it to this process.
    pub(crate) fn with_io_uring(chunk_bytes: usize) -> io::Result<Option<Self>> {
        let reads = ReadRing::new(BUFFERS, chunk_bytes.max(1))?;
        Ok(reads.map(|reads| Self::new(ReadBackend::Ring(Box::new(reads)), chunk_bytes, false)))
    }

    /// Reader past the page cache, by `io_uring` if available, else by threads.
    pub(crate) fn direct_io(chunk_bytes: usize) -> io::Result<Self> {
        match Self::with_io_uring(chunk_bytes) {
            Ok(Some(reader)) => Ok(Self { is_direct: true, ..reader }),
            _ => Self::direct_io_with_threads(chunk_bytes),
        }
    }

    pub(crate) fn direct_io_with_threads(chunk_bytes: usize) -> io::Result<Self> {
        let threads = ReadThreads::new(BUFFERS, chunk_bytes.max(1))?;
        Ok(Self::new(ReadBackend::Threads(threads), chunk_bytes, true))
    }

    fn new(backend: ReadBackend, chunk_bytes: usize, is_direct: bool) -> Self {
        Self {
            backend,
            chunk_bytes: chunk_bytes.max(1),
            is_direct,
            source: None,
            range: 0..0,
            next_range: 0..0,
            to_start: VecDeque::new(),
            started: VecDeque::new(),
            next_slot: 0,
            fallback: None,
            is_fallback: false,
        }
    }

    /// Announces the expected next range of the file, read after the current one.
    pub(crate) fn prefetch(&mut self, next: Range<u64>) {
        let fits = self.source.as_ref().is_some_and(|source| self.fits(source.alignment, &next));
        if fits && !self.is_fallback && self.next_range.is_empty() {
            self.next_range = next.clone();
            self.to_start.push_back(next);
        }
    }

    /// Waits for reads in progress and discards them, with the file.
    pub(crate) fn discard(&mut self) {
        self.drain();
        self.source = None;
    }

    fn drain(&mut self) {
        self.to_start.clear();
        for chunk in std::mem::take(&mut self.started) {
            let _ = self.backend.bytes(chunk.slot);
        }
        (self.range, self.next_range) = (0..0, 0..0);
        self.is_fallback = false;
    }

    fn fits(&self, alignment: u64, range: &Range<u64>) -> bool {
        range.start.is_multiple_of(alignment) && (self.chunk_bytes as u64).is_multiple_of(alignment)
    }

    /// Starts reads until all buffers are in use.
    fn begin(&mut self) -> io::Result<()> {
        let Some(Source { file, alignment, .. }) = &self.source else { return Ok(()) };
        while self.started.len() < BUFFERS
            && let Some(left) = self.to_start.front_mut()
        {
            if left.is_empty() {
                self.to_start.pop_front();
                continue;
            }
            let (slot, at) = (self.next_slot, left.start);
            let len = (left.end - at).min(self.chunk_bytes as u64);
            // Whole units; nothing follows the end of the file.
            self.backend.begin(slot, file, at, len.next_multiple_of(*alignment) as usize)?;
            left.start += len;
            self.started.push_back(StartedRead { slot, at, len: len as usize });
            self.next_slot = (slot + 1) % BUFFERS;
        }
        Ok(())
    }

    /// Reads the rest of the range through the page cache.
    fn fall_back(&mut self, file: &File) -> io::Result<&[u8]> {
        let left = self.range.clone();
        self.drain();
        self.is_fallback = true;
        let chunk_bytes = self.chunk_bytes;
        let fallback = self.fallback.get_or_insert_with(|| Buffered::new(chunk_bytes));
        fallback.start(file, left)?;
        fallback.next(file)
    }

    /// The open file, if it is still the same one.
    fn take_source(&mut self, id: (u64, u64)) -> Option<Source> {
        self.source.take_if(|source| source.id == id)
    }

    fn open(&self, file: &File, id: (u64, u64)) -> io::Result<Source> {
        if !self.is_direct {
            return Ok(Source { file: Arc::new(file.try_clone()?), id, alignment: 1 });
        }
        let opened = bankfull_sys::open_direct(file, false)?;
        let (direct, DirectAlign { memory, offset }) = opened.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Source { file: Arc::new(direct), id, alignment: u64::from(offset.max(memory)) })
    }
}

impl ReadRange for Prefetcher {
    fn start(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        let stat = file.metadata()?;
        let id = (stat.dev(), stat.ino());
        let is_same = self.source.as_ref().is_some_and(|source| source.id == id);
        if is_same && !range.is_empty() && self.range.is_empty() && self.next_range == range {
            (self.range, self.next_range) = (range, 0..0);
            return Ok(());
        }
        self.drain();
        let source = self.take_source(id).map_or_else(|| self.open(file, id), Ok)?;
        if !self.fits(source.alignment, &range) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.source = Some(source);
        self.range = range.clone();
        self.to_start.push_back(range);
        Ok(())
    }

    fn next(&mut self, file: &File) -> io::Result<&[u8]> {
        if self.is_fallback {
            return self.fallback.as_mut().map_or(Ok(&[]), |fallback| fallback.next(file));
        }
        if self.range.is_empty() {
            return Ok(&[]);
        }
        // The chunk returned last is no longer in use; its buffer is the next to fill.
        if self.begin().is_err() {
            // Reads in progress complete; the rest goes through the page cache.
            self.to_start.clear();
        }
        let at = self.range.start;
        let Some(chunk) = self.started.pop_front_if(|chunk| chunk.at == at) else {
            return self.fall_back(file);
        };
        // Short read: the end of the file, a disk error, or a wrong alignment. The fallback finds
        // out.
        let is_whole = self.backend.bytes(chunk.slot).is_ok_and(|read| read.len() >= chunk.len);
        if !is_whole {
            return self.fall_back(file);
        }
        self.range.start += chunk.len as u64;
        Ok(&self.backend.bytes(chunk.slot)?[..chunk.len])
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn finish(&mut self) -> bool {
        // The next range may be in progress.
        if self.next_range.is_empty() || !self.range.is_empty() {
            self.discard();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const CHUNK: usize = 4096;

    fn file_of(bytes: usize) -> (File, Vec<u8>) {
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        (file, content)
    }

    /// By threads and through the page cache, which works everywhere.
    fn prefetcher() -> Prefetcher {
        let threads = ReadThreads::new(BUFFERS, CHUNK).unwrap();
        Prefetcher::new(ReadBackend::Threads(threads), CHUNK, false)
    }

    fn all_of(reader: &mut Prefetcher, file: &File) -> Vec<u8> {
        let mut read = Vec::new();
        loop {
            match reader.next(file).unwrap() {
                [] => return read,
                chunk => read.extend_from_slice(chunk),
            }
        }
    }

    #[test]
    fn next_range_is_prefetched_before_current_one_ends() {
        let (file, content) = file_of(20 * CHUNK);
        let chunk = CHUNK as u64;
        let mut reader = prefetcher();
        reader.start(&file, 0..3 * chunk).unwrap();
        reader.prefetch(10 * chunk..14 * chunk);
        assert_eq!(reader.next(&file).unwrap(), &content[..CHUNK]);
        let started: Vec<u64> = reader.started.iter().map(|one| one.at / chunk).collect();
        assert_eq!(started, [1, 2, 10, 11]);
        assert!(all_of(&mut reader, &file) == content[CHUNK..3 * CHUNK], "no more than the range");
        assert!(reader.finish());
        reader.start(&file, 10 * chunk..14 * chunk).unwrap();
        assert_eq!(reader.started.front().map(|one| one.at), Some(10 * chunk), "not read again");
        assert!(all_of(&mut reader, &file) == content[10 * CHUNK..14 * CHUNK]);
    }

    #[test]
    fn prefetched_range_is_not_used_for_another() {
        let (file, content) = file_of(20 * CHUNK);
        let (other, _) = file_of(20 * CHUNK);
        other.set_len(0).unwrap();
        let chunk = CHUNK as u64;
        let mut reader = prefetcher();
        let prefetch = |reader: &mut Prefetcher| {
            reader.start(&file, 0..2 * chunk).unwrap();
            reader.prefetch(5 * chunk..7 * chunk);
            all_of(reader, &file);
            reader.finish();
            assert!(!reader.started.is_empty());
        };
        prefetch(&mut reader);
        reader.start(&file, 3 * chunk..4 * chunk).unwrap();
        assert!(all_of(&mut reader, &file) == content[3 * CHUNK..4 * CHUNK]);
        prefetch(&mut reader);
        reader.start(&other, 5 * chunk..7 * chunk).unwrap();
        assert!(all_of(&mut reader, &other).is_empty(), "of another file");
        prefetch(&mut reader);
        reader.discard();
        file.set_len(0).unwrap();
        reader.start(&file, 5 * chunk..7 * chunk).unwrap();
        assert!(all_of(&mut reader, &file).is_empty(), "it was read anew");
    }

    #[test]
    fn failed_or_short_read_falls_back_to_the_cache() {
        let (file, content) = file_of(20 * CHUNK);
        let mut reader = prefetcher();
        reader.start(&file, 0..20 * CHUNK as u64).unwrap();
        assert_eq!(reader.next(&file).unwrap(), &content[..CHUNK]);
        // No read can be started in that buffer.
        reader.next_slot = BUFFERS;
        assert!(all_of(&mut reader, &file) == content[CHUNK..] && reader.is_fallback);
        // The open file is shorter than the real one.
        let (short, _) = file_of(CHUNK + 10);
        let mut reader = prefetcher();
        reader.start(&file, 0..20 * CHUNK as u64).unwrap();
        if let Some(source) = &mut reader.source {
            source.file = Arc::new(short);
        }
        assert!(all_of(&mut reader, &file) == content && reader.is_fallback);
        // The open file cannot be read.
        reader.start(&file, 0..2 * CHUNK as u64).unwrap();
        if let Some(source) = &mut reader.source {
            source.file = Arc::new(File::open("/").unwrap());
        }
        assert!(all_of(&mut reader, &file) == content[..2 * CHUNK] && reader.is_fallback);
        reader.start(&file, 0..CHUNK as u64).unwrap();
        assert!(!reader.is_fallback, "the next range is tried anew");
    }
}
