//! Words about the rate of the line: `square`, `walk`, `steps`, `trace`, `silence`.

use super::bench::{self, Received, Sent, carry, in_ms, longest_gap, mean, percentile};
use super::{Case, Figure};
use crate::{MS, mbit};
use bankfull_control::Bytes;
use bankfull_sim::LinkConfig;
use bankfull_sim::link::rate::{RateVariation, WALK_FACTOR};
use bankfull_sim::link::trace::Trace;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a full packet.
const PACKET: u32 = 1500;

/// Bits of a full packet, in kbit: Mbit/s times ms.
const PACKET_KBIT: f64 = PACKET as f64 * 8e-3;

/// Duration of a level of a square wave, and of steps.
const LEVEL_MS: u32 = 250;

/// Bounds of the walk, in Mbit/s, and its step: several packets long.
const LEAST: f64 = 20.0;
const MOST: f64 = 40.0;
const STEP: Duration = Duration::from_micros(2500);

/// Steps of the walk: enough for a mean within 0.5 %.
const STEPS: usize = 24_000;

/// Window in which the packets of a trace are counted.
const WINDOW_MS: usize = 100;

/// Returns a saturated line, and the packets that keep it busy until a time.
fn saturated(rate_mbit: f64, variation: RateVariation, until: Duration) -> (LinkConfig, Vec<Sent>) {
    let rate = Some(mbit(rate_mbit));
    let buffer = Bytes(20 * u64::from(PACKET));
    let config = LinkConfig { rate, variation, buffer, ..LinkConfig::default() };
    let interval = Duration::from_secs_f64(f64::from(PACKET) * 8e-6 / (1.05 * rate_mbit));
    (config, bench::stream(1, PACKET, interval, until))
}

/// Alternation between 40 and 10 Mbit/s.
pub(super) fn square() -> Case {
    let variation = RateVariation::Square { other: mbit(10.0), period: MS * LEVEL_MS };
    let levels = [MOST, 10.0].into_iter().cycle().take(40).collect::<Vec<f64>>();
    levels_of("`square:10mbit,250ms` at 40 Mbit/s", variation, &levels)
}

/// Rates of 40, 10 and 20 Mbit/s; the last one holds.
pub(super) fn steps() -> Case {
    let steps = vec![(MS * LEVEL_MS, mbit(10.0)), (MS * LEVEL_MS * 2, mbit(20.0))];
    let mut levels = vec![20.0; 40];
    levels[..2].copy_from_slice(&[MOST, 10.0]);
    let case = "`steps:10mbit@250ms,20mbit@500ms` at 40 Mbit/s";
    levels_of(case, RateVariation::Steps(steps), &levels)
}

/// Compares a saturated line with the rates of its levels in Mbit/s.
///
/// Levels are no multiples of the time of a packet: one that is sent across a change has a part at
/// each rate.
fn levels_of(case: &'static str, variation: RateVariation, levels: &[f64]) -> Case {
    let level_ms = f64::from(LEVEL_MS);
    let (config, offered) = saturated(MOST, variation, MS * LEVEL_MS * levels.len() as u32);
    let arrivals: Vec<f64> = carry(&config, 1, &offered).iter().map(|one| in_ms(one.at)).collect();
    // Kilobits that the line has sent by the end of each level.
    let sent = levels.iter().scan(0.0, |sum, rate| {
        *sum += rate * level_ms;
        Some(*sum)
    });
    let sent: Vec<f64> = std::iter::once(0.0).chain(sent).collect();
    let whole = |level: usize| (sent[level] / PACKET_KBIT).floor();
    // Arrivals are rounded up to nanoseconds.
    let until = |level: usize| {
        let end = level as f64 * level_ms + 1e-5;
        arrivals.iter().filter(|&&at| at <= end).count()
    };
    let packets = |name, level| {
        let theory = whole(level + 1) - whole(level);
        let model = until(level + 1) - until(level);
        Figure { unit: "packets", digits: 0, ..Figure::new(name, "", theory, model as f64) }
    };
    let across = |name, level: usize| {
        let begun = sent[level] % PACKET_KBIT;
        let theory = begun / levels[level - 1] + (PACKET_KBIT - begun) / levels[level];
        let at = until(level);
        let model = arrivals[at] - arrivals[at - 1];
        let note = "a part at each rate";
        Figure { unit: "ms", tolerance: 1e-5, ..Figure::new(name, note, theory, model) }
    };
    let end = level_ms * levels.len() as f64;
    let model = until(levels.len()) as f64 * PACKET_KBIT / end;
    Case {
        name: case,
        figures: vec![
            packets("first level", 0),
            packets("second level", 1),
            packets("third level", 2),
            packets("last level", levels.len() - 1),
            across("packet across the first change", 1),
            across("packet across the second change", 2),
            Figure {
                unit: "Mbit/s",
                tolerance: 0.002,
                ..Figure::new("mean rate", "of 10 s", sent[levels.len()] / end, model)
            },
        ],
    }
}

/// Returns the rate in each step in Mbit/s: a packet and the time since the one before it.
fn rates_of_steps(received: &[Received]) -> Vec<f64> {
    let step_of = |time: Duration| time.as_nanos() / STEP.as_nanos();
    let mut rates: Vec<(u128, f64)> = Vec::new();
    for pair in received.windows(2) {
        // An arrival at the very end of a step is that step's.
        let (from, to) = (pair[0].at, pair[1].at);
        let step = step_of(from);
        let is_inside = step_of(to - Duration::from_nanos(1)) == step;
        if is_inside && rates.last().is_none_or(|last| last.0 != step) {
            rates.push((step, f64::from(PACKET) * 8e-6 / (to - from).as_secs_f64()));
        }
    }
    assert!(rates.iter().enumerate().all(|(n, rate)| rate.0 == n as u128), "a step has no packet");
    rates.into_iter().map(|rate| rate.1).collect()
}

/// Random walk between 20 and 40 Mbit/s.
///
/// A symmetric step in the logarithm, reflected at the bounds, leaves a uniform distribution of the
/// logarithm unchanged: quantiles are geometric, and the mean is (high − low) / ln(high / low).
pub(super) fn walk(seed: u64) -> Case {
    let variation = RateVariation::Walk { least: mbit(LEAST), step: STEP };
    let (config, sent) = saturated(MOST, variation, STEP * STEPS as u32);
    let rates = rates_of_steps(&carry(&config, seed, &sent));
    let mut sorted = rates.clone();
    sorted.sort_by(f64::total_cmp);
    let ratio = |pair: &[f64]| (pair[1] / pair[0]).ln().abs();
    let changes: Vec<f64> = rates.windows(2).map(ratio).collect();
    let largest = changes.iter().copied().fold(0.0, f64::max);
    let (range, most) = ((MOST / LEAST).ln(), WALK_FACTOR.ln());
    // Half of the largest, less what is reflected: ∫ s²/2 ds / (2 · most · range) at each bound.
    let mean_change = most / 2.0 - most * most / (6.0 * range);
    let rate = |name, note, theory, model, tolerance| Figure {
        unit: "Mbit/s",
        tolerance,
        ..Figure::new(name, note, theory, model)
    };
    let quantile = |percent: usize| LEAST * (percent as f64 / 100.0 * range).exp();
    // 24 000 steps are as good as 2100 independent rates; extremes come near the bounds.
    Case {
        name: "`walk:20mbit,2.5ms` at 40 Mbit/s",
        figures: vec![
            rate("least rate", "the bound", LEAST, sorted[0], 0.1),
            rate("highest rate", "the bound", MOST, sorted[sorted.len() - 1], 0.1),
            rate("mean rate", "log-uniform", (MOST - LEAST) / range, mean(&rates), 0.3),
            rate("rate p25", "", quantile(25), percentile(&sorted, 25), 0.6),
            rate("rate p50", "", quantile(50), percentile(&sorted, 50), 0.6),
            rate("rate p75", "", quantile(75), percentile(&sorted, 75), 0.6),
            Figure {
                digits: 4,
                tolerance: 0.0005,
                ..Figure::new("largest factor of a step", "", WALK_FACTOR, largest.exp())
            },
            Figure {
                digits: 4,
                tolerance: 0.001,
                ..Figure::new(
                    "mean of its logarithm's size",
                    "uniform, reflected",
                    mean_change,
                    mean(&changes),
                )
            },
        ],
    }
}

/// Returns the milliseconds of a trace's opportunities, and those of its repetition.
fn opportunities(text: &str) -> (Vec<usize>, usize) {
    let times: Vec<usize> = text.lines().flat_map(str::parse).collect();
    let length = times[times.len() - 1];
    let again = times.iter().map(|at| at + length);
    (times.iter().copied().chain(again).collect(), length * 2)
}

/// Returns the number of times until an end in each window; a window includes its end.
fn per_window(times: impl Iterator<Item = f64>, end: usize) -> Vec<f64> {
    let mut counts = vec![0.0; end.div_ceil(WINDOW_MS)];
    for at in times.filter(|at| *at <= end as f64) {
        counts[(at / WINDOW_MS as f64).ceil() as usize - 1] += 1.0;
    }
    counts
}

/// Replay of a trace, twice, to a sender that always has packets.
pub(super) fn replay(case: &'static str, text: &str, peak: f64) -> Case {
    // A trace that is not read differs in all figures.
    let trace = Trace::parse_mahimahi(text).map(|trace| RateVariation::Trace(Arc::new(trace)));
    let (times, end) = opportunities(text);
    let end_time = MS * (end + 100) as u32;
    let (config, sent) = saturated(peak, trace.unwrap_or_default(), end_time);
    let received = carry(&config, 1, &sent);
    // Arrivals are rounded up to nanoseconds.
    let arrived = received.iter().map(|one| in_ms(one.at - Duration::from_nanos(1)));
    let model = per_window(arrived, end);
    let theory = per_window(times.iter().map(|&at| at as f64), end);
    let off = theory.iter().zip(&model).filter(|(theory, model)| theory != model).count();
    let extremes = |counts: &[f64]| {
        let mut sorted = counts.to_vec();
        sorted.sort_by(f64::total_cmp);
        (sorted[0], sorted[sorted.len() - 1])
    };
    let ((least, most), (model_least, model_most)) = (extremes(&theory), extremes(&model));
    let all = |counts: &[f64]| counts.iter().sum::<f64>();
    let packets = |name, note, theory, model| Figure {
        unit: "packets",
        digits: 0,
        ..Figure::new(name, note, theory, model)
    };
    Case {
        name: case,
        figures: vec![
            packets("delivered", "lines in the file, twice", all(&theory), all(&model)),
            packets("least in 100 ms", "", least, model_least),
            packets("most in 100 ms", "", most, model_most),
            Figure {
                digits: 0,
                ..Figure::new("windows of 100 ms that differ", "", 0.0, off as f64)
            },
        ],
    }
}

/// Replay of a trace with 1 to 24 packets in a millisecond, every 100 ms.
pub(super) fn bursts() -> Case {
    let lines = (1..=24).flat_map(|n| vec![format!("{}\n", n * WINDOW_MS); n]);
    replay("1 to 24 packets in a ms, every 100 ms", &lines.collect::<String>(), 300.0)
}

/// Silence of 300 ms after 1 s.
///
/// Packets of 1500 bytes arrive every 2.3 ms at 10 Mbit/s.
pub(super) fn silence(case: &'static str, buffer: Option<u64>) -> Case {
    const INTERVAL_US: u64 = 2300;
    const SENDING_US: u64 = 1200;
    const START_US: u64 = 1_000_000;
    const END_US: u64 = 1_300_000;
    let us = Duration::from_micros;
    let config = LinkConfig {
        rate: Some(mbit(10.0)),
        silences: vec![(us(START_US), us(END_US - START_US))],
        buffer: Bytes(buffer.unwrap_or(u64::MAX)),
        ..LinkConfig::default()
    };
    let sent = bench::stream(1, PACKET, us(INTERVAL_US), MS * 3000);
    let received = carry(&config, 1, &sent);
    let first = START_US.div_ceil(INTERVAL_US);
    let held = END_US.div_ceil(INTERVAL_US) - first;
    let wait_us = END_US - first * INTERVAL_US;
    let kept = buffer.map_or(held, |bytes| held.min(bytes / u64::from(PACKET)));
    let last_before_us = (first - 1) * INTERVAL_US + SENDING_US;
    let time = |name, note, theory_us: u64, model| Figure {
        unit: "ms",
        digits: 1,
        ..Figure::new(name, note, theory_us as f64 / 1e3, model)
    };
    let count = |name, note, theory: u64, model: usize| Figure {
        unit: "packets",
        digits: 0,
        ..Figure::new(name, note, theory as f64, model as f64)
    };
    let gap = END_US + SENDING_US - last_before_us;
    let waits = |one: &&Received| one.delay > us(SENDING_US + 1);
    let waiting = received.iter().filter(waits).count();
    let lost_note = if buffer.is_some() { "arrivals of 300 ms, less the queue" } else { "" };
    let mut figures = vec![
        time("longest pause", "from arrival to arrival", gap, longest_gap(&received)),
        time("delay max", "of the first one held", wait_us + SENDING_US, {
            in_ms(received.iter().map(|one| one.delay).max().unwrap_or_default())
        }),
        count("lost", lost_note, held - kept, sent.len() - received.len()),
    ];
    if buffer.is_none() {
        let theory = wait_us.div_ceil(INTERVAL_US - SENDING_US);
        figures.push(count("packets that wait", "until the queue is empty", theory, waiting));
    }
    Case { name: case, figures }
}
