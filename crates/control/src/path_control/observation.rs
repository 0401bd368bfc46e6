//! Input of a controller: what a transfer shows of its path.

use crate::bottleneck::Bottleneck;
use crate::units::Bytes;
use std::time::Duration;

/// Interval of observations and of probes. (SOBAS paper §IV.B: 10 ms)
pub const TICK: Duration = Duration::from_millis(10);

/// Min RTT from which every second tick suffices to sample the streams.
///
/// Two RTTs then have three samples. (measured: docs/algorithms/delay.md §3)
pub const SPARSE_SAMPLING_RTT: Duration = TICK.saturating_mul(3);

/// Input of the controller at a tick. Counters are cumulative.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Observation {
    /// Time since the start of the transfer.
    pub now: Duration,
    /// Current number of data streams.
    pub streams: u32,
    /// Data received in order on all streams.
    pub received: Bytes,
    /// Latest RTT of a probe; `None` if none arrived since the last tick.
    pub rtt: Option<Duration>,
    /// Forward delay of the same probe, from an arbitrary origin.
    pub forward_delay: Option<Duration>,
    /// Min RTT of TCP.
    pub tcp_min_rtt: Option<Duration>,
    /// Smoothed RTT of TCP, the shortest of all streams.
    pub tcp_rtt: Option<Duration>,
    /// Probes lost in the direction of the data.
    pub probes_lost: u64,
    /// Segments retransmitted by the sender on all streams.
    pub retransmits: u64,
    /// Payload of a full segment; zero if unknown.
    pub mss: Bytes,
    /// Current bottleneck.
    pub bottleneck: Bottleneck,
}
