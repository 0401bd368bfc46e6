//! Settings and state of a host, as files of `/proc` and `/sys` show them.

use std::fs;
use std::path::{Path, PathBuf};

/// A host, whose files are beneath a directory.
#[derive(Debug)]
pub(super) struct Host {
    root: PathBuf,
    is_own: bool,
}

impl Host {
    /// This host.
    pub(super) fn own() -> Self {
        Self { root: "/".into(), is_own: true }
    }

    /// A host of a test.
    #[cfg(test)]
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), is_own: false }
    }

    /// True if programs and limits of this process tell about the host.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Returns the value of a sysctl; `None` if the kernel does not have it.
    pub(super) fn sysctl(&self, name: &str) -> Option<String> {
        self.read(&format!("proc/sys/{}", name.replace('.', "/")))
    }

    /// Returns the number in a sysctl.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.sysctl(name)?.parse().ok()
    }

    /// Returns the content of a file, without spaces at its ends.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Returns the names in a directory, in order.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}
