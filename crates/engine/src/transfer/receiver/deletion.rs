//! Deletion of extraneous entries of the destination, once everything else is done.

use super::dirs::is_no_directory;
use super::folded_names::{ignores_case, is_found_in_other_case};
use super::held_dir::HeldDir;
use super::registry::{FileRegistry, MakeRoom};
use super::shared_entries::{SharedEntries, SpareThreads};
use super::source_names::SourceNames;
use crate::base::error::{Error, failure};
use crate::base::event::Outcome;
use crate::base::owner_access::{OWNER_ACCESS, lacks_owner_access};
use crate::base::part_names::part_beside;
use crate::base::threads::try_spawn_now;
use crate::file_io::earlier::Backup;
use crate::file_io::roots::RequestedRules;
use crate::stats::counters::read;
use crate::transfer::dir_filters::DirFilters;
use bankfull_proto::filter::FilterScope;
use bankfull_proto::limits::{MAX_DIRECTORY_DEPTH, MAX_ENTRIES_PER_BATCH, MAX_PATH_BYTES};
use bankfull_proto::wire::control::{
    Cause, DeleteRules, Failure, Message, PathBytes, Source, WalkRules,
};
use bankfull_sys::{Dir, FileKind};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// Entries that are read from a directory at a time. (chosen: as the walk lists)
const LISTED_ENTRIES: usize = 16 << 10;

/// Returns the remover of directories in the place of other entries.
///
/// `None` unless the copy deletes without a limit.
pub(super) fn room_maker(asked: &RequestedRules, sources: &[Source]) -> Option<MakeRoom> {
    let rules = asked.delete.filter(|rules| rules.max.is_none())?;
    let filters = asked.filters.clone();
    let is_contents = sources.iter().any(|source| source.contents);
    Some(Box::new(move |registry, parent, name| {
        let deletion = Deletion::new(registry, (rules, SourceNames::new()), registry.dry_run);
        deletion.make_room((&filters, is_contents), parent, name)
    }))
}

/// Deletes at the end of a transfer.
pub(super) struct Deletion<'d, 'a> {
    registry: &'d FileRegistry<'a>,
    rules: DeleteRules,
    names: SourceNames,
    dry_run: bool,
    /// Deleted entries that the sender does not know of yet.
    batch: Vec<PathBytes>,
    /// Maximum number of deletions while they are only counted; `None` while entries are deleted.
    limit: Option<u64>,
    counted: u64,
    spare_threads: Arc<SpareThreads>,
}

/// Directory of the destination that is cleaned.
struct Cleaned<'c> {
    place: &'c HeldDir<'c>,
    /// Path beneath the destination.
    path: PathBuf,
    filters: &'c DirFilters,
    depth: usize,
    /// True if the directory is deleted itself.
    is_deleted: bool,
}

impl<'d, 'a> Deletion<'d, 'a> {
    pub(super) fn new(
        registry: &'d FileRegistry<'a>,
        (rules, names): (DeleteRules, SourceNames),
        dry_run: bool,
    ) -> Self {
        let (batch, counted, limit) = (Vec::new(), 0, rules.max);
        let spare_threads = Arc::new(SpareThreads::of_host());
        Self { registry, rules, names, dry_run, batch, limit, counted, spare_threads }
    }

    /// Returns the part of another thread, which deletes beneath what this one deletes.
    fn helper(&self) -> Self {
        let names = SourceNames::new();
        let (batch, counted, limit) = Default::default();
        let spare_threads = Arc::clone(&self.spare_threads);
        let (registry, rules, dry_run) = (self.registry, self.rules, self.dry_run);
        Self { registry, rules, names, dry_run, batch, limit, counted, spare_threads }
    }

    /// Removes a directory from the place of an entry of another kind; false if it stays.
    ///
    /// `parent` is the number of the directory that it is in. `filters` has the rules above all
    /// sources, and true if the destination itself holds the contents of a source.
    pub(super) fn make_room(
        mut self,
        filters: (&FilterScope, bool),
        parent: u64,
        name: &OsStr,
    ) -> bool {
        let above = self.registry.dirs.path_beneath(parent);
        let entered = self.registry.dirs.open(parent).and_then(|dir| {
            let filters = self.filters_in(filters, &above).map_err(io::Error::other)?;
            Ok((dir, filters))
        });
        let (dir, filters) = match entered {
            Ok(entered) => entered,
            Err(e) => {
                self.report(above.join(name), &e);
                return false;
            }
        };
        let depth = above.components().count();
        let place = HeldDir::top(dir);
        let at =
            Cleaned { place: &place, path: above, filters: &filters, depth, is_deleted: false };
        let is_removed = self.remove(&at, name, true);
        self.post();
        is_removed
    }

    /// Returns the rules in a directory of the destination.
    fn filters_in(
        &self,
        (filters, is_contents): (&FilterScope, bool),
        path: &Path,
    ) -> Result<DirFilters, Error> {
        let base = self.registry.dirs.open(0).map_err(|e| Error::local("", &e))?;
        let mut entered = DirFilters::new(filters.clone(), &WalkRules::default());
        let mut dir = base.try_clone().map_err(|e| Error::local("", &e))?;
        if is_contents {
            entered = entered.enter(OsStr::new(""), &dir)?;
        }
        for part in path.components() {
            let name = part.as_os_str();
            dir = dir.open_child_dir(name).map_err(|e| Error::local("", &e))?;
            entered = entered.enter(name, &dir)?;
        }
        Ok(entered)
    }

    /// Deletes what the source does not have, unless something speaks against it.
    pub(super) fn run(mut self, filters: &FilterScope) {
        if let Some(text) = self.refusal() {
            return self.registry.warn(self.registry.dirs.path(0), text);
        }
        self.names.sort();
        if let Some(failure) = self.refuse_empty_sources(filters) {
            return self.registry.report_problem(self.registry.dirs.path(0), failure);
        }
        if let Some(limit) = self.limit {
            self.clean_roots(filters);
            if self.counted > limit {
                let text = format!(
                    "more than {limit} entries would be deleted: nothing is deleted; look at them \
                     with --dry-run, or raise --max-delete"
                );
                let failure = Failure::new(Cause::DeleteLimit, text);
                return self.registry.report_problem(self.registry.dirs.path(0), failure);
            }
            self.limit = None;
        }
        self.clean_roots(filters);
        self.post();
    }

    /// Returns the reason why nothing is deleted at the end, if any.
    fn refusal(&self) -> Option<String> {
        let counts = &self.registry.stats.counts;
        let failed = read(&counts.files_failed).saturating_sub(read(&counts.files_vanished));
        if failed == 0 || self.rules.ignore_errors == Some(true) {
            return None;
        }
        Some(format!(
            "{} is deleted at the destination, as entries failed: copy again once that is \
             fixed, or add --ignore-errors",
            self.what_is_kept()
        ))
    }

    /// Returns "nothing", or "nothing else" if entries in the place of others were deleted before.
    fn what_is_kept(&self) -> &'static str {
        match read(&self.registry.stats.counts.deleted) {
            0 => "nothing",
            _ => "nothing else",
        }
    }

    /// Returns the failure of an empty source whose deletion would remove something.
    fn refuse_empty_sources(&mut self, filters: &FilterScope) -> Option<Failure> {
        let empty = self.names.empty_roots();
        if empty.is_empty() || self.rules.empty_source == Some(true) {
            return None;
        }
        // Counts, and deletes nothing.
        let limit = self.limit.replace(0);
        self.clean(empty, filters);
        self.limit = limit;
        if std::mem::take(&mut self.counted) == 0 {
            return None;
        }
        let text = format!(
            "{} is deleted at the destination, as a source is empty: add --allow-empty-source to \
             delete what it does not have",
            self.what_is_kept()
        );
        Some(Failure::new(Cause::Other, text))
    }

    fn clean_roots(&mut self, filters: &FilterScope) {
        self.clean(self.names.roots(), filters);
    }

    /// Cleans the directories of these sources.
    fn clean(&mut self, roots: Vec<Vec<u8>>, filters: &FilterScope) {
        let above = DirFilters::new(filters.clone(), &WalkRules::default());
        let Ok(base) = self.registry.dirs.open(0) else { return };
        for root in roots {
            let name = OsStr::from_bytes(&root);
            let opened = match root.is_empty() {
                true => base.try_clone(),
                false => base.open_child_dir(name),
            };
            let path = PathBuf::from(name);
            match (opened, self.names.hash_of_root(&root)) {
                (Ok(dir), hash) => {
                    let place = HeldDir::top(Arc::new(dir));
                    self.clean_dir(&place, (path, hash), (&above, name), 0);
                }
                // What a dry run would create, or is left out as an entry of another kind is there.
                (Err(e), _) if is_no_directory(&e) => {}
                (Err(e), _) => self.report(path, &e),
            }
        }
    }

    /// Cleans a directory that the source has, and those beneath it.
    fn clean_dir(
        &mut self,
        place: &HeldDir<'_>,
        (path, hash): (PathBuf, u64),
        (outer, name): (&DirFilters, &OsStr),
        depth: usize,
    ) {
        let dir = match place.get() {
            Ok(dir) => dir,
            Err(e) => return self.report(path, &e),
        };
        let entered = outer.enter(name, &dir);
        let filters = match entered {
            Ok(filters) => filters,
            Err(e) => {
                let shown = self.shown(&path);
                let text = format!("nothing is deleted in {}: {e}", shown.display());
                return self.registry.report_problem(shown, Failure::new(Cause::Other, text));
            }
        };
        drop(dir);
        let cleaned = Cleaned { place, path, filters: &filters, depth, is_deleted: false };
        let (mut extraneous, mut subdirs) = (Vec::new(), Vec::new());
        let is_listed = self.names.is_listed(hash);
        let listed = self.list(&cleaned, |names, name, is_dir| {
            let hash = names.hash(hash, name.as_bytes());
            if !names.has(hash) {
                // Directories above listed names are not listed themselves.
                if is_listed {
                    extraneous.push((name, is_dir));
                }
            } else if is_dir && names.is_dir(hash) {
                subdirs.push((name, hash));
            }
        });
        if let Err(e) = listed {
            return self.report(cleaned.path.clone(), &e);
        }
        if !extraneous.is_empty() && self.may_fold(&cleaned, &extraneous) {
            extraneous.clear();
        }
        self.remove_all(&cleaned, extraneous);
        for (name, hash) in subdirs {
            if self.is_over() || depth >= MAX_DIRECTORY_DEPTH {
                return;
            }
            let path = cleaned.path.join(&name);
            match place.get().and_then(|dir| dir.open_child_dir(&name)) {
                Ok(child) => {
                    let child = place.enter(child);
                    self.clean_dir(&child, (path, hash), (&filters, &name), depth + 1);
                    child.leave();
                }
                Err(e) => self.report(path, &e),
            }
        }
    }

    /// True, with a warning, if the source may have a name in another spelling.
    fn may_fold(&self, at: &Cleaned<'_>, names: &[(OsString, bool)]) -> bool {
        let Ok(dir) = at.place.get() else { return true };
        if !dir.may_ignore_case() {
            return false;
        }
        let is_foreign = |(name, _): &(OsString, bool)| !name.as_bytes().is_ascii();
        let folds = names.iter().any(is_foreign)
            || match self.dry_run {
                true => names.iter().any(|(name, _)| is_found_in_other_case(&dir, name)),
                false => ignores_case(&dir).unwrap_or(true),
            };
        if folds {
            let shown = self.shown(&at.path);
            let text = format!(
                "nothing is deleted in {}: its file system may take different names for the same",
                shown.display()
            );
            self.registry.warn(shown, text);
        }
        folds
    }

    /// Removes entries of a directory, which keeps its mode and times.
    fn remove_all(&mut self, at: &Cleaned<'_>, names: Vec<(OsString, bool)>) {
        let before = match at.place.get().and_then(|dir| dir.stat_self()) {
            Ok(before) if !names.is_empty() => before,
            _ => return,
        };
        let set_mode = |mode| at.place.get().and_then(|dir| dir.set_own_mode(mode));
        let changes = !self.dry_run && self.limit.is_none();
        let is_opened = changes && lacks_owner_access(&before);
        if is_opened {
            // On failure, the removal reports the reason.
            let _ = set_mode(before.mode | OWNER_ACCESS);
        }
        self.remove_entries(at, names);
        if changes {
            let restored = match is_opened {
                true => set_mode(before.mode),
                false => Ok(()),
            };
            let restored = restored.and_then(|()| at.place.get());
            if let Err(e) = restored.and_then(|dir| dir.set_own_mtime(before.mtime)) {
                self.report(at.path.clone(), &e);
            }
        }
    }

    /// Removes entries of a directory, by several threads if they are many; false if some stay.
    fn remove_entries(&mut self, at: &Cleaned<'_>, entries: Vec<(OsString, bool)>) -> bool {
        let entries = SharedEntries::new(entries);
        let is_shared = entries.is_large && self.limit.is_none() && !self.dry_run;
        let helpers = if is_shared { self.spare_threads.take_all() } else { 0 };
        thread::scope(|scope| {
            for _ in 0..helpers {
                let (mut helper, entries) = (self.helper(), &entries);
                let (path, filters) = (at.path.clone(), at.filters);
                let (depth, is_deleted) = (at.depth, at.is_deleted);
                let dir = at.place.get();
                let work = move || {
                    let Ok(dir) = dir else { return helper.spare_threads.give_back() };
                    let place = &HeldDir::top(dir);
                    let at = Cleaned { place, path, filters, depth, is_deleted };
                    helper.remove_next_ones(&at, entries);
                    helper.post();
                    helper.spare_threads.give_back();
                };
                if try_spawn_now(scope, work).is_err() {
                    self.spare_threads.give_back();
                }
            }
            self.remove_next_ones(at, &entries);
        });
        entries.are_removed()
    }

    fn remove_next_ones(&mut self, at: &Cleaned<'_>, entries: &SharedEntries) {
        while let Some((name, is_dir)) = entries.next() {
            if self.is_over() {
                return entries.set_stays();
            }
            if !self.remove(at, &name, is_dir) {
                entries.set_stays();
            }
        }
    }

    /// Removes an entry that the rules do not protect, with all that is in it.
    ///
    /// False if something of it stays.
    fn remove(&mut self, at: &Cleaned<'_>, name: &OsStr, is_dir: bool) -> bool {
        let backup = self.registry.dirs.earlier.backup.as_ref();
        let path = at.path.join(name);
        let is_kept = at.place.get().map(|dir| {
            at.filters.protects(name, is_dir, at.is_deleted)
                || backup.is_some_and(|backup| backup.holds(&dir, name))
                || is_received(&dir, name)
        });
        match is_kept {
            Ok(false) => {}
            Ok(true) => return false,
            Err(e) => {
                self.report(path, &e);
                return false;
            }
        }
        if is_dir && !self.empty(at, name, &path) {
            return false;
        }
        if self.limit.is_none() && !self.dry_run {
            let removed = at.place.get().and_then(|dir| {
                backup.map_or(Ok(()), |backup| backup.keep(&dir, name, &at.path))?;
                if is_dir { dir.rmdir(name) } else { dir.unlink(name) }
            });
            match removed {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    self.report(path, &e);
                    return false;
                }
                _ => {}
            }
        }
        self.counted += 1;
        if self.limit.is_none() {
            self.record(&path, is_dir);
        }
        // A backup beside it keeps the directory.
        is_dir || backup.is_none_or(Backup::is_apart)
    }

    /// Removes what is in a directory; false if something stays.
    fn empty(&mut self, at: &Cleaned<'_>, name: &OsStr, path: &Path) -> bool {
        let opened = at.place.get().and_then(|above| {
            let opened = match above.open_child_dir(name) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !self.dry_run => {
                    let _ = above.add_mode(name, OWNER_ACCESS);
                    above.open_child_dir(name)
                }
                opened => opened,
            };
            Ok((opened?, above.stat_self()?.dev))
        });
        let is_foreign = |dir: &Dir, above| !dir.stat_self().is_ok_and(|own| own.dev == above);
        let entered = opened.and_then(|(dir, above)| match at.filters.enter(name, &dir) {
            _ if is_foreign(&dir, above) => Err(io::Error::other("a file system is mounted there")),
            _ if at.depth >= MAX_DIRECTORY_DEPTH => Err(io::Error::other("nested too deep")),
            Ok(filters) => Ok((dir, filters)),
            Err(e) => Err(io::Error::other(e.to_string())),
        });
        let (dir, filters) = match entered {
            Ok(entered) => entered,
            Err(e) => {
                self.report(path.to_owned(), &e);
                return false;
            }
        };
        if !self.dry_run && self.limit.is_none() {
            open_to_owner(&dir);
        }
        let (path, depth) = (path.to_owned(), at.depth + 1);
        let place = at.place.enter(dir);
        let cleaned = Cleaned { place: &place, path, filters: &filters, depth, is_deleted: true };
        let mut entries = Vec::new();
        let listed = self.list(&cleaned, |_, name, is_dir| entries.push((name, is_dir)));
        let is_empty = match listed {
            Ok(()) => self.remove_entries(&cleaned, entries),
            Err(e) => {
                self.report(cleaned.path.clone(), &e);
                false
            }
        };
        // The levels above are needed again, also after a stop.
        place.leave();
        is_empty
    }

    /// Lists a directory.
    fn list(
        &self,
        at: &Cleaned<'_>,
        mut each: impl FnMut(&SourceNames, OsString, bool),
    ) -> io::Result<()> {
        let dir = at.place.get()?;
        let mut entries = dir.read_entries()?;
        loop {
            let chunk = entries.next_chunk(LISTED_ENTRIES)?;
            let is_last = chunk.len() < LISTED_ENTRIES;
            for entry in chunk {
                let kind = match entry.kind {
                    Some(kind) => kind,
                    None => dir.stat(&entry.name)?.kind,
                };
                each(&self.names, entry.name, kind == FileKind::Dir);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// True if nothing further is to be done: after a stop, and beyond the limit.
    fn is_over(&self) -> bool {
        let is_beyond = self.limit.is_some_and(|limit| self.counted > limit);
        is_beyond || self.registry.session.is_stopped()
    }

    fn shown(&self, path: &Path) -> PathBuf {
        let base = self.registry.dirs.path(0);
        if path.as_os_str().is_empty() { base } else { base.join(path) }
    }

    /// Records a deleted entry, and tells the sender of many at a time.
    fn record(&mut self, path: &Path, is_dir: bool) {
        self.registry.changes.report_deleted(path, is_dir);
        let outcome = if self.dry_run { Outcome::WouldDelete } else { Outcome::Deleted };
        let shown = self.shown(path);
        let mut bytes = shown.clone().into_os_string().into_vec();
        bytes.truncate(MAX_PATH_BYTES);
        self.registry.stats.file_completed(|| shown, outcome, 0, None);
        self.batch.push(PathBytes(bytes));
        // Half a frame of paths of usual length.
        if self.batch.len() >= MAX_ENTRIES_PER_BATCH / 8 {
            self.post();
        }
    }

    fn post(&mut self) {
        if !self.batch.is_empty() {
            self.registry.outbox.post(&Message::Deleted(std::mem::take(&mut self.batch)));
        }
    }

    fn report(&self, path: PathBuf, error: &io::Error) {
        let shown = self.shown(&path);
        let failure = failure(format!("cannot delete {}", shown.display()), error);
        self.registry.report_problem(shown, failure);
    }
}

/// Gives the owner access to a directory whose entries are deleted.
///
/// On failure, the removal reports the reason.
fn open_to_owner(dir: &Dir) {
    if let Ok(stat) = dir.stat_self()
        && lacks_owner_access(&stat)
    {
        let _ = dir.set_own_mode(stat.mode | OWNER_ACCESS);
    }
}

/// True for a part file that another session holds, and for its journal.
fn is_received(dir: &Dir, name: &OsStr) -> bool {
    let Some(part) = part_beside(name) else { return false };
    match dir.open_file(&part) {
        Ok(file) => !bankfull_sys::try_lock(&file).unwrap_or(true),
        // Such as that of another user.
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    }
}
