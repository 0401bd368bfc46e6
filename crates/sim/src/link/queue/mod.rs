//! Queueing disciplines of a link.
//!
//! Drop-tail and PIE decide when a packet arrives. CoDel and FQ-CoDel decide when it leaves, and so
//! does a drop-tail queue in which acknowledgements replace each other: these hold packets.

mod codel;
mod fifo;
mod fq_codel;
mod pie;

pub use codel::CodelConfig;
pub use fq_codel::FqCodelConfig;
pub use pie::PieConfig;

pub(super) use fifo::{Fifo, Item, QueuedSegment};
pub(super) use pie::{Pie, Verdict};

use super::packets::LinkCounts;
use super::time::Picos;
use codel::Codel;
use fq_codel::FqCodel;

/// Queueing discipline.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum QueueConfig {
    /// First in, first out; packets that exceed the buffer are dropped.
    #[default]
    DropTail,
    /// CoDel (RFC 8289).
    Codel(CodelConfig),
    /// FQ-CoDel (RFC 8290).
    FqCodel(FqCodelConfig),
    /// PIE (RFC 8033).
    Pie(PieConfig),
}

/// Queue that holds packets until they are sent.
#[derive(Debug, Clone)]
pub(super) enum HoldingQueue<T> {
    Fifo(Fifo<T>),
    Codel(Fifo<T>, Codel),
    FqCodel(FqCodel<T>),
}

impl<T: Clone> HoldingQueue<T> {
    /// Creates the queue of a link; `None` if all is decided at arrival.
    pub(super) fn new(config: QueueConfig, ecn: bool, thins_acks: bool) -> Option<Self> {
        match config {
            QueueConfig::DropTail if thins_acks => Some(Self::Fifo(Fifo::default())),
            QueueConfig::DropTail | QueueConfig::Pie(_) => None,
            QueueConfig::Codel(codel) => Some(Self::Codel(Fifo::default(), Codel::new(codel, ecn))),
            QueueConfig::FqCodel(fq_codel) => Some(Self::FqCodel(FqCodel::new(fq_codel, ecn))),
        }
    }

    /// Queues the segments of an item that fit into the buffer.
    pub(super) fn enqueue(&mut self, item: Item<T>, buffer: u64, counts: &mut LinkCounts) {
        match self {
            Self::Fifo(fifo) => {
                if !fifo.replace_ack(&item, counts) {
                    fifo.enqueue(item, buffer, counts);
                }
            }
            Self::Codel(fifo, _) => fifo.enqueue(item, buffer, counts),
            Self::FqCodel(queues) => queues.enqueue(item, buffer, counts),
        }
    }

    /// Removes and returns the next segment to send.
    pub(super) fn dequeue(
        &mut self,
        now: Picos,
        counts: &mut LinkCounts,
    ) -> Option<QueuedSegment<T>> {
        match self {
            Self::Fifo(fifo) => fifo.dequeue(),
            Self::Codel(fifo, codel) => codel.dequeue(fifo, 0, now, counts),
            Self::FqCodel(queues) => queues.dequeue(now, counts),
        }
    }

    /// Returns the number of the next item, if no other queue may come first.
    pub(super) fn next_item(&self) -> Option<u64> {
        match self {
            Self::Fifo(fifo) | Self::Codel(fifo, _) => fifo.next_item(),
            Self::FqCodel(queues) => queues.next_item(),
        }
    }

    /// Returns the bytes of the held packets.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Fifo(fifo) | Self::Codel(fifo, _) => fifo.bytes(),
            Self::FqCodel(queues) => queues.bytes(),
        }
    }
}
