//! `bankfull-lab predict`: fits models of throughput over the number of streams to few samples, and
//! compares them with measurements.

use crate::base::error::{LabError, Result};
use crate::model::results::Summary;
use bankfull_control::Rate;
use bankfull_control::streams::model::Dinda;
use bankfull_control::streams::{Curve, ExpSelection, Model, Sample, best_streams};
use clap::Args;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Axis of the curves.
const STREAMS_AXIS: &str = "run.streams";

/// Flags of `bankfull-lab predict`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Files written by `run --json`, with a sweep of run.streams
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Median throughput in bit/s by number of streams.
type Measured = BTreeMap<u32, f64>;

/// Share of the best below which the last number counts as a decline. (chosen: smaller differences
/// occur between runs)
const DECLINE_SHARE: f64 = 0.95;

/// Quality of the prediction of a curve. Errors are relative to the measured throughput, averaged
/// over all numbers; `None` if a model does not fit.
#[derive(Debug, PartialEq)]
struct Prediction {
    samples: usize,
    /// Number of streams that ExpSelection would have sampled next, but that was not measured.
    missing: Option<u32>,
    chosen: u32,
    best_streams: u32,
    /// Throughput at the chosen number, relative to the best.
    share: f64,
    declines: bool,
    dinda: Option<f64>,
    newton: Option<f64>,
    full: Option<f64>,
    bestcmb: Option<f64>,
}

/// Prints a table of predictions, and a summary of the declining curves.
///
/// # Errors
/// If a file cannot be read, or has no such curves.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let head = "| curve | samples | chosen, best n | share of best | declines | error: Dinda | \
                Newton | second order | BestCmb |";
    // A closed standard output is not a failure.
    let _ = writeln!(out, "{head}\n|---|---|---|---|---|---|---|---|---|");
    let mut predictions = Vec::new();
    for file in &flags.files {
        let text = fs::read_to_string(file)
            .map_err(|e| LabError::io(format!("cannot read {}", file.display()), e))?;
        let report: Value = serde_json::from_str(&text)
            .map_err(|e| LabError::Usage(format!("{}: {e}", file.display())))?;
        let curves = curves(&report);
        if curves.is_empty() {
            let text = format!("{}: no scenario sweeps {STREAMS_AXIS}", file.display());
            return Err(LabError::Usage(text));
        }
        for (name, measured) in &curves {
            let Some(prediction) = predict(measured) else { continue };
            let _ = writeln!(out, "{}", row(name, &prediction));
            if let Some(missing) = prediction.missing {
                let text = "the next sample was not measured; number of streams:";
                let _ = writeln!(std::io::stderr(), "{name}: {text} {missing}");
            }
            predictions.push(prediction);
        }
    }
    let _ = writeln!(out, "\n{}", summarize(&predictions));
    Ok(ExitCode::SUCCESS)
}

fn row(name: &str, prediction: &Prediction) -> String {
    let percent = |error: Option<f64>| {
        error.map_or_else(|| "no fit".to_owned(), |error| format!("{:.1} %", error * 100.0))
    };
    let Prediction { samples, chosen, best_streams, share, declines, .. } = prediction;
    let declines = if *declines { "yes" } else { "" };
    let errors = [prediction.dinda, prediction.newton, prediction.full, prediction.bestcmb];
    let errors = errors.map(percent).join(" | ");
    format!(
        "| {name} | {samples} | {chosen}, {best_streams} | {share:.2} | {declines} | {errors} |"
    )
}

/// Mean errors over the declining curves that both BestCmb and Dinda fit.
fn summarize(all: &[Prediction]) -> String {
    let falling = all.iter().filter(|prediction| prediction.declines);
    let errors: Vec<(f64, f64)> =
        falling.clone().filter_map(|one| Some((one.bestcmb?, one.dinda?))).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| {
        errors.iter().map(of).sum::<f64>() / errors.len() as f64 * 100.0
    };
    let (declines, all) = (falling.count(), all.len());
    if errors.is_empty() {
        return format!(
            "{declines} of {all} curves decline; no model with a peak fits any of them."
        );
    }
    format!(
        "{declines} of {all} curves decline; over the {} of them that a model with a peak fits, \
         the mean error of BestCmb is {:.1} %, of Dinda {:.1} %.",
        errors.len(),
        mean(|error| error.0),
        mean(|error| error.1)
    )
}

/// Curves of a report, by scenario, contender and further axes.
fn curves(report: &Value) -> BTreeMap<String, Measured> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut curves: BTreeMap<String, Measured> = BTreeMap::new();
    for scenario in list(report, "scenarios") {
        let axes = list(&scenario, "axes");
        // Tables shorten the names of axes.
        let is_axis = |axis: &Value| axis.as_str().is_some_and(|name| STREAMS_AXIS.ends_with(name));
        let Some(along) = axes.iter().position(is_axis) else { continue };
        for condition in list(&scenario, "conditions") {
            let mut values = list(&condition, "values");
            if along >= values.len() {
                continue;
            }
            let streams = values.remove(along).as_str().and_then(|n| n.parse::<u32>().ok());
            let others: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            for contender in list(&condition, "contenders") {
                let goodput = |run: &Value| {
                    let is_void = !run["void"].is_null() || !run["failed"].is_null();
                    run["metrics"]["goodput_bps"].as_f64().filter(|_| !is_void)
                };
                let runs: Vec<f64> = list(&contender, "runs").iter().filter_map(goodput).collect();
                let median = Summary::of(runs).map(|spread| spread.median);
                let words = [scenario["name"].as_str(), contender["name"].as_str()];
                let name = words.into_iter().flatten().chain(others.iter().copied());
                let name = name.collect::<Vec<_>>().join(" ");
                if let (Some(streams), Some(median)) = (streams, median) {
                    curves.entry(name).or_default().insert(streams, median);
                }
            }
        }
    }
    curves
}

/// Predicts a curve from ExpSelection's samples; `None` for fewer than three numbers.
fn predict(measured: &Measured) -> Option<Prediction> {
    let (&first, _) = measured.first_key_value()?;
    let (&most, _) = measured.last_key_value()?;
    let mut selection = ExpSelection::new(first, most);
    let mut missing = None;
    while let (Some(streams), None) = (selection.next(), missing) {
        match measured.get(&streams) {
            Some(&bps) => selection.record(Sample { streams, rate: Rate::from_bits_per_sec(bps) }),
            None => missing = Some(streams),
        }
    }
    let samples = selection.samples();
    let highest = measured.values().copied().fold(0.0, f64::max);
    let (&best_n, _) = measured.iter().find(|(_, bps)| **bps >= highest)?;
    let (_, &last) = measured.last_key_value()?;
    let chosen = best_streams(samples, most).filter(|_| measured.len() > 2)?.streams;
    let error = |rate: &dyn Fn(u32) -> f64| {
        let off = |(&n, &bps): (&u32, &f64)| (rate(n) - bps).abs() / bps;
        measured.iter().map(off).sum::<f64>() / measured.len() as f64
    };
    let of = |curve: Option<Curve>| curve.map(|curve| error(&|n| curve.rate(n)));
    let dinda = samples.first().zip(samples.last()).and_then(|(a, b)| Dinda::fit([*a, *b]).ok());
    let dinda_rate = |fitted: Dinda, n: u32| fitted.rate(f64::from(n)).bits_per_sec() as f64;
    Some(Prediction {
        samples: samples.len(),
        missing,
        chosen,
        best_streams: best_n,
        share: interpolate(measured, chosen) / highest,
        declines: last < highest * DECLINE_SHARE,
        dinda: dinda.map(|fitted| error(&|n| dinda_rate(fitted, n))),
        newton: of(Curve::of_model(samples, Model::Newton)),
        full: of(Curve::of_model(samples, Model::FullSecondOrder)),
        bestcmb: of(Curve::of(samples)),
    })
}

/// Throughput at a number of streams, interpolated between measured numbers.
fn interpolate(measured: &Measured, streams: u32) -> f64 {
    let below = measured.range(..=streams).next_back();
    let above = measured.range(streams..).next();
    match (below, above) {
        (Some((&n, &a)), Some((&m, &b))) if m > n => {
            a + (b - a) * f64::from(streams - n) / f64::from(m - n)
        }
        (Some((_, &bps)), _) | (None, Some((_, &bps))) => bps,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(carries: impl Fn(f64) -> f64) -> Value {
        let condition = |n: u32| {
            let run = |share: f64| {
                serde_json::json!({
                    "void": null, "failed": null,
                    "metrics": { "goodput_bps": carries(f64::from(n)) * share },
                })
            };
            let void = serde_json::json!({ "void": "late", "metrics": { "goodput_bps": 1.0 } });
            let runs = vec![run(1.0), run(0.9), run(1.1), void];
            serde_json::json!({
                "values": ["16KiB", n.to_string()],
                "contenders": [{ "name": "tcp", "runs": runs }],
            })
        };
        let conditions: Vec<Value> = [1, 2, 4, 8, 12, 16, 32].map(condition).into();
        serde_json::json!({ "scenarios": [
            { "name": "it", "axes": ["window", "streams"], "conditions": conditions },
            { "name": "other", "axes": ["window"], "conditions": [] },
        ] })
    }

    #[test]
    fn model_curve_is_predicted_from_samples() {
        let law = |n: f64| 1e8 * n / (0.02 * n * n - 0.1 * n + 1.0).sqrt();
        let curves = curves(&report(law));
        let (name, measured) = curves.first_key_value().unwrap();
        assert_eq!((curves.len(), name.as_str(), measured.len()), (1, "it tcp 16KiB", 7));
        let predictions = predict(measured).unwrap();
        assert!(
            predictions.bestcmb.unwrap() < 0.01 && predictions.full.unwrap() < 0.01,
            "{predictions:?}"
        );
        assert!(predictions.dinda.unwrap() > 0.05 && predictions.share > 0.95, "{predictions:?}");
        assert!(
            (12..=32).contains(&predictions.best_streams) && predictions.samples <= 6,
            "{predictions:?}"
        );
        assert!(row(name, &predictions).contains("| it tcp 16KiB |"));
        assert!(!predictions.declines && predictions.missing.is_none(), "{predictions:?}");
        let fallen = Prediction { declines: true, ..predict(measured).unwrap() };
        let predictions = summarize(&[predictions, fallen]);
        assert!(
            predictions.starts_with("1 of 2 curves decline; over the 1 of them"),
            "{predictions}"
        );
    }

    #[test]
    fn throughput_is_interpolated_linearly() {
        let measured = Measured::from([(2, 10.0), (4, 30.0)]);
        assert_eq!(
            [1, 2, 3, 4, 9].map(|n| interpolate(&measured, n)),
            [10.0, 10.0, 20.0, 30.0, 30.0]
        );
        assert_eq!(predict(&measured), None);
        let gap = Measured::from([(1, 10.0), (2, 20.0), (3, 25.0), (6, 40.0)]);
        assert_eq!(predict(&gap).unwrap().missing, Some(4));
    }
}
