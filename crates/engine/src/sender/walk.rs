//! The walk: finds what is in the sources and announces it, directories before their contents.

use super::files::entry_of;
use super::{BATCH_AGE_MAX, Sender};
use crate::counts::add;
use crate::error;
use crate::net::control::lock;
use crate::part_names;
use crate::session::{join, problem};
use bankfull_proto::blocks::Layout;
use bankfull_proto::limits::MAX_DIRECTORY_DEPTH;
use bankfull_proto::wire::control::{Cause, EntryKind, Failure, Message, Source};
use bankfull_sys::{Dir, Kind, Stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// An operand, found.
#[derive(Debug)]
pub(crate) struct SourceItem {
    /// The directory it is in; for a source of contents, the directory itself.
    pub(crate) dir: Arc<Dir>,
    /// Its name there.
    pub(crate) name: OsString,
    pub(crate) stat: Stat,
    /// Whether only what is in it lands in the destination.
    pub(crate) contents: bool,
    /// As typed, for messages.
    pub(crate) typed: PathBuf,
}

impl SourceItem {
    /// What the receiver is told of it.
    pub(crate) fn to_source(&self) -> Source {
        Source {
            name: if self.contents { Vec::new() } else { self.name.as_bytes().to_vec() },
            is_dir: self.stat.kind == Kind::Dir,
            contents: self.contents,
        }
    }
}

struct Pending {
    parent: Arc<Dir>,
    name: OsString,
    id: u64,
    path: PathBuf,
    depth: usize,
}

impl Sender<'_> {
    /// Walks all sources, then says so.
    pub(crate) fn walk(&self, items: &[SourceItem]) {
        for (at, item) in items.iter().enumerate() {
            if !self.may_go_on() {
                return;
            }
            self.walk_item(at, item);
        }
        self.flush_announced();
        self.tally.counts.total_is_final.store(true, Ordering::Relaxed);
        // In one, for the receiver may say that it is done as soon as it reads this.
        self.with_ledger(|ledger| {
            self.outbox.post(&Message::EntriesEnd(self.totals()));
            ledger.on_entries_end();
        });
        self.notify_if_settled();
    }

    /// Waits while much of what was found is still on its way out, or as much is unsettled as the
    /// receiver takes; false when the session stopped.
    fn may_go_on(&self) -> bool {
        self.outbox.wait_for_room();
        if let Some(most) = self.session.max_outstanding_files {
            self.wait_until_settled(most.max(1) as usize);
        }
        !self.session.is_stopped()
    }

    /// Waits where `most` files are unsettled, until a quarter of them is settled, or some after a
    /// while: announced one by one they would have a message each.
    fn wait_until_settled(&self, most: usize) {
        if self.with_ledger(|ledger| ledger.outstanding_files()) < most {
            return;
        }
        // Nobody settles what waits here to be announced.
        self.flush_announced();
        let since = Instant::now();
        let waits = |open: usize| match since.elapsed() < BATCH_AGE_MAX {
            true => open > most - most.div_ceil(4),
            false => open >= most,
        };
        let mut ledger = lock(&self.ledger);
        while waits(ledger.outstanding_files()) && !self.session.is_stopped() {
            // The time-out is for that while, and for a stop, which does not know this lock.
            let waited = self.settled.wait_timeout(ledger, BATCH_AGE_MAX);
            ledger = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn walk_item(&self, at: usize, item: &SourceItem) {
        // Sources have directories of their own, numbered from the top down: entries count up.
        let key = u64::MAX - at as u64;
        let shown = item.typed.parent().unwrap_or(Path::new("")).to_owned();
        self.files.dirs.pin(key, Arc::clone(&item.dir), shown);
        if item.stat.kind != Kind::Dir {
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
            Err(e) => return self.problem(item.typed.clone(), &e),
        };
        let name = if item.contents { OsStr::new("") } else { &item.name };
        let Some(id) = self.announce_dir(0, name, &item.stat) else { return };
        self.files.dirs.pin(id, Arc::clone(&dir), item.typed.clone());
        let mut stack = Vec::new();
        self.walk_dir(&dir, id, &item.typed, 0, &mut stack);
        while let Some(next) = stack.pop() {
            if !self.may_go_on() {
                return;
            }
            match next.parent.open_child_dir(&next.name) {
                Ok(dir) => {
                    self.walk_dir(&Arc::new(dir), next.id, &next.path, next.depth, &mut stack);
                }
                Err(e) => self.problem(next.path, &e),
            }
        }
    }

    /// Announces what is in a directory; its subdirectories go on the stack.
    fn walk_dir(
        &self,
        dir: &Arc<Dir>,
        id: u64,
        path: &Path,
        depth: usize,
        stack: &mut Vec<Pending>,
    ) {
        if depth >= MAX_DIRECTORY_DEPTH {
            let text =
                format!("{} is nested too deep (limit {MAX_DIRECTORY_DEPTH})", path.display());
            return self.problem_text(path.to_owned(), Failure::new(Cause::Usage, text));
        }
        let mut entries = match dir.entries() {
            Ok(entries) => entries,
            Err(e) => return self.problem(path.to_owned(), &e),
        };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let first_child = stack.len();
        for entry in entries {
            if !self.may_go_on() {
                return;
            }
            if part_names::is_ours(entry.name.as_bytes()) {
                let shown = join(path, &entry.name);
                self.left_out(shown, "part of a copy that was interrupted");
                continue;
            }
            match dir.stat(&entry.name) {
                Ok(stat) if stat.kind == Kind::Dir => {
                    let Some(child) = self.announce_dir(id, &entry.name, &stat) else { return };
                    self.files.dirs.insert(child, id, &entry.name);
                    stack.push(Pending {
                        parent: Arc::clone(dir),
                        path: join(path, &entry.name),
                        name: entry.name,
                        id: child,
                        depth: depth + 1,
                    });
                }
                Ok(stat) => self.announce_leaf(dir, id, id, &entry.name, &stat),
                // Gone between listing and looking: it was never part of what is copied.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => self.problem(join(path, &entry.name), &e),
            }
        }
        // The first child is walked first.
        stack[first_child..].reverse();
    }

    fn announce_dir(&self, parent: u64, name: &OsStr, stat: &Stat) -> Option<u64> {
        let entry = entry_of(stat, name, parent)?;
        add(&self.tally.counts.dirs, 1);
        Some(self.announce(entry, 0, name, 0))
    }

    /// Announces a file or symlink; leaves out what is neither.
    fn announce_leaf(&self, dir: &Dir, key: u64, parent: u64, name: &OsStr, stat: &Stat) {
        let Some(mut entry) = entry_of(stat, name, parent) else {
            add(&self.tally.counts.special_files_skipped, 1);
            return self.left_out(self.files.dirs.path_of(key, name), "neither file nor link");
        };
        if entry.kind == EntryKind::Symlink {
            match dir.read_link(name) {
                Ok(target) => entry.target = target.as_bytes().to_vec(),
                Err(e) => return self.problem(self.files.dirs.path_of(key, name), &e),
            }
            add(&self.tally.counts.symlinks, 1);
        } else if entry.block_bytes != 0 && Layout::new(entry.size, entry.block_bytes).is_err() {
            let path = self.files.dirs.path_of(key, name);
            let text = format!("{} is larger than bankfull can carry", path.display());
            return self.problem_text(path, Failure::new(Cause::Other, text));
        } else {
            add(&self.tally.counts.files_total, 1);
            add(&self.tally.counts.bytes_total, entry.size);
        }
        self.announce(entry, key, name, 0);
    }

    fn problem(&self, path: PathBuf, error: &io::Error) {
        let failure = error::failure(format!("cannot read {}", path.display()), error);
        self.problem_text(path, failure);
    }

    pub(crate) fn problem_text(&self, path: PathBuf, failure: Failure) {
        self.tally.file_failed(path.clone(), &failure);
        self.outbox.post(&problem(path, failure));
    }

    /// Something is not copied, as it should be: both users hear of it.
    fn left_out(&self, path: PathBuf, why: &str) {
        let text = format!("left out {}: {why}", path.display());
        self.tally.notice(text.clone());
        self.outbox.post(&problem(path, Failure::new(Cause::Warning, text)));
    }
}
