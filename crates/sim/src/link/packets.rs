//! Packets on a link: their sizes, and their counters.

use bankfull_control::Bytes;
use std::time::Duration;

/// Segments that arrive at the port together: of equal size, except for the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Number of segments.
    pub segments: u32,
    /// Bytes on the line of each segment except the last, including headers.
    pub segment_bytes: u32,
    /// Bytes on the line of the last segment, including headers.
    pub last_bytes: u32,
}

impl Burst {
    /// Returns a burst of a single packet.
    #[must_use]
    pub const fn packet(bytes: u32) -> Self {
        Self { segments: 1, segment_bytes: bytes, last_bytes: bytes }
    }

    /// Returns the bytes on the line of a segment.
    #[must_use]
    pub const fn bytes_of(&self, segment: u32) -> u32 {
        if segment + 1 == self.segments { self.last_bytes } else { self.segment_bytes }
    }
}

/// Codepoint of explicit congestion notification (RFC 3168).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotCapable,
    /// ECN-capable, not marked.
    Capable,
    /// Congestion experienced.
    Marked,
}

/// Packets that are offered to a link together.
#[derive(Debug, Clone)]
pub struct Packets<T> {
    /// Sizes.
    pub burst: Burst,
    /// Content, which the link passes on.
    pub payload: T,
    /// Hash of the flow, by which a fair queue distinguishes flows.
    pub flow: u64,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// An acknowledgement that a later one of its flow may replace.
    pub is_pure_ack: bool,
    /// Maximum number of segments that arrive together.
    pub max_run: u32,
}

impl<T> Packets<T> {
    /// Returns packets that are not ECN-capable, and no acknowledgement.
    #[must_use]
    pub const fn new(burst: Burst, flow: u64, payload: T) -> Self {
        let (ecn, is_pure_ack, max_run) = (Ecn::NotCapable, false, u32::MAX);
        Self { burst, payload, flow, ecn, is_pure_ack, max_run }
    }
}

/// Segments of offered packets that arrive together at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival<T> {
    /// Content of the packets.
    pub payload: T,
    /// Index of the first segment.
    pub first: u32,
    /// Number of segments.
    pub count: u32,
    /// Arrival time of the last bit of the last segment.
    pub at: Duration,
    /// Congestion experienced: marked here or before.
    pub is_marked: bool,
}

/// Counters of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Segments that arrived at the port.
    pub offered: u64,
    /// Segments dropped because the queue was full.
    pub overflowed: u64,
    /// Segments dropped by the queueing discipline before the queue was full.
    pub early_dropped: u64,
    /// Segments marked by the queueing discipline.
    pub marked: u64,
    /// Segments dropped by the policer.
    pub policed: u64,
    /// Segments dropped because they were longer than the MTU.
    pub too_long: u64,
    /// Acknowledgements that a later one replaced.
    pub thinned_acks: u64,
    /// Segments lost on the line.
    pub lost: u64,
    /// Segments that arrive at the other end, without duplicates.
    pub delivered: u64,
    /// Segments that arrive twice.
    pub duplicated: u64,
    /// Bytes of delivered segments, including headers.
    pub delivered_bytes: Bytes,
    /// Cross traffic packets sent.
    pub cross_sent: u64,
    /// Cross traffic packets dropped by the queue.
    pub cross_overflowed: u64,
}

impl LinkCounts {
    /// Returns the segments that the port dropped on purpose: queue, discipline and policer.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.overflowed + self.early_dropped + self.policed
    }

    /// Adds the segments that an earlier port of the path dropped, lost and marked.
    pub fn add_losses(&mut self, earlier: &Self) {
        self.overflowed += earlier.overflowed;
        self.early_dropped += earlier.early_dropped;
        self.policed += earlier.policed;
        self.too_long += earlier.too_long;
        self.lost += earlier.lost;
        self.marked += earlier.marked;
    }

    pub(super) fn count_early_drop(&mut self, is_own: bool) {
        let counter = if is_own { &mut self.early_dropped } else { &mut self.cross_overflowed };
        *counter += 1;
    }
}
