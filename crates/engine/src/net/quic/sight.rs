//! What a QUIC connection has done, as it tells by itself.

use bankfull_control::Bytes;
use std::time::Duration;

/// What a connection has done, all of its streams together. Counts are from its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QuicSight {
    /// Round trip, smoothed.
    pub(crate) rtt: Duration,
    /// Bytes in datagrams that were sent, and in those that have come.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Bytes, and packets, that were sent and are lost.
    pub(crate) lost: u64,
    pub(crate) lost_packets: u64,
    /// The most that a packet may hold now.
    pub(crate) segment: Bytes,
}

/// Connections one after the other: another one takes the place of one that was lost.
#[derive(Debug, Default)]
pub(crate) struct InTurn {
    before: QuicSight,
    last: QuicSight,
}

impl InTurn {
    pub(crate) fn take(&mut self, sight: QuicSight) {
        if sight.sent < self.last.sent {
            self.before = self.sum();
        }
        self.last = sight;
    }

    /// What all have done.
    pub(crate) fn sum(&self) -> QuicSight {
        let (before, last) = (self.before, self.last);
        QuicSight {
            sent: before.sent + last.sent,
            received: before.received + last.received,
            lost: before.lost + last.lost,
            lost_packets: before.lost_packets + last.lost_packets,
            ..last
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_connection_that_was_made_again_go_on() {
        let sight = |sent, lost_packets| QuicSight { sent, lost_packets, ..QuicSight::default() };
        let mut in_turn = InTurn::default();
        for (sight, sum) in [(sight(10, 1), 10), (sight(20, 2), 20), (sight(5, 0), 25)] {
            in_turn.take(sight);
            assert_eq!(in_turn.sum().sent, sum);
        }
        assert_eq!(in_turn.sum().lost_packets, 2);
    }
}
