//! Names of the part file and the journal beside a file that is being received.

use super::fs_names::folded_case;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const NAME_PREFIX: &str = ".bankfull-";
const HASH_DIGITS: usize = 16;
const PART_SUFFIX: &str = ".part";
const JOURNAL_SUFFIX: &str = ".journal";
const JOURNAL_TEMP_SUFFIX: &str = ".journal.new";

/// Names of the temporary files beside a target. Derived from a hash of the target's name: of
/// constant length, the same in the next run, and distinct for each target.
#[derive(Debug, Clone)]
pub(crate) struct PartNames {
    pub(crate) part: OsString,
    pub(crate) journal: OsString,
    pub(crate) journal_temp: OsString,
}

impl PartNames {
    pub(crate) fn of(target: &OsStr) -> Self {
        let hash = blake3::hash(target.as_bytes()).to_hex();
        let name =
            |suffix| OsString::from(format!("{NAME_PREFIX}{}{suffix}", &hash[..HASH_DIGITS]));
        Self {
            part: name(PART_SUFFIX),
            journal: name(JOURNAL_SUFFIX),
            journal_temp: name(JOURNAL_TEMP_SUFFIX),
        }
    }
}

/// Returns the part file of a part file or journal; `None` for other names.
pub(crate) fn part_beside(name: &OsStr) -> Option<OsString> {
    if !is_part_name(name.as_bytes()) {
        return None;
    }
    let stem = name.as_bytes().get(..NAME_PREFIX.len() + HASH_DIGITS)?;
    Some(OsString::from_vec([stem, PART_SUFFIX.as_bytes()].concat()))
}

/// True if a name is that of a part file or journal.
///
/// Such files are never copied: the destination would take them for the part file of another file.
/// Case is ignored, as the destination's file system may ignore it.
pub(crate) fn is_part_name(name: &[u8]) -> bool {
    if !name.starts_with(b".") {
        return false;
    }
    let folded = folded_case(name);
    let Some(rest) = folded.as_bytes().strip_prefix(NAME_PREFIX.as_bytes()) else { return false };
    let Some((hash, suffix)) = rest.split_at_checked(HASH_DIGITS) else { return false };
    hash.iter().all(u8::is_ascii_hexdigit)
        && [PART_SUFFIX, JOURNAL_SUFFIX, JOURNAL_TEMP_SUFFIX]
            .iter()
            .any(|known| known.as_bytes() == suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_names_are_recognized_and_similar_names_are_not() {
        let names = PartNames::of(OsStr::from_bytes(b"any \xff name"));
        for name in [&names.part, &names.journal, &names.journal_temp] {
            assert!(is_part_name(name.as_bytes()), "{name:?}");
            assert!(is_part_name(&name.as_bytes().to_ascii_uppercase()), "{name:?}");
        }
        assert!(is_part_name(".ban\u{212a}full-0123456789abcdef.part".as_bytes()));
        for name in [".bankfull-", ".bankfull-0123456789abcdef.parts", ".bankfull-x.part", "a"] {
            assert!(!is_part_name(name.as_bytes()), "{name}");
        }
    }
}
