//! Changes of entries, reported to a user who asks for each of them.

use super::dirs::DestinationDirs;
use super::incoming::IncomingFile;
use super::link_groups::FirstName;
use super::lost_metadata::LostMetadata;
use super::metadata::Target;
use crate::base::event::Event;
use crate::base::sync::lock;
use crate::file_io::roots::{ChangeReader, ReceiveTarget};
use crate::stats::changes::event_of;
use crate::stats::session_stats::SessionStats;
use crate::transport::control::Outbox;
use bankfull_proto::limits::{MAX_ENTRIES_PER_BATCH, MAX_PATH_BYTES};
use bankfull_proto::wire::control::{
    Change, ChangeAction, ChangedKind, ComparisonRules, Differences, Entry, EntryKind, Message,
    MetadataRules, PathBytes,
};
use bankfull_sys::{FileKind, SpecialFile, Stat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes of changes in a message. (chosen: a quarter of the frame limit)
const MAX_BATCH_BYTES: usize = 256 << 10;

/// Age of a batch at which it is sent. (chosen: people do not notice it)
const MAX_BATCH_AGE: Duration = Duration::from_millis(100);

/// Reports of changes; without a reader they are not even looked for.
pub(crate) struct ChangeLog<'a> {
    reader: Option<ChangeReader>,
    outbox: Outbox,
    stats: &'a SessionStats<'a>,
    dirs: Arc<DestinationDirs>,
    comparison: ComparisonRules,
    /// True if the destination itself was created for this session.
    is_base_new: bool,
    batch: Mutex<Batch>,
}

/// Changes that the sender does not know of yet.
struct Batch {
    changes: Vec<Change>,
    bytes: usize,
    since: Instant,
}

impl<'a> ChangeLog<'a> {
    /// Returns the log of a session.
    pub(crate) fn new(
        outbox: Outbox,
        stats: &'a SessionStats<'a>,
        dirs: Arc<DestinationDirs>,
        target: &ReceiveTarget,
    ) -> Self {
        let batch = Batch { changes: Vec::new(), bytes: 0, since: Instant::now() };
        let is_base_new = target.is_new || target.base.is_none();
        let (reader, comparison, batch) =
            (target.requested.changes, target.comparison, Mutex::new(batch));
        Self { reader, outbox, stats, dirs, comparison, is_base_new, batch }
    }

    /// Returns the differences of an announced entry from what is in its place.
    ///
    /// `None` if the user does not ask, or nothing is done with the entry.
    pub(super) fn compare(&self, entry: &Entry) -> Option<Differences> {
        self.reader?;
        if entry.name.is_empty() {
            return self.compare_base(entry);
        }
        let dir = self.dirs.parent_of(entry).ok()?;
        let name = self.dirs.local_name(entry);
        let found = dir.and_then(|dir| dir.stat(&name).ok().map(|stat| (dir, stat)));
        let found = found.filter(|(_, stat)| kind_of(stat) == changed_kind(entry));
        let Some((dir, stat)) = found else { return Some(Differences::NEW) };
        self.differences(Target::Entry(&dir, &name), entry, &stat)
    }

    /// Returns the differences of the destination itself.
    fn compare_base(&self, entry: &Entry) -> Option<Differences> {
        if self.is_base_new {
            // As in rsync, a dry run that creates nothing does not show it.
            let is_planned = self.dirs.base_to_set().is_none();
            let is_shown = !(is_planned && self.comparison.existing_only);
            return is_shown.then_some(Differences::NEW);
        }
        let base = self.dirs.base_to_set()?;
        let stat = base.stat_self().ok()?;
        self.differences(Target::Dir(&base), entry, &stat)
    }

    fn differences(&self, at: Target<'_>, entry: &Entry, stat: &Stat) -> Option<Differences> {
        // What is not kept is counted when it is set.
        let uncounted = LostMetadata::default();
        let window = self.comparison.modify_window;
        self.dirs.metadata.differences(at, entry, stat, window, &uncounted).ok()
    }

    /// Returns the differences of a further name of an inode.
    pub(super) fn compare_link(&self, entry: &Entry, first: &FirstName) -> Option<Differences> {
        self.reader?;
        let kind = match first.kind {
            ChangedKind::File => EntryKind::File,
            ChangedKind::Symlink => EntryKind::Symlink,
            _ => EntryKind::Special,
        };
        let dir = self.dirs.parent_of(entry).ok()?;
        let name = self.dirs.local_name(entry);
        let found = dir.and_then(|dir| dir.stat(&name).ok().map(|stat| (dir, stat)));
        let found = found.filter(|(_, stat)| kind_of(stat) == first.kind);
        let Some((dir, stat)) = found else { return Some(Differences::NEW) };
        let entry = Entry { kind, size: first.size, ..entry.clone() };
        let found = self.differences(Target::Entry(&dir, &name), &entry, &stat)?;
        // The entry of a further name has no attributes.
        Some(found.without(Differences::ACL.with(Differences::XATTR, true)))
    }

    /// Returns the change of a directory that is about to be created or entered.
    pub(super) fn plan_dir(&self, entry: &Entry) -> Option<Change> {
        let differences = self.compare(entry)?;
        let action = match differences.has(Differences::NEW) {
            true => ChangeAction::Create,
            false => ChangeAction::Update,
        };
        Some(self.change(entry, action, differences))
    }

    /// Reports a file; `action` is its transfer, or an update of its metadata.
    pub(super) fn report_file(&self, incoming: &IncomingFile, action: ChangeAction) {
        let Some(differences) = incoming.differences else { return };
        let is_content = action == ChangeAction::Transfer && self.comparison.by_content;
        let differences = differences.with(Differences::CONTENT, is_content);
        self.add(self.change(&incoming.entry, action, differences));
    }

    /// Reports a symlink or special file that was created, or existed already.
    pub(super) fn report(&self, entry: &Entry, found: Option<Differences>, is_created: bool) {
        let Some(found) = found else { return };
        let action = if is_created { ChangeAction::Create } else { ChangeAction::Update };
        let found = found.with(Differences::CONTENT, is_created);
        self.add(self.change(entry, action, found));
    }

    /// Reports a further name of an inode; `is_made` tells it from one that existed already.
    pub(super) fn report_link(
        &self,
        entry: &Entry,
        first: &FirstName,
        found: Option<Differences>,
        is_made: bool,
    ) {
        let Some(found) = found else { return };
        let other = is_made.then(|| path_bytes(Path::new(OsStr::from_bytes(&first.path))));
        let found = self.with_transfer_time(found, first.kind, is_made);
        let path = self.path_of(entry);
        let (kind, action) = (first.kind, ChangeAction::Link);
        self.add(Change { path, kind, action, differences: found, other });
    }

    /// Reports a deleted entry by its path beneath the destination.
    pub(super) fn report_deleted(&self, path: &Path, is_dir: bool) {
        let kind = if is_dir { ChangedKind::Dir } else { ChangedKind::File };
        let (path, differences) = (path_bytes(path), Differences::default());
        self.add(Change { path, kind, action: ChangeAction::Delete, differences, other: None });
    }

    fn change(&self, entry: &Entry, action: ChangeAction, found: Differences) -> Change {
        let kind = changed_kind(entry);
        let is_written = matches!(action, ChangeAction::Transfer | ChangeAction::Create);
        let is_link = entry.kind == EntryKind::Symlink;
        let other = is_link.then(|| path_bytes(Path::new(OsStr::from_bytes(&entry.target))));
        let differences = self.with_transfer_time(found, kind, is_written);
        Change { path: self.path_of(entry), kind, action, differences, other }
    }

    /// Adds the time that an entry gets by being written, if times are not kept.
    fn with_transfer_time(
        &self,
        found: Differences,
        kind: ChangedKind,
        is_written: bool,
    ) -> Differences {
        let is_kept = !self.dirs.metadata.keeps(MetadataRules::NO_TIMES);
        found
            .with(Differences::TIME_OF_TRANSFER, is_written && !is_kept && kind != ChangedKind::Dir)
    }

    /// Returns the path of an entry beneath the destination, under its own name.
    fn path_of(&self, entry: &Entry) -> PathBytes {
        path_bytes(&self.dirs.path_beneath(entry.parent).join(OsStr::from_bytes(&entry.name)))
    }

    /// Adds a change, if it is one.
    pub(super) fn add(&self, change: Change) {
        let is_new = change.differences.has(Differences::NEW);
        let is_changed = match change.action {
            ChangeAction::Transfer | ChangeAction::Create | ChangeAction::Delete => true,
            ChangeAction::Link => change.other.is_some() || !change.differences.is_empty(),
            // A file that became a hard link to an earlier copy is new, and is not sent.
            ChangeAction::Update => !change.differences.is_empty() && !is_new,
        };
        match self.reader.filter(|_| is_changed) {
            None => {}
            Some(ChangeReader::Here) => self.stats.event(Event::Changed(event_of(change, false))),
            Some(ChangeReader::Sender) => self.post_later(change),
        }
    }

    fn post_later(&self, change: Change) {
        let mut batch = lock(&self.batch);
        if batch.changes.is_empty() {
            batch.since = Instant::now();
        }
        let bytes = change.max_wire_bytes();
        let mut full = Vec::new();
        if batch.bytes + bytes > MAX_BATCH_BYTES || batch.changes.len() >= MAX_ENTRIES_PER_BATCH {
            full = batch.take();
        }
        batch.bytes += bytes;
        batch.changes.push(change);
        let is_old = full.is_empty() && batch.since.elapsed() >= MAX_BATCH_AGE;
        let ready = if is_old { batch.take() } else { full };
        drop(batch);
        self.post(ready);
    }

    /// Sends the changes that the sender does not know of yet.
    pub(super) fn flush(&self) {
        let changes = lock(&self.batch).take();
        self.post(changes);
    }

    fn post(&self, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.outbox.post(&Message::Changes(changes));
        }
    }
}

impl Batch {
    fn take(&mut self) -> Vec<Change> {
        self.bytes = 0;
        std::mem::take(&mut self.changes)
    }
}

/// Returns a path for people, cut to the limit.
fn path_bytes(path: &Path) -> PathBytes {
    let bytes = path.as_os_str().as_bytes();
    PathBytes(bytes[..bytes.len().min(MAX_PATH_BYTES)].to_vec())
}

/// Returns the kind of an existing entry.
fn kind_of(stat: &Stat) -> ChangedKind {
    match (stat.kind, stat.special) {
        (FileKind::File, _) => ChangedKind::File,
        (FileKind::Dir, _) => ChangedKind::Dir,
        (FileKind::Symlink, _) => ChangedKind::Symlink,
        (_, Some(SpecialFile::CharDevice(..) | SpecialFile::BlockDevice(..))) => {
            ChangedKind::Device
        }
        _ => ChangedKind::Special,
    }
}

/// Returns the kind of an announced entry; a hard link counts as one to a file.
pub(super) fn changed_kind(entry: &Entry) -> ChangedKind {
    let special = entry.extra.as_deref().and_then(|extra| extra.special);
    match (entry.kind, special) {
        (EntryKind::Dir, _) => ChangedKind::Dir,
        (EntryKind::Symlink, _) => ChangedKind::Symlink,
        (EntryKind::Special, Some(special)) if special.kind.is_device() => ChangedKind::Device,
        (EntryKind::Special, _) => ChangedKind::Special,
        (EntryKind::File | EntryKind::HardLink, _) => ChangedKind::File,
    }
}
