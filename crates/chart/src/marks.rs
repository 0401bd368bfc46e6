//! Marks on an axis: numbered flags above the picture, and what they stand for below it.

use crate::axis::Ruler;
use crate::line::LEFT;
use crate::svg::{Anchor, Canvas, Label, SMALL_SIZE, WIDTH};
use crate::text::width;
use std::cmp::Ordering;

/// Something that happened: a vertical line with a numbered flag, and a line in the list below.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mark {
    /// Where on the horizontal axis, in that axis' unit. What has no place there is left out.
    pub at: f64,
    /// What happened: "link cut".
    pub label: String,
}

impl Mark {
    /// A mark.
    #[must_use]
    pub fn new(at: f64, label: &str) -> Self {
        Self { at, label: label.to_owned() }
    }
}

/// Lines of the list below the picture, in two columns. A page lists all marks. (ours)
pub(crate) const LISTED_MAX: usize = 20;

/// The height of the row of flags, and of a line of the list, in pixels. (ours)
pub(crate) const FLAGS_HEIGHT: f64 = 25.0;
const LINE_HEIGHT: f64 = 17.0;

/// Longer labels have the width of the picture for themselves. (ours)
const COLUMN_WIDTH: f64 = (WIDTH - 60.0) / 2.0;

/// Flags of marks that are so close that they would cover each other become one: "3–7".
#[derive(Debug, Clone, PartialEq)]
struct Flag {
    /// The numbers of the marks, first and last.
    first: usize,
    last: usize,
    /// The middle in pixels.
    at: f64,
}

impl Flag {
    fn text(&self) -> String {
        match self.last - self.first {
            0 => self.first.to_string(),
            1 => format!("{}, {}", self.first, self.last),
            _ => format!("{}–{}", self.first, self.last),
        }
    }

    fn half_width(&self) -> f64 {
        (width(&self.text(), SMALL_SIZE) + 8.0) / 2.0
    }

    /// One flag for the marks of two.
    fn with(&self, next: &Self) -> Self {
        let (ours, theirs) = (self.last - self.first + 1, next.last - next.first + 1);
        let sum = self.at * ours as f64 + next.at * theirs as f64;
        Self { first: self.first, last: next.last, at: sum / (ours + theirs) as f64 }
    }

    /// The same where it is neither beside the labels of the vertical axis nor outside.
    fn inside(mut self) -> Self {
        let half = self.half_width();
        self.at = self.at.clamp(LEFT - 6.0 + half, WIDTH - 2.0 - half);
        self
    }

    fn covers(&self, next: &Self) -> bool {
        next.at - next.half_width() < self.at + self.half_width() + 2.0
    }
}

/// The marks with a place on an axis, in its order; they are numbered from 1.
pub(crate) fn in_order(marks: &[Mark], has_place: impl Fn(f64) -> bool) -> Vec<&Mark> {
    let mut marks: Vec<_> = marks.iter().filter(|mark| has_place(mark.at)).collect();
    marks.sort_by(|a, b| a.at.partial_cmp(&b.at).unwrap_or(Ordering::Equal));
    marks
}

/// The flags over marks at these places, none covering another.
fn flags(places: &[f64]) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let mut flag = Flag { first: index + 1, last: index + 1, at: *place }.inside();
        while let Some(previous) = flags.pop_if(|previous| previous.covers(&flag)) {
            flag = previous.with(&flag).inside();
        }
        flags.push(flag);
    }
    flags
}

/// Draws the marks over a plot between `top` and `bottom`, flags above it. `place` is where a
/// value is on the picture.
pub(crate) fn draw(
    canvas: &mut Canvas,
    marks: &[&Mark],
    (top, bottom): (f64, f64),
    place: impl Fn(f64) -> f64,
) {
    let places: Vec<_> = marks.iter().map(|mark| place(mark.at)).collect();
    let mut drawn = f64::NEG_INFINITY;
    for at in &places {
        // Lines on the same pixel are one.
        if at - drawn >= 1.0 {
            canvas.line((*at, top - 7.0), (*at, bottom), "mark");
            drawn = *at;
        }
    }
    for flag in flags(&places) {
        let half = flag.half_width();
        let labels = marks[flag.first - 1..flag.last].iter().take(LISTED_MAX);
        let title = labels.map(|mark| mark.label.as_str()).collect::<Vec<_>>().join("; ");
        canvas.rect((flag.at - half, top - 22.0), (2.0 * half, 15.0), "flag", &title);
        let label = Label::new((flag.at, top - 10.5), Anchor::Middle, "flag-text");
        canvas.label(label, &flag.text());
    }
}

/// The height of the list below a picture.
pub(crate) fn list_height(marks: &[&Mark]) -> f64 {
    match marks.len() {
        0 => 0.0,
        _ => 8.0 + LINE_HEIGHT * layout(marks).1 as f64,
    }
}

/// How many columns and lines the list has.
fn layout(marks: &[&Mark]) -> (usize, usize) {
    let listed = marks.len().min(LISTED_MAX);
    let more = usize::from(marks.len() > listed);
    let is_long = |mark: &&&Mark| width(&mark.label, SMALL_SIZE) > COLUMN_WIDTH - LIST_LABEL;
    let columns = if marks.iter().take(listed).any(|mark| is_long(&mark)) { 1 } else { 2 };
    let columns = if listed <= 3 { 1 } else { columns };
    (columns, listed.div_ceil(columns) + more)
}

/// Where in a line of the list the time ends and the label starts, in pixels. (ours)
const LIST_TIME: f64 = 88.0;
const LIST_LABEL: f64 = 98.0;

/// Lists the marks below a picture, from `top` on.
pub(crate) fn list(canvas: &mut Canvas, marks: &[&Mark], top: f64, ruler: &Ruler, pixels: f64) {
    let listed = marks.len().min(LISTED_MAX);
    let (columns, lines) = layout(marks);
    let rows = listed.div_ceil(columns).max(1);
    let room = if columns == 1 { WIDTH - 40.0 } else { COLUMN_WIDTH };
    for (index, mark) in marks.iter().take(listed).enumerate() {
        let x = 20.0 + (index / rows) as f64 * (COLUMN_WIDTH + 20.0);
        let y = top + 14.0 + LINE_HEIGHT * (index % rows) as f64;
        let number = (index + 1).to_string();
        let half = (width(&number, SMALL_SIZE) + 8.0) / 2.0;
        canvas.rect((x, y - 11.0), (2.0 * half, 14.0), "flag", "");
        let flag = Label::new((x + half, y - 0.5), Anchor::Middle, "flag-text");
        canvas.label(flag, &number);
        let time = Label::new((x + LIST_TIME, y), Anchor::End, "small muted");
        canvas.label(
            Label { size: SMALL_SIZE, room: LIST_TIME - 2.0 * half - 4.0, ..time },
            &ruler.read(mark.at, pixels),
        );
        let label = Label::new((x + LIST_LABEL, y), Anchor::Start, "small");
        let label = Label { size: SMALL_SIZE, room: room - LIST_LABEL, ..label };
        canvas.label(label, &mark.label);
    }
    if marks.len() > listed {
        let y = top + 14.0 + LINE_HEIGHT * (lines - 1) as f64;
        let label = Label::new((20.0, y), Anchor::Start, "small muted");
        canvas.label(label, &format!("and {} more", marks.len() - listed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_never_cover_each_other_and_count_every_mark() {
        for apart in [0.0, 0.3, 0.7, 1.3, 2.0, 3.7] {
            let places: Vec<_> = (0..200).map(|i| LEFT + i as f64 * apart).collect();
            let found = flags(&places);
            assert!(found.windows(2).all(|pair| !pair[0].covers(&pair[1])), "{apart}");
            assert!(found.windows(2).all(|pair| pair[0].last + 1 == pair[1].first), "{apart}");
            assert_eq!(found.first().map(|flag| flag.first), Some(1));
            assert_eq!(found.last().map(|flag| flag.last), Some(200));
        }
    }

    #[test]
    fn marks_stand_in_the_order_of_the_axis() {
        let marks = [Mark::new(3.0, "b"), Mark::new(f64::NAN, "x"), Mark::new(1.0, "a")];
        let labels: Vec<_> =
            in_order(&marks, f64::is_finite).iter().map(|mark| mark.label.clone()).collect();
        assert_eq!(labels, ["a", "b"]);
    }
}
