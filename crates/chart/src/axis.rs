//! Axes: map values to positions and place ticks at round numbers.
//!
//! Tick steps are 1, 2 or 5 times a power of ten (P. S. Heckbert, "Nice numbers for graph labels",
//! Graphics Gems, 1990).

use crate::text::text_width;
use crate::unit::{Multiple, Unit, format_grouped};

/// Mapping of values to positions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scale {
    /// Linear: equal differences have equal length.
    #[default]
    Linear,
    /// Logarithmic: equal ratios have equal length. Only values above zero have a position.
    Log,
}

/// Description of an axis.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Axis {
    /// Quantity without its unit, which is appended: "Throughput".
    pub label: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Linear or logarithmic scale.
    pub scale: Scale,
    /// True if the axis includes zero even if no value is near it. Ignored on a log scale.
    pub from_zero: bool,
}

impl Axis {
    /// Returns a linear axis that includes zero.
    #[must_use]
    pub fn new(label: &str, unit: Unit) -> Self {
        Self { label: label.to_owned(), unit, scale: Scale::Linear, from_zero: true }
    }

    /// Returns a logarithmic axis.
    #[must_use]
    pub fn log(label: &str, unit: Unit) -> Self {
        Self { scale: Scale::Log, from_zero: false, ..Self::new(label, unit) }
    }

    /// Returns whether a value has a position on this axis.
    pub(crate) fn can_show(&self, value: f64) -> bool {
        let is_drawable = value.is_finite() && value.abs() <= MAX_DRAWABLE;
        is_drawable && (self.scale == Scale::Linear || value >= 1.0 / MAX_DRAWABLE)
    }

    /// Returns the smallest and the largest value that have a position.
    pub(crate) fn range(&self, values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
        let mut found: Option<(f64, f64)> = None;
        for value in values.filter(|value| self.can_show(*value)) {
            let (lo, hi) = found.unwrap_or((value, value));
            found = Some((lo.min(value), hi.max(value)));
        }
        found
    }
}

/// Largest absolute value that is drawn; larger ones count as not finite. (chosen: no difference of
/// two values overflows)
const MAX_DRAWABLE: f64 = 1e100;

/// Smallest range, as a fraction of its values; a narrower one is widened. (chosen: tick labels
/// still differ in their digits)
const MIN_RELATIVE_RANGE: f64 = 1e-9;

/// Widest log axis, in decades, that has minor ticks. (chosen: legibility)
const MAX_DECADES_WITH_MINOR_TICKS: f64 = 8.0;

/// Choice of the ends of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum AxisEnds {
    /// The ticks around the values.
    AtTicks,
    /// First and last value, with this fraction of the length added on each side.
    AtValues(f64),
}

/// Space for the labels along an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LabelSpace {
    /// Side by side: length of the axis in pixels, font size in pixels.
    Horizontal(f64, f64),
    /// One above the other: maximum number of labels.
    Vertical(usize),
}

/// Tick and its label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// Axis with its ends and ticks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AxisLayout {
    pub(crate) lo: f64,
    pub(crate) hi: f64,
    pub(crate) scale: Scale,
    pub(crate) unit: Unit,
    /// Multiple of all labels; on a log scale each label has its own.
    pub(crate) multiple: Multiple,
    pub(crate) ticks: Vec<Tick>,
    /// Values of the ticks without a label.
    pub(crate) minor: Vec<f64>,
    pub(crate) label: String,
}

impl AxisLayout {
    /// Returns an axis for a range of values, with as many ticks as fit.
    ///
    /// Without a range it has no ticks.
    pub(crate) fn new(
        axis: &Axis,
        range: Option<(f64, f64)>,
        ends: AxisEnds,
        space: LabelSpace,
    ) -> Self {
        let (lo, hi) = widen_range(axis, range);
        let max_ticks = match space {
            LabelSpace::Vertical(max_ticks) => max_ticks,
            LabelSpace::Horizontal(length, _) => (length / MIN_TICK_SPACING).max(2.0) as usize,
        };
        let mut layout = Self::with_ticks(axis, (lo, hi), ends, max_ticks);
        for fewer in (2..max_ticks).rev() {
            if layout.labels_fit(space) {
                break;
            }
            layout = Self::with_ticks(axis, (lo, hi), ends, fewer);
        }
        if range.is_none() {
            layout.ticks.clear();
            layout.minor.clear();
        }
        layout
    }

    fn with_ticks(axis: &Axis, range: (f64, f64), ends: AxisEnds, max_ticks: usize) -> Self {
        let multiple = axis.unit.multiple_for(range.0.abs().max(range.1.abs()));
        let mut layout = Self {
            lo: range.0,
            hi: range.1,
            scale: axis.scale,
            unit: axis.unit,
            multiple,
            ticks: Vec::new(),
            minor: Vec::new(),
            label: axis.label.clone(),
        };
        match axis.scale {
            Scale::Linear => layout.tick_linear(ends, max_ticks),
            Scale::Log => layout.tick_log(ends, max_ticks),
        }
        layout
    }

    fn tick_linear(&mut self, ends: AxisEnds, max_ticks: usize) {
        let size = self.multiple.size;
        let mut step = nice_step((self.hi - self.lo) / size / max_ticks as f64);
        if self.unit == Unit::Count && self.hi - self.lo >= 1.0 {
            step = step.max(1.0 / size);
        }
        let (first, last) = match ends {
            AxisEnds::AtTicks => {
                let first = (self.lo / size / step + ROUNDING_TOLERANCE).floor();
                let last = (self.hi / size / step - ROUNDING_TOLERANCE).ceil().max(first + 1.0);
                (self.lo, self.hi) = (first * step * size, last * step * size);
                (first, last)
            }
            AxisEnds::AtValues(pad) => {
                let pad = (self.hi - self.lo) * pad;
                (self.lo, self.hi) = (self.lo - pad, self.hi + pad);
                let first = (self.lo / size / step - ROUNDING_TOLERANCE).ceil();
                (first, (self.hi / size / step + ROUNDING_TOLERANCE).floor())
            }
        };
        let decimals = (-(step.log10() + ROUNDING_TOLERANCE).floor()).max(0.0) as usize;
        let count = (last - first) as usize;
        self.ticks = (0..=count)
            .map(|index| (first + index as f64) * step)
            .map(|number| Tick { value: number * size, label: format_short(number, decimals) })
            .collect();
    }

    fn tick_log(&mut self, ends: AxisEnds, max_ticks: usize) {
        match ends {
            AxisEnds::AtTicks => {
                (self.lo, self.hi) = (nice_below(self.lo), nice_above(self.hi));
            }
            AxisEnds::AtValues(pad) => {
                let pad = (self.hi / self.lo).powf(pad);
                (self.lo, self.hi) = (self.lo / pad, self.hi * pad);
            }
        }
        let (first, last) = (self.lo.log10().floor(), self.hi.log10().ceil());
        let decades = (self.hi / self.lo).log10();
        let inside = |value: &f64| {
            *value >= self.lo * (1.0 - ROUNDING_TOLERANCE)
                && *value <= self.hi * (1.0 + ROUNDING_TOLERANCE)
        };
        let powers = (0..=(last - first) as i32).map(|k| 10f64.powi(first as i32 + k));
        let times = |digits: &'static [f64]| {
            let values = powers.clone().flat_map(|power| digits.iter().map(move |d| d * power));
            values.filter(inside).collect::<Vec<_>>()
        };
        let dense = times(&[1.0, 2.0, 5.0]);
        let plain = times(&[1.0]);
        let labelled = match () {
            () if dense.len() <= max_ticks || plain.len() < 2 => dense,
            () => {
                let stride = plain.len().div_ceil(max_ticks.max(1));
                plain.into_iter().step_by(stride).collect()
            }
        };
        if decades <= MAX_DECADES_WITH_MINOR_TICKS {
            self.minor = times(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        }
        let unit = self.unit;
        let tick = |value| Tick { value, label: log_tick_label(unit, value) };
        self.ticks = labelled.into_iter().map(tick).collect();
    }

    fn labels_fit(&self, space: LabelSpace) -> bool {
        let LabelSpace::Horizontal(length, size) = space else {
            return true;
        };
        self.ticks.windows(2).all(|pair| {
            let apart = (self.fraction(pair[1].value) - self.fraction(pair[0].value)) * length;
            let needed =
                (text_width(&pair[0].label, size) + text_width(&pair[1].label, size)) / 2.0;
            apart >= needed + size
        })
    }

    /// Returns the position of a value: 0 at the lower end, 1 at the upper end.
    pub(crate) fn fraction(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.lo) / (self.hi - self.lo),
            Scale::Log => (value / self.lo).ln() / (self.hi / self.lo).ln(),
        }
    }

    /// Returns the label of the axis, with the unit if all ticks share one.
    pub(crate) fn title(&self) -> String {
        match (self.scale, self.multiple.name, self.label.as_str()) {
            (Scale::Log, ..) | (_, "", _) => self.label.clone(),
            (_, name, "") => name.to_owned(),
            (_, name, label) => format!("{label} ({name})"),
        }
    }

    /// Formats a value with the precision of a picture of this many pixels.
    pub(crate) fn format_value(&self, value: f64, pixels: f64) -> String {
        if self.scale == Scale::Log {
            return self.unit.format(value);
        }
        let number = format_grouped(value / self.multiple.size, self.decimals(pixels));
        self.unit.with_name(&number, self.multiple)
    }

    /// Returns the number of decimals that distinguishes neighbouring pixels.
    pub(crate) fn decimals(&self, pixels: f64) -> usize {
        let pixel = (self.hi - self.lo) / self.multiple.size / pixels;
        (-pixel.log10().floor()).clamp(0.0, 9.0) as usize
    }
}

/// Minimum mean distance of ticks on a horizontal axis, in pixels. (chosen: legibility)
const MIN_TICK_SPACING: f64 = 62.0;

/// Relative rounding error that is tolerated when ticks are counted.
const ROUNDING_TOLERANCE: f64 = 1e-9;

/// Longest tick label; a longer number is written with an exponent. (chosen: legibility)
const MAX_TICK_LABEL_CHARS: usize = 8;

/// Formats a number with `decimals`, or with an exponent if that is shorter.
fn format_short(number: f64, decimals: usize) -> String {
    let plain = format_grouped(number, decimals);
    if plain.chars().count() <= MAX_TICK_LABEL_CHARS { plain } else { format!("{number:.1e}") }
}

/// Formats a tick label on a log scale: one digit and a power of ten.
fn log_tick_label(unit: Unit, value: f64) -> String {
    let multiple = unit.multiple_for(value);
    let number = value / multiple.size;
    let decimals = (-(number.log10() + ROUNDING_TOLERANCE).floor()).clamp(0.0, 9.0) as usize;
    unit.with_name(&format_short(number, decimals), multiple)
}

/// Returns the ends of an axis before its ticks: never equal, positive on a log scale.
fn widen_range(axis: &Axis, range: Option<(f64, f64)>) -> (f64, f64) {
    let (mut lo, mut hi) = range.unwrap_or(match axis.scale {
        Scale::Linear => (0.0, 1.0),
        Scale::Log => (1.0, 10.0),
    });
    if axis.scale == Scale::Log {
        return if hi / lo < 1.0 + MIN_RELATIVE_RANGE { (lo / 2.0, hi * 2.0) } else { (lo, hi) };
    }
    if axis.from_zero {
        (lo, hi) = (lo.min(0.0), hi.max(0.0));
    }
    let size = lo.abs().max(hi.abs());
    if size < 1.0 / MAX_DRAWABLE {
        (0.0, 1.0)
    } else if hi - lo < size * MIN_RELATIVE_RANGE {
        (lo - size / 10.0, hi + size / 10.0)
    } else {
        (lo, hi)
    }
}

/// Returns the smallest of 1, 2, 5 times a power of ten ≥ `least`.
fn nice_step(least: f64) -> f64 {
    nice_above(least)
}

fn nice_above(value: f64) -> f64 {
    let power = 10f64.powf((value.log10() + ROUNDING_TOLERANCE).floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= value * (1.0 - ROUNDING_TOLERANCE)).unwrap_or(value)
}

fn nice_below(value: f64) -> f64 {
    let power = 10f64.powf((value.log10() + ROUNDING_TOLERANCE).floor());
    let steps = [5.0, 2.0, 1.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step <= value * (1.0 + ROUNDING_TOLERANCE)).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, range: (f64, f64), ends: AxisEnds, space: LabelSpace) -> String {
        let layout = AxisLayout::new(axis, Some(range), ends, space);
        let labels: Vec<_> = layout.ticks.into_iter().map(|tick| tick.label).collect();
        labels.join("|").replace('\u{a0}', " ")
    }

    #[test]
    fn linear_ticks_are_round_and_enclose_values() {
        let rate = Axis::new("Rate", Unit::BitsPerSec);
        let six = LabelSpace::Vertical(6);
        assert_eq!(labels(&rate, (0.0, 97e6), AxisEnds::AtTicks, six), "0|20|40|60|80|100");
        assert_eq!(labels(&rate, (5e8, 2.1e9), AxisEnds::AtTicks, six), "0.0|0.5|1.0|1.5|2.0|2.5");
        let free = Axis { from_zero: false, ..rate };
        assert_eq!(labels(&free, (91e6, 97e6), AxisEnds::AtTicks, six), "91|92|93|94|95|96|97");
        let count = Axis::new("Drops", Unit::Count);
        assert_eq!(labels(&count, (0.0, 2.0), AxisEnds::AtTicks, six), "0|1|2");
        assert_eq!(
            labels(&count, (0.0, 90e3), AxisEnds::AtTicks, LabelSpace::Vertical(3)),
            "0|50 000|100 000"
        );
        assert_eq!(labels(&count, (-3.0, 0.0), AxisEnds::AtTicks, six), "-3|-2|-1|0");
    }

    #[test]
    fn ticks_at_value_ends_stay_within_them() {
        let time = Axis::new("Time", Unit::Seconds);
        let space = LabelSpace::Horizontal(780.0, 11.0);
        let text = labels(&time, (0.0, 59.99), AxisEnds::AtValues(0.0), space);
        assert_eq!(text, "0|5|10|15|20|25|30|35|40|45|50|55");
        let text = labels(
            &time,
            (0.0, 0.033),
            AxisEnds::AtValues(0.0),
            LabelSpace::Horizontal(300.0, 11.0),
        );
        assert_eq!(text, "0|10|20|30");
    }

    #[test]
    fn log_ticks_are_powers_of_ten_or_1_2_5() {
        let rtt = Axis::log("RTT", Unit::Seconds);
        let space = LabelSpace::Horizontal(780.0, 11.0);
        let text = labels(&rtt, (1e-4, 1.0), AxisEnds::AtTicks, space);
        assert_eq!(text, "100 µs|1 ms|10 ms|100 ms|1 s");
        let text = labels(&rtt, (0.012, 0.09), AxisEnds::AtTicks, space);
        assert_eq!(text, "10 ms|20 ms|50 ms|100 ms");
        let loss = Axis::log("Loss", Unit::Percent);
        let text = labels(&loss, (1e-5, 0.1), AxisEnds::AtTicks, LabelSpace::Vertical(6));
        assert_eq!(text, "0.001 %|0.01 %|0.1 %|1 %|10 %");
    }

    #[test]
    fn axis_of_extreme_range_has_few_ticks() {
        let extreme =
            [0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, 1e100, -1e100, 1.7e9, 1.7e9 + 1e-7, 0.3, 1e-99];
        for (scale, from_zero) in
            [(Scale::Linear, true), (Scale::Linear, false), (Scale::Log, false)]
        {
            for unit in [Unit::Plain, Unit::Count, Unit::Seconds, Unit::Percent, Unit::Bytes] {
                let axis = Axis { label: String::new(), unit, scale, from_zero };
                for (a, b) in extreme.iter().flat_map(|a| extreme.iter().map(move |b| (*a, *b))) {
                    let range = axis.range([a, b].into_iter());
                    for ends in [AxisEnds::AtTicks, AxisEnds::AtValues(0.03)] {
                        for space in [LabelSpace::Vertical(6), LabelSpace::Horizontal(700.0, 11.0)]
                        {
                            let layout = AxisLayout::new(&axis, range, ends, space);
                            assert!(layout.lo < layout.hi, "{axis:?} {a} {b} {layout:?}");
                            assert!(layout.ticks.len() <= 15, "{axis:?} {a} {b} {layout:?}");
                            for tick in &layout.ticks {
                                let part = layout.fraction(tick.value);
                                assert!((-0.01..=1.01).contains(&part), "{axis:?} {a} {b} {part}");
                            }
                        }
                    }
                }
            }
        }
    }
}
