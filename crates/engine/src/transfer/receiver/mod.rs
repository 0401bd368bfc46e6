//! The receiving side of a session: answers announced files, receives their blocks, and puts files
//! in place. `bankfull_proto::plan` and `bankfull_proto::receive` hold the rules; this module adds
//! files, sockets and threads.

mod changes;
mod clear;
mod completion;
mod deletion;
mod differences;
mod dirs;
mod earlier_copy;
mod existing;
mod folded_names;
mod hashing;
mod held_dir;
pub(crate) mod incoming;
mod kept_times;
mod link_groups;
mod links;
mod lost_metadata;
mod merge;
mod metadata;
mod no_content;
mod open_parts;
mod part_file;
mod place;
mod planner;
mod registry;
mod requested;
mod selection;
mod settable;
mod shared_entries;
mod source_names;
pub(crate) mod store;
mod stream_thread;
mod want;
mod want_message;

use crate::base::error::{Error, flush_failure};
use crate::base::sync::lock;
use crate::file_io::roots::ReceiveTarget;
use crate::model::options::Fsync;
use crate::session::Session;
use crate::stats::counters::add;
use crate::stats::session_stats::SessionStats;
use crate::transport::control::{ControlReader, Outbox};
use crate::transport::data_stream::DataStream;
use crate::transport::frame_reader::DataFrameReader;
use crate::transport::receive_hook::ReceiveHook;
use crate::tuning::incast::flow_hook::FlowHook;
use bankfull_proto::hash::FileHash;
use bankfull_proto::session::Role;
use bankfull_proto::sources::RootNames;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Cause, FileDigest, Message, SideSummary};
use changes::ChangeLog;
use completion::Completion;
use deletion::{Deletion, room_maker};
use dirs::DestinationDirs;
use hashing::{HashJob, HashQueue};
use merge::MergeQueue;
use open_parts::PartFiles;
use place::Placer;
use registry::FileRegistry;
use requested::RequestedNames;
use selection::Selection;
use source_names::SourceNames;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use store::FileStore;
use want::{HeldFiles, WantDecider};
pub(super) use want_message::make_want;

/// The receiving side; shared by the control thread and the stream threads.
pub(crate) struct Receiver<'a> {
    registry: Arc<FileRegistry<'a>>,
    pub(crate) store: FileStore<'a>,
    wants: WantDecider<'a>,
    completion: Arc<Completion>,
    finished: AtomicBool,
    /// True if `Done` is sent.
    done: Mutex<Option<bool>>,
    /// True if the file system is flushed at the end.
    syncs_at_end: bool,
}

impl<'a> Receiver<'a> {
    /// Returns a receiver, and the queue of jobs for [`run_hashing`](Self::run_hashing).
    pub(crate) fn new(
        session: Arc<Session>,
        outbox: Outbox,
        stats: &'a SessionStats<'a>,
        mut target: ReceiveTarget,
    ) -> (Self, mpsc::Receiver<HashJob>) {
        let (fsync, comparison, dry_run) = (target.fsync, target.comparison, target.dry_run);
        let completion = Arc::<Completion>::default();
        let released = Arc::clone(&completion);
        session.on_stop(move || released.release());
        let dirs = Arc::new(DestinationDirs::new(&mut target));
        let base = target.base.clone();
        add(&stats.counts.dirs_created, u64::from(target.is_new && base.is_some()));
        let placer = Placer::new(Arc::clone(&dirs), fsync, dry_run);
        let placer = Arc::new(placer);
        let changes = ChangeLog::new(outbox.clone(), stats, Arc::clone(&dirs), &target);
        let ends = (Arc::clone(&completion), changes, dry_run);
        let filters = std::mem::take(&mut target.requested.filters);
        target.requested.filters = filters.with_root(&target.filter_root);
        let room = room_maker(&target.requested, &target.sources);
        let registry = Arc::new(FileRegistry::new(session, outbox, stats, dirs, ends, room));
        let parts = Arc::new(PartFiles::new(Arc::clone(&registry), target.resume_policy));
        let (hashing, queue) = HashQueue::new();
        let wants = WantDecider {
            registry: Arc::clone(&registry),
            parts: Arc::clone(&parts),
            placer: Arc::clone(&placer),
            completion: Arc::clone(&completion),
            hashing,
            selection: Selection {
                root: RootNames::of(&target.sources),
                filters: target.requested.filters,
                names: RequestedNames::new(target.requested.names),
                walk: target.requested.walk,
                comparison,
            },
            held: HeldFiles::default(),
            source_names: target
                .requested
                .delete
                .map(|rules| Mutex::new(Some((rules, SourceNames::new())))),
            merge: target.merge_handle.map(|handle| MergeQueue::new(handle, base.as_deref())),
            dry_run,
        };
        let store = FileStore::new(
            Arc::clone(&registry),
            parts,
            placer,
            Arc::clone(&completion),
            (fsync, dry_run, target.output),
        );
        let receiver = Self {
            registry,
            store,
            wants,
            completion,
            finished: AtomicBool::new(false),
            done: Mutex::default(),
            syncs_at_end: fsync == Fsync::End && !dry_run,
        };
        (receiver, queue)
    }

    /// Reports warnings about earlier copies to the users on both sides.
    fn warn_of_earlier(&self) {
        for text in &self.registry.dirs.earlier.warnings {
            self.registry.warn(PathBuf::new(), text.clone());
        }
    }

    /// Runs the control thread until the sender has finished; returns the sender's report.
    pub(crate) fn run_control(&self, reader: &mut ControlReader) -> Result<SideSummary, Error> {
        let mut guard = self.registry.session.guard(Role::Receiver);
        self.warn_of_earlier();
        loop {
            let message = reader.next()?;
            guard.admit(&message)?;
            match message {
                Message::Finish(report) => {
                    if self.registry.ledger().outstanding_ids().next().is_some() {
                        let what = "the sender finished with files missing";
                        return Err(WireError::Unexpected(what).into());
                    }
                    self.finished.store(true, Ordering::Relaxed);
                    self.wants.close();
                    self.completion.release();
                    return Ok(report);
                }
                other => self.on_message(other)?,
            }
        }
    }

    fn on_message(&self, message: Message) -> Result<(), Error> {
        let (registry, store) = (&self.registry, &self.store);
        match message {
            Message::Entries(_) | Message::EntriesEnd(_) | Message::CompletedDirs(_) => {
                self.wants.on_announcement(message)?;
            }
            Message::LeftOut(names) => self.wants.on_left_out(&names)?,
            Message::Accounts(accounts) => {
                let is_stopped = || registry.session.is_stopped();
                registry.dirs.metadata.on_accounts(accounts, is_stopped)?;
            }
            Message::ListRequest => self.wants.on_list_request()?,
            Message::Problem(problem) => registry.stats.on_peer_problem(problem),
            Message::Holes(holes) => {
                store.on_holes(&holes)?;
                self.wants.check_outstanding()?;
            }
            Message::FileEnd(end) => store.on_file_end(end)?,
            Message::FileDigest(FileDigest { file, hash }) => {
                let outcome = registry.ledger().on_file_digest(file, hash.map(FileHash))?;
                store.on_digest(file, outcome);
            }
            Message::EarlyFileDigest(FileDigest { file, hash }) => {
                let outcome = registry.ledger().on_early_digest(file, hash.map(FileHash))?;
                store.on_digest(file, outcome);
            }
            Message::Aborted(aborted) => store.on_aborted(&aborted)?,
            Message::Unchanged(files) => files.into_iter().for_each(|id| store.on_unchanged(id)),
            Message::Differs(files) => files.into_iter().for_each(|id| store.on_differs(id)),
            Message::RateLimit(limit) => registry.session.on_rate_limit(limit)?,
            Message::SenderReport(report) => registry.session.feedback.on_sender_report(report),
            Message::StreamLost(number) if !registry.session.close_stream(number) => {
                registry.outbox.post(&Message::StreamEnded(number));
            }
            _ => {}
        }
        Ok(())
    }

    /// True if the sender has nothing more to send.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }

    /// Hashes existing files, and blocks that an earlier run left, until the session ends.
    pub(crate) fn run_hashing(&self, queue: mpsc::Receiver<HashJob>) {
        hashing::run(&self.store, &queue);
    }

    /// Waits for part files that other sessions hold, each for `idle_timeout` at most.
    pub(crate) fn run_held(&self, idle_timeout: Duration) {
        self.wants.run_held(idle_timeout);
    }

    /// Handles announcements of a merged session; returns immediately if nothing is merged.
    pub(crate) fn run_merge(&self) {
        self.wants.run_merge();
    }

    /// Finishes as soon as all files are completed, unless the sender finishes first.
    pub(crate) fn finish_early(&self) {
        if self.completion.wait() {
            self.finish();
        }
    }

    /// Sets the directories' metadata and sends `Done`, once; a second caller waits for the first.
    ///
    /// Returns false after a stop: without `Done`, the sender keeps its sources.
    pub(crate) fn finish(&self) -> bool {
        let mut done = lock(&self.done);
        if let Some(is_done) = *done {
            return is_done;
        }
        // A sender without files finishes before its directories are handled.
        self.wants.wait_merged();
        let registry = &self.registry;
        let report = |path, failure| registry.report_problem(path, failure);
        let is_stopped = || registry.session.is_stopped();
        // After a stop, the next run sets what is left.
        let defers = |entry: &_| is_stopped() || self.wants.defers_metadata(entry);
        registry.dirs.set_metadata(defers, report);
        self.delete_extraneous();
        registry.changes.flush();
        self.report_losses();
        if self.syncs_at_end
            && !is_stopped()
            && let Err(e) = registry.dirs.sync_filesystem()
        {
            registry.report_problem(registry.dirs.path(0), flush_failure(&e));
        }
        let is_done = !is_stopped();
        if is_done {
            registry.outbox.post(&Message::Done(registry.stats.receiver_report()));
        }
        *done = Some(is_done);
        is_done
    }

    /// Deletes what the source does not have.
    fn delete_extraneous(&self) {
        let registry = &self.registry;
        let names = self.wants.source_names.as_ref().and_then(|names| lock(names).take());
        if let Some(deleted) = names.filter(|_| !registry.session.is_stopped()) {
            let dry_run = registry.dry_run;
            Deletion::new(registry, deleted, dry_run).run(&self.wants.selection.filters);
        }
    }

    /// Reports metadata that was not kept to the users on both sides.
    fn report_losses(&self) {
        for loss in self.registry.dirs.metadata.losses() {
            match loss.cause() {
                Cause::Warning => self.registry.warn(PathBuf::new(), loss.text),
                _ => self.registry.report_problem(self.registry.dirs.path(0), loss),
            }
        }
    }

    /// Runs a stream's thread; an error is the loss of the stream, which should be reconnected.
    pub(crate) fn run_stream(&self, number: u32, mut stream: DataStream) -> io::Result<()> {
        let session = &self.registry.session;
        stream.set_shared_limit(session.receive_limit.clone());
        let result = session.add_stream(number, stream.socket()).and_then(|()| {
            let result = std::thread::scope(|scope| {
                let socket = stream.socket();
                let hook = FlowHook::attach(session, &self.registry.outbox, number, socket);
                let hook = hook.map(|hook| Box::new(hook) as Box<dyn ReceiveHook>);
                let (pool, window) = (&session.buffer_pool, session.window_share());
                let stream = DataFrameReader::start(scope, stream, pool, window, hook)?;
                let mut worker = stream_thread::Worker::new(&self.store, stream);
                let result = worker.run();
                worker.report_stats();
                result
            });
            session.remove_stream(number);
            result
        });
        let Err(error) = result else { return Ok(()) };
        // A damaged header is a fault of the path, like a lost connection; all else the sender's.
        match error.get_ref().and_then(|e| e.downcast_ref::<WireError>()) {
            None | Some(WireError::BadHeader) => {}
            Some(fault) => session.fail(fault.clone().into()),
        }
        if session.is_stopped() {
            return Ok(());
        }
        let error = match error.downcast::<Error>() {
            // Threads or memory are short, and no other stream carries data.
            Ok(shortage) if session.stream_count() == 0 => {
                session.fail(shortage);
                return Ok(());
            }
            Ok(shortage) => io::Error::other(shortage),
            Err(lost) => lost,
        };
        self.registry.outbox.post(&Message::StreamEnded(number));
        Err(error)
    }
}
