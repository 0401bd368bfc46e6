//! Limits of the process that are too low for a transfer.

use crate::base::error::{Error, ErrorKind};

/// Descriptors that a transfer needs. (measured: 32 suffice for a tree of 300 directories by a
/// daemon, 20 do not)
pub(super) const MIN_OPEN_FILES: u64 = 32;

/// Fails if the process may open too few files to work.
pub(super) fn check_open_files(limit: u64, needed: u64) -> Result<(), Error> {
    if limit >= needed {
        return Ok(());
    }
    let text = format!(
        "a process may open {limit} files here, and {needed} are needed: raise the limit with \
         ulimit -n"
    );
    Err(Error::new(ErrorKind::Local, text))
}
