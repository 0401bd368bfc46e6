//! Contents of the report of a gather: the sources with their results, their course together, and
//! the decisions about them.

use super::copy_page::{
    chart, common_verdict, course, curve, origin_facts, rates, text, with_dropped,
};
use super::origin::Origin;
use super::record::Record;
use crate::output::printable_text;
use bankfull::{Error, GatherSummary, Sample, Summary};
use bankfull_chart::{Page, Section, Table, Unit};
use std::time::Duration;

/// Number of sources with curves of their own in a chart, the slowest. (chosen: as many colours as
/// can be told apart)
const MAX_CURVES: usize = 8;

/// Number of decisions in the table. (chosen: some screens)
const MAX_DECISIONS_SHOWN: usize = 200;

/// Interval of the sum of all rates. (chosen: some samples of each source)
const SUM_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of points of that sum. (chosen: one per pixel)
const MAX_SUM_POINTS: f64 = 800.0;

/// Points of a curve: seconds, and the value.
type Points = Vec<(f64, f64)>;

/// Builds the page. `records` and `sources` have one item per source.
pub(super) fn page(
    title: &str,
    origin: &Origin,
    sources: &[String],
    records: &[Record],
    result: &Result<GatherSummary, Error>,
) -> Page {
    let mut page = Page::new(title);
    page.subtitle = match result {
        Ok(done) => {
            let copies = done.sources.iter().filter_map(|(_, copy)| copy.as_ref().ok());
            format!("{}{}", common_verdict(done.sources.len(), copies), gist(done))
        }
        Err(error) => format!("The gather failed: {}", printable_text(&error.to_string())),
    };
    page.sections.push(overview(origin, records, result));
    page.sections.extend(result.as_ref().ok().map(results));
    page.sections.extend(together(sources, records));
    if let ([source], [record]) = (sources, records) {
        // Its charts have the decisions.
        let own = course(record).map(|mut section| {
            section.heading = format!("Path to {source} over time");
            section
        });
        page.sections.extend(own);
    } else {
        page.sections.extend(decisions(sources, records));
    }
    page
}

/// Formats the result in one line.
fn gist(done: &GatherSummary) -> String {
    let total = &done.total;
    let time = Unit::Seconds.format(total.elapsed.as_secs_f64());
    let (count, failed) = (done.sources.len(), done.failed().count());
    let gist = format!("{} from {count} sources in {time}: {}", total.bytes, total.goodput());
    match failed {
        0 => gist,
        _ => format!("{gist}; {failed} failed"),
    }
}

/// Shows the figures of the whole gather.
fn overview(origin: &Origin, records: &[Record], result: &Result<GatherSummary, Error>) -> Section {
    let mut section = Section::new("Summary");
    section.facts = origin_facts(origin);
    if let Ok(done) = result {
        let mut fact = |name: &str, value: String| section.facts.push((name.to_owned(), value));
        fact("sources", Unit::Count.format(done.sources.len() as f64));
        fact("files", Unit::Count.format(done.total.files as f64));
        fact("size", done.total.bytes.to_string());
        fact("goodput, whole command", done.total.goodput().to_string());
        fact("retransmits", Unit::Count.format(done.total.retransmits as f64));
    }
    let warnings = records.iter().flat_map(|record| &record.warnings.kept);
    let mut warnings: Vec<_> = warnings.map(|warning| printable_text(warning)).collect();
    warnings.sort();
    warnings.dedup();
    section.text = warnings;
    section
}

/// Lists the sources with their results.
fn results(done: &GatherSummary) -> Section {
    let mut section = Section::new("Sources");
    let head = ["source", "files", "size", "time", "goodput", "retransmits", "result"];
    let rows = done.sources.iter().map(|(source, result)| {
        let mut row = vec![printable_text(&source.to_string())];
        row.extend(match result {
            Ok(summary) => figures(summary).to_vec(),
            Err(error) => {
                let mut row = vec!["–".to_owned(); 5];
                row.push(printable_text(&error.to_string()));
                row
            }
        });
        row
    });
    section.tables.push(Table {
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        caption: "In the given order".to_owned(),
    });
    section
}

/// Formats the figures of a source for its row.
fn figures(summary: &Summary) -> [String; 6] {
    let outcome = match summary.failed_files {
        0 if summary.limited_by_text.is_empty() => "complete".to_owned(),
        0 => format!("limited by {}", summary.limited_by_text),
        failed => format!("{failed} files failed"),
    };
    [
        Unit::Count.format(summary.files as f64),
        summary.bytes.to_string(),
        Unit::Seconds.format(summary.elapsed.as_secs_f64()),
        summary.goodput().to_string(),
        Unit::Count.format(summary.retransmits as f64),
        outcome,
    ]
}

/// Shows the course of all sources together.
fn together(sources: &[String], records: &[Record]) -> Option<Section> {
    let mut section = Section::new("Sources over time");
    let all: Vec<Points> = records.iter().map(rate_curve).collect();
    let total = vec![("all sources", sum(&all))];
    section.charts.extend(chart("Rate of all data streams", Unit::BitsPerSec, total));
    let shown = slowest(records);
    if shown.len() < sources.len() {
        section.text.push(format!(
            "The other charts show the {} slowest of {} sources.",
            shown.len(),
            sources.len()
        ));
    }
    let named = |of: &dyn Fn(&Record) -> Points| -> Vec<(&str, Points)> {
        let curve_of =
            |&number: &usize| Some((sources.get(number)?.as_str(), of(&records[number])));
        shown.iter().filter_map(curve_of).collect()
    };
    section.charts.extend(chart("Rate of each source", Unit::BitsPerSec, named(&rate_curve)));
    let figure = |of: fn(&Sample) -> Option<f64>| {
        move |record: &Record| shifted(record, curve(&record.samples.kept, of))
    };
    let windows = figure(|sample| Some(sample.window?.0 as f64));
    section.charts.extend(chart("Receive windows", Unit::Bytes, named(&windows)));
    let rtts = figure(|sample| Some(sample.rtts.iter().max()?.as_secs_f64()));
    section.charts.extend(chart("RTT, maximum in 100 ms", Unit::Seconds, named(&rtts)));
    (!section.charts.is_empty()).then_some(section)
}

/// Returns the numbers of the sources that took longest, in the given order.
fn slowest(records: &[Record]) -> Vec<usize> {
    let end = |record: &Record| {
        let last = record.samples.kept.last().map_or(Duration::ZERO, |sample| sample.at);
        record.offset + last
    };
    let mut all: Vec<usize> = (0..records.len()).collect();
    all.sort_by_key(|&number| std::cmp::Reverse(end(&records[number])));
    all.truncate(MAX_CURVES);
    all.sort_unstable();
    all
}

/// Returns the rate of a source over the time of the command.
fn rate_curve(record: &Record) -> Points {
    let counts = record.samples.kept.iter().map(|sample| (sample.at, sample.carried.0));
    shifted(record, rates(counts))
}

/// Moves a curve from the time of its transfer to that of the command.
fn shifted(record: &Record, points: Points) -> Points {
    let offset = record.offset.as_secs_f64();
    points.into_iter().map(|(at, value)| (at + offset, value)).collect()
}

/// Adds curves; each value holds from the previous point of its curve to its own.
fn sum(curves: &[Points]) -> Points {
    let end = curves.iter().filter_map(|points| points.last()).map(|&(at, _)| at);
    let end = end.fold(0.0, f64::max);
    let step = SUM_INTERVAL.as_secs_f64().max(end / MAX_SUM_POINTS);
    let count = (end / step).ceil() as usize;
    let mut total: Points = (0..=count).map(|n| (n as f64 * step, 0.0)).collect();
    for points in curves {
        let Some(&(first, _)) = points.first() else { continue };
        let mut rest = points.iter().peekable();
        for (at, sum) in total.iter_mut().filter(|(at, _)| *at >= first - step) {
            while rest.next_if(|&&(time, _)| time < *at).is_some() {}
            *sum += rest.peek().map_or(0.0, |&&(_, value)| value);
        }
    }
    total
}

/// Lists the decisions about all sources in order of time.
fn decisions(sources: &[String], records: &[Record]) -> Option<Section> {
    let mut all: Vec<(Duration, &str, String, String)> = Vec::new();
    for (name, record) in sources.iter().zip(records) {
        let made = record.decisions.kept.iter();
        all.extend(made.map(|decision| {
            let controller = decision.controller.name().to_owned();
            (record.offset + decision.at, name.as_str(), controller, text(decision))
        }));
        let limits = record.buffer_limits.kept.iter();
        all.extend(limits.map(|limit| {
            let text = format!("buffer {}: {}", limit.size, printable_text(&limit.reason));
            (record.offset + limit.at, name.as_str(), "rrda".to_owned(), text)
        }));
    }
    if all.is_empty() {
        return None;
    }
    all.sort_by_key(|(at, ..)| *at);
    let dropped: u64 = records.iter().map(|record| record.decisions.dropped).sum();
    let hidden = all.len().saturating_sub(MAX_DECISIONS_SHOWN);
    let row = |(at, source, controller, text): (Duration, &str, String, String)| {
        vec![Unit::Seconds.format(at.as_secs_f64()), source.to_owned(), controller, text]
    };
    let mut section = Section::new("Decisions");
    section.tables.push(Table {
        head: ["time", "source", "controller", "decision"].map(str::to_owned).to_vec(),
        rows: all.into_iter().skip(hidden).map(row).collect(),
        caption: with_dropped("In order of time", dropped + hidden as u64),
    });
    Some(section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull::Rate;

    #[test]
    fn sum_adds_curves_where_they_exist() {
        let one = vec![(0.5, 10.0), (1.0, 20.0)];
        let two = vec![(1.5, 5.0), (2.0, 7.0)];
        assert_eq!(
            sum(&[one, two, Vec::new()]),
            [(0.0, 10.0), (0.5, 10.0), (1.0, 25.0), (1.5, 5.0), (2.0, 7.0)]
        );
        assert_eq!(sum(&[]), [(0.0, 0.0)]);
    }

    #[test]
    fn slowest_sources_are_shown_in_order() {
        let record = |seconds| {
            let mut record = Record::default();
            let mut sample = Sample::default();
            sample.at = Duration::from_secs(seconds);
            record.samples.kept.push(sample);
            record
        };
        let records: Vec<Record> = (0..10).map(record).collect();
        assert_eq!(slowest(&records), [2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn goodput_of_a_row_is_that_of_the_source() {
        let mut summary = Summary::default();
        summary.bytes = bankfull::Bytes(1_000_000);
        summary.elapsed = Duration::from_secs(1);
        let row = figures(&summary);
        assert_eq!(row[3], Rate::from_bits_per_sec(8e6).to_string());
        assert_eq!(row[5], "complete");
    }
}
