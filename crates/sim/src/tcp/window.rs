//! Congestion window, and the acknowledgements that change it.

use std::time::Duration;

/// Initial window in segments (RFC 6928; TCP_INIT_CWND, include/net/tcp.h).
pub const INITIAL_WINDOW: u64 = 10;

/// Progress reported by an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckProgress {
    pub(crate) now: Duration,
    /// Segments newly known to be delivered.
    pub(crate) segments: u64,
    /// Min RTT.
    pub(crate) min_rtt: Duration,
    /// Segments in flight.
    pub(crate) in_flight: u64,
    /// The congestion window was the limit.
    pub(crate) is_window_limited: bool,
}

/// Window and slow start threshold in segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) size: f64,
    pub(crate) threshold: f64,
}
