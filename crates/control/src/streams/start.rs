//! How many connections a transfer begins with.
//!
//! What it does not do: change the number while the transfer runs.

use std::time::Duration;

/// Connections on a short path. [GridFTP, bbcp and FDT recommend 4]
const STREAMS_MIN: u32 = 4;

/// Connections on the longest path. (ours: a transfer of 16 streams keeps within the memory that is
/// promised)
pub(super) const STREAMS_MAX: u32 = 16;

/// Round trip up to which the fewest do. [measured: over 20 ms and less, slow start costs no more
/// than connecting does]
const RTT_SHORT: Duration = Duration::from_millis(20);

/// How many connections to begin with where a round trip takes `rtt`.
///
/// Each begins with a window of 10 segments (RFC 6928) and doubles it in a round trip. Twice as
/// many reach the same rate one round trip sooner, so the number grows with what that is worth: the
/// first windows of all make about the same rate as those of the fewest do over a short path.
#[must_use]
pub fn streams_for(rtt: Duration) -> u32 {
    let mut streams = STREAMS_MIN;
    let mut reach = RTT_SHORT;
    while rtt > reach && streams < STREAMS_MAX {
        streams *= 2;
        reach *= 2;
    }
    streams
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_the_path_the_more_connections_up_to_a_bound() {
        let of = |ms| streams_for(Duration::from_millis(ms));
        assert_eq!([0, 1, 20].map(of), [4; 3]);
        assert_eq!([21, 40].map(of), [8; 2]);
        assert_eq!([41, 100, 300, 100_000].map(of), [16; 4]);
    }
}
