//! Removal of source files that the receiver has, once it is done.

use super::files::version_of;
use crate::base::error::failure;
use crate::base::sync::lock;
use crate::file_io::root::PathRoot;
use crate::stats::session_stats::SessionStats;
use bankfull_proto::wire::control::{Cause, Failure};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Source files that the receiver has.
#[derive(Debug, Default)]
pub(super) struct Removal(Mutex<Vec<Received>>);

#[derive(Debug)]
struct Received {
    path: PathBuf,
    /// Version that was copied.
    version: u64,
}

impl Removal {
    /// Records a file that the receiver has.
    pub(super) fn add(&self, path: PathBuf, version: u64) {
        lock(&self.0).push(Received { path, version });
    }

    /// Removes the files that have not changed since; failures are recorded.
    pub(super) fn run(&self, root: &PathRoot, stats: &SessionStats<'_>) {
        for Received { path, version } in std::mem::take(&mut *lock(&self.0)) {
            match remove(root, &path, version) {
                Ok(true) => {}
                Ok(false) => {
                    let text = format!("{} changed after its copy: it stays", path.display());
                    stats.file_failed(path, &Failure::new(Cause::SourceChanged, text));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    let failure = failure(format!("cannot remove {}", path.display()), &e);
                    stats.file_failed(path, &failure);
                }
            }
        }
    }
}

/// Removes a file; returns false if it is another version.
fn remove(root: &PathRoot, path: &Path, version: u64) -> io::Result<bool> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = path.parent().unwrap_or(Path::new(""));
    let dir = root.open_dir(root.path_to_open(above))?;
    if version_of(&dir.stat(name)?) != version {
        return Ok(false);
    }
    dir.unlink(name).map(|()| true)
}
