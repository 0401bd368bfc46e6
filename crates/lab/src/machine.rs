//! The machine that this runs on, as results tell it.

use crate::error::{LabError, Result};
use crate::results::Machine;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::sync::OnceLock;

/// The limit of open files before it was raised; nothing where there was none.
static USUAL_OPEN_FILES: OnceLock<Option<u64>> = OnceLock::new();

/// Raises this process's own limit of open files as far as it may: each flow of the lab's own takes
/// four or five.
///
/// # Errors
/// When the system forbids it.
pub fn raise_open_files() -> Result<()> {
    USUAL_OPEN_FILES.get_or_init(|| getrlimit(Resource::Nofile).current);
    let raised = bankfull_sys::raise_open_file_limit();
    raised.map(drop).map_err(|e| LabError::io("cannot raise the limit of open files", e))
}

/// The limit of open files that others are to find; `None` where this process's own was never
/// raised, or nothing limits it.
#[must_use]
pub fn usual_open_files() -> Option<u64> {
    USUAL_OPEN_FILES.get().copied().flatten()
}

/// This machine.
#[must_use]
pub fn this() -> Machine {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Machine {
        kernel: line("/proc/sys/kernel/osrelease"),
        cpus: std::thread::available_parallelism().map_or(1, Into::into),
        memory_bytes: kib.unwrap_or(0) * 1024,
        default_congestion: line("/proc/sys/net/ipv4/tcp_congestion_control"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_raised_and_the_usual_one_is_known() {
        let before = getrlimit(Resource::Nofile).current;
        raise_open_files().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(usual_open_files(), before);
    }
}
