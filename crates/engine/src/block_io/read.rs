//! Ranges of files in memory, piece by piece: for whoever hashes, encrypts or sends from there.

use super::ahead::Ahead;
use super::direct::PassBy;
use super::{Engine, PIECE_BYTES, uninterrupted};
use crate::options::Direct;
use bankfull_sys::Mapping;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Has ranges of files in memory, one after the other, each in pieces and in order.
pub(crate) trait ReadRange: Send {
    /// A range will be read, all of it.
    ///
    /// # Errors
    /// Where this way cannot read this file; another may.
    fn start(&mut self, file: &File, range: Range<u64>) -> io::Result<()>;

    /// The next piece of the range; empty where the range or the file has ended.
    ///
    /// # Errors
    /// What reading reports.
    fn next(&mut self, file: &File) -> io::Result<&[u8]>;

    /// Whether what it reads does not come through the page cache, where nobody else should look
    /// for it then.
    fn is_direct(&self) -> bool {
        false
    }

    /// Lets go of the range. Whether all that was handed out, and read, was the file's: others may
    /// have cut it meanwhile, and zeros have stood for what was gone.
    fn finish(&mut self) -> bool {
        true
    }
}

/// Through a buffer (`pread`).
pub(crate) struct Buffered {
    buffer: Vec<u8>,
    left: Range<u64>,
}

impl Buffered {
    pub(crate) fn new(piece_bytes: usize) -> Self {
        Self { buffer: vec![0; piece_bytes.max(1)], left: 0..0 }
    }
}

impl ReadRange for Buffered {
    fn start(&mut self, _: &File, range: Range<u64>) -> io::Result<()> {
        self.left = range;
        Ok(())
    }

    fn next(&mut self, file: &File) -> io::Result<&[u8]> {
        let wanted = self.left.end.saturating_sub(self.left.start);
        let wanted = wanted.min(self.buffer.len() as u64) as usize;
        let mut have = 0;
        while have < wanted {
            let at = self.left.start + have as u64;
            match uninterrupted(|| file.read_at(&mut self.buffer[have..wanted], at))? {
                0 => break,
                read => have += read,
            }
        }
        self.left.start += have as u64;
        Ok(&self.buffer[..have])
    }
}

/// The file's own pages (`mmap`): nothing is copied.
pub(crate) struct Mapped {
    piece_bytes: usize,
    window: Option<Mapping>,
    /// Bytes of the window that were handed out.
    taken: usize,
    /// What is not in the window yet.
    left: Range<u64>,
    was_whole: bool,
}

/// Bytes that are mapped at a time, where pieces are smaller. (ours: few calls, and few tables of
/// pages)
const WINDOW_BYTES: u64 = 4 << 20;

impl Mapped {
    pub(crate) fn new(piece_bytes: usize) -> Self {
        Self {
            piece_bytes: piece_bytes.max(1),
            window: None,
            taken: 0,
            left: 0..0,
            was_whole: true,
        }
    }

    fn let_go(&mut self) {
        self.was_whole &= self.window.take().is_none_or(|window| window.is_whole());
    }

    /// Maps what comes next; false where nothing does.
    fn map_next(&mut self, file: &File) -> io::Result<bool> {
        self.let_go();
        let wanted = self.left.end.saturating_sub(self.left.start);
        let len = wanted.min(WINDOW_BYTES.max(self.piece_bytes as u64)) as usize;
        if len > 0 {
            self.window = Some(Mapping::new(file, self.left.start, len)?);
            (self.left.start, self.taken) = (self.left.start + len as u64, 0);
        }
        Ok(len > 0)
    }
}

impl ReadRange for Mapped {
    fn start(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        // What is behind the end of the file cannot be read, and nobody would miss it.
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
        let end = window.bytes().len().min(self.taken + self.piece_bytes);
        let piece = self.taken..end;
        self.taken = end;
        window.fetch(piece.clone());
        Ok(&window.bytes()[piece])
    }

    fn finish(&mut self) -> bool {
        self.let_go();
        (self.left, self.taken) = (0..0, 0);
        self.was_whole
    }
}

/// Whichever way suits a file, or was chosen.
pub(crate) struct Reader {
    engine: Option<Engine>,
    pass_by: PassBy,
    mapped: Mapped,
    buffered: Buffered,
    /// Made when they are needed: past the page cache, and through it.
    direct: Option<Ahead>,
    ahead: Option<Ahead>,
}

impl Reader {
    /// By an engine, where one was chosen.
    pub(crate) fn new(engine: Option<Engine>, direct: Direct) -> Self {
        Self {
            engine,
            pass_by: PassBy::new(direct),
            mapped: Mapped::new(PIECE_BYTES),
            buffered: Buffered::new(PIECE_BYTES),
            direct: None,
            ahead: None,
        }
    }

    /// What has the range of a file in memory.
    pub(crate) fn start(&mut self, file: &File, range: Range<u64>) -> &mut dyn ReadRange {
        // Another engine that was chosen reads through the cache.
        let may_pass = self.engine.is_none_or(|engine| engine == Engine::IoUring);
        if may_pass
            && self.pass_by.reads(file, &range)
            && start(&mut self.direct, |bytes| Ahead::past_cache(bytes).map(Some), file, &range)
        {
            return self.direct.as_mut().map_or(&mut self.buffered, |way| way);
        }
        if self.engine == Some(Engine::IoUring)
            && start(&mut self.ahead, Ahead::by_ring, file, &range)
        {
            return self.ahead.as_mut().map_or(&mut self.buffered, |way| way);
        }
        // Some file systems map nothing; there are only so many mappings. By itself a sender maps
        // nothing: it would take a tenth more of its processor's time. (docs/block-io.md)
        let len = range.end.saturating_sub(range.start);
        // Blocks are handed out in order: so a disk reads them in order, too, a whole one at a
        // time, and not pieces of as many as there are connections. Where the kernel does not, it
        // is not missed.
        let _ = bankfull_sys::advise_will_need(file, range.start, len);
        if self.engine == Some(Engine::Mmap) && self.mapped.start(file, range.clone()).is_ok() {
            return &mut self.mapped;
        }
        let (Ok(()) | Err(_)) = self.buffered.start(file, range);
        &mut self.buffered
    }
}

/// Whether reads ahead of a range have begun; made first, where that is not done yet.
fn start(
    way: &mut Option<Ahead>,
    make: impl Fn(usize) -> io::Result<Option<Ahead>>,
    file: &File,
    range: &Range<u64>,
) -> bool {
    if way.is_none() {
        *way = make(PIECE_BYTES).ok().flatten();
    }
    way.as_mut().is_some_and(|ahead| ahead.start(file, range.clone()).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_sys::{advise_dont_need, sync_all};

    const PIECE: usize = 64 << 10;

    /// A file on this tree's disk, not in the page cache.
    fn cold_file(bytes: usize) -> (File, Vec<u8>) {
        let content: Vec<u8> = (0..bytes).map(|at| (at / 5 % 247) as u8).collect();
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all_at(&content, 0).unwrap();
        sync_all(&file).unwrap();
        advise_dont_need(&file, 0, bytes as u64).unwrap();
        (file, content)
    }

    fn all_of(way: &mut dyn ReadRange, file: &File) -> Vec<u8> {
        let mut came = Vec::new();
        loop {
            match way.next(file).unwrap() {
                [] => return came,
                piece => came.extend_from_slice(piece),
            }
        }
    }

    /// Every way that there is here, and whether it reads past the cache.
    fn ways(file: &File) -> Vec<(Box<dyn ReadRange>, bool)> {
        let mut ways: Vec<(Box<dyn ReadRange>, bool)> =
            vec![(Box::new(Buffered::new(PIECE)), false), (Box::new(Mapped::new(PIECE)), false)];
        let ahead = Ahead::by_ring(PIECE).unwrap();
        ways.extend(ahead.map(|way| (Box::new(way) as Box<dyn ReadRange>, false)));
        if bankfull_sys::open_direct(file, false).unwrap().is_some() {
            let both = [Ahead::past_cache(PIECE), Ahead::past_cache_by_threads(PIECE)];
            let both = both.into_iter().map(Result::unwrap);
            ways.extend(both.map(|way| (Box::new(way) as Box<dyn ReadRange>, true)));
        }
        ways
    }

    #[test]
    fn ranges_come_whole_and_in_order_by_every_way_up_to_the_end_of_the_file() {
        let (file, content) = cold_file((1 << 20) + 777);
        let end = content.len() as u64;
        for (mut way, is_direct) in ways(&file) {
            for range in [0..1 << 20, 4096..8192, 1 << 19..end, 0..end + 5000, 1 << 20..end] {
                way.start(&file, range.clone()).unwrap();
                assert_eq!(way.is_direct(), is_direct);
                let wanted = &content[range.start as usize..range.end.min(end) as usize];
                assert!(all_of(way.as_mut(), &file) == wanted, "{range:?}, direct: {is_direct}");
                assert!(way.finish());
            }
        }
    }

    #[test]
    fn a_range_may_be_given_up_in_the_midst_and_another_begun() {
        let (file, content) = cold_file(1 << 20);
        for (mut way, _) in ways(&file) {
            way.start(&file, 0..1 << 20).unwrap();
            assert_eq!(way.next(&file).unwrap(), &content[..PIECE]);
            way.start(&file, 1 << 18..1 << 19).unwrap();
            assert!(all_of(way.as_mut(), &file) == content[1 << 18..1 << 19]);
            way.start(&file, 0..1 << 20).unwrap();
            assert!(!way.next(&file).unwrap().is_empty());
        }
    }

    #[test]
    fn what_is_cut_off_meanwhile_does_not_come_or_is_known_not_to_be_the_files() {
        for index in 0..5 {
            let (file, content) = cold_file(8 << 20);
            let Some((mut way, _)) = ways(&file).into_iter().nth(index) else { break };
            way.start(&file, 0..8 << 20).unwrap();
            way.next(&file).unwrap();
            file.set_len(1 << 20).unwrap();
            let rest = all_of(way.as_mut(), &file);
            let is_whole = way.finish();
            let is_short = PIECE + rest.len() < content.len();
            assert!(is_short || !is_whole, "{index}: {} bytes", rest.len());
        }
    }

    #[test]
    fn past_the_cache_only_what_lies_as_the_disk_needs_it() {
        let (file, content) = cold_file(1 << 20);
        let Some((mut way, _)) = ways(&file).into_iter().find(|(_, is_direct)| *is_direct) else {
            return;
        };
        assert_eq!(way.start(&file, 5..100).unwrap_err().kind(), io::ErrorKind::Unsupported);
        let mut reader = Reader::new(None, Direct::On);
        let way = reader.start(&file, 5..100);
        assert!(!way.is_direct());
        assert_eq!(way.next(&file).unwrap(), &content[5..100]);
    }
}
