//! The sending side of a session: walks the sources, assigns work to the streams, and completes
//! every file with the receiver. `bankfull_proto::send` holds the rules; this module adds files,
//! sockets and threads.

mod announce;
pub(crate) mod files;
mod found;
mod further_names;
mod input;
pub(crate) mod metadata;
mod name_queue;
mod named;
mod receiver_reports;
mod removal;
mod stream_thread;
mod virtual_files;
mod walk;
mod work_queue;

use crate::base::error::{Error, problem_message};
use crate::base::event::Outcome;
use crate::base::sync::lock;
use crate::file_io::roots::{SendRules, SourceItem};
use crate::session::Session;
use crate::stats::counters::{ByteSource, add, read};
use crate::stats::session_stats::SessionStats;
use crate::transport::control::{ControlReader, Outbox};
use crate::transport::data_stream::DataStream;
use announce::Announcer;
use bankfull_proto::blocks::Run;
use bankfull_proto::hash::FileHash;
use bankfull_proto::limits::{MAX_OWNER_NAMES, MAX_RUNS};
use bankfull_proto::selection::selects_file;
use bankfull_proto::send::{NextStep, Work};
use bankfull_proto::session::{Guard, Role};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{
    Aborted, Cause, Entry, EntryKind, Failure, FileDigest, FileRuns, Message, Nack, Problem,
    SideSummary, Totals, Verdict, Want,
};
use files::{Place, SourceError, SourceFile, SourceFiles};
use further_names::announce_with_content;
use input::post_file_end;
use metadata::SourceMetadata;
use name_queue::NameQueue;
use receiver_reports::{on_changes, on_deleted, with_peer_prefix};
use removal::Removal;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use work_queue::WorkQueue;

const DRY_RUN_CHUNK_BYTES: usize = 256 << 10;

/// Minimum number of completed directories in a message. (chosen: far fewer than may be
/// outstanding)
const COMPLETED_DIRS_BATCH: usize = 256;

/// The sending side; shared by the walk, the control thread and the stream threads.
pub(crate) struct Sender<'a> {
    session: &'a Session,
    outbox: Outbox,
    stats: &'a SessionStats<'a>,
    pub(crate) files: SourceFiles,
    announcer: Announcer,
    pub(crate) queue: WorkQueue<'a>,
    guard: Mutex<Guard>,
    rules: SendRules,
    removal: Removal,
    /// Names beneath the source that the receiver has sent.
    names: NameQueue,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        stats: &'a SessionStats<'a>,
        rules: SendRules,
    ) -> Self {
        let metadata = SourceMetadata::new(
            rules.metadata.clone(),
            rules.filters.clone(),
            rules.walk.follows_links(),
        );
        let announcer = Announcer::new(outbox.clone(), session.overrides.block);
        Self {
            session,
            outbox,
            stats,
            files: SourceFiles::new(metadata, rules.walk.follow_growth),
            announcer,
            queue: WorkQueue::new(session),
            guard: Mutex::new(session.guard(Role::Sender)),
            rules,
            names: NameQueue::default(),
            removal: Removal::default(),
        }
    }

    /// Removes source files that the receiver has, if the user asked for that.
    pub(crate) fn remove_sources(&self, stats: &SessionStats<'_>) {
        let report = |path, failure: &Failure| stats.problem(path, failure);
        let tell = |path, failure| self.outbox.post(&problem_message(path, failure));
        self.removal.run(&self.rules.root, || self.session.is_stopped(), report, tell);
    }

    /// True if the paths of completed files are used.
    fn reports_paths(&self) -> bool {
        self.stats.wants_completed() || self.rules.removes_sources
    }

    /// Records a file for its removal, unless its content is elsewhere.
    fn remove_later(&self, file: &SourceFile, path: &Path) {
        let removes = self.rules.removes_sources && !self.rules.dry_run;
        if removes && file.linked.is_none() && !self.files.dirs.is_linked(file.dir) {
            self.removal.add(path.to_owned(), file.entry.version);
        }
    }

    /// Runs the control thread until the receiver is done; returns the receiver's report.
    pub(crate) fn run_control(&self, reader: &mut ControlReader) -> Result<SideSummary, Error> {
        loop {
            let message = reader.next()?;
            lock(&self.guard).admit(&message)?;
            match message {
                // It may arrive before `Finish`, which is sent nevertheless.
                Message::Done(report) if self.queue.is_complete() => return Ok(report),
                Message::Done(_) => {
                    return Err(WireError::Unexpected("the receiver is done too early").into());
                }
                other => self.on_message(other)?,
            }
            self.post_completed_dirs();
            self.queue.notify_completion();
        }
    }

    /// Announces completed directories, if they are many.
    fn post_completed_dirs(&self) {
        if self.queue.with_ledger(|ledger| ledger.completed_dirs()) < COMPLETED_DIRS_BATCH {
            return;
        }
        self.announcer.post_completed_dirs(|| {
            let dirs = self.queue.with_ledger(|ledger| ledger.take_completed_dirs());
            dirs.iter().for_each(|&id| self.files.dirs.remove(id));
            dirs
        });
    }

    /// Waits until every file is completed and every stream has ended, then sends `Finish`.
    pub(crate) fn finish(&self, join_streams: impl FnOnce()) {
        self.queue.wait_until_complete();
        self.session.send.release_streams();
        join_streams();
        self.outbox.wait_for_tunnels();
        if !self.session.is_stopped() {
            // Completed directories that are being announced come first.
            self.announcer.flush();
            lock(&self.guard).on_finish_sent();
            self.outbox.post(&Message::Finish(self.stats.report()));
        }
    }

    fn on_message(&self, message: Message) -> Result<(), Error> {
        match message {
            Message::Wants(wants) => {
                let mut is_work = false;
                for want in &wants {
                    if self.session.is_stopped() {
                        return Ok(());
                    }
                    is_work |= self.on_want(want)?;
                }
                // One notification for all: a woken stream finds enough files for a pack.
                if is_work {
                    self.queue.notify_work();
                }
            }
            Message::ListPart(names) => self.names.add(names),
            Message::Have(have) => self.queue.with_ledger(|ledger| ledger.on_have(&have))?,
            Message::Acks(acks) => acks.iter().try_for_each(|ack| self.on_ack(ack))?,
            Message::Problem(Problem { path, failure }) => {
                self.removal.on_problem(&failure);
                self.stats.on_peer_problem(Problem { path, failure: with_peer_prefix(&failure) });
            }
            Message::Nack(nack) => {
                // A file that was written to between hashing and sending arrives damaged too.
                if let Some(file) = self.files.find(nack.file)
                    && file.entry.block_bytes != 0
                    && let Err(error) =
                        self.files.open(&file).and_then(|open| self.files.check(&file, &open))
                {
                    self.on_source_error(nack.file, error);
                    return Ok(());
                }
                self.on_nack(nack)?;
            }
            Message::Finished(files) => {
                for id in files {
                    self.on_finished(id)?;
                }
            }
            Message::Deleted(paths) => on_deleted(&self.rules, self.stats, paths)?,
            Message::Changes(changes) => on_changes(&self.rules, self.stats, changes)?,
            Message::Failed(failed) => {
                self.on_receiver_failure(failed.file, &failed.failure);
            }
            Message::RateRequest(pace) => {
                self.session.feedback.on_rate_request(pace);
                if let Some(streams) = pace.streams {
                    self.session.set_wanted_streams(streams);
                    self.queue.notify_work();
                }
            }
            Message::Credits(credits) => {
                if let Some(credit) = &self.session.send.credit {
                    credit.grant(&credits);
                }
            }
            Message::RateLimit(limit) => self.session.on_rate_limit(limit)?,
            Message::TrainRequest(packets) => self.session.feedback.on_train_request(packets),
            Message::ReceiverReport(report) => self.session.feedback.on_receiver_report(report),
            Message::StreamEnded(number) => {
                self.session.close_stream(number);
                if self.queue.with_ledger(|ledger| ledger.on_stream_ended(number)) {
                    self.queue.notify_work();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies the receiver's want of a file; returns true if the streams have new work.
    fn on_want(&self, want: &Want) -> Result<bool, Error> {
        let file = self.files.find(want.file);
        let mut holes = 0;
        if let Some(file) = &file
            && want.verdict == Verdict::Send
            && file.entry.sparse
        {
            match self.announce_holes(file)? {
                Some(bytes) => holes = bytes,
                None => return Ok(false),
            }
        }
        // Before its directory may be completed, and is forgotten.
        let needs_path =
            want.verdict.is_final() && (want.verdict == Verdict::Refused || self.reports_paths());
        let path = file.as_ref().filter(|_| needs_path).map(|file| self.files.path(file));
        let next = self.queue.with_ledger(|ledger| ledger.on_want(want))?;
        let Some(file) = file else { return Ok(false) };
        // Acknowledgements of checked blocks may have overtaken the want.
        let unchecked = self.queue.with_ledger(|ledger| ledger.unconfirmed_bytes(want.file));
        self.stats.counts.record(&file.stats, ByteSource::Unchecked, unchecked);
        self.stats.counts.record(&file.stats, ByteSource::Holes, holes);
        match next {
            _ if file.entry.kind == EntryKind::HardLink && want.verdict == Verdict::Send => {
                announce_with_content(self, &file);
            }
            NextStep::SendDigest => self.send_digest(&file),
            NextStep::Completed => self.complete_unsent(&file, path.unwrap_or_default(), want),
            _ => post_file_end(self, want.file),
        }
        Ok(next == NextStep::Work)
    }

    /// Sends the holes of a file; returns their bytes, or `None` if it failed or the session stops.
    fn announce_holes(&self, file: &SourceFile) -> Result<Option<u64>, Error> {
        let holes = self.files.holes(file, || self.session.is_stopped());
        let holes = holes.map_err(|error| self.on_source_error(file.entry.id, error));
        let Ok(Some(holes)) = holes else { return Ok(None) };
        let max_files = self.session.send.max_outstanding_files;
        let holes = self.queue.with_ledger(|ledger| ledger.on_holes(holes, max_files))?;
        for runs in holes.runs.chunks(MAX_RUNS) {
            let part = FileRuns { file: holes.file, runs: runs.to_vec() };
            self.outbox.post(&Message::Holes(part));
        }
        Ok(Some(file.bytes_in(&holes)))
    }

    fn complete_unsent(&self, file: &SourceFile, path: PathBuf, want: &Want) {
        self.forget(want.file);
        let is_file = file.entry.kind == EntryKind::File;
        match (want.verdict, &want.failure) {
            (Verdict::Refused, Some(failure)) => {
                self.stats.file_failed(path, &with_peer_prefix(failure))
            }
            (Verdict::Refused, None) => {
                let text = format!("{} was refused by the peer", path.display());
                self.stats.file_failed(path, &Failure::new(Cause::Other, text));
            }
            (Verdict::Skip, Some(_)) if is_file => {
                self.stats.file_left_out(|| path, file.entry.known_size());
            }
            (Verdict::Skip, None) if is_file => {
                self.remove_later(file, &path);
                self.stats.file_skipped(|| path, file.entry.known_size());
            }
            (Verdict::Skip, Some(_)) => {
                let counts = &self.stats.counts;
                if file.entry.kind == EntryKind::Special {
                    counts.special_files.fetch_sub(1, Ordering::Relaxed);
                    add(&counts.special_files_skipped, 1);
                }
            }
            (Verdict::Skip, None) => self.remove_later(file, &path),
            (Verdict::WouldSend, _) => {
                self.stats.file_completed(|| path, Outcome::WouldCopy, file.entry.size, None);
            }
            _ => {}
        }
    }

    fn on_ack(&self, ack: &FileRuns) -> Result<(), Error> {
        if self.session.is_stopped() {
            return Ok(());
        }
        let (resumed, next) = self.queue.with_ledger(|ledger| {
            let resumed = ledger.resumed_bytes(ack);
            (resumed, ledger.on_acks(ack))
        });
        let next = next?;
        if let Some(file) = self.files.find(ack.file) {
            let transferred = file.bytes_in(ack).saturating_sub(resumed);
            file.release(ack);
            self.stats.counts.record(&file.stats, ByteSource::Transferred, transferred);
            self.stats.counts.settle_check(&file.stats, resumed, true);
            if next == NextStep::SendDigest {
                self.send_digest(&file);
            }
        }
        Ok(())
    }

    fn on_nack(&self, nack: Nack) -> Result<(), Error> {
        let (was_unconfirmed, next) = self.queue.with_ledger(|ledger| {
            let was_unconfirmed = ledger.is_unconfirmed(nack.file, nack.index);
            (was_unconfirmed, ledger.on_nack(nack.file, nack.index))
        });
        match next? {
            NextStep::GiveUp => self.fail_unverifiable(nack.file),
            NextStep::Work => {
                if let (true, Some(file)) = (was_unconfirmed, self.files.find(nack.file)) {
                    let block = Run { first: nack.index, count: 1 };
                    let runs = FileRuns { file: nack.file, runs: vec![block] };
                    let bytes = file.bytes_in(&runs);
                    if self.stats.counts.settle_check(&file.stats, bytes, false) {
                        self.stats.file_damaged(&self.files.path(&file));
                    }
                }
                self.queue.notify_work();
            }
            NextStep::SendDigest => {
                if let Some(file) = self.files.find(nack.file) {
                    self.send_digest(&file);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Removes a file that is not outstanding any more.
    fn forget(&self, id: u64) -> Option<Arc<SourceFile>> {
        let file = self.files.remove(id)?;
        self.stats.counts.end_check(&file.stats);
        Some(file)
    }

    fn on_finished(&self, id: u64) -> Result<(), Error> {
        let hash = self.queue.with_ledger(|ledger| ledger.file_hash(id));
        let file = self.forget(id);
        // Before its directory may be completed, and is forgotten.
        let needs_path = self.reports_paths();
        let path = file.as_ref().filter(|_| needs_path).map(|file| self.files.path(file));
        self.queue.with_ledger(|ledger| ledger.on_finished(id))?;
        let (Some(file), path) = (file, path.unwrap_or_default()) else { return Ok(()) };
        self.remove_later(&file, &path);
        if file.entry.kind == EntryKind::File {
            if file.entry.block_bytes == 0 {
                add(&self.stats.counts.bytes_moved, file.entry.size);
            }
            self.stats.file_copied(|| path, file.size(), hash);
        } else {
            let is_symlink = file.entry.kind == EntryKind::Symlink;
            add(&self.stats.counts.symlinks_created, u64::from(is_symlink));
        }
        Ok(())
    }

    /// Sends the final digest of an unchanged file whose blocks are all acknowledged.
    fn send_digest(&self, file: &SourceFile) {
        let id = file.entry.id;
        let checked = self.files.open(file).and_then(|open| self.files.check(file, &open));
        match checked {
            Ok(()) => {
                let hash = self.queue.with_ledger(|ledger| ledger.file_hash(id)).map(|h| h.0);
                self.outbox.post(&Message::FileDigest(FileDigest { file: id, hash }));
            }
            Err(error) => self.on_source_error(id, error),
        }
    }

    /// Sends the early digest of an unchanged file whose blocks are all read.
    fn send_early_digest(&self, file: &SourceFile, opened: &std::fs::File) {
        let id = file.entry.id;
        // A change is reported once all blocks are acknowledged.
        if self.files.check(file, opened).is_err() {
            return;
        }
        self.queue.with_ledger(|ledger| {
            if ledger.record_early_digest(id) {
                let hash = ledger.file_hash(id).map(|hash| hash.0);
                // Posted under the lock, so that a later digest cannot overtake this one.
                self.outbox.post(&Message::EarlyFileDigest(FileDigest { file: id, hash }));
            }
        });
    }

    /// Runs the comparisons of a dry run, which has no streams.
    pub(crate) fn run_dry_run(&self) {
        if !self.rules.dry_run {
            return;
        }
        let mut buffer = vec![0; DRY_RUN_CHUNK_BYTES];
        while let Ok(Some(work)) = self.queue.next_work(0, || Ok(())) {
            if let Work::Compare { file, hash } = work {
                self.compare(file, hash, &mut buffer);
            }
        }
    }

    /// Compares a file with the receiver's hash, through `buffer`.
    pub(crate) fn compare(&self, id: u64, remote_hash: FileHash, buffer: &mut [u8]) {
        let Some(file) = self.files.find(id) else { return };
        match self.files.hash_whole(&file, buffer, || self.session.is_stopped()) {
            Ok(Some(local_hash)) => self.on_compared(&file, local_hash == remote_hash),
            Ok(None) => {}
            Err(error) => self.on_source_error(id, error),
        }
    }

    /// Completes a file whose content is equal, or has it sent.
    fn on_compared(&self, file: &SourceFile, equal: bool) {
        let id = file.entry.id;
        let path = self.files.path(file);
        if self.rules.dry_run && !equal {
            self.drop_file(id, &Message::Differs(vec![id]));
            self.forget(id);
            self.stats.file_completed(|| path, Outcome::WouldCopy, file.entry.size, None);
            return self.queue.notify_completion();
        }
        // An equal file has no part file, which the holes would need. An error means that the file
        // failed meanwhile.
        if !equal && file.entry.sparse {
            let Ok(Some(holes)) = self.announce_holes(file) else { return };
            self.stats.counts.record(&file.stats, ByteSource::Holes, holes);
        }
        let next = self.queue.with_ledger(|ledger| {
            let next = ledger.on_compared(id, equal);
            if next == NextStep::Completed {
                // Posted under the lock, as in `drop_file`.
                self.outbox.post(&Message::Unchanged(vec![id]));
            }
            next
        });
        match next {
            NextStep::Completed => {
                self.forget(id);
                self.remove_later(file, &path);
                self.stats.file_skipped(|| path, file.entry.size);
                self.queue.notify_completion();
            }
            NextStep::SendDigest => self.send_digest(file),
            _ => self.queue.notify_work(),
        }
    }

    /// Removes a file from the ledger, and tells the receiver.
    ///
    /// Both under the lock: neither `Finish` nor the receiver's `Done` comes in between.
    fn drop_file(&self, id: u64, message: &Message) {
        self.queue.with_ledger(|ledger| {
            self.outbox.post(message);
            ledger.drop_file(id);
        });
    }

    fn fail_unverifiable(&self, id: u64) {
        if let Some(file) = self.files.find(id) {
            let text = format!(
                "{} arrived damaged several times: check the memory of both hosts",
                self.files.path(&file).display()
            );
            self.on_source_error(id, SourceError::Failed(Failure::new(Cause::Verification, text)));
        }
    }

    /// Announces a file again that only changed; fails it otherwise.
    pub(crate) fn on_source_error(&self, id: u64, error: SourceError) {
        let Some(file) = self.files.find(id) else { return };
        let (failure, will_retry) = self.files.explain(&file, error);
        let Some(file) = self.forget(id) else { return };
        let entry = match will_retry {
            true => self.files.restat_changed(&file, || self.session.is_stopped()),
            false => None,
        };
        let entry = entry.filter(|now| {
            selects_file(&self.rules.walk, now.size, (now.mtime_secs, now.mtime_nanos))
        });
        let will_retry = entry.is_some();
        let aborted = Aborted { file: id, failure: failure.clone(), will_retry };
        let aborted = Message::Aborted(aborted);
        match entry {
            Some(entry) => {
                // The receiver drops the file before it is announced again. The ledger drops it
                // last, so that the session never looks complete in between.
                self.outbox.post(&aborted);
                self.stats.file_changed(&self.files.path(&file), &file.stats);
                let total = &self.stats.counts.bytes_total;
                total.fetch_sub(file.entry.size, Ordering::Relaxed);
                add(total, entry.size);
                self.announce(entry, &file.place(), file.attempt + 1);
                self.announcer.flush();
                self.queue.with_ledger(|ledger| ledger.drop_file(id));
            }
            None => {
                self.stats.file_failed(self.files.path(&file), &failure);
                self.drop_file(id, &aborted);
            }
        }
        self.queue.notify_completion();
    }

    fn on_receiver_failure(&self, id: u64, failure: &Failure) {
        if let Some(file) = self.forget(id) {
            self.stats.file_failed(self.files.path(&file), &with_peer_prefix(failure));
        }
        self.queue.with_ledger(|ledger| ledger.drop_file(id));
        self.queue.notify_completion();
    }

    /// Numbers an entry, enters it in the ledger, and queues it for the receiver.
    fn announce(&self, entry: Entry, place: &Place<'_>, attempt: u32) -> u64 {
        let accounts = self.files.metadata.new_accounts(&entry);
        for accounts in accounts.chunks(MAX_OWNER_NAMES) {
            self.outbox.post(&Message::Accounts(accounts.to_vec()));
        }
        self.announcer.announce(entry, |entry| {
            if entry.kind != EntryKind::Dir {
                self.files.insert(entry.clone(), place, attempt);
            }
            if let Err(e) = self.queue.with_ledger(|ledger| ledger.announce(entry)) {
                self.session.fail(e.into());
            }
        })
    }

    fn totals(&self) -> Totals {
        let c = &self.stats.counts;
        Totals {
            files: read(&c.files_total),
            dirs: read(&c.dirs),
            symlinks: read(&c.symlinks),
            bytes: read(&c.bytes_total),
            special_files_skipped: read(&c.special_files_skipped),
        }
    }

    /// Walks all sources and announces their end.
    pub(crate) fn walk(&self, items: &[SourceItem]) {
        walk::Walk::new(self).run(items);
    }

    /// Runs a stream's thread; an error is the loss of the stream, which should be reconnected.
    pub(crate) fn run_stream(&self, number: u32, mut stream: DataStream) -> std::io::Result<()> {
        if !self.session.prepare_sender(number, &mut stream) {
            return Ok(());
        }
        self.session.add_stream(number, stream.socket())?;
        let mut worker = stream_thread::Worker::new(self, number, stream);
        let result = worker.run();
        worker.finish();
        self.session.remove_stream(number);
        match result {
            Ok(()) => Ok(()),
            Err(_) if self.session.is_stopped() => Ok(()),
            Err(e) => {
                self.outbox.post(&Message::StreamLost(number));
                Err(e)
            }
        }
    }
}
