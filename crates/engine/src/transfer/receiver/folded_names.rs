//! Names that a file system which ignores case does not tell apart: the later of two would replace
//! the earlier.

use super::part_file::create_file_replacing;
use crate::base::fs_names::folded_case;
use crate::base::part_names::PartNames;
use crate::base::sync::lock;
use bankfull_sys::Dir;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};

/// Announced names, in directories of file systems that may ignore case.
#[derive(Debug, Default)]
pub(crate) struct FoldedNames {
    is_tracked: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Names of each directory that is not completed, by the name in lower case.
    names: HashMap<u64, HashMap<String, OsString>>,
    /// True for devices that ignore case.
    devices: HashMap<u64, bool>,
}

impl FoldedNames {
    /// Returns an empty table for a destination.
    pub(crate) fn new(base: &Dir) -> Self {
        Self { is_tracked: base.may_ignore_case(), ..Self::default() }
    }

    /// Records a name in a directory; returns the earlier one that is the same there.
    pub(crate) fn record(
        &self,
        id: u64,
        name: &OsStr,
        open: impl FnOnce() -> io::Result<Arc<Dir>>,
    ) -> Option<OsString> {
        if !self.is_tracked {
            return None;
        }
        let mut state = lock(&self.state);
        let folded = folded_case(name.as_bytes());
        let names = state.names.entry(id).or_default();
        let earlier = names.get(&folded).filter(|earlier| *earlier != name).cloned();
        let Some(earlier) = earlier else {
            names.insert(folded, name.to_owned());
            return None;
        };
        let dir = open().ok()?;
        let device = dir.stat_self().ok()?.dev;
        let ignores_case =
            *state.devices.entry(device).or_insert_with(|| ignores_case(&dir).unwrap_or(false));
        ignores_case.then_some(earlier)
    }

    /// Forgets the names of a completed directory.
    pub(crate) fn forget(&self, id: u64) {
        if self.is_tracked {
            lock(&self.state).names.remove(&id);
        }
    }
}

/// True if a name in upper case finds the file in lower case.
pub(super) fn ignores_case(dir: &Dir) -> io::Result<bool> {
    let probe = PartNames::of(OsStr::new("case")).journal_temp;
    create_file_replacing(dir, &probe)?;
    let found = dir.stat(&probe.to_ascii_uppercase()).is_ok();
    dir.unlink(&probe)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_where_the_file_system_does() {
        let root = tempfile::tempdir().unwrap();
        let names = FoldedNames { is_tracked: true, ..FoldedNames::default() };
        let record = |id, name| {
            let open = || Dir::open(root.path()).map(Arc::new);
            names.record(id, OsStr::new(name), open)
        };
        for name in ["File", "file", "File", "\u{c4}", "\u{e4}"] {
            assert_eq!(record(1, name), None);
        }
        // As found on another file system.
        let device = Dir::open(root.path()).unwrap().stat_self().unwrap().dev;
        lock(&names.state).devices.insert(device, true);
        assert_eq!(record(1, "FILE"), Some("File".into()));
        assert_eq!(record(1, "\u{e4}"), Some("\u{c4}".into()));
        assert_eq!(record(1, "File"), None, "announced again after a change");
        assert_eq!(record(2, "FILE"), None, "in another directory");
        names.forget(1);
        assert_eq!(record(1, "FILE"), None);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
