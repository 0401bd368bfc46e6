//! Generated traces in the repository, in Mahimahi's format: `experiments/traces`.
//!
//! To write them anew: `BANKFULL_SIM_BLESS=1 cargo test -p bankfull-sim trace_files`.

use crate::snapshot::assert_snapshot;
use crate::{SEC, mbit};
use bankfull_control::Bytes;
use bankfull_sim::LinkConfig;
use bankfull_sim::link::rate::RateVariation;
use bankfull_sim::link::trace::{TRACE_NAMES, Trace};
use std::sync::Arc;
use std::time::Duration;

/// Content of the files, in the order of [`TRACE_NAMES`].
pub(crate) const FILES: [&str; 4] = [
    include_str!("../../../../experiments/traces/cellular.trace"),
    include_str!("../../../../experiments/traces/cellular-weak.trace"),
    include_str!("../../../../experiments/traces/wifi.trace"),
    include_str!("../../../../experiments/traces/satellite.trace"),
];

/// Peak rate of the files in Mbit/s. (chosen: an opportunity of 1500 bytes per millisecond)
pub(crate) const PEAK_MBIT: f64 = 12.0;

/// Length of the files, in ms. (chosen: files stay below 100 kB)
const LENGTH_MS: u32 = 20_000;

/// Seed of the files: that of the words, such as `trace:wifi` (link_words.rs, TRACE_SEED).
const SEED: u64 = 1;

fn generated(name: &str) -> Option<Trace> {
    Trace::generate(name, mbit(PEAK_MBIT), SEED)
}

/// Returns the bytes that a trace delivers until a time.
fn delivered(trace: Trace, until: Duration) -> Bytes {
    let variation = RateVariation::Trace(Arc::new(trace));
    let config = LinkConfig { rate: Some(mbit(PEAK_MBIT)), variation, ..LinkConfig::default() };
    config.capacity(SEED, Duration::ZERO, until)
}

#[test]
fn trace_files_are_those_generated() {
    for (name, text) in TRACE_NAMES.into_iter().zip(FILES) {
        let lines = generated(name).unwrap().to_mahimahi();
        let is_early = |line: &&str| line.parse::<u32>().is_ok_and(|at| at <= LENGTH_MS);
        let lines = lines.lines().take_while(is_early);
        let start: String = lines.map(|line| format!("{line}\n")).collect();
        assert_snapshot(&start, text, &format!("../../../../experiments/traces/{name}.trace"));
    }
}

#[test]
fn trace_files_deliver_as_generated() {
    for (name, text) in TRACE_NAMES.into_iter().zip(FILES) {
        for second in 1..LENGTH_MS / 1000 {
            let of = |trace| delivered(trace, SEC * second).0;
            let (file, found) =
                (of(Trace::parse_mahimahi(text).unwrap()), of(generated(name).unwrap()));
            // Mahimahi's format has whole packets only.
            assert!(found - file < 1500, "{name}, {second} s: {file} {found}");
        }
    }
}
