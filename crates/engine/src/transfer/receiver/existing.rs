//! Existing entries, as the rules for announced ones see them.

use bankfull_proto::plan::Existing;
use bankfull_proto::wire::control::EntryKind;
use bankfull_sys::{FileKind, Stat};

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
