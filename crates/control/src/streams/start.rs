//! Initial number of streams of a transfer. The [tuner](super::StreamTuner) changes it later.

use std::time::Duration;

/// Streams on a short path. (GridFTP, bbcp and FDT recommend 4)
pub const MIN_INITIAL_STREAMS: u32 = 4;

/// Streams on the longest path. (chosen: 16 streams keep within the documented memory)
pub(super) const MAX_INITIAL_STREAMS: u32 = 16;

/// RTT up to which the fewest streams suffice. (measured: at 20 ms and less, slow start costs no
/// more than connecting)
pub(super) const SHORT_RTT: Duration = Duration::from_millis(20);

/// Returns the number of streams to start with on a path of this RTT.
///
/// Each stream starts with a window of 10 segments (RFC 6928) and doubles it per RTT; twice as many
/// streams reach the same rate one RTT sooner. The number grows so that the initial windows make
/// about the same rate as those of the fewest streams on a short path.
#[must_use]
pub fn initial_streams(min_rtt: Duration) -> u32 {
    let mut streams = MIN_INITIAL_STREAMS;
    let mut reach = SHORT_RTT;
    while min_rtt > reach && streams < MAX_INITIAL_STREAMS {
        streams *= 2;
        reach *= 2;
    }
    streams
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_streams_grow_with_rtt_up_to_a_bound() {
        let of = |ms| initial_streams(Duration::from_millis(ms));
        assert_eq!([0, 1, 20].map(of), [4; 3]);
        assert_eq!([21, 40].map(of), [8; 2]);
        assert_eq!([41, 100, 300, 100_000].map(of), [16; 4]);
    }
}
