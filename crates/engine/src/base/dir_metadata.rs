//! Mode and time of a directory at the destination, set once its contents are complete.

use bankfull_sys::{Dir, Stat, Timestamp};
use std::io;

/// Mode bits that a directory needs while its owner writes to it: read, write, search.
pub(crate) const OWNER_ACCESS: u32 = 0o700;

/// Set-user-ID and set-group-ID bits.
const SET_ID_BITS: u32 = 0o6000;

/// Mode and time that a directory gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirMetadata {
    pub(crate) mode: u32,
    pub(crate) mtime: Timestamp,
    /// True if the peer is trusted with set-id bits; otherwise the directory keeps its own.
    ///
    /// Its own may be inherited: in a directory with set-group-ID, the kernel sets it on new ones.
    /// The sticky bit is always set: it grants nothing, and without it mode 1777 would permit more.
    pub(crate) set_id: bool,
}

/// True if a user other than root owns a directory without full access to it.
pub(crate) fn lacks_owner_access(stat: &Stat) -> bool {
    let user = bankfull_sys::effective_uid();
    stat.mode & OWNER_ACCESS != OWNER_ACCESS && stat.uid == user && user != 0
}

impl DirMetadata {
    /// Sets mode and time where they differ.
    pub(crate) fn apply(&self, dir: &Dir) -> io::Result<()> {
        let now = dir.stat_self()?;
        let mode = match self.set_id {
            true => self.mode,
            false => self.mode & !SET_ID_BITS | now.mode & SET_ID_BITS,
        };
        if now.mode != mode {
            dir.set_own_mode(mode)?;
        }
        if now.mtime != self.mtime {
            dir.set_own_mtime(self.mtime)?;
        }
        Ok(())
    }
}
