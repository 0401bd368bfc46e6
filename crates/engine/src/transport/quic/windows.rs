//! Send and receive windows of a QUIC connection. Set by its rate and RTT within its memory quota.
//!
//! The receive window bounds data in flight and unread here; the send window bounds data kept until
//! it is acknowledged.

use bankfull_control::Bytes;
use quinn_proto::{Connection, VarInt};
use std::time::{Duration, Instant};

/// Minimum window, unless the memory quota is less than twice that. (chosen: seven RTTs of slow
/// start)
pub(crate) const MIN_WINDOW: Bytes = Bytes::mib(4);

/// Receive window of an unauthenticated peer. (chosen: ten times a greeting and a request; all
/// unauthenticated connections of a daemon together have 10 MiB)
pub(crate) const UNAUTHENTICATED_WINDOW: Bytes = Bytes::kib(64);

/// Receive window, in multiples of the bytes read per RTT: the rate may double in the next RTT,
/// MAX_DATA takes an RTT, and data behind a loss waits one or two RTTs for the retransmission.
/// (chosen; measured at 5 % loss: docs/algorithms/quic.md)
const RECEIVE_WINDOW_RTTS: f64 = 6.0;

/// Send window, in congestion windows of two bandwidth-delay products: one product in flight, one
/// waiting, and data behind a loss until its retransmission. (chosen: 4 was measured with windows
/// of one product)
const SEND_WINDOW_CWNDS: u64 = 2;

/// Minimum length of a round: the delay of a reading thread. (chosen: some scheduler time slices)
const MIN_ROUND: Duration = Duration::from_millis(10);

/// Half-life of the peak read rate, in seconds. (chosen: a disk may have paused)
const PEAK_HALF_LIFE_S: f64 = 2.0;

/// Fraction of a window by which it must change to be updated. (chosen: each change is a frame)
const CHANGE_DIVISOR: u64 = 8;

/// Windows of a connection.
pub(crate) struct Windows {
    /// Bytes read in this round.
    read_bytes: u64,
    round_start: Instant,
    /// Peak of earlier rounds, in bytes per round; decays.
    peak: f64,
    /// Present receive and send window, in bytes.
    receive: u64,
    send: u64,
    is_authenticated: bool,
    /// True once the receive window is that of an authenticated peer.
    is_widened: bool,
}

impl Windows {
    /// Returns the initial windows: announced to the peer, and for data to send.
    pub(crate) fn new(
        now: Instant,
        (receive, send): (Bytes, Bytes),
        is_authenticated: bool,
    ) -> Self {
        let (receive, send) = (receive.0, send.0);
        Self {
            read_bytes: 0,
            round_start: now,
            peak: 0.0,
            receive,
            send,
            is_authenticated,
            is_widened: is_authenticated,
        }
    }

    /// Marks the peer as authenticated; the next [`advance`](Self::advance) widens its window.
    pub(crate) fn set_authenticated(&mut self) {
        self.is_authenticated = true;
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Returns the receive window and the send window.
    pub(crate) fn sizes(&self) -> (Bytes, Bytes) {
        (Bytes(self.receive), Bytes(self.send))
    }

    /// Counts bytes read from a stream.
    pub(crate) fn on_read(&mut self, bytes: usize) {
        self.read_bytes += bytes as u64;
    }

    /// Updates the windows at the end of a round.
    ///
    /// Their sum stays below `limit`, but each is at least [`UNAUTHENTICATED_WINDOW`].
    pub(crate) fn advance(&mut self, connection: &mut Connection, limit: Bytes, now: Instant) {
        if self.is_authenticated && !std::mem::replace(&mut self.is_widened, true) {
            self.receive = min_window(limit).0;
            set_receive_window(connection, self.receive);
        }
        let round = connection.rtt().max(MIN_ROUND);
        if let Some(receive) = self.on_round(round, limit, now) {
            set_receive_window(connection, receive);
        }
        let cwnd = connection.congestion_state().window();
        let send = clamp_window(cwnd.saturating_mul(SEND_WINDOW_CWNDS), limit, self.receive);
        if is_significant(self.send, send) {
            self.send = send;
            connection.set_send_window(send);
        }
    }

    /// Returns the new receive window, if it changes.
    fn on_round(&mut self, round: Duration, limit: Bytes, now: Instant) -> Option<u64> {
        let elapsed = now.saturating_duration_since(self.round_start);
        if elapsed < round {
            return None;
        }
        let per_round = self.read_bytes as f64 * round.as_secs_f64() / elapsed.as_secs_f64();
        let decayed = self.peak * (-elapsed.as_secs_f64() / PEAK_HALF_LIFE_S).exp2();
        self.peak = per_round.max(decayed);
        (self.read_bytes, self.round_start) = (0, now);
        let receive = clamp_window((self.peak * RECEIVE_WINDOW_RTTS) as u64, limit, self.send);
        (self.is_authenticated && is_significant(self.receive, receive)).then(|| {
            self.receive = receive;
            receive
        })
    }
}

/// Returns the minimum of each window within a common limit.
pub(crate) fn min_window(limit: Bytes) -> Bytes {
    Bytes((limit.0 / 2).clamp(UNAUTHENTICATED_WINDOW.0, MIN_WINDOW.0))
}

fn set_receive_window(connection: &mut Connection, bytes: u64) {
    connection.set_receive_window(VarInt::from_u64(bytes).unwrap_or(VarInt::MAX));
}

/// Clamps a window to what the limit leaves beside the other window.
fn clamp_window(bytes: u64, limit: Bytes, other: u64) -> u64 {
    let min_window = min_window(limit).0;
    bytes.clamp(min_window, limit.0.saturating_sub(other).max(min_window))
}

fn is_significant(before: u64, after: u64) -> bool {
    before.abs_diff(after) > before / CHANGE_DIVISOR
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(100);

    #[test]
    fn receive_window_leads_read_rate_and_shrinks_when_idle() {
        let mut now = Instant::now();
        let mut windows = Windows::new(now, (MIN_WINDOW, MIN_WINDOW), true);
        // 1 Gbit/s over 100 ms, from a sender that doubles its rate each RTT.
        let mut bytes = 64 << 10;
        for _ in 0..20 {
            assert!(windows.receive >= 2 * bytes as u64, "{} for {bytes}", windows.receive);
            windows.on_read(bytes);
            now += ROUND;
            windows.on_round(ROUND, Bytes::gib(1), now);
            bytes = (bytes * 2).min(12_500_000);
        }
        assert!((66_000_000..=75_000_000).contains(&windows.receive), "{}", windows.receive);
        // After 500 ms without a read the peak has decayed partly, after 20 s fully.
        for round in 0..200 {
            now += ROUND;
            windows.on_round(ROUND, Bytes::gib(1), now);
            assert!(round != 4 || windows.receive > 56_000_000, "{}", windows.receive);
        }
        assert!(
            windows.receive <= MIN_WINDOW.0 * CHANGE_DIVISOR / (CHANGE_DIVISOR - 1),
            "{}",
            windows.receive
        );
    }

    #[test]
    fn windows_stay_within_limit_and_change_once_per_round() {
        let start = Instant::now();
        let mut windows = Windows::new(start, (MIN_WINDOW, MIN_WINDOW), true);
        windows.on_read(1 << 30);
        assert_eq!(windows.on_round(ROUND, Bytes::mib(64), start + ROUND / 2), None);
        let receive = windows.on_round(ROUND, Bytes::mib(64), start + ROUND);
        assert_eq!(receive, Some(60 << 20), "the rest is for the send window");
        // More connections lower the limit.
        let receive = windows.on_round(ROUND, Bytes::mib(16), start + 2 * ROUND);
        assert_eq!(receive, Some(12 << 20));
        // Both windows share a small limit; the minimum holds without one.
        let receive = windows.on_round(ROUND, Bytes::mib(2), start + 3 * ROUND);
        assert_eq!(receive, Some(1 << 20));
        let receive = windows.on_round(ROUND, Bytes(1), start + 4 * ROUND);
        assert_eq!(receive, Some(UNAUTHENTICATED_WINDOW.0));
    }

    #[test]
    fn unauthenticated_receive_window_does_not_grow() {
        let start = Instant::now();
        let mut windows = Windows::new(start, (UNAUTHENTICATED_WINDOW, MIN_WINDOW), false);
        windows.on_read(1 << 30);
        assert_eq!(windows.on_round(ROUND, Bytes::gib(1), start + ROUND), None);
        assert_eq!(windows.receive, UNAUTHENTICATED_WINDOW.0);
    }

    #[test]
    fn late_round_is_scaled_to_its_length() {
        let start = Instant::now();
        let mut windows = Windows::new(start, (MIN_WINDOW, MIN_WINDOW), true);
        windows.on_read(100_000_000);
        let receive = windows.on_round(ROUND, Bytes::gib(1), start + 10 * ROUND);
        assert_eq!(receive, Some(60_000_000));
    }
}
