//! Metadata of files at the destination.

use bankfull_proto::wire::control::{Entry, EntryKind};
use bankfull_sys::{Dir, Stat, Timestamp};
use std::ffi::OsStr;
use std::fs::File;
use std::io;

/// Set-user-ID and set-group-ID bits.
const SET_ID_BITS: u32 = 0o6000;

/// Mode bits that a file needs so that its owner can set its times.
const OWNER_READ: u32 = 0o400;

/// Mode bits that a part file needs.
const OWNER_READ_WRITE: u32 = 0o600;

/// Sets mode and modification time.
///
/// The owner is not copied, so set-id bits would grant another user's rights unless the owner is
/// the same. Daemons and their clients may claim any owner, and are not trusted with these bits.
pub(crate) fn set_metadata(file: &File, entry: &Entry, set_id: bool) -> io::Result<()> {
    let now = bankfull_sys::stat_file(file)?;
    let mode = wanted_mode(entry, &now, set_id);
    if now.mode != mode {
        bankfull_sys::set_mode(file, mode)?;
    }
    bankfull_sys::set_mtime(file, mtime_of(entry))
}

/// Updates the metadata of a file that was not sent.
pub(crate) fn refresh_metadata(
    dir: &Dir,
    name: &OsStr,
    entry: &Entry,
    set_id: bool,
) -> io::Result<()> {
    let now = dir.stat(name)?;
    if now.mode == wanted_mode(entry, &now, set_id) && now.mtime == mtime_of(entry) {
        return Ok(());
    }
    let file = match dir.open_file(name) {
        // Its own mode is set right after.
        Err(e)
            if e.kind() == io::ErrorKind::PermissionDenied && dir.add_mode(name, OWNER_READ)? =>
        {
            dir.open_file(name)
        }
        opened => opened,
    };
    set_metadata(&file?, entry, set_id)
}

/// Opens a part file or journal to read and write, whatever its mode.
///
/// Its final mode is set before its final name: a kill in between leaves it so.
pub(crate) fn open_own_rw(dir: &Dir, name: &OsStr) -> io::Result<File> {
    match dir.open_rw(name) {
        Err(e)
            if e.kind() == io::ErrorKind::PermissionDenied
                && dir.add_mode(name, OWNER_READ_WRITE)? =>
        {
            dir.open_rw(name)
        }
        opened => opened,
    }
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
