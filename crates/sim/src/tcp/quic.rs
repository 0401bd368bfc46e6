//! Congestion control and black hole detection of a QUIC sender, as the engine runs `quinn-proto`.
//!
//! Out of scope: QUIC's loss detection and acknowledgements; they are the sender's and TCP's.

use super::{HEADER_BYTES, MSS, Segments};
use bankfull_control::Bytes;
use bankfull_control::congestion::ModelBased;
use std::time::Duration;

/// Timeouts in a row that mean persistent congestion (RFC 9002 §7.6.1).
const PERSISTENT_CONGESTION_TIMEOUTS: u32 = 3;

/// Pacing rate in windows per RTT (connection/pacing.rs, quinn-proto 0.11.19; RFC 9002 §7.7).
const PACING_RATIO: f64 = 1.25;

/// Payload of the smallest full segment: that of a datagram of 1200 bytes with its UDP and IPv4
/// headers (RFC 9000 §14.1; `min_mtu`, quinn-proto 0.11.19), less the headers of the model.
pub(super) const MIN_MSS: u64 = 1200 + 8 + 20 - HEADER_BYTES as u64;

/// Bursts of losses that reveal no black hole (BLACK_HOLE_THRESHOLD, connection/mtud.rs,
/// quinn-proto 0.11.19).
const MAX_SUSPICIOUS_BURSTS: u32 = 3;

/// Detector of a path that drops all packets above some size (connection/mtud.rs, quinn-proto
/// 0.11.19).
///
/// A burst of losses is suspicious if all of its segments are longer than the smallest ones, and
/// none of such length that was sent later has arrived.
#[derive(Debug, Clone, Default)]
pub(super) struct BlackHole {
    /// A link dropped a packet as too long, and only minimum-size segments arrived since.
    ///
    /// A real sender cannot know this.
    pub(super) is_present: bool,
    /// Number after the newest of the longer segments that arrived.
    arrived: u64,
    /// Number after the burst of losses, and its smallest segment.
    burst: Option<(u64, u64)>,
    suspicious: u32,
}

impl BlackHole {
    fn on_arrival(&mut self, segments: &Segments) {
        if segments.largest() > MIN_MSS {
            self.arrived = self.arrived.max(segments.number + segments.count());
            self.is_present = false;
            self.suspicious = 0;
        }
    }

    fn on_presumed_lost(&mut self, segments: &Segments) {
        if self.burst.is_some_and(|(end, _)| end != segments.number) {
            self.end_burst();
        }
        let smallest = self.burst.map_or(u64::MAX, |(_, smallest)| smallest);
        let end = segments.number + segments.count();
        self.burst = Some((end, smallest.min(segments.largest())));
    }

    fn end_burst(&mut self) {
        let Some((end, smallest)) = self.burst.take() else { return };
        self.suspicious += u32::from(smallest > MIN_MSS && end > self.arrived);
    }

    /// Returns whether the losses reveal a black hole.
    pub(super) fn is_detected(&self) -> bool {
        self.suspicious > MAX_SUSPICIOUS_BURSTS
    }
}

/// Congestion controller of a QUIC sender.
#[derive(Debug, Clone)]
pub(super) struct Quic {
    model: ModelBased,
    mss: u64,
    black_hole: BlackHole,
}

impl Quic {
    pub(super) fn new() -> Self {
        let model = ModelBased::new(Duration::ZERO, Bytes(MSS));
        Self { model, mss: MSS, black_hole: BlackHole::default() }
    }

    /// Sets the payload bytes of a segment.
    pub(super) fn set_mss(&mut self, mss: u64) {
        if mss != self.mss {
            self.mss = mss;
            self.model.on_mtu_update(Bytes(mss));
            self.black_hole = BlackHole::default();
        }
    }

    /// Returns the detector of black holes.
    pub(super) fn black_hole(&self) -> &BlackHole {
        &self.black_hole
    }

    /// Records that a link dropped a packet as too long.
    pub(super) fn on_packet_too_long(&mut self) {
        self.black_hole.is_present = true;
    }

    /// Records segments that are presumed lost.
    pub(super) fn on_presumed_lost(&mut self, segments: &Segments) {
        self.black_hole.on_presumed_lost(segments);
    }

    /// Returns the window in segments.
    pub(super) fn window(&self) -> u64 {
        self.model.window().0 / self.mss
    }

    pub(super) fn on_sent(&mut self, now: Duration, bytes: u64) {
        self.model.on_sent(now, Bytes(bytes));
    }

    /// Records segments that were sent at `sent` and have arrived.
    pub(super) fn on_arrival(
        &mut self,
        now: Duration,
        sent: Duration,
        segments: &Segments,
        is_app_limited: bool,
    ) {
        self.black_hole.on_arrival(segments);
        self.model.on_ack(now, sent, Bytes(segments.count() * segments.mss), is_app_limited);
    }

    /// Records that segments have arrived with a congestion mark.
    pub(super) fn on_marked(&mut self) {
        self.model.on_marked();
    }

    /// Ends an acknowledgement that reveals `lost` segments; `in_flight` are left.
    pub(super) fn on_end_ack(&mut self, lost: u64, in_flight: u64, is_app_limited: bool) {
        self.model.on_end_acks(Bytes(in_flight * self.mss), is_app_limited);
        if lost > 0 {
            self.model.on_lost(Bytes(lost * self.mss), false);
        }
        self.black_hole.end_burst();
    }

    /// Records that nothing arrived for one more timeout, and `lost` segments are presumed lost.
    pub(super) fn on_timeout(&mut self, lost: u64, timeouts: u32) {
        self.model.on_lost(Bytes(lost * self.mss), timeouts >= PERSISTENT_CONGESTION_TIMEOUTS);
    }

    /// Returns the pacing rate in bytes per second.
    pub(super) fn pacing_rate(&self, smoothed_rtt: Duration) -> f64 {
        let window = self.model.window().0 as f64;
        let rate = window * PACING_RATIO / smoothed_rtt.as_secs_f64().max(1e-9);
        self.model.pacing_rate().map_or(rate, |own| rate.min(own.bits_per_sec() as f64 / 8.0))
    }

    /// Returns the segments of a burst.
    pub(super) fn burst_segments(&self) -> u64 {
        (self.model.send_quantum().0 / self.mss).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(number: u64, mss: u64) -> Segments {
        Segments { number, start: 0, end: 10 * mss, mss }
    }

    /// Returns a detector after bursts of losses, each before segments that arrived.
    fn after_bursts(bursts: u64, lost: u64, arrived: u64) -> BlackHole {
        let mut black_hole = BlackHole::default();
        for n in 0..bursts {
            black_hole.on_arrival(&segments(30 * n + 20, arrived));
            black_hole.on_presumed_lost(&segments(30 * n, lost));
            black_hole.on_presumed_lost(&segments(30 * n + 10, lost));
            black_hole.end_burst();
        }
        black_hole
    }

    #[test]
    fn fourth_suspicious_burst_reveals_black_hole() {
        for (bursts, lost, arrived, is_detected) in [
            (3, MSS, MIN_MSS, false),
            (4, MSS, MIN_MSS, true),
            (9, MIN_MSS, MIN_MSS, false),
            (9, MSS, MSS, false),
        ] {
            let black_hole = after_bursts(bursts, lost, arrived);
            assert_eq!(black_hole.is_detected(), is_detected, "{bursts} of {lost}, {arrived}");
        }
    }

    #[test]
    fn consecutive_losses_are_one_burst() {
        let mut black_hole = BlackHole::default();
        (0..9).for_each(|n| black_hole.on_presumed_lost(&segments(10 * n, MSS)));
        black_hole.end_burst();
        assert_eq!(black_hole.suspicious, 1);
        (0..3).for_each(|n| black_hole.on_presumed_lost(&segments(100 + 20 * n, MSS)));
        black_hole.end_burst();
        assert!(black_hole.is_detected());
        black_hole.is_present = true;
        black_hole.on_arrival(&segments(200, MSS));
        assert!(!black_hole.is_detected() && !black_hole.is_present);
    }
}
