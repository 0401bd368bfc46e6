//! SVG text: shapes, labels and paths.

use crate::downsample::Point;
use crate::text::{escape, truncate};
use std::fmt::Write;

/// Width of every chart in pixels: one column of a page. (chosen: fits a laptop screen and A4
/// paper)
pub(crate) const WIDTH: f64 = 860.0;

/// Font sizes in pixels; `chart.css` has the same. (chosen: legibility)
pub(crate) const TITLE_SIZE: f64 = 15.0;
pub(crate) const TEXT_SIZE: f64 = 12.0;
pub(crate) const SMALL_SIZE: f64 = 11.0;

/// Style of the classes in a picture, the same standalone and in a page.
pub(crate) const CSS: &str = include_str!("chart.css");

/// Number of series colours in `chart.css`.
const SERIES_COLOURS: usize = 7;

/// Returns the class that sets the colour of a series.
pub(crate) fn colour(series: usize) -> String {
    format!("c{}", series % SERIES_COLOURS)
}

/// Alignment of a text to its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Text and its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label<'a> {
    /// Left end, middle or right end, on the base line.
    pub(crate) at: Point,
    pub(crate) anchor: Anchor,
    pub(crate) class: &'a str,
    pub(crate) size: f64,
    /// Maximum width in pixels. A longer text is truncated, and shown in full as a tooltip.
    pub(crate) max_width: f64,
}

impl<'a> Label<'a> {
    /// Returns a label of unlimited width.
    pub(crate) fn new(at: Point, anchor: Anchor, class: &'a str) -> Self {
        Self { at, anchor, class, size: TEXT_SIZE, max_width: f64::INFINITY }
    }
}

/// Picture under construction.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    out: String,
}

impl Canvas {
    /// Draws a straight line, mostly horizontal or vertical.
    pub(crate) fn line(&mut self, from: Point, to: Point, class: &str) {
        let mut pen = PathPen::default();
        pen.move_to(from);
        pen.line_to(to);
        self.path(&pen.out, class);
    }

    /// Draws the path of a [`PathPen`]; nothing if it is empty.
    pub(crate) fn path(&mut self, drawn: &str, class: &str) {
        if !drawn.is_empty() {
            self.push(format_args!("<path class=\"{class}\" d=\"{drawn}\"/>\n"));
        }
    }

    /// Draws a rectangle with a tooltip.
    pub(crate) fn rect(&mut self, at: Point, size: Point, class: &str, title: &str) {
        let (x, y) = (tenths(at.0), tenths(at.1));
        let (width, height) = (tenths(size.0), tenths(size.1));
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\""
        ));
        if title.is_empty() {
            self.out.push_str("/>\n");
        } else {
            self.push(format_args!("><title>{}</title></rect>\n", escape(title)));
        }
    }

    /// Draws a text on one line.
    pub(crate) fn label(&mut self, label: Label<'_>, text: &str) {
        let shown = truncate(text, label.size, label.max_width);
        let anchor = match label.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.push(format_args!(
            "<text class=\"{}\" x=\"{}\" y=\"{}\"{anchor}>{}",
            label.class,
            tenths(label.at.0),
            tenths(label.at.1),
            escape(&shown)
        ));
        if shown != text {
            self.push(format_args!("<title>{}</title>", escape(text)));
        }
        self.out.push_str("</text>\n");
    }

    /// Opens a group that [`Canvas::close`] ends.
    pub(crate) fn open(&mut self, class: &str) {
        self.push(format_args!("<g class=\"{class}\">\n"));
    }

    pub(crate) fn close(&mut self) {
        self.out.push_str("</g>\n");
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

/// Finished picture.
#[derive(Debug)]
pub(crate) struct Drawing {
    title: String,
    height: f64,
    body: String,
}

impl Drawing {
    pub(crate) fn new(title: &str, height: f64, canvas: Canvas) -> Self {
        Self { title: title.to_owned(), height, body: canvas.out }
    }

    /// Returns a standalone SVG image.
    pub(crate) fn to_standalone_svg(&self) -> String {
        let title = escape(&self.title);
        let head = self.head();
        let style = format!("<style>{CSS}</style>");
        let back = "<rect class=\"back\" width=\"100%\" height=\"100%\"/>";
        format!("{head}\n<title>{title}</title>\n{style}\n{back}\n{}</svg>\n", self.body)
    }

    /// Returns an SVG element for a page that has [`CSS`].
    pub(crate) fn to_inline_svg(&self) -> String {
        format!("{}\n{}</svg>\n", self.head(), self.body)
    }

    fn head(&self) -> String {
        let (title, height) = (escape(&self.title), tenths(self.height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" \
             aria-label=\"{title}\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\">"
        )
    }
}

/// Path data: absolute moves, relative strokes, in tenths of a pixel.
#[derive(Debug, Default)]
pub(crate) struct PathPen {
    pub(crate) out: String,
    at: (i64, i64),
}

impl PathPen {
    pub(crate) fn move_to(&mut self, to: Point) {
        self.at = (in_tenths(to.0), in_tenths(to.1));
        self.out.push('M');
        self.pair(self.at);
    }

    pub(crate) fn line_to(&mut self, to: Point) {
        let to = (in_tenths(to.0), in_tenths(to.1));
        let by = (to.0 - self.at.0, to.1 - self.at.1);
        self.at = to;
        match by {
            (_, 0) => {
                self.out.push('h');
                push_tenths(&mut self.out, by.0);
            }
            (0, _) => {
                self.out.push('v');
                push_tenths(&mut self.out, by.1);
            }
            _ => {
                self.out.push('l');
                self.pair(by);
            }
        }
    }

    /// Draws a dot: a stroke of zero length with round ends.
    pub(crate) fn dot(&mut self, at: Point) {
        self.move_to(at);
        self.line_to(at);
    }

    fn pair(&mut self, (x, y): (i64, i64)) {
        push_tenths(&mut self.out, x);
        if y >= 0 {
            self.out.push(' ');
        }
        push_tenths(&mut self.out, y);
    }
}

fn in_tenths(pixels: f64) -> i64 {
    (pixels * 10.0).round() as i64
}

fn tenths(pixels: f64) -> String {
    let mut out = String::new();
    push_tenths(&mut out, in_tenths(pixels));
    out
}

fn push_tenths(out: &mut String, tenths: i64) {
    let sign = if tenths < 0 { "-" } else { "" };
    let (whole, rest) = (tenths.unsigned_abs() / 10, tenths.unsigned_abs() % 10);
    // Writing to a string cannot fail.
    let _ = match rest {
        0 => write!(out, "{sign}{whole}"),
        rest => write!(out, "{sign}{whole}.{rest}"),
    };
}

/// Returns the outline of the symbol that identifies a series without its colour.
pub(crate) fn symbol(series: usize, at: Point) -> String {
    let mut pen = PathPen::default();
    let mut corners = |corners: &[Point]| {
        for (index, (x, y)) in corners.iter().enumerate() {
            let place = (at.0 + x, at.1 + y);
            if index == 0 { pen.move_to(place) } else { pen.line_to(place) }
        }
    };
    // All symbols have about the same area. (chosen: equal weight)
    match series % SYMBOLS {
        0 => corners(&[
            (-1.7, -4.0),
            (1.7, -4.0),
            (4.0, -1.7),
            (4.0, 1.7),
            (1.7, 4.0),
            (-1.7, 4.0),
            (-4.0, 1.7),
            (-4.0, -1.7),
        ]),
        1 => corners(&[(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)]),
        2 => corners(&[(0.0, -4.8), (4.6, 3.4), (-4.6, 3.4)]),
        3 => corners(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)]),
        _ => corners(&[(0.0, 4.8), (4.6, -3.4), (-4.6, -3.4)]),
    }
    pen.out.push('Z');
    pen.out
}

/// Number of symbols; combined with the colours, they distinguish 35 series.
const SYMBOLS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_strokes_are_in_tenths_of_a_pixel() {
        let mut pen = PathPen::default();
        pen.move_to((1.04, -2.55));
        pen.line_to((3.0, -2.55));
        pen.line_to((3.0, 0.0));
        pen.line_to((2.0, 1.0));
        assert_eq!(pen.out, "M1-2.6h2v2.6l-1 1");
    }

    #[test]
    fn style_has_every_colour_for_light_and_dark() {
        for index in 0..SERIES_COLOURS {
            assert_eq!(CSS.matches(&format!(".c{index}{{")).count(), 2, "c{index}");
        }
    }
}
