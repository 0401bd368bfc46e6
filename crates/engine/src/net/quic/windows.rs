//! How much of a connection may be on its way, or wait here for whoever reads and until it has
//! arrived there: as its rate and its round trip ask for, within its part of the memory.

use bankfull_control::Bytes;
use quinn_proto::{Connection, VarInt};
use std::time::{Duration, Instant};

/// Never less, unless its part of the memory is less than two of that. (ours: seven rounds ahead of
/// a sender that begins)
pub(super) const LEAST: Bytes = Bytes::mib(4);

/// The receive window for whoever has not shown yet that it may be here. (ours: a greeting and a
/// request are a tenth of it; all strangers that a daemon takes have 10 MiB)
pub(super) const STRANGE: Bytes = Bytes::kib(64);

/// What is received is given so many times what was read in a round trip: twice as much may come in
/// the next, word of it takes a round trip, and what follows a loss waits for its repair, another
/// one or two. (ours; measured at 5 % of loss: docs/algorithms/quic.md)
const RECEIVED: f64 = 6.0;

/// What is sent is kept for so many windows of the congestion control: the one that is on its way,
/// one that waits, and what follows a loss until that is repaired. (as above)
const SENT: u64 = 4;

/// Rounds count as this long at least: whoever reads may be late by so much. (ours: some time
/// slices of the scheduler)
const ROUND_LEAST: Duration = Duration::from_millis(10);

/// The most that was read counts half after so long. (ours: a disk may have paused)
const HALF_LIFE_S: f64 = 2.0;

/// A smaller change, as a part, is not worth a word. (ours)
const WORTH: u64 = 8;

/// The windows of a connection.
pub(super) struct Windows {
    /// Bytes read in this round, and when it began.
    read: u64,
    began: Instant,
    /// The most of earlier rounds, fading.
    most: f64,
    receive: u64,
    send: u64,
    is_trusted: bool,
    /// It has what it is given as one who may be here.
    is_open: bool,
}

impl Windows {
    /// As a connection begins: with what it was promised to receive, and may keep to send.
    pub(super) fn new(now: Instant, (receive, send): (Bytes, Bytes), is_trusted: bool) -> Self {
        let (receive, send) = (receive.0, send.0);
        Self { read: 0, began: now, most: 0.0, receive, send, is_trusted, is_open: is_trusted }
    }

    /// The other side is no stranger any more: it is given more with the next
    /// [`advance`](Self::advance).
    pub(super) fn trust(&mut self) {
        self.is_trusted = true;
    }

    pub(super) fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Something was read.
    pub(super) fn on_read(&mut self, bytes: usize) {
        self.read += bytes as u64;
    }

    /// Sets them, where a round is over; together they are never more than `limit`, but for twice
    /// [`STRANGE`].
    pub(super) fn advance(&mut self, connection: &mut Connection, limit: Bytes, now: Instant) {
        if self.is_trusted && !std::mem::replace(&mut self.is_open, true) {
            self.receive = least(limit).0;
            set_receive(connection, self.receive);
        }
        let round = connection.rtt().max(ROUND_LEAST);
        if let Some(receive) = self.on_round(round, limit, now) {
            set_receive(connection, receive);
        }
        let congestion = connection.congestion_state().window();
        let send = within(congestion.saturating_mul(SENT), limit, self.receive);
        if is_worth(self.send, send) {
            self.send = send;
            connection.set_send_window(send);
        }
    }

    /// The receive window, where it changes.
    fn on_round(&mut self, round: Duration, limit: Bytes, now: Instant) -> Option<u64> {
        let elapsed = now.saturating_duration_since(self.began);
        if elapsed < round {
            return None;
        }
        let in_a_round = self.read as f64 * round.as_secs_f64() / elapsed.as_secs_f64();
        let faded = self.most * (-elapsed.as_secs_f64() / HALF_LIFE_S).exp2();
        self.most = in_a_round.max(faded);
        (self.read, self.began) = (0, now);
        let receive = within((self.most * RECEIVED) as u64, limit, self.send);
        (self.is_trusted && is_worth(self.receive, receive)).then(|| {
            self.receive = receive;
            receive
        })
    }
}

/// What each window has at least, where both may have so much together.
pub(super) fn least(limit: Bytes) -> Bytes {
    Bytes((limit.0 / 2).clamp(STRANGE.0, LEAST.0))
}

fn set_receive(connection: &mut Connection, bytes: u64) {
    connection.set_receive_window(VarInt::from_u64(bytes).unwrap_or(VarInt::MAX));
}

/// As much as the limit leaves beside the other window.
fn within(bytes: u64, limit: Bytes, other: u64) -> u64 {
    let least = least(limit).0;
    bytes.clamp(least, limit.0.saturating_sub(other).max(least))
}

fn is_worth(before: u64, after: u64) -> bool {
    before.abs_diff(after) > before / WORTH
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(100);

    #[test]
    fn the_receive_window_is_ahead_of_what_is_read_and_goes_back() {
        let mut now = Instant::now();
        let mut windows = Windows::new(now, (LEAST, LEAST), true);
        // 1 Gbit/s over 100 ms, from a sender that doubles what it sends in each round.
        let mut bytes = 64 << 10;
        for _ in 0..20 {
            assert!(windows.receive >= 2 * bytes as u64, "{} for {bytes}", windows.receive);
            windows.on_read(bytes);
            now += ROUND;
            windows.on_round(ROUND, Bytes::gib(1), now);
            bytes = (bytes * 2).min(12_500_000);
        }
        assert!((66_000_000..=75_000_000).contains(&windows.receive), "{}", windows.receive);
        // Nobody reads for 500 ms: not all is forgotten. For 20 s: all is.
        for round in 0..200 {
            now += ROUND;
            windows.on_round(ROUND, Bytes::gib(1), now);
            assert!(round != 4 || windows.receive > 56_000_000, "{}", windows.receive);
        }
        assert!(windows.receive <= LEAST.0 * WORTH / (WORTH - 1), "{}", windows.receive);
    }

    #[test]
    fn it_stays_within_its_limit_and_changes_only_when_a_round_is_over() {
        let began = Instant::now();
        let mut windows = Windows::new(began, (LEAST, LEAST), true);
        windows.on_read(1 << 30);
        assert_eq!(windows.on_round(ROUND, Bytes::mib(64), began + ROUND / 2), None);
        let receive = windows.on_round(ROUND, Bytes::mib(64), began + ROUND);
        assert_eq!(receive, Some(60 << 20), "the rest is the send window's");
        // Where others come, it is less.
        let receive = windows.on_round(ROUND, Bytes::mib(16), began + 2 * ROUND);
        assert_eq!(receive, Some(12 << 20));
        // A limit of little is shared by both, and one of nothing leaves what a stranger has.
        let receive = windows.on_round(ROUND, Bytes::mib(2), began + 3 * ROUND);
        assert_eq!(receive, Some(1 << 20));
        let receive = windows.on_round(ROUND, Bytes(1), began + 4 * ROUND);
        assert_eq!(receive, Some(STRANGE.0));
    }

    #[test]
    fn whoever_is_not_known_yet_gets_little_however_much_it_sends() {
        let began = Instant::now();
        let mut windows = Windows::new(began, (STRANGE, LEAST), false);
        windows.on_read(1 << 30);
        assert_eq!(windows.on_round(ROUND, Bytes::gib(1), began + ROUND), None);
        assert_eq!(windows.receive, STRANGE.0);
    }

    #[test]
    fn a_round_that_was_looked_at_late_counts_for_its_length() {
        let began = Instant::now();
        let mut windows = Windows::new(began, (LEAST, LEAST), true);
        windows.on_read(100_000_000);
        let receive = windows.on_round(ROUND, Bytes::gib(1), began + 10 * ROUND);
        assert_eq!(receive, Some(60_000_000));
    }
}
