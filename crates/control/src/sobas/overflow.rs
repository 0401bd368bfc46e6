//! Buffer overflow latency: how long after it has filled the path a transfer overflows the buffer
//! before it (SOBAS, appendix). It is the time there is to notice.
//!
//! With a buffer of B bytes before a line of C bytes per second, and a round trip of T₀ before
//! anything waits. In slow start the backlog grows by one segment for each that is acknowledged,
//! by a half where every second one is; in congestion avoidance by one (or a half) in each round
//! trip, which grows with the backlog.

use crate::units::{Bytes, Rate};
use std::time::Duration;

/// How often a receiver acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// Every segment.
    Each,
    /// Every second one (RFC 1122 §4.2.3.2).
    Delayed,
}

impl Acks {
    /// Segments that an acknowledgement stands for.
    fn segments(self) -> f64 {
        match self {
            Self::Each => 1.0,
            Self::Delayed => 2.0,
        }
    }
}

/// In slow start: B/C, and 2 B/C where acknowledgements are delayed; `None` for a line of rate
/// zero.
#[must_use]
pub fn in_slow_start(buffer: Bytes, line: Rate, acks: Acks) -> Option<Duration> {
    let seconds = acks.segments() * buffer.0 as f64 * 8.0 / line.bits_per_sec() as f64;
    Duration::try_from_secs_f64(seconds).ok()
}

/// In congestion avoidance, with segments of L bytes: (B² + 2 B C T₀) / (2 C L), and twice
/// that where acknowledgements are delayed; `None` for a line of rate zero or segments of none.
#[must_use]
pub fn in_avoidance(
    buffer: Bytes,
    line: Rate,
    rtt: Duration,
    segment: Bytes,
    acks: Acks,
) -> Option<Duration> {
    let (b, l) = (buffer.0 as f64, segment.0 as f64);
    let c = line.bits_per_sec() as f64 / 8.0;
    let seconds = acks.segments() * (b * b + 2.0 * b * c * rtt.as_secs_f64()) / (2.0 * c * l);
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: fn(f64) -> Rate = |mbit| Rate::from_bits_per_sec(mbit * 1e6);

    #[test]
    fn slow_start_fills_a_buffer_of_2_4_ms_in_2_4_or_4_8_ms() {
        let buffer = Bytes(300_000);
        let each = in_slow_start(buffer, LINE(1000.0), Acks::Each).unwrap();
        assert_eq!(each, Duration::from_micros(2400));
        let delayed = in_slow_start(buffer, LINE(1000.0), Acks::Delayed).unwrap();
        assert_eq!(delayed, 2 * each);
        assert_eq!(in_slow_start(buffer, LINE(0.0), Acks::Each), None);
    }

    /// The formula is the integral of dQ/dt = L / (T₀ + Q/C): walk it in small steps.
    #[test]
    fn avoidance_takes_as_long_as_its_differential_equation_says() {
        let (buffer, line, segment) = (Bytes(300_000), LINE(1000.0), Bytes(1500));
        let rtt = Duration::from_millis(20);
        let c = line.bytes_per_sec() as f64;
        let (mut backlog, mut seconds, step) = (0.0, 0.0, 1e-4);
        while backlog < buffer.0 as f64 {
            backlog += step * segment.0 as f64 / (rtt.as_secs_f64() + backlog / c);
            seconds += step;
        }
        let told = in_avoidance(buffer, line, rtt, segment, Acks::Each).unwrap().as_secs_f64();
        assert!((told / seconds - 1.0).abs() < 1e-3, "{told} {seconds}");
        let delayed = in_avoidance(buffer, line, rtt, segment, Acks::Delayed).unwrap();
        assert!((delayed.as_secs_f64() / told - 2.0).abs() < 1e-9);
        assert_eq!(in_avoidance(buffer, line, rtt, Bytes(0), Acks::Each), None);
    }
}
