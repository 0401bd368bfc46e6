//! Directories on the way down a tree of any depth, with few of them open.
//!
//! A level that was closed is opened again as the parent of the one below, and compared by device
//! and inode: a tree that is moved meanwhile leads nowhere else.

use bankfull_sys::Dir;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;

/// Levels that stay open. (chosen: a quarter of the 32 descriptors that a copy needs)
const OPEN_LEVELS: usize = 8;

/// Directory that is being worked in, beneath those above it.
pub(super) struct HeldDir<'a> {
    above: Option<&'a HeldDir<'a>>,
    /// Device and inode; `None` if they cannot be read.
    identity: Option<(u64, u64)>,
    dir: RefCell<Option<Arc<Dir>>>,
}

impl<'a> HeldDir<'a> {
    /// Returns a directory with none above it.
    pub(super) fn top(dir: Arc<Dir>) -> Self {
        let identity = identity_of(&dir);
        Self { above: None, identity, dir: RefCell::new(Some(dir)) }
    }

    /// Returns a directory beneath this one, and closes one that is far above.
    pub(super) fn enter(&'a self, dir: Dir) -> Self {
        let below = Self { above: Some(self), ..Self::top(Arc::new(dir)) };
        let mut far = std::iter::successors(Some(self), |level| level.above);
        if let Some(far) = far.nth(OPEN_LEVELS).filter(|far| far.identity.is_some()) {
            *far.dir.borrow_mut() = None;
        }
        below
    }

    /// Ends the work in this directory: the one above is open again afterwards.
    pub(super) fn leave(&self) {
        let (Some(above), Ok(dir)) = (self.above, self.get()) else { return };
        if above.dir.borrow().is_some() {
            return;
        }
        let opened = dir.open_parent().ok().filter(|opened| identity_of(opened) == above.identity);
        *above.dir.borrow_mut() = opened.map(Arc::new);
    }

    /// Returns the directory. Hold it only while no other one is entered.
    ///
    /// # Errors
    /// It was moved, or could not be opened again.
    pub(super) fn get(&self) -> io::Result<Arc<Dir>> {
        let moved = || io::Error::other("it was moved, or cannot be opened again");
        self.dir.borrow().clone().ok_or_else(moved)
    }
}

fn identity_of(dir: &Dir) -> Option<(u64, u64)> {
    dir.stat_self().ok().map(|stat| (stat.dev, stat.ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::fs;

    /// Enters the directory `d` down to a depth; returns how many descriptors are open there.
    fn descend(at: &HeldDir<'_>, depth: usize, then: &dyn Fn()) -> usize {
        if depth == 0 {
            then();
            let levels = std::iter::successors(Some(at), |level| level.above);
            return levels.filter(|level| level.dir.borrow().is_some()).count();
        }
        let below = at.enter(at.get().unwrap().open_child_dir(OsStr::new("d")).unwrap());
        let open = descend(&below, depth - 1, then);
        below.leave();
        open
    }

    #[test]
    fn few_levels_are_open_and_all_come_back() {
        let here = tempfile::tempdir().unwrap();
        fs::create_dir_all(here.path().join("d/".repeat(100))).unwrap();
        let top = HeldDir::top(Arc::new(Dir::open(here.path()).unwrap()));
        assert_eq!(descend(&top, 100, &|| ()), OPEN_LEVELS + 1);
        assert_eq!(identity_of(&top.get().unwrap()), top.identity);
    }

    #[test]
    fn moved_tree_leads_nowhere_else() {
        let here = tempfile::tempdir().unwrap();
        fs::create_dir_all(here.path().join("top/".to_owned() + &"d/".repeat(20))).unwrap();
        fs::create_dir(here.path().join("elsewhere")).unwrap();
        let top = HeldDir::top(Arc::new(Dir::open(&here.path().join("top")).unwrap()));
        let (from, to) = (here.path().join("top/d"), here.path().join("elsewhere/d"));
        descend(&top, 20, &|| fs::rename(&from, &to).unwrap());
        assert!(top.get().is_err());
    }
}
