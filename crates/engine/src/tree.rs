//! Directories of a tree by number: their paths for messages, and descriptors to work beneath.
//!
//! Descriptors are opened one component at a time from the parent's, never following a symlink, so
//! nothing that is swapped in meanwhile leads out of the tree.

use crate::net::control::lock;
use crate::session::join;
use bankfull_sys::Dir;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Most directory descriptors kept open at a time. [ours: a quarter of the usual soft limit of
/// 1024]
const OPEN_DIRS_MAX: usize = 256;

#[derive(Debug)]
struct Node {
    parent: u64,
    name: OsString,
}

#[derive(Debug, Default)]
struct Inner {
    nodes: HashMap<u64, Node>,
    /// Roots, whose descriptors cannot be opened again from a parent.
    pinned: HashMap<u64, (Arc<Dir>, PathBuf)>,
    open: HashMap<u64, Arc<Dir>>,
    /// What messages show for a root that does not exist yet, in a dry run.
    planned: PathBuf,
}

/// The directories of a tree.
#[derive(Debug, Default)]
pub(crate) struct DirTable(Mutex<Inner>);

impl DirTable {
    /// Enters a root with the path that messages show for it.
    pub(crate) fn pin(&self, id: u64, dir: Arc<Dir>, path: PathBuf) {
        lock(&self.0).pinned.insert(id, (dir, path));
    }

    /// Sets the path that messages show for roots that were not entered.
    pub(crate) fn plan(&self, path: PathBuf) {
        lock(&self.0).planned = path;
    }

    /// Enters a directory beneath another.
    pub(crate) fn insert(&self, id: u64, parent: u64, name: &OsStr) {
        lock(&self.0).nodes.insert(id, Node { parent, name: name.to_owned() });
    }

    /// Whether a number is a directory's.
    pub(crate) fn contains(&self, id: u64) -> bool {
        let inner = lock(&self.0);
        inner.nodes.contains_key(&id) || inner.pinned.contains_key(&id)
    }

    /// A descriptor of a directory.
    pub(crate) fn open(&self, id: u64) -> io::Result<Arc<Dir>> {
        lock(&self.0).open(id)
    }

    /// Path of a directory, for messages.
    pub(crate) fn path(&self, id: u64) -> PathBuf {
        let inner = lock(&self.0);
        let mut names = Vec::new();
        let mut at = id;
        while let Some(node) = inner.nodes.get(&at) {
            names.push(&node.name);
            at = node.parent;
        }
        let mut path = inner.pinned.get(&at).map_or(&inner.planned, |(_, path)| path).clone();
        path.extend(names.into_iter().rev());
        path
    }

    /// Path of something in a directory, for messages.
    pub(crate) fn path_of(&self, dir: u64, name: &OsStr) -> PathBuf {
        let path = self.path(dir);
        if name.is_empty() { path } else { join(&path, name) }
    }
}

impl Inner {
    fn open(&mut self, id: u64) -> io::Result<Arc<Dir>> {
        if let Some((dir, _)) = self.pinned.get(&id) {
            return Ok(Arc::clone(dir));
        }
        // Up to the nearest open ancestor, then down again: no recursion, however deep the tree.
        let mut missing = Vec::new();
        let mut at = id;
        let mut dir = loop {
            if let Some(dir) = self.open.get(&at) {
                break Arc::clone(dir);
            }
            if let Some((dir, _)) = self.pinned.get(&at) {
                break Arc::clone(dir);
            }
            let node = self.nodes.get(&at).ok_or(io::ErrorKind::NotFound)?;
            missing.push(at);
            at = node.parent;
        };
        for id in missing.into_iter().rev() {
            if let Some(node) = self.nodes.get(&id) {
                dir = Arc::new(dir.open_child_dir(&node.name)?);
                self.keep(id, &dir);
            }
        }
        Ok(dir)
    }

    fn keep(&mut self, id: u64, dir: &Arc<Dir>) {
        if self.open.len() >= OPEN_DIRS_MAX {
            // Those in use live on through their own references.
            self.open.clear();
        }
        self.open.insert(id, Arc::clone(dir));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_open_by_number_however_deep() {
        let root = tempfile::tempdir().unwrap();
        let table = DirTable::default();
        table.pin(0, Arc::new(Dir::open(root.path()).unwrap()), "dst".into());
        let mut path = root.path().to_owned();
        for id in 1..=300 {
            path.push("d");
            std::fs::create_dir(&path).unwrap();
            table.insert(id, id - 1, OsStr::new("d"));
        }
        std::fs::write(path.join("leaf"), b"x").unwrap();
        assert!(table.open(300).unwrap().stat(OsStr::new("leaf")).is_ok());
        assert_eq!(table.path_of(2, OsStr::new("x")), PathBuf::from("dst/d/d/x"));
        assert!(table.open(301).is_err());
    }

    #[test]
    fn a_directory_that_became_a_symlink_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("d")).unwrap();
        let table = DirTable::default();
        table.pin(0, Arc::new(Dir::open(root.path()).unwrap()), PathBuf::new());
        table.insert(1, 0, OsStr::new("d"));
        assert!(table.open(1).is_err());
    }
}
