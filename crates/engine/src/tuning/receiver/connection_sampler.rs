//! Samples of a receiving session's connections: from this side's sockets, and from the sender's
//! reports.

use super::window_actuator::WindowActuator;
use crate::session::Session;
use bankfull_control::{Bottleneck, Bytes, LimitSamples, bottleneck};
use bankfull_proto::wire::control::SenderReport;
use std::collections::BTreeMap;
use std::time::Duration;

/// Sample of all connections of a receiver.
pub(super) struct ReceiverSample {
    /// Bytes received on all streams.
    pub(super) received: Bytes,
    /// Bytes received on each stream, as (stream number, bytes).
    pub(super) received_by_stream: Vec<(u32, u64)>,
    /// Largest window that each stream advertises at present, in bytes.
    pub(super) largest_windows: BTreeMap<u32, u32>,
    /// Smallest min RTT of the streams.
    pub(super) min_rtt: Option<Duration>,
    /// Largest MSS of the streams; zero if unknown.
    pub(super) mss: Bytes,
    pub(super) bottleneck: Bottleneck,
}

/// Samples the connections of a receiving session.
#[derive(Default)]
pub(super) struct ConnectionSampler {
    /// Latest sender report.
    sender_report: SenderReport,
    /// Samples of the sender's sockets between its last two reports.
    latest_sender_samples: LimitSamples,
    /// Samples of this side's sockets, and how many of them were receiver-limited.
    receiver_samples: LimitSamples,
}

impl ConnectionSampler {
    /// Returns the latest sender report.
    pub(super) fn sender_report(&self) -> &SenderReport {
        &self.sender_report
    }

    /// Returns the samples of the sender's sockets and of the receiver's since the beginning.
    pub(super) fn samples(&self) -> [LimitSamples; 2] {
        [app_limited_samples(&self.sender_report), self.receiver_samples]
    }

    /// Samples all streams, which have this window together, and takes the next sender report.
    pub(super) fn sample(
        &mut self,
        session: &Session,
        actuator: &WindowActuator,
        session_window: Option<Bytes>,
    ) -> ReceiverSample {
        let first_paused = session.first_paused().unwrap_or(u32::MAX);
        let (mut received_by_stream, mut largest_windows) = (Vec::new(), BTreeMap::new());
        let (mut mss, previous) = (0, self.receiver_samples);
        // Data that waits for the user's limit does not wait for this host.
        let is_throttled = session.is_receiving_limited();
        let carried = session.sample_streams(|number, socket, info| {
            mss = mss.max(info.snd_mss);
            received_by_stream.push((number, info.bytes_received.unwrap_or_default()));
            largest_windows.insert(number, info.rcv_ssthresh);
            let window = session_window.map(|window| actuator.stream_window(number, window));
            let half_window = window.unwrap_or(Bytes(info.rcv_space.into())).0 / 2;
            if number < first_paused {
                self.receiver_samples.add(!is_throttled && socket.unread_bytes() > half_window);
            }
        });
        if let Some(report) = session.feedback.take_sender_report() {
            // Arrives only at every second sample.
            let before = app_limited_samples(&self.sender_report);
            self.latest_sender_samples = app_limited_samples(&report).since(before);
            self.sender_report = report;
        }
        let receiver_samples = self.receiver_samples.since(previous);
        ReceiverSample {
            received: Bytes(carried.received),
            received_by_stream,
            largest_windows,
            min_rtt: carried.min_rtt,
            mss: Bytes(mss.into()),
            bottleneck: bottleneck(self.latest_sender_samples, receiver_samples),
        }
    }
}

/// Returns the sender's samples, and how many of them were app-limited.
fn app_limited_samples(report: &SenderReport) -> LimitSamples {
    LimitSamples { count: report.samples, limited: report.app_limited }
}
