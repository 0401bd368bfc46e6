//! Inodes with several names: those in place, and names that wait for the first one.

use crate::base::error::Error;
use crate::base::sync::lock;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{ChangedKind, Entry};
use std::collections::HashMap;
use std::sync::Mutex;

/// Memory for the paths of inodes with several names. (chosen: for a million of them)
const MAX_BYTES: usize = 128 << 20;

/// Bytes that a group takes beside its path. (a table entry with its share of free ones)
const GROUP_BYTES: usize = 88;

/// Inodes with several names.
#[derive(Debug, Default)]
pub(crate) struct HardLinks(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    by_number: HashMap<u64, Group>,
    bytes: usize,
    waiting: usize,
}

/// State of an inode with several names.
#[derive(Debug, Clone)]
pub(crate) enum Group {
    /// The first name is not in place yet; the others wait.
    Waiting(Vec<Entry>),
    /// The first name is in place.
    Placed(FirstName),
    /// The first name failed.
    Failed,
    /// The first name is left out, as this receiver cannot create it.
    LeftOut,
}

/// First name of an inode.
#[derive(Debug, Clone)]
pub(crate) struct FirstName {
    /// Path beneath the destination.
    pub(crate) path: Box<[u8]>,
    pub(crate) kind: ChangedKind,
    /// Size in bytes.
    pub(crate) size: u64,
    /// True if the rules left it as it was.
    pub(crate) is_left: bool,
}

impl HardLinks {
    /// Records that the first name of an inode is announced, perhaps again.
    ///
    /// # Errors
    /// Too many of them.
    pub(crate) fn announce(&self, group: u64) -> Result<(), Error> {
        let mut groups = lock(&self.0);
        if groups.by_number.contains_key(&group) {
            return Ok(());
        }
        groups.by_number.insert(group, Group::Waiting(Vec::new()));
        groups.bytes += GROUP_BYTES;
        match groups.bytes > MAX_BYTES {
            true => {
                let what = "the memory for hard links";
                Err(WireError::OverLimit { what, max: MAX_BYTES }.into())
            }
            false => Ok(()),
        }
    }

    /// Returns the state of a further name's inode; the name waits with others, if it has to.
    pub(crate) fn state_for(&self, entry: &Entry) -> Option<Group> {
        let mut groups = lock(&self.0);
        match groups.by_number.get_mut(&entry.link_group()?)? {
            Group::Waiting(names) => {
                names.push(entry.clone());
                groups.waiting += 1;
                Some(Group::Waiting(Vec::new()))
            }
            settled => Some(settled.clone()),
        }
    }

    /// Returns the number of names that wait.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.0).waiting
    }

    /// Records the first name once it is in place; returns the names that wait.
    pub(crate) fn place(&self, group: u64, first: FirstName) -> Vec<Entry> {
        let mut groups = lock(&self.0);
        groups.bytes += first.path.len();
        groups.settle(group, Group::Placed(first))
    }

    /// Ends the wait of a group; returns the names that waited.
    pub(crate) fn settle(&self, group: u64, settled: Group) -> Vec<Entry> {
        lock(&self.0).settle(group, settled)
    }
}

impl Groups {
    fn settle(&mut self, group: u64, settled: Group) -> Vec<Entry> {
        match self.by_number.insert(group, settled) {
            Some(Group::Waiting(names)) => {
                self.waiting -= names.len();
                names
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_bounded() {
        let links = HardLinks::default();
        let most = (MAX_BYTES / GROUP_BYTES) as u64;
        links.announce(1).unwrap();
        lock(&links.0).bytes = MAX_BYTES - GROUP_BYTES;
        links.announce(1).unwrap();
        links.announce(2).unwrap();
        assert!(links.announce(3).is_err() && most > 1_000_000);
    }
}
