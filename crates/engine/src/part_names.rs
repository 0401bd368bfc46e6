//! Names of the hidden files beside a target that is being received.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const PREFIX: &str = ".bankfull-";
const HASH_DIGITS: usize = 16;
const PART: &str = ".part";
const JOURNAL: &str = ".journal";
const JOURNAL_DRAFT: &str = ".journal.new";

/// Names of the files beside a target. Made from a hash of its name, so that they fit whatever the
/// target's length, are found again by the next run, and never clash with each other.
#[derive(Debug, Clone)]
pub(crate) struct PartNames {
    pub(crate) part: OsString,
    pub(crate) journal: OsString,
    pub(crate) journal_draft: OsString,
}

impl PartNames {
    pub(crate) fn of(target: &OsStr) -> Self {
        let hash = blake3::hash(target.as_bytes()).to_hex();
        let name = |suffix| OsString::from(format!("{PREFIX}{}{suffix}", &hash[..HASH_DIGITS]));
        Self { part: name(PART), journal: name(JOURNAL), journal_draft: name(JOURNAL_DRAFT) }
    }
}

/// Whether a name is one of ours. Such files are never copied: at the destination they would be
/// taken for the part of another file.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX.as_bytes()) else { return false };
    let Some((hash, suffix)) = rest.split_at_checked(HASH_DIGITS) else { return false };
    hash.iter().all(u8::is_ascii_hexdigit)
        && [PART, JOURNAL, JOURNAL_DRAFT].iter().any(|known| known.as_bytes() == suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_names_are_known_and_similar_ones_are_not() {
        let names = PartNames::of(OsStr::from_bytes(b"any \xff name"));
        for name in [&names.part, &names.journal, &names.journal_draft] {
            assert!(is_ours(name.as_bytes()), "{name:?}");
        }
        for name in [".bankfull-", ".bankfull-0123456789abcdef.parts", ".bankfull-x.part", "a"] {
            assert!(!is_ours(name.as_bytes()), "{name}");
        }
    }
}
