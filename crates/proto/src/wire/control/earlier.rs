//! Earlier versions at the destination.

use super::bytes::Bytes;
use crate::error::WireError;
use crate::limits::{MAX_LINK_DESTS, MAX_PATH_BYTES};
use crate::wire::bounds::{at_most, check_name};
use minicbor::{Decode, Encode};

/// Rules for earlier versions of what is copied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EarlierRules {
    /// Backups of replaced and deleted entries.
    #[n(0)]
    pub backup: Option<BackupRules>,
    /// Directories whose unchanged files become hard links, relative to the destination.
    #[n(1)]
    pub link_dest: Option<Vec<Bytes>>,
}

/// Place of backups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BackupRules {
    /// Directory, relative to the destination; absent: beside the originals.
    #[n(0)]
    pub dir: Option<Bytes>,
    /// Suffix of their names; absent: `~` without a directory, else none.
    #[n(1)]
    pub suffix: Option<Bytes>,
}

impl EarlierRules {
    /// Returns the rules for the wire, if there are any.
    #[must_use]
    pub fn to_wire(&self) -> Option<Self> {
        (*self != Self::default()).then(|| self.clone())
    }

    pub(super) fn check(&self) -> Result<(), WireError> {
        let dirs = self.link_dest.as_deref().unwrap_or_default();
        at_most("the directories of earlier copies", dirs.len(), MAX_LINK_DESTS)?;
        let backup = self.backup.as_ref();
        let all = dirs.iter().chain(backup.and_then(|backup| backup.dir.as_ref()));
        for dir in all {
            at_most("a path", dir.0.len(), MAX_PATH_BYTES)?;
            if dir.0.contains(&0) {
                return Err(WireError::BadName(String::from_utf8_lossy(&dir.0).into_owned()));
            }
        }
        let suffix = backup.and_then(|backup| backup.suffix.as_ref());
        let suffix = suffix.filter(|suffix| !suffix.0.is_empty());
        // Not a name by itself, but a part of one.
        suffix.map_or(Ok(()), |suffix| check_name(&[b"x", &*suffix.0].concat()))?;
        match backup {
            Some(BackupRules { dir: None, suffix: Some(suffix) }) if suffix.0.is_empty() => {
                Err(WireError::BadName("an empty suffix of backups".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::{Message, Open, tests::round_trip};

    #[test]
    fn suffixes_and_directories_are_checked() {
        let with = |dir: Option<&[u8]>, suffix: Option<&[u8]>| {
            let bytes = |text: &[u8]| Bytes(text.to_vec());
            let backup = BackupRules { dir: dir.map(bytes), suffix: suffix.map(bytes) };
            let earlier = EarlierRules { backup: Some(backup), link_dest: None };
            round_trip(&Message::Open(Open { earlier: Some(earlier), ..Open::default() })).is_ok()
        };
        assert!(with(None, None) && with(None, Some(b".old")) && with(Some(b"../b"), Some(b"")));
        assert!(!with(None, Some(b"")) && !with(None, Some(b"/x")) && !with(Some(b"a\0"), None));
        let many = EarlierRules {
            backup: None,
            link_dest: Some(vec![Bytes(b"x".to_vec()); MAX_LINK_DESTS + 1]),
        };
        assert!(many.check().is_err());
    }
}
