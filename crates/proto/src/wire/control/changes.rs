//! Changes of entries at the destination, as in rsync's `--itemize-changes`.

use super::bytes::PathBytes;
use crate::error::WireError;
use crate::limits::{MAX_ENTRIES_PER_BATCH, MAX_PATH_BYTES};
use crate::wire::bounds::at_most;
use minicbor::{Decode, Encode};

/// Kind of a changed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ChangedKind {
    /// Regular file.
    #[n(0)]
    File,
    /// Directory.
    #[n(1)]
    Dir,
    /// Symbolic link.
    #[n(2)]
    Symlink,
    /// FIFO or socket.
    #[n(3)]
    Special,
    /// Character or block device.
    #[n(4)]
    Device,
}

/// Action that changes an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ChangeAction {
    /// Update of its metadata alone.
    #[n(0)]
    Update,
    /// Transfer of its content.
    #[n(1)]
    Transfer,
    /// Creation by the receiver, perhaps in the place of another one of its kind.
    #[n(2)]
    Create,
    /// Further name of another entry, which the receiver makes.
    #[n(3)]
    Link,
    /// Deletion.
    #[n(4)]
    Delete,
}

/// Differences between an announced entry and the one in its place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Differences(#[n(0)] u32);

impl Differences {
    /// Absence of an entry of its kind.
    pub const NEW: Self = Self(1);
    /// Content of a file that is compared; target of a symlink; number of a device.
    pub const CONTENT: Self = Self(1 << 1);
    /// Size of a file.
    pub const SIZE: Self = Self(1 << 2);
    /// Modification time.
    pub const TIME: Self = Self(1 << 3);
    /// Modification time, which becomes that of the transfer.
    pub const TIME_OF_TRANSFER: Self = Self(1 << 4);
    /// Mode.
    pub const MODE: Self = Self(1 << 5);
    /// Owner.
    pub const OWNER: Self = Self(1 << 6);
    /// Group.
    pub const GROUP: Self = Self(1 << 7);
    /// Access time.
    pub const ATIME: Self = Self(1 << 8);
    /// Access control list.
    pub const ACL: Self = Self(1 << 9);
    /// Extended attributes.
    pub const XATTR: Self = Self(1 << 10);

    /// True if there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if the set has a part of `others`.
    #[must_use]
    pub fn has(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns the set with `others`, if they are wanted.
    #[must_use]
    pub fn with(self, others: Self, wanted: bool) -> Self {
        if wanted { Self(self.0 | others.0) } else { self }
    }

    /// Returns the set without `others`.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

/// Change of an entry at the destination.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Change {
    /// Path beneath the destination; empty for the destination itself.
    #[n(0)]
    pub path: PathBytes,
    /// Kind of the entry.
    #[n(1)]
    pub kind: ChangedKind,
    /// Action that changes it.
    #[n(2)]
    pub action: ChangeAction,
    /// Differences from the entry in its place.
    #[n(3)]
    pub differences: Differences,
    /// Target of a symlink, or first name of a hard link.
    #[n(4)]
    pub other: Option<PathBytes>,
}

impl Change {
    /// Returns a bound of the bytes on the wire.
    #[must_use]
    pub fn max_wire_bytes(&self) -> usize {
        // Numbers and lengths of the fields take less. (RFC 8949)
        const FIXED_BYTES: usize = 32;
        FIXED_BYTES + self.path.0.len() + self.other.as_ref().map_or(0, |other| other.0.len())
    }

    fn check(&self) -> Result<(), WireError> {
        let paths = [Some(&self.path), self.other.as_ref()];
        paths
            .into_iter()
            .flatten()
            .try_for_each(|path| at_most("a path", path.0.len(), MAX_PATH_BYTES))
    }
}

pub(super) fn check_changes(changes: &[Change]) -> Result<(), WireError> {
    at_most("a batch of changes", changes.len(), MAX_ENTRIES_PER_BATCH)?;
    changes.iter().try_for_each(Change::check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::{Message, tests::round_trip};

    fn change(path: usize, other: usize) -> Change {
        Change {
            path: PathBytes(vec![b'x'; path]),
            kind: ChangedKind::Symlink,
            action: ChangeAction::Create,
            differences: Differences::CONTENT.with(Differences::TIME, true),
            other: Some(PathBytes(vec![b'\xff'; other])),
        }
    }

    #[test]
    fn changes_over_limit_are_refused() {
        let message = |change: Change, count| Message::Changes(vec![change; count]);
        let most = message(change(MAX_PATH_BYTES, MAX_PATH_BYTES), 1);
        assert_eq!(round_trip(&most), Ok(most));
        for (change, count) in [
            (change(MAX_PATH_BYTES + 1, 0), 1),
            (change(0, MAX_PATH_BYTES + 1), 1),
            (change(1, 1), MAX_ENTRIES_PER_BATCH + 1),
        ] {
            assert!(round_trip(&message(change, count)).is_err());
        }
    }

    #[test]
    fn change_is_no_larger_than_its_bound() {
        for (path, other) in [(0, 0), (300, 1), (MAX_PATH_BYTES, MAX_PATH_BYTES)] {
            let change = change(path, other);
            let bytes = minicbor::to_vec(&change).unwrap().len();
            assert!(bytes <= change.max_wire_bytes(), "{bytes}");
        }
    }
}
