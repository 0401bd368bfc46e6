//! Inodes with several names: those in place, and names that wait for the first one.
//!
//! Names of inodes that the memory has no room for are requested with their content.

use crate::base::sync::lock;
use bankfull_proto::limits::MAX_LINK_GROUPS_BYTES;
use bankfull_proto::wire::control::{ChangedKind, Entry};
use std::collections::HashMap;
use std::sync::Mutex;

/// Bytes that a group takes beside its path. (counted: 64 in a table whose slots are filled by
/// half to seven eighths, and the path's allocation)
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
    /// True once the memory had no room for a group.
    is_incomplete: bool,
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
    /// The first name is not known, for want of memory; each further one brings the content.
    Unknown,
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
    /// Records the announcement of an inode's first name, perhaps again, if there is room.
    pub(crate) fn announce(&self, group: u64) {
        let mut groups = lock(&self.0);
        if !groups.by_number.contains_key(&group) && groups.take(GROUP_BYTES) {
            groups.by_number.insert(group, Group::Waiting(Vec::new()));
        }
    }

    /// Returns the state of a further name's inode; the name waits with others, if it has to.
    ///
    /// After a first name that was passed over or is not known, the name is to be announced with
    /// its content.
    pub(crate) fn state_for(&self, entry: &Entry) -> Option<Group> {
        let mut groups = lock(&self.0);
        let number = entry.link_group()?;
        let Some(group) = groups.by_number.get_mut(&number) else {
            let is_unknown = groups.is_incomplete;
            return is_unknown.then(|| {
                groups.asked.insert(entry.id, number);
                Group::Unknown
            });
        };
        match group {
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

    /// Returns the number of names that wait, or are to be announced with their content.
    pub(crate) fn waiting(&self) -> usize {
        let groups = lock(&self.0);
        groups.waiting + groups.asked.len()
    }

    /// Returns the memory of the groups in bytes.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.0).bytes
    }

    /// Records the first name once it is in place; returns the names that wait.
    ///
    /// Without room for its path, the group is forgotten.
    pub(crate) fn place(&self, group: u64, first: FirstName) -> Vec<Entry> {
        let mut groups = lock(&self.0);
        if !groups.by_number.contains_key(&group) {
            return Vec::new();
        }
        let has_room = groups.take(first.path.len());
        let waited = groups.settle(group, Group::Placed(first));
        if !has_room {
            groups.by_number.remove(&group);
            groups.bytes -= GROUP_BYTES;
        }
        waited
    }

    /// Ends the wait of a group; returns the names that waited.
    pub(crate) fn settle(&self, group: u64, settled: Group) -> Vec<Entry> {
        lock(&self.0).settle(group, settled)
    }
}

impl Groups {
    /// Takes memory; returns false if there is none left.
    fn take(&mut self, bytes: usize) -> bool {
        let has_room = self.bytes + bytes <= MAX_LINK_GROUPS_BYTES;
        match has_room {
            true => self.bytes += bytes,
            false => self.is_incomplete = true,
        }
        has_room
    }

    /// Sets the state of a group that is known; returns the names that waited.
    fn settle(&mut self, group: u64, settled: Group) -> Vec<Entry> {
        let Some(state) = self.by_number.get_mut(&group) else { return Vec::new() };
        match std::mem::replace(state, settled) {
            Group::Waiting(names) => {
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

    fn name(id: u64, group: u64) -> Entry {
        let extra = ExtraMetadata { link_group: Some(group), ..ExtraMetadata::default() };
        Entry { id, extra: Some(Box::new(extra)), ..entry(1, 0, "f", EntryKind::HardLink) }
    }

    fn first(path: &[u8]) -> FirstName {
        FirstName { path: path.into(), kind: ChangedKind::File, size: 1 }
    }

    #[test]
    fn next_name_brings_the_content_once_the_first_is_passed() {
        let links = HardLinks::default();
        links.announce(7);
        let name = |id| name(id, 7);
        assert!(links.settle(7, Group::Passed).is_empty());
        assert!(matches!(links.state_for(&name(2)), Some(Group::Passed)));
        // Others wait for it.
        assert!(matches!(links.state_for(&name(3)), Some(Group::Waiting(_))));
        assert_eq!(links.waiting(), 2);
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
        links.announce(1);
        lock(&links.0).bytes = MAX_LINK_GROUPS_BYTES - GROUP_BYTES;
        // Without a first name, a further one fails until a group finds no room.
        assert!(links.state_for(&name(9, 3)).is_none());
        for group in [1, 2, 3, 4] {
            links.announce(group);
        }
        assert_eq!(links.bytes(), MAX_LINK_GROUPS_BYTES);
        assert!(matches!(links.state_for(&name(10, 2)), Some(Group::Waiting(_))));
        assert!(matches!(links.state_for(&name(11, 3)), Some(Group::Unknown)));
        assert_eq!((links.waiting(), links.take_asked(11)), (2, Some(3)));
        assert!(
            links.settle(3, Group::Passed).is_empty() && links.place(3, first(b"x")).is_empty()
        );
        assert!(matches!(links.state_for(&name(12, 3)), Some(Group::Unknown)));
        // A path without room: names that wait for it are announced with their content.
        assert_eq!(links.place(2, first(b"dir/file")).len(), 1);
        assert!(links.bytes() <= MAX_LINK_GROUPS_BYTES);
        assert!(matches!(links.state_for(&name(10, 2)), Some(Group::Unknown)));
    }
}
