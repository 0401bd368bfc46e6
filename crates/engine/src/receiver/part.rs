//! A file on its way in: the part beside the target, and the journal of its verified blocks.
//!
//! Order of writes: an old journal is removed before a new part is made; a block's data is written
//! to the part before its record is appended to the journal; the part is renamed over the target
//! before the journal is removed. So a kill at any moment leaves a part with a journal that tells
//! the truth, or one of the two alone, which counts for nothing, or the finished file. What a
//! power loss may leave is told apart by the boot's identity; see `bankfull_proto::journal`.

use crate::block_io::direct::PassBy;
use crate::error::failure;
use crate::net::control::lock;
use crate::options::{DEFAULT_TIMEOUT, Direct};
use crate::part_names::PartNames;
use crate::session::Session;
use bankfull_proto::blocks::Layout;
use bankfull_proto::hash::{BlockHash, BlockHasher};
use bankfull_proto::journal::{self, HEADER_BYTES, Header, RECORD_BYTES, Record, VerifiedBlocks};
use bankfull_proto::wire::control::{Cause, Entry, Failure};
use bankfull_sys::{Dir, DirectAlign};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::{Duration, Instant};

/// How long to wait for another session that is at work to let go of a part. One whose client was
/// killed ends within moments; one that works on is told to the user.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// How long to wait for another session that writes nothing: one that was cut off from its client
/// ends by its time-out.
const IDLE_WAIT: Duration = Duration::from_secs(DEFAULT_TIMEOUT.as_secs() + 5);

/// Waits longer than this are told to the user.
const UNTOLD_WAIT: Duration = Duration::from_secs(2);

/// How often a part may change hands before the file is given up. (ours)
const HOLD_TRIES: u32 = 10;

/// How often a wait looks again.
const LOOK: Duration = Duration::from_millis(20);

/// Blocks between two barriers: at 1 MiB to 16 MiB a block, a power loss costs re-reading at most
/// that many. (ours)
const RECORDS_PER_BARRIER: u64 = 256;

/// Stands for the boot's identity where the kernel does not tell it.
pub(crate) const UNKNOWN_BOOT: [u8; 16] = [0; 16];

/// Sessions of this process by the part they hold, so that a newer session for the same file can
/// end one that has not noticed yet that its client is gone.
static HOLDERS: LazyLock<Mutex<Holders>> = LazyLock::new(Mutex::default);

/// Device and inode of a part, and who holds it.
type Holders = HashMap<(u64, u64), Held>;

/// A session that holds a part, and the version of the source that it receives.
struct Held {
    session: Weak<Session>,
    version: u64,
}

/// Who wants to hold a part.
pub(crate) struct Holder<'a> {
    pub(crate) session: &'a Arc<Session>,
    /// How long to wait where this session itself holds the part: the thread of a stream may not be
    /// done with it yet.
    pub(crate) own_wait: Duration,
    /// Tells the user of a long wait.
    pub(crate) remark: &'a dyn Fn(String),
}

/// A part and its journal, open.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) file: File,
    direct: Option<PastCache>,
    journal: Mutex<Journal>,
    /// Bytes may stand in the part that no record vouches for.
    pub(crate) touched: bool,
}

/// A part as it is written past the page cache.
#[derive(Debug)]
struct PastCache {
    file: File,
    align: DirectAlign,
    size: u64,
    /// Up to here space is taken.
    reserved: Mutex<u64>,
}

#[derive(Debug)]
struct Journal {
    file: File,
    bytes: u64,
    /// Records since the last barrier.
    doubtful: u64,
}

/// What came of the attempt to hold a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It is ours alone.
    Held,
    /// Its name has gone to another file meanwhile, or to none.
    Gone,
    /// A thread of this very session still has it, for a file that was given up.
    Own,
}

impl Part {
    /// Starts a new part, in place of whatever stands under its name.
    pub(crate) fn create(
        dir: &Dir,
        names: &PartNames,
        entry: &Entry,
        layout: Layout,
        boot: [u8; 16],
        holder: &Holder<'_>,
    ) -> Result<Self, Failure> {
        let shown = String::from_utf8_lossy(&entry.name).into_owned();
        let failed = |e: io::Error| failure(format!("cannot create a file for {shown:?}"), &e);
        for _ in 0..HOLD_TRIES {
            // What stands there may be in use: nothing is taken from under another session.
            let before = dir.open_rw(&names.part).ok();
            if let Some(before) = &before
                && hold(dir, names, before, entry, holder)? == Hold::Gone
            {
                continue;
            }
            // Nothing that vouches for an older part may outlive it.
            drop_journal(dir, names).map_err(failed)?;
            let file = create_over(dir, &names.part).map_err(failed)?;
            if hold(dir, names, &file, entry, holder)? != Hold::Held {
                continue;
            }
            file.set_len(layout.size()).map_err(failed)?;
            let mut journal = create_over(dir, &names.journal).map_err(failed)?;
            let header = Header::for_entry(entry, layout, boot).encode();
            journal.write_all(&header).map_err(failed)?;
            let journal = Journal { file: journal, bytes: header.len() as u64, doubtful: 0 };
            return Ok(Self { file, direct: None, journal: Mutex::new(journal), touched: false });
        }
        Err(busy(&shown))
    }

    /// Continues an earlier run's part; `None` when there is none that fits.
    pub(crate) fn resume(
        dir: &Dir,
        names: &PartNames,
        entry: &Entry,
        boot: [u8; 16],
        holder: &Holder<'_>,
    ) -> Result<Option<(Self, VerifiedBlocks)>, Failure> {
        let shown = String::from_utf8_lossy(&entry.name).into_owned();
        let failed =
            |e: io::Error| failure(format!("cannot continue an earlier copy of {shown:?}"), &e);
        for _ in 0..HOLD_TRIES {
            let Some(file) = found(dir.open_rw(&names.part)).map_err(failed)? else {
                // A journal without its part is of no use to anybody.
                drop_journal(dir, names).map_err(failed)?;
                return Ok(None);
            };
            match hold(dir, names, &file, entry, holder)? {
                Hold::Held => {}
                Hold::Gone => continue,
                Hold::Own => return Ok(None),
            }
            // Opened now that nobody else writes to it.
            let journal = found(dir.open_rw(&names.journal)).map_err(failed)?;
            let Some(journal) = journal else { return Ok(None) };
            return Self::read_back(dir, names, entry, boot, file, journal);
        }
        Err(busy(&shown))
    }

    /// Reads what the journal of a part vouches for.
    fn read_back(
        dir: &Dir,
        names: &PartNames,
        entry: &Entry,
        boot: [u8; 16],
        file: File,
        mut journal: File,
    ) -> Result<Option<(Self, VerifiedBlocks)>, Failure> {
        let mut bytes = Vec::new();
        if journal.read_to_end(&mut bytes).is_err() {
            return Ok(None);
        }
        let Ok(replay) = journal::replay(&bytes, &boot) else { return Ok(None) };
        let size = bankfull_sys::stat_file(&file).map_or(0, |stat| stat.size);
        if !replay.header.matches_entry(entry) || size != entry.size {
            return Ok(None);
        }
        let layout = replay.header.layout;
        let mut here = replay.trusted;
        let doubtful = replay.suspect;
        here.blocks.extend(
            doubtful
                .into_iter()
                .filter(|(i, h)| is_there(&file, &layout, *i, h))
                .map(|(index, hash)| (index, Some(hash))),
        );
        // Records of an unknown boot may have been dropped as doubtful: no barrier of ours may come
        // to stand behind them.
        let same_boot = replay.header.boot == boot && boot != UNKNOWN_BOOT;
        let journal = if same_boot {
            journal.set_len(replay.valid_bytes).map(|()| Journal {
                file: journal,
                bytes: replay.valid_bytes,
                doubtful: 0,
            })
        } else {
            rewrite(dir, names, entry, layout, boot, &here)
        };
        let journal =
            journal.map_err(|e| failure("cannot continue the journal of an earlier run", &e))?;
        let journal = Mutex::new(journal);
        Ok(Some((Self { file, direct: None, journal, touched: true }, here)))
    }

    /// A part without a name.
    #[cfg(test)]
    pub(super) fn of(file: File) -> Self {
        let journal = Journal { file: tempfile::tempfile().unwrap(), bytes: 0, doubtful: 0 };
        Self { file, direct: None, journal: Mutex::new(journal), touched: false }
    }

    /// The part as a session writes to it. What has holes is written page by page where there is
    /// something, which the page cache joins.
    pub(crate) fn readied(mut self, entry: &Entry, direct: Direct) -> Self {
        if !entry.sparse && PassBy::new(direct).writes(&self.file) {
            self.pass_cache();
        }
        self
    }

    /// Writes past the page cache from now on, where the file system can.
    fn pass_cache(&mut self) {
        // What cannot be is done as ever.
        let opened = bankfull_sys::open_direct(&self.file, true).ok().flatten();
        let size = bankfull_sys::stat_file(&self.file).map_or(0, |stat| stat.size);
        let past = |(file, align)| PastCache { file, align, size, reserved: Mutex::new(0) };
        self.direct = opened.map(past);
    }

    /// Writes a piece of content.
    pub(crate) fn write(&self, piece: &[u8], offset: u64) -> io::Result<()> {
        match self.direct.as_ref().filter(|past| past.takes(piece, offset)) {
            Some(past) => past.write(piece, offset, &self.file),
            None => self.file.write_all_at(piece, offset),
        }
    }

    /// Appends a record: the block's data is in the part already. With `durable`, the part is
    /// flushed now and then, and a barrier says so.
    pub(crate) fn record(&self, record: &Record, durable: bool) -> io::Result<()> {
        let covers = {
            let mut journal = lock(&self.journal);
            journal.append(record)?;
            journal.doubtful += 1;
            if !durable || journal.doubtful < RECORDS_PER_BARRIER {
                return Ok(());
            }
            journal.doubtful = 0;
            (journal.bytes - HEADER_BYTES as u64) / RECORD_BYTES as u64
        };
        bankfull_sys::sync_data(&self.file)?;
        // Blocks recorded while the flush went on are not covered by it.
        lock(&self.journal).append(&Record::Barrier { covers })
    }

    /// Empties the journal of a part that lost its name: it must not vouch for another file.
    pub(crate) fn disown(&self, dir: &Dir, names: &PartNames) {
        if !is_named(dir, names, &self.file) {
            let _ = lock(&self.journal).file.set_len(0);
        }
    }

    /// Makes sure that holes of the source read as zeros here, as long as `goes_on`.
    pub(crate) fn clear_holes(
        &self,
        range: &Range<u64>,
        goes_on: impl Fn() -> bool,
    ) -> io::Result<()> {
        let len = range.end - range.start;
        if !self.touched || len == 0 || bankfull_sys::punch_hole(&self.file, range.start, len)? {
            return Ok(());
        }
        let zeros = vec![0; 1 << 20];
        let mut at = range.start;
        while at < range.end {
            if !goes_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let piece = (range.end - at).min(zeros.len() as u64) as usize;
            self.file.write_all_at(&zeros[..piece], at)?;
            at += piece as u64;
        }
        Ok(())
    }
}

/// So much space is taken ahead of what is written: where it is given as it is written to, a file
/// system lets one write do so at a time. (measured: docs/block-io.md; ours: few calls, and what an
/// interrupted copy may leave)
const RESERVED_BYTES: u64 = 256 << 20;

impl PastCache {
    /// Whether a piece lies as the disk needs it: the last one of a file often does not.
    fn takes(&self, piece: &[u8], offset: u64) -> bool {
        let (memory, unit) = (self.align.memory as usize, u64::from(self.align.offset));
        (piece.as_ptr() as usize).is_multiple_of(memory)
            && offset.is_multiple_of(unit)
            && (piece.len() as u64).is_multiple_of(unit)
    }

    fn write(&self, piece: &[u8], offset: u64, cached: &File) -> io::Result<()> {
        self.reserve(offset + piece.len() as u64);
        match self.file.write_all_at(piece, offset) {
            // The disk wants something else than the kernel has told.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => cached.write_all_at(piece, offset),
            written => written,
        }
    }

    /// Takes space for what comes next.
    fn reserve(&self, end: u64) {
        let mut reserved = lock(&self.reserved);
        if end > *reserved {
            let from = std::mem::replace(&mut *reserved, self.size.min(end + RESERVED_BYTES));
            // Where there is too little, the write that finds it full says so.
            let _ = bankfull_sys::reserve(&self.file, from, reserved.saturating_sub(from));
        }
    }
}

impl Journal {
    fn append(&mut self, record: &Record) -> io::Result<()> {
        self.file.write_all_at(&record.encode(), self.bytes)?;
        self.bytes += RECORD_BYTES as u64;
        Ok(())
    }
}

/// Creates a file in place of whatever an earlier run left under its name.
pub(crate) fn create_over(dir: &Dir, name: &OsStr) -> io::Result<File> {
    make_over(dir, name, || dir.create_new(name, 0o600))
}

/// Makes something in place of whatever stands under its name. Another session may make, rename or
/// remove it at the same time.
pub(crate) fn make_over<T>(
    dir: &Dir,
    name: &OsStr,
    make: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 0..HOLD_TRIES {
        match make() {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done,
        }
        match dir.unlink(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    make()
}

/// Removes the journal of a part, a draft of it included.
pub(crate) fn drop_journal(dir: &Dir, names: &PartNames) -> io::Result<()> {
    for name in [&names.journal, &names.journal_draft] {
        match dir.unlink(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// A file that may be missing.
fn found(opened: io::Result<File>) -> io::Result<Option<File>> {
    match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Makes sure that no other session writes to the part.
fn hold(
    dir: &Dir,
    names: &PartNames,
    file: &File,
    entry: &Entry,
    holder: &Holder<'_>,
) -> Result<Hold, Failure> {
    let shown = String::from_utf8_lossy(&entry.name).into_owned();
    let stat = bankfull_sys::stat_file(file).map_err(|e| failure(&shown, &e))?;
    let key = (stat.dev, stat.ino);
    let began = Instant::now();
    let (mut written, mut last_write) = (stat.mtime, None);
    let mut told = false;
    // A file system without locks: two sessions at once are then the user's care.
    while !bankfull_sys::try_lock(file).unwrap_or(true) {
        let waited = began.elapsed();
        if take_over(key, entry.version, holder.session) {
            if waited >= holder.own_wait {
                return Ok(Hold::Own);
            }
        } else {
            let now = bankfull_sys::stat_file(file).map_or(written, |now| now.mtime);
            if now != written {
                (written, last_write) = (now, Some(Instant::now()));
            }
            let is_at_work = last_write.is_some_and(|at| at.elapsed() < BUSY_WAIT);
            if (waited >= BUSY_WAIT && is_at_work) || waited >= IDLE_WAIT {
                return Err(busy(&shown));
            }
            if waited >= UNTOLD_WAIT && !is_at_work && !told {
                (holder.remark)(format!(
                    "waiting for an earlier copy that still holds {shown:?}; up to {} s",
                    IDLE_WAIT.as_secs()
                ));
                told = true;
            }
        }
        if holder.session.is_stopped() {
            return Err(busy(&shown));
        }
        std::thread::sleep(LOOK);
    }
    // It may have been replaced, or put in place, while this session waited for it.
    if !is_named(dir, names, file) {
        return Ok(Hold::Gone);
    }
    let mut holders = lock(&HOLDERS);
    holders.retain(|_, held| held.session.strong_count() > 0);
    let held = Held { session: Arc::downgrade(holder.session), version: entry.version };
    holders.insert(key, held);
    Ok(Hold::Held)
}

fn busy(shown: &str) -> Failure {
    let text = format!("another bankfull is receiving {shown:?}: wait until it is done, or end it");
    Failure::new(Cause::Busy, text)
}

/// Whether the part's name still leads to this file.
pub(crate) fn is_named(dir: &Dir, names: &PartNames, file: &File) -> bool {
    let id = |stat: bankfull_sys::Stat| (stat.dev, stat.ino);
    match (dir.stat(&names.part), bankfull_sys::stat_file(file)) {
        (Ok(named), Ok(open)) => id(named) == id(open),
        _ => false,
    }
}

/// Ends another session of this process that receives the same version of the source: its client
/// was run again. True when `session` itself holds the part.
fn take_over(key: (u64, u64), version: u64, session: &Arc<Session>) -> bool {
    let held = lock(&HOLDERS).get(&key).map(|held| (held.session.upgrade(), held.version));
    let Some((Some(holder), held_version)) = held else { return false };
    if Arc::ptr_eq(&holder, session) {
        return true;
    }
    if held_version == version {
        let text = "a newer session of the same transfer took over";
        holder.fail(Failure::new(Cause::Busy, text).into());
    }
    false
}

/// Whether a block of the part has the hash that its record claims.
fn is_there(file: &File, layout: &Layout, index: u64, hash: &BlockHash) -> bool {
    let Some(range) = layout.range(index) else { return false };
    let mut hasher = BlockHasher::new(layout, range.start);
    let mut buffer = vec![0; 256 << 10];
    let mut offset = range.start;
    while offset < range.end {
        let piece = (range.end - offset).min(buffer.len() as u64) as usize;
        if file.read_exact_at(&mut buffer[..piece], offset).is_err() {
            return false;
        }
        hasher.update(&buffer[..piece]);
        offset += piece as u64;
    }
    hasher.finish() == *hash
}

/// Starts a journal for this boot with the blocks that turned out to be here.
fn rewrite(
    dir: &Dir,
    names: &PartNames,
    entry: &Entry,
    layout: Layout,
    boot: [u8; 16],
    here: &VerifiedBlocks,
) -> io::Result<Journal> {
    let mut bytes = Header::for_entry(entry, layout, boot).encode().to_vec();
    let blocks = here.blocks.iter().map(|&(index, hash)| match hash {
        Some(hash) => Record::Block { index, hash },
        None => Record::Copied { index },
    });
    for record in blocks.chain(here.holes.iter().map(|&run| Record::Holes { run })) {
        bytes.extend_from_slice(&record.encode());
    }
    let mut file = create_over(dir, &names.journal_draft)?;
    file.write_all(&bytes)?;
    dir.rename(&names.journal_draft, &names.journal)?;
    Ok(Journal { file, bytes: bytes.len() as u64, doubtful: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_io::tests::cannot;
    use bankfull_proto::blocks::Run;
    use bankfull_proto::wire::control::EntryKind;
    use std::path::Path;

    const BOOT: [u8; 16] = [7; 16];
    const SIZE: u64 = 3 << 20;

    struct Place {
        path: tempfile::TempDir,
        dir: Dir,
        names: PartNames,
        layout: Layout,
    }

    impl Place {
        fn new() -> Self {
            let path = tempfile::tempdir().unwrap();
            let dir = Dir::open(path.path()).unwrap();
            let names = PartNames::of(OsStr::new("f"));
            Self { path, dir, names, layout: Layout::new(SIZE, 1 << 20).unwrap() }
        }

        fn entry(&self, version: u64) -> Entry {
            Entry {
                id: 1,
                parent: 0,
                name: b"f".to_vec(),
                kind: EntryKind::File,
                mode: 0o644,
                mtime_secs: 1,
                mtime_nanos: 2,
                size: SIZE,
                version,
                uid: 0,
                gid: 0,
                block_bytes: self.layout.block_bytes(),
                sparse: true,
                target: Vec::new(),
            }
        }

        fn create(&self, session: &Arc<Session>, version: u64) -> Result<Part, Failure> {
            let holder = Holder { session, own_wait: Duration::ZERO, remark: &|_| {} };
            let entry = self.entry(version);
            Part::create(&self.dir, &self.names, &entry, self.layout, BOOT, &holder)
        }

        fn resume(&self, session: &Arc<Session>, version: u64) -> Option<VerifiedBlocks> {
            let holder = Holder { session, own_wait: Duration::ZERO, remark: &|_| {} };
            let entry = self.entry(version);
            let found = Part::resume(&self.dir, &self.names, &entry, BOOT, &holder).unwrap();
            found.map(|(_, here)| here)
        }

        fn at(&self, name: &OsStr) -> std::path::PathBuf {
            Path::new(self.path.path()).join(name)
        }
    }

    fn record(part: &Part, index: u64) {
        part.record(&Record::Block { index, hash: BlockHash([1; 32]) }, false).unwrap();
    }

    #[test]
    fn what_was_recorded_is_there_for_the_next_session_and_for_no_other_version() {
        let place = Place::new();
        let part = place.create(&Arc::default(), 1).unwrap();
        record(&part, 2);
        part.record(&Record::Holes { run: Run { first: 0, count: 2 } }, false).unwrap();
        drop(part);
        let here = place.resume(&Arc::default(), 1).unwrap();
        assert_eq!(here.blocks, [(2, Some(BlockHash([1; 32])))]);
        assert_eq!(here.holes, [Run { first: 0, count: 2 }]);
        assert_eq!(place.resume(&Arc::default(), 2), None);
    }

    #[test]
    fn what_is_made_over_something_does_not_mind_that_it_vanishes_meanwhile() {
        let place = Place::new();
        let name = OsStr::new("name");
        let tries = std::cell::Cell::new(0);
        // Somebody else made it, and has taken it away before it could be removed.
        let made = make_over(&place.dir, name, || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(7) }
        });
        assert_eq!((made.unwrap(), tries.get()), (7, 3));
        std::fs::write(place.at(name), b"old").unwrap();
        assert_eq!(create_over(&place.dir, name).unwrap().metadata().unwrap().len(), 0);
    }

    #[test]
    fn no_part_is_made_while_a_journal_is_there_that_could_vouch_for_it() {
        let place = Place::new();
        // A directory cannot be removed like a file: so the journal's removal fails.
        std::fs::create_dir(place.at(&place.names.journal)).unwrap();
        assert!(place.create(&Arc::default(), 1).is_err());
        assert!(!place.at(&place.names.part).exists());
    }

    #[test]
    fn a_journal_that_outlived_its_part_is_removed_and_believed_by_nobody() {
        let place = Place::new();
        let part = place.create(&Arc::default(), 1).unwrap();
        record(&part, 0);
        drop(part);
        std::fs::remove_file(place.at(&place.names.part)).unwrap();
        assert_eq!(place.resume(&Arc::default(), 1), None);
        assert!(!place.at(&place.names.journal).exists());
        // What a kill leaves right after the new part was made.
        File::create(place.at(&place.names.part)).unwrap().set_len(SIZE).unwrap();
        assert_eq!(place.resume(&Arc::default(), 1), None);
    }

    #[test]
    fn a_session_does_not_wait_for_its_own_thread_but_starts_anew() {
        let place = Place::new();
        let session = Arc::default();
        let old = place.create(&session, 1).unwrap();
        record(&old, 0);
        assert_eq!(place.resume(&session, 1), None, "the old one is still in use");
        let new = place.create(&session, 2).unwrap();
        assert!(!is_named(&place.dir, &place.names, &old.file));
        assert!(is_named(&place.dir, &place.names, &new.file));
        record(&old, 1);
        drop(new);
        assert_eq!(place.resume(&Arc::default(), 2), Some(VerifiedBlocks::default()));
    }

    #[test]
    fn a_newer_session_takes_over_the_same_version_and_waits_for_another() {
        let place = Place::new();
        let (old, other): (Arc<Session>, Arc<Session>) = Default::default();
        let part = place.create(&old, 1).unwrap();
        other.stop();
        assert!(place.create(&other, 2).is_err(), "a stopped session waits no longer");
        assert!(!old.is_stopped(), "another version is another transfer");
        std::thread::scope(|scope| {
            let newer = scope.spawn(|| place.resume(&Arc::default(), 1));
            while !old.is_stopped() {
                std::thread::sleep(LOOK);
            }
            drop(part);
            assert_eq!(newer.join().unwrap(), Some(VerifiedBlocks::default()));
        });
        assert_eq!(old.take_error().unwrap().to_failure().cause(), Cause::Busy);
    }

    #[test]
    fn what_is_written_past_the_cache_is_in_the_file_wherever_it_lies() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let size = (1 << 20) + 100;
        file.set_len(size).unwrap();
        let mut part = Part::of(file);
        part.pass_cache();
        let mut piece = bankfull_sys::Pages::new(1 << 18).unwrap();
        piece.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 249) as u8 + 1);
        // As the disk needs it, out of order; then the end of the file; then out of step.
        part.write(&piece, 1 << 19).unwrap();
        part.write(&piece, 0).unwrap();
        part.write(&piece[..100], 1 << 20).unwrap();
        part.write(&piece[1..1000], 300_001).unwrap();
        let mut back = vec![0; size as usize];
        part.file.read_exact_at(&mut back, 0).unwrap();
        assert!(back[..1 << 18] == piece[..] && back[1 << 19..3 << 18] == piece[..]);
        assert!(back[1 << 20..] == piece[..100] && back[300_001..301_000] == piece[1..1000]);
        assert_eq!(part.file.metadata().unwrap().len(), size);
        let why = "this disk, or this kernel, tells of nothing past the page cache";
        if let Some(past) = part.direct.as_ref().or_else(|| cannot(why)) {
            assert_eq!(*lock(&past.reserved), size, "space is taken, and not beyond the end");
        }
    }
}
