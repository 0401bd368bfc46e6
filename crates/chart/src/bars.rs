//! Horizontal bars in groups, with spread and value.

use crate::axis::{Axis, AxisEnds, AxisLayout, LabelSpace};
use crate::legend::{LegendKey, draw_legend};
use crate::svg::{Anchor, Canvas, Drawing, Label, SMALL_SIZE, TEXT_SIZE, WIDTH, colour, symbol};
use crate::text::text_width;

/// Bar, or the reason why it is missing.
#[derive(Debug, Clone, PartialEq)]
pub enum Bar {
    /// Value and its spread, in the unit of the axis.
    Value {
        /// Length of the bar, and the number beside it.
        median: f64,
        /// Smallest value; no whisker is drawn if this or `max` is not finite.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// No value: a short text is shown instead ("skipped"), or nothing if it is empty.
    Missing(String),
}

impl Bar {
    /// Returns a bar of a single value.
    #[must_use]
    pub fn value(value: f64) -> Self {
        Self::Value { median: value, min: value, max: value }
    }

    /// Returns a missing bar with a short reason.
    #[must_use]
    pub fn missing(word: &str) -> Self {
        Self::Missing(word.to_owned())
    }
}

/// Group of bars with one label.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// Label of the group, such as the name of a tool.
    pub label: String,
    /// One bar per series of the chart, in its order.
    pub bars: Vec<Bar>,
}

/// Bar chart for comparisons. The bars are horizontal, so that long labels stay legible.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BarChart {
    /// Title of the chart.
    pub title: String,
    /// Axis of the values. On a logarithmic axis, bar lengths are not proportional to values.
    pub y: Axis,
    /// Names of the bars of each group; a single empty name means no legend.
    pub series: Vec<String>,
    /// Groups to compare.
    pub groups: Vec<Group>,
}

/// Height of a bar, space below a group, and maximum label width, in pixels. (chosen: legibility)
const BAR_HEIGHT: f64 = 15.0;
const GROUP_GAP: f64 = 11.0;
const MAX_LABEL_WIDTH: f64 = 220.0;

/// Positions of the bars in pixels, and the top of the first group.
#[derive(Debug)]
struct Layout {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// Bars per group.
    bars_per_group: usize,
}

impl BarChart {
    /// Returns the chart as a standalone SVG image, 860 pixels wide. Its height fits the content.
    #[must_use]
    pub fn to_svg(&self) -> String {
        self.draw().to_standalone_svg()
    }

    pub(crate) fn draw(&self) -> Drawing {
        let mut canvas = Canvas::default();
        let names: Vec<_> = match &self.series[..] {
            [only] if only.is_empty() => Vec::new(),
            all => all.iter().map(|name| (name.as_str(), LegendKey::Bar)).collect(),
        };
        let top = draw_legend(&mut canvas, &self.title, &names) + 12.0;
        let layout = self.layout(top);
        let length = layout.right - layout.left;
        let space = LabelSpace::Horizontal(length, SMALL_SIZE);
        let axis = AxisLayout::new(&self.y, self.range(), AxisEnds::AtTicks, space);
        self.frame(&mut canvas, &layout, &axis);
        for (index, group) in self.groups.iter().enumerate() {
            let top = layout.top + layout.group_height() * index as f64;
            self.group(&mut canvas, &layout, &axis, group, top);
        }
        if self.range().is_none() {
            let x = layout.left.midpoint(layout.right);
            let y = layout.top.midpoint(layout.bottom) + 4.0;
            let has_words = self.groups.iter().any(|group| !group.bars.is_empty());
            if !has_words {
                canvas.label(Label::new((x, y), Anchor::Middle, "placeholder"), "no data");
            }
        }
        Drawing::new(&self.title, layout.bottom + 46.0, canvas)
    }

    fn layout(&self, top: f64) -> Layout {
        let bars_per_group = self.groups.iter().map(|group| group.bars.len()).max().unwrap_or(0);
        let bars_per_group = bars_per_group.max(self.series.len()).max(1);
        let widest = |texts: &mut dyn Iterator<Item = f64>| texts.fold(0.0, f64::max);
        let labels = widest(&mut self.groups.iter().map(|g| text_width(&g.label, TEXT_SIZE)));
        let values =
            widest(&mut self.values().map(|v| text_width(&self.y.unit.format(v.0), SMALL_SIZE)));
        let mut layout = Layout {
            left: 20.0 + labels.min(MAX_LABEL_WIDTH) + 12.0,
            right: WIDTH - 20.0 - values - 8.0,
            top: top + GROUP_GAP / 2.0,
            bottom: 0.0,
            bars_per_group,
        };
        let groups = self.groups.len() as f64 * layout.group_height();
        layout.bottom = layout.top + groups.max(60.0) - GROUP_GAP / 2.0;
        layout
    }

    /// Iterates over the bars with a position on the axis: median, smallest, largest value.
    fn values(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        self.groups.iter().flat_map(|group| &group.bars).filter_map(|bar| match *bar {
            Bar::Value { median, min, max } if self.y.can_show(median) => Some((median, min, max)),
            _ => None,
        })
    }

    fn range(&self) -> Option<(f64, f64)> {
        self.y.range(self.values().flat_map(|(median, min, max)| [median, min, max]))
    }

    fn frame(&self, canvas: &mut Canvas, layout: &Layout, axis: &AxisLayout) {
        let (top, bottom) = (layout.top - GROUP_GAP / 2.0, layout.bottom);
        for minor in &axis.minor {
            let x = layout.x_of(axis, *minor);
            canvas.line((x, top), (x, bottom), "minor");
        }
        for tick in &axis.ticks {
            let x = layout.x_of(axis, tick.value);
            canvas.line((x, top), (x, bottom), "grid");
            let label = Label::new((x, bottom + 16.0), Anchor::Middle, "small muted");
            canvas.label(Label { size: SMALL_SIZE, ..label }, &tick.label);
        }
        let start = layout.baseline_x(axis);
        canvas.line((start, top), (start, bottom), "axis");
        let middle = (layout.left.midpoint(layout.right), bottom + 35.0);
        let label = Label::new(middle, Anchor::Middle, "muted");
        canvas.label(Label { max_width: layout.right - layout.left, ..label }, &axis.title());
    }

    fn group(&self, canvas: &mut Canvas, at: &Layout, axis: &AxisLayout, group: &Group, top: f64) {
        let middle = top + BAR_HEIGHT * at.bars_per_group as f64 / 2.0 + 4.0;
        let label = Label::new((at.left - 10.0, middle), Anchor::End, "name");
        canvas.label(Label { max_width: at.left - 26.0, ..label }, &group.label);
        let start = at.baseline_x(axis);
        for (index, bar) in group.bars.iter().enumerate() {
            let top = top + BAR_HEIGHT * index as f64;
            let text = Label {
                size: SMALL_SIZE,
                ..Label::new((start + 6.0, top + 11.0), Anchor::Start, "small value")
            };
            match bar {
                Bar::Missing(word) => {
                    let max_width = at.right - start;
                    canvas.label(Label { class: "small placeholder", max_width, ..text }, word);
                }
                Bar::Value { median, .. } if !self.y.can_show(*median) => {}
                Bar::Value { median, min, max } => {
                    let whisker = self.y.can_show(*min) && self.y.can_show(*max);
                    let (min, max) = if whisker { (*min, *max) } else { (*median, *median) };
                    let title = self.tooltip(group, index, *median, (min, max));
                    let x = at.x_of(axis, *median);
                    let (from, to) = (start.min(x), start.max(x));
                    canvas.open(&colour(index));
                    let size = ((to - from).max(1.0), BAR_HEIGHT - 2.0);
                    canvas.rect((from, top), size, "bar", &title);
                    canvas.close();
                    let y = top + BAR_HEIGHT / 2.0 - 1.0;
                    at.whisker(canvas, axis, (min, max), y);
                    // The symbol distinguishes series without colour.
                    if at.bars_per_group > 1 && to - from > 24.0 {
                        canvas.open(&colour(index));
                        canvas.path(&symbol(index, (from + 9.0, y)), "symbol");
                        canvas.close();
                    }
                    let end = to.max(at.x_of(axis, max)) + 7.0;
                    canvas.label(
                        Label { at: (end, text.at.1), ..text },
                        &self.y.unit.format(*median),
                    );
                }
            }
        }
    }

    /// Returns the tooltip of a bar.
    fn tooltip(&self, group: &Group, index: usize, median: f64, (min, max): (f64, f64)) -> String {
        let unit = self.y.unit;
        let name = self.series.get(index).filter(|name| !name.is_empty());
        let name = name.map_or_else(String::new, |name| format!(", {name}"));
        let spread = match min < max {
            true => format!(" (from {} to {})", unit.format(min), unit.format(max)),
            false => String::new(),
        };
        format!("{}{name}: {}{spread}", group.label, unit.format(median))
    }
}

impl Layout {
    fn group_height(&self) -> f64 {
        BAR_HEIGHT * self.bars_per_group as f64 + GROUP_GAP
    }

    fn x_of(&self, axis: &AxisLayout, value: f64) -> f64 {
        self.left + axis.fraction(value) * (self.right - self.left)
    }

    /// Returns the x coordinate where bars start: zero if it is on the axis, else the left end.
    fn baseline_x(&self, axis: &AxisLayout) -> f64 {
        let is_inside = axis.lo <= 0.0 && axis.hi >= 0.0;
        if is_inside { self.x_of(axis, 0.0) } else { self.left }
    }

    fn whisker(&self, canvas: &mut Canvas, axis: &AxisLayout, (min, max): (f64, f64), y: f64) {
        let (from, to) = (self.x_of(axis, min), self.x_of(axis, max));
        if to - from < 1.0 {
            return;
        }
        canvas.line((from, y), (to, y), "spread");
        for end in [from, to] {
            canvas.line((end, y - 3.5), (end, y + 3.5), "spread");
        }
    }
}
