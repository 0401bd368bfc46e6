//! Putting things in place at the destination: small files, finished parts, symlinks, directories
//! and their metadata. Everything happens beside the target and is renamed over it.

use super::Receiver;
use super::part::{create_over, drop_journal, is_named, make_over};
use crate::error::failure;
use crate::net::control::lock;
use crate::options::Fsync;
use crate::part_names::PartNames;
use bankfull_proto::wire::control::{Cause, Entry, EntryKind, Failure};
use bankfull_sys::{Dir, Kind, Stat, Timestamp};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;

/// How often a small file is written anew when another session takes its place meanwhile. (ours)
const PLACE_TRIES: u32 = 10;

impl Receiver<'_> {
    /// Writes a small file and puts it in place.
    pub(super) fn place_small(
        &self,
        dir: &Dir,
        name: &OsStr,
        entry: &Entry,
        content: &[u8],
    ) -> io::Result<()> {
        let mut tries = 0;
        loop {
            let names = PartNames::of(name);
            self.drop_old_journal(dir, &names, entry)?;
            let mut file = create_over(dir, &names.part)?;
            let written =
                file.write_all(content).and_then(|()| self.put(dir, &names, name, entry, &file));
            tries += 1;
            match written {
                // Another session is receiving the same file: one of us comes last.
                Err(_) if tries < PLACE_TRIES && !is_named(dir, &names, &file) => {}
                Err(e) => {
                    let _ = dir.unlink(&names.part);
                    return Err(e);
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Where a large file of the same name was on its way once, its journal must not outlive it.
    fn drop_old_journal(&self, dir: &Dir, names: &PartNames, entry: &Entry) -> io::Result<()> {
        if lock(&self.seen).fresh.contains(&entry.parent) {
            return Ok(());
        }
        drop_journal(dir, names)
    }

    /// Gives a complete part its metadata and its name.
    pub(super) fn put(
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

    /// Makes a directory, or finds it made. True when it is new.
    pub(super) fn make_dir(&self, parent: &Dir, name: &OsStr) -> io::Result<bool> {
        // Writable by us until everything is in it; its own mode comes at the end.
        match parent.mkdir(name, 0o700) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Puts a symlink in place. False when the same link was there already.
    pub(super) fn place_symlink(
        &self,
        dir: &Dir,
        name: &OsStr,
        entry: &Entry,
    ) -> Result<bool, Failure> {
        let target = OsStr::from_bytes(&entry.target);
        let shown = || PathBuf::from(name);
        let failed =
            |e: io::Error| failure(format!("cannot make the link {}", shown().display()), &e);
        let mtime = mtime_of(entry);
        match dir.stat(name) {
            Ok(stat) if matches!(stat.kind, Kind::Dir | Kind::Other) => {
                let (what, cause) = match stat.kind {
                    Kind::Dir => ("a directory", Cause::IsADirectory),
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
                if stat.kind == Kind::Symlink && dir.read_link(name).is_ok_and(|t| t == target) =>
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
        self.drop_old_journal(dir, &names, entry).map_err(failed)?;
        let draft = names.part;
        make_over(dir, &draft, || dir.symlink(target, &draft)).map_err(failed)?;
        dir.set_mtime(&draft, mtime).map_err(failed)?;
        dir.rename(&draft, name).map_err(failed)?;
        Ok(true)
    }

    /// Brings the metadata of a file that was not sent up to date.
    pub(super) fn refresh_metadata(
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

/// Sets mode and modification time. The owner is not carried over, so set-id bits are kept only
/// where the owner happens to be the same (they would lend the rights of somebody else), and never
/// on the word of a daemon or its clients, who may claim any owner.
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

/// An entry's modification time.
pub(super) fn mtime_of(entry: &Entry) -> Timestamp {
    Timestamp { secs: entry.mtime_secs, nanos: entry.mtime_nanos }
}
