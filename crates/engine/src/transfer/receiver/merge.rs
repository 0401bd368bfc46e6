//! Receiving side of a merged session: files are wanted only after every session has listed its
//! sources, and only those that this session may put in place. `model/merge_conflicts.rs` chooses.

use super::dirs::DestinationDirs;
use super::folded_names::ignores_case;
use crate::base::error::Error;
use crate::base::sync::{Latch, lock};
use crate::model::merge_conflicts::{MergeHandle, ROOT_DIR, Rejection, SharedDir};
use crate::session::Session;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Entry, EntryKind, Message, Totals};
use bankfull_sys::Dir;
use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Interval of checks for a stopped session.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Announcements of a merged session, until every session has listed its sources.
#[derive(Debug)]
pub(crate) struct MergeQueue {
    merge_handle: MergeHandle,
    /// Directories of the merged tree by this session's numbers.
    merged_dirs: Mutex<HashMap<u64, u64>>,
    /// Announcements; closed when the sender has finished.
    queue_tx: Mutex<Option<mpsc::Sender<Message>>>,
    queue_rx: Mutex<mpsc::Receiver<Message>>,
    /// Set once all announcements were passed on.
    passed: Latch,
}

impl MergeQueue {
    /// Returns an empty queue of a session that writes beneath `base`.
    pub(crate) fn new(merge_handle: MergeHandle, base: Option<&Dir>) -> Self {
        let is_suspect = base.filter(|base| base.may_ignore_case());
        if is_suspect.is_some_and(|base| ignores_case(base).unwrap_or(false)) {
            merge_handle.ignore_case();
        }
        let (queue_tx, queue_rx) = mpsc::channel();
        Self {
            merge_handle,
            merged_dirs: Mutex::new(HashMap::from([(0, ROOT_DIR)])),
            queue_tx: Mutex::new(Some(queue_tx)),
            queue_rx: Mutex::new(queue_rx),
            passed: Latch::default(),
        }
    }

    /// Queues an announcement: the control thread must not wait for other sessions.
    pub(crate) fn enqueue(&self, message: Message) {
        if let Some(queue_tx) = &*lock(&self.queue_tx) {
            // The receiving end lives as long as the session.
            let _ = queue_tx.send(message);
        }
    }

    /// Closes the queue of announcements.
    pub(crate) fn close(&self) {
        lock(&self.queue_tx).take();
    }

    /// Waits until all announcements were passed on, or the session has ended.
    pub(crate) fn wait_passed(&self, session: &Session) {
        while !self.passed.wait(STOP_POLL_INTERVAL) && !session.is_stopped() {}
    }

    fn merged_dir(&self, dir: u64) -> Option<u64> {
        lock(&self.merged_dirs).get(&dir).copied()
    }

    /// Adds an entry to the candidates for its place in the merged tree.
    fn add_candidate(&self, entry: &Entry) -> Result<(), WireError> {
        let parent = self.merged_dir(entry.parent).ok_or(WireError::BadFileId(entry.parent))?;
        let place = self.merge_handle.add_candidate(parent, entry);
        if entry.kind == EntryKind::Dir {
            // An entry without a name is the destination itself.
            let place = if entry.name.is_empty() { ROOT_DIR } else { place };
            lock(&self.merged_dirs).insert(entry.id, place);
        }
        Ok(())
    }

    /// Returns how an entry loses to another session's; `None` if it is to be put in place.
    pub(crate) fn rejection(&self, entry: &Entry, shown: &Path) -> Option<Rejection> {
        let parent = self.merged_dir(entry.parent)?;
        if entry.name.is_empty() { None } else { self.merge_handle.rejection(parent, entry, shown) }
    }

    /// True if a directory's metadata is set later, once no session adds to it.
    pub(crate) fn defers_metadata(&self, entry: &Entry, dirs: &DestinationDirs) -> bool {
        let Some(parent) = self.merged_dir(entry.parent) else { return false };
        self.merge_handle.defers(parent, entry, |source| {
            let path = dirs.path(if entry.name.is_empty() { 0 } else { entry.id });
            SharedDir {
                source,
                path: path.strip_prefix(dirs.path(0)).unwrap_or(&path).to_owned(),
                set_metadata: dirs.deferred_metadata(entry),
            }
        })
    }

    /// Passes on announcements once every session has listed its sources, until the session ends.
    ///
    /// # Errors
    /// Invalid entries, and errors of `on_entries`.
    pub(crate) fn run(
        &self,
        session: &Session,
        on_entries: impl Fn(Vec<Entry>) -> Result<(), Error>,
        on_entries_end: impl Fn(&Totals),
    ) -> Result<(), Error> {
        let queue_rx = self.queue_rx.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listed: Option<Vec<Vec<Entry>>> = Some(Vec::new());
        while !session.is_stopped() {
            let message = match queue_rx.recv_timeout(STOP_POLL_INTERVAL) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            match message {
                Message::Entries(entries) => {
                    entries.iter().try_for_each(|entry| self.add_candidate(entry))?;
                    match &mut listed {
                        Some(listed) => listed.push(entries),
                        // Announced again after a change.
                        None => on_entries(entries)?,
                    }
                }
                Message::EntriesEnd(totals) => {
                    self.merge_handle.finish_listing();
                    self.merge_handle.wait_until_listed(|| session.is_stopped());
                    for entries in listed.take().unwrap_or_default() {
                        if session.is_stopped() {
                            return Ok(());
                        }
                        on_entries(entries)?;
                    }
                    on_entries_end(&totals);
                    self.passed.set();
                }
                _ => {}
            }
        }
        Ok(())
    }
}
