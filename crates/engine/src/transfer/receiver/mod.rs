//! The receiving side of a session: answers announced files, receives their blocks, and puts files
//! in place. `bankfull_proto::plan` and `bankfull_proto::receive` hold the rules; this module adds
//! files, sockets and threads.

mod completion;
mod merge;
mod part_file;
mod place;
mod want;
mod work;

use crate::file_io::roots::ReceiveTarget;

use crate::base::error::Error;
use crate::base::error::problem_message;
use crate::base::part_names::PartNames;
use crate::base::sync::lock;
use crate::file_io::dir_table::DirTable;
use crate::model::options::Fsync;
use crate::session::Session;
use crate::stats::counters::{ByteSource, FileStats, add};
use crate::stats::session_stats::SessionStats;
use crate::transport::control::{ControlReader, Outbox};
use crate::transport::data_stream::DataStream;
use crate::transport::frame_reader::DataFrameReader;
use crate::transport::receive_hook::ReceiveHook;
use crate::tuning::incast::flow_hook::FlowHook;
use bankfull_control::StageTimes;
use bankfull_proto::blocks::{Layout, Run};
use bankfull_proto::hash::{BlockHash, FileHash};
use bankfull_proto::journal::{Record, VerifiedBlocks};
use bankfull_proto::receive::{DigestOutcome, ReceiveLedger};
use bankfull_proto::session::{Guard, Role};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{
    Aborted, Cause, Entry, Failed, Failure, FileDigest, FileRuns, Message, SideSummary,
};
use bankfull_sys::Dir;
use completion::Completion;
use merge::MergeState;
use part_file::{LockRequest, PartFile};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::Duration;

/// Longest wait for another thread of this session to close a part file that is reopened.
const OWN_SESSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of open part files, with two descriptors each, or three with direct I/O.
/// (chosen: at most a third of the usual soft limit of 1024)
const MAX_OPEN_PARTS: usize = 128;

/// A file that is being received.
#[derive(Debug)]
pub(crate) struct IncomingFile {
    pub(crate) entry: Entry,
    /// Number of its directory.
    pub(crate) dir: u64,
    /// Name in that directory.
    pub(crate) name: OsString,
    stats: FileStats,
    part: Mutex<PartSlot>,
}

/// State of a file's part file in this session.
#[derive(Debug, Default)]
struct PartSlot {
    open: Option<Arc<PartFile>>,
    /// Closed part file, which a stream's thread may still use.
    closed: Weak<PartFile>,
    /// Whether the part file exists, with a journal for this version of the source.
    exists: bool,
}

impl IncomingFile {
    /// Returns the block layout; `None` for a file that is sent in a pack.
    pub(crate) fn layout(&self) -> Option<Layout> {
        Layout::new(self.entry.size, self.entry.block_bytes).ok()
    }
}

#[derive(Debug, Default)]
struct AnnouncedDirs {
    /// Entries in announced order; their metadata is set at the end.
    entries: Vec<Entry>,
    /// Directories that this session created: they hold only what this session put there.
    created: HashSet<u64>,
    failed: HashSet<u64>,
}

/// The receiving side; shared by the control thread and the stream threads.
pub(crate) struct Receiver<'a> {
    session: Arc<Session>,
    outbox: Outbox,
    stats: &'a SessionStats<'a>,
    ledger: Mutex<ReceiveLedger>,
    incoming: Mutex<HashMap<u64, Arc<IncomingFile>>>,
    /// Files with open part files, in the order of opening.
    open_order: Mutex<VecDeque<u64>>,
    dirs: DirTable,
    announced_dirs: Mutex<AnnouncedDirs>,
    rename: Option<OsString>,
    base: Option<Arc<Dir>>,
    fsync: Fsync,
    checksum: bool,
    dry_run: bool,
    set_id: bool,
    boot: [u8; 16],
    /// Files to be compared by content; closed when the sender has finished.
    compare: Mutex<Option<mpsc::Sender<Arc<IncomingFile>>>>,
    finished: AtomicBool,
    completion: Arc<Completion>,
    merge_state: Option<MergeState>,
    /// Whether `Done` is sent.
    done: Mutex<bool>,
}

impl<'a> Receiver<'a> {
    /// Returns a receiver, and the queue of files for [`run_compare`](Self::run_compare).
    pub(crate) fn new(
        session: Arc<Session>,
        outbox: Outbox,
        stats: &'a SessionStats<'a>,
        target: ReceiveTarget,
    ) -> (Self, mpsc::Receiver<Arc<IncomingFile>>) {
        let dirs = DirTable::default();
        match &target.base {
            Some(base) => dirs.insert_root(0, Arc::clone(base), target.shown),
            None => dirs.set_planned_root(target.shown),
        }
        let (compare, queue) = mpsc::channel();
        let completion = Arc::<Completion>::default();
        let released = Arc::clone(&completion);
        session.on_stop(move || released.release());
        let receiver = Self {
            session,
            outbox,
            stats,
            ledger: Mutex::default(),
            incoming: Mutex::default(),
            open_order: Mutex::default(),
            dirs,
            announced_dirs: Mutex::default(),
            rename: target.rename,
            base: target.base,
            fsync: target.fsync,
            checksum: target.checksum,
            dry_run: target.dry_run,
            set_id: target.set_id,
            // Without a boot identity no earlier record is trusted without its hash, which is safe.
            boot: bankfull_sys::boot_id().unwrap_or(part_file::UNKNOWN_BOOT),
            compare: Mutex::new(Some(compare)),
            finished: AtomicBool::new(false),
            completion,
            merge_state: target.merge_handle.map(MergeState::new),
            done: Mutex::default(),
        };
        (receiver, queue)
    }

    /// Runs the control thread until the sender has finished; returns the sender's report.
    pub(crate) fn run_control(&self, reader: &mut ControlReader) -> Result<SideSummary, Error> {
        let mut guard = Guard::new(Role::Receiver);
        loop {
            let message = reader.next()?;
            guard.admit(&message)?;
            match message {
                Message::Finish(report) => {
                    if lock(&self.ledger).outstanding_ids().next().is_some() {
                        let what = "the sender finished with files missing";
                        return Err(WireError::Unexpected(what).into());
                    }
                    self.finished.store(true, Ordering::Relaxed);
                    lock(&self.compare).take();
                    self.merge_state.iter().for_each(MergeState::close);
                    self.completion.release();
                    return Ok(report);
                }
                other => self.on_message(other)?,
            }
        }
    }

    fn on_message(&self, message: Message) -> Result<(), Error> {
        match (message, &self.merge_state) {
            (message @ (Message::Entries(_) | Message::EntriesEnd(_)), Some(merge_state)) => {
                merge_state.enqueue(message);
                Ok(())
            }
            (message, _) => self.act_on(message),
        }
    }

    fn act_on(&self, message: Message) -> Result<(), Error> {
        match message {
            Message::Entries(entries) => self.on_entries(entries)?,
            Message::EntriesEnd(totals) => self.on_entries_end(&totals),
            Message::Problem(problem) => self.stats.on_peer_problem(problem),
            Message::Holes(holes) => self.on_holes(&holes)?,
            Message::FileDigest(FileDigest { file, hash }) => {
                let seal = lock(&self.ledger).on_file_digest(file, hash.map(FileHash))?;
                self.completion.on_completed(self.apply_digest(file, seal));
            }
            Message::EarlyFileDigest(FileDigest { file, hash }) => {
                let seal = lock(&self.ledger).on_early_digest(file, hash.map(FileHash))?;
                self.completion.on_completed(self.apply_digest(file, seal));
            }
            Message::Aborted(aborted) => self.on_aborted(&aborted)?,
            Message::Unchanged(files) => files.into_iter().for_each(|id| self.on_unchanged(id)),
            Message::Differs(files) => files.into_iter().for_each(|id| self.on_differs(id)),
            Message::SenderReport(sight) => self.session.feedback.on_sender_report(sight),
            Message::StreamLost(number) if !self.session.close_stream(number) => {
                self.outbox.post(&Message::StreamEnded(number));
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the sender has nothing more to send.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }

    /// Whether data must survive a power loss file by file.
    fn is_durable(&self) -> bool {
        self.fsync == Fsync::File
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<IncomingFile>> {
        lock(&self.incoming).get(&id).cloned()
    }

    fn path(&self, incoming: &IncomingFile) -> PathBuf {
        self.dirs.path_of(incoming.dir, &incoming.name)
    }

    pub(crate) fn write_failure(&self, incoming: &IncomingFile, error: &io::Error) -> Failure {
        work::path_failure(&self.path(incoming), error)
    }

    /// Returns the part file; opens or creates it at the first block.
    pub(crate) fn open_part(&self, incoming: &IncomingFile) -> Result<Arc<PartFile>, Failure> {
        let mut slot = lock(&incoming.part);
        if let Some(part) = &slot.open {
            return Ok(Arc::clone(part));
        }
        let part = match slot.closed.upgrade() {
            Some(part) => part,
            None => Arc::new(self.make_part(incoming, slot.exists)?),
        };
        slot.open = Some(Arc::clone(&part));
        slot.exists = true;
        drop(slot);
        self.close_excess_parts(incoming.entry.id);
        Ok(part)
    }

    /// Closes the oldest open part file if there are too many. Threads that use it keep it; the
    /// file's next block reopens it.
    fn close_excess_parts(&self, opened: u64) {
        let excess = {
            let mut order = lock(&self.open_order);
            order.push_back(opened);
            if order.len() > MAX_OPEN_PARTS { order.pop_front() } else { None }
        };
        if let Some(other) = excess.and_then(|id| self.find(id)) {
            self.close_part(&other);
        }
    }

    fn make_part(&self, incoming: &IncomingFile, exists: bool) -> Result<PartFile, Failure> {
        let layout = incoming
            .layout()
            .ok_or_else(|| Failure::new(Cause::Protocol, "received a block of a packed file"))?;
        let dir = self.dirs.open(incoming.dir).map_err(|e| self.write_failure(incoming, &e))?;
        let names = PartNames::of(&incoming.name);
        let entry = &incoming.entry;
        let part = if exists {
            let resume =
                |req: &LockRequest<'_>| PartFile::resume(&dir, &names, entry, self.boot, req);
            let found = self.request_lock(OWN_SESSION_TIMEOUT, resume)?;
            self.check_resumed(incoming, found)?
        } else {
            let create = |request: &LockRequest<'_>| {
                PartFile::create(&dir, &names, entry, layout, self.boot, request)
            };
            self.request_lock(Duration::ZERO, create)?
        };
        Ok(part.prepare(entry, self.session.overrides.direct))
    }

    /// Calls `open` with a lock request of this session.
    fn request_lock<T>(&self, timeout: Duration, open: impl FnOnce(&LockRequest<'_>) -> T) -> T {
        let warn = |text| self.warn(PathBuf::new(), text);
        open(&LockRequest { session: &self.session, own_session_timeout: timeout, warn: &warn })
    }

    /// Closes a part file until its blocks arrive, which may be much later; descriptors are few.
    fn close_part(&self, incoming: &IncomingFile) {
        let mut slot = lock(&incoming.part);
        if let Some(part) = slot.open.take() {
            slot.closed = Arc::downgrade(&part);
        }
    }

    /// Checks that a reopened part file holds every block that the ledger counts.
    fn check_resumed(
        &self,
        incoming: &IncomingFile,
        found: Option<(PartFile, VerifiedBlocks)>,
    ) -> Result<PartFile, Failure> {
        let id = incoming.entry.id;
        if let (Some((part, here)), Some(layout)) = (found, incoming.layout()) {
            let here = here.set(layout.count());
            let ledger = lock(&self.ledger);
            let counted = ledger.verified_blocks(id).map(|set| set.runs().collect::<Vec<_>>());
            let is_here = |run: Run| {
                here.next_missing(run.first).is_none_or(|missing| missing >= run.first + run.count)
            };
            if counted.into_iter().flatten().all(is_here) {
                return Ok(part);
            }
        }
        let path = self.path(incoming);
        let text = format!(
            "the received part of {} changed meanwhile: run the same command again",
            path.display()
        );
        Err(Failure::new(Cause::SourceChanged, text))
    }

    /// Records a block that is verified, written and journalled; returns the files it completed.
    fn on_verified(&self, incoming: &IncomingFile, index: u64, hash: BlockHash, len: u32) -> usize {
        let file = incoming.entry.id;
        let mut ledger = lock(&self.ledger);
        if !ledger.on_block_verified(file, index, hash) {
            return 0;
        }
        // Under the lock: the thread with the last block reports the file as finished, which must
        // not overtake this acknowledgement.
        self.outbox.post_ack(file, index);
        let seal = ledger.apply_early_digest(file);
        drop(ledger);
        self.stats.counts.record(&incoming.stats, ByteSource::Transferred, len.into());
        seal.map_or(0, |seal| self.apply_digest(file, seal))
    }

    /// Journals blocks that were copied within this host, and enters them in the ledger.
    pub(crate) fn record_copied(&self, incoming: &IncomingFile, blocks: Range<u64>) {
        let (id, durable) = (incoming.entry.id, self.is_durable());
        let Some(layout) = incoming.layout() else { return };
        for index in blocks {
            let recorded = self.open_part(incoming).and_then(|part| {
                part.record(&Record::Copied { index }, durable)
                    .map_err(|e| self.write_failure(incoming, &e))
            });
            if let Err(failure) = recorded {
                return self.fail_file(id, &failure);
            }
            if lock(&self.ledger).on_block_copied(id, index) {
                self.outbox.post_ack(id, index);
                self.stats.counts.record(
                    &incoming.stats,
                    ByteSource::Transferred,
                    layout.block_len(index),
                );
            }
        }
    }

    /// Stores a small file that was read within this host.
    pub(crate) fn store_small(&self, id: u64, content: &[u8]) {
        let Some(incoming) = self.find(id) else { return };
        let placed = self
            .dirs
            .open(incoming.dir)
            .and_then(|dir| self.store_small_file(&dir, &incoming.name, &incoming.entry, content));
        match placed {
            Ok(()) => {
                self.on_small_stored(&incoming, None);
                self.outbox.post_finished(&[id]);
                self.completion.on_completed(1);
            }
            Err(e) => self.fail_file(id, &self.write_failure(&incoming, &e)),
        }
    }

    /// Adds the stage times of a thread that serves no stream.
    pub(crate) fn add_times(&self, times: &StageTimes) {
        self.stats.add_times(times, Duration::ZERO);
    }

    /// Records a small file that is in place.
    fn on_small_stored(&self, incoming: &IncomingFile, hash: Option<FileHash>) {
        let id = incoming.entry.id;
        lock(&self.ledger).finish(id);
        lock(&self.incoming).remove(&id);
        add(&self.stats.counts.bytes_moved, incoming.entry.size);
        let hash = hash.map(|hash| hash.to_string());
        self.stats.file_copied(self.path(incoming), incoming.entry.size, hash);
    }

    /// Fails a file, and reports it to the sender and the user. Verified blocks stay for a resume.
    pub(crate) fn fail_file(&self, id: u64, failure: &Failure) {
        lock(&self.ledger).give_up(id);
        let Some(incoming) = lock(&self.incoming).remove(&id) else { return };
        self.stats.file_failed(self.path(&incoming), failure);
        self.outbox.post(&Message::Failed(Failed { file: id, failure: failure.clone() }));
    }

    fn on_holes(&self, holes: &FileRuns) -> Result<(), Error> {
        // Opened before the holes are counted: the part file must hold all that the ledger counts.
        let incoming = self.find(holes.file);
        if incoming.as_ref().is_some_and(|incoming| !incoming.entry.sparse) {
            return Err(WireError::Unexpected("holes in a file that was announced without").into());
        }
        let part = incoming.as_ref().map(|incoming| self.open_part(incoming));
        let new_runs = lock(&self.ledger).on_holes(holes)?;
        let (Some(incoming), Some(part)) = (incoming, part) else { return Ok(()) };
        let Some(layout) = incoming.layout() else { return Ok(()) };
        let range = |run: &Run| layout.byte_range(*run);
        let bytes = holes.runs.iter().map(range).map(|range| range.end - range.start).sum();
        self.stats.counts.record(&incoming.stats, ByteSource::Holes, bytes);
        let recorded = part.and_then(|part| {
            let may_continue = || !self.session.is_stopped();
            new_runs
                .iter()
                .try_for_each(|run| {
                    part.clear_holes(&range(run), may_continue)?;
                    part.record(&Record::Holes { run: *run }, false)
                })
                .map_err(|e| self.write_failure(&incoming, &e))
        });
        self.close_part(&incoming);
        if let Err(failure) = recorded {
            self.fail_file(holes.file, &failure);
        }
        Ok(())
    }

    /// Puts a file in place whose digest matches; returns the number of files completed, which the
    /// caller reports to [`Completion`].
    fn apply_digest(&self, id: u64, seal: DigestOutcome) -> usize {
        let hash = match seal {
            DigestOutcome::Complete(hash) => hash,
            DigestOutcome::Ignored | DigestOutcome::Pending => return 0,
            DigestOutcome::Mismatch => {
                let text =
                    "the file's hash differs between the two sides: check the memory of both";
                self.fail_file(id, &Failure::new(Cause::Verification, text));
                return 0;
            }
        };
        let Some(incoming) = self.find(id) else { return 0 };
        if let Err(failure) = self.complete(&incoming) {
            self.fail_file(id, &failure);
            return 0;
        }
        lock(&self.ledger).finish(id);
        lock(&self.incoming).remove(&id);
        let hash = hash.map(|hash| hash.to_string());
        self.stats.file_copied(self.path(&incoming), incoming.entry.size, hash);
        self.outbox.post_finished(&[id]);
        1
    }

    /// Renames a complete part file into place, then removes its journal.
    fn complete(&self, incoming: &IncomingFile) -> Result<(), Failure> {
        let part = self.open_part(incoming)?;
        let names = PartNames::of(&incoming.name);
        self.dirs
            .open(incoming.dir)
            .and_then(|dir| {
                self.commit(&dir, &names, &incoming.name, &incoming.entry, &part.file)
                    .inspect_err(|_| part.invalidate_journal(&dir, &names))?;
                // Another session for the same file may have removed it already.
                part_file::remove_journal(&dir, &names)
            })
            .map_err(|e| self.write_failure(incoming, &e))
    }

    fn on_aborted(&self, aborted: &Aborted) -> Result<(), Error> {
        if !lock(&self.ledger).on_aborted(aborted.file)? {
            return Ok(());
        }
        let Some(incoming) = lock(&self.incoming).remove(&aborted.file) else { return Ok(()) };
        if aborted.will_retry {
            self.stats.counts.files_total.fetch_sub(1, Ordering::Relaxed);
            self.stats.counts.bytes_total.fetch_sub(incoming.entry.size, Ordering::Relaxed);
            self.stats.file_changed(&self.path(&incoming), &incoming.stats);
        } else {
            if aborted.failure.cause() == Cause::SourceVanished
                && let Ok(dir) = self.dirs.open(incoming.dir)
            {
                // A vanished source cannot be resumed.
                remove_part(&dir, &incoming.name);
            }
            self.stats.file_failed(self.path(&incoming), &aborted.failure);
        }
        Ok(())
    }

    /// Keeps a file that the sender found to be equal.
    fn on_unchanged(&self, id: u64) {
        let Some(incoming) = lock(&self.incoming).remove(&id) else { return };
        lock(&self.ledger).finish(id);
        let refreshed = self.dirs.open(incoming.dir).and_then(|dir| {
            remove_part(&dir, &incoming.name);
            if self.dry_run {
                return Ok(());
            }
            self.refresh_metadata(&dir, &incoming.name, &incoming.entry)
        });
        match refreshed {
            Ok(()) => self.stats.file_skipped(self.path(&incoming), incoming.entry.size),
            Err(e) => {
                let failure = self.write_failure(&incoming, &e);
                self.report_problem(self.path(&incoming), failure);
            }
        }
        self.completion.on_completed(1);
    }

    /// Reports a warning to both users.
    fn warn(&self, path: PathBuf, text: String) {
        self.stats.warn(text.clone());
        self.outbox.post(&problem_message(path, Failure::new(Cause::Warning, text)));
    }

    /// Reports a failure to both users that the sender does not know of.
    fn report_problem(&self, path: PathBuf, failure: Failure) {
        self.stats.file_failed(path.clone(), &failure);
        self.outbox.post(&problem_message(path, failure));
    }

    /// Records a file that a dry run found to differ.
    fn on_differs(&self, id: u64) {
        let Some(incoming) = lock(&self.incoming).remove(&id) else { return };
        lock(&self.ledger).finish(id);
        let outcome = crate::base::event::Outcome::WouldCopy;
        self.stats.file_completed(self.path(&incoming), outcome, incoming.entry.size, None);
        self.completion.on_completed(1);
    }

    /// Runs a stream's thread; an error is the loss of the stream, which should be reconnected.
    pub(crate) fn run_stream(&self, number: u32, stream: DataStream) -> io::Result<()> {
        let result = self.session.add_stream(number, stream.socket()).and_then(|()| {
            let result = std::thread::scope(|scope| {
                let socket = stream.socket();
                let hook = FlowHook::attach(&self.session, &self.outbox, number, socket);
                let hook = hook.map(|hook| Box::new(hook) as Box<dyn ReceiveHook>);
                let (pool, window) = (&self.session.buffer_pool, self.session.window_share());
                let stream = DataFrameReader::start(scope, stream, pool, window, hook)?;
                let mut worker = work::Worker::new(self, stream);
                let result = worker.run();
                worker.report_stats();
                result
            });
            self.session.remove_stream(number);
            result
        });
        let Err(error) = result else { return Ok(()) };
        // A damaged header is a fault of the path, like a lost connection; all else the sender's.
        match error.get_ref().and_then(|e| e.downcast_ref::<WireError>()) {
            None | Some(WireError::BadHeader) => {}
            Some(fault) => self.session.fail(fault.clone().into()),
        }
        if self.session.is_stopped() {
            return Ok(());
        }
        self.outbox.post(&Message::StreamEnded(number));
        Err(error)
    }
}

/// Removes the part file and journal of a file that is complete.
fn remove_part(dir: &Dir, name: &OsStr) {
    let names = PartNames::of(name);
    // Usually there is none. The journal first: it must not outlive its part file.
    let _ = part_file::remove_journal(dir, &names);
    let _ = dir.unlink(&names.part);
}
