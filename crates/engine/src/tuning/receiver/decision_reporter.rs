//! Reports of the receiving side to the client: snapshots if due, and decisions at once.

use crate::base::event::Controller;
use crate::session::feedback_inbox::MAX_QUEUED_REPORTS;
use crate::session::interface_sharing::LastDecision;
use crate::transport::control::Outbox;
use crate::tuning::telemetry::{PendingDecision, Snapshot, Telemetry};
use crate::tuning::{MAX_TCP_WINDOW, WINDOW_REPORT_INTERVAL, is_factor_apart};
use bankfull_control::sobas::Decision;
use bankfull_control::{Bytes, Rate, streams};
use std::collections::VecDeque;
use std::time::Duration;

/// Emits decisions and snapshots on the client, or sends them to a remote client.
pub(super) struct DecisionReporter<'a> {
    telemetry: Telemetry<'a>,
    outbox: Outbox,
    /// RTT samples since the last report.
    rtts: Vec<Duration>,
    /// Decisions not yet reported to a remote client.
    pending_decisions: VecDeque<Decision>,
    pending_stream_decisions: VecDeque<streams::Decision>,
    /// Latest decision on the shared interface, not yet reported to a remote client.
    pending_coscheduling: Option<PendingDecision>,
    /// Last reported decision on the shared interface: time, decision and window.
    last_ictcp_report: Option<(Duration, LastDecision, Bytes)>,
}

impl<'a> DecisionReporter<'a> {
    pub(super) fn new(telemetry: Telemetry<'a>, outbox: Outbox) -> Self {
        Self {
            telemetry,
            outbox,
            rtts: Vec::new(),
            pending_decisions: VecDeque::new(),
            pending_stream_decisions: VecDeque::new(),
            pending_coscheduling: None,
            last_ictcp_report: None,
        }
    }

    /// Returns the telemetry of this side.
    pub(super) fn telemetry(&self) -> &Telemetry<'a> {
        &self.telemetry
    }

    /// Sends a warning to the client.
    pub(super) fn warn(&self, message: &str) {
        self.telemetry.warn(&self.outbox, message);
    }

    /// Adds an RTT sample to the next report.
    pub(super) fn on_rtt_sample(&mut self, rtt: Duration) {
        self.rtts.push(rtt);
    }

    /// Reports a decision on window and pacing.
    pub(super) fn on_decision(&mut self, decision: &Decision, window: Option<Bytes>) {
        self.telemetry.emit_decision(decision, window);
        let pending = &mut self.pending_decisions;
        if !self.telemetry.is_client() && pending.len() < MAX_QUEUED_REPORTS {
            pending.push_back(*decision);
        }
    }

    /// Reports a decision on the stream count, with the current pacing rate and window.
    pub(super) fn on_stream_decision(
        &mut self,
        decision: &streams::Decision,
        pacing: Option<Rate>,
        window: Option<Bytes>,
    ) {
        self.telemetry.emit_stream_decision(decision, pacing, window);
        let pending = &mut self.pending_stream_decisions;
        if !self.telemetry.is_client() && pending.len() < MAX_QUEUED_REPORTS {
            pending.push_back(*decision);
        }
    }

    /// Reports that the interface is shared by this many connections.
    pub(super) fn on_coscheduled(&mut self, connections: usize, window: Option<Bytes>) {
        let reason =
            format!("several copies share the interface: {connections} connections in all");
        self.emit_coscheduled(reason, window, None);
    }

    /// Reports a decision of the interface's controller, if it differs from the reported one.
    pub(super) fn on_ictcp_decision(&mut self, now: Duration, window: Bytes, last: LastDecision) {
        let is_due = |(at, before, reported): (Duration, LastDecision, Bytes)| {
            let is_other = last != before || is_factor_apart(window, reported);
            is_other && now >= at + WINDOW_REPORT_INTERVAL
        };
        if self.last_ictcp_report.is_none_or(is_due) {
            self.last_ictcp_report = Some((now, last, window));
            self.emit_coscheduled(last.reason.to_string(), Some(window), last.pacing);
        }
    }

    fn emit_coscheduled(&mut self, reason: String, window: Option<Bytes>, pacing: Option<Rate>) {
        self.telemetry.emit_coscheduled(reason.clone(), window, pacing);
        if !self.telemetry.is_client() {
            let controller = Controller::Ictcp;
            self.pending_coscheduling = Some(PendingDecision { controller, reason, streams: None });
        }
    }

    /// Drops the decisions that were not reported yet.
    pub(super) fn drop_pending_decisions(&mut self) {
        self.pending_decisions.clear();
        self.pending_stream_decisions.clear();
    }

    /// True if this side is the client; the next snapshot then becomes that of the present.
    pub(super) fn begin_last_sample(&mut self) -> bool {
        self.telemetry.set_due();
        self.telemetry.is_client()
    }

    /// True if a snapshot is due or a decision is pending.
    pub(super) fn poll_due(&mut self) -> bool {
        self.telemetry.poll_due() || self.has_pending_decisions()
    }

    fn has_pending_decisions(&self) -> bool {
        !self.pending_decisions.is_empty() || !self.pending_stream_decisions.is_empty()
    }

    /// Reports a snapshot, to which it adds RTT samples and this side's stage times.
    pub(super) fn report(&mut self, mut snapshot: Snapshot, state: &str) {
        snapshot.rtts = std::mem::take(&mut self.rtts);
        snapshot.stages[1] = self.telemetry.stage_times();
        if self.telemetry.is_client() {
            self.telemetry.emit_sample(&snapshot);
        } else {
            self.send_reports(&mut snapshot, state);
        }
    }

    /// Sends the snapshot to a remote client, once for each pending decision.
    fn send_reports(&mut self, snapshot: &mut Snapshot, state: &str) {
        if !self.has_pending_decisions() {
            let pending = self.pending_coscheduling.take();
            self.telemetry.send_report(&self.outbox, snapshot, state, pending);
        }
        while let Some(decision) = self.pending_stream_decisions.front() {
            let pending = Some(PendingDecision::from_streams(decision));
            if !self.telemetry.send_report(&self.outbox, snapshot, state, pending) {
                return;
            }
            self.pending_stream_decisions.pop_front();
        }
        while let Some(decision) = self.pending_decisions.front() {
            let window = Some(decision.window).filter(|window| *window < MAX_TCP_WINDOW);
            snapshot.window = window.map(|window| window.0);
            snapshot.bytes_per_sec = decision.pacing.map(Rate::bytes_per_sec);
            let reason = decision.reason.to_string();
            let controller = Controller::Sobas;
            let pending = Some(PendingDecision { controller, reason, streams: None });
            let state = decision.state.name();
            if !self.telemetry.send_report(&self.outbox, snapshot, state, pending) {
                return;
            }
            self.pending_decisions.pop_front();
        }
    }
}
