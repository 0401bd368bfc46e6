//! Names that a directory does not tell apart, as it ignores case: the later of two would replace
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
use std::sync::{Arc, Mutex, OnceLock};

/// Memory for recorded names: 40 000 short ones. (chosen: as in the Java client)
const MAX_BYTES: usize = 8 << 20;

/// Estimated memory of a recorded name without its characters: two strings and a map entry.
const NAME_OVERHEAD_BYTES: usize = 128;

/// Announced names, in directories that may ignore case.
///
/// A directory is tested when two names collide, or when the names exceed their memory. If it
/// distinguishes them, they are recorded no longer. If the test fails, names that collide are
/// refused. Limit: in a directory that ignores case, names beyond the memory are not recorded.
#[derive(Debug)]
pub(crate) struct FoldedNames {
    state: Mutex<State>,
    /// True if a directory ignores case.
    test: fn(&Dir) -> io::Result<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Directories that are not completed and may ignore case.
    dirs: HashMap<u64, DirNames>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct DirNames {
    /// Result of the test; shared with the directories created beneath, which inherit it.
    ignores_case: Arc<OnceLock<bool>>,
    /// Names by the name in lower case.
    names: HashMap<String, OsString>,
}

impl Default for FoldedNames {
    fn default() -> Self {
        Self { state: Mutex::default(), test: ignores_case }
    }
}

impl FoldedNames {
    /// Adds a directory that existed before.
    pub(crate) fn add_found(&self, id: u64, dir: &Dir) {
        if dir.may_ignore_case() {
            lock(&self.state).dirs.insert(id, DirNames::default());
        }
    }

    /// Adds a directory that was created in another one, whose rule it inherits.
    pub(crate) fn add_created(&self, id: u64, parent: u64) {
        let mut state = lock(&self.state);
        if let Some(parent) = state.dirs.get(&parent) {
            let ignores_case = Arc::clone(&parent.ignores_case);
            state.dirs.insert(id, DirNames { ignores_case, names: HashMap::new() });
        }
    }

    /// Records a name in a directory; returns the earlier one that is the same there.
    pub(crate) fn record(
        &self,
        id: u64,
        name: &OsStr,
        open: impl FnOnce() -> io::Result<Arc<Dir>>,
    ) -> Option<OsString> {
        let mut state = lock(&self.state);
        let folded = folded_case(name.as_bytes());
        let bytes = NAME_OVERHEAD_BYTES + folded.len() + name.len();
        let is_full = state.bytes + bytes > MAX_BYTES;
        let dir = state.dirs.get_mut(&id)?;
        let earlier = dir.names.get(&folded).cloned();
        if earlier.as_deref() == Some(name) {
            // Announced again after a change.
            return None;
        }
        let test_result = match dir.ignores_case.get() {
            None if earlier.is_some() || is_full => self.test(dir, open),
            known => known.copied(),
        };
        if test_result == Some(false) {
            state.forget(id);
        } else if earlier.is_none() && !is_full {
            dir.names.insert(folded, name.to_owned());
            state.bytes += bytes;
        }
        earlier.filter(|_| test_result != Some(false))
    }

    /// Tests a directory; `None` if that is not possible.
    fn test(&self, names: &DirNames, open: impl FnOnce() -> io::Result<Arc<Dir>>) -> Option<bool> {
        let result = open().and_then(|dir| (self.test)(&dir)).ok()?;
        Some(*names.ignores_case.get_or_init(|| result))
    }

    /// Forgets the names of a completed directory.
    pub(crate) fn forget(&self, id: u64) {
        lock(&self.state).forget(id);
    }
}

impl State {
    fn forget(&mut self, id: u64) {
        let removed = self.dirs.remove(&id).unwrap_or_default();
        let sizes = removed.names.iter().map(|(folded, name)| folded.len() + name.len());
        self.bytes -= sizes.map(|size| NAME_OVERHEAD_BYTES + size).sum::<usize>();
    }
}

/// True if an entry is found by its name in the other case, too. Nothing is written for that.
pub(super) fn is_found_in_other_case(dir: &Dir, name: &OsStr) -> bool {
    let upper = name.to_ascii_uppercase();
    let other = if upper == name { name.to_ascii_lowercase() } else { upper };
    let identity = |name: &OsStr| dir.stat(name).map(|stat| (stat.dev, stat.ino)).ok();
    other != name && identity(&other).is_some_and(|found| Some(found) == identity(name))
}

/// True if a name in upper case finds the file in lower case.
///
/// # Errors
/// `NotFound` if another process removed the file meanwhile.
pub(super) fn ignores_case(dir: &Dir) -> io::Result<bool> {
    let mut random = [0; 8];
    bankfull_sys::random(&mut random)?;
    // Random, so that it belongs neither to another session nor to a file of the user.
    let name = format!("case {:016x}", u64::from_ne_bytes(random));
    let probe = PartNames::of(OsStr::new(&name)).journal_temp;
    create_file_replacing(dir, &probe)?;
    let found = dir.stat(&probe.to_ascii_uppercase()).is_ok();
    dir.unlink(&probe)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_case_is_another_name_on_most_file_systems() {
        let here = tempfile::tempdir().unwrap();
        let dir = Dir::open(here.path()).unwrap();
        std::fs::write(here.path().join("a"), b"x").unwrap();
        std::fs::write(here.path().join("B"), b"x").unwrap();
        let is_found = |name| is_found_in_other_case(&dir, OsStr::new(name));
        let expected = here.path().join("A").exists();
        assert_eq!([is_found("a"), is_found("B"), is_found("1")], [expected, expected, false]);
        // A further name of the same file is taken for the same one.
        if !expected {
            std::fs::hard_link(here.path().join("a"), here.path().join("A")).unwrap();
            assert!(is_found("a"));
        }
    }

    struct Scene {
        root: tempfile::TempDir,
        names: FoldedNames,
    }

    impl Scene {
        /// A table with a directory of number 1 that may ignore case.
        fn new(test: fn(&Dir) -> io::Result<bool>) -> Self {
            let names = FoldedNames { test, ..FoldedNames::default() };
            lock(&names.state).dirs.insert(1, DirNames::default());
            Self { root: tempfile::tempdir().unwrap(), names }
        }

        fn record(&self, id: u64, name: &str) -> Option<OsString> {
            let open = || Dir::open(self.root.path()).map(Arc::new);
            self.names.record(id, OsStr::new(name), open)
        }
    }

    #[test]
    fn names_are_told_apart_where_the_file_system_does() {
        let scene = Scene::new(ignores_case);
        for name in ["File", "file", "File", "\u{c4}", "\u{e4}"] {
            assert_eq!(scene.record(1, name), None);
        }
        assert_eq!(std::fs::read_dir(scene.root.path()).unwrap().count(), 0);
        assert!(lock(&scene.names.state).dirs.is_empty(), "names are still recorded");
        let scene = Scene::new(|_| Ok(true));
        for name in ["File", "\u{c4}", "File"] {
            assert_eq!(scene.record(1, name), None);
        }
        assert_eq!(scene.record(1, "FILE"), Some("File".into()));
        assert_eq!(scene.record(1, "\u{e4}"), Some("\u{c4}".into()));
    }

    #[test]
    fn created_directories_inherit_and_found_ones_do_not() {
        let scene = Scene::new(|_| Ok(true));
        let root = Dir::open(scene.root.path()).unwrap();
        scene.names.add_created(2, 1);
        scene.names.add_created(3, 2);
        scene.names.add_found(4, &root);
        for (id, expected) in [(2, Some("a".into())), (3, Some("a".into())), (4, None), (5, None)] {
            assert_eq!(scene.record(id, "a"), None);
            assert_eq!(scene.record(id, "A"), expected, "{id}");
        }
        scene.names.forget(3);
        assert_eq!(scene.record(3, "A"), None);
    }

    #[test]
    fn memory_of_names_is_bounded() {
        for test in [|_: &Dir| Ok(true), |_: &Dir| Ok(false), |_: &Dir| Err(io::Error::other(""))] {
            let scene = Scene::new(test);
            for number in 0..100_000 {
                assert_eq!(scene.record(1, &format!("file {number}")), None);
            }
            assert!(lock(&scene.names.state).bytes <= MAX_BYTES);
            let is_known = scene.record(1, "FILE 1").is_some();
            assert_eq!(is_known, test(&Dir::open(scene.root.path()).unwrap()).unwrap_or(true));
            scene.names.forget(1);
            assert_eq!(lock(&scene.names.state).bytes, 0);
        }
    }
}
