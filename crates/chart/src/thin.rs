//! Fewer points where more could not be seen, without losing a peak.
//!
//! A line with many points is drawn with the lowest and the highest of each column of pixels.
//! Where a column's neighbour is empty, its first and its last point stay too, so that a long
//! stroke to the next column starts and ends where it should. (Compare U. Jugel et al., "M4: a
//! visualization-oriented time series data aggregation", PVLDB 7(10), 2014, which keeps all four.)

use std::collections::HashSet;

/// A place or a value: x, y.
pub(crate) type Point = (f64, f64);

/// What is known of the points of one column, each with its index.
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

/// The runs of a line: points to be joined. A point that is not `usable` ends a run, unless the
/// gap is within one column. `column` tells a point's column from its index and itself.
pub(crate) fn runs(
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
    runs.iter().map(|run| drawn(run)).collect()
}

/// The points of a run that are drawn.
fn drawn(run: &[Column]) -> Vec<Point> {
    let mut out = Vec::with_capacity(2 * run.len());
    for (index, column) in run.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|i| run.get(i));
        let touches = |other: Option<&Column>| {
            other.is_some_and(|other| other.place.abs_diff(column.place) == 1)
        };
        let mut kept = vec![column.low, column.high];
        if !touches(before) {
            kept.push(column.first);
        }
        if !touches(run.get(index + 1)) {
            kept.push(column.last);
        }
        kept.sort_unstable_by_key(|(index, _)| *index);
        kept.dedup_by_key(|(index, _)| *index);
        out.extend(kept.into_iter().map(|(_, point)| point));
    }
    out
}

/// The first of the points in each cell. `cell` tells where a point is.
pub(crate) fn dots(points: &[Point], cell: impl Fn(Point) -> (i64, i64)) -> Vec<Point> {
    let mut taken = HashSet::new();
    points.iter().copied().filter(|point| taken.insert(cell(*point))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random and are always the same. (Knuth's MMIX constants)
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn the_least_and_the_greatest_of_every_column_survive() {
        for seed in 0..40 {
            let mut next = noise(seed);
            let count = 2_000 + (next() * 20_000.0) as usize;
            let mut points: Vec<Point> =
                (0..count).map(|_| (next() * 700.0, next() * 100.0)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let column = |x: f64| x.floor() as i64;
            let kept = runs(&points, |_| true, |_, point| column(point.0)).concat();
            assert!(kept.len() <= 2 * 700 + 2 * 40, "seed {seed}: {}", kept.len());
            assert!(kept.is_sorted_by(|a, b| a.0 <= b.0), "seed {seed}");
            for place in 0..700 {
                let ends = |of: &[Point]| {
                    let inside = of.iter().filter(|point| column(point.0) == place);
                    inside.fold(None, |found: Option<(f64, f64)>, point| {
                        let (lo, hi) = found.unwrap_or((point.1, point.1));
                        Some((lo.min(point.1), hi.max(point.1)))
                    })
                };
                assert_eq!(ends(&points), ends(&kept), "seed {seed}, column {place}");
            }
        }
    }

    #[test]
    fn what_is_not_usable_breaks_the_line_unless_the_gap_is_too_narrow_to_see() {
        let bad = (2.0, f64::NAN);
        let points = [(0.1, 1.0), (0.2, f64::NAN), (0.3, 3.0), (1.0, 2.0), bad, (5.0, 4.0)];
        let found = runs(&points, |point| point.1.is_finite(), |_, point| point.0 as i64);
        assert_eq!(found, [vec![(0.1, 1.0), (0.3, 3.0), (1.0, 2.0)], vec![(5.0, 4.0)]]);
    }

    #[test]
    fn a_stroke_over_empty_columns_leaves_from_the_last_point_before_them() {
        let points = [(0.1, 5.0), (0.2, 9.0), (0.3, 1.0), (0.4, 4.0), (8.0, 2.0)];
        let found = runs(&points, |_| true, |_, point| point.0 as i64);
        assert_eq!(found, [points.to_vec()]);
    }

    #[test]
    fn dots_in_the_same_cell_are_one() {
        let points = [(0.1, 0.2), (0.3, 0.1), (1.5, 0.0)];
        assert_eq!(dots(&points, |p| (p.0 as i64, p.1 as i64)), [(0.1, 0.2), (1.5, 0.0)]);
    }
}
