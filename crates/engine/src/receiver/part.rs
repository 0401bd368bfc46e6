//! A file on its way in: the part beside the target, and the journal of its verified blocks.
//!
//! Order of writes: a block's data is written to the part before its record is appended to the
//! journal; the part is renamed over the target before the journal is removed. So a kill at any
//! moment leaves either a part with a journal that tells the truth, or the finished file. What a
//! power loss may leave is told apart by the boot's identity; see `bankfull_proto::journal`.

use crate::error::failure;
use crate::net::control::lock;
use crate::options::DEFAULT_TIMEOUT;
use crate::part_names::PartNames;
use crate::session::Session;
use bankfull_proto::blocks::Layout;
use bankfull_proto::hash::{BlockHash, BlockHasher};
use bankfull_proto::journal::{self, HEADER_BYTES, Header, RECORD_BYTES, Record};
use bankfull_proto::wire::control::{Cause, Entry, Failure};
use bankfull_sys::Dir;
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

/// Device and inode of a part, and the session that holds it.
type Holders = HashMap<(u64, u64), Weak<Session>>;

/// Who wants to hold a part.
pub(crate) struct Holder<'a> {
    pub(crate) session: &'a Arc<Session>,
    /// Tells the user of a long wait.
    pub(crate) remark: &'a dyn Fn(String),
}

/// A part and its journal, open.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) file: File,
    journal: Mutex<Journal>,
    /// Bytes may stand in the part that no record vouches for.
    pub(crate) touched: bool,
}

#[derive(Debug)]
struct Journal {
    file: File,
    bytes: u64,
    /// Records since the last barrier.
    doubtful: u64,
}

/// The blocks of a part that are here: number and hash; a hole has no hash.
pub(crate) type Here = Vec<(u64, Option<BlockHash>)>;

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
        // What stands there may be in use: nothing is taken from under another session.
        let before = dir.open_rw(&names.part).ok();
        if let Some(before) = &before {
            hold(dir, names, before, holder, &shown)?;
        }
        let file = create_over(dir, &names.part).map_err(failed)?;
        hold(dir, names, &file, holder, &shown)?;
        file.set_len(layout.size()).map_err(failed)?;
        let mut journal = create_over(dir, &names.journal).map_err(failed)?;
        let header = Header::for_entry(entry, layout, boot).encode();
        journal.write_all(&header).map_err(failed)?;
        let journal = Journal { file: journal, bytes: header.len() as u64, doubtful: 0 };
        Ok(Self { file, journal: Mutex::new(journal), touched: false })
    }

    /// Continues an earlier run's part; `None` when there is none that fits.
    pub(crate) fn resume(
        dir: &Dir,
        names: &PartNames,
        entry: &Entry,
        boot: [u8; 16],
        holder: &Holder<'_>,
    ) -> Result<Option<(Self, Here)>, Failure> {
        let shown = String::from_utf8_lossy(&entry.name).into_owned();
        let found = |opened: io::Result<File>| match opened {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failure(format!("cannot continue an earlier copy of {shown:?}"), &e)),
        };
        let Some(file) = found(dir.open_rw(&names.part))? else { return Ok(None) };
        let Some(mut journal) = found(dir.open_rw(&names.journal))? else { return Ok(None) };
        hold(dir, names, &file, holder, &shown)?;
        let mut bytes = Vec::new();
        if journal.read_to_end(&mut bytes).is_err() {
            return Ok(None);
        }
        let Ok(replay) = journal::replay(&bytes, &boot) else { return Ok(None) };
        let size = bankfull_sys::stat_file(&file).map_or(0, |stat| stat.size);
        if !replay.header.is_about(entry) || size != entry.size {
            return Ok(None);
        }
        let layout = replay.header.layout;
        let mut here = replay.trusted;
        let doubtful = replay.doubtful;
        here.extend(
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
        Ok(Some((Self { file, journal: Mutex::new(journal), touched: true }, here)))
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

    /// Makes sure that a hole of the source reads as zeros here.
    pub(crate) fn clear_hole(&self, range: Option<Range<u64>>) -> io::Result<()> {
        let Some(range) = range.filter(|_| self.touched) else { return Ok(()) };
        let len = range.end - range.start;
        if bankfull_sys::punch_hole(&self.file, range.start, len)? {
            return Ok(());
        }
        let zeros = vec![0; 1 << 20];
        let mut at = range.start;
        while at < range.end {
            let piece = (range.end - at).min(zeros.len() as u64) as usize;
            self.file.write_all_at(&zeros[..piece], at)?;
            at += piece as u64;
        }
        Ok(())
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
    match dir.create_new(name, 0o600) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            dir.unlink(name)?;
            dir.create_new(name, 0o600)
        }
        done => done,
    }
}

/// Makes sure that no other session writes to the part.
fn hold(
    dir: &Dir,
    names: &PartNames,
    file: &File,
    holder: &Holder<'_>,
    shown: &str,
) -> Result<(), Failure> {
    let stat = bankfull_sys::stat_file(file).map_err(|e| failure(shown, &e))?;
    let key = (stat.dev, stat.ino);
    let began = Instant::now();
    let mut told = false;
    // A file system without locks: two sessions at once are then the user's care.
    while !bankfull_sys::try_lock(file).unwrap_or(true) {
        let waited = began.elapsed();
        let is_ours = take_over(key, holder.session);
        let written = || bankfull_sys::stat_file(file).map_or(stat.mtime, |now| now.mtime);
        let is_at_work = waited >= BUSY_WAIT && written() != stat.mtime;
        let gives_up = !is_ours && (is_at_work || waited >= IDLE_WAIT);
        if gives_up || holder.session.is_stopped() {
            return Err(busy(shown));
        }
        if waited >= UNTOLD_WAIT && !told && !is_ours {
            (holder.remark)(format!(
                "waiting for an earlier copy that still holds {shown:?}; up to {} s",
                IDLE_WAIT.as_secs()
            ));
            told = true;
        }
        std::thread::sleep(LOOK);
    }
    // It may have been replaced while this session waited for it.
    if !is_named(dir, names, file) {
        return Err(busy(shown));
    }
    let mut holders = lock(&HOLDERS);
    holders.retain(|_, holder| holder.strong_count() > 0);
    holders.insert(key, Arc::downgrade(holder.session));
    Ok(())
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

/// Ends another session of this process that holds a part. True when `session` itself holds it: the
/// thread of a stream is not done with it yet.
fn take_over(key: (u64, u64), session: &Arc<Session>) -> bool {
    let Some(holder) = lock(&HOLDERS).get(&key).and_then(Weak::upgrade) else { return false };
    if Arc::ptr_eq(&holder, session) {
        return true;
    }
    let text = "a newer session of the same transfer took over";
    holder.fail(crate::Error::new(crate::ErrorKind::Interrupted, text));
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
    here: &Here,
) -> io::Result<Journal> {
    let mut bytes = Header::for_entry(entry, layout, boot).encode().to_vec();
    for (index, hash) in here {
        let record = match hash {
            Some(hash) => Record::Block { index: *index, hash: *hash },
            None => Record::Hole { index: *index },
        };
        bytes.extend_from_slice(&record.encode());
    }
    let mut file = create_over(dir, &names.journal_draft)?;
    file.write_all(&bytes)?;
    dir.rename(&names.journal_draft, &names.journal)?;
    Ok(Journal { file, bytes: bytes.len() as u64, doubtful: 0 })
}
