//! Paths and private directories of the local file system.

use super::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Joins a relative path for messages.
pub(crate) fn join_path(dir: &Path, name: &std::ffi::OsStr) -> PathBuf {
    if dir.as_os_str().is_empty() { PathBuf::from(name) } else { dir.join(name) }
}

/// Returns a name in lower case, to compare names without their case.
pub(crate) fn folded_case(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}

/// Creates a directory readable by its owner only.
pub(crate) fn create_private_dir(dir: &Path) -> Result<(), Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
        state_dir_error(format!("cannot create the state directory {}", dir.display()), &e)
    })
}

/// Returns the error of an unusable state directory, or of a file in it.
pub(crate) fn state_dir_error(context: String, error: &io::Error) -> Error {
    let error = Error::local(context, error);
    Error::new(error.kind(), format!("{error}: choose another directory with --state-dir"))
}
