//! Comparison of the default choice (`auto`) with each I/O method under the same conditions.
//!
//! Compares runs of the same turn, since a slow machine is slow for all. The median of few ratios
//! is uncertain, so it gets a confidence interval. The aim is met if no interval reaches below it,
//! missed if a whole interval is below it, and undecided otherwise. The best of many methods is
//! partly lucky, so intervals widen with their number.

use super::{Measured, words};
use crate::model::results::Summary;
use crate::report::tables;
use crate::run::bench_io::{Cell, MethodChoice};
/// Aim: throughput relative to the best method. (`docs/chunk-io.md`)
const MIN_RATIO: f64 = 0.97;

/// Error probability of all intervals of a cell together. (chosen: the usual level)
const ERROR_PROBABILITY: f64 = 0.05;

/// Median of ratios with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ratio {
    median: f64,
    low: f64,
    high: f64,
    /// True if there were enough values for the confidence level.
    is_certain: bool,
}

/// Comparison of the default choice with the best method under the same conditions.
#[derive(Debug)]
struct Baseline<'m> {
    chosen: &'m Cell,
    best: MethodChoice,
    ratio: Ratio,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Met,
    Missed,
    Undecided,
}

/// Table and summary; `None` without default choice, or without other methods.
pub(super) fn report(measured: &[Measured]) -> Option<String> {
    let all: Vec<Baseline> = measured.iter().filter_map(|one| compare(one, measured)).collect();
    let count = |verdict| all.iter().filter(|one| one.verdict == verdict).count();
    let medians = Summary::of(all.iter().map(|one| one.ratio.median).collect())?;
    let rows: Vec<Vec<String>> = all.iter().map(Baseline::row).collect();
    Some(format!(
        "auto relative to the best method, in {} cells: {MIN_RATIO} met in {}, missed in {}, \
         undecided in {}; median {:.3}, minimum {:.3}\n\n{}",
        all.len(),
        count(Verdict::Met),
        count(Verdict::Missed),
        count(Verdict::Undecided),
        medians.median,
        medians.min,
        tables::markdown(&HEAD.map(str::to_owned), &rows)
    ))
}

const HEAD: [&str; 7] =
    ["size", "socket buffers", "chunk", "best", "auto / best", "interval", "verdict"];

impl Baseline<'_> {
    fn row(&self) -> Vec<String> {
        let Cell { size, socket_buffer, chunk, .. } = self.chosen;
        let Ratio { median, low, high, .. } = self.ratio;
        let best = self.best.name().to_owned();
        let interval = format!("{low:.3}–{high:.3}");
        let place = [size.to_string(), words(*socket_buffer), chunk.to_string()];
        let verdict = match self.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::Undecided => "undecided",
        };
        let values = [best, format!("{median:.3}"), interval, verdict.to_owned()];
        place.into_iter().chain(values).collect()
    }
}

fn compare<'m>(chosen: &'m Measured, measured: &[Measured]) -> Option<Baseline<'m>> {
    if chosen.cell.method != MethodChoice::Auto {
        return None;
    }
    let is_other = |one: &&Measured| one.cell.method != MethodChoice::Auto;
    let others: Vec<&Measured> = measured
        .iter()
        .filter(is_other)
        .filter(|one| {
            one.cell.has_same_conditions(&chosen.cell) && one.completed_runs().next().is_some()
        })
        .collect();
    let ratio = |one: &&Measured| {
        let pairs = one.runs.iter().zip(&chosen.runs);
        let pairs = pairs.filter_map(|(other, auto)| other.as_ref().zip(auto.as_ref()));
        let values = pairs.map(|(other, auto)| other.seconds / auto.seconds).collect();
        Some((one.cell.method, Ratio::of(values, ERROR_PROBABILITY / others.len() as f64)?))
    };
    let ratios: Vec<(MethodChoice, Ratio)> = others.iter().filter_map(ratio).collect();
    let verdict = if ratios.iter().any(|(_, ratio)| ratio.is_certain && ratio.high < MIN_RATIO) {
        Verdict::Missed
    } else if ratios.iter().all(|(_, ratio)| ratio.is_certain && ratio.low >= MIN_RATIO) {
        Verdict::Met
    } else {
        Verdict::Undecided
    };
    let (best, ratio) =
        ratios.into_iter().min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))?;
    Some(Baseline { chosen: &chosen.cell, best, ratio, verdict })
}

impl Ratio {
    /// Median with its confidence interval at this error probability; the whole range for few
    /// values.
    fn of(mut values: Vec<f64>, error_probability: f64) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let Summary { median, min: low, max: high, .. } = Summary::of(values.clone())?;
        // The number of values below the median is binomial. Computed with logarithms, since the
        // probability of none underflows for many values.
        let mut term = count as f64 * 0.5_f64.ln();
        let (mut below, mut outside) = (term.exp(), 0);
        while 2.0 * below <= error_probability {
            outside += 1;
            term += ((count + 1 - outside) as f64 / outside as f64).ln();
            below += term.exp();
        }
        match outside.checked_sub(1) {
            None => Some(Self { median, low, high, is_certain: false }),
            Some(last) => Some(Self {
                median,
                low: values[last],
                high: values[count - 1 - last],
                is_certain: true,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::bench_io::{Direction, Elapsed};
    use bankfull::IoMethod;
    use bankfull_control::Bytes;

    #[test]
    fn interval_matches_sign_test_tables() {
        let values = |count: u32| (1..=count).map(f64::from).rev().collect();
        // 5 values: the whole range; 6: the whole range with confidence. (tables of the sign test)
        for (count, least, most) in
            [(1, 1.0, 1.0), (5, 1.0, 5.0), (6, 1.0, 6.0), (10, 2.0, 9.0), (20, 6.0, 15.0)]
        {
            let ratio = Ratio::of(values(count), 0.05).unwrap();
            assert_eq!((ratio.low, ratio.high), (least, most), "{count}");
            assert_eq!(ratio.is_certain, count > 5);
            assert_eq!(ratio.median, f64::from(count + 1) / 2.0);
        }
        assert_eq!(Ratio::of(Vec::new(), 0.05), None);
        let many = Ratio::of(values(100), 0.05).unwrap();
        assert_eq!((many.low, many.high), (40.0, 61.0));
        // Mean ± 1.96 standard deviations of 35.4.
        let more = Ratio::of(values(5000), 0.05).unwrap();
        assert_eq!((more.low, more.high), (2431.0, 2570.0));
    }

    #[test]
    fn auto_is_compared_with_best_method_per_turn() {
        let one = |method, chunk, seconds: [f64; 2]| Measured {
            cell: Cell {
                direction: Direction::Send,
                method,
                chunk: Bytes(chunk),
                socket_buffer: None,
                size: Bytes(1 << 20),
            },
            runs: seconds.map(|seconds| Some(Elapsed { seconds, cpu_seconds: 0.0 })).repeat(5),
        };
        let measured = [
            one(MethodChoice::Auto, 1, [1.0, 10.0]),
            one(MethodChoice::Fixed(IoMethod::Mmap), 1, [2.0, 20.0]),
            one(MethodChoice::Fixed(IoMethod::SendFile), 1, [0.9, 9.0]),
            // Other conditions.
            one(MethodChoice::Fixed(IoMethod::Splice), 2, [0.1, 0.1]),
        ];
        let found = compare(&measured[0], &measured).unwrap();
        assert_eq!(found.best, MethodChoice::Fixed(IoMethod::SendFile));
        assert!((found.ratio.median - 0.9).abs() < 1e-9 && found.ratio.high < 0.91);
        assert_eq!(found.verdict, Verdict::Missed);
        let verdict = |of: &[Measured]| compare(&of[0], of).unwrap().verdict;
        assert_eq!(verdict(&measured[..2]), Verdict::Met);
        let unsteady = one(MethodChoice::Fixed(IoMethod::Mmap), 1, [0.9, 20.0]);
        assert_eq!(verdict(&[one(MethodChoice::Auto, 1, [1.0; 2]), unsteady]), Verdict::Undecided);
        assert!(compare(&measured[1], &measured).is_none());
        let text = report(&measured).unwrap();
        assert!(
            text.contains("in 1 cells: 0.97 met in 0, missed in 1, undecided in 0; median 0.900"),
            "{text}"
        );
        assert_eq!(report(&measured[1..]), None);
        // A failed run has no partner; other runs keep theirs.
        let mut failed = measured;
        failed[0].runs[0] = None;
        failed[2].runs[3] = None;
        let ratio = compare(&failed[0], &failed).unwrap().ratio;
        assert!((ratio.low - 0.9).abs() < 1e-9 && ratio.high < 0.91, "{ratio:?}");
    }
}
