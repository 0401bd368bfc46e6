//! Source files by number: how they are opened and checked for changes.

use super::found::entry_failure;
use super::metadata::SourceMetadata;
use super::virtual_files::{HeldContent, VirtualFiles};
use crate::base::sync::lock;
use crate::file_io::content::read_chunks;
use crate::file_io::dir_table::DirTable;
use crate::file_io::links::LinkedDir;
use crate::file_io::spooled_input::SpooledInput;
use crate::stats::counters::FileStats;
use bankfull_proto::blocks::{Layout, Run};
use bankfull_proto::hash::FileHash;
use bankfull_proto::limits::MAX_PACKED_FILE_BYTES;
use bankfull_proto::wire::control::{
    Cause, Entry, EntryKind, ExtraMetadata, Failure, FileRuns, MetadataRules, Special, SpecialKind,
};
use bankfull_sys::{Dir, FileKind, SHORTAGE_TIMEOUT, SpecialFile, Stat, retry_shortage};
use rustc_hash::FxHashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the end of a truncation, and the interval of checks. (measured: ext4 takes 19
/// to 90 ms to truncate 300 MB; chosen: far longer, and well below a timeout)
const TRUNCATE_TIMEOUT: Duration = Duration::from_secs(2);
const TRUNCATE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Retries of a file that changed while it was read. (chosen: constant change would never end)
const MAX_CHANGED_RETRIES: u32 = 1;

/// An outstanding file of the source.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Entry as announced.
    pub(crate) entry: Entry,
    /// Number of its directory in the source's directory table.
    pub(crate) dir: u64,
    pub(crate) name: OsString,
    /// Number of times that it changed while it was read.
    pub(crate) attempt: u32,
    pub(crate) stats: FileStats,
    /// Directory of its content if the entry is a symlink that is followed.
    pub(crate) linked: Option<LinkedDir>,
    /// Set after the kernel refused to send this file: it is then sent through user memory.
    pub(crate) sendfile_refused: AtomicBool,
    open: Mutex<Option<Arc<File>>>,
    /// Device and inode.
    pub(super) inode: (u64, u64),
    /// Content that is not in that place.
    content: Option<Content>,
}

/// Content of a file that is not read from its place.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Read when the file was found, on a virtual file system.
    Whole(Arc<HeldContent>),
    /// Read while it is sent.
    Spooled(Arc<SpooledInput>),
}

/// Place of a file on this host.
#[derive(Debug, Clone)]
pub(crate) struct Place<'p> {
    /// Number of its directory in the source's directory table.
    pub(crate) dir: u64,
    /// Name of its content.
    pub(crate) name: &'p OsStr,
    /// Directory of its content if the entry is a symlink that is followed.
    pub(crate) linked: Option<&'p LinkedDir>,
    /// Device and inode of its content.
    pub(crate) inode: (u64, u64),
    /// Its content, if that is not in this place.
    pub(crate) content: Option<Content>,
}

impl SourceFile {
    /// Returns the place of the file.
    pub(crate) fn place(&self) -> Place<'_> {
        Place {
            dir: self.dir,
            name: &self.name,
            linked: self.linked.as_ref(),
            inode: self.inode,
            content: self.content.clone(),
        }
    }

    /// Returns the input that the content is read from while it is sent.
    pub(crate) fn input(&self) -> Option<&SpooledInput> {
        match &self.content {
            Some(Content::Spooled(input)) if self.entry.is_open_ended() => Some(input),
            _ => None,
        }
    }

    /// Returns the size; of an open-ended file, what was read so far.
    pub(crate) fn size(&self) -> u64 {
        self.input().map_or(self.entry.size, SpooledInput::size)
    }

    /// Returns the content bytes in runs of blocks.
    pub(super) fn bytes_in(&self, runs: &FileRuns) -> u64 {
        let Ok(layout) = Layout::new(self.entry.size, self.entry.block_bytes) else { return 0 };
        let size = self.size();
        let len = |run: &Run| {
            let range = layout.byte_range(*run);
            range.end.min(size) - range.start.min(size)
        };
        runs.runs.iter().map(len).sum()
    }

    /// Frees the memory of blocks that the receiver has.
    pub(super) fn release(&self, runs: &FileRuns) {
        let Some(input) = self.input() else { return };
        let block = u64::from(self.entry.block_bytes);
        runs.runs.iter().for_each(|run| input.release(*run, block));
    }
}

/// Failure of a source file.
#[derive(Debug)]
pub(crate) enum SourceError {
    /// The file differs from its announced entry.
    Changed,
    /// The file cannot be read.
    Failed(Failure),
}

/// Source files by number.
#[derive(Debug, Default)]
pub(crate) struct SourceFiles {
    /// Files by number. This side assigns the numbers, so that a fast hash is safe.
    files: Mutex<FxHashMap<u64, Arc<SourceFile>>>,
    pub(crate) dirs: DirTable,
    pub(crate) metadata: SourceMetadata,
    pub(crate) virtual_files: VirtualFiles,
    /// True if a file may grow while it is read.
    follows_growth: bool,
}

impl SourceFiles {
    /// Returns a table without files.
    pub(crate) fn new(metadata: SourceMetadata, follows_growth: bool) -> Self {
        Self { metadata, follows_growth, ..Self::default() }
    }

    /// Builds an entry, without a number, from what is `at` in a directory.
    ///
    /// That is the directory itself if the name is empty.
    ///
    /// # Errors
    /// Metadata that cannot be read.
    pub(crate) fn describe(
        &self,
        (dir, at): (&Dir, &OsStr),
        stat: &Stat,
        (parent, name): (u64, &OsStr),
    ) -> io::Result<Entry> {
        let mut entry = entry_of(stat, name, parent);
        self.metadata.complete(&mut entry, dir, at, stat)?;
        Ok(entry)
    }

    /// Builds the entry of an input of unknown size, without number, size and version.
    pub(crate) fn describe_input(&self, stat: &Stat, name: &OsStr) -> Entry {
        let mut entry = entry_of(stat, name, 0);
        entry.mode = self.metadata.changed_mode(entry.mode, false);
        entry
    }

    pub(crate) fn insert(&self, entry: Entry, place: &Place<'_>, attempt: u32) {
        let (dir, name, linked) = (place.dir, place.name.to_owned(), place.linked.cloned());
        let (stats, sendfile_refused, open) = Default::default();
        let (inode, content) = (place.inode, place.content.clone());
        let file = SourceFile {
            entry,
            dir,
            name,
            attempt,
            stats,
            linked,
            sendfile_refused,
            open,
            inode,
            content,
        };
        lock(&self.files).insert(file.entry.id, Arc::new(file));
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<SourceFile>> {
        lock(&self.files).get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: u64) -> Option<Arc<SourceFile>> {
        lock(&self.files).remove(&id)
    }

    /// Returns the path for messages.
    pub(crate) fn path(&self, file: &SourceFile) -> PathBuf {
        self.dirs.path_of(file.dir, OsStr::from_bytes(&file.entry.name))
    }

    /// Opens the directory that has a file's content.
    pub(super) fn dir_of(&self, file: &SourceFile) -> io::Result<Arc<Dir>> {
        match &file.linked {
            Some(linked) => retry_shortage(SHORTAGE_TIMEOUT, || linked.open()).map(Arc::new),
            None => self.dirs.open(file.dir),
        }
    }

    /// Returns the failure of an error, and true if the file is announced again.
    pub(crate) fn explain(&self, file: &SourceFile, error: SourceError) -> (Failure, bool) {
        if let SourceError::Failed(failure) = error {
            return (failure, false);
        }
        let path = self.path(file);
        let (shown, wrote) = (path.display(), "while it was read");
        let text = match self.dir_of(file).and_then(|dir| dir.stat(&file.name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let text = format!("{shown} vanished {wrote}");
                return (Failure::new(Cause::SourceVanished, text), false);
            }
            Ok(now) if now.size > file.entry.size => format!(
                "{shown} grew {wrote}: copy it again with --follow-growth, which takes it as far \
                 as it was"
            ),
            _ => format!("{shown} changed {wrote}: copy it again once no program writes to it"),
        };
        (Failure::new(Cause::SourceChanged, text), file.attempt < MAX_CHANGED_RETRIES)
    }

    /// Returns a changed file's new entry; `None` if it is no longer a regular file.
    ///
    /// A truncation sets the size first, and the times once the blocks are freed. This waits for
    /// the times, or the file would count as changed once more.
    pub(crate) fn restat_changed(
        &self,
        file: &SourceFile,
        is_stopped: impl Fn() -> bool,
    ) -> Option<Entry> {
        let before = &file.entry;
        let until = Instant::now() + TRUNCATE_TIMEOUT;
        loop {
            let dir = self.dir_of(file).ok()?;
            let stat = dir.stat(&file.name).ok()?;
            let name = OsStr::from_bytes(&before.name);
            let mut now = self.describe((&dir, &file.name), &stat, (before.parent, name)).ok()?;
            if let Some(group) = before.link_group() {
                now.extra.get_or_insert_default().link_group = Some(group);
            }
            let times = |entry: &Entry| (entry.mtime_secs, entry.mtime_nanos, entry.version);
            let is_truncating = now.size != before.size && times(&now) == times(before);
            if !is_truncating || Instant::now() >= until || is_stopped() {
                return Some(now).filter(|entry| entry.kind == EntryKind::File);
            }
            thread::sleep(TRUNCATE_POLL_INTERVAL);
        }
    }

    /// Opens a file, or returns its open descriptor, after checking it against its entry.
    pub(crate) fn open(&self, file: &SourceFile) -> Result<Arc<File>, SourceError> {
        let mut open = lock(&file.open);
        if let Some(open) = &*open {
            return Ok(Arc::clone(open));
        }
        let opened = Arc::new(self.open_uncached(file)?);
        *open = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Opens a file for a single reader, after checking it against its entry.
    pub(crate) fn open_uncached(&self, file: &SourceFile) -> Result<File, SourceError> {
        let opened = self.open_unchecked(file)?;
        self.check(file, &opened)?;
        Ok(opened)
    }

    /// Opens a file that its reader checks later.
    fn open_unchecked(&self, file: &SourceFile) -> Result<File, SourceError> {
        match &file.content {
            Some(Content::Whole(content)) => {
                return bankfull_sys::memory_file(&content.bytes)
                    .map_err(|e| self.failed(file, &e));
            }
            Some(Content::Spooled(input)) => {
                return input.open().map_err(|e| self.failed(file, &e));
            }
            None => {}
        }
        self.dir_of(file)
            .and_then(|dir| match self.metadata.keeps(MetadataRules::OPEN_NOATIME) {
                true => dir.open_file_noatime(&file.name),
                false => dir.open_file(&file.name),
            })
            .map_err(|e| self.failed(file, &e))
    }

    /// Checks that an open file still matches its entry.
    pub(crate) fn check(&self, file: &SourceFile, opened: &File) -> Result<(), SourceError> {
        if file.content.is_some() {
            return Ok(());
        }
        let now = bankfull_sys::stat_file(opened).map_err(|e| self.failed(file, &e))?;
        let same = now.size == file.entry.size
            && (now.mtime.secs, now.mtime.nanos) == (file.entry.mtime_secs, file.entry.mtime_nanos)
            && version_of(&now) == file.entry.version;
        let has_grown = || now.size > file.entry.size && (now.dev, now.ino) == file.inode;
        if same || self.follows_growth && has_grown() { Ok(()) } else { Err(SourceError::Changed) }
    }

    pub(crate) fn failed(&self, file: &SourceFile, error: &io::Error) -> SourceError {
        SourceError::Failed(entry_failure(&self.path(file), error))
    }

    /// Reads a whole file into a buffer of its announced size; fails if it changed meanwhile.
    pub(crate) fn read_whole(&self, file: &SourceFile, out: &mut [u8]) -> Result<(), SourceError> {
        let opened = self.open_unchecked(file)?;
        if let Err(e) = opened.read_exact_at(out, 0) {
            let ended = e.kind() == io::ErrorKind::UnexpectedEof;
            return Err(if ended { SourceError::Changed } else { self.failed(file, &e) });
        }
        self.check(file, &opened)
    }

    /// Returns the BLAKE3 hash of a whole file, read through `buffer`; fails if it changed.
    ///
    /// `None` once `is_stopped`.
    pub(crate) fn hash_whole(
        &self,
        file: &SourceFile,
        buffer: &mut [u8],
        is_stopped: impl Fn() -> bool,
    ) -> Result<Option<FileHash>, SourceError> {
        let opened = self.open_uncached(file)?;
        let mut hasher = blake3::Hasher::new();
        let update = |chunk: &[u8]| {
            hasher.update(chunk);
        };
        let reached = read_chunks(&opened, 0..file.entry.size, buffer, is_stopped, update);
        match reached.map_err(|e| self.failed(file, &e))? {
            Some(end) if end < file.entry.size => return Err(SourceError::Changed),
            Some(_) => {}
            None => return Ok(None),
        }
        self.check(file, &opened)?;
        Ok(Some(FileHash(*hasher.finalize().as_bytes())))
    }

    /// Returns the blocks of a file that lie wholly in holes; `None` once `is_stopped`.
    pub(crate) fn holes(
        &self,
        file: &SourceFile,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Option<FileRuns>, SourceError> {
        // Not cached: all wanted sparse files come here first, and descriptors are few.
        let opened = self.open_uncached(file)?;
        let mut holes = FileRuns { file: file.entry.id, runs: Vec::new() };
        let Ok(layout) = Layout::new(file.entry.size, file.entry.block_bytes) else {
            return Ok(Some(holes));
        };
        let block = u64::from(layout.block_bytes());
        let mut next = 0;
        let mut offset = 0;
        while offset < layout.size() {
            if is_stopped() {
                return Ok(None);
            }
            let extent = bankfull_sys::data_extent(&opened, offset)
                .map_err(|e| self.failed(file, &e))?
                .unwrap_or(layout.size()..layout.size());
            let first_with_data = (extent.start / block).min(layout.count());
            let at_end = extent.start >= layout.size();
            let end = if at_end { layout.count() } else { first_with_data };
            if end > next {
                holes.runs.push(Run { first: next, count: end - next });
            }
            next = next.max(extent.end.div_ceil(block));
            offset = extent.end.max(offset + 1);
        }
        Ok(Some(holes))
    }
}

/// Sets the size of a file's entry that has no holes.
pub(super) fn set_size(entry: &mut Entry, size: u64) {
    entry.size = size;
    entry.block_bytes = block_bytes_of(size);
    entry.sparse = false;
}

/// Returns the block size of a file; 0 if it is packed.
fn block_bytes_of(size: u64) -> u32 {
    if size <= MAX_PACKED_FILE_BYTES { 0 } else { Layout::for_size(size).block_bytes() }
}

/// Builds the entry of a directory entry, without a number.
fn entry_of(stat: &Stat, name: &OsStr, parent: u64) -> Entry {
    let kind = match stat.kind {
        FileKind::File => EntryKind::File,
        FileKind::Dir => EntryKind::Dir,
        FileKind::Symlink => EntryKind::Symlink,
        FileKind::Other => EntryKind::Special,
    };
    let size = if kind == EntryKind::File { stat.size } else { 0 };
    let block_bytes = if kind == EntryKind::File { block_bytes_of(size) } else { 0 };
    Entry {
        id: 0,
        parent,
        name: name.as_bytes().to_vec(),
        kind,
        mode: stat.mode,
        mtime_secs: stat.mtime.secs,
        mtime_nanos: stat.mtime.nanos,
        size,
        version: version_of(stat),
        uid: stat.uid,
        gid: stat.gid,
        block_bytes,
        sparse: block_bytes != 0 && stat.allocated < size,
        target: Vec::new(),
        extra: special_of(stat).map(|special| {
            Box::new(ExtraMetadata { special: Some(special), ..ExtraMetadata::default() })
        }),
    }
}

fn special_of(stat: &Stat) -> Option<Special> {
    let (kind, major, minor) = match stat.special? {
        SpecialFile::Fifo => (SpecialKind::Fifo, 0, 0),
        SpecialFile::Socket => (SpecialKind::Socket, 0, 0),
        SpecialFile::CharDevice(major, minor) => (SpecialKind::CharDevice, major, minor),
        SpecialFile::BlockDevice(major, minor) => (SpecialKind::BlockDevice, major, minor),
    };
    Some(Special { kind, major, minor })
}

/// Returns a hash that changes when the file is written, replaced or moved.
///
/// The hash covers the change time, which programs cannot set back, unlike the modification time.
pub(super) fn version_of(stat: &Stat) -> u64 {
    let mut bytes = [0; 28];
    bytes[..8].copy_from_slice(&stat.ctime.secs.to_be_bytes());
    bytes[8..12].copy_from_slice(&stat.ctime.nanos.to_be_bytes());
    bytes[12..20].copy_from_slice(&stat.ino.to_be_bytes());
    bytes[20..28].copy_from_slice(&stat.dev.to_be_bytes());
    let hash = blake3::hash(&bytes);
    hash.as_bytes()[..8].iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place<'static> {
        Place { dir: 0, name: OsStr::new("f"), linked: None, inode: (0, 0), content: None }
    }

    #[test]
    fn holes_are_exactly_the_blocks_without_data() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = File::create(&path).unwrap();
        let mib = 1u64 << 20;
        file.set_len(20 * mib + 5).unwrap();
        file.write_all_at(b"x", 3 * mib + 100).unwrap();
        file.write_all_at(&[1; 2 << 20], 7 * mib + 4096).unwrap();
        let sources = SourceFiles::default();
        sources.dirs.insert_root(0, Arc::new(Dir::open(dir.path()).unwrap()), PathBuf::new());
        let stat = bankfull_sys::stat_file(&file).unwrap();
        let mut entry = entry_of(&stat, OsStr::new("f"), 0);
        entry.id = 5;
        assert!(entry.sparse);
        sources.insert(entry, &place(), 0);
        let holes = sources.holes(&sources.find(5).unwrap(), || false).unwrap().unwrap();
        assert!(matches!(sources.holes(&sources.find(5).unwrap(), || true), Ok(None)));
        let runs: Vec<(u64, u64)> = holes.runs.iter().map(|r| (r.first, r.count)).collect();
        assert_eq!(runs, [(0, 3), (4, 3), (10, 11)]);
    }

    #[test]
    fn write_is_detected_although_mtime_was_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"one").unwrap();
        let sources = SourceFiles::default();
        sources.dirs.insert_root(0, Arc::new(Dir::open(dir.path()).unwrap()), PathBuf::new());
        let stat = bankfull_sys::stat_file(File::open(&path).unwrap()).unwrap();
        let place = place();
        sources.insert(entry_of(&stat, OsStr::new("f"), 0), &place, 0);
        let file = sources.find(0).unwrap();
        assert!(sources.open_uncached(&file).is_ok());
        thread::sleep(Duration::from_millis(20));
        std::fs::write(&path, b"two").unwrap();
        bankfull_sys::set_mtime(File::options().write(true).open(&path).unwrap(), stat.mtime)
            .unwrap();
        assert!(matches!(sources.open_uncached(&file), Err(SourceError::Changed)));
    }
}
