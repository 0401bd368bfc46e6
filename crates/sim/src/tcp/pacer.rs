//! Pacing of the payload, and the size of super-packets.

use super::window::INITIAL_WINDOW;
use std::time::Duration;

/// Segments of the largest super-packet: 64 KiB (GSO_LEGACY_MAX_SIZE, include/linux/netdevice.h) of
/// 1500 bytes on the line.
pub const MAX_SUPER_PACKET_SEGMENTS: u64 = 43;

/// Segments of the smallest super-packet, if available (tcp_min_tso_segs, 2, ip-sysctl.rst).
pub(super) const MIN_SUPER_PACKET_SEGMENTS: u64 = 2;

/// Super-packets per second at the pacing rate: the rate shifted by 10 (sk_pacing_shift_init,
/// net/core/sock.c).
pub(super) const SUPER_PACKETS_PER_SEC: f64 = 1024.0;

/// Shift of the min RTT for larger super-packets on short paths: 64 KiB shifted by the min RTT in
/// µs, shifted by 9 (tcp_tso_rtt_log, ip-sysctl.rst; tcp_tso_autosize, net/ipv4/tcp_output.c).
const SUPER_PACKET_RTT_SHIFT: u32 = 9;

/// Pacing of the payload.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pacer {
    /// Maximum rate in bytes per second; `None` if not limited.
    pub(super) max_rate: Option<f64>,
    /// Time at which pacing allows the next super-packet.
    pub(super) next_send: Duration,
}

impl Pacer {
    /// Delays the next super-packet (tcp_update_skb_after_send, net/ipv4/tcp_output.c).
    pub(super) fn delay_next(&mut self, now: Duration, bytes: u64, rate: f64, sent: u64) {
        if sent < INITIAL_WINDOW {
            return;
        }
        let send_time = Duration::from_secs_f64(bytes as f64 / rate);
        // Lateness is compensated, up to half of a super-packet.
        let credit = now.saturating_sub(self.next_send).min(send_time / 2);
        self.next_send = self.next_send.max(now) + send_time - credit;
    }
}

/// Returns the size of a super-packet in segments at a pacing rate, at least `min`.
pub(super) fn super_packet_segments(
    rate: Option<f64>,
    min_rtt: Duration,
    mss: u64,
    min: u64,
) -> u64 {
    let Some(rate) = rate else { return MAX_SUPER_PACKET_SEGMENTS };
    let shift = u32::try_from(min_rtt.as_micros() >> SUPER_PACKET_RTT_SHIFT).unwrap_or(u32::MAX);
    let extra = 65_536_u64.checked_shr(shift).unwrap_or(0);
    let bytes = (rate / SUPER_PACKETS_PER_SEC) as u64 + extra;
    (bytes / mss).clamp(min, MAX_SUPER_PACKET_SEGMENTS)
}
