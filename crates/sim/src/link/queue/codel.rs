//! CoDel (RFC 8289): drops at departure while the sojourn time stays above a target.
//!
//! Like Linux (include/net/codel_impl.h) where the RFC leaves a choice.

use super::fifo::{Fifo, QueuedSegment};
use crate::link::packets::LinkCounts;
use crate::link::time::{Picos, picos};
use std::time::Duration;

/// A queue of one packet is never too long: an Ethernet MTU (RFC 8289 §4.2, maxpacket).
///
/// Linux counts 14 bytes more, as it counts those of the header in all packets.
const MAX_PACKET_BYTES: u64 = 1500;

/// Intervals after the last drop within which control resumes where it was (codel_impl.h: 16; RFC
/// 8289 §5.5 shows 8 to 16).
const RESUME_INTERVALS: u64 = 16;

/// Resolution of the reciprocal root (codel.h, REC_INV_SQRT_BITS: 16 bits).
const ROOT_SCALE: f64 = 65536.0;

/// Parameters of CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodelConfig {
    /// Accepted standing sojourn time.
    pub target: Duration,
    /// Time above the target before the first drop: a long RTT.
    pub interval: Duration,
}

impl Default for CodelConfig {
    /// Returns the values of RFC 8289 §4.2 and 4.3.
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// State of CoDel.
#[derive(Debug, Clone)]
pub(in crate::link) struct Codel {
    target: Picos,
    interval: Picos,
    ecn: bool,
    /// End of the interval that began when the sojourn time exceeded the target.
    first_above_at: Option<Picos>,
    is_dropping: bool,
    next_drop: Picos,
    /// Drops since control began, and the count at which it began last.
    count: u64,
    last_count: u64,
    /// Reciprocal of the root of the count, by Newton's method.
    reciprocal_root: f64,
}

impl Codel {
    pub(super) fn new(config: CodelConfig, ecn: bool) -> Self {
        Self {
            target: picos(config.target),
            interval: picos(config.interval).max(1),
            ecn,
            first_above_at: None,
            is_dropping: false,
            next_drop: 0,
            count: 0,
            last_count: 0,
            reciprocal_root: 1.0,
        }
    }

    /// Removes and returns the next segment that is not dropped.
    ///
    /// `elsewhere` are the bytes in other queues of the port: a single packet behind them may be
    /// late (fq_codel_dequeue, sch_fq_codel.c, passes the backlog of all queues).
    pub(super) fn dequeue<T: Clone>(
        &mut self,
        fifo: &mut Fifo<T>,
        elsewhere: u64,
        now: Picos,
        counts: &mut LinkCounts,
    ) -> Option<QueuedSegment<T>> {
        let mut segment = fifo.dequeue();
        let mut is_late = self.is_above(segment.as_ref(), fifo.bytes() + elsewhere, now);
        if !self.is_dropping {
            if is_late {
                let was_marked;
                (segment, was_marked) = self.drop_or_mark(segment, fifo, counts);
                if !was_marked {
                    self.is_above(segment.as_ref(), fifo.bytes() + elsewhere, now);
                }
                self.begin(now);
            }
            return segment;
        }
        self.is_dropping = is_late;
        while self.is_dropping && now >= self.next_drop {
            self.count += 1;
            self.approach_root();
            let was_marked;
            (segment, was_marked) = self.drop_or_mark(segment, fifo, counts);
            if !was_marked {
                is_late = self.is_above(segment.as_ref(), fifo.bytes() + elsewhere, now);
                self.is_dropping = is_late;
            }
            if self.is_dropping {
                self.next_drop = self.control_law(self.next_drop);
            }
            if was_marked {
                break;
            }
        }
        segment
    }

    /// Begins to drop, at the earlier frequency if control ended a short time ago.
    fn begin(&mut self, now: Picos) {
        self.is_dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let is_recent = now.saturating_sub(self.next_drop) < RESUME_INTERVALS * self.interval;
        if delta > 1 && is_recent {
            self.count = delta;
            self.approach_root();
        } else {
            self.count = 1;
            self.reciprocal_root = 1.0;
        }
        self.last_count = self.count;
        self.next_drop = self.control_law(now);
    }

    /// Returns the next segment after a drop, or the same one, marked.
    fn drop_or_mark<T: Clone>(
        &self,
        segment: Option<QueuedSegment<T>>,
        fifo: &mut Fifo<T>,
        counts: &mut LinkCounts,
    ) -> (Option<QueuedSegment<T>>, bool) {
        let Some(mut segment) = segment else { return (None, false) };
        if self.ecn && segment.mark() {
            return (Some(segment), true);
        }
        counts.count_early_drop(segment.packets.is_some());
        (fifo.dequeue(), false)
    }

    /// Takes one step of Newton's method, as Linux does for each drop (codel_impl.h).
    ///
    /// The steps lag behind a count that changes by much: the second drop comes after half of an
    /// interval, not 0.71, and drops are more frequent than the root says when control resumes.
    fn approach_root(&mut self) {
        let root = self.reciprocal_root;
        let next = root / 2.0 * (3.0 - self.count as f64 * root * root);
        self.reciprocal_root = (next * ROOT_SCALE).floor().max(1.0) / ROOT_SCALE;
    }

    /// Returns the time of the drop after one at `from` (RFC 8289 §4.4): 1/√count of an interval.
    fn control_law(&self, from: Picos) -> Picos {
        from + (self.interval as f64 * self.reciprocal_root) as Picos
    }

    /// Returns whether the sojourn time has been above the target for an interval.
    fn is_above<T>(
        &mut self,
        segment: Option<&QueuedSegment<T>>,
        backlog: u64,
        now: Picos,
    ) -> bool {
        let is_short = segment.is_none_or(|segment| {
            now.saturating_sub(segment.arrived) < self.target || backlog <= MAX_PACKET_BYTES
        });
        if is_short {
            self.first_above_at = None;
            return false;
        }
        let first = *self.first_above_at.get_or_insert(now + self.interval);
        now >= first
    }
}

#[cfg(test)]
mod tests {
    use super::super::fifo::Item;
    use super::*;
    use crate::link::packets::{Burst, Packets};

    const MS: Picos = 1_000_000_000;

    /// Queues a packet of 1500 bytes.
    fn queue(fifo: &mut Fifo<()>, arrived: Picos) {
        let packets = Some(Packets::new(Burst::packet(1500), 0, ()));
        let item = Item { number: arrived, packets, cross_bytes: 0, arrived, first: 0, end: 1 };
        fifo.enqueue(item, u64::MAX, &mut LinkCounts::default());
    }

    /// Returns the times of drops in ms; a packet leaves every ms, always late.
    fn drops(codel: &mut Codel, from: u64, to: u64) -> Vec<u64> {
        let (mut fifo, mut counts, mut drops) =
            (Fifo::default(), LinkCounts::default(), Vec::new());
        for now in from..to {
            while fifo.bytes() < 150_000 {
                queue(&mut fifo, now.saturating_sub(50) * MS);
            }
            let before = counts.early_dropped;
            codel.dequeue(&mut fifo, 0, now * MS, &mut counts);
            drops.extend((before..counts.early_dropped).map(|_| now));
        }
        drops
    }

    #[test]
    fn drops_follow_newtons_steps() {
        // Linux: 1, then one step per drop: 0.5 (not 0.71), 0.5625 (0.58), 0.488 (0.5) of 100 ms.
        let mut codel = Codel::new(CodelConfig::default(), false);
        assert_eq!(drops(&mut codel, 100, 450), [200, 300, 350, 407]);
        drops(&mut codel, 450, 5000);
        let exact = 1.0 / (codel.count as f64).sqrt();
        assert!((codel.reciprocal_root / exact - 1.0).abs() < 0.01, "{codel:?}");
        // A short queue, then control resumes with the drops since it began last.
        let (mut fifo, count) = (Fifo::default(), codel.count);
        queue(&mut fifo, 5000 * MS);
        codel.dequeue(&mut fifo, 0, 5001 * MS, &mut LinkCounts::default());
        assert_eq!(drops(&mut codel, 5002, 5103), [5102]);
        assert_eq!(codel.count, count - 1);
        // Its drops are more frequent than the root of the count says.
        codel.last_count = codel.count - 9;
        codel.is_dropping = false;
        codel.begin(5110 * MS);
        assert!(codel.count == 9 && codel.reciprocal_root < 0.8 / 3.0, "{codel:?}");
    }

    #[test]
    fn first_drop_that_leaves_one_packet_ends_interval() {
        let mut codel = Codel::new(CodelConfig::default(), false);
        let (mut fifo, mut counts) = (Fifo::default(), LinkCounts::default());
        (0..4).for_each(|_| queue(&mut fifo, 0));
        assert!(codel.dequeue(&mut fifo, 0, 10 * MS, &mut counts).is_some());
        assert!(codel.dequeue(&mut fifo, 0, 110 * MS, &mut counts).is_some());
        assert_eq!((counts.early_dropped, fifo.bytes()), (1, 1500));
        assert_eq!(codel.first_above_at, None);
    }

    #[test]
    fn single_packet_behind_other_queues_can_be_late() {
        for (elsewhere, dropped) in [(0, 0), (3000, 1)] {
            let mut codel = Codel::new(CodelConfig::default(), false);
            let (mut fifo, mut counts) = (Fifo::default(), LinkCounts::default());
            for now in [10, 110, 120] {
                queue(&mut fifo, (now - 9) * MS);
                codel.dequeue(&mut fifo, elsewhere, now * MS, &mut counts);
            }
            assert_eq!(counts.early_dropped, dropped, "{elsewhere}");
        }
    }
}
