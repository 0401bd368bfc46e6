//! Interruptions and what follows: the same command continues, sends nothing again that was
//! verified, and ends with identical content and no leftovers.
//!
//! [`kills`] kills either side at random moments, [`network`] breaks connections, [`leftovers`]
//! interrupts in order or tampers with what an interruption left, [`quic`] does some of that to
//! copies by QUIC, [`rivals`] lets others use the same destination at the same time. No tree here
//! has holes: they are neither moved nor resumed, and the sums would not come out.

mod kills;
mod leftovers;
mod network;
mod quic;
mod rivals;

use crate::harness::{Done, Tree, assert_same, cp, journals, litter};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// What an interrupted run left at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    /// Bytes that are verified, written and journalled, of files that are not complete.
    journalled: u64,
    /// Complete files under their own names.
    in_place: u64,
}

impl Left {
    fn find(source: &Path, landed: &Path) -> Self {
        Self {
            journalled: journals(landed).iter().map(|journal| journal.bytes()).sum(),
            in_place: in_place(source, landed),
        }
    }
}

fn in_place(source: &Path, landed: &Path) -> u64 {
    let mut count = 0;
    for entry in fs::read_dir(source).unwrap().map(Result::unwrap) {
        let there = landed.join(entry.file_name());
        let (a, b) = (entry.metadata().unwrap(), fs::symlink_metadata(&there));
        if a.is_dir() {
            count += in_place(&entry.path(), &there);
        } else if let Ok(b) = b {
            let facts = |m: &fs::Metadata| (m.len(), m.mtime(), m.mtime_nsec());
            assert_eq!(facts(&a), facts(&b), "{} has its name too early", there.display());
            count += 1;
        }
    }
    count
}

/// Checks the run that followed an interruption that left `left`.
#[track_caller]
fn check_resumed(done: &Done, tree: &Tree, landed: &Path, left: Left) {
    let [bytes, resumed, skipped] = done.figures(["bytes", "resumed_bytes", "skipped_bytes"]);
    let skipped_files = done.figure("skipped_files");
    assert_same(&tree.path, landed);
    assert_eq!(bytes + resumed + skipped, tree.bytes, "after {left:?}");
    assert_eq!(Left { journalled: resumed, in_place: skipped_files }, left);
    assert_eq!(litter(landed), Vec::<std::path::PathBuf>::new());
}

/// A copy of a tree within the host.
fn within_the_host(tree: &Tree, into: &Path) -> Command {
    let mut command = cp();
    command.arg(&tree.path).arg(into);
    command
}
