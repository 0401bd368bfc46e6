//! Contents of a report: the verdict, the copied data, the course of the path with its decisions,
//! and the time that the threads of both sides spent per stage.

use super::origin::Origin;
use super::record::Record;
use crate::output::{byte_rate, decision_text, printable_text};
use bankfull::{BufferLimit, Error, Route, Sample, StageTimes, Summary, TuningDecision};
use bankfull_chart::{Axis, Chart, LineChart, Mark, Page, Section, Series, Table, Unit};
use std::path::PathBuf;
use std::time::Duration;

/// Minimum interval between points of a rate curve. (chosen: below it, bursts show)
const MIN_POINT_INTERVAL: Duration = Duration::from_millis(250);

/// Name of a stage, and its time.
type Stage = (&'static str, fn(&StageTimes) -> Duration);

/// States of the controller: name in decisions, label, and meaning.
const STATES: [(&str, &str, &str); 6] = [
    ("probing", "probing", "waits for the packet trains that measure the link"),
    (
        "start-bounded",
        "limited start",
        "the first RTTs, with a limit just below the estimated capacity of the link",
    ),
    ("start-open", "unlimited start", "the first RTTs without an estimate: no limit"),
    ("growing", "growing", "the limit holds the copy back and is raised step by step"),
    ("limited", "limited", "the path is full: window and pacing keep it full without a queue"),
    (
        "disabled",
        "disabled",
        "window and pacing are left to TCP for the given reason, for example a short or congested \
         path",
    ),
];

/// Bottlenecks: stable name and verdict.
const VERDICTS: [(&str, &str); 7] = [
    ("network", "The network was the limit."),
    ("max-rate", "The rate limit (--max-rate, --schedule) was the limit."),
    ("buffer", "The window size (--buffer) was the limit."),
    ("destination-write", "Writing the destination was the limit."),
    ("source-read", "Reading the source was the limit."),
    ("sender-cpu", "The CPU of the sender was the limit."),
    ("receiver-cpu", "The CPU of the receiver was the limit."),
];

/// Builds the page.
pub(super) fn page(
    title: &str,
    origin: &Origin,
    record: &Record,
    result: &Result<Summary, Error>,
) -> Page {
    let mut page = Page::new(title);
    page.subtitle = match result {
        Ok(summary) => format!("{}{}", verdict(summary), gist(record, summary)),
        Err(error) => format!("The copy failed: {}", printable_text(&error.to_string())),
    };
    page.sections.push(overview(origin, record, result));
    page.sections.extend(failed_files(record));
    page.sections.extend(course(record));
    page.sections.extend(stages(record));
    page
}

/// Formats the bottleneck as a sentence; empty if it is unknown.
fn verdict(summary: &Summary) -> String {
    let verdict = VERDICTS.iter().find(|(name, _)| *name == summary.limited_by);
    verdict.filter(|_| summary.files > 0).map_or_else(String::new, |(_, text)| format!("{text} "))
}

/// Formats the most frequent bottleneck of several copies as a sentence; empty if all are unknown.
///
/// `all` is the number of sources, of which some may have failed.
pub(super) fn common_verdict<'s>(
    all: usize,
    copies: impl Iterator<Item = &'s Summary> + Clone,
) -> String {
    let limited = |name: &str| {
        copies.clone().filter(|copy| copy.files > 0 && copy.limited_by == name).count()
    };
    let counted = VERDICTS.iter().map(|(name, text)| (limited(name), *text));
    // Of equal ones, the first.
    let most = counted.rev().max_by_key(|(count, _)| *count).filter(|(count, _)| *count > 0);
    let Some((count, text)) = most else { return String::new() };
    match all == count {
        true => format!("{text} "),
        false => format!("{} of {count} of {all} sources. ", text.trim_end_matches('.')),
    }
}

/// Formats size, time and goodput.
fn gist(record: &Record, summary: &Summary) -> String {
    let time = Unit::Seconds.format(summary.elapsed.as_secs_f64());
    let gist = format!("{} in {time}: {}", summary.bytes, goodput(record, summary));
    match summary.failed_files {
        0 => gist,
        failed => format!("{gist}, {failed} failed"),
    }
}

/// Formats the goodput; in bytes per second within a host.
fn goodput(record: &Record, summary: &Summary) -> String {
    match record.route {
        Some(Route::Local) => byte_rate(summary.goodput()),
        _ => summary.goodput().to_string(),
    }
}

/// Shows the figures of the whole copy.
fn overview(origin: &Origin, record: &Record, result: &Result<Summary, Error>) -> Section {
    let mut section = Section::new("Summary");
    section.facts = origin_facts(origin);
    let mut fact = |name: &str, value: String| section.facts.push((name.to_owned(), value));
    if let Ok(summary) = result {
        fact("files", Unit::Count.format(summary.files as f64));
        fact("size", summary.bytes.to_string());
        fact("goodput, whole command", goodput(record, summary));
        if summary.files > 0 && !summary.limited_by_text.is_empty() {
            fact("limited by", summary.limited_by_text.clone());
        }
        if summary.skipped_files > 0 {
            let files = Unit::Count.format(summary.skipped_files as f64);
            fact("skipped, unchanged", format!("{files} files, {}", summary.skipped_bytes));
        }
        if summary.left_out_files > 0 {
            let files = Unit::Count.format(summary.left_out_files as f64);
            fact("left out", format!("{files} files, {}", summary.left_out_bytes));
        }
        if summary.resumed_bytes.0 > 0 {
            fact("resumed from an earlier run", summary.resumed_bytes.to_string());
        }
        fact("retransmits", Unit::Count.format(summary.retransmits as f64));
        fact("data streams", summary.streams.to_string());
    }
    if let (Err(_), Some(progress)) = (result, record.progress.kept.last()) {
        fact("size copied before the failure", progress.bytes_done.to_string());
        fact("files copied before the failure", Unit::Count.format(progress.files_done as f64));
        fact("failed after", Unit::Seconds.format(progress.elapsed.as_secs_f64()));
    }
    section.facts.extend(route_facts(record));
    let mut fact = |name: &str, value: String| section.facts.push((name.to_owned(), value));
    let min_rtt = record.samples.kept.iter().flat_map(|sample| &sample.rtts).min();
    if let Some(rtt) = min_rtt {
        fact("min RTT", Unit::Seconds.format(rtt.as_secs_f64()));
    }
    section.text = record.warnings.kept.iter().map(|warning| printable_text(warning)).collect();
    section
}

/// Returns time, place, command and version.
pub(super) fn origin_facts(origin: &Origin) -> Vec<(String, String)> {
    let all = [
        ("date", &*origin.date),
        ("host", &origin.host),
        ("command", &origin.command),
        ("version", env!("CARGO_PKG_VERSION")),
    ];
    all.map(|(name, value)| (name.to_owned(), printable_text(value))).to_vec()
}

/// Returns the route of the data and the peer's software.
pub(super) fn route_facts(record: &Record) -> Vec<(String, String)> {
    let Some(route) = record.route else { return Vec::new() };
    let encrypted = if record.encrypted { "encrypted" } else { "not encrypted" };
    let route = format!("{}, {encrypted}", route_name(route));
    vec![("route".to_owned(), route), ("peer".to_owned(), printable_text(&record.software))]
}

fn route_name(route: Route) -> &'static str {
    match route {
        Route::Local => "within this host",
        Route::Daemon => "to a daemon",
        Route::Quic => "to a daemon over QUIC",
        Route::Ssh => "over ssh, data on separate connections",
        Route::SshOnly => "over ssh, including the data",
        _ => "other",
    }
}

/// Lists the failed files with their reasons.
pub(super) fn failed_files(record: &Record) -> Option<Section> {
    if record.failed.kept.is_empty() {
        return None;
    }
    let mut section = Section::new("Failed files");
    let row = |(path, why): &(PathBuf, String)| {
        vec![printable_text(&path.to_string_lossy()), printable_text(why)]
    };
    let head = ["file", "reason"].map(str::to_owned).to_vec();
    let rows = record.failed.kept.iter().map(row).collect();
    let caption = with_dropped("In the order of failure", record.failed.dropped);
    section.tables.push(Table { head, rows, caption });
    Some(section)
}

/// Shows the received data over time, for a copy without samples.
fn arrivals(record: &Record) -> Option<Section> {
    let mut section = Section::new("Course of the copy");
    let moved = record.progress.kept.iter().map(|p| (p.elapsed, p.bytes_moved.0));
    let (unit, factor) = match record.route {
        Some(Route::Local) => (Unit::BytesPerSec, 0.125),
        _ => (Unit::BitsPerSec, 1.0),
    };
    let moved = rates(moved).into_iter().map(|(at, rate)| (at, rate * factor)).collect();
    section.charts.push(chart("Goodput", unit, vec![("goodput", moved)])?);
    Some(section)
}

/// Shows the course of the copy over time.
pub(super) fn course(record: &Record) -> Option<Section> {
    let samples = &record.samples.kept;
    if samples.is_empty() {
        return arrivals(record);
    }
    let mut section = Section::new("Path over time");
    if !record.decisions.kept.is_empty() || !record.buffer_limits.kept.is_empty() {
        section.text.push(
            "Numbered flags mark decisions of the receiver; the lists below the charts give their \
             reasons."
                .to_owned(),
        );
        section.facts = met_states(record);
    }
    let carried = rates(samples.iter().map(|sample| (sample.at, sample.carried.0)));
    let mut throughput = chart(
        "Rate of the data streams, with encryption and framing",
        Unit::BitsPerSec,
        vec![("rate", carried)],
    );
    if let Some(Chart::Line(chart)) = &mut throughput {
        let pace = curve(samples, |sample| Some(sample.pacing?.bits_per_sec() as f64));
        if is_line(&pace) {
            chart.series.push(Series::step("pacing rate", pace));
        }
        let mark =
            |decision: &TuningDecision| Mark::new(decision.at.as_secs_f64(), &text(decision));
        chart.marks = record.decisions.kept.iter().map(mark).collect();
    }
    section.charts.extend(throughput);
    let max_rtt = curve(samples, |sample| Some(sample.rtts.iter().max()?.as_secs_f64()));
    let min_rtt = curve(samples, |sample| Some(sample.rtts.iter().min()?.as_secs_f64()));
    let rtts = vec![("maximum in 100 ms", max_rtt), ("minimum", min_rtt)];
    section.charts.extend(chart("RTT", Unit::Seconds, rtts));
    let held = curve(samples, |sample| Some(sample.window?.0 as f64));
    let granted = curve(samples, |sample| Some(sample.granted?.0 as f64));
    let windows = vec![("requested", held), ("granted", granted)];
    section.charts.extend(chart("Receive windows, sum", Unit::Bytes, windows));
    let peak = curve(samples, |sample| Some(sample.buffered_peak?.0 as f64));
    let limit = curve(samples, |sample| Some(sample.buffer_limit?.0 as f64));
    let buffer = vec![("peak", peak), ("limit", limit)];
    let mut buffered = chart("Buffered for the disk", Unit::Bytes, buffer);
    if let Some(Chart::Line(chart)) = &mut buffered {
        let mark = |limit: &BufferLimit| {
            let text = format!("{}: {}", limit.size, printable_text(&limit.reason));
            Mark::new(limit.at.as_secs_f64(), &text)
        };
        chart.marks = record.buffer_limits.kept.iter().map(mark).collect();
    }
    section.charts.extend(buffered);
    let retransmits = curve(samples, |sample| Some(sample.retransmits? as f64));
    section.charts.extend(chart("Retransmits so far", Unit::Count, vec![("", retransmits)]));
    // The samples of QUIC have no such shares.
    if record.route != Some(Route::Quic) {
        section.charts.extend(chart(
            "Limited by an endpoint, share of samples",
            Unit::Percent,
            vec![
                (
                    "sender had nothing to send",
                    curve(samples, |sample| Some(sample.app_limited_share)),
                ),
                ("receiver did not read", curve(samples, |s| Some(s.receiver_limited_share))),
            ],
        ));
    }
    Some(section)
}

/// Draws curves over time; `None` if there is nothing to see: no line, or counts that stay 0.
pub(super) fn chart(
    title: &str,
    unit: Unit,
    curves: Vec<(&str, Vec<(f64, f64)>)>,
) -> Option<Chart> {
    let is_flat = |points: &[(f64, f64)]| !points.iter().any(|(_, y)| y.is_finite() && *y != 0.0);
    let is_seen = |points: &[(f64, f64)]| match unit {
        Unit::Count | Unit::Percent => !is_flat(points),
        _ => is_line(points),
    };
    let curves: Vec<_> = curves.into_iter().filter(|(_, points)| is_seen(points)).collect();
    let series = curves.into_iter().map(|(name, points)| Series::line(name, points));
    let series: Vec<Series> = series.collect();
    let (x, y) = (Axis::new("time", Unit::Seconds), Axis::new(axis_name(unit), unit));
    (!series.is_empty())
        .then(|| LineChart { title: title.to_owned(), x, y, series, marks: Vec::new() }.into())
}

/// Formats a decision with its values and reason.
pub(super) fn text(decision: &TuningDecision) -> String {
    let label =
        STATES.iter().find(|(name, ..)| *name == decision.state).map(|(_, label, _)| *label);
    decision_text(decision, label.unwrap_or(&decision.state))
}

/// Explains the states that occur in the decisions.
fn met_states(record: &Record) -> Vec<(String, String)> {
    let is_met = |name: &str| record.decisions.kept.iter().any(|decision| decision.state == name);
    let met = STATES.iter().filter(|(name, ..)| is_met(name));
    let mut facts: Vec<_> =
        met.map(|(_, label, meaning)| (label.to_string(), meaning.to_string())).collect();
    let dropped = record.decisions.dropped + record.buffer_limits.dropped;
    if dropped > 0 {
        facts.push(("earlier decisions left out".to_owned(), dropped.to_string()));
    }
    facts
}

/// Returns the label of the vertical axis; the title names the quantity.
fn axis_name(unit: Unit) -> &'static str {
    match unit {
        Unit::BitsPerSec => "rate",
        Unit::Bytes => "bytes",
        Unit::Seconds => "time",
        Unit::Percent => "share",
        _ => "number",
    }
}

/// True if the points make a line: there are at least two.
fn is_line(points: &[(f64, f64)]) -> bool {
    points.iter().filter(|(_, y)| y.is_finite()).nth(1).is_some()
}

/// Returns a figure of each sample; a missing one breaks the line.
pub(super) fn curve(samples: &[Sample], of: impl Fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
    let point = |sample: &Sample| (sample.at.as_secs_f64(), of(sample).unwrap_or(f64::NAN));
    samples.iter().map(point).collect()
}

/// Converts a growing count of bytes to a rate in bit/s, over at least [`MIN_POINT_INTERVAL`].
pub(super) fn rates(counts: impl Iterator<Item = (Duration, u64)>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let (mut begin, mut last) = ((Duration::ZERO, 0), (Duration::ZERO, 0));
    let point = |begin: (Duration, u64), end: (Duration, u64)| {
        let bits = end.1.saturating_sub(begin.1) as f64 * 8.0;
        (end.0.as_secs_f64(), bits / end.0.saturating_sub(begin.0).as_secs_f64())
    };
    let mut counts = counts.peekable();
    while let Some((at, count)) = counts.next() {
        if at.saturating_sub(last.0) >= MIN_POINT_INTERVAL {
            points.push(point(last, (at, count)));
            (begin, last) = (last, (at, count));
        } else if counts.peek().is_none() && at > begin.0 && points.pop().is_some() {
            // The rest is too short for a point of its own.
            points.push(point(begin, (at, count)));
        }
    }
    points
}

/// Shows the time that the threads of both sides spent per stage.
pub(super) fn stages(record: &Record) -> Option<Section> {
    let samples = &record.samples.kept;
    let mut section = Section::new("Time per stage");
    for (title, of) in [
        ("Sender", (|sample| sample.sender) as fn(&Sample) -> StageTimes),
        ("Receiver", |sample| sample.receiver),
    ] {
        let spent = shares(samples, of);
        section.charts.extend(chart(title, Unit::Percent, spent));
    }
    section.text.push(
        "Share of the time of all data stream threads. On the network, a sender waits for buffer \
         space and a receiver for data: the side with a small share is the bottleneck."
            .to_owned(),
    );
    (!section.charts.is_empty()).then_some(section)
}

/// Returns the share of each stage between samples, without stages that took no time.
fn shares(
    samples: &[Sample],
    of: fn(&Sample) -> StageTimes,
) -> Vec<(&'static str, Vec<(f64, f64)>)> {
    let stages: [Stage; 5] = [
        ("reading", |times| times.read),
        ("computing", |times| times.compute),
        ("network", |times| times.network),
        ("writing", |times| times.write),
        ("idle", |times| times.idle),
    ];
    let last = samples.last().map(of).unwrap_or_default();
    let used = stages.into_iter().filter(|(_, stage)| !stage(&last).is_zero());
    used.map(|(name, stage)| {
        let mut points = Vec::new();
        let mut before = (Duration::ZERO, StageTimes::default());
        for sample in samples {
            let now = of(sample);
            let whole = now.total().saturating_sub(before.1.total());
            if sample.at.saturating_sub(before.0) >= MIN_POINT_INTERVAL && !whole.is_zero() {
                let part = stage(&now).saturating_sub(stage(&before.1));
                points.push((sample.at.as_secs_f64(), part.as_secs_f64() / whole.as_secs_f64()));
                before = (sample.at, now);
            }
        }
        (name, points)
    })
    .collect()
}

pub(super) fn with_dropped(caption: &str, dropped: u64) -> String {
    match dropped {
        0 => caption.to_owned(),
        _ => format!("{caption}; {dropped} earlier ones are left out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_rest_belongs_to_last_rate() {
        let count = |(ms, bytes)| (Duration::from_millis(ms), bytes);
        let counts = [(100, 10), (300, 300_000), (600, 600_000), (650, 825_000)].map(count);
        assert_eq!(rates(counts.into_iter()), [(0.3, 8e6), (0.65, 12e6)]);
        assert_eq!(rates(counts[..1].iter().copied()), []);
    }

    #[test]
    fn chart_without_anything_to_see_is_left_out() {
        let drawn = |unit, points: &[(f64, f64)]| chart("t", unit, vec![("c", points.to_vec())]);
        assert!(drawn(Unit::Count, &[(0.0, 0.0), (1.0, 0.0)]).is_none());
        assert!(drawn(Unit::Count, &[(0.0, 0.0), (1.0, 2.0)]).is_some());
        assert!(drawn(Unit::Bytes, &[(0.0, 0.0), (1.0, 0.0)]).is_some());
        assert!(drawn(Unit::Bytes, &[(0.0, 1.0), (1.0, f64::NAN)]).is_none());
    }

    #[test]
    fn common_verdict_is_that_of_most_copies() {
        let copy = |limited_by| {
            let mut copy = Summary::default();
            (copy.limited_by, copy.files) = (limited_by, 1);
            copy
        };
        let [net, disk] = [copy("network"), copy("destination-write")];
        let of = |all: &[&Summary]| common_verdict(all.len(), all.iter().copied());
        assert_eq!(of(&[&net, &net]), "The network was the limit. ");
        let most = "Writing the destination was the limit of 2 of 3 sources. ";
        assert_eq!(of(&[&net, &disk, &disk]), most);
        assert_eq!(of(&[&copy("none")]), "");
    }
}
