//! An outstanding file of the sender: its state, and the state of its blocks.

use crate::blocks::{BlockSet, Layout};
use crate::hash::BlockHash;
use crate::wire::control::Entry;
use crate::work::NextStep;
use std::collections::HashMap;

/// State of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Announced,
    Comparing,
    Sending,
    Acknowledged,
}

/// An outstanding file.
#[derive(Debug)]
pub(crate) struct File {
    /// Number of its directory.
    pub(crate) parent: u64,
    pub(crate) state: State,
    pub(crate) body: Body,
    /// Verification failures of each block.
    pub(crate) nacks: HashMap<u64, u32>,
    /// True if the receiver accepts an early file digest.
    pub(crate) accepts_early_digest: bool,
    pub(crate) early_digest_sent: bool,
    /// Entries that it counts as, beyond one.
    pub(crate) weight: usize,
}

impl File {
    /// Returns an announced file.
    pub(crate) fn new(entry: &Entry, body: Body) -> Self {
        Self {
            parent: entry.parent,
            state: State::Announced,
            body,
            nacks: HashMap::new(),
            accepts_early_digest: false,
            early_digest_sent: false,
            weight: entry.extra_weight(),
        }
    }

    /// True if an early file digest was sent and is valid.
    pub(crate) fn has_early_digest(&self) -> bool {
        self.early_digest_sent && self.nacks.is_empty()
    }

    /// Returns the size of an open-ended file once it is wanted, and the next step. Only once.
    pub(crate) fn take_end(&mut self) -> Option<(u64, NextStep)> {
        let (State::Sending, Body::Blocks(blocks)) = (self.state, &mut self.body) else {
            return None;
        };
        let Some(End::Known(size)) = blocks.end else { return None };
        blocks.end = Some(End::Sent);
        blocks.cut(size);
        if !blocks.at_receiver.is_full() {
            return Some((size, NextStep::Nothing));
        }
        self.state = State::Acknowledged;
        Some((size, NextStep::SendDigest))
    }
}

/// Content of a file.
#[derive(Debug)]
pub(crate) enum Body {
    /// No content: a symlink, a hard link or a special file.
    None,
    Packed {
        size: u64,
    },
    Blocks(Box<Blocks>),
}

/// State of the blocks of a file.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) layout: Layout,
    pub(crate) at_receiver: BlockSet,
    /// Assigned to a stream, or at the receiver.
    pub(crate) assigned: BlockSet,
    /// Lower bound of the unassigned blocks, which keeps assignment linear.
    pub(crate) cursor: u64,
    pub(crate) hashes: HashMap<u64, BlockHash>,
    /// Read by this side, or at the receiver before this session.
    pub(crate) read: BlockSet,
    /// Left by an earlier session: the receiver checks each, and answers it with an Ack or a Nack.
    pub(crate) unconfirmed: BlockSet,
    /// End of a file that was announced without its size; `None` for any other file.
    pub(crate) end: Option<End>,
    /// Runs of holes of the source.
    pub(crate) hole_runs: usize,
}

/// End of a file that was announced without its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Unknown,
    Known(u64),
    Sent,
}

impl Blocks {
    /// Returns a file without blocks at the receiver.
    pub(crate) fn new(layout: Layout, is_open_ended: bool) -> Self {
        let empty = BlockSet::new(layout.count());
        let mut assigned = empty.clone();
        if is_open_ended {
            // None can be sent until it is there.
            assigned.insert_range(0..layout.count());
        }
        Self {
            layout,
            at_receiver: empty.clone(),
            assigned,
            unconfirmed: empty.clone(),
            read: empty,
            cursor: 0,
            hashes: HashMap::new(),
            end: is_open_ended.then_some(End::Unknown),
            hole_runs: 0,
        }
    }

    /// Counts the blocks beyond a size as sent and received.
    fn cut(&mut self, size: u64) {
        let rest = size.div_ceil(u64::from(self.layout.block_bytes()))..self.layout.count();
        for set in [&mut self.at_receiver, &mut self.assigned, &mut self.read] {
            set.insert_range(rest.clone());
        }
    }
}
