//! ICTCP in virtual time: rounds and long flows of many senders into one port, steered and not, as
//! tables that a person can review.

use crate::sobas::same_as_committed;
use crate::{DATA_SHARE, MS, SEC, mbit, port};
use bankfull_control::ictcp::{Action, Config, Ictcp, NewConnection, Sample};
use bankfull_control::{Bytes, Rate};
use bankfull_sim::PathConfig;
use bankfull_sim::tcp::MSS;
use bankfull_sim::world::{FlowConfig, FlowId, Route, World};
use std::collections::BTreeSet;
use std::time::Duration;

/// How much has come when the receiver's threads see it. (ours)
const GLANCE_BYTES: f64 = 2500.0;

/// Segments that arrive together take so long on the line. (as cards coalesce)
const QUANTUM: Duration = Duration::from_micros(25);

/// How often windows are looked at.
const TICK: Duration = Duration::from_millis(10);

/// What a host needs from a request's arrival until it sends. (ours: a thread wakes up)
const WAKE_US: u64 = 40;

/// At least as often the control is told what has come. (as bankfull does)
const TOLD: u64 = 64 << 10;

/// What a connection offers before anything is steered, and when the first segment has come: what
/// Linux does.
const OFFERED: Bytes = Bytes::kib(64);
const WIDENED: Bytes = Bytes::kib(70);

/// How the receiver goes about it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// All are asked at once, and windows are the kernel's.
    Untouched,
    /// The same, with so many segments for each.
    Fixed(u64),
    /// Windows are the kernel's, but requests wait for their turn.
    Asked,
    Ictcp(u64),
}

/// Senders behind one port.
struct Port {
    world: World,
    shared: Route,
    flows: Vec<FlowId>,
    way: Way,
    control: Ictcp,
    capacity: f64,
    /// Requests on their way: when they arrive, at whom, for how much.
    requests: Vec<(Duration, usize, Bytes)>,
    /// Up to where each was asked, and those of which some is missing.
    asked: Vec<u64>,
    /// What is to have come of each before the control looks at it.
    looks: Vec<u64>,
    /// Of which nothing has come.
    unheard: BTreeSet<usize>,
    busy: BTreeSet<usize>,
    rng: fastrand::Rng,
    ticked: Duration,
    delay: Duration,
}

impl Port {
    fn new(path: &PathConfig, senders: usize, way: Way) -> Self {
        Self::with_ways(path, &vec![Duration::ZERO; senders], way)
    }

    /// Senders whose own lines take so long.
    fn with_ways(path: &PathConfig, lines: &[Duration], way: Way) -> Self {
        let rate = path.forward.rate.unwrap_or_default().bits_per_sec() as f64;
        Self::build(path, lines, way, Some(mbit(rate * DATA_SHARE / 1e6)))
    }

    /// Nobody knows what the port carries.
    fn unknown(path: &PathConfig, lines: &[Duration]) -> Self {
        Self::build(path, lines, Way::Ictcp(2), None)
    }

    fn build(path: &PathConfig, lines: &[Duration], way: Way, known: Option<Rate>) -> Self {
        let mut world = World::new(47);
        let mut path = path.clone();
        path.forward.quantum = QUANTUM;
        let shared = world.add_path(&path);
        let rate = path.forward.rate.unwrap_or_default().bits_per_sec() as f64;
        let flows = lines.iter().map(|&line| {
            let mut uplink = port(rate / 1e6, 1 << 24, line);
            uplink.quantum = QUANTUM;
            let uplink = world.add_link(uplink);
            let mut config = FlowConfig::new(&shared.behind(uplink));
            config.bytes = Some(Bytes(0));
            config.receive_window = match way {
                Way::Untouched | Way::Asked => config.receive_window,
                Way::Fixed(segments) => Bytes(segments * MSS),
                Way::Ictcp(_) => WIDENED,
            };
            world.add_flow(config)
        });
        let flows: Vec<FlowId> = flows.collect();
        let capacity = rate * DATA_SHARE;
        let min_window_segments = if let Way::Ictcp(segments) = way { segments } else { 2 };
        let can_clamp_windows = way != Way::Asked;
        let mut control =
            Ictcp::new(Config { capacity: known, min_window_segments, can_clamp_windows });
        for (id, &line) in (0..).zip(lines) {
            let rtt = Some(path.rtt() + line);
            let joining = NewConnection {
                mss: Bytes(MSS),
                rtt,
                offered_window: OFFERED,
                grant_driven: true,
                lost_segments: 0,
            };
            control.join(Duration::ZERO, id, &joining);
        }
        let (requests, asked, looks) = (Vec::new(), vec![0; lines.len()], vec![0; lines.len()]);
        let unheard = (0..lines.len()).collect();
        let (rng, ticked, busy) = (fastrand::Rng::with_seed(1), Duration::ZERO, BTreeSet::new());
        let delay = path.reverse.delay;
        Self {
            world,
            shared,
            flows,
            way,
            control,
            capacity,
            requests,
            asked,
            looks,
            unheard,
            busy,
            rng,
            ticked,
            delay,
        }
    }

    fn is_steered(&self) -> bool {
        matches!(self.way, Way::Asked | Way::Ictcp(_))
    }

    fn request(&mut self, sender: usize, bytes: Bytes) {
        let wake = Duration::from_micros(self.rng.u64(WAKE_US / 2..WAKE_US));
        self.requests.push((self.world.now() + self.delay + wake, sender, bytes));
    }

    fn want(&mut self, bytes: Bytes) {
        for sender in 0..self.flows.len() {
            match self.is_steered() {
                true => self.control.add_demand(sender as u64, bytes),
                false => self.request(sender, bytes),
            }
        }
        self.obey();
    }

    fn obey(&mut self) {
        let now = self.world.now();
        let orders: Vec<Action> = self.control.poll_actions(now).collect();
        for order in orders {
            match order {
                Action::Grant(id, bytes) => {
                    self.asked[id as usize] += bytes.0;
                    self.busy.insert(id as usize);
                    self.request(id as usize, bytes);
                    self.note_look(id as usize);
                }
                Action::SetPacing(id, rate) => {
                    self.world.set_pacing(self.flows[id as usize], Some(rate))
                }
                Action::SetWindow(id, window, _) => {
                    self.world.set_receive_window(self.flows[id as usize], window);
                    self.note_look(id as usize);
                }
            }
        }
    }

    /// Lets some time pass.
    fn step(&mut self) {
        let glance = Duration::from_secs_f64(GLANCE_BYTES * 8.0 / self.capacity);
        let until = self.world.now() + glance;
        self.requests.sort_by_key(|request| request.0);
        while self.requests.first().is_some_and(|request| request.0 <= until) {
            let (at, sender, bytes) = self.requests.remove(0);
            self.world.run_until(at);
            self.world.write(self.flows[sender], bytes);
        }
        self.world.run_until(until);
        if !self.is_steered() {
            return;
        }
        for id in self.busy.clone() {
            let received = self.world.stats(self.flows[id]).delivered;
            if received.0 < self.looks[id] {
                continue;
            }
            self.control.on_received(until, id as u64, received);
            if self.unheard.remove(&id) {
                self.control.on_window_offered(id as u64, WIDENED);
            }
            self.note_look(id);
            if received.0 >= self.asked[id] {
                self.busy.remove(&id);
            }
        }
        if until >= self.ticked + TICK {
            self.ticked = until;
            let seen = self.flows.iter().enumerate().map(|(id, &flow)| {
                let stats = self.world.stats(flow);
                let rtt = Some(stats.rtt_smoothed).filter(|rtt| !rtt.is_zero());
                Sample {
                    id: id as u64,
                    received: stats.delivered,
                    rtt,
                    lost_segments: stats.sender.retransmits,
                }
            });
            let seen: Vec<Sample> = seen.collect();
            self.control.tick(until, &seen);
        }
        self.obey();
    }

    /// When the control wants to know of a sender next.
    fn note_look(&mut self, id: usize) {
        let told = self.world.stats(self.flows[id]).delivered.0 + TOLD;
        let look = self.control.next_report_at(id as u64);
        self.looks[id] = look.map_or(told, |look| told.min(look.0));
    }

    /// Another flow into the port, of so much, that nobody holds.
    fn add_other(&mut self, bytes: Bytes) -> FlowId {
        let mut uplink = port(self.capacity / 1e6, 1 << 24, Duration::ZERO);
        uplink.quantum = QUANTUM;
        let uplink = self.world.add_link(uplink);
        let mut config = FlowConfig::new(&self.shared.behind(uplink));
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

/// How rounds went.
struct Rounds {
    /// Part of what the port carries.
    share: f64,
    /// Rounds in which somebody timed out.
    hit: u32,
    retransmits: u64,
}

fn rounds(path: &PathConfig, senders: usize, piece: Bytes, count: u32, way: Way) -> Rounds {
    let mut port = Port::new(path, senders, way);
    let mut hit = 0;
    for round in 1..=u64::from(count) {
        let before = port.timeouts();
        port.want(piece);
        let due = round * piece.0 * senders as u64;
        let limit = port.world.now() + SEC * 60;
        while port.delivered() < due {
            port.step();
            assert!(port.world.now() < limit, "a round hangs");
        }
        hit += u32::from(port.timeouts() > before);
    }
    let bytes = Bytes(piece.0 * senders as u64 * u64::from(count));
    let rate = bytes.per(port.world.now()).bits_per_sec() as f64;
    Rounds { share: rate / port.capacity, hit, retransmits: port.retransmits() }
}

/// A port of a switch; `kb` is what its queue takes.
fn switch(rate: f64, kb: u64) -> PathConfig {
    PathConfig::new(mbit(rate), MS / 10, Bytes(kb * 1000))
}

#[test]
fn rounds_of_many_senders_fill_a_shallow_port_and_nothing_is_lost() {
    let mut table = String::from(
        "port               senders  KiB   untouched           two segments       ICTCP",
    );
    table += "               ICTCP, one segment\n";
    for (rate, kb) in [(1000.0, 64), (1000.0, 256), (10_000.0, 256)] {
        let path = switch(rate, kb);
        for (senders, kib) in [(1, 256), (4, 64), (4, 256), (16, 128), (47, 64), (256, 64)] {
            table += &format!("{rate:5} Mbit/s {kb:3} kB {senders:>5} {kib:>5}");
            for way in [Way::Untouched, Way::Fixed(2), Way::Ictcp(2), Way::Ictcp(1)] {
                let count = if senders > 100 { 4 } else { 12 };
                let Rounds { share, hit, retransmits } =
                    rounds(&path, senders, Bytes::kib(kib), count, way);
                table += &format!("   {share:.3} {hit:>3} {retransmits:>5}");
                if matches!(way, Way::Ictcp(_)) {
                    assert_eq!((hit, retransmits), (0, 0), "{way:?}\n{table}");
                }
                if way == Way::Ictcp(2) && senders > 4 {
                    assert!(share > if rate > 5000.0 { 0.85 } else { 0.95 }, "\n{table}");
                }
            }
            table += "\n";
        }
    }
    let committed = include_str!("../snapshots/ictcp-rounds.txt");
    same_as_committed(&table, committed, "ictcp-rounds.txt");
}

#[test]
fn two_thousand_senders_take_turns() {
    let went = rounds(&switch(1000.0, 64), 2000, Bytes::kib(16), 1, Way::Ictcp(2));
    assert_eq!((went.hit, went.retransmits), (0, 0));
    assert!(went.share > 0.95, "{}", went.share);
}

#[test]
fn where_windows_cannot_be_steered_asking_in_turns_is_enough() {
    let went = rounds(&switch(1000.0, 64), 47, Bytes::kib(64), 5, Way::Asked);
    assert_eq!((went.hit, went.retransmits), (0, 0));
    assert!(went.share > 0.95, "{}", went.share);

    let mut far = Port::with_ways(&switch(1000.0, 256), &[MS * 20; 4], Way::Asked);
    far.endless(0..4);
    far.run(SEC);
    let (jain, row) = far.row("far", SEC, 0..4);
    assert!(jain > 0.98 && far.retransmits() == 0, "{row}");
    assert!(far.delivered() as f64 * 8.0 > 1.5 * far.capacity, "{row}");
}

/// What each has brought from one moment to another, as Jain's index and as a part of the port.
struct Stretch {
    before: Vec<u64>,
    from: Duration,
}

impl Stretch {
    fn begin(port: &Port) -> Self {
        let before = port.flows.iter().map(|&flow| port.world.stats(flow).delivered.0).collect();
        Self { before, from: port.world.now() }
    }

    fn end(&self, port: &Port, who: impl Iterator<Item = usize>) -> (f64, f64, Vec<f64>) {
        let took = port.world.now() - self.from;
        let of = |sender: usize| {
            let now = port.world.stats(port.flows[sender]).delivered.0;
            Bytes(now - self.before[sender]).per(took).bits_per_sec() as f64 / port.capacity
        };
        let rates: Vec<f64> = who.map(of).collect();
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

    fn endless(&mut self, who: impl Iterator<Item = usize>) {
        for sender in who {
            match self.is_steered() {
                true => self.control.add_demand(sender as u64, Bytes(u64::MAX)),
                false => self.world.write(self.flows[sender], Bytes::gib(100)),
            }
        }
        self.obey();
    }

    /// A row of a table: what came in the next stretch of time, and how evenly.
    fn row(&mut self, name: &str, time: Duration, who: std::ops::Range<usize>) -> (f64, String) {
        let stretch = Stretch::begin(self);
        self.run(time);
        let (jain, sum, rates) = stretch.end(self, who);
        let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.3}")).collect();
        let lost = self.retransmits();
        (jain, format!("{name:12} {jain:.3} {sum:.3} {lost:>5}  {}\n", rates.join(" ")))
    }
}

#[test]
fn long_flows_have_equal_shares_soon_after_others_come_and_go() {
    let mut table = String::from("16 flows     Jain  sum    lost  each\n");
    for way in [Way::Untouched, Way::Ictcp(2)] {
        let mut port = Port::new(&switch(1000.0, 256), 17, way);
        table += &format!("{way:?}\n");
        let mut steps = |port: &mut Port, name: &str, who: std::ops::Range<usize>| {
            for half in 1..=4 {
                let (jain, row) = port.row(&format!("{name} {half}"), SEC / 2, who.clone());
                table += &row;
                let least = if half > 2 { 0.98 } else { 0.95 };
                assert!(jain >= least || !port.is_steered(), "{name}: {jain}\n{table}");
            }
        };
        port.endless(0..16);
        steps(&mut port, "together", 0..16);
        port.endless(16..17);
        steps(&mut port, "one more", 0..17);
        if port.is_steered() {
            (0..12).for_each(|sender| port.control.clear_demand(sender));
            steps(&mut port, "12 fewer", 12..17);
            assert_eq!(port.retransmits(), 0);
        }
    }
    let committed = include_str!("../snapshots/ictcp-long.txt");
    same_as_committed(&table, committed, "ictcp-long.txt");
}

#[test]
fn beside_a_flow_that_nobody_holds_senders_have_about_half() {
    let mut table = String::from("beside one   Jain  sum    lost  each\n");
    for (senders, way) in
        [4, 16].into_iter().flat_map(|n| [(n, Way::Untouched), (n, Way::Ictcp(2))])
    {
        let mut port = Port::new(&switch(1000.0, 256), senders, way);
        table += &format!("{senders}, {way:?}\n");
        let other = port.add_other(Bytes(400_000_000));
        port.run(SEC / 2);
        port.endless(0..senders);
        for second in 1..=4 {
            let before = port.delivered();
            let (jain, row) = port.row(&format!("second {second}"), SEC, 0..senders);
            table += &row;
            let part = Bytes(port.delivered() - before).per(SEC).bits_per_sec() as f64;
            let least = if second == 1 { 0.2 } else { 0.4 };
            let is_fair = (least..0.7).contains(&(part / port.capacity)) && jain > 0.98;
            assert!(is_fair || way == Way::Untouched, "{table}");
        }
        assert!(port.world.stats(other).delivered < Bytes(400_000_000), "it is there still");
        port.run(SEC * 8);
        table += &port.row("alone", SEC, 0..senders).1;
    }
    let committed = include_str!("../snapshots/ictcp-beside.txt");
    same_as_committed(&table, committed, "ictcp-beside.txt");
}

#[test]
fn far_senders_have_as_much_of_the_port_as_near_ones() {
    let lines: Vec<Duration> =
        [0, 0, 1, 1, 5, 5, 20, 20, 50, 50, 100, 100].map(|ms| MS * ms).into();
    let mut table = String::from("0.1 to 100 ms Jain sum    lost  each\n");
    for way in [Way::Untouched, Way::Ictcp(2)] {
        let mut port = Port::with_ways(&switch(1000.0, 256), &lines, way);
        table += &format!("{way:?}\n");
        port.endless(0..12);
        for second in 1..=5 {
            let (jain, row) = port.row(&format!("second {second}"), SEC, 0..12);
            table += &row;
            assert!(jain > 0.98 || second == 1 || way == Way::Untouched, "{table}");
        }
    }
    let committed = include_str!("../snapshots/ictcp-far.txt");
    same_as_committed(&table, committed, "ictcp-far.txt");
}

#[test]
fn a_port_of_unknown_capacity_is_filled_too() {
    let mut table = String::from("unknown      Jain  sum    lost  each\n");
    for (rate, line) in [(1000.0, 0), (10_000.0, 0), (1000.0, 20)] {
        let mut port = Port::unknown(&switch(rate, 256), &[MS * line; 8]);
        table += &format!("{rate} Mbit/s, {line} ms more\n");
        port.endless(0..8);
        for second in 1..=4 {
            let (jain, row) = port.row(&format!("second {second}"), SEC, 0..8);
            table += &row;
            assert!(jain > 0.90 || second < 3, "{table}");
        }
    }
    let committed = include_str!("../snapshots/ictcp-unknown.txt");
    same_as_committed(&table, committed, "ictcp-unknown.txt");
}
