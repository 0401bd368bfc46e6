//! Downsampling: drops points that could not be distinguished, but no peak.
//!
//! A line with many points is drawn with the lowest and the highest point of each pixel column. If
//! the next column is empty, the first and the last point of the column stay too, so that a long
//! stroke starts and ends at the right place. (Compare U. Jugel et al., "M4: a
//! visualization-oriented time series data aggregation", PVLDB 7(10), 2014, which keeps all four.)

use std::collections::HashSet;

/// Position or value: x, y.
pub(crate) type Point = (f64, f64);

/// Extreme points of one pixel column, each with its index.
#[derive(Debug, Clone, Copy)]
struct Column {
    place: i64,
    first: (usize, Point),
    last: (usize, Point),
    low: (usize, Point),
    high: (usize, Point),
}

impl Column {
    fn new(place: i64, point: (usize, Point)) -> Self {
        Self { place, first: point, last: point, low: point, high: point }
    }

    fn add(&mut self, point: (usize, Point)) {
        self.last = point;
        if point.1.1 < self.low.1.1 {
            self.low = point;
        }
        if point.1.1 > self.high.1.1 {
            self.high = point;
        }
    }
}

/// Returns the runs of a line: points to be joined.
///
/// A point that is not `usable` ends a run, unless the gap lies within one column. `column` returns
/// the column of a point, given its index and the point.
pub(crate) fn line_runs(
    points: &[Point],
    usable: impl Fn(Point) -> bool,
    column: impl Fn(usize, Point) -> i64,
) -> Vec<Vec<Point>> {
    let mut runs: Vec<Vec<Column>> = Vec::new();
    let mut is_broken = true;
    for (index, point) in points.iter().enumerate() {
        if !usable(*point) {
            is_broken = true;
            continue;
        }
        let place = column(index, *point);
        let entry = (index, *point);
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|open| open.place == place) => {
                if let Some(open) = run.last_mut() {
                    open.add(entry);
                }
            }
            Some(run) if !is_broken => run.push(Column::new(place, entry)),
            _ => runs.push(vec![Column::new(place, entry)]),
        }
        is_broken = false;
    }
    runs.iter().map(|run| visible_points(run)).collect()
}

/// Returns the points of a run that are drawn.
fn visible_points(run: &[Column]) -> Vec<Point> {
    let mut out = Vec::with_capacity(2 * run.len());
    for (index, column) in run.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|i| run.get(i));
        let touches = |other: Option<&Column>| {
            other.is_some_and(|other| other.place.abs_diff(column.place) == 1)
        };
        let mut visible = vec![column.low, column.high];
        if !touches(before) {
            visible.push(column.first);
        }
        if !touches(run.get(index + 1)) {
            visible.push(column.last);
        }
        visible.sort_unstable_by_key(|(index, _)| *index);
        visible.dedup_by_key(|(index, _)| *index);
        out.extend(visible.into_iter().map(|(_, point)| point));
    }
    out
}

/// Returns the first of the points in each cell. `cell` returns the cell of a point.
pub(crate) fn one_per_cell(points: &[Point], cell: impl Fn(Point) -> (i64, i64)) -> Vec<Point> {
    let mut seen = HashSet::new();
    points.iter().copied().filter(|point| seen.insert(cell(*point))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a deterministic pseudo-random generator of numbers from 0 to 1. (Knuth's MMIX
    /// constants)
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn downsampling_keeps_extremes_of_every_column() {
        for seed in 0..40 {
            let mut next = noise(seed);
            let count = 2_000 + (next() * 20_000.0) as usize;
            let mut points: Vec<Point> =
                (0..count).map(|_| (next() * 700.0, next() * 100.0)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let column = |x: f64| x.floor() as i64;
            let visible = line_runs(&points, |_| true, |_, point| column(point.0)).concat();
            assert!(visible.len() <= 2 * 700 + 2 * 40, "seed {seed}: {}", visible.len());
            assert!(visible.is_sorted_by(|a, b| a.0 <= b.0), "seed {seed}");
            for place in 0..700 {
                let ends = |of: &[Point]| {
                    let inside = of.iter().filter(|point| column(point.0) == place);
                    inside.fold(None, |found: Option<(f64, f64)>, point| {
                        let (lo, hi) = found.unwrap_or((point.1, point.1));
                        Some((lo.min(point.1), hi.max(point.1)))
                    })
                };
                assert_eq!(ends(&points), ends(&visible), "seed {seed}, column {place}");
            }
        }
    }

    #[test]
    fn unusable_point_breaks_line_except_within_a_column() {
        let bad = (2.0, f64::NAN);
        let points = [(0.1, 1.0), (0.2, f64::NAN), (0.3, 3.0), (1.0, 2.0), bad, (5.0, 4.0)];
        let found = line_runs(&points, |point| point.1.is_finite(), |_, point| point.0 as i64);
        assert_eq!(found, [vec![(0.1, 1.0), (0.3, 3.0), (1.0, 2.0)], vec![(5.0, 4.0)]]);
    }

    #[test]
    fn stroke_over_empty_columns_starts_at_last_point() {
        let points = [(0.1, 5.0), (0.2, 9.0), (0.3, 1.0), (0.4, 4.0), (8.0, 2.0)];
        let found = line_runs(&points, |_| true, |_, point| point.0 as i64);
        assert_eq!(found, [points.to_vec()]);
    }

    #[test]
    fn dots_in_same_cell_are_drawn_once() {
        let points = [(0.1, 0.2), (0.3, 0.1), (1.5, 0.0)];
        assert_eq!(one_per_cell(&points, |p| (p.0 as i64, p.1 as i64)), [(0.1, 0.2), (1.5, 0.0)]);
    }
}
