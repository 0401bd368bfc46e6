//! Buffer overflow latency: time from filling the path to overflowing the buffer (SOBAS paper,
//! appendix). It is the time available to detect a full path.
//!
//! Notation: a buffer of B bytes before a line of C bytes per second, and the RTT T₀ without a
//! queue. In slow start the backlog grows by one segment per ACK, by a half with delayed ACKs. In
//! congestion avoidance it grows by one (or a half) per RTT, which itself grows with the backlog.

use crate::units::{Bytes, Rate};
use std::time::Duration;

/// The ACK frequency of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckPolicy {
    /// One ACK per segment.
    EverySegment,
    /// One ACK per two segments (RFC 1122 §4.2.3.2).
    Delayed,
}

impl AckPolicy {
    /// Returns the segments per ACK.
    fn segments(self) -> f64 {
        match self {
            Self::EverySegment => 1.0,
            Self::Delayed => 2.0,
        }
    }
}

/// Returns the latency in slow start: B/C, or 2 B/C with delayed ACKs.
///
/// `None` for a line of rate zero.
#[must_use]
pub fn slow_start_latency(buffer: Bytes, line: Rate, acks: AckPolicy) -> Option<Duration> {
    let seconds = acks.segments() * buffer.0 as f64 * 8.0 / line.bits_per_sec() as f64;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Returns the latency in congestion avoidance: (B² + 2 B C T₀) / (2 C L), L being the segment
/// size.
///
/// Twice that with delayed ACKs; `None` for a line of rate zero or an `mss` of zero.
#[must_use]
pub fn congestion_avoidance_latency(
    buffer: Bytes,
    line: Rate,
    rtt: Duration,
    mss: Bytes,
    acks: AckPolicy,
) -> Option<Duration> {
    let (b, l) = (buffer.0 as f64, mss.0 as f64);
    let c = line.bits_per_sec() as f64 / 8.0;
    let seconds = acks.segments() * (b * b + 2.0 * b * c * rtt.as_secs_f64()) / (2.0 * c * l);
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: fn(f64) -> Rate = |mbit| Rate::from_bits_per_sec(mbit * 1e6);

    #[test]
    fn slow_start_latency_matches_buffer_time() {
        let buffer = Bytes(300_000);
        let each = slow_start_latency(buffer, LINE(1000.0), AckPolicy::EverySegment).unwrap();
        assert_eq!(each, Duration::from_micros(2400));
        let delayed = slow_start_latency(buffer, LINE(1000.0), AckPolicy::Delayed).unwrap();
        assert_eq!(delayed, 2 * each);
        assert_eq!(slow_start_latency(buffer, LINE(0.0), AckPolicy::EverySegment), None);
    }

    /// The formula is the integral of dQ/dt = L / (T₀ + Q/C), here integrated numerically.
    #[test]
    fn congestion_avoidance_latency_matches_integration() {
        let (buffer, line, mss) = (Bytes(300_000), LINE(1000.0), Bytes(1500));
        let rtt = Duration::from_millis(20);
        let c = line.bytes_per_sec() as f64;
        let (mut backlog, mut seconds, step) = (0.0, 0.0, 1e-4);
        while backlog < buffer.0 as f64 {
            backlog += step * mss.0 as f64 / (rtt.as_secs_f64() + backlog / c);
            seconds += step;
        }
        let latency = congestion_avoidance_latency(buffer, line, rtt, mss, AckPolicy::EverySegment)
            .unwrap()
            .as_secs_f64();
        assert!((latency / seconds - 1.0).abs() < 1e-3, "{latency} {seconds}");
        let delayed =
            congestion_avoidance_latency(buffer, line, rtt, mss, AckPolicy::Delayed).unwrap();
        assert!((delayed.as_secs_f64() / latency - 2.0).abs() < 1e-9);
        assert_eq!(
            congestion_avoidance_latency(buffer, line, rtt, Bytes(0), AckPolicy::EverySegment),
            None
        );
    }
}
