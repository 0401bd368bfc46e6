//! Results as one page for a browser: tables, comparisons, and the course of each contender's run
//! in the middle.

use crate::results::{ConditionResult, ContenderResult, Report, RunResult, ScenarioResult};
use crate::tables;
use crate::text::Buffer;
use bankfull_chart::{
    Axis, Bar, BarChart, Chart, Group, LineChart, Page, Section, Series, Table, Unit,
};
use bankfull_control::{Bytes, Rate};
use bankfull_sim::Loss;

/// What is compared: its name, its unit, and the figure of a run.
type Figure = (&'static str, Unit, fn(&RunResult) -> Option<f64>);

/// The first of these that a scenario has is compared in its picture.
const COMPARED: [Figure; 4] = [
    ("Files per second", Unit::Count, |run| run.figures.files_per_second),
    ("Goodput", Unit::BitsPerSec, |run| run.figures.goodput_bps),
    ("Round trip, mean", Unit::Seconds, |run| run.figures.rtt_seconds.map(|rtt| rtt[1])),
    ("Lost", Unit::Percent, |run| run.figures.lost_share),
];

/// And each of these that it has, in a picture of its own.
const COMPARED_BESIDE: [Figure; 2] = [
    ("Discarded by the socket", Unit::Percent, |run| {
        Some(run.figures.service.as_ref()?.discarded_share)
    }),
    ("Processor time for each Gbit", Unit::Seconds, |run| {
        run.figures.service.as_ref()?.cpu_seconds_per_gbit
    }),
];

/// Intervals of the link are joined to this length for pictures. (ours: round trips are shorter,
/// runs are a hundred times longer)
const JOINED_SECONDS: f64 = 0.1;

/// The page of everything that one call has measured.
#[must_use]
pub fn page(report: &Report) -> String {
    build(report).to_html()
}

/// Each picture of that page by itself: a name that is fit for a file, and the SVG.
#[must_use]
pub fn pictures(report: &Report) -> Vec<(String, String)> {
    let mut pictures = Vec::new();
    for section in &build(report).sections {
        for chart in &section.charts {
            let (title, svg) = match chart {
                Chart::Line(chart) => (&chart.title, chart.to_svg()),
                Chart::Bars(chart) => (&chart.title, chart.to_svg()),
            };
            let number = pictures.len() + 1;
            let name = file_name(&format!("{number:02} {} {title}", section.heading));
            pictures.push((format!("{name}.svg"), svg));
        }
    }
    pictures
}

/// Letters, digits and dashes of a text.
fn file_name(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let dashed: String = text.chars().map(kept).collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn build(report: &Report) -> Page {
    let mut page = Page::new("bankfull-lab");
    let machine = &report.machine;
    page.subtitle = format!(
        "{} processors, {} of memory, Linux {}; sender, receiver and emulated network on this one \
         machine",
        machine.cpus,
        Bytes(machine.memory_bytes),
        machine.kernel
    );
    for result in &report.scenarios {
        page.sections.push(overview(result));
        page.sections.extend(result.conditions.iter().flat_map(|c| courses(result, c)));
    }
    page.sections.push(about(report));
    page
}

/// A scenario's table, and a picture that compares.
fn overview(result: &ScenarioResult) -> Section {
    let mut section = Section::new(&result.name);
    section.text.push(result.title.clone());
    let paths: Vec<String> = result.conditions.iter().map(path).collect();
    if let Some(first) = paths.first().filter(|first| paths.iter().all(|path| path == *first)) {
        section.text.push(first.clone());
    }
    section.charts.extend(comparisons(result));
    let (head, rows) = tables::scenario(result);
    let caption = "Medians of the runs that count, with the smallest and the largest".to_owned();
    section.tables.push(Table { head, rows, caption });
    section.text.extend(left_out(result));
    section
}

fn path(condition: &ConditionResult) -> String {
    format!(
        "{} of payload at most, {:.1} ms without queues, a queue of {}",
        Unit::BitsPerSec.format(condition.capacity_bps),
        condition.rtt_seconds * 1e3,
        Unit::Bytes.format(condition.buffer_bytes as f64)
    )
}

/// What did not run, and what does not count, each with the reason.
fn left_out(result: &ScenarioResult) -> Vec<String> {
    let mut lines = Vec::new();
    for condition in &result.conditions {
        let under = condition.values.join(", ");
        for one in &condition.contenders {
            let whys = one.runs.iter().filter_map(|run| {
                let failed = run.failed.as_ref().map(|why| format!("failed: {why}"));
                failed.or_else(|| run.void.as_ref().map(|why| format!("void: {why}")))
            });
            let skipped = one.skipped.iter().map(|why| format!("skipped: {why}"));
            lines.extend(whys.chain(skipped).map(|why| format!("{} {under} {why}", one.name)));
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

/// Bars for single conditions, lines where a number varies.
fn comparisons(result: &ScenarioResult) -> Vec<Chart> {
    let runs = || result.conditions.iter().flat_map(|c| &c.contenders).flat_map(|one| &one.runs);
    let has = |figure: &&Figure| runs().any(|run| (figure.2)(run).is_some());
    let figures = COMPARED.iter().find(has).into_iter().chain(COMPARED_BESIDE.iter().filter(has));
    let texts: Option<Vec<&str>> =
        result.conditions.iter().map(|c| c.values.first().map(String::as_str)).collect();
    let scale = texts.and_then(|texts| scale(&texts)).filter(|_| !result.axes.is_empty());
    let chart = |figure| match &scale {
        Some(scale) => lines(result, figure, scale),
        None => bars(result, figure),
    };
    figures.map(chart).collect()
}

fn bars(result: &ScenarioResult, (name, unit, of): &Figure) -> Chart {
    let mut chart = BarChart {
        title: (*name).to_owned(),
        y: Axis::new(name, *unit),
        series: result.conditions.iter().map(|condition| condition.values.join(", ")).collect(),
        groups: Vec::new(),
    };
    let bar = |one: &ContenderResult| match one.spread(*of) {
        Some(spread) => Bar::Of { median: spread.median, min: spread.min, max: spread.max },
        None if one.skipped.is_some() => Bar::missing("skipped"),
        None if one.runs.iter().any(|run| run.failed.is_some()) => Bar::missing("failed"),
        None if one.runs.is_empty() => Bar::missing("not run"),
        None => Bar::missing("void"),
    };
    for (at, first) in result.conditions.first().into_iter().flat_map(|c| &c.contenders).enumerate()
    {
        let of_condition = |condition: &ConditionResult| condition.contenders.get(at).map(bar);
        let bars = result.conditions.iter().filter_map(of_condition).collect();
        chart.groups.push(Group { label: first.name.clone(), bars });
    }
    chart.into()
}

/// A line for each contender and each value of the axes behind the first.
fn lines(result: &ScenarioResult, (name, unit, of): &Figure, scale: &Scale) -> Chart {
    let axis = result.axes.first().map_or("", String::as_str);
    let title = format!("{name} by {axis}");
    let axis = format!("{axis}{}", scale.suffix);
    let mut series: Vec<Series> = Vec::new();
    for (condition, x) in result.conditions.iter().zip(&scale.values) {
        for one in &condition.contenders {
            let Some(spread) = one.spread(*of) else { continue };
            let mut parts = vec![one.name.clone()];
            parts.extend(condition.values.iter().skip(1).cloned());
            let called = parts.join(", ");
            let at = series.iter().position(|line| line.name == called).unwrap_or_else(|| {
                let mut line = Series::line(&called, Vec::new());
                line.whiskers = Some(Vec::new());
                series.push(line);
                series.len() - 1
            });
            let line = &mut series[at];
            line.points.push((*x, spread.median));
            line.whiskers.iter_mut().for_each(|all| all.push((spread.min, spread.max)));
        }
    }
    // Zero has no place on a logarithmic axis.
    let x = match scale.values.iter().all(|value| *value > 0.0) {
        true => Axis::log(&axis, scale.unit),
        false => Axis::new(&axis, scale.unit),
    };
    LineChart { title, x, y: Axis::new(name, *unit), series, marks: Vec::new() }.into()
}

/// What varies, as numbers of one kind.
#[derive(Debug, PartialEq)]
struct Scale {
    unit: Unit,
    /// Behind the axis's name, where the unit has no name of its own.
    suffix: &'static str,
    values: Vec<f64>,
}

/// How a text is read as a number of a kind; nothing when it is none.
type Reader = (Unit, &'static str, fn(&str) -> Option<f64>);

/// Kinds of numbers, as scenarios write them: `4`, `20ms`, `1gbit`, `0.5bdp`, `0.1%`, `300kB`.
const READERS: [Reader; 6] = [
    (Unit::Plain, "", |text| text.parse().ok()),
    (Unit::Seconds, "", |text| Some(crate::text::parse_time(text).ok()?.as_secs_f64())),
    (Unit::BitsPerSec, "", |text| Some(text.parse::<Rate>().ok()?.bits_per_sec() as f64)),
    (Unit::Plain, ", BDP", |text| match text.parse().ok()? {
        Buffer::Bdp(times) => Some(times),
        Buffer::Bytes(_) => None,
    }),
    (Unit::Percent, "", |text| match crate::text::parse_loss(text).ok()? {
        Loss::None => Some(0.0),
        Loss::Random { probability } => Some(probability),
        // Beside its share it has a length.
        Loss::GilbertElliott { .. } => None,
    }),
    (Unit::Bytes, "", |text| Some(text.parse::<Bytes>().ok()?.0 as f64)),
];

/// The first kind that all of them are: a number of one says nothing beside those of another.
fn scale(texts: &[&str]) -> Option<Scale> {
    READERS.into_iter().find_map(|(unit, suffix, read)| {
        let values = texts.iter().map(|text| read(text)).collect::<Option<Vec<f64>>>()?;
        values.iter().all(|value| value.is_finite()).then_some(Scale { unit, suffix, values })
    })
}

/// How the runs in the middle went over time; nothing for those without a course.
fn courses(result: &ScenarioResult, condition: &ConditionResult) -> Option<Section> {
    let with_course =
        |one: &&ContenderResult| one.typical().is_some_and(|run| !run.series.time.is_empty());
    let shown: Vec<&ContenderResult> = condition.contenders.iter().filter(with_course).collect();
    if shown.is_empty() {
        return None;
    }
    let mut heading = format!("{} over time", result.name);
    if !condition.values.is_empty() {
        heading += &format!(": {}", condition.values.join(", "));
    }
    let mut section = Section::new(&heading);
    section.text.push("Of each contender the run in the middle.".to_owned());
    let course = |name: &str, unit: Unit, of: &dyn Fn(&RunResult) -> Vec<(f64, f64)>| {
        let line = |one: &&ContenderResult| Some(Series::line(&one.name, of(one.typical()?)));
        let series: Vec<Series> = shown.iter().filter_map(line).collect();
        let is_empty = series.iter().all(|line| line.points.is_empty());
        (!is_empty).then(|| {
            let (x, y) = (Axis::new("time", Unit::Seconds), Axis::new(name, unit));
            LineChart { title: name.to_owned(), x, y, series, marks: Vec::new() }.into()
        })
    };
    let capacity = condition.capacity_bps;
    section.text.push(format!("Capacity for payload: {}.", Unit::BitsPerSec.format(capacity)));
    section.charts.extend(
        [
            course("Arriving at the receiver, mean of 100 ms", Unit::BitsPerSec, &arrived),
            course("Queue, largest in 100 ms", Unit::Bytes, &queue),
            course("Receive buffer of the service", Unit::Bytes, &room),
            course("Round trip as TCP sees it", Unit::Seconds, &|run| {
                pairs(&run.series.sampled, &run.series.rtt_seconds)
            }),
            course("Congestion windows, sum", Unit::Bytes, &|run| {
                pairs(&run.series.sampled, &run.series.window_bytes)
            }),
            course("Segments dropped or lost so far", Unit::Count, &dropped),
        ]
        .into_iter()
        .flatten(),
    );
    Some(section)
}

/// A size holds until the next one.
fn room(run: &RunResult) -> Vec<(f64, f64)> {
    let sizes = run.figures.service.iter().flat_map(|service| &service.buffer);
    let mut steps: Vec<(f64, f64)> = Vec::new();
    for (at, size) in sizes.map(|(at, bytes)| (*at, *bytes as f64)) {
        steps.extend(steps.last().map(|(_, before)| (at, *before)));
        steps.push((at, size));
    }
    let end = run.series.time.last().zip(steps.last().copied());
    steps.extend(end.map(|(end, (at, size))| (end.max(at), size)));
    steps
}

fn pairs(x: &[f64], y: &[f64]) -> Vec<(f64, f64)> {
    x.iter().copied().zip(y.iter().copied()).collect()
}

fn arrived(run: &RunResult) -> Vec<(f64, f64)> {
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    joined(run, &run.series.arrived_bps, mean)
}

fn queue(run: &RunResult) -> Vec<(f64, f64)> {
    let bytes: Vec<f64> = run.series.queue_bytes.iter().map(|bytes| *bytes as f64).collect();
    joined(run, &bytes, |part| part.iter().copied().fold(0.0, f64::max))
}

/// One value for some intervals: single ones are hedges of bursts.
fn joined(run: &RunResult, values: &[f64], of: impl Fn(&[f64]) -> f64) -> Vec<(f64, f64)> {
    let time = &run.series.time;
    let interval = time.first().copied().unwrap_or(JOINED_SECONDS);
    let count = (JOINED_SECONDS / interval.max(1e-6)).ceil().max(1.0) as usize;
    let ends = time.chunks(count).filter_map(|part| part.last().copied());
    ends.zip(values.chunks(count).map(of)).collect()
}

fn dropped(run: &RunResult) -> Vec<(f64, f64)> {
    let so_far = run.series.drops.iter().scan(0, |sum, drops| {
        *sum += drops;
        Some(*sum as f64)
    });
    run.series.time.iter().copied().zip(so_far).collect()
}

fn about(report: &Report) -> Section {
    let mut section = Section::new("How this was measured");
    section.text = vec![
        "Contenders run in turn, repetition by repetition. A run counts only if the emulator was on \
         time: 99 of 100 packets read and delivered no later than 1 ms or 2 % of the round trip, \
         and no packet dropped but by the queue."
            .to_owned(),
        "The queue, the rate of arrival and the drops are what the emulated link itself has seen. \
         Round trips and windows are those of the first sender's connections."
            .to_owned(),
    ];
    section.facts.push(("bankfull-lab".to_owned(), report.version.to_owned()));
    section.facts.extend(report.tools.iter().cloned());
    let default = &report.machine.default_congestion;
    section.facts.push(("this host's congestion control".to_owned(), default.clone()));
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Figures;

    #[test]
    fn what_varies_is_read_with_its_unit_when_all_are_of_one_kind() {
        let found = |texts: &[&str]| scale(texts).map(|s| (s.unit, s.suffix, s.values));
        assert_eq!(found(&["1", "16"]), Some((Unit::Plain, "", vec![1.0, 16.0])));
        assert_eq!(found(&["0ms", "20ms"]), Some((Unit::Seconds, "", vec![0.0, 0.02])));
        assert_eq!(found(&["10mbit", "1gbit"]), Some((Unit::BitsPerSec, "", vec![1e7, 1e9])));
        assert_eq!(found(&["0.5bdp", "1bdp"]), Some((Unit::Plain, ", BDP", vec![0.5, 1.0])));
        assert_eq!(found(&["15kB", "1MB"]), Some((Unit::Bytes, "", vec![15e3, 1e6])));
        assert_eq!(found(&["0", "1%"]), Some((Unit::Percent, "", vec![0.0, 0.01])));
        for mixed in [&["300kB", "1bdp"][..], &["cubic", "bbr"], &["1%/20"], &["20ms", "1gbit"]] {
            assert_eq!(found(mixed), None, "{mixed:?}");
        }
    }

    /// Of one contender under conditions that differ in one thing.
    fn swept(axis: &str, values: &[&str]) -> ScenarioResult {
        let run = RunResult {
            figures: Figures { goodput_bps: Some(1e8), ..Figures::default() },
            ..RunResult::default()
        };
        let condition = |value: &&str| ConditionResult {
            values: vec![(*value).to_owned()],
            capacity_bps: 1e9,
            rtt_seconds: 0.02,
            buffer_bytes: 1500,
            contenders: vec![ContenderResult {
                name: "one".to_owned(),
                tool: "tcp".to_owned(),
                congestion: None,
                skipped: None,
                runs: vec![run.clone()],
            }],
        };
        ScenarioResult {
            name: "x".to_owned(),
            title: "x".to_owned(),
            axes: vec![axis.to_owned()],
            conditions: values.iter().map(condition).collect(),
        }
    }

    #[test]
    fn each_picture_of_the_page_is_there_by_itself_with_a_name_for_a_file() {
        let mut report = Report {
            schema: crate::results::SCHEMA,
            version: "0",
            began_unix: 0,
            machine: crate::machine::this(),
            tools: Vec::new(),
            scenarios: vec![swept("loss", &["0", "0.1%"]), swept("rtt", &["1ms", "2ms"])],
        };
        report.scenarios[1].name = "a/b \u{00e4}".to_owned();
        let found = pictures(&report);
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["01-x-Goodput-by-loss.svg", "02-a-b-Goodput-by-rtt.svg"]);
        assert!(found.iter().all(|(_, svg)| svg.starts_with("<svg")));
        assert_eq!(page(&report).matches("<svg").count(), found.len());
    }

    #[test]
    fn a_service_has_pictures_of_what_it_discards_and_costs_and_of_its_buffer() {
        let mut result = swept("cpu", &["0.1", "1"]);
        for (at, condition) in result.conditions.iter_mut().enumerate() {
            let run = &mut condition.contenders[0].runs[0];
            run.figures.service = Some(crate::tools::ServiceFigures {
                discarded_share: 0.25 * at as f64,
                cpu_seconds_per_gbit: Some(0.5),
                buffer: vec![(0.0, 500), (0.3, 900)],
                ..Default::default()
            });
            run.series.time = vec![1.0];
        }
        let charts = comparisons(&result);
        let names: Vec<&str> = charts.iter().map(title).collect();
        let beside = ["Discarded by the socket by cpu", "Processor time for each Gbit by cpu"];
        assert_eq!(names, ["Goodput by cpu", beside[0], beside[1]]);
        let Chart::Line(discarded) = &charts[1] else { panic!("{charts:?}") };
        assert_eq!(discarded.series[0].points, [(0.1, 0.0), (1.0, 0.25)]);
        let run = &result.conditions[0].contenders[0].runs[0];
        assert_eq!(room(run), [(0.0, 500.0), (0.3, 500.0), (0.3, 900.0), (1.0, 900.0)]);
        let course = courses(&result, &result.conditions[0]).unwrap();
        assert!(course.charts.iter().any(|one| title(one) == "Receive buffer of the service"));
    }

    fn title(chart: &Chart) -> &str {
        match chart {
            Chart::Line(chart) => &chart.title,
            Chart::Bars(chart) => &chart.title,
        }
    }

    #[test]
    fn a_zero_has_a_place_in_the_picture() {
        let chart = |axis: &str, values: &[&str]| match comparisons(&swept(axis, values)).remove(0)
        {
            Chart::Line(chart) => chart,
            other => panic!("{other:?}"),
        };
        let found = chart("loss", &["0", "0.1%"]);
        assert_eq!(found.x, Axis::new("loss", Unit::Percent));
        assert_eq!(found.series[0].points, [(0.0, 1e8), (0.001, 1e8)]);
        assert_eq!(chart("loss", &["0.1%", "1%"]).x, Axis::log("loss", Unit::Percent));
        let found = chart("buffer", &["0.5bdp", "1bdp"]);
        assert_eq!(found.x, Axis::log("buffer, BDP", Unit::Plain));
        assert_eq!(found.title, "Goodput by buffer");
    }
}
