//! Queueing disciplines of the model beside those of a kernel: the figures of `docs/lab.md`.
//!
//! Each case runs as in `experiments/conformance/kernel-queues.sh`: the same rates, sizes and
//! arrival times, and medians of three runs (seeds 1 to 3). Case `check` is left out, since it is
//! about the emulated machine, and netem's normal distribution, which the model lacks.
//!
//! To update the snapshot after an intended change:
//! `BANKFULL_SIM_BLESS=1 cargo test -p bankfull-sim kernel_queues`.

mod cases;
mod datagrams;
mod document;
mod tolerance;

use crate::snapshot::assert_snapshot;
use cases::{Figures, figures};
use std::fmt::Write as _;
use std::sync::LazyLock;
use tolerance::tolerance;

/// Figures of the kernel.
const KERNEL: &str = include_str!("../../../../experiments/conformance/kernel-6.1.tsv");

/// All figures of the kernel, and the model's.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(rows);

/// Figure of the kernel, and that of the model.
#[derive(Debug)]
struct Row {
    case: &'static str,
    parameters: &'static str,
    figure: &'static str,
    unit: &'static str,
    kernel: f64,
    /// Median of the kernel as in the file.
    kernel_text: &'static str,
    /// Median of the model; `None` if it is not modelled.
    model: Option<f64>,
}

impl Row {
    /// Returns a figure of the model with the digits of the kernel's.
    fn model_text(&self) -> String {
        let digits = self.kernel_text.split_once('.').map_or(0, |(_, digits)| digits.len());
        self.model.map_or("–".to_owned(), |model| format!("{model:.digits$}"))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns all figures of the kernel, and the model's.
fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut runs = Vec::new();
    for line in lines() {
        let cells: Vec<&'static str> = line.split('\t').collect();
        let [case, parameters, figure, unit, kernel_text, _, _] = cells[..] else { continue };
        let Ok(kernel) = kernel_text.parse() else { continue };
        if rows.last().is_none_or(|row| row.parameters != parameters || row.case != case) {
            runs = (1..=3).filter_map(|seed| figures(case, parameters, seed)).collect();
        }
        let found =
            |run: &Figures| run.iter().find(|(name, _)| name == figure).map(|found| found.1);
        let values: Vec<f64> = runs.iter().filter_map(found).collect();
        let model = (!values.is_empty()).then(|| median(values));
        rows.push(Row { case, parameters, figure, unit, kernel, kernel_text, model });
    }
    rows
}

/// Returns the lines of the kernel's figures that are about disciplines.
fn lines() -> impl Iterator<Item = &'static str> {
    let is_row = |line: &&str| !["#", "case\t", "check\t"].iter().any(|p| line.starts_with(p));
    KERNEL.lines().filter(is_row)
}

fn table(rows: &[Row]) -> Result<String, std::fmt::Error> {
    let mut text = String::from(
        "Queueing disciplines of Linux 6.1 and of the model, medians of three runs. PIE updates its\n\
         probability every 20 ms, as in that kernel; slots of netem are aggregation every 6 ms.\n",
    );
    let mut last = None;
    for row in rows {
        if last != Some((row.case, row.parameters)) {
            write!(text, "\n{}, {}\n", row.case, row.parameters)?;
            writeln!(text, "    {:30}{:>12}{:>12}", "figure", "kernel", "model")?;
            last = Some((row.case, row.parameters));
        }
        let figure = format!("{}, {}", row.figure, row.unit);
        writeln!(text, "    {figure:30}{:>12}{:>12}", row.kernel_text, row.model_text())?;
    }
    Ok(text)
}

#[test]
fn kernel_queue_figures_match_snapshot() {
    let found = table(&ROWS).unwrap();
    assert_snapshot(&found, include_str!("../snapshots/kernel-queues.txt"), "kernel-queues.txt");
}

#[test]
fn queues_are_within_tolerance_of_kernel() {
    assert_eq!(ROWS.len(), lines().count());
    let mut off = Vec::new();
    for row in ROWS.iter() {
        let allowed = tolerance(row.case, row.figure, row.unit);
        let is_permitted = match (row.model, allowed) {
            (Some(model), Some(allowed)) => allowed.permits(row.kernel, model),
            (model, _) => model.is_none() && row.parameters.contains("distribution normal"),
        };
        if !is_permitted {
            off.push(format!("{row:?}, {allowed:?}"));
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}

#[test]
fn document_lists_figures_of_kernel_and_model() {
    document::assert_listed(&ROWS);
}
