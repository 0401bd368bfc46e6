//! Directories that a sender has announced and not completed. One is completed once the walk has
//! left it and everything beneath it is completed, each after its subdirectories.

use std::collections::HashMap;

/// Directories of the sender that are not completed, by number.
#[derive(Debug, Default)]
pub(crate) struct OpenDirs {
    dirs: HashMap<u64, OpenDir>,
    /// Number of those that the walk has left, with their weights.
    left: usize,
    /// Completed directories that the receiver does not know of yet.
    completed: Vec<u64>,
}

#[derive(Debug)]
struct OpenDir {
    parent: u64,
    /// Outstanding files and symlinks in it, and open subdirectories.
    outstanding: u64,
    is_walked: bool,
    /// Entries that it counts as, beyond one.
    weight: usize,
}

impl OpenDirs {
    /// Records a directory that the walk enters.
    ///
    /// It counts as `weight` entries beyond one.
    pub(crate) fn enter(&mut self, id: u64, parent: u64, weight: usize) {
        self.add_entry(parent);
        self.dirs.insert(id, OpenDir { parent, outstanding: 0, is_walked: true, weight });
    }

    /// Records that the walk has left a directory.
    pub(crate) fn leave(&mut self, id: u64) {
        if let Some(dir) = self.dirs.get_mut(&id).filter(|dir| dir.is_walked) {
            dir.is_walked = false;
            self.left += 1 + dir.weight;
            self.complete_from(id);
        }
    }

    /// Records an outstanding entry of a directory.
    pub(crate) fn add_entry(&mut self, parent: u64) {
        if let Some(dir) = self.dirs.get_mut(&parent) {
            dir.outstanding += 1;
        }
    }

    /// Records that an entry of a directory is completed.
    pub(crate) fn remove_entry(&mut self, parent: u64) {
        if let Some(dir) = self.dirs.get_mut(&parent) {
            dir.outstanding = dir.outstanding.saturating_sub(1);
            self.complete_from(parent);
        }
    }

    /// Completes a directory without outstanding entries, then each ancestor left without any.
    fn complete_from(&mut self, id: u64) {
        let mut at = id;
        while let Some(dir) = self.dirs.get(&at) {
            if dir.is_walked || dir.outstanding > 0 {
                return;
            }
            let (parent, weight) = (dir.parent, dir.weight);
            self.dirs.remove(&at);
            self.left -= 1 + weight;
            self.completed.push(at);
            if let Some(parent) = self.dirs.get_mut(&parent) {
                parent.outstanding = parent.outstanding.saturating_sub(1);
            }
            at = parent;
        }
    }

    /// Returns the directories that the walk has left and that are not completed.
    ///
    /// Each counts with its weight.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Returns the number of completed directories that [`Self::take_completed`] would return.
    pub(crate) fn completed(&self) -> usize {
        self.completed.len()
    }

    /// Returns the completed directories, each once.
    pub(crate) fn take_completed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.completed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn directory_waits_for_the_walk_and_its_files() {
        let mut dirs = OpenDirs::default();
        dirs.enter(1, 0, 0);
        dirs.enter(2, 1, 0);
        dirs.add_entry(2);
        dirs.leave(2);
        assert_eq!((dirs.left(), dirs.completed()), (1, 0));
        dirs.leave(1);
        dirs.remove_entry(2);
        assert_eq!(dirs.take_completed(), [2, 1]);
        assert_eq!((dirs.left(), dirs.completed(), dirs.dirs.len()), (0, 0, 0));
    }

    proptest! {
        /// Depth-first walks whose files are completed in any order.
        #[test]
        fn directories_complete_once_after_their_contents(
            steps in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut dirs = OpenDirs::default();
            let mut parents = HashMap::from([(1, 0)]);
            let (mut stack, mut files, mut next) = (vec![1], Vec::new(), 2);
            let mut completed = Vec::new();
            dirs.enter(1, 0, 0);
            let mut check = |dirs: &mut OpenDirs, files: &[u64], stack: &[u64],
                             parents: &HashMap<u64, u64>| {
                for id in dirs.take_completed() {
                    assert!(!completed.contains(&id) && !stack.contains(&id));
                    assert!(!files.contains(&id));
                    let mut children = parents.iter().filter(|(_, parent)| **parent == id);
                    assert!(children.all(|(child, _)| completed.contains(child)));
                    completed.push(id);
                }
                completed.len()
            };
            for (what, which) in steps {
                match (what, stack.last().copied()) {
                    (0, Some(parent)) => {
                        dirs.enter(next, parent, 0);
                        parents.insert(next, parent);
                        stack.push(next);
                        next += 1;
                    }
                    (1, Some(parent)) => {
                        dirs.add_entry(parent);
                        files.push(parent);
                    }
                    (2, Some(dir)) => {
                        stack.pop();
                        dirs.leave(dir);
                    }
                    _ if !files.is_empty() => {
                        let parent = files.swap_remove(which.index(files.len()));
                        dirs.remove_entry(parent);
                    }
                    _ => {}
                }
                check(&mut dirs, &files, &stack, &parents);
            }
            while let Some(dir) = stack.pop() {
                dirs.leave(dir);
            }
            while let Some(parent) = files.pop() {
                dirs.remove_entry(parent);
                check(&mut dirs, &files, &stack, &parents);
            }
            prop_assert_eq!(check(&mut dirs, &files, &stack, &parents), parents.len());
            prop_assert_eq!((dirs.left(), dirs.dirs.len()), (0, 0));
        }
    }
}
