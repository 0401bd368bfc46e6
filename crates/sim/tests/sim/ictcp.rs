//! ICTCP in virtual time: rounds and long flows of many senders into one port, tuned and not.
//!
//! The tables are snapshots for review.

use crate::snapshot::assert_snapshot;
use crate::{DATA_SHARE, MS, SEC, mbit, port};
use bankfull_control::ictcp::{Action, Config, Ictcp, NewConnection, Sample};
use bankfull_control::{Bytes, Rate};
use bankfull_sim::PathConfig;
use bankfull_sim::tcp::MSS;
use bankfull_sim::world::{FlowConfig, FlowId, Route, World};
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

/// Strategy of the receiver.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Strategy {
    /// Requests all senders at once, with the kernel's windows.
    Untuned,
    /// Requests all senders at once, with windows of this many segments.
    Fixed(u64),
    /// Requests by ICTCP grants, with the kernel's windows.
    Granted,
    Ictcp(u64),
}

/// Senders behind one port.
struct Port {
    world: World,
    shared: Route,
    flows: Vec<FlowId>,
    strategy: Strategy,
    control: Ictcp,
    capacity: f64,
    /// Requests in flight: arrival time, sender, bytes.
    requests: Vec<(Duration, usize, Bytes)>,
    /// Bytes requested from each sender, and the senders of which some are missing.
    requested: Vec<u64>,
    /// Received bytes of each sender at which the controller runs next.
    next_reports: Vec<u64>,
    /// Senders of which nothing has arrived.
    silent: BTreeSet<usize>,
    busy: BTreeSet<usize>,
    rng: fastrand::Rng,
    last_tick: Duration,
    delay: Duration,
}

impl Port {
    fn new(path: &PathConfig, senders: usize, strategy: Strategy) -> Self {
        Self::with_line_delays(path, &vec![Duration::ZERO; senders], strategy)
    }

    /// Creates senders whose own lines have these delays.
    fn with_line_delays(path: &PathConfig, lines: &[Duration], strategy: Strategy) -> Self {
        let rate = path.forward.rate.unwrap_or_default().bits_per_sec() as f64;
        Self::build(path, lines, strategy, Some(mbit(rate * DATA_SHARE / 1e6)))
    }

    /// Creates a port whose capacity the controller does not know.
    fn with_unknown_capacity(path: &PathConfig, lines: &[Duration]) -> Self {
        Self::build(path, lines, Strategy::Ictcp(2), None)
    }

    fn build(
        path: &PathConfig,
        lines: &[Duration],
        strategy: Strategy,
        known_capacity: Option<Rate>,
    ) -> Self {
        let mut world = World::new(47);
        let mut path = path.clone();
        path.forward.quantum = COALESCING_QUANTUM;
        let shared = world.add_path(&path);
        let rate = path.forward.rate.unwrap_or_default().bits_per_sec() as f64;
        let flows = lines.iter().map(|&line| {
            let mut uplink = port(rate / 1e6, 1 << 24, line);
            uplink.quantum = COALESCING_QUANTUM;
            let uplink = world.add_link(uplink);
            let mut config = FlowConfig::new(&shared.with_uplink(uplink));
            config.bytes = Some(Bytes(0));
            config.receive_window = match strategy {
                Strategy::Untuned | Strategy::Granted => config.receive_window,
                Strategy::Fixed(segments) => Bytes(segments * MSS),
                Strategy::Ictcp(_) => OPENED_WINDOW,
            };
            world.add_flow(config)
        });
        let flows: Vec<FlowId> = flows.collect();
        let capacity = rate * DATA_SHARE;
        let min_window_segments =
            if let Strategy::Ictcp(segments) = strategy { segments } else { 2 };
        let can_clamp_windows = strategy != Strategy::Granted;
        let mut control =
            Ictcp::new(Config { capacity: known_capacity, min_window_segments, can_clamp_windows });
        for (id, &line) in (0..).zip(lines) {
            let rtt = Some(path.rtt() + line);
            let connection = NewConnection {
                mss: Bytes(MSS),
                rtt,
                offered_window: INITIAL_WINDOW,
                grant_driven: true,
                lost_segments: 0,
            };
            control.join(Duration::ZERO, id, &connection);
        }
        let (requests, requested, next_reports) =
            (Vec::new(), vec![0; lines.len()], vec![0; lines.len()]);
        let silent = (0..lines.len()).collect();
        let (rng, last_tick, busy) = (fastrand::Rng::with_seed(1), Duration::ZERO, BTreeSet::new());
        let delay = path.reverse.delay;
        Self {
            world,
            shared,
            flows,
            strategy,
            control,
            capacity,
            requests,
            requested,
            next_reports,
            silent,
            busy,
            rng,
            last_tick,
            delay,
        }
    }

    fn is_tuned(&self) -> bool {
        matches!(self.strategy, Strategy::Granted | Strategy::Ictcp(_))
    }

    fn request(&mut self, sender: usize, bytes: Bytes) {
        let wake_up = Duration::from_micros(self.rng.u64(MAX_WAKE_UP_US / 2..MAX_WAKE_UP_US));
        self.requests.push((self.world.now() + self.delay + wake_up, sender, bytes));
    }

    fn add_demand(&mut self, bytes: Bytes) {
        for sender in 0..self.flows.len() {
            match self.is_tuned() {
                true => self.control.add_demand(sender as u64, bytes),
                false => self.request(sender, bytes),
            }
        }
        self.apply_actions();
    }

    fn apply_actions(&mut self) {
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
    fn step(&mut self) {
        let step_time = Duration::from_secs_f64(STEP_BYTES * 8.0 / self.capacity);
        let until = self.world.now() + step_time;
        self.requests.sort_by_key(|request| request.0);
        while self.requests.first().is_some_and(|request| request.0 <= until) {
            let (at, sender, bytes) = self.requests.remove(0);
            self.world.run_until(at);
            self.world.write(self.flows[sender], bytes);
        }
        self.world.run_until(until);
        if !self.is_tuned() {
            return;
        }
        for id in self.busy.clone() {
            let received = self.world.stats(self.flows[id]).delivered;
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
                    received: stats.delivered,
                    rtt,
                    lost_segments: stats.sender.retransmits,
                }
            });
            let samples: Vec<Sample> = samples.collect();
            self.control.tick(until, &samples);
        }
        self.apply_actions();
    }

    /// Updates the byte count at which the controller must be called next.
    fn update_next_report(&mut self, id: usize) {
        let max_report = self.world.stats(self.flows[id]).delivered.0 + MAX_REPORT_BYTES;
        let report_at = self.control.next_report_at(id as u64);
        self.next_reports[id] =
            report_at.map_or(max_report, |report_at| max_report.min(report_at.0));
    }

    /// Adds an untuned flow of `bytes` into the port.
    fn add_untuned_flow(&mut self, bytes: Bytes) -> FlowId {
        let mut uplink = port(self.capacity / 1e6, 1 << 24, Duration::ZERO);
        uplink.quantum = COALESCING_QUANTUM;
        let uplink = self.world.add_link(uplink);
        let mut config = FlowConfig::new(&self.shared.with_uplink(uplink));
        config.bytes = Some(bytes);
        self.world.add_flow(config)
    }

    fn delivered(&self) -> u64 {
        self.flows.iter().map(|&flow| self.world.stats(flow).delivered.0).sum()
    }

    fn timeouts(&self) -> u64 {
        self.flows.iter().map(|&flow| self.world.stats(flow).sender.timeouts).sum()
    }

    fn retransmits(&self) -> u64 {
        self.flows.iter().map(|&flow| self.world.stats(flow).sender.retransmits).sum()
    }
}

/// Result of several rounds.
struct RoundsResult {
    /// Goodput as a fraction of the port's capacity.
    share: f64,
    /// Rounds with a timeout.
    rounds_with_timeout: u32,
    retransmits: u64,
}

fn rounds(
    path: &PathConfig,
    senders: usize,
    bytes_each: Bytes,
    count: u32,
    strategy: Strategy,
) -> RoundsResult {
    let mut port = Port::new(path, senders, strategy);
    let mut rounds_with_timeout = 0;
    for round in 1..=u64::from(count) {
        let before = port.timeouts();
        port.add_demand(bytes_each);
        let due = round * bytes_each.0 * senders as u64;
        let limit = port.world.now() + SEC * 60;
        while port.delivered() < due {
            port.step();
            assert!(port.world.now() < limit, "a round hangs");
        }
        rounds_with_timeout += u32::from(port.timeouts() > before);
    }
    let bytes = Bytes(bytes_each.0 * senders as u64 * u64::from(count));
    let rate = bytes.per(port.world.now()).bits_per_sec() as f64;
    RoundsResult {
        share: rate / port.capacity,
        rounds_with_timeout,
        retransmits: port.retransmits(),
    }
}

/// Returns the port of a switch; `kb` is its queue capacity.
fn switch(rate: f64, kb: u64) -> PathConfig {
    PathConfig::new(mbit(rate), MS / 10, Bytes(kb * 1000))
}

#[test]
fn incast_rounds_fill_shallow_port_without_loss() {
    let mut table = String::from(
        "port               senders  KiB   untuned             two segments       ICTCP",
    );
    table += "               ICTCP, one segment\n";
    for (rate, kb) in [(1000.0, 64), (1000.0, 256), (10_000.0, 256)] {
        let path = switch(rate, kb);
        for (senders, kib) in [(1, 256), (4, 64), (4, 256), (16, 128), (47, 64), (256, 64)] {
            table += &format!("{rate:5} Mbit/s {kb:3} kB {senders:>5} {kib:>5}");
            for strategy in
                [Strategy::Untuned, Strategy::Fixed(2), Strategy::Ictcp(2), Strategy::Ictcp(1)]
            {
                let count = if senders > 100 { 4 } else { 12 };
                let RoundsResult { share, rounds_with_timeout, retransmits } =
                    rounds(&path, senders, Bytes::kib(kib), count, strategy);
                table += &format!("   {share:.3} {rounds_with_timeout:>3} {retransmits:>5}");
                if matches!(strategy, Strategy::Ictcp(_)) {
                    assert_eq!((rounds_with_timeout, retransmits), (0, 0), "{strategy:?}\n{table}");
                }
                if strategy == Strategy::Ictcp(2) && senders > 4 {
                    assert!(share > if rate > 5000.0 { 0.85 } else { 0.95 }, "\n{table}");
                }
            }
            table += "\n";
        }
    }
    let committed = include_str!("../snapshots/ictcp-rounds.txt");
    assert_snapshot(&table, committed, "ictcp-rounds.txt");
}

#[test]
fn two_thousand_senders_fill_port_without_loss() {
    let result = rounds(&switch(1000.0, 64), 2000, Bytes::kib(16), 1, Strategy::Ictcp(2));
    assert_eq!((result.rounds_with_timeout, result.retransmits), (0, 0));
    assert!(result.share > 0.95, "{}", result.share);
}

#[test]
fn grants_without_window_control_avoid_loss() {
    let result = rounds(&switch(1000.0, 64), 47, Bytes::kib(64), 5, Strategy::Granted);
    assert_eq!((result.rounds_with_timeout, result.retransmits), (0, 0));
    assert!(result.share > 0.95, "{}", result.share);

    let mut far = Port::with_line_delays(&switch(1000.0, 256), &[MS * 20; 4], Strategy::Granted);
    far.add_unlimited_demand(0..4);
    far.run(SEC);
    let (jain, row) = far.row("far", SEC, 0..4);
    assert!(jain > 0.98 && far.retransmits() == 0, "{row}");
    assert!(far.delivered() as f64 * 8.0 > 1.5 * far.capacity, "{row}");
}

/// Measurement interval: goodput of each sender as a fraction of the port, and Jain's index.
struct Interval {
    before: Vec<u64>,
    from: Duration,
}

impl Interval {
    fn begin(port: &Port) -> Self {
        let before = port.flows.iter().map(|&flow| port.world.stats(flow).delivered.0).collect();
        Self { before, from: port.world.now() }
    }

    fn end(&self, port: &Port, senders: impl Iterator<Item = usize>) -> (f64, f64, Vec<f64>) {
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

impl Port {
    fn run(&mut self, time: Duration) {
        let until = self.world.now() + time;
        while self.world.now() < until {
            self.step();
        }
    }

    fn add_unlimited_demand(&mut self, senders: impl Iterator<Item = usize>) {
        for sender in senders {
            match self.is_tuned() {
                true => self.control.add_demand(sender as u64, Bytes(u64::MAX)),
                false => self.world.write(self.flows[sender], Bytes::gib(100)),
            }
        }
        self.apply_actions();
    }

    /// Returns a table row for the next interval: goodput of each sender and fairness.
    fn row(
        &mut self,
        name: &str,
        time: Duration,
        senders: std::ops::Range<usize>,
    ) -> (f64, String) {
        let interval = Interval::begin(self);
        self.run(time);
        let (jain, sum, rates) = interval.end(self, senders);
        let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.3}")).collect();
        let lost = self.retransmits();
        (jain, format!("{name:12} {jain:.3} {sum:.3} {lost:>5}  {}\n", rates.join(" ")))
    }
}

#[test]
fn long_flows_converge_to_equal_shares() {
    let mut table = String::from("16 flows     Jain  sum    lost  each\n");
    for strategy in [Strategy::Untuned, Strategy::Ictcp(2)] {
        let mut port = Port::new(&switch(1000.0, 256), 17, strategy);
        table += &format!("{strategy:?}\n");
        let mut steps = |port: &mut Port, name: &str, senders: std::ops::Range<usize>| {
            for half in 1..=4 {
                let (jain, row) = port.row(&format!("{name} {half}"), SEC / 2, senders.clone());
                table += &row;
                let least = if half > 2 { 0.98 } else { 0.95 };
                assert!(jain >= least || !port.is_tuned(), "{name}: {jain}\n{table}");
            }
        };
        port.add_unlimited_demand(0..16);
        steps(&mut port, "together", 0..16);
        port.add_unlimited_demand(16..17);
        steps(&mut port, "one more", 0..17);
        if port.is_tuned() {
            (0..12).for_each(|sender| port.control.clear_demand(sender));
            steps(&mut port, "12 fewer", 12..17);
            assert_eq!(port.retransmits(), 0);
        }
    }
    let committed = include_str!("../snapshots/ictcp-long.txt");
    assert_snapshot(&table, committed, "ictcp-long.txt");
}

#[test]
fn senders_share_port_with_untuned_flow() {
    let mut table = String::from("one other    Jain  sum    lost  each\n");
    for (senders, strategy) in
        [4, 16].into_iter().flat_map(|n| [(n, Strategy::Untuned), (n, Strategy::Ictcp(2))])
    {
        let mut port = Port::new(&switch(1000.0, 256), senders, strategy);
        table += &format!("{senders}, {strategy:?}\n");
        let other = port.add_untuned_flow(Bytes(400_000_000));
        port.run(SEC / 2);
        port.add_unlimited_demand(0..senders);
        for second in 1..=4 {
            let before = port.delivered();
            let (jain, row) = port.row(&format!("second {second}"), SEC, 0..senders);
            table += &row;
            let part = Bytes(port.delivered() - before).per(SEC).bits_per_sec() as f64;
            let least = if second == 1 { 0.2 } else { 0.4 };
            let is_fair = (least..0.7).contains(&(part / port.capacity)) && jain > 0.98;
            assert!(is_fair || strategy == Strategy::Untuned, "{table}");
        }
        assert!(port.world.stats(other).delivered < Bytes(400_000_000), "it is still active");
        port.run(SEC * 8);
        table += &port.row("alone", SEC, 0..senders).1;
    }
    let committed = include_str!("../snapshots/ictcp-beside.txt");
    assert_snapshot(&table, committed, "ictcp-beside.txt");
}

#[test]
fn senders_of_any_rtt_have_equal_shares() {
    let lines: Vec<Duration> =
        [0, 0, 1, 1, 5, 5, 20, 20, 50, 50, 100, 100].map(|ms| MS * ms).into();
    let mut table = String::from("0.1 to 100 ms Jain sum    lost  each\n");
    for strategy in [Strategy::Untuned, Strategy::Ictcp(2)] {
        let mut port = Port::with_line_delays(&switch(1000.0, 256), &lines, strategy);
        table += &format!("{strategy:?}\n");
        port.add_unlimited_demand(0..12);
        for second in 1..=5 {
            let (jain, row) = port.row(&format!("second {second}"), SEC, 0..12);
            table += &row;
            assert!(jain > 0.98 || second == 1 || strategy == Strategy::Untuned, "{table}");
        }
    }
    let committed = include_str!("../snapshots/ictcp-far.txt");
    assert_snapshot(&table, committed, "ictcp-far.txt");
}

#[test]
fn port_of_unknown_capacity_is_filled() {
    let mut table = String::from("unknown      Jain  sum    lost  each\n");
    for (rate, line) in [(1000.0, 0), (10_000.0, 0), (1000.0, 20)] {
        let mut port = Port::with_unknown_capacity(&switch(rate, 256), &[MS * line; 8]);
        table += &format!("{rate} Mbit/s, {line} ms extra\n");
        port.add_unlimited_demand(0..8);
        for second in 1..=4 {
            let (jain, row) = port.row(&format!("second {second}"), SEC, 0..8);
            table += &row;
            assert!(jain > 0.90 || second < 3, "{table}");
        }
    }
    let committed = include_str!("../snapshots/ictcp-unknown.txt");
    assert_snapshot(&table, committed, "ictcp-unknown.txt");
}
