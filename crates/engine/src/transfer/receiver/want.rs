//! Answers to announced entries, from the state of the destination.

use super::completion::Completion;
use super::hashing::{HashJob, HashQueue};
use super::incoming::IncomingFile;
use super::merge::MergeQueue;
use super::open_parts::{EarlierBlock, PartFiles};
use super::part_file::{LOCK_POLL_INTERVAL, LockWait, refuse_received};
use super::place::Placer;
use super::planner::Planner;
use super::registry::FileRegistry;
use super::selection::Selection;
use super::source_names::SourceNames;
use super::want_message::{make_refusal, make_want};
use crate::base::error::Error;
use crate::base::event::Outcome;
use crate::base::part_names;
use crate::base::sync::{Latch, lock};
use crate::model::merge_conflicts::Rejection;
use crate::stats::counters::{ByteSource, add};
use bankfull_proto::blocks::{BlockSet, Run};
use bankfull_proto::limits::{
    MAX_DIRECTORY_DEPTH, MAX_OUTSTANDING_FILES, MAX_RUNS, MAX_XATTRS_BYTES, XATTR_BYTES_PER_ENTRY,
};
use bankfull_proto::plan::Plan;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{
    ChangeAction, DeleteRules, Entry, EntryKind, Failure, FileRuns, LeftOut, Message, Totals,
    Verdict, Want,
};
use bankfull_sys::Dir;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum number of wants in a message: each may carry a reason of up to 4 KiB, a frame 1 MiB.
const MAX_WANTS_PER_MESSAGE: usize = 128;

/// Multiple of the limit of outstanding entries beyond which a sender is at fault: retried files
/// need not wait.
const EXCESS_FACTOR: usize = 2;

/// Directories that a sender need not count: those above what it walks, and a batch of completed
/// ones.
const MAX_UNCOUNTED_DIRS: usize = 2 * MAX_DIRECTORY_DEPTH;

/// Interval of checks for held files. (chosen: as for the end of the session)
const HELD_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Files whose part files other sessions hold. Other files do not wait for them.
#[derive(Default)]
pub(crate) struct HeldFiles {
    files: Mutex<Vec<HeldFile>>,
    /// Set when the sender has finished.
    closed: Latch,
}

/// A file that waits for its part file.
struct HeldFile {
    incoming: IncomingFile,
    plan: Plan,
    wait: Mutex<LockWait>,
}

/// Wants to post, with the jobs that follow them.
#[derive(Default)]
struct Answers {
    wants: Vec<Want>,
    jobs: Vec<HashJob>,
}

fn count_final(wants: &[Want]) -> usize {
    wants.iter().filter(|want| want.verdict.is_final()).count()
}

/// Answers announced entries.
pub(crate) struct WantDecider<'a> {
    pub(crate) registry: Arc<FileRegistry<'a>>,
    pub(crate) parts: Arc<PartFiles<'a>>,
    pub(crate) placer: Arc<Placer>,
    pub(crate) completion: Arc<Completion>,
    /// Files to be compared by content, and blocks of earlier runs to be checked.
    pub(crate) hashing: HashQueue,
    pub(crate) selection: Selection,
    /// Files whose part files other sessions hold.
    pub(crate) held: HeldFiles,
    /// Names that the source has, with the rules for deleting others; taken at the end.
    pub(crate) source_names: Option<Mutex<Option<(DeleteRules, SourceNames)>>>,
    /// Announcements, if the session is merged with others.
    pub(crate) merge: Option<MergeQueue>,
    pub(crate) dry_run: bool,
}

impl WantDecider<'_> {
    /// Handles an announcement, later if the session is merged with others.
    pub(crate) fn on_announcement(&self, message: Message) -> Result<(), Error> {
        if let Message::Entries(entries) = &message {
            entries.iter().try_for_each(|entry| self.selection.root.check(entry))?;
            self.check_outstanding()?;
        }
        match (message, &self.merge) {
            // Sources of a merge share directories: each gets its metadata at the end.
            (Message::CompletedDirs(_), Some(_)) => {}
            (Message::CompletedDirs(dirs), None) => self.on_completed_dirs(&dirs),
            (message, Some(merge)) => merge.enqueue(message),
            (Message::Entries(entries), None) => self.on_entries(entries)?,
            (Message::EntriesEnd(totals), None) => self.on_entries_end(&totals),
            _ => {}
        }
        Ok(())
    }

    /// Checks that the sender has waited for files and directories to be completed.
    ///
    /// A merged session is answered only after everything was announced.
    pub(super) fn check_outstanding(&self) -> Result<(), Error> {
        let weight = |held: &HeldFile| 1 + held.incoming.entry.extra_weight();
        let held: usize = lock(&self.held.files).iter().map(weight).sum();
        let links = self.registry.links.waiting();
        let files = self.registry.ledger().outstanding_files() + self.registry.extra_weight();
        let files = files + held + links;
        let dirs = self.registry.dirs.outstanding();
        let quota = self.registry.session.entry_quota.as_ref();
        quota.iter().for_each(|quota| quota.set_outstanding(files + dirs, self.kept_bytes()));
        let limit = quota.map_or(MAX_OUTSTANDING_FILES, |quota| quota.max_files()) as usize;
        // An entry with attributes may go beyond the limit.
        let max_files = EXCESS_FACTOR * limit + MAX_XATTRS_BYTES / XATTR_BYTES_PER_ENTRY;
        let files = ("the number of files that are announced and not completed", files, max_files);
        let max_dirs = max_files + MAX_UNCOUNTED_DIRS;
        let dirs =
            ("the number of directories that are announced and not completed", dirs, max_dirs);
        match [files, dirs].into_iter().find(|(_, number, max)| number > max) {
            Some((what, _, max)) if self.merge.is_none() => {
                Err(WireError::OverLimit { what, max }.into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the memory of hard links, and of names beside a deletion.
    fn kept_bytes(&self) -> usize {
        let names = self.source_names.as_ref();
        let names = names.and_then(|names| lock(names).as_ref().map(|(_, names)| names.bytes()));
        self.registry.links.bytes() + names.unwrap_or_default()
    }

    /// Handles announcements once every session has listed its sources.
    ///
    /// Returns at the end of the session, and immediately if nothing is merged.
    pub(crate) fn run_merge(&self) {
        let Some(merge) = &self.merge else { return };
        let session = &self.registry.session;
        let on_entries = |entries| self.on_entries(entries);
        if let Err(error) = merge.run(session, on_entries, |totals| self.on_entries_end(totals)) {
            session.fail(error);
        }
    }

    /// Waits until the announcements of a merged session were handled.
    pub(crate) fn wait_merged(&self) {
        self.merge.iter().for_each(|merge| merge.wait_passed(&self.registry.session));
    }

    /// Closes the queues after the sender has finished.
    pub(crate) fn close(&self) {
        self.hashing.close();
        self.held.closed.set();
        self.merge.iter().for_each(MergeQueue::close);
    }

    /// True if a directory's metadata is set later, once no session adds to it.
    pub(crate) fn defers_metadata(&self, entry: &Entry) -> bool {
        let merge = self.merge.as_ref();
        merge.is_some_and(|merge| merge.defers_metadata(entry, &self.registry.dirs))
    }

    /// Records that the sender has announced everything.
    fn on_entries_end(&self, totals: &Totals) {
        add(&self.registry.stats.counts.special_files_skipped, totals.special_files_skipped);
        self.registry.stats.counts.total_is_final.store(true, Ordering::Relaxed);
        self.completion.on_all_announced();
    }

    /// Handles announced entries, and answers each file and symlink.
    fn on_entries(&self, entries: Vec<Entry>) -> Result<(), Error> {
        let answered = entries.iter().filter(|entry| entry.kind != EntryKind::Dir).count();
        self.completion.on_announced(answered)?;
        let mut answers = Answers::default();
        let mut made = Vec::new();
        for mut entry in entries {
            if self.registry.session.is_stopped() {
                return Ok(());
            }
            self.registry.ledger().announce(entry.id)?;
            if part_names::is_part_name(&entry.name) {
                return Err(
                    WireError::BadName(String::from_utf8_lossy(&entry.name).into_owned()).into()
                );
            }
            if entry.parent != 0 && !self.registry.dirs.contains(entry.parent) {
                return Err(WireError::BadFileId(entry.parent).into());
            }
            self.selection.check(&entry, &self.registry.dirs)?;
            self.record_name(|names| names.record(&entry))?;
            self.check_kind(&entry)?;
            self.registry.dirs.metadata.on_entry(&mut entry)?;
            match entry.kind {
                _ if self.resolve_conflict(&entry, &mut answers.wants) => {}
                _ if self.selection.leave_out(&entry, &self.registry, &mut answers.wants) => {}
                _ if self.refuse_same_name(&entry, &mut answers.wants) => {}
                _ if self.refuse_over_quota(&entry, &mut answers.wants) => {}
                EntryKind::Dir => self.on_dir(entry),
                EntryKind::Symlink => self.on_symlink(&entry, &mut answers.wants, &mut made),
                EntryKind::HardLink => self.on_hard_link(&entry, &mut answers.wants, &mut made),
                EntryKind::Special => self.on_special(&entry, &mut answers.wants, &mut made),
                EntryKind::File => self.on_file(entry, &mut answers),
            }
        }
        if !made.is_empty() {
            self.registry.outbox.post_finished(&made);
        }
        self.registry.changes.flush();
        self.completion.on_completed(made.len());
        self.post(answers);
        Ok(())
    }

    /// Records names at the source, if others are deleted.
    fn record_name(
        &self,
        record: impl FnOnce(&mut SourceNames) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(names) = &self.source_names else { return Ok(()) };
        lock(names).as_mut().map_or(Ok(()), |(_, names)| record(names))
    }

    /// Sends the next names of the list.
    pub(crate) fn on_list_request(&self) -> Result<(), Error> {
        let Selection { names, walk, .. } = &self.selection;
        let part = names.next_part().filter(|_| walk.listed);
        let part = part.ok_or(WireError::Unexpected("a request of names that are not listed"))?;
        self.registry.outbox.post(&Message::ListPart(part));
        Ok(())
    }

    /// Records names at the source that are not announced.
    pub(crate) fn on_left_out(&self, left_out: &[LeftOut]) -> Result<(), Error> {
        self.record_name(|names| names.leave_out(left_out))
    }

    /// Posts wants; then starts the jobs, whose messages refer to them.
    fn post(&self, Answers { wants, jobs }: Answers) {
        for wants in wants.chunks(MAX_WANTS_PER_MESSAGE) {
            self.registry.outbox.post(&Message::Wants(wants.to_vec()));
        }
        jobs.into_iter().for_each(|job| self.hashing.push(job));
        self.completion.on_completed(count_final(&wants));
    }

    /// Answers an entry that loses to another session's; returns false if it is to be put in place.
    fn resolve_conflict(&self, entry: &Entry, wants: &mut Vec<Want>) -> bool {
        let registry = &self.registry;
        // Beneath a directory that failed, that failure is the reason.
        let merge = self.merge.as_ref().filter(|_| !registry.dirs.is_parent_failed(entry));
        let Some(merge) = merge else { return false };
        let shown = registry.dirs.path_of(entry.parent, OsStr::from_bytes(&entry.name));
        match merge.rejection(entry, &shown) {
            Some(Rejection::Refused(failure)) => self.refuse(entry, shown, failure, wants),
            Some(Rejection::Skipped) => wants.push(make_want(entry.id, Verdict::Skip)),
            None => return false,
        }
        true
    }

    /// Answers an entry whose name the file system takes for another one; returns false if it does
    /// not.
    fn refuse_same_name(&self, entry: &Entry, wants: &mut Vec<Want>) -> bool {
        let dirs = &self.registry.dirs;
        let Err(failure) = dirs.check_name(entry) else { return false };
        let shown = dirs.path_of(entry.parent, OsStr::from_bytes(&entry.name));
        self.refuse(entry, shown, failure, wants);
        true
    }

    /// Answers a new entry that the quota of the share does not allow; returns false otherwise.
    fn refuse_over_quota(&self, entry: &Entry, wants: &mut Vec<Want>) -> bool {
        let dirs = &self.registry.dirs;
        let quota = self.registry.session.storage_quota.as_ref().filter(|_| !self.dry_run);
        let is_counted =
            |_: &&Arc<_>| !self.registry.is_counted_later(entry) && self.registry.is_new(entry);
        let Some(quota) = quota.filter(is_counted) else { return false };
        let Err(why) = quota.add_entry(&|| self.registry.session.is_stopped()) else {
            return false;
        };
        let shown = dirs.path_of(entry.parent, OsStr::from_bytes(&entry.name));
        let text = format!("cannot create {}: {}", shown.display(), why.text);
        self.refuse(entry, shown, Failure::new(why.cause(), text), wants);
        true
    }

    /// Refuses an entry.
    pub(super) fn refuse(
        &self,
        entry: &Entry,
        shown: PathBuf,
        failure: Failure,
        wants: &mut Vec<Want>,
    ) {
        let registry = &self.registry;
        if entry.kind == EntryKind::Dir {
            registry.dirs.add_failed(entry);
            return registry.report_problem(shown, failure);
        }
        let is_file = entry.kind == EntryKind::File;
        add(&registry.stats.counts.files_total, u64::from(is_file));
        registry.stats.file_failed(shown, &failure);
        wants.push(make_refusal(entry.id, failure));
        registry.link_failed(entry);
    }

    fn on_dir(&self, entry: Entry) {
        let dirs = &self.registry.dirs;
        add(&self.registry.stats.counts.dirs, 1);
        let id = entry.id;
        let name = dirs.local_name(&entry);
        let change = self.registry.changes.plan_dir(&entry);
        let received = match dirs.parent_of(&entry) {
            Ok(Some(dir)) => self.refuse_received(&dir, &name, &entry),
            // Reported where it is created.
            _ => Ok(()),
        };
        let added = match received {
            Ok(()) => dirs.add(entry),
            Err(failure) => {
                dirs.add_failed(&entry);
                Err(failure)
            }
        };
        match added {
            Ok(is_created) => {
                let counts = &self.registry.stats.counts;
                add(&counts.dirs_created, u64::from(is_created && !self.dry_run));
                change.into_iter().for_each(|change| self.registry.changes.add(change));
            }
            Err(failure) => self.registry.report_problem(dirs.path(id), failure),
        }
    }

    /// Fails if another session receives a file of an entry's name.
    pub(super) fn refuse_received(
        &self,
        dir: &Dir,
        name: &OsStr,
        entry: &Entry,
    ) -> Result<(), Failure> {
        match self.dry_run || entry.name.is_empty() || self.registry.dirs.is_parent_created(entry) {
            true => Ok(()),
            false => refuse_received(dir, name, &self.registry.session),
        }
    }

    /// Completes directories, whose entries are all completed.
    fn on_completed_dirs(&self, dirs: &[u64]) {
        for &id in dirs {
            let _ = self.record_name(|names| {
                names.complete(id);
                Ok(())
            });
            self.registry.dirs.complete(id, |path, failure| {
                self.registry.report_problem(path, failure);
            });
        }
    }

    /// Answers a file, later if it is compared or another session holds its part file.
    fn on_file(&self, entry: Entry, answers: &mut Answers) {
        let registry = &self.registry;
        add(&registry.stats.counts.files_total, 1);
        add(&registry.stats.counts.bytes_total, entry.known_size());
        let name = registry.dirs.local_name(&entry);
        let mut incoming = IncomingFile::new(entry, name);
        incoming.differences = registry.changes.compare(&incoming.entry);
        let comparison = &self.selection.comparison;
        let planner = Planner { registry, placer: &self.placer, comparison };
        match planner.plan(&mut incoming) {
            Ok(plan) => self.enter(incoming, plan, answers),
            Err(failure) => self.refuse_file(&incoming, failure, answers),
        }
    }

    /// Enters a planned file in the ledger, and answers it.
    fn enter(&self, incoming: IncomingFile, plan: Plan, answers: &mut Answers) {
        let registry = &self.registry;
        let id = incoming.entry.id;
        if plan == Plan::Skip {
            // A link to an earlier copy is no change, as in rsync.
            if !incoming.is_linked {
                registry.changes.report_file(&incoming, ChangeAction::Update);
            }
            registry.stats.file_skipped(|| registry.path(&incoming), incoming.entry.known_size());
            registry.link_placed(&incoming.entry, incoming.dir, &incoming.name);
            return answers.wants.push(make_want(id, Verdict::Skip));
        }
        if self.dry_run && plan == Plan::Receive {
            let (path, bytes) = (|| registry.path(&incoming), incoming.entry.size);
            registry.changes.report_file(&incoming, ChangeAction::Transfer);
            registry.stats.file_completed(path, Outcome::WouldCopy, bytes, None);
            registry.link_placed(&incoming.entry, incoming.dir, &incoming.name);
            return answers.wants.push(make_want(id, Verdict::WouldSend));
        }
        let file = HeldFile { incoming, plan, wait: Mutex::default() };
        self.enter_part(file, Duration::MAX, answers);
    }

    /// Enters a file with its blocks of an earlier run, unless another session holds them.
    fn enter_part(&self, file: HeldFile, idle_timeout: Duration, answers: &mut Answers) {
        match self.find_earlier(&file, idle_timeout) {
            Ok(Some(earlier)) => self.enter_with(file, earlier, answers),
            Ok(None) => lock(&self.held.files).push(file),
            Err(failure) => self.refuse_file(&file.incoming, failure, answers),
        }
    }

    fn refuse_file(&self, incoming: &IncomingFile, failure: Failure, answers: &mut Answers) {
        let registry = &self.registry;
        registry.stats.file_failed(registry.path(incoming), &failure);
        answers.wants.push(make_refusal(incoming.entry.id, failure));
        registry.link_failed(&incoming.entry);
    }

    /// Tries held files again until the sender has finished or the session ends.
    pub(crate) fn run_held(&self, idle_timeout: Duration) {
        let session = &self.registry.session;
        let interval = || match lock(&self.held.files).is_empty() {
            true => HELD_CHECK_INTERVAL,
            false => LOCK_POLL_INTERVAL,
        };
        while !self.held.closed.wait(interval()) && !session.is_stopped() {
            let files = std::mem::take(&mut *lock(&self.held.files));
            let mut answers = Answers::default();
            for file in files {
                if session.is_stopped() {
                    return;
                }
                self.enter_part(file, idle_timeout, &mut answers);
            }
            self.post(answers);
        }
    }

    fn enter_with(&self, file: HeldFile, earlier: VecDeque<EarlierBlock>, answers: &mut Answers) {
        let (registry, HeldFile { incoming, plan, .. }) = (&self.registry, file);
        let id = incoming.entry.id;
        if plan == Plan::Receive || !earlier.is_empty() {
            let present = earlier.iter().map(|block| incoming.block_len(block.index)).sum();
            if let Err(failure) = registry.reserve(&incoming, present) {
                return self.refuse_file(&incoming, failure, answers);
            }
        }
        let mut want = make_want(id, Verdict::Send);
        match incoming.layout() {
            Some(layout) if incoming.entry.is_open_ended() => {
                registry.ledger().expect_open_ended(id, layout);
            }
            Some(layout) => {
                let mut left = BlockSet::new(layout.count());
                for block in &earlier {
                    left.insert(block.index);
                }
                let bytes = earlier.iter().map(|block| layout.block_len(block.index)).sum();
                registry.stats.counts.record(&incoming.stats, ByteSource::Unchecked, bytes);
                want.have = self.post_have(id, &left);
                registry.ledger().expect_blocks(id, layout, &left);
            }
            None => registry.ledger().expect_packed(id, incoming.entry.size),
        }
        let incoming = Arc::new(incoming);
        registry.insert(Arc::clone(&incoming));
        if plan == Plan::Compare {
            if !want.have.is_empty() {
                let have = FileRuns { file: id, runs: want.have };
                registry.outbox.post(&Message::Have(have));
            }
            return answers.jobs.push(HashJob::Compare(incoming, earlier));
        }
        answers.wants.push(want);
        if !earlier.is_empty() {
            answers.jobs.push(HashJob::Check(incoming, earlier));
        }
    }

    /// Returns the runs if they are few; otherwise posts them ahead of the want.
    fn post_have(&self, id: u64, here: &BlockSet) -> Vec<Run> {
        // Several wants share a message.
        const MAX_RUNS_PER_WANT: usize = 16;
        let runs: Vec<Run> = here.runs().collect();
        if runs.len() <= MAX_RUNS_PER_WANT {
            return runs;
        }
        for part in runs.chunks(MAX_RUNS) {
            self.registry.outbox.post(&Message::Have(FileRuns { file: id, runs: part.to_vec() }));
        }
        Vec::new()
    }

    /// Returns the blocks that an earlier run left of a file; `None` if another session holds them.
    fn find_earlier(
        &self,
        file: &HeldFile,
        idle_timeout: Duration,
    ) -> Result<Option<VecDeque<EarlierBlock>>, Failure> {
        let entry = &file.incoming.entry;
        let is_never_left = entry.block_bytes == 0 || entry.is_open_ended();
        if self.dry_run || is_never_left || self.registry.dirs.is_parent_created(entry) {
            return Ok(Some(VecDeque::new()));
        }
        self.parts.find_earlier(&file.incoming, &file.wait, idle_timeout)
    }
}
