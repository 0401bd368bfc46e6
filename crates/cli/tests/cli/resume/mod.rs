//! Interruptions: the same command resumes, sends no verified data again, and ends with identical
//! content and no leftovers.
//!
//! [`kills`] kills either side at random moments, [`network`] breaks connections, [`leftovers`]
//! interrupts in order or after a power loss, [`damage`] changes what was left, [`quic`] interrupts
//! copies over QUIC, [`reconnect`] loses sessions of a running command, [`concurrent`] runs
//! concurrent copies. The trees have no holes, which are
//! neither sent nor resumed and would distort the sums.

mod concurrent;
mod damage;
mod kills;
mod leftovers;
mod network;
mod quic;
mod reconnect;

use crate::harness::{Done, Tree, assert_same, cp, journals, litter};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// State of the destination after an interrupted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    /// Verified, written and journalled bytes of incomplete files.
    journalled: u64,
    /// Complete files under their final names.
    in_place: u64,
}

impl Left {
    fn find(source: &Path, copied_to: &Path) -> Self {
        Self {
            journalled: journals(copied_to).iter().map(|journal| journal.bytes()).sum(),
            in_place: in_place(source, copied_to),
        }
    }
}

fn in_place(source: &Path, copied_to: &Path) -> u64 {
    let mut count = 0;
    for entry in fs::read_dir(source).unwrap().map(Result::unwrap) {
        let there = copied_to.join(entry.file_name());
        let (a, b) = (entry.metadata().unwrap(), fs::symlink_metadata(&there));
        if a.is_dir() {
            count += in_place(&entry.path(), &there);
        } else if let Ok(b) = b {
            let facts = |m: &fs::Metadata| (m.len(), m.mtime(), m.mtime_nsec());
            assert_eq!(facts(&a), facts(&b), "{} was renamed too early", there.display());
            count += 1;
        }
    }
    count
}

/// Checks the run after an interruption that left `left`.
#[track_caller]
fn check_resumed(done: &Done, tree: &Tree, copied_to: &Path, left: Left) {
    let [bytes, resumed, skipped] = done.figures(["bytes", "resumed_bytes", "skipped_bytes"]);
    let skipped_files = done.figure("skipped_files");
    assert_same(&tree.path, copied_to);
    assert_eq!(bytes + resumed + skipped, tree.bytes, "after {left:?}");
    assert_eq!(Left { journalled: resumed, in_place: skipped_files }, left);
    assert_eq!(litter(copied_to), Vec::<std::path::PathBuf>::new());
}

/// Returns a local copy of a tree.
fn local_copy(tree: &Tree, into: &Path) -> Command {
    let mut command = cp();
    command.arg(&tree.path).arg(into);
    command
}
