//! `--tune auto` over random paths, compared with untuned transfers: gain and cost in each class,
//! and the paths with the worst results, as snapshots for review.
//!
//! The thousands of paths of `random-paths.txt` take minutes, and run on request:
//! `BANKFULL_SIM_MATRIX=1 BANKFULL_SIM_BLESS=1 cargo test -p bankfull-sim paths_at_random`. Their
//! first ones are `random-paths-sample.txt`, which is always compared: if it changes, both must be
//! updated.

use crate::conditions::{Case, TransferResult};
use crate::snapshot::{assert_snapshot, env_is_set};
use crate::{MS, mbit};
use bankfull_sim::CrossTraffic;
use std::fmt::Write;
use std::thread;

/// Paths of each kind, and how many of them are always run.
const PATHS_PER_KIND: usize = 500;
const SAMPLED_PATHS_PER_KIND: usize = 12;

/// Bytes of a transfer at the link rate, in addition to its start.
const TRANSFER_BYTES: f64 = 250e6;

/// Cross traffic on the path.
const KINDS: [&str; 4] = ["alone", "packets", "clamped", "CUBIC"];

/// Class boundaries: rates in Mbit/s, and buffers as fractions of the bandwidth-delay product.
const RATE_LIMITS: [f64; 3] = [100.0, 1_000.0, 10_000.0];
const BUFFER_LIMITS: [f64; 2] = [0.1, 0.5];

/// Path, with the results of both transfers.
struct Row {
    kind: usize,
    rate: f64,
    rtt: u32,
    buffer: f64,
    streams: u32,
    seconds: f64,
    tuned: TransferResult,
    untuned: TransferResult,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.tuned.share / self.untuned.share.max(1e-9)
    }

    /// Returns the indices of the class: kind, rate, buffer.
    fn class(&self) -> (usize, usize, usize) {
        let rate = RATE_LIMITS.iter().filter(|&&limit| self.rate >= limit).count();
        let buffer = BUFFER_LIMITS.iter().filter(|&&limit| self.buffer >= limit).count();
        (self.kind, rate, buffer)
    }

    /// Returns segments retransmitted after two seconds, per million.
    fn late_retransmits_ppm(&self) -> f64 {
        let sent = self.tuned.share * self.rate * 1e6 / 8.0 * self.seconds / 1500.0;
        self.tuned.late_retransmits as f64 / sent.max(1.0) * 1e6
    }
}

/// Returns the path of a number: rate, RTT and buffer are log-uniform random values.
fn run_path(kind: usize, number: usize) -> Row {
    let mut random = (kind * PATHS_PER_KIND + number) as u64;
    let mut next = || {
        // SplitMix64 (Steele, Lea, Flood 2014).
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
    };
    let mut between = |least: f64, most: f64| least * (most / least).powf(next());
    let rate = between(10.0, 100_000.0);
    let rtt = between(1.0, 300.0).round() as u32;
    let buffer = between(0.02, 2.0);
    let cross_fraction = between(0.2, 0.6);
    let streams = [1, 4, 16][(between(1.0, 8.0).log2() as usize).min(2)];
    let mut case = Case::automatic(rate, rtt, buffer);
    case.path.forward.buffer.0 = case.path.forward.buffer.0.max(15_000);
    case.config.streams = streams;
    case.seed = number as u64 + 1;
    let seconds = (TRANSFER_BYTES * 8e-6 / rate).clamp(2.0, 20.0) + f64::from(rtt) * 0.04;
    case.time = MS * (seconds * 1e3) as u32;
    match KINDS[kind] {
        "packets" => {
            case.path.forward.cross = CrossTraffic::Poisson { rate: mbit(rate * cross_fraction) }
        }
        "clamped" => {
            let window = rate * 1e6 / 8.0 * f64::from(rtt) / 1e3 * cross_fraction;
            case.competing_flows = Some((1, Some(window.max(6_000.0) as u64)));
        }
        "CUBIC" => case.competing_flows = Some((2, None)),
        _ => {}
    }
    let (tuned, untuned) = case.compare();
    Row { kind, rate, rtt, buffer, streams, seconds, tuned, untuned }
}

/// Returns the quantile `share` of the values.
fn quantile(mut of: Vec<f64>, share: f64) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(((of.len().max(1) - 1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

fn class_table(rows: &[Row]) -> String {
    let mut table = "traffic    Mbit/s  buffer  paths | tuned: 5 %  50 %   bare  50 % | ratio: \
                     min   5 %  50 % | late, ppm: 50 %  95 % | queue, ms: 50 %  95 %\n"
        .to_owned();
    let rate_names = ["< 100", "< 1 G", "< 10 G", "≥ 10 G"];
    let buffer_names = ["< 0.1", "< 0.5", "≥ 0.5"];
    for (kind, kind_name) in KINDS.iter().enumerate() {
        for (rate, rate_name) in rate_names.iter().enumerate() {
            for (buffer, buffer_name) in buffer_names.iter().enumerate() {
                let of = |what: &dyn Fn(&Row) -> f64, share| {
                    let class_rows = rows.iter().filter(|row| row.class() == (kind, rate, buffer));
                    quantile(class_rows.map(what).collect(), share)
                };
                let count = rows.iter().filter(|r| r.class() == (kind, rate, buffer)).count();
                let (tuned, untuned) = (|r: &Row| r.tuned.share, |r: &Row| r.untuned.share);
                let queue = |row: &Row| row.tuned.queue_ms;
                let _ = writeln!(
                    table,
                    "{kind_name:10} {rate_name:>6} {buffer_name:>7} {count:>6} | {:>10.3} {:.3}        \
                     {:.3} | {:>12.3} {:.3} {:.3} | {:>15.0} {:>5.0} | {:>15.1} {:>5.1}",
                    of(&tuned, 0.05),
                    of(&tuned, 0.5),
                    of(&untuned, 0.5),
                    of(&Row::ratio, 0.0),
                    of(&Row::ratio, 0.05),
                    of(&Row::ratio, 0.5),
                    of(&Row::late_retransmits_ppm, 0.5),
                    of(&Row::late_retransmits_ppm, 0.95),
                    of(&queue, 0.5),
                    of(&queue, 0.95),
                );
            }
        }
    }
    table
}

fn worst_paths(rows: &mut [Row]) -> String {
    rows.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    "\nWorst paths:\n".to_owned() + &path_lines(&rows[..rows.len().min(30)])
}

fn path_lines(rows: &[Row]) -> String {
    let mut table = String::new();
    for row in rows {
        let Row { kind, rate, rtt, buffer, streams, tuned, untuned, .. } = row;
        let trace_text = if env_is_set("TRACE") { &tuned.trace } else { "" };
        let _ = writeln!(
            table,
            "{:10} {rate:>6.0} Mbit/s {rtt:>4} ms {buffer:.3} BDP n={streams:<2}  {:.3}, bare {:.3}",
            KINDS[*kind], tuned.share, untuned.share
        );
        table += trace_text;
    }
    table
}

#[test]
fn paths_at_random_match_snapshot() {
    let (count, file) = match env_is_set("MATRIX") {
        true => (PATHS_PER_KIND, "random-paths.txt"),
        false => (SAMPLED_PATHS_PER_KIND, "random-paths-sample.txt"),
    };
    let all: Vec<(usize, usize)> =
        (0..KINDS.len()).flat_map(|kind| (0..count).map(move |number| (kind, number))).collect();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut rows: Vec<Row> = thread::scope(|scope| {
        let part = |at: usize| all.iter().skip(at).step_by(workers);
        let work =
            |at: usize| scope.spawn(move || part(at).map(|&(k, n)| run_path(k, n)).collect());
        let running: Vec<_> = (0..workers).map(work).collect();
        running.into_iter().flat_map(|one| one.join().unwrap_or_else(|_| Vec::new())).collect()
    });
    assert_eq!(rows.len(), all.len());
    // Sorted, because the threads complete in any order.
    rows.sort_by(|a, b| (a.kind, a.rate).partial_cmp(&(b.kind, b.rate)).unwrap());
    let committed = match count {
        PATHS_PER_KIND => include_str!("../snapshots/random-paths.txt"),
        _ => include_str!("../snapshots/random-paths-sample.txt"),
    };
    let alone: Vec<f64> = rows.iter().filter(|row| row.kind == 0).map(Row::ratio).collect();
    let table = match count {
        PATHS_PER_KIND => class_table(&rows) + &worst_paths(&mut rows),
        _ => path_lines(&rows),
    };
    assert_snapshot(&table, committed, file);
    assert!(quantile(alone, 0.5) >= 1.0, "the median path gains");
}
