//! Metadata that the destination does not keep: counted, and described once at the end.

use crate::model::metadata::Permits;
use bankfull_proto::wire::control::{Cause, Failure};
use std::sync::atomic::{AtomicU64, Ordering};

/// Kind of metadata that may not be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Owner,
    Group,
    SetId,
    Device,
    /// Attribute outside the `user` namespace.
    PrivilegedXattr,
    Xattr,
    /// Attribute for which the file system has no room.
    LargeXattr,
    Acl,
    /// Further name that became a file of its own, for want of memory.
    HardLink,
}

const KINDS: [Lost; 9] = [
    Lost::Owner,
    Lost::Group,
    Lost::SetId,
    Lost::Device,
    Lost::PrivilegedXattr,
    Lost::Xattr,
    Lost::LargeXattr,
    Lost::Acl,
    Lost::HardLink,
];

/// Counts of what was not kept.
#[derive(Debug, Default)]
pub(crate) struct LostMetadata([AtomicU64; KINDS.len()]);

impl LostMetadata {
    /// Counts something that was not kept.
    pub(crate) fn add(&self, kind: Lost, count: u64) {
        self.0[kind as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Adds the counts of another one.
    pub(crate) fn add_all(&self, other: &Self) {
        for (own, other) in self.0.iter().zip(&other.0) {
            own.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Describes each kind with its number, as warnings; what had no room as a failure.
    pub(crate) fn describe(&self, permits: &Permits) -> Vec<Failure> {
        let count = |kind: &Lost| self.0[*kind as usize].load(Ordering::Relaxed);
        let found = KINDS.into_iter().filter(|kind| count(kind) > 0);
        found.map(|kind| kind.describe(count(&kind), permits)).collect()
    }
}

impl Lost {
    fn describe(self, count: u64, permits: &Permits) -> Failure {
        let root = "the receiver must be root for that";
        let daemon = |permitted: bool, flag: &str| match permitted {
            true => root.to_owned(),
            false => format!("the daemon must be started with {flag} for that"),
        };
        let (what, why) = match self {
            Self::Owner => ("owners", daemon(permits.owner, "--allow-owner")),
            Self::Group if permits.owner => {
                ("groups", "the receiver must be a member, or root, for that".to_owned())
            }
            Self::Group => ("groups", daemon(false, "--allow-owner")),
            Self::SetId => ("set-id bits", daemon(permits.set_id, "--allow-owner")),
            Self::Device => ("devices", daemon(permits.devices, "--allow-devices")),
            Self::PrivilegedXattr => (
                "extended attributes of the system",
                daemon(permits.privileged_xattrs, "--allow-privileged-xattrs"),
            ),
            Self::Xattr => {
                ("extended attributes", "the destination does not support them".to_owned())
            }
            Self::Acl => {
                ("access control lists", "the destination does not support them".to_owned())
            }
            Self::HardLink => {
                let text = "the receiver remembers no more inodes with several names, and copied \
                            these names as files of their own: copy in parts to keep them";
                ("hard links", text.to_owned())
            }
            Self::LargeXattr => {
                ("extended attributes", "the destination has no room for them".to_owned())
            }
        };
        let cause = if self == Self::LargeXattr { Cause::Io } else { Cause::Warning };
        Failure::new(cause, format!("{what} that were not kept: {count}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_described_once() {
        let lost = LostMetadata::default();
        lost.add(Lost::Owner, 2);
        lost.add(Lost::Owner, 1);
        lost.add(Lost::Device, 1);
        let texts = |permits| lost.describe(&permits).into_iter().map(|lost| lost.text);
        let all: Vec<_> = texts(Permits::ALL).collect();
        assert_eq!(all[0], "owners that were not kept: 3: the receiver must be root for that");
        assert_eq!(all.len(), 2);
        let daemon: Vec<_> = texts(Permits::default()).collect();
        assert!(daemon[1].contains("--allow-devices"), "{}", daemon[1]);
    }
}
