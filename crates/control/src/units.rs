//! Unit types: amounts of data and rates. They do arithmetic and print themselves; they measure
//! nothing.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// An amount of data in bytes. Range: 0 to 2^64 − 1 (16 EiB); sums saturate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` × 1024 bytes.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` × 1024² bytes.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` × 1024³ bytes.
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// The mean rate that moves this amount in `elapsed`; zero when no time passed.
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

/// Binary prefixes (KiB, MiB …), one decimal: what disks and files are measured in.
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
    /// A rate from bits per second; negative and non-finite values become zero.
    #[must_use]
    pub fn from_bits_per_sec(bits: f64) -> Self {
        // `as` saturates, and turns NaN into zero.
        Self(bits.round() as u64)
    }

    /// Bits per second.
    #[must_use]
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// Bytes per second, rounded down.
    #[must_use]
    pub const fn bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// The time this rate needs for `amount`; `None` at rate zero.
    #[must_use]
    pub fn time_for(self, amount: Bytes) -> Option<Duration> {
        if self.0 == 0 {
            return None;
        }
        Duration::try_from_secs_f64(amount.0 as f64 * 8.0 / self.0 as f64).ok()
    }
}

/// Decimal prefixes (kbit/s, Mbit/s …): what networks are measured in.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_print_with_the_largest_fitting_binary_prefix() {
        let shown: Vec<String> = [0, 1023, 1024, 1536, (1 << 20) - 1, 1 << 30, u64::MAX]
            .map(|n| Bytes(n).to_string())
            .to_vec();
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 GiB", "16.0 EiB"]
        );
    }

    #[test]
    fn a_rate_prints_decimal_and_never_rounds_up_to_1000_of_a_prefix() {
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
    fn no_time_passed_gives_rate_zero_and_rate_zero_gives_no_time() {
        assert_eq!(Bytes(10).per(Duration::ZERO), Rate::default());
        assert_eq!(Rate::default().time_for(Bytes(1)), None);
    }

    #[test]
    fn rate_and_time_are_inverse() {
        let rate = Bytes::mib(100).per(Duration::from_secs(2));
        assert_eq!(rate.bits_per_sec(), 100 * 1024 * 1024 * 4);
        assert_eq!(rate.time_for(Bytes::mib(100)), Some(Duration::from_secs(2)));
    }
}
