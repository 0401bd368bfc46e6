//! Writes a page with all kinds of charts to the path in the first argument.
//!
//! If a second argument names a directory, each chart is also written there as an SVG image.

use bankfull_chart::{
    Axis, Bar, BarChart, Chart, Group, LineChart, Mark, Page, Scale, Section, Series, Table, Unit,
};
use std::env::args;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: gallery OUT.html [DIRECTORY]";
    let page = gallery();
    write(Path::new(&args().nth(1).ok_or(usage)?), &page.to_html())?;
    let Some(dir) = args().nth(2) else { return Ok(()) };
    let charts = page.sections.iter().flat_map(|section| &section.charts);
    for (index, chart) in charts.enumerate() {
        let svg = match chart {
            Chart::Line(chart) => chart.to_svg(),
            Chart::Bars(chart) => chart.to_svg(),
        };
        write(&Path::new(&dir).join(format!("{index}.svg")), &svg)?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "only the example writes files")]
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::write(path, text)
}

fn gallery() -> Page {
    Page {
        title: "Gallery of charts".to_owned(),
        generator: "gallery".to_owned(),
        subtitle: "Made-up figures of two flows on a 100 Mbit/s path, and of eight tools"
            .to_owned(),
        sections: vec![two_flows(), parameters(), tools(), many_marks(), edges()],
    }
}

/// Deterministic pseudo-random generator. (Knuth's MMIX constants)
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }
}

/// Time series of two flows over 60 s, every 10 ms.
#[derive(Default)]
struct FlowSeries {
    rates: [Vec<(f64, f64)>; 2],
    windows: [Vec<(f64, f64)>; 2],
    queue: Vec<(f64, f64)>,
    drops: Vec<(f64, f64)>,
}

fn simulate() -> FlowSeries {
    let mut noise = Noise(7);
    let mut run = FlowSeries::default();
    let (mut window, mut dropped) = ([30e3, 0.0], 0.0);
    for tick in 0..=6000u32 {
        let at = f64::from(tick) / 100.0;
        let is_cut = (31.0..33.5).contains(&at);
        if at >= 15.0 && window[1] == 0.0 {
            window[1] = 30e3;
        }
        let sum: f64 = window.iter().sum();
        let line = if is_cut { 0.0 } else { 100e6 };
        let queue: f64 = (sum - 500e3 + 12e3 * noise.next()).clamp(0.0, 256e3);
        let is_full = queue >= 250e3 || (at - 31.2f64).abs() < 0.005;
        for (flow, window) in window.iter_mut().enumerate() {
            let share = line * *window / sum.max(500e3);
            let rate = (share * (1.0 + 0.12 * noise.next())).clamp(0.0, line);
            let is_absent = flow == 1 && at < 15.0;
            run.rates[flow].push((at, if is_absent { f64::NAN } else { rate }));
            run.windows[flow].push((at, if is_absent { f64::NAN } else { *window }));
            let slow_start = if *window < 200e3 { 3e3 } else { 500.0 };
            *window += if *window > 0.0 && !is_cut { slow_start } else { 0.0 };
        }
        if is_full {
            let loser = usize::from(noise.next() * sum > window[0] - sum / 2.0);
            window[loser] *= 0.7;
            dropped += 3.0 + (4.0 * noise.next()).round();
        }
        run.queue.push((at, queue));
        run.drops.push((at, dropped));
    }
    run
}

fn two_flows() -> Section {
    let run = simulate();
    let [first, second] = run.rates;
    let [window_1, window_2] = run.windows;
    let time = || Axis::new("Time", Unit::Seconds);
    let marks = vec![
        Mark::new(15.0, "flow 2 starts"),
        Mark::new(31.0, "link cut"),
        Mark::new(33.5, "link restored"),
        Mark::new(34.1, "flow 1: window 256 kB → 180 kB: 3 packets lost in one RTT"),
    ];
    let line =
        vec![(0.0, 100e6), (31.0, 100e6), (31.0, 0.0), (33.5, 0.0), (33.5, 100e6), (60.0, 100e6)];
    let chart = |title: &str, y: Axis, series: Vec<Series>| LineChart {
        title: title.to_owned(),
        x: time(),
        y,
        series,
        marks: Vec::new(),
    };
    let throughput = LineChart {
        marks,
        ..chart(
            "Throughput",
            Axis::new("Goodput per 10 ms", Unit::BitsPerSec),
            vec![
                Series::line("flow 1", first),
                Series::line("flow 2", second),
                Series::step("rate of the link", line),
            ],
        )
    };
    let windows = vec![Series::step("flow 1", window_1), Series::step("flow 2", window_2)];
    let facts = [
        ("Path", "100 Mbit/s, 40 ms, buffer 256 kB"),
        ("Goodput, both flows", "91.3 Mbit/s"),
        ("Fairness (Jain)", "0.97"),
        ("Packets dropped", "312 of 412 004"),
        ("Queue, median", "118 kB (9.4 ms)"),
        ("Seed", "7"),
    ];
    Section {
        text: vec![
            "Two flows share a path. The second starts after 15 s; at 31 s the link is cut for \
             2.5 s. The charts share their axis: the mouse, or the arrow keys once a chart has the \
             focus, read all of them at the same time."
                .to_owned(),
        ],
        facts: facts.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        charts: vec![
            throughput.into(),
            chart("Queue", Axis::new("Queue", Unit::Bytes), vec![Series::line("", run.queue)])
                .into(),
            chart("Congestion window", Axis::new("Window", Unit::Bytes), windows).into(),
            chart(
                "Packets dropped",
                Axis::new("Dropped since the start", Unit::Count),
                vec![Series::step("", run.drops)],
            )
            .into(),
        ],
        ..Section::new("Two flows over time")
    }
}

fn parameters() -> Section {
    let curve = |name: &str, top: f64, half: f64| {
        let losses = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1];
        let points: Vec<_> = losses.iter().map(|loss| (*loss, top / (1.0 + loss / half))).collect();
        let spread = |(loss, rate): &(f64, f64)| (rate * (0.93 - loss), rate * (1.03 + loss));
        let whiskers = Some(points.iter().map(spread).collect());
        Series { whiskers, ..Series::line(name, points) }
    };
    let goodput = |y: Axis| LineChart {
        title: match y.scale {
            Scale::Log => "Goodput over loss, both axes logarithmic".to_owned(),
            Scale::Linear => {
                "Goodput over loss: median of 5 runs, whiskers from min to max".to_owned()
            }
        },
        x: Axis::log("Packets lost", Unit::Percent),
        y,
        series: vec![
            curve("Reno", 94e6, 2e-4),
            curve("CUBIC", 95e6, 6e-4),
            curve("BBR", 93e6, 8e-2),
            curve("four connections", 96e6, 3e-3),
        ],
        marks: Vec::new(),
    };
    let mut noise = Noise(3);
    let cloud: Vec<_> = (0..20_000)
        .map(|_| {
            let x = 10f64.powf(4.0 * noise.next() + 6.0);
            (x, 0.04 + x / 1e9 + 0.03 * (noise.next() + noise.next()).abs())
        })
        .collect();
    let dots = LineChart {
        title: "20 000 transfers".to_owned(),
        x: Axis::log("Size", Unit::Bytes),
        y: Axis::log("Time to the last byte", Unit::Seconds),
        series: vec![Series::dots("transfers", cloud)],
        marks: vec![Mark::new(1.25e6, "bandwidth × delay")],
    };
    Section {
        charts: vec![
            goodput(Axis::new("Goodput", Unit::BitsPerSec)).into(),
            goodput(Axis::log("Goodput", Unit::BitsPerSec)).into(),
            dots.into(),
        ],
        ..Section::new("Over a parameter")
    }
}

fn tools() -> Section {
    let names = [
        "bankfull",
        "rsync over ssh",
        "scp",
        "sftp",
        "rclone, 16 transfers",
        "bbcp",
        "a tool whose name is much too long to be shown beside a bar",
        "iperf3 (no files)",
    ];
    let mut noise = Noise(11);
    let mut groups = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let mut bar = |best: f64| {
            let median = best / (1.0 + 0.35 * index as f64) * (1.0 + 0.2 * noise.next());
            let (min, max) = (median * (0.9 + 0.1 * noise.next()), median * 1.06);
            Bar::Value { median, min, max }
        };
        let bars = match index {
            5 => vec![Bar::missing("skipped"), bar(900e6)],
            6 => vec![bar(400e6), Bar::missing("failed: no route")],
            _ => vec![bar(940e6), bar(620e6)],
        };
        groups.push(Group { label: (*name).to_owned(), bars });
    }
    let cells = |group: &Group| {
        let bars = group.bars.iter().map(|bar| match bar {
            Bar::Value { median, .. } => Unit::BitsPerSec.format(*median),
            Bar::Missing(_) => "–".to_owned(),
        });
        [group.label.clone()].into_iter().chain(bars).collect()
    };
    let head = ["Tool", "LAN", "WAN"].map(str::to_owned).to_vec();
    let caption = "Goodput, median of 5 runs".to_owned();
    let table = Table { head, rows: groups.iter().map(cells).collect(), caption };
    let series = ["LAN, 1 Gbit/s, 0.2 ms", "WAN, 1 Gbit/s, 80 ms, 0.01 % loss"];
    let chart = BarChart {
        title: "One file of 10 GB".to_owned(),
        y: Axis::new("Goodput", Unit::BitsPerSec),
        series: series.map(str::to_owned).to_vec(),
        groups,
    };
    Section {
        charts: vec![chart.into()],
        tables: vec![table],
        ..Section::new("Tools side by side")
    }
}

fn many_marks() -> Section {
    let mut noise = Noise(23);
    let (mut streams, mut at) = (1.0, 0.5);
    let (mut points, mut marks) = (vec![(0.0, 1.0)], Vec::new());
    while at < 300.0 {
        let (next, reason) = match noise.next() {
            n if n > 0.1 => (streams + 1.0, "the last one brought 8 Mbit/s"),
            n if n > -0.2 => (streams, "waits: within the noise"),
            _ => (f64::max(1.0, streams / 2.0).floor(), "the RTT has doubled"),
        };
        let change = match next == streams {
            true => format!("stays at {streams}"),
            false => format!("streams {streams} → {next}"),
        };
        marks.push(Mark::new(at, &format!("{change}: {reason}")));
        streams = next;
        points.push((at, streams));
        at += 1.0 + 14.0 * (noise.next() + 0.5).powi(2);
    }
    points.push((300.0, streams));
    let chart = LineChart {
        title: "A controller and its reasons".to_owned(),
        x: Axis::new("Time", Unit::Seconds),
        y: Axis::new("Streams", Unit::Count),
        series: vec![Series::step("", points)],
        marks,
    };
    Section { charts: vec![chart.into()], ..Section::new("Many marks") }
}

fn edges() -> Section {
    let empty = LineChart {
        title: "Empty line chart".to_owned(),
        x: Axis::new("Time", Unit::Seconds),
        y: Axis::new("Rate", Unit::BitsPerSec),
        ..LineChart::default()
    };
    let wave = |phase: f64| {
        let point = |i: u32| (f64::from(i) / 50.0, (f64::from(i) / 80.0 + phase).sin() + phase);
        (0..1000).map(point).collect::<Vec<_>>()
    };
    let names: Vec<_> = (1..=9).map(|i| format!("series {i} <of nine> & its name")).collect();
    let nine = names.iter().zip(0u32..);
    let nine = nine.map(|(name, i)| Series::line(name, wave(f64::from(i) * 0.6))).collect();
    let many = LineChart {
        title: "Nine series, more than there are colours".to_owned(),
        x: Axis::new("Time", Unit::Seconds),
        y: Axis::new("Level", Unit::Plain),
        series: nine,
        marks: Vec::new(),
    };
    let none = BarChart { title: "Empty bar chart".to_owned(), ..BarChart::default() };
    Section { charts: vec![empty.into(), many.into(), none.into()], ..Section::new("Edges") }
}
