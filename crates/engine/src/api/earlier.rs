//! [`Backup`]: place of earlier versions that are replaced or deleted.

use crate::base::error::{Error, ErrorKind};
use bankfull_proto::limits::{MAX_LINK_DESTS, MAX_NAME_BYTES, MAX_PATH_BYTES};
use bankfull_proto::wire::control::{BackupRules, Bytes, EarlierRules};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Place of earlier versions. The default is beside the originals, with the suffix `~`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backup {
    /// Directory on the file system of the destination, and relative to it.
    pub dir: Option<PathBuf>,
    /// Suffix of the backups' names. Default: `~`, or none if `dir` is set.
    pub suffix: Option<OsString>,
}

impl Backup {
    /// Returns the rules for the receiver.
    pub(crate) fn rules(self) -> BackupRules {
        let bytes = |text: OsString| Bytes(text.into_vec());
        BackupRules {
            dir: self.dir.map(|dir| bytes(dir.into_os_string())),
            suffix: self.suffix.map(bytes),
        }
    }
}

/// Checks the rules for earlier versions before a peer does.
///
/// # Errors
/// [`ErrorKind::Usage`] for an invalid suffix, and for rules that exceed the protocol's limits.
pub(super) fn check_earlier(rules: &EarlierRules) -> Result<(), Error> {
    let usage = |text: String| Err(Error::new(ErrorKind::Usage, text));
    let dirs = rules.link_dest.as_deref().unwrap_or_default();
    if dirs.len() > MAX_LINK_DESTS {
        return usage(format!("more than {MAX_LINK_DESTS} directories for --link-dest"));
    }
    let backup = rules.backup.as_ref();
    let paths = dirs.iter().map(|dir| ("--link-dest", dir));
    let paths = paths.chain(backup.and_then(|backup| Some(("--backup-dir", backup.dir.as_ref()?))));
    for (flag, path) in paths {
        if path.0.len() > MAX_PATH_BYTES {
            return usage(format!("the path of {flag} exceeds {MAX_PATH_BYTES} bytes: shorten it"));
        }
    }
    let Some(BackupRules { dir, suffix: Some(suffix) }) = backup else { return Ok(()) };
    match &suffix.0 {
        text if text.contains(&b'/') => {
            usage("--suffix must not contain a slash: use --backup-dir for a directory".to_owned())
        }
        // A name has one byte at least.
        text if text.len() >= MAX_NAME_BYTES => usage(format!(
            "--suffix is too long: names have at most {MAX_NAME_BYTES} bytes with it"
        )),
        text if text.is_empty() && dir.is_none() => usage(
            "--suffix is empty, and backups would replace their originals: name one, or use \
             --backup-dir"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(dir: Option<&str>, suffix: &str) -> Result<(), String> {
        let backup = Backup { dir: dir.map(PathBuf::from), suffix: Some(suffix.into()) };
        let rules = EarlierRules { backup: Some(backup.rules()), ..EarlierRules::default() };
        check_earlier(&rules).map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::Usage);
            error.to_string()
        })
    }

    #[test]
    fn suffix_that_no_name_can_have_is_refused() {
        assert!(checked(None, "/x").unwrap_err().contains("must not contain a slash"));
        assert!(checked(Some("d"), "a/b").unwrap_err().contains("must not contain a slash"));
        assert!(checked(None, "").unwrap_err().contains("would replace their originals"));
        assert!(checked(None, &"s".repeat(255)).unwrap_err().contains("too long"));
        assert_eq!(checked(None, &"s".repeat(254)), Ok(()));
        assert_eq!(checked(Some("d"), ""), Ok(()));
        assert_eq!(checked(None, ".old"), Ok(()));
        let long = "d".repeat(MAX_PATH_BYTES + 1);
        assert!(checked(Some(&long), "").unwrap_err().contains("--backup-dir exceeds 4096 bytes"));
    }

    #[test]
    fn directories_of_earlier_copies_are_limited() {
        let with = |dirs: Vec<String>| {
            let link_dest = dirs.into_iter().map(|dir| Bytes(dir.into_bytes())).collect();
            let rules = EarlierRules { link_dest: Some(link_dest), ..EarlierRules::default() };
            check_earlier(&rules).map_err(|error| error.to_string())
        };
        assert_eq!(with(vec!["d".to_owned(); MAX_LINK_DESTS]), Ok(()));
        assert!(with(vec!["d".to_owned(); MAX_LINK_DESTS + 1]).unwrap_err().contains("more than"));
        assert!(with(vec!["d".repeat(MAX_PATH_BYTES + 1)]).unwrap_err().contains("--link-dest"));
    }
}
