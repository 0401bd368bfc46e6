//! Plot area of a line chart: its axes, grid and series.

use crate::axis::{Axis, AxisEnds, AxisLayout, LabelSpace, Scale};
use crate::downsample::{self, Point};
use crate::series::{Series, Shape};
use crate::svg::{Anchor, Canvas, Label, PathPen, SMALL_SIZE, WIDTH, colour, symbol};

/// Left and right end of the plot, and its height, in pixels. The ends are equal on all charts, so
/// that they line up. (chosen: legibility)
pub(crate) const LEFT: f64 = 84.0;
pub(crate) const RIGHT: f64 = WIDTH - 20.0;
const PLOT_HEIGHT: f64 = 240.0;

/// Most points of a series with a symbol on each, and the outer padding. (chosen: symbols do not
/// overlap)
pub(crate) const MAX_SPARSE_POINTS: usize = 60;
pub(crate) const SPARSE_PADDING: f64 = 0.02;

/// Distance of the symbols on a line with more points, in pixels. (chosen: legibility)
const SYMBOL_SPACING: f64 = 150.0;

/// Size of a cell in pixels; dots in the same cell are drawn once. (chosen: half of a dot's
/// diameter)
const DOT_CELL_SIZE: f64 = 2.0;

/// Range of a horizontal axis, and the fraction added on each side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AxisSpan {
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) pad: f64,
}

impl AxisSpan {
    /// Returns the span that two charts with a common axis share.
    pub(crate) fn merged_with(self, other: Self) -> Self {
        let range = match (self.range, other.range) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        Self { range, pad: self.pad.min(other.pad) }
    }
}

/// Points of a series that are drawn.
#[derive(Debug)]
pub(crate) struct PlottedSeries {
    pub(crate) name: String,
    pub(crate) index: usize,
    pub(crate) shape: Shape,
    /// Points in the order of the axis; y is `None` where the line is broken.
    pub(crate) points: Vec<(f64, Option<f64>)>,
}

impl PlottedSeries {
    fn new(name: &str, index: usize, shape: Shape, runs: &[Vec<Point>]) -> Self {
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

/// Area in which lines are drawn.
#[derive(Debug)]
pub(crate) struct Plot {
    pub(crate) x: AxisLayout,
    pub(crate) y: AxisLayout,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    axes: (Axis, Axis),
}

impl Plot {
    /// Returns a plot whose upper end is at `top`; `y_range` is the range of the values.
    pub(crate) fn new(
        (x, y): (&Axis, &Axis),
        span: AxisSpan,
        y_range: Option<(f64, f64)>,
        top: f64,
    ) -> Self {
        let across = LabelSpace::Horizontal(RIGHT - LEFT, SMALL_SIZE);
        let x_axis = Axis { from_zero: false, ..x.clone() };
        let range = match span.range {
            Some((lo, hi)) if x.from_zero && x.scale == Scale::Linear => {
                Some((lo.min(0.0), hi.max(0.0)))
            }
            other => other,
        };
        Self {
            x: AxisLayout::new(&x_axis, range, AxisEnds::AtValues(span.pad), across),
            y: AxisLayout::new(y, y_range, AxisEnds::AtTicks, LabelSpace::Vertical(6)),
            top,
            bottom: top + PLOT_HEIGHT,
            axes: (x.clone(), y.clone()),
        }
    }

    pub(crate) fn x_of(&self, value: f64) -> f64 {
        LEFT + self.x.fraction(value) * (RIGHT - LEFT)
    }

    fn y_of(&self, value: f64) -> f64 {
        self.bottom - self.y.fraction(value) * (self.bottom - self.top)
    }

    fn place(&self, point: Point) -> Point {
        (self.x_of(point.0), self.y_of(point.1))
    }

    fn is_usable(&self, point: Point) -> bool {
        self.axes.0.can_show(point.0) && self.axes.1.can_show(point.1)
    }

    /// Draws the grid, the ticks and the labels of the axes.
    pub(crate) fn draw_frame(&self, canvas: &mut Canvas, flags: f64) {
        for minor in &self.y.minor {
            let y = self.y_of(*minor);
            canvas.line((LEFT, y), (RIGHT, y), "minor");
        }
        for minor in &self.x.minor {
            let x = self.x_of(*minor);
            canvas.line((x, self.top), (x, self.bottom), "minor");
        }
        for tick in &self.y.ticks {
            let y = self.y_of(tick.value);
            canvas.line((LEFT, y), (RIGHT, y), "grid");
            let label = Label::new((LEFT - 8.0, y + 4.0), Anchor::End, "small muted");
            canvas.label(Label { size: SMALL_SIZE, max_width: LEFT - 10.0, ..label }, &tick.label);
        }
        for tick in &self.x.ticks {
            let x = self.x_of(tick.value);
            canvas.line((x, self.bottom), (x, self.bottom + 5.0), "axis");
            let label = Label::new((x, self.bottom + 18.0), Anchor::Middle, "small muted");
            canvas.label(Label { size: SMALL_SIZE, ..label }, &tick.label);
        }
        canvas.line((LEFT, self.bottom), (RIGHT, self.bottom), "axis");
        let max_width = RIGHT - 20.0;
        let y_title = Label::new((20.0, self.top - flags - 14.0), Anchor::Start, "muted");
        canvas.label(Label { max_width, ..y_title }, &self.y.title());
        let middle = (LEFT.midpoint(RIGHT), self.bottom + 36.0);
        let x_title = Label::new(middle, Anchor::Middle, "muted");
        canvas.label(Label { max_width: RIGHT - LEFT, ..x_title }, &self.x.title());
    }

    /// Draws a series, and returns the points that are drawn.
    pub(crate) fn draw_series(
        &self,
        canvas: &mut Canvas,
        series: &Series,
        index: usize,
        of: usize,
    ) -> PlottedSeries {
        let is_sparse = series.points.len() <= MAX_SPARSE_POINTS;
        canvas.open(&colour(index));
        let runs = match series.shape {
            Shape::Dots => vec![self.dot_points(series)],
            Shape::Line | Shape::Step => self.line_runs(series),
        };
        let class = if series.shape == Shape::Dots { "dots" } else { "line" };
        if series.shape != Shape::Dots || !is_sparse {
            canvas.path(&self.path(&runs, series.shape), class);
        }
        if let Some(whiskers) = &series.whiskers {
            self.draw_whiskers(canvas, &series.points, whiskers);
        }
        let all = runs.iter().flatten().map(|point| self.place(*point));
        if is_sparse && series.shape != Shape::Step {
            all.for_each(|place| canvas.path(&symbol(index, place), "symbol"));
        } else if of > 1 && series.shape != Shape::Dots {
            let mut next = LEFT + SYMBOL_SPACING * (index as f64 + 0.5) / of as f64;
            for place in all {
                if place.0 >= next {
                    canvas.path(&symbol(index, place), "symbol");
                    next += ((place.0 - next) / SYMBOL_SPACING).floor() * SYMBOL_SPACING
                        + SYMBOL_SPACING;
                }
            }
        }
        canvas.close();
        PlottedSeries::new(&series.name, index, series.shape, &runs)
    }

    fn line_runs(&self, series: &Series) -> Vec<Vec<Point>> {
        let has_few_points = series.points.len() as f64 <= 2.0 * (RIGHT - LEFT);
        let column = |index: usize, point: Point| match has_few_points {
            true => index as i64,
            false => self.x_of(point.0).floor() as i64,
        };
        downsample::line_runs(&series.points, |point| self.is_usable(point), column)
    }

    fn dot_points(&self, series: &Series) -> Vec<Point> {
        let usable = series.points.iter().copied().filter(|point| self.is_usable(*point));
        let mut points: Vec<_> = usable.collect();
        if points.len() as f64 > 2.0 * (RIGHT - LEFT) {
            points = downsample::one_per_cell(&points, |point| {
                let (x, y) = self.place(point);
                ((x / DOT_CELL_SIZE).floor() as i64, (y / DOT_CELL_SIZE).floor() as i64)
            });
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    }

    fn path(&self, runs: &[Vec<Point>], shape: Shape) -> String {
        let mut pen = PathPen::default();
        for run in runs {
            let mut places = run.iter().map(|point| self.place(*point));
            if shape == Shape::Dots {
                places.for_each(|place| pen.dot(place));
                continue;
            }
            let Some(mut last) = places.next() else { continue };
            pen.move_to(last);
            if run.len() == 1 {
                pen.line_to(last);
            }
            for place in places {
                if shape == Shape::Step && place.1 != last.1 {
                    pen.line_to((place.0, last.1));
                }
                pen.line_to(place);
                last = place;
            }
        }
        pen.out
    }

    /// Draws the smallest and the largest value at each point.
    fn draw_whiskers(&self, canvas: &mut Canvas, points: &[Point], whiskers: &[Point]) {
        let mut pen = PathPen::default();
        for (point, (lo, hi)) in points.iter().zip(whiskers) {
            if self.is_usable((point.0, *lo)) && self.is_usable((point.0, *hi)) {
                let x = self.x_of(point.0);
                for y in [self.y_of(*lo), self.y_of(*hi)] {
                    pen.move_to((x - 4.0, y));
                    pen.line_to((x + 4.0, y));
                }
                pen.move_to((x, self.y_of(*lo)));
                pen.line_to((x, self.y_of(*hi)));
            }
        }
        canvas.path(&pen.out, "whisker");
    }
}
