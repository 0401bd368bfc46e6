//! A file that is being received.

use super::earlier_copy::EarlierCopy;
use super::part_file::PartFile;
use crate::file_io::storage_quota::Reservation;
use crate::stats::counters::FileStats;
use bankfull_proto::blocks::Layout;
use bankfull_proto::wire::control::{Differences, Entry};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// A file that is being received.
#[derive(Debug)]
pub(crate) struct IncomingFile {
    pub(crate) entry: Entry,
    /// Number of its directory.
    pub(crate) dir: u64,
    /// Name in that directory.
    pub(crate) name: OsString,
    /// Differences from what is in its place; `None` if the user does not ask.
    pub(crate) differences: Option<Differences>,
    /// True if it is a link to an earlier copy, whose metadata stays.
    pub(crate) is_linked: bool,
    /// Files whose content is compared with the source's.
    pub(crate) compared: ComparedFile,
    pub(crate) stats: FileStats,
    pub(crate) part: Mutex<PartSlot>,
    /// Space in the quota of the share, once it is reserved.
    pub(crate) reservation: OnceLock<Reservation>,
    /// Size of an open-ended file, once it is known.
    end: OnceLock<u64>,
    /// True once its part file is a clone of the source, within a host.
    pub(crate) is_cloned: Mutex<bool>,
}

/// Files whose content is compared with the source's.
///
/// The one that is there, and an earlier copy that may take its place.
#[derive(Debug, Default)]
pub(crate) struct ComparedFile {
    pub(crate) earlier: Option<EarlierCopy>,
    /// True if the existing file is compared, too; without an earlier copy it is in any case.
    pub(crate) with_existing: bool,
    /// True if the existing file is compared where the contents of both differ.
    pub(crate) prefers_existing: bool,
    /// True if the content of the earlier copy was compared.
    is_earlier: AtomicBool,
}

impl ComparedFile {
    /// Returns a comparison with an earlier copy.
    ///
    /// `with_existing` tells if the existing file is compared, too, and `has_time` if it has the
    /// time of the source.
    pub(crate) fn with_earlier(earlier: EarlierCopy, with_existing: bool, has_time: bool) -> Self {
        let earlier = Some(earlier);
        Self {
            earlier,
            with_existing,
            prefers_existing: has_time,
            is_earlier: AtomicBool::default(),
        }
    }

    /// Records that the content of the earlier copy is compared.
    pub(crate) fn choose_earlier(&self) {
        self.is_earlier.store(true, Ordering::Relaxed);
    }

    /// Returns the earlier copy, if its content was compared.
    pub(crate) fn chosen(&self) -> Option<&EarlierCopy> {
        self.earlier.as_ref().filter(|_| self.is_earlier.load(Ordering::Relaxed))
    }
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
        let (differences, is_linked, compared) = Default::default();
        let (stats, part, reservation, end, is_cloned) = Default::default();
        let dir = entry.parent;
        Self {
            entry,
            dir,
            name,
            differences,
            is_linked,
            compared,
            stats,
            part,
            reservation,
            end,
            is_cloned,
        }
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
