//! A TCP connection in virtual time: a sender and a receiver that know no clock and no network.
//!
//! What lives here: which bytes are sent when, by window, congestion control ([`congestion`]) and
//! pacing; acknowledgements; detection and repair of losses; timers ([`rtt`]). Numbers and habits
//! are those of Linux where the RFCs leave a choice. `docs/sim.md` tells what is not modelled.
//!
//! What never lives here: a clock (time is an argument), links, the order of events
//! ([`crate::world`]), content: a byte is only its number.
//!
//! Every segment that is transmitted has a number. Paths do not reorder, so whatever was
//! transmitted before something that arrived, and has not arrived itself, is lost.

pub mod congestion;
mod ranges;
mod receiver;
pub mod rtt;
mod sender;

pub use congestion::Algorithm;
pub use receiver::ACK_DELAY;
pub(crate) use receiver::Receiver;
pub(crate) use sender::Sender;
pub use sender::{SUPER_PACKET_SEGMENTS, SenderCounts};

use crate::link::{Burst, Run};

/// Bytes of data in a full segment: an Ethernet MTU without IPv4 header (20), TCP header (20) and
/// timestamps (12).
pub const MSS: u64 = 1448;

/// Bytes of headers that each segment has on the line: the 52 that [`MSS`] leaves out.
pub const HEADER_BYTES: u32 = 52;

/// The largest window that can be told: 65 535 shifted by 14 (RFC 7323 §2.3).
pub const WINDOW_MAX: u64 = 65_535 << 14;

/// Segments that are sent at once and belong together: a super-packet, or what arrives of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segments {
    /// The number of the first transmission; the others follow.
    pub(crate) number: u64,
    /// First byte.
    pub(crate) start: u64,
    /// Byte after the last. Only the last segment may be smaller than [`MSS`].
    pub(crate) end: u64,
}

impl Segments {
    /// How many segments.
    pub(crate) fn count(&self) -> u64 {
        (self.end - self.start).div_ceil(MSS)
    }

    /// The first `count`, which are cut off.
    pub(crate) fn take(&mut self, count: u64) -> Self {
        let middle = self.end.min(self.start + count * MSS);
        let first = Self { end: middle, ..*self };
        self.start = middle;
        self.number += count;
        first
    }

    /// What they are on the line.
    pub(crate) fn burst(&self) -> Burst {
        let count = self.count();
        let last = self.end - self.start - count.saturating_sub(1) * MSS;
        Burst {
            segments: count as u32,
            segment_bytes: MSS as u32 + HEADER_BYTES,
            last_bytes: last as u32 + HEADER_BYTES,
        }
    }

    /// Those of them that a run has.
    pub(crate) fn of_run(&self, run: &Run) -> Self {
        let mut rest = *self;
        rest.take(u64::from(run.first));
        rest.take(u64::from(run.count))
    }
}

/// An acknowledgement. Which transmissions arrived is asked of the receiver, up to `high`: as if
/// there were room for any number of SACK blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    /// First byte that has not arrived.
    pub(crate) next: u64,
    /// The transmission after the last that arrived.
    pub(crate) high: u64,
    /// First byte that must not be sent.
    pub(crate) edge: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_run_has_its_part_of_the_bytes() {
        let all = Segments { number: 7, start: 1000, end: 1000 + 3 * MSS + 5 };
        assert_eq!(all.count(), 4);
        let burst = all.burst();
        assert_eq!((burst.segments, burst.segment_bytes, burst.last_bytes), (4, 1500, 57));
        let run = |first, count| Run { first, count, arrives: Duration::ZERO };
        let middle = Segments { number: 8, start: 1000 + MSS, end: 1000 + 3 * MSS };
        assert_eq!(all.of_run(&run(1, 2)), middle);
        let last = Segments { number: 10, start: 1000 + 3 * MSS, end: 1000 + 3 * MSS + 5 };
        assert_eq!(all.of_run(&run(3, 1)), last);
    }
}
