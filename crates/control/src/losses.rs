//! Losses of a path, and whether more is lost than before: what is lost at random follows the
//! number of segments, congestion does not.

use crate::pacing::SEGMENT_DATA;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// No more is lost than before as long as it is this multiple of that, and so many segments beside.
/// (ours: losses that are no congestion follow the number of segments, and few are chance; where
/// others congest the path, more are)
const LOSS_GROWTH: f64 = 2.0;
const LOSS_CHANCE: f64 = 10.0;

/// What was sent again, of so much.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Losses {
    /// Segments sent again.
    pub resent: u64,
    /// Segments that came.
    pub segments: u64,
}

impl Losses {
    /// Of so much data in segments of that size; zero where it is not known.
    #[must_use]
    pub fn of(resent: u64, data: Bytes, segment: Bytes) -> Self {
        Self { resent, segments: data.0 / known(segment).0 }
    }

    /// The part that was sent again.
    #[must_use]
    pub fn share(self) -> f64 {
        self.resent as f64 / self.segments.max(1) as f64
    }

    /// Whether these are more than a path that loses as in `before` would bring by chance.
    #[must_use]
    pub fn exceed(self, before: Self) -> bool {
        let expected = before.share() * self.segments as f64;
        self.resent as f64 > expected * LOSS_GROWTH + LOSS_CHANCE
    }

    /// What so many connections carry on in the long run where so much is lost: MSS / RTT · √(3/2p)
    /// each. (Mathis et al. 1997, equation 3; CUBIC carries as much where it would not more)
    /// Segments as in [`of`](Self::of).
    #[must_use]
    pub fn sustained(self, streams: u32, rtt: Duration, segment: Bytes) -> Rate {
        let segments = (1.5 / self.share()).sqrt() * f64::from(streams);
        let bits = segments * 8.0 * known(segment).0 as f64;
        Rate::from_bits_per_sec(bits / rtt.as_secs_f64().max(f64::MIN_POSITIVE))
    }

    /// Of the two, those of which more is lost.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        if other.share() > self.share() { other } else { self }
    }
}

/// The size of a segment, or Ethernet's.
fn known(segment: Bytes) -> Bytes {
    if segment == Bytes(0) { SEGMENT_DATA } else { segment }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jumbo frames of 9000 bytes carry as much, without IP's and TCP's headers.
    const JUMBO: Bytes = Bytes(8948);

    #[test]
    fn segments_are_those_of_the_path() {
        let data = Bytes(8948 * 14_480);
        let segments = |segment| Losses::of(7, data, segment).segments;
        assert_eq!([Bytes(0), SEGMENT_DATA, JUMBO].map(segments), [89_480, 89_480, 14_480]);
        let rtt = Duration::from_millis(80);
        let sustained = |segment| {
            let rate = Losses { resent: 10, segments: 10_000 }.sustained(1, rtt, segment);
            rate.bits_per_sec() / 10_000
        };
        assert_eq!([Bytes(0), SEGMENT_DATA, JUMBO].map(sustained), [560, 560, 3465]);
    }

    #[test]
    fn what_is_sustained_falls_with_the_root_of_the_losses() {
        let rtt = Duration::from_millis(80);
        let sustained =
            |resent| Losses { resent, segments: 10_000 }.sustained(16, rtt, SEGMENT_DATA);
        assert_eq!(sustained(10).bits_per_sec() / 1_000_000, 89);
        assert_eq!(sustained(40).bits_per_sec() / 1_000_000, 44);
        assert_eq!(sustained(0), Rate::from_bits_per_sec(f64::INFINITY));
    }

    #[test]
    fn more_than_before_is_more_than_chance_brings() {
        let before = Losses { resent: 10, segments: 10_000 };
        let exceed = |resent| Losses { resent, segments: 5_000 }.exceed(before);
        assert_eq!([5, 15, 20, 25].map(exceed), [false, false, false, true]);
        assert!(!Losses { resent: 9, segments: 100 }.exceed(Losses::default()));
    }
}
