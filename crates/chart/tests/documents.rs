//! Documents are well-formed, self-contained and reproducible, and contain no foreign markup.

use bankfull_chart::{
    Axis, Bar, BarChart, Group, LineChart, Mark, Page, Section, Series, Table, Unit,
};

const NASTY: &str = "</text></script><script>alert(1)</script> & \"quoted\" 'too' \u{1} ]]> <!--";

/// Returns the names of all elements; an error if tags are unbalanced or text is not escaped.
///
/// Understands only what the crate writes: no comments, no CDATA, at most one doctype.
fn elements(document: &str) -> Result<Vec<String>, String> {
    let mut rest = document.strip_prefix("<!doctype html>").unwrap_or(document);
    let (mut open, mut all) = (Vec::new(), Vec::new());
    while let Some(start) = rest.find('<') {
        check_text(&rest[..start])?;
        let end = rest.find('>').ok_or("a tag does not end")?;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let expected: Option<String> = open.pop();
            if expected.as_deref() != Some(name) {
                return Err(format!("</{name}> ends {expected:?}"));
            }
            continue;
        }
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect();
        check_attributes(&tag[name.len()..])?;
        all.push(name.clone());
        if tag.ends_with('/') {
            continue;
        }
        if name == "script" || name == "style" {
            let end = rest.find(&format!("</{name}>")).ok_or("no end of raw text")?;
            rest = &rest[end..];
        }
        open.push(name);
    }
    match open.is_empty() && rest.trim().is_empty() {
        true => Ok(all),
        false => Err(format!("left open: {open:?}, left over: {rest:?}")),
    }
}

fn check_text(text: &str) -> Result<(), String> {
    let is_entity = |rest: &str| {
        ["&lt;", "&gt;", "&amp;", "&quot;", "&#39;"].iter().any(|known| rest.starts_with(known))
    };
    let bad = text.match_indices('&').find(|(at, _)| !is_entity(&text[*at..]));
    let control = text.chars().find(|c| c.is_control() && *c != '\n');
    match (bad, control) {
        (None, None) => Ok(()),
        found => Err(format!("{found:?} in {text:?}")),
    }
}

/// Checks that attributes are `name="value"`, each name once.
fn check_attributes(text: &str) -> Result<(), String> {
    let mut names = Vec::new();
    let mut rest = text.trim_end_matches('/').trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").ok_or(format!("attribute in {text:?}"))?;
        let (value, after) = after.split_once('"').ok_or(format!("value in {text:?}"))?;
        check_text(value)?;
        if names.contains(&name) {
            return Err(format!("{name} twice in {text:?}"));
        }
        names.push(name);
        rest = after.trim_start();
    }
    Ok(())
}

fn line_chart(series: Vec<Series>, marks: Vec<Mark>) -> LineChart {
    LineChart {
        title: NASTY.to_owned(),
        x: Axis::new(NASTY, Unit::Seconds),
        y: Axis::new(NASTY, Unit::BitsPerSec),
        series,
        marks,
    }
}

fn charts() -> Vec<LineChart> {
    let wave: Vec<_> = (0..100_000).map(|i| (f64::from(i), f64::from(i).sin())).collect();
    let gaps = vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, f64::INFINITY), (3.0, 4.0), (f64::NAN, 1.0)];
    let whiskers = Some(vec![(0.5, 1.5), (f64::NAN, 0.0)]);
    let marks: Vec<_> = (0..90).map(|i| Mark::new(f64::from(i) / 3.0, NASTY)).collect();
    let log = LineChart {
        x: Axis::log("x", Unit::Bytes),
        y: Axis::log("y", Unit::Percent),
        ..line_chart(vec![Series::line("all", wave.clone())], vec![Mark::new(-1.0, "nowhere")])
    };
    vec![
        LineChart::default(),
        line_chart(Vec::new(), Vec::new()),
        line_chart(vec![Series::line(NASTY, wave.clone()), Series::dots(NASTY, wave)], marks),
        line_chart(vec![Series { whiskers, ..Series::line("gaps", gaps.clone()) }], Vec::new()),
        line_chart(vec![Series::step("", gaps)], vec![Mark::new(f64::INFINITY, "never")]),
        line_chart(vec![Series::dots("one", vec![(5.0, 5.0)])], Vec::new()),
        line_chart(
            vec![Series::line("huge", vec![(f64::MIN, f64::MAX), (1e99, -1e99)])],
            Vec::new(),
        ),
        log,
    ]
}

fn bars() -> Vec<BarChart> {
    let spread = |median: f64| Bar::Value { median, min: median / 2.0, max: f64::NAN };
    let of = |bars: Vec<Bar>| BarChart {
        title: NASTY.to_owned(),
        y: Axis::new(NASTY, Unit::BitsPerSec),
        series: vec![NASTY.to_owned(), "b".to_owned()],
        groups: vec![Group { label: NASTY.to_owned(), bars }],
    };
    vec![
        BarChart::default(),
        of(Vec::new()),
        of(vec![Bar::missing(NASTY), Bar::missing("")]),
        of(vec![spread(5e6), Bar::value(-3e6), Bar::value(f64::NAN), Bar::value(0.0)]),
        BarChart { y: Axis::log("y", Unit::Ratio), ..of(vec![Bar::value(1.0), Bar::value(0.0)]) },
    ]
}

fn page() -> Page {
    let table = Table {
        head: vec![NASTY.to_owned(), "b".to_owned(), "c".to_owned()],
        rows: vec![
            vec![NASTY.to_owned(), "1.5 ms".to_owned()],
            vec![String::new(), "–".to_owned()],
        ],
        caption: NASTY.to_owned(),
    };
    let section = Section {
        heading: NASTY.to_owned(),
        text: vec![NASTY.to_owned()],
        facts: vec![(NASTY.to_owned(), NASTY.to_owned())],
        charts: charts()
            .into_iter()
            .map(Into::into)
            .chain(bars().into_iter().map(Into::into))
            .collect(),
        tables: vec![table, Table::default()],
    };
    let mut sections = vec![Section::default(); 3];
    sections.push(section);
    let nasty = || NASTY.to_owned();
    Page { title: nasty(), subtitle: nasty(), generator: nasty(), sections }
}

fn all_svgs() -> Vec<String> {
    let lines = charts().into_iter().map(|chart| chart.to_svg());
    lines.chain(bars().into_iter().map(|chart| chart.to_svg())).collect()
}

#[test]
fn svg_is_well_formed_with_known_elements_only() {
    let known = ["svg", "title", "style", "rect", "g", "path", "text"];
    for svg in all_svgs() {
        let found = elements(&svg).unwrap();
        assert!(found.iter().all(|name| known.contains(&name.as_str())), "{found:?}");
        for wrong in ["NaN", "inf", "null"] {
            let styled = svg.find("</style>").unwrap();
            assert!(!svg[styled..].contains(&format!("{wrong} ")), "{wrong}");
        }
    }
}

#[test]
fn page_is_well_formed_with_own_scripts_only() {
    let html = page().to_html();
    let found = elements(&html).unwrap();
    let scripts = found.iter().filter(|name| *name == "script").count();
    assert_eq!(scripts, charts().len() + 1, "the data of each line chart, and the script");
    assert!(!html.contains("alert(1)</script>"));
    assert_eq!(found.iter().filter(|name| *name == "nav").count(), 1);
    assert_eq!(found.iter().filter(|name| *name == "details").count(), 1);
    assert!(elements("<a><b></a></b>").is_err() && elements("<a x=\"1\" x=\"2\"/>").is_err());
}

#[test]
fn documents_have_no_external_references() {
    let namespace = "xmlns=\"http://www.w3.org/2000/svg\"";
    for document in all_svgs().into_iter().chain([page().to_html()]) {
        let rest = document.replace(namespace, "");
        for reference in ["http:", "https:", "src=", "url(", "@import", "xlink", "fetch("] {
            assert!(!rest.contains(reference), "{reference}");
        }
        let links = rest.match_indices("href=").all(|(at, _)| rest[at..].starts_with("href=\"#s"));
        assert!(links);
    }
}

#[test]
fn same_input_gives_same_bytes() {
    assert_eq!(page().to_html(), page().to_html());
    assert_eq!(all_svgs(), all_svgs());
}

#[test]
fn large_series_gives_small_svg_that_keeps_peak() {
    let mut points: Vec<_> = (0..100_000).map(|i| (f64::from(i) / 1e3, 10e6)).collect();
    points[43_210].1 = 90e6;
    let chart = line_chart(vec![Series::line("", points)], Vec::new());
    let svg = chart.to_svg();
    assert!(svg.len() < 40_000, "{} bytes", svg.len());
    // The axis ends at 100 Mbit/s: 80 of 100 parts of the plot's 240 pixels up and down.
    assert!(svg.contains("-192") && svg.contains("192"), "{svg}");
}

#[test]
fn empty_chart_shows_no_data() {
    assert!(LineChart::default().to_svg().contains(">no data<"));
    assert!(BarChart::default().to_svg().contains(">no data<"));
    let full = line_chart(vec![Series::line("", vec![(1.0, 1.0)])], Vec::new());
    assert!(!full.to_svg().contains("no data"));
}

#[test]
fn missing_bar_shows_its_reason() {
    let svg = bars().swap_remove(2).to_svg();
    assert!(svg.contains("alert(1)"), "the reason is escaped");
    let chart = BarChart {
        groups: vec![Group { label: "t".to_owned(), bars: vec![Bar::missing("skipped")] }],
        ..BarChart::default()
    };
    assert!(chart.to_svg().contains(">skipped<"));
}

#[test]
fn charts_with_common_axis_share_its_range() {
    let until = |end: f64| {
        let points = vec![(0.0, 1.0), (end, 2.0)];
        LineChart {
            x: Axis::new("Time", Unit::Seconds),
            ..line_chart(vec![Series::step("", points)], Vec::new())
        }
    };
    let charts = vec![until(10.0).into(), until(60.0).into()];
    let section = Section { charts, ..Section::default() };
    let html = Page { sections: vec![section], ..Page::default() }.to_html();
    assert_eq!(html.matches("\"at\":[0e0,6e1]").count(), 2);
    assert_eq!(html.matches("data-axis=\"0-0\"").count(), 2);
}
