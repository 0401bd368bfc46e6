//! RTT and losses of one connection.

use super::NewConnection;
use std::time::Duration;

/// Time after joining for which losses of an already sending connection count as earlier ones.
/// (chosen: Linux's minimum retransmission time-out, 0.2 s, and a few ticks)
const JOIN_LOSS_GRACE: Duration = Duration::from_millis(250);

/// RTT assumed until one is known. (chosen: a local network with its hosts)
const DEFAULT_RTT: Duration = Duration::from_millis(1);

/// Minimum RTT increase that indicates a queue elsewhere on the path. (chosen: ten times the delays
/// of hosts, and more than the port's queue)
const MIN_REMOTE_QUEUE_DELAY: Duration = Duration::from_millis(5);

/// The same as a fraction of the minimum RTT; the longer delay counts. (chosen)
const REMOTE_QUEUE_RTT_FRACTION: f64 = 0.25;

/// RTT and losses of one connection.
#[derive(Debug)]
pub(super) struct PathSamples {
    rtt: Option<Duration>,
    min_rtt: Option<Duration>,
    lost_segments: u64,
    has_new_loss: bool,
    /// Time before which losses count as having occurred before it joined.
    losses_count_from: Duration,
}

impl PathSamples {
    /// Returns the samples of a connection that joins.
    pub(super) fn new(now: Duration, new_connection: &NewConnection) -> Self {
        let grace = if new_connection.grant_driven { Duration::ZERO } else { JOIN_LOSS_GRACE };
        Self {
            rtt: new_connection.rtt,
            min_rtt: new_connection.rtt,
            lost_segments: new_connection.lost_segments,
            has_new_loss: false,
            losses_count_from: now + grace,
        }
    }

    /// Records an RTT.
    pub(super) fn on_rtt(&mut self, rtt: Option<Duration>) {
        let Some(rtt) = rtt.filter(|rtt| !rtt.is_zero()) else { return };
        self.rtt = Some(rtt);
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min_rtt| min_rtt.min(rtt)));
    }

    /// Records the segments lost so far; returns whether the number has grown.
    pub(super) fn on_lost(&mut self, now: Duration, lost_segments: u64) -> bool {
        let is_more = lost_segments > self.lost_segments && now >= self.losses_count_from;
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

    /// Returns the RTT increase over the minimum.
    pub(super) fn queue_delay(&self) -> Option<Duration> {
        Some(self.rtt?.saturating_sub(self.min_rtt?))
    }

    /// Returns true if a queue stands elsewhere on the path.
    pub(super) fn has_remote_queue(&self) -> bool {
        let min_rtt = self.min_rtt();
        self.rtt()
            > min_rtt + MIN_REMOTE_QUEUE_DELAY.max(min_rtt.mul_f64(REMOTE_QUEUE_RTT_FRACTION))
    }
}
