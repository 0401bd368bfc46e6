//! Reports the state of a transfer's streams: as events on the client, and from a receiving server
//! to its client as receiver reports, which become the same events there.

use super::TELEMETRY_INTERVAL;
use crate::base::error::printable;
use crate::base::error::problem_message;
use crate::base::event::{
    BufferLimit, Controller, Event, ReceiveBufferKind, Sample, TuningDecision,
};
use crate::stats::quic_stats::BufferChange;
use crate::stats::session_stats::SessionStats;
use crate::transport::buffer_pool::BufferStatus;
use crate::transport::control::Outbox;
use bankfull_control::congestion::has_standing_queue;
use bankfull_control::path_control::{Decision, State};
use bankfull_control::rrda::pool::reason_clause;
use bankfull_control::streams::{self, Change};
use bankfull_control::{Bytes, LimitSamples, Rate, StageTimes};
use bankfull_proto::limits::MAX_REPORT_RTTS;
use bankfull_proto::wire::control::{Cause, Failure, Message, ReceiverReport, stage_nanos};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Reported state while the session's streams are tuned together with those of other sessions.
pub(crate) const SHARED_STATE: &str = "shared";

/// State of all streams of a session at one moment. Counters start with the session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) streams: u32,
    /// Bytes carried: received on the receiving side, acknowledged on the sending side.
    pub(crate) carried: u64,
    /// RTT samples since the last report.
    pub(crate) rtts: Vec<Duration>,
    pub(crate) probes: u64,
    pub(crate) probes_lost: u64,
    /// Data rate of the bottleneck link in bytes/s, from packet trains.
    pub(crate) capacity: Option<u64>,
    /// Target receive window of all streams together, in bytes.
    pub(crate) window: Option<u64>,
    /// Receive window that the peer granted to all streams together, in bytes.
    pub(crate) granted: Option<u64>,
    /// Pacing rate of all streams together.
    pub(crate) bytes_per_sec: Option<u64>,
    pub(crate) retransmits: Option<u64>,
    /// Received data waiting for the disk.
    pub(crate) buffered: Option<BufferStatus>,
    /// Stage times of the sender's threads and of the receiver's.
    pub(crate) stages: [StageTimes; 2],
    /// Samples of the sender's sockets, and how many of them were app-limited.
    pub(crate) sender_samples: LimitSamples,
    /// Samples of the receiver's sockets, and how many of them were receiver-limited.
    pub(crate) receiver_samples: LimitSamples,
}

/// Reports snapshots and decisions of one session.
pub(crate) struct Telemetry<'a> {
    stats: &'a SessionStats<'a>,
    /// This side is the client, which runs the transfer.
    is_client: bool,
    last_due: Duration,
    /// Sender and receiver samples of the last snapshot.
    reported: (LimitSamples, LimitSamples),
    min_rtt: Option<Duration>,
    /// Time of the last reported change of the buffer limit.
    reported_limit_change: Option<Instant>,
}

impl<'a> Telemetry<'a> {
    pub(crate) fn new(stats: &'a SessionStats<'a>, is_client: bool) -> Self {
        let (last_due, reported, min_rtt, reported_limit_change) = Default::default();
        Self { stats, is_client, last_due, reported, min_rtt, reported_limit_change }
    }

    /// Warns on this side that no datagram came back from the peer's UDP address.
    pub(crate) fn warn_no_udp_response(&self, address: SocketAddr) {
        let message = format!(
            "no response over UDP from {address}: the path is measured with TCP alone; to measure \
             it with UDP, let UDP through to that port and check that no other program uses it"
        );
        self.stats.warn(message);
    }

    /// Sends a warning to the client.
    pub(crate) fn warn(&self, outbox: &Outbox, message: &str) {
        if self.is_client {
            self.stats.warn(message);
        } else {
            outbox.post(&problem_message(PathBuf::new(), Failure::new(Cause::Warning, message)));
        }
    }

    /// True if this side is the client.
    pub(crate) fn is_client(&self) -> bool {
        self.is_client
    }

    /// Returns the CPU time that this side spent on its streams.
    pub(crate) fn cpu_busy(&self) -> Duration {
        self.stats.cpu_time()
    }

    /// Returns the stage times of this side's threads.
    pub(crate) fn stage_times(&self) -> StageTimes {
        self.stats.times()
    }

    /// True once per [`TELEMETRY_INTERVAL`].
    pub(crate) fn poll_due(&mut self) -> bool {
        let now = self.stats.elapsed();
        let is_due = now >= self.last_due + TELEMETRY_INTERVAL;
        if is_due {
            self.last_due = now;
        }
        is_due
    }

    /// Dates the next sample at the present time, whether one is due or not.
    pub(crate) fn set_due(&mut self) {
        self.last_due = self.stats.elapsed();
    }

    /// Emits a snapshot as a sample event.
    pub(crate) fn emit_sample(&mut self, snapshot: &Snapshot) {
        let since = (
            snapshot.sender_samples.since(self.reported.0),
            snapshot.receiver_samples.since(self.reported.1),
        );
        self.reported = (snapshot.sender_samples, snapshot.receiver_samples);
        self.min_rtt = snapshot.rtts.iter().copied().chain(self.min_rtt).min();
        self.stats.on_carried(snapshot.carried);
        if let Some(min_rtt) = self.min_rtt {
            // The median: single streams may be delayed by their own loss recovery.
            let rtt = median(&snapshot.rtts).unwrap_or(min_rtt);
            self.stats.path_observer().on_queue(has_standing_queue(rtt, min_rtt));
        }
        self.emit_buffer_limit(snapshot.buffered);
        self.stats.event(Event::Sample(Sample {
            at: self.last_due,
            streams: snapshot.streams,
            carried: Bytes(snapshot.carried),
            rtts: snapshot.rtts.clone(),
            probes: snapshot.probes,
            probes_lost: snapshot.probes_lost,
            capacity: snapshot.capacity.map(rate),
            window: snapshot.window.map(Bytes),
            granted: snapshot.granted.map(Bytes),
            pacing: snapshot.bytes_per_sec.map(rate),
            retransmits: snapshot.retransmits,
            buffered_peak: snapshot.buffered.map(|buffered| buffered.peak),
            buffer_limit: snapshot.buffered.map(|buffered| buffered.size),
            sender: snapshot.stages[0],
            receiver: snapshot.stages[1],
            app_limited_share: since.0.share(),
            receiver_limited_share: since.1.share(),
        }));
    }

    /// Emits a change of the buffer limit, once.
    fn emit_buffer_limit(&mut self, buffered: Option<BufferStatus>) {
        let Some((buffered, (at, reason))) = buffered.and_then(|b| Some((b, b.change?))) else {
            return;
        };
        if self.reported_limit_change.replace(at) != Some(at) {
            self.stats.event(Event::BufferLimit(BufferLimit {
                at: self.stats.elapsed().saturating_sub(at.elapsed()),
                buffer: ReceiveBufferKind::Staging,
                size: buffered.size,
                reason: reason_clause(reason).to_owned(),
            }));
        }
    }

    /// Emits a controller's decision on window and pacing.
    pub(crate) fn emit_decision(
        &self,
        controller: Controller,
        decision: &Decision,
        window: Option<Bytes>,
    ) {
        self.record_rate(decision.state.name(), decision.pacing);
        self.stats.event(Event::Tuning(TuningDecision {
            at: self.stats.elapsed(),
            controller,
            state: decision.state.name().to_owned(),
            window,
            pacing: decision.pacing,
            streams: None,
            reason: decision.reason.to_string(),
        }));
    }

    /// Emits a decision about the streams together with those of other sessions.
    pub(crate) fn emit_coscheduled(
        &self,
        reason: String,
        window: Option<Bytes>,
        pacing: Option<Rate>,
    ) {
        self.stats.event(Event::Tuning(TuningDecision {
            at: self.stats.elapsed(),
            controller: Controller::Ictcp,
            state: SHARED_STATE.to_owned(),
            window,
            pacing,
            streams: None,
            reason,
        }));
    }

    /// Emits a window of the session's QUIC connection.
    pub(crate) fn emit_quic_window(&self, direction: &str, window: Bytes, reason: &str) {
        self.stats.event(Event::Tuning(TuningDecision {
            at: self.stats.elapsed(),
            controller: Controller::QuicWindow,
            state: direction.to_owned(),
            window: Some(window),
            pacing: None,
            streams: None,
            reason: reason.to_owned(),
        }));
    }

    /// Emits a change of the UDP socket's receive buffer.
    pub(crate) fn emit_udp_buffer(&self, change: BufferChange) {
        self.stats.event(Event::BufferLimit(BufferLimit {
            at: self.stats.elapsed().saturating_sub(change.at.elapsed()),
            buffer: ReceiveBufferKind::UdpSocket,
            size: change.size,
            reason: change.reason.to_string(),
        }));
    }

    /// Emits a decision on the stream count. `current` is the one on window and pacing.
    pub(crate) fn emit_stream_decision(
        &self,
        decision: &streams::Decision,
        pacing: Option<Rate>,
        window: Option<Bytes>,
    ) {
        let PendingDecision { reason, streams, .. } = PendingDecision::from_streams(decision);
        self.record_streams(streams);
        self.stats.event(Event::Tuning(TuningDecision {
            at: self.stats.elapsed(),
            controller: Controller::Streams,
            state: String::new(),
            window,
            pacing,
            streams,
            reason,
        }));
    }

    /// Records the rate limit for later transfers over the same path.
    fn record_rate(&self, state: &str, pacing: Option<Rate>) {
        if state == State::Limited.name()
            && let (Some(rate), Some(min_rtt)) = (pacing, self.min_rtt)
        {
            self.stats.path_observer().on_rate_limit(rate, min_rtt);
        }
    }

    /// Records the target stream count, if the decision has one.
    fn record_streams(&self, streams: Option<u32>) {
        if let Some(streams) = streams {
            self.stats.path_observer().on_stream_count(streams, self.stats.elapsed());
        }
    }

    /// Emits the decisions in a report of the receiver.
    pub(crate) fn on_receiver_report(&self, report: &ReceiverReport) {
        if let (Some(size), Some(reason)) = (report.buffer_limit, &report.buffer_reason) {
            self.stats.event(Event::BufferLimit(BufferLimit {
                at: self.stats.elapsed(),
                buffer: ReceiveBufferKind::Staging,
                size: Bytes(size),
                reason: printable(reason),
            }));
        }
        let Some(reason) = &report.reason else { return };
        self.record_rate(&report.state, report.bytes_per_sec.map(Rate::from_bytes_per_sec));
        self.record_streams(report.streams);
        let controller = controller_of(report);
        // The state is that of window and pacing, or the sharing of ICTCP.
        let has_state = controller != Controller::Streams;
        self.stats.event(Event::Tuning(TuningDecision {
            at: self.stats.elapsed(),
            controller,
            state: if has_state { printable(&report.state) } else { String::new() },
            window: report.window.map(Bytes),
            pacing: report.bytes_per_sec.map(rate),
            streams: report.streams,
            reason: printable(reason),
        }));
    }

    /// Sends a snapshot and at most one decision to the client. False if the outbox is full.
    ///
    /// RTT samples and the change of the buffer limit are removed once sent.
    pub(crate) fn send_report(
        &mut self,
        outbox: &Outbox,
        snapshot: &mut Snapshot,
        state: &str,
        decision: Option<PendingDecision>,
    ) -> bool {
        let micros = |time: &Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let change = snapshot.buffered.and_then(|buffered| buffered.change);
        let is_new = |&(at, _): &(Instant, _)| self.reported_limit_change != Some(at);
        let is_sent = outbox.try_post(&Message::ReceiverReport(ReceiverReport {
            state: state.to_owned(),
            window: snapshot.window,
            bytes_per_sec: snapshot.bytes_per_sec,
            rtts_us: snapshot.rtts.iter().take(MAX_REPORT_RTTS).map(micros).collect(),
            capacity: snapshot.capacity,
            probes: snapshot.probes,
            probes_lost: snapshot.probes_lost,
            samples: snapshot.receiver_samples.count,
            receiver_limited: snapshot.receiver_samples.limited,
            stage_nanos: Some(stage_nanos(&snapshot.stages[1])),
            streams: decision.as_ref().and_then(|decision| decision.streams),
            controller: decision.as_ref().map(|decision| code_of(decision.controller)),
            reason: decision.map(|decision| decision.reason),
            buffered_peak: snapshot.buffered.map(|buffered| buffered.peak.0),
            buffer_limit: snapshot.buffered.map(|buffered| buffered.size.0),
            buffer_reason: change
                .filter(is_new)
                .map(|(_, reason)| reason_clause(reason).to_owned()),
        }));
        if is_sent {
            snapshot.rtts.clear();
            self.reported_limit_change = change.map(|(at, _)| at).or(self.reported_limit_change);
        }
        is_sent
    }
}

/// Decision that is not reported yet.
pub(crate) struct PendingDecision {
    pub(crate) controller: Controller,
    pub(crate) reason: String,
    /// Target stream count, if the decision is about it.
    pub(crate) streams: Option<u32>,
}

impl PendingDecision {
    /// Describes a decision on the stream count or on BBR.
    pub(crate) fn from_streams(decision: &streams::Decision) -> Self {
        let has_count = decision.change != Change::CongestionControl;
        let reason = decision.reason.to_string();
        let streams = has_count.then_some(decision.streams);
        Self { controller: Controller::Streams, reason, streams }
    }
}

/// Controllers by their code in a receiver report.
const CONTROLLERS: [Controller; 4] =
    [Controller::Sobas, Controller::Streams, Controller::Ictcp, Controller::Delay];

/// Returns the controller whose decision a receiver reports; SOBAS for an unknown code.
fn controller_of(report: &ReceiverReport) -> Controller {
    let code = report.controller.and_then(|code| usize::try_from(code).ok());
    code.and_then(|code| CONTROLLERS.get(code)).copied().unwrap_or_default()
}

fn code_of(controller: Controller) -> u32 {
    CONTROLLERS.iter().position(|&known| known == controller).unwrap_or_default() as u32
}

/// Returns the receiver's buffered data from its report.
pub(crate) fn buffered_at_receiver(report: &ReceiverReport) -> Option<BufferStatus> {
    let (most, size) = report.buffered_peak.zip(report.buffer_limit)?;
    // `on_receiver_report` has emitted the reason already.
    Some(BufferStatus { peak: Bytes(most), size: Bytes(size), change: None })
}

fn median(times: &[Duration]) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

fn rate(bytes_per_sec: u64) -> Rate {
    Rate::from_bits_per_sec(bytes_per_sec as f64 * 8.0)
}
