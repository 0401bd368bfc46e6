//! ICTCP in virtual time: rounds and long flows of many senders into one port, tuned and not.
//!
//! The tables are snapshots for review.

use crate::gather_port::{Interval, Port, Setup, Strategy};
use crate::snapshot::assert_snapshot;
use crate::{MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_sim::PathConfig;
use std::time::Duration;

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
    let mut port = Setup { strategy, ..Setup::new(path, senders) }.build();
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

    let far = Setup::with_delays(&switch(1000.0, 256), &[MS * 20; 4]);
    let mut far = Setup { strategy: Strategy::Granted, ..far }.build();
    far.add_unlimited_demand(0..4);
    far.run(SEC);
    let (jain, row) = far.row("far", SEC, 0..4);
    assert!(jain > 0.98 && far.retransmits() == 0, "{row}");
    assert!(far.delivered() as f64 * 8.0 > 1.5 * far.capacity, "{row}");
}

impl Port {
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
        let mut port = Setup { strategy, ..Setup::new(&switch(1000.0, 256), 17) }.build();
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
        let mut port = Setup { strategy, ..Setup::new(&switch(1000.0, 256), senders) }.build();
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
        let setup = Setup::with_delays(&switch(1000.0, 256), &lines);
        let mut port = Setup { strategy, ..setup }.build();
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
        let setup = Setup::with_delays(&switch(rate, 256), &[MS * line; 8]);
        let mut port = Setup { knows_capacity: false, ..setup }.build();
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
