//! [`Backup`]: place of earlier versions that are replaced or deleted.

use bankfull_proto::wire::control::{BackupRules, Bytes};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Place of earlier versions. The default is beside the originals, with the suffix `~`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backup {
    /// Directory on the file system of the destination, and relative to it.
    pub dir: Option<PathBuf>,
    /// Suffix of their names. Default: `~`; none in a directory.
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
