//! Horizontal bars in groups, with their spread and their value.

use crate::axis::{Axis, Ends, Room, Ruler};
use crate::line::{Key, legend};
use crate::svg::{Anchor, Canvas, Drawing, Label, SMALL_SIZE, TEXT_SIZE, WIDTH, colour, sign};
use crate::text::width;

/// A bar, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Bar {
    /// A value and what it was between, in the unit of the axis.
    Of {
        /// The length of the bar, and the number beside it.
        median: f64,
        /// The least; no whisker is drawn if this or `max` is not finite.
        min: f64,
        /// The greatest.
        max: f64,
    },
    /// No value, and a short word in its place ("skipped"); empty for none.
    Missing(String),
}

impl Bar {
    /// A bar of a single value.
    #[must_use]
    pub fn of(value: f64) -> Self {
        Self::Of { median: value, min: value, max: value }
    }

    /// A bar that is missing, and why in a word.
    #[must_use]
    pub fn missing(word: &str) -> Self {
        Self::Missing(word.to_owned())
    }
}

/// The bars beside a label.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// What they are of: the name of a tool, say.
    pub label: String,
    /// One for each series of the chart, in its order.
    pub bars: Vec<Bar>,
}

/// Bars in groups, to compare. They lie, so that long labels stay legible.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BarChart {
    /// What the chart shows.
    pub title: String,
    /// The axis of the values. On a logarithmic one, lengths of bars are not in proportion.
    pub y: Axis,
    /// What the bars of each group are; with a single name that is empty there is no legend.
    pub series: Vec<String>,
    /// What is compared.
    pub groups: Vec<Group>,
}

/// Heights of a bar and the space below a group, and the most that labels take, in pixels. (ours)
const BAR: f64 = 15.0;
const GAP: f64 = 11.0;
const LABELS_MAX: f64 = 220.0;

/// Where bars start and end, in pixels, and where the first group begins.
#[derive(Debug)]
struct Layout {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// How many bars each group has.
    each: usize,
}

impl BarChart {
    /// The chart as an SVG image that stands alone: 860 pixels wide, as high as it needs to be.
    #[must_use]
    pub fn to_svg(&self) -> String {
        self.draw().alone()
    }

    pub(crate) fn draw(&self) -> Drawing {
        let mut canvas = Canvas::default();
        let names: Vec<_> = match &self.series[..] {
            [only] if only.is_empty() => Vec::new(),
            all => all.iter().map(|name| (name.as_str(), Key::Bar)).collect(),
        };
        let top = legend(&mut canvas, &self.title, &names) + 12.0;
        let layout = self.layout(top);
        let length = layout.right - layout.left;
        let room = Room::Beside(length, SMALL_SIZE);
        let ruler = Ruler::new(&self.y, self.range(), Ends::AtTicks, room);
        self.frame(&mut canvas, &layout, &ruler);
        for (index, group) in self.groups.iter().enumerate() {
            let top = layout.top + layout.group_height() * index as f64;
            self.group(&mut canvas, &layout, &ruler, group, top);
        }
        if self.range().is_none() {
            let x = layout.left.midpoint(layout.right);
            let y = layout.top.midpoint(layout.bottom) + 4.0;
            let has_words = self.groups.iter().any(|group| !group.bars.is_empty());
            if !has_words {
                canvas.label(Label::new((x, y), Anchor::Middle, "word"), "no data");
            }
        }
        Drawing::new(&self.title, layout.bottom + 46.0, canvas)
    }

    fn layout(&self, top: f64) -> Layout {
        let each = self.groups.iter().map(|group| group.bars.len()).max().unwrap_or(0);
        let each = each.max(self.series.len()).max(1);
        let widest = |texts: &mut dyn Iterator<Item = f64>| texts.fold(0.0, f64::max);
        let labels = widest(&mut self.groups.iter().map(|g| width(&g.label, TEXT_SIZE)));
        let values =
            widest(&mut self.values().map(|v| width(&self.y.unit.format(v.0), SMALL_SIZE)));
        let mut layout = Layout {
            left: 20.0 + labels.min(LABELS_MAX) + 12.0,
            right: WIDTH - 20.0 - values - 8.0,
            top: top + GAP / 2.0,
            bottom: 0.0,
            each,
        };
        let groups = self.groups.len() as f64 * layout.group_height();
        layout.bottom = layout.top + groups.max(60.0) - GAP / 2.0;
        layout
    }

    /// The values of all bars with a place on the axis: median, least, greatest.
    fn values(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        self.groups.iter().flat_map(|group| &group.bars).filter_map(|bar| match *bar {
            Bar::Of { median, min, max } if self.y.has(median) => Some((median, min, max)),
            _ => None,
        })
    }

    fn range(&self) -> Option<(f64, f64)> {
        self.y.range(self.values().flat_map(|(median, min, max)| [median, min, max]))
    }

    fn frame(&self, canvas: &mut Canvas, layout: &Layout, ruler: &Ruler) {
        let (top, bottom) = (layout.top - GAP / 2.0, layout.bottom);
        for minor in &ruler.minor {
            let x = layout.x_of(ruler, *minor);
            canvas.line((x, top), (x, bottom), "minor");
        }
        for tick in &ruler.ticks {
            let x = layout.x_of(ruler, tick.value);
            canvas.line((x, top), (x, bottom), "grid");
            let label = Label::new((x, bottom + 16.0), Anchor::Middle, "small muted");
            canvas.label(Label { size: SMALL_SIZE, ..label }, &tick.label);
        }
        let start = layout.base(ruler);
        canvas.line((start, top), (start, bottom), "axis");
        let middle = (layout.left.midpoint(layout.right), bottom + 35.0);
        let label = Label::new(middle, Anchor::Middle, "muted");
        canvas.label(Label { room: layout.right - layout.left, ..label }, &ruler.title());
    }

    fn group(&self, canvas: &mut Canvas, at: &Layout, ruler: &Ruler, group: &Group, top: f64) {
        let middle = top + BAR * at.each as f64 / 2.0 + 4.0;
        let label = Label::new((at.left - 10.0, middle), Anchor::End, "name");
        canvas.label(Label { room: at.left - 26.0, ..label }, &group.label);
        let start = at.base(ruler);
        for (index, bar) in group.bars.iter().enumerate() {
            let top = top + BAR * index as f64;
            let text = Label {
                size: SMALL_SIZE,
                ..Label::new((start + 6.0, top + 11.0), Anchor::Start, "small value")
            };
            match bar {
                Bar::Missing(word) => {
                    let room = at.right - start;
                    canvas.label(Label { class: "small word", room, ..text }, word);
                }
                Bar::Of { median, .. } if !self.y.has(*median) => {}
                Bar::Of { median, min, max } => {
                    let whisker = self.y.has(*min) && self.y.has(*max);
                    let (min, max) = if whisker { (*min, *max) } else { (*median, *median) };
                    let title = self.words(group, index, *median, (min, max));
                    let x = at.x_of(ruler, *median);
                    let (from, to) = (start.min(x), start.max(x));
                    canvas.open(&colour(index));
                    let size = ((to - from).max(1.0), BAR - 2.0);
                    canvas.rect((from, top), size, "bar", &title);
                    canvas.close();
                    let y = top + BAR / 2.0 - 1.0;
                    at.whisker(canvas, ruler, (min, max), y);
                    // A sign tells the series apart where colours do not.
                    if at.each > 1 && to - from > 24.0 {
                        canvas.open(&colour(index));
                        canvas.path(&sign(index, (from + 9.0, y)), "sign");
                        canvas.close();
                    }
                    let end = to.max(at.x_of(ruler, max)) + 7.0;
                    canvas.label(
                        Label { at: (end, text.at.1), ..text },
                        &self.y.unit.format(*median),
                    );
                }
            }
        }
    }

    /// What is shown when a bar is pointed at.
    fn words(&self, group: &Group, index: usize, median: f64, (min, max): (f64, f64)) -> String {
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
        BAR * self.each as f64 + GAP
    }

    fn x_of(&self, ruler: &Ruler, value: f64) -> f64 {
        self.left + ruler.part(value) * (self.right - self.left)
    }

    /// Where bars start: at zero if it is on the axis.
    fn base(&self, ruler: &Ruler) -> f64 {
        let is_inside = ruler.lo <= 0.0 && ruler.hi >= 0.0;
        if is_inside { self.x_of(ruler, 0.0) } else { self.left }
    }

    fn whisker(&self, canvas: &mut Canvas, ruler: &Ruler, (min, max): (f64, f64), y: f64) {
        let (from, to) = (self.x_of(ruler, min), self.x_of(ruler, max));
        if to - from < 1.0 {
            return;
        }
        canvas.line((from, y), (to, y), "spread");
        for end in [from, to] {
            canvas.line((end, y - 3.5), (end, y + 3.5), "spread");
        }
    }
}
