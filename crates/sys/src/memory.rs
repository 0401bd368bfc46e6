//! Memory available to this process: that of the host, or of a limit of its control groups or its
//! address space.
//!
//! Read-only.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Memory that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Total in bytes.
    pub total: u64,
    /// Bytes available now without reclaiming memory in use. Inactive page cache counts as
    /// available.
    pub available: u64,
}

impl Memory {
    /// Returns the fraction in use.
    #[must_use]
    pub fn used_fraction(self) -> f64 {
        let used = self.total.saturating_sub(self.available);
        used as f64 / self.total.max(1) as f64
    }
}

/// Returns the memory of the host, or of a limit with less available.
///
/// Limits are those of the control groups and of the address space.
///
/// # Errors
///
/// `NotFound` without `/proc`, `InvalidData` if its content is not understood.
pub fn memory() -> io::Result<Memory> {
    let host = host_memory(&fs::read_to_string("/proc/meminfo")?).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo lacks MemTotal or MemAvailable")
    })?;
    let limits = own_group_dirs()
        .iter()
        .flat_map(|(version, dirs)| dirs.iter().filter_map(move |dir| group_memory(*version, dir)));
    Ok(limits
        .chain(address_space())
        .fold(host, |least, limit| if limit.available < least.available { limit } else { least }))
}

/// Returns the address space of this process; `None` if it has no limit.
fn address_space() -> Option<Memory> {
    let total = getrlimit(Resource::As).current?;
    // The first number is the size in pages. (proc_pid_statm(5))
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').next()?.parse().ok()?;
    let used = pages.saturating_mul(rustix::param::page_size() as u64);
    Some(Memory { total, available: total.saturating_sub(used) })
}

/// Returns the lowest limit of threads among the control groups of this process.
pub(crate) fn max_group_threads() -> Option<u64> {
    let dirs = own_group_dirs().iter().filter(|(version, _)| *version == CgroupVersion::V2);
    let limit = |dir: &PathBuf| fs::read_to_string(dir.join("pids.max")).ok()?.trim().parse().ok();
    dirs.flat_map(|(_, dirs)| dirs).filter_map(limit).min()
}

/// Returns the directories of the control groups of this process.
///
/// They are cached: a host may have thousands of mounts, and a process joins its group before it
/// runs.
fn own_group_dirs() -> &'static [(CgroupVersion, Vec<PathBuf>)] {
    static DIRS: OnceLock<Vec<(CgroupVersion, Vec<PathBuf>)>> = OnceLock::new();
    DIRS.get_or_init(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        group_dirs(&groups, &mounts)
    })
}

fn host_memory(meminfo: &str) -> Option<Memory> {
    let bytes = |name| Some(number_after(meminfo, name)? * 1024);
    Some(Memory { total: bytes("MemTotal:")?, available: bytes("MemAvailable:")? })
}

/// Returns the number after `name` at the start of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Version of the control group interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    V1,
    V2,
}

impl CgroupVersion {
    /// Returns the names of limit, usage, and the line of `memory.stat` with the reclaimable part.
    fn file_names(self) -> [&'static str; 3] {
        match self {
            Self::V1 => ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "],
            Self::V2 => ["memory.max", "memory.current", "inactive_file "],
        }
    }
}

/// Returns the memory of a group; `None` if it has no limit.
fn group_memory(version: CgroupVersion, dir: &Path) -> Option<Memory> {
    let [limit, usage, cached] = version.file_names();
    let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok();
    // "max", or more than any host has, means no limit.
    let total: u64 = number(limit).filter(|&limit| limit < i64::MAX as u64 / 2)?;
    let usage: u64 = number(usage)?;
    let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let cached = number_after(&stat, cached).unwrap_or_default();
    let used = usage.saturating_sub(cached);
    Some(Memory { total, available: total.saturating_sub(used) })
}

/// Returns the directories of the groups that may limit this process, from its own upwards.
fn group_dirs(groups: &str, mounts: &str) -> Vec<(CgroupVersion, Vec<PathBuf>)> {
    let mut all = Vec::new();
    for line in groups.lines() {
        // Hierarchy, its controllers, path. (cgroups(7))
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let version = match controllers {
            "" => CgroupVersion::V2,
            _ if controllers.split(',').any(|name| name == "memory") => CgroupVersion::V1,
            _ => continue,
        };
        // Hierarchies of other groups may be mounted too.
        let mounts = mounts.lines().filter_map(|mount| cgroup_mount(version, mount));
        let below = |(root, point)| Some((Path::new(path).strip_prefix(root).ok()?, point));
        if let Some((below, point)) = mounts.filter_map(below).next() {
            let dirs = below.ancestors().map(|part| point.join(part)).collect();
            all.push((version, dirs));
        }
    }
    all
}

/// Returns the root group and the mount point of a hierarchy.
fn cgroup_mount(version: CgroupVersion, line: &str) -> Option<(&str, PathBuf)> {
    // Fields, a hyphen, then filesystem, source and its options. (proc_pid_mountinfo(5))
    let (fields, rest) = line.split_once(" - ")?;
    let mut fields = fields.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut rest = rest.split(' ');
    let (system, options) = (rest.next()?, rest.nth(1)?);
    let is_match = match version {
        CgroupVersion::V1 => system == "cgroup" && options.split(',').any(|name| name == "memory"),
        CgroupVersion::V2 => system == "cgroup2",
    };
    is_match.then(|| (root, PathBuf::from(point)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_has_available_memory() {
        let memory = memory().unwrap();
        assert!(memory.available > 0 && memory.available <= memory.total, "{memory:?}");
        assert!((0.0..1.0).contains(&memory.used_fraction()), "{memory:?}");
    }

    #[test]
    fn meminfo_is_parsed() {
        let text = "MemTotal:       24683900 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\n";
        let expected = Memory { total: 24_683_900 << 10, available: 20_000_000 << 10 };
        assert_eq!(host_memory(text), Some(expected));
        assert_eq!(host_memory("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn group_dirs_are_listed_upwards() {
        let groups = "4:cpu,memory:/a/b\n3:cpu:/x\n0::/c\n";
        let mounts = "29 23 0:26 /other /mnt/other rw - cgroup cgroup rw,memory\n\
            30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            31 23 0:27 /c /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        let found = group_dirs(groups, mounts);
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        let base = "/sys/fs/cgroup/memory";
        let first = paths(&[&format!("{base}/a/b"), &format!("{base}/a"), &format!("{base}/")]);
        let second = paths(&["/sys/fs/cgroup/unified/"]);
        assert_eq!(found, [(CgroupVersion::V1, first), (CgroupVersion::V2, second)]);
    }

    #[test]
    fn group_memory_includes_reclaimable_cache() {
        let (root, _) = crate::testing::scratch();
        let dir = root.path();
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        write("memory.current", "700\n");
        write("memory.stat", "anon 500\ninactive_file 150\n");
        write("memory.max", "max\n");
        assert_eq!(group_memory(CgroupVersion::V2, dir), None);
        write("memory.max", "1000\n");
        let expected = Memory { total: 1000, available: 450 };
        assert_eq!(group_memory(CgroupVersion::V2, dir), Some(expected));
        assert_eq!(group_memory(CgroupVersion::V1, dir), None);
    }
}
