//! CUBIC window as a lower bound while loss-based cross traffic keeps a queue full.

use super::cubic;
use super::cubic::Cubic;
use std::time::Duration;

/// CUBIC window past slow start.
#[derive(Debug, Clone)]
pub(crate) struct CubicFloor {
    cubic: Cubic,
    /// In datagrams.
    pub(crate) cwnd: f64,
}

impl CubicFloor {
    pub(crate) fn new(cwnd: f64) -> Self {
        Self { cubic: Cubic::default(), cwnd: cwnd.max(1.0) }
    }

    /// Returns the window in bytes.
    pub(crate) fn bytes(&self, datagram_size: u64) -> u64 {
        (self.cwnd * datagram_size as f64) as u64
    }

    /// Grows the window after `datagrams` were delivered while it was the limit.
    pub(crate) fn on_ack(&mut self, datagrams: f64, now: Duration, min_rtt: Duration) {
        self.cwnd = self.cubic.next_window(self.cwnd, datagrams, now, min_rtt);
    }

    /// Reduces the window; call once per round with loss.
    pub(crate) fn on_lost(&mut self) {
        self.cubic.on_loss(self.cwnd);
        self.cwnd = (self.cwnd * cubic::BETA).max(1.0);
    }
}
