//! The receiving side of a session: decides what it wants of the announced files, takes in their
//! blocks, and puts them in place. The rules are `bankfull_proto::plan`'s and
//! `bankfull_proto::receive`'s; this drives them with real files and sockets.

mod ending;
mod merge;
mod part;
mod place;
mod want;
mod work;

use crate::counts::{Account, Came, add};
use crate::error::Error;
use crate::gather::claims::Claimant;
use crate::net::ahead::ReadAhead;
use crate::net::control::{ControlReader, Outbox, lock};
use crate::net::stream::DataStream;
use crate::options::Fsync;
use crate::part_names::PartNames;
use crate::session::{Session, Tally, problem};
use crate::tree::DirTable;
use crate::tune::Lane;
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
use ending::Ending;
use merge::Merging;
use part::{Holder, Part};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::Duration;

/// How long to wait for a thread of this session to let go of a part that is opened again. It is
/// closing it.
const OWN_WAIT: Duration = Duration::from_secs(5);

/// Most parts kept open at a time, two descriptors each, or three past the page cache. (ours: a
/// third of the usual soft limit of 1024 at most)
const PARTS_OPEN_MAX: usize = 128;

/// Where a transfer lands, and how it is received.
pub(crate) struct Target {
    /// The destination's directory; `None` in a dry run where it does not exist yet.
    pub(crate) base: Option<Arc<Dir>>,
    /// Its path for messages.
    pub(crate) shown: PathBuf,
    /// The name that the one file gets in place of its own.
    pub(crate) rename: Option<OsString>,
    pub(crate) fsync: Fsync,
    pub(crate) checksum: bool,
    pub(crate) dry_run: bool,
    /// Whether the far side is trusted with set-id bits: over ssh and within a host.
    pub(crate) set_id: bool,
    /// What says what it may put in place, where it is merged with others.
    pub(crate) claimant: Option<Claimant>,
}

/// A file on its way in.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) entry: Entry,
    /// Number of its directory.
    pub(crate) dir: u64,
    /// Its name there.
    pub(crate) name: OsString,
    account: Account,
    part: Mutex<PartSlot>,
}

/// The part of a file, as far as this session has touched it.
#[derive(Debug, Default)]
struct PartSlot {
    open: Option<Arc<Part>>,
    /// Closed by this table, but perhaps still in the hands of a stream's thread.
    closed: Weak<Part>,
    /// It is on the disk, with a journal for this version of the source.
    exists: bool,
}

impl Incoming {
    /// How it is cut; `None` for a file that travels in a pack.
    pub(crate) fn layout(&self) -> Option<Layout> {
        Layout::new(self.entry.size, self.entry.block_bytes).ok()
    }
}

/// Directories of the destination.
#[derive(Debug, Default)]
struct Dirs {
    /// Those announced, in order, for their metadata at the end.
    announced: Vec<Entry>,
    /// Made by this session: nothing can be in them yet but what this session put there.
    fresh: HashSet<u64>,
    /// Could not be made.
    failed: HashSet<u64>,
}

/// The receiving side. Shared by the control thread and the stream threads.
pub(crate) struct Receiver<'a> {
    session: Arc<Session>,
    outbox: Outbox,
    tally: &'a Tally<'a>,
    ledger: Mutex<ReceiveLedger>,
    incoming: Mutex<HashMap<u64, Arc<Incoming>>>,
    /// Files whose parts were opened, the longest ago first.
    open_order: Mutex<VecDeque<u64>>,
    dirs: DirTable,
    seen: Mutex<Dirs>,
    rename: Option<OsString>,
    base: Option<Arc<Dir>>,
    fsync: Fsync,
    checksum: bool,
    dry_run: bool,
    set_id: bool,
    boot: [u8; 16],
    /// Files whose content is to be compared; closed when the sender has finished.
    compare: Mutex<Option<mpsc::Sender<Arc<Incoming>>>>,
    finished: AtomicBool,
    ending: Arc<Ending>,
    merging: Option<Merging>,
    /// Whether the sender was told that all is done.
    done: Mutex<bool>,
}

impl<'a> Receiver<'a> {
    /// A receiver, and the queue of files whose content is to be compared, which
    /// [`run_compare`](Self::run_compare) works off.
    pub(crate) fn new(
        session: Arc<Session>,
        outbox: Outbox,
        tally: &'a Tally<'a>,
        target: Target,
    ) -> (Self, mpsc::Receiver<Arc<Incoming>>) {
        let dirs = DirTable::default();
        match &target.base {
            Some(base) => dirs.pin(0, Arc::clone(base), target.shown),
            None => dirs.plan(target.shown),
        }
        let (compare, queue) = mpsc::channel();
        let ending = Arc::<Ending>::default();
        let released = Arc::clone(&ending);
        session.on_stop(move || released.release());
        let receiver = Self {
            session,
            outbox,
            tally,
            ledger: Mutex::default(),
            incoming: Mutex::default(),
            open_order: Mutex::default(),
            dirs,
            seen: Mutex::default(),
            rename: target.rename,
            base: target.base,
            fsync: target.fsync,
            checksum: target.checksum,
            dry_run: target.dry_run,
            set_id: target.set_id,
            // Without the boot's identity every earlier journal is doubted, which is safe.
            boot: bankfull_sys::boot_id().unwrap_or(part::UNKNOWN_BOOT),
            compare: Mutex::new(Some(compare)),
            finished: AtomicBool::new(false),
            ending,
            merging: target.claimant.map(Merging::new),
            done: Mutex::default(),
        };
        (receiver, queue)
    }

    /// The control thread: takes in the sender's messages until it has finished. Returns its
    /// report.
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
                    self.merging.iter().for_each(Merging::close);
                    self.ending.release();
                    return Ok(report);
                }
                other => self.on_message(other)?,
            }
        }
    }

    fn on_message(&self, message: Message) -> Result<(), Error> {
        match (message, &self.merging) {
            (message @ (Message::Entries(_) | Message::EntriesEnd(_)), Some(merging)) => {
                merging.put(message);
                Ok(())
            }
            (message, _) => self.act_on(message),
        }
    }

    fn act_on(&self, message: Message) -> Result<(), Error> {
        match message {
            Message::Entries(entries) => self.on_entries(entries)?,
            Message::EntriesEnd(totals) => self.on_entries_end(&totals),
            Message::Problem(problem) => self.tally.problem_there(problem),
            Message::Holes(holes) => self.on_holes(&holes)?,
            Message::FileDigest(FileDigest { file, hash }) => {
                let seal = lock(&self.ledger).on_file_digest(file, hash.map(FileHash))?;
                self.ending.said(self.take_seal(file, seal));
            }
            Message::EarlyFileDigest(FileDigest { file, hash }) => {
                let seal = lock(&self.ledger).on_early_digest(file, hash.map(FileHash))?;
                self.ending.said(self.take_seal(file, seal));
            }
            Message::Aborted(aborted) => self.on_aborted(&aborted)?,
            Message::Unchanged(files) => files.into_iter().for_each(|id| self.on_unchanged(id)),
            Message::Differs(files) => files.into_iter().for_each(|id| self.on_differs(id)),
            Message::SenderReport(sight) => self.session.steered.on_sight(sight),
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

    /// Whether what is written must survive a power loss as it comes.
    fn is_durable(&self) -> bool {
        self.fsync == Fsync::File
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Incoming>> {
        lock(&self.incoming).get(&id).cloned()
    }

    fn path(&self, incoming: &Incoming) -> PathBuf {
        self.dirs.path_of(incoming.dir, &incoming.name)
    }

    pub(crate) fn write_failure(&self, incoming: &Incoming, error: &io::Error) -> Failure {
        work::path_failure(&self.path(incoming), error)
    }

    /// The part of a file, opened or made when its first block comes.
    pub(crate) fn open_part(&self, incoming: &Incoming) -> Result<Arc<Part>, Failure> {
        let mut slot = lock(&incoming.part);
        if let Some(part) = &slot.open {
            return Ok(Arc::clone(part));
        }
        let part = match slot.closed.upgrade() {
            Some(part) => part,
            None => Arc::new(self.open_or_make_part(incoming, slot.exists)?),
        };
        slot.open = Some(Arc::clone(&part));
        slot.exists = true;
        drop(slot);
        self.close_excess(incoming.entry.id);
        Ok(part)
    }

    /// Closes the part that was opened the longest ago when there are many. Whoever works on it
    /// still has it; it is opened again when its next block comes.
    fn close_excess(&self, opened: u64) {
        let excess = {
            let mut order = lock(&self.open_order);
            order.push_back(opened);
            if order.len() > PARTS_OPEN_MAX { order.pop_front() } else { None }
        };
        if let Some(other) = excess.and_then(|id| self.find(id)) {
            self.close_part(&other);
        }
    }

    fn open_or_make_part(&self, incoming: &Incoming, exists: bool) -> Result<Part, Failure> {
        let layout = incoming.layout().ok_or_else(|| {
            Failure::new(Cause::Protocol, "a block came of a file that travels in packs")
        })?;
        let dir = self.dirs.open(incoming.dir).map_err(|e| self.write_failure(incoming, &e))?;
        let names = PartNames::of(&incoming.name);
        let entry = &incoming.entry;
        let part = if exists {
            let resume = |holder: &Holder<'_>| Part::resume(&dir, &names, entry, self.boot, holder);
            let found = self.held(OWN_WAIT, resume)?;
            self.still_whole(incoming, found)?
        } else {
            let create =
                |holder: &Holder<'_>| Part::create(&dir, &names, entry, layout, self.boot, holder);
            self.held(Duration::ZERO, create)?
        };
        Ok(part.readied(entry, self.session.overrides.direct))
    }

    /// Opens a part for this session.
    fn held<T>(&self, own_wait: Duration, open: impl FnOnce(&Holder<'_>) -> T) -> T {
        let remark = |text| self.remark(PathBuf::new(), text);
        open(&Holder { session: &self.session, own_wait, remark: &remark })
    }

    /// Closes a part until its blocks come: many files are wanted long before they are sent, and
    /// descriptors are few.
    fn close_part(&self, incoming: &Incoming) {
        let mut slot = lock(&incoming.part);
        if let Some(part) = slot.open.take() {
            slot.closed = Arc::downgrade(&part);
        }
    }

    /// A part opened again must hold every block that the books count on.
    fn still_whole(
        &self,
        incoming: &Incoming,
        found: Option<(Part, VerifiedBlocks)>,
    ) -> Result<Part, Failure> {
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
            "what was received of {} changed meanwhile: run the same command again",
            path.display()
        );
        Err(Failure::new(Cause::SourceChanged, text))
    }

    /// A block is verified, written and journalled.
    fn block_done(&self, incoming: &Incoming, index: u64, hash: BlockHash, len: u32) -> usize {
        let file = incoming.entry.id;
        let mut ledger = lock(&self.ledger);
        if !ledger.on_block_verified(file, index, hash) {
            return 0;
        }
        // Before the lock is let go: whoever has the last block says next that the file is in
        // place.
        self.outbox.ack(file, index);
        let seal = ledger.apply_early_digest(file);
        drop(ledger);
        self.tally.counts.book(&incoming.account, Came::Moved, len.into());
        seal.map_or(0, |seal| self.take_seal(file, seal))
    }

    /// Blocks were copied within this host: journals them and enters them in the books.
    pub(crate) fn on_block_copied(&self, incoming: &Incoming, blocks: Range<u64>) {
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
                self.outbox.ack(id, index);
                self.tally.counts.book(&incoming.account, Came::Moved, layout.block_len(index));
            }
        }
    }

    /// A small file was read within this host: puts it in place.
    pub(crate) fn take_small(&self, id: u64, content: &[u8]) {
        let Some(incoming) = self.find(id) else { return };
        let placed = self
            .dirs
            .open(incoming.dir)
            .and_then(|dir| self.place_small(&dir, &incoming.name, &incoming.entry, content));
        match placed {
            Ok(()) => {
                self.small_done(&incoming, None);
                self.outbox.finished(&[id]);
                self.ending.said(1);
            }
            Err(e) => self.fail_file(id, &self.write_failure(&incoming, &e)),
        }
    }

    /// Adds what a thread measured that has no connection.
    pub(crate) fn add_times(&self, times: &StageTimes) {
        self.tally.add_times(times, Duration::ZERO);
    }

    /// A small file is in place.
    fn small_done(&self, incoming: &Incoming, hash: Option<FileHash>) {
        let id = incoming.entry.id;
        lock(&self.ledger).finish(id);
        lock(&self.incoming).remove(&id);
        add(&self.tally.counts.bytes_moved, incoming.entry.size);
        let hash = hash.map(|hash| hash.to_string());
        self.tally.file_copied(self.path(incoming), incoming.entry.size, hash);
    }

    /// Gives a file up and tells both the sender and the user. Verified blocks stay for a resume.
    pub(crate) fn fail_file(&self, id: u64, failure: &Failure) {
        lock(&self.ledger).give_up(id);
        let Some(incoming) = lock(&self.incoming).remove(&id) else { return };
        self.tally.file_failed(self.path(&incoming), failure);
        self.outbox.post(&Message::Failed(Failed { file: id, failure: failure.clone() }));
    }

    fn on_holes(&self, holes: &FileRuns) -> Result<(), Error> {
        // Opened before the holes are counted: a part must hold what the books count on.
        let incoming = self.find(holes.file);
        if incoming.as_ref().is_some_and(|incoming| !incoming.entry.sparse) {
            return Err(WireError::Unexpected("holes in a file that was announced without").into());
        }
        let part = incoming.as_ref().map(|incoming| self.open_part(incoming));
        let fresh = lock(&self.ledger).on_holes(holes)?;
        let (Some(incoming), Some(part)) = (incoming, part) else { return Ok(()) };
        let Some(layout) = incoming.layout() else { return Ok(()) };
        let range = |run: &Run| layout.byte_range(*run);
        let bytes = holes.runs.iter().map(range).map(|range| range.end - range.start).sum();
        self.tally.counts.book(&incoming.account, Came::AsHoles, bytes);
        let recorded = part.and_then(|part| {
            let goes_on = || !self.session.is_stopped();
            fresh
                .iter()
                .try_for_each(|run| {
                    part.clear_holes(&range(run), goes_on)?;
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

    /// What a seal leads to: a complete file is put in place. How many are, which the sender is
    /// told with what is posted.
    fn take_seal(&self, id: u64, seal: DigestOutcome) -> usize {
        let hash = match seal {
            DigestOutcome::Complete(hash) => hash,
            DigestOutcome::Ignored | DigestOutcome::Pending => return 0,
            DigestOutcome::Mismatch => {
                let text = "the file's hash differs between the two sides: check their memory";
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
        self.tally.file_copied(self.path(&incoming), incoming.entry.size, hash);
        self.outbox.finished(&[id]);
        1
    }

    /// Renames a complete part into place, then removes its journal.
    fn complete(&self, incoming: &Incoming) -> Result<(), Failure> {
        let part = self.open_part(incoming)?;
        let names = PartNames::of(&incoming.name);
        self.dirs
            .open(incoming.dir)
            .and_then(|dir| {
                self.put(&dir, &names, &incoming.name, &incoming.entry, &part.file)
                    .inspect_err(|_| part.disown(&dir, &names))?;
                // A session for the same file may have removed it already.
                part::drop_journal(&dir, &names)
            })
            .map_err(|e| self.write_failure(incoming, &e))
    }

    fn on_aborted(&self, aborted: &Aborted) -> Result<(), Error> {
        if !lock(&self.ledger).on_aborted(aborted.file)? {
            return Ok(());
        }
        let Some(incoming) = lock(&self.incoming).remove(&aborted.file) else { return Ok(()) };
        if aborted.will_retry {
            self.tally.counts.files_total.fetch_sub(1, Ordering::Relaxed);
            self.tally.counts.bytes_total.fetch_sub(incoming.entry.size, Ordering::Relaxed);
            self.tally.changed(&self.path(&incoming), &incoming.account);
        } else {
            if aborted.failure.cause() == Cause::SourceVanished
                && let Ok(dir) = self.dirs.open(incoming.dir)
            {
                // What came of it will never be continued.
                drop_part(&dir, &incoming.name);
            }
            self.tally.file_failed(self.path(&incoming), &aborted.failure);
        }
        Ok(())
    }

    /// The sender compared: the file that is here is the same.
    fn on_unchanged(&self, id: u64) {
        let Some(incoming) = lock(&self.incoming).remove(&id) else { return };
        lock(&self.ledger).finish(id);
        let refreshed = self.dirs.open(incoming.dir).and_then(|dir| {
            drop_part(&dir, &incoming.name);
            if self.dry_run {
                return Ok(());
            }
            self.refresh_metadata(&dir, &incoming.name, &incoming.entry)
        });
        match refreshed {
            Ok(()) => self.tally.file_skipped(self.path(&incoming), incoming.entry.size),
            Err(e) => {
                let failure = self.write_failure(&incoming, &e);
                self.problem(self.path(&incoming), failure);
            }
        }
        self.ending.said(1);
    }

    /// Nothing failed, but the user should know.
    fn remark(&self, path: PathBuf, text: String) {
        self.tally.notice(text.clone());
        self.outbox.post(&problem(path, Failure::new(Cause::Warning, text)));
    }

    /// Something failed that the sender knows nothing of: both users hear of it.
    fn problem(&self, path: PathBuf, failure: Failure) {
        self.tally.file_failed(path.clone(), &failure);
        self.outbox.post(&problem(path, failure));
    }

    /// The sender compared in a dry run: the file would be received.
    fn on_differs(&self, id: u64) {
        let Some(incoming) = lock(&self.incoming).remove(&id) else { return };
        lock(&self.ledger).finish(id);
        let outcome = crate::event::Outcome::WouldCopy;
        self.tally.settled(self.path(&incoming), outcome, incoming.entry.size, None);
        self.ending.said(1);
    }

    /// A stream's thread: takes in what arrives on it. An error is the loss of its connection,
    /// which
    /// should be made again.
    pub(crate) fn run_stream(&self, number: u32, stream: DataStream) -> io::Result<()> {
        let result = self.session.enter_stream(number, stream.socket()).and_then(|()| {
            let result = std::thread::scope(|scope| {
                let lane = Lane::enter(&self.session, &self.outbox, number, stream.socket());
                let (staging, window) = (&self.session.staging, self.session.window_share());
                let stream = ReadAhead::start(scope, stream, staging, window, lane)?;
                let mut worker = work::Worker::new(self, stream);
                let result = worker.run();
                worker.account();
                result
            });
            self.session.leave_stream(number);
            result
        });
        let Err(error) = result else { return Ok(()) };
        // A damaged header is the path's fault like a lost connection; all else is the sender's.
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

/// Removes what an earlier run left of a file that is whole now.
fn drop_part(dir: &Dir, name: &OsStr) {
    let names = PartNames::of(name);
    // Mostly there is none. The journal first: it must not outlive its part.
    let _ = part::drop_journal(dir, &names);
    let _ = dir.unlink(&names.part);
}
