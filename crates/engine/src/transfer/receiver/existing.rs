//! Existing entries, as the rules for announced ones see them.

use bankfull_proto::plan::Existing;
use bankfull_proto::wire::control::{Cause, EntryKind, Failure};
use bankfull_sys::{FileKind, Stat};
use std::path::Path;

/// Returns what the rules need to know of an existing entry.
pub(super) fn existing_of(stat: &Stat) -> Existing {
    Existing {
        kind: match stat.kind {
            FileKind::File => Some(EntryKind::File),
            FileKind::Dir => Some(EntryKind::Dir),
            FileKind::Symlink => Some(EntryKind::Symlink),
            FileKind::Other => None,
        },
        size: stat.size,
        mtime_secs: stat.mtime.secs,
        mtime_nanos: stat.mtime.nanos,
    }
}

/// Returns the failure of an entry in whose place another one stays.
///
/// `what` is the kind of the entry, and `shown` its path.
pub(super) fn in_the_way(existing: FileKind, what: &str, shown: &Path) -> Failure {
    let (obstacle, cause) = match existing {
        FileKind::Dir => ("a directory", Cause::IsADirectory),
        _ => ("a device, FIFO or socket", Cause::Usage),
    };
    let shown = shown.display();
    let text = format!("{obstacle} is in the way of the {what} {shown}: remove or rename it");
    Failure::new(cause, text)
}
