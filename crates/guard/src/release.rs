//! End of a guard that left its programs, as one that was killed does.

use crate::cgroups;
use crate::error::Error;
use crate::programs::{self, Lifted, Programs};
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
    let Some((lifted, remains)) = lift_remains(&cgroups::find_mount()?)? else { return Ok(None) };
    if let Lifted::AllButElsewhere(_) = remains {
        let why = remains.remainder().unwrap_or_default();
        return Err(Error::new(format!(
            "{why}; the programs stay, and lift them with the next packets"
        )));
    }
    programs::remove_pins();
    Ok(Some(lifted))
}

/// Lifts the windows of an earlier guard, and removes its programs. The caller holds the lock.
pub(crate) fn remove_remains(cgroup: &Path) -> Result<Option<u64>, Error> {
    let lifted = lift_remains(cgroup)?.map(|(lifted, _)| lifted);
    lifted.is_some().then(programs::remove_pins);
    Ok(lifted)
}

/// Lifts the windows of an earlier guard; returns how many, and what remains.
fn lift_remains(cgroup: &Path) -> Result<Option<(u64, Lifted)>, Error> {
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
    earlier.set_heartbeat(0);
    let before = earlier.counters().lifted;
    // A window that stays closed belongs to a program that does not read: waiting would not help.
    let remains = earlier.lift(cgroup)?;
    Ok(Some((earlier.counters().lifted.saturating_sub(before), remains)))
}
