//! Congestion control of a QUIC sender, as the engine runs it in `quinn-proto`.
//!
//! Out of scope: QUIC's loss detection and acknowledgements; they are the sender's and TCP's.

use super::MSS;
use bankfull_control::Bytes;
use bankfull_control::congestion::ModelBased;
use std::time::Duration;

/// Timeouts in a row that mean persistent congestion (RFC 9002 §7.6.1).
const PERSISTENT_CONGESTION_TIMEOUTS: u32 = 3;

/// Pacing rate in windows per RTT (connection/pacing.rs, quinn-proto 0.11.19; RFC 9002 §7.7).
const PACING_RATIO: f64 = 1.25;

/// Congestion controller of a QUIC sender.
#[derive(Debug, Clone)]
pub(super) struct Quic {
    model: ModelBased,
}

impl Quic {
    pub(super) fn new() -> Self {
        Self { model: ModelBased::new(Duration::ZERO, Bytes(MSS)) }
    }

    /// Returns the window in segments.
    pub(super) fn window(&self) -> u64 {
        self.model.window().0 / MSS
    }

    pub(super) fn on_sent(&mut self, now: Duration, bytes: u64) {
        self.model.on_sent(now, Bytes(bytes));
    }

    /// Records segments that were sent at `sent` and have arrived.
    pub(super) fn on_arrival(
        &mut self,
        now: Duration,
        sent: Duration,
        segments: u64,
        is_app_limited: bool,
    ) {
        self.model.on_ack(now, sent, Bytes(segments * MSS), is_app_limited);
    }

    /// Records that segments have arrived with a congestion mark.
    pub(super) fn on_marked(&mut self) {
        self.model.on_marked();
    }

    /// Ends an acknowledgement that reveals `lost` segments; `in_flight` are left.
    pub(super) fn on_end_ack(&mut self, lost: u64, in_flight: u64, is_app_limited: bool) {
        self.model.on_end_acks(Bytes(in_flight * MSS), is_app_limited);
        if lost > 0 {
            self.model.on_lost(Bytes(lost * MSS), false);
        }
    }

    /// Records that nothing arrived for one more timeout, and `lost` segments are presumed lost.
    pub(super) fn on_timeout(&mut self, lost: u64, timeouts: u32) {
        self.model.on_lost(Bytes(lost * MSS), timeouts >= PERSISTENT_CONGESTION_TIMEOUTS);
    }

    /// Returns the pacing rate in bytes per second.
    pub(super) fn pacing_rate(&self, smoothed_rtt: Duration) -> f64 {
        let window = self.model.window().0 as f64;
        let rate = window * PACING_RATIO / smoothed_rtt.as_secs_f64().max(1e-9);
        self.model.pacing_rate().map_or(rate, |own| rate.min(own.bits_per_sec() as f64 / 8.0))
    }

    /// Returns the segments of a burst.
    pub(super) fn burst_segments(&self) -> u64 {
        (self.model.send_quantum().0 / MSS).max(1)
    }
}
