//! What is chosen by itself (`auto`) beside each other engine, under the same conditions.
//!
//! Runs of the same turn are compared, since a machine that is slow for a while is so for all. A
//! median of few ratios is uncertain: it has an interval. Under some conditions the aim is held
//! where no interval reaches below it, and missed where one is below it as a whole; else these runs
//! do not tell. The best of many engines is always somewhat lucky: so each has a wider interval,
//! the more there are.

use super::{Measured, words};
use crate::engines::{Cell, Way};
use crate::results::Spread;
use crate::tables;

/// Of the best engine's throughput, so much is aimed at. (`docs/block-io.md`)
const AIM: f64 = 0.97;

/// So often all intervals of a cell together may be wrong. (ours: what is usual)
const DOUBT: f64 = 0.05;

/// A median of ratios, and where it lies at all probability.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ratio {
    median: f64,
    least: f64,
    most: f64,
    /// There were enough figures for that.
    is_certain: bool,
}

/// What is chosen by itself, beside the engine that is the best under these conditions.
#[derive(Debug)]
struct Beside<'m> {
    chosen: &'m Cell,
    best: Way,
    ratio: Ratio,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Held,
    Missed,
    Unknown,
}

/// As a table and a sentence; nothing where nothing was chosen by itself, or nothing else ran.
pub(super) fn say(measured: &[Measured]) -> Option<String> {
    let all: Vec<Beside> = measured.iter().filter_map(|one| beside(one, measured)).collect();
    let count = |verdict| all.iter().filter(|one| one.verdict == verdict).count();
    let medians = Spread::of(all.iter().map(|one| one.ratio.median).collect())?;
    let rows: Vec<Vec<String>> = all.iter().map(Beside::row).collect();
    Some(format!(
        "auto beside the best engine, in {} cells: {AIM} held in {}, missed in {}, not told in {}; \
         {:.3} in the middle, {:.3} at the least\n\n{}",
        all.len(),
        count(Verdict::Held),
        count(Verdict::Missed),
        count(Verdict::Unknown),
        medians.median,
        medians.min,
        tables::markdown(&HEAD.map(str::to_owned), &rows)
    ))
}

const HEAD: [&str; 7] =
    ["size", "socket buffers", "block", "best", "auto of it", "interval", "verdict"];

impl Beside<'_> {
    fn row(&self) -> Vec<String> {
        let Cell { size, socket_buffer, block, .. } = self.chosen;
        let Ratio { median, least, most, .. } = self.ratio;
        let best = self.best.name().to_owned();
        let interval = format!("{least:.3}–{most:.3}");
        let place = [size.to_string(), words(*socket_buffer), block.to_string()];
        let verdict = match self.verdict {
            Verdict::Held => "held",
            Verdict::Missed => "missed",
            Verdict::Unknown => "not told",
        };
        let figures = [best, format!("{median:.3}"), interval, verdict.to_owned()];
        place.into_iter().chain(figures).collect()
    }
}

fn beside<'m>(chosen: &'m Measured, measured: &[Measured]) -> Option<Beside<'m>> {
    if chosen.cell.engine != Way::Auto {
        return None;
    }
    let is_other = |one: &&Measured| one.cell.engine != Way::Auto;
    let others: Vec<&Measured> = measured
        .iter()
        .filter(is_other)
        .filter(|one| one.cell.is_beside(&chosen.cell) && one.took().next().is_some())
        .collect();
    let ratio = |one: &&Measured| {
        let pairs = one.runs.iter().zip(&chosen.runs);
        let pairs = pairs.filter_map(|(other, mine)| other.as_ref().zip(mine.as_ref()));
        let figures = pairs.map(|(other, mine)| other.seconds / mine.seconds).collect();
        Some((one.cell.engine, Ratio::of(figures, DOUBT / others.len() as f64)?))
    };
    let ratios: Vec<(Way, Ratio)> = others.iter().filter_map(ratio).collect();
    let verdict = if ratios.iter().any(|(_, ratio)| ratio.is_certain && ratio.most < AIM) {
        Verdict::Missed
    } else if ratios.iter().all(|(_, ratio)| ratio.is_certain && ratio.least >= AIM) {
        Verdict::Held
    } else {
        Verdict::Unknown
    };
    let (best, ratio) =
        ratios.into_iter().min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))?;
    Some(Beside { chosen: &chosen.cell, best, ratio, verdict })
}

impl Ratio {
    /// The median of figures, and between which of them it lies but for so much doubt; of few, all.
    fn of(mut figures: Vec<f64>, doubt: f64) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let count = figures.len();
        let Spread { median, min: least, max: most, .. } = Spread::of(figures.clone())?;
        // So many of the figures are below the median as heads come of so many throws.
        // By its logarithm: of many throws, the chance of none is no number any more.
        let mut term = count as f64 * 0.5_f64.ln();
        let (mut below, mut outside) = (term.exp(), 0);
        while 2.0 * below <= doubt {
            outside += 1;
            term += ((count + 1 - outside) as f64 / outside as f64).ln();
            below += term.exp();
        }
        match outside.checked_sub(1) {
            None => Some(Self { median, least, most, is_certain: false }),
            Some(last) => Some(Self {
                median,
                least: figures[last],
                most: figures[count - 1 - last],
                is_certain: true,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::{Direction, Took};
    use bankfull::IoMethod;
    use bankfull_control::Bytes;

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        let figures = |count: u32| (1..=count).map(f64::from).rev().collect();
        // Of 5 all; of 6 all, for the first time with confidence; from tables of the sign test.
        for (count, least, most) in
            [(1, 1.0, 1.0), (5, 1.0, 5.0), (6, 1.0, 6.0), (10, 2.0, 9.0), (20, 6.0, 15.0)]
        {
            let ratio = Ratio::of(figures(count), 0.05).unwrap();
            assert_eq!((ratio.least, ratio.most), (least, most), "{count}");
            assert_eq!(ratio.is_certain, count > 5);
            assert_eq!(ratio.median, f64::from(count + 1) / 2.0);
        }
        assert_eq!(Ratio::of(Vec::new(), 0.05), None);
        let many = Ratio::of(figures(100), 0.05).unwrap();
        assert_eq!((many.least, many.most), (40.0, 61.0));
        // The middle and 1.96 deviations of 35.4.
        let more = Ratio::of(figures(5000), 0.05).unwrap();
        assert_eq!((more.least, more.most), (2431.0, 2570.0));
    }

    #[test]
    fn what_is_chosen_is_compared_with_the_best_under_the_same_conditions_turn_by_turn() {
        let one = |engine, block, seconds: [f64; 2]| Measured {
            cell: Cell {
                direction: Direction::Send,
                engine,
                block: Bytes(block),
                socket_buffer: None,
                size: Bytes(1 << 20),
            },
            runs: seconds.map(|seconds| Some(Took { seconds, cpu_seconds: 0.0 })).repeat(5),
        };
        let measured = [
            one(Way::Auto, 1, [1.0, 10.0]),
            one(Way::Fixed(IoMethod::Mmap), 1, [2.0, 20.0]),
            one(Way::Fixed(IoMethod::SendFile), 1, [0.9, 9.0]),
            // Of other conditions.
            one(Way::Fixed(IoMethod::Splice), 2, [0.1, 0.1]),
        ];
        let found = beside(&measured[0], &measured).unwrap();
        assert_eq!(found.best, Way::Fixed(IoMethod::SendFile));
        assert!((found.ratio.median - 0.9).abs() < 1e-9 && found.ratio.most < 0.91);
        assert_eq!(found.verdict, Verdict::Missed);
        let verdict = |of: &[Measured]| beside(&of[0], of).unwrap().verdict;
        assert_eq!(verdict(&measured[..2]), Verdict::Held);
        let unsteady = one(Way::Fixed(IoMethod::Mmap), 1, [0.9, 20.0]);
        assert_eq!(verdict(&[one(Way::Auto, 1, [1.0; 2]), unsteady]), Verdict::Unknown);
        assert!(beside(&measured[1], &measured).is_none());
        let said = say(&measured).unwrap();
        assert!(
            said.contains("in 1 cells: 0.97 held in 0, missed in 1, not told in 0; 0.900"),
            "{said}"
        );
        assert_eq!(say(&measured[1..]), None);
        // A run that failed has no partner, and the others keep theirs.
        let mut failed = measured;
        failed[0].runs[0] = None;
        failed[2].runs[3] = None;
        let ratio = beside(&failed[0], &failed).unwrap().ratio;
        assert!((ratio.least - 0.9).abs() < 1e-9 && ratio.most < 0.91, "{ratio:?}");
    }
}
