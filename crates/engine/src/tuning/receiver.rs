//! Tuning of the receiving side: samples its sockets, passes observations to the controller, clamps
//! windows and requests a rate from the sender.

use super::incast::can_clamp_windows;
use super::probe_loss::ProbeLoss;
use super::socket_buffers::{BufferSide, SocketBuffers};
use super::telemetry::{PendingDecision, SHARED_STATE, Snapshot, Telemetry};
use super::trains::{TrainCollector, TrainResult};
use super::tuner_input::TunerInput;
use super::{
    MAX_TCP_WINDOW, MIN_SHARE_INTERVAL, ProbeChannel, ProbeRegistrar, SAMPLE_INTERVAL, SampleClock,
    TELEMETRY_INTERVAL,
};
use crate::base::sync::Latch;
use crate::base::sync::lock;
use crate::session::Session;
use crate::session::feedback_inbox::MAX_QUEUED_REPORTS;
use crate::transport::control::Outbox;
use crate::transport::probe::{ProbeArrival, clock};
use crate::transport::socket::clamp_window_for;
use bankfull_control::sobas::{Config, Decision, Observation, Sobas};
use bankfull_control::streams::{self, StreamTuner};
use bankfull_control::{Bytes, LimitSamples, Rate, StageTimes, StreamShares, bottleneck, pacing};
use bankfull_proto::wire::control::{Message, RateRequest, SenderReport, stage_times};
use bankfull_proto::wire::probe::Kind;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Minimum timeout of an echo, and of the first probe. (chosen: one and a half long RTTs with their
/// queue)
const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(600);

/// Largest accepted RTT; longer ones come from a clock step. (chosen)
const MAX_PLAUSIBLE_RTT: Duration = Duration::from_secs(10);

/// Data received since the last echo that shows that UDP is blocked, not the path down. (chosen:
/// more than was in flight)
const UDP_BLOCKED_MIN_DATA: Bytes = Bytes::mib(64);

/// Change of the probe clock's offset between two ticks that counts as a step. (chosen: the kernel
/// slews a clock by 5 µs in that time at most)
const MIN_CLOCK_STEP: Duration = Duration::from_millis(1);

/// Longest time between the two clock readings for a valid comparison. (chosen)
const MAX_CLOCK_READ_TIME: Duration = Duration::from_micros(500);

/// Warning for kernels that ignore window clamps on established connections.
const OLD_KERNEL_WARNING: &str = "this host's kernel is older than Linux 5.15 and cannot change \
                                  the windows of established connections: with many senders only \
                                  time slots limit them";

/// Tunes the streams of a receiving session.
pub(crate) struct ReceiverTuner<'a> {
    session: &'a Session,
    outbox: Outbox,
    telemetry: Telemetry<'a>,
    probe_channel: Option<ProbeChannel>,
    sobas: Sobas,
    started: Instant,
    trains: TrainCollector,
    probe_loss: ProbeLoss,
    last_echo_at: Duration,
    /// Data received by the last echo; `None` once the UDP warning was sent.
    received_at_echo: Option<Bytes>,
    /// Offset of the probe clock from `started`, at the latest tick.
    clock_offset: Option<Duration>,
    /// Time of the latest step of the probe clock.
    clock_stepped_at: Option<Duration>,
    /// Samples of the sender's sockets between its last two reports.
    sender_samples: LimitSamples,
    /// Samples of this side's sockets, and those before the latest one.
    receiver_samples: LimitSamples,
    previous_receiver_samples: LimitSamples,
    /// Each stream's share of the window.
    shares: StreamShares,
    buffers: SocketBuffers,
    /// Tuner of the stream count, unless the count is fixed.
    stream_tuner: Option<StreamTuner>,
    /// The advice on larger buffers was sent.
    is_advised: bool,
    /// RTT samples since the last report.
    rtts: Vec<Duration>,
    /// Data rate of the bottleneck link, from packet trains.
    capacity: Option<Rate>,
    /// Current decision on window and pacing of all streams together.
    decision: Option<Decision>,
    /// The sender has the current rate request.
    is_requested: bool,
    /// Decisions not yet reported to a remote client.
    pending_decisions: VecDeque<Decision>,
    pending_stream_decisions: VecDeque<streams::Decision>,
    /// The windows are already unclamped.
    is_unclamped: bool,
    /// The streams are tuned together with those of other sessions.
    is_coscheduled: bool,
    /// Start of coscheduling, not yet reported to a remote client.
    pending_coscheduling: Option<PendingDecision>,
    /// Largest MSS of the streams, in bytes.
    mss: u32,
    /// Latest sender report.
    sender_report: SenderReport,
}

impl<'a> ReceiverTuner<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        telemetry: Telemetry<'a>,
        probe_channel: Option<ProbeChannel>,
    ) -> Self {
        // Without a UDP channel the controller need not wait for the first probe.
        let capacity_timeout =
            if probe_channel.is_some() { MIN_PROBE_TIMEOUT } else { Duration::ZERO };
        let rate_max = session.overrides.rate_max;
        let remembered = session.remembered;
        let config = Config { window_max: MAX_TCP_WINDOW, capacity_timeout, rate_max, remembered };
        Self {
            session,
            outbox,
            telemetry,
            probe_channel,
            sobas: Sobas::new(config),
            started: Instant::now(),
            trains: TrainCollector::new(),
            probe_loss: ProbeLoss::default(),
            last_echo_at: Duration::ZERO,
            received_at_echo: Some(Bytes(0)),
            clock_offset: None,
            clock_stepped_at: None,
            sender_samples: LimitSamples::default(),
            receiver_samples: LimitSamples::default(),
            previous_receiver_samples: LimitSamples::default(),
            shares: StreamShares::default(),
            stream_tuner: session
                .target
                .max
                .map(|max| StreamTuner::new(session.wanted_streams(), max)),
            is_advised: false,
            buffers: SocketBuffers::new(BufferSide::Receive),
            rtts: Vec::new(),
            capacity: None,
            decision: None,
            is_requested: true,
            pending_decisions: VecDeque::new(),
            pending_stream_decisions: VecDeque::new(),
            is_unclamped: true,
            is_coscheduled: false,
            pending_coscheduling: None,
            mss: 0,
            sender_report: SenderReport::default(),
        }
    }

    /// Runs until the session is over.
    pub(crate) fn run(mut self, over: &Latch) {
        let address = self.probe_channel.as_ref().and_then(|channel| channel.register_address);
        let mut registrar = ProbeRegistrar::new(address);
        let mut clock = SampleClock::default();
        while !over.wait(if self.is_coscheduled { TELEMETRY_INTERVAL } else { SAMPLE_INTERVAL }) {
            let now = self.started.elapsed();
            if self.poll_coscheduled(now) {
                continue;
            }
            self.detect_clock_step(now);
            let rtt = self.exchange_probes(&mut registrar, now);
            if let Some(result) = self.trains.poll_result(now, self.segment_data()) {
                self.on_train_result(&result, now);
                clock.force_next();
            }
            if !clock
                .poll_due(now, self.sobas.allows_sparse_sampling() && !self.probe_timed_out(now))
            {
                if let Some(rtt) = rtt {
                    self.sobas.on_rtt_sample(rtt);
                    self.rtts.push(rtt);
                }
                continue;
            }
            let observation = self.sample(now, rtt);
            self.warn_if_udp_blocked(&observation);
            let decision = self.sobas.observe(&observation);
            self.on_decision(decision);
            self.tune_streams(&observation);
            self.apply();
            self.rtts.extend(observation.rtt);
            self.report(&observation);
        }
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
            let observation = self.sample(now, None);
            self.report(&observation);
        }
        self.is_coscheduled
    }

    /// Suspends the controller while the interface has this many connections, or restarts it.
    fn on_coscheduling_change(&mut self, connections: Option<usize>) {
        self.decision = None;
        self.pending_decisions.clear();
        self.pending_stream_decisions.clear();
        self.is_requested = true;
        match connections {
            Some(connections) => {
                let reason =
                    format!("several copies share the interface: {connections} connections in all");
                if self.telemetry.is_client() {
                    self.telemetry.emit_coscheduled(reason, self.window());
                } else {
                    self.pending_coscheduling = Some(PendingDecision { reason, streams: None });
                }
                if !can_clamp_windows() {
                    self.telemetry.warn(&self.outbox, OLD_KERNEL_WARNING);
                }
            }
            None => {
                let rate_max = self.session.overrides.rate_max;
                let (window_max, capacity_timeout) = (MAX_TCP_WINDOW, Duration::ZERO);
                self.sobas =
                    Sobas::new(Config { window_max, capacity_timeout, rate_max, remembered: None });
            }
        }
    }

    /// Detects steps of the probe clock, which falsify the RTTs of probes in flight.
    fn detect_clock_step(&mut self, now: Duration) {
        let from = self.started.elapsed();
        let clock = clock();
        let to = self.started.elapsed();
        // Otherwise this thread was preempted in between.
        if to - from < MAX_CLOCK_READ_TIME {
            let offset = clock.saturating_sub(to);
            let before = self.clock_offset.replace(offset).unwrap_or(offset);
            if offset.abs_diff(before) > MIN_CLOCK_STEP {
                self.clock_stepped_at = Some(now);
            }
        }
    }

    /// Returns the timeout of an echo.
    fn probe_timeout(&self) -> Duration {
        MIN_PROBE_TIMEOUT.max(self.sobas.min_rtt() * 4)
    }

    /// True if no echo has arrived within the timeout, or there is no UDP channel.
    fn probe_timed_out(&self, now: Duration) -> bool {
        self.probe_channel.is_none() || now > self.last_echo_at + self.probe_timeout()
    }

    /// Sends the next probe and handles arrived datagrams. Returns the latest RTT.
    fn exchange_probes(
        &mut self,
        registrar: &mut ProbeRegistrar,
        now: Duration,
    ) -> Option<Duration> {
        let ProbeChannel { line, .. } = self.probe_channel.as_mut()?;
        let is_known = registrar.poll(line, now);
        if is_known {
            let _ = line.send_probe();
        }
        if let Some(address) = registrar.poll_unanswered(is_known, now) {
            self.telemetry.warn_no_udp_response(address);
        }
        let arrived: Vec<ProbeArrival> = line.arrivals().collect();
        arrived.iter().fold(None, |rtt, arrived| self.on_datagram(arrived, now).or(rtt))
    }

    /// Warns once if echoes stopped while data still arrives.
    fn warn_if_udp_blocked(&mut self, observation: &Observation) {
        let Some(at_echo) = self.received_at_echo else { return };
        let received = observation.received;
        if !self.probe_timed_out(observation.now) {
            self.received_at_echo = Some(received);
        } else if self.probe_loss.sent() > 0 && received.0 > at_echo.0 + UDP_BLOCKED_MIN_DATA.0 {
            self.received_at_echo = None;
            let channel = self.probe_channel.as_ref();
            let address = channel.and_then(|channel| channel.line.address());
            let from = address.map(|address| format!(" from {address}")).unwrap_or_default();
            let message = format!(
                "UDP responses{from} stopped: the path is measured with TCP alone; to measure it \
                 with UDP, let UDP through for as long as a copy takes"
            );
            self.telemetry.warn(&self.outbox, &message);
        }
    }

    /// Returns the payload of a full segment on this path.
    fn segment_data(&self) -> Bytes {
        let address = self.probe_channel.as_ref().and_then(|channel| channel.line.address());
        match address.map(|address| address.ip().to_canonical()) {
            Some(IpAddr::V6(_)) => pacing::DEFAULT_MSS_V6,
            _ => pacing::DEFAULT_MSS,
        }
    }

    /// Applies the result of the packet trains.
    fn on_train_result(&mut self, result: &TrainResult, now: Duration) {
        match *result {
            TrainResult::Capacity(rate) => {
                self.capacity = Some(rate);
                let decision = self.sobas.on_capacity(now, rate);
                self.on_decision(decision);
            }
            // More trains would exceed the user's rate limit.
            TrainResult::Repeat(packets) if self.session.overrides.rate_max.is_none() => {
                let request = Message::TrainRequest(u32::try_from(packets).unwrap_or(u32::MAX));
                let is_sent = self.outbox.try_post(&request);
                self.trains.on_requested(packets, is_sent);
            }
            TrainResult::Repeat(_) => {}
        }
    }

    /// Handles an arrived datagram. Returns the RTT if it is a valid echo.
    fn on_datagram(&mut self, arrived: &ProbeArrival, now: Duration) -> Option<Duration> {
        let probe = &arrived.probe;
        match probe.kind {
            Kind::Echo => {
                self.probe_loss.on_echo(probe.number);
                self.last_echo_at = now;
                let sent = Duration::from_micros(probe.echoed_timestamp_us);
                let rtt = arrived.at.checked_sub(sent)?;
                let stepped = self.clock_stepped_at;
                let has_stepped = stepped.is_some_and(|at| now < at + self.probe_timeout());
                (!has_stepped && !rtt.is_zero() && rtt < MAX_PLAUSIBLE_RTT).then_some(rtt)
            }
            Kind::Train => {
                self.trains.on_packet(arrived, now);
                None
            }
            Kind::Register | Kind::Probe => None,
        }
    }

    /// Samples all connections. Returns the observation for the controller.
    fn sample(&mut self, now: Duration, rtt: Option<Duration>) -> Observation {
        let first_paused = self.session.first_paused().unwrap_or(u32::MAX);
        let (shares, session_window) = (&self.shares, self.window());
        let (mut received, mut tcp_min_rtt) = (Vec::new(), None::<Duration>);
        self.mss = 0;
        let carried = self.session.sample_streams(|number, socket, info| {
            self.mss = self.mss.max(info.snd_mss);
            received.push((number, info.bytes_received.unwrap_or_default()));
            let window = session_window.map(|window| shares.window(number, window));
            let half_window = window.unwrap_or(Bytes(info.rcv_space.into())).0 / 2;
            if number < first_paused {
                self.receiver_samples.add(socket.unread_bytes() > half_window);
            }
            let min_rtt = info.min_rtt.filter(|rtt| !rtt.is_zero());
            tcp_min_rtt = tcp_min_rtt.into_iter().chain(min_rtt).min();
        });
        let interval = MIN_SHARE_INTERVAL.max(self.sobas.min_rtt() * 2);
        let rate = self.decision.and_then(|decision| decision.pacing);
        self.shares.observe(now, interval, rate, &received);
        let previous = self.previous_receiver_samples;
        self.previous_receiver_samples = self.receiver_samples;
        if let Some(report) = lock(&self.session.feedback.sender_report).take() {
            // Arrives only at every second sample.
            let before = app_limited_samples(&self.sender_report);
            self.sender_samples = app_limited_samples(&report).since(before);
            self.sender_report = report;
        }
        let sender_rtt = self.sender_report.rtt_us.map(Duration::from_micros);
        let sender_rtt =
            sender_rtt.filter(|&rtt| self.probe_timed_out(now) && rtt < MAX_PLAUSIBLE_RTT);
        Observation {
            now,
            streams: self.session.active_stream_count(),
            received: Bytes(carried.received),
            // Without echoes the sender's TCP RTT is the next best.
            rtt: rtt.or(sender_rtt),
            tcp_min_rtt,
            probes_lost: self.probe_loss.lost(),
            retransmits: self.sender_report.retransmits,
            mss: Bytes(self.mss.into()),
            bottleneck: bottleneck(self.sender_samples, self.receiver_samples.since(previous)),
        }
    }

    /// Tunes the stream count, and suggests larger buffers once if windows are too small.
    fn tune_streams(&mut self, observation: &Observation) {
        let input = TunerInput {
            sobas: &self.sobas,
            observation,
            decision: self.decision.as_ref(),
            capacity: self.capacity,
            rate_max: self.session.overrides.rate_max,
            active_streams: self.shares.active_count(),
            sender_report: &self.sender_report,
            samples: [app_limited_samples(&self.sender_report), self.receiver_samples],
            cpu_busy: self.telemetry.cpu_busy(),
            max_inflight: self.buffers.max_inflight(),
        };
        let is_new = self.session.remembered.is_none();
        if !self.is_advised
            && let Some(advice) = input.advice(self.session.wanted_streams(), is_new)
        {
            self.is_advised = true;
            self.telemetry.warn(&self.outbox, &advice);
        }
        let Some(tuner) = &mut self.stream_tuner else { return };
        let decision = input.observe(tuner);
        let use_bbr = tuner.bbr();
        if let Some(decision) = decision {
            self.session.set_wanted_streams(decision.streams);
            self.is_requested = false;
            let (current, window) = (self.decision.as_ref(), self.window());
            self.telemetry.emit_stream_decision(&decision, current, window);
            let pending = &mut self.pending_stream_decisions;
            if !self.telemetry.is_client() && pending.len() < MAX_QUEUED_REPORTS {
                pending.push_back(decision);
            }
            let decision = self.sobas.on_loss_tolerant_cc(observation.now, use_bbr);
            self.on_decision(decision);
        }
    }

    /// Stores and emits a decision of the controller, if any.
    fn on_decision(&mut self, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        self.decision = Some(decision);
        self.is_requested = false;
        self.telemetry.emit_decision(&decision, self.window());
        let has_room = self.pending_decisions.len() < MAX_QUEUED_REPORTS;
        if !self.telemetry.is_client() && has_room {
            self.pending_decisions.push_back(decision);
        }
    }

    /// Returns the target window of all streams together; `None` if unlimited.
    fn window(&self) -> Option<Bytes> {
        let shared = self.session.sharing.coscheduled().map(|(window, _)| Bytes(window));
        let own = self.decision.map(|decision| decision.window);
        shared.or(own.filter(|window| *window < MAX_TCP_WINDOW))
    }

    /// Returns the name of the current state.
    fn state_name(&self) -> &'static str {
        let own = self.decision.map_or("", |decision| decision.state.name());
        if self.is_coscheduled { SHARED_STATE } else { own }
    }

    /// Reports to the client: snapshots if due, and decisions at once.
    fn report(&mut self, observation: &Observation) {
        let is_due = self.telemetry.poll_due();
        let has_decisions =
            !self.pending_decisions.is_empty() || !self.pending_stream_decisions.is_empty();
        if !is_due && !has_decisions {
            return;
        }
        let sender_stages = self.sender_report.stage_nanos;
        let mut snapshot = Snapshot {
            streams: self.session.active_stream_count(),
            carried: observation.received.0,
            rtts: std::mem::take(&mut self.rtts),
            probes: self.probe_loss.sent(),
            probes_lost: observation.probes_lost,
            capacity: self.capacity.map(Rate::bytes_per_sec),
            window: self.window().map(|window| window.0),
            granted: self.sender_report.window,
            bytes_per_sec: self
                .decision
                .and_then(|decision| decision.pacing)
                .map(Rate::bytes_per_sec),
            retransmits: Some(self.sender_report.retransmits),
            buffered: self.session.buffer_pool.status(),
            stages: [
                sender_stages.map_or_else(StageTimes::default, stage_times),
                self.telemetry.stage_times(),
            ],
            sender_samples: app_limited_samples(&self.sender_report),
            receiver_samples: self.receiver_samples,
        };
        if self.telemetry.is_client() {
            self.telemetry.emit_sample(&snapshot);
        } else {
            self.send_reports(&mut snapshot, has_decisions);
        }
    }

    /// Sends the snapshot to a remote client, once for each pending decision.
    fn send_reports(&mut self, snapshot: &mut Snapshot, has_decisions: bool) {
        if !has_decisions {
            let (state, pending) = (self.state_name(), self.pending_coscheduling.take());
            self.telemetry.send_report(&self.outbox, snapshot, state, pending);
        }
        while let Some(decision) = self.pending_stream_decisions.front() {
            let state = self.state_name();
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
            let pending = Some(PendingDecision { reason, streams: None });
            let state = decision.state.name();
            if !self.telemetry.send_report(&self.outbox, snapshot, state, pending) {
                return;
            }
            self.pending_decisions.pop_front();
        }
    }

    /// Returns the rate to request. It is relaxed if windows limit the streams already.
    fn requested_rate(&self) -> Option<Rate> {
        let rate = self.decision?.pacing?;
        let has_user_limit = self.session.overrides.rate_max.is_some();
        let is_window_limited = self.window().is_some() && !has_user_limit;
        let count = self.session.wanted_streams();
        Some(if is_window_limited { pacing::window_limited_pacing(rate, count) } else { rate })
    }

    /// Requests the rate if it changed, and clamps the windows.
    ///
    /// The clamp is repeated at each sample because the kernel raises windows by itself.
    fn apply(&mut self) {
        if self.session.sharing.coscheduled().is_some() {
            // Coscheduling began since the start of this tick.
            return;
        }
        if !self.is_requested {
            let tuner = self.stream_tuner.as_ref();
            let bytes_per_sec = self.requested_rate().map(Rate::bytes_per_sec);
            let streams = tuner.map(StreamTuner::streams);
            let use_bbr = tuner.map(|tuner| tuner.bbr().is_some());
            let request = Message::RateRequest(RateRequest { bytes_per_sec, streams, use_bbr });
            self.is_requested = self.outbox.try_post(&request);
        }
        let Some(decision) = self.decision else { return };
        // Unclamped windows need no further calls.
        let is_unclamped = decision.window >= MAX_TCP_WINDOW;
        if is_unclamped && self.is_unclamped {
            return;
        }
        self.is_unclamped = is_unclamped;
        let (shares, buffers) = (&self.shares, &mut self.buffers);
        self.session.for_each_stream(|number, socket| {
            let mut window = decision.window;
            if !is_unclamped {
                window = shares.window(number, decision.window);
                buffers.ensure(number, socket, window);
            }
            clamp_window_for(socket, window, self.mss);
        });
    }
}

/// Returns the sender's samples, and how many of them were app-limited.
fn app_limited_samples(report: &SenderReport) -> LimitSamples {
    LimitSamples { count: report.samples, limited: report.app_limited }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::NoEvents;
    use crate::model::overrides::Overrides;
    use crate::stats::session_stats::SessionStats;
    use bankfull_control::Bottleneck;

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
