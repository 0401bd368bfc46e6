//! Comparison with the tables of `docs/lab.md`.

use super::Row;

const DOCUMENT: &str = include_str!("../../../../../docs/lab.md");

const HEADING: &str = "### Against a kernel's queueing disciplines";

/// Cases of the document: name, case, and a part of its parameters.
const CASES: [(&str, &str, &str); 23] = [
    ("fifo, 50 kB, datagrams", "fifo", ""),
    ("codel, datagrams", "codel", "10 Mbit/s"),
    ("codel, CUBIC", "codel", "40 ms;"),
    ("codel ecn, CUBIC", "codel", "ecn;"),
    ("fq_codel, CUBIC beside datagrams", "fq_codel", "datagrams"),
    ("fq_codel, CUBIC at 20 ms and 80 ms", "fq_codel", "80 ms"),
    ("pie, datagrams", "pie", "10 Mbit/s, noecn"),
    ("pie, CUBIC", "pie", "40 ms, noecn"),
    ("pie ecn, datagrams", "pie", "10 Mbit/s, ecn"),
    ("pie ecn, CUBIC", "pie", "40 ms, ecn"),
    ("tbf, burst 64 kB, 100 datagrams", "tbf", "back to back"),
    ("tbf, 50 kB, CUBIC", "tbf", "40 ms"),
    ("tbf, 50 kB, BBR", "tbf", "40 ms"),
    ("police, load 0.95", "police", "0.95"),
    ("police, load 1.25", "police", "1.25"),
    ("police, CUBIC", "police", "40 ms"),
    ("police, BBR", "police", "40 ms"),
    ("`delay 20ms 5ms`", "netem", "delay 20ms 5ms;"),
    ("`delay 20ms 5ms distribution normal`", "netem", "normal"),
    ("`delay 10ms reorder 1%`", "netem", "reorder"),
    ("`duplicate 1%`", "netem", "duplicate"),
    ("`loss 1%`", "netem", "loss"),
    ("`slot 5ms 5ms`", "netem", "slot"),
];

/// Returns the row of a figure; names of figures lack the algorithm in the document.
fn find<'a>(rows: &'a [Row], name: &str, figure: &str) -> Option<&'a Row> {
    let &(_, case, part) = CASES.iter().find(|(listed, ..)| *listed == name)?;
    let figure = figure.replace('–', "-");
    let algorithm = if name.ends_with("BBR") { ", bbr" } else { ", cubic" };
    let is_same = |row: &&Row| {
        row.case == case
            && row.parameters.contains(part)
            && (row.figure == figure || row.figure == format!("{figure}{algorithm}"))
    };
    rows.iter().find(is_same)
}

/// Returns a figure in the form of another: with its digits and its unit.
fn in_form_of(form: &str, value: f64) -> String {
    let form = form.split(" (").next().unwrap_or(form);
    let (number, unit) = form.split_once(' ').map_or((form, ""), |(number, unit)| (number, unit));
    let digits = number.split_once('.').map_or(0, |(_, digits)| digits.len());
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

/// Compares the columns "kernel" and "model" of the tables.
pub(super) fn assert_listed(rows: &[Row]) {
    let section = DOCUMENT.split_once(HEADING).map_or("", |(_, after)| after);
    let section = section.split_once("\n### ").map_or(section, |(section, _)| section);
    let (mut name, mut cases, mut off) = ("", 0, Vec::new());
    for line in
        section.lines().filter(|line| line.starts_with("| ") && !line.contains("| figure |"))
    {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let &[case, figure, kernel, theory, model] = &cells[..] else {
            off.push(line.to_owned());
            continue;
        };
        if case != "the same" {
            (name, cases) = (case, cases + 1);
        }
        let Some(row) = find(rows, name, figure) else {
            off.push(format!("unknown: {line}"));
            continue;
        };
        let measured = in_form_of(kernel, row.kernel);
        let found = row.model.map_or("–".to_owned(), |found| in_form_of(kernel, found));
        if model != found || !kernel.starts_with(&measured) {
            off.push(format!("| {case} | {figure} | {measured} | {theory} | {found} |"));
        }
    }
    assert_eq!(cases, CASES.len(), "docs/lab.md lists other cases");
    assert!(off.is_empty(), "docs/lab.md lacks these rows:\n{}", off.join("\n"));
}
