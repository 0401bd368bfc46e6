//! The walk: lists the sources and announces entries, directories before their contents.

use super::Sender;
use super::announce::{MAX_BATCH_AGE, count_leaf};
use super::files::{Content, Place, set_size};
use super::found::{CACHE_TAG, FindError, Found, endless_failure, entry_failure, find, is_cache};
use super::input::send_input;
use super::metadata::{LinkName, further_name};
use super::virtual_files::VirtualContent;
use crate::base::error::problem_message;
use crate::base::fs_names::join_path;
use crate::base::part_names;
use crate::file_io::links::LinkedDir;
use crate::file_io::roots::SourceItem;
use crate::model::metadata::special_rule;
use crate::session::send_setup::SHORT_PATH_FILES;
use crate::stats::counters::add;
use crate::transfer::dir_filters::DirFilters;
use bankfull_proto::blocks::Layout;
use bankfull_proto::limits::{MAX_DIRECTORY_DEPTH, MAX_OUTSTANDING_FILES, MAX_XATTRS_BYTES};
use bankfull_proto::selection::{is_unsafe_link, selects_file};
use bankfull_proto::send::SendLedger;
use bankfull_proto::wire::control::{
    Cause, Entry, EntryKind, Failure, LeftOut, Message, MetadataRules,
};
use bankfull_sys::{Dir, EntryReader, FileKind, Stat};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Entries that are listed, sorted and announced at a time: a larger directory is never in memory
/// as a whole. Subdirectories that wait for their walk count. (chosen: far more than usual
/// directories have)
const MAX_LISTED_ENTRIES: usize = 16 << 10;

/// Minimum number of entries listed at a time, however many subdirectories wait. (chosen: with a
/// thousand directories on the path, together a few times [`MAX_LISTED_ENTRIES`])
const MIN_LISTED_ENTRIES: usize = 64;

/// Outstanding directories for which the walk never waits. (chosen: a receiver with little memory
/// asks for as many files)
const MIN_OUTSTANDING_DIRS: u32 = 128;

/// Directory on the path from a source to what is being walked.
pub(super) struct WalkedDir {
    pub(super) dir: Arc<Dir>,
    pub(super) id: u64,
    pub(super) path: PathBuf,
    pub(super) depth: usize,
    /// Reader of further entries; `None` once all are listed.
    pub(super) unlisted: Option<EntryReader>,
    /// Subdirectories to walk before further entries are listed, the next one last.
    pub(super) subdirs: Vec<Subdir>,
    pub(super) filters: DirFilters,
    pub(super) bounds: Bounds,
    /// Device and inode, if links are followed.
    pub(super) identity: Option<(u64, u64)>,
    /// True if only the tag of a cache is announced.
    pub(super) is_cache: bool,
}

/// Subdirectory that waits for its walk.
pub(super) struct Subdir {
    pub(super) name: OsString,
    pub(super) stat: Stat,
    /// Way to open it if it is the referent of a symlink.
    pub(super) linked: Option<LinkedDir>,
}

/// Directory that is to be listed.
struct EnteredDir {
    dir: Arc<Dir>,
    id: u64,
    path: PathBuf,
    depth: usize,
    bounds: Bounds,
}

/// Bounds of the walk of a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Device of the source.
    pub(super) dev: u64,
    /// Directories of the copy above the source.
    pub(super) dirs_above: usize,
    /// Depth of directories whose entries are left out.
    pub(super) bottom: usize,
}

/// A file or symlink that is to be announced.
pub(super) struct Leaf<'l> {
    pub(super) dir: &'l Dir,
    /// Number of its directory in the source's directory table.
    pub(super) key: u64,
    /// Number of its directory's entry.
    pub(super) parent: u64,
    pub(super) name: &'l OsStr,
    /// Directories of the copy above it.
    pub(super) dirs_above: usize,
}

/// Walk of the sources.
pub(crate) struct Walk<'s, 'a> {
    pub(super) sender: &'s Sender<'a>,
    /// Outstanding files that are of use, as last seen.
    useful_files: Cell<u32>,
}

impl<'s, 'a> Walk<'s, 'a> {
    pub(crate) fn new(sender: &'s Sender<'a>) -> Self {
        Self { sender, useful_files: Cell::new(SHORT_PATH_FILES) }
    }

    /// Walks all sources and announces their end.
    pub(crate) fn run(&self, items: &[SourceItem]) {
        for (at, item) in items.iter().enumerate() {
            if !self.wait_for_room() {
                return;
            }
            self.walk_item(at, item);
        }
        self.report_oversized();
        self.sender.announcer.flush();
        self.sender.stats.counts.total_is_final.store(true, Ordering::Relaxed);
        // Under one lock: the receiver may report completion as soon as it has read this message.
        self.sender.queue.with_ledger(|ledger| {
            self.sender.outbox.post(&Message::EntriesEnd(self.sender.totals()));
            ledger.on_entries_end();
        });
        self.sender.queue.notify_completion();
    }

    /// Reports attributes that the protocol cannot carry to the users on both sides.
    fn report_oversized(&self) {
        let oversized = self.sender.files.metadata.oversized.load(Ordering::Relaxed);
        if oversized > 0 {
            let text = format!(
                "entries whose extended attributes were not kept: {oversized}: they exceed {} KiB",
                MAX_XATTRS_BYTES >> 10
            );
            self.sender.stats.warn(text.clone());
            let failure = Failure::new(Cause::Warning, text);
            self.sender.outbox.post(&problem_message(PathBuf::new(), failure));
        }
    }

    /// Waits while the outbox is full or too many entries are outstanding; false after a stop.
    pub(super) fn wait_for_room(&self) -> bool {
        self.sender.outbox.wait_for_room();
        let limit = self.sender.session.send.max_outstanding_files;
        let max_dirs = limit.max(MIN_OUTSTANDING_DIRS) as usize;
        let outstanding = |ledger: &SendLedger| {
            (ledger.outstanding_files(), ledger.outstanding_dirs() >= max_dirs)
        };
        let (outstanding, has_many_dirs) =
            self.sender.queue.with_ledger(|ledger| outstanding(ledger));
        // A merging receiver answers once everything is announced, and has no limit.
        let is_limited = limit <= MAX_OUTSTANDING_FILES;
        if is_limited && outstanding >= self.useful_files.get().min(limit) as usize {
            self.useful_files.set(self.sender.session.useful_outstanding_files());
            let limit = self.useful_files.get().min(limit).max(1);
            self.wait_for_fewer(SendLedger::outstanding_files, limit as usize);
        }
        if has_many_dirs {
            self.wait_for_fewer(SendLedger::outstanding_dirs, max_dirs);
        }
        let virtual_files = &self.sender.files.virtual_files;
        if virtual_files.is_full() {
            self.sender.announcer.flush();
            self.sender.queue.wait_outstanding(MAX_BATCH_AGE, |_| virtual_files.is_full());
        }
        !self.sender.session.is_stopped()
    }

    /// Waits while `limit` entries are outstanding, until a quarter of them is completed.
    ///
    /// After [`MAX_BATCH_AGE`] fewer suffice. Without this wait each file would have a message.
    fn wait_for_fewer(&self, outstanding: fn(&SendLedger) -> usize, limit: usize) {
        if self.sender.queue.with_ledger(|ledger| outstanding(ledger)) < limit {
            return;
        }
        // Entries that are still queued here cannot be completed.
        self.sender.announcer.flush();
        let since = Instant::now();
        let waits = |ledger: &SendLedger| match since.elapsed() < MAX_BATCH_AGE {
            true => outstanding(ledger) > limit - limit.div_ceil(4),
            false => outstanding(ledger) >= limit,
        };
        self.sender.queue.wait_outstanding(MAX_BATCH_AGE, waits);
    }

    fn walk_item(&self, at: usize, item: &SourceItem) {
        // Keys of sources count down from the top, numbers of entries up.
        let key = u64::MAX - at as u64;
        let shown = item.operand.parent().unwrap_or(Path::new("")).to_owned();
        self.sender.files.dirs.insert_root(key, Arc::clone(&item.dir), shown);
        if let Some(input) = &item.input {
            return send_input(self.sender, input, key);
        }
        let rules = &self.sender.rules;
        let root = rules.root.copy_root(item);
        let filters = DirFilters::new(rules.filters.clone().with_root(&root), &rules.walk);
        if let Some(names) = &item.names {
            return self.walk_names(item, &filters, names);
        }
        let is_dir = item.stat.kind == FileKind::Dir;
        if !item.contents && filters.hides(&item.name, is_dir) {
            return;
        }
        let linked = item.referent.as_ref();
        if !is_dir {
            let found = Found { stat: item.stat, referent: linked.cloned() };
            let leaf = Leaf { dir: &item.dir, key, parent: 0, name: &item.name, dirs_above: 0 };
            return self.announce_leaf(&leaf, &found);
        }
        let opened = match linked {
            Some(found) => found.dir.open().map(Arc::new),
            None if item.contents => Ok(Arc::clone(&item.dir)),
            None => item.dir.open_child_dir(&item.name).map(Arc::new),
        };
        let dir = match opened {
            Ok(dir) => dir,
            Err(e) => return self.report_error(item.operand.clone(), &e),
        };
        let name = if item.contents { OsStr::new("") } else { &item.name };
        let own = (&*dir, OsStr::new(""));
        let Some(id) = self.announce_dir(own, &item.stat, (0, name)) else { return };
        self.sender.files.dirs.insert_root(id, Arc::clone(&dir), item.operand.clone());
        let path = item.operand.clone();
        let bounds = Bounds {
            dev: item.stat.dev,
            dirs_above: usize::from(!item.contents),
            bottom: self.bottom_beneath(0),
        };
        let entered = EnteredDir { dir, id, path, depth: 0, bounds };
        let entered = self.enter_dir(entered, &filters, (name, &item.stat));
        self.walk_tree(entered);
    }

    /// Returns the depth of directories whose entries are left out, beneath one at a depth.
    pub(super) fn bottom_beneath(&self, depth: usize) -> usize {
        let max = self.sender.rules.walk.max_depth;
        max.map_or(usize::MAX, |max| depth.saturating_add(max as usize))
    }

    /// Walks a directory, depth first.
    pub(super) fn walk_tree(&self, root: Option<WalkedDir>) {
        let mut stack = Vec::from_iter(root);
        // Subdirectories on the stack that wait for their walk.
        let mut waiting = 0;
        while let Some(at) = stack.last_mut() {
            if !self.wait_for_room() {
                return;
            }
            if let Some(subdir) = at.subdirs.pop() {
                waiting -= 1;
                let entered = self.enter_subdir(&stack, &subdir);
                stack.extend(entered);
                continue;
            }
            let most = MAX_LISTED_ENTRIES.saturating_sub(waiting).max(MIN_LISTED_ENTRIES);
            if self.list(at, most) {
                waiting += at.subdirs.len();
            } else {
                self.leave_dir(at.id);
                stack.pop();
            }
        }
    }

    /// Announces a subdirectory of the last one above, and opens it.
    pub(super) fn enter_subdir(&self, above: &[WalkedDir], subdir: &Subdir) -> Option<WalkedDir> {
        let at = above.last()?;
        let Subdir { name, stat, linked } = subdir;
        let path = join_path(&at.path, name);
        let is_listed = !self.is_left_empty((at.depth + 1, at.bounds), stat);
        let identities = above.iter().filter_map(|dir| dir.identity);
        let failure = endless_failure(&self.sender.rules, identities, stat, &path);
        if let Some(failure) = failure.filter(|_| is_listed) {
            self.leave_out(at.id, name);
            self.report_failure(path, failure);
            return None;
        }
        let followed = match linked.as_ref().map(LinkedDir::open).transpose() {
            Ok(dir) => dir,
            Err(e) => {
                self.leave_out(at.id, name);
                self.report_error(path, &e);
                return None;
            }
        };
        let place = followed.as_ref().map_or((&*at.dir, &**name), |dir| (dir, OsStr::new("")));
        let id = self.announce_dir(place, stat, (at.id, name))?;
        let dirs = &self.sender.files.dirs;
        match linked {
            Some(linked) => dirs.insert_linked(id, at.id, name, linked.clone()),
            None => dirs.insert(id, at.id, name),
        }
        match followed.map_or_else(|| at.dir.open_child_dir(name), Ok).map(Arc::new) {
            Ok(dir) => {
                let (depth, bounds) = (at.depth + 1, at.bounds);
                let entered = EnteredDir { dir, id, path, depth, bounds };
                self.enter_dir(entered, &at.filters, (name, stat))
            }
            Err(e) => {
                self.report_error(path, &e);
                self.leave_out(id, OsStr::new(""));
                self.leave_dir(id);
                None
            }
        }
    }

    /// True if a directory at a depth is announced without what is in it.
    fn is_left_empty(&self, (depth, bounds): (usize, Bounds), stat: &Stat) -> bool {
        depth >= bounds.bottom || self.sender.rules.walk.one_file_system && stat.dev != bounds.dev
    }

    /// Records that nothing more is announced in a directory.
    pub(super) fn leave_dir(&self, id: u64) {
        self.sender.queue.with_ledger(|ledger| ledger.on_dir_left(id));
        self.sender.post_completed_dirs();
    }

    /// Opens a directory for its listing; `None`, with a report, if that fails.
    ///
    /// `outer` are the rules of the directory that it is in under a name.
    fn enter_dir(
        &self,
        entered: EnteredDir,
        outer: &DirFilters,
        (name, stat): (&OsStr, &Stat),
    ) -> Option<WalkedDir> {
        let EnteredDir { dir, id, path, depth, bounds } = entered;
        let rules = &self.sender.rules.walk;
        if self.is_left_empty((depth, bounds), stat) {
            self.leave_out(id, OsStr::new(""));
            self.leave_dir(id);
            return None;
        }
        let failure = if depth >= MAX_DIRECTORY_DEPTH {
            let text =
                format!("{} is nested too deep (limit {MAX_DIRECTORY_DEPTH})", path.display());
            Failure::new(Cause::Usage, text)
        } else {
            match (outer.enter(name, &dir), dir.read_entries()) {
                (Ok(filters), Ok(unlisted)) => {
                    let is_cache = rules.exclude_caches && is_cache(&dir);
                    let delete = self.sender.rules.delete;
                    if is_cache && !delete.is_some_and(|delete| delete.deletes_excluded()) {
                        self.leave_out(id, OsStr::new(""));
                    }
                    return Some(WalkedDir {
                        identity: rules.follows_links().then_some((stat.dev, stat.ino)),
                        is_cache,
                        unlisted: Some(unlisted),
                        subdirs: Vec::new(),
                        dir,
                        id,
                        path,
                        depth,
                        filters,
                        bounds,
                    });
                }
                // Without its rules, entries that they exclude would be sent.
                (Err(e), _) => Failure::new(Cause::Other, format!("{}: {e}", path.display())),
                (_, Err(e)) => entry_failure(&path, &e),
            }
        };
        self.report_failure(path, failure);
        self.leave_out(id, OsStr::new(""));
        self.leave_dir(id);
        None
    }

    /// Announces the next entries of a directory, at most `most`; false if there are no more.
    fn list(&self, at: &mut WalkedDir, most: usize) -> bool {
        let Some(unlisted) = &mut at.unlisted else { return false };
        let mut entries = match unlisted.next_chunk(most) {
            Ok(entries) => entries,
            Err(e) => {
                self.leave_out(at.id, OsStr::new(""));
                self.report_error(at.path.clone(), &e);
                return false;
            }
        };
        if entries.len() < most {
            // Closed early: descriptors are few.
            at.unlisted = None;
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            if !self.wait_for_room() {
                return false;
            }
            self.announce_entry(at, entry.name);
        }
        // The first one is walked first.
        at.subdirs.reverse();
        true
    }

    /// Announces an entry of a directory; a subdirectory only when it is walked.
    fn announce_entry(&self, at: &mut WalkedDir, name: OsString) {
        if part_names::is_part_name(name.as_bytes()) {
            let shown = join_path(&at.path, &name);
            return self.report_skipped(shown, "temporary file of an interrupted copy");
        }
        if at.is_cache && name != CACHE_TAG {
            return;
        }
        match find(&self.sender.rules, &at.path, &at.dir, &name) {
            Ok(found) if at.filters.hides(&name, found.stat.kind == FileKind::Dir) => {
                self.leave_out_ignored(at, &name, found.stat.kind == FileKind::Dir);
            }
            Ok(Found { stat, referent }) if stat.kind == FileKind::Dir => {
                let linked = referent.map(|referent| referent.dir);
                at.subdirs.push(Subdir { name, stat, linked });
            }
            Ok(found) => {
                let dirs_above = at.depth + at.bounds.dirs_above;
                let (key, parent, name) = (at.id, at.id, &*name);
                self.announce_leaf(&Leaf { dir: &at.dir, key, parent, name, dirs_above }, &found);
            }
            // Removed between listing and stat: never part of the copy.
            Err(FindError::Stat(e)) if e.kind() == io::ErrorKind::NotFound => {}
            Err(FindError::Stat(e)) => {
                self.leave_out(at.id, &name);
                self.report_error(join_path(&at.path, &name), &e);
            }
            Err(FindError::Link(_)) if at.filters.hides(&name, false) => {}
            Err(FindError::Link(failure)) => {
                self.leave_out(at.id, &name);
                self.report_failure(join_path(&at.path, &name), failure);
            }
        }
    }

    /// Announces a directory; `parent` and `name` are those of its entry.
    ///
    /// It is `place` in a directory, or the directory itself if the name there is empty.
    pub(super) fn announce_dir(
        &self,
        place: (&Dir, &OsStr),
        stat: &Stat,
        (parent, name): (u64, &OsStr),
    ) -> Option<u64> {
        let entry = match self.sender.files.describe(place, stat, (parent, name)) {
            Ok(entry) => entry,
            Err(e) => {
                self.leave_out(parent, name);
                self.report_error(self.sender.files.dirs.path_of(parent, name), &e);
                return None;
            }
        };
        add(&self.sender.stats.counts.dirs, 1);
        let place = Place { dir: 0, name, linked: None, inode: (0, 0), content: None };
        Some(self.sender.announce(entry, &place, 0))
    }

    /// Announces an entry that is no directory, if the rules select it.
    pub(super) fn announce_leaf(&self, leaf: &Leaf<'_>, found: &Found) {
        let Leaf { key, name, .. } = *leaf;
        let path = || self.sender.files.dirs.path_of(key, name);
        if let Some(why) = self.reason_to_skip(&found.stat) {
            self.leave_out(leaf.parent, name);
            return self.report_skipped(path(), why);
        }
        let (mut entry, content) = match self.describe_leaf(leaf, found) {
            Ok(Some(described)) => described,
            Ok(None) => return self.leave_out(leaf.parent, name),
            Err(e) => {
                self.leave_out(leaf.parent, name);
                return self.report_error(path(), &e);
            }
        };
        if entry.block_bytes != 0 && Layout::new(entry.size, entry.block_bytes).is_err() {
            self.leave_out(leaf.parent, name);
            let text = format!("{} exceeds the maximum file size", path().display());
            return self.report_failure(path(), Failure::new(Cause::Other, text));
        }
        match self.sender.files.metadata.link_name(&found.stat) {
            LinkName::Only => {}
            LinkName::First(group) => {
                entry.extra.get_or_insert_default().link_group = Some(group);
            }
            LinkName::Further(group) => entry = further_name(entry, group),
        }
        count_leaf(self.sender.stats, &entry);
        let linked = found.referent.as_ref();
        let place = Place {
            dir: key,
            name: linked.map_or(name, |linked| &linked.name),
            linked: linked.map(|linked| &linked.dir),
            inode: (found.stat.dev, found.stat.ino),
            content: content.map(Content::Whole),
        };
        self.sender.announce(entry, &place, 0);
    }

    /// Builds the entry of a file, symlink or special file; `None` if the rules exclude it.
    ///
    /// Returns it with the content of a virtual file.
    fn describe_leaf(
        &self,
        leaf: &Leaf<'_>,
        found: &Found,
    ) -> io::Result<Option<(Entry, VirtualContent)>> {
        let Leaf { dir, parent, name, dirs_above, .. } = *leaf;
        let rules = &self.sender.rules.walk;
        let files = &self.sender.files;
        let stat = &found.stat;
        let linked = found.referent.as_ref();
        let linked_dir = linked.map(|linked| linked.dir.open()).transpose()?;
        let at = match (&linked_dir, linked) {
            (Some(dir), Some(linked)) => (dir, &*linked.name),
            _ => (dir, name),
        };
        let mut entry = files.describe(at, stat, (parent, name))?;
        let content = files.virtual_files.content(at, &entry, stat)?;
        if let Some(content) = &content {
            set_size(&mut entry, content.bytes.len() as u64);
        }
        let is_selected = match entry.kind {
            EntryKind::Symlink => {
                entry.target = dir.read_link(name)?.as_bytes().to_vec();
                !rules.safe_links || !is_unsafe_link(&entry.target, dirs_above)
            }
            EntryKind::File => {
                selects_file(rules, entry.size, (entry.mtime_secs, entry.mtime_nanos))
            }
            _ => true,
        };
        Ok(is_selected.then_some((entry, content)))
    }

    /// Returns why an entry is not copied; `None` if it is.
    fn reason_to_skip(&self, stat: &Stat) -> Option<&'static str> {
        let metadata = &self.sender.files.metadata;
        match (stat.kind, stat.special) {
            (FileKind::Symlink, _) if metadata.keeps(MetadataRules::NO_SYMLINKS) => {
                Some("a symlink, and --no-links leaves them out")
            }
            (_, Some(special)) if !metadata.keeps(special_rule(special)) => {
                add(&self.sender.stats.counts.special_files_skipped, 1);
                Some("neither a file, a directory nor a symlink")
            }
            _ => None,
        }
    }

    /// Makes the receiver keep ignored entries, unless it deletes excluded ones.
    fn leave_out_ignored(&self, at: &WalkedDir, name: &OsStr, is_dir: bool) {
        let keeps = self.sender.rules.delete.is_some_and(|delete| !delete.deletes_excluded());
        if keeps && at.filters.ignores(name, is_dir) {
            self.leave_out(at.id, name);
        }
    }

    /// Makes a receiver that deletes keep an entry; without a name, all of the directory.
    pub(super) fn leave_out(&self, dir: u64, name: &OsStr) {
        if self.sender.rules.delete.is_some() {
            self.sender.announcer.leave_out(LeftOut { dir, name: name.as_bytes().to_vec() });
        }
    }

    pub(super) fn report_error(&self, path: PathBuf, error: &io::Error) {
        let failure = entry_failure(&path, error);
        self.report_failure(path, failure);
    }

    pub(super) fn report_failure(&self, path: PathBuf, failure: Failure) {
        self.sender.stats.file_failed(path.clone(), &failure);
        self.sender.outbox.post(&problem_message(path, failure));
    }

    /// Reports a skipped entry to both users.
    pub(super) fn report_skipped(&self, path: PathBuf, why: &str) {
        let text = format!("skipped {}: {why}", path.display());
        self.sender.stats.warn(text.clone());
        self.sender.outbox.post(&problem_message(path, Failure::new(Cause::Warning, text)));
    }
}
