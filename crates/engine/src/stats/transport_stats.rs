//! Transport statistics of a session's data streams.

use super::quic_stats::{BufferChange, QuicStats};
use bankfull_control::Bytes;
use bankfull_sys::TcpInfo;
use std::time::Duration;

/// Counters and RTTs of data streams, as TCP or QUIC reports them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TransportStats {
    /// True if QUIC carries the data streams.
    pub(crate) is_quic: bool,
    /// Bytes received, and bytes that the peer has acknowledged.
    pub(crate) received: u64,
    pub(crate) acked: u64,
    /// Retransmitted segments, or lost packets of QUIC.
    pub(crate) retransmits: u64,
    /// Spurious retransmissions among them.
    pub(crate) spurious_retransmits: u64,
    /// Smallest min RTT of a TCP stream.
    pub(crate) min_rtt: Option<Duration>,
    /// Smoothed RTT of a QUIC connection.
    pub(crate) quic_smoothed_rtt: Option<Duration>,
    /// Receive window and send window of a QUIC connection.
    pub(crate) quic_windows: Option<(Bytes, Bytes)>,
    /// Last change of the receive buffer of QUIC's UDP socket.
    pub(crate) udp_buffer_change: Option<BufferChange>,
    /// Largest MSS of a stream, or QUIC packet size; zero if unknown.
    pub(crate) mss: Bytes,
}

impl TransportStats {
    /// Adds a TCP stream.
    pub(crate) fn add_tcp(&mut self, info: &TcpInfo) {
        self.received += info.bytes_received.unwrap_or_default();
        self.acked += info.bytes_acked.unwrap_or_default();
        self.retransmits += u64::from(info.total_retrans);
        self.spurious_retransmits += u64::from(info.dsack_dups.unwrap_or_default());
        let min_rtt = info.min_rtt.filter(|rtt| !rtt.is_zero());
        self.min_rtt = self.min_rtt.into_iter().chain(min_rtt).min();
        self.mss = self.mss.max(Bytes(info.snd_mss.into()));
    }

    /// Adds the QUIC connections.
    pub(crate) fn add_quic(&mut self, stats: &QuicStats) {
        // Sessions over TCP have empty ones.
        self.is_quic |= stats.received + stats.sent > 0;
        self.received += stats.received;
        self.acked += stats.sent.saturating_sub(stats.lost);
        self.retransmits += stats.lost_packets;
        self.quic_smoothed_rtt = Some(stats.rtt).filter(|rtt| !rtt.is_zero());
        self.quic_windows = Some(stats.windows).filter(|windows| windows.0 > Bytes(0));
        self.udp_buffer_change = stats.udp_buffer_change;
    }
}
