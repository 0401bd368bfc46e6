//! Line charts: lines, steps and dots over a time or a parameter.

use crate::axis::Axis;
use crate::legend::{LegendKey, draw_legend};
use crate::marks::{self, FLAGS_HEIGHT, Mark};
use crate::plot::{AxisSpan, LEFT, MAX_SPARSE_POINTS, Plot, RIGHT, SPARSE_PADDING};
use crate::script_data;
use crate::series::{Series, Shape};
use crate::svg::{Anchor, Canvas, Drawing, Label};

/// Chart of series over an axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LineChart {
    /// Title of the chart.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series to draw.
    pub series: Vec<Series>,
    /// Events on the horizontal axis.
    pub marks: Vec<Mark>,
}

impl LineChart {
    /// Returns the chart as a standalone SVG image, 860 pixels wide. Its height fits the content.
    #[must_use]
    pub fn to_svg(&self) -> String {
        self.draw(self.span()).0.to_standalone_svg()
    }

    /// Returns the span of the horizontal axis when no other chart shares it.
    pub(crate) fn span(&self) -> AxisSpan {
        let few = |series: &Series| series.points.len() <= MAX_SPARSE_POINTS;
        let has_symbols =
            |series: &Series| series.shape != Shape::Step && !series.points.is_empty();
        let needs_padding = self.series.iter().all(few) && self.series.iter().any(has_symbols);
        AxisSpan { range: self.x_range(), pad: if needs_padding { SPARSE_PADDING } else { 0.0 } }
    }

    fn x_range(&self) -> Option<(f64, f64)> {
        let drawn = self.series.iter().flat_map(|series| &series.points);
        let drawn = drawn.filter(|point| self.y.can_show(point.1)).map(|point| point.0);
        self.x.range(drawn.chain(self.marks.iter().map(|mark| mark.at)))
    }

    /// Returns positions and labels of all marks, if the picture does not list all.
    pub(crate) fn marks_for_table(&self) -> Vec<(String, String)> {
        let marks = marks::sorted_marks(&self.marks, |at| self.x.can_show(at));
        if marks.len() <= marks::MAX_LISTED_MARKS {
            return Vec::new();
        }
        let plot = Plot::new((&self.x, &self.y), self.span(), self.y_range(), 0.0);
        let place = |mark: &Mark| plot.x.format_value(mark.at, RIGHT - LEFT);
        marks.into_iter().map(|mark| (place(mark), mark.label.clone())).collect()
    }

    fn y_range(&self) -> Option<(f64, f64)> {
        let values = self.series.iter().flat_map(|series| {
            let ends = series.whiskers.iter().flatten().flat_map(|(lo, hi)| [*lo, *hi]);
            let drawn = series.points.iter().filter(|point| self.x.can_show(point.0));
            drawn.map(|point| point.1).chain(ends)
        });
        self.y.range(values)
    }

    /// Draws the picture, and returns it with its data for the script of the page.
    pub(crate) fn draw(&self, span: AxisSpan) -> (Drawing, String) {
        let mut canvas = Canvas::default();
        let marks = marks::sorted_marks(&self.marks, |at| self.x.can_show(at));
        let legend = draw_legend(&mut canvas, &self.title, &self.legend_names());
        let flags = if marks.is_empty() { 0.0 } else { FLAGS_HEIGHT };
        let top = legend + 32.0 + flags;
        let plot = Plot::new((&self.x, &self.y), span, self.y_range(), top);
        plot.draw_frame(&mut canvas, flags);
        marks::draw(&mut canvas, &marks, (plot.top, plot.bottom), |at| plot.x_of(at));
        let mut shown = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            shown.push(plot.draw_series(&mut canvas, series, index, self.series.len()));
        }
        if shown.iter().all(|shown| shown.points.is_empty()) {
            let middle = (LEFT.midpoint(RIGHT), plot.top.midpoint(plot.bottom));
            canvas.label(Label::new(middle, Anchor::Middle, "placeholder"), "no data");
        }
        let below = plot.bottom + 44.0;
        marks::draw_list(&mut canvas, &marks, below, &plot.x, RIGHT - LEFT);
        let height = below + marks::list_height(&marks);
        let data = script_data::to_json(&plot, &shown, &marks);
        (Drawing::new(&self.title, height, canvas), data)
    }

    fn legend_names(&self) -> Vec<(&str, LegendKey)> {
        let key = |shape| if shape == Shape::Dots { LegendKey::Symbol } else { LegendKey::Line };
        match &self.series[..] {
            [only] if only.name.is_empty() => Vec::new(),
            all => all.iter().map(|series| (series.name.as_str(), key(series.shape))).collect(),
        }
    }
}
