//! Loss samples, and their comparison with a baseline.
//!
//! Random loss is proportional to the number of segments; congestion loss is not.

use crate::pacing::DEFAULT_MSS;
use crate::tcp::INITIAL_WINDOW_SEGMENTS;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Growth of the loss rate over the baseline that still counts as random. (chosen: random loss
/// follows the number of segments; cross traffic that congests the path adds more)
const MAX_LOSS_GROWTH: f64 = 2.0;

/// Retransmissions of a number of segments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LossSample {
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Delivered segments.
    pub segments: u64,
}

impl LossSample {
    /// Returns the sample for `data` sent in segments of `mss`; [`DEFAULT_MSS`] if that is zero.
    #[must_use]
    pub fn new(retransmits: u64, data: Bytes, mss: Bytes) -> Self {
        Self { retransmits, segments: data.0 / mss_or_default(mss).0 }
    }

    /// Returns a sample of a loss rate.
    pub(crate) fn of_rate(loss: f64) -> Self {
        let segments = u64::from(u32::MAX);
        Self { retransmits: (loss * segments as f64) as u64, segments }
    }

    /// Returns the retransmitted share of the segments.
    #[must_use]
    pub fn loss_rate(self) -> f64 {
        self.retransmits as f64 / self.segments.max(1) as f64
    }

    /// Returns true if the loss exceeds that of a path with the `baseline` loss rate.
    ///
    /// Losses within a single burst (an initial window) may be chance.
    #[must_use]
    pub fn exceeds(self, baseline: Self) -> bool {
        let expected = baseline.loss_rate() * self.segments as f64;
        self.retransmits as f64 > expected * MAX_LOSS_GROWTH + INITIAL_WINDOW_SEGMENTS as f64
    }

    /// Returns the sustainable rate of `streams` streams at this loss rate: MSS / RTT · √(3/2p)
    /// each.
    ///
    /// (Mathis et al. 1997, equation 3; CUBIC carries the same in its Reno-friendly region.) `mss`
    /// as in [`new`](Self::new).
    #[must_use]
    pub fn sustainable_rate(self, streams: u32, rtt: Duration, mss: Bytes) -> Rate {
        let segments = (1.5 / self.loss_rate()).sqrt() * f64::from(streams);
        let bits = segments * 8.0 * mss_or_default(mss).0 as f64;
        Rate::from_bits_per_sec(bits / rtt.as_secs_f64().max(f64::MIN_POSITIVE))
    }

    /// Returns the sample with the higher loss rate.
    #[must_use]
    pub fn higher_loss(self, other: Self) -> Self {
        if other.loss_rate() > self.loss_rate() { other } else { self }
    }
}

/// Returns the MSS, or Ethernet's if unknown (zero).
fn mss_or_default(mss: Bytes) -> Bytes {
    if mss == Bytes(0) { DEFAULT_MSS } else { mss }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSS of jumbo frames of 9000 bytes, with IPv4, TCP and timestamp headers.
    const JUMBO: Bytes = Bytes(8948);

    #[test]
    fn segment_count_follows_the_mss() {
        let data = Bytes(8948 * 14_480);
        let segments = |mss| LossSample::new(7, data, mss).segments;
        assert_eq!([Bytes(0), DEFAULT_MSS, JUMBO].map(segments), [89_480, 89_480, 14_480]);
        let rtt = Duration::from_millis(80);
        let sustainable_rate = |mss| {
            let rate =
                LossSample { retransmits: 10, segments: 10_000 }.sustainable_rate(1, rtt, mss);
            rate.bits_per_sec() / 10_000
        };
        assert_eq!([Bytes(0), DEFAULT_MSS, JUMBO].map(sustainable_rate), [560, 560, 3465]);
    }

    #[test]
    fn sustainable_rate_follows_inverse_root_of_loss() {
        let rtt = Duration::from_millis(80);
        let sustainable_rate = |retransmits| {
            LossSample { retransmits, segments: 10_000 }.sustainable_rate(16, rtt, DEFAULT_MSS)
        };
        assert_eq!(sustainable_rate(10).bits_per_sec() / 1_000_000, 89);
        assert_eq!(sustainable_rate(40).bits_per_sec() / 1_000_000, 44);
        assert_eq!(sustainable_rate(0), Rate::from_bits_per_sec(f64::INFINITY));
    }

    #[test]
    fn exceeds_needs_more_than_random_variation() {
        let baseline = LossSample { retransmits: 10, segments: 10_000 };
        let exceeds = |retransmits| LossSample { retransmits, segments: 5_000 }.exceeds(baseline);
        assert_eq!([5, 15, 20, 25].map(exceeds), [false, false, false, true]);
        assert!(!LossSample { retransmits: 9, segments: 100 }.exceeds(LossSample::default()));
    }
}
