//! The machine that this runs on, as results tell it.

use crate::error::{LabError, Result};
use crate::results::Machine;
use crate::text::short_time;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

/// Less stolen time than this is no reason. (ours: a few ticks of the kernel's clock)
const STOLEN_MIN: Duration = Duration::from_millis(30);

/// Time that the hypervisor has given to others while a processor of this machine had work, of all
/// processors together, since the machine began; nothing where the kernel does not tell.
#[must_use]
pub fn stolen() -> Duration {
    processor_time(&STOLEN)
}

/// What all processors of the machine have worked since it began, in interrupts, too; nothing where
/// the kernel does not tell.
#[must_use]
pub fn busy() -> Duration {
    processor_time(&BUSY)
}

/// Columns of the time of processors. (proc_stat(5): user, nice, system, idle, waiting for disks,
/// two kinds of interrupts, stolen)
const STOLEN: [usize; 1] = [7];
const BUSY: [usize; 5] = [0, 1, 2, 5, 6];

fn processor_time(columns: &[usize]) -> Duration {
    let table = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = ticks(&table, columns).unwrap_or(0);
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// The sum of some columns of all processors together; `None` where one is missing.
fn ticks(table: &str, columns: &[usize]) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let column = |&at: &usize| line.split_whitespace().nth(at)?.parse::<u64>().ok();
    columns.iter().map(column).sum()
}

/// In brackets, behind the reason why a run is void; nothing when it was too little to matter.
#[must_use]
pub fn stolen_words(stolen: Duration) -> String {
    if stolen <= STOLEN_MIN {
        return String::new();
    }
    format!(" (the hypervisor took the processors away for {} meanwhile)", short_time(stolen))
}

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
    fn stolen_time_is_that_of_all_processors_and_a_little_is_no_reason() {
        let table = "cpu  10 20 30 40 50 60 70 89 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 5\n";
        assert_eq!(ticks(table, &STOLEN), Some(89));
        assert_eq!(ticks(table, &BUSY), Some(10 + 20 + 30 + 60 + 70), "neither idle nor waiting");
        assert_eq!(ticks("cpu  10 20 30 40\n", &STOLEN), None, "an old kernel has no such figure");
        assert_eq!(ticks("", &BUSY), None);
        let words = stolen_words(Duration::from_millis(90));
        assert_eq!(words, " (the hypervisor took the processors away for 90 ms meanwhile)");
        assert_eq!(stolen_words(Duration::from_millis(30)), "");
    }

    #[test]
    fn the_limit_of_open_files_is_raised_and_the_usual_one_is_known() {
        let before = getrlimit(Resource::Nofile).current;
        raise_open_files().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(usual_open_files(), before);
    }
}
