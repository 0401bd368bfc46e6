//! HTML report: tables, comparisons, and time series of each contender's median run.

use crate::model::results::{
    ConditionResult, ContenderResult, LabResults, RunResult, ScenarioResult,
};
use crate::model::units::{Buffer, parse_loss, parse_time};
use crate::report::tables;
use bankfull_chart::{
    Axis, Bar, BarChart, Chart, Group, LineChart, Page, Section, Series, Table, Unit,
};
use bankfull_control::{Bytes, Rate};
use bankfull_sim::Loss;

/// Metric of a comparison: its name, unit, and value for a run.
type Metric = (&'static str, Unit, fn(&RunResult) -> Option<f64>);

/// Metrics for the main comparison; the first that a scenario has is drawn.
const MAIN_METRICS: [Metric; 4] = [
    ("Files per second", Unit::Count, |run| run.metrics.files_per_second),
    ("Goodput", Unit::BitsPerSec, |run| run.metrics.goodput_bps),
    ("RTT, mean", Unit::Seconds, |run| run.metrics.rtt_seconds.map(|rtt| rtt[1])),
    ("Loss", Unit::Percent, |run| run.metrics.lost_share),
];

/// Metrics drawn in a chart of their own, if a scenario has them.
const SERVICE_METRICS: [Metric; 2] = [
    ("Discarded by the socket", Unit::Percent, |run| {
        Some(run.metrics.service.as_ref()?.discarded_share)
    }),
    ("CPU time per Gbit", Unit::Seconds, |run| run.metrics.service.as_ref()?.cpu_seconds_per_gbit),
];

/// Interval of plotted series in seconds. (chosen: longer than an RTT, a hundredth of a run)
const PLOT_INTERVAL_SECONDS: f64 = 0.1;

/// HTML report of a run of scenarios.
#[must_use]
pub fn render(report: &LabResults) -> String {
    build(report).to_html()
}

/// Returns the charts of the HTML report, each as a file name and an SVG.
#[must_use]
pub fn charts(report: &LabResults) -> Vec<(String, String)> {
    let mut charts = Vec::new();
    for section in &build(report).sections {
        for chart in &section.charts {
            let (title, svg) = match chart {
                Chart::Line(chart) => (&chart.title, chart.to_svg()),
                Chart::Bars(chart) => (&chart.title, chart.to_svg()),
            };
            let number = charts.len() + 1;
            let name = file_name(&format!("{number:02} {} {title}", section.heading));
            charts.push((format!("{name}.svg"), svg));
        }
    }
    charts
}

/// Letters, digits and dashes of a text.
fn file_name(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let dashed: String = text.chars().map(kept).collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn build(report: &LabResults) -> Page {
    let mut page = Page::new("bankfull-lab");
    let machine = &report.machine;
    page.subtitle = format!(
        "{} CPUs, {} of memory, Linux {}; sender, receiver and emulated network on one machine",
        machine.cpus,
        Bytes(machine.memory_bytes),
        machine.kernel
    );
    for result in &report.scenarios {
        page.sections.push(overview(result));
        page.sections.extend(result.conditions.iter().flat_map(|c| time_series(result, c)));
    }
    page.sections.push(about(report));
    page
}

/// Table and comparison charts of a scenario.
fn overview(result: &ScenarioResult) -> Section {
    let mut section = Section::new(&result.name);
    section.text.push(result.title.clone());
    let paths: Vec<String> = result.conditions.iter().map(path).collect();
    if let Some(first) = paths.first().filter(|first| paths.iter().all(|path| path == *first)) {
        section.text.push(first.clone());
    }
    section.charts.extend(comparisons(result));
    let (head, rows) = tables::scenario_table(result);
    let caption = "Medians of valid runs, with minimum and maximum".to_owned();
    section.tables.push(Table { head, rows, caption });
    section.text.extend(excluded_runs(result));
    section
}

fn path(condition: &ConditionResult) -> String {
    format!(
        "capacity {} of payload, RTT {:.1} ms without queueing, queue of {}",
        Unit::BitsPerSec.format(condition.capacity_bps),
        condition.rtt_seconds * 1e3,
        Unit::Bytes.format(condition.buffer_bytes as f64)
    )
}

/// Skipped, failed and void runs with their reasons.
fn excluded_runs(result: &ScenarioResult) -> Vec<String> {
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

/// Bars for separate conditions, lines over a numeric axis.
fn comparisons(result: &ScenarioResult) -> Vec<Chart> {
    let runs = || result.conditions.iter().flat_map(|c| &c.contenders).flat_map(|one| &one.runs);
    let has = |metric: &&Metric| runs().any(|run| (metric.2)(run).is_some());
    let metrics =
        MAIN_METRICS.iter().find(has).into_iter().chain(SERVICE_METRICS.iter().filter(has));
    let texts: Option<Vec<&str>> =
        result.conditions.iter().map(|c| c.values.first().map(String::as_str)).collect();
    let scale = texts.and_then(|texts| scale(&texts)).filter(|_| !result.axes.is_empty());
    let chart = |metric| match &scale {
        Some(scale) => lines(result, metric, scale),
        None => bars(result, metric),
    };
    metrics.map(chart).collect()
}

fn bars(result: &ScenarioResult, (name, unit, of): &Metric) -> Chart {
    let mut chart = BarChart {
        title: (*name).to_owned(),
        y: Axis::new(name, *unit),
        series: result.conditions.iter().map(|condition| condition.values.join(", ")).collect(),
        groups: Vec::new(),
    };
    let bar = |one: &ContenderResult| match one.summary(*of) {
        Some(spread) => Bar::Value { median: spread.median, min: spread.min, max: spread.max },
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

/// A line for each contender and each combination of the further axes.
fn lines(result: &ScenarioResult, (name, unit, of): &Metric, scale: &Scale) -> Chart {
    let axis = result.axes.first().map_or("", String::as_str);
    let title = format!("{name} by {axis}");
    let axis = format!("{axis}{}", scale.suffix);
    let mut series: Vec<Series> = Vec::new();
    for (condition, x) in result.conditions.iter().zip(&scale.values) {
        for one in &condition.contenders {
            let Some(spread) = one.summary(*of) else { continue };
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
    // A logarithmic axis has no zero.
    let x = match scale.values.iter().all(|value| *value > 0.0) {
        true => Axis::log(&axis, scale.unit),
        false => Axis::new(&axis, scale.unit),
    };
    LineChart { title, x, y: Axis::new(name, *unit), series, marks: Vec::new() }.into()
}

/// Numeric values of an axis.
#[derive(Debug, PartialEq)]
struct Scale {
    unit: Unit,
    /// Suffix of the axis name, for a unit without a symbol of its own.
    suffix: &'static str,
    values: Vec<f64>,
}

/// Parser of one kind of number: its unit, suffix and function.
type Reader = (Unit, &'static str, fn(&str) -> Option<f64>);

/// Kinds of numbers in scenarios: `4`, `20ms`, `1gbit`, `0.5bdp`, `0.1%`, `300kB`.
const READERS: [Reader; 6] = [
    (Unit::Plain, "", |text| text.parse().ok()),
    (Unit::Seconds, "", |text| Some(parse_time(text).ok()?.as_secs_f64())),
    (Unit::BitsPerSec, "", |text| Some(text.parse::<Rate>().ok()?.bits_per_sec() as f64)),
    (Unit::Plain, ", BDP", |text| match text.parse().ok()? {
        Buffer::Bdp(times) => Some(times),
        Buffer::Bytes(_) => None,
    }),
    (Unit::Percent, "", |text| match parse_loss(text).ok()? {
        Loss::None => Some(0.0),
        Loss::Random { probability } => Some(probability),
        // Has a cluster length besides the share.
        Loss::GilbertElliott { .. } => None,
    }),
    (Unit::Bytes, "", |text| Some(text.parse::<Bytes>().ok()?.0 as f64)),
];

/// First kind that parses all texts: numbers of different kinds do not compare.
fn scale(texts: &[&str]) -> Option<Scale> {
    READERS.into_iter().find_map(|(unit, suffix, read)| {
        let values = texts.iter().map(|text| read(text)).collect::<Option<Vec<f64>>>()?;
        values.iter().all(|value| value.is_finite()).then_some(Scale { unit, suffix, values })
    })
}

/// Time series of the median runs; `None` if no run has any.
fn time_series(result: &ScenarioResult, condition: &ConditionResult) -> Option<Section> {
    let with_course =
        |one: &&ContenderResult| one.median_run().is_some_and(|run| !run.series.time.is_empty());
    let shown: Vec<&ContenderResult> = condition.contenders.iter().filter(with_course).collect();
    if shown.is_empty() {
        return None;
    }
    let mut heading = format!("{} over time", result.name);
    if !condition.values.is_empty() {
        heading += &format!(": {}", condition.values.join(", "));
    }
    let mut section = Section::new(&heading);
    section.text.push("Median run of each contender.".to_owned());
    let plot = |name: &str, unit: Unit, of: &dyn Fn(&RunResult) -> Vec<(f64, f64)>| {
        let line = |one: &&ContenderResult| Some(Series::line(&one.name, of(one.median_run()?)));
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
            plot("Arrival rate at the receiver, means of 100 ms", Unit::BitsPerSec, &arrived),
            plot("Queue, maxima of 100 ms", Unit::Bytes, &queue),
            plot("Receive buffer of the service", Unit::Bytes, &buffer_steps),
            plot("RTT measured by TCP", Unit::Seconds, &|run| {
                pairs(&run.series.sampled, &run.series.rtt_seconds)
            }),
            plot("Sum of congestion windows", Unit::Bytes, &|run| {
                pairs(&run.series.sampled, &run.series.cwnd_bytes)
            }),
            plot("Segments dropped or lost, cumulative", Unit::Count, &dropped),
        ]
        .into_iter()
        .flatten(),
    );
    Some(section)
}

/// Steps of the buffer size, each held until the next.
fn buffer_steps(run: &RunResult) -> Vec<(f64, f64)> {
    let sizes = run.metrics.service.iter().flat_map(|service| &service.buffer);
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
    downsample(run, &run.series.arrived_bps, mean)
}

fn queue(run: &RunResult) -> Vec<(f64, f64)> {
    let bytes: Vec<f64> = run.series.queue_bytes.iter().map(|bytes| *bytes as f64).collect();
    downsample(run, &bytes, |part| part.iter().copied().fold(0.0, f64::max))
}

/// Downsamples a series to the plotted interval: shorter intervals show single bursts.
fn downsample(run: &RunResult, values: &[f64], of: impl Fn(&[f64]) -> f64) -> Vec<(f64, f64)> {
    let time = &run.series.time;
    let interval = time.first().copied().unwrap_or(PLOT_INTERVAL_SECONDS);
    let count = (PLOT_INTERVAL_SECONDS / interval.max(1e-6)).ceil().max(1.0) as usize;
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

fn about(report: &LabResults) -> Section {
    let mut section = Section::new("How this was measured");
    section.text = vec![
        "Contenders run in turn, repetition by repetition. A run is valid only if the emulator was \
         on time: 99 of 100 packets read and delivered no later than 1 ms or 2 % of the RTT, and \
         no packet dropped except by the queue."
            .to_owned(),
        "Queue, arrival rate and drops are recorded by the emulated link. RTTs and windows are \
         those of the first sender's connections."
            .to_owned(),
    ];
    section.facts.push(("bankfull-lab".to_owned(), report.version.to_owned()));
    section.facts.extend(report.tools.iter().cloned());
    let default = &report.machine.default_congestion;
    section.facts.push(("default congestion control".to_owned(), default.clone()));
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::metrics::{Metrics, ServiceMetrics};

    #[test]
    fn axis_values_of_one_kind_have_unit() {
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

    /// Results of one contender under conditions of one axis.
    fn swept(axis: &str, values: &[&str]) -> ScenarioResult {
        let run = RunResult {
            metrics: Metrics { goodput_bps: Some(1e8), ..Metrics::default() },
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
    fn charts_match_report_and_have_file_names() {
        let mut report = LabResults {
            schema: crate::model::results::SCHEMA,
            version: "0",
            began_unix: 0,
            machine: crate::topology::machine::describe(),
            tools: Vec::new(),
            scenarios: vec![swept("loss", &["0", "0.1%"]), swept("rtt", &["1ms", "2ms"])],
        };
        report.scenarios[1].name = "a/b \u{00e4}".to_owned();
        let found = charts(&report);
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["01-x-Goodput-by-loss.svg", "02-a-b-Goodput-by-rtt.svg"]);
        assert!(found.iter().all(|(_, svg)| svg.starts_with("<svg")));
        assert_eq!(render(&report).matches("<svg").count(), found.len());
    }

    #[test]
    fn service_charts_show_discards_cpu_and_buffer() {
        let mut result = swept("cpu", &["0.1", "1"]);
        for (at, condition) in result.conditions.iter_mut().enumerate() {
            let run = &mut condition.contenders[0].runs[0];
            run.metrics.service = Some(ServiceMetrics {
                discarded_share: 0.25 * at as f64,
                cpu_seconds_per_gbit: Some(0.5),
                buffer: vec![(0.0, 500), (0.3, 900)],
                ..Default::default()
            });
            run.series.time = vec![1.0];
        }
        let charts = comparisons(&result);
        let names: Vec<&str> = charts.iter().map(title).collect();
        let service = ["Discarded by the socket by cpu", "CPU time per Gbit by cpu"];
        assert_eq!(names, ["Goodput by cpu", service[0], service[1]]);
        let Chart::Line(discarded) = &charts[1] else { panic!("{charts:?}") };
        assert_eq!(discarded.series[0].points, [(0.1, 0.0), (1.0, 0.25)]);
        let run = &result.conditions[0].contenders[0].runs[0];
        assert_eq!(buffer_steps(run), [(0.0, 500.0), (0.3, 500.0), (0.3, 900.0), (1.0, 900.0)]);
        let section = time_series(&result, &result.conditions[0]).unwrap();
        assert!(section.charts.iter().any(|one| title(one) == "Receive buffer of the service"));
    }

    fn title(chart: &Chart) -> &str {
        match chart {
            Chart::Line(chart) => &chart.title,
            Chart::Bars(chart) => &chart.title,
        }
    }

    #[test]
    fn zero_value_uses_linear_axis() {
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
