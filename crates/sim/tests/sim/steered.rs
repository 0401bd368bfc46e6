//! A transfer that SOBAS steers, as the engine would: probes every 10 ms, shares of window and
//! pacing for each connection.

use crate::MS;
use bankfull_control::pacing;
use bankfull_control::sobas::{Config, Decision, Observation, Sobas};
use bankfull_control::{Bottleneck, Bytes, Rate, StreamShares};
use bankfull_sim::tcp::{Algorithm, WINDOW_MAX};
use bankfull_sim::world::{FlowId, Route};
use bankfull_sim::{FlowConfig, PathConfig, World};
use fastrand::Rng;
use std::collections::VecDeque;
use std::time::Duration;

/// The window of a connection at first (tcp_rmem, ip-sysctl.rst: 131 072 bytes, half of it for
/// data).
const FIRST_WINDOW: u64 = 65_536;

/// A transfer at work.
pub(crate) struct Steered {
    pub(crate) flows: Vec<FlowId>,
    pub(crate) trace: Vec<Decision>,
    sobas: Sobas,
    path: PathConfig,
    route: Route,
    start: Duration,
    /// What the packet trains tell, and when: after two round trips.
    capacity: Option<Rate>,
    is_udp_blocked: bool,
    rng: Rng,
    probes_lost: u64,
    next: Duration,
    /// Whether the last tick was one of those that need no look.
    is_odd: bool,
    /// What is granted in all, as far as the kernel's tuning has come.
    held: Option<Decision>,
    received: VecDeque<(Duration, u64)>,
    tuned: u64,
    shares: StreamShares,
}

/// How a transfer is steered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) streams: u32,
    pub(crate) start: Duration,
    /// What the packet trains tell of the line's rate; `None`: nothing.
    pub(crate) trains: Option<f64>,
    /// No datagram gets through: neither trains nor probes.
    pub(crate) is_udp_blocked: bool,
    pub(crate) algorithm: Algorithm,
}

impl Default for Setting {
    fn default() -> Self {
        let algorithm = Algorithm::default();
        let (start, trains, is_udp_blocked) = (Duration::ZERO, Some(1.0), false);
        Self { streams: 1, start, trains, is_udp_blocked, algorithm }
    }
}

impl Steered {
    pub(crate) fn new(
        world: &mut World,
        path: &PathConfig,
        route: &Route,
        setting: &Setting,
    ) -> Self {
        let mut config = FlowConfig::new(route);
        config.start = setting.start;
        config.algorithm = setting.algorithm;
        config.receive_window = Bytes(FIRST_WINDOW);
        let flows = (0..setting.streams).map(|_| world.add_flow(config.clone())).collect();
        let line = path.forward.rate.unwrap_or_default().bits_per_sec() as f64;
        let trains = setting.trains.filter(|_| !setting.is_udp_blocked);
        let capacity = trains.map(|share| Rate::from_bits_per_sec(line * share));
        let capacity_timeout = path.rtt() * 2 + MS * 200;
        let config = Config {
            window_max: Bytes(WINDOW_MAX),
            capacity_timeout,
            rate_max: None,
            remembered: None,
        };
        Self {
            flows,
            trace: Vec::new(),
            sobas: Sobas::new(config),
            path: path.clone(),
            route: route.clone(),
            start: setting.start,
            capacity: capacity.map(|line| pacing::payload_rate(line, pacing::DEFAULT_MSS)),
            is_udp_blocked: setting.is_udp_blocked,
            rng: Rng::with_seed(7),
            probes_lost: 0,
            next: Duration::ZERO,
            is_odd: false,
            held: None,
            received: VecDeque::new(),
            tuned: 0,
            shares: StreamShares::default(),
        }
    }

    /// Called every millisecond; acts every 10 ms or so, as a thread does.
    pub(crate) fn tick(&mut self, world: &mut World) {
        let Some(now) = world.now().checked_sub(self.start) else { return };
        if now < self.next {
            return;
        }
        self.next = now + MS * self.rng.u32(9..=11);
        if now >= self.path.rtt() * 2
            && let Some(rate) = self.capacity.take()
        {
            let decision = self.sobas.on_capacity(now, rate);
            self.trace.extend(decision);
            self.held = decision.or(self.held);
        }
        let seen = self.observe(world, now);
        self.is_odd = !self.is_odd;
        if self.is_odd && self.sobas.allows_sparse_sampling() {
            seen.rtt.into_iter().for_each(|rtt| self.sobas.on_rtt_sample(rtt));
            return;
        }
        let decision = self.sobas.observe(&seen);
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
            // What TCP tells takes their place: smoothed by the sender, and the shortest.
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

    /// Windows and pacing, at every tick as the engine does.
    fn apply(&mut self, world: &mut World, decision: Option<Decision>) {
        if let Some(decision) = decision {
            self.trace.push(decision);
            self.held = Some(decision);
        }
        let Some(held) = self.held else { return };
        let delivered = self.flows.iter().map(|&flow| world.stats(flow).delivered.0);
        let delivered: Vec<(u32, u64)> = (0..).zip(delivered).collect();
        let stretch = (self.path.rtt() * 2).max(MS * 100);
        self.shares.observe(world.now(), stretch, held.pacing, &delivered);
        let tuned = self.tuned(world) + FIRST_WINDOW * self.flows.len() as u64;
        for (number, &flow) in (0..).zip(&self.flows) {
            let window = self.shares.window(number, held.window.min(Bytes(tuned)));
            world.set_receive_window(flow, window);
            world.set_pacing(flow, held.pacing.map(|rate| self.shares.rate(number, rate)));
        }
    }

    /// How far the kernel has opened the window by itself: in slow start to four times what came in
    /// a round trip, and never less than before (tcp_rcv_space_adjust, net/ipv4/tcp_input.c).
    fn tuned(&mut self, world: &World) -> u64 {
        let (now, all) = (world.now(), self.delivered(world).0);
        self.received.push_back((now, all));
        let from = now.saturating_sub(self.path.rtt());
        while self.received.len() > 1 && self.received[1].0 <= from {
            self.received.pop_front();
        }
        self.tuned = self.tuned.max(4 * (all - self.received[0].1));
        self.tuned
    }

    /// Data delivered so far.
    pub(crate) fn delivered(&self, world: &World) -> Bytes {
        self.flows.iter().fold(Bytes(0), |sum, &flow| sum + world.stats(flow).delivered)
    }

    /// Segments sent again so far.
    pub(crate) fn retransmits(&self, world: &World) -> u64 {
        self.flows.iter().map(|&flow| world.stats(flow).sender.retransmits).sum()
    }

    /// What was decided, line by line.
    pub(crate) fn told(&self) -> String {
        let line = |d: &Decision| {
            let pacing = d.pacing.map_or("-".to_owned(), |rate| rate.to_string());
            let at = d.at.as_secs_f64();
            format!("{at:7.2} {:14} {:>10} {pacing:>13}  {}\n", d.state.name(), d.window, d.reason)
        };
        self.trace.iter().map(line).collect()
    }
}
