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
    /// Groups of names that are to be announced with their content, by the names' numbers.
    asked: HashMap<u64, u64>,
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
    /// The rules leave out the first name; the next one brings the content.
    Passed,
}

/// First name of an inode.
#[derive(Debug, Clone)]
pub(crate) struct FirstName {
    /// Path beneath the destination.
    pub(crate) path: Box<[u8]>,
    pub(crate) kind: ChangedKind,
    /// Size in bytes.
    pub(crate) size: u64,
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
    ///
    /// After a first name that was passed over, the name is to be announced with its content.
    pub(crate) fn state_for(&self, entry: &Entry) -> Option<Group> {
        let mut groups = lock(&self.0);
        let number = entry.link_group()?;
        match groups.by_number.get_mut(&number)? {
            Group::Waiting(names) => {
                names.push(entry.clone());
                groups.waiting += 1;
                Some(Group::Waiting(Vec::new()))
            }
            passed @ Group::Passed => {
                *passed = Group::Waiting(Vec::new());
                groups.asked.insert(entry.id, number);
                Some(Group::Passed)
            }
            settled => Some(settled.clone()),
        }
    }

    /// Ends the request of a name with its content; returns its group, if there was one.
    pub(crate) fn take_asked(&self, id: u64) -> Option<u64> {
        lock(&self.0).asked.remove(&id)
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
    use crate::transfer::receiver::source_names::tests::entry;
    use bankfull_proto::wire::control::{EntryKind, ExtraMetadata};

    #[test]
    fn next_name_brings_the_content_once_the_first_is_passed() {
        let links = HardLinks::default();
        links.announce(7).unwrap();
        let name = |id| {
            let extra = ExtraMetadata { link_group: Some(7), ..ExtraMetadata::default() };
            Entry { id, extra: Some(Box::new(extra)), ..entry(1, 0, "f", EntryKind::HardLink) }
        };
        assert!(links.settle(7, Group::Passed).is_empty());
        assert!(matches!(links.state_for(&name(2)), Some(Group::Passed)));
        // Others wait for it.
        assert!(matches!(links.state_for(&name(3)), Some(Group::Waiting(_))));
        assert_eq!(links.waiting(), 1);
        assert_eq!(
            (links.take_asked(3), links.take_asked(2), links.take_asked(2)),
            (None, Some(7), None)
        );
        let waited = links.settle(7, Group::Passed);
        assert_eq!(waited.iter().map(|entry| entry.id).collect::<Vec<_>>(), [3]);
        assert!(matches!(links.state_for(&waited[0]), Some(Group::Passed)));
    }

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
