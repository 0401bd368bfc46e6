//! FQ-CoDel (RFC 8290): a CoDel queue for each flow, served in turn; new flows first.

use super::codel::{Codel, CodelConfig};
use super::fifo::{Fifo, Item, QueuedSegment};
use crate::link::packets::LinkCounts;
use crate::link::time::Picos;
use std::collections::VecDeque;

/// Queues of flows, by the hash of the flow (RFC 8290 §5.2.4: 1024).
const QUEUES: u64 = 1024;

/// Bytes that a queue may send in its turn: an Ethernet MTU (RFC 8290 §5.2.3).
///
/// Linux counts 14 bytes more, as it counts those of the header in all packets. With a rest of 14
/// bytes, a new flow would send two packets in its first turn.
const QUANTUM_BYTES: i64 = 1500;

/// Packets that are dropped at once from the longest queue when the buffer is full (sch_fq_codel.c,
/// drop_batch_size: 64; RFC 8290 §4.1.3: half of it at most).
const DROP_BATCH: u32 = 64;

/// Parameters of FQ-CoDel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FqCodelConfig {
    /// CoDel of each queue.
    pub codel: CodelConfig,
}

#[derive(Debug, Clone)]
struct FlowQueue<T> {
    fifo: Fifo<T>,
    codel: Codel,
    deficit: i64,
    /// In one of the lists.
    is_listed: bool,
}

/// State of FQ-CoDel.
#[derive(Debug, Clone)]
pub(in crate::link) struct FqCodel<T> {
    queues: Vec<FlowQueue<T>>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    bytes: u64,
}

impl<T: Clone> FqCodel<T> {
    pub(super) fn new(config: FqCodelConfig, ecn: bool) -> Self {
        let queue = || FlowQueue {
            fifo: Fifo::default(),
            codel: Codel::new(config.codel, ecn),
            deficit: 0,
            is_listed: false,
        };
        let (new, old) = (VecDeque::new(), VecDeque::new());
        Self { queues: (0..QUEUES).map(|_| queue()).collect(), new, old, bytes: 0 }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the first item of the only queue that is not empty.
    pub(super) fn next_item(&self) -> Option<u64> {
        match (self.new.len() + self.old.len(), self.new.front().or(self.old.front())) {
            (1, Some(&number)) => self.queues[number].fifo.next_item(),
            _ => None,
        }
    }

    /// Queues an item; a full buffer drops from the head of the longest queue.
    pub(super) fn enqueue(&mut self, item: Item<T>, buffer: u64, counts: &mut LinkCounts) {
        let number = (item.flow() % QUEUES) as usize;
        let queue = &mut self.queues[number];
        self.bytes -= queue.fifo.bytes();
        queue.fifo.enqueue(item, u64::MAX, counts);
        self.bytes += queue.fifo.bytes();
        if !queue.is_listed {
            queue.is_listed = true;
            queue.deficit = QUANTUM_BYTES;
            self.new.push_back(number);
        }
        while self.bytes > buffer {
            self.drop_from_longest(counts);
        }
    }

    fn drop_from_longest(&mut self, counts: &mut LinkCounts) {
        let Some(queue) = self.queues.iter_mut().max_by_key(|queue| queue.fifo.bytes()) else {
            return;
        };
        let least = queue.fifo.bytes() / 2;
        for _ in 0..DROP_BATCH {
            let Some(segment) = queue.fifo.dequeue() else { return };
            self.bytes -= u64::from(segment.bytes);
            match segment.packets {
                Some(_) => counts.overflowed += 1,
                None => counts.cross_overflowed += 1,
            }
            if queue.fifo.bytes() <= least {
                return;
            }
        }
    }

    /// Removes and returns the next segment to send.
    pub(super) fn dequeue(
        &mut self,
        now: Picos,
        counts: &mut LinkCounts,
    ) -> Option<QueuedSegment<T>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = *list.front()?;
            let queue = &mut self.queues[number];
            if queue.deficit <= 0 {
                queue.deficit += QUANTUM_BYTES;
                list.pop_front();
                self.old.push_back(number);
                continue;
            }
            let before = queue.fifo.bytes();
            let elsewhere = self.bytes - before;
            let segment = queue.codel.dequeue(&mut queue.fifo, elsewhere, now, counts);
            self.bytes -= before - queue.fifo.bytes();
            if let Some(segment) = segment {
                queue.deficit -= i64::from(segment.bytes);
                return Some(segment);
            }
            list.pop_front();
            // An empty new queue goes through the old ones first (RFC 8290 §4.2).
            if is_new && !self.old.is_empty() {
                self.old.push_back(number);
            } else {
                queue.is_listed = false;
            }
        }
    }
}
