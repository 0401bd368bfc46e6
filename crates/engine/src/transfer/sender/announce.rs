//! Announcement of entries: they are numbered, and collected for messages.

use crate::base::sync::lock;
use crate::stats::counters::add;
use crate::stats::session_stats::SessionStats;
use crate::transport::control::Outbox;
use bankfull_control::Bytes;
use bankfull_proto::blocks::Layout;
use bankfull_proto::limits::{ENTRY_BATCH_TARGET_BYTES, MAX_ENTRIES_PER_BATCH};
use bankfull_proto::wire::control::{Entry, EntryKind, LeftOut, Message};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longest wait of announced entries for more to join. (chosen: well below a WAN's RTT)
pub(crate) const MAX_BATCH_AGE: Duration = Duration::from_millis(50);

/// Announces entries in messages of many.
pub(crate) struct Announcer {
    outbox: Outbox,
    /// Block size set by the user.
    block: Option<Bytes>,
    batch: Mutex<Batch>,
}

/// Announced entries that are collected for a message.
struct Batch {
    next_id: u64,
    entries: Vec<Entry>,
    /// Names that are not announced.
    left_out: Vec<LeftOut>,
    bytes: usize,
    since: Instant,
}

impl Announcer {
    /// Returns an announcer; `block` is the block size set by the user.
    pub(crate) fn new(outbox: Outbox, block: Option<Bytes>) -> Self {
        let (next_id, bytes, since) = (1, 0, Instant::now());
        let batch = Batch { next_id, entries: Vec::new(), left_out: Vec::new(), bytes, since };
        Self { outbox, block, batch: Mutex::new(batch) }
    }

    /// Numbers an entry, has it entered by `enter`, and queues it for the receiver. Returns its
    /// number.
    pub(crate) fn announce(&self, mut entry: Entry, enter: impl FnOnce(&Entry)) -> u64 {
        if let Some(block) = self.block.filter(|_| entry.block_bytes != 0) {
            entry.block_bytes = Layout::with_block_bytes(entry.size, block.0).block_bytes();
        }
        let mut batch = lock(&self.batch);
        let id = batch.next_id;
        batch.next_id += 1;
        entry.id = id;
        enter(&entry);
        if batch.entries.is_empty() {
            batch.since = Instant::now();
        }
        let extra = entry.extra.as_deref().map_or(0, |extra| 16 + extra.xattr_bytes());
        batch.bytes += 64 + entry.name.len() + entry.target.len() + extra;
        batch.entries.push(entry);
        let full = batch.bytes >= ENTRY_BATCH_TARGET_BYTES
            || batch.entries.len() >= MAX_ENTRIES_PER_BATCH
            || batch.since.elapsed() >= MAX_BATCH_AGE;
        if full {
            self.post(&mut batch);
        }
        id
    }

    /// Queues a name that is not announced, after the entries before it.
    pub(crate) fn leave_out(&self, left_out: LeftOut) {
        let mut batch = lock(&self.batch);
        batch.left_out.push(left_out);
        if batch.left_out.len() >= MAX_ENTRIES_PER_BATCH {
            self.post(&mut batch);
        }
    }

    /// Sends the collected entries.
    pub(crate) fn flush(&self) {
        self.post(&mut lock(&self.batch));
    }

    /// Posts the completed directories that `take` returns, after the entries collected before.
    pub(crate) fn post_completed_dirs(&self, take: impl FnOnce() -> Vec<u64>) {
        let mut batch = lock(&self.batch);
        self.post(&mut batch);
        for dirs in take().chunks(MAX_ENTRIES_PER_BATCH) {
            self.outbox.post(&Message::CompletedDirs(dirs.to_vec()));
        }
    }

    /// Posts the batch while it is locked, so that numbers ascend on the wire.
    ///
    /// Must not block, as the control thread calls it too; the walk waits before.
    fn post(&self, batch: &mut Batch) {
        if !batch.entries.is_empty() {
            batch.bytes = 0;
            let entries = std::mem::take(&mut batch.entries);
            self.outbox.post(&Message::Entries(entries));
        }
        if !batch.left_out.is_empty() {
            self.outbox.post(&Message::LeftOut(std::mem::take(&mut batch.left_out)));
        }
    }
}

/// Counts an entry that is no directory. The bytes of an open-ended file are not known yet.
pub(super) fn count_leaf(stats: &SessionStats<'_>, entry: &Entry) {
    let counts = &stats.counts;
    match entry.kind {
        EntryKind::File => {
            add(&counts.files_total, 1);
            add(&counts.bytes_total, entry.known_size());
        }
        EntryKind::Symlink => add(&counts.symlinks, 1),
        EntryKind::HardLink => add(&counts.hard_links, 1),
        EntryKind::Special => add(&counts.special_files, 1),
        EntryKind::Dir => {}
    }
}
