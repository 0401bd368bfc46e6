//! A file that is being received.

use super::part_file::PartFile;
use crate::stats::counters::FileStats;
use bankfull_proto::blocks::Layout;
use bankfull_proto::wire::control::{Differences, Entry};
use std::ffi::OsString;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// A file that is being received.
#[derive(Debug)]
pub(crate) struct IncomingFile {
    pub(crate) entry: Entry,
    /// Number of its directory.
    pub(crate) dir: u64,
    /// Name in that directory.
    pub(crate) name: OsString,
    /// Differences from what is in its place; `None` if the user does not ask for them.
    pub(crate) differences: Option<Differences>,
    pub(crate) stats: FileStats,
    pub(crate) part: Mutex<PartSlot>,
    /// Size of an open-ended file, once it is known.
    end: OnceLock<u64>,
}

/// State of a file's part file in this session.
#[derive(Debug, Default)]
pub(crate) struct PartSlot {
    pub(crate) open: Option<Arc<PartFile>>,
    /// Closed part file, which a stream's thread may still use.
    pub(crate) closed: Weak<PartFile>,
    /// True if the part file exists, with a journal for this version of the source.
    pub(crate) exists: bool,
}

impl IncomingFile {
    /// Returns an announced file with its name at the destination.
    pub(crate) fn new(entry: Entry, name: OsString) -> Self {
        let (stats, part, end) = Default::default();
        Self { dir: entry.parent, name, entry, differences: None, stats, part, end }
    }

    /// Sets the size of an open-ended file.
    pub(crate) fn set_end(&self, size: u64) {
        let _ = self.end.set(size);
    }

    /// Returns the size of an open-ended file, if it is known.
    pub(crate) fn end(&self) -> Option<u64> {
        self.end.get().copied()
    }

    /// Returns the size; of an open-ended file, an upper bound until it is known.
    pub(crate) fn size(&self) -> u64 {
        self.end().unwrap_or(self.entry.size)
    }

    /// Returns the block layout; `None` for a file that is sent in a pack.
    pub(crate) fn layout(&self) -> Option<Layout> {
        Layout::new(self.entry.size, self.entry.block_bytes).ok()
    }

    /// Returns the length of a block in bytes.
    pub(crate) fn block_len(&self, index: u64) -> u64 {
        self.layout().map_or(0, |layout| layout.block_len(index))
    }
}
