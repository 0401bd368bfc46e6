//! How much memory this process may have: of the host, or of a control group that limits it.
//!
//! Reads; nothing here reserves or frees.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Memory, as far as this process may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All there is, in bytes.
    pub total: u64,
    /// What could be had now, without taking from anybody what is in use. Caches of files that
    /// nobody looked at lately count as free.
    pub free: u64,
}

impl Memory {
    /// What is in use, as part of all.
    #[must_use]
    pub fn used_part(self) -> f64 {
        let used = self.total.saturating_sub(self.free);
        used as f64 / self.total.max(1) as f64
    }
}

/// What this process may use: of the host, or of whichever of its control groups has least left.
///
/// # Errors
///
/// `NotFound` without `/proc`, `InvalidData` where that does not tell.
pub fn memory() -> io::Result<Memory> {
    let host = of_host(&fs::read_to_string("/proc/meminfo")?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo is unclear"))?;
    let limits = own_group_dirs()
        .iter()
        .flat_map(|(version, dirs)| dirs.iter().filter_map(move |dir| of_group(*version, dir)));
    Ok(limits.fold(host, |least, limit| if limit.free < least.free { limit } else { least }))
}

/// The directories of this process's groups. They are looked for once: a host may have thousands of
/// mounts, and processes are put into a group before they run.
fn own_group_dirs() -> &'static [(Version, Vec<PathBuf>)] {
    static DIRS: OnceLock<Vec<(Version, Vec<PathBuf>)>> = OnceLock::new();
    DIRS.get_or_init(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        group_dirs(&groups, &mounts)
    })
}

fn of_host(meminfo: &str) -> Option<Memory> {
    let bytes = |name| Some(number_after(meminfo, name)? * 1024);
    Some(Memory { total: bytes("MemTotal:")?, free: bytes("MemAvailable:")? })
}

/// The number that follows a word at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The two kinds of control groups, and what their files are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Limit, usage, and the line of `memory.stat` that tells what of it can be had back.
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::One => ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "],
            Self::Two => ["memory.max", "memory.current", "inactive_file "],
        }
    }
}

/// What a group allows; `None` where it has no limit.
fn of_group(version: Version, dir: &Path) -> Option<Memory> {
    let [limit, usage, cached] = version.names();
    let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok();
    // "max", which is no number, or more than any host has: no limit.
    let total: u64 = number(limit).filter(|&limit| limit < i64::MAX as u64 / 2)?;
    let usage: u64 = number(usage)?;
    let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let cached = number_after(&stat, cached).unwrap_or_default();
    let used = usage.saturating_sub(cached);
    Some(Memory { total, free: total.saturating_sub(used) })
}

/// The directories of the groups that may limit this process's memory, from its own upwards.
fn group_dirs(groups: &str, mounts: &str) -> Vec<(Version, Vec<PathBuf>)> {
    let mut all = Vec::new();
    for line in groups.lines() {
        // Hierarchy, its controllers, path. (cgroups(7))
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let version = match controllers {
            "" => Version::Two,
            _ if controllers.split(',').any(|name| name == "memory") => Version::One,
            _ => continue,
        };
        // Others' groups may be mounted somewhere, too.
        let mounts = mounts.lines().filter_map(|mount| mount_of(version, mount));
        let below = |(root, point)| Some((Path::new(path).strip_prefix(root).ok()?, point));
        if let Some((below, point)) = mounts.filter_map(below).next() {
            let dirs = below.ancestors().map(|part| point.join(part)).collect();
            all.push((version, dirs));
        }
    }
    all
}

/// Where the groups of a kind are mounted, and which of them is the uppermost there.
fn mount_of(version: Version, line: &str) -> Option<(&str, PathBuf)> {
    // Fields, a hyphen, then file system, source and its options. (proc_pid_mountinfo(5))
    let (fields, rest) = line.split_once(" - ")?;
    let mut fields = fields.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut rest = rest.split(' ');
    let (system, options) = (rest.next()?, rest.nth(1)?);
    let is_it = match version {
        Version::One => system == "cgroup" && options.split(',').any(|name| name == "memory"),
        Version::Two => system == "cgroup2",
    };
    is_it.then(|| (root, PathBuf::from(point)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_memory_and_some_is_free() {
        let memory = memory().unwrap();
        assert!(memory.free > 0 && memory.free <= memory.total, "{memory:?}");
        assert!((0.0..1.0).contains(&memory.used_part()), "{memory:?}");
    }

    #[test]
    fn the_hosts_own_words_are_understood() {
        let text = "MemTotal:       24683900 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\n";
        let expected = Memory { total: 24_683_900 << 10, free: 20_000_000 << 10 };
        assert_eq!(of_host(text), Some(expected));
        assert_eq!(of_host("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn groups_are_found_from_the_own_one_upwards() {
        let groups = "4:cpu,memory:/a/b\n3:cpu:/x\n0::/c\n";
        let mounts = "29 23 0:26 /other /mnt/other rw - cgroup cgroup rw,memory\n\
            30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            31 23 0:27 /c /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        let found = group_dirs(groups, mounts);
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        let base = "/sys/fs/cgroup/memory";
        let first = paths(&[&format!("{base}/a/b"), &format!("{base}/a"), &format!("{base}/")]);
        let second = paths(&["/sys/fs/cgroup/unified/"]);
        assert_eq!(found, [(Version::One, first), (Version::Two, second)]);
    }

    #[test]
    fn a_group_with_a_limit_has_what_is_not_used_or_can_be_had_back() {
        let (root, _) = crate::testing::scratch();
        let dir = root.path();
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        write("memory.current", "700\n");
        write("memory.stat", "anon 500\ninactive_file 150\n");
        write("memory.max", "max\n");
        assert_eq!(of_group(Version::Two, dir), None);
        write("memory.max", "1000\n");
        let expected = Memory { total: 1000, free: 450 };
        assert_eq!(of_group(Version::Two, dir), Some(expected));
        assert_eq!(of_group(Version::One, dir), None);
    }
}
