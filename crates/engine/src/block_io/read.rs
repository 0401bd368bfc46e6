//! Ranges of files in memory, piece by piece: for whoever hashes, encrypts or sends from there.

use super::ahead::Ahead;
use super::direct::CacheBypass;
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
    pass_by: CacheBypass,
    mapped: Mapped,
    buffered: Buffered,
    /// Past the page cache, and through it.
    direct: Way,
    ahead: Way,
}

/// Reads ahead, made when they are needed first. Where they cannot be had it is not tried again.
struct Way {
    make: fn(usize) -> io::Result<Option<Ahead>>,
    made: Option<Option<Ahead>>,
}

impl Way {
    fn new(make: fn(usize) -> io::Result<Option<Ahead>>) -> Self {
        Self { make, made: None }
    }

    /// Whether they have begun to read a range.
    fn start(&mut self, file: &File, range: &Range<u64>) -> bool {
        let make = || (self.make)(PIECE_BYTES).ok().flatten();
        let ahead = self.made.get_or_insert_with(make);
        ahead.as_mut().is_some_and(|ahead| ahead.start(file, range.clone()).is_ok())
    }

    fn ahead(&mut self) -> Option<&mut Ahead> {
        self.made.as_mut()?.as_mut()
    }
}

impl Reader {
    /// By an engine, where one was chosen.
    pub(crate) fn new(engine: Option<Engine>, direct: Direct) -> Self {
        Self {
            engine,
            pass_by: CacheBypass::new(direct),
            mapped: Mapped::new(PIECE_BYTES),
            buffered: Buffered::new(PIECE_BYTES),
            direct: Way::new(|bytes| Ahead::past_cache(bytes).map(Some)),
            ahead: Way::new(Ahead::by_ring),
        }
    }

    /// What was read of a range that was to be next is not wanted any more.
    pub(crate) fn forget(&mut self) {
        let ways = [self.direct.ahead(), self.ahead.ahead()];
        ways.into_iter().flatten().for_each(Ahead::forget);
    }

    /// What has the range of a file in memory. Where it is known which one comes next, reading goes
    /// on into that: it must be [forgotten](Self::forget) if something else comes, or the file is
    /// taken for another version of itself.
    pub(crate) fn start(
        &mut self,
        file: &File,
        range: Range<u64>,
        next: Option<Range<u64>>,
    ) -> &mut dyn ReadRange {
        // Another engine that was chosen reads through the cache.
        let may_pass = self.engine.is_none_or(|engine| engine == Engine::IoUring);
        if may_pass && self.pass_by.reads(file, &range) && self.direct.start(file, &range) {
            let next = next.filter(|next| self.pass_by.reads(file, next));
            return followed(&mut self.direct, next).map_or(&mut self.buffered, |way| way);
        }
        if self.engine == Some(Engine::IoUring) && self.ahead.start(file, &range) {
            return followed(&mut self.ahead, next).map_or(&mut self.buffered, |way| way);
        }
        // Some file systems map nothing; there are only so many mappings. By itself a sender maps
        // nothing: it would take a tenth more of its processor's time. (docs/block-io.md)
        // Blocks are handed out in order: so a disk reads them in order, too, a whole one at a
        // time, and not pieces of as many as there are connections; and the next one while this one
        // is sent. Where the kernel does not, it is not missed.
        for Range { start, end } in std::iter::once(&range).chain(&next) {
            let _ = bankfull_sys::advise_will_need(file, *start, end.saturating_sub(*start));
        }
        if self.engine == Some(Engine::Mmap) && self.mapped.start(file, range.clone()).is_ok() {
            return &mut self.mapped;
        }
        let (Ok(()) | Err(_)) = self.buffered.start(file, range);
        &mut self.buffered
    }
}

/// Reads that are to go on into what comes next.
fn followed(way: &mut Way, next: Option<Range<u64>>) -> Option<&mut Ahead> {
    let ahead = way.ahead()?;
    if let Some(next) = next {
        ahead.follow(next);
    }
    Some(ahead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_io::tests::cannot;
    use bankfull_sys::{advise_dont_need, sync_all};

    const PIECE: usize = 64 << 10;

    const NOTHING_PAST: &str = "this disk, or this kernel, tells of nothing past the page cache";

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
        let ahead = ahead.or_else(|| cannot("this process may not have io_uring"));
        ways.extend(ahead.map(|way| (Box::new(way) as Box<dyn ReadRange>, false)));
        let opened = bankfull_sys::open_direct(file, false).unwrap();
        if opened.or_else(|| cannot(NOTHING_PAST)).is_some() {
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
            // Said already.
            return;
        };
        assert_eq!(way.start(&file, 5..100).unwrap_err().kind(), io::ErrorKind::Unsupported);
        let mut reader = Reader::new(None, Direct::On);
        let way = reader.start(&file, 5..100, None);
        assert!(!way.is_direct());
        assert_eq!(way.next(&file).unwrap(), &content[5..100]);
    }
}
