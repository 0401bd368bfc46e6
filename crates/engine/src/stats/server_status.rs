//! State of a daemon: its sessions, and what they have carried since it started.

use super::transport_stats::TransportStats;
use bankfull_control::{Bytes, StageTimes};
use std::time::Duration;

/// Sessions of a daemon in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectionStatus {
    /// Sessions that run.
    pub sessions: u64,
    /// Data streams of these.
    pub streams: u64,
    /// Bytes carried since the start, with headers and encryption.
    pub carried: Bytes,
    /// Part of them that QUIC carried.
    pub carried_by_quic: Bytes,
    /// Segments that this side retransmitted since the start.
    pub retransmits: u64,
    /// Times of this side's stages since the start, summed over threads.
    pub stages: StageTimes,
}

impl DirectionStatus {
    /// Adds the totals of a session that receives, or sends.
    pub(crate) fn add(&mut self, is_receiving: bool, stats: &TransportStats, stages: &StageTimes) {
        let bytes = if is_receiving { stats.received } else { stats.acked };
        self.carried.0 += bytes;
        self.carried_by_quic.0 += if stats.is_quic { bytes } else { 0 };
        self.retransmits += stats.retransmits;
        self.stages.merge(stages);
    }
}

/// State of a daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Sessions in which clients send.
    pub receiving: DirectionStatus,
    /// Sessions in which clients receive.
    pub sending: DirectionStatus,
    /// Connections that have made no request yet.
    pub pending: u64,
    /// Received data that waits for the disk.
    pub staged: Bytes,
    /// Limit of that data; zero before anything is received.
    pub staging_limit: Bytes,
    /// Time since the start in which data streams waited for the disk.
    pub staging_wait: Duration,
}

impl ServerStatus {
    /// Returns the part of one direction.
    pub(crate) fn direction_mut(&mut self, is_receiving: bool) -> &mut DirectionStatus {
        if is_receiving { &mut self.receiving } else { &mut self.sending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_counts_its_own_bytes() {
        let stats = TransportStats { received: 5, acked: 70, retransmits: 2, ..Default::default() };
        let stages = StageTimes { write: Duration::from_secs(1), ..StageTimes::default() };
        let mut status = ServerStatus::default();
        for is_receiving in [true, false, false] {
            status.direction_mut(is_receiving).add(is_receiving, &stats, &stages);
        }
        let quic = TransportStats { is_quic: true, ..stats };
        status.receiving.add(true, &quic, &StageTimes::default());
        let receiving = status.receiving;
        assert_eq!((receiving.carried, receiving.carried_by_quic), (Bytes(10), Bytes(5)));
        assert_eq!(receiving.retransmits, 4);
        assert_eq!((status.sending.carried, status.sending.retransmits), (Bytes(140), 4));
        assert_eq!(status.sending.stages.write, Duration::from_secs(2));
    }
}
