//! One HTML file with text, charts and tables.

use crate::bars::BarChart;
use crate::line::LineChart;
use crate::svg::CSS;
use crate::text::escape;
use std::fmt::Write;

/// A picture on a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Chart {
    /// Lines over an axis.
    Line(LineChart),
    /// Bars to compare.
    Bars(BarChart),
}

impl From<LineChart> for Chart {
    fn from(chart: LineChart) -> Self {
        Self::Line(chart)
    }
}

impl From<BarChart> for Chart {
    fn from(chart: BarChart) -> Self {
        Self::Bars(chart)
    }
}

/// Figures in rows. Columns that hold nothing but numbers stand to the right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The names of the columns.
    pub head: Vec<String>,
    /// The cells; a row that is too short is filled with empty ones.
    pub rows: Vec<Vec<String>>,
    /// What the table shows; empty for none.
    pub caption: String,
}

/// A part of a page. What it holds is shown in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// Paragraphs of plain text.
    pub text: Vec<String>,
    /// Names and values.
    pub facts: Vec<(String, String)>,
    /// Pictures. Line charts with the same horizontal axis get the same range, and the mouse
    /// points into all of them.
    pub charts: Vec<Chart>,
    /// Figures.
    pub tables: Vec<Table>,
}

impl Section {
    /// A section with nothing in it.
    #[must_use]
    pub fn new(heading: &str) -> Self {
        Self { heading: heading.to_owned(), ..Self::default() }
    }
}

/// A page: one HTML file that refers to nothing outside itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The title of page and window.
    pub title: String,
    /// What stands below the title; empty for nothing.
    pub subtitle: String,
    /// The program that made it, for programs that look at it; empty for none.
    pub generator: String,
    /// The parts. With more than three, a table of contents comes first.
    pub sections: Vec<Section>,
}

/// More sections have a table of contents before them. (ours)
const WITHOUT_CONTENTS_MAX: usize = 3;

/// The page may load nothing, from nowhere; it keeps its style and script.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

/// The element that names the program that made a page; empty for none.
#[must_use]
pub fn generator_tag(generator: &str) -> String {
    if generator.is_empty() {
        return String::new();
    }
    format!("<meta name=\"generator\" content=\"{}\"/>\n", escape(generator))
}

impl Page {
    /// A page with nothing in it.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), ..Self::default() }
    }

    /// The file. It is legible without its script, which shows the values under the mouse.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut html = Html::default();
        let title = escape(&self.title);
        html.push(format_args!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             {}<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{title}</title>\n\
             <style>{CSS}{}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n",
            generator_tag(&self.generator),
            include_str!("page.css"),
        ));
        html.element("p", "subtitle", &self.subtitle);
        html.out.push_str("</header>\n");
        self.contents(&mut html);
        html.out.push_str("<main>\n");
        for (index, section) in self.sections.iter().enumerate() {
            html.section(section, index);
        }
        let script = include_str!("page.js");
        html.push(format_args!(
            "</main>\n<script>(() => {{\n{script}}})();</script>\n</body>\n</html>\n"
        ));
        html.out
    }

    fn contents(&self, html: &mut Html) {
        if self.sections.len() <= WITHOUT_CONTENTS_MAX {
            return;
        }
        html.out.push_str("<nav aria-label=\"Contents\">\n<ol>\n");
        for (index, section) in self.sections.iter().enumerate() {
            let heading = escape(&section.heading);
            html.push(format_args!("<li><a href=\"#s{}\">{heading}</a></li>\n", index + 1));
        }
        html.out.push_str("</ol>\n</nav>\n");
    }
}

/// A page in the making.
#[derive(Debug, Default)]
struct Html {
    out: String,
}

impl Html {
    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }

    /// An element with text in it; nothing if there is no text.
    fn element(&mut self, name: &str, class: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        if !text.is_empty() {
            self.push(format_args!("<{name}{class}>{}</{name}>\n", escape(text)));
        }
    }

    fn section(&mut self, section: &Section, index: usize) {
        self.push(format_args!("<section id=\"s{}\">\n", index + 1));
        self.element("h2", "", &section.heading);
        for paragraph in &section.text {
            self.element("p", "", paragraph);
        }
        if !section.facts.is_empty() {
            self.out.push_str("<dl>\n");
            for (name, value) in &section.facts {
                let (name, value) = (escape(name), escape(value));
                self.push(format_args!("<div><dt>{name}</dt><dd>{value}</dd></div>\n"));
            }
            self.out.push_str("</dl>\n");
        }
        for (at, chart) in section.charts.iter().enumerate() {
            match chart {
                Chart::Line(chart) => self.line_chart(section, chart, (index, at)),
                Chart::Bars(chart) => {
                    let svg = chart.draw().inline();
                    self.push(format_args!(
                        "<figure>\n<div class=\"plot\">{svg}</div>\n</figure>\n"
                    ));
                }
            }
        }
        for table in &section.tables {
            self.table(table);
        }
        self.out.push_str("</section>\n");
    }

    /// A line chart with its figures, and the number of the first chart that shares its axis.
    fn line_chart(&mut self, section: &Section, chart: &LineChart, (index, at): (usize, usize)) {
        let mut first = at;
        let mut span = chart.span();
        for (place, other) in section.charts.iter().enumerate() {
            if let Chart::Line(other) = other
                && other.x == chart.x
            {
                first = first.min(place);
                span = span.with(other.span());
            }
        }
        let (drawing, data) = chart.draw(span);
        let svg = drawing.inline();
        self.push(format_args!(
            "<figure tabindex=\"0\" data-axis=\"{index}-{first}\">\n<div class=\"plot\">{svg}</div>\n\
             <script type=\"application/json\">{data}</script>\n</figure>\n"
        ));
        self.all_marks(chart);
    }

    /// All marks of a chart, if the picture does not list them.
    fn all_marks(&mut self, chart: &LineChart) {
        let marks = chart.listed();
        if marks.is_empty() {
            return;
        }
        let rows = marks.into_iter().enumerate();
        let rows = rows.map(|(at, (time, label))| vec![(at + 1).to_string(), time, label]);
        let head = ["#", &chart.x.label, "What"].map(str::to_owned).to_vec();
        let table = Table { head, rows: rows.collect(), caption: String::new() };
        let count = table.rows.len();
        self.push(format_args!("<details>\n<summary>All {count} marks</summary>\n"));
        self.table(&table);
        self.out.push_str("</details>\n");
    }

    fn table(&mut self, table: &Table) {
        let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0).max(table.head.len());
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let is_right = |column: usize| {
            let cells = || table.rows.iter().map(|row| cell(row, column));
            let any = cells().any(|text| text.starts_with(|c: char| c.is_ascii_digit()));
            any && cells().all(|text| is_number(&text))
        };
        let right: Vec<_> = (0..columns).map(is_right).collect();
        self.out.push_str("<div class=\"wide\">\n<table>\n");
        self.element("caption", "", &table.caption);
        let row = |html: &mut Self, name: &str, cells: &Vec<String>| {
            html.out.push_str("<tr>");
            for (column, right) in right.iter().enumerate() {
                let class = if *right { " class=\"right\"" } else { "" };
                let text = cell(cells, column);
                html.push(format_args!("<{name}{class}>{}</{name}>", escape(&text)));
            }
            html.out.push_str("</tr>\n");
        };
        if !table.head.is_empty() {
            self.out.push_str("<thead>\n");
            row(self, "th", &table.head);
            self.out.push_str("</thead>\n");
        }
        self.out.push_str("<tbody>\n");
        for cells in &table.rows {
            row(self, "td", cells);
        }
        self.out.push_str("</tbody>\n</table>\n</div>\n");
    }
}

/// Whether a cell of a table is a number, perhaps with a unit, or stands for one.
fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '−', '–', '+', '<', '>', '≈', '~', '±', ' ']);
    digits.is_empty() || digits.starts_with(|c: char| c.is_ascii_digit())
}
