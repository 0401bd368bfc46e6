//! Removal of source files that the receiver has, once it is done.

use super::files::version_of;
use crate::base::error::failure;
use crate::base::sync::lock;
use crate::file_io::root::PathRoot;
use bankfull_proto::wire::control::{Cause, Failure};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Failures that are reported to the receiver, one message each; the rest are counted. (chosen: a
/// user reads no more, and the connection can buffer them even if the receiver does not read)
const MAX_REPORTED: usize = 1000;

/// Source files that the receiver has.
#[derive(Debug, Default)]
pub(super) struct Removal {
    received: Mutex<Vec<Received>>,
    /// True after a failure at the destination that may concern any of them.
    keeps_all: AtomicBool,
}

#[derive(Debug)]
struct Received {
    path: PathBuf,
    /// Version that was copied.
    version: u64,
}

impl Removal {
    /// Records a file that the receiver has.
    pub(super) fn add(&self, path: PathBuf, version: u64) {
        lock(&self.received).push(Received { path, version });
    }

    /// Keeps all files after a failure: the destination may lack metadata, or not be on the disk.
    pub(super) fn on_problem(&self, failure: &Failure) {
        if failure.cause() != Cause::Warning {
            self.keeps_all.store(true, Ordering::Relaxed);
        }
    }

    /// Removes the files that have not changed since, except special ones, until a stop.
    ///
    /// `report` is called for each failure and warning, `tell` for those that the receiver learns
    /// of.
    pub(super) fn run(
        &self,
        root: &PathRoot,
        is_stopped: impl Fn() -> bool,
        report: impl Fn(PathBuf, &Failure),
        tell: impl Fn(PathBuf, Failure),
    ) {
        let received = std::mem::take(&mut *lock(&self.received));
        if self.keeps_all.load(Ordering::Relaxed) {
            if !received.is_empty() {
                let kept = Failure::new(Cause::Warning, kept_text(received.len()));
                report(PathBuf::new(), &kept);
                tell(PathBuf::new(), kept);
            }
            return;
        }
        let (mut failed, mut unlinked) = (0, HashMap::new());
        let mut fail = |path: PathBuf, failure: Failure| {
            report(path.clone(), &failure);
            failed += 1;
            if failed <= MAX_REPORTED {
                tell(path, failure);
            }
        };
        let count = received.len();
        for (done, Received { path, version }) in received.into_iter().enumerate() {
            if is_stopped() {
                let text = format!(
                    "--remove-source-files: {} source files stay, as the session ended: run the \
                     copy again",
                    count - done
                );
                fail(PathBuf::new(), Failure::new(Cause::Other, text));
                break;
            }
            match remove(root, &path, version, &mut unlinked) {
                Ok(true) => {}
                Ok(false) => {
                    let text = format!("{} changed after its copy: it stays", path.display());
                    fail(path, Failure::new(Cause::SourceChanged, text));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    let failure = failure(format!("cannot remove {}", path.display()), &e);
                    fail(path, failure);
                }
            }
        }
        if let Some(more @ 1..) = failed.checked_sub(MAX_REPORTED) {
            let text = format!("{more} further sources could not be removed: see the peer's log");
            tell(PathBuf::new(), Failure::new(Cause::Other, text));
        }
    }
}

fn kept_text(count: usize) -> String {
    let files = if count == 1 { "file stays" } else { "files stay" };
    format!(
        "--remove-source-files: {count} source {files}, as the destination reported failures: fix \
         these and run the copy again, with --checksum if a disk was not flushed"
    )
}

/// Removes a file; returns false if it is another version.
///
/// `unlinked` maps versions of inodes to those that the removal of a name has made of them.
fn remove(
    root: &PathRoot,
    path: &Path,
    version: u64,
    unlinked: &mut HashMap<u64, u64>,
) -> io::Result<bool> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = path.parent().unwrap_or(Path::new(""));
    let dir = root.open_dir(root.path_to_open(above))?;
    let stat = dir.stat(name)?;
    if version_of(&stat) != *unlinked.get(&version).unwrap_or(&version) {
        return Ok(false);
    }
    // A receiver that may not create special files skips them, as it does unchanged ones.
    if stat.special.is_some() {
        return Ok(true);
    }
    let inode = if stat.nlink > 1 { Some(dir.open_path(name)?) } else { None };
    dir.unlink(name)?;
    if let Some(inode) = inode {
        unlinked.insert(version, version_of(&bankfull_sys::stat_file(&inode)?));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_ends_with_a_stop() {
        let here = tempfile::tempdir().unwrap();
        let (removal, removed) = (Removal::default(), std::cell::Cell::new(0));
        for number in 0..10 {
            removal.add(here.path().join(number.to_string()).join("missing"), 1);
        }
        let said = std::cell::RefCell::new(Vec::new());
        let report = |_: PathBuf, failure: &Failure| said.borrow_mut().push(failure.text.clone());
        let is_stopped = || removed.replace(removed.get() + 1) == 3;
        removal.run(&PathRoot::Host, is_stopped, report, |_, _| ());
        assert_eq!(removed.get(), 4, "checks");
        let said = said.into_inner();
        assert!(said.len() == 1 && said[0].contains(": 7 source files stay"), "{said:?}");
    }
}
