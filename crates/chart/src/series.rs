//! Series of points and the way to draw them.

/// Way to draw the points of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shape {
    /// Points joined by straight lines.
    #[default]
    Line,
    /// Each value holds until the next one.
    Step,
    /// Points that are not joined.
    Dots,
}

/// Points of one series.
///
/// A point with a coordinate that is not finite breaks the line; so does a point that is not above
/// zero on a logarithmic axis. If a series has more than two points per pixel of the width, only
/// the points that make a difference are drawn; these include the lowest and the highest of each
/// pixel column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Name in the legend. A chart of one series without a name has no legend.
    pub name: String,
    /// x and y, in the units of the axes; x must not decrease, except for dots.
    pub points: Vec<(f64, f64)>,
    /// Way to draw the points.
    pub shape: Shape,
    /// Smallest and largest y at each point, in the order of `points`.
    pub whiskers: Option<Vec<(f64, f64)>>,
}

impl Series {
    /// Returns points joined by straight lines.
    #[must_use]
    pub fn line(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, shape: Shape::Line, whiskers: None }
    }

    /// Returns values that hold until the next one.
    #[must_use]
    pub fn step(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { shape: Shape::Step, ..Self::line(name, points) }
    }

    /// Returns points that are not joined.
    #[must_use]
    pub fn dots(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { shape: Shape::Dots, ..Self::line(name, points) }
    }
}
