//! Data of a line chart for the script of the page, as JSON: only the points that are drawn.

use crate::axis::{AxisLayout, Scale};
use crate::marks::Mark;
use crate::plot::{LEFT, Plot, PlottedSeries, RIGHT};
use crate::series::Shape;
use crate::svg::colour;
use crate::text::json_string;

/// Significant digits of a value of the vertical axis. (chosen: one more than is displayed)
const Y_DIGITS: usize = 4;

/// Significant digits that distinguish two pixels of an axis that starts at zero. (chosen: the plot
/// is 756 pixels wide)
const X_DIGITS: usize = 5;

/// Returns the data of a chart as JSON.
pub(crate) fn to_json(plot: &Plot, shown: &[PlottedSeries], marks: &[&Mark]) -> String {
    let (lo, hi) = (plot.x.lo, plot.x.hi);
    let ratio = lo.abs().max(hi.abs()) / (hi - lo);
    let x_digits = X_DIGITS + ratio.log10().ceil().clamp(0.0, 10.0) as usize;
    let series = json_array(shown, |shown| {
        let shape = match shown.shape {
            Shape::Line => "line",
            Shape::Step => "step",
            Shape::Dots => "dots",
        };
        let x = json_array(&shown.points, |(x, _)| format_rounded(*x, x_digits));
        let y = json_array(&shown.points, |(_, y)| {
            y.map_or_else(|| "null".to_owned(), |y| format_rounded(y, Y_DIGITS))
        });
        let (name, colour) = (json_string(&shown.name), colour(shown.index));
        format!(
            "{{\"name\":{name},\"colour\":\"{colour}\",\"shape\":\"{shape}\",\"x\":{x},\"y\":{y}}}"
        )
    });
    let marks = json_array(marks, |mark| {
        format!("[{},{}]", format_rounded(mark.at, x_digits), json_string(&mark.label))
    });
    let x = axis_json(&plot.x, (LEFT, RIGHT));
    let y = axis_json(&plot.y, (plot.bottom, plot.top));
    format!("{{\"x\":{x},\"y\":{y},\"series\":{series},\"marks\":{marks}}}")
}

/// Returns an axis as JSON: its ends in pixels and as values, and its multiples.
fn axis_json(axis: &AxisLayout, pixels: (f64, f64)) -> String {
    let multiples = match axis.scale {
        Scale::Linear => vec![axis.multiple],
        Scale::Log => axis.unit.multiples().to_vec(),
    };
    let multiples = json_array(&multiples, |multiple| {
        let written = axis.unit.with_name("", *multiple);
        format!("[{:e},{}]", multiple.size, json_string(&written))
    });
    let all = json_array(axis.unit.multiples(), |multiple| {
        let written = axis.unit.with_name("", *multiple);
        format!("[{:e},{}]", multiple.size, json_string(&written))
    });
    format!(
        "{{\"label\":{},\"px\":[{},{}],\"at\":[{:e},{:e}],\"log\":{},\"whole\":{},\"decimals\":{},\
         \"multiple\":{multiples},\"multiples\":{all}}}",
        json_string(&axis.label),
        pixels.0,
        pixels.1,
        axis.lo,
        axis.hi,
        axis.scale == Scale::Log,
        axis.unit.keeps_whole(),
        axis.decimals(RIGHT - LEFT),
    )
}

fn json_array<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    let texts: Vec<_> = items.iter().map(text).collect();
    format!("[{}]", texts.join(","))
}

/// Formats a number with `digits` significant digits, as short as possible.
fn format_rounded(value: f64, digits: usize) -> String {
    let exact = format!("{value:.*e}", digits.saturating_sub(1));
    let value: f64 = exact.parse().unwrap_or(value);
    let (plain, power) = (value.to_string(), format!("{value:e}"));
    if plain.len() <= power.len() { plain } else { power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_number_is_short_and_exact() {
        for (value, digits, text) in [
            (94_123_456.0, 4, "9412e4"),
            (0.0, 4, "0"),
            (12.0, 4, "12"),
            (-0.012_345, 4, "-0.01235"),
            (1e-9, 4, "1e-9"),
        ] {
            let short = format_rounded(value, digits);
            let exact: f64 = text.parse().unwrap();
            assert_eq!(short.parse::<f64>().unwrap(), exact);
            assert!(short.len() <= text.len() + 1, "{short}");
        }
    }
}
