//! Directories at the destination: found or created when announced, and given their metadata once
//! everything in them is completed.

use super::folded_names::FoldedNames;
use super::metadata::{MetadataWriter, Target};
use crate::base::error::failure;
use crate::base::owner_access::{OWNER_ACCESS, lacks_owner_access};
use crate::base::sync::lock;
use crate::file_io::dir_table::DirTable;
use crate::file_io::earlier::Earlier;
use crate::file_io::links::LOOP;
use crate::file_io::roots::ReceiveTarget;
use crate::model::merge_conflicts::SetMetadata;
use bankfull_proto::wire::control::{Cause, Entry, EntryKind, Failure};
use bankfull_sys::{Dir, FileKind, SpecialFile, Stat};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Maximum number of other file systems beneath a destination that are flushed. (chosen: more than
/// people mount; subvolumes of btrfs, which have devices of their own, are flushed together)
const MAX_MOUNTS: usize = 64;

/// Directories at the destination by the numbers of their entries.
pub(crate) struct DestinationDirs {
    table: DirTable,
    announced: Mutex<AnnouncedDirs>,
    /// Modes of directories from before their owner got access, by device and inode.
    opened: Mutex<HashMap<(u64, u64), u32>>,
    /// Names in directories that may ignore case.
    names: FoldedNames,
    /// Destination directory; `None` in a dry run if it does not exist yet.
    base: Option<Arc<Dir>>,
    /// New name of a single copied file.
    rename: Option<OsString>,
    dry_run: bool,
    /// True if an entry of another kind is replaced: the copy deletes.
    replaces: bool,
    /// True if the destination itself keeps its mode and time: names beneath it are copied.
    keeps_base: bool,
    /// Device and inode of a daemon's root, which keeps its mode and time.
    served_root: Option<(u64, u64)>,
    pub(crate) metadata: Arc<MetadataWriter>,
    /// Earlier versions.
    pub(crate) earlier: Earlier,
    /// Device of the destination directory.
    device: Option<u64>,
    /// Directories on other devices, one of each, which are flushed at the end, too.
    mounts: Mutex<HashMap<u64, Dir>>,
}

#[derive(Debug, Default)]
struct AnnouncedDirs {
    /// Entries by number, which ascend, whose metadata is set once they are completed.
    entries: BTreeMap<u64, Entry>,
    /// Directories that this session created: they hold only what this session put there.
    created: HashSet<u64>,
    /// Entries that the directories count as, beyond one each.
    extra_weight: usize,
    failed: HashSet<u64>,
    /// Directories that rules for existing entries leave out, with all that is beneath.
    left_out: HashSet<u64>,
    /// True once those left get their metadata, at the end.
    is_over: bool,
}

impl DestinationDirs {
    /// Returns the table with the destination directory alone.
    pub(crate) fn new(target: &mut ReceiveTarget) -> Self {
        let (table, shown) = (DirTable::default(), target.shown.clone());
        match &target.base {
            Some(base) => table.insert_root(0, Arc::clone(base), shown),
            None => table.set_planned_root(shown),
        }
        let names = FoldedNames::default();
        if let Some(base) = &target.base {
            names.add_found(0, base);
        }
        Self {
            table,
            announced: Mutex::default(),
            opened: Mutex::default(),
            names,
            base: target.base.clone(),
            rename: target.rename.clone(),
            dry_run: target.dry_run,
            replaces: target.requested.delete.is_some(),
            keeps_base: target.requested.walk.has_names(),
            served_root: target.served_root,
            metadata: Arc::new(MetadataWriter::new(&target.metadata)),
            earlier: std::mem::take(&mut target.earlier),
            device: target
                .base
                .as_ref()
                .and_then(|base| base.stat_self().ok())
                .map(|stat| stat.dev),
            mounts: Mutex::default(),
        }
    }

    /// True if the number belongs to a directory.
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.table.contains(id)
    }

    /// Returns a descriptor of a directory.
    pub(crate) fn open(&self, id: u64) -> io::Result<Arc<Dir>> {
        self.table.open(id)
    }

    /// Returns the path of a directory for messages.
    pub(crate) fn path(&self, id: u64) -> PathBuf {
        self.table.path(id)
    }

    /// Returns the path of an entry of a directory for messages.
    pub(crate) fn path_of(&self, dir: u64, name: &OsStr) -> PathBuf {
        self.table.path_of(dir, name)
    }

    /// Renames a draft to its entry's name, after a backup of the entry there.
    pub(crate) fn put(
        &self,
        dir: &Dir,
        draft: &OsStr,
        name: &OsStr,
        parent: u64,
    ) -> io::Result<()> {
        if let Some(backup) = &self.earlier.backup {
            backup.keep(dir, name, &self.path_beneath(parent))?;
        }
        dir.rename(draft, name)
    }

    /// Returns the destination itself, if its mode and time are set.
    pub(crate) fn base_to_set(&self) -> Option<Arc<Dir>> {
        let base = self.base.as_ref().filter(|_| !self.keeps_base)?;
        let is_served = base.stat_self().is_ok_and(|stat| self.is_served_root(&stat));
        (!is_served).then(|| Arc::clone(base))
    }

    /// Returns the path of a directory beneath the destination.
    pub(crate) fn path_beneath(&self, dir: u64) -> PathBuf {
        let path = self.path(dir);
        path.strip_prefix(self.path(0)).map_or_else(|_| path.clone(), Path::to_owned)
    }

    /// Returns an entry's name at the destination.
    pub(crate) fn local_name(&self, entry: &Entry) -> OsString {
        match &self.rename {
            Some(name) if entry.parent == 0 && entry.kind != EntryKind::Dir => name.clone(),
            _ => OsStr::from_bytes(&entry.name).to_owned(),
        }
    }

    /// Checks that the directory distinguishes an entry's name from those announced before.
    ///
    /// # Errors
    /// Names both.
    pub(crate) fn check_name(&self, entry: &Entry) -> Result<(), Failure> {
        let name = OsStr::from_bytes(&entry.name);
        if self.dry_run || entry.name.is_empty() || self.is_parent_failed(entry) {
            return Ok(());
        }
        match self.names.record(entry.parent, name, || self.open(entry.parent)) {
            None => Ok(()),
            Some(other) => {
                let text = format!(
                    "cannot create {}: it is {} in this directory, which ignores case: rename \
                     one of them",
                    self.path_of(entry.parent, name).display(),
                    other.display()
                );
                Err(Failure::new(Cause::Usage, text))
            }
        }
    }

    /// True if the entry's directory could not be created.
    pub(crate) fn is_parent_failed(&self, entry: &Entry) -> bool {
        lock(&self.announced).failed.contains(&entry.parent)
    }

    /// True if this session created the entry's directory.
    pub(crate) fn is_parent_created(&self, entry: &Entry) -> bool {
        lock(&self.announced).created.contains(&entry.parent)
    }

    /// Returns an entry's directory; `None` if it does not exist yet in a dry run.
    pub(crate) fn parent_of(&self, entry: &Entry) -> Result<Option<Arc<Dir>>, Failure> {
        if self.is_parent_failed(entry) {
            return Err(Failure::new(Cause::Io, "its directory could not be created"));
        }
        match self.open(entry.parent) {
            Ok(dir) => Ok(Some(dir)),
            Err(e) if self.dry_run && is_no_directory(&e) => Ok(None),
            Err(e) => {
                let path = self.path(entry.parent);
                Err(failure(format!("cannot open the directory {}", path.display()), &e))
            }
        }
    }

    /// Adds an announced directory; returns true if it did not exist and was created.
    ///
    /// # Errors
    /// Failure to create it; entries beneath it fail too, without another report.
    pub(crate) fn add(&self, entry: Entry) -> Result<bool, Failure> {
        if entry.name.is_empty() {
            self.add_base(entry);
            return Ok(false);
        }
        let name = self.local_name(&entry);
        let id = entry.id;
        self.table.insert(id, entry.parent, &name);
        if self.is_parent_failed(&entry) {
            lock(&self.announced).failed.insert(id);
            return Ok(false);
        }
        match self.find_or_create(entry.parent, &name) {
            Ok(created) => {
                self.add_names(id, entry.parent, created);
                let mut announced = lock(&self.announced);
                announced.extra_weight += entry.extra_weight();
                announced.entries.insert(id, entry);
                if created {
                    announced.created.insert(id);
                }
                Ok(created)
            }
            Err(failure) => {
                lock(&self.announced).failed.insert(id);
                Err(failure)
            }
        }
    }

    /// Prepares for the names in a directory.
    fn add_names(&self, id: u64, parent: u64, created: bool) {
        if created {
            self.names.add_created(id, parent);
        } else if let Ok(dir) = self.open(id) {
            self.names.add_found(id, &dir);
        }
    }

    /// Adds the destination itself: it exists already, and gets its metadata at the end.
    fn add_base(&self, entry: Entry) {
        self.table.insert(entry.id, 0, OsStr::new(""));
        if let Some(base) = &self.base {
            if !self.dry_run && !self.keeps_base {
                self.ensure_base_access(base);
            }
            self.table.insert_root(entry.id, Arc::clone(base), self.path(0));
            self.names.add_found(entry.id, base);
        }
        if !self.keeps_base {
            let mut announced = lock(&self.announced);
            announced.extra_weight += entry.extra_weight();
            announced.entries.insert(entry.id, entry);
        }
    }

    /// Adds an announced directory that is not created.
    pub(crate) fn add_failed(&self, entry: &Entry) {
        self.table.insert(entry.id, entry.parent, OsStr::from_bytes(&entry.name));
        lock(&self.announced).failed.insert(entry.id);
    }

    /// Adds an announced directory that is left out.
    pub(crate) fn add_left_out(&self, entry: &Entry) {
        self.table.insert(entry.id, entry.parent, OsStr::from_bytes(&entry.name));
        lock(&self.announced).left_out.insert(entry.id);
    }

    /// True if the entry's directory is left out.
    pub(crate) fn is_parent_left_out(&self, entry: &Entry) -> bool {
        lock(&self.announced).left_out.contains(&entry.parent)
    }

    /// Finds or creates a directory; returns true if it is new.
    fn find_or_create(&self, parent: u64, name: &OsStr) -> Result<bool, Failure> {
        let shown = self.path_of(parent, name);
        let failed =
            |e: io::Error| failure(format!("cannot create the directory {}", shown.display()), &e);
        let dir = match self.open(parent) {
            Ok(dir) => dir,
            Err(e) if self.dry_run && is_no_directory(&e) => return Ok(true),
            Err(e) => return Err(failed(e)),
        };
        if self.dry_run {
            return match dir.stat(name) {
                Ok(stat) if stat.kind != FileKind::Dir && self.replaces => Ok(true),
                Ok(stat) => dir_or_in_the_way(stat.kind, &shown).map(|()| false),
                Err(_) => Ok(true),
            };
        }
        if create(&dir, name).map_err(failed)? {
            return Ok(true);
        }
        let stat = dir.stat(name).map_err(failed)?;
        if stat.kind != FileKind::Dir && self.replaces {
            self.remove_for_dir(&dir, name, parent).map_err(failed)?;
            return create(&dir, name).map_err(failed);
        }
        dir_or_in_the_way(stat.kind, &shown)?;
        self.ensure_owner_access(&dir, name, &stat);
        self.record_mount(&dir, name, &stat).map_err(failed)?;
        Ok(false)
    }

    /// Opens a directory of another file system for the flush at the end.
    ///
    /// The kernel reports write errors since the opening. (syncfs(2))
    fn record_mount(&self, dir: &Dir, name: &OsStr, stat: &Stat) -> io::Result<()> {
        let mut mounts = lock(&self.mounts);
        let is_known = self.device == Some(stat.dev) || mounts.contains_key(&stat.dev);
        if !is_known && mounts.len() < MAX_MOUNTS {
            mounts.insert(stat.dev, dir.open_child_dir(name)?);
        }
        Ok(())
    }

    /// Removes an entry that is in the place of a directory, after a backup.
    fn remove_for_dir(&self, dir: &Dir, name: &OsStr, parent: u64) -> io::Result<()> {
        if let Some(backup) = &self.earlier.backup {
            backup.keep(dir, name, &self.path_beneath(parent))?;
        }
        match dir.unlink(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// True if a copy that deletes replaces an entry of another kind.
    pub(super) fn replaces(&self) -> bool {
        self.replaces
    }

    /// True if a device, FIFO or socket is replaced by an entry of another kind.
    ///
    /// The destination operand itself stays; so does a device unless the copy deletes.
    pub(super) fn replaces_special(&self, existing: &Stat) -> bool {
        let is_pipe = matches!(existing.special, Some(SpecialFile::Fifo | SpecialFile::Socket));
        self.rename.is_none() && (self.replaces || is_pipe)
    }

    /// Returns the number of directories that are not completed, with their weights.
    pub(crate) fn outstanding(&self) -> usize {
        self.table.len() + lock(&self.announced).extra_weight
    }

    /// Sets the metadata of a directory whose entries are all completed, and forgets it.
    ///
    /// `report` receives failures.
    pub(crate) fn complete(&self, id: u64, report: impl Fn(PathBuf, Failure)) {
        // Locked until it is done: at the end of the session the others wait for it.
        let mut announced = lock(&self.announced);
        if announced.is_over {
            return;
        }
        let is_new = announced.created.remove(&id);
        announced.failed.remove(&id);
        announced.left_out.remove(&id);
        if let Some(entry) = announced.entries.remove(&id) {
            announced.extra_weight -= entry.extra_weight();
            if !self.dry_run {
                self.set_metadata_of(&entry, is_new, report);
            }
        }
        self.table.remove(id);
        self.names.forget(id);
    }

    /// Sets mode and time of the other directories, deepest first, at the end.
    ///
    /// `defers` selects directories whose metadata is set later; `report` receives failures.
    pub(crate) fn set_metadata(
        &self,
        defers: impl Fn(&Entry) -> bool,
        report: impl Fn(PathBuf, Failure),
    ) {
        let (entries, created) = {
            let mut announced = lock(&self.announced);
            announced.is_over = true;
            (std::mem::take(&mut announced.entries), announced.created.clone())
        };
        if self.dry_run {
            return;
        }
        for entry in entries.values().rev().filter(|entry| !defers(entry)) {
            self.set_metadata_of(entry, created.contains(&entry.id), &report);
        }
    }

    fn set_metadata_of(&self, entry: &Entry, is_new: bool, report: impl Fn(PathBuf, Failure)) {
        let id = if entry.name.is_empty() { 0 } else { entry.id };
        if let Err(e) = self.open(id).and_then(|dir| self.set_dir_metadata(&dir, entry, is_new)) {
            let path = self.path(id);
            let what = format!("cannot set mode and time of {}", path.display());
            report(path, failure(what, &e));
        }
    }

    fn set_dir_metadata(&self, dir: &Dir, entry: &Entry, is_new: bool) -> io::Result<()> {
        let now = dir.stat_self()?;
        if self.is_served_root(&now) {
            return Ok(());
        }
        let opened = lock(&self.opened).remove(&(now.dev, now.ino));
        let earlier = (!is_new).then_some(opened.unwrap_or(now.mode));
        self.metadata.apply(Target::Dir(dir), entry, earlier)
    }

    /// Returns a function that sets the metadata of a directory later.
    pub(crate) fn deferred_metadata(&self, entry: &Entry) -> SetMetadata {
        let (metadata, entry) = (Arc::clone(&self.metadata), entry.clone());
        let is_new = lock(&self.announced).created.contains(&entry.id);
        Box::new(move |dir| {
            let earlier = (!is_new).then_some(dir.stat_self()?.mode);
            metadata.apply(Target::Dir(dir), &entry, earlier)
        })
    }

    /// Gives the owner access to a directory that an earlier run left without.
    ///
    /// Its mode is set again at the end.
    fn ensure_owner_access(&self, parent: &Dir, name: &OsStr, stat: &Stat) {
        if !self.is_served_root(stat) && lacks_owner_access(stat) {
            lock(&self.opened).entry((stat.dev, stat.ino)).or_insert(stat.mode);
            // On failure, creating an entry in it reports the reason.
            let _ = parent.add_mode(name, OWNER_ACCESS);
        }
    }

    /// Gives the owner access to the destination itself.
    fn ensure_base_access(&self, base: &Dir) {
        let Ok(stat) = base.stat_self() else { return };
        if !self.is_served_root(&stat) && lacks_owner_access(&stat) {
            lock(&self.opened).entry((stat.dev, stat.ino)).or_insert(stat.mode);
            let _ = base.set_own_mode(stat.mode | OWNER_ACCESS);
        }
    }

    /// True for a daemon's root, by whatever path or mount a client reached it.
    fn is_served_root(&self, stat: &Stat) -> bool {
        self.served_root == Some((stat.dev, stat.ino))
    }

    /// Flushes the destination's file systems to disk.
    pub(crate) fn sync_filesystem(&self) -> io::Result<()> {
        let base = self.base.as_ref().map_or(Ok(()), |base| base.sync_filesystem());
        lock(&self.mounts).values().map(Dir::sync_filesystem).fold(base, Result::and)
    }
}

/// True for the error of opening a directory where none is.
pub(super) fn is_no_directory(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(LOOP)
}

/// Creates a directory; returns false if it exists.
fn create(parent: &Dir, name: &OsStr) -> io::Result<bool> {
    // Writable by the owner until it is complete; its own mode is set at the end.
    match parent.mkdir(name, 0o700) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

fn dir_or_in_the_way(kind: FileKind, shown: &Path) -> Result<(), Failure> {
    let what = match kind {
        FileKind::Dir => return Ok(()),
        FileKind::Symlink => "a symlink (bankfull does not write through symlinks)",
        _ => "a file",
    };
    let text = format!(
        "{} must be a directory, but {what} is there: remove or rename it",
        shown.display()
    );
    Err(Failure::new(Cause::NotADirectory, text))
}
