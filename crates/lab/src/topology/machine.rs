//! Properties of this machine: kernel, CPUs, memory, CPU and steal time, open-file limit.

use crate::base::error::{LabError, Result};
use crate::model::results::Machine;
use crate::model::units::format_time;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

/// Shortest steal time that is reported. (chosen: a few ticks of the kernel's clock)
const MIN_REPORTED_STEAL: Duration = Duration::from_millis(30);

/// Steal time of all CPUs since boot: the hypervisor ran other guests. Zero if unknown.
#[must_use]
pub fn steal_time() -> Duration {
    read_cpu_columns(&STEAL_COLUMNS)
}

/// CPU time of all CPUs since boot, interrupts included. Zero if unknown.
#[must_use]
pub fn cpu_time() -> Duration {
    read_cpu_columns(&CPU_COLUMNS)
}

/// Columns of `/proc/stat`. (proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal)
const STEAL_COLUMNS: [usize; 1] = [7];
const CPU_COLUMNS: [usize; 5] = [0, 1, 2, 5, 6];

fn read_cpu_columns(columns: &[usize]) -> Duration {
    let table = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = ticks(&table, columns).unwrap_or(0);
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// Sum of columns over all CPUs; `None` if one is missing.
fn ticks(table: &str, columns: &[usize]) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let column = |&at: &usize| line.split_whitespace().nth(at)?.parse::<u64>().ok();
    columns.iter().map(column).sum()
}

/// Note in parentheses for the reason of a void run; empty for a short steal time.
#[must_use]
pub fn steal_note(steal_time: Duration) -> String {
    if steal_time <= MIN_REPORTED_STEAL {
        return String::new();
    }
    format!(" (steal time meanwhile: {})", format_time(steal_time))
}

/// Soft limit of open files before it was raised; `None` inside if there was none.
static ORIGINAL_OPEN_FILES: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit of open files to the hard limit: each built-in flow needs four or five.
///
/// # Errors
/// [`LabError::Io`] if the system refuses.
pub fn raise_open_file_limit() -> Result<()> {
    ORIGINAL_OPEN_FILES.get_or_init(|| getrlimit(Resource::Nofile).current);
    let raised = bankfull_sys::raise_open_file_limit();
    raised.map(drop).map_err(|e| LabError::io("cannot raise the limit of open files", e))
}

/// Soft limit of open files for started programs; `None` if it was never raised, or unlimited.
#[must_use]
pub fn original_open_file_limit() -> Option<u64> {
    ORIGINAL_OPEN_FILES.get().copied().flatten()
}

/// Describes this machine for results.
#[must_use]
pub fn describe() -> Machine {
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
    fn steal_time_sums_cpus_and_short_is_omitted() {
        let table = "cpu  10 20 30 40 50 60 70 89 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 5\n";
        assert_eq!(ticks(table, &STEAL_COLUMNS), Some(89));
        assert_eq!(
            ticks(table, &CPU_COLUMNS),
            Some(10 + 20 + 30 + 60 + 70),
            "neither idle nor waiting"
        );
        assert_eq!(
            ticks("cpu  10 20 30 40\n", &STEAL_COLUMNS),
            None,
            "an old kernel has no such figure"
        );
        assert_eq!(ticks("", &CPU_COLUMNS), None);
        let words = steal_note(Duration::from_millis(90));
        assert_eq!(words, " (steal time meanwhile: 90 ms)");
        assert_eq!(steal_note(Duration::from_millis(30)), "");
    }

    #[test]
    fn open_file_limit_is_raised_and_original_kept() {
        let before = getrlimit(Resource::Nofile).current;
        raise_open_file_limit().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(original_open_file_limit(), before);
    }
}
