//! Totals of the sessions that a transfer has lost. Its summary includes them.

use super::counters::{Counts, read};
use crate::base::event::Summary;
use crate::base::sync::lock;
use bankfull_control::Bytes;
use std::sync::Mutex;

/// Sum over the lost sessions of a transfer.
#[derive(Debug, Default)]
pub(crate) struct LostSessions(Mutex<SessionTotals>);

/// Totals that the summary of a later session lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SessionTotals {
    files: u64,
    /// Bytes of these files. A later session finds them unchanged.
    copied_bytes: u64,
    symlinks_created: u64,
    bytes: u64,
    damaged_bytes: u64,
    wire_bytes: u64,
    retransmits: u64,
}

impl SessionTotals {
    /// Returns the totals of a session.
    pub(crate) fn of(counts: &Counts) -> Self {
        Self {
            files: read(&counts.files_copied),
            copied_bytes: read(&counts.bytes_copied),
            symlinks_created: read(&counts.symlinks_created),
            bytes: read(&counts.bytes_moved).saturating_sub(read(&counts.bytes_discarded)),
            damaged_bytes: read(&counts.bytes_damaged),
            wire_bytes: read(&counts.wire_bytes),
            retransmits: read(&counts.retransmits),
        }
    }

    /// Verified bytes, and completed files and symlinks: what a session has achieved.
    pub(crate) fn achieved(&self) -> u64 {
        self.bytes + self.files + self.symlinks_created
    }

    /// Adds the totals to the summary of the last session.
    ///
    /// Files and bytes of the lost sessions count as neither unchanged nor resumed.
    pub(crate) fn complete(&self, last: Summary) -> Summary {
        let from_here = |bytes: Bytes, achieved: u64| Bytes(bytes.0.saturating_sub(achieved));
        Summary {
            files: last.files + self.files,
            symlinks_created: last.symlinks_created + self.symlinks_created,
            bytes: last.bytes + Bytes(self.bytes),
            wire_bytes: last.wire_bytes + Bytes(self.wire_bytes),
            retransmits: last.retransmits + self.retransmits,
            damaged_bytes: last.damaged_bytes + Bytes(self.damaged_bytes),
            skipped_files: last.skipped_files.saturating_sub(self.files),
            skipped_bytes: from_here(last.skipped_bytes, self.copied_bytes),
            // With --ignore-existing, the last session leaves out what the others copied.
            left_out_files: last
                .left_out_files
                .saturating_sub(self.files.saturating_sub(last.skipped_files)),
            left_out_bytes: from_here(
                last.left_out_bytes,
                self.copied_bytes.saturating_sub(last.skipped_bytes.0),
            ),
            resumed_bytes: from_here(
                last.resumed_bytes,
                self.bytes.saturating_sub(self.copied_bytes),
            ),
            ..last
        }
    }
}

impl LostSessions {
    /// Adds a session.
    pub(crate) fn add(&self, session: &SessionTotals) {
        let mut total = lock(&self.0);
        total.files += session.files;
        total.copied_bytes += session.copied_bytes;
        total.symlinks_created += session.symlinks_created;
        total.bytes += session.bytes;
        total.damaged_bytes += session.damaged_bytes;
        total.wire_bytes += session.wire_bytes;
        total.retransmits += session.retransmits;
    }

    /// Returns the sum.
    pub(crate) fn total(&self) -> SessionTotals {
        *lock(&self.0)
    }
}
