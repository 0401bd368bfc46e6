//! Marks on an axis: numbered flags above the picture, and their labels below it.

use crate::axis::AxisLayout;
use crate::plot::LEFT;
use crate::svg::{Anchor, Canvas, Label, SMALL_SIZE, WIDTH};
use crate::text::text_width;
use std::cmp::Ordering;

/// Event on an axis: a vertical line with a numbered flag, and a line in the list below.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mark {
    /// Position on the horizontal axis, in its unit. A value without a position is left out.
    pub at: f64,
    /// Text of the event: "link cut".
    pub label: String,
}

impl Mark {
    /// Returns a mark.
    #[must_use]
    pub fn new(at: f64, label: &str) -> Self {
        Self { at, label: label.to_owned() }
    }
}

/// Most marks in the list below the picture, in two columns. A page lists all marks. (chosen:
/// height of the picture)
pub(crate) const MAX_LISTED_MARKS: usize = 20;

/// Height of the row of flags, and of a line of the list, in pixels. (chosen: legibility)
pub(crate) const FLAGS_HEIGHT: f64 = 25.0;
const LIST_LINE_HEIGHT: f64 = 17.0;

/// Width of a column of the list; a longer label makes a single column. In pixels. (chosen: half of
/// the picture)
const LIST_COLUMN_WIDTH: f64 = (WIDTH - 60.0) / 2.0;

/// Flag of one mark, or of neighbouring marks whose flags would overlap: "3–7".
#[derive(Debug, Clone, PartialEq)]
struct Flag {
    /// Numbers of the first and the last mark.
    first: usize,
    last: usize,
    /// Centre in pixels.
    at: f64,
}

impl Flag {
    fn number_text(&self) -> String {
        match self.last - self.first {
            0 => self.first.to_string(),
            1 => format!("{}, {}", self.first, self.last),
            _ => format!("{}–{}", self.first, self.last),
        }
    }

    fn half_width(&self) -> f64 {
        (text_width(&self.number_text(), SMALL_SIZE) + 8.0) / 2.0
    }

    /// Returns one flag for the marks of both.
    fn merged_with(&self, next: &Self) -> Self {
        let (count, next_count) = (self.last - self.first + 1, next.last - next.first + 1);
        let sum = self.at * count as f64 + next.at * next_count as f64;
        Self { first: self.first, last: next.last, at: sum / (count + next_count) as f64 }
    }

    /// Moves the flag between the labels of the vertical axis and the right end.
    fn clamped(mut self) -> Self {
        let half = self.half_width();
        self.at = self.at.clamp(LEFT - 6.0 + half, WIDTH - 2.0 - half);
        self
    }

    fn overlaps(&self, next: &Self) -> bool {
        next.at - next.half_width() < self.at + self.half_width() + 2.0
    }
}

/// Returns the marks with a position on an axis, in its order; they are numbered from 1.
pub(crate) fn sorted_marks(marks: &[Mark], has_place: impl Fn(f64) -> bool) -> Vec<&Mark> {
    let mut marks: Vec<_> = marks.iter().filter(|mark| has_place(mark.at)).collect();
    marks.sort_by(|a, b| a.at.partial_cmp(&b.at).unwrap_or(Ordering::Equal));
    marks
}

/// Returns flags for marks at these positions, without overlap.
fn flags(places: &[f64]) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let mut flag = Flag { first: index + 1, last: index + 1, at: *place }.clamped();
        while let Some(previous) = flags.pop_if(|previous| previous.overlaps(&flag)) {
            flag = previous.merged_with(&flag).clamped();
        }
        flags.push(flag);
    }
    flags
}

/// Draws marked values of the horizontal axis over a plot, with numbered flags above it.
///
/// `place` returns the x coordinate of a value; the plot is between `top` and `bottom`.
pub(crate) fn draw(
    canvas: &mut Canvas,
    marks: &[&Mark],
    (top, bottom): (f64, f64),
    place: impl Fn(f64) -> f64,
) {
    let places: Vec<_> = marks.iter().map(|mark| place(mark.at)).collect();
    let mut drawn = f64::NEG_INFINITY;
    for at in &places {
        // Lines on the same pixel are drawn once.
        if at - drawn >= 1.0 {
            canvas.line((*at, top - 7.0), (*at, bottom), "mark");
            drawn = *at;
        }
    }
    for flag in flags(&places) {
        let half = flag.half_width();
        let labels = marks[flag.first - 1..flag.last].iter().take(MAX_LISTED_MARKS);
        let title = labels.map(|mark| mark.label.as_str()).collect::<Vec<_>>().join("; ");
        canvas.rect((flag.at - half, top - 22.0), (2.0 * half, 15.0), "flag", &title);
        let label = Label::new((flag.at, top - 10.5), Anchor::Middle, "flag-text");
        canvas.label(label, &flag.number_text());
    }
}

/// Returns the height of the list below a picture, in pixels.
pub(crate) fn list_height(marks: &[&Mark]) -> f64 {
    match marks.len() {
        0 => 0.0,
        _ => 8.0 + LIST_LINE_HEIGHT * list_layout(marks).1 as f64,
    }
}

/// Returns the number of columns and lines of the list.
fn list_layout(marks: &[&Mark]) -> (usize, usize) {
    let listed = marks.len().min(MAX_LISTED_MARKS);
    let more = usize::from(marks.len() > listed);
    let is_long =
        |mark: &&&Mark| text_width(&mark.label, SMALL_SIZE) > LIST_COLUMN_WIDTH - LIST_LABEL_LEFT;
    let columns = if marks.iter().take(listed).any(|mark| is_long(&mark)) { 1 } else { 2 };
    let columns = if listed <= 3 { 1 } else { columns };
    (columns, listed.div_ceil(columns) + more)
}

/// Right end of the time and left end of the label in the list. In pixels. (chosen: width of the
/// longest time)
const LIST_TIME_RIGHT: f64 = 88.0;
const LIST_LABEL_LEFT: f64 = 98.0;

/// Lists the marks below a picture, starting at `top`.
pub(crate) fn draw_list(
    canvas: &mut Canvas,
    marks: &[&Mark],
    top: f64,
    axis: &AxisLayout,
    pixels: f64,
) {
    let listed = marks.len().min(MAX_LISTED_MARKS);
    let (columns, lines) = list_layout(marks);
    let rows = listed.div_ceil(columns).max(1);
    let max_width = if columns == 1 { WIDTH - 40.0 } else { LIST_COLUMN_WIDTH };
    for (index, mark) in marks.iter().take(listed).enumerate() {
        let x = 20.0 + (index / rows) as f64 * (LIST_COLUMN_WIDTH + 20.0);
        let y = top + 14.0 + LIST_LINE_HEIGHT * (index % rows) as f64;
        let number = (index + 1).to_string();
        let half = (text_width(&number, SMALL_SIZE) + 8.0) / 2.0;
        canvas.rect((x, y - 11.0), (2.0 * half, 14.0), "flag", "");
        let flag = Label::new((x + half, y - 0.5), Anchor::Middle, "flag-text");
        canvas.label(flag, &number);
        let time = Label::new((x + LIST_TIME_RIGHT, y), Anchor::End, "small muted");
        canvas.label(
            Label { size: SMALL_SIZE, max_width: LIST_TIME_RIGHT - 2.0 * half - 4.0, ..time },
            &axis.format_value(mark.at, pixels),
        );
        let label = Label::new((x + LIST_LABEL_LEFT, y), Anchor::Start, "small");
        let label = Label { size: SMALL_SIZE, max_width: max_width - LIST_LABEL_LEFT, ..label };
        canvas.label(label, &mark.label);
    }
    if marks.len() > listed {
        let y = top + 14.0 + LIST_LINE_HEIGHT * (lines - 1) as f64;
        let label = Label::new((20.0, y), Anchor::Start, "small muted");
        canvas.label(label, &format!("and {} more", marks.len() - listed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_do_not_overlap_and_cover_all_marks() {
        for apart in [0.0, 0.3, 0.7, 1.3, 2.0, 3.7] {
            let places: Vec<_> = (0..200).map(|i| LEFT + i as f64 * apart).collect();
            let found = flags(&places);
            assert!(found.windows(2).all(|pair| !pair[0].overlaps(&pair[1])), "{apart}");
            assert!(found.windows(2).all(|pair| pair[0].last + 1 == pair[1].first), "{apart}");
            assert_eq!(found.first().map(|flag| flag.first), Some(1));
            assert_eq!(found.last().map(|flag| flag.last), Some(200));
        }
    }

    #[test]
    fn marks_are_sorted_by_position() {
        let marks = [Mark::new(3.0, "b"), Mark::new(f64::NAN, "x"), Mark::new(1.0, "a")];
        let labels: Vec<_> =
            sorted_marks(&marks, f64::is_finite).iter().map(|mark| mark.label.clone()).collect();
        assert_eq!(labels, ["a", "b"]);
    }
}
