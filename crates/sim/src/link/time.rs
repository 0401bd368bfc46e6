//! Time of links in picoseconds, and stretches of it.

use std::time::Duration;

/// Picoseconds: 1500 bytes at 100 Gbit/s (120 000 ps) need no rounding, and 64 bits hold 213 days.
pub(super) type Picos = u64;

pub(super) const PICOS_PER_SEC: f64 = 1e12;
const PICOS_PER_NANO: u64 = 1000;

/// Converts a time; the longest are limited to 53 days.
pub(super) fn picos(time: Duration) -> Picos {
    let nanos = Picos::try_from(time.as_nanos()).unwrap_or(Picos::MAX);
    nanos.min(Picos::MAX / PICOS_PER_NANO / 4) * PICOS_PER_NANO
}

/// Converts a time, rounded up to nanoseconds.
pub(super) fn duration(time: Picos) -> Duration {
    Duration::from_nanos(time.div_ceil(PICOS_PER_NANO))
}

/// Stretch of time with a constant rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    /// Transmission time per byte, in picoseconds; infinite while the line is silent.
    pub(super) picos_per_byte: f64,
    pub(super) end: Picos,
}
