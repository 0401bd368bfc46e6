//! Bytes of one connection: wanted, granted, received, and offered by its window.

use crate::units::Bytes;

/// Bytes of one connection.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The sender sends only what it was granted.
    pub(super) grant_driven: bool,
    /// Right edge of the offered window: the sender may have sent up to here.
    right_edge: u64,
    granted: u64,
    pub(super) received: u64,
    /// Bytes wanted beyond those granted.
    pub(super) demand: u64,
}

impl Ledger {
    /// Returns the ledger of a new connection, whose kernel offers a window.
    pub(super) fn new(grant_driven: bool, offered_window: Bytes) -> Self {
        Self { grant_driven, right_edge: offered_window.0, granted: 0, received: 0, demand: 0 }
    }

    /// Returns the bytes granted and not received; unlimited without grants.
    pub(super) fn outstanding(&self) -> u64 {
        if self.grant_driven { self.granted.saturating_sub(self.received) } else { u64::MAX }
    }

    /// Returns the bytes that the sender may still send within the offered window.
    pub(super) fn offered(&self) -> u64 {
        self.right_edge.saturating_sub(self.received)
    }

    /// Returns the byte count at which the next report is due.
    ///
    /// At that count, a grant may be due, all is received, or the offered window fits.
    pub(super) fn next_report_at(&self, thresholds: [u64; 2], window: u64) -> Option<u64> {
        let due =
            thresholds.into_iter().chain([0]).filter_map(|bytes| self.granted.checked_sub(bytes));
        let offsets = due.chain([self.right_edge.saturating_sub(window)]);
        offsets.filter(|&at| at > self.received).min()
    }

    /// Grants bytes.
    pub(super) fn grant(&mut self, bytes: u64) {
        self.granted += bytes;
        if self.demand != u64::MAX {
            self.demand -= bytes;
        }
    }

    /// Records the bytes received in total; returns the increase.
    pub(super) fn on_received(&mut self, received: u64, window: u64) -> u64 {
        let more = received.saturating_sub(self.received);
        if self.received == 0 {
            // The offered window is assumed to keep its initial size until reported.
            self.right_edge += more;
        }
        self.received += more;
        self.on_window_offered(window);
        more
    }

    /// Records the window offered now.
    pub(super) fn on_window_offered(&mut self, window: u64) {
        self.right_edge = self.right_edge.max(self.received + window);
    }
}
