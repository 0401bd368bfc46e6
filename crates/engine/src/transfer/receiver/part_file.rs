//! Part file and journal of a file that is being received.
//!
//! `bankfull_proto::part` has the steps that create it and put it in place; between them a block is
//! written to the part file before its record is appended to the journal. After a power loss the
//! identity of the boot tells which records are in doubt; see `bankfull_proto::journal`.

use super::clear::clear;
use super::metadata::open_own_rw;
use crate::base::error::failure;
use crate::base::part_names::PartNames;
use crate::base::sync::lock;
use crate::file_io::block_io::direct::CacheBypass;
use crate::file_io::content::read_chunks;
use crate::model::options::DirectIo;
use crate::session::Session;
use bankfull_proto::blocks::Layout;
use bankfull_proto::hash::{BlockHash, BlockHasher};
use bankfull_proto::journal::{
    self, ChangeTime, HEADER_BYTES, Header, RECORD_BYTES, Record, RecordedBlocks,
};
use bankfull_proto::part::{CREATE_STEPS, CreateStep, is_unaltered};
use bankfull_proto::wire::control::{Cause, Entry, Failure};
use bankfull_sys::{Dir, DirectAlign, FileKind, Stat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tracing::debug;

/// Longest wait for a part file whose owner keeps writing, or was told to end. An owner whose
/// client was killed ends within moments; any other one is reported to the user.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Wait after which the user is warned.
const WARN_AFTER: Duration = Duration::from_secs(2);

/// Maximum number of attempts to lock or create a file that other sessions replace meanwhile.
/// (chosen: far more than two sessions need)
const MAX_LOCK_TRIES: u32 = 10;

/// Interval of attempts to lock a part file.
pub(crate) const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Records between two barriers: the number of blocks, of 1 MiB to 16 MiB each, that are read
/// again after a power loss. (chosen: few flushes, and little to read again)
const RECORDS_PER_BARRIER: u64 = 256;

/// Bytes of a journal that are read at a time. (chosen: few calls, and a moment)
const JOURNAL_CHUNK_BYTES: u64 = 1 << 20;

/// Boot identity if the kernel reports none.
pub(crate) const UNKNOWN_BOOT: [u8; 16] = [0; 16];

/// Owners of part files in this process. A newer session for the same file ends the owner, which
/// may not have noticed yet that its client is gone.
static LOCK_OWNERS: LazyLock<Mutex<LockOwners>> = LazyLock::new(Mutex::default);

/// Owners by device and inode of the part file.
type LockOwners = HashMap<(u64, u64), LockOwner>;

/// Session that holds a part file, and the source version that it receives.
struct LockOwner {
    session: Weak<Session>,
    version: u64,
    /// Identity of this hold.
    hold: Arc<()>,
}

/// Request of a session to lock a part file.
pub(crate) struct LockRequest<'a> {
    pub(crate) session: &'a Arc<Session>,
    /// Longest wait if another thread of the same session still holds the part file.
    pub(crate) own_session_timeout: Duration,
    /// Longest wait for an owner that writes nothing.
    pub(crate) idle_timeout: Duration,
    /// State of a wait that the caller continues by calling again; `None`: the call itself waits.
    pub(crate) wait: Option<&'a Mutex<LockWait>>,
    /// Warns the user of a long wait.
    pub(crate) warn: &'a dyn Fn(String),
}

/// Wait for a part file that another session holds.
#[derive(Debug)]
pub(crate) struct LockWait {
    began: Instant,
    /// Last modification seen, and the time when it changed.
    written: Option<bankfull_sys::Timestamp>,
    last_write: Option<Instant>,
    is_warned: bool,
}

impl Default for LockWait {
    fn default() -> Self {
        Self { began: Instant::now(), written: None, last_write: None, is_warned: false }
    }
}

/// Part file of an earlier run.
#[derive(Debug)]
pub(crate) enum Earlier {
    /// There is none for this version.
    Missing,
    Found(Box<EarlierPart>),
    /// Another session holds it: try again.
    Held,
}

/// Part file of an earlier run, locked, and what its journal says.
#[derive(Debug)]
pub(crate) struct EarlierPart {
    pub(crate) part: PartFile,
    pub(crate) recorded: RecordedBlocks,
    /// False if the part file was changed long after the journal.
    pub(crate) is_unaltered: bool,
    /// True if the journal was written under another boot: only its durable blocks are left.
    pub(crate) is_rewritten: bool,
}

/// An open part file with its journal.
#[derive(Debug)]
pub(crate) struct PartFile {
    pub(crate) file: File,
    direct: Option<DirectFile>,
    journal: Mutex<Journal>,
    /// True if the part file may hold data that is in no record.
    pub(crate) may_hold_stale_data: bool,
    // Dropped after the file, whose closing releases the lock: a held lock has an owner.
    _owner: OwnerEntry,
}

/// A part file opened for direct I/O.
#[derive(Debug)]
struct DirectFile {
    file: File,
    align: DirectAlign,
    size: u64,
    /// End of the space allocated so far.
    reserved_end: Mutex<u64>,
}

#[derive(Debug)]
struct Journal {
    file: File,
    bytes: u64,
    records_since_barrier: u64,
}

/// Entry of a held lock in [`LOCK_OWNERS`], which it leaves when dropped.
#[derive(Debug)]
struct OwnerEntry {
    key: (u64, u64),
    hold: Arc<()>,
}

impl Drop for OwnerEntry {
    fn drop(&mut self) {
        let mut owners = lock(&LOCK_OWNERS);
        if owners.get(&self.key).is_some_and(|held| Arc::ptr_eq(&held.hold, &self.hold)) {
            owners.remove(&self.key);
        }
    }
}

/// Result of an attempt to lock a part file.
#[derive(Debug)]
enum LockOutcome {
    /// Locked by this request.
    Acquired(OwnerEntry),
    /// The name was removed, or refers to another file.
    Replaced,
    /// Still held by a thread of the same session, for a file that failed.
    HeldBySelf,
    /// Held by another session; the caller tries again.
    Held,
}

impl PartFile {
    /// Creates a new part file in place of any earlier one.
    pub(crate) fn create(
        dir: &Dir,
        names: &PartNames,
        entry: &Entry,
        layout: Layout,
        boot: [u8; 16],
        request: &LockRequest<'_>,
    ) -> Result<Self, Failure> {
        let shown = String::from_utf8_lossy(&entry.name).into_owned();
        for _ in 0..MAX_LOCK_TRIES {
            // The earlier one may be in use: it is locked before it is replaced.
            let before = open_own_rw(dir, &names.part).ok();
            let locked = before.as_ref().map(|file| lock_part(dir, names, file, entry, request));
            let locked = locked.transpose()?;
            if matches!(locked, Some(LockOutcome::Replaced)) {
                continue;
            }
            match Self::run_create_steps(dir, names, entry, layout, boot, request)? {
                Some(part) => return Ok(part),
                None => continue,
            }
        }
        Err(busy(&shown))
    }

    /// Runs the steps of a creation; `None` if another session replaced the part file meanwhile.
    fn run_create_steps(
        dir: &Dir,
        names: &PartNames,
        entry: &Entry,
        layout: Layout,
        boot: [u8; 16],
        request: &LockRequest<'_>,
    ) -> Result<Option<Self>, Failure> {
        let shown = String::from_utf8_lossy(&entry.name);
        let failed = |e: io::Error| failure(format!("cannot create a file for {shown:?}"), &e);
        let (mut file, mut journal) = (None, None);
        for step in CREATE_STEPS {
            match step {
                CreateStep::RemoveJournal => {
                    remove_journal(dir, names)
                        .map_err(|e| creation_failure(&names.journal, &shown, &e))?;
                }
                CreateStep::CreatePart => {
                    let created = create_file_replacing(dir, &names.part)
                        .map_err(|e| creation_failure(&names.part, &shown, &e))?;
                    match lock_part(dir, names, &created, entry, request)? {
                        LockOutcome::Acquired(owner) => file = Some((created, owner)),
                        _ => return Ok(None),
                    }
                }
                // It grows with its blocks.
                CreateStep::SetSize if entry.is_open_ended() => {}
                CreateStep::SetSize => {
                    let sized = file.iter().try_for_each(|(file, _)| file.set_len(layout.size()));
                    sized.map_err(failed)?;
                }
                CreateStep::CreateJournal => {
                    let mut created = create_file_replacing(dir, &names.journal).map_err(failed)?;
                    let header = Header::for_entry(entry, layout, boot).encode();
                    created.write_all(&header).map_err(failed)?;
                    journal = Some(Journal {
                        file: created,
                        bytes: header.len() as u64,
                        records_since_barrier: 0,
                    });
                }
            }
        }
        Ok(file.zip(journal).map(|((file, owner), journal)| Self {
            file,
            direct: None,
            journal: Mutex::new(journal),
            may_hold_stale_data: false,
            _owner: owner,
        }))
    }

    /// Opens the part file of an earlier run.
    pub(crate) fn resume(
        dir: &Dir,
        names: &PartNames,
        entry: &Entry,
        boot: [u8; 16],
        request: &LockRequest<'_>,
    ) -> Result<Earlier, Failure> {
        let shown = String::from_utf8_lossy(&entry.name).into_owned();
        let failed =
            |e: io::Error| failure(format!("cannot continue an earlier copy of {shown:?}"), &e);
        for _ in 0..MAX_LOCK_TRIES {
            // Anything but a file is replaced by the first block.
            let is_other = dir.stat(&names.part).is_ok_and(|stat| stat.kind != FileKind::File);
            let opened = if is_other { Ok(None) } else { found(open_own_rw(dir, &names.part)) };
            let Some(file) = opened.map_err(failed)? else {
                // A journal without a part file is useless.
                remove_journal(dir, names).map_err(failed)?;
                return Ok(Earlier::Missing);
            };
            let owner = match lock_part(dir, names, &file, entry, request)? {
                LockOutcome::Acquired(owner) => owner,
                LockOutcome::Replaced => continue,
                LockOutcome::HeldBySelf => return Ok(Earlier::Missing),
                LockOutcome::Held => return Ok(Earlier::Held),
            };
            // Opened under the lock, so that no other session writes to it.
            let journal = found(open_own_rw(dir, &names.journal)).map_err(failed)?;
            let Some(journal) = journal else { return Ok(Earlier::Missing) };
            let is_stopped = || request.session.is_stopped();
            let locked = (file, owner);
            let found = Self::replay_journal(dir, names, entry, boot, locked, journal, is_stopped)?;
            return Ok(found.map_or(Earlier::Missing, |found| Earlier::Found(Box::new(found))));
        }
        Err(busy(&shown))
    }

    /// Reads the journal of a part file.
    fn replay_journal(
        dir: &Dir,
        names: &PartNames,
        entry: &Entry,
        boot: [u8; 16],
        (file, owner): (File, OwnerEntry),
        mut journal: File,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Option<EarlierPart>, Failure> {
        let Some(bytes) = read_journal(&mut journal, entry.size, is_stopped) else {
            return Ok(None);
        };
        let Ok(replay) = journal::replay(&bytes, &boot) else { return Ok(None) };
        let name = &*String::from_utf8_lossy(&entry.name);
        let stat = bankfull_sys::stat_file(&file)
            .and_then(|part| bankfull_sys::stat_file(&journal).map(|journal| (part, journal)));
        let (part, written) = stat.map_err(|e| failure(name, &e))?;
        let is_sized = entry.is_open_ended() || part.size == entry.size;
        if !replay.header.matches_entry(entry) || !is_sized {
            debug!(name, "part file belongs to another version of the source");
            return Ok(None);
        }
        let (layout, closed, recorded) = (replay.header.layout, replay.closed, replay.recorded);
        debug!(name, blocks = recorded.blocks.len(), "part file continued");
        // Blocks in doubt are recorded again once they are checked: a later barrier must not cover
        // them before that.
        let is_rewritten = replay.header.boot != boot || boot == UNKNOWN_BOOT;
        let journal = if is_rewritten {
            rewrite_journal(dir, names, entry, layout, boot, &recorded)
        } else {
            journal.set_len(replay.valid_bytes).map(|()| Journal {
                file: journal,
                bytes: replay.valid_bytes,
                records_since_barrier: 0,
            })
        };
        let journal =
            journal.map_err(|e| failure("cannot continue the journal of an earlier run", &e))?;
        let journal = Mutex::new(journal);
        Ok(Some(EarlierPart {
            part: Self { file, direct: None, journal, may_hold_stale_data: true, _owner: owner },
            recorded,
            is_unaltered: is_unaltered(change_time(&part), closed, written.mtime.secs),
            is_rewritten,
        }))
    }

    /// Returns a part file without a name.
    #[cfg(test)]
    pub(crate) fn of(file: File) -> Self {
        let journal =
            Journal { file: tempfile::tempfile().unwrap(), bytes: 0, records_since_barrier: 0 };
        let _owner = OwnerEntry { key: (0, 0), hold: Arc::default() };
        let journal = Mutex::new(journal);
        Self { file, direct: None, journal, may_hold_stale_data: false, _owner }
    }

    /// Enables direct I/O if the options allow it. Sparse files are written page by page, and need
    /// the page cache to combine the pages.
    pub(crate) fn prepare(mut self, entry: &Entry, direct: DirectIo) -> Self {
        if !entry.sparse && CacheBypass::new(direct).bypasses_write(&self.file) {
            self.enable_direct();
        }
        self
    }

    /// Switches to direct I/O if the file system supports it.
    fn enable_direct(&mut self) {
        // Without support, writes go through the page cache.
        let opened = bankfull_sys::open_direct(&self.file, true).ok().flatten();
        let size = bankfull_sys::stat_file(&self.file).map_or(0, |stat| stat.size);
        let to_direct =
            |(file, align)| DirectFile { file, align, size, reserved_end: Mutex::new(0) };
        self.direct = opened.map(to_direct);
    }

    /// Writes a chunk of content.
    pub(crate) fn write(&self, chunk: &[u8], offset: u64) -> io::Result<()> {
        match self.direct.as_ref().filter(|direct| direct.is_aligned(chunk, offset)) {
            Some(direct) => direct.write(chunk, offset, &self.file),
            None => self.file.write_all_at(chunk, offset),
        }
    }

    /// Appends a record for data that is written; if `durable`, flushes and adds a barrier every
    /// [`RECORDS_PER_BARRIER`] records.
    pub(crate) fn record(&self, record: &Record, durable: bool) -> io::Result<()> {
        let covers = {
            let mut journal = lock(&self.journal);
            journal.append(record)?;
            journal.records_since_barrier += 1;
            if !durable || journal.records_since_barrier < RECORDS_PER_BARRIER {
                return Ok(());
            }
            journal.records_since_barrier = 0;
            (journal.bytes - HEADER_BYTES as u64) / RECORD_BYTES as u64
        };
        bankfull_sys::sync_data(&self.file).inspect_err(|_| self.void_journal())?;
        // The barrier does not cover blocks that were recorded during the flush.
        lock(&self.journal).append(&Record::Barrier { covers })
    }

    /// Empties the journal of a part file that lost its name: it must not vouch for another file.
    pub(crate) fn invalidate_journal(&self, dir: &Dir, names: &PartNames) {
        if !is_named(dir, names, &self.file) {
            self.void_journal();
        }
    }

    /// Empties the journal, as after a failed flush: lost data still looks right in the page cache.
    pub(crate) fn void_journal(&self) {
        let _ = lock(&self.journal).file.set_len(0);
    }

    /// Makes a range read as zeros, for a hole; see [`clear`].
    pub(crate) fn clear_holes(
        &self,
        range: &Range<u64>,
        is_stopped: impl Fn() -> bool,
    ) -> io::Result<()> {
        if self.may_hold_stale_data { clear(&self.file, range, is_stopped) } else { Ok(()) }
    }
}

/// Space allocated ahead of direct writes: file systems serialize writes that allocate.
/// (measured: docs/block-io.md; chosen: few calls, and a bounded excess after an interrupted copy)
const RESERVE_AHEAD_BYTES: u64 = 256 << 20;

impl Drop for PartFile {
    /// Records the orderly end of this session's use, so that a later change is noticed.
    fn drop(&mut self) {
        let journal = self.journal.get_mut().unwrap_or_else(PoisonError::into_inner);
        if journal.bytes > HEADER_BYTES as u64
            && let Ok(stat) = bankfull_sys::stat_file(&self.file)
        {
            // Without the record, a short time after the journal's last change is in doubt.
            let _ = journal.append(&Record::Closed { part_changed: change_time(&stat) });
        }
    }
}

fn change_time(stat: &Stat) -> ChangeTime {
    ChangeTime { secs: stat.ctime.secs, nanos: stat.ctime.nanos }
}

impl DirectFile {
    /// True if a chunk is aligned for direct I/O; the last one of a file often is not.
    fn is_aligned(&self, chunk: &[u8], offset: u64) -> bool {
        let (memory, unit) = (self.align.memory as usize, u64::from(self.align.offset));
        (chunk.as_ptr() as usize).is_multiple_of(memory)
            && offset.is_multiple_of(unit)
            && (chunk.len() as u64).is_multiple_of(unit)
    }

    fn write(&self, chunk: &[u8], offset: u64, cached: &File) -> io::Result<()> {
        self.reserve(offset + chunk.len() as u64);
        match self.file.write_all_at(chunk, offset) {
            // The device needs another alignment than the kernel reports.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => cached.write_all_at(chunk, offset),
            written => written,
        }
    }

    /// Allocates space up to `end` and beyond.
    fn reserve(&self, end: u64) {
        let mut reserved_end = lock(&self.reserved_end);
        if end > *reserved_end {
            let from =
                std::mem::replace(&mut *reserved_end, self.size.min(end + RESERVE_AHEAD_BYTES));
            // If space is short, the write that exceeds it fails.
            let _ = bankfull_sys::reserve(&self.file, from, reserved_end.saturating_sub(from));
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

/// Creates a file in place of any earlier one of that name.
pub(crate) fn create_file_replacing(dir: &Dir, name: &OsStr) -> io::Result<File> {
    create_replacing(dir, name, || dir.create_new(name, 0o600))
}

/// Calls `make` after removing any file of that name; tolerates other sessions that do the same.
pub(crate) fn create_replacing<T>(
    dir: &Dir,
    name: &OsStr,
    make: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 0..MAX_LOCK_TRIES {
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

/// Removes the journal of a part file, and its temporary file.
pub(crate) fn remove_journal(dir: &Dir, names: &PartNames) -> io::Result<()> {
    for name in [&names.journal, &names.journal_temp] {
        match dir.unlink(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                // On a read-only file system unlink fails even if the name does not exist.
                let is_there = dir.stat(name).is_ok();
                if is_there {
                    return Err(e);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// True if another session, of any process, receives a file of this name in parts.
pub(crate) fn is_received_by_another(dir: &Dir, name: &OsStr, session: &Arc<Session>) -> bool {
    let names = PartNames::of(name);
    // Usually there is no part file.
    let Ok(stat) = dir.stat(&names.part) else { return false };
    let owner = lock(&LOCK_OWNERS).get(&(stat.dev, stat.ino)).map(|held| held.session.upgrade());
    if let Some(Some(owner)) = owner {
        return !Arc::ptr_eq(&owner, session) && !owner.is_stopped();
    }
    let file = if stat.kind == FileKind::File { open_own_rw(dir, &names.part).ok() } else { None };
    // The lock is released at once. A file system without locks cannot tell.
    file.is_some_and(|file| !bankfull_sys::try_lock(&file).unwrap_or(true))
}

/// Fails if another session receives a file of this name in parts.
///
/// An entry put in its place would be replaced, or make it fail at its end.
pub(crate) fn refuse_received(
    dir: &Dir,
    name: &OsStr,
    session: &Arc<Session>,
) -> Result<(), Failure> {
    match is_received_by_another(dir, name, session) {
        true => Err(busy(&name.to_string_lossy())),
        false => Ok(()),
    }
}

/// Failure of a file that another session receives.
pub(crate) fn busy(shown: &str) -> Failure {
    let text =
        format!("another bankfull is receiving {shown:?}: wait until it is done, or stop it");
    Failure::new(Cause::Busy, text)
}

/// Removes part file and journal of a file, unless another session uses them.
pub(crate) fn remove_part(dir: &Dir, name: &OsStr, session: &Arc<Session>) {
    if is_received_by_another(dir, name, session) {
        return;
    }
    let names = PartNames::of(name);
    // Usually there is none. The journal first: it must not outlive its part file.
    let _ = remove_journal(dir, &names);
    let _ = dir.unlink(&names.part);
}

/// Failure to create a part file or journal of this name; a directory may be in its place.
fn creation_failure(name: &OsStr, shown: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::IsADirectory => {
            let name = name.to_string_lossy();
            failure(format!("cannot receive {shown:?}: {name} is in the way: remove it"), error)
        }
        _ => failure(format!("cannot create a file for {shown:?}"), error),
    }
}

/// Reads a journal; `None` once `is_stopped`, or if it is larger than its part file, of `size`.
fn read_journal(journal: &mut File, size: u64, is_stopped: impl Fn() -> bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        // A block is far larger than its records.
        if is_stopped() || bytes.len() as u64 > size {
            return None;
        }
        if journal.take(JOURNAL_CHUNK_BYTES).read_to_end(&mut bytes).ok()? == 0 {
            return Some(bytes);
        }
    }
}

/// Maps a missing file to `None`.
fn found(opened: io::Result<File>) -> io::Result<Option<File>> {
    match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Locks a part file against other sessions.
fn lock_part(
    dir: &Dir,
    names: &PartNames,
    file: &File,
    entry: &Entry,
    request: &LockRequest<'_>,
) -> Result<LockOutcome, Failure> {
    let shown = String::from_utf8_lossy(&entry.name).into_owned();
    let stat = bankfull_sys::stat_file(file).map_err(|e| failure(&shown, &e))?;
    let key = (stat.dev, stat.ino);
    let mut own_wait = LockWait::default();
    let mut kept_wait = request.wait.map(lock);
    let wait = kept_wait.as_deref_mut().unwrap_or(&mut own_wait);
    loop {
        // Looked up before the attempt: afterwards the owner may have closed it.
        let holder = holder(key);
        // Without locks in the file system, the user must avoid two sessions at once.
        if bankfull_sys::try_lock(file).unwrap_or(true) {
            break;
        }
        let owner = preempt(holder, entry.version, request.session);
        if owner == Owner::Same && wait.began.elapsed() >= request.own_session_timeout {
            return Ok(LockOutcome::HeldBySelf);
        }
        if owner != Owner::Same && wait.is_over(file, owner, request, &shown)
            || request.session.is_stopped()
        {
            return Err(busy(&shown));
        }
        if request.wait.is_some() {
            return Ok(LockOutcome::Held);
        }
        std::thread::sleep(LOCK_POLL_INTERVAL);
    }
    // It may have been replaced or renamed into place during the wait.
    if !is_named(dir, names, file) {
        return Ok(LockOutcome::Replaced);
    }
    let owner = OwnerEntry { key, hold: Arc::default() };
    let session = Arc::downgrade(request.session);
    let held = LockOwner { session, version: entry.version, hold: Arc::clone(&owner.hold) };
    lock(&LOCK_OWNERS).insert(key, held);
    Ok(LockOutcome::Acquired(owner))
}

impl LockWait {
    /// True if the wait for another session's part file is over. Warns of a long wait, once.
    fn is_over(
        &mut self,
        file: &File,
        owner: Owner,
        request: &LockRequest<'_>,
        shown: &str,
    ) -> bool {
        let waited = self.began.elapsed();
        let modified = bankfull_sys::stat_file(file).ok().map(|stat| stat.mtime);
        if self.written.is_some() && modified != self.written {
            self.last_write = Some(Instant::now());
        }
        self.written = modified;
        let is_at_work = self.last_write.is_some_and(|at| at.elapsed() < BUSY_TIMEOUT);
        let limit = match owner {
            Owner::Preempted => request.idle_timeout.max(BUSY_TIMEOUT),
            _ => request.idle_timeout,
        };
        if waited >= WARN_AFTER && waited < limit && !is_at_work && !self.is_warned {
            (request.warn)(format!(
                "waiting for an earlier copy that still holds {shown:?}; up to {} s",
                limit.as_secs()
            ));
            self.is_warned = true;
        }
        (waited >= BUSY_TIMEOUT && is_at_work) || waited >= limit
    }
}

/// True if the part file's name still refers to this file.
pub(crate) fn is_named(dir: &Dir, names: &PartNames, file: &File) -> bool {
    is_at(dir, &names.part, file)
}

/// True if a name in a directory is that of an open file.
pub(crate) fn is_at(dir: &Dir, name: &OsStr, file: &File) -> bool {
    let id = |stat: Stat| (stat.dev, stat.ino);
    match (dir.stat(name), bankfull_sys::stat_file(file)) {
        (Ok(named), Ok(open)) => id(named) == id(open),
        _ => false,
    }
}

/// Owner of a held part file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The session that asks for it.
    Same,
    /// A session that was told to end.
    Preempted,
    Other,
}

/// Session of this process that holds a part file, and the version that it receives.
fn holder(key: (u64, u64)) -> Option<(Arc<Session>, u64)> {
    let owners = lock(&LOCK_OWNERS);
    let held = owners.get(&key)?;
    Some((held.session.upgrade()?, held.version))
}

/// Ends another session of this process that receives the same source version: its client was
/// restarted.
fn preempt(holder: Option<(Arc<Session>, u64)>, version: u64, session: &Arc<Session>) -> Owner {
    let Some((owner, held_version)) = holder else { return Owner::Other };
    if Arc::ptr_eq(&owner, session) {
        return Owner::Same;
    }
    if held_version != version {
        return Owner::Other;
    }
    let text = "a newer session of the same transfer took over";
    owner.fail(Failure::new(Cause::Busy, text).into());
    Owner::Preempted
}

/// True if a block of the part file has the hash in its record; false also once `is_stopped`.
pub(crate) fn is_block_intact(
    file: &File,
    layout: &Layout,
    (index, hash): (u64, &BlockHash),
    buffer: &mut [u8],
    is_stopped: impl Fn() -> bool,
) -> bool {
    let Some(range) = layout.range(index) else { return false };
    let mut hasher = BlockHasher::new(layout, range.start);
    let update = |chunk: &[u8]| hasher.update(chunk);
    let reached = read_chunks(file, range.clone(), buffer, is_stopped, update);
    reached.is_ok_and(|end| end == Some(range.end)) && hasher.finish() == *hash
}

/// Writes a journal for this boot with the blocks that cannot have been lost since.
fn rewrite_journal(
    dir: &Dir,
    names: &PartNames,
    entry: &Entry,
    layout: Layout,
    boot: [u8; 16],
    recorded: &RecordedBlocks,
) -> io::Result<Journal> {
    let mut bytes = Header::for_entry(entry, layout, boot).encode().to_vec();
    let durable = recorded.blocks.iter().filter(|block| block.is_durable);
    let blocks = durable.map(|block| match (block.index, block.hash) {
        (index, Some(hash)) => Record::Block { index, hash },
        (index, None) => Record::Copied { index },
    });
    for record in blocks.chain(recorded.holes.iter().map(|&run| Record::Holes { run })) {
        bytes.extend_from_slice(&record.encode());
    }
    let mut file = create_file_replacing(dir, &names.journal_temp)?;
    file.write_all(&bytes)?;
    dir.rename(&names.journal_temp, &names.journal)?;
    Ok(Journal { file, bytes: bytes.len() as u64, records_since_barrier: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_io::block_io::tests::cannot;
    use bankfull_proto::blocks::Run;
    use bankfull_proto::journal::RecordedBlock;
    use bankfull_proto::wire::control::EntryKind;
    use std::path::Path;

    const BOOT: [u8; 16] = [7; 16];
    const SIZE: u64 = 3 << 20;

    struct Fixture {
        path: tempfile::TempDir,
        dir: Dir,
        names: PartNames,
        layout: Layout,
    }

    fn test_request(session: &Arc<Session>) -> LockRequest<'_> {
        let own_session_timeout = Duration::ZERO;
        let idle_timeout = Duration::from_secs(60);
        LockRequest { session, own_session_timeout, idle_timeout, wait: None, warn: &|_| {} }
    }

    impl Fixture {
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
                extra: None,
            }
        }

        fn create(&self, session: &Arc<Session>, version: u64) -> Result<PartFile, Failure> {
            let request = test_request(session);
            let entry = self.entry(version);
            PartFile::create(&self.dir, &self.names, &entry, self.layout, BOOT, &request)
        }

        fn resume(&self, session: &Arc<Session>, version: u64) -> Option<RecordedBlocks> {
            let request = test_request(session);
            let entry = self.entry(version);
            let found = PartFile::resume(&self.dir, &self.names, &entry, BOOT, &request).unwrap();
            match found {
                Earlier::Found(found) => Some(found.recorded),
                Earlier::Missing | Earlier::Held => None,
            }
        }

        fn at(&self, name: &OsStr) -> std::path::PathBuf {
            Path::new(self.path.path()).join(name)
        }
    }

    fn record(part: &PartFile, index: u64) {
        part.record(&Record::Block { index, hash: BlockHash([1; 32]) }, false).unwrap();
    }

    #[test]
    fn journal_is_resumed_for_the_same_version_only() {
        let fixture = Fixture::new();
        let part = fixture.create(&Arc::default(), 1).unwrap();
        record(&part, 2);
        part.record(&Record::Holes { run: Run { first: 0, count: 2 } }, false).unwrap();
        drop(part);
        let here = fixture.resume(&Arc::default(), 1).unwrap();
        let hash = Some(BlockHash([1; 32]));
        assert_eq!(here.blocks, [RecordedBlock { index: 2, hash, is_durable: true }]);
        assert_eq!(here.holes, [Run { first: 0, count: 2 }]);
        assert_eq!(fixture.resume(&Arc::default(), 2), None);
    }

    #[test]
    fn journal_is_not_read_after_a_stop_or_beyond_its_part() {
        let journal = || {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&vec![1; 3 << 20]).unwrap();
            io::Seek::rewind(&mut file).unwrap();
            file
        };
        let read = read_journal(&mut journal(), 3 << 20, || false);
        assert_eq!(read.map(|bytes| bytes.len()), Some(3 << 20));
        assert_eq!(read_journal(&mut journal(), 1 << 20, || false), None);
        let checks = std::cell::Cell::new(0);
        let is_stopped = || checks.replace(checks.get() + 1) == 2;
        assert_eq!(read_journal(&mut journal(), 3 << 20, is_stopped), None);
        assert_eq!(checks.get(), 3);
    }

    #[test]
    fn create_replacing_tolerates_a_vanishing_file() {
        let fixture = Fixture::new();
        let name = OsStr::new("name");
        let tries = std::cell::Cell::new(0);
        // Another session created it, and removed it again in between.
        let made = create_replacing(&fixture.dir, name, || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(7) }
        });
        assert_eq!((made.unwrap(), tries.get()), (7, 3));
        std::fs::write(fixture.at(name), b"old").unwrap();
        assert_eq!(create_file_replacing(&fixture.dir, name).unwrap().metadata().unwrap().len(), 0);
    }

    #[test]
    fn part_is_not_created_while_an_old_journal_remains() {
        let fixture = Fixture::new();
        // A directory cannot be unlinked, so the removal of the journal fails.
        std::fs::create_dir(fixture.at(&fixture.names.journal)).unwrap();
        assert!(fixture.create(&Arc::default(), 1).is_err());
        assert!(!fixture.at(&fixture.names.part).exists());
    }

    #[test]
    fn journal_without_its_part_is_removed_and_ignored() {
        let fixture = Fixture::new();
        let part = fixture.create(&Arc::default(), 1).unwrap();
        record(&part, 0);
        drop(part);
        std::fs::remove_file(fixture.at(&fixture.names.part)).unwrap();
        assert_eq!(fixture.resume(&Arc::default(), 1), None);
        assert!(!fixture.at(&fixture.names.journal).exists());
        // State after a kill right after the new part file was created.
        File::create(fixture.at(&fixture.names.part)).unwrap().set_len(SIZE).unwrap();
        assert_eq!(fixture.resume(&Arc::default(), 1), None);
    }

    #[test]
    fn part_held_by_own_session_is_replaced_without_waiting() {
        let fixture = Fixture::new();
        let session = Arc::default();
        let old = fixture.create(&session, 1).unwrap();
        record(&old, 0);
        assert_eq!(fixture.resume(&session, 1), None, "the old part file is still in use");
        let new = fixture.create(&session, 2).unwrap();
        assert!(!is_named(&fixture.dir, &fixture.names, &old.file));
        assert!(is_named(&fixture.dir, &fixture.names, &new.file));
        record(&old, 1);
        drop(new);
        assert_eq!(fixture.resume(&Arc::default(), 2), Some(RecordedBlocks::default()));
    }

    #[test]
    fn part_that_its_session_closes_meanwhile_is_replaced() {
        let (fixture, session) = (Fixture::new(), Arc::default());
        let entry = fixture.entry(2);
        for _ in 0..2000 {
            let old = fixture.create(&session, 1).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| drop(old));
                let idle_timeout = Duration::ZERO;
                let request = LockRequest { idle_timeout, ..test_request(&session) };
                let (dir, names, layout) = (&fixture.dir, &fixture.names, fixture.layout);
                PartFile::create(dir, names, &entry, layout, BOOT, &request).unwrap();
            });
        }
    }

    #[test]
    fn part_held_by_another_session_is_reported_at_once() {
        let fixture = Fixture::new();
        let (owner, other): (Arc<Session>, Arc<Session>) = Default::default();
        let part = fixture.create(&owner, 1).unwrap();
        let (entry, wait) = (fixture.entry(2), Mutex::default());
        let resume = |idle_timeout| {
            let request = LockRequest { wait: Some(&wait), idle_timeout, ..test_request(&other) };
            PartFile::resume(&fixture.dir, &fixture.names, &entry, BOOT, &request)
        };
        assert!(matches!(resume(Duration::from_secs(60)), Ok(Earlier::Held)));
        assert_eq!(resume(Duration::ZERO).unwrap_err().cause(), Cause::Busy);
        drop(part);
        assert!(matches!(resume(Duration::ZERO), Ok(Earlier::Missing)));
        assert!(!owner.is_stopped());
    }

    #[test]
    fn newer_session_preempts_only_the_same_version() {
        let fixture = Fixture::new();
        let (old, other): (Arc<Session>, Arc<Session>) = Default::default();
        let part = fixture.create(&old, 1).unwrap();
        other.stop();
        assert!(fixture.create(&other, 2).is_err(), "a stopped session does not wait");
        assert!(!old.is_stopped(), "another version is another transfer");
        std::thread::scope(|scope| {
            let newer = scope.spawn(|| fixture.resume(&Arc::default(), 1));
            while !old.is_stopped() {
                std::thread::sleep(LOCK_POLL_INTERVAL);
            }
            drop(part);
            assert_eq!(newer.join().unwrap(), Some(RecordedBlocks::default()));
        });
        assert_eq!(old.take_error().unwrap().to_failure().cause(), Cause::Busy);
    }

    #[test]
    fn direct_write_is_correct_at_any_alignment() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let size = (1 << 20) + 100;
        file.set_len(size).unwrap();
        let mut part = PartFile::of(file);
        part.enable_direct();
        let mut chunk = bankfull_sys::Pages::new(1 << 18).unwrap();
        chunk.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 249) as u8 + 1);
        // Aligned and out of order; then the end of the file; then unaligned.
        part.write(&chunk, 1 << 19).unwrap();
        part.write(&chunk, 0).unwrap();
        part.write(&chunk[..100], 1 << 20).unwrap();
        part.write(&chunk[1..1000], 300_001).unwrap();
        let mut back = vec![0; size as usize];
        part.file.read_exact_at(&mut back, 0).unwrap();
        assert!(back[..1 << 18] == chunk[..] && back[1 << 19..3 << 18] == chunk[..]);
        assert!(back[1 << 20..] == chunk[..100] && back[300_001..301_000] == chunk[1..1000]);
        assert_eq!(part.file.metadata().unwrap().len(), size);
        let why = "no direct I/O on this disk or kernel";
        if let Some(direct) = part.direct.as_ref().or_else(|| cannot(why)) {
            assert_eq!(
                *lock(&direct.reserved_end),
                size,
                "space is allocated up to the end of the file"
            );
        }
    }
}
