//! Unit types for amounts of data and rates: arithmetic, parsing and display.

use std::error::Error;
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

/// An amount of data in bytes. Range: 0 to 2^64 − 1 (16 EiB); sums saturate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Returns `n` × 1024 bytes.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// Returns `n` × 1024² bytes.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Returns `n` × 1024³ bytes.
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// Returns the mean rate that moves this amount in `elapsed`; zero if `elapsed` is zero.
    #[must_use]
    pub fn per(self, elapsed: Duration) -> Rate {
        let seconds = elapsed.as_secs_f64();
        if seconds > 0.0 { Rate::from_bits_per_sec(self.0 as f64 * 8.0 / seconds) } else { Rate(0) }
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Binary prefixes (KiB, MiB …) with one decimal, as usual for files and memory.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PREFIXES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut prefix = 0;
        while value >= 1023.95 && prefix + 1 < PREFIXES.len() {
            value /= 1024.0;
            prefix += 1;
        }
        write!(f, "{value:.1} {}", PREFIXES[prefix])
    }
}

/// A rate in bits per second. Range: 0 to 2^64 − 1 bit/s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Returns a rate from bits per second; negative and non-finite values become zero.
    #[must_use]
    pub fn from_bits_per_sec(bits: f64) -> Self {
        // `as` saturates and turns NaN into zero.
        Self(bits.round() as u64)
    }

    /// Returns a rate from bytes per second; saturates.
    #[must_use]
    pub const fn from_bytes_per_sec(bytes: u64) -> Self {
        Self(bytes.saturating_mul(8))
    }

    /// Returns bits per second.
    #[must_use]
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// Returns bytes per second, rounded down.
    #[must_use]
    pub const fn bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// Returns the time that `amount` takes at this rate; `None` at rate zero.
    #[must_use]
    pub fn time_for(self, amount: Bytes) -> Option<Duration> {
        if self.0 == 0 {
            return None;
        }
        Duration::try_from_secs_f64(amount.0 as f64 * 8.0 / self.0 as f64).ok()
    }
}

/// Decimal prefixes (kbit/s, Mbit/s …), as usual for networks.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} bit/s", self.0),
            1_000..999_950 => write!(f, "{:.1} kbit/s", bits / 1e3),
            999_950..999_950_000 => write!(f, "{:.1} Mbit/s", bits / 1e6),
            _ => write!(f, "{:.2} Gbit/s", bits / 1e9),
        }
    }
}

/// An amount or rate that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}", self.text, self.expected)
    }
}

impl Error for UnitError {}

/// `300`, `64KiB`, `1.5 MB`: bytes with decimal (k, M, G, T) or binary (Ki, Mi, Gi, Ti) prefixes;
/// the B is optional.
impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let expected = "an amount of data: write 64KiB, 300kB, 1.5MB …";
        let fail = || UnitError { text: text.to_owned(), expected };
        let (number, unit) = split_number(text).ok_or_else(fail)?;
        let unit = unit.strip_suffix(['b', 'B']).unwrap_or(unit);
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" => 1.0,
            "k" => 1e3,
            "m" => 1e6,
            "g" => 1e9,
            "t" => 1e12,
            "ki" => 1024.0,
            "mi" => 1024.0 * 1024.0,
            "gi" => 1024.0 * 1024.0 * 1024.0,
            "ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => return Err(fail()),
        };
        // `as` saturates.
        Ok(Self((number * factor).round() as u64))
    }
}

/// `10gbit`, `1.5 Gbit/s`, `800kbit`: bits per second with decimal prefixes.
impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let expected = "a rate: write 100mbit, 1.5gbit …";
        let fail = || UnitError { text: text.to_owned(), expected };
        let (number, unit) = split_number(text).ok_or_else(fail)?;
        let unit = unit.to_ascii_lowercase();
        let factor = match unit.strip_suffix("/s").unwrap_or(&unit) {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            "tbit" => 1e12,
            _ => return Err(fail()),
        };
        Ok(Self::from_bits_per_sec(number * factor))
    }
}

/// Splits off a leading number that is finite and not negative; returns it and the rest.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_display_uses_largest_binary_prefix() {
        let shown: Vec<String> = [0, 1023, 1024, 1536, (1 << 20) - 1, 1 << 30, u64::MAX]
            .map(|n| Bytes(n).to_string())
            .to_vec();
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 GiB", "16.0 EiB"]
        );
    }

    #[test]
    fn rate_display_never_rounds_to_1000_of_a_prefix() {
        let shown: Vec<String> = [999.0, 1_000.0, 999_949.0, 999_951.0, 9.5e8, 1.2e10]
            .map(|b| Rate::from_bits_per_sec(b).to_string())
            .to_vec();
        assert_eq!(
            shown,
            [
                "999 bit/s",
                "1.0 kbit/s",
                "999.9 kbit/s",
                "1.0 Mbit/s",
                "950.0 Mbit/s",
                "12.00 Gbit/s"
            ]
        );
    }

    #[test]
    fn zero_time_and_zero_rate_are_handled() {
        assert_eq!(Bytes(10).per(Duration::ZERO), Rate::default());
        assert_eq!(Rate::default().time_for(Bytes(1)), None);
    }

    #[test]
    fn rate_and_time_are_inverse() {
        let rate = Bytes::mib(100).per(Duration::from_secs(2));
        assert_eq!(rate.bits_per_sec(), 100 * 1024 * 1024 * 4);
        assert_eq!(rate.time_for(Bytes::mib(100)), Some(Duration::from_secs(2)));
    }

    #[test]
    fn bytes_and_rate_parse_common_notations() {
        let bytes = [("300", 300), ("64KiB", 65_536), ("300kB", 300_000), ("1.5 M", 1_500_000)];
        for (text, expected) in bytes {
            assert_eq!(text.parse(), Ok(Bytes(expected)), "{text}");
        }
        let rates = [("10gbit", 1e10), ("1.5 Gbit/s", 1.5e9), ("800kbit", 8e5), ("0bit", 0.0)];
        for (text, expected) in rates {
            assert_eq!(text.parse(), Ok(Rate::from_bits_per_sec(expected)), "{text}");
        }
        for text in ["", "kB", "-1", "1e3", "1.2.3", "5 apples", "5bit"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        // A rate needs its unit, since bits and bytes are easily confused.
        for text in ["", "10", "10MB/s", "fast", "-1mbit", "10g"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        let error = "ten".parse::<Rate>().unwrap_err().to_string();
        assert_eq!(error, "\"ten\" is not a rate: write 100mbit, 1.5gbit …");
    }
}
