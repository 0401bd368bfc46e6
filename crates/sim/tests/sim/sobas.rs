//! Claims of the SOBAS paper, in virtual time: one connection over its paths, and over a grid.
//!
//! The tables are snapshots for review.

use crate::conditions::{Case, HEAD, QuietPath, quiet_paths, row};
use crate::snapshot::assert_snapshot;
use crate::{SEC, mbit};
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::{CrossTraffic, Loss, Trains};

/// A comparison of the paper's section V: its path, and the rates with SOBAS and with the largest
/// buffers, in Mbit/s.
struct Comparison {
    name: &'static str,
    rate: f64,
    rtt: u32,
    cross: Cross,
    with: f64,
    without: f64,
}

/// Cross traffic of a comparison.
enum Cross {
    None,
    /// Rate of packets at random times, in Mbit/s.
    Packets(f64),
    /// Rate of a flow that its window limits, in Mbit/s.
    Flow(f64),
}

/// The comparisons. Paths with live traffic have as many packets at random times.
const COMPARISONS: [Comparison; 8] = [
    Comparison {
        name: "gigabit",
        rate: 1000.0,
        rtt: 20,
        cross: Cross::None,
        with: 918.0,
        without: 649.0,
    },
    Comparison {
        name: "gigabit, packets",
        rate: 1000.0,
        rtt: 20,
        cross: Cross::Packets(400.0),
        with: 521.0,
        without: 409.0,
    },
    Comparison {
        name: "gigabit, a flow",
        rate: 1000.0,
        rtt: 20,
        cross: Cross::Flow(500.0),
        with: 574.0,
        without: 452.0,
    },
    Comparison {
        name: "campus",
        rate: 620.0,
        rtt: 10,
        cross: Cross::None,
        with: 542.0,
        without: 445.0,
    },
    Comparison {
        name: "Berkeley",
        rate: 450.0,
        rtt: 60,
        cross: Cross::None,
        with: 343.0,
        without: 234.0,
    },
    Comparison {
        name: "New York",
        rate: 97.0,
        rtt: 40,
        cross: Cross::Packets(7.0),
        with: 87.0,
        without: 48.0,
    },
    Comparison {
        name: "New York, later",
        rate: 97.0,
        rtt: 40,
        cross: Cross::Packets(17.0),
        with: 70.0,
        without: 57.0,
    },
    Comparison {
        name: "Lulea",
        rate: 97.0,
        rtt: 120,
        cross: Cross::Packets(57.0),
        with: 33.0,
        without: 20.0,
    },
];

/// Paths of the paper: filled without a loss, and faster than untuned if buffers are shallow.
#[test]
fn paths_of_the_paper_gain() {
    let mut table = HEAD.to_owned();
    for one in COMPARISONS {
        for buffer in [0.1, 0.25, 0.5, 1.0] {
            let mut case = Case::sobas(one.rate, one.rtt, buffer);
            case.config.algorithm = Algorithm::NewReno;
            case.time = SEC * 20;
            match one.cross {
                Cross::None => {}
                Cross::Packets(rate) => {
                    case.path.forward.cross = CrossTraffic::Poisson { rate: mbit(rate) }
                }
                Cross::Flow(rate) => {
                    case.competing_flows =
                        Some((1, Some((rate * 1e6 / 8.0 * f64::from(one.rtt) / 1e3) as u64)))
                }
            }
            let (tuned, untuned) = case.compare();
            let name = format!("{} {buffer} BDP ({:.2})", one.name, one.with / one.without);
            table += &row(&name, &tuned, &untuned);
            let gain = tuned.share / untuned.share;
            match one.cross {
                Cross::None if buffer >= 0.25 => {
                    let is_shallow = buffer < 0.5;
                    assert!(tuned.share > 0.95 && (gain > 1.1 || !is_shallow), "{name}: {tuned:?}");
                    assert_eq!(tuned.early_retransmits + tuned.late_retransmits, 0, "{name}");
                    assert!(tuned.queue_ms < 0.05 * f64::from(one.rtt), "{name}: {tuned:?}");
                }
                Cross::Packets(_) | Cross::Flow(_) if one.rate == 1000.0 && buffer < 0.25 => {
                    assert!(gain > 0.9 * one.with / one.without, "{name}: {tuned:?} {untuned:?}");
                }
                _ => {}
            }
        }
    }
    assert_snapshot(&table, include_str!("../snapshots/sobas-paper.txt"), "sobas-paper.txt");
}

#[test]
fn quiet_paths_are_filled_without_loss_or_queue() {
    let (paths, table) = quiet_paths(Case::sobas);
    for QuietPath { name, rtt, buffer_share, tuned, untuned, .. } in paths {
        assert_eq!(tuned.late_retransmits, 0, "{name}: {}", tuned.trace);
        assert!(tuned.queue_ms <= (f64::from(rtt) * 0.1).max(3.0), "{name}: {tuned:?}");
        // A loss in slow start leaves a rate that is flat below that of the path.
        let is_lossless = tuned.early_retransmits == 0;
        assert!(tuned.share >= if is_lossless { 0.91 } else { 0.7 }, "{name}: {tuned:?}");
        assert!(!is_lossless || buffer_share > 0.2 || tuned.share > untuned.share, "{name}");
    }
    assert_snapshot(&table, include_str!("../snapshots/sobas-quiet.txt"), "sobas-quiet.txt");
}

/// Weaknesses of the algorithm as printed: an estimate that is too low stays, and a congested path
/// is recognised by lost probes alone.
#[test]
fn weaknesses_match_snapshot() {
    let mut table = HEAD.to_owned();
    for share in [0.5, 0.9, 1.1, 2.0] {
        for buffer in [0.12, 0.5, 1.0] {
            let mut case = Case::sobas(1000.0, 20, buffer);
            case.config.trains = Trains::Reported(share);
            let (tuned, untuned) = case.compare();
            table += &row(&format!("trains measure {share}, {buffer} BDP"), &tuned, &untuned);
            assert!(tuned.share < share && tuned.share > 0.7 * share.min(1.0), "{tuned:?}");
        }
    }
    for probability in [1e-4, 1e-3, 1e-2] {
        let mut case = Case::sobas(1000.0, 20, 0.5);
        case.path.forward.loss = Loss::Random { probability };
        let (tuned, untuned) = case.compare();
        table += &row(&format!("loss {} %", probability * 100.0), &tuned, &untuned);
        // A window may be sized before the first probe is lost.
        assert!(tuned.share > 0.7 * untuned.share, "{tuned:?} {untuned:?}");
    }
    for buffer in [0.12, 0.5, 1.0] {
        let mut case = Case::sobas(9.7, 78, buffer);
        case.competing_flows = Some((4, None));
        case.time = SEC * 60;
        let (tuned, untuned) = case.compare();
        table += &row(&format!("9.7 Mbit/s, 78 ms, 4 flows, {buffer} BDP"), &tuned, &untuned);
        assert!(tuned.share > 0.75 * untuned.share, "{tuned:?} {untuned:?}");
    }
    assert_snapshot(
        &table,
        include_str!("../snapshots/sobas-weaknesses.txt"),
        "sobas-weaknesses.txt",
    );
}
