//! Conflicts between sources that are merged into one tree. Every source lists all its entries
//! before any is requested, so that the outcome does not depend on which source is faster. Touches
//! no file.

use crate::base::fs_names::folded_case;
use crate::base::sync::lock;
use bankfull_proto::wire::control::{Cause, Entry, EntryKind, Failure};
use bankfull_sys::Dir;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Rule for files from several sources with the same destination. Directories are merged. If one is
/// a file and the other a directory, the source named first wins, and the other is a failed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Merge {
    /// The source named first wins; the others are failed files.
    Refuse,
    /// The source named first wins; the others are skipped without a message.
    First,
    /// The latest modification time wins, then the source named first; the others are skipped
    /// without a message.
    Newest,
}

/// Interval at which a wait checks for cancellation.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Number of a node in the merged tree.
type NodeId = u64;

/// Root of the merged tree.
pub(crate) const ROOT_DIR: NodeId = 0;

/// Entries of all merged sources. Shared by their sessions.
#[derive(Debug)]
pub(crate) struct MergeConflicts {
    policy: Merge,
    /// The sources as typed.
    names: Vec<String>,
    table: Mutex<Table>,
    changed: Condvar,
    /// True if the destination takes names for the same that differ in case.
    ignores_case: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    /// Nodes by parent directory and name.
    nodes: HashMap<(NodeId, Vec<u8>), Node>,
    /// Sources that may still list more.
    listing: HashSet<usize>,
    /// Metadata of directories that several sources share.
    shared: Vec<SharedDir>,
}

#[derive(Debug)]
struct Node {
    id: NodeId,
    candidates: Vec<Candidate>,
}

/// Entry of one source for a node; one candidate of each node wins.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    source: usize,
    is_dir: bool,
    mtime: (i64, u32),
}

/// Metadata of a shared directory, applied when all its entries are in place.
pub(crate) struct SharedDir {
    /// Source of the metadata.
    pub(crate) source: usize,
    /// Path relative to the destination.
    pub(crate) path: PathBuf,
    /// Sets the metadata of the directory.
    pub(crate) set_metadata: SetMetadata,
}

/// Function that sets the metadata of a directory.
pub(crate) type SetMetadata = Box<dyn Fn(&Dir) -> io::Result<()> + Send>;

impl fmt::Debug for SharedDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedDir").field("source", &self.source).field("path", &self.path).finish()
    }
}

/// Outcome of an entry that loses its conflict.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// Left out without a message.
    Skipped,
    /// Reported as failed.
    Refused(Failure),
}

impl MergeConflicts {
    /// Conflicts between sources with these names, each of which is expected to list its entries.
    pub(crate) fn new(policy: Merge, names: Vec<String>) -> Arc<Self> {
        let listing = (0..names.len()).collect();
        let table = Mutex::new(Table { listing, ..Table::default() });
        let (changed, ignores_case) = Default::default();
        Arc::new(Self { policy, names, table, changed, ignores_case })
    }

    /// Handle for the session of one source.
    pub(crate) fn handle(self: &Arc<Self>, source: usize) -> MergeHandle {
        MergeHandle { conflicts: Arc::clone(self), source }
    }

    /// Removes the candidates of a source that has ended before all sources are listed. None of its
    /// entries is in place then.
    pub(crate) fn source_ended(&self, source: usize) {
        let mut table = lock(&self.table);
        if !table.listing.is_empty() {
            table.listing.remove(&source);
            for node in table.nodes.values_mut() {
                node.candidates.retain(|candidate| candidate.source != source);
            }
        }
        drop(table);
        self.changed.notify_all();
    }

    /// Takes the metadata of shared directories, deepest first.
    pub(crate) fn drain_shared_dirs(&self) -> Vec<SharedDir> {
        let mut shared = std::mem::take(&mut lock(&self.table).shared);
        shared.sort_by_key(|dir| Reverse(dir.path.components().count()));
        shared
    }
}

/// Access of one source to the conflicts.
#[derive(Debug, Clone)]
pub(crate) struct MergeHandle {
    conflicts: Arc<MergeConflicts>,
    source: usize,
}

impl MergeHandle {
    /// Treats names that differ only in case as equal. Call it before any entry is added.
    pub(crate) fn ignore_case(&self) {
        self.conflicts.ignores_case.store(true, Ordering::Relaxed);
    }

    fn key(&self, parent: NodeId, entry: &Entry) -> (NodeId, Vec<u8>) {
        match self.conflicts.ignores_case.load(Ordering::Relaxed) {
            true => (parent, folded_case(&entry.name).into_bytes()),
            false => (parent, entry.name.clone()),
        }
    }

    /// Adds an entry as a candidate for its name in a directory; returns its node.
    pub(crate) fn add_candidate(&self, parent: NodeId, entry: &Entry) -> NodeId {
        let key = self.key(parent, entry);
        let mut table = lock(&self.conflicts.table);
        let next = table.nodes.len() as NodeId + 1;
        let is_open = !table.listing.is_empty();
        let empty = || Node { id: next, candidates: Vec::new() };
        let node = table.nodes.entry(key).or_insert_with(empty);
        let is_known = node.candidates.iter().any(|candidate| candidate.source == self.source);
        // After the listing, an entry is a repeated announcement, or loses against an earlier one.
        if !is_known && (is_open || node.candidates.is_empty()) {
            node.candidates.push(Candidate {
                source: self.source,
                is_dir: entry.kind == EntryKind::Dir,
                mtime: (entry.mtime_secs, entry.mtime_nanos),
            });
        }
        node.id
    }

    /// Marks the listing of this source as complete.
    pub(crate) fn finish_listing(&self) {
        lock(&self.conflicts.table).listing.remove(&self.source);
        self.conflicts.changed.notify_all();
    }

    /// Waits until every source is listed or has ended, or the wait is abandoned.
    pub(crate) fn wait_until_listed(&self, is_abandoned: impl Fn() -> bool) {
        let mut table = lock(&self.conflicts.table);
        while !table.listing.is_empty() && !is_abandoned() {
            let waited = self.conflicts.changed.wait_timeout(table, CANCEL_POLL_INTERVAL);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns why an entry must not be put in place; `None` if it may be. `shown` is its path in
    /// messages.
    pub(crate) fn rejection(
        &self,
        parent: NodeId,
        entry: &Entry,
        shown: &Path,
    ) -> Option<Rejection> {
        let table = lock(&self.conflicts.table);
        let candidates = &table.nodes.get(&self.key(parent, entry))?.candidates;
        let first = candidates.iter().min_by_key(|candidate| candidate.source)?;
        let own = candidates.iter().find(|candidate| candidate.source == self.source);
        let is_mixed = candidates.iter().any(|candidate| candidate.is_dir != first.is_dir);
        let newest = || {
            candidates.iter().max_by_key(|candidate| (candidate.mtime, Reverse(candidate.source)))
        };
        let (winner, is_skip) = match self.conflicts.policy {
            _ if is_mixed || first.is_dir => (first, false),
            Merge::Refuse => (first, false),
            Merge::First => (first, true),
            Merge::Newest => (newest()?, true),
        };
        match own {
            Some(own) if own.source == winner.source => None,
            Some(own) if own.is_dir && winner.is_dir => None,
            _ if is_skip => Some(Rejection::Skipped),
            own => {
                let is_dir = own.is_some_and(|own| own.is_dir);
                Some(Rejection::Refused(self.refusal(shown, winner, is_dir)))
            }
        }
    }

    fn refusal(&self, shown: &Path, winner: &Candidate, is_dir: bool) -> Failure {
        let name = |source: usize| self.conflicts.names.get(source).map_or("", String::as_str);
        let kind = |is_dir| if is_dir { "a directory" } else { "a file" };
        let (first, own, shown) = (name(winner.source), name(self.source), shown.display());
        let text = match winner.is_dir == is_dir {
            true => format!(
                "{shown} is in {first} and in {own}: rename one of them, or choose a rule with \
                 --merge first or --merge newest"
            ),
            false => format!(
                "{shown} is {} from {first}, and {} from {own}: rename one of them",
                kind(winner.is_dir),
                kind(is_dir)
            ),
        };
        Failure::new(Cause::Usage, text)
    }

    /// True if a directory is shared. Its metadata must then wait for the other sources. Records
    /// this source's metadata if no other one was named before it.
    pub(crate) fn defers(
        &self,
        parent: NodeId,
        entry: &Entry,
        dir: impl FnOnce(usize) -> SharedDir,
    ) -> bool {
        let mut table = lock(&self.conflicts.table);
        let Some(node) = table.nodes.get(&self.key(parent, entry)) else { return false };
        let is_first = node.candidates.iter().all(|candidate| candidate.source >= self.source);
        // Any source may put entries into the root.
        let is_shared = node.candidates.len() > 1 || entry.name.is_empty();
        if is_shared && is_first {
            table.shared.push(dir(self.source));
        }
        is_shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: EntryKind, mtime: i64) -> Entry {
        Entry {
            id: 1,
            parent: 0,
            name: name.as_bytes().to_vec(),
            kind,
            mode: 0o644,
            mtime_secs: mtime,
            mtime_nanos: 0,
            size: 10,
            version: 1,
            uid: 0,
            gid: 0,
            block_bytes: 0,
            target: Vec::new(),
            sparse: false,
            extra: None,
        }
    }

    /// Outcome of one entry of each source, added in the given order: `.` put in place, `s`
    /// skipped, `r` refused.
    fn outcome(policy: Merge, all: &[(EntryKind, i64)], order: &[usize]) -> String {
        let conflicts =
            MergeConflicts::new(policy, (0..all.len()).map(|n| format!("{n}:x")).collect());
        let entries: Vec<_> = all.iter().map(|(kind, mtime)| entry("x", *kind, *mtime)).collect();
        for &source in order {
            conflicts.handle(source).add_candidate(ROOT_DIR, &entries[source]);
            conflicts.handle(source).finish_listing();
        }
        let outcome_of = |(source, entry)| {
            let handle: MergeHandle = conflicts.handle(source);
            match handle.rejection(ROOT_DIR, entry, Path::new("d/x")) {
                None => '.',
                Some(Rejection::Skipped) => 's',
                Some(Rejection::Refused(_)) => 'r',
            }
        };
        entries.iter().enumerate().map(outcome_of).collect()
    }

    #[test]
    fn names_in_another_case_conflict_where_case_is_ignored() {
        for (ignores_case, lost) in [(true, true), (false, false)] {
            let names = vec!["a:x".to_owned(), "b:x".to_owned()];
            let conflicts = MergeConflicts::new(Merge::First, names);
            let handles = [conflicts.handle(0), conflicts.handle(1)];
            if ignores_case {
                handles[0].ignore_case();
            }
            let entries = ["File", "fILE"].map(|name| entry(name, EntryKind::File, 1));
            for (handle, entry) in handles.iter().zip(&entries) {
                handle.add_candidate(ROOT_DIR, entry);
                handle.finish_listing();
            }
            let rejection = handles[1].rejection(ROOT_DIR, &entries[1], Path::new("d/fILE"));
            assert_eq!(rejection.is_some(), lost);
        }
    }

    #[test]
    fn merge_policy_outcome_is_independent_of_order() {
        use EntryKind::{Dir, File, Symlink};
        let files = [(File, 1), (File, 3), (Symlink, 3)];
        let mixed = [(File, 1), (Dir, 3), (File, 9)];
        let beneath = [(Dir, 1), (File, 9), (Dir, 2)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            assert_eq!(outcome(Merge::Refuse, &files, &order), ".rr");
            assert_eq!(outcome(Merge::First, &files, &order), ".ss");
            assert_eq!(outcome(Merge::Newest, &files, &order), "s.s");
            for policy in [Merge::Refuse, Merge::First, Merge::Newest] {
                assert_eq!(outcome(policy, &mixed, &order), ".rr");
                assert_eq!(outcome(policy, &beneath, &order), ".r.");
                assert_eq!(outcome(policy, &[(Dir, 1), (Dir, 2), (Dir, 3)], &order), "...");
            }
        }
    }

    #[test]
    fn source_failed_before_listing_leaves_no_candidate() {
        let conflicts = MergeConflicts::new(Merge::First, vec!["a:x".into(), "b:x".into()]);
        let [a, b] = [conflicts.handle(0), conflicts.handle(1)];
        let x = entry("x", EntryKind::File, 1);
        a.add_candidate(ROOT_DIR, &x);
        b.add_candidate(ROOT_DIR, &x);
        b.finish_listing();
        assert!(matches!(b.rejection(ROOT_DIR, &x, Path::new("x")), Some(Rejection::Skipped)));
        conflicts.source_ended(0);
        b.wait_until_listed(|| false);
        assert!(b.rejection(ROOT_DIR, &x, Path::new("x")).is_none());
        // Too late for another candidate.
        a.add_candidate(ROOT_DIR, &x);
        assert!(a.rejection(ROOT_DIR, &x, Path::new("x")).is_some());
        let late = entry("late", EntryKind::File, 1);
        b.add_candidate(ROOT_DIR, &late);
        assert!(b.rejection(ROOT_DIR, &late, Path::new("late")).is_none());
    }

    #[test]
    fn source_failed_after_listing_keeps_its_candidates() {
        let conflicts = MergeConflicts::new(Merge::First, vec!["a:x".into(), "b:x".into()]);
        let [a, b] = [conflicts.handle(0), conflicts.handle(1)];
        let x = entry("x", EntryKind::File, 1);
        a.add_candidate(ROOT_DIR, &x);
        b.add_candidate(ROOT_DIR, &x);
        a.finish_listing();
        b.finish_listing();
        conflicts.source_ended(0);
        assert!(b.rejection(ROOT_DIR, &x, Path::new("x")).is_some());
    }

    #[test]
    fn listing_wait_ends_when_abandoned_or_listed() {
        let conflicts = MergeConflicts::new(Merge::First, vec!["a:x".into(), "b:x".into()]);
        conflicts.handle(0).wait_until_listed(|| true);
        conflicts.source_ended(0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| conflicts.handle(0).wait_until_listed(|| false));
            conflicts.handle(1).finish_listing();
            waiting.join().unwrap();
        });
    }
}
