//! Creation of files, symlinks and directories at the destination, and their metadata. Files and
//! symlinks are created beside the target and renamed to it.

use super::Receiver;
use super::part_file::{create_file_replacing, create_replacing, is_named, remove_journal};
use crate::base::error::failure;
use crate::base::part_names::PartNames;
use crate::base::sync::lock;
use crate::model::options::Fsync;
use bankfull_proto::wire::control::{Cause, Entry, EntryKind, Failure};
use bankfull_sys::{Dir, FileKind, Stat, Timestamp};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Set-user-ID and set-group-ID bits.
const SET_ID_BITS: u32 = 0o6000;

/// Maximum number of attempts to write a small file that another session replaces meanwhile.
/// (chosen: far more than two sessions need)
const MAX_PLACE_TRIES: u32 = 10;

impl Receiver<'_> {
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
            let written =
                file.write_all(content).and_then(|()| self.commit(dir, &names, name, entry, &file));
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
        if lock(&self.announced_dirs).created.contains(&entry.parent) {
            return Ok(());
        }
        remove_journal(dir, names)
    }

    /// Sets a complete part file's metadata and renames it to its target.
    pub(crate) fn commit(
        &self,
        dir: &Dir,
        names: &PartNames,
        name: &OsStr,
        entry: &Entry,
        file: &File,
    ) -> io::Result<()> {
        set_metadata(file, entry, self.set_id)?;
        if self.fsync == Fsync::File {
            bankfull_sys::sync_all(file)?;
        }
        if !is_named(dir, names, file) {
            return Err(io::Error::other("another bankfull is receiving it at the same time"));
        }
        dir.rename(&names.part, name)?;
        if self.fsync == Fsync::File {
            dir.sync()?;
        }
        Ok(())
    }

    /// Creates a directory; returns false if it exists.
    pub(crate) fn create_dir(&self, parent: &Dir, name: &OsStr) -> io::Result<bool> {
        // Writable by the owner until it is complete; its own mode is set at the end.
        match parent.mkdir(name, 0o700) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Creates a symlink; returns false if the same link exists.
    pub(crate) fn create_symlink(
        &self,
        dir: &Dir,
        name: &OsStr,
        entry: &Entry,
    ) -> Result<bool, Failure> {
        let target = OsStr::from_bytes(&entry.target);
        let shown = || PathBuf::from(name);
        let failed =
            |e: io::Error| failure(format!("cannot create the link {}", shown().display()), &e);
        let mtime = mtime_of(entry);
        match dir.stat(name) {
            Ok(stat) if matches!(stat.kind, FileKind::Dir | FileKind::Other) => {
                let (what, cause) = match stat.kind {
                    FileKind::Dir => ("a directory", Cause::IsADirectory),
                    _ => ("a device, FIFO or socket", Cause::Usage),
                };
                let name = shown();
                let text = format!(
                    "{what} is in the way of the link {}: remove or rename it",
                    name.display()
                );
                return Err(Failure::new(cause, text));
            }
            Ok(stat)
                if stat.kind == FileKind::Symlink
                    && dir.read_link(name).is_ok_and(|t| t == target) =>
            {
                if stat.mtime != mtime && !self.dry_run {
                    dir.set_mtime(name, mtime).map_err(failed)?;
                }
                return Ok(false);
            }
            _ => {}
        }
        if self.dry_run {
            return Ok(true);
        }
        let names = PartNames::of(name);
        self.remove_old_journal(dir, &names, entry).map_err(failed)?;
        let draft = names.part;
        create_replacing(dir, &draft, || dir.symlink(target, &draft)).map_err(failed)?;
        dir.set_mtime(&draft, mtime).map_err(failed)?;
        dir.rename(&draft, name).map_err(failed)?;
        Ok(true)
    }

    /// Updates the metadata of a file that was not sent.
    pub(crate) fn refresh_metadata(
        &self,
        dir: &Dir,
        name: &OsStr,
        entry: &Entry,
    ) -> io::Result<()> {
        let now = dir.stat(name)?;
        if now.mode == wanted_mode(entry, &now, self.set_id) && now.mtime == mtime_of(entry) {
            return Ok(());
        }
        set_metadata(&dir.open_file(name)?, entry, self.set_id)
    }
}

/// Sets mode and modification time.
///
/// The owner is not copied, so set-id bits would grant another user's rights unless the owner is
/// the same. Daemons and their clients may claim any owner, and are not trusted with these bits.
fn set_metadata(file: &File, entry: &Entry, set_id: bool) -> io::Result<()> {
    let now = bankfull_sys::stat_file(file)?;
    let mode = wanted_mode(entry, &now, set_id);
    if now.mode != mode {
        bankfull_sys::set_mode(file, mode)?;
    }
    bankfull_sys::set_mtime(file, mtime_of(entry))
}

fn wanted_mode(entry: &Entry, now: &Stat, set_id: bool) -> u32 {
    let same_owner = (entry.uid, entry.gid) == (now.uid, now.gid);
    let lends_rights = entry.kind == EntryKind::File && !(same_owner && set_id);
    if lends_rights { entry.mode & 0o7777 & !SET_ID_BITS } else { entry.mode & 0o7777 }
}

/// Returns an entry's modification time.
pub(crate) fn mtime_of(entry: &Entry) -> Timestamp {
    Timestamp { secs: entry.mtime_secs, nanos: entry.mtime_nanos }
}
