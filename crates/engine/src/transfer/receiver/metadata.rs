//! Metadata of files at the destination.

use bankfull_proto::wire::control::{Entry, EntryKind};
use bankfull_sys::{Dir, Stat, Timestamp};
use std::ffi::OsStr;
use std::fs::File;
use std::io;

/// Set-user-ID and set-group-ID bits.
const SET_ID_BITS: u32 = 0o6000;

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
    set_metadata(&dir.open_file(name)?, entry, set_id)
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
