//! Files of a receiving session, and reports about them to the sender and the user.

use super::changes::ChangeLog;
use super::completion::Completion;
use super::dirs::DestinationDirs;
use super::incoming::IncomingFile;
use super::link_groups::HardLinks;
use super::part_file::remove_part;
use crate::base::error::{failure, problem_message};
use crate::base::sync::lock;
use crate::session::Session;
use crate::stats::session_stats::SessionStats;
use crate::transport::control::Outbox;
use bankfull_proto::receive::ReceiveLedger;
use bankfull_proto::wire::control::{Cause, Entry, EntryKind, Failed, Failure, Message};
use bankfull_sys::{Dir, FileKind};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Remover of a directory in the place of another entry: by its parent's number and its name.
///
/// Returns false if it stays.
pub(crate) type MakeRoom = Box<dyn Fn(&FileRegistry<'_>, u64, &OsStr) -> bool + Send + Sync>;

/// Outstanding files of a receiving session with their ledger.
pub(crate) struct FileRegistry<'a> {
    pub(crate) session: Arc<Session>,
    pub(crate) outbox: Outbox,
    pub(crate) stats: &'a SessionStats<'a>,
    pub(crate) dirs: Arc<DestinationDirs>,
    pub(crate) completion: Arc<Completion>,
    /// Changes for a user who itemizes them.
    pub(crate) changes: ChangeLog<'a>,
    /// Inodes with several names.
    pub(crate) links: HardLinks,
    /// Remover of directories in the place of other entries; `None`: they stay.
    room: Option<MakeRoom>,
    pub(crate) dry_run: bool,
    /// Entries that the outstanding files count as, beyond one each.
    extra_weight: AtomicUsize,
    ledger: Mutex<ReceiveLedger>,
    incoming: Mutex<HashMap<u64, Arc<IncomingFile>>>,
}

impl<'a> FileRegistry<'a> {
    /// Returns a registry without files.
    pub(crate) fn new(
        session: Arc<Session>,
        outbox: Outbox,
        stats: &'a SessionStats<'a>,
        dirs: Arc<DestinationDirs>,
        (completion, changes, dry_run): (Arc<Completion>, ChangeLog<'a>, bool),
        room: Option<MakeRoom>,
    ) -> Self {
        let (links, extra_weight, ledger, incoming) = Default::default();
        Self {
            session,
            outbox,
            stats,
            dirs,
            completion,
            changes,
            links,
            room,
            dry_run,
            extra_weight,
            ledger,
            incoming,
        }
    }

    /// Returns the ledger, locked.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, ReceiveLedger> {
        lock(&self.ledger)
    }

    pub(crate) fn insert(&self, incoming: Arc<IncomingFile>) {
        self.extra_weight.fetch_add(incoming.entry.extra_weight(), Ordering::Relaxed);
        lock(&self.incoming).insert(incoming.entry.id, incoming);
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<IncomingFile>> {
        lock(&self.incoming).get(&id).cloned()
    }

    /// Returns the open-ended files.
    pub(crate) fn open_ended(&self) -> Vec<Arc<IncomingFile>> {
        let incoming = lock(&self.incoming);
        incoming.values().filter(|incoming| incoming.entry.is_open_ended()).cloned().collect()
    }

    /// Removes a file, which stays in the ledger.
    pub(crate) fn remove(&self, id: u64) -> Option<Arc<IncomingFile>> {
        let removed = lock(&self.incoming).remove(&id);
        removed.inspect(|incoming| {
            self.extra_weight.fetch_sub(incoming.entry.extra_weight(), Ordering::Relaxed);
            self.stats.counts.end_check(&incoming.stats);
        })
    }

    /// Removes a completed file, also from the ledger.
    pub(crate) fn finish(&self, id: u64) {
        self.ledger().finish(id);
        self.remove(id);
    }

    /// Returns the entries that the outstanding files count as, beyond one each.
    pub(crate) fn extra_weight(&self) -> usize {
        self.extra_weight.load(Ordering::Relaxed)
    }

    /// Returns the path of a file for messages.
    pub(crate) fn path(&self, incoming: &IncomingFile) -> PathBuf {
        self.dirs.path_of(incoming.dir, &incoming.name)
    }

    /// Builds a failure to write a file, which names it by its path.
    pub(crate) fn write_failure(&self, incoming: &IncomingFile, error: &io::Error) -> Failure {
        failure(format!("cannot write {}", self.path(incoming).display()), error)
    }

    /// Reserves space for a file, once, if the share has a quota.
    ///
    /// `present` bytes of it are there already.
    ///
    /// # Errors
    /// The reason why the file is refused.
    pub(crate) fn reserve(&self, incoming: &IncomingFile, present: u64) -> Result<(), Failure> {
        let quota = self.session.storage_quota.as_ref().filter(|_| !self.dry_run);
        let Some(quota) = quota.filter(|_| incoming.reservation.get().is_none()) else {
            return Ok(());
        };
        // One of unknown size, or with holes, takes what is written.
        let takes_written = incoming.entry.is_open_ended() || incoming.entry.sparse;
        let size = if takes_written { 0 } else { incoming.entry.size };
        let entry = &incoming.entry;
        // A backup is one more entry.
        let is_kept = self.dirs.earlier.backup.is_some();
        let is_new = self.is_counted_later(entry) && (is_kept || self.is_new(entry));
        let is_stopped = || self.session.is_stopped();
        let reserved = quota.reserve((size.saturating_sub(present), is_new), &is_stopped);
        let _ = incoming.reservation.set(reserved.map_err(|e| self.quota_failure(incoming, e))?);
        Ok(())
    }

    /// True if an entry counts for the quota with the space of its file.
    ///
    /// One that may become a link to an earlier copy counts at once.
    pub(crate) fn is_counted_later(&self, entry: &Entry) -> bool {
        entry.kind == EntryKind::File && self.dirs.earlier.link_dest.is_empty()
    }

    /// True if nothing is in the place of an entry.
    pub(crate) fn is_new(&self, entry: &Entry) -> bool {
        match self.dirs.parent_of(entry) {
            // The destination itself.
            _ if entry.name.is_empty() => false,
            _ if self.dirs.is_parent_created(entry) => true,
            Ok(Some(dir)) => {
                let found = dir.stat(&self.dirs.local_name(entry));
                found.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
            }
            // Its failure is reported where it would be created.
            _ => false,
        }
    }

    /// Takes space for content from what is reserved for its file, or from the quota.
    ///
    /// # Errors
    /// `QuotaExceeded` if the quota does not allow it.
    pub(crate) fn before_write(&self, incoming: &IncomingFile, bytes: usize) -> io::Result<()> {
        if self.session.storage_quota.is_none() {
            return Ok(());
        }
        let exceeded = |e: Failure| io::Error::new(io::ErrorKind::QuotaExceeded, e.text);
        self.reserve(incoming, incoming.entry.size).map_err(exceeded)?;
        let Some(reservation) = incoming.reservation.get() else { return Ok(()) };
        reservation.write(bytes as u64, &|| self.session.is_stopped())
    }

    /// Records that bytes taken for a damaged block are written again.
    pub(crate) fn on_damaged(&self, incoming: &IncomingFile, bytes: u64) {
        incoming.reservation.get().into_iter().for_each(|file| file.give_back(bytes));
    }

    /// Puts a file in its place. The space of one that it replaces counts no more.
    pub(crate) fn put_file(
        &self,
        dir: &Dir,
        incoming: &IncomingFile,
        put: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let quota = self.session.storage_quota.as_ref();
        // Two replacements of a file at the same time would free its space twice.
        let replacing =
            quota.filter(|_| self.replaced_bytes(dir, incoming) > 0).map(|quota| quota.replacing());
        let replaced = replacing.as_ref().map_or(0, |_| self.replaced_bytes(dir, incoming));
        self.put_in_room((incoming.dir, &incoming.name), put)?;
        quota.iter().for_each(|quota| quota.subtract(replaced));
        Ok(())
    }

    /// Returns the space of a file that another one replaces, for the quota.
    ///
    /// It is at most the space that was taken for the file: otherwise replacements would free more.
    fn replaced_bytes(&self, dir: &Dir, incoming: &IncomingFile) -> u64 {
        let is_counted = self.session.storage_quota.is_some() && self.dirs.earlier.backup.is_none();
        let found = is_counted.then(|| dir.stat(&incoming.name).ok()).flatten();
        let alone = found.filter(|stat| stat.kind == FileKind::File && stat.nlink == 1);
        alone.map_or(0, |stat| stat.allocated.min(stat.size))
    }

    fn quota_failure(&self, incoming: &IncomingFile, why: Failure) -> Failure {
        let text = format!("cannot write {}: {}", self.path(incoming).display(), why.text);
        Failure::new(why.cause(), text)
    }

    /// True if a directory in the place of another entry is removed.
    pub(crate) fn replaces_dirs(&self) -> bool {
        self.room.is_some()
    }

    /// Removes a directory from the place of another entry; false if it stays.
    ///
    /// A dry run reports what would be removed.
    pub(crate) fn make_room(&self, parent: u64, name: &OsStr) -> bool {
        self.room.as_ref().is_some_and(|remove| remove(self, parent, name))
    }

    /// Puts an entry in its place, if necessary once a directory there is removed.
    pub(crate) fn put_in_room(
        &self,
        (parent, name): (u64, &OsStr),
        put: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        match put() {
            Err(e) if e.kind() == io::ErrorKind::IsADirectory && self.replaces_dirs() => {
                if self.make_room(parent, name) {
                    return put();
                }
                let text =
                    "a directory with entries that stay is in its place: remove or rename it";
                Err(io::Error::new(e.kind(), text))
            }
            done => done,
        }
    }

    /// Removes the part file of a file that no later session can continue.
    pub(crate) fn discard_part(&self, incoming: &IncomingFile) {
        if self.dry_run {
            return;
        }
        if let Ok(dir) = self.dirs.open(incoming.dir) {
            remove_part(&dir, &incoming.name, &self.session);
        }
    }

    /// Fails a file, and reports it to the sender and the user. Verified blocks stay for a resume.
    pub(crate) fn fail_file(&self, id: u64, failure: &Failure) {
        self.ledger().give_up(id);
        let Some(incoming) = self.remove(id) else { return };
        if incoming.entry.is_open_ended() {
            self.discard_part(&incoming);
        }
        self.stats.file_failed(self.path(&incoming), failure);
        self.outbox.post(&Message::Failed(Failed { file: id, failure: failure.clone() }));
        self.link_failed(&incoming.entry);
    }

    /// Reports a warning to both users.
    pub(crate) fn warn(&self, path: PathBuf, text: String) {
        self.stats.warn(text.clone());
        self.outbox.post(&problem_message(path, Failure::new(Cause::Warning, text)));
    }

    /// Reports a failure to both users that the sender does not know of.
    pub(crate) fn report_problem(&self, path: PathBuf, failure: Failure) {
        self.stats.file_failed(path.clone(), &failure);
        self.outbox.post(&problem_message(path, failure));
    }
}
