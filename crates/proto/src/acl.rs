//! Extended attributes that are copied, and the numbers in POSIX access control lists.
//!
//! A list is an attribute in the format of Linux: a version, then for each of its entries a tag,
//! permissions and a number, all little-endian. (linux/posix_acl_xattr.h)

use crate::wire::control::AccountKind;

/// Attribute with the access control list of a file or directory.
pub const ACCESS: &str = "system.posix_acl_access";

/// Attribute with the access control list that new entries of a directory get.
pub const DEFAULT: &str = "system.posix_acl_default";

/// Bytes of the version, and the only version. (linux/posix_acl_xattr.h)
const HEADER: [u8; 4] = 2_u32.to_le_bytes();

/// Bytes of an entry of a list.
const ENTRY_BYTES: usize = 8;

/// Tags of entries for a user and for a group, which have a number. (linux/posix_acl.h)
const USER_TAG: [u8; 2] = 2_u16.to_le_bytes();
const GROUP_TAG: [u8; 2] = 8_u16.to_le_bytes();

/// True if an attribute is an access control list.
#[must_use]
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS.as_bytes() || name == DEFAULT.as_bytes()
}

/// True if an attribute that is no access control list is copied.
///
/// As in rsync: attributes of the `user` namespace, and for the superuser those of all namespaces
/// except `system`.
#[must_use]
pub fn is_copied(name: &[u8], is_superuser: bool) -> bool {
    match is_superuser {
        true => !name.starts_with(b"system."),
        false => name.starts_with(b"user."),
    }
}

/// Returns the numbers of users and groups in a list; none if it is malformed.
pub fn ids(list: &[u8]) -> impl Iterator<Item = (AccountKind, u32)> + '_ {
    let entries = list.strip_prefix(&HEADER).unwrap_or_default();
    entries.chunks_exact(ENTRY_BYTES).filter_map(|entry| Some((kind(entry)?, id(entry))))
}

/// Returns a list with other numbers; `None` if it is malformed.
#[must_use]
pub fn with_ids(list: &[u8], map: impl Fn(AccountKind, u32) -> u32) -> Option<Vec<u8>> {
    let entries = list.strip_prefix(&HEADER)?;
    if entries.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let mut mapped = HEADER.to_vec();
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        mapped.extend_from_slice(&entry[..4]);
        match kind(entry) {
            Some(kind) => mapped.extend_from_slice(&map(kind, id(entry)).to_le_bytes()),
            None => mapped.extend_from_slice(&entry[4..]),
        }
    }
    Some(mapped)
}

fn kind(entry: &[u8]) -> Option<AccountKind> {
    match [entry[0], entry[1]] {
        USER_TAG => Some(AccountKind::User),
        GROUP_TAG => Some(AccountKind::Group),
        _ => None,
    }
}

fn id(entry: &[u8]) -> u32 {
    u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_named_entries_are_replaced() {
        let list = [
            &HEADER[..],
            b"\x01\0\x06\0\xff\xff\xff\xff",
            b"\x02\0\x04\0\xe8\x03\0\0",
            b"\x08\0\x04\0\x64\0\0\0",
        ]
        .concat();
        let found: Vec<_> = ids(&list).collect();
        assert_eq!(found, [(AccountKind::User, 1000), (AccountKind::Group, 100)]);
        let mapped = with_ids(&list, |kind, id| id + u32::from(kind == AccountKind::User)).unwrap();
        let found: Vec<_> = ids(&mapped).collect();
        assert_eq!(found, [(AccountKind::User, 1001), (AccountKind::Group, 100)]);
        assert_eq!(mapped.len(), list.len());
        assert_eq!(mapped[4..12], list[4..12]);
    }

    #[test]
    fn malformed_lists_have_no_numbers() {
        for list in [&b""[..], b"\x01\0\0\0", b"\x02\0\0\0\x02\0\0"] {
            assert_eq!(ids(list).count(), 0, "{list:?}");
            assert_eq!(with_ids(list, |_, id| id), None, "{list:?}");
        }
    }
}
