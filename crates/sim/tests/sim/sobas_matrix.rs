//! SOBAS over paths drawn at random, beside the same transfers without: what it gains and what it
//! costs in each class, and the paths on which it does worst, for a person to review.
//!
//! The thousands of `sobas-matrix.txt` take minutes, and are run when asked to:
//! `BANKFULL_SIM_MATRIX=1 BANKFULL_SIM_BLESS=1 cargo test -p bankfull-sim paths_at_random`. The
//! first of them are `sobas-sample.txt`, which is always compared: where it changes, both are to be
//! written anew.

use crate::sobas::{Case, Went, same_as_committed, wants};
use crate::{MS, mbit};
use bankfull_sim::Cross;
use std::fmt::Write;
use std::thread;

/// How many paths there are of each kind, and how many of them are always tried.
const PATHS: usize = 500;
const SAMPLE: usize = 25;

/// Bytes that a transfer is to move at the line's rate, beside what its start takes.
const BYTES: f64 = 250e6;

/// Who else is on the path.
const KINDS: [&str; 4] = ["alone", "packets", "held flow", "CUBIC"];

/// Rates in Mbit/s that part the classes, and shares of a round trip that the buffer holds.
const RATES: [f64; 3] = [100.0, 1_000.0, 10_000.0];
const BUFFERS: [f64; 2] = [0.1, 0.5];

/// A path, and how the two transfers went over it.
struct Row {
    kind: usize,
    rate: f64,
    rtt: u32,
    buffer: f64,
    streams: u32,
    seconds: f64,
    steered: Went,
    untouched: Went,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.steered.share / self.untouched.share.max(1e-9)
    }

    /// Which of the classes, counted up.
    fn class(&self) -> (usize, usize, usize) {
        let rate = RATES.iter().filter(|&&limit| self.rate >= limit).count();
        let buffer = BUFFERS.iter().filter(|&&limit| self.buffer >= limit).count();
        (self.kind, rate, buffer)
    }

    /// Segments sent again after two seconds, of a million.
    fn late(&self) -> f64 {
        let sent = self.steered.share * self.rate * 1e6 / 8.0 * self.seconds / 1500.0;
        self.steered.late as f64 / sent.max(1.0) * 1e6
    }
}

/// The path of a number: rate, round trip and buffer at random, so that each decade is as likely as
/// the next.
fn row(kind: usize, number: usize) -> Row {
    let mut random = (kind * PATHS + number) as u64;
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
    let taken = between(0.2, 0.6);
    let streams = [1, 4, 16][(between(1.0, 8.0).log2() as usize).min(2)];
    let mut case = Case::new(rate, rtt, buffer);
    case.path.forward.buffer.0 = case.path.forward.buffer.0.max(15_000);
    case.setting.streams = streams;
    case.seed = number as u64 + 1;
    let seconds = (BYTES * 8e-6 / rate).clamp(2.0, 20.0) + f64::from(rtt) * 0.04;
    case.time = MS * (seconds * 1e3) as u32;
    match KINDS[kind] {
        "packets" => case.path.forward.cross = Cross::Poisson { rate: mbit(rate * taken) },
        "held flow" => {
            let window = rate * 1e6 / 8.0 * f64::from(rtt) / 1e3 * taken;
            case.others = Some((1, Some(window.max(6_000.0) as u64)));
        }
        "CUBIC" => case.others = Some((2, None)),
        _ => {}
    }
    let (steered, untouched) = case.compared();
    Row { kind, rate, rtt, buffer, streams, seconds, steered, untouched }
}

/// The value below which a share of them lies.
fn quantile(mut of: Vec<f64>, share: f64) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(((of.len().max(1) - 1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

fn classes(rows: &[Row]) -> String {
    let mut table = "others     Mbit/s  buffer  paths | SOBAS: 5 %  50 %   bare  50 % | ratio: \
                     least   5 %  50 % | late, ppm: 50 %  95 % | queue, ms: 50 %  95 %\n"
        .to_owned();
    let rate_names = ["< 100", "< 1 G", "< 10 G", "≥ 10 G"];
    let buffer_names = ["< 0.1", "< 0.5", "≥ 0.5"];
    for (kind, kind_name) in KINDS.iter().enumerate() {
        for (rate, rate_name) in rate_names.iter().enumerate() {
            for (buffer, buffer_name) in buffer_names.iter().enumerate() {
                let of = |what: &dyn Fn(&Row) -> f64, share| {
                    let these = rows.iter().filter(|row| row.class() == (kind, rate, buffer));
                    quantile(these.map(what).collect(), share)
                };
                let count = rows.iter().filter(|r| r.class() == (kind, rate, buffer)).count();
                let (ours, bare) = (|r: &Row| r.steered.share, |r: &Row| r.untouched.share);
                let queue = |row: &Row| row.steered.queue_ms;
                let _ = writeln!(
                    table,
                    "{kind_name:10} {rate_name:>6} {buffer_name:>7} {count:>6} | {:>10.3} {:.3}        \
                     {:.3} | {:>12.3} {:.3} {:.3} | {:>15.0} {:>5.0} | {:>15.1} {:>5.1}",
                    of(&ours, 0.05),
                    of(&ours, 0.5),
                    of(&bare, 0.5),
                    of(&Row::ratio, 0.0),
                    of(&Row::ratio, 0.05),
                    of(&Row::ratio, 0.5),
                    of(&Row::late, 0.5),
                    of(&Row::late, 0.95),
                    of(&queue, 0.5),
                    of(&queue, 0.95),
                );
            }
        }
    }
    table
}

fn worst(rows: &mut [Row]) -> String {
    rows.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    "\nWhere it does worst:\n".to_owned() + &each(&rows[..rows.len().min(30)])
}

fn each(rows: &[Row]) -> String {
    let mut table = String::new();
    for row in rows {
        let Row { kind, rate, rtt, buffer, streams, steered, untouched, .. } = row;
        let shown = if wants("TRACE") { &steered.trace } else { "" };
        let _ = writeln!(
            table,
            "{:10} {rate:>6.0} Mbit/s {rtt:>4} ms {buffer:.3} BDP n={streams:<2}  {:.3}, bare {:.3}",
            KINDS[*kind], steered.share, untouched.share
        );
        table += shown;
    }
    table
}

#[test]
fn paths_at_random_gain_and_lose_as_was_reviewed() {
    let (count, file) = match wants("MATRIX") {
        true => (PATHS, "sobas-matrix.txt"),
        false => (SAMPLE, "sobas-sample.txt"),
    };
    let all: Vec<(usize, usize)> =
        (0..KINDS.len()).flat_map(|kind| (0..count).map(move |number| (kind, number))).collect();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut rows: Vec<Row> = thread::scope(|scope| {
        let part = |at: usize| all.iter().skip(at).step_by(workers);
        let work = |at: usize| scope.spawn(move || part(at).map(|&(k, n)| row(k, n)).collect());
        let running: Vec<_> = (0..workers).map(work).collect();
        running.into_iter().flat_map(|one| one.join().unwrap_or_else(|_| Vec::new())).collect()
    });
    assert_eq!(rows.len(), all.len());
    // In the order of their numbers, whoever has worked on them.
    rows.sort_by(|a, b| (a.kind, a.rate).partial_cmp(&(b.kind, b.rate)).unwrap());
    let committed = match count {
        PATHS => include_str!("../snapshots/sobas-matrix.txt"),
        _ => include_str!("../snapshots/sobas-sample.txt"),
    };
    let alone: Vec<f64> = rows.iter().filter(|row| row.kind == 0).map(Row::ratio).collect();
    let table = match count {
        PATHS => classes(&rows) + &worst(&mut rows),
        _ => each(&rows),
    };
    same_as_committed(&table, committed, file);
    assert!(quantile(alone, 0.5) >= 1.0, "in the middle it gains");
}
