//! Pacing: how a rate is shared among connections, what a line's rate is in data, and when whoever
//! shares a rate may send.
//!
//! What it does not do: set anything. `SO_MAX_PACING_RATE` counts data without headers, and works
//! without any queueing discipline: TCP then paces itself.

use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Data in a full segment of 1500 bytes: 20 are IP's, 20 TCP's, 12 its time stamps (RFC 7323).
pub const SEGMENT_DATA: Bytes = Bytes(1448);

/// The same where IP's header has 40 bytes (RFC 8200 §3).
pub const SEGMENT_DATA_V6: Bytes = Bytes(1428);

/// What such a segment takes on the line.
pub const SEGMENT_PACKET: Bytes = Bytes(1500);

/// No window is smaller than two segments: with one, the receiver would hold back its
/// acknowledgement (RFC 5681 §4.2).
pub(crate) const WINDOW_MIN: Bytes = Bytes(2 * SEGMENT_DATA.0);

/// The largest super-packet that TCP hands down at once (GSO_LEGACY_MAX_SIZE,
/// include/linux/netdevice.h).
const BURST_MAX: Bytes = Bytes::kib(64);

/// A super-packet takes about 1 ms at the pacing rate: the rate shifted by 10
/// (sk_pacing_shift_init, net/core/sock.c).
const BURSTS_PER_SEC: u64 = 1024;

/// A line is fast where at least so many connections fill it with whole super-packets. (ours: on
/// slower ones the processors have time)
pub(crate) const FAST: u32 = 4;

/// It has two segments at least (tcp_min_tso_segs, ip-sysctl.rst).
const BURST_SEGMENTS_MIN: u64 = 2;

/// How long a burst is to take on the line of all connections. [measured, docs/algorithms/sobas.md:
/// a tenth of TCP's own; shorter ones cost more system calls and gain nothing]
const BURST_TIME: Duration = Duration::from_micros(120);

/// What has not been sent in time may be made up for as long as this. (ours: what a thread that
/// sleeps comes late, and a look at the connections)
const SLACK: Duration = Duration::from_millis(10);

/// What is sent in one turn takes about this long, within bounds: a segment, and what a stream
/// reads at once. (ours: short beside a second, for which the rate is meant, and long beside a
/// system call)
const TURN: Duration = Duration::from_millis(10);
const TURN_MAX: Bytes = Bytes::kib(256);

/// A rate that many share and that is never passed: who wants to send asks when its turn is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turns {
    rate: Rate,
    /// When all that was asked for so far has been sent.
    free_at: Duration,
}

impl Turns {
    /// Nothing is sent yet.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { rate, free_at: Duration::ZERO }
    }

    /// The most to ask for at once.
    #[must_use]
    pub fn turn(&self) -> Bytes {
        let wanted = self.rate.bytes_per_sec() as f64 * TURN.as_secs_f64();
        Bytes(wanted as u64).clamp(SEGMENT_DATA, TURN_MAX)
    }

    /// When `amount` may be sent; it counts as sent then. A rate of zero holds nothing.
    pub fn take(&mut self, now: Duration, amount: Bytes) -> Duration {
        let begin = self.free_at.max(now.saturating_sub(SLACK));
        let took = self.rate.time_for(amount).unwrap_or_default();
        self.free_at = begin.saturating_add(took);
        begin
    }
}

/// How many connections can share a rate so that TCP hands down a whole super-packet of each at a
/// time; one at least. More of them take smaller ones, and more of the processors.
#[must_use]
pub fn whole_bursts(rate: Rate) -> u32 {
    let each = (BURST_MAX.0 * BURSTS_PER_SEC).max(1);
    u32::try_from(rate.bytes_per_sec() / each).unwrap_or(u32::MAX).max(1)
}

/// The pacing rate of `count` connections together whose windows hold them at `rate`. On a fast
/// line, more connections than fill it with whole super-packets may each send such ones all the
/// same: then it is the windows alone that hold them, and the processors have less to do.
#[must_use]
pub fn held_by_windows(rate: Rate, count: u32) -> Rate {
    let whole = whole_bursts(rate);
    if whole < FAST || count <= whole {
        return rate;
    }
    Rate::from_bytes_per_sec(BURST_MAX.0 * BURSTS_PER_SEC * u64::from(count))
}

/// The data that a line of this rate carries in full segments, of so much data each.
#[must_use]
pub fn data_rate(line: Rate, segment: Bytes) -> Rate {
    let share = segment.0 as f64 / SEGMENT_PACKET.0 as f64;
    Rate::from_bits_per_sec(line.bits_per_sec() as f64 * share)
}

/// What TCP sends at once at a pacing rate (tcp_tso_autosize, net/ipv4/tcp_output.c).
#[must_use]
pub fn burst(rate: Rate) -> Bytes {
    let wanted = Bytes(rate.bytes_per_sec() / BURSTS_PER_SEC);
    wanted.clamp(Bytes(BURST_SEGMENTS_MIN * SEGMENT_DATA.0), BURST_MAX)
}

/// The most that a connection is to send at once while all are held at a rate, and none has more of
/// it than `largest`, in whole segments; `None` where TCP would send no more anyhow.
///
/// TCP's own bursts take 1 ms on the line together, which is all that a queue of a tenth of 10 ms
/// holds.
#[must_use]
pub fn burst_limit(rate: Rate, largest: Rate, segment: Bytes) -> Option<Bytes> {
    let wanted = rate.bytes_per_sec() as f64 * BURST_TIME.as_secs_f64();
    let segments = (wanted / segment.0.max(1) as f64) as u64;
    let limit = Bytes(segments.max(1) * segment.0);
    (limit < burst(largest)).then_some(limit)
}

/// The share of a window of each of `count` connections.
#[must_use]
pub fn share_window(window: Bytes, count: u32) -> Bytes {
    Bytes(window.0 / u64::from(count.max(1))).max(WINDOW_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabit_line_carries_965_megabits_of_data() {
        let line = Rate::from_bits_per_sec(1e9);
        let data = |segment| data_rate(line, segment).bits_per_sec() / 1_000_000;
        assert_eq!((data(SEGMENT_DATA), data(SEGMENT_DATA_V6)), (965, 952));
    }

    #[test]
    fn a_burst_is_a_millisecond_within_bounds() {
        let of = |mbit: f64| burst(Rate::from_bits_per_sec(mbit * 1e6)).0;
        assert_eq!(of(0.1), 2896);
        assert_eq!(of(102.4), 12_500);
        assert_eq!(of(10_000.0), 65_536);
    }

    #[test]
    fn where_windows_hold_a_fast_line_all_send_whole_super_packets() {
        let of = |gbit: f64, count| {
            let held = held_by_windows(Rate::from_bits_per_sec(gbit * 1e9), count);
            held.bits_per_sec() as f64 / 1e9
        };
        assert_eq!((of(1.0, 16), of(4.8, 8)), (1.0, 4.8), "a slow line; few of them");
        assert!((8.5..8.7).contains(&of(4.8, 16)), "{}", of(4.8, 16));
        assert_eq!(burst(Rate::from_bits_per_sec(of(4.8, 16) / 16.0 * 1e9)), BURST_MAX);
    }

    #[test]
    fn a_window_is_shared_and_none_is_starved() {
        assert_eq!(share_window(Bytes(1_000_000), 4), Bytes(250_000));
        assert_eq!(share_window(Bytes(4_000), 16), Bytes(2_896));
    }

    #[test]
    fn bursts_are_limited_in_whole_segments_where_those_of_tcp_are_longer() {
        let of = |mbit: u32, count: u32| {
            let rate = |mbit| Rate::from_bits_per_sec(mbit * 1e6);
            let (all, one) = (f64::from(mbit), f64::from(mbit) / f64::from(count));
            let limit = burst_limit(rate(all), rate(one), SEGMENT_DATA);
            limit.map(|limit| limit.0 / SEGMENT_DATA.0)
        };
        assert_eq!([of(10, 1), of(100, 1), of(100, 16)], [Some(1); 3]);
        assert_eq!([of(1000, 1), of(1000, 4)], [Some(10); 2]);
        assert_eq!(of(1000, 16), None, "the kernel's have 5 segments");
        assert_eq!([of(5000, 1), of(10_000, 4)], [None; 2], "they are no longer than 64 KiB");
    }

    #[test]
    fn turns_never_pass_the_rate_and_lose_nothing_by_coming_late() {
        let ms = Duration::from_millis;
        let mut turns = Turns::new(Rate::from_bytes_per_sec(1_000_000));
        assert_eq!(turns.turn(), Bytes(10_000));
        // Two take turns, and come a little late each time.
        let mut now = Duration::ZERO;
        for n in 0..100 {
            let begin = turns.take(now, Bytes(10_000));
            assert_eq!(begin, ms(10) * n);
            now = begin + ms(3);
        }
        // After a pause no more than the slack is made up for.
        now += ms(500);
        assert_eq!(turns.take(now, Bytes(1)), now - ms(10));
    }

    #[test]
    fn a_turn_has_a_segment_at_least_and_is_bounded() {
        let of = |bytes| Turns::new(Rate::from_bytes_per_sec(bytes)).turn();
        assert_eq!(
            (of(12_500), of(12_500_000), of(u64::MAX)),
            (SEGMENT_DATA, Bytes(125_000), TURN_MAX)
        );
    }
}
