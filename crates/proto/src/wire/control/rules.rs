//! Rules of a request: what the walk selects, and what the receiver does with what exists.

use super::bytes::PathBytes;
use crate::error::WireError;
use crate::limits::MAX_IGNORE_FILES;
use crate::wire::bounds::{at_most, check_name};
use minicbor::{Decode, Encode};

/// Rules of the walk, which the sending side applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct WalkRules {
    /// Follow symlinks: their referents are copied.
    #[n(0)]
    #[cbor(default, skip_if = "is_off")]
    pub copy_links: bool,
    /// Follow symlinks to directories.
    #[n(1)]
    #[cbor(default, skip_if = "is_off")]
    pub copy_dirlinks: bool,
    /// Leave out symlinks that lead out of the copy.
    #[n(2)]
    #[cbor(default, skip_if = "is_off")]
    pub safe_links: bool,
    /// Minimum size of a file in bytes.
    #[n(3)]
    pub min_size: Option<u64>,
    /// Maximum size of a file in bytes.
    #[n(4)]
    pub max_size: Option<u64>,
    /// Time that a file must be newer than, in seconds since 1970.
    #[n(5)]
    pub newer_than: Option<i64>,
    /// Directories of other file systems stay empty.
    #[n(6)]
    #[cbor(default, skip_if = "is_off")]
    pub one_file_system: bool,
    /// Cache directories are copied with their tag alone.
    #[n(7)]
    #[cbor(default, skip_if = "is_off")]
    pub exclude_caches: bool,
    /// Maximum depth beneath a source, which is at 0.
    #[n(8)]
    pub max_depth: Option<u32>,
    /// Names of files in the tree with patterns as in `.gitignore`; absent: none.
    #[n(9)]
    pub ignore_files: Option<Vec<PathBytes>>,
    /// Paths of the sources are kept at the destination, see [`crate::names`].
    #[n(10)]
    #[cbor(default, skip_if = "is_off")]
    pub relative: bool,
    /// Names beneath the one source follow, see [`super::Message::ListPart`].
    #[n(11)]
    #[cbor(default, skip_if = "is_off")]
    pub listed: bool,
    /// Listed directories are copied with all that they contain.
    #[n(12)]
    #[cbor(default, skip_if = "is_off")]
    pub recursive: bool,
    /// A file that grows is copied as far as it was when it was announced.
    #[n(13)]
    #[cbor(default, skip_if = "is_off")]
    pub follow_growth: bool,
}

impl WalkRules {
    pub(super) fn check(&self) -> Result<(), WireError> {
        let names = self.ignore_files.as_deref().unwrap_or_default();
        at_most("the number of ignore files", names.len(), MAX_IGNORE_FILES)?;
        names.iter().try_for_each(|name| check_name(&name.0))
    }

    /// Returns the rules as sent; `None` if there are none.
    #[must_use]
    pub fn to_wire(&self) -> Option<Self> {
        (*self != Self::default()).then(|| self.clone())
    }

    /// True if names beneath the sources are copied, each with its path.
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.relative || self.listed
    }

    /// Returns what the receiver of a push needs to know; `None` for nothing.
    #[must_use]
    pub fn to_receiver(&self) -> Option<Self> {
        let &Self { relative, listed, .. } = self;
        Self { relative, listed, ..Self::default() }.to_wire()
    }

    /// True if some symlinks are followed.
    #[must_use]
    pub fn follows_links(&self) -> bool {
        self.copy_links || self.copy_dirlinks
    }
}

/// Rules for what exists at the destination, which the receiving side applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ComparisonRules {
    /// Comparison by content instead of size and time; [`super::Open::checksum`] on the wire.
    #[cbor(skip)]
    pub by_content: bool,
    /// Leave newer files as they are.
    #[n(0)]
    #[cbor(default, skip_if = "is_off")]
    pub update: bool,
    /// Create nothing: update what exists.
    #[n(1)]
    #[cbor(default, skip_if = "is_off")]
    pub existing_only: bool,
    /// Leave what exists as it is.
    #[n(2)]
    #[cbor(default, skip_if = "is_off")]
    pub ignore_existing: bool,
    /// Skip files of equal size, whatever their times.
    #[n(3)]
    #[cbor(default, skip_if = "is_off")]
    pub size_only: bool,
    /// Difference in seconds up to which times are equal; absent: times are exact.
    #[n(4)]
    pub modify_window: Option<u32>,
}

impl ComparisonRules {
    /// Returns the rules as sent; `None` if there are none.
    #[must_use]
    pub fn to_wire(self) -> Option<Self> {
        let sent = Self { by_content: false, ..self };
        (sent != Self::default()).then_some(sent)
    }

    /// True if the rules may leave entries as they are, whatever was announced.
    #[must_use]
    pub fn leaves_out(&self) -> bool {
        self.update || self.existing_only || self.ignore_existing
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by the derived encoder")]
fn is_off(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::{Message, Open, tests::round_trip};

    #[test]
    fn walk_rules_survive_the_wire() {
        let rules = WalkRules {
            copy_dirlinks: true,
            min_size: Some(0),
            newer_than: Some(-5),
            max_depth: Some(3),
            ignore_files: Some(vec![PathBytes(b".gitignore".to_vec())]),
            ..WalkRules::default()
        };
        let open = Message::Open(Open { walk: rules.to_wire(), ..Open::default() });
        assert_eq!(round_trip(&open), Ok(open));
        assert_eq!(WalkRules::default().to_wire(), None);
    }

    #[test]
    fn ignore_files_are_few_plain_names() {
        let open = |names: Vec<&[u8]>| {
            let names = names.into_iter().map(|name| PathBytes(name.to_vec())).collect();
            let walk = WalkRules { ignore_files: Some(names), ..WalkRules::default() };
            round_trip(&Message::Open(Open { walk: Some(walk), ..Open::default() }))
        };
        assert!(open(vec![b"a"; MAX_IGNORE_FILES]).is_ok());
        assert!(open(vec![b"a"; MAX_IGNORE_FILES + 1]).is_err());
        assert!(open(vec![b"../x"]).is_err() && open(vec![b""]).is_err());
    }

    #[test]
    fn rules_that_are_off_are_absent_on_the_wire() {
        let rules =
            ComparisonRules { update: true, modify_window: Some(2), ..ComparisonRules::default() };
        let bytes = minicbor::to_vec(rules).unwrap();
        assert_eq!(bytes, [0xa2, 0x00, 0xf5, 0x04, 0x02]);
        let open = Message::Open(Open { comparison: Some(rules), ..Open::default() });
        assert_eq!(round_trip(&open), Ok(open));
    }
}
