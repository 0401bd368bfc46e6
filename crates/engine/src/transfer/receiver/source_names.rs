//! Names that the source has, so that others can be deleted: eight bytes for each.
//!
//! A hash with a random key stands for each path. A collision keeps an entry that could be deleted;
//! it never deletes another one.

use crate::base::error::Error;
use bankfull_proto::limits::MAX_UNDELETED_SOURCE_NAMES;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Entry, EntryKind, LeftOut};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

/// Hash of the destination itself.
const BASE: u64 = 0;

/// Names that the source has.
#[derive(Debug)]
pub(super) struct SourceNames {
    key: RandomState,
    /// Hashes of all paths.
    present: Vec<u64>,
    /// Hashes of all directories.
    dirs_seen: Vec<u64>,
    /// Hashes of those that the sender does not list.
    unlisted: Vec<u64>,
    /// Directories that are not completed, by number.
    dirs: HashMap<u64, u64>,
    /// Names of the sources that are directories; empty: their contents.
    roots: BTreeSet<Vec<u8>>,
    /// Names of sources without an entry so far, by hash.
    empty_roots: HashMap<u64, Vec<u8>>,
}

impl SourceNames {
    pub(super) fn new() -> Self {
        Self {
            key: RandomState::new(),
            present: Vec::new(),
            dirs_seen: Vec::new(),
            unlisted: Vec::new(),
            dirs: HashMap::from([(0, BASE)]),
            roots: BTreeSet::new(),
            empty_roots: HashMap::new(),
        }
    }

    /// Returns the hash of a name in a directory.
    pub(super) fn hash(&self, dir: u64, name: &[u8]) -> u64 {
        self.key.hash_one((dir, name))
    }

    /// Records an announced entry.
    ///
    /// # Errors
    /// Too many names.
    pub(super) fn record(&mut self, entry: &Entry) -> Result<(), Error> {
        let Some(&parent) = self.dirs.get(&entry.parent) else { return Ok(()) };
        let is_dir = entry.kind == EntryKind::Dir;
        let hash = match entry.name.as_slice() {
            b"" => BASE,
            name => self.add(parent, name)?,
        };
        if is_dir {
            self.check_room()?;
            self.dirs.insert(entry.id, hash);
            self.dirs_seen.push(hash);
        }
        match entry.parent {
            0 if is_dir => {
                self.roots.insert(entry.name.clone());
                self.empty_roots.insert(hash, entry.name.clone());
            }
            0 => {}
            _ => drop(self.empty_roots.remove(&parent)),
        }
        Ok(())
    }

    /// Records names that are not announced, and directories that are not listed.
    ///
    /// # Errors
    /// Too many names; a directory that does not exist.
    pub(super) fn leave_out(&mut self, names: &[LeftOut]) -> Result<(), Error> {
        for left_out in names {
            let dir = self.dirs.get(&left_out.dir).copied();
            let dir = dir.ok_or(WireError::BadFileId(left_out.dir))?;
            match left_out.name.as_slice() {
                b"" => {
                    self.check_room()?;
                    self.unlisted.push(dir);
                }
                name => {
                    self.add(dir, name)?;
                    self.empty_roots.remove(&dir);
                }
            }
        }
        Ok(())
    }

    fn kept(&self) -> usize {
        self.present.len() + self.dirs_seen.len() + self.unlisted.len()
    }

    /// Returns the bytes of the names.
    pub(super) fn bytes(&self) -> usize {
        self.kept() * size_of::<u64>()
    }

    fn check_room(&self) -> Result<(), Error> {
        match self.kept() >= MAX_UNDELETED_SOURCE_NAMES {
            true => {
                let what = "the number of entries recorded for --delete";
                Err(WireError::OverLimit { what, max: MAX_UNDELETED_SOURCE_NAMES }.into())
            }
            false => Ok(()),
        }
    }

    fn add(&mut self, dir: u64, name: &[u8]) -> Result<u64, Error> {
        self.check_room()?;
        let hash = self.hash(dir, name);
        self.present.push(hash);
        Ok(hash)
    }

    /// Forgets the number of a completed directory.
    pub(super) fn complete(&mut self, id: u64) {
        self.dirs.remove(&id);
    }

    /// Sorts the hashes, as lookups require.
    pub(super) fn sort(&mut self) {
        [&mut self.present, &mut self.dirs_seen, &mut self.unlisted]
            .into_iter()
            .for_each(|hashes| hashes.sort_unstable());
    }

    /// True if the source has a path of this hash.
    pub(super) fn has(&self, hash: u64) -> bool {
        self.present.binary_search(&hash).is_ok()
    }

    /// True if the source has a directory of this hash.
    pub(super) fn is_dir(&self, hash: u64) -> bool {
        self.dirs_seen.binary_search(&hash).is_ok()
    }

    /// True if the sender has listed the directory of this hash.
    pub(super) fn is_listed(&self, hash: u64) -> bool {
        self.is_dir(hash) && self.unlisted.binary_search(&hash).is_err()
    }

    /// Returns the names of the sources that are directories.
    pub(super) fn roots(&self) -> Vec<Vec<u8>> {
        self.roots.iter().cloned().collect()
    }

    /// Returns the names of those that have no entries.
    pub(super) fn empty_roots(&self) -> Vec<Vec<u8>> {
        self.empty_roots.values().cloned().collect()
    }

    /// Returns the hash of a source.
    pub(super) fn hash_of_root(&self, name: &[u8]) -> u64 {
        if name.is_empty() { BASE } else { self.hash(BASE, name) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn entry(id: u64, parent: u64, name: &str, kind: EntryKind) -> Entry {
        Entry {
            id,
            parent,
            name: name.into(),
            kind,
            mode: 0,
            mtime_secs: 0,
            mtime_nanos: 0,
            size: 0,
            version: 0,
            uid: 0,
            gid: 0,
            block_bytes: 0,
            sparse: false,
            target: Vec::new(),
            extra: None,
        }
    }

    #[test]
    fn names_are_known_by_their_paths() {
        let mut names = SourceNames::new();
        names.record(&entry(1, 0, "", EntryKind::Dir)).unwrap();
        assert_eq!(names.empty_roots(), [b""]);
        names.record(&entry(2, 1, "d", EntryKind::Dir)).unwrap();
        names.record(&entry(3, 2, "f", EntryKind::File)).unwrap();
        names.record(&entry(4, 1, "e", EntryKind::Dir)).unwrap();
        let left_out = |dir, name: &str| LeftOut { dir, name: name.into() };
        names.leave_out(&[left_out(2, "pipe"), left_out(4, "")]).unwrap();
        names.complete(2);
        assert!(names.leave_out(&[left_out(2, "late")]).is_err());
        names.sort();
        let (d, e) = (names.hash(BASE, b"d"), names.hash(BASE, b"e"));
        assert!(names.has(names.hash(d, b"f")) && names.has(names.hash(d, b"pipe")));
        assert!(!names.has(names.hash(e, b"f")) && !names.has(names.hash(BASE, b"f")));
        assert!(names.is_listed(d) && !names.is_listed(e));
        assert_eq!((names.roots(), names.empty_roots()), (vec![Vec::new()], Vec::new()));
        names.record(&entry(9, 0, "other", EntryKind::Dir)).unwrap();
        assert_eq!(names.empty_roots(), [b"other"]);
        names.leave_out(&[left_out(9, "pipe")]).unwrap();
        assert!(names.empty_roots().is_empty());
    }
}
