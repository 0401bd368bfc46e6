//! First in, first out: the packets of a holding queue.

use crate::link::packets::{Ecn, LinkCounts, Packets};
use crate::link::time::Picos;
use std::collections::VecDeque;

/// Packets that arrived together; cross traffic has no `packets`.
#[derive(Debug, Clone)]
pub(in crate::link) struct Item<T> {
    /// Number in order of arrival.
    pub(in crate::link) number: u64,
    pub(in crate::link) packets: Option<Packets<T>>,
    /// Bytes of a packet of cross traffic.
    pub(in crate::link) cross_bytes: u32,
    pub(in crate::link) arrived: Picos,
    /// Present segments.
    pub(in crate::link) first: u32,
    pub(in crate::link) end: u32,
}

impl<T> Item<T> {
    /// Returns the flow; cross traffic is a flow of its own.
    pub(super) fn flow(&self) -> u64 {
        self.packets.as_ref().map_or(u64::MAX, |packets| packets.flow)
    }

    fn bytes_of(&self, segment: u32) -> u32 {
        self.packets.as_ref().map_or(self.cross_bytes, |packets| packets.burst.bytes_of(segment))
    }

    fn bytes(&self) -> u64 {
        (self.first..self.end).map(|segment| u64::from(self.bytes_of(segment))).sum()
    }

    /// Counts segments that the full queue dropped.
    pub(super) fn count_overflow(&self, segments: u32, counts: &mut LinkCounts) {
        let counter = match self.packets {
            Some(_) => &mut counts.overflowed,
            None => &mut counts.cross_overflowed,
        };
        *counter += u64::from(segments);
    }
}

/// Segment that leaves a queue.
#[derive(Debug, Clone)]
pub(in crate::link) struct QueuedSegment<T> {
    /// Number of its item.
    pub(in crate::link) item: u64,
    pub(in crate::link) packets: Option<Packets<T>>,
    pub(in crate::link) segment: u32,
    pub(in crate::link) bytes: u32,
    pub(in crate::link) arrived: Picos,
    pub(in crate::link) is_marked: bool,
}

impl<T> QueuedSegment<T> {
    /// Marks the segment if it is ECN-capable; returns whether it is.
    pub(super) fn mark(&mut self) -> bool {
        let can = self.packets.as_ref().is_some_and(|packets| packets.ecn != Ecn::NotCapable);
        self.is_marked |= can;
        can
    }
}

/// Packets in order of arrival.
#[derive(Debug, Clone)]
pub(in crate::link) struct Fifo<T> {
    items: VecDeque<Item<T>>,
    bytes: u64,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), bytes: 0 }
    }
}

impl<T: Clone> Fifo<T> {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of the first item.
    pub(super) fn next_item(&self) -> Option<u64> {
        self.items.front().map(|item| item.number)
    }

    /// Queues the segments that fit into the buffer.
    pub(super) fn enqueue(&mut self, mut item: Item<T>, buffer: u64, counts: &mut LinkCounts) {
        let mut end = item.first;
        while end < item.end && self.bytes + u64::from(item.bytes_of(end)) <= buffer {
            self.bytes += u64::from(item.bytes_of(end));
            end += 1;
        }
        item.count_overflow(item.end - end, counts);
        item.end = end;
        if item.first < item.end {
            self.items.push_back(item);
        }
    }

    /// Removes and returns the first segment.
    pub(super) fn dequeue(&mut self) -> Option<QueuedSegment<T>> {
        let item = self.items.front_mut()?;
        let (segment, bytes) = (item.first, item.bytes_of(item.first));
        item.first += 1;
        self.bytes -= u64::from(bytes);
        let (number, arrived) = (item.number, item.arrived);
        let packets = match item.first == item.end {
            true => self.items.pop_front()?.packets,
            false => item.packets.clone(),
        };
        let is_marked = packets.as_ref().is_some_and(|packets| packets.ecn == Ecn::Marked);
        Some(QueuedSegment { item: number, packets, segment, bytes, arrived, is_marked })
    }

    /// Puts an acknowledgement in the place of a queued one of its connection.
    ///
    /// The place is kept, so that acknowledgements leave however often they are replaced.
    pub(super) fn replace_ack(&mut self, item: &Item<T>, counts: &mut LinkCounts) -> bool {
        let is_ack = |item: &Item<T>| item.packets.as_ref().is_some_and(|p| p.is_pure_ack);
        if !is_ack(item) {
            return false;
        }
        let flow = item.flow();
        // Only the latest packet of a connection may be replaced: others must stay in order.
        let latest = self.items.iter_mut().rev().find(|queued| queued.flow() == flow);
        let Some(queued) = latest.filter(|queued| is_ack(queued)) else { return false };
        self.bytes = self.bytes - queued.bytes() + item.bytes();
        // The sojourn time is that of the place.
        let arrived = queued.arrived;
        *queued = Item { arrived, ..item.clone() };
        counts.thinned_acks += 1;
        true
    }
}
