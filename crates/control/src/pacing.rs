//! Pacing: how a rate is shared among connections, and what a line's rate is in data.
//!
//! What it does not do: set anything. `SO_MAX_PACING_RATE` counts data without headers, and works
//! without any queueing discipline: TCP then paces itself.

use crate::units::{Bytes, Rate};

/// Data in a full segment of 1500 bytes: 20 are IP's, 20 TCP's, 12 its time stamps (RFC 7323).
pub const SEGMENT_DATA: Bytes = Bytes(1448);

/// What such a segment takes on the line.
pub const SEGMENT_PACKET: Bytes = Bytes(1500);

/// The largest super-packet that TCP hands down at once (GSO_LEGACY_MAX_SIZE,
/// include/linux/netdevice.h).
const BURST_MAX: Bytes = Bytes::kib(64);

/// A super-packet takes about 1 ms at the pacing rate: the rate shifted by 10
/// (sk_pacing_shift_init, net/core/sock.c).
const BURSTS_PER_SEC: u64 = 1024;

/// It has two segments at least (tcp_min_tso_segs, ip-sysctl.rst).
const BURST_SEGMENTS_MIN: u64 = 2;

/// The data that a line of this rate carries in full segments.
#[must_use]
pub fn data_rate(line: Rate) -> Rate {
    let share = SEGMENT_DATA.0 as f64 / SEGMENT_PACKET.0 as f64;
    Rate::from_bits_per_sec(line.bits_per_sec() as f64 * share)
}

/// What TCP sends at once at a pacing rate (tcp_tso_autosize, net/ipv4/tcp_output.c).
#[must_use]
pub fn burst(rate: Rate) -> Bytes {
    let wanted = Bytes(rate.bytes_per_sec() / BURSTS_PER_SEC);
    wanted.clamp(Bytes(BURST_SEGMENTS_MIN * SEGMENT_DATA.0), BURST_MAX)
}

/// The share of each of `count` connections; all of it where there is none.
#[must_use]
pub fn share(rate: Rate, count: u32) -> Rate {
    Rate::from_bits_per_sec(rate.bits_per_sec() as f64 / f64::from(count.max(1)))
}

/// The share of a window of each of `count` connections, two segments at least: with one, the
/// receiver would hold back its acknowledgement (RFC 5681 §4.2).
#[must_use]
pub fn share_window(window: Bytes, count: u32) -> Bytes {
    Bytes(window.0 / u64::from(count.max(1))).max(Bytes(2 * SEGMENT_DATA.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabit_line_carries_965_megabits_of_data() {
        let line = Rate::from_bits_per_sec(1e9);
        assert_eq!(data_rate(line).bits_per_sec() / 1_000_000, 965);
    }

    #[test]
    fn a_burst_is_a_millisecond_within_bounds() {
        let of = |mbit: f64| burst(Rate::from_bits_per_sec(mbit * 1e6)).0;
        assert_eq!(of(0.1), 2896);
        assert_eq!(of(102.4), 12_500);
        assert_eq!(of(10_000.0), 65_536);
    }

    #[test]
    fn shares_sum_to_the_whole_and_never_starve_anybody() {
        let rate = Rate::from_bits_per_sec(9e8);
        assert_eq!(share(rate, 4).bits_per_sec() * 4, rate.bits_per_sec());
        assert_eq!(share(rate, 0), rate);
        assert_eq!(share_window(Bytes(1_000_000), 4), Bytes(250_000));
        assert_eq!(share_window(Bytes(4_000), 16), Bytes(2_896));
    }
}
