//! The strokes of a picture as SVG text.

use crate::text::{escape, fit};
use crate::thin::Point;
use std::fmt::Write;

/// The width of every chart in pixels: one column of a page. (ours)
pub(crate) const WIDTH: f64 = 860.0;

/// Sizes of text in pixels; `chart.css` has the same. (ours)
pub(crate) const TITLE_SIZE: f64 = 15.0;
pub(crate) const TEXT_SIZE: f64 = 12.0;
pub(crate) const SMALL_SIZE: f64 = 11.0;

/// What classes of a picture look like. Alone or in a page, it is the same.
pub(crate) const CSS: &str = include_str!("chart.css");

/// How many colours `chart.css` has.
const COLOURS: usize = 7;

/// The class that gives a series its colour.
pub(crate) fn colour(series: usize) -> String {
    format!("c{}", series % COLOURS)
}

/// Where a text starts from its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A text and its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label<'a> {
    /// The left end, the middle or the right end; on the base line.
    pub(crate) at: Point,
    pub(crate) anchor: Anchor,
    pub(crate) class: &'a str,
    pub(crate) size: f64,
    /// Where there is less room than needed, the text is cut, and shown whole when pointed at.
    pub(crate) room: f64,
}

impl<'a> Label<'a> {
    /// A text that has all the room it needs.
    pub(crate) fn new(at: Point, anchor: Anchor, class: &'a str) -> Self {
        Self { at, anchor, class, size: TEXT_SIZE, room: f64::INFINITY }
    }
}

/// A picture in the making.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    out: String,
}

impl Canvas {
    /// A line, horizontal or vertical mostly.
    pub(crate) fn line(&mut self, from: Point, to: Point, class: &str) {
        let mut pen = Pen::default();
        pen.jump(from);
        pen.stroke(to);
        self.path(&pen.out, class);
    }

    /// A path of what a [`Pen`] drew; nothing if that is nothing.
    pub(crate) fn path(&mut self, drawn: &str, class: &str) {
        if !drawn.is_empty() {
            self.push(format_args!("<path class=\"{class}\" d=\"{drawn}\"/>\n"));
        }
    }

    /// A box with a text that is shown when it is pointed at.
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

    /// A text on one line.
    pub(crate) fn label(&mut self, label: Label<'_>, text: &str) {
        let shown = fit(text, label.size, label.room);
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

    /// Opens a group, for [`Canvas::close`] to end.
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

/// A finished picture.
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

    /// An SVG that needs nothing beside it.
    pub(crate) fn alone(&self) -> String {
        let title = escape(&self.title);
        let head = self.head();
        let style = format!("<style>{CSS}</style>");
        let back = "<rect class=\"back\" width=\"100%\" height=\"100%\"/>";
        format!("{head}\n<title>{title}</title>\n{style}\n{back}\n{}</svg>\n", self.body)
    }

    /// An SVG for a page that has [`CSS`].
    pub(crate) fn inline(&self) -> String {
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

/// The data of a path: absolute jumps, relative strokes, in tenths of a pixel.
#[derive(Debug, Default)]
pub(crate) struct Pen {
    pub(crate) out: String,
    at: (i64, i64),
}

impl Pen {
    pub(crate) fn jump(&mut self, to: Point) {
        self.at = (in_tenths(to.0), in_tenths(to.1));
        self.out.push('M');
        self.pair(self.at);
    }

    pub(crate) fn stroke(&mut self, to: Point) {
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

    /// A dot where the pen comes down: a stroke of no length, whose ends are round.
    pub(crate) fn dot(&mut self, at: Point) {
        self.jump(at);
        self.stroke(at);
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

/// The outline of the sign that tells a series from the others without its colour.
pub(crate) fn sign(series: usize, at: Point) -> String {
    let mut pen = Pen::default();
    let mut corners = |corners: &[Point]| {
        for (index, (x, y)) in corners.iter().enumerate() {
            let place = (at.0 + x, at.1 + y);
            if index == 0 { pen.jump(place) } else { pen.stroke(place) }
        }
    };
    // Of about the same area each. (ours)
    match series % SIGNS {
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

/// How many signs there are; with the colours, 35 series differ in one of the two.
const SIGNS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strokes_are_written_in_tenths_of_a_pixel() {
        let mut pen = Pen::default();
        pen.jump((1.04, -2.55));
        pen.stroke((3.0, -2.55));
        pen.stroke((3.0, 0.0));
        pen.stroke((2.0, 1.0));
        assert_eq!(pen.out, "M1-2.6h2v2.6l-1 1");
    }

    #[test]
    fn every_colour_is_in_the_style_for_light_and_dark() {
        for index in 0..COLOURS {
            assert_eq!(CSS.matches(&format!(".c{index}{{")).count(), 2, "c{index}");
        }
    }
}
