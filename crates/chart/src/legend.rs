//! Title and legend above a chart.

use crate::svg::{Anchor, Canvas, Label, TEXT_SIZE, TITLE_SIZE, WIDTH, colour, symbol};
use crate::text::text_width;

/// Key before a name in the legend, drawn with the symbol of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegendKey {
    Line,
    Bar,
    /// The symbol alone.
    Symbol,
}

/// Draws the title and the names of the series; returns the y coordinate below them.
pub(crate) fn draw_legend(canvas: &mut Canvas, title: &str, names: &[(&str, LegendKey)]) -> f64 {
    let heading = Label::new((20.0, 24.0), Anchor::Start, "title");
    canvas.label(Label { size: TITLE_SIZE, max_width: WIDTH - 40.0, ..heading }, title);
    // Lines of names from the left end; a name takes at most half the width. (chosen: legibility)
    let max_width = WIDTH / 2.0 - 60.0;
    let (mut x, mut y) = (20.0, 47.0);
    for (index, (name, key)) in names.iter().enumerate() {
        let needed = 26.0 + text_width(name, TEXT_SIZE).min(max_width) + 18.0;
        if x + needed > WIDTH && x > 20.0 {
            (x, y) = (20.0, y + 19.0);
        }
        canvas.open(&colour(index));
        match key {
            LegendKey::Line => canvas.line((x, y - 4.0), (x + 20.0, y - 4.0), "line"),
            LegendKey::Bar => canvas.rect((x, y - 10.0), (20.0, 12.0), "bar", ""),
            LegendKey::Symbol => {}
        }
        canvas.path(&symbol(index, (x + 10.0, y - 4.0)), "symbol");
        canvas.close();
        let label = Label::new((x + 26.0, y), Anchor::Start, "name");
        canvas.label(Label { max_width, ..label }, name);
        x += needed;
    }
    if names.is_empty() { 28.0 } else { y + 6.0 }
}
