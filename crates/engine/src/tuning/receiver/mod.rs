//! Tuning of the receiving side: samples its sockets, passes observations to the controller, clamps
//! windows and requests a rate from the sender.
//!
//! A tick runs in one direction: [`PathProber`] and [`ConnectionSampler`] observe; the
//! [`Controller`] and [`StreamControl`] decide; [`RateRequester`] and [`WindowActuator`] apply;
//! [`DecisionReporter`] reports.

mod connection_sampler;
mod decision_reporter;
mod forward_delay;
mod path_prober;
mod rate_requester;
mod stream_control;
mod window_actuator;

use super::buffer_advice::InflightLimits;
use super::incast::can_clamp_windows;
use super::telemetry::{SHARED_STATE, Snapshot, Telemetry};
use super::trains::TrainResult;
use super::{
    MAX_TCP_WINDOW, ProbeChannel, SAMPLE_INTERVAL, SampleClock, TELEMETRY_INTERVAL, available_cpus,
};
use crate::base::sync::Latch;
use crate::session::Session;
use crate::transport::control::Outbox;
use bankfull_control::path_control::{Config, Decision, Observation};
use bankfull_control::streams::{self, HostLoad};
use bankfull_control::{Bytes, Controller, Rate, StageTimes, pacing};
use bankfull_proto::wire::control::{RateRequest, stage_times};
use bankfull_sys::name_thread;
use connection_sampler::ConnectionSampler;
use decision_reporter::DecisionReporter;
use forward_delay::MAX_PLAUSIBLE_RTT;
use path_prober::{PathProber, ProbeDelay};
use rate_requester::RateRequester;
use std::time::{Duration, Instant};
use stream_control::StreamControl;
use window_actuator::WindowActuator;

/// Warning for kernels that ignore window clamps on established connections.
const OLD_KERNEL_WARNING: &str = "this host's kernel is older than Linux 5.15 and cannot change \
                                  the windows of established connections: with many senders only \
                                  time slots limit them";

/// Tunes the streams of a receiving session.
pub(crate) struct ReceiverTuner<'a> {
    session: &'a Session,
    started: Instant,
    prober: PathProber,
    connections: ConnectionSampler,
    controller: Controller,
    /// Current decision on window and pacing of all streams together.
    decision: Option<Decision>,
    stream_control: StreamControl,
    requester: RateRequester,
    actuator: WindowActuator,
    reporter: DecisionReporter<'a>,
    /// The streams are tuned together with those of other sessions.
    is_coscheduled: bool,
    /// Rate limit of the user at the last tick.
    rate_max: Option<Rate>,
}

impl<'a> ReceiverTuner<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        telemetry: Telemetry<'a>,
        probe_channel: Option<ProbeChannel>,
    ) -> Self {
        let started = Instant::now();
        let prober = PathProber::new(probe_channel, started);
        let rate_max = session.rate_max();
        let config = Config {
            window_max: MAX_TCP_WINDOW,
            capacity_timeout: prober.capacity_timeout(),
            rate_max,
            cached_path: session.cached_path,
        };
        Self {
            session,
            started,
            prober,
            connections: ConnectionSampler::default(),
            controller: Controller::new(session.controller, config),
            decision: None,
            stream_control: StreamControl::new(session.wanted_streams(), session.target.max),
            requester: RateRequester::new(outbox.clone()),
            actuator: WindowActuator::new(),
            reporter: DecisionReporter::new(telemetry, outbox, session.controller),
            is_coscheduled: false,
            rate_max,
        }
    }

    /// Runs until the session is over.
    pub(crate) fn run(mut self, over: &Latch) {
        name_thread(c"tuner");
        let mut clock = SampleClock::default();
        while !over.wait(if self.is_coscheduled { TELEMETRY_INTERVAL } else { SAMPLE_INTERVAL }) {
            let now = self.started.elapsed();
            if self.poll_coscheduled(now) {
                continue;
            }
            if self.poll_rate_max(now) {
                clock.force_next();
            }
            let min_rtt = self.controller.min_rtt();
            let mut delays = self.prober.exchange(now, min_rtt, self.reporter.telemetry());
            if !self.controller.uses_all_echoes() {
                delays.drain(..delays.len().saturating_sub(1));
            }
            if let Some(result) = self.prober.poll_trains(now) {
                self.on_train_result(&result, now);
                clock.force_next();
            }
            let is_halved = self.controller.allows_sparse_sampling()
                && !self.prober.is_timed_out(now, self.controller.min_rtt());
            if clock.poll_due(now, is_halved) {
                self.tune(now, delays);
            } else {
                delays.iter().for_each(|delay| self.on_delay(now, delay));
            }
        }
        if self.reporter.begin_last_sample() {
            let observation = self.sample(self.started.elapsed(), None);
            let snapshot = self.snapshot(&observation);
            self.reporter.report(snapshot, self.state_name());
        }
    }

    /// Observes, decides, applies and reports, once.
    fn tune(&mut self, now: Duration, mut delays: Vec<ProbeDelay>) {
        let latest = delays.pop();
        delays.iter().for_each(|delay| self.on_delay(now, delay));
        let observation = self.sample(now, latest);
        let (min_rtt, received) = (self.controller.min_rtt(), observation.received);
        if self.controller.thins_probes() {
            self.prober.on_received(received);
        }
        if let Some(warning) = self.prober.poll_blocked_warning(now, min_rtt, received) {
            self.reporter.warn(&warning);
        }
        let decision = self.controller.observe(&observation);
        self.on_decision(decision);
        self.tune_streams(&observation);
        self.apply(observation.mss);
        if let Some(rtt) = observation.rtt {
            self.reporter.on_rtt_sample(rtt);
        }
        self.report(&observation);
    }

    /// Records delays that are not part of an observation.
    fn on_delay(&mut self, now: Duration, delay: &ProbeDelay) {
        self.controller.on_delay_sample(now, delay.rtt, delay.forward);
        self.reporter.on_rtt_sample(delay.rtt);
    }

    /// Returns whether the streams are tuned together with those of other sessions.
    ///
    /// Meanwhile this tuner decides nothing, and only reports.
    fn poll_coscheduled(&mut self, now: Duration) -> bool {
        let shared = self.session.sharing.coscheduled();
        if shared.is_some() != self.is_coscheduled {
            self.is_coscheduled = shared.is_some();
            self.on_coscheduling_change(shared.map(|(_, connections)| connections));
        }
        if self.is_coscheduled {
            let last = self.session.sharing.last_decision();
            if let (Some(window), Some(last)) = (self.window(), last) {
                self.reporter.on_ictcp_decision(now, window, last);
            }
            let observation = self.sample(now, None);
            self.report(&observation);
        }
        self.is_coscheduled
    }

    /// Passes a change of the user's limit to the controller. Returns false if there is none.
    fn poll_rate_max(&mut self, now: Duration) -> bool {
        let rate_max = self.session.rate_max();
        let is_changed = std::mem::replace(&mut self.rate_max, rate_max) != rate_max;
        if is_changed {
            let decision = self.controller.on_rate_max(now, rate_max);
            self.on_decision(Some(decision));
        }
        is_changed
    }

    /// Suspends the controller while the interface has this many connections, or restarts it.
    fn on_coscheduling_change(&mut self, connections: Option<usize>) {
        self.decision = None;
        self.actuator.forget_clamps();
        self.reporter.drop_pending_decisions();
        self.requester.reset();
        match connections {
            Some(connections) => {
                self.reporter.on_coscheduled(connections, self.window());
                if !can_clamp_windows() {
                    self.reporter.warn(OLD_KERNEL_WARNING);
                }
            }
            None => {
                let rate_max = self.session.rate_max();
                self.rate_max = rate_max;
                let (window_max, capacity_timeout) = (MAX_TCP_WINDOW, Duration::ZERO);
                let config = Config { window_max, capacity_timeout, rate_max, cached_path: None };
                self.controller = Controller::new(self.session.controller, config);
            }
        }
    }

    /// Applies the result of the packet trains.
    fn on_train_result(&mut self, result: &TrainResult, now: Duration) {
        // Streams of the sender wait for a request.
        self.requester.invalidate();
        match *result {
            TrainResult::Capacity(rate) => {
                let decision = self.controller.on_capacity(now, rate);
                self.on_decision(decision);
            }
            // More trains would exceed the user's rate limit.
            TrainResult::Repeat(packets) if self.rate_max.is_none() => {
                let is_sent = self.requester.request_trains(packets);
                self.prober.on_trains_requested(packets, is_sent);
            }
            TrainResult::Repeat(_) | TrainResult::Inconclusive => {}
        }
    }

    /// Samples all connections. Returns the observation for the controller.
    fn sample(&mut self, now: Duration, delay: Option<ProbeDelay>) -> Observation {
        let sample = self.connections.sample(self.session, &self.actuator, self.window());
        let (min_rtt, rate) = (self.controller.min_rtt(), self.pacing_rate());
        self.actuator.on_received(now, min_rtt, rate, &sample.received_by_stream);
        self.actuator.on_largest_windows(sample.largest_windows);
        let sender_report = self.connections.sender_report();
        let tcp_rtt =
            sender_report.rtt_us.map(Duration::from_micros).filter(|&rtt| rtt < MAX_PLAUSIBLE_RTT);
        let is_timed_out = self.prober.is_timed_out(now, min_rtt);
        Observation {
            now,
            streams: self.session.active_stream_count(),
            received: sample.received,
            // Without echoes the sender's TCP RTT is the next best.
            rtt: delay.map(|delay| delay.rtt).or(tcp_rtt.filter(|_| is_timed_out)),
            forward_delay: delay.and_then(|delay| delay.forward),
            tcp_min_rtt: sample.min_rtt,
            tcp_rtt,
            probes_lost: self.prober.loss().lost(),
            retransmits: sender_report.retransmits,
            mss: sample.mss,
            bottleneck: sample.bottleneck,
        }
    }

    /// Tunes the stream count, and suggests larger buffers once if windows are too small.
    fn tune_streams(&mut self, observation: &Observation) {
        let limits = self.inflight_limits();
        // On a path without earlier results, one stream has to suffice.
        let is_new = self.session.cached_path.is_none();
        let streams = if is_new { 1 } else { self.session.wanted_streams() };
        if let Some(advice) = self.stream_control.poll_advice(&limits, streams) {
            self.reporter.warn(&advice);
        }
        if self.stream_control.streams().is_none() {
            return;
        }
        let latest = self.stream_observation(observation, &limits);
        let Some(decision) = self.stream_control.observe(&latest) else { return };
        self.session.set_wanted_streams(decision.streams);
        self.requester.invalidate();
        self.reporter.on_stream_decision(&decision, self.pacing_rate(), self.window());
        let baseline_loss = self.stream_control.bbr_baseline_loss();
        let decision = self.controller.on_loss_tolerant_cc(observation.now, baseline_loss);
        self.on_decision(decision);
    }

    /// Returns the observation for the tuner of the stream count.
    fn stream_observation(
        &self,
        observation: &Observation,
        limits: &InflightLimits,
    ) -> streams::Observation {
        let rate_max = self.rate_max;
        let sender_report = self.connections.sender_report();
        let sender_busy = Duration::from_nanos(sender_report.cpu_nanos.unwrap_or_default());
        streams::Observation {
            now: observation.now,
            active_streams: self.actuator.active_streams(),
            received: observation.received,
            min_rtt: self.controller.min_rtt(),
            state: self.controller.state(),
            path: self.controller.path_state(),
            has_bbr: sender_report.bbr_available.unwrap_or_default(),
            retransmits: observation.retransmits,
            mss: observation.mss,
            capacity: self.controller.line_capacity().into_iter().chain(rate_max).min(),
            rate_max,
            min_streams: limits.min_streams(),
            max_inflight_bytes: limits.per_stream(),
            hosts: HostLoad {
                samples: self.connections.samples(),
                busy: [sender_busy, self.reporter.telemetry().cpu_busy()],
                cpus: sender_report.cpus.unwrap_or(u32::MAX).min(available_cpus()),
            },
        }
    }

    /// Returns the most data in flight of a stream, next to the path's BDP.
    fn inflight_limits(&self) -> InflightLimits {
        let window = self.decision.map(|decision| decision.window);
        let window = window.filter(|window| *window < MAX_TCP_WINDOW);
        let min_rtt = self.controller.min_rtt();
        let product = self
            .controller
            .line_capacity()
            .map(|rate| rate.bytes_per_sec() as f64 * min_rtt.as_secs_f64());
        InflightLimits {
            min_rtt,
            bdp: window.or(product.map(|bytes| Bytes(bytes as u64))).unwrap_or_default(),
            receiver: self.actuator.max_inflight(),
            sender: self.connections.sender_report().max_inflight_bytes.map(Bytes),
        }
    }

    /// Stores and reports a decision of the controller, if any.
    fn on_decision(&mut self, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        self.decision = Some(decision);
        self.requester.invalidate();
        self.reporter.on_decision(&decision, self.window());
    }

    /// Returns the target window of all streams together; `None` if unlimited.
    fn window(&self) -> Option<Bytes> {
        let shared = self.session.sharing.coscheduled().map(|(window, _)| Bytes(window));
        let own = self.decision.map(|decision| decision.window);
        shared.or(own.filter(|window| *window < MAX_TCP_WINDOW))
    }

    /// Returns the pacing rate of all streams together; `None` if unlimited.
    fn pacing_rate(&self) -> Option<Rate> {
        self.decision.and_then(|decision| decision.pacing)
    }

    /// Returns the name of the current state.
    fn state_name(&self) -> &'static str {
        let own = self.decision.map_or("", |decision| decision.state.name());
        if self.is_coscheduled { SHARED_STATE } else { own }
    }

    /// Reports to the client, if a snapshot is due or a decision is pending.
    fn report(&mut self, observation: &Observation) {
        if !self.reporter.poll_due() {
            return;
        }
        let snapshot = self.snapshot(observation);
        self.reporter.report(snapshot, self.state_name());
    }

    /// Returns the state of all streams, without RTT samples and this side's stage times.
    fn snapshot(&self, observation: &Observation) -> Snapshot {
        let sender_report = self.connections.sender_report();
        let sender_stages = sender_report.stage_nanos.map_or_else(StageTimes::default, stage_times);
        let [sender_samples, receiver_samples] = self.connections.samples();
        Snapshot {
            streams: self.session.active_stream_count(),
            carried: observation.received.0,
            rtts: Vec::new(),
            probes: self.prober.loss().sent(),
            probes_lost: observation.probes_lost,
            capacity: self.prober.capacity().map(Rate::bytes_per_sec),
            window: self.window().map(|window| window.0),
            granted: sender_report.window,
            bytes_per_sec: self.pacing_rate().map(Rate::bytes_per_sec),
            retransmits: Some(sender_report.retransmits),
            buffered: self.session.buffer_pool.status(),
            stages: [sender_stages, StageTimes::default()],
            sender_samples,
            receiver_samples,
        }
    }

    /// Requests the rate if it changed, and clamps the windows.
    fn apply(&mut self, mss: Bytes) {
        if self.session.sharing.coscheduled().is_some() {
            // Coscheduling began since the start of this tick.
            return;
        }
        if self.requester.is_due() {
            let streams = self.stream_control.streams();
            self.requester.send(RateRequest {
                bytes_per_sec: self.requested_rate().map(Rate::bytes_per_sec),
                streams,
                use_bbr: streams.map(|_| self.stream_control.bbr_baseline_loss().is_some()),
            });
        }
        if let Some(decision) = self.decision {
            self.actuator.apply(self.session, decision.window, mss);
        }
    }

    /// Returns the rate to request. It is relaxed if windows limit the streams already.
    fn requested_rate(&self) -> Option<Rate> {
        let rate = self.pacing_rate()?;
        let has_user_limit = self.rate_max.is_some();
        let is_window_limited = self.window().is_some() && !has_user_limit;
        let count = self.session.wanted_streams();
        Some(if is_window_limited { pacing::window_limited_pacing(rate, count) } else { rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::NoEvents;
    use crate::model::overrides::Overrides;
    use crate::stats::session_stats::SessionStats;
    use bankfull_control::Bottleneck;
    use bankfull_proto::wire::control::SenderReport;

    #[test]
    fn bottleneck_persists_between_sender_reports() {
        let session = Session::new(Overrides::default(), 1);
        let stats = SessionStats::new(&NoEvents, Instant::now());
        let telemetry = Telemetry::new(&stats, true);
        let mut tuner = ReceiverTuner::new(&session, Outbox::default(), telemetry, None);
        let mut bottleneck = |report: Option<(u64, u64)>| {
            if let Some((samples, app_limited)) = report {
                session.feedback.on_sender_report(SenderReport {
                    samples,
                    app_limited,
                    ..SenderReport::default()
                });
            }
            tuner.sample(Duration::from_millis(10), None).bottleneck
        };
        assert_eq!(bottleneck(None), Bottleneck::Path);
        let app_limited = [bottleneck(Some((8, 8))), bottleneck(None), bottleneck(None)];
        assert_eq!(app_limited, [Bottleneck::Sender; 3]);
        assert_eq!([bottleneck(Some((16, 8))), bottleneck(None)], [Bottleneck::Path; 2]);
    }
}
