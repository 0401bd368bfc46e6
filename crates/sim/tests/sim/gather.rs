//! ICTCP on many kinds of gather: rounds, long flows and requests, with disturbances.
//!
//! The table is a snapshot for review; `scripts/sensitivity --matrix gather` uses it to measure the
//! effect of the constants.

use crate::gather_port::{Interval, Port, Setup, Strategy};
use crate::snapshot::{assert_snapshot, env_is_set};
use crate::{MS, SEC, mbit, port};
use bankfull_control::Bytes;
use bankfull_sim::PathConfig;
use bankfull_sim::link::{Jitter, LinkConfig};
use bankfull_sim::world::FlowId;
use std::time::Duration;

const HEAD: &str = "condition              goodput    lost timeouts   queue    Jain\n";

/// Result of a condition.
#[derive(Debug, Default)]
struct Outcome {
    /// Goodput as a fraction of the port's capacity.
    goodput: f64,
    /// Segments retransmitted, and timeouts.
    lost: f64,
    timeouts: f64,
    /// Mean queue of the port and of links that lines share, in kB.
    queue: f64,
    /// Jain's index of the senders' goodput; 1 if all deliver the same in the end.
    jain: f64,
}

impl Outcome {
    fn mean(outcomes: &[Self]) -> Self {
        let mean =
            |of: fn(&Self) -> f64| outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64;
        Self {
            goodput: mean(|one| one.goodput),
            lost: mean(|one| one.lost),
            timeouts: mean(|one| one.timeouts),
            queue: mean(|one| one.queue),
            jain: mean(|one| one.jain),
        }
    }

    fn row(&self, name: &str) -> String {
        let Self { goodput, lost, timeouts, queue, jain } = self;
        format!("{name:22} {goodput:.4} {lost:>8.0} {timeouts:>8.0} {queue:>7.1}  {jain:.4}\n")
    }
}

/// Returns the outcome of an interval that ends now; losses count from the beginning.
fn outcome(port: &mut Port, interval: &Interval, senders: usize) -> Outcome {
    let (jain, goodput, _) = interval.end(port, 0..senders);
    Outcome {
        goodput,
        lost: port.retransmits() as f64,
        timeouts: port.timeouts() as f64,
        queue: port.take_mean_queue() / 1e3,
        jain,
    }
}

/// Returns the port of a switch; `kb` is its queue capacity.
fn switch(rate: f64, kb: u64) -> PathConfig {
    PathConfig::new(mbit(rate), MS / 10, Bytes(kb * 1000))
}

/// Rounds, with pauses between them.
fn rounds(setup: Setup, bytes_each: Bytes, count: u32, pause: Duration) -> Outcome {
    let senders = setup.lines.len();
    let mut port = setup.build();
    let mut active = Duration::ZERO;
    for round in 1..=u64::from(count) {
        let start = port.world.now();
        port.add_demand(bytes_each);
        let due = round * bytes_each.0 * senders as u64;
        while port.delivered() < due && port.world.now() < start + SEC * 5 {
            port.step();
        }
        active += port.world.now() - start;
        if !pause.is_zero() {
            port.run(pause);
        }
    }
    let rate = Bytes(port.delivered()).per(active).bits_per_sec() as f64;
    Outcome {
        goodput: rate / port.capacity,
        lost: port.retransmits() as f64,
        timeouts: port.timeouts() as f64,
        queue: port.take_mean_queue() / 1e3,
        jain: 1.0,
    }
}

/// Unlimited flows, measured from the beginning.
fn long(setup: Setup, time: Duration) -> Outcome {
    let senders = setup.lines.len();
    let mut port = setup.build();
    let interval = Interval::begin(&port);
    port.add_unlimited_demand(0..senders);
    port.run(time);
    outcome(&mut port, &interval, senders)
}

/// Requests of each sender, one after the other, with random pauses.
fn requests(setup: Setup, bytes: Bytes, max_pause: Duration, time: Duration) -> Outcome {
    let senders = setup.lines.len();
    let mut rng = fastrand::Rng::with_seed(5 + setup.seed);
    let mut port = setup.build();
    let mut pause = move || max_pause.mul_f64(rng.f64());
    let (mut wanted, mut next) = (vec![0; senders], Vec::new());
    next.resize_with(senders, || Some(pause()));
    let interval = Interval::begin(&port);
    while port.world.now() < time {
        for sender in 0..senders {
            let now = port.world.now();
            match next[sender] {
                Some(at) if now >= at => {
                    wanted[sender] += bytes.0;
                    next[sender] = None;
                    port.add_demand_of(sender, bytes);
                    port.apply_actions();
                }
                None if port.world.stats(port.flows[sender]).delivered.0 >= wanted[sender] => {
                    next[sender] = Some(now + pause());
                }
                _ => {}
            }
        }
        port.step();
    }
    outcome(&mut port, &interval, senders)
}

/// Bytes of an untuned flow.
const UNTUNED_BYTES: Bytes = Bytes(100_000_000);

/// Long flows with an untuned flow that begins later.
fn disturbed(setup: Setup) -> (Port, FlowId) {
    let senders = setup.lines.len();
    let mut port = setup.build();
    port.add_unlimited_demand(0..senders);
    port.run(SEC / 2);
    let other = port.add_untuned_flow(UNTUNED_BYTES);
    port.take_mean_queue();
    (port, other)
}

/// Long flows beside an untuned flow.
fn beside(setup: Setup) -> Outcome {
    let senders = setup.lines.len();
    let (mut port, _) = disturbed(setup);
    let interval = Interval::begin(&port);
    port.run(SEC * 3 / 2);
    outcome(&mut port, &interval, senders)
}

/// Long flows after an untuned flow.
fn after(setup: Setup) -> Outcome {
    let senders = setup.lines.len();
    let (mut port, other) = disturbed(setup);
    let limit = port.world.now() + SEC * 3;
    while port.world.stats(other).delivered < UNTUNED_BYTES && port.world.now() < limit {
        port.step();
    }
    let interval = Interval::begin(&port);
    port.take_mean_queue();
    port.run(SEC);
    outcome(&mut port, &interval, senders)
}

/// Flows that sent before they shared the port, and others that join by grants.
fn joining(mut setup: Setup) -> Outcome {
    setup.lines[..4].iter_mut().for_each(|line| line.is_unscheduled = true);
    let mut port = setup.build();
    port.add_unlimited_demand(0..4);
    port.run(SEC / 2);
    (0..4).for_each(|sender| port.join(sender));
    port.run(SEC / 10);
    let interval = Interval::begin(&port);
    port.add_unlimited_demand(4..10);
    port.run(SEC * 3 / 2);
    outcome(&mut port, &interval, 10)
}

/// Long flows of which some have no demand for a while.
fn leaving(setup: Setup, pause: Duration) -> Outcome {
    let senders = setup.lines.len();
    let mut port = setup.build();
    port.add_unlimited_demand(0..senders);
    let interval = Interval::begin(&port);
    for _ in 0..2 {
        port.run(SEC / 4);
        (0..senders / 2).for_each(|sender| port.control.clear_demand(sender as u64));
        port.run(pause);
        port.add_unlimited_demand(0..senders / 2);
        port.run(SEC / 4);
    }
    outcome(&mut port, &interval, senders)
}

/// Senders whose links send nothing for a while, one after the other.
fn silences(silence: Duration) -> Setup {
    let mut setup = Setup::new(&switch(1000.0, 256), 6);
    for (number, line) in (1..).zip(&mut setup.lines) {
        let period = SEC / 3;
        line.uplink.silences = (0..5).map(|n| (period * n + MS * 50 * number, silence)).collect();
    }
    setup
}

/// Long flows of which `shared` use a common slower link.
fn behind(senders: usize, shared: usize, link: LinkConfig) -> Setup {
    let mut setup = Setup::new(&switch(1000.0, 256), senders);
    setup.lines[..shared].iter_mut().for_each(|line| line.shared = Some(0));
    setup.shared = vec![link];
    setup
}

/// Returns a port whose hosts are slow and irregular.
fn slow_hosts(rate: f64, jitter: Duration) -> PathConfig {
    let mut path = switch(rate, 256);
    path.forward.impairments.jitter = Some(Jitter { max: jitter, period: jitter, reorders: false });
    path
}

/// A condition as a function of a seed.
type Condition = Box<dyn Fn(u64) -> Outcome>;

/// Conditions with their names.
#[derive(Default)]
struct Matrix(Vec<(String, Condition)>);

impl Matrix {
    fn add(&mut self, name: &str, run: impl Fn(u64) -> Outcome + 'static) {
        self.0.push((name.to_owned(), Box::new(run)));
    }

    fn add_rounds(&mut self, name: &str, setup: Setup, kib: u64, count: u32) {
        self.add(name, move |seed| {
            rounds(setup.seeded(seed), Bytes::kib(kib), count, Duration::ZERO)
        });
    }

    fn add_long(&mut self, name: &str, setup: Setup, time: Duration) {
        self.add(name, move |seed| long(setup.seeded(seed), time));
    }
}

fn add_rounds(matrix: &mut Matrix) {
    for (rate, kb) in [(1000.0, 64), (1000.0, 1000), (10_000.0, 256)] {
        for (senders, kib, count) in [(2, 256, 8), (8, 128, 8), (32, 64, 8), (128, 64, 3)] {
            let name = format!("rounds {rate} {kb} {senders}");
            matrix.add_rounds(&name, Setup::new(&switch(rate, kb), senders), kib, count);
        }
    }
    let path = switch(1000.0, 256);
    for ms in [20, 300, 1500] {
        let setup = Setup::new(&path, 32);
        let name = format!("rounds pause {ms} ms");
        matrix.add(&name, move |seed| rounds(setup.seeded(seed), Bytes::kib(64), 6, MS * ms));
    }
    let one = Setup { strategy: Strategy::Ictcp(1), ..Setup::new(&switch(1000.0, 64), 47) };
    matrix.add_rounds("rounds one segment", one, 64, 6);
    matrix.add_rounds("rounds tiny port", Setup::new(&switch(1000.0, 24), 32), 64, 6);
    let granted = Setup { strategy: Strategy::Granted, ..Setup::new(&switch(1000.0, 64), 47) };
    matrix.add_rounds("rounds grants only", granted, 64, 6);
    let unknown = Setup { knows_rtt: false, ..Setup::new(&path, 32) };
    matrix.add_rounds("rounds RTT unknown", unknown, 64, 6);
    let mut slow = Setup::new(&path, 8);
    slow.lines[0].uplink.rate = Some(mbit(100.0));
    matrix.add_rounds("rounds slow sender", slow, 64, 6);
    let slow = Setup { max_wake_up_us: 600, ..Setup::new(&path, 8) };
    matrix.add_rounds("rounds slow hosts", slow, 256, 12);
    let far = Setup::with_delays(&path, &[MS * 10; 16]);
    matrix.add_rounds("rounds 10 ms", far, 1024, 6);
    let unknown = Setup { knows_capacity: false, ..Setup::new(&path, 16) };
    matrix.add_rounds("rounds rate unknown", unknown, 256, 12);
}

fn add_long_flows(matrix: &mut Matrix) {
    for (rate, kb) in [(1000.0, 64), (1000.0, 1000), (10_000.0, 256)] {
        for senders in [2, 8, 32] {
            let time = if rate > 5000.0 { SEC / 5 } else { SEC };
            let setup = Setup::new(&switch(rate, kb), senders);
            matrix.add_long(&format!("long {rate} {kb} {senders}"), setup, time);
        }
    }
    let path = switch(1000.0, 256);
    let delays = [0, 0, 1, 5, 5, 20, 20, 50, 100].map(|ms| MS * ms);
    matrix.add_long("long 0 to 100 ms", Setup::with_delays(&path, &delays), SEC * 2);
    matrix.add_long("long 3 ms", Setup::with_delays(&path, &[MS * 3; 16]), SEC);
    let far = Setup::with_delays(&path, &[MS * 20; 4]);
    matrix.add_long("long 20 ms", far.clone(), SEC * 2);
    matrix.add_long("long grants only", Setup { strategy: Strategy::Granted, ..far }, SEC);
    matrix.add_long("long tiny port", Setup::new(&switch(1000.0, 24), 32), SEC * 3);
    let mut slow = Setup::new(&path, 8);
    slow.lines[0].uplink.rate = Some(mbit(20.0));
    slow.lines[1].uplink.rate = Some(mbit(200.0));
    matrix.add_long("long slow senders", slow, SEC);
    let slow = Setup::new(&slow_hosts(1000.0, MS * 2), 4);
    matrix.add_long("long slow hosts", slow, SEC * 2);
    let slow = Setup::new(&slow_hosts(10_000.0, MS / 5), 4);
    matrix.add_long("long slow hosts 10 G", slow, SEC / 3);
    for (rate, ms) in [(1000.0, 0), (1000.0, 20), (10_000.0, 0)] {
        let mut setup = Setup::with_delays(&switch(rate, 256), &[MS * ms; 8]);
        setup.knows_capacity = false;
        let time = if rate > 5000.0 { SEC / 3 } else { SEC * 2 + MS * 100 * ms };
        matrix.add_long(&format!("long unknown {rate} {ms}"), setup, time);
    }
}

fn add_disturbed_flows(matrix: &mut Matrix) {
    for (senders, kb) in [(2, 256), (8, 64), (8, 256), (32, 256), (8, 1000)] {
        let setup = Setup::new(&switch(1000.0, kb), senders);
        matrix.add(&format!("beside {kb} {senders}"), move |seed| beside(setup.seeded(seed)));
        let setup = Setup::new(&switch(1000.0, kb), senders);
        matrix.add(&format!("after {kb} {senders}"), move |seed| after(setup.seeded(seed)));
    }
    let mut add_behind = |name: &str, (senders, shared), (rate, kb): (f64, u64)| {
        let link = port(rate, kb * 1000, Duration::ZERO);
        matrix.add_long(name, behind(senders, shared, link), SEC * 2);
    };
    add_behind("all behind 400M", (6, 6), (400.0, 256));
    add_behind("all behind 900M", (6, 6), (900.0, 64));
    add_behind("all behind shallow", (6, 6), (400.0, 20));
    add_behind("two behind 100M", (8, 2), (100.0, 256));
    for (name, kb) in [("two far behind 100M", 100), ("two far behind deep", 4000)] {
        let mut far = behind(8, 2, port(100.0, kb * 1000, Duration::ZERO));
        far.lines[..2].iter_mut().for_each(|line| line.uplink.delay = MS * 20);
        matrix.add_long(name, far, SEC * 2);
    }
    let path = switch(1000.0, 256);
    for ms in [0, 10] {
        let setup = Setup::with_delays(&path, &[MS * ms; 10]);
        matrix.add(&format!("joining {ms} ms"), move |seed| joining(setup.seeded(seed)));
    }
    for ms in [50, 400, 1200] {
        let setup = Setup::new(&path, 8);
        let name = format!("leaving {ms} ms");
        matrix.add(&name, move |seed| leaving(setup.seeded(seed), MS * ms));
    }
    for ms in [10, 30, 100] {
        matrix.add_long(&format!("silences {ms} ms"), silences(MS * ms), SEC * 2);
    }
    let mut add_requests = |name: &str, setup: Setup, mb: u64, pause, time| {
        matrix.add(name, move |seed| {
            requests(setup.seeded(seed), Bytes(mb * 1_000_000), pause, time)
        });
    };
    add_requests("requests 1 MB", Setup::new(&path, 16), 1, MS * 60, SEC);
    let far = Setup::with_delays(&path, &[MS * 5; 12]);
    add_requests("requests 5 ms", far, 1, MS * 100, SEC);
    add_requests("requests 20 MB", Setup::new(&path, 24), 20, SEC * 3, SEC * 4);
}

#[test]
fn gather_matches_snapshot() {
    let mut matrix = Matrix::default();
    add_rounds(&mut matrix);
    add_long_flows(&mut matrix);
    add_disturbed_flows(&mut matrix);
    let seeds = if env_is_set("SEEDS") { 2 } else { 1 };
    let mut table = String::from(HEAD);
    for (name, run) in &matrix.0 {
        let outcomes: Vec<Outcome> = (0..seeds).map(run).collect();
        table += &Outcome::mean(&outcomes).row(name);
    }
    assert_snapshot(&table, include_str!("../snapshots/gather.txt"), "gather.txt");
}
