//! Senders into one port under ICTCP, in virtual time.

use crate::{DATA_SHARE, mbit, port};
use bankfull_control::Bytes;
use bankfull_control::ictcp::{Action, Config, Ictcp, NewConnection, Sample};
use bankfull_sim::tcp::MSS;
use bankfull_sim::world::{FlowConfig, FlowId, LinkId, Route, World};
use bankfull_sim::{LinkConfig, PathConfig};
use std::collections::BTreeSet;
use std::time::Duration;

/// Received bytes between two runs of the receiver's threads. (chosen: fine beside a window)
const STEP_BYTES: f64 = 2500.0;

/// Transmission time of segments that arrive together. (as with interrupt coalescing of network
/// cards)
const COALESCING_QUANTUM: Duration = Duration::from_micros(25);

/// Interval of window updates.
const WINDOW_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum time from a request's arrival until the sender sends, in µs. (chosen: wake-up of a
/// thread)
const MAX_WAKE_UP_US: u64 = 40;

/// Maximum bytes between two reports to the controller. (as in bankfull)
const MAX_REPORT_BYTES: u64 = 64 << 10;

/// Advertised window before tuning, and after the first segment, as in Linux.
const INITIAL_WINDOW: Bytes = Bytes::kib(64);
const OPENED_WINDOW: Bytes = Bytes::kib(70);

/// Advertised window of a sender that has not joined. (chosen: above the BDP and the queue)
const LONE_WINDOW: Bytes = Bytes::mib(2);

/// Strategy of the receiver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Strategy {
    /// Requests all senders at once, with the kernel's windows.
    Untuned,
    /// Requests all senders at once, with windows of this many segments.
    Fixed(u64),
    /// Requests by ICTCP grants, with the kernel's windows.
    Granted,
    Ictcp(u64),
}

/// A sender's way to the switch.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) uplink: LinkConfig,
    /// Number of the link that it shares with other senders behind its own.
    pub(crate) shared: Option<usize>,
    /// The sender needs no grants, and joins later.
    pub(crate) is_unscheduled: bool,
}

impl Line {
    /// Returns a line with the port's rate.
    pub(crate) fn new(path: &PathConfig, delay: Duration) -> Self {
        let rate = path.forward.rate.unwrap_or_default().bits_per_sec() as f64 / 1e6;
        let mut uplink = port(rate, 1 << 24, delay);
        uplink.quantum = COALESCING_QUANTUM;
        Self { uplink, shared: None, is_unscheduled: false }
    }
}

/// Properties of the port and its senders, and the knowledge of the controller.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) path: PathConfig,
    pub(crate) lines: Vec<Line>,
    /// Links that several lines share.
    pub(crate) shared: Vec<LinkConfig>,
    pub(crate) strategy: Strategy,
    pub(crate) knows_capacity: bool,
    pub(crate) knows_rtt: bool,
    pub(crate) max_wake_up_us: u64,
    /// Seed of all random numbers.
    pub(crate) seed: u64,
}

impl Setup {
    pub(crate) fn new(path: &PathConfig, senders: usize) -> Self {
        Self {
            path: path.clone(),
            lines: vec![Line::new(path, Duration::ZERO); senders],
            shared: Vec::new(),
            strategy: Strategy::Ictcp(2),
            knows_capacity: true,
            knows_rtt: true,
            max_wake_up_us: MAX_WAKE_UP_US,
            seed: 0,
        }
    }

    /// Returns senders whose own lines have these delays.
    pub(crate) fn with_delays(path: &PathConfig, delays: &[Duration]) -> Self {
        let lines = delays.iter().map(|&delay| Line::new(path, delay)).collect();
        Self { lines, ..Self::new(path, 0) }
    }

    /// Returns the same with another seed.
    pub(crate) fn seeded(&self, seed: u64) -> Self {
        Self { seed, ..self.clone() }
    }

    pub(crate) fn build(self) -> Port {
        Port::build(self)
    }
}

/// Senders behind one port.
pub(crate) struct Port {
    pub(crate) world: World,
    shared: Route,
    /// Links that several lines share.
    links: Vec<LinkId>,
    pub(crate) flows: Vec<FlowId>,
    setup: Setup,
    pub(crate) control: Ictcp,
    pub(crate) capacity: f64,
    /// Requests in flight: arrival time, sender, bytes.
    requests: Vec<(Duration, usize, Bytes)>,
    /// Bytes requested from each sender.
    requested: Vec<u64>,
    /// Received bytes of each sender at which the controller runs next.
    next_reports: Vec<u64>,
    /// Bytes of each sender before it joined.
    before_joining: Vec<u64>,
    /// Senders of which nothing has arrived.
    silent: BTreeSet<usize>,
    /// Senders with requested bytes outstanding.
    busy: BTreeSet<usize>,
    rng: fastrand::Rng,
    last_tick: Duration,
    /// Sum of the queues at each step, in bytes, and number of steps.
    ///
    /// Queues are those of the port and of shared links.
    queue: (u64, u64),
}

impl Port {
    fn build(mut setup: Setup) -> Self {
        let mut world = World::new(47 + setup.seed);
        setup.path.forward.quantum = COALESCING_QUANTUM;
        let shared = world.add_path(&setup.path);
        let links: Vec<LinkId> =
            setup.shared.iter().map(|link| world.add_link(link.clone())).collect();
        let flows = setup.lines.iter().map(|line| {
            let uplink = world.add_link(line.uplink.clone());
            let route =
                line.shared.map_or(shared.clone(), |number| shared.with_uplink(links[number]));
            let mut config = FlowConfig::new(&route.with_uplink(uplink));
            config.bytes = Some(Bytes(0));
            config.receive_window = match setup.strategy {
                Strategy::Fixed(segments) => Bytes(segments * MSS),
                _ if line.is_unscheduled => LONE_WINDOW,
                Strategy::Ictcp(_) => OPENED_WINDOW,
                _ => config.receive_window,
            };
            world.add_flow(config)
        });
        let flows: Vec<FlowId> = flows.collect();
        let rate = setup.path.forward.rate.unwrap_or_default().bits_per_sec() as f64;
        let min_window_segments =
            if let Strategy::Ictcp(segments) = setup.strategy { segments } else { 2 };
        let control = Ictcp::new(Config {
            capacity: setup.knows_capacity.then(|| mbit(rate * DATA_SHARE / 1e6)),
            min_window_segments,
            can_clamp_windows: setup.strategy != Strategy::Granted,
        });
        let count = flows.len();
        let rng = fastrand::Rng::with_seed(1 + setup.seed);
        let mut port = Self {
            world,
            shared,
            links,
            flows,
            setup,
            control,
            capacity: rate * DATA_SHARE,
            requests: Vec::new(),
            requested: vec![0; count],
            next_reports: vec![0; count],
            before_joining: vec![0; count],
            silent: (0..count).collect(),
            busy: BTreeSet::new(),
            rng,
            last_tick: Duration::ZERO,
            queue: (0, 0),
        };
        for sender in 0..count {
            if !port.setup.lines[sender].is_unscheduled {
                port.join(sender);
            }
        }
        port
    }

    /// Reports a sender to the controller.
    pub(crate) fn join(&mut self, sender: usize) {
        let line = &self.setup.lines[sender];
        let stats = self.world.stats(self.flows[sender]);
        let connection = NewConnection {
            mss: Bytes(MSS),
            rtt: self.setup.knows_rtt.then(|| self.setup.path.rtt() + line.uplink.delay),
            offered_window: if line.is_unscheduled {
                stats.right_window_edge - stats.delivered
            } else {
                INITIAL_WINDOW
            },
            grant_driven: !line.is_unscheduled,
            lost_segments: stats.sender.retransmits,
        };
        self.before_joining[sender] = stats.delivered.0;
        if line.is_unscheduled {
            self.silent.remove(&sender);
            self.requested[sender] = u64::MAX;
            self.busy.insert(sender);
        }
        self.control.join(self.world.now(), sender as u64, &connection);
        self.apply_actions();
    }

    pub(crate) fn is_tuned(&self) -> bool {
        matches!(self.setup.strategy, Strategy::Granted | Strategy::Ictcp(_))
    }

    fn request(&mut self, sender: usize, bytes: Bytes) {
        let max_us = self.setup.max_wake_up_us;
        let wake_up = Duration::from_micros(self.rng.u64(max_us / 2..max_us));
        let at = self.world.now() + self.setup.path.reverse.delay + wake_up;
        self.requests.push((at, sender, bytes));
    }

    /// Adds demand for bytes of a sender.
    pub(crate) fn add_demand_of(&mut self, sender: usize, bytes: Bytes) {
        match self.is_tuned() && !self.setup.lines[sender].is_unscheduled {
            true => self.control.add_demand(sender as u64, bytes),
            false if bytes.0 == u64::MAX => self.world.write(self.flows[sender], Bytes::gib(100)),
            false => self.request(sender, bytes),
        }
    }

    /// Adds demand for bytes of each sender.
    pub(crate) fn add_demand(&mut self, bytes: Bytes) {
        (0..self.flows.len()).for_each(|sender| self.add_demand_of(sender, bytes));
        self.apply_actions();
    }

    pub(crate) fn add_unlimited_demand(&mut self, senders: impl Iterator<Item = usize>) {
        senders.for_each(|sender| self.add_demand_of(sender, Bytes(u64::MAX)));
        self.apply_actions();
    }

    pub(crate) fn apply_actions(&mut self) {
        let now = self.world.now();
        let actions: Vec<Action> = self.control.poll_actions(now).collect();
        for action in actions {
            match action {
                Action::Grant(id, bytes) => {
                    self.requested[id as usize] += bytes.0;
                    self.busy.insert(id as usize);
                    self.request(id as usize, bytes);
                    self.update_next_report(id as usize);
                }
                Action::SetPacing(id, rate) => {
                    self.world.set_pacing(self.flows[id as usize], Some(rate))
                }
                Action::SetWindow(id, window, _) => {
                    self.world.set_receive_window(self.flows[id as usize], window);
                    self.update_next_report(id as usize);
                }
            }
        }
    }

    /// Advances the time by one step.
    pub(crate) fn step(&mut self) {
        let step_time = Duration::from_secs_f64(STEP_BYTES * 8.0 / self.capacity);
        let until = self.world.now() + step_time;
        self.requests.sort_by_key(|request| request.0);
        while self.requests.first().is_some_and(|request| request.0 <= until) {
            let (at, sender, bytes) = self.requests.remove(0);
            self.world.run_until(at);
            self.world.write(self.flows[sender], bytes);
        }
        self.world.run_until(until);
        let links = [self.shared.forward[0]].into_iter().chain(self.links.iter().copied());
        let queue: u64 = links.map(|link| self.world.backlog(link).0).sum();
        self.queue = (self.queue.0 + queue, self.queue.1 + 1);
        if !self.is_tuned() {
            return;
        }
        for id in self.busy.clone() {
            let received = self.received(id);
            if received.0 < self.next_reports[id] {
                continue;
            }
            self.control.on_received(until, id as u64, received);
            if self.silent.remove(&id) {
                self.control.on_window_offered(id as u64, OPENED_WINDOW);
            }
            self.update_next_report(id);
            if received.0 >= self.requested[id] {
                self.busy.remove(&id);
            }
        }
        if until >= self.last_tick + WINDOW_INTERVAL {
            self.last_tick = until;
            let samples = self.flows.iter().enumerate().map(|(id, &flow)| {
                let stats = self.world.stats(flow);
                let rtt = Some(stats.rtt_smoothed).filter(|rtt| !rtt.is_zero());
                Sample {
                    id: id as u64,
                    received: self.received(id),
                    rtt,
                    lost_segments: stats.sender.retransmits,
                }
            });
            let samples: Vec<Sample> = samples.collect();
            self.control.tick(until, &samples);
        }
        self.apply_actions();
    }

    /// Bytes received of a sender since it joined.
    fn received(&self, id: usize) -> Bytes {
        Bytes(self.world.stats(self.flows[id]).delivered.0 - self.before_joining[id])
    }

    /// Updates the byte count at which the controller must be called next.
    fn update_next_report(&mut self, id: usize) {
        let max_report = self.received(id).0 + MAX_REPORT_BYTES;
        let report_at = self.control.next_report_at(id as u64);
        self.next_reports[id] =
            report_at.map_or(max_report, |report_at| max_report.min(report_at.0));
    }

    /// Adds an untuned flow of `bytes` into the port.
    pub(crate) fn add_untuned_flow(&mut self, bytes: Bytes) -> FlowId {
        let mut uplink = port(self.capacity / 1e6, 1 << 24, Duration::ZERO);
        uplink.quantum = COALESCING_QUANTUM;
        let uplink = self.world.add_link(uplink);
        let mut config = FlowConfig::new(&self.shared.with_uplink(uplink));
        config.bytes = Some(bytes);
        config.start = self.world.now();
        self.world.add_flow(config)
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.world.now() + time;
        while self.world.now() < until {
            self.step();
        }
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.flows.iter().map(|&flow| self.world.stats(flow).delivered.0).sum()
    }

    pub(crate) fn timeouts(&self) -> u64 {
        self.flows.iter().map(|&flow| self.world.stats(flow).sender.timeouts).sum()
    }

    pub(crate) fn retransmits(&self) -> u64 {
        self.flows.iter().map(|&flow| self.world.stats(flow).sender.retransmits).sum()
    }

    /// Returns the mean queue of port and shared links since the last call, in bytes.
    pub(crate) fn take_mean_queue(&mut self) -> f64 {
        let (sum, count) = std::mem::take(&mut self.queue);
        sum as f64 / count.max(1) as f64
    }
}

/// Measurement interval: goodput of each sender as a fraction of the port, and Jain's index.
pub(crate) struct Interval {
    before: Vec<u64>,
    from: Duration,
}

impl Interval {
    pub(crate) fn begin(port: &Port) -> Self {
        let before = port.flows.iter().map(|&flow| port.world.stats(flow).delivered.0).collect();
        Self { before, from: port.world.now() }
    }

    pub(crate) fn end(
        &self,
        port: &Port,
        senders: impl Iterator<Item = usize>,
    ) -> (f64, f64, Vec<f64>) {
        let took = port.world.now() - self.from;
        let of = |sender: usize| {
            let now = port.world.stats(port.flows[sender]).delivered.0;
            Bytes(now - self.before[sender]).per(took).bits_per_sec() as f64 / port.capacity
        };
        let rates: Vec<f64> = senders.map(of).collect();
        let (sum, squares) = rates.iter().fold((0.0, 0.0), |(a, b), r| (a + r, b + r * r));
        (sum * sum / squares / rates.len() as f64, sum, rates)
    }
}
