//! Metadata beyond modes and times: what a transfer keeps, and what an entry has of it.

use super::bytes::Bytes;
use crate::error::WireError;
use crate::limits::{
    MAX_ACCOUNT_NAME_BYTES, MAX_OWNER_NAMES, MAX_XATTR_NAME_BYTES, MAX_XATTRS_BYTES,
    XATTR_OVERHEAD_BYTES,
};
use crate::wire::bounds::at_most;
use minicbor::{Decode, Encode};

/// Set of the metadata that a transfer keeps.
///
/// Empty: modes, modification times and symlinks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct MetadataRules(#[n(0)] u32);

impl MetadataRules {
    /// Owner, if the receiver may set it.
    pub const OWNER: Self = Self(1);
    /// Group, if the receiver may set it.
    pub const GROUP: Self = Self(1 << 1);
    /// Numbers of owners and groups as they are, without their names.
    pub const NUMERIC_IDS: Self = Self(1 << 2);
    /// Character and block devices.
    pub const DEVICES: Self = Self(1 << 3);
    /// FIFOs and sockets.
    pub const SPECIALS: Self = Self(1 << 4);
    /// Hard links among the entries.
    pub const HARD_LINKS: Self = Self(1 << 5);
    /// Extended attributes.
    pub const XATTRS: Self = Self(1 << 6);
    /// POSIX access control lists.
    pub const ACLS: Self = Self(1 << 7);
    /// Access times of all but directories.
    pub const ATIMES: Self = Self(1 << 8);
    /// Reading leaves access times as they are.
    pub const OPEN_NOATIME: Self = Self(1 << 9);
    /// Modes of existing entries stay; new ones obey the umask.
    pub const NO_MODES: Self = Self(1 << 10);
    /// Modification times are not set.
    pub const NO_TIMES: Self = Self(1 << 11);
    /// Symlinks are skipped.
    pub const NO_SYMLINKS: Self = Self(1 << 12);
    /// Modification times of directories are not set.
    pub const NO_DIR_TIMES: Self = Self(1 << 13);

    /// All bits with a meaning.
    const ALL: u32 = (1 << 14) - 1;

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if the set has a part of `kinds`.
    #[must_use]
    pub fn has(self, kinds: Self) -> bool {
        self.0 & kinds.0 != 0
    }

    /// Returns the set with `kinds`, if they are wanted.
    #[must_use]
    pub fn with(self, kinds: Self, wanted: bool) -> Self {
        if wanted { self | kinds } else { self }
    }

    /// Returns the set without `kinds`.
    #[must_use]
    pub fn without(self, kinds: Self) -> Self {
        Self(self.0 & !kinds.0)
    }

    pub(super) fn check(self) -> Result<(), WireError> {
        at_most("the kinds of metadata", self.0 as usize, Self::ALL as usize)
    }
}

impl std::ops::BitOr for MetadataRules {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Kind of a special file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum SpecialKind {
    /// Named pipe.
    #[n(0)]
    Fifo,
    /// Unix socket.
    #[n(1)]
    Socket,
    /// Character device.
    #[n(2)]
    CharDevice,
    /// Block device.
    #[n(3)]
    BlockDevice,
}

impl SpecialKind {
    /// True for character and block devices.
    #[must_use]
    pub fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }

    /// Returns the metadata rule that asks for entries of this kind.
    #[must_use]
    pub fn rule(self) -> MetadataRules {
        if self.is_device() { MetadataRules::DEVICES } else { MetadataRules::SPECIALS }
    }
}

/// Special file of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Special {
    /// Kind of the file.
    #[n(0)]
    pub kind: SpecialKind,
    /// Major number of a device; else 0.
    #[n(1)]
    pub major: u32,
    /// Minor number of a device; else 0.
    #[n(2)]
    pub minor: u32,
}

/// Extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Xattr {
    /// Name with its namespace, such as `user.comment`.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// Value. Of an access control list: as in Linux, with the sender's numbers.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub value: Vec<u8>,
}

/// Metadata that few entries have, or few transfers keep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ExtraMetadata {
    /// Number of the inode among those with several names; the first entry brings its content.
    #[n(0)]
    pub link_group: Option<u64>,
    /// Special file.
    #[n(1)]
    pub special: Option<Special>,
    /// Access time, seconds since 1970.
    #[n(2)]
    pub atime_secs: Option<i64>,
    /// Access time, nanoseconds of the second.
    #[n(3)]
    pub atime_nanos: Option<u32>,
    /// Extended attributes and access control lists.
    #[n(4)]
    pub xattrs: Option<Vec<Xattr>>,
    /// True if the size is an upper bound, and [`super::Message::FileEnd`] has the exact one.
    #[n(5)]
    pub open_ended: Option<bool>,
}

impl ExtraMetadata {
    /// Returns the extended attributes.
    #[must_use]
    pub fn xattrs(&self) -> &[Xattr] {
        self.xattrs.as_deref().unwrap_or_default()
    }

    /// Returns the bytes of the extended attributes, as they count.
    #[must_use]
    pub fn xattr_bytes(&self) -> usize {
        let bytes = |xattr: &Xattr| XATTR_OVERHEAD_BYTES + xattr.name.len() + xattr.value.len();
        self.xattrs().iter().map(bytes).sum()
    }

    pub(super) fn check(&self) -> Result<(), WireError> {
        at_most("extended attributes of an entry", self.xattr_bytes(), MAX_XATTRS_BYTES)?;
        for xattr in self.xattrs() {
            at_most("the name of an extended attribute", xattr.name.len(), MAX_XATTR_NAME_BYTES)?;
            if xattr.name.is_empty() || xattr.name.contains(&0) {
                let name = String::from_utf8_lossy(&xattr.name).into_owned();
                return Err(WireError::BadName(name));
            }
        }
        at_most("nanoseconds", self.atime_nanos.unwrap_or(0) as usize, 999_999_999)
    }
}

/// Kind of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum AccountKind {
    /// Owner.
    #[n(0)]
    User,
    /// Group.
    #[n(1)]
    Group,
}

/// Account of an owner or group number: its name, or the number that replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Account {
    /// User or group.
    #[n(0)]
    pub kind: AccountKind,
    /// Number in the entries.
    #[n(1)]
    pub id: u32,
    /// Name that the receiver looks up.
    #[n(2)]
    pub name: Option<Bytes>,
    /// Number that the receiver uses.
    #[n(3)]
    pub mapped: Option<u32>,
    /// True if the user asked for the name: the receiver must have it.
    #[n(4)]
    pub required: Option<bool>,
}

pub(super) fn check_accounts(accounts: &[Account]) -> Result<(), WireError> {
    at_most("a batch of accounts", accounts.len(), MAX_OWNER_NAMES)?;
    for name in accounts.iter().filter_map(|account| account.name.as_ref()) {
        at_most("the name of an account", name.0.len(), MAX_ACCOUNT_NAME_BYTES)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::tests::{entry, round_trip};
    use crate::wire::control::{Entry, EntryKind, Message};

    fn with(extra: ExtraMetadata) -> Message {
        Message::Entries(vec![Entry { extra: Some(Box::new(extra)), ..entry() }])
    }

    fn xattr(name: &[u8], bytes: usize) -> Xattr {
        Xattr { name: name.to_vec(), value: vec![1; bytes] }
    }

    #[test]
    fn extra_metadata_round_trips_within_its_bounds() {
        const MAX: usize = MAX_XATTRS_BYTES - XATTR_OVERHEAD_BYTES - 6;
        let extra = ExtraMetadata {
            link_group: Some(7),
            special: None,
            atime_secs: Some(-1),
            atime_nanos: Some(999_999_999),
            xattrs: Some(vec![xattr(b"user.a", MAX)]),
            open_ended: None,
        };
        assert!(round_trip(&with(extra.clone())) == Ok(with(extra.clone())));
        for bad in [
            ExtraMetadata { atime_nanos: Some(1_000_000_000), ..extra.clone() },
            ExtraMetadata { xattrs: Some(vec![xattr(b"user.ab", MAX)]), ..extra },
            // Short ones, of which a frame has very many.
            ExtraMetadata { xattrs: Some(vec![xattr(b"a", 0); 2100]), ..Default::default() },
            ExtraMetadata { xattrs: Some(vec![xattr(b"", 1)]), ..ExtraMetadata::default() },
            ExtraMetadata { xattrs: Some(vec![xattr(b"a\0", 1)]), ..ExtraMetadata::default() },
            ExtraMetadata { xattrs: Some(vec![xattr(&[b'x'; 256], 1)]), ..Default::default() },
        ] {
            assert!(round_trip(&with(bad)).is_err());
        }
    }

    #[test]
    fn kind_and_metadata_fit_each_other() {
        let special = Special { kind: SpecialKind::BlockDevice, major: 8, minor: 1 };
        let special = ExtraMetadata { special: Some(special), ..ExtraMetadata::default() };
        let linked = ExtraMetadata { link_group: Some(1), ..ExtraMetadata::default() };
        let entry = |kind, extra: &ExtraMetadata| {
            let extra = Some(Box::new(extra.clone()));
            Message::Entries(vec![Entry { kind, size: 0, extra, ..entry() }])
        };
        let none = ExtraMetadata::default();
        let attributed = ExtraMetadata { xattrs: Some(vec![xattr(b"user.a", 1)]), ..none.clone() };
        let both = ExtraMetadata { link_group: Some(1), ..attributed.clone() };
        for (kind, extra, fits) in [
            (EntryKind::Special, &special, true),
            (EntryKind::Special, &none, false),
            (EntryKind::Symlink, &special, false),
            (EntryKind::HardLink, &linked, true),
            (EntryKind::HardLink, &none, false),
            (EntryKind::HardLink, &both, false),
            (EntryKind::Symlink, &linked, true),
            (EntryKind::Symlink, &both, true),
        ] {
            assert_eq!(round_trip(&entry(kind, extra)).is_ok(), fits, "{kind:?} {extra:?}");
        }
    }

    #[test]
    fn only_symlinks_have_targets() {
        let linked = ExtraMetadata { link_group: Some(1), ..ExtraMetadata::default() };
        for (kind, fits) in [
            (EntryKind::Symlink, true),
            (EntryKind::HardLink, false),
            (EntryKind::File, false),
            (EntryKind::Dir, false),
        ] {
            let (target, extra) = (b"there".to_vec(), Some(Box::new(linked.clone())));
            let message = Message::Entries(vec![Entry { kind, size: 0, target, extra, ..entry() }]);
            assert_eq!(round_trip(&message).is_ok(), fits, "{kind:?}");
        }
    }

    #[test]
    fn accounts_over_limit_are_refused() {
        let account = |bytes| Account {
            kind: AccountKind::User,
            id: 1,
            name: Some(Bytes(vec![b'x'; bytes])),
            mapped: None,
            required: None,
        };
        let message = |bytes, count| Message::Accounts(vec![account(bytes); count]);
        assert!(round_trip(&message(MAX_ACCOUNT_NAME_BYTES, MAX_OWNER_NAMES)).is_ok());
        assert!(round_trip(&message(MAX_ACCOUNT_NAME_BYTES + 1, 1)).is_err());
        assert!(round_trip(&message(1, MAX_OWNER_NAMES + 1)).is_err());
    }

    #[test]
    fn unknown_kinds_of_metadata_are_refused() {
        assert!(MetadataRules(1 << 13).check().is_ok());
        assert!(MetadataRules(1 << 14).check().is_err());
        let rules = MetadataRules::OWNER.with(MetadataRules::ACLS, true);
        assert!(rules.has(MetadataRules::ACLS) && !rules.has(MetadataRules::GROUP));
    }
}
