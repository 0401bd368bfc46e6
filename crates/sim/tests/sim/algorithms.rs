//! The congestion control algorithms alone, and beside each other.
//!
//! To update the snapshot after an intended change:
//! `BANKFULL_SIM_BLESS=1 cargo test -p bankfull-sim algorithms`.

use crate::snapshot::assert_snapshot;
use crate::{DATA_SHARE, DOCUMENT, MS, SEC, mbit, preset};
use bankfull_control::Bytes;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::world::{FlowConfig, FlowStats, World};
use bankfull_sim::{Loss, PathConfig};
use std::fmt::Write as _;
use std::time::Duration;

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr, Algorithm::Ledbat];

/// Results of flows on one path.
struct Seen {
    /// Goodput of each flow, as a fraction of the capacity for data.
    shares: Vec<f64>,
    stats: Vec<FlowStats>,
    /// Mean queue of the bottleneck.
    queue: Duration,
}

impl Seen {
    fn total(&self) -> f64 {
        self.shares.iter().sum()
    }
}

/// Runs flows that start 0.5 s after each other; the results exclude the time until `from`.
fn run(path: &PathConfig, algorithms: &[Algorithm], from: Duration, until: Duration) -> Seen {
    let mut world = World::new(1);
    let route = world.add_path(path);
    let flows: Vec<_> = (0..)
        .zip(algorithms)
        .map(|(n, &algorithm)| {
            let mut config = FlowConfig::new(&route);
            config.algorithm = algorithm;
            config.start = MS * 500 * n;
            world.add_flow(config)
        })
        .collect();
    world.run_until(from);
    let delivered = |world: &World| flows.iter().map(|&f| world.stats(f).delivered.0).collect();
    let before: Vec<u64> = delivered(&world);
    let mut queues = Vec::new();
    world.run_with(until, MS * 7, |world| queues.push(world.backlog(route.forward[0]).0));
    let after: Vec<u64> = delivered(&world);
    let rate = path.forward.rate.map_or(f64::INFINITY, |rate| rate.bits_per_sec() as f64);
    let capacity = rate * DATA_SHARE / 8.0 * (until - from).as_secs_f64();
    let share = |(before, after): (&u64, &u64)| (after - before) as f64 / capacity;
    let queue = queues.iter().sum::<u64>() as f64 / queues.len() as f64;
    Seen {
        shares: before.iter().zip(&after).map(share).collect(),
        stats: flows.iter().map(|&flow| world.stats(flow)).collect(),
        queue: Duration::from_secs_f64(queue * 8.0 / rate),
    }
}

/// Returns a path of 40 ms with a buffer of ten times the bandwidth-delay product.
fn deep(rate_mbit: f64) -> PathConfig {
    PathConfig::new(mbit(rate_mbit), MS * 40, Bytes((rate_mbit * 50_000.0) as u64))
}

/// Returns a path of 100 Mbit/s and 40 ms that loses 1 % at random.
fn losing_one_percent() -> PathConfig {
    let mut path = PathConfig::new(mbit(100.0), MS * 40, Bytes(500_000));
    path.forward.loss = Loss::Random { probability: 0.01 };
    path
}

fn table() -> Result<String, std::fmt::Error> {
    let mut text = String::from(
        "Goodput in percent of the capacity for data, retransmitted segments in percent, and mean\n\
         queue in ms, of one flow over 30 s.\n\n",
    );
    write!(text, "{:26}", "path")?;
    for algorithm in ALGORITHMS {
        write!(text, "{:>20}", format!("{algorithm:?}"))?;
    }
    for (name, path) in [
        ("continental", preset("continental")),
        ("transatlantic", preset("transatlantic")),
        ("antipodes", preset("antipodes")),
        ("lossy (0.1 %)", preset("lossy")),
        ("100 Mbit/s, 40 ms, 1 %", losing_one_percent()),
        ("10 Mbit/s, 40 ms, deep", deep(10.0)),
    ] {
        write!(text, "\n{name:26}")?;
        for algorithm in ALGORITHMS {
            let seen = run(&path, &[algorithm], Duration::ZERO, SEC * 30);
            let sender = seen.stats[0].sender;
            let retransmitted = 100.0 * sender.retransmits as f64 / sender.segments as f64;
            let (share, queue) = (100.0 * seen.total(), seen.queue.as_secs_f64() * 1e3);
            write!(text, "{:>20}", format!("{share:.1} {retransmitted:.2} {queue:.1}"))?;
        }
    }
    text.push('\n');
    Ok(text)
}

#[test]
fn algorithms_on_six_paths_match_snapshot() {
    let found = table().unwrap();
    assert_snapshot(&found, include_str!("../snapshots/algorithms.txt"), "algorithms.txt");
    assert!(DOCUMENT.contains("snapshots/algorithms.txt"));
}

/// Returns the rows of the document: each case, and the result of the model.
fn rows() -> Vec<(String, String)> {
    use Algorithm::{Bbr, Cubic, Ledbat};
    let percent = |seen: &Seen| {
        let shares = seen.shares.iter().map(|share| format!("{:.0} %", 100.0 * share));
        shares.collect::<Vec<_>>().join(", ")
    };
    let losing = |percent: u32| {
        let mut path = losing_one_percent();
        path.forward.loss = Loss::Random { probability: f64::from(percent) / 100.0 };
        run(&path, &[Bbr], SEC, SEC * 20)
    };
    let losses = [1, 5, 10].map(|percent| format!("{:.0}", 100.0 * losing(percent).total()));
    let in_flight = [1, 4, 10].map(|count| {
        let seen = run(&deep(100.0), &vec![Bbr; count], SEC * 60, SEC * 100);
        format!("{:.1}", 1.0 + seen.queue.as_secs_f64() / 0.04)
    });
    let idle = [1, 4].map(|count| {
        let seen = run(&deep(100.0), &vec![Ledbat; count], SEC * 30, SEC * 90);
        format!("{} ms", seen.queue.as_millis())
    });
    let shallow = run(&preset("continental"), &[Bbr, Cubic], SEC * 20, SEC * 60);
    let beside = |algorithm| run(&deep(100.0), &[algorithm, Cubic], SEC * 20, SEC * 100);
    [
        ("BBR, random loss of 1, 5, 10 %: goodput", format!("{} %", losses.join(", "))),
        ("1, 4, 10 BBR flows: BDP in flight", in_flight.join(", ")),
        ("BBR and CUBIC on `continental`: goodput", percent(&shallow)),
        ("BBR and CUBIC: goodput", percent(&beside(Bbr))),
        ("1, 4 LEDBAT flows: queue", idle.join(", ")),
        ("LEDBAT and CUBIC: goodput", percent(&beside(Ledbat))),
    ]
    .map(|(case, found)| (case.to_owned(), found))
    .to_vec()
}

#[test]
fn document_lists_results_of_algorithms() {
    for (case, found) in rows() {
        let row = DOCUMENT.lines().find(|line| line.starts_with(&format!("| {case} |")));
        let is_listed = row.is_some_and(|row| row.ends_with(&format!("| {found} |")));
        assert!(is_listed, "{case}: {found}, not {row:?}");
    }
}

#[test]
fn bbr_fills_paths_with_random_loss() {
    // Cardwell et al. 2016, figure 8: close to the link rate times the delivered fraction, up to a
    // loss of 15 %.
    for percent in [1, 5, 10] {
        let mut path = losing_one_percent();
        path.forward.loss = Loss::Random { probability: f64::from(percent) / 100.0 };
        let seen = run(&path, &[Algorithm::Bbr], SEC, SEC * 20);
        let most = 1.0 - f64::from(percent) / 100.0;
        assert!(seen.total() > 0.88 * most, "{percent} %: {:?}", seen.shares);
        assert_eq!(seen.stats[0].sender.timeouts, 0, "{percent} %");
    }
}

#[test]
fn bbr_flows_queue_about_one_bdp_in_deep_buffer() {
    // The window is two bandwidth-delay products per flow; alone, pacing keeps the queue empty.
    for (count, queue) in [(1, 0.0..0.3), (4, 0.9..1.4), (10, 0.9..1.6)] {
        let seen = run(&deep(100.0), &vec![Algorithm::Bbr; count], SEC * 60, SEC * 100);
        let queued = seen.queue.as_secs_f64() / 0.04;
        assert!(queue.contains(&queued), "{count} flows: {queued}");
        assert!(seen.total() > 0.95, "{count} flows: {:?}", seen.shares);
        let fair = 1.0 / count as f64;
        let is_fair = |&share: &f64| share > 0.6 * fair && share < 1.6 * fair;
        assert!(seen.shares.iter().all(is_fair), "{:?}", seen.shares);
    }
}

#[test]
fn bbr_drains_queue_every_ten_seconds() {
    let mut world = World::new(1);
    let route = world.add_path(&deep(100.0));
    let flows = [0, 1].map(|n| {
        let mut config = FlowConfig::new(&route);
        config.algorithm = Algorithm::Bbr;
        config.start = MS * 500 * n;
        world.add_flow(config)
    });
    world.run_until(SEC * 40);
    let mut empty = 0;
    world.run_with(SEC * 71, MS * 50, |world| {
        empty += u32::from(world.backlog(route.forward[0]) == Bytes(0));
    });
    // At least 200 ms in each of three periods, less what the queue needs to drain.
    assert!((6..40).contains(&empty), "{empty}");
    assert!(flows.iter().all(|&flow| world.stats(flow).rtt_min < MS * 42));
}

#[test]
fn bbr_overrides_cubic_in_shallow_buffer_only() {
    // Hock, Bless, Zitterbart 2017: a shallow buffer starves CUBIC; a deep one favours it.
    let both = [Algorithm::Bbr, Algorithm::Cubic];
    let shallow = run(&preset("continental"), &both, SEC * 20, SEC * 60).shares;
    assert!(shallow[0] > 0.8 && shallow[1] < 0.1, "{shallow:?}");
    let deep = run(&deep(100.0), &both, SEC * 20, SEC * 100).shares;
    assert!(deep[0] > 0.1 && deep[1] > deep[0], "{deep:?}");
}

#[test]
fn ledbat_fills_idle_path_with_100_ms_of_queue() {
    for count in [1, 4] {
        let seen = run(&deep(100.0), &vec![Algorithm::Ledbat; count], SEC * 30, SEC * 90);
        assert!(seen.total() > 0.95, "{count}: {:?}", seen.shares);
        assert!((MS * 50..MS * 130).contains(&seen.queue), "{count}: {:?}", seen.queue);
        assert_eq!(seen.stats[0].sender.retransmits, 0, "{count}");
    }
}

#[test]
fn ledbat_yields_to_cubic() {
    for order in [[Algorithm::Ledbat, Algorithm::Cubic], [Algorithm::Cubic, Algorithm::Ledbat]] {
        let seen = run(&deep(100.0), &order, SEC * 20, SEC * 80);
        let ledbat = seen.shares[usize::from(order[1] == Algorithm::Ledbat)];
        assert!(ledbat < 0.05 && seen.total() > 0.95, "{order:?}: {:?}", seen.shares);
    }
}
