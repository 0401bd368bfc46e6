//! What a session counts, of all and of single files. It adds up; what is made of it is said in
//! `session.rs`.

use crate::net::control::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts of a session, for progress and summary.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) files_total: AtomicU64,
    pub(crate) bytes_total: AtomicU64,
    pub(crate) total_is_final: AtomicBool,
    pub(crate) dirs: AtomicU64,
    pub(crate) symlinks: AtomicU64,
    pub(crate) symlinks_created: AtomicU64,
    pub(crate) special_files_skipped: AtomicU64,
    pub(crate) files_copied: AtomicU64,
    pub(crate) bytes_moved: AtomicU64,
    pub(crate) bytes_resumed: AtomicU64,
    pub(crate) bytes_holes: AtomicU64,
    /// Of those that were moved: of files that changed meanwhile, and had to be read again.
    pub(crate) bytes_void: AtomicU64,
    pub(crate) files_skipped: AtomicU64,
    pub(crate) bytes_skipped: AtomicU64,
    pub(crate) planned: AtomicU64,
    pub(crate) bytes_planned: AtomicU64,
    pub(crate) files_failed: AtomicU64,
    pub(crate) files_vanished: AtomicU64,
    pub(crate) wire_bytes: AtomicU64,
    pub(crate) retransmits: AtomicU64,
    pub(crate) streams: AtomicU64,
}

/// What counts of a file while it is on its way, so that it can be taken back.
#[derive(Debug, Default)]
pub(crate) struct Account(Mutex<Booked>);

#[derive(Debug, Default)]
struct Booked {
    /// Bytes, in the order of [`Came`].
    bytes: [u64; 3],
    /// It was taken back: what comes late does not count.
    is_void: bool,
}

/// How bytes of a file have come to be at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    Moved,
    Resumed,
    AsHoles,
}

impl Counts {
    /// Bytes of a file are at the destination.
    pub(crate) fn book(&self, account: &Account, came: Came, bytes: u64) {
        let mut booked = lock(&account.0);
        if !booked.is_void {
            booked.bytes[came as usize] += bytes;
            add(self.counter(came), bytes);
        }
    }

    /// What has come of a file is nothing.
    pub(crate) fn take_back(&self, account: &Account) {
        let mut booked = lock(&account.0);
        booked.is_void = true;
        let [moved, resumed, holes] = std::mem::take(&mut booked.bytes);
        // What was moved stays moved: rates are differences of that.
        add(&self.bytes_void, moved);
        self.bytes_resumed.fetch_sub(resumed, Ordering::Relaxed);
        self.bytes_holes.fetch_sub(holes, Ordering::Relaxed);
    }

    fn counter(&self, came: Came) -> &AtomicU64 {
        match came {
            Came::Moved => &self.bytes_moved,
            Came::Resumed => &self.bytes_resumed,
            Came::AsHoles => &self.bytes_holes,
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
    fn what_came_of_a_file_that_changed_is_taken_back_and_what_comes_late_does_not_count() {
        let (counts, file, other) = (Counts::default(), Account::default(), Account::default());
        for (account, came, bytes) in [
            (&file, Came::Moved, 10),
            (&file, Came::Resumed, 20),
            (&file, Came::AsHoles, 40),
            (&other, Came::Moved, 1),
            (&other, Came::Resumed, 2),
        ] {
            counts.book(account, came, bytes);
        }
        counts.take_back(&file);
        counts.book(&file, Came::Moved, 100);
        counts.take_back(&file);
        let counters =
            [&counts.bytes_moved, &counts.bytes_void, &counts.bytes_resumed, &counts.bytes_holes];
        assert_eq!(counters.map(read), [11, 10, 2, 0]);
    }
}
