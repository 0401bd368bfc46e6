//! RTT and losses of one connection.

use super::NewConnection;
use super::slots::MIN_SUBSLOT;
use std::time::Duration;

/// RTT from which senders are paced. (measured, docs/algorithms/ictcp.md)
pub(super) const PACED_RTT: Duration = Duration::from_millis(2);

/// RTT assumed until one is known: that of a local network with its hosts.
const DEFAULT_RTT: Duration = Duration::from_nanos(PACED_RTT.as_nanos() as u64 / 2);

/// RTT and losses of one connection.
#[derive(Debug)]
pub(super) struct PathSamples {
    rtt: Option<Duration>,
    min_rtt: Option<Duration>,
    lost_segments: u64,
    has_new_loss: bool,
}

impl PathSamples {
    /// Returns the samples of a connection that joins.
    pub(super) fn new(new_connection: &NewConnection) -> Self {
        Self {
            rtt: new_connection.rtt,
            min_rtt: new_connection.rtt,
            lost_segments: new_connection.lost_segments,
            has_new_loss: false,
        }
    }

    /// Records an RTT.
    pub(super) fn on_rtt(&mut self, rtt: Option<Duration>) {
        let Some(rtt) = rtt.filter(|rtt| !rtt.is_zero()) else { return };
        self.rtt = Some(rtt);
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min_rtt| min_rtt.min(rtt)));
    }

    /// Records the segments lost so far; returns whether the number has grown.
    pub(super) fn on_lost(&mut self, lost_segments: u64) -> bool {
        let is_more = lost_segments > self.lost_segments;
        self.lost_segments = self.lost_segments.max(lost_segments);
        self.has_new_loss |= is_more;
        is_more
    }

    /// Returns whether segments were lost since the last call.
    pub(super) fn take_new_loss(&mut self) -> bool {
        std::mem::take(&mut self.has_new_loss)
    }

    /// Returns the current RTT.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt.unwrap_or(DEFAULT_RTT)
    }

    /// Returns the minimum RTT.
    pub(super) fn min_rtt(&self) -> Duration {
        self.min_rtt.unwrap_or(DEFAULT_RTT)
    }

    /// Returns the minimum RTT if it was measured.
    pub(super) fn known_min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// Returns true if a queue stands elsewhere on the path.
    pub(super) fn has_remote_queue(&self) -> bool {
        // A queue of a subslot exceeds that of any port, and jitter grows with the RTT.
        self.rtt().saturating_sub(self.min_rtt()) > MIN_SUBSLOT.max(self.min_rtt() / 2)
    }
}
