//! Units: multiple and number of digits of a displayed number.

/// Quantity of a number, which decides how it is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    /// Bits per second: "94.1 Mbit/s".
    BitsPerSec,
    /// Bytes per second, in decimal multiples as for disks: "101 MB/s".
    BytesPerSec,
    /// Bytes in decimal multiples: "1.50 MB" is 1 500 000 bytes.
    Bytes,
    /// Seconds: "250 µs", "12.5 ms", "60.0 s".
    Seconds,
    /// Countable items: "12 000", "3.40 million".
    Count,
    /// Fraction, where 1 is 100 %: 0.5 is written "50.0 %".
    Percent,
    /// Ratio of two quantities: "1.50×".
    Ratio,
    /// Number without a unit.
    #[default]
    Plain,
}

/// Multiple of a unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Multiple {
    /// Size in base units.
    pub(crate) size: f64,
    /// Text after the number.
    pub(crate) name: &'static str,
}

/// Non-breaking space between a number and its unit, and between groups of digits.
pub(crate) const NO_BREAK_SPACE: char = '\u{a0}';

/// Text for a number that is not finite.
const NOT_FINITE: &str = "–";

const fn multiple(size: f64, name: &'static str) -> Multiple {
    Multiple { size, name }
}

// The prefixes of the SI brochure (9th edition, table 7), decimal for bytes too (ISO/IEC 80000-13).
const BITS_PER_SEC: [Multiple; 5] = [
    multiple(1.0, "bit/s"),
    multiple(1e3, "kbit/s"),
    multiple(1e6, "Mbit/s"),
    multiple(1e9, "Gbit/s"),
    multiple(1e12, "Tbit/s"),
];
const BYTES_PER_SEC: [Multiple; 5] = [
    multiple(1.0, "B/s"),
    multiple(1e3, "kB/s"),
    multiple(1e6, "MB/s"),
    multiple(1e9, "GB/s"),
    multiple(1e12, "TB/s"),
];
const BYTES: [Multiple; 5] = [
    multiple(1.0, "B"),
    multiple(1e3, "kB"),
    multiple(1e6, "MB"),
    multiple(1e9, "GB"),
    multiple(1e12, "TB"),
];
const SECONDS: [Multiple; 3] = [multiple(1e-6, "µs"), multiple(1e-3, "ms"), multiple(1.0, "s")];
const COUNT: [Multiple; 3] =
    [multiple(1.0, ""), multiple(1e6, "million"), multiple(1e9, "billion")];
const PERCENT: [Multiple; 1] = [multiple(0.01, "%")];
const RATIO: [Multiple; 1] = [multiple(1.0, "×")];
const PLAIN: [Multiple; 1] = [multiple(1.0, "")];

impl Unit {
    /// Formats a value with three digits and a suitable multiple: `94.1 Mbit/s`.
    ///
    /// Whole counts and plain whole numbers keep all their digits. A value that is not finite is a
    /// dash.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        if !value.is_finite() {
            return NOT_FINITE.to_owned();
        }
        let multiple = self.multiple_for(value);
        self.with_name(&self.three_digits(value / multiple.size), multiple)
    }

    /// Returns the multiples, smallest first.
    pub(crate) fn multiples(self) -> &'static [Multiple] {
        match self {
            Self::BitsPerSec => &BITS_PER_SEC,
            Self::BytesPerSec => &BYTES_PER_SEC,
            Self::Bytes => &BYTES,
            Self::Seconds => &SECONDS,
            Self::Count => &COUNT,
            Self::Percent => &PERCENT,
            Self::Ratio => &RATIO,
            Self::Plain => &PLAIN,
        }
    }

    /// Returns the largest multiple that `value` reaches when rounded to three digits.
    ///
    /// The smallest multiple is the fallback; zero is written in the unit itself.
    pub(crate) fn multiple_for(self, value: f64) -> Multiple {
        let all = self.multiples();
        let mut chosen = all.first().copied().unwrap_or(multiple(1.0, ""));
        for candidate in all {
            let is_reached = (value.abs() / candidate.size) >= 0.9995;
            if is_reached || (value == 0.0 && candidate.size <= 1.0) {
                chosen = *candidate;
            }
        }
        chosen
    }

    /// Returns whether whole numbers are written without decimals.
    pub(crate) fn keeps_whole(self) -> bool {
        matches!(self, Self::Count | Self::Plain)
    }

    /// Formats a number, already in its multiple, with three digits. The script of the page does
    /// the same.
    fn three_digits(self, number: f64) -> String {
        let size = number.abs();
        let is_whole = number.fract() == 0.0 && size < 1e15;
        match size {
            0.0 => "0".to_owned(),
            _ if self.keeps_whole() && is_whole => format_grouped(number, 0),
            _ if !(0.001..1e9).contains(&size) => format!("{number:.2e}"),
            // The factor accounts for values that round up to the next power of ten.
            _ => {
                format_grouped(number, (2.0 - (size * 1.000502).log10().floor()).max(0.0) as usize)
            }
        }
    }

    /// Appends the name of the multiple to a number.
    pub(crate) fn with_name(self, number: &str, multiple: Multiple) -> String {
        match (self, multiple.name) {
            (_, "") => number.to_owned(),
            (Self::Ratio, name) => format!("{number}{name}"),
            (_, name) => format!("{number}{NO_BREAK_SPACE}{name}"),
        }
    }
}

/// Formats a number with `decimals`; from 10 000 on, digits are in groups of three.
pub(crate) fn format_grouped(number: f64, decimals: usize) -> String {
    let plain = format!("{number:.decimals$}");
    // A number that rounds to zero has no sign.
    let plain = match plain.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.to_owned(),
        _ => plain,
    };
    let digits = plain.trim_start_matches('-');
    let whole = digits.find('.').unwrap_or(digits.len());
    if whole < 5 {
        return plain;
    }
    let mut out = plain[..plain.len() - digits.len()].to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index < whole && (whole - index) % 3 == 0 {
            out.push(NO_BREAK_SPACE);
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(unit: Unit, value: f64) -> String {
        unit.format(value).replace(NO_BREAK_SPACE, " ")
    }

    #[test]
    fn numbers_use_suitable_multiple() {
        for (unit, value, text) in [
            (Unit::BitsPerSec, 94.13e6, "94.1 Mbit/s"),
            (Unit::BytesPerSec, 101.5e6, "102 MB/s"),
            (Unit::BitsPerSec, 999.96e6, "1.00 Gbit/s"),
            (Unit::BitsPerSec, 999.4e6, "999 Mbit/s"),
            (Unit::BitsPerSec, 0.0, "0 bit/s"),
            (Unit::BitsPerSec, -2e3, "-2.00 kbit/s"),
            (Unit::Bytes, 1.5e6, "1.50 MB"),
            (Unit::Bytes, 1e15, "1000 TB"),
            (Unit::Seconds, 250e-6, "250 µs"),
            (Unit::Seconds, 0.0125, "12.5 ms"),
            (Unit::Seconds, 60.0, "60.0 s"),
            (Unit::Seconds, 0.0, "0 s"),
            (Unit::Percent, 0.000_123, "0.0123 %"),
            (Unit::Plain, 9.996, "10.0"),
            (Unit::Plain, 99.94, "99.9"),
            (Unit::Seconds, 250e-9, "0.250 µs"),
            (Unit::Count, 12_000.0, "12 000"),
            (Unit::Count, 3.4e6, "3.40 million"),
            (Unit::Percent, 0.5, "50.0 %"),
            (Unit::Ratio, 1.5, "1.50×"),
            (Unit::Plain, 17.0, "17"),
            (Unit::Plain, -0.000_01, "-1.00e-5"),
            (Unit::Plain, f64::NAN, "–"),
            (Unit::Bytes, f64::INFINITY, "–"),
        ] {
            assert_eq!(written(unit, value), text, "{unit:?} {value}");
        }
    }

    #[test]
    fn long_numbers_are_grouped_by_three() {
        assert_eq!(format_grouped(-1_234_567.25, 1).replace(NO_BREAK_SPACE, " "), "-1 234 567.2");
        assert_eq!(format_grouped(9_999.0, 0), "9999");
        assert_eq!(format_grouped(-0.001, 1), "0.0");
    }
}
