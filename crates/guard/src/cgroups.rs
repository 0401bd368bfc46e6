//! Control groups: the mount of version 2, processes below a group, and paths by number.

use crate::error::Error;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most cgroups whose paths are remembered. (chosen: far more than a host has)
const MAX_PATHS: usize = 1 << 16;

/// Pause after the tree was read, as a multiple of the time that took. (chosen: a container that
/// creates cgroups takes a tenth of the guard's time at most)
const SCAN_PAUSE: u32 = 9;

/// Time for reading the tree, which a container may have made large; the rest has no paths.
/// (chosen: a tenth of the heartbeat's timeout)
const MAX_SCAN_TIME: Duration = Duration::from_millis(100);

/// Returns the mount point of cgroup version 2.
///
/// # Errors
///
/// No such mount, with the command that makes one.
pub fn find_mount() -> Result<PathBuf, Error> {
    let mounts = fs::read_to_string("/proc/self/mounts")
        .map_err(|error| Error::of("read /proc/self/mounts", error))?;
    mount_in(&mounts).ok_or_else(|| {
        Error::new(
            "no cgroup version 2 is mounted: mount -t cgroup2 none /sys/fs/cgroup/unified, or \
             name a mounted one with --cgroup",
        )
    })
}

/// Returns the first mount point of cgroup version 2 in a list of mounts.
fn mount_in(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind) = (words.next()?, words.next()?);
        // Spaces in it are written as \040.
        (kind == "cgroup2").then(|| PathBuf::from(path.replace("\\040", " ")))
    })
}

/// Returns the processes in a cgroup and all below it.
pub(crate) fn processes(cgroup: &Path) -> Vec<u32> {
    let mut found = Vec::new();
    for directory in directories(cgroup, None) {
        let list = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        found.extend(list.lines().filter_map(|line| line.parse::<u32>().ok()));
    }
    found
}

/// Number of the root of all cgroups. (`cgroup_root_add` in kernel/cgroup/cgroup.c)
pub(crate) const ROOT: u64 = 1;

/// Returns the numbers of a cgroup and all below it.
pub(crate) fn numbers(cgroup: &Path) -> Vec<u64> {
    let all = directories(cgroup, None).into_iter();
    all.filter_map(|directory| directory.metadata().ok()).map(|found| found.ino()).collect()
}

/// Returns a cgroup and its descendants, as far as they are found before `end`.
fn directories(cgroup: &Path, end: Option<Instant>) -> Vec<PathBuf> {
    let mut found = vec![cgroup.to_owned()];
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        if end.is_some_and(|end| Instant::now() > end) {
            break;
        }
        next += 1;
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let children = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(
            children.map(|entry| entry.path()).take(MAX_PATHS - found.len().min(MAX_PATHS)),
        );
    }
    found
}

/// Paths of cgroups by the number that the kernel reports.
#[derive(Debug)]
pub(crate) struct Paths {
    root: PathBuf,
    known: BTreeMap<u64, String>,
    /// Time from which the tree may be read again.
    next_scan: Option<Instant>,
}

impl Paths {
    /// Creates the paths below a mount.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, known: BTreeMap::new(), next_scan: None }
    }

    /// Returns the path of a cgroup relative to the mount; empty if it is gone.
    pub(crate) fn path(&mut self, id: u64) -> String {
        // Guests have none.
        if id != 0 && !self.known.contains_key(&id) {
            self.scan();
        }
        self.known.get(&id).cloned().unwrap_or_default()
    }

    /// Reads the tree again. A cgroup's number is the inode of its directory.
    fn scan(&mut self) {
        let began = Instant::now();
        if self.next_scan.is_some_and(|next| began < next) {
            return;
        }
        self.known.clear();
        for directory in directories(&self.root, Some(began + MAX_SCAN_TIME)) {
            let Ok(metadata) = fs::metadata(&directory) else { continue };
            let relative = directory.strip_prefix(&self.root).unwrap_or(&directory);
            let path = format!("/{}", relative.to_string_lossy());
            self.known.insert(metadata.ino(), path);
        }
        let end = Instant::now();
        self.next_scan = Some(end + end.duration_since(began) * SCAN_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_of_version_two_is_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/my\\040unified cgroup2 rw 0 0\n";
        assert_eq!(mount_in(mounts), Some(PathBuf::from("/sys/fs/cgroup/my unified")));
        assert_eq!(mount_in("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n"), None);
    }

    #[test]
    fn processes_of_nested_groups_are_listed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("cgroup.procs"), "1\n2\n").unwrap();
        fs::write(root.path().join("a/b/cgroup.procs"), "30\n").unwrap();
        assert_eq!(processes(root.path()), [1, 2, 30]);
        let number = fs::metadata(root.path().join("a/b")).unwrap().ino();
        let mut paths = Paths::new(root.path().to_owned());
        assert_eq!((paths.path(number), paths.path(0)), ("/a/b".to_owned(), String::new()));
    }
}
