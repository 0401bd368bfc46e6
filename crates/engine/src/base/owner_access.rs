//! Access of a directory's owner to it, until its own mode is set.

use bankfull_sys::Stat;

/// Mode bits that a directory needs while its owner writes to it: read, write, search.
pub(crate) const OWNER_ACCESS: u32 = 0o700;

/// True if a user other than root owns a directory without full access to it.
pub(crate) fn lacks_owner_access(stat: &Stat) -> bool {
    let user = bankfull_sys::effective_uid();
    stat.mode & OWNER_ACCESS != OWNER_ACCESS && stat.uid == user && user != 0
}
