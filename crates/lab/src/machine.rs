//! The machine that this runs on, as results tell it.

use crate::results::Machine;
use std::fs;

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
