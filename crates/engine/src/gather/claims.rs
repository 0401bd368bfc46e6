//! Who may put what where, when several sources are merged into one tree. Every source lists all it
//! has before any of it is wanted, so that the outcome follows from what there is and not from who
//! was quicker. Touches no file.

use crate::net::control::lock;
use bankfull_proto::wire::control::{Cause, Entry, EntryKind, Failure};
use bankfull_sys::Timestamp;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Which of several files counts that come from several sources to the same place. Directories are
/// merged. A file and a directory at the same place are no choice: what is named first counts, and
/// the other is a failed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Merge {
    /// That of the source named first; the others are failed files.
    Refuse,
    /// That of the source named first; the others are left out without a word.
    First,
    /// The one that was modified last, and among equal ones that of the source named first; the
    /// others are left out without a word.
    Newest,
}

/// How often who waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// A directory's number in the merged tree.
type Place = u64;

/// The directory that all is merged into.
pub(crate) const TOP: Place = 0;

/// What is known of the sources that are merged. Shared by their sessions.
#[derive(Debug)]
pub(super) struct Claims {
    rule: Merge,
    /// The sources as typed.
    names: Vec<String>,
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    /// What is to be put where: a name in a directory.
    places: HashMap<(Place, Vec<u8>), Node>,
    /// Sources that may still list more.
    listing: HashSet<usize>,
    /// Metadata of directories into which several sources put something.
    shared: Vec<SharedDir>,
}

#[derive(Debug)]
struct Node {
    place: Place,
    claims: Vec<Claim>,
}

#[derive(Debug, Clone, Copy)]
struct Claim {
    source: usize,
    is_dir: bool,
    mtime: (i64, u32),
}

/// What a directory gets when nothing is put into it any more.
#[derive(Debug)]
pub(crate) struct SharedDir {
    /// The source whose metadata it is.
    pub(crate) source: usize,
    /// Relative to the destination.
    pub(crate) path: PathBuf,
    pub(crate) mode: u32,
    pub(crate) mtime: Timestamp,
}

/// What becomes of an entry that is not to be put in place.
#[derive(Debug)]
pub(crate) enum Lost {
    /// It is left out.
    Skipped,
    /// It has failed.
    Refused(Failure),
}

impl Claims {
    /// Of sources with these names, all of which will list what they have.
    pub(super) fn new(rule: Merge, names: Vec<String>) -> Arc<Self> {
        let listing = (0..names.len()).collect();
        let table = Mutex::new(Table { listing, ..Table::default() });
        Arc::new(Self { rule, names, table, changed: Condvar::new() })
    }

    /// What the session of a source is given.
    pub(super) fn claimant(self: &Arc<Self>, source: usize) -> Claimant {
        Claimant { claims: Arc::clone(self), source }
    }

    /// A source has ended, as it may before it has listed anything. As long as others may list
    /// more, nothing of it is in place, and nothing will be.
    pub(super) fn ended(&self, source: usize) {
        let mut table = lock(&self.table);
        if !table.listing.is_empty() {
            table.listing.remove(&source);
            for node in table.places.values_mut() {
                node.claims.retain(|claim| claim.source != source);
            }
        }
        drop(table);
        self.changed.notify_all();
    }

    /// What directories that several sources share are to get, the deepest first.
    pub(super) fn take_shared(&self) -> Vec<SharedDir> {
        let mut shared = std::mem::take(&mut lock(&self.table).shared);
        shared.sort_by_key(|dir| Reverse(dir.path.components().count()));
        shared
    }
}

/// A source's way to the claims of all.
#[derive(Debug, Clone)]
pub(crate) struct Claimant {
    claims: Arc<Claims>,
    source: usize,
}

impl Claimant {
    /// Claims the place of an entry in a directory; the number of the place.
    pub(crate) fn claim(&self, parent: Place, entry: &Entry) -> Place {
        let mut table = lock(&self.claims.table);
        let next = table.places.len() as Place + 1;
        let is_open = !table.listing.is_empty();
        let empty = || Node { place: next, claims: Vec::new() };
        let node = table.places.entry((parent, entry.name.clone())).or_insert_with(empty);
        let is_known = node.claims.iter().any(|claim| claim.source == self.source);
        // What comes when all was listed is announced again, or has no claim where others have.
        if !is_known && (is_open || node.claims.is_empty()) {
            node.claims.push(Claim {
                source: self.source,
                is_dir: entry.kind == EntryKind::Dir,
                mtime: (entry.mtime_secs, entry.mtime_nanos),
            });
        }
        node.place
    }

    /// This source has listed all that it has.
    pub(crate) fn listed(&self) {
        lock(&self.claims.table).listing.remove(&self.source);
        self.claims.changed.notify_all();
    }

    /// Waits until every source has listed what it has, or has ended; not longer than it is of use.
    pub(crate) fn wait(&self, is_needless: impl Fn() -> bool) {
        let mut table = lock(&self.claims.table);
        while !table.listing.is_empty() && !is_needless() {
            let waited = self.claims.changed.wait_timeout(table, LOOK);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What becomes of an entry at its place, which messages show as `shown`; `None`: it is put
    /// there.
    pub(crate) fn lost(&self, parent: Place, entry: &Entry, shown: &Path) -> Option<Lost> {
        let table = lock(&self.claims.table);
        let claims = &table.places.get(&(parent, entry.name.clone()))?.claims;
        let first = claims.iter().min_by_key(|claim| claim.source)?;
        let own = claims.iter().find(|claim| claim.source == self.source);
        let is_mixed = claims.iter().any(|claim| claim.is_dir != first.is_dir);
        let newest = || claims.iter().max_by_key(|claim| (claim.mtime, Reverse(claim.source)));
        let (winner, is_silent) = match self.claims.rule {
            _ if is_mixed || first.is_dir => (first, false),
            Merge::Refuse => (first, false),
            Merge::First => (first, true),
            Merge::Newest => (newest()?, true),
        };
        match own {
            Some(own) if own.source == winner.source => None,
            Some(own) if own.is_dir && winner.is_dir => None,
            _ if is_silent => Some(Lost::Skipped),
            own => {
                let is_dir = own.is_some_and(|own| own.is_dir);
                Some(Lost::Refused(self.refusal(shown, winner, is_dir)))
            }
        }
    }

    fn refusal(&self, shown: &Path, winner: &Claim, is_dir: bool) -> Failure {
        let name = |source: usize| self.claims.names.get(source).map_or("", String::as_str);
        let kind = |is_dir| if is_dir { "a directory" } else { "a file" };
        let (first, own, shown) = (name(winner.source), name(self.source), shown.display());
        let text = match winner.is_dir == is_dir {
            true => format!(
                "{shown} comes from {first}, and from {own}: rename one of them, or \
                             have a rule choose (--merge first, --merge newest)"
            ),
            false => format!(
                "{shown} is {} from {first}, and {} from {own}: rename one of them",
                kind(winner.is_dir),
                kind(is_dir)
            ),
        };
        Failure::new(Cause::Usage, text)
    }

    /// Whether others put something into a directory as well. Then its metadata must wait for them;
    /// what this source has for it counts if no other one was named before it.
    pub(crate) fn defers(
        &self,
        parent: Place,
        entry: &Entry,
        dir: impl FnOnce(usize) -> SharedDir,
    ) -> bool {
        let mut table = lock(&self.claims.table);
        let Some(node) = table.places.get(&(parent, entry.name.clone())) else { return false };
        let is_first = node.claims.iter().all(|claim| claim.source >= self.source);
        // Anyone may put something into the top.
        let is_shared = node.claims.len() > 1 || entry.name.is_empty();
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
        }
    }

    /// What becomes of the file or directory that each source has at one place, claimed in the
    /// order given: `.` put there, `s` skipped, `r` refused.
    fn outcome(rule: Merge, all: &[(EntryKind, i64)], order: &[usize]) -> String {
        let claims = Claims::new(rule, (0..all.len()).map(|n| format!("{n}:x")).collect());
        let entries: Vec<_> = all.iter().map(|(kind, mtime)| entry("x", *kind, *mtime)).collect();
        for &source in order {
            claims.claimant(source).claim(TOP, &entries[source]);
            claims.claimant(source).listed();
        }
        let lost = |(source, entry)| {
            let claimant: Claimant = claims.claimant(source);
            match claimant.lost(TOP, entry, Path::new("d/x")) {
                None => '.',
                Some(Lost::Skipped) => 's',
                Some(Lost::Refused(_)) => 'r',
            }
        };
        entries.iter().enumerate().map(lost).collect()
    }

    #[test]
    fn a_rule_chooses_the_same_whoever_was_quicker() {
        use EntryKind::{Dir, File, Symlink};
        let files = [(File, 1), (File, 3), (Symlink, 3)];
        let mixed = [(File, 1), (Dir, 3), (File, 9)];
        let beneath = [(Dir, 1), (File, 9), (Dir, 2)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            assert_eq!(outcome(Merge::Refuse, &files, &order), ".rr");
            assert_eq!(outcome(Merge::First, &files, &order), ".ss");
            assert_eq!(outcome(Merge::Newest, &files, &order), "s.s");
            for rule in [Merge::Refuse, Merge::First, Merge::Newest] {
                assert_eq!(outcome(rule, &mixed, &order), ".rr");
                assert_eq!(outcome(rule, &beneath, &order), ".r.");
                assert_eq!(outcome(rule, &[(Dir, 1), (Dir, 2), (Dir, 3)], &order), "...");
            }
        }
    }

    #[test]
    fn one_that_fails_before_all_is_listed_claims_nothing() {
        let claims = Claims::new(Merge::First, vec!["a:x".into(), "b:x".into()]);
        let [a, b] = [claims.claimant(0), claims.claimant(1)];
        let x = entry("x", EntryKind::File, 1);
        a.claim(TOP, &x);
        b.claim(TOP, &x);
        b.listed();
        assert!(matches!(b.lost(TOP, &x, Path::new("x")), Some(Lost::Skipped)));
        claims.ended(0);
        b.wait(|| false);
        assert!(b.lost(TOP, &x, Path::new("x")).is_none());
        // Too late for another one.
        a.claim(TOP, &x);
        assert!(a.lost(TOP, &x, Path::new("x")).is_some());
        let late = entry("late", EntryKind::File, 1);
        b.claim(TOP, &late);
        assert!(b.lost(TOP, &late, Path::new("late")).is_none());
    }

    #[test]
    fn one_that_fails_later_keeps_what_it_may_have_put_in_place() {
        let claims = Claims::new(Merge::First, vec!["a:x".into(), "b:x".into()]);
        let [a, b] = [claims.claimant(0), claims.claimant(1)];
        let x = entry("x", EntryKind::File, 1);
        a.claim(TOP, &x);
        b.claim(TOP, &x);
        a.listed();
        b.listed();
        claims.ended(0);
        assert!(b.lost(TOP, &x, Path::new("x")).is_some());
    }

    #[test]
    fn who_waits_goes_when_it_is_of_no_use_any_more() {
        let claims = Claims::new(Merge::First, vec!["a:x".into(), "b:x".into()]);
        claims.claimant(0).wait(|| true);
        claims.ended(0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| claims.claimant(0).wait(|| false));
            claims.claimant(1).listed();
            waiting.join().unwrap();
        });
    }
}
