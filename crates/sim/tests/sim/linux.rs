//! Comparison of the model with Linux 6.18: the figures of `docs/sim.md`.
//!
//! One CUBIC flow over a TUN link that works as [`Link`], 1 Gbit/s, RTT 20 ms, 300 kB.
//!
//! [`Link`]: bankfull_sim::Link

use crate::{DOCUMENT, SEC, alone, mbit, preset};
use bankfull_control::Bytes;

/// Receive window in kB, pacing rate in Mbit/s, and the result of Linux: Mbit/s and whether there
/// were losses.
const MEASURED: [(u64, Option<f64>, u64, bool); 9] = [
    (2420, None, 290, true),
    (2550, None, 317, true),
    (2800, None, 289, true),
    (2420, Some(955.0), 920, false),
    (2550, Some(955.0), 950, false),
    (2800, Some(955.0), 954, false),
    (2420, Some(990.0), 924, false),
    (2550, Some(990.0), 956, false),
    (2800, Some(990.0), 813, true),
];

#[test]
fn window_and_pacing_match_linux() {
    for (window_kb, pacing, measured, has_lost) in MEASURED {
        let report = alone(&preset("continental"), SEC * 10, |flow| {
            flow.receive_window = Bytes(window_kb * 1000);
            flow.pacing = pacing.map(mbit);
        });
        let found = report.goodput.bits_per_sec() / 1_000_000;
        let paced = pacing.map_or("–".to_owned(), |pacing| pacing.to_string());
        let listed = format!("| {window_kb} | {paced} | {measured} | {found} |");
        assert!(DOCUMENT.lines().any(|line| line == listed), "docs/sim.md lacks: {listed}");
        let off = found as f64 / measured as f64 - 1.0;
        let retransmits = report.stats.sender.retransmits;
        let row = format!(
            "{window_kb} kB, {pacing:?}: {found} for {measured}, {retransmits} retransmissions"
        );
        assert!(off.abs() < if pacing.is_some() { 0.05 } else { 0.2 }, "{row}");
        assert_eq!(retransmits > 0, has_lost, "{row}");
    }
}
