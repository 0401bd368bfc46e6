//! Regret of contenders against the best of fixed choices, path by path.
//!
//! The best choice of a path is found in runs of its own; runs of that choice and of the others
//! take turns afterwards, and are compared repetition by repetition.

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Least fairness towards others for a choice to count: Jain's index, or the served share of the
/// demand of others. (chosen: a choice that takes the share of others is no standard)
pub const MIN_SHARING: f64 = 0.9;

/// Difference of fairness that is none. (chosen: more than the chance of a single run)
const SHARING_DEVIATION: f64 = 0.01;

/// Resamples of a bootstrap interval, and its bounds. (Efron and Tibshirani 1993: 1000 or more)
const RESAMPLES: usize = 2000;
const BOUNDS: (f64, f64) = (0.025, 0.975);

/// Seed of the resamples: the same results give the same interval.
const BOOTSTRAP_SEED: u64 = 1;

/// One run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the path.
    pub path: String,
    /// Name of the contender.
    pub contender: String,
    /// Number of the repetition.
    pub repetition: u32,
    /// Fingerprint of the scenario's definition of the run; results of others do not count.
    #[serde(default)]
    pub definition: String,
    /// Share of the path's capacity that arrived as payload.
    pub share: f64,
    /// Median queueing delay in the second half, in ms.
    pub queue_ms: f64,
    /// Segments retransmitted by the sender; `None` if unknown.
    pub retransmits: Option<u64>,
    /// Segments that queue, discipline and policer dropped, of all flows.
    pub dropped: u64,
    /// Segments marked with ECN, of all flows.
    pub marked: u64,
    /// Fairness towards other flows, see [`MIN_SHARING`]; `None` alone on the path.
    pub sharing: Option<f64>,
    /// 95th percentile of the completion times of short flows beside it, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_p95: Option<f64>,
    /// Decisions of bankfull's tuner by its state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub decisions: BTreeMap<String, u32>,
    /// Reason why the run is void or failed; it counts in nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
}

/// Best choice of a path, from the runs of all choices; `None` without valid runs.
///
/// Choices that are unfair to others count only if all are; then the best of the fairest.
#[must_use]
pub fn best_choice<'r>(choices: &'r [Record], path: &str) -> Option<&'r str> {
    let mut by_name: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in choices.iter().filter(|one| one.path == path && one.void.is_none()) {
        by_name.entry(&record.contender).or_default().push(record);
    }
    let median_of = |runs: &[&Record], of: &dyn Fn(&Record) -> f64| {
        median(runs.iter().map(|run| of(run)).collect()).unwrap_or(0.0)
    };
    let sharing = |runs: &[&Record]| median_of(runs, &|run| run.sharing.unwrap_or(1.0));
    let share = |runs: &[&Record]| median_of(runs, &|run| run.share);
    let fair = by_name.iter().filter(|(_, runs)| sharing(runs) >= MIN_SHARING);
    let best = fair.max_by(|a, b| share(a.1).total_cmp(&share(b.1)));
    let most = by_name.values().map(|runs| sharing(runs)).max_by(f64::total_cmp)?;
    let fairest = by_name.iter().filter(|(_, runs)| sharing(runs) >= most - SHARING_DEVIATION);
    let fairest = fairest.max_by(|a, b| share(a.1).total_cmp(&share(b.1)));
    best.or(fairest).map(|(name, _)| *name)
}

/// Regret of a contender on a path.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Regret {
    /// Path.
    pub path: String,
    /// Best choice.
    pub best: String,
    /// Its median share of the capacity, in the repetitions that both have.
    pub best_share: f64,
    /// Contender.
    pub contender: String,
    /// Its median share of the capacity.
    pub share: f64,
    /// Median of its queueing delays, in ms.
    pub queue_ms: f64,
    /// Median of its retransmitted segments.
    pub retransmits: Option<f64>,
    /// Median of the segments that queue, discipline and policer dropped, of all flows.
    pub dropped: f64,
    /// Median of its fairness.
    pub sharing: Option<f64>,
    /// Median of the 95th percentiles of short flows' completion, in seconds.
    pub completion_p95: Option<f64>,
    /// Median of 1 − share ÷ that of the best choice, by repetition.
    pub regret: f64,
    /// Bootstrap interval of that median.
    pub interval: (f64, f64),
    /// Repetitions that both have.
    pub pairs: usize,
    /// Void and failed runs of the contender.
    pub voids: usize,
    /// Decisions by state, in all runs.
    pub decisions: BTreeMap<String, u32>,
}

/// Regrets of all contenders on all paths, in the order of the first records.
#[must_use]
pub fn regrets(runs: &[Record], best: &BTreeMap<String, String>) -> Vec<Regret> {
    let mut found: Vec<Regret> = Vec::new();
    for record in runs {
        let is_known = |one: &Regret| one.path == record.path && one.contender == record.contender;
        let Some(choice) = best.get(&record.path).filter(|name| **name != record.contender) else {
            continue;
        };
        if !found.iter().any(is_known) {
            found.extend(regret(runs, &record.path, &record.contender, choice));
        }
    }
    found
}

fn regret(runs: &[Record], path: &str, contender: &str, best: &str) -> Option<Regret> {
    let of = |name: &str| -> Vec<&Record> {
        runs.iter().filter(|one| one.path == path && one.contender == name).collect()
    };
    let (own, standard) = (of(contender), of(best));
    let is_valid = |run: &&&Record| run.void.is_none();
    let pairs: Vec<(f64, f64)> = own
        .iter()
        .filter(is_valid)
        .filter_map(|run| {
            let mut others = standard.iter().filter(is_valid);
            let other = others.find(|other| other.repetition == run.repetition)?;
            Some((run.share, other.share))
        })
        .collect();
    let ratios: Vec<f64> = pairs.iter().map(|(own, best)| 1.0 - own / best.max(1e-9)).collect();
    let valid: Vec<&&Record> = own.iter().filter(is_valid).collect();
    let median_of = |of: &dyn Fn(&Record) -> Option<f64>| {
        median(valid.iter().filter_map(|run| of(run)).collect())
    };
    let mut decisions = BTreeMap::new();
    for (state, count) in valid.iter().flat_map(|run| &run.decisions) {
        *decisions.entry(state.clone()).or_default() += count;
    }
    Some(Regret {
        path: path.to_owned(),
        best: best.to_owned(),
        best_share: median(pairs.iter().map(|pair| pair.1).collect())?,
        contender: contender.to_owned(),
        share: median(pairs.iter().map(|pair| pair.0).collect())?,
        queue_ms: median_of(&|run| Some(run.queue_ms))?,
        retransmits: median_of(&|run| run.retransmits.map(|count| count as f64)),
        dropped: median_of(&|run| Some(run.dropped as f64))?,
        sharing: median_of(&|run| run.sharing),
        completion_p95: median_of(&|run| run.completion_p95),
        interval: bootstrap(&ratios),
        regret: median(ratios)?,
        pairs: pairs.len(),
        voids: own.len() - valid.len(),
        decisions,
    })
}

/// Median; `None` of nothing.
#[must_use]
pub fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    let upper = *of.get(of.len() / 2)?;
    Some(if of.len().is_multiple_of(2) {
        f64::midpoint(of[of.len() / 2 - 1], upper)
    } else {
        upper
    })
}

/// Bootstrap interval of the median.
fn bootstrap(of: &[f64]) -> (f64, f64) {
    if of.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mut rng = Rng::with_seed(BOOTSTRAP_SEED);
    let mut resample = || median((0..of.len()).map(|_| of[rng.usize(0..of.len())]).collect());
    let mut medians: Vec<f64> = (0..RESAMPLES).filter_map(|_| resample()).collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[((medians.len() - 1) as f64 * share).round() as usize];
    (at(BOUNDS.0), at(BOUNDS.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(contender: &str, repetition: u32, share: f64, sharing: Option<f64>) -> Record {
        let (path, contender) = ("p".to_owned(), contender.to_owned());
        Record { path, contender, repetition, share, sharing, ..Record::default() }
    }

    #[test]
    fn best_choice_is_fair_to_others() {
        let choices = |fast: f64, fair: f64| {
            vec![record("fast", 1, 0.9, Some(fast)), record("fair", 1, 0.5, Some(fair))]
        };
        assert_eq!(best_choice(&choices(0.6, 0.95), "p"), Some("fair"));
        assert_eq!(best_choice(&choices(0.91, 0.95), "p"), Some("fast"));
        assert_eq!(best_choice(&choices(0.6, 0.7), "p"), Some("fair"), "the fairest");
        assert_eq!(best_choice(&choices(0.695, 0.7), "p"), Some("fast"), "as fair");
        assert_eq!(best_choice(&choices(0.6, 0.95), "q"), None);
        let mut void = choices(0.95, 0.95);
        void[0].void = Some("late".to_owned());
        assert_eq!(best_choice(&void, "p"), Some("fair"));
        let alone =
            [record("a", 1, 0.8, None), record("b", 1, 0.7, None), record("b", 2, 0.95, None)];
        assert_eq!(best_choice(&alone, "p"), Some("b"), "medians: 0.8 and 0.825");
    }

    #[test]
    fn regret_pairs_repetitions() {
        let mut runs = vec![
            record("tuned", 1, 0.9, None),
            record("best", 1, 1.0, None),
            record("tuned", 2, 0.4, None),
            record("best", 2, 0.5, None),
            record("tuned", 3, 0.1, None),
            record("best", 3, 0.5, None),
            record("tuned", 4, 0.9, None),
        ];
        runs[4].void = Some("late".to_owned());
        let best = BTreeMap::from([("p".to_owned(), "best".to_owned())]);
        let found = regrets(&runs, &best);
        let [one] = &found[..] else { panic!("{found:?}") };
        assert!((one.regret - 0.15).abs() < 1e-9, "0.1 and 0.2: {one:?}");
        assert_eq!((one.pairs, one.voids), (2, 1), "the fourth has no partner");
        assert!(one.interval.0 >= 0.1 - 1e-9 && one.interval.1 <= 0.2 + 1e-9, "{one:?}");
    }

    #[test]
    fn interval_narrows_with_repetitions() {
        let of = |count: usize| -> Vec<f64> { (0..count).map(|n| (n % 5) as f64).collect() };
        let width = |count: usize| {
            let (low, high) = bootstrap(&of(count));
            high - low
        };
        assert!(width(5) > width(500), "{} {}", width(5), width(500));
        assert_eq!(bootstrap(&[0.3]), (0.3, 0.3));
    }
}
