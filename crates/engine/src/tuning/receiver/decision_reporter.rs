//! Reports of the receiving side to the client: snapshots if due, and decisions at once.

use crate::base::event::Controller;
use crate::session::feedback_inbox::MAX_QUEUED_REPORTS;
use crate::session::interface_sharing::LastDecision;
use crate::transport::control::Outbox;
use crate::tuning::telemetry::{PendingDecision, Snapshot, Telemetry};
use crate::tuning::{MAX_TCP_WINDOW, WINDOW_REPORT_INTERVAL, is_factor_apart};
use bankfull_control::path_control::{Decision, Reason, State};
use bankfull_control::{Bytes, ControllerKind, Rate, streams};
use std::collections::VecDeque;
use std::time::Duration;

/// Emits decisions and snapshots on the client, or sends them to a remote client.
pub(super) struct DecisionReporter<'a> {
    telemetry: Telemetry<'a>,
    outbox: Outbox,
    /// Controller of window and pacing.
    controller: Controller,
    /// Time and state of its last reported decision.
    last_report: Option<(Duration, State)>,
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
    pub(super) fn new(telemetry: Telemetry<'a>, outbox: Outbox, kind: ControllerKind) -> Self {
        let controller = match kind {
            ControllerKind::Delay => Controller::Delay,
            ControllerKind::Sobas => Controller::Sobas,
        };
        Self {
            telemetry,
            outbox,
            controller,
            last_report: None,
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

    /// Reports a decision on window and pacing, unless one of its kind is recent.
    pub(super) fn on_decision(&mut self, decision: &Decision, window: Option<Bytes>) {
        if !self.is_reportable(decision) {
            return;
        }
        self.last_report = Some((decision.at, decision.state));
        self.telemetry.emit_decision(self.controller, decision, window);
        let pending = &mut self.pending_decisions;
        if !self.telemetry.is_client() && pending.len() < MAX_QUEUED_REPORTS {
            pending.push_back(*decision);
        }
    }

    /// True if a decision changes the state or user's limit, or reports are old.
    ///
    /// Delay-based control decides several times a second; SOBAS's decisions are all reported.
    fn is_reportable(&self, decision: &Decision) -> bool {
        let is_limit = matches!(decision.reason, Reason::RateMaxChanged(_));
        // Growth and trials take turns with a limited path.
        let class = |state| if state == State::Growing { State::Limited } else { state };
        let is_due = |(at, state)| {
            class(decision.state) != class(state) || decision.at >= at + WINDOW_REPORT_INTERVAL
        };
        self.controller == Controller::Sobas || is_limit || self.last_report.is_none_or(is_due)
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

    /// Drops the decisions that were not reported yet; the next one is reported.
    pub(super) fn drop_pending_decisions(&mut self) {
        self.last_report = None;
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
            let controller = self.controller;
            let pending = Some(PendingDecision { controller, reason, streams: None });
            let state = decision.state.name();
            if !self.telemetry.send_report(&self.outbox, snapshot, state, pending) {
                return;
            }
            self.pending_decisions.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::{Event, EventSink};
    use crate::stats::session_stats::SessionStats;
    use std::sync::Mutex;
    use std::time::Instant;

    const MS: Duration = Duration::from_millis(1);

    /// Decisions as (controller, state).
    #[derive(Default)]
    struct Decisions(Mutex<Vec<(&'static str, String)>>);

    impl EventSink for Decisions {
        fn event(&self, event: Event) {
            if let Event::Tuning(decision) = event {
                self.0.lock().unwrap().push((decision.controller.name(), decision.state));
            }
        }
    }

    fn decision(at_ms: u32, state: State) -> Decision {
        let reason = Reason::QueueDrained(Rate::default());
        Decision { at: MS * at_ms, state, window: Bytes::mib(1), pacing: None, reason }
    }

    /// Reports decisions; returns the states that are emitted on a client.
    fn reported(kind: ControllerKind, decisions: &[Decision]) -> Vec<(&'static str, String)> {
        let events = Decisions::default();
        let stats = SessionStats::new(&events, Instant::now());
        let telemetry = Telemetry::new(&stats, true);
        let mut reporter = DecisionReporter::new(telemetry, Outbox::default(), kind);
        decisions.iter().for_each(|decision| reporter.on_decision(decision, None));
        events.0.into_inner().unwrap()
    }

    #[test]
    fn frequent_decisions_of_one_state_are_left_out() {
        use State::{Disabled, Growing, Limited};
        let every_100_ms: Vec<_> = (0..30).map(|n| decision(n * 100, Limited)).collect();
        assert_eq!(reported(ControllerKind::Sobas, &every_100_ms).len(), 30);
        let found = reported(ControllerKind::Delay, &every_100_ms);
        assert_eq!(found, vec![("delay", "limited".to_owned()); 3]);
        let limit = Decision { reason: Reason::RateMaxChanged(None), ..decision(30, Growing) };
        let mixed = [decision(0, Limited), decision(10, Growing), decision(20, Disabled), limit];
        let found = reported(ControllerKind::Delay, &mixed);
        assert_eq!(
            found.iter().map(|(_, state)| state.as_str()).collect::<Vec<_>>(),
            ["limited", "disabled", "growing"],
            "growth is a part of a limited path"
        );
    }
}
