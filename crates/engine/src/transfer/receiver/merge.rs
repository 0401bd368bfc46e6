//! Receiving side of a merged session: files are wanted only after every session has listed its
//! sources, and only those that this session may put in place. `gather/claims.rs` makes the choice.

use super::want::{make_refusal, make_want};
use super::{Receiver, place};
use crate::base::error::Error;
use crate::base::sync::lock;
use crate::model::merge_conflicts::{MergeHandle, ROOT_DIR, Rejection, SharedDir};
use crate::stats::counters::add;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Entry, EntryKind, Message, Totals, Verdict, Want};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Interval of checks for a stopped session.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// State of a merged session.
#[derive(Debug)]
pub(crate) struct MergeState {
    merge_handle: MergeHandle,
    /// Directories of the merged tree by this session's numbers.
    merged_dirs: Mutex<HashMap<u64, u64>>,
    /// Announcements; closed when the sender has finished.
    queue_tx: Mutex<Option<mpsc::Sender<Message>>>,
    queue_rx: Mutex<mpsc::Receiver<Message>>,
}

impl MergeState {
    pub(crate) fn new(merge_handle: MergeHandle) -> Self {
        let (queue_tx, queue_rx) = mpsc::channel();
        Self {
            merge_handle,
            merged_dirs: Mutex::new(HashMap::from([(0, ROOT_DIR)])),
            queue_tx: Mutex::new(Some(queue_tx)),
            queue_rx: Mutex::new(queue_rx),
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

    fn merged_dir(&self, dir: u64) -> Option<u64> {
        lock(&self.merged_dirs).get(&dir).copied()
    }

    /// Claims an entry's place in the merged tree.
    fn claim(&self, entry: &Entry) -> Result<(), WireError> {
        let parent = self.merged_dir(entry.parent).ok_or(WireError::BadFileId(entry.parent))?;
        let place = self.merge_handle.claim(parent, entry);
        if entry.kind == EntryKind::Dir {
            // An entry without a name is the destination itself.
            let place = if entry.name.is_empty() { ROOT_DIR } else { place };
            lock(&self.merged_dirs).insert(entry.id, place);
        }
        Ok(())
    }

    fn rejection(&self, entry: &Entry, shown: &Path) -> Option<Rejection> {
        let parent = self.merged_dir(entry.parent)?;
        if entry.name.is_empty() { None } else { self.merge_handle.rejection(parent, entry, shown) }
    }
}

impl Receiver<'_> {
    /// Handles announcements once every session has listed its sources.
    ///
    /// Returns at the end of the session, and immediately if nothing is merged.
    pub(crate) fn run_merge(&self) {
        let Some(merge_state) = &self.merge_state else { return };
        if let Err(error) = self.merge(merge_state) {
            self.session.fail(error);
        }
    }

    fn merge(&self, merge_state: &MergeState) -> Result<(), Error> {
        let queue_rx = merge_state.queue_rx.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listed: Option<Vec<Vec<Entry>>> = Some(Vec::new());
        while !self.session.is_stopped() {
            let message = match queue_rx.recv_timeout(STOP_POLL_INTERVAL) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            match message {
                Message::Entries(entries) => {
                    entries.iter().try_for_each(|entry| merge_state.claim(entry))?;
                    match &mut listed {
                        Some(listed) => listed.push(entries),
                        // Announced again after a change.
                        None => self.on_entries(entries)?,
                    }
                }
                Message::EntriesEnd(totals) => {
                    merge_state.merge_handle.finish_listing();
                    merge_state.merge_handle.wait_until_listed(|| self.session.is_stopped());
                    for entries in listed.take().unwrap_or_default() {
                        if self.session.is_stopped() {
                            return Ok(());
                        }
                        self.on_entries(entries)?;
                    }
                    self.on_entries_end(&totals);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Answers an entry that loses to another session's; returns false if it is to be put in place.
    pub(crate) fn resolve_conflict(&self, entry: &Entry, wants: &mut Vec<Want>) -> bool {
        // Beneath a directory that failed, that failure is the reason.
        let Some(merge_state) = self.merge_state.as_ref().filter(|_| !self.is_parent_failed(entry))
        else {
            return false;
        };
        let shown = self.dirs.path_of(entry.parent, OsStr::from_bytes(&entry.name));
        let Some(lost) = merge_state.rejection(entry, &shown) else { return false };
        match (lost, entry.kind) {
            (Rejection::Refused(failure), EntryKind::Dir) => {
                self.dirs.insert(entry.id, entry.parent, OsStr::from_bytes(&entry.name));
                lock(&self.announced_dirs).failed.insert(entry.id);
                self.report_problem(shown, failure);
            }
            (Rejection::Refused(failure), _) => {
                add(&self.stats.counts.files_total, u64::from(entry.kind == EntryKind::File));
                self.stats.file_failed(shown, &failure);
                wants.push(make_refusal(entry.id, failure));
            }
            (Rejection::Skipped, _) => wants.push(make_want(entry.id, Verdict::Skip)),
        }
        true
    }

    /// Whether a directory's metadata is set later, when no session adds to it any more.
    pub(crate) fn defers_metadata(&self, entry: &Entry) -> bool {
        let Some(merge_state) = &self.merge_state else { return false };
        let Some(parent) = merge_state.merged_dir(entry.parent) else { return false };
        merge_state.merge_handle.defers(parent, entry, |source| {
            let path = self.dirs.path(if entry.name.is_empty() { 0 } else { entry.id });
            SharedDir {
                source,
                path: path.strip_prefix(self.dirs.path(0)).unwrap_or(&path).to_owned(),
                mode: entry.mode,
                mtime: place::mtime_of(entry),
            }
        })
    }

    /// Records that the sender has announced everything.
    pub(crate) fn on_entries_end(&self, totals: &Totals) {
        add(&self.stats.counts.special_files_skipped, totals.special_files_skipped);
        self.stats.counts.total_is_final.store(true, Ordering::Relaxed);
        self.completion.on_all_announced();
    }
}
