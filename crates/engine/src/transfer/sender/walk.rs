//! The walk: lists the sources and announces entries, directories before their contents.

use super::Sender;
use super::announce::MAX_BATCH_AGE;
use super::filters::DirFilters;
use super::metadata::{LinkName, further_name, rule_of};
use crate::base::error;
use crate::base::error::problem_message;
use crate::base::fs_names::join_path;
use crate::base::part_names;
use crate::file_io::roots::SourceItem;
use crate::stats::counters::add;
use bankfull_proto::blocks::Layout;
use bankfull_proto::limits::{MAX_DIRECTORY_DEPTH, MAX_XATTRS_BYTES};
use bankfull_proto::send::SendLedger;
use bankfull_proto::wire::control::{Cause, EntryKind, Failure, Message, MetadataRules};
use bankfull_sys::{Dir, EntryReader, FileKind, Stat};
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

/// Entries that are listed although many subdirectories wait above. (chosen: with a thousand
/// directories on the path, as many as [`MAX_LISTED_ENTRIES`] a few times)
const MIN_LISTED_ENTRIES: usize = 64;

/// Outstanding directories for which the walk never waits. (chosen: a receiver with little memory
/// asks for as many files)
const MIN_OUTSTANDING_DIRS: u32 = 128;

/// Directory on the path from a source to what is being walked.
struct WalkedDir {
    dir: Arc<Dir>,
    id: u64,
    path: PathBuf,
    depth: usize,
    /// Reader of further entries; `None` once all are listed.
    unlisted: Option<EntryReader>,
    /// Subdirectories to walk before further entries are listed, the next one last.
    subdirs: Vec<(OsString, Stat)>,
    filters: DirFilters,
}

/// Directory that is to be listed.
struct EnteredDir {
    dir: Arc<Dir>,
    id: u64,
    path: PathBuf,
    depth: usize,
}

/// Walk of the sources.
pub(crate) struct Walk<'s, 'a> {
    sender: &'s Sender<'a>,
}

impl<'s, 'a> Walk<'s, 'a> {
    pub(crate) fn new(sender: &'s Sender<'a>) -> Self {
        Self { sender }
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

    /// Tells both users of attributes that the protocol cannot carry.
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
    fn wait_for_room(&self) -> bool {
        self.sender.outbox.wait_for_room();
        let limit = self.sender.session.send.max_outstanding_files;
        let max_dirs = limit.max(MIN_OUTSTANDING_DIRS) as usize;
        self.wait_for_fewer(SendLedger::outstanding_files, limit.max(1) as usize);
        self.wait_for_fewer(SendLedger::outstanding_dirs, max_dirs);
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
        let filters = DirFilters::new(self.sender.filters.clone());
        let is_dir = item.stat.kind == FileKind::Dir;
        if !item.contents && filters.hides(&item.name, is_dir) {
            return;
        }
        if !is_dir {
            self.announce_leaf(&item.dir, key, 0, &item.name, &item.stat);
            return;
        }
        let opened = if item.contents {
            Ok(Arc::clone(&item.dir))
        } else {
            item.dir.open_child_dir(&item.name).map(Arc::new)
        };
        let dir = match opened {
            Ok(dir) => dir,
            Err(e) => return self.report_error(item.operand.clone(), &e),
        };
        let name = if item.contents { OsStr::new("") } else { &item.name };
        let Some(id) = self.announce_dir(&item.dir, 0, name, &item.stat) else { return };
        self.sender.files.dirs.insert_root(id, Arc::clone(&dir), item.operand.clone());
        let path = item.operand.clone();
        let entered = self.enter_dir(EnteredDir { dir, id, path, depth: 0 }, &filters, name);
        self.walk_tree(entered);
    }

    /// Walks a directory, depth first.
    fn walk_tree(&self, root: Option<WalkedDir>) {
        let mut stack = Vec::from_iter(root);
        // Subdirectories on the stack that wait for their walk.
        let mut waiting = 0;
        while let Some(at) = stack.last_mut() {
            if !self.wait_for_room() {
                return;
            }
            if let Some((name, stat)) = at.subdirs.pop() {
                waiting -= 1;
                let entered = self.enter_subdir(at, &name, &stat);
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

    /// Announces a subdirectory and opens it for its listing.
    fn enter_subdir(&self, at: &WalkedDir, name: &OsStr, stat: &Stat) -> Option<WalkedDir> {
        let id = self.announce_dir(&at.dir, at.id, name, stat)?;
        self.sender.files.dirs.insert(id, at.id, name);
        let path = join_path(&at.path, name);
        match at.dir.open_child_dir(name).map(Arc::new) {
            Ok(dir) => {
                let entered = EnteredDir { dir, id, path, depth: at.depth + 1 };
                self.enter_dir(entered, &at.filters, name)
            }
            Err(e) => {
                self.report_error(path, &e);
                self.leave_dir(id);
                None
            }
        }
    }

    /// Records that nothing more is announced in a directory.
    fn leave_dir(&self, id: u64) {
        self.sender.queue.with_ledger(|ledger| ledger.on_dir_left(id));
        self.sender.post_completed_dirs();
    }

    /// Opens a directory for its listing; `None`, with a report, if that fails.
    ///
    /// `outer` are the rules of the directory that it is in under `name`.
    fn enter_dir(
        &self,
        entered: EnteredDir,
        outer: &DirFilters,
        name: &OsStr,
    ) -> Option<WalkedDir> {
        let EnteredDir { dir, id, path, depth } = entered;
        let failure = if depth >= MAX_DIRECTORY_DEPTH {
            let text =
                format!("{} is nested too deep (limit {MAX_DIRECTORY_DEPTH})", path.display());
            Failure::new(Cause::Usage, text)
        } else {
            match (outer.enter(name, &dir), dir.read_entries()) {
                (Ok(filters), Ok(unlisted)) => {
                    let (unlisted, subdirs) = (Some(unlisted), Vec::new());
                    return Some(WalkedDir { dir, id, path, depth, unlisted, subdirs, filters });
                }
                // Without its rules, what they exclude would travel.
                (Err(e), _) => Failure::new(Cause::Other, format!("{}: {e}", path.display())),
                (_, Err(e)) => error::failure(format!("cannot read {}", path.display()), &e),
            }
        };
        self.report_failure(path, failure);
        self.leave_dir(id);
        None
    }

    /// Announces the next entries of a directory, at most `most`; false if there are no more.
    fn list(&self, at: &mut WalkedDir, most: usize) -> bool {
        let Some(unlisted) = &mut at.unlisted else { return false };
        let mut entries = match unlisted.next_chunk(most) {
            Ok(entries) => entries,
            Err(e) => {
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
        match at.dir.stat(&name) {
            Ok(stat) if at.filters.hides(&name, stat.kind == FileKind::Dir) => {}
            Ok(stat) if stat.kind == FileKind::Dir => at.subdirs.push((name, stat)),
            Ok(stat) => self.announce_leaf(&at.dir, at.id, at.id, &name, &stat),
            // Removed between listing and stat: never part of the copy.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => self.report_error(join_path(&at.path, &name), &e),
        }
    }

    /// Announces a directory of `dir`; `dir` itself if the name is empty.
    fn announce_dir(&self, dir: &Dir, parent: u64, name: &OsStr, stat: &Stat) -> Option<u64> {
        let entry = match self.sender.files.describe(dir, name, stat, parent) {
            Ok(entry) => entry,
            Err(e) => {
                self.report_error(self.sender.files.dirs.path_of(parent, name), &e);
                return None;
            }
        };
        add(&self.sender.stats.counts.dirs, 1);
        Some(self.sender.announce(entry, 0, name, 0))
    }

    /// Announces an entry that is no directory; skips what is not kept.
    fn announce_leaf(&self, dir: &Dir, key: u64, parent: u64, name: &OsStr, stat: &Stat) {
        let path = || self.sender.files.dirs.path_of(key, name);
        if let Some(why) = self.reason_to_skip(stat) {
            return self.report_skipped(path(), why);
        }
        let mut entry = match self.sender.files.describe(dir, name, stat, parent) {
            Ok(entry) => entry,
            Err(e) => return self.report_error(path(), &e),
        };
        match self.sender.files.metadata.link_name(stat) {
            LinkName::Only => {}
            LinkName::First(group) => {
                entry.extra.get_or_insert_default().link_group = Some(group);
            }
            LinkName::Further(group) => {
                add(&self.sender.stats.counts.hard_links, 1);
                let entry = further_name(entry, group);
                self.sender.announce(entry, key, name, 0);
                return;
            }
        }
        if entry.kind == EntryKind::Symlink {
            match dir.read_link(name) {
                Ok(target) => entry.target = target.as_bytes().to_vec(),
                Err(e) => return self.report_error(path(), &e),
            }
            add(&self.sender.stats.counts.symlinks, 1);
        } else if entry.kind == EntryKind::Special {
            add(&self.sender.stats.counts.special_files, 1);
        } else if entry.block_bytes != 0 && Layout::new(entry.size, entry.block_bytes).is_err() {
            let path = path();
            let text = format!("{} exceeds the maximum file size", path.display());
            return self.report_failure(path, Failure::new(Cause::Other, text));
        } else {
            add(&self.sender.stats.counts.files_total, 1);
            add(&self.sender.stats.counts.bytes_total, entry.size);
        }
        self.sender.announce(entry, key, name, 0);
    }

    /// Returns why an entry is not copied; `None` if it is.
    fn reason_to_skip(&self, stat: &Stat) -> Option<&'static str> {
        let metadata = &self.sender.files.metadata;
        match (stat.kind, stat.special) {
            (FileKind::Symlink, _) if metadata.keeps(MetadataRules::NO_SYMLINKS) => {
                Some("a symlink, and --no-links leaves them out")
            }
            (_, Some(special)) if !metadata.keeps(rule_of(special)) => {
                add(&self.sender.stats.counts.special_files_skipped, 1);
                Some("neither a file, a directory nor a symlink")
            }
            _ => None,
        }
    }

    fn report_error(&self, path: PathBuf, error: &io::Error) {
        let failure = error::failure(format!("cannot read {}", path.display()), error);
        self.report_failure(path, failure);
    }

    fn report_failure(&self, path: PathBuf, failure: Failure) {
        self.sender.stats.file_failed(path.clone(), &failure);
        self.sender.outbox.post(&problem_message(path, failure));
    }

    /// Reports a skipped entry to both users.
    fn report_skipped(&self, path: PathBuf, why: &str) {
        let text = format!("skipped {}: {why}", path.display());
        self.sender.stats.warn(text.clone());
        self.sender.outbox.post(&problem_message(path, Failure::new(Cause::Warning, text)));
    }
}
