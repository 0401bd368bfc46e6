//! Lines, steps and dots over a time or a parameter.

use crate::axis::{Axis, Ends, Room, Ruler, Scale};
use crate::data::{self, Shown};
use crate::marks::{self, FLAGS_HEIGHT, Mark};
use crate::svg::{
    Anchor, Canvas, Drawing, Label, Pen, SMALL_SIZE, TEXT_SIZE, TITLE_SIZE, WIDTH, colour, sign,
};
use crate::text::width;
use crate::thin::{self, Point};

/// How the points of a series are drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shape {
    /// Joined by straight lines.
    #[default]
    Line,
    /// A value holds until the next one.
    Step,
    /// Not joined.
    Dots,
}

/// Points that belong together.
///
/// A point with a coordinate that is not finite breaks the line; so does, on a logarithmic axis,
/// one that is not above zero. Of more than two points for each pixel of the width, only those
/// are drawn that make a difference: the lowest and the highest of each column of pixels are
/// always among them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// What the legend says. A chart of one series without a name has no legend.
    pub name: String,
    /// x and y, in the units of the axes; x must not go backwards, except for dots.
    pub points: Vec<(f64, f64)>,
    /// How they are drawn.
    pub shape: Shape,
    /// The least and the greatest y at each point, in the order of `points`.
    pub whiskers: Option<Vec<(f64, f64)>>,
}

impl Series {
    /// Points joined by straight lines.
    #[must_use]
    pub fn line(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, shape: Shape::Line, whiskers: None }
    }

    /// Values that hold until the next one.
    #[must_use]
    pub fn step(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { shape: Shape::Step, ..Self::line(name, points) }
    }

    /// Points that are not joined.
    #[must_use]
    pub fn dots(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { shape: Shape::Dots, ..Self::line(name, points) }
    }
}

/// Series over an axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LineChart {
    /// What the chart shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// What happened at places of the horizontal axis.
    pub marks: Vec<Mark>,
}

/// The first and the last value of a horizontal axis, and the part that is added beside them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    range: Option<(f64, f64)>,
    pad: f64,
}

impl Span {
    /// What two charts span that share an axis.
    pub(crate) fn with(self, other: Self) -> Self {
        let range = match (self.range, other.range) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        Self { range, pad: self.pad.min(other.pad) }
    }
}

/// The plot: its left and right end on all charts, so that charts below each other line up, and
/// its height. In pixels. (ours)
pub(crate) const LEFT: f64 = 84.0;
pub(crate) const RIGHT: f64 = WIDTH - 20.0;
const HEIGHT: f64 = 240.0;

/// A series with at most so many points has a sign on each, and room beside the outermost. (ours)
const SPARSE_MAX: usize = 60;
const SPARSE_PAD: f64 = 0.02;

/// How far apart the signs on a line with more points are, in pixels. (ours)
const SIGNS_APART: f64 = 150.0;

/// Dots whose places are within the same cell of so many pixels are one. (ours)
const DOT_CELL: f64 = 2.0;

impl LineChart {
    /// The chart as an SVG image that stands alone: 860 pixels wide, as high as it needs to be.
    #[must_use]
    pub fn to_svg(&self) -> String {
        self.draw(self.span()).0.alone()
    }

    /// What the horizontal axis spans if no other chart shares it.
    pub(crate) fn span(&self) -> Span {
        let few = |series: &Series| series.points.len() <= SPARSE_MAX;
        let has_signs = |series: &Series| series.shape != Shape::Step && !series.points.is_empty();
        let needs_room = self.series.iter().all(few) && self.series.iter().any(has_signs);
        Span { range: self.x_range(), pad: if needs_room { SPARSE_PAD } else { 0.0 } }
    }

    fn x_range(&self) -> Option<(f64, f64)> {
        let drawn = self.series.iter().flat_map(|series| &series.points);
        let drawn = drawn.filter(|point| self.y.has(point.1)).map(|point| point.0);
        self.x.range(drawn.chain(self.marks.iter().map(|mark| mark.at)))
    }

    /// The places and labels of all marks, if the picture does not list every one.
    pub(crate) fn listed(&self) -> Vec<(String, String)> {
        let marks = marks::in_order(&self.marks, |at| self.x.has(at));
        if marks.len() <= marks::LISTED_MAX {
            return Vec::new();
        }
        let plot = Plot::new(self, self.span(), 0.0);
        let place = |mark: &Mark| plot.x.read(mark.at, RIGHT - LEFT);
        marks.into_iter().map(|mark| (place(mark), mark.label.clone())).collect()
    }

    fn y_range(&self) -> Option<(f64, f64)> {
        let values = self.series.iter().flat_map(|series| {
            let ends = series.whiskers.iter().flatten().flat_map(|(lo, hi)| [*lo, *hi]);
            let drawn = series.points.iter().filter(|point| self.x.has(point.0));
            drawn.map(|point| point.1).chain(ends)
        });
        self.y.range(values)
    }

    /// The picture and, for the page's script, its figures.
    pub(crate) fn draw(&self, span: Span) -> (Drawing, String) {
        let mut canvas = Canvas::default();
        let marks = marks::in_order(&self.marks, |at| self.x.has(at));
        let legend = legend(&mut canvas, &self.title, &self.legend_names());
        let flags = if marks.is_empty() { 0.0 } else { FLAGS_HEIGHT };
        let top = legend + 32.0 + flags;
        let plot = Plot::new(self, span, top);
        plot.frame(&mut canvas, flags);
        marks::draw(&mut canvas, &marks, (plot.top, plot.bottom), |at| plot.x_of(at));
        let mut shown = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            shown.push(plot.series(&mut canvas, series, index, self.series.len()));
        }
        if shown.iter().all(|shown| shown.points.is_empty()) {
            let middle = (LEFT.midpoint(RIGHT), plot.top.midpoint(plot.bottom));
            canvas.label(Label::new(middle, Anchor::Middle, "word"), "no data");
        }
        let below = plot.bottom + 44.0;
        marks::list(&mut canvas, &marks, below, &plot.x, RIGHT - LEFT);
        let height = below + marks::list_height(&marks);
        let data = data::figures(&plot, &shown, &marks);
        (Drawing::new(&self.title, height, canvas), data)
    }

    fn legend_names(&self) -> Vec<(&str, Key)> {
        let key = |shape| if shape == Shape::Dots { Key::Sign } else { Key::Line };
        match &self.series[..] {
            [only] if only.name.is_empty() => Vec::new(),
            all => all.iter().map(|series| (series.name.as_str(), key(series.shape))).collect(),
        }
    }
}

/// What stands before a name in the legend, with the sign of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Line,
    Bar,
    /// The sign alone.
    Sign,
}

/// Draws the title and the names of the series, and tells where the picture can begin.
pub(crate) fn legend(canvas: &mut Canvas, title: &str, names: &[(&str, Key)]) -> f64 {
    let heading = Label::new((20.0, 24.0), Anchor::Start, "title");
    canvas.label(Label { size: TITLE_SIZE, room: WIDTH - 40.0, ..heading }, title);
    // From the left end in lines; a name has half the width at most. (ours)
    let room = WIDTH / 2.0 - 60.0;
    let (mut x, mut y) = (20.0, 47.0);
    for (index, (name, key)) in names.iter().enumerate() {
        let needed = 26.0 + width(name, TEXT_SIZE).min(room) + 18.0;
        if x + needed > WIDTH && x > 20.0 {
            (x, y) = (20.0, y + 19.0);
        }
        canvas.open(&colour(index));
        match key {
            Key::Line => canvas.line((x, y - 4.0), (x + 20.0, y - 4.0), "line"),
            Key::Bar => canvas.rect((x, y - 10.0), (20.0, 12.0), "bar", ""),
            Key::Sign => {}
        }
        canvas.path(&sign(index, (x + 10.0, y - 4.0)), "sign");
        canvas.close();
        let label = Label::new((x + 26.0, y), Anchor::Start, "name");
        canvas.label(Label { room, ..label }, name);
        x += needed;
    }
    if names.is_empty() { 28.0 } else { y + 6.0 }
}

/// The area that lines are drawn in.
#[derive(Debug)]
pub(crate) struct Plot {
    pub(crate) x: Ruler,
    pub(crate) y: Ruler,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    axes: (Axis, Axis),
}

impl Plot {
    fn new(chart: &LineChart, span: Span, top: f64) -> Self {
        let across = Room::Beside(RIGHT - LEFT, SMALL_SIZE);
        let x_axis = Axis { from_zero: false, ..chart.x.clone() };
        let range = match span.range {
            Some((lo, hi)) if chart.x.from_zero && chart.x.scale == Scale::Linear => {
                Some((lo.min(0.0), hi.max(0.0)))
            }
            other => other,
        };
        Self {
            x: Ruler::new(&x_axis, range, Ends::AtValues(span.pad), across),
            y: Ruler::new(&chart.y, chart.y_range(), Ends::AtTicks, Room::Stacked(6)),
            top,
            bottom: top + HEIGHT,
            axes: (chart.x.clone(), chart.y.clone()),
        }
    }

    fn x_of(&self, value: f64) -> f64 {
        LEFT + self.x.part(value) * (RIGHT - LEFT)
    }

    fn y_of(&self, value: f64) -> f64 {
        self.bottom - self.y.part(value) * (self.bottom - self.top)
    }

    fn place(&self, point: Point) -> Point {
        (self.x_of(point.0), self.y_of(point.1))
    }

    fn is_usable(&self, point: Point) -> bool {
        self.axes.0.has(point.0) && self.axes.1.has(point.1)
    }

    /// Draws the grid, the ticks and the labels of the axes.
    fn frame(&self, canvas: &mut Canvas, flags: f64) {
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
            canvas.label(Label { size: SMALL_SIZE, room: LEFT - 10.0, ..label }, &tick.label);
        }
        for tick in &self.x.ticks {
            let x = self.x_of(tick.value);
            canvas.line((x, self.bottom), (x, self.bottom + 5.0), "axis");
            let label = Label::new((x, self.bottom + 18.0), Anchor::Middle, "small muted");
            canvas.label(Label { size: SMALL_SIZE, ..label }, &tick.label);
        }
        canvas.line((LEFT, self.bottom), (RIGHT, self.bottom), "axis");
        let room = RIGHT - 20.0;
        let y_title = Label::new((20.0, self.top - flags - 14.0), Anchor::Start, "muted");
        canvas.label(Label { room, ..y_title }, &self.y.title());
        let middle = (LEFT.midpoint(RIGHT), self.bottom + 36.0);
        let x_title = Label::new(middle, Anchor::Middle, "muted");
        canvas.label(Label { room: RIGHT - LEFT, ..x_title }, &self.x.title());
    }

    /// Draws a series, and tells what of it is drawn.
    fn series(&self, canvas: &mut Canvas, series: &Series, index: usize, of: usize) -> Shown {
        let is_sparse = series.points.len() <= SPARSE_MAX;
        canvas.open(&colour(index));
        let runs = match series.shape {
            Shape::Dots => vec![self.thin_dots(series)],
            Shape::Line | Shape::Step => self.thin_line(series),
        };
        let class = if series.shape == Shape::Dots { "dots" } else { "line" };
        if series.shape != Shape::Dots || !is_sparse {
            canvas.path(&self.path(&runs, series.shape), class);
        }
        if let Some(whiskers) = &series.whiskers {
            self.whiskers(canvas, &series.points, whiskers);
        }
        let all = runs.iter().flatten().map(|point| self.place(*point));
        if is_sparse && series.shape != Shape::Step {
            all.for_each(|place| canvas.path(&sign(index, place), "sign"));
        } else if of > 1 && series.shape != Shape::Dots {
            let mut next = LEFT + SIGNS_APART * (index as f64 + 0.5) / of as f64;
            for place in all {
                if place.0 >= next {
                    canvas.path(&sign(index, place), "sign");
                    next += ((place.0 - next) / SIGNS_APART).floor() * SIGNS_APART + SIGNS_APART;
                }
            }
        }
        canvas.close();
        Shown::new(&series.name, index, series.shape, &runs)
    }

    fn thin_line(&self, series: &Series) -> Vec<Vec<Point>> {
        let is_thin = series.points.len() as f64 <= 2.0 * (RIGHT - LEFT);
        let column = |index: usize, point: Point| match is_thin {
            true => index as i64,
            false => self.x_of(point.0).floor() as i64,
        };
        thin::runs(&series.points, |point| self.is_usable(point), column)
    }

    fn thin_dots(&self, series: &Series) -> Vec<Point> {
        let usable = series.points.iter().copied().filter(|point| self.is_usable(*point));
        let mut points: Vec<_> = usable.collect();
        if points.len() as f64 > 2.0 * (RIGHT - LEFT) {
            points = thin::dots(&points, |point| {
                let (x, y) = self.place(point);
                ((x / DOT_CELL).floor() as i64, (y / DOT_CELL).floor() as i64)
            });
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    }

    fn path(&self, runs: &[Vec<Point>], shape: Shape) -> String {
        let mut pen = Pen::default();
        for run in runs {
            let mut places = run.iter().map(|point| self.place(*point));
            if shape == Shape::Dots {
                places.for_each(|place| pen.dot(place));
                continue;
            }
            let Some(mut last) = places.next() else { continue };
            pen.jump(last);
            if run.len() == 1 {
                pen.stroke(last);
            }
            for place in places {
                if shape == Shape::Step && place.1 != last.1 {
                    pen.stroke((place.0, last.1));
                }
                pen.stroke(place);
                last = place;
            }
        }
        pen.out
    }

    /// Draws the least and the greatest value at each point.
    fn whiskers(&self, canvas: &mut Canvas, points: &[Point], whiskers: &[Point]) {
        let mut pen = Pen::default();
        for (point, (lo, hi)) in points.iter().zip(whiskers) {
            if self.is_usable((point.0, *lo)) && self.is_usable((point.0, *hi)) {
                let x = self.x_of(point.0);
                for y in [self.y_of(*lo), self.y_of(*hi)] {
                    pen.jump((x - 4.0, y));
                    pen.stroke((x + 4.0, y));
                }
                pen.jump((x, self.y_of(*lo)));
                pen.stroke((x, self.y_of(*hi)));
            }
        }
        canvas.path(&pen.out, "whisker");
    }
}
