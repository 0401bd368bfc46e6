//! Answers to announced entries, from the state of the destination.

use super::part_file::{LockRequest, PartFile};
use super::{IncomingFile, Receiver, remove_part};
use crate::base::error::{Error, failure};
use crate::base::part_names;
use crate::base::part_names::PartNames;
use crate::base::sync::lock;
use crate::stats::counters::{ByteSource, FileStats, add};
use bankfull_proto::blocks::{BlockSet, Run};
use bankfull_proto::hash::FileHash;
use bankfull_proto::journal::VerifiedBlocks;
use bankfull_proto::limits::MAX_RUNS;
use bankfull_proto::plan::{self, Existing, Plan};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{
    Cause, Entry, EntryKind, Failure, FileRuns, Message, Verdict, Want,
};
use bankfull_sys::{Dir, FileKind};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum number of wants in a message: each may carry a reason of up to 4 KiB, a frame 1 MiB.
const MAX_WANTS_PER_MESSAGE: usize = 128;

impl Receiver<'_> {
    /// Handles announced entries, and answers each file and symlink.
    pub(crate) fn on_entries(&self, entries: Vec<Entry>) -> Result<(), Error> {
        let answered = entries.iter().filter(|entry| entry.kind != EntryKind::Dir).count();
        self.completion.on_announced(answered)?;
        let mut wants = Vec::new();
        let mut made = Vec::new();
        for entry in entries {
            lock(&self.ledger).announce(entry.id)?;
            if part_names::is_part_name(&entry.name) {
                return Err(
                    WireError::BadName(String::from_utf8_lossy(&entry.name).into_owned()).into()
                );
            }
            if entry.parent != 0 && !self.dirs.contains(entry.parent) {
                return Err(WireError::BadFileId(entry.parent).into());
            }
            match entry.kind {
                _ if self.resolve_conflict(&entry, &mut wants) => {}
                EntryKind::Dir => self.on_dir(entry),
                EntryKind::Symlink => self.on_symlink(&entry, &mut wants, &mut made),
                EntryKind::File => wants.extend(self.on_file(entry)),
            }
        }
        for wants in wants.chunks(MAX_WANTS_PER_MESSAGE) {
            self.outbox.post(&Message::Wants(wants.to_vec()));
        }
        if !made.is_empty() {
            self.outbox.post_finished(&made);
        }
        let completed = wants.iter().filter(|want| is_final(want.verdict)).count();
        self.completion.on_completed(completed + made.len());
        Ok(())
    }

    /// Returns an entry's name at the destination.
    fn local_name(&self, entry: &Entry) -> OsString {
        match &self.rename {
            Some(name) if entry.parent == 0 && entry.kind != EntryKind::Dir => name.clone(),
            _ => OsStr::from_bytes(&entry.name).to_owned(),
        }
    }

    /// Whether the entry's directory could not be created.
    pub(crate) fn is_parent_failed(&self, entry: &Entry) -> bool {
        lock(&self.announced_dirs).failed.contains(&entry.parent)
    }

    fn on_dir(&self, entry: Entry) {
        add(&self.stats.counts.dirs, 1);
        if entry.name.is_empty() {
            // The destination itself: it exists already, and gets its metadata at the end.
            self.dirs.insert(entry.id, 0, OsStr::new(""));
            if let Some(base) = &self.base {
                if !self.dry_run {
                    ensure_owner_writable(base);
                }
                self.dirs.insert_root(entry.id, Arc::clone(base), self.dirs.path(0));
            }
            lock(&self.announced_dirs).entries.push(entry);
            return;
        }
        let name = self.local_name(&entry);
        let id = entry.id;
        self.dirs.insert(id, entry.parent, &name);
        if self.is_parent_failed(&entry) {
            lock(&self.announced_dirs).failed.insert(id);
            return;
        }
        match self.find_or_create_dir(entry.parent, &name) {
            Ok(created) => {
                let mut announced_dirs = lock(&self.announced_dirs);
                announced_dirs.entries.push(entry);
                if created {
                    announced_dirs.created.insert(id);
                }
            }
            Err(failure) => {
                lock(&self.announced_dirs).failed.insert(id);
                self.report_problem(self.dirs.path(id), failure);
            }
        }
    }

    /// Finds or creates a directory; returns true if it is new.
    fn find_or_create_dir(&self, parent: u64, name: &OsStr) -> Result<bool, Failure> {
        let shown = self.dirs.path_of(parent, name);
        let failed =
            |e: io::Error| failure(format!("cannot create the directory {}", shown.display()), &e);
        let dir = match self.dirs.open(parent) {
            Ok(dir) => dir,
            Err(e) if self.dry_run && e.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(e) => return Err(failed(e)),
        };
        if self.dry_run {
            return match dir.stat(name) {
                Ok(stat) => dir_or_in_the_way(stat.kind, &shown).map(|()| false),
                Err(_) => Ok(true),
            };
        }
        if self.create_dir(&dir, name).map_err(failed)? {
            return Ok(true);
        }
        let stat = dir.stat(name).map_err(failed)?;
        dir_or_in_the_way(stat.kind, &shown)?;
        if let Ok(dir) = dir.open_child_dir(name) {
            ensure_owner_writable(&dir);
        }
        Ok(false)
    }

    fn on_symlink(&self, entry: &Entry, wants: &mut Vec<Want>, made: &mut Vec<u64>) {
        add(&self.stats.counts.symlinks, 1);
        let name = self.local_name(entry);
        let placed = self.parent_dir(entry).and_then(|dir| match dir {
            Some(dir) => self.create_symlink(&dir, &name, entry),
            None => Ok(true),
        });
        match placed {
            Ok(true) if self.dry_run => {
                let path = self.dirs.path_of(entry.parent, &name);
                self.stats.file_completed(path, crate::base::event::Outcome::WouldCopy, 0, None);
                wants.push(make_want(entry.id, Verdict::WouldSend));
            }
            Ok(true) => {
                add(&self.stats.counts.symlinks_created, 1);
                made.push(entry.id);
            }
            Ok(false) => wants.push(make_want(entry.id, Verdict::Skip)),
            Err(failure) => {
                self.stats.file_failed(self.dirs.path_of(entry.parent, &name), &failure);
                wants.push(make_refusal(entry.id, failure));
            }
        }
    }

    /// Returns an entry's directory; `None` if it does not exist yet in a dry run.
    fn parent_dir(&self, entry: &Entry) -> Result<Option<Arc<Dir>>, Failure> {
        if self.is_parent_failed(entry) {
            return Err(Failure::new(Cause::Io, "its directory could not be created"));
        }
        match self.dirs.open(entry.parent) {
            Ok(dir) => Ok(Some(dir)),
            Err(e) if self.dry_run && e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => {
                let path = self.dirs.path(entry.parent);
                Err(failure(format!("cannot open the directory {}", path.display()), &e))
            }
        }
    }

    /// Answers a file; `None` if the answer follows after a comparison.
    fn on_file(&self, entry: Entry) -> Option<Want> {
        add(&self.stats.counts.files_total, 1);
        add(&self.stats.counts.bytes_total, entry.size);
        let id = entry.id;
        let incoming = IncomingFile {
            dir: entry.parent,
            name: self.local_name(&entry),
            entry,
            stats: FileStats::default(),
            part: Mutex::default(),
        };
        match self.plan_file(&incoming) {
            Ok(want) => self.enter(incoming, want),
            Err(failure) => {
                self.stats.file_failed(self.path(&incoming), &failure);
                Some(make_refusal(id, failure))
            }
        }
    }

    fn plan_file(&self, incoming: &IncomingFile) -> Result<Plan, Failure> {
        let entry = &incoming.entry;
        let Some(dir) = self.parent_dir(entry)? else { return Ok(Plan::Receive) };
        if lock(&self.announced_dirs).created.contains(&entry.parent) {
            return Ok(Plan::Receive);
        }
        let existing = match dir.stat(&incoming.name) {
            Ok(stat) => Some(Existing {
                kind: match stat.kind {
                    FileKind::File => Some(EntryKind::File),
                    FileKind::Dir => Some(EntryKind::Dir),
                    FileKind::Symlink => Some(EntryKind::Symlink),
                    FileKind::Other => None,
                },
                size: stat.size,
                mtime_secs: stat.mtime.secs,
                mtime_nanos: stat.mtime.nanos,
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(self.write_failure(incoming, &e)),
        };
        let plan = plan::plan_file(entry, existing.as_ref(), self.checksum);
        if plan == Plan::Skip && !self.dry_run {
            if entry.block_bytes != 0 {
                remove_part(&dir, &incoming.name);
            }
            self.refresh_metadata(&dir, &incoming.name, entry)
                .map_err(|e| self.write_failure(incoming, &e))?;
        }
        match plan {
            Plan::Refuse(failure) => Err(failure),
            plan => Ok(plan),
        }
    }

    /// Enters a planned file in the ledger, and returns its want.
    fn enter(&self, incoming: IncomingFile, plan: Plan) -> Option<Want> {
        let id = incoming.entry.id;
        if plan == Plan::Skip {
            self.stats.file_skipped(self.path(&incoming), incoming.entry.size);
            return Some(make_want(id, Verdict::Skip));
        }
        if self.dry_run && plan == Plan::Receive {
            let outcome = crate::base::event::Outcome::WouldCopy;
            self.stats.file_completed(self.path(&incoming), outcome, incoming.entry.size, None);
            return Some(make_want(id, Verdict::WouldSend));
        }
        let here = match self.find_part(&incoming) {
            Ok(here) => here,
            Err(failure) => {
                self.stats.file_failed(self.path(&incoming), &failure);
                return Some(make_refusal(id, failure));
            }
        };
        let mut want = make_want(id, Verdict::Send);
        match incoming.layout() {
            Some(layout) => {
                let resumed = here.blocks.iter().map(|(index, _)| layout.block_len(*index)).sum();
                self.stats.counts.record(&incoming.stats, ByteSource::Resumed, resumed);
                want.have = self.post_have(id, &here.set(layout.count()));
                lock(&self.ledger).expect_blocks(id, layout, &here);
            }
            None => lock(&self.ledger).expect_packed(id, incoming.entry.size),
        }
        let incoming = Arc::new(incoming);
        lock(&self.incoming).insert(id, Arc::clone(&incoming));
        if plan == Plan::Compare {
            if !want.have.is_empty() {
                let have = FileRuns { file: id, runs: want.have };
                self.outbox.post(&Message::Have(have));
            }
            // The queue's receiving end lives as long as the session.
            let _ = lock(&self.compare).as_ref().map(|queue| queue.send(incoming));
            return None;
        }
        Some(want)
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
            self.outbox.post(&Message::Have(FileRuns { file: id, runs: part.to_vec() }));
        }
        Vec::new()
    }

    /// Returns the blocks that an earlier run left of a file.
    fn find_part(&self, incoming: &IncomingFile) -> Result<VerifiedBlocks, Failure> {
        if self.dry_run
            || incoming.entry.block_bytes == 0
            || lock(&self.announced_dirs).created.contains(&incoming.entry.parent)
        {
            return Ok(VerifiedBlocks::default());
        }
        let Ok(dir) = self.dirs.open(incoming.dir) else { return Ok(VerifiedBlocks::default()) };
        let names = PartNames::of(&incoming.name);
        let (entry, boot) = (&incoming.entry, self.boot);
        let resume =
            |request: &LockRequest<'_>| PartFile::resume(&dir, &names, entry, boot, request);
        let found = self.request_lock(Duration::ZERO, resume)?;
        let Some((part, here)) = found else { return Ok(VerifiedBlocks::default()) };
        // Kept open and locked while descriptors suffice, so that no other session changes what the
        // ledger counts.
        let mut slot = lock(&incoming.part);
        slot.open = Some(Arc::new(part.prepare(entry, self.session.overrides.direct)));
        slot.exists = true;
        drop(slot);
        self.close_excess_parts(incoming.entry.id);
        Ok(here)
    }

    /// Hashes existing files and sends the hashes for comparison, until the session ends.
    pub(crate) fn run_compare(&self, queue: mpsc::Receiver<Arc<IncomingFile>>) {
        while !self.session.is_stopped() {
            let incoming = match queue.recv_timeout(Duration::from_millis(100)) {
                Ok(incoming) => incoming,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let id = incoming.entry.id;
            match self.hash_existing(&incoming) {
                Ok(hash) => {
                    let want = Want { hash: Some(hash.0), ..make_want(id, Verdict::IfDiffers) };
                    self.outbox.post(&Message::Wants(vec![want]));
                }
                // Removed or unreadable: it is replaced.
                Err(_) => self.outbox.post(&Message::Wants(vec![make_want(id, Verdict::Send)])),
            }
        }
    }

    fn hash_existing(&self, incoming: &IncomingFile) -> io::Result<FileHash> {
        let file = self.dirs.open(incoming.dir)?.open_file(&incoming.name)?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 256 << 10];
        let mut offset = 0;
        loop {
            match file.read_at(&mut buffer, offset)? {
                0 => return Ok(FileHash(*hasher.finalize().as_bytes())),
                n => {
                    hasher.update(&buffer[..n]);
                    offset += n as u64;
                }
            }
        }
    }
}

pub(crate) fn make_want(file: u64, verdict: Verdict) -> Want {
    let accepts_early_digest =
        matches!(verdict, Verdict::Send | Verdict::IfDiffers).then_some(true);
    Want { file, verdict, have: Vec::new(), hash: None, failure: None, accepts_early_digest }
}

/// Whether a want with this verdict completes the file.
fn is_final(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Skip | Verdict::Refused | Verdict::WouldSend)
}

pub(crate) fn make_refusal(file: u64, failure: Failure) -> Want {
    Want { failure: Some(failure), ..make_want(file, Verdict::Refused) }
}

/// Gives the owner write access to a directory that an earlier run left read-only, like its source.
///
/// Its mode is set again at the end.
fn ensure_owner_writable(dir: &Dir) {
    const OWNER_WRITE_SEARCH: u32 = 0o300;
    let Ok(stat) = dir.stat_self() else { return };
    let user = bankfull_sys::effective_uid();
    if stat.mode & OWNER_WRITE_SEARCH != OWNER_WRITE_SEARCH && stat.uid == user && user != 0 {
        // On failure, creating an entry in it reports the reason.
        let _ = dir.set_own_mode(stat.mode | OWNER_WRITE_SEARCH);
    }
}

fn dir_or_in_the_way(kind: FileKind, shown: &std::path::Path) -> Result<(), Failure> {
    let what = match kind {
        FileKind::Dir => return Ok(()),
        FileKind::Symlink => "a symlink (bankfull does not write through symlinks)",
        _ => "a file",
    };
    let text = format!(
        "{} must be a directory, but {what} is there: remove or rename it",
        shown.display()
    );
    Err(Failure::new(Cause::NotADirectory, text))
}
