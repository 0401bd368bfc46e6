//! A session whose files are merged with those of others: nothing is wanted before every one of
//! them has listed what it has, and then only what this one may put in place. The choice is made
//! in `gather/claims.rs`.

use super::want::{answer, refused};
use super::{Receiver, place};
use crate::counts::add;
use crate::error::Error;
use crate::gather::claims::{Claimant, Lost, SharedDir, TOP};
use crate::net::control::lock;
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

/// How often the thread looks whether the session still runs.
const LOOK: Duration = Duration::from_millis(100);

/// What a merged session has beside others.
#[derive(Debug)]
pub(super) struct Merging {
    claimant: Claimant,
    /// Directories of this session in the merged tree.
    places: Mutex<HashMap<u64, u64>>,
    /// What was announced; closed when the sender has finished.
    queue: Mutex<Option<mpsc::Sender<Message>>>,
    waiting: Mutex<mpsc::Receiver<Message>>,
}

impl Merging {
    pub(super) fn new(claimant: Claimant) -> Self {
        let (queue, waiting) = mpsc::channel();
        Self {
            claimant,
            places: Mutex::new(HashMap::from([(0, TOP)])),
            queue: Mutex::new(Some(queue)),
            waiting: Mutex::new(waiting),
        }
    }

    /// Puts an announcement aside: the thread that reads must not wait for others.
    pub(super) fn put(&self, message: Message) {
        if let Some(queue) = &*lock(&self.queue) {
            // The other end lives as long as the session.
            let _ = queue.send(message);
        }
    }

    /// Nothing more will be announced.
    pub(super) fn close(&self) {
        lock(&self.queue).take();
    }

    fn place_of(&self, dir: u64) -> Option<u64> {
        lock(&self.places).get(&dir).copied()
    }

    /// Claims the place of an entry.
    fn claim(&self, entry: &Entry) -> Result<(), WireError> {
        let parent = self.place_of(entry.parent).ok_or(WireError::BadFileId(entry.parent))?;
        let place = self.claimant.claim(parent, entry);
        if entry.kind == EntryKind::Dir {
            // What lands without a name of its own lands in the top.
            let place = if entry.name.is_empty() { TOP } else { place };
            lock(&self.places).insert(entry.id, place);
        }
        Ok(())
    }

    fn lost(&self, entry: &Entry, shown: &Path) -> Option<Lost> {
        let parent = self.place_of(entry.parent)?;
        if entry.name.is_empty() { None } else { self.claimant.lost(parent, entry, shown) }
    }
}

impl Receiver<'_> {
    /// Takes in what was announced, once every session has listed what it has. Ends with the
    /// session, and at once where nothing is merged.
    pub(crate) fn run_merge(&self) {
        let Some(merging) = &self.merging else { return };
        if let Err(error) = self.merge(merging) {
            self.session.fail(error);
        }
    }

    fn merge(&self, merging: &Merging) -> Result<(), Error> {
        let waiting = merging.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listed: Option<Vec<Vec<Entry>>> = Some(Vec::new());
        while !self.session.is_stopped() {
            let message = match waiting.recv_timeout(LOOK) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            match message {
                Message::Entries(entries) => {
                    entries.iter().try_for_each(|entry| merging.claim(entry))?;
                    match &mut listed {
                        Some(listed) => listed.push(entries),
                        // Announced again.
                        None => self.on_entries(entries)?,
                    }
                }
                Message::EntriesEnd(totals) => {
                    merging.claimant.listed();
                    merging.claimant.wait(|| self.session.is_stopped());
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

    /// Answers for an entry that is not put in place, because what another session has counts
    /// there. False where it is to be put in place.
    pub(super) fn is_lost(&self, entry: &Entry, wants: &mut Vec<Want>) -> bool {
        // Beneath a directory that is not made, that is the reason.
        let Some(merging) = self.merging.as_ref().filter(|_| !self.parent_failed(entry)) else {
            return false;
        };
        let shown = self.dirs.path_of(entry.parent, OsStr::from_bytes(&entry.name));
        let Some(lost) = merging.lost(entry, &shown) else { return false };
        match (lost, entry.kind) {
            (Lost::Refused(failure), EntryKind::Dir) => {
                self.dirs.insert(entry.id, entry.parent, OsStr::from_bytes(&entry.name));
                lock(&self.seen).failed.insert(entry.id);
                self.problem(shown, failure);
            }
            (Lost::Refused(failure), _) => {
                add(&self.tally.counts.files_total, u64::from(entry.kind == EntryKind::File));
                self.tally.file_failed(shown, &failure);
                wants.push(refused(entry.id, failure));
            }
            (Lost::Skipped, _) => wants.push(answer(entry.id, Verdict::Skip)),
        }
        true
    }

    /// Whether a directory gets its metadata later, when no session puts anything into it any more.
    pub(super) fn defers(&self, entry: &Entry) -> bool {
        let Some(merging) = &self.merging else { return false };
        let Some(parent) = merging.place_of(entry.parent) else { return false };
        merging.claimant.defers(parent, entry, |source| {
            let path = self.dirs.path(if entry.name.is_empty() { 0 } else { entry.id });
            SharedDir {
                source,
                path: path.strip_prefix(self.dirs.path(0)).unwrap_or(&path).to_owned(),
                mode: entry.mode,
                mtime: place::mtime_of(entry),
            }
        })
    }

    /// The sender has announced all that it has.
    pub(super) fn on_entries_end(&self, totals: &Totals) {
        add(&self.tally.counts.special_files_skipped, totals.special_files_skipped);
        self.tally.counts.total_is_final.store(true, Ordering::Relaxed);
        self.ending.all_announced();
    }
}
