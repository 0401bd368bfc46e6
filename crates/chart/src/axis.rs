//! Axes: from values to places, and ticks at round numbers.
//!
//! Ticks are 1, 2 or 5 times a power of ten apart (P. S. Heckbert, "Nice numbers for graph
//! labels", Graphics Gems, 1990).

use crate::text::width;
use crate::unit::{Multiple, Unit, grouped};

/// How values become places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally long.
    #[default]
    Linear,
    /// Equal ratios are equally long. Values that are not above zero have no place.
    Log,
}

/// What an axis shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Axis {
    /// What is counted, without the unit, which is added: "Throughput".
    pub label: String,
    /// What the numbers are in.
    pub unit: Unit,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// Whether zero is shown even if all values are far from it. Nothing on a log scale.
    pub from_zero: bool,
}

impl Axis {
    /// A linear axis that shows zero.
    #[must_use]
    pub fn new(label: &str, unit: Unit) -> Self {
        Self { label: label.to_owned(), unit, scale: Scale::Linear, from_zero: true }
    }

    /// A logarithmic axis.
    #[must_use]
    pub fn log(label: &str, unit: Unit) -> Self {
        Self { scale: Scale::Log, from_zero: false, ..Self::new(label, unit) }
    }

    /// Whether a value has a place on this axis.
    pub(crate) fn has(&self, value: f64) -> bool {
        let is_drawable = value.is_finite() && value.abs() <= LARGEST;
        is_drawable && (self.scale == Scale::Linear || value >= 1.0 / LARGEST)
    }

    /// The least and the greatest of the values that have a place.
    pub(crate) fn range(&self, values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
        let mut found: Option<(f64, f64)> = None;
        for value in values.filter(|value| self.has(*value)) {
            let (lo, hi) = found.unwrap_or((value, value));
            found = Some((lo.min(value), hi.max(value)));
        }
        found
    }
}

/// Greater numbers are drawn as if they were not finite, so that no difference overflows. (ours)
const LARGEST: f64 = 1e100;

/// A range narrower than this part of its values is widened: there are no digits to tell its
/// ticks apart. (ours)
const NARROWEST: f64 = 1e-9;

/// Wider ranges of powers of ten have no ticks between the powers. (ours)
const MINOR_DECADES_MAX: f64 = 8.0;

/// How the ends of an axis are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ends {
    /// At the ticks around the values.
    AtTicks,
    /// At the first and the last value, with a part of the length added to each side.
    AtValues(f64),
}

/// The room that labels have along an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Room {
    /// Side by side on an axis of this many pixels, in a font of this size.
    Beside(f64, f64),
    /// One above the other: so many at most.
    Stacked(usize),
}

/// A tick and its label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// An axis with its ends and ticks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ruler {
    pub(crate) lo: f64,
    pub(crate) hi: f64,
    pub(crate) scale: Scale,
    pub(crate) unit: Unit,
    /// The multiple that all labels are in; on a log scale each label has its own.
    pub(crate) multiple: Multiple,
    pub(crate) ticks: Vec<Tick>,
    /// Ticks without a label.
    pub(crate) minor: Vec<f64>,
    pub(crate) label: String,
}

impl Ruler {
    /// An axis for values between two ends, with as many ticks as have room; without values,
    /// with none.
    pub(crate) fn new(axis: &Axis, range: Option<(f64, f64)>, ends: Ends, room: Room) -> Self {
        let (lo, hi) = widened(axis, range);
        let most = match room {
            Room::Stacked(most) => most,
            Room::Beside(length, _) => (length / TICKS_APART).max(2.0) as usize,
        };
        let mut ruler = Self::with_ticks(axis, (lo, hi), ends, most);
        for fewer in (2..most).rev() {
            if ruler.labels_fit(room) {
                break;
            }
            ruler = Self::with_ticks(axis, (lo, hi), ends, fewer);
        }
        if range.is_none() {
            ruler.ticks.clear();
            ruler.minor.clear();
        }
        ruler
    }

    fn with_ticks(axis: &Axis, range: (f64, f64), ends: Ends, most: usize) -> Self {
        let multiple = axis.unit.multiple_for(range.0.abs().max(range.1.abs()));
        let mut ruler = Self {
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
            Scale::Linear => ruler.tick_linear(ends, most),
            Scale::Log => ruler.tick_log(ends, most),
        }
        ruler
    }

    fn tick_linear(&mut self, ends: Ends, most: usize) {
        let size = self.multiple.size;
        let mut step = nice_step((self.hi - self.lo) / size / most as f64);
        if self.unit == Unit::Count && self.hi - self.lo >= 1.0 {
            step = step.max(1.0 / size);
        }
        let (first, last) = match ends {
            Ends::AtTicks => {
                let first = (self.lo / size / step + ROUNDING).floor();
                let last = (self.hi / size / step - ROUNDING).ceil().max(first + 1.0);
                (self.lo, self.hi) = (first * step * size, last * step * size);
                (first, last)
            }
            Ends::AtValues(pad) => {
                let pad = (self.hi - self.lo) * pad;
                (self.lo, self.hi) = (self.lo - pad, self.hi + pad);
                let first = (self.lo / size / step - ROUNDING).ceil();
                (first, (self.hi / size / step + ROUNDING).floor())
            }
        };
        let decimals = (-(step.log10() + ROUNDING).floor()).max(0.0) as usize;
        let count = (last - first) as usize;
        self.ticks = (0..=count)
            .map(|index| (first + index as f64) * step)
            .map(|number| Tick { value: number * size, label: short(number, decimals) })
            .collect();
    }

    fn tick_log(&mut self, ends: Ends, most: usize) {
        match ends {
            Ends::AtTicks => {
                (self.lo, self.hi) = (nice_below(self.lo), nice_above(self.hi));
            }
            Ends::AtValues(pad) => {
                let pad = (self.hi / self.lo).powf(pad);
                (self.lo, self.hi) = (self.lo / pad, self.hi * pad);
            }
        }
        let (first, last) = (self.lo.log10().floor(), self.hi.log10().ceil());
        let decades = (self.hi / self.lo).log10();
        let inside = |value: &f64| {
            *value >= self.lo * (1.0 - ROUNDING) && *value <= self.hi * (1.0 + ROUNDING)
        };
        let powers = (0..=(last - first) as i32).map(|k| 10f64.powi(first as i32 + k));
        let times = |digits: &'static [f64]| {
            let values = powers.clone().flat_map(|power| digits.iter().map(move |d| d * power));
            values.filter(inside).collect::<Vec<_>>()
        };
        let dense = times(&[1.0, 2.0, 5.0]);
        let plain = times(&[1.0]);
        let labelled = match () {
            () if dense.len() <= most || plain.len() < 2 => dense,
            () => {
                let stride = plain.len().div_ceil(most.max(1));
                plain.into_iter().step_by(stride).collect()
            }
        };
        if decades <= MINOR_DECADES_MAX {
            self.minor = times(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        }
        let unit = self.unit;
        let tick = |value| Tick { value, label: log_label(unit, value) };
        self.ticks = labelled.into_iter().map(tick).collect();
    }

    fn labels_fit(&self, room: Room) -> bool {
        let Room::Beside(length, size) = room else {
            return true;
        };
        self.ticks.windows(2).all(|pair| {
            let apart = (self.part(pair[1].value) - self.part(pair[0].value)) * length;
            let needed = (width(&pair[0].label, size) + width(&pair[1].label, size)) / 2.0;
            apart >= needed + size
        })
    }

    /// Where a value is between the ends: 0 at the lower, 1 at the upper.
    pub(crate) fn part(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.lo) / (self.hi - self.lo),
            Scale::Log => (value / self.lo).ln() / (self.hi / self.lo).ln(),
        }
    }

    /// The label of the axis, with the unit if all ticks share one.
    pub(crate) fn title(&self) -> String {
        match (self.scale, self.multiple.name, self.label.as_str()) {
            (Scale::Log, ..) | (_, "", _) => self.label.clone(),
            (_, name, "") => name.to_owned(),
            (_, name, label) => format!("{label} ({name})"),
        }
    }

    /// A value as exactly as a picture of this many pixels shows it.
    pub(crate) fn read(&self, value: f64, pixels: f64) -> String {
        if self.scale == Scale::Log {
            return self.unit.format(value);
        }
        let number = grouped(value / self.multiple.size, self.decimals(pixels));
        self.unit.with_name(&number, self.multiple)
    }

    /// How many decimals tell neighbouring pixels apart.
    pub(crate) fn decimals(&self, pixels: f64) -> usize {
        let pixel = (self.hi - self.lo) / self.multiple.size / pixels;
        (-pixel.log10().floor()).clamp(0.0, 9.0) as usize
    }
}

/// How far apart ticks on a horizontal axis are at least on average, in pixels. (ours)
const TICKS_APART: f64 = 62.0;

/// What rounding may have added to a number of ticks.
const ROUNDING: f64 = 1e-9;

/// Longer labels of ticks are written with an exponent. (ours)
const LABEL_CHARS_MAX: usize = 8;

/// A number with so many decimals, or with an exponent if that is shorter.
fn short(number: f64, decimals: usize) -> String {
    let plain = grouped(number, decimals);
    if plain.chars().count() <= LABEL_CHARS_MAX { plain } else { format!("{number:.1e}") }
}

/// The label of a tick on a log scale, which is one digit and a power of ten.
fn log_label(unit: Unit, value: f64) -> String {
    let multiple = unit.multiple_for(value);
    let number = value / multiple.size;
    let decimals = (-(number.log10() + ROUNDING).floor()).clamp(0.0, 9.0) as usize;
    unit.with_name(&short(number, decimals), multiple)
}

/// The ends of an axis before its ticks are known: never equal, and positive on a log scale.
fn widened(axis: &Axis, range: Option<(f64, f64)>) -> (f64, f64) {
    let (mut lo, mut hi) = range.unwrap_or(match axis.scale {
        Scale::Linear => (0.0, 1.0),
        Scale::Log => (1.0, 10.0),
    });
    if axis.scale == Scale::Log {
        return if hi / lo < 1.0 + NARROWEST { (lo / 2.0, hi * 2.0) } else { (lo, hi) };
    }
    if axis.from_zero {
        (lo, hi) = (lo.min(0.0), hi.max(0.0));
    }
    let size = lo.abs().max(hi.abs());
    if size < 1.0 / LARGEST {
        (0.0, 1.0)
    } else if hi - lo < size * NARROWEST {
        (lo - size / 10.0, hi + size / 10.0)
    } else {
        (lo, hi)
    }
}

/// The least of 1, 2, 5 times a power of ten that is not below `least`.
fn nice_step(least: f64) -> f64 {
    nice_above(least)
}

fn nice_above(value: f64) -> f64 {
    let power = 10f64.powf((value.log10() + ROUNDING).floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= value * (1.0 - ROUNDING)).unwrap_or(value)
}

fn nice_below(value: f64) -> f64 {
    let power = 10f64.powf((value.log10() + ROUNDING).floor());
    let steps = [5.0, 2.0, 1.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step <= value * (1.0 + ROUNDING)).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, range: (f64, f64), ends: Ends, room: Room) -> String {
        let ruler = Ruler::new(axis, Some(range), ends, room);
        let labels: Vec<_> = ruler.ticks.into_iter().map(|tick| tick.label).collect();
        labels.join("|").replace('\u{a0}', " ")
    }

    #[test]
    fn linear_ticks_are_round_numbers_around_the_values() {
        let rate = Axis::new("Rate", Unit::BitsPerSec);
        let six = Room::Stacked(6);
        assert_eq!(labels(&rate, (0.0, 97e6), Ends::AtTicks, six), "0|20|40|60|80|100");
        assert_eq!(labels(&rate, (5e8, 2.1e9), Ends::AtTicks, six), "0.0|0.5|1.0|1.5|2.0|2.5");
        let free = Axis { from_zero: false, ..rate };
        assert_eq!(labels(&free, (91e6, 97e6), Ends::AtTicks, six), "91|92|93|94|95|96|97");
        let count = Axis::new("Drops", Unit::Count);
        assert_eq!(labels(&count, (0.0, 2.0), Ends::AtTicks, six), "0|1|2");
        assert_eq!(
            labels(&count, (0.0, 90e3), Ends::AtTicks, Room::Stacked(3)),
            "0|50 000|100 000"
        );
        assert_eq!(labels(&count, (-3.0, 0.0), Ends::AtTicks, six), "-3|-2|-1|0");
    }

    #[test]
    fn ticks_between_given_ends_do_not_pass_them() {
        let time = Axis::new("Time", Unit::Seconds);
        let room = Room::Beside(780.0, 11.0);
        let text = labels(&time, (0.0, 59.99), Ends::AtValues(0.0), room);
        assert_eq!(text, "0|5|10|15|20|25|30|35|40|45|50|55");
        let text = labels(&time, (0.0, 0.033), Ends::AtValues(0.0), Room::Beside(300.0, 11.0));
        assert_eq!(text, "0|10|20|30");
    }

    #[test]
    fn log_ticks_are_powers_of_ten_or_finer_where_there_are_few() {
        let rtt = Axis::log("RTT", Unit::Seconds);
        let room = Room::Beside(780.0, 11.0);
        let text = labels(&rtt, (1e-4, 1.0), Ends::AtTicks, room);
        assert_eq!(text, "100 µs|1 ms|10 ms|100 ms|1 s");
        let text = labels(&rtt, (0.012, 0.09), Ends::AtTicks, room);
        assert_eq!(text, "10 ms|20 ms|50 ms|100 ms");
        let loss = Axis::log("Loss", Unit::Percent);
        let text = labels(&loss, (1e-5, 0.1), Ends::AtTicks, Room::Stacked(6));
        assert_eq!(text, "0.001 %|0.01 %|0.1 %|1 %|10 %");
    }

    #[test]
    fn any_range_gives_an_axis_with_a_few_ticks() {
        let extreme =
            [0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, 1e100, -1e100, 1.7e9, 1.7e9 + 1e-7, 0.3, 1e-99];
        for (scale, from_zero) in
            [(Scale::Linear, true), (Scale::Linear, false), (Scale::Log, false)]
        {
            for unit in [Unit::Plain, Unit::Count, Unit::Seconds, Unit::Percent, Unit::Bytes] {
                let axis = Axis { label: String::new(), unit, scale, from_zero };
                for (a, b) in extreme.iter().flat_map(|a| extreme.iter().map(move |b| (*a, *b))) {
                    let range = axis.range([a, b].into_iter());
                    for ends in [Ends::AtTicks, Ends::AtValues(0.03)] {
                        for room in [Room::Stacked(6), Room::Beside(700.0, 11.0)] {
                            let ruler = Ruler::new(&axis, range, ends, room);
                            assert!(ruler.lo < ruler.hi, "{axis:?} {a} {b} {ruler:?}");
                            assert!(ruler.ticks.len() <= 15, "{axis:?} {a} {b} {ruler:?}");
                            for tick in &ruler.ticks {
                                let part = ruler.part(tick.value);
                                assert!((-0.01..=1.01).contains(&part), "{axis:?} {a} {b} {part}");
                            }
                        }
                    }
                }
            }
        }
    }
}
