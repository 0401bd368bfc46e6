//! Transfer that is tuned as by the engine: a controller with probes and packet trains over the
//! links of the world, shares of window and pacing rate per stream, and the number of streams.
//!
//! Reports and requests between both sides take no time, and the hosts never limit.

mod autotuning;
mod prober;
mod streams;
mod trains;

pub use prober::TunerPacket;
pub use trains::Trains;

use self::streams::Streams;
use crate::presets::PathConfig;
use crate::tcp::{Algorithm, MAX_WINDOW};
use crate::world::{FlowId, Route, World};
use autotuning::{INITIAL_RECEIVE_WINDOW, WindowAutotuning};
use bankfull_control::path_control::{Config, Decision, Observation};
use bankfull_control::streams as stream_control;
use bankfull_control::streams::{HostLoad, StreamTuner, initial_streams};
use bankfull_control::{Bottleneck, Bytes, Controller, ControllerKind, StreamShares, pacing};
use fastrand::Rng;
use prober::{MIN_PROBE_TIMEOUT, ProbeDelay, Prober};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Minimum interval for measuring each stream's use of its share; otherwise two RTTs.
/// (crates/engine/src/tuning/mod.rs)
const MIN_SHARE_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of streams. (crates/proto/src/limits.rs)
const MAX_STREAMS: u32 = 64;

/// CPUs of the hosts. (chosen: they never limit)
const HOST_CPUS: u32 = 1024;

/// Parameters of a tuned transfer.
#[derive(Debug, Clone, Copy)]
pub struct TunerConfig {
    /// Controller of window and pacing rate.
    pub controller: ControllerKind,
    /// Number of streams to begin with.
    pub streams: u32,
    /// Upper bound of the number of streams; `None`: the number is fixed, without BBR.
    pub max_streams: Option<u32>,
    /// Start time.
    pub start: Duration,
    /// Source of the capacity.
    pub trains: Trains,
    /// No datagram passes: neither trains nor probes.
    pub is_udp_blocked: bool,
    /// Congestion control of the streams to begin with.
    pub algorithm: Algorithm,
    /// The streams start as the engine's: an RTT after the first packet train, staggered and paced.
    ///
    /// Otherwise they start at once.
    pub has_engine_start: bool,
    /// The streams negotiate ECN.
    pub ecn: bool,
    /// Seed of the times of the ticks.
    pub seed: u64,
}

impl Default for TunerConfig {
    /// Returns the parameters of a single stream under SOBAS.
    fn default() -> Self {
        Self {
            controller: ControllerKind::Sobas,
            streams: 1,
            max_streams: None,
            start: Duration::ZERO,
            trains: Trains::Sent,
            is_udp_blocked: false,
            algorithm: Algorithm::default(),
            has_engine_start: false,
            ecn: false,
            seed: 1,
        }
    }
}

impl TunerConfig {
    /// Returns the parameters of a transfer as with `--tune auto`.
    #[must_use]
    pub fn automatic(rtt: Duration) -> Self {
        Self {
            controller: ControllerKind::Delay,
            has_engine_start: true,
            streams: initial_streams(rtt),
            max_streams: Some(MAX_STREAMS),
            ..Self::default()
        }
    }
}

/// Tuned transfer in progress.
#[derive(Debug)]
pub struct TunedTransfer {
    streams: Streams,
    trace: Vec<(Duration, String)>,
    /// Decisions by the state that they enter, with their reasons.
    decisions: Vec<(&'static str, String)>,
    controller: Controller,
    /// `None` if the number of streams is fixed.
    stream_tuner: Option<StreamTuner>,
    /// Congestion control without BBR.
    algorithm: Algorithm,
    path: PathConfig,
    start: Duration,
    prober: Prober,
    rng: Rng,
    next_tick: Duration,
    /// True if the last tick may be skipped under sparse sampling.
    is_odd: bool,
    /// Latest decision: total window and pacing rate.
    latest: Option<Decision>,
    autotuning: WindowAutotuning,
    shares: StreamShares,
}

impl TunedTransfer {
    /// Adds a transfer to the world, on a route along a path.
    pub fn new(
        world: &mut World<TunerPacket>,
        path: &PathConfig,
        route: &Route,
        config: &TunerConfig,
    ) -> Self {
        // The first train leaves before any data.
        let prober = Prober::new(world, path, route, config);
        let streams = Streams::new(world, route, path.rtt(), config);
        let control = Config {
            window_max: Bytes(MAX_WINDOW),
            capacity_timeout: MIN_PROBE_TIMEOUT,
            rate_max: None,
            cached_path: None,
        };
        Self {
            streams,
            trace: Vec::new(),
            decisions: Vec::new(),
            controller: Controller::new(config.controller, control),
            stream_tuner: config.max_streams.map(|max| StreamTuner::new(config.streams, max)),
            algorithm: config.algorithm,
            path: path.clone(),
            start: config.start,
            prober,
            rng: Rng::with_seed(config.seed),
            next_tick: Duration::ZERO,
            is_odd: false,
            latest: None,
            autotuning: WindowAutotuning::default(),
            shares: StreamShares::default(),
        }
    }

    /// Acts about every 10 ms, as a thread does. To be called every millisecond.
    pub fn tick(&mut self, world: &mut World<TunerPacket>) {
        let Some(now) = world.now().checked_sub(self.start) else { return };
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + MS * self.rng.u32(9..=11);
        let mut delays = self.prober.exchange(world, now);
        if !self.controller.uses_all_echoes() {
            delays.drain(..delays.len().saturating_sub(1));
        }
        if let Some(rate) = self.prober.poll_capacity(world, now) {
            let decision = self.controller.on_capacity(now, rate);
            self.on_decision(decision);
        }
        self.is_odd = !self.is_odd;
        let is_timed_out = self.prober.is_timed_out(now, self.controller.min_rtt());
        let is_skipped = self.is_odd && self.controller.allows_sparse_sampling() && !is_timed_out;
        let latest = if is_skipped { None } else { delays.pop() };
        for ProbeDelay { rtt, forward } in delays {
            self.controller.on_delay_sample(now, rtt, Some(forward));
        }
        if is_skipped {
            return;
        }
        let observation = self.observe(world, now, latest);
        if self.controller.thins_probes() {
            self.prober.on_received(observation.received);
        }
        let decision = self.controller.observe(&observation);
        self.on_decision(decision);
        self.tune_streams(world, &observation);
        let is_requested = self.latest.is_some() || self.prober.has_result();
        self.streams.poll_held(world, is_requested);
        self.apply(world);
    }

    fn observe(
        &self,
        world: &World<TunerPacket>,
        now: Duration,
        delay: Option<ProbeDelay>,
    ) -> Observation {
        let open = self.streams.open(world);
        let stats = || open.iter().map(|(_, _, stats)| stats);
        let known = |rtt: &Duration| !rtt.is_zero();
        // Without echoes the sender's TCP RTT is the next best.
        let is_timed_out = self.prober.is_timed_out(now, self.controller.min_rtt());
        let smoothed = stats().map(|stats| stats.rtt_smoothed).filter(known).min();
        Observation {
            now,
            streams: self.streams.wanted().min(open.len() as u32),
            received: self.delivered(world),
            rtt: delay.map(|delay| delay.rtt).or(smoothed.filter(|_| is_timed_out)),
            forward_delay: delay.map(|delay| delay.forward),
            tcp_min_rtt: stats().map(|stats| stats.rtt_min).filter(known).min(),
            tcp_rtt: smoothed,
            probes_lost: self.prober.lost(),
            retransmits: self.retransmits(world),
            mss: pacing::DEFAULT_MSS,
            bottleneck: Bottleneck::Path,
        }
    }

    /// Opens and pauses streams, and switches their congestion control.
    fn tune_streams(&mut self, world: &mut World<TunerPacket>, observation: &Observation) {
        let Some(tuner) = &mut self.stream_tuner else { return };
        let decision = tuner.observe(&stream_control::Observation {
            now: observation.now,
            active_streams: self.shares.active_count(),
            received: observation.received,
            min_rtt: self.controller.min_rtt(),
            state: self.controller.state(),
            path: self.controller.path_state(),
            has_bbr: true,
            retransmits: observation.retransmits,
            mss: observation.mss,
            capacity: self.controller.line_capacity(),
            rate_max: None,
            min_streams: 1,
            max_inflight_bytes: Bytes(MAX_WINDOW),
            hosts: HostLoad { cpus: HOST_CPUS, ..HostLoad::default() },
        });
        let (Some(decision), baseline_loss) = (decision, tuner.bbr()) else { return };
        let name = if decision.bbr { "streams, BBR" } else { "streams" };
        let line = format!("{} {name}: {}", decision.streams, decision.reason);
        self.trace.push((decision.at, line));
        self.decisions.push(("streams", decision.reason.to_string()));
        self.streams.request(world, decision.streams);
        let algorithm = if decision.bbr { Algorithm::Bbr } else { self.algorithm };
        self.streams.set_algorithm(world, algorithm);
        let decision = self.controller.on_loss_tolerant_cc(observation.now, baseline_loss);
        self.on_decision(decision);
    }

    fn on_decision(&mut self, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        self.latest = Some(decision);
        let Decision { at, state, window, pacing, reason } = decision;
        self.decisions.push((state.name(), reason.to_string()));
        let pacing = pacing.map_or("-".to_owned(), |rate| rate.to_string());
        let line = format!("{:14} {window:>10} {pacing:>13}  {reason}", state.name());
        self.trace.push((at, line));
    }

    /// Applies window and pacing rate at every tick, as the engine does.
    fn apply(&mut self, world: &mut World<TunerPacket>) {
        let requested = self.latest.and_then(|latest| latest.pacing);
        let (now, rtt) = (world.now(), self.path.rtt());
        let open = self.streams.open(world);
        let delivered: Vec<(u32, u64)> =
            open.iter().map(|(number, _, stats)| (*number, stats.delivered.0)).collect();
        let interval = (rtt * 2).max(MIN_SHARE_INTERVAL);
        self.shares.observe(now, interval, requested, &delivered);
        let tuned = self.autotuning.update(now, rtt, self.delivered(world).0);
        let tuned = tuned + INITIAL_RECEIVE_WINDOW * open.len() as u64;
        let window = Bytes(self.latest.map_or(tuned, |latest| latest.window.0.min(tuned)));
        let windows = self.shares.windows(window, pacing::DEFAULT_MSS);
        for (number, flow, _) in open {
            let known = windows.get(&number).copied();
            let window = known.unwrap_or_else(|| self.shares.window(number, window));
            world.set_receive_window(flow, window);
            let pacing = requested.map(|rate| self.shares.rate(number, rate));
            world.set_pacing(flow, pacing.or(self.streams.unrequested_pacing()));
        }
    }

    /// Returns the flows of all streams, paused ones included.
    #[must_use]
    pub fn flows(&self) -> &[FlowId] {
        self.streams.flows()
    }

    /// Returns the number of streams that carry data.
    #[must_use]
    pub fn streams(&self) -> u32 {
        self.streams.wanted()
    }

    /// Returns whether the streams run BBR because of random loss.
    #[must_use]
    pub fn has_bbr(&self) -> bool {
        self.stream_tuner.as_ref().is_some_and(|tuner| tuner.bbr().is_some())
    }

    /// Returns the data delivered so far.
    #[must_use]
    pub fn delivered(&self, world: &World<TunerPacket>) -> Bytes {
        self.flows().iter().fold(Bytes(0), |sum, &flow| sum + world.stats(flow).delivered)
    }

    /// Returns the segments retransmitted so far.
    #[must_use]
    pub fn retransmits(&self, world: &World<TunerPacket>) -> u64 {
        self.flows().iter().map(|&flow| world.stats(flow).sender.retransmits).sum()
    }

    /// Returns the decisions in order: the state that they enter, or "streams", and the reason.
    #[must_use]
    pub fn decisions(&self) -> &[(&'static str, String)] {
        &self.decisions
    }

    /// Returns the decisions, one per line.
    #[must_use]
    pub fn trace_lines(&self) -> String {
        let line = |(at, line): &(Duration, String)| format!("{:7.2} {line}\n", at.as_secs_f64());
        self.trace.iter().map(line).collect()
    }
}
