//! What the tests of this crate share: a scratch directory, already open.

use tempfile::TempDir;

use crate::Dir;

/// A new empty directory, removed when the first half is dropped.
pub(crate) fn scratch() -> (TempDir, Dir) {
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    (root, dir)
}
