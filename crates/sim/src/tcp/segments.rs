//! Segments and acknowledgements as they travel.

use crate::link::Burst;
use std::time::Duration;

/// Payload bytes of a full segment until the path MTU falls.
///
/// An Ethernet MTU without IPv4 header (20), TCP header (20) and timestamps (12).
pub const MSS: u64 = 1448;

/// Header bytes of each segment on the line: the 52 that [`MSS`] excludes.
pub const HEADER_BYTES: u32 = 52;

/// Maximum advertised window: 65 535 shifted by 14 (RFC 7323 §2.3).
pub const MAX_WINDOW: u64 = 65_535 << 14;

/// Consecutive segments sent together: a super-packet, or the part of one that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segments {
    /// Number of the first transmission; the others follow.
    pub(crate) number: u64,
    /// First byte.
    pub(crate) start: u64,
    /// End of the range (exclusive).
    pub(crate) end: u64,
    /// Payload bytes of each segment; only the last one may be smaller.
    pub(crate) mss: u64,
}

impl Segments {
    /// Returns the number of segments.
    pub(crate) fn count(&self) -> u64 {
        (self.end - self.start).div_ceil(self.mss)
    }

    /// Returns the payload bytes of the largest segment.
    pub(crate) fn largest(&self) -> u64 {
        self.mss.min(self.end - self.start)
    }

    /// Splits off and returns the first `count` segments.
    pub(crate) fn split_off_first(&mut self, count: u64) -> Self {
        let middle = self.end.min(self.start + count * self.mss);
        let first = Self { end: middle, ..*self };
        self.start = middle;
        self.number += count;
        first
    }

    /// Returns the burst of these segments on the line.
    pub(crate) fn burst(&self) -> Burst {
        let count = self.count();
        let last = self.end - self.start - count.saturating_sub(1) * self.mss;
        Burst {
            segments: count as u32,
            segment_bytes: self.mss as u32 + HEADER_BYTES,
            last_bytes: last as u32 + HEADER_BYTES,
        }
    }

    /// Returns the segments of a run.
    pub(crate) fn in_run(&self, first: u32, count: u32) -> Self {
        let mut rest = *self;
        rest.split_off_first(u64::from(first));
        rest.split_off_first(u64::from(count))
    }
}

/// Acknowledgement.
///
/// The sender queries the receiver for the transmissions that had arrived, as if there were space
/// for any number of SACK and DSACK blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    /// First byte that has not arrived.
    pub(crate) next: u64,
    /// Number of segments that have arrived, including duplicates.
    pub(crate) arrivals: u64,
    /// Number of the transmission that arrived at the left edge, as its echoed timestamp tells.
    pub(crate) echo: u64,
    /// A segment experienced congestion, and the sender has not confirmed it (ECE, RFC 3168 §6.1).
    pub(crate) has_echo_of_mark: bool,
    /// Arrival time of the latest segment, as for one-way delays (RFC 6817 §2.4.1).
    pub(crate) arrived_at: Duration,
    /// Right edge of the receive window: first byte that must not be sent.
    pub(crate) right_edge: u64,
}
