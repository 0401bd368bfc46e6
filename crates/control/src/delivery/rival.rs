//! The window beside others who keep a queue full: CUBIC's, as theirs is.

use crate::cubic::{self, Cubic};
use std::time::Duration;

/// A window of CUBIC beyond its slow start, in datagrams.
#[derive(Debug, Clone)]
pub(super) struct Rival {
    cubic: Cubic,
    pub(super) window: f64,
}

impl Rival {
    pub(super) fn new(window: f64) -> Self {
        Self { cubic: Cubic::default(), window: window.max(1.0) }
    }

    /// In bytes.
    pub(super) fn window(&self, datagram: u64) -> u64 {
        (self.window * datagram as f64) as u64
    }

    /// So many datagrams were delivered while the window was what limited.
    pub(super) fn grow(&mut self, datagrams: f64, now: Duration, rtt: Duration) {
        self.window = self.cubic.grown(self.window, datagrams, now, rtt);
    }

    /// Something was lost, for the first time in a round.
    pub(super) fn on_lost(&mut self) {
        self.cubic.on_loss(self.window);
        self.window = (self.window * cubic::KEPT).max(1.0);
    }
}
