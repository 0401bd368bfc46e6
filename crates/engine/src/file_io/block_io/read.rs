//! Readers of file ranges into memory, chunk by chunk, for hashing, encryption and sending.

use super::CHUNK_BYTES;
use super::ahead::Prefetcher;
use super::buffered::{Buffered, ReadRange};
use super::direct::CacheBypass;
use crate::model::io_method::IoMethod;
use crate::model::options::DirectIo;
use bankfull_sys::Mapping;
use std::fs::File;
use std::io;
use std::ops::Range;

/// Reads the file's own pages (`mmap`), without a copy.
pub(crate) struct Mapped {
    chunk_bytes: usize,
    window: Option<Mapping>,
    /// Bytes of the window that were returned.
    taken: usize,
    /// Rest of the range outside the window.
    left: Range<u64>,
    was_whole: bool,
}

/// Bytes mapped at a time, if chunks are smaller. (chosen: few calls, and few page tables)
const WINDOW_BYTES: u64 = 4 << 20;

impl Mapped {
    pub(crate) fn new(chunk_bytes: usize) -> Self {
        Self {
            chunk_bytes: chunk_bytes.max(1),
            window: None,
            taken: 0,
            left: 0..0,
            was_whole: true,
        }
    }

    fn release(&mut self) {
        self.was_whole &= self.window.take().is_none_or(|window| window.is_whole());
    }

    /// Maps the next window; false at the end.
    fn map_next(&mut self, file: &File) -> io::Result<bool> {
        self.release();
        let wanted = self.left.end.saturating_sub(self.left.start);
        let len = wanted.min(WINDOW_BYTES.max(self.chunk_bytes as u64)) as usize;
        if len > 0 {
            self.window = Some(Mapping::new(file, self.left.start, len)?);
            (self.left.start, self.taken) = (self.left.start + len as u64, 0);
        }
        Ok(len > 0)
    }
}

impl ReadRange for Mapped {
    fn start(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        // The part beyond the end of the file cannot be read and is not needed.
        let end = range.end.min(file.metadata()?.len());
        (self.left, self.window, self.was_whole) = (range.start..end, None, true);
        self.map_next(file).map(drop)
    }

    fn next(&mut self, file: &File) -> io::Result<&[u8]> {
        let is_used_up = |mapping: &Mapping| self.taken == mapping.bytes().len();
        if self.window.as_ref().is_none_or(is_used_up) && !self.map_next(file)? {
            return Ok(&[]);
        }
        let Some(window) = &self.window else { return Ok(&[]) };
        let end = window.bytes().len().min(self.taken + self.chunk_bytes);
        let chunk = self.taken..end;
        self.taken = end;
        window.populate(chunk.clone());
        Ok(&window.bytes()[chunk])
    }

    fn finish(&mut self) -> bool {
        self.release();
        (self.left, self.taken) = (0..0, 0);
        self.was_whole
    }
}

/// Reads by the method that suits the file, or by the one that was chosen.
pub(crate) struct FileReader {
    method: Option<IoMethod>,
    cache_bypass: CacheBypass,
    mapped: Mapped,
    buffered: Buffered,
    /// Prefetching readers past the page cache, and through it.
    direct: LazyPrefetcher,
    ring: LazyPrefetcher,
}

/// A prefetching reader, created on first use. A failed creation is not repeated.
struct LazyPrefetcher {
    make: fn(usize) -> io::Result<Option<Prefetcher>>,
    made: Option<Option<Prefetcher>>,
}

impl LazyPrefetcher {
    fn new(make: fn(usize) -> io::Result<Option<Prefetcher>>) -> Self {
        Self { make, made: None }
    }

    /// Starts a range; false if this reader cannot.
    fn start(&mut self, file: &File, range: &Range<u64>) -> bool {
        let make = || (self.make)(CHUNK_BYTES).ok().flatten();
        let prefetcher = self.made.get_or_insert_with(make);
        prefetcher.as_mut().is_some_and(|prefetcher| prefetcher.start(file, range.clone()).is_ok())
    }

    fn get(&mut self) -> Option<&mut Prefetcher> {
        self.made.as_mut()?.as_mut()
    }
}

impl FileReader {
    /// A reader by the chosen method, if any.
    pub(crate) fn new(method: Option<IoMethod>, direct: DirectIo) -> Self {
        Self {
            method,
            cache_bypass: CacheBypass::new(direct),
            mapped: Mapped::new(CHUNK_BYTES),
            buffered: Buffered::new(CHUNK_BYTES),
            direct: LazyPrefetcher::new(|bytes| Prefetcher::direct_io(bytes).map(Some)),
            ring: LazyPrefetcher::new(Prefetcher::with_io_uring),
        }
    }

    /// Discards what was prefetched.
    pub(crate) fn discard(&mut self) {
        let readers = [self.direct.get(), self.ring.get()];
        readers.into_iter().flatten().for_each(Prefetcher::discard);
    }

    /// Returns a reader of the range. Reading continues into the `next` range if it is known. Call
    /// [`discard`](Self::discard) if another range follows, or the file counts as a new version.
    pub(crate) fn start(
        &mut self,
        file: &File,
        range: Range<u64>,
        next: Option<Range<u64>>,
    ) -> &mut dyn ReadRange {
        // Another chosen method reads through the page cache.
        let may_bypass = self.method.is_none_or(|method| method == IoMethod::IoUring);
        if may_bypass
            && self.cache_bypass.bypasses_read(file, &range)
            && self.direct.start(file, &range)
        {
            let next = next.filter(|next| self.cache_bypass.bypasses_read(file, next));
            return with_prefetch(&mut self.direct, next)
                .map_or(&mut self.buffered, |reader| reader);
        }
        if self.method == Some(IoMethod::IoUring) && self.ring.start(file, &range) {
            return with_prefetch(&mut self.ring, next).map_or(&mut self.buffered, |reader| reader);
        }
        // Read ahead the whole block, so that the disk does not interleave chunks of the blocks of
        // all streams, and the next block while this one is sent. If the kernel cannot, only speed
        // is lost. By default nothing is mapped: some file systems do not support it, mappings are
        // limited in number, and a sender would use a tenth more CPU time. (docs/block-io.md)
        for Range { start, end } in std::iter::once(&range).chain(&next) {
            let _ = bankfull_sys::advise_will_need(file, *start, end.saturating_sub(*start));
        }
        if self.method == Some(IoMethod::Mmap) && self.mapped.start(file, range.clone()).is_ok() {
            return &mut self.mapped;
        }
        let (Ok(()) | Err(_)) = self.buffered.start(file, range);
        &mut self.buffered
    }
}

/// Returns the reader, with the next range announced.
fn with_prefetch(reader: &mut LazyPrefetcher, next: Option<Range<u64>>) -> Option<&mut Prefetcher> {
    let prefetcher = reader.get()?;
    if let Some(next) = next {
        prefetcher.prefetch(next);
    }
    Some(prefetcher)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_io::block_io::tests::cannot;
    use bankfull_sys::{advise_dont_need, sync_all};
    use std::os::unix::fs::FileExt;

    const CHUNK: usize = 64 << 10;

    const NO_DIRECT_IO: &str = "this disk or this kernel does not report direct I/O";

    /// A file on the disk of this source tree, not in the page cache.
    fn cold_file(bytes: usize) -> (File, Vec<u8>) {
        let content: Vec<u8> = (0..bytes).map(|at| (at / 5 % 247) as u8).collect();
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all_at(&content, 0).unwrap();
        sync_all(&file).unwrap();
        advise_dont_need(&file, 0, bytes as u64).unwrap();
        (file, content)
    }

    fn all_of(reader: &mut dyn ReadRange, file: &File) -> Vec<u8> {
        let mut read = Vec::new();
        loop {
            match reader.next(file).unwrap() {
                [] => return read,
                chunk => read.extend_from_slice(chunk),
            }
        }
    }

    /// Every reader available here, and whether it bypasses the page cache.
    fn readers(file: &File) -> Vec<(Box<dyn ReadRange>, bool)> {
        let mut readers: Vec<(Box<dyn ReadRange>, bool)> =
            vec![(Box::new(Buffered::new(CHUNK)), false), (Box::new(Mapped::new(CHUNK)), false)];
        let prefetcher = Prefetcher::with_io_uring(CHUNK).unwrap();
        let prefetcher = prefetcher.or_else(|| cannot("io_uring is denied to this process"));
        readers.extend(prefetcher.map(|reader| (Box::new(reader) as Box<dyn ReadRange>, false)));
        let opened = bankfull_sys::open_direct(file, false).unwrap();
        if opened.or_else(|| cannot(NO_DIRECT_IO)).is_some() {
            let both = [Prefetcher::direct_io(CHUNK), Prefetcher::direct_io_with_threads(CHUNK)];
            let both = both.into_iter().map(Result::unwrap);
            readers.extend(both.map(|reader| (Box::new(reader) as Box<dyn ReadRange>, true)));
        }
        readers
    }

    #[test]
    fn ranges_are_complete_and_in_order_with_every_reader() {
        let (file, content) = cold_file((1 << 20) + 777);
        let end = content.len() as u64;
        for (mut reader, is_direct) in readers(&file) {
            for range in [0..1 << 20, 4096..8192, 1 << 19..end, 0..end + 5000, 1 << 20..end] {
                reader.start(&file, range.clone()).unwrap();
                assert_eq!(reader.is_direct(), is_direct);
                let wanted = &content[range.start as usize..range.end.min(end) as usize];
                assert!(all_of(reader.as_mut(), &file) == wanted, "{range:?}, direct: {is_direct}");
                assert!(reader.finish());
            }
        }
    }

    #[test]
    fn range_may_be_abandoned_for_another() {
        let (file, content) = cold_file(1 << 20);
        for (mut reader, _) in readers(&file) {
            reader.start(&file, 0..1 << 20).unwrap();
            assert_eq!(reader.next(&file).unwrap(), &content[..CHUNK]);
            reader.start(&file, 1 << 18..1 << 19).unwrap();
            assert!(all_of(reader.as_mut(), &file) == content[1 << 18..1 << 19]);
            reader.start(&file, 0..1 << 20).unwrap();
            assert!(!reader.next(&file).unwrap().is_empty());
        }
    }

    #[test]
    fn truncation_during_read_is_detected() {
        for index in 0..5 {
            let (file, content) = cold_file(8 << 20);
            let Some((mut reader, _)) = readers(&file).into_iter().nth(index) else { break };
            reader.start(&file, 0..8 << 20).unwrap();
            reader.next(&file).unwrap();
            file.set_len(1 << 20).unwrap();
            let rest = all_of(reader.as_mut(), &file);
            let is_whole = reader.finish();
            let is_short = CHUNK + rest.len() < content.len();
            assert!(is_short || !is_whole, "{index}: {} bytes", rest.len());
        }
    }

    #[test]
    fn unaligned_range_is_read_through_the_cache() {
        let (file, content) = cold_file(1 << 20);
        let Some((mut reader, _)) = readers(&file).into_iter().find(|(_, is_direct)| *is_direct)
        else {
            // The skip was reported already.
            return;
        };
        assert_eq!(reader.start(&file, 5..100).unwrap_err().kind(), io::ErrorKind::Unsupported);
        let mut reader = FileReader::new(None, DirectIo::On);
        let reader = reader.start(&file, 5..100, None);
        assert!(!reader.is_direct());
        assert_eq!(reader.next(&file).unwrap(), &content[5..100]);
    }
}
