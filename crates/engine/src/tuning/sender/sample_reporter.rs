//! Events of the sending side on the client: the receiver's decisions, and samples of both sides.

use crate::base::sync::lock;
use crate::session::Session;
use crate::tuning::telemetry::{Snapshot, Telemetry, buffered_at_receiver};
use bankfull_control::{LimitSamples, StageTimes};
use bankfull_proto::limits::MAX_REPORT_RTTS;
use bankfull_proto::wire::control::{ReceiverReport, SenderReport, stage_times};
use std::time::Duration;

/// Emits decisions and samples from the reports of both sides. Emits nothing on a server.
pub(super) struct SampleReporter<'a> {
    telemetry: Telemetry<'a>,
    /// Latest receiver report.
    receiver_report: ReceiverReport,
    /// RTT samples of the receiver reports since the last sample event.
    rtts: Vec<Duration>,
}

impl<'a> SampleReporter<'a> {
    pub(super) fn new(telemetry: Telemetry<'a>) -> Self {
        Self { telemetry, receiver_report: ReceiverReport::default(), rtts: Vec::new() }
    }

    /// Returns the telemetry of this side.
    pub(super) fn telemetry(&self) -> &Telemetry<'a> {
        &self.telemetry
    }

    /// Takes the queued receiver reports and emits their decisions. True if a sample is due.
    pub(super) fn poll(&mut self, session: &Session) -> bool {
        let receiver_reports = std::mem::take(&mut *lock(&session.feedback.receiver_reports));
        if !self.telemetry.is_client() {
            return false;
        }
        receiver_reports.into_iter().for_each(|report| self.on_receiver_report(report));
        self.telemetry.poll_due()
    }

    /// Takes the last reports. True if this side is the client; the next sample then becomes that
    /// of the present.
    pub(super) fn begin_last_sample(&mut self, session: &Session) -> bool {
        self.poll(session);
        self.telemetry.set_due();
        self.telemetry.is_client()
    }

    /// Emits a sample event. `carried` is the data that the receiver acknowledged,
    /// `requested_rate` the pacing rate in bytes/s.
    pub(super) fn emit_sample(
        &mut self,
        session: &Session,
        report: &SenderReport,
        carried: u64,
        requested_rate: Option<u64>,
    ) {
        let received = &self.receiver_report;
        let mut rtts = std::mem::take(&mut self.rtts);
        if received.probes == 0 && rtts.is_empty() {
            rtts.extend(report.rtt_us.map(Duration::from_micros));
        }
        let receiver_stages = received.stage_nanos.map_or_else(StageTimes::default, stage_times);
        self.telemetry.emit_sample(&Snapshot {
            streams: session.stream_count() as u32,
            carried,
            rtts,
            probes: received.probes,
            probes_lost: received.probes_lost,
            capacity: received.capacity,
            window: received.window,
            granted: report.window,
            bytes_per_sec: requested_rate,
            retransmits: Some(report.retransmits),
            buffered: buffered_at_receiver(received),
            stages: [self.telemetry.stage_times(), receiver_stages],
            sender_samples: LimitSamples { count: report.samples, limited: report.app_limited },
            receiver_samples: LimitSamples {
                count: received.samples,
                limited: received.receiver_limited,
            },
        });
    }

    /// Emits the decisions of a receiver report, and keeps it for the next sample event.
    fn on_receiver_report(&mut self, report: ReceiverReport) {
        self.telemetry.on_receiver_report(&report);
        let rtts = report.rtts_us.iter().map(|&us| Duration::from_micros(us.into()));
        // An honest receiver reports about ten per sample event.
        let room = MAX_REPORT_RTTS.saturating_sub(self.rtts.len());
        self.rtts.extend(rtts.take(room));
        self.receiver_report = report;
    }
}
