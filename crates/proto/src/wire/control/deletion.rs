//! Deletion at the destination: its rules, and names at the source that are not copied.

use super::bytes::PathBytes;
use crate::error::WireError;
use crate::limits::{MAX_ENTRIES_PER_BATCH, MAX_PATH_BYTES};
use crate::wire::bounds::{at_most, check_name};
use minicbor::{Decode, Encode};

/// Rules for deleting entries of the destination that the source does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DeleteRules {
    /// Entries that filter rules exclude are deleted, too.
    #[n(0)]
    pub excluded: Option<bool>,
    /// Nothing is deleted if it would be more entries than this.
    #[n(1)]
    pub max: Option<u64>,
    /// Failed entries do not prevent the deletion.
    #[n(2)]
    pub ignore_errors: Option<bool>,
    /// A source without entries does not prevent the deletion.
    #[n(3)]
    pub empty_source: Option<bool>,
}

impl DeleteRules {
    /// True if excluded entries are deleted.
    #[must_use]
    pub fn deletes_excluded(&self) -> bool {
        self.excluded == Some(true)
    }
}

/// Name at the source that is not announced; nothing of that name is deleted.
///
/// Without a name: the directory itself is not listed, and nothing in it is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LeftOut {
    /// Number of the directory.
    #[n(0)]
    pub dir: u64,
    /// Name in it, or nothing.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub name: Vec<u8>,
}

pub(super) fn check_left_out(names: &[LeftOut]) -> Result<(), WireError> {
    at_most("a batch of names", names.len(), MAX_ENTRIES_PER_BATCH)?;
    let named = names.iter().filter(|left_out| !left_out.name.is_empty());
    named.map(|left_out| &left_out.name).try_for_each(|name| check_name(name))
}

pub(super) fn check_deleted(paths: &[PathBytes]) -> Result<(), WireError> {
    at_most("a batch of deleted entries", paths.len(), MAX_ENTRIES_PER_BATCH)?;
    // Longer ones are cut: they are for people.
    paths.iter().try_for_each(|path| at_most("a path", path.0.len(), MAX_PATH_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::{Message, tests::round_trip};

    #[test]
    fn names_that_are_left_out_are_names() {
        let message = |name: &[u8]| Message::LeftOut(vec![LeftOut { dir: 3, name: name.into() }]);
        for name in [&b"a"[..], b"", b"\xff"] {
            assert_eq!(round_trip(&message(name)), Ok(message(name)));
        }
        for name in [&b"a/b"[..], b"..", &[b'x'; 256]] {
            assert!(round_trip(&message(name)).is_err());
        }
    }

    #[test]
    fn deleted_paths_over_limit_are_refused() {
        let message = |bytes, count| Message::Deleted(vec![PathBytes(vec![b'x'; bytes]); count]);
        assert!(round_trip(&message(10, MAX_ENTRIES_PER_BATCH)).is_ok());
        assert!(round_trip(&message(10, MAX_ENTRIES_PER_BATCH + 1)).is_err());
        assert!(round_trip(&message(MAX_PATH_BYTES + 1, 1)).is_err());
    }
}
