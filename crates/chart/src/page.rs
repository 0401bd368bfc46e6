//! Self-contained HTML page with text, charts and tables.

use crate::bars::BarChart;
use crate::line::LineChart;
use crate::svg::CSS;
use crate::text::escape;
use std::fmt::Write;

/// Chart on a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Chart {
    /// Lines over an axis.
    Line(LineChart),
    /// Bars in groups.
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

/// Table of texts. Columns of numbers are right-aligned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns.
    pub head: Vec<String>,
    /// Cells; a short row is filled up with empty cells.
    pub rows: Vec<Vec<String>>,
    /// Caption; empty for none.
    pub caption: String,
}

/// Section of a page. Its parts appear in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section {
    /// Heading.
    pub heading: String,
    /// Paragraphs of plain text.
    pub text: Vec<String>,
    /// Names and values.
    pub facts: Vec<(String, String)>,
    /// Charts. Line charts with the same horizontal axis get the same range and a common cursor.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Table>,
}

impl Section {
    /// Returns a section with a heading only.
    #[must_use]
    pub fn new(heading: &str) -> Self {
        Self { heading: heading.to_owned(), ..Self::default() }
    }
}

/// Page: one HTML file without external references.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// Title of the page and the window.
    pub title: String,
    /// Text below the title; empty for none.
    pub subtitle: String,
    /// Program that made the page, for other programs to recognize; empty for none.
    pub generator: String,
    /// Sections. A table of contents precedes more than three.
    pub sections: Vec<Section>,
}

/// Most sections of a page without a table of contents. (chosen: they fit on a screen)
const MAX_SECTIONS_WITHOUT_CONTENTS: usize = 3;

/// Content security policy: nothing is loaded; only inline style and script are allowed.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

/// Returns the `meta` element that names the program that made a page; empty for none.
#[must_use]
pub fn generator_tag(generator: &str) -> String {
    if generator.is_empty() {
        return String::new();
    }
    format!("<meta name=\"generator\" content=\"{}\"/>\n", escape(generator))
}

impl Page {
    /// Returns a page with a title only.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), ..Self::default() }
    }

    /// Returns the HTML file. It is legible without its script, which shows the values under the
    /// mouse.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut html = Html::default();
        let title = escape(&self.title);
        html.push(format_args!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             {}<meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{title}</title>\n\
             <style>{CSS}{}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n",
            generator_tag(&self.generator),
            include_str!("page.css"),
        ));
        html.element("p", "subtitle", &self.subtitle);
        html.out.push_str("</header>\n");
        self.table_of_contents(&mut html);
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

    fn table_of_contents(&self, html: &mut Html) {
        if self.sections.len() <= MAX_SECTIONS_WITHOUT_CONTENTS {
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

/// HTML page under construction.
#[derive(Debug, Default)]
struct Html {
    out: String,
}

impl Html {
    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }

    /// Appends an element with text; without text, nothing.
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
                    let svg = chart.draw().to_inline_svg();
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

    /// Appends a line chart, its data, and a table of marks that it cannot list.
    ///
    /// All charts of the section with the same horizontal axis have one range, and the number of
    /// the first of them, by which the script links their cursors. `index` counts sections and `at`
    /// charts.
    fn line_chart(&mut self, section: &Section, chart: &LineChart, (index, at): (usize, usize)) {
        let mut first = at;
        let mut span = chart.span();
        for (place, other) in section.charts.iter().enumerate() {
            if let Chart::Line(other) = other
                && other.x == chart.x
            {
                first = first.min(place);
                span = span.merged_with(other.span());
            }
        }
        let (drawing, data) = chart.draw(span);
        let svg = drawing.to_inline_svg();
        self.push(format_args!(
            "<figure tabindex=\"0\" data-axis=\"{index}-{first}\">\n<div class=\"plot\">{svg}</div>\n\
             <script type=\"application/json\">{data}</script>\n</figure>\n"
        ));
        self.marks_table(chart);
    }

    /// Appends a table of a chart's marks if the picture does not list them.
    fn marks_table(&mut self, chart: &LineChart) {
        let marks = chart.marks_for_table();
        if marks.is_empty() {
            return;
        }
        let rows = marks.into_iter().enumerate();
        let rows = rows.map(|(at, (time, label))| vec![(at + 1).to_string(), time, label]);
        let head = ["#", &chart.x.label, "Event"].map(str::to_owned).to_vec();
        let table = Table { head, rows: rows.collect(), caption: String::new() };
        let count = table.rows.len();
        self.push(format_args!("<details>\n<summary>All {count} marks</summary>\n"));
        self.table(&table);
        self.out.push_str("</details>\n");
    }

    fn table(&mut self, table: &Table) {
        let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0).max(table.head.len());
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let is_number_column = |column: usize| {
            let cells = || table.rows.iter().map(|row| cell(row, column));
            let any = cells().any(|text| text.starts_with(|c: char| c.is_ascii_digit()));
            any && cells().all(|text| is_number(&text))
        };
        let right: Vec<_> = (0..columns).map(is_number_column).collect();
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

/// Returns whether a table cell is a number or a placeholder for one. A unit may follow the number.
fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '−', '–', '+', '<', '>', '≈', '~', '±', ' ']);
    digits.is_empty() || digits.starts_with(|c: char| c.is_ascii_digit())
}
