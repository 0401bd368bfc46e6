//! Work of the streams: the ledger, and the waits for its changes.

use crate::base::sync::lock;
use crate::session::Session;
use bankfull_proto::send::{SendLedger, Work};
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Longest wait between two checks for a stopped session.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Blocks of a file left per stream for a stream to reserve its next one: near the end the other
/// streams then seldom wait for a slow one. (chosen: at half the rate of the others, a stream sends
/// two blocks while each of them sends four)
const MIN_BLOCKS_LEFT_PER_STREAM: u64 = 4;

/// Ledger of the sending side, with the waits for its changes.
pub(crate) struct WorkQueue<'a> {
    session: &'a Session,
    ledger: Mutex<SendLedger>,
    /// Signals new work, and that nothing is left to send.
    changed: Condvar,
    /// Signals completed files to the walk, if the receiver limits outstanding files.
    completed: Condvar,
}

impl<'a> WorkQueue<'a> {
    /// Returns an empty queue.
    pub(crate) fn new(session: &'a Session) -> Self {
        let (changed, completed) = (Condvar::new(), Condvar::new());
        Self { session, ledger: Mutex::default(), changed, completed }
    }

    /// Calls `f` with the ledger locked.
    pub(crate) fn with_ledger<T>(&self, f: impl FnOnce(&mut SendLedger) -> T) -> T {
        f(&mut lock(&self.ledger))
    }

    /// Wakes the streams after the ledger has new work.
    pub(crate) fn notify_work(&self) {
        self.changed.notify_all();
    }

    /// True if nothing is left to send.
    pub(crate) fn is_complete(&self) -> bool {
        self.with_ledger(|ledger| ledger.is_complete())
    }

    /// Wakes the walk; and, if nothing is left to send, the streams and the finish thread.
    pub(crate) fn notify_completion(&self) {
        self.completed.notify_all();
        if self.with_ledger(|ledger| ledger.is_complete()) {
            self.changed.notify_all();
        }
    }

    /// Waits until every file is completed or the session stops.
    pub(crate) fn wait_until_complete(&self) {
        let mut ledger = lock(&self.ledger);
        while !ledger.is_complete() && !self.session.is_stopped() {
            // The timeout covers a stop, which does not notify `changed`.
            let waited = self.changed.wait_timeout(ledger, STOP_POLL_INTERVAL);
            ledger = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits while `waits` returns true for the ledger. Checks at least once per `interval`, and
    /// returns early when the session stops.
    pub(crate) fn wait_outstanding(&self, interval: Duration, waits: impl Fn(&SendLedger) -> bool) {
        let mut ledger = lock(&self.ledger);
        while waits(&ledger) && !self.session.is_stopped() {
            // The timeout covers a stop, which does not notify `completed`.
            let waited = self.completed.wait_timeout(ledger, interval);
            ledger = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for work; returns `None` when all files are completed or the session has stopped.
    ///
    /// `before_waiting` runs once before the first wait.
    pub(crate) fn next_work(
        &self,
        stream: u32,
        before_waiting: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Option<Work>> {
        if self.session.is_stopped() {
            return Ok(None);
        }
        let work = |ledger: &mut SendLedger| {
            if self.session.is_paused(stream) { None } else { ledger.next_work(stream) }
        };
        if let Some(work) = self.with_ledger(work) {
            return Ok(Some(work));
        }
        before_waiting()?;
        let mut ledger = lock(&self.ledger);
        loop {
            if self.session.is_stopped() || ledger.is_complete() {
                return Ok(None);
            }
            if let Some(work) = work(&mut ledger) {
                return Ok(Some(work));
            }
            // The timeout covers a stop, which does not notify `changed`.
            let waited = self.changed.wait_timeout(ledger, STOP_POLL_INTERVAL);
            ledger = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reserves the block that a stream will send next, while many are left.
    pub(crate) fn prefetch_block(&self, stream: u32, file: u64) -> Option<u64> {
        if self.session.is_paused(stream) {
            return None;
        }
        let min_left = u64::from(self.session.wanted_streams()) * MIN_BLOCKS_LEFT_PER_STREAM;
        self.with_ledger(|ledger| ledger.prefetch_block(stream, file, min_left))
    }
}
