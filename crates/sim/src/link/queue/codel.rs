//! CoDel (RFC 8289): drops at departure while the sojourn time stays above a target.
//!
//! Like Linux (include/net/codel_impl.h) where the RFC leaves a choice.

use super::fifo::{Fifo, QueuedSegment};
use crate::link::packets::LinkCounts;
use crate::link::time::{Picos, picos};
use std::time::Duration;

/// A queue of one packet is never too long: bytes of an Ethernet MTU (RFC 8289 §4.2, maxpacket).
const MAX_PACKET_BYTES: u64 = 1514;

/// Intervals after the last drop within which control resumes where it was (codel_impl.h: 16; RFC
/// 8289 §5.5 shows 8 to 16).
const RESUME_INTERVALS: u64 = 16;

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
        }
    }

    /// Removes and returns the next segment that is not dropped.
    pub(super) fn dequeue<T: Clone>(
        &mut self,
        fifo: &mut Fifo<T>,
        now: Picos,
        counts: &mut LinkCounts,
    ) -> Option<QueuedSegment<T>> {
        let mut segment = fifo.dequeue();
        let mut is_late = self.is_above(segment.as_ref(), fifo.bytes(), now);
        if !self.is_dropping {
            if is_late {
                segment = self.drop_or_mark(segment, fifo, counts).0;
                self.begin(now);
            }
            return segment;
        }
        self.is_dropping = is_late;
        while self.is_dropping && now >= self.next_drop {
            self.count += 1;
            let was_marked;
            (segment, was_marked) = self.drop_or_mark(segment, fifo, counts);
            if !was_marked {
                is_late = self.is_above(segment.as_ref(), fifo.bytes(), now);
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
        self.count = if delta > 1 && is_recent { delta } else { 1 };
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

    /// Returns the time of the drop after one at `from` (RFC 8289 §4.4): 1/√count of an interval.
    fn control_law(&self, from: Picos) -> Picos {
        from + (self.interval as f64 / (self.count.max(1) as f64).sqrt()) as Picos
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
