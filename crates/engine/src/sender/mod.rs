//! The sending side of a session: walks the sources, hands out work to the streams, and settles
//! every file with the receiver. The rules are `bankfull_proto::send`'s; this drives them with real
//! files and sockets.

pub(crate) mod files;
pub(crate) mod walk;
mod work;

use crate::counts::{Came, add, read};
use crate::error::Error;
use crate::event::Outcome;
use crate::net::control::{ControlReader, Outbox, lock};
use crate::net::stream::DataStream;
use crate::session::{Session, Tally};
use bankfull_proto::blocks::Layout;
use bankfull_proto::limits::{ENTRY_BATCH_TARGET_BYTES, MAX_ENTRIES_PER_BATCH, MAX_RUNS};
use bankfull_proto::send::{NextStep, SendLedger, Work};
use bankfull_proto::session::{Guard, Role};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{
    Aborted, Cause, Entry, EntryKind, Failure, FileDigest, FileRuns, Message, Problem, SideSummary,
    Totals, Verdict, Want,
};
use files::{SourceFile, SourceFiles, Trouble, entry_of};
use std::ffi::OsStr;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long announced entries may wait for more to join them. [ours: well below a WAN's RTT]
const BATCH_AGE_MAX: Duration = Duration::from_millis(50);

/// Bytes read and hashed at a time in a dry run.
const DRY_PIECE_BYTES: usize = 256 << 10;

/// Longest wait before looking whether the session was stopped.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// How long a file that is being cut is waited for, and how often it is looked at. (measured: ext4
/// takes 19 to 90 ms to cut 300 MB; ours: far longer, and well below a time-out)
const CUT_MAX: Duration = Duration::from_secs(2);
const CUT_LOOK: Duration = Duration::from_millis(10);

/// A stream takes a block ahead while so many of its file are left for each stream: at the end
/// others seldom wait for one that a slow stream has not begun to send. [ours: at half the rate of
/// others it sends two while each of them sends four]
const LEFT_PER_STREAM: u64 = 4;

/// How often a file may change while it is read before it is reported. [issue: "retried once"]
const RETRIES_MAX: u32 = 1;

/// Entries on their way into a message.
struct Announcer {
    next_id: u64,
    batch: Vec<Entry>,
    bytes: usize,
    since: Instant,
}

/// The sending side. Shared by the walk, the control thread and the stream threads.
pub(crate) struct Sender<'a> {
    session: &'a Session,
    outbox: Outbox,
    tally: &'a Tally<'a>,
    pub(crate) files: SourceFiles,
    announcer: Mutex<Announcer>,
    ledger: Mutex<SendLedger>,
    changed: Condvar,
    /// Some files may be settled: for the walk, where the receiver bounds their number.
    settled: Condvar,
    guard: Mutex<Guard>,
    dry_run: bool,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        tally: &'a Tally<'a>,
        dry_run: bool,
    ) -> Self {
        let announcer =
            Announcer { next_id: 1, batch: Vec::new(), bytes: 0, since: Instant::now() };
        Self {
            session,
            outbox,
            tally,
            files: SourceFiles::default(),
            announcer: Mutex::new(announcer),
            ledger: Mutex::default(),
            changed: Condvar::new(),
            settled: Condvar::new(),
            guard: Mutex::new(Guard::new(Role::Sender)),
            dry_run,
        }
    }

    /// The control thread: takes in the receiver's messages until it is done. Returns its
    /// report.
    pub(crate) fn run_control(&self, reader: &mut ControlReader) -> Result<SideSummary, Error> {
        loop {
            let message = reader.next()?;
            lock(&self.guard).admit(&message)?;
            match message {
                // It may come unasked. The finish follows all the same.
                Message::Done(report) if self.is_complete() => return Ok(report),
                Message::Done(_) => {
                    return Err(WireError::Unexpected("the receiver is done too early").into());
                }
                other => self.on_message(other)?,
            }
            self.notify_if_settled();
        }
    }

    /// Waits until every file is settled and every stream has ended, and tells the receiver.
    pub(crate) fn finish(&self, join_streams: impl FnOnce()) {
        let mut ledger = lock(&self.ledger);
        while !ledger.is_complete() && !self.session.is_stopped() {
            // The time-out is for a stop, which does not know this lock.
            let waited = self.changed.wait_timeout(ledger, WAIT_MAX);
            ledger = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(ledger);
        join_streams();
        self.outbox.wait_pumps();
        if !self.session.is_stopped() {
            lock(&self.guard).on_finish_sent();
            self.outbox.post(&Message::Finish(self.tally.report()));
        }
    }

    fn on_message(&self, message: Message) -> Result<(), Error> {
        match message {
            Message::Wants(wants) => {
                let mut is_work = false;
                for want in &wants {
                    is_work |= self.on_want(want)?;
                }
                // Once for all of them: a stream that is woken finds enough for a pack.
                if is_work {
                    self.changed.notify_all();
                }
            }
            Message::Have(have) => self.with_ledger(|ledger| ledger.on_have(&have))?,
            Message::Acks(acks) => acks.iter().try_for_each(|ack| self.on_ack(ack))?,
            Message::Problem(Problem { path, failure }) => {
                self.tally.problem_there(Problem { path, failure: said_there(&failure) });
            }
            Message::Nack(nack) => {
                // A file written to between hashing and sending arrives damaged, too.
                if let Some(file) = self.files.find(nack.file)
                    && file.entry.block_bytes != 0
                    && let Err(trouble) =
                        self.files.open(&file).and_then(|open| self.files.check(&file, &open))
                {
                    self.trouble(nack.file, trouble);
                    return Ok(());
                }
                match self.with_ledger(|ledger| ledger.on_nack(nack.file, nack.index))? {
                    NextStep::GiveUp => self.give_up_unverifiable(nack.file),
                    _ => self.changed.notify_all(),
                }
            }
            Message::Finished(files) => {
                for id in files {
                    self.on_finished(id)?;
                }
            }
            Message::Failed(failed) => {
                self.with_ledger(|ledger| ledger.drop_file(failed.file));
                self.fail_there(failed.file, &failed.failure);
            }
            Message::RateRequest(pace) => {
                self.session.steered.on_pace(pace);
                if let Some(streams) = pace.streams {
                    self.session.want_streams(streams);
                    self.changed.notify_all();
                }
            }
            Message::Credits(asks) => {
                if let Some(asked) = &self.session.asked {
                    asked.ask(&asks);
                }
            }
            Message::TrainRequest(packets) => self.session.steered.on_trains(packets),
            Message::ReceiverReport(course) => self.session.steered.on_course(course),
            Message::StreamEnded(number) => {
                self.session.close_stream(number);
                if self.with_ledger(|ledger| ledger.on_stream_ended(number)) {
                    self.changed.notify_all();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes in what is wanted of a file. True when there is work for the streams.
    fn on_want(&self, want: &Want) -> Result<bool, Error> {
        let file = self.files.find(want.file);
        let mut holes = 0;
        if let Some(file) = &file
            && matches!(want.verdict, Verdict::Send | Verdict::IfDiffers)
            && file.entry.sparse
        {
            match self.announce_holes(file)? {
                Some(bytes) => holes = bytes,
                None => return Ok(false),
            }
        }
        let next = self.with_ledger(|ledger| ledger.on_want(want))?;
        let Some(file) = file else { return Ok(false) };
        if let Some(there) = self.with_ledger(|ledger| ledger.bytes_at_receiver(want.file)) {
            self.tally.counts.book(&file.account, Came::Resumed, there.saturating_sub(holes));
            self.tally.counts.book(&file.account, Came::AsHoles, holes);
        }
        match next {
            NextStep::SendDigest => self.seal(&file),
            NextStep::Completed => self.settle_unsent(&file, want),
            _ => {}
        }
        Ok(next == NextStep::Work)
    }

    /// Tells the receiver which blocks are holes. `None` when the file is not to be had, else how
    /// many bytes they hold.
    fn announce_holes(&self, file: &SourceFile) -> Result<Option<u64>, Error> {
        match self.files.holes(file) {
            Ok(holes) => {
                self.with_ledger(|ledger| ledger.on_holes(&holes))?;
                for runs in holes.runs.chunks(MAX_RUNS) {
                    let part = FileRuns { file: holes.file, runs: runs.to_vec() };
                    self.outbox.post(&Message::Holes(part));
                }
                Ok(Some(bytes_in(&file.entry, &holes)))
            }
            Err(trouble) => {
                self.trouble(file.entry.id, trouble);
                Ok(None)
            }
        }
    }

    fn settle_unsent(&self, file: &SourceFile, want: &Want) {
        self.files.remove(want.file);
        let path = self.files.path(file);
        let is_file = file.entry.kind == EntryKind::File;
        match (want.verdict, &want.failure) {
            (Verdict::Refused, Some(failure)) => self.tally.file_failed(path, &said_there(failure)),
            (Verdict::Refused, None) => {
                let text = format!("{} was refused by the far side", path.display());
                self.tally.file_failed(path, &Failure::new(Cause::Other, text));
            }
            (Verdict::Skip, _) if is_file => self.tally.file_skipped(path, file.entry.size),
            (Verdict::WouldSend, _) => {
                self.tally.settled(path, Outcome::WouldCopy, file.entry.size, None);
            }
            _ => {}
        }
    }

    fn on_ack(&self, ack: &FileRuns) -> Result<(), Error> {
        let next = self.with_ledger(|ledger| ledger.on_acks(ack))?;
        if let Some(file) = self.files.find(ack.file) {
            self.tally.counts.book(&file.account, Came::Moved, bytes_in(&file.entry, ack));
            if next == NextStep::SendDigest {
                self.seal(&file);
            }
        }
        Ok(())
    }

    fn on_finished(&self, id: u64) -> Result<(), Error> {
        let hash = self.with_ledger(|ledger| ledger.file_hash(id));
        self.with_ledger(|ledger| ledger.on_finished(id))?;
        let Some(file) = self.files.remove(id) else { return Ok(()) };
        if file.entry.kind == EntryKind::File {
            if file.entry.block_bytes == 0 {
                add(&self.tally.counts.bytes_moved, file.entry.size);
            }
            let hash = hash.map(|h| h.to_string());
            self.tally.file_copied(self.files.path(&file), file.entry.size, hash);
        } else {
            add(&self.tally.counts.links_made, 1);
        }
        Ok(())
    }

    /// Every block is there: if the source is still what it was, the receiver may use the file.
    fn seal(&self, file: &SourceFile) {
        let id = file.entry.id;
        let checked = self.files.open(file).and_then(|open| self.files.check(file, &open));
        match checked {
            Ok(()) => {
                let hash = self.with_ledger(|ledger| ledger.file_hash(id)).map(|h| h.0);
                self.outbox.post(&Message::FileDigest(FileDigest { file: id, hash }));
            }
            Err(trouble) => self.trouble(id, trouble),
        }
    }

    /// Every block was read: if the source is still what it was, the receiver may use the file as
    /// soon as all of it is there.
    fn send_early_digest(&self, file: &SourceFile, opened: &std::fs::File) {
        let id = file.entry.id;
        // What has changed is told when all is there, as ever.
        if self.files.check(file, opened).is_err() {
            return;
        }
        self.with_ledger(|ledger| {
            if ledger.record_early_digest(id) {
                let hash = ledger.file_hash(id).map(|hash| hash.0);
                // Before the lock is let go: another seal may follow, and must not come first.
                self.outbox.post(&Message::EarlyFileDigest(FileDigest { file: id, hash }));
            }
        });
    }

    /// In a dry run there are no streams, but comparisons are still to be made.
    pub(crate) fn run_dry(&self) {
        if !self.dry_run {
            return;
        }
        let mut buffer = vec![0; DRY_PIECE_BYTES];
        while let Ok(Some(work)) = self.next_work(0, || Ok(())) {
            if let Work::Compare { file, hash } = work
                && let Some(file) = self.files.find(file)
            {
                match self.files.hash_whole(&file, &mut buffer) {
                    Ok(ours) => self.on_compared(&file, ours == hash),
                    Err(trouble) => self.trouble(file.entry.id, trouble),
                }
            }
        }
    }

    /// A comparison is made: equal content settles the file, else it is sent.
    pub(crate) fn on_compared(&self, file: &SourceFile, equal: bool) {
        let id = file.entry.id;
        if self.dry_run && !equal {
            self.with_ledger(|ledger| ledger.drop_file(id));
            self.files.remove(id);
            self.outbox.post(&Message::Differs(vec![id]));
            let path = self.files.path(file);
            self.tally.settled(path, Outcome::WouldCopy, file.entry.size, None);
            return self.notify_if_settled();
        }
        match self.with_ledger(|ledger| ledger.on_compared(id, equal)) {
            NextStep::Completed => {
                self.files.remove(id);
                self.outbox.post(&Message::Unchanged(vec![id]));
                self.tally.file_skipped(self.files.path(file), file.entry.size);
                self.notify_if_settled();
            }
            NextStep::SendDigest => self.seal(file),
            _ => self.changed.notify_all(),
        }
    }

    fn give_up_unverifiable(&self, id: u64) {
        if let Some(file) = self.files.find(id) {
            let text = format!(
                "{} arrived damaged several times: check the memory of both hosts",
                self.files.path(&file).display()
            );
            self.trouble(id, Trouble::Failed(Failure::new(Cause::Verification, text)));
        }
    }

    /// A file cannot go on: announce it again when it only changed, else give it up.
    pub(crate) fn trouble(&self, id: u64, trouble: Trouble) {
        let Some(file) = self.files.find(id) else { return };
        let (failure, will_retry) = match trouble {
            Trouble::Failed(failure) => (failure, false),
            Trouble::Changed if self.is_gone(&file) => {
                let text =
                    format!("{} vanished while it was read", self.files.path(&file).display());
                (Failure::new(Cause::SourceVanished, text), false)
            }
            Trouble::Changed => {
                let path = self.files.path(&file);
                let text = format!(
                    "{} changed while it was read: copy it again when nobody writes to it",
                    path.display()
                );
                (Failure::new(Cause::SourceChanged, text), file.attempt < RETRIES_MAX)
            }
        };
        let Some(file) = self.files.remove(id) else { return };
        let entry = if will_retry { self.look_again(&file) } else { None };
        let will_retry = entry.is_some();
        // The receiver lets go of the file before it hears of it anew; the books forget it last, so
        // that nothing seems settled in between.
        let aborted = Aborted { file: id, failure: failure.clone(), will_retry };
        self.outbox.post(&Message::Aborted(aborted));
        match entry {
            Some(entry) => {
                self.tally.changed(&self.files.path(&file), &file.account);
                let total = &self.tally.counts.bytes_total;
                total.fetch_sub(file.entry.size, Ordering::Relaxed);
                add(total, entry.size);
                self.announce(entry, file.dir, &file.name, file.attempt + 1);
                self.flush_announced();
            }
            None => self.tally.file_failed(self.files.path(&file), &failure),
        }
        self.with_ledger(|ledger| ledger.drop_file(id));
        self.notify_if_settled();
    }

    /// Whether there is nothing of a file's name any more.
    fn is_gone(&self, file: &SourceFile) -> bool {
        let stat = self.files.dirs.open(file.dir).and_then(|dir| dir.stat(&file.name));
        stat.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    }

    /// What a changed file is now; `None` when it is not a file any more. One that is being cut has
    /// its new size before its new times, by as long as it takes to free what was cut off: these
    /// are waited for, or it would be found changed once more.
    fn look_again(&self, file: &SourceFile) -> Option<Entry> {
        let before = &file.entry;
        let until = Instant::now() + CUT_MAX;
        loop {
            let stat = self.files.dirs.open(file.dir).and_then(|dir| dir.stat(&file.name)).ok()?;
            let now = entry_of(&stat, &file.name, before.parent)?;
            let times = |entry: &Entry| (entry.mtime_secs, entry.mtime_nanos, entry.version);
            let is_being_cut = now.size != before.size && times(&now) == times(before);
            if !is_being_cut || Instant::now() >= until || self.session.is_stopped() {
                return Some(now).filter(|entry| entry.kind == EntryKind::File);
            }
            std::thread::sleep(CUT_LOOK);
        }
    }

    /// The receiver failed a file.
    fn fail_there(&self, id: u64, failure: &Failure) {
        if let Some(file) = self.files.remove(id) {
            self.tally.file_failed(self.files.path(&file), &said_there(failure));
        }
        self.notify_if_settled();
    }

    /// Whether nothing is left to send.
    pub(crate) fn is_complete(&self) -> bool {
        self.with_ledger(|ledger| ledger.is_complete())
    }

    /// Wakes the walk, and the streams and the finish when nothing is left to do.
    pub(crate) fn notify_if_settled(&self) {
        self.settled.notify_all();
        if self.with_ledger(|ledger| ledger.is_complete()) {
            self.changed.notify_all();
        }
    }

    /// Gives an entry its number, enters it in the books, and queues it for the receiver.
    fn announce(&self, mut entry: Entry, dir: u64, name: &OsStr, attempt: u32) -> u64 {
        if let Some(block) = self.session.overrides.block.filter(|_| entry.block_bytes != 0) {
            entry.block_bytes = Layout::with_block_bytes(entry.size, block.0).block_bytes();
        }
        let mut announcer = lock(&self.announcer);
        let id = announcer.next_id;
        announcer.next_id += 1;
        entry.id = id;
        if entry.kind != EntryKind::Dir {
            self.files.insert(entry.clone(), dir, name, attempt);
            if let Err(e) = self.with_ledger(|ledger| ledger.announce(&entry)) {
                self.session.fail(e.into());
            }
        }
        if announcer.batch.is_empty() {
            announcer.since = Instant::now();
        }
        announcer.bytes += 64 + entry.name.len() + entry.target.len();
        announcer.batch.push(entry);
        let full = announcer.bytes >= ENTRY_BATCH_TARGET_BYTES
            || announcer.batch.len() >= MAX_ENTRIES_PER_BATCH
            || announcer.since.elapsed() >= BATCH_AGE_MAX;
        if full {
            self.post_batch(&mut announcer);
        }
        id
    }

    fn flush_announced(&self) {
        self.post_batch(&mut lock(&self.announcer));
    }

    /// Posts the batch while the announcer is held, so that numbers ascend on the wire. That must
    /// not wait: the control thread comes here too. The walk waits before.
    fn post_batch(&self, announcer: &mut Announcer) {
        if !announcer.batch.is_empty() {
            announcer.bytes = 0;
            let batch = std::mem::take(&mut announcer.batch);
            self.outbox.post(&Message::Entries(batch));
        }
    }

    fn totals(&self) -> Totals {
        let c = &self.tally.counts;
        Totals {
            files: read(&c.files_total),
            dirs: read(&c.dirs),
            symlinks: read(&c.symlinks),
            bytes: read(&c.bytes_total),
            special_files_skipped: read(&c.special_files_skipped),
        }
    }

    fn with_ledger<T>(&self, act: impl FnOnce(&mut SendLedger) -> T) -> T {
        act(&mut lock(&self.ledger))
    }

    /// Waits for something to do; `None` when everything is settled or the session stopped.
    /// `before_waiting` runs once if there is nothing at hand.
    pub(crate) fn next_work(
        &self,
        stream: u32,
        before_waiting: impl FnOnce() -> std::io::Result<()>,
    ) -> std::io::Result<Option<Work>> {
        if self.session.is_stopped() {
            return Ok(None);
        }
        let work = |ledger: &mut SendLedger| {
            if self.session.is_resting(stream) { None } else { ledger.next_work(stream) }
        };
        if let Some(work) = self.with_ledger(work) {
            return Ok(Some(work));
        }
        before_waiting()?;
        let mut ledger = lock(&self.ledger);
        loop {
            if self.session.is_stopped() || ledger.is_complete() {
                return Ok(None);
            }
            if let Some(work) = work(&mut ledger) {
                return Ok(Some(work));
            }
            // The time-out is for a stop, which does not know this lock.
            let waited = self.changed.wait_timeout(ledger, WAIT_MAX);
            ledger = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The block of a file that a stream will send next, if that is known: it is the stream's then.
    pub(crate) fn prefetch_block(&self, stream: u32, file: u64) -> Option<u64> {
        if self.session.is_resting(stream) {
            return None;
        }
        let least = u64::from(self.session.wanted_streams()) * LEFT_PER_STREAM;
        self.with_ledger(|ledger| ledger.prefetch_block(stream, file, least))
    }

    /// A stream's thread: sends what there is to send. An error is the loss of its connection,
    /// which
    /// should be made again.
    pub(crate) fn run_stream(&self, number: u32, mut stream: DataStream) -> std::io::Result<()> {
        if !self.session.ready_to_send(number, &mut stream) {
            return Ok(());
        }
        self.session.enter_stream(number, stream.socket())?;
        let mut worker = work::Worker::new(self, number, stream);
        let result = worker.run();
        worker.finish();
        self.session.leave_stream(number);
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

/// What the receiver says of the destination, so that nobody takes it for the source.
fn said_there(failure: &Failure) -> Failure {
    match failure.cause() {
        Cause::Warning => failure.clone(),
        cause => Failure::new(cause, format!("the far side says: {}", failure.text)),
    }
}

/// Content bytes in runs of blocks.
fn bytes_in(entry: &Entry, runs: &FileRuns) -> u64 {
    Layout::new(entry.size, entry.block_bytes).map_or(0, |layout| {
        runs.runs
            .iter()
            .flat_map(|run| run.first..run.first.saturating_add(run.count))
            .take_while(|&index| index < layout.count())
            .map(|index| layout.block_len(index))
            .sum()
    })
}
