//! Working directories and file systems of a given size, removed after the test.

use rustix::fs::statvfs;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Free memory required for tests with much data.
const BULK_BYTES: u64 = 4 << 30;

/// A directory that is removed on drop, including read-only directories in it.
#[derive(Debug)]
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory on the usual temporary file system.
    pub(crate) fn new() -> Self {
        Self::at(&std::env::temp_dir())
    }

    /// Creates a directory for much data: in memory if possible, so that a slow disk does not
    /// determine the duration.
    pub(crate) fn bulk() -> Self {
        Self::in_memory(BULK_BYTES).unwrap_or_else(Self::new)
    }

    /// Creates a directory in memory; `None` if less than `bytes` are free there.
    pub(crate) fn in_memory(bytes: u64) -> Option<Self> {
        let shm = Path::new("/dev/shm");
        let free = statvfs(shm).map_or(0, |s| s.f_bavail * s.f_frsize);
        (free >= bytes).then(|| Self::at(shm))
    }

    fn at(parent: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("bankfull-test-").tempdir_in(parent);
        Self(dir.expect("a directory for the test"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns a path in the directory without creating it.
    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Creates a subdirectory.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Gives access to all users.
    pub(crate) fn open_to_all(&self) {
        fs::set_permissions(self.path(), PermissionsExt::from_mode(0o755)).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        unlock(self.0.path());
    }
}

/// Makes directories writable, so that their contents can be removed.
fn unlock(dir: &Path) {
    let _ = fs::set_permissions(dir, PermissionsExt::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&entry.path());
        }
    }
}

/// True if the tests run as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A file system of a given size.
#[derive(Debug)]
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// Mounts a file system; `None` without permission.
    pub(crate) fn new(at: PathBuf, mib: u32) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let made = is_root() && mount(&["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"], &at);
        made.then_some(Self(at))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Permits no writing any more.
    pub(crate) fn make_read_only(&self) {
        assert!(mount(&["-o", "remount,ro"], &self.0));
    }

    /// Changes the size.
    pub(crate) fn resize(&self, mib: u32) {
        assert!(mount(&["-o", &format!("remount,size={mib}m")], &self.0));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    Command::new("mount").args(arguments).arg(at).output().is_ok_and(|o| o.status.success())
}
