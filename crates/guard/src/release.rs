//! End of a guard that left its programs, as one that was killed does.

use crate::cgroups;
use crate::error::Error;
use crate::programs::{self, Programs};
use crate::requirements;
use std::path::Path;

/// Lifts all windows that an earlier guard has set, and removes its programs.
///
/// Returns the number of windows lifted; `None` if no guard has left anything.
///
/// # Errors
///
/// A guard still runs, or the host lacks what it needs.
pub fn release() -> Result<Option<u64>, Error> {
    requirements::check(&[])?;
    let _lock = programs::lock()?;
    remove_remains(&cgroups::find_mount()?)
}

/// Lifts the windows of an earlier guard. The caller holds the lock.
pub(crate) fn remove_remains(cgroup: &Path) -> Result<Option<u64>, Error> {
    if !programs::has_remains() {
        return Ok(None);
    }
    if !programs::has_known_remains() {
        return Err(Error::new(
            "a guard of another version has left its programs: lift its windows by the `bankfull \
             guard --release` of that version, or remove /sys/fs/bpf/bankfull-guard (idle \
             connections then keep their windows)",
        ));
    }
    let mut earlier = Programs::load(false)?;
    // Else the programs of a guard that was just killed set the windows again.
    earlier.beat(0);
    let before = earlier.counters().lifted;
    // A window that stays closed is that of a program which does not read: it would wait for ever.
    let _is_complete = earlier.lift(cgroup)?;
    let lifted = earlier.counters().lifted.saturating_sub(before);
    programs::remove_pins();
    Ok(Some(lifted))
}
