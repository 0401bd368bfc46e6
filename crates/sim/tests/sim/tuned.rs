//! Transfer tuned by SOBAS as in the engine: probes every 10 ms, shares of window and pacing rate
//! per stream.

use crate::MS;
use bankfull_control::pacing;
use bankfull_control::sobas::{Config, Decision, Observation, Sobas};
use bankfull_control::{Bottleneck, Bytes, Rate, StreamShares};
use bankfull_sim::tcp::{Algorithm, MAX_WINDOW};
use bankfull_sim::world::{FlowId, Route};
use bankfull_sim::{FlowConfig, PathConfig, World};
use fastrand::Rng;
use std::collections::VecDeque;
use std::time::Duration;

/// Initial window of a connection (tcp_rmem, ip-sysctl.rst: 131 072 bytes, half of it for data).
const INITIAL_WINDOW: u64 = 65_536;

/// Transfer in progress.
pub(crate) struct TunedTransfer {
    pub(crate) flows: Vec<FlowId>,
    pub(crate) trace: Vec<Decision>,
    sobas: Sobas,
    path: PathConfig,
    route: Route,
    start: Duration,
    /// Capacity measured by the packet trains, reported after two RTTs.
    capacity: Option<Rate>,
    is_udp_blocked: bool,
    rng: Rng,
    probes_lost: u64,
    next_tick: Duration,
    /// True if the last tick may be skipped under sparse sampling.
    is_odd: bool,
    /// Latest decision: total window and pacing rate.
    latest: Option<Decision>,
    autotuning: WindowAutotuning,
    shares: StreamShares,
}

/// Receive window granted by the kernel's autotuning.
#[derive(Debug, Default)]
struct WindowAutotuning {
    /// Time and delivered bytes of earlier ticks, back to one RTT ago.
    received: VecDeque<(Duration, u64)>,
    window: u64,
}

impl WindowAutotuning {
    /// Returns the granted window: in slow start four times the data received per RTT, and never
    /// less than before (tcp_rcv_space_adjust, net/ipv4/tcp_input.c).
    fn update(&mut self, now: Duration, rtt: Duration, delivered: u64) -> u64 {
        self.received.push_back((now, delivered));
        let from = now.saturating_sub(rtt);
        while self.received.len() > 1 && self.received[1].0 <= from {
            self.received.pop_front();
        }
        self.window = self.window.max(4 * (delivered - self.received[0].1));
        self.window
    }
}

/// Parameters of a tuned transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TunerConfig {
    pub(crate) streams: u32,
    pub(crate) start: Duration,
    /// Capacity measured by the packet trains, as a fraction of the link rate; `None`: not
    /// measured.
    pub(crate) measured_fraction: Option<f64>,
    /// No datagram passes: neither trains nor probes.
    pub(crate) is_udp_blocked: bool,
    pub(crate) algorithm: Algorithm,
}

impl Default for TunerConfig {
    fn default() -> Self {
        let algorithm = Algorithm::default();
        let (start, measured_fraction, is_udp_blocked) = (Duration::ZERO, Some(1.0), false);
        Self { streams: 1, start, measured_fraction, is_udp_blocked, algorithm }
    }
}

impl TunedTransfer {
    pub(crate) fn new(
        world: &mut World,
        path: &PathConfig,
        route: &Route,
        config: &TunerConfig,
    ) -> Self {
        let mut flow = FlowConfig::new(route);
        flow.start = config.start;
        flow.algorithm = config.algorithm;
        flow.receive_window = Bytes(INITIAL_WINDOW);
        let flows = (0..config.streams).map(|_| world.add_flow(flow.clone())).collect();
        let line = path.forward.rate.unwrap_or_default().bits_per_sec() as f64;
        let measured_fraction = config.measured_fraction.filter(|_| !config.is_udp_blocked);
        let capacity = measured_fraction.map(|share| Rate::from_bits_per_sec(line * share));
        let capacity_timeout = path.rtt() * 2 + MS * 200;
        let sobas = Config {
            window_max: Bytes(MAX_WINDOW),
            capacity_timeout,
            rate_max: None,
            cached_path: None,
        };
        Self {
            flows,
            trace: Vec::new(),
            sobas: Sobas::new(sobas),
            path: path.clone(),
            route: route.clone(),
            start: config.start,
            capacity: capacity.map(|line| pacing::payload_rate(line, pacing::DEFAULT_MSS)),
            is_udp_blocked: config.is_udp_blocked,
            rng: Rng::with_seed(7),
            probes_lost: 0,
            next_tick: Duration::ZERO,
            is_odd: false,
            latest: None,
            autotuning: WindowAutotuning::default(),
            shares: StreamShares::default(),
        }
    }

    /// Called every millisecond; acts about every 10 ms, as a thread does.
    pub(crate) fn tick(&mut self, world: &mut World) {
        let Some(now) = world.now().checked_sub(self.start) else { return };
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + MS * self.rng.u32(9..=11);
        if now >= self.path.rtt() * 2
            && let Some(rate) = self.capacity.take()
        {
            let decision = self.sobas.on_capacity(now, rate);
            self.trace.extend(decision);
            self.latest = decision.or(self.latest);
        }
        let observation = self.observe(world, now);
        self.is_odd = !self.is_odd;
        if self.is_odd && self.sobas.allows_sparse_sampling() {
            observation.rtt.into_iter().for_each(|rtt| self.sobas.on_rtt_sample(rtt));
            return;
        }
        let decision = self.sobas.observe(&observation);
        self.apply(world, decision);
    }

    fn observe(&mut self, world: &mut World, now: Duration) -> Observation {
        let link = self.route.forward[0];
        let rate = self.path.forward.rate.unwrap_or_default();
        let backlog = world.backlog(link);
        let is_full = backlog.0 + 128 > self.path.forward.buffer.0;
        let is_lost = is_full || self.rng.f64() < self.path.forward.loss.mean();
        let queue = rate.time_for(backlog).unwrap_or_default();
        let mut rtt = (!is_lost).then(|| self.path.rtt() + queue);
        let stats: Vec<_> = self.flows.iter().map(|&flow| world.stats(flow)).collect();
        let mut tcp_min_rtt = None;
        if self.is_udp_blocked {
            // TCP statistics replace them: the smoothed RTT of the sender, and the min RTT.
            let known = |rtt: &Duration| !rtt.is_zero();
            rtt = stats.iter().map(|stats| stats.rtt_smoothed).filter(known).min();
            tcp_min_rtt = stats.iter().map(|stats| stats.rtt_min).filter(known).min();
        } else {
            self.probes_lost += u64::from(is_lost);
        }
        let (mut received, mut retransmits) = (Bytes(0), 0);
        for stats in stats {
            received += stats.delivered;
            retransmits += stats.sender.retransmits;
        }
        Observation {
            now,
            streams: self.flows.len() as u32,
            received,
            rtt,
            tcp_min_rtt,
            probes_lost: self.probes_lost,
            retransmits,
            mss: pacing::DEFAULT_MSS,
            bottleneck: Bottleneck::Path,
        }
    }

    /// Applies window and pacing rate at every tick, as the engine does.
    fn apply(&mut self, world: &mut World, decision: Option<Decision>) {
        if let Some(decision) = decision {
            self.trace.push(decision);
            self.latest = Some(decision);
        }
        let Some(latest) = self.latest else { return };
        let delivered = self.flows.iter().map(|&flow| world.stats(flow).delivered.0);
        let delivered: Vec<(u32, u64)> = (0..).zip(delivered).collect();
        let interval = (self.path.rtt() * 2).max(MS * 100);
        self.shares.observe(world.now(), interval, latest.pacing, &delivered);
        let (now, rtt) = (world.now(), self.path.rtt());
        let tuned = self.autotuning.update(now, rtt, self.delivered(world).0);
        let tuned = tuned + INITIAL_WINDOW * self.flows.len() as u64;
        for (number, &flow) in (0..).zip(&self.flows) {
            let window = self.shares.window(number, latest.window.min(Bytes(tuned)));
            world.set_receive_window(flow, window);
            world.set_pacing(flow, latest.pacing.map(|rate| self.shares.rate(number, rate)));
        }
    }

    /// Returns the data delivered so far.
    pub(crate) fn delivered(&self, world: &World) -> Bytes {
        self.flows.iter().fold(Bytes(0), |sum, &flow| sum + world.stats(flow).delivered)
    }

    /// Returns the segments retransmitted so far.
    pub(crate) fn retransmits(&self, world: &World) -> u64 {
        self.flows.iter().map(|&flow| world.stats(flow).sender.retransmits).sum()
    }

    /// Returns the decisions, one per line.
    pub(crate) fn trace_lines(&self) -> String {
        let line = |d: &Decision| {
            let pacing = d.pacing.map_or("-".to_owned(), |rate| rate.to_string());
            let at = d.at.as_secs_f64();
            format!("{at:7.2} {:14} {:>10} {pacing:>13}  {}\n", d.state.name(), d.window, d.reason)
        };
        self.trace.iter().map(line).collect()
    }
}
