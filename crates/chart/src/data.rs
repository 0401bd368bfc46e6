//! The figures of a line chart for the page's script, as JSON: those that are drawn, no more.

use crate::axis::{Ruler, Scale};
use crate::line::{LEFT, Plot, RIGHT, Shape};
use crate::marks::Mark;
use crate::svg::colour;
use crate::text::json_string;
use crate::thin::Point;

/// What is drawn of a series.
#[derive(Debug)]
pub(crate) struct Shown {
    name: String,
    index: usize,
    shape: Shape,
    /// In the order of the axis; `None` where the line is broken.
    pub(crate) points: Vec<(f64, Option<f64>)>,
}

impl Shown {
    pub(crate) fn new(name: &str, index: usize, shape: Shape, runs: &[Vec<Point>]) -> Self {
        let mut points = Vec::new();
        for run in runs {
            if let Some((x, _)) = points.last() {
                points.push((*x, None));
            }
            points.extend(run.iter().map(|(x, y)| (*x, Some(*y))));
        }
        Self { name: name.to_owned(), index, shape, points }
    }
}

/// The digits that a value of the vertical axis keeps. (ours: one more than is written)
const DIGITS: usize = 4;

/// The digits that tell two pixels of an axis apart, if it starts at zero. (ours)
const DIGITS_OF_AXIS: usize = 5;

/// The figures of a chart.
pub(crate) fn figures(plot: &Plot, shown: &[Shown], marks: &[&Mark]) -> String {
    let (lo, hi) = (plot.x.lo, plot.x.hi);
    let ratio = lo.abs().max(hi.abs()) / (hi - lo);
    let x_digits = DIGITS_OF_AXIS + ratio.log10().ceil().clamp(0.0, 10.0) as usize;
    let series = list(shown, |shown| {
        let shape = match shown.shape {
            Shape::Line => "line",
            Shape::Step => "step",
            Shape::Dots => "dots",
        };
        let x = list(&shown.points, |(x, _)| rounded(*x, x_digits));
        let y = list(&shown.points, |(_, y)| {
            y.map_or_else(|| "null".to_owned(), |y| rounded(y, DIGITS))
        });
        let (name, colour) = (json_string(&shown.name), colour(shown.index));
        format!(
            "{{\"name\":{name},\"colour\":\"{colour}\",\"shape\":\"{shape}\",\"x\":{x},\"y\":{y}}}"
        )
    });
    let marks = list(marks, |mark| {
        format!("[{},{}]", rounded(mark.at, x_digits), json_string(&mark.label))
    });
    let x = ruler(&plot.x, (LEFT, RIGHT));
    let y = ruler(&plot.y, (plot.bottom, plot.top));
    format!("{{\"x\":{x},\"y\":{y},\"series\":{series},\"marks\":{marks}}}")
}

/// An axis: its ends in pixels and as values, and its multiples.
fn ruler(ruler: &Ruler, pixels: (f64, f64)) -> String {
    let multiples = match ruler.scale {
        Scale::Linear => vec![ruler.multiple],
        Scale::Log => ruler.unit.multiples().to_vec(),
    };
    let multiples = list(&multiples, |multiple| {
        let written = ruler.unit.with_name("", *multiple);
        format!("[{:e},{}]", multiple.size, json_string(&written))
    });
    let all = list(ruler.unit.multiples(), |multiple| {
        let written = ruler.unit.with_name("", *multiple);
        format!("[{:e},{}]", multiple.size, json_string(&written))
    });
    format!(
        "{{\"label\":{},\"px\":[{},{}],\"at\":[{:e},{:e}],\"log\":{},\"whole\":{},\"decimals\":{},\
         \"multiple\":{multiples},\"multiples\":{all}}}",
        json_string(&ruler.label),
        pixels.0,
        pixels.1,
        ruler.lo,
        ruler.hi,
        ruler.scale == Scale::Log,
        ruler.unit.keeps_whole(),
        ruler.decimals(RIGHT - LEFT),
    )
}

fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    let texts: Vec<_> = items.iter().map(text).collect();
    format!("[{}]", texts.join(","))
}

/// A number with so many digits, as short as it gets.
fn rounded(value: f64, digits: usize) -> String {
    let exact = format!("{value:.*e}", digits.saturating_sub(1));
    let value: f64 = exact.parse().unwrap_or(value);
    let (plain, power) = (value.to_string(), format!("{value:e}"));
    if plain.len() <= power.len() { plain } else { power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, digits, text) in [
            (94_123_456.0, 4, "9412e4"),
            (0.0, 4, "0"),
            (12.0, 4, "12"),
            (-0.012_345, 4, "-0.01235"),
            (1e-9, 4, "1e-9"),
        ] {
            let short = rounded(value, digits);
            let exact: f64 = text.parse().unwrap();
            assert_eq!(short.parse::<f64>().unwrap(), exact);
            assert!(short.len() <= text.len() + 1, "{short}");
        }
    }
}
