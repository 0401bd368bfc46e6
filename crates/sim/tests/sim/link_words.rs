//! Words for links and cross traffic beside theory: the figures of `docs/lab.md`.
//!
//! Covers words that a kernel's queueing disciplines lack; `kernel_queues` has the others. The
//! lab's emulator carries its packets over the same links.

mod bench;
mod beside;
mod hops;
mod packets;
mod pseudocode;
mod rates;

use crate::traces;
use std::sync::LazyLock;

const DOCUMENT: &str = include_str!("../../../../docs/lab.md");

const HEADING: &str = "### Words for links against theory";

/// All cases; the model's figures are medians of seeds 1 to 3.
static CASES: LazyLock<Vec<Case>> = LazyLock::new(cases);

/// Setting of a link, and its figures.
#[derive(Debug)]
struct Case {
    name: &'static str,
    figures: Vec<Figure>,
}

/// Figure of theory, and that of the model.
#[derive(Debug)]
struct Figure {
    name: &'static str,
    /// Explanation of the theory.
    note: &'static str,
    unit: &'static str,
    digits: usize,
    theory: f64,
    model: f64,
    /// Permitted difference.
    tolerance: f64,
}

impl Figure {
    /// Returns a figure without a unit that must be that of theory.
    fn new(name: &'static str, note: &'static str, theory: f64, model: f64) -> Self {
        Self { name, note, unit: "", digits: 2, theory, model, tolerance: 1e-6 }
    }

    fn is_close(&self) -> bool {
        (self.model - self.theory).abs() <= self.tolerance
    }

    /// Returns the columns of the document: figure, theory and model.
    fn cells(&self) -> String {
        let &Self { name, note, unit, digits, theory, model, .. } = self;
        let value = |value: f64| {
            let number = format!("{value:.digits$}");
            let unit = if number == "1" { unit.trim_end_matches('s') } else { unit };
            format!("{number} {unit}").trim_end().to_owned()
        };
        let note = if note.is_empty() { String::new() } else { format!(": {note}") };
        format!("{name} | {}{note} | {}", value(theory), value(model))
    }
}

/// Returns the cases for a seed.
fn cases_of(seed: u64) -> Vec<Case> {
    let ms = |time: f64| std::time::Duration::from_secs_f64(time / 1e3);
    let mut cases = vec![
        rates::square(),
        rates::walk(seed),
        rates::steps(),
        rates::silence("`silence:300ms@1s`", None),
        rates::silence("`silence:300ms@1s`, `buffer:50kB`", Some(50_000)),
        packets::reroute("`rtt:70ms@1s`, 40 ms before", ms(50.0)),
        packets::reroute("`rtt:24.5ms@1s`, 40 ms before", ms(4.5)),
        packets::mtu(),
        packets::jitter(seed),
        packets::held_jitter(seed),
        packets::thin_acks(),
        packets::thin_acks_beside_data(),
        packets::fq_codel_ecn(),
    ];
    let names = ["`cellular.trace`", "`cellular-weak.trace`", "`wifi.trace`", "`satellite.trace`"];
    let traces = names.into_iter().zip(traces::FILES);
    cases.extend(traces.map(|(name, text)| rates::replay(name, text, traces::PEAK_MBIT)));
    cases.extend([
        rates::bursts(),
        hops::burst("`--first-hop rate:20mbit` at 10 Mbit/s, 10 packets", 20.0, 10.0),
        hops::burst("`--first-hop rate:10mbit` at 20 Mbit/s, 10 packets", 10.0, 20.0),
        hops::overload("`--first-hop rate:12mbit` at 10 Mbit/s, 3000 packets", 12.0, 10.0),
        hops::overload("`--first-hop rate:10mbit` at 12 Mbit/s, 3000 packets", 10.0, 12.0),
        beside::web(seed),
        beside::video(),
    ]);
    cases
}

fn cases() -> Vec<Case> {
    let runs = [2, 3].map(cases_of);
    let mut cases = cases_of(1);
    for (at, case) in cases.iter_mut().enumerate() {
        for (n, figure) in case.figures.iter_mut().enumerate() {
            let mut values = [figure.model, 0.0, 0.0];
            values[1..].copy_from_slice(&runs.each_ref().map(|run| run[at].figures[n].model));
            values.sort_by(f64::total_cmp);
            figure.model = values[1];
        }
    }
    cases
}

#[test]
fn words_are_within_tolerance_of_theory() {
    let all = CASES.iter().flat_map(|case| case.figures.iter().map(move |f| (case.name, f)));
    let off: Vec<String> =
        all.filter(|(_, figure)| !figure.is_close()).map(|found| format!("{found:?}")).collect();
    assert!(off.is_empty(), "{}", off.join("\n"));
}

#[test]
fn document_lists_figures_of_words() {
    let section = DOCUMENT.split_once(HEADING).map_or("", |(_, after)| after);
    let section = section.split_once("\n### ").map_or(section, |(section, _)| section);
    let is_row = |line: &&str| line.starts_with("| ") && !line.contains("| figure |");
    let listed: Vec<&str> = section.lines().filter(is_row).collect();
    let mut rows = Vec::new();
    for case in CASES.iter() {
        for (n, figure) in case.figures.iter().enumerate() {
            let name = if n == 0 { case.name } else { "the same" };
            rows.push(format!("| {name} | {} |", figure.cells()));
        }
    }
    assert!(listed == rows, "docs/lab.md lacks these rows:\n{}", rows.join("\n"));
}

#[test]
fn pseudocode_of_codel_has_figures_of_document() {
    let rows = DOCUMENT.split_once("| codel, datagrams |").map_or("", |(_, after)| after);
    let theory = |row: &str| row.rsplit('|').nth(2).map(|cell| cell.trim().to_owned());
    let listed: Vec<String> = rows.lines().take(8).filter_map(theory).collect();
    let (lost, delays): (Vec<f64>, Vec<f64>) = packets::codel_windows().into_iter().unzip();
    let found = lost.iter().map(|lost| format!("{lost:.1} %"));
    let found = found.chain(delays.iter().map(|delay| format!("{delay:.0} ms")));
    assert_eq!(listed, found.collect::<Vec<_>>());
}
