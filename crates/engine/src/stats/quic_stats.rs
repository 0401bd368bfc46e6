//! Transport statistics of a QUIC connection.

use bankfull_control::Bytes;
use bankfull_control::rrda::Reason;
use std::time::{Duration, Instant};

/// Statistics of one connection with all its streams. Counts are from its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QuicStats {
    /// Smoothed RTT.
    pub(crate) rtt: Duration,
    /// UDP payload sent, in bytes.
    pub(crate) sent: u64,
    /// UDP payload received, in bytes.
    pub(crate) received: u64,
    /// Bytes of packets declared lost.
    pub(crate) lost: u64,
    /// Packets declared lost.
    pub(crate) lost_packets: u64,
    /// Path MTU: the size limit of a UDP payload now.
    pub(crate) segment: Bytes,
    /// Receive window and send window.
    pub(crate) windows: (Bytes, Bytes),
    /// Last change of the UDP socket's receive buffer.
    pub(crate) udp_buffer_change: Option<BufferChange>,
}

/// Change of a receive buffer's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferChange {
    pub(crate) at: Instant,
    pub(crate) size: Bytes,
    pub(crate) reason: Reason,
}

/// Statistics of successive connections, each of which replaces a lost one.
#[derive(Debug, Default)]
pub(crate) struct Cumulative {
    before: QuicStats,
    last: QuicStats,
}

impl Cumulative {
    /// Records the statistics of the present connection; a lower `sent` marks a new one.
    pub(crate) fn record(&mut self, stats: QuicStats) {
        if stats.sent < self.last.sent {
            self.before = self.total();
        }
        self.last = stats;
    }

    /// Returns the counts of all connections together, and RTT and MTU of the last one.
    pub(crate) fn total(&self) -> QuicStats {
        let (before, last) = (self.before, self.last);
        QuicStats {
            sent: before.sent + last.sent,
            received: before.received + last.received,
            lost: before.lost + last.lost,
            lost_packets: before.lost_packets + last.lost_packets,
            ..last
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cumulative_counts_span_reconnects() {
        let stats = |sent, lost_packets| QuicStats { sent, lost_packets, ..QuicStats::default() };
        let mut cumulative = Cumulative::default();
        for (stats, total) in [(stats(10, 1), 10), (stats(20, 2), 20), (stats(5, 0), 25)] {
            cumulative.record(stats);
            assert_eq!(cumulative.total().sent, total);
        }
        assert_eq!(cumulative.total().lost_packets, 2);
    }
}
