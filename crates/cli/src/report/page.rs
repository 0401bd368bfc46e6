//! The page of a report: what was copied, how the path was filled, what was decided and why, and
//! what the threads of both sides spent their time with.

use super::Record;
use crate::output::{byte_rate, printable_text};
use bankfull::{BufferLimit, Error, Route, Sample, StageTimes, Summary};
use bankfull_chart::{Axis, Chart, LineChart, Mark, Page, Section, Series, Table, Unit};
use std::path::PathBuf;
use std::time::Duration;

/// Points of a curve are joined over this time: below it, it shows bursts. (ours)
const JOINED: Duration = Duration::from_millis(250);

/// A stage: its name, and its time.
type Stage = (&'static str, fn(&StageTimes) -> Duration);

/// Every state of the controller, for whoever reads of one.
const STATES: [(&str, &str); 8] = [
    ("probing", "waits for what packet trains tell of the line"),
    (
        "start-bounded",
        "the first round trips, held just below what the line was estimated to carry",
    ),
    ("start-open", "the first round trips without an estimate: nothing is held"),
    ("growing", "what is held limits the copy: a little more is allowed, step by step"),
    ("limited", "the path is full: window and pacing keep it so, without a queue"),
    ("reprobing", "a little more is allowed for a while, to see whether there is more"),
    ("avoidance", "nothing is held but the pace, until the rate is even"),
    (
        "disabled",
        "others congest the path, or it is too short or too slow for so many connections to be held: \
         nothing is held but a pace near the line's rate",
    ),
];

/// The page.
pub(super) fn page(title: &str, record: &Record, result: &Result<Summary, Error>) -> Page {
    let mut page = Page::new(title);
    page.subtitle = match result {
        Ok(summary) if summary.failed_files > 0 => {
            format!("{}, {} failed", gist(record, summary), summary.failed_files)
        }
        Ok(summary) => gist(record, summary),
        Err(error) => format!("It could not go on: {error}"),
    };
    page.generator = super::GENERATOR.to_owned();
    page.sections.push(overview(record, result));
    page.sections.extend(failed_files(record));
    page.sections.extend(course(record));
    page.sections.extend(stages(record));
    page.sections.extend(decisions(record));
    page.sections.extend(staging_changes(record));
    page
}

fn gist(record: &Record, summary: &Summary) -> String {
    let time = Unit::Seconds.format(summary.elapsed.as_secs_f64());
    format!("{} in {time}: {}", summary.bytes, goodput(record, summary))
}

/// In bytes per second within a host, as everywhere.
fn goodput(record: &Record, summary: &Summary) -> String {
    match record.route {
        Some(Route::Local) => byte_rate(summary.goodput()),
        _ => summary.goodput().to_string(),
    }
}

fn overview(record: &Record, result: &Result<Summary, Error>) -> Section {
    let mut section = Section::new("What was copied");
    let mut fact = |name: &str, value: String| section.facts.push((name.to_owned(), value));
    if let Ok(summary) = result {
        fact("files", Unit::Count.format(summary.files as f64));
        fact("content", summary.bytes.to_string());
        fact("goodput, whole command", goodput(record, summary));
        if summary.files > 0 && !summary.limited_by_text.is_empty() {
            fact("limited by", summary.limited_by_text.clone());
        }
        if summary.skipped_files > 0 {
            let files = Unit::Count.format(summary.skipped_files as f64);
            fact("there already", format!("{files} files, {}", summary.skipped_bytes));
        }
        if summary.resumed_bytes.0 > 0 {
            fact("kept from an earlier run", summary.resumed_bytes.to_string());
        }
        fact("segments sent again", Unit::Count.format(summary.retransmits as f64));
        fact("data connections", summary.streams.to_string());
    }
    if let (Err(_), Some(progress)) = (result, record.progress.kept.last()) {
        fact("content by then", progress.bytes_done.to_string());
        fact("files by then", Unit::Count.format(progress.files_done as f64));
        fact("ended after", Unit::Seconds.format(progress.elapsed.as_secs_f64()));
    }
    if let Some(route) = record.route {
        let encrypted = if record.encrypted { "encrypted" } else { "not encrypted" };
        fact("route", format!("{}, {encrypted}", route_name(route)));
        fact("far side", printable_text(&record.software));
    }
    let least = record.samples.kept.iter().flat_map(|sample| &sample.rtts).min();
    if let Some(rtt) = least {
        fact("shortest round trip", Unit::Seconds.format(rtt.as_secs_f64()));
    }
    section.text = record.notices.kept.iter().map(|notice| printable_text(notice)).collect();
    section
}

fn route_name(route: Route) -> &'static str {
    match route {
        Route::Local => "within this host",
        Route::Daemon => "to a daemon",
        Route::Quic => "to a daemon, by QUIC",
        Route::Ssh => "started over ssh, data over connections of its own",
        Route::SshOnly => "through ssh",
        _ => "another",
    }
}

/// Which files failed, and why.
fn failed_files(record: &Record) -> Option<Section> {
    if record.failed.kept.is_empty() {
        return None;
    }
    let mut section = Section::new("What failed");
    let row = |(path, why): &(PathBuf, String)| {
        vec![printable_text(&path.to_string_lossy()), printable_text(why)]
    };
    let head = ["file", "because"].map(str::to_owned).to_vec();
    let rows = record.failed.kept.iter().map(row).collect();
    let caption = with_dropped("As they were met", record.failed.dropped);
    section.tables.push(Table { head, rows, caption });
    Some(section)
}

/// What arrived, over time: all that there is without a path.
fn arrivals(record: &Record) -> Option<Section> {
    let mut section = Section::new("How it went");
    let moved = record.progress.kept.iter().map(|p| (p.elapsed, p.bytes_moved.0));
    let (unit, factor) = match record.route {
        Some(Route::Local) => (Unit::BytesPerSec, 0.125),
        _ => (Unit::BitsPerSec, 1.0),
    };
    let moved = rates(moved).into_iter().map(|(at, rate)| (at, rate * factor)).collect();
    section.charts.push(chart("Content", unit, vec![("content", moved)])?);
    Some(section)
}

/// How it went over time.
fn course(record: &Record) -> Option<Section> {
    let samples = &record.samples.kept;
    if samples.is_empty() {
        return arrivals(record);
    }
    let mut section = Section::new("How the path was filled");
    if !record.decisions.kept.is_empty() || !record.staging.kept.is_empty() {
        section.text.push(
            "Flags mark what was decided; the lists below the pictures say why. What is held is \
             shown where something is."
                .to_owned(),
        );
    }
    let carried = rates(samples.iter().map(|sample| (sample.at, sample.carried.0)));
    let mut throughput = chart(
        "Carried by the data connections, with encryption and framing",
        Unit::BitsPerSec,
        vec![("carried", carried)],
    );
    if let Some(Chart::Line(chart)) = &mut throughput {
        let pace = curve(samples, |sample| Some(sample.pacing?.bits_per_sec() as f64));
        if has_points(&pace) {
            chart.series.push(Series::step("paced to", pace));
        }
        let mark = |tuned: &bankfull::TuningDecision| {
            let (state, reason) = (printable_text(&tuned.state), printable_text(&tuned.reason));
            Mark::new(tuned.at.as_secs_f64(), &format!("{state}: {reason}"))
        };
        chart.marks = record.decisions.kept.iter().map(mark).collect();
    }
    section.charts.extend(throughput);
    let longest = curve(samples, |sample| Some(sample.rtts.iter().max()?.as_secs_f64()));
    let shortest = curve(samples, |sample| Some(sample.rtts.iter().min()?.as_secs_f64()));
    let round_trips = vec![("longest of 100 ms", longest), ("shortest", shortest)];
    section.charts.extend(chart("Round trip", Unit::Seconds, round_trips));
    let held = curve(samples, |sample| Some(sample.window?.0 as f64));
    let granted = curve(samples, |sample| Some(sample.granted?.0 as f64));
    let windows = vec![("asked for", held), ("granted", granted)];
    section.charts.extend(chart("Receive windows, sum", Unit::Bytes, windows));
    let waited = curve(samples, |sample| Some(sample.buffered_peak?.0 as f64));
    let may_wait = curve(samples, |sample| Some(sample.buffer_limit?.0 as f64));
    let staging = vec![("waited, at most", waited), ("may wait", may_wait)];
    let mut waiting = chart("Arrived and not written yet", Unit::Bytes, staging);
    if let Some(Chart::Line(chart)) = &mut waiting {
        let mark = |staging: &BufferLimit| {
            let text = format!("{}: {}", staging.size, printable_text(&staging.reason));
            Mark::new(staging.at.as_secs_f64(), &text)
        };
        chart.marks = record.staging.kept.iter().map(mark).collect();
    }
    section.charts.extend(waiting);
    let again = curve(samples, |sample| Some(sample.retransmits? as f64));
    section.charts.extend(chart("Segments sent again so far", Unit::Count, vec![("", again)]));
    // Nobody can look at those of QUIC.
    if record.route != Some(Route::Quic) {
        section.charts.extend(chart(
            "Who kept the other waiting, share of looks at the connections",
            Unit::Percent,
            vec![
                (
                    "source had nothing to send",
                    curve(samples, |sample| Some(sample.app_limited_share)),
                ),
                (
                    "receiver did not come to read",
                    curve(samples, |s| Some(s.receiver_limited_share)),
                ),
            ],
        ));
    }
    Some(section)
}

/// Curves over time; `None` when there is not a point in them.
fn chart(title: &str, unit: Unit, curves: Vec<(&str, Vec<(f64, f64)>)>) -> Option<Chart> {
    let curves: Vec<_> = curves.into_iter().filter(|(_, points)| has_points(points)).collect();
    let series = curves.into_iter().map(|(name, points)| Series::line(name, points));
    let series: Vec<Series> = series.collect();
    let (x, y) = (Axis::new("time", Unit::Seconds), Axis::new(axis_name(unit), unit));
    (!series.is_empty())
        .then(|| LineChart { title: title.to_owned(), x, y, series, marks: Vec::new() }.into())
}

/// What the vertical axis says: the title tells of what.
fn axis_name(unit: Unit) -> &'static str {
    match unit {
        Unit::BitsPerSec => "rate",
        Unit::Bytes => "bytes",
        Unit::Seconds => "time",
        Unit::Percent => "share",
        _ => "number",
    }
}

fn has_points(points: &[(f64, f64)]) -> bool {
    points.iter().any(|(_, y)| y.is_finite())
}

/// A figure of each sample; what it does not have breaks the line.
fn curve(samples: &[Sample], of: impl Fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
    let point = |sample: &Sample| (sample.at.as_secs_f64(), of(sample).unwrap_or(f64::NAN));
    samples.iter().map(point).collect()
}

/// A growing count of bytes as a rate in bits per second, over no less than [`JOINED`].
fn rates(counts: impl Iterator<Item = (Duration, u64)>) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut last = (Duration::ZERO, 0);
    for (at, count) in counts {
        let time = at.saturating_sub(last.0);
        if time >= JOINED {
            let bits = count.saturating_sub(last.1) as f64 * 8.0;
            points.push((at.as_secs_f64(), bits / time.as_secs_f64()));
            last = (at, count);
        }
    }
    points
}

/// What the threads of both sides spent their time with.
fn stages(record: &Record) -> Option<Section> {
    let samples = &record.samples.kept;
    let mut section = Section::new("What the threads spent their time with");
    for (title, of) in [
        ("Sender", (|sample| sample.sender) as fn(&Sample) -> StageTimes),
        ("Receiver", |sample| sample.receiver),
    ] {
        let spent = shares(samples, of);
        section.charts.extend(chart(title, Unit::Percent, spent));
    }
    section.text.push(
        "Of all threads with a data connection. On the network a sender waits for room, a receiver \
         for data: the side that hardly does so is the one that limits."
            .to_owned(),
    );
    (!section.charts.is_empty()).then_some(section)
}

/// The share of each stage between samples; a stage that never took time is left out.
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
            if sample.at.saturating_sub(before.0) >= JOINED && !whole.is_zero() {
                let part = stage(&now).saturating_sub(stage(&before.1));
                points.push((sample.at.as_secs_f64(), part.as_secs_f64() / whole.as_secs_f64()));
                before = (sample.at, now);
            }
        }
        (name, points)
    })
    .collect()
}

/// Every decision, with its reason.
fn decisions(record: &Record) -> Option<Section> {
    if record.decisions.kept.is_empty() {
        return None;
    }
    let mut section = Section::new("What was decided, and why");
    let row = |tuned: &bankfull::TuningDecision| {
        vec![
            Unit::Seconds.format(tuned.at.as_secs_f64()),
            printable_text(&tuned.state),
            tuned.window.map_or_else(|| "not held".to_owned(), |window| window.to_string()),
            tuned.pacing.map_or_else(|| "not held".to_owned(), |rate| rate.to_string()),
            printable_text(&tuned.reason),
        ]
    };
    let head = ["time", "state", "window", "pacing", "because"].map(str::to_owned).to_vec();
    let rows = record.decisions.kept.iter().map(row).collect();
    let caption = "Of all data connections together, by the side that receives";
    let caption = with_dropped(caption, record.decisions.dropped);
    section.tables.push(Table { head, rows, caption });
    let met =
        |state: &&(&str, &str)| record.decisions.kept.iter().any(|tuned| tuned.state == state.0);
    let facts = STATES.iter().filter(met).map(|(name, text)| (name.to_string(), text.to_string()));
    section.facts = facts.collect();
    Some(section)
}

/// Every change of how much may wait to be written, with its reason.
fn staging_changes(record: &Record) -> Option<Section> {
    if record.staging.kept.is_empty() {
        return None;
    }
    let mut section = Section::new("How much may wait to be written, and why");
    let row = |staging: &BufferLimit| {
        vec![
            Unit::Seconds.format(staging.at.as_secs_f64()),
            staging.size.to_string(),
            printable_text(&staging.reason),
        ]
    };
    let head = ["time", "may wait", "because"].map(str::to_owned).to_vec();
    let rows = record.staging.kept.iter().map(row).collect();
    let caption = "Of all that the process takes in that receives";
    let caption = with_dropped(caption, record.staging.dropped);
    section.tables.push(Table { head, rows, caption });
    Some(section)
}

fn with_dropped(caption: &str, dropped: u64) -> String {
    match dropped {
        0 => caption.to_owned(),
        _ => format!("{caption}; {dropped} earlier ones are left out"),
    }
}
