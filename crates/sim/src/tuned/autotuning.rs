//! Receive window that the kernel's autotuning grants.

use std::collections::VecDeque;
use std::time::Duration;

/// Initial window of a connection (tcp_rmem, ip-sysctl.rst: 131 072 bytes, half of it for data).
pub(super) const INITIAL_RECEIVE_WINDOW: u64 = 65_536;

/// Receive window granted by the kernel's autotuning.
#[derive(Debug, Default)]
pub(super) struct WindowAutotuning {
    /// Time and delivered bytes of earlier ticks, back to one RTT ago.
    received: VecDeque<(Duration, u64)>,
    window: u64,
}

impl WindowAutotuning {
    /// Returns the granted window: in slow start four times the data received per RTT, and never
    /// less than before (tcp_rcv_space_adjust, net/ipv4/tcp_input.c).
    pub(super) fn update(&mut self, now: Duration, rtt: Duration, delivered: u64) -> u64 {
        self.received.push_back((now, delivered));
        let from = now.saturating_sub(rtt);
        while self.received.len() > 1 && self.received[1].0 <= from {
            self.received.pop_front();
        }
        self.window = self.window.max(4 * (delivered - self.received[0].1));
        self.window
    }
}
