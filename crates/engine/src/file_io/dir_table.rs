//! Table of a tree's directories by number: descriptors to work beneath, paths for messages.
//!
//! Each descriptor is opened from its parent's, one component at a time and without following
//! symlinks, so that a directory replaced by a symlink never leads out of the tree. Links that the
//! user wants followed have their own way to be opened (`links.rs`).

use super::links::LinkedDir;
use crate::base::fs_names::join_path;
use crate::base::sync::lock;
use bankfull_sys::{
    Dir, SHORTAGE_TIMEOUT, is_shortage, max_open_files, retry_shortage, without_waits,
};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Maximum number of cached directory descriptors of a table. (chosen: a quarter of the usual soft
/// limit of 1024)
const MAX_OPEN_DIRS: u64 = 256;

/// Share of the limit of open files that a table may use. (chosen: a copy within a host has two
/// tables, and leaves half of the limit to files)
const LIMIT_SHARE: u64 = 8;

#[derive(Debug)]
struct Node {
    parent: u64,
    name: OsString,
    /// Way to open it if it is not an entry of the parent: the referent of a symlink.
    linked: Option<LinkedDir>,
    /// True if the path of a requested name leads through it.
    is_named: bool,
}

#[derive(Debug, Default)]
struct DirTableInner {
    nodes: HashMap<u64, Node>,
    /// Roots, which have no parent to be reopened from.
    roots: HashMap<u64, (Arc<Dir>, PathBuf)>,
    open: HashMap<u64, Arc<Dir>>,
    /// Path in messages for a root that does not exist yet, in a dry run.
    planned_root: PathBuf,
}

/// Directories of a tree.
#[derive(Debug, Default)]
pub(crate) struct DirTable(Mutex<DirTableInner>);

impl DirTable {
    /// Inserts a root with its path in messages.
    pub(crate) fn insert_root(&self, id: u64, dir: Arc<Dir>, path: PathBuf) {
        lock(&self.0).roots.insert(id, (dir, path));
    }

    /// Sets the path in messages for roots that are not inserted.
    pub(crate) fn set_planned_root(&self, path: PathBuf) {
        lock(&self.0).planned_root = path;
    }

    /// Inserts a directory beneath another.
    pub(crate) fn insert(&self, id: u64, parent: u64, name: &OsStr) {
        let node = Node { parent, name: name.to_owned(), linked: None, is_named: false };
        lock(&self.0).nodes.insert(id, node);
    }

    /// Inserts the referent of a symlink beneath a directory.
    pub(crate) fn insert_linked(&self, id: u64, parent: u64, name: &OsStr, linked: LinkedDir) {
        let node = Node { parent, name: name.to_owned(), linked: Some(linked), is_named: false };
        lock(&self.0).nodes.insert(id, node);
    }

    /// Inserts the referent of a symlink that is in the path of a name.
    pub(crate) fn insert_named(&self, id: u64, parent: u64, name: &OsStr, linked: LinkedDir) {
        let node = Node { parent, name: name.to_owned(), linked: Some(linked), is_named: true };
        lock(&self.0).nodes.insert(id, node);
    }

    /// Removes a completed directory.
    pub(crate) fn remove(&self, id: u64) {
        let mut inner = lock(&self.0);
        inner.nodes.remove(&id);
        inner.roots.remove(&id);
        inner.open.remove(&id);
    }

    /// Returns the number of directories, without roots.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).nodes.len()
    }

    /// True if the number belongs to a directory.
    pub(crate) fn contains(&self, id: u64) -> bool {
        let inner = lock(&self.0);
        inner.nodes.contains_key(&id) || inner.roots.contains_key(&id)
    }

    /// True if a directory is beneath a symlink that the walk follows.
    pub(crate) fn is_linked(&self, id: u64) -> bool {
        let inner = lock(&self.0);
        let parents = std::iter::successors(inner.nodes.get(&id), |n| inner.nodes.get(&n.parent));
        parents.into_iter().any(|node| node.linked.is_some() && !node.is_named)
    }

    /// Returns a descriptor of a directory.
    ///
    /// While descriptors are short it closes those of the table and tries again, without the lock.
    pub(crate) fn open(&self, id: u64) -> io::Result<Arc<Dir>> {
        retry_shortage(SHORTAGE_TIMEOUT, || {
            let mut inner = lock(&self.0);
            let opened = without_waits(|| inner.open(id));
            if opened.as_ref().is_err_and(is_shortage) {
                inner.open.clear();
            }
            opened
        })
    }

    /// Returns the path of a directory for messages.
    pub(crate) fn path(&self, id: u64) -> PathBuf {
        let inner = lock(&self.0);
        let mut names = Vec::new();
        let mut at = id;
        while let Some(node) = inner.nodes.get(&at) {
            names.push(&node.name);
            at = node.parent;
        }
        let mut path = inner.roots.get(&at).map_or(&inner.planned_root, |(_, path)| path).clone();
        path.extend(names.into_iter().rev());
        path
    }

    /// Returns the path of an entry of a directory for messages.
    pub(crate) fn path_of(&self, dir: u64, name: &OsStr) -> PathBuf {
        let path = self.path(dir);
        if name.is_empty() { path } else { join_path(&path, name) }
    }
}

impl DirTableInner {
    fn open(&mut self, id: u64) -> io::Result<Arc<Dir>> {
        if let Some((dir, _)) = self.roots.get(&id) {
            return Ok(Arc::clone(dir));
        }
        // Up to the nearest open ancestor, then down again: no recursion, at any depth.
        let mut missing = Vec::new();
        let mut at = id;
        let mut dir = loop {
            if let Some(dir) = self.open.get(&at) {
                break Arc::clone(dir);
            }
            if let Some((dir, _)) = self.roots.get(&at) {
                break Arc::clone(dir);
            }
            let node = self.nodes.get(&at).ok_or(io::ErrorKind::NotFound)?;
            if let Some(linked) = &node.linked {
                let dir = Arc::new(linked.open()?);
                self.cache(at, &dir);
                break dir;
            }
            missing.push(at);
            at = node.parent;
        };
        for id in missing.into_iter().rev() {
            if let Some(node) = self.nodes.get(&id) {
                dir = Arc::new(dir.open_child_dir(&node.name)?);
                self.cache(id, &dir);
            }
        }
        Ok(dir)
    }

    fn cache(&mut self, id: u64, dir: &Arc<Dir>) {
        if self.open.len() as u64 >= MAX_OPEN_DIRS.min(max_open_files() / LIMIT_SHARE) {
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
    fn directory_opens_by_number_at_any_depth() {
        let root = tempfile::tempdir().unwrap();
        let table = DirTable::default();
        table.insert_root(0, Arc::new(Dir::open(root.path()).unwrap()), "dst".into());
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
    fn directory_replaced_by_symlink_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("d")).unwrap();
        let table = DirTable::default();
        table.insert_root(0, Arc::new(Dir::open(root.path()).unwrap()), PathBuf::new());
        table.insert(1, 0, OsStr::new("d"));
        assert!(table.open(1).is_err());
    }
}
