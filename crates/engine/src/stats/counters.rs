//! Counters of a session and of its files. `session_stats.rs` derives progress and summary.

use crate::base::sync::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters of a session.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) files_total: AtomicU64,
    pub(crate) bytes_total: AtomicU64,
    pub(crate) total_is_final: AtomicBool,
    pub(crate) dirs: AtomicU64,
    pub(crate) symlinks: AtomicU64,
    pub(crate) symlinks_created: AtomicU64,
    pub(crate) special_files: AtomicU64,
    pub(crate) special_files_skipped: AtomicU64,
    /// Further names of files and other entries.
    pub(crate) hard_links: AtomicU64,
    pub(crate) dirs_created: AtomicU64,
    pub(crate) hard_links_created: AtomicU64,
    pub(crate) special_files_created: AtomicU64,
    /// Files that became hard links to earlier copies.
    pub(crate) files_linked: AtomicU64,
    pub(crate) bytes_linked: AtomicU64,
    pub(crate) files_copied: AtomicU64,
    /// Bytes of the copied files.
    pub(crate) bytes_copied: AtomicU64,
    pub(crate) bytes_moved: AtomicU64,
    /// Bytes that the data streams have carried, as last sampled.
    pub(crate) bytes_carried: AtomicU64,
    pub(crate) bytes_resumed: AtomicU64,
    /// Bytes of an earlier run that are being checked.
    pub(crate) bytes_unchecked: AtomicU64,
    /// Bytes of an earlier run that were damaged, and are sent again.
    pub(crate) bytes_damaged: AtomicU64,
    pub(crate) bytes_holes: AtomicU64,
    /// Part of `bytes_moved`: bytes of files that changed meanwhile and had to be read again.
    pub(crate) bytes_discarded: AtomicU64,
    pub(crate) files_skipped: AtomicU64,
    pub(crate) bytes_skipped: AtomicU64,
    pub(crate) files_left_out: AtomicU64,
    pub(crate) bytes_left_out: AtomicU64,
    pub(crate) planned: AtomicU64,
    pub(crate) bytes_planned: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) is_delete_limited: AtomicBool,
    pub(crate) files_failed: AtomicU64,
    pub(crate) files_vanished: AtomicU64,
    pub(crate) wire_bytes: AtomicU64,
    pub(crate) retransmits: AtomicU64,
    pub(crate) streams: AtomicU64,
}

/// Bytes counted for an outstanding file, so that they can be discarded.
#[derive(Debug, Default)]
pub(crate) struct FileStats(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// Indexed by [`ByteSource`].
    bytes: [u64; 4],
    /// True after a failed check.
    is_damaged: bool,
    /// The file was discarded: late bytes do not count.
    is_discarded: bool,
}

/// Origin of a file's bytes at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteSource {
    Transferred,
    /// Left by an earlier run.
    Resumed,
    Holes,
    /// Left by an earlier run, and being checked.
    Unchecked,
}

impl Counts {
    /// Records bytes of a file at the destination.
    pub(crate) fn record(&self, file: &FileStats, source: ByteSource, bytes: u64) {
        let mut counted = lock(&file.0);
        if !counted.is_discarded {
            counted.bytes[source as usize] += bytes;
            add(self.counter(source), bytes);
        }
    }

    /// Moves bytes of an earlier run out of the check. True for the first damaged ones of a file.
    pub(crate) fn settle_check(&self, file: &FileStats, bytes: u64, is_intact: bool) -> bool {
        let is_first = {
            let mut counted = lock(&file.0);
            // Within a host and after a failure none are counted.
            let unchecked = &mut counted.bytes[ByteSource::Unchecked as usize];
            let settled = bytes.min(*unchecked);
            *unchecked -= settled;
            self.bytes_unchecked.fetch_sub(settled, Ordering::Relaxed);
            !is_intact && !std::mem::replace(&mut counted.is_damaged, true)
        };
        match is_intact {
            true => self.record(file, ByteSource::Resumed, bytes),
            false => add(&self.bytes_damaged, bytes),
        }
        is_first
    }

    /// Ends the check of a file that is not outstanding any more.
    pub(crate) fn end_check(&self, file: &FileStats) {
        let unchecked = std::mem::take(&mut lock(&file.0).bytes[ByteSource::Unchecked as usize]);
        self.bytes_unchecked.fetch_sub(unchecked, Ordering::Relaxed);
    }

    /// Discards the bytes of a file that changed.
    pub(crate) fn discard(&self, file: &FileStats) {
        let mut counted = lock(&file.0);
        counted.is_discarded = true;
        let [transferred, resumed, holes, unchecked] = std::mem::take(&mut counted.bytes);
        // `bytes_moved` never falls, because rates are its differences.
        add(&self.bytes_discarded, transferred);
        self.bytes_resumed.fetch_sub(resumed, Ordering::Relaxed);
        self.bytes_holes.fetch_sub(holes, Ordering::Relaxed);
        self.bytes_unchecked.fetch_sub(unchecked, Ordering::Relaxed);
    }

    fn counter(&self, source: ByteSource) -> &AtomicU64 {
        match source {
            ByteSource::Transferred => &self.bytes_moved,
            ByteSource::Resumed => &self.bytes_resumed,
            ByteSource::Holes => &self.bytes_holes,
            ByteSource::Unchecked => &self.bytes_unchecked,
        }
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Reads a counter.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_file_bytes_do_not_count_even_late() {
        let (counts, file, other) = (Counts::default(), FileStats::default(), FileStats::default());
        for (file, source, bytes) in [
            (&file, ByteSource::Transferred, 10),
            (&file, ByteSource::Resumed, 20),
            (&file, ByteSource::Holes, 40),
            (&other, ByteSource::Transferred, 1),
            (&other, ByteSource::Resumed, 2),
        ] {
            counts.record(file, source, bytes);
        }
        counts.discard(&file);
        counts.record(&file, ByteSource::Transferred, 100);
        counts.discard(&file);
        let counters = [
            &counts.bytes_moved,
            &counts.bytes_discarded,
            &counts.bytes_resumed,
            &counts.bytes_holes,
        ];
        assert_eq!(counters.map(read), [11, 10, 2, 0]);
    }
}
