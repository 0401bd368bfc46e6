//! Promises of `--tune auto`, in virtual time: little queue, few losses of its own, a fair share.
//!
//! The tables are snapshots for review.

use crate::conditions::{Case, HEAD, QuietPath, TransferResult, quiet_paths, row};
use crate::snapshot::assert_snapshot;
use crate::{MS, SEC, mbit};
use bankfull_sim::{CrossTraffic, Loss, Trains};

/// Paths without cross traffic, where losses are avoidable.
#[test]
fn quiet_paths_are_filled_without_loss_or_queue() {
    let (paths, table) = quiet_paths(Case::automatic);
    for QuietPath { name, case, rate, rtt, buffer_share, tuned, untuned } in paths {
        // Its steps of growth overflow a queue of a few bursts now and then.
        let segments = rate * 1e6 / 8.0 / 1500.0 * case.time.as_secs_f64();
        let allowed = if buffer_share < 1.0 { 2e-4 * segments } else { 0.0 };
        let late = tuned.late_retransmits as f64;
        assert!(late <= allowed, "{name}: {late} of {segments}\n{}", tuned.trace);
        let allowed = (f64::from(rtt) * 0.1).max(3.0);
        assert!(tuned.queue_ms <= allowed, "{name}: {tuned:?}");
        // The first, unpaced windows of all streams overflow the smallest buffers.
        let least: f64 = if tuned.early_retransmits > 0 { 0.9 } else { 0.935 };
        let least = least.max(if buffer_share < 0.5 { untuned.share } else { 0.0 });
        assert!(tuned.share >= least, "{name}: {tuned:?}");
    }
    assert_snapshot(
        &table,
        include_str!("../snapshots/automatic-quiet.txt"),
        "automatic-quiet.txt",
    );
}

/// Runs 1 Gbit/s, 20 ms under a condition, with three buffers.
fn run_variants(
    name: &str,
    table: &mut String,
    change: impl Fn(&mut Case),
) -> Vec<(TransferResult, TransferResult)> {
    let mut all = Vec::new();
    for share in [0.12, 0.5, 1.0] {
        let mut case = Case::automatic(1000.0, 20, share);
        change(&mut case);
        let (tuned, untuned) = case.compare();
        *table += &row(&format!("{name} {share} BDP"), &tuned, &untuned);
        all.push((tuned, untuned));
    }
    all
}

#[test]
fn wrong_or_missing_capacity_estimate_is_corrected() {
    let mut table = HEAD.to_owned();
    for share in [0.5, 0.9, 0.97, 1.03, 1.1, 2.0] {
        let name = format!("trains measure {share},");
        let set = |case: &mut Case| case.config.trains = Trains::Reported(share);
        for (tuned, _) in run_variants(&name, &mut table, set) {
            assert!(tuned.share > 0.91, "{name}: {tuned:?}");
        }
    }
    let set = |case: &mut Case| case.config.trains = Trains::Unavailable;
    for (tuned, untuned) in run_variants("no train measurement,", &mut table, set) {
        assert!(tuned.share > 0.85 * untuned.share, "{tuned:?}");
    }
    let set = |case: &mut Case| case.config.is_udp_blocked = true;
    for (tuned, untuned) in run_variants("UDP is blocked,", &mut table, set) {
        assert!(tuned.share > 0.85 * untuned.share, "{tuned:?}");
    }
    assert_snapshot(
        &table,
        include_str!("../snapshots/automatic-trains.txt"),
        "automatic-trains.txt",
    );
}

#[test]
fn random_loss_costs_no_more_than_untuned() {
    let mut table = HEAD.to_owned();
    for probability in [1e-4, 1e-3, 1e-2] {
        let name = format!("loss {} %,", probability * 100.0);
        let set = |case: &mut Case| case.path.forward.loss = Loss::Random { probability };
        for (tuned, untuned) in run_variants(&name, &mut table, set) {
            assert!(tuned.share >= 0.9 * untuned.share, "{name}: {tuned:?} {untuned:?}");
        }
    }
    assert_snapshot(&table, include_str!("../snapshots/automatic-loss.txt"), "automatic-loss.txt");
}

#[test]
fn cross_traffic_keeps_its_share() {
    let mut table = HEAD.to_owned();
    // 400 of 1000 Mbit/s are unresponsive: the fair share is 0.6.
    let all = run_variants("400 Mbit/s Poisson,", &mut table, |case| {
        case.path.forward.cross = CrossTraffic::Poisson { rate: mbit(400.0) };
    });
    for (at, (tuned, untuned)) in all.iter().enumerate() {
        assert!(tuned.share > 0.52, "{tuned:?} {untuned:?}");
        assert!(tuned.share > 0.97 * untuned.share, "{tuned:?} {untuned:?}");
        // Steps towards the highest rate of the last ten seconds overflow a shallow buffer: half a
        // percent of the segments.
        let allowed = if at == 0 { 6_000 } else { 100 };
        assert!(tuned.late_retransmits < allowed, "{tuned:?} {untuned:?}");
    }
    // A flow limited to 500 Mbit/s by its window: the rest is available.
    let all = run_variants("a flow of 500 Mbit/s,", &mut table, |case| {
        case.competing_flows = Some((1, Some(1_250_000)));
    });
    for (at, (tuned, untuned)) in all.iter().enumerate() {
        // In a shallow buffer that flow loses segments and its share, though less than untuned.
        let most = if at == 0 { untuned.share } else { 0.6 };
        assert!((0.47..most).contains(&tuned.share), "{tuned:?} {untuned:?}");
    }
    run_variants("bursts of 800 Mbit/s,", &mut table, |case| {
        let (on, off) = (MS * 20, MS * 20);
        case.path.forward.cross = CrossTraffic::OnOff { rate: mbit(800.0), on, off };
    });
    for seed in 1..4 {
        run_variants(&format!("4 CUBIC flows ({seed}),"), &mut table, |case| {
            case.competing_flows = Some((4, None));
            case.seed = seed;
            case.time = SEC * 60;
        });
    }
    assert_snapshot(
        &table,
        include_str!("../snapshots/automatic-others.txt"),
        "automatic-others.txt",
    );
}

#[test]
fn capacity_change_is_followed() {
    let mut table = HEAD.to_owned();
    let all = run_variants("half taken from 10 s to 30 s,", &mut table, |case| {
        case.temporary_flow = Some((480.0, SEC * 10, SEC * 30));
        case.time = SEC * 50;
    });
    for (tuned, _) in all {
        let mean = |range: std::ops::Range<usize>| {
            let count = range.len() as f64;
            tuned.seconds[range].iter().sum::<f64>() / count
        };
        assert!(mean(20..30) > 0.9 * 480.0, "within 10 s of less: {tuned:?}");
        assert!(mean(40..49) > 0.9 * 965.0, "within 10 s of more: {tuned:?}");
    }
    assert_snapshot(
        &table,
        include_str!("../snapshots/automatic-change.txt"),
        "automatic-change.txt",
    );
}
