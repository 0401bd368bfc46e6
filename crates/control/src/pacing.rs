//! Pacing: payload rate of a line, burst sizes, and a rate limiter shared by several streams.
//!
//! This module sets no socket option. `SO_MAX_PACING_RATE` counts payload without headers and works
//! without any queueing discipline, since TCP paces itself.

use crate::path_control::TICK;
use crate::tcp::TSO_MAX_BYTES;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// MSS of a 1500-byte packet: less 20 bytes of IPv4 header, 20 of TCP header and 12 of timestamps
/// (RFC 7323), in bytes.
pub const DEFAULT_MSS: Bytes = Bytes(1448);

/// MSS of a 1500-byte packet with the 40-byte IPv6 header (RFC 8200 §3), in bytes.
pub const DEFAULT_MSS_V6: Bytes = Bytes(1428);

/// MTU of Ethernet (RFC 894), in bytes.
pub const DEFAULT_MTU: Bytes = Bytes(1500);

/// Smallest window: two segments. With one, the receiver delays its ACK (RFC 5681 §4.2).
pub(crate) const MIN_WINDOW: Bytes = Bytes(2 * DEFAULT_MSS.0);

/// Super-packets per second at the pacing rate: each takes about 1 ms, the rate shifted by 10
/// (sk_pacing_shift_init, net/core/sock.c).
pub(crate) const TSO_BURSTS_PER_SEC: u64 = 1024;

/// Fewest streams kept on a fast line. (measured, docs/algorithms/streams.md, M1: at 5 Gbit/s 8
/// streams carry a tenth more than 16 or 4; half as many would start an RTT later)
pub(crate) const FAST_LINE_STREAMS: u32 = 8;

/// Segments in the smallest super-packet (tcp_min_tso_segs, ip-sysctl.rst).
const TSO_MIN_SEGMENTS: u64 = 2;

/// Time of a burst at the rate of all streams together. (measured,
/// docs/algorithms/path-control.md: a tenth of TCP's own bursts; shorter ones cost more system
/// calls without gain)
const MAX_BURST_TIME: Duration = Duration::from_micros(120);

/// Time of one quantum at the limited rate, and lateness that the limiter compensates.
///
/// Short compared with the second over which the rate is to hold, and long compared with a system
/// call.
const QUANTUM_TIME: Duration = TICK;

/// Upper bound of a quantum: one super-packet is sent while the next is filled. The lower bound is
/// one segment.
const MAX_QUANTUM: Bytes = Bytes(2 * TSO_MAX_BYTES);

/// A rate limiter shared by several senders (a virtual-scheduling leaky bucket, as in GCRA).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimiter {
    rate: Rate,
    /// The time at which all reserved data will have been sent.
    next_free: Duration,
}

impl RateLimiter {
    /// Returns a limiter with nothing reserved.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { rate, next_free: Duration::ZERO }
    }

    /// Returns the rate; zero limits nothing.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Replaces the rate; what was reserved at the old one is forgotten.
    pub fn set_rate(&mut self, now: Duration, rate: Rate) {
        (self.rate, self.next_free) = (rate, now);
    }

    /// Returns the amount to reserve at once.
    #[must_use]
    pub fn quantum(&self) -> Bytes {
        let wanted = self.rate.bytes_per_sec() as f64 * QUANTUM_TIME.as_secs_f64();
        Bytes(wanted as u64).clamp(DEFAULT_MSS, MAX_QUANTUM)
    }

    /// Gives back a reservation that is not used.
    pub fn refund(&mut self, amount: Bytes) {
        let took = self.rate.time_for(amount).unwrap_or_default();
        self.next_free = self.next_free.saturating_sub(took);
    }

    /// Reserves `amount` and returns the time from which it may be sent. A rate of zero limits
    /// nothing.
    pub fn reserve(&mut self, now: Duration, amount: Bytes) -> Duration {
        let begin = self.next_free.max(now.saturating_sub(QUANTUM_TIME));
        let took = self.rate.time_for(amount).unwrap_or_default();
        self.next_free = begin.saturating_add(took);
        begin
    }
}

/// Returns the number of streams that share `rate` with full-sized super-packets; at least 1.
///
/// More streams send smaller super-packets and take more CPU time.
#[must_use]
pub fn full_tso_streams(rate: Rate) -> u32 {
    let each = (TSO_MAX_BYTES * TSO_BURSTS_PER_SEC).max(1);
    u32::try_from(rate.bytes_per_sec() / each).unwrap_or(u32::MAX).max(1)
}

/// Returns true if half of [`FAST_LINE_STREAMS`] carry the rate with full-sized super-packets.
///
/// Slower lines leave the CPUs idle.
pub(crate) fn is_fast_line(rate: Rate) -> bool {
    full_tso_streams(rate) >= FAST_LINE_STREAMS / 2
}

/// Returns the total pacing rate of `count` streams whose windows limit them to `rate`.
///
/// On a fast line, more streams than [`full_tso_streams`] are paced as if each sent full-sized
/// super-packets: the windows alone limit them, and CPU time is saved.
#[must_use]
pub fn window_limited_pacing(rate: Rate, count: u32) -> Rate {
    if !is_fast_line(rate) || count <= full_tso_streams(rate) {
        return rate;
    }
    Rate::from_bytes_per_sec(TSO_MAX_BYTES * TSO_BURSTS_PER_SEC * u64::from(count))
}

/// Returns the payload rate of a line that carries full segments of `mss`.
#[must_use]
pub fn payload_rate(line: Rate, mss: Bytes) -> Rate {
    let share = mss.0 as f64 / DEFAULT_MTU.0 as f64;
    Rate::from_bits_per_sec(line.bits_per_sec() as f64 * share)
}

/// Returns TCP's burst at a pacing rate (tcp_tso_autosize, net/ipv4/tcp_output.c).
#[must_use]
pub fn tso_burst(rate: Rate) -> Bytes {
    let wanted = Bytes(rate.bytes_per_sec() / TSO_BURSTS_PER_SEC);
    wanted.clamp(Bytes(TSO_MIN_SEGMENTS * DEFAULT_MSS.0), Bytes(TSO_MAX_BYTES))
}

/// Returns the largest write of a paced stream, in whole segments; `None` if TCP's bursts are no
/// larger.
///
/// `rate` is the pacing rate of all streams, `max_stream_rate` that of the fastest. TCP's own
/// bursts take 1 ms of the line together: all that a queue of 0.1 × 10 ms holds.
#[must_use]
pub fn burst_limit(rate: Rate, max_stream_rate: Rate, mss: Bytes) -> Option<Bytes> {
    let wanted = rate.bytes_per_sec() as f64 * MAX_BURST_TIME.as_secs_f64();
    let segments = (wanted / mss.0.max(1) as f64) as u64;
    let limit = Bytes(segments.max(1) * mss.0);
    (limit < tso_burst(max_stream_rate)).then_some(limit)
}

/// Returns the part of a window for each of `count` streams.
#[must_use]
pub fn window_per_stream(window: Bytes, count: u32) -> Bytes {
    Bytes(window.0 / u64::from(count.max(1))).max(MIN_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_rate_gigabit_line_is_965_mbit() {
        let line = Rate::from_bits_per_sec(1e9);
        let data = |mss| payload_rate(line, mss).bits_per_sec() / 1_000_000;
        assert_eq!((data(DEFAULT_MSS), data(DEFAULT_MSS_V6)), (965, 952));
    }

    #[test]
    fn tso_burst_is_one_millisecond_within_bounds() {
        let of = |mbit: f64| tso_burst(Rate::from_bits_per_sec(mbit * 1e6)).0;
        assert_eq!(of(0.1), 2896);
        assert_eq!(of(102.4), 12_500);
        assert_eq!(of(10_000.0), 65_536);
    }

    #[test]
    fn pacing_fast_line_sends_full_super_packets() {
        let of = |gbit: f64, count| {
            let held = window_limited_pacing(Rate::from_bits_per_sec(gbit * 1e9), count);
            held.bits_per_sec() as f64 / 1e9
        };
        assert_eq!((of(1.0, 16), of(4.8, 8)), (1.0, 4.8), "a slow line; few streams");
        assert!((8.5..8.7).contains(&of(4.8, 16)), "{}", of(4.8, 16));
        assert_eq!(tso_burst(Rate::from_bits_per_sec(of(4.8, 16) / 16.0 * 1e9)).0, TSO_MAX_BYTES);
    }

    #[test]
    fn window_per_stream_has_a_minimum() {
        assert_eq!(window_per_stream(Bytes(1_000_000), 4), Bytes(250_000));
        assert_eq!(window_per_stream(Bytes(4_000), 16), Bytes(2_896));
    }

    #[test]
    fn burst_limit_is_whole_segments_below_tso_burst() {
        let of = |mbit: u32, count: u32| {
            let rate = |mbit| Rate::from_bits_per_sec(mbit * 1e6);
            let (all, one) = (f64::from(mbit), f64::from(mbit) / f64::from(count));
            let limit = burst_limit(rate(all), rate(one), DEFAULT_MSS);
            limit.map(|limit| limit.0 / DEFAULT_MSS.0)
        };
        assert_eq!([of(10, 1), of(100, 1), of(100, 16)], [Some(1); 3]);
        assert_eq!([of(1000, 1), of(1000, 4)], [Some(10); 2]);
        assert_eq!(of(1000, 16), None, "TCP sends bursts of 5 segments");
        assert_eq!([of(5000, 1), of(10_000, 4)], [None; 2], "64 KiB bursts are not longer");
    }

    #[test]
    fn limiter_keeps_the_rate_for_late_callers() {
        let ms = Duration::from_millis;
        let mut limiter = RateLimiter::new(Rate::from_bytes_per_sec(1_000_000));
        assert_eq!(limiter.quantum(), Bytes(10_000));
        // Two alternating senders, each a little late.
        let mut now = Duration::ZERO;
        for n in 0..100 {
            let begin = limiter.reserve(now, Bytes(10_000));
            assert_eq!(begin, ms(10) * n);
            now = begin + ms(3);
        }
        // After a pause, at most the catch-up time is compensated.
        now += ms(500);
        assert_eq!(limiter.reserve(now, Bytes(1)), now - ms(10));
    }

    #[test]
    fn limiter_new_rate_forgets_old_reservations() {
        let mut limiter = RateLimiter::new(Rate::from_bytes_per_sec(1));
        limiter.reserve(Duration::ZERO, Bytes(3_600));
        let now = Duration::from_secs(1);
        assert!(limiter.clone().reserve(now, Bytes(1)) > Duration::from_secs(3_000));
        limiter.set_rate(now, Rate::from_bytes_per_sec(1_000));
        let starts = [(); 2].map(|()| limiter.reserve(now, Bytes(500)));
        assert_eq!(starts, [now, now + Duration::from_millis(500)]);
        // Without a limit, everything is sent at once.
        limiter.set_rate(now, Rate::default());
        let starts = [(); 2].map(|()| limiter.reserve(now, Bytes(1 << 30)));
        assert_eq!(starts, [now; 2]);
    }

    #[test]
    fn limiter_quantum_is_bounded() {
        let of = |bytes| RateLimiter::new(Rate::from_bytes_per_sec(bytes)).quantum();
        assert_eq!(
            (of(12_500), of(12_500_000), of(u64::MAX)),
            (DEFAULT_MSS, Bytes(125_000), MAX_QUANTUM)
        );
    }
}
