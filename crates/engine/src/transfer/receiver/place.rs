//! Creation of files and symlinks at the destination. They are created beside the target and
//! renamed to it.

use super::dirs::DestinationDirs;
use super::existing::in_the_way;
use super::kept_times::KeptTimes;
use super::metadata::{Target, mtime_of, special_of};
use super::part_file::{create_file_replacing, create_replacing, is_at, is_named, remove_journal};
use crate::base::error::failure;
use crate::base::part_names::PartNames;
use crate::model::options::Fsync;
use bankfull_proto::part::{COMMIT_STEPS, CommitStep};
use bankfull_proto::wire::control::{Entry, Failure, MetadataRules};
use bankfull_sys::{Dir, FileKind, Stat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Maximum number of attempts to write a small file that another session replaces meanwhile.
/// (chosen: far more than two sessions need)
const MAX_PLACE_TRIES: u32 = 10;

/// Puts files and symlinks in place.
pub(crate) struct Placer {
    dirs: Arc<DestinationDirs>,
    fsync: Fsync,
    dry_run: bool,
    pub(crate) kept_times: KeptTimes,
}

impl Placer {
    /// Returns a placer for the destination. See the fields.
    pub(crate) fn new(dirs: Arc<DestinationDirs>, fsync: Fsync, dry_run: bool) -> Self {
        Self { dirs, fsync, dry_run, kept_times: KeptTimes::default() }
    }

    /// Writes a small file and renames it into place.
    pub(crate) fn store_small_file(
        &self,
        dir: &Dir,
        name: &OsStr,
        entry: &Entry,
        content: &[u8],
    ) -> io::Result<()> {
        let mut tries = 0;
        loop {
            let names = PartNames::of(name);
            self.remove_old_journal(dir, &names, entry)?;
            let mut file = create_file_replacing(dir, &names.part)?;
            let written = file
                .write_all(content)
                .and_then(|()| self.commit(dir, (&names, name), entry, &file, || {}));
            tries += 1;
            match written {
                // Another session is receiving the same file: the last one wins.
                Err(_) if tries < MAX_PLACE_TRIES && !is_named(dir, &names, &file) => {}
                Err(e) => {
                    let _ = dir.unlink(&names.part);
                    return Err(e);
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Removes the journal of an earlier, larger file of the same name.
    fn remove_old_journal(&self, dir: &Dir, names: &PartNames, entry: &Entry) -> io::Result<()> {
        if self.dirs.is_parent_created(entry) {
            return Ok(());
        }
        remove_journal(dir, names)
    }

    /// Sets a complete part file's metadata and renames it to its target.
    ///
    /// Calls `on_flush_error` if the flush of the file fails.
    pub(crate) fn commit(
        &self,
        dir: &Dir,
        (names, name): (&PartNames, &OsStr),
        entry: &Entry,
        file: &File,
        on_flush_error: impl Fn(),
    ) -> io::Result<()> {
        let flushes = self.fsync == Fsync::File;
        for step in COMMIT_STEPS {
            match step {
                CommitStep::SetMetadata => {
                    let metadata = &self.dirs.metadata;
                    let earlier = match metadata.keeps(MetadataRules::NO_MODES) {
                        true => dir.stat(name).ok().map(|stat| stat.mode),
                        false => None,
                    };
                    metadata.apply(Target::File(file), entry, earlier)?;
                    if !metadata.keeps(MetadataRules::NO_TIMES) {
                        self.kept_times.look(file, name, mtime_of(entry))?;
                    }
                }
                CommitStep::FlushPart if flushes => {
                    bankfull_sys::sync_all(file).inspect_err(|_| on_flush_error())?;
                }
                CommitStep::CheckName if !is_named(dir, names, file) => {
                    let text = match dir.stat(&names.part) {
                        Ok(_) => "another bankfull is receiving it at the same time",
                        Err(_) => "its part file or its directory was removed meanwhile",
                    };
                    return Err(io::Error::other(text));
                }
                CommitStep::Rename => {
                    self.dirs.put(dir, &names.part, name, entry.parent)?;
                    // Another session may have replaced the draft before the rename.
                    if !is_at(dir, name, file) {
                        return Err(io::Error::other("another bankfull wrote it at the same time"));
                    }
                }
                CommitStep::FlushDirectory if flushes => dir.sync()?,
                // A small file has none. Another session may have removed it already.
                CommitStep::RemoveJournal if entry.block_bytes != 0 => remove_journal(dir, names)?,
                CommitStep::FlushPart
                | CommitStep::CheckName
                | CommitStep::FlushDirectory
                | CommitStep::RemoveJournal => {}
            }
        }
        Ok(())
    }

    /// Creates a symlink; returns false if the same link exists.
    ///
    /// # Errors
    /// Of cause `IsADirectory` if a directory is in its place.
    pub(crate) fn create_symlink(
        &self,
        dir: &Dir,
        name: &OsStr,
        entry: &Entry,
    ) -> Result<bool, Failure> {
        let target = OsStr::from_bytes(&entry.target);
        let failed = |e: io::Error| self.creation_failure("link", (name, entry), &e);
        match dir.stat(name) {
            Ok(stat) if self.is_refused(&stat) => {
                return Err(in_the_way(stat.kind, "link", &self.dirs.path_of(entry.parent, name)));
            }
            Ok(stat)
                if stat.kind == FileKind::Symlink
                    && dir.read_link(name).is_ok_and(|t| t == target) =>
            {
                if !self.dry_run {
                    self.dirs.metadata.refresh(dir, name, entry, stat).map_err(failed)?;
                }
                return Ok(false);
            }
            _ if self.dry_run => return Ok(true),
            _ => {}
        }
        let names = PartNames::of(name);
        self.remove_old_journal(dir, &names, entry).map_err(failed)?;
        let draft = names.part;
        create_replacing(dir, &draft, || dir.symlink(target, &draft)).map_err(failed)?;
        self.put_draft(dir, &draft, name, entry).map_err(failed)?;
        Ok(true)
    }

    /// Creates a special file; returns false if the same one exists.
    ///
    /// `None` if this receiver cannot create devices.
    ///
    /// # Errors
    /// Of cause `IsADirectory` if a directory is in its place.
    pub(crate) fn create_special(
        &self,
        dir: &Dir,
        name: &OsStr,
        entry: &Entry,
    ) -> Result<Option<bool>, Failure> {
        let Some(special) = special_of(entry) else { return Ok(None) };
        let failed = |e: io::Error| self.creation_failure("special file", (name, entry), &e);
        let metadata = &self.dirs.metadata;
        match dir.stat(name) {
            Ok(stat) if stat.special == Some(special) => {
                if !self.dry_run {
                    metadata.refresh(dir, name, entry, stat).map_err(failed)?;
                }
                return Ok(Some(false));
            }
            _ if !self.may_create(entry) => return Ok(None),
            Ok(stat) if stat.kind == FileKind::Dir && self.is_refused(&stat) => {
                let shown = self.dirs.path_of(entry.parent, name);
                return Err(in_the_way(stat.kind, "special file", &shown));
            }
            _ if self.dry_run => return Ok(Some(true)),
            _ => {}
        }
        let names = PartNames::of(name);
        self.remove_old_journal(dir, &names, entry).map_err(failed)?;
        let draft = names.part;
        let make = || dir.make_special(&draft, special, entry.mode & 0o777);
        match create_replacing(dir, &draft, make) {
            Err(e) if metadata.is_lost_device(special, &e) => return Ok(None),
            made => made.map_err(failed)?,
        }
        self.put_draft(dir, &draft, name, entry).map_err(failed)?;
        Ok(Some(true))
    }

    /// True if this receiver may create a special file; one that it may not is counted.
    pub(crate) fn may_create(&self, entry: &Entry) -> bool {
        let special = special_of(entry);
        special.is_some_and(|special| self.dirs.metadata.may_create(special, self.dry_run))
    }

    /// True if an existing entry keeps a symlink from its place.
    ///
    /// In a dry run every directory does, until it is found to be removable.
    fn is_refused(&self, existing: &Stat) -> bool {
        match existing.kind {
            FileKind::Dir => self.dry_run || !self.dirs.replaces(),
            FileKind::Other => !self.dirs.replaces_special(existing),
            FileKind::File | FileKind::Symlink => false,
        }
    }

    /// Sets a draft's metadata and renames it to its target; on failure the draft is removed.
    fn put_draft(&self, dir: &Dir, draft: &OsStr, name: &OsStr, entry: &Entry) -> io::Result<()> {
        let set = self.dirs.metadata.apply(Target::Entry(dir, draft), entry, None);
        let put = set.and_then(|()| self.dirs.put(dir, draft, name, entry.parent));
        put.inspect_err(|_| drop(dir.unlink(draft)))
    }

    /// Returns the failure to create an entry without content.
    fn creation_failure(
        &self,
        what: &str,
        (name, entry): (&OsStr, &Entry),
        error: &io::Error,
    ) -> Failure {
        let shown = self.dirs.path_of(entry.parent, name);
        match error.kind() {
            io::ErrorKind::IsADirectory => in_the_way(FileKind::Dir, what, &shown),
            _ => failure(format!("cannot create the {what} {}", shown.display()), error),
        }
    }
}
