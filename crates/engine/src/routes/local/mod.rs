//! Copies within this host. Both sides of a session run in this process, with the same messages,
//! rules and journal as between hosts. Only the data takes a shortcut: blocks are reflinked or
//! copied by the kernel, without data streams.

mod mover;
mod own_copies;

use super::client::{self, path_bytes};
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{Event, EventSink, NoEvents, Route, Summary};
use crate::base::sync::Latch;
use crate::base::threads::try_spawn_joinable;
use crate::file_io::ordered_output::check_is_file;
use crate::file_io::path_root::ReceiveOptions;
use crate::file_io::root::PathRoot;
use crate::file_io::roots::{
    ChangeReader, ItemNames, MetadataTarget, ReceiveTarget, SendRules, SourceItem, sources_of,
};
use crate::model::metadata::{Metadata, Permits};
use crate::model::options::DirectIo;
use crate::model::overrides::Overrides;
use crate::model::transfer_options::{Purpose, TransferOptions};
use crate::run::context::RunContext;
use crate::run::driver::{SessionRunner, report_destinations};
use crate::session::Session;
use crate::session::send_setup::SHORT_PATH_FILES;
use crate::stats::counters::add;
use crate::stats::session_stats::{SessionStats, SideSummaries, UserLimits};
use crate::transfer::lister::Lister;
use crate::transfer::receiver::Receiver;
use crate::transfer::sender::Sender;
use crate::transport::control::{ConnectionLoss, ControlReader, Outbox};
use bankfull_proto::names::components;
use bankfull_proto::part::ResumePolicy;
use own_copies::refuse_loss;
use std::ffi::OsStr;
use std::io;
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Instant;

/// Copies within this host.
pub(crate) fn run(
    (options, context): (&TransferOptions, &RunContext),
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let (walk, output) = (&options.rules.walk, context.output.as_ref());
    let items = context.source_items(options)?;
    if options.purpose == Purpose::Listing {
        return list_sources(options, &items, events, cancel, started);
    }
    let sources = sources_of(&items);
    if output.is_some() {
        check_is_file(&sources)?;
    }
    let receive = ReceiveOptions {
        fsync: options.rules.fsync,
        comparison: options.rules.comparison,
        earlier: options.rules.earlier.clone(),
        dry_run: options.dry_run,
        parent_is_planned: false,
        resume_policy: ResumePolicy::SameHost,
        quota: None,
    };
    let destination = path_bytes(options.destination.path());
    refuse_into_itself(&items, options)?;
    let (mut target, destinations) =
        PathRoot::Host.open_destination(&destination.0, &sources, receive)?;
    if let Some(base) = &target.base {
        refuse_loss(&items, (base, target.rename.as_deref()), options)?;
    }
    if options.rules.delete.is_some() {
        target.requested.delete = options.rules.delete;
        target.requested.filters = options.rules.filters.clone();
    }
    // The sending side changes modes and accounts.
    let keep = Metadata { rules: options.rules.metadata.rules, ..Metadata::default() };
    let (permits, filters) = (Permits::ALL, options.rules.filters.clone());
    target.metadata = MetadataTarget { keep, filters, permits, sender_maps_accounts: true };
    target.requested.walk = walk.to_receiver().unwrap_or_default();
    target.requested.changes = options.rules.itemizes.then_some(ChangeReader::Here);
    target.output = output.cloned();
    if output.is_none() {
        report_destinations(events, options, &destinations);
    }
    let software = client::software();
    let at = started.elapsed();
    events.event(Event::Connected { route: Route::Local, software, encrypted: false, at });
    // Reflinked and kernel-copied data is not written by this process.
    let Overrides { rate_max, schedule, .. } = options.overrides.clone();
    let direct = DirectIo::Off;
    let overrides = Overrides { rate_max, schedule, direct, ..Overrides::default() };
    let mut session = Session::new(overrides, 0);
    session.send.max_outstanding_files = SHORT_PATH_FILES;
    let session = Arc::new(session);
    let stats = SessionStats::new(events, started);
    let runner = local_runner(&session, &stats, cancel, options);
    let (near, far) = socket_pair()?;
    let threads = options.initial_streams(None);
    let mut rules = SendRules::of_host(options);
    let found = target.base.as_ref().and_then(|base| base.stat_self().ok());
    rules.destination = found.map(|found| (found.dev, found.ino));
    let copy = LocalCopy { runner: &runner, session: &session, threads, rules: &rules };
    let ends = copy.run(&items, target, near, far)?;
    let rate_max = session.rate_max();
    let user_limits = UserLimits { rate_max, is_local: true, ..UserLimits::default() };
    Ok(stats.summary(&ends, &user_limits, started.elapsed()))
}

/// Lists sources of this host.
fn list_sources(
    options: &TransferOptions,
    items: &[SourceItem],
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let session = Arc::new(Session::new(Overrides::default(), 0));
    let stats = SessionStats::new(events, started);
    let runner = local_runner(&session, &stats, cancel, options);
    let rules = SendRules::of_host(options);
    let copy = LocalCopy { runner: &runner, session: &session, threads: 0, rules: &rules };
    let ends = copy.list(items)?;
    Ok(stats.summary(&ends, &UserLimits::default(), started.elapsed()))
}

fn local_runner<'r>(
    session: &Arc<Session>,
    stats: &'r SessionStats<'r>,
    cancel: &'r Cancel,
    options: &TransferOptions,
) -> SessionRunner<'r> {
    SessionRunner {
        session: Arc::clone(session),
        stats,
        cancel,
        timeout: options.timeout,
        report_progress: true,
        ended: Latch::default(),
        awaits_removal: false,
        close_by: std::sync::Mutex::default(),
        autotune: std::sync::Mutex::default(),
    }
}

fn socket_pair() -> Result<(UnixStream, UnixStream), Error> {
    UnixStream::pair().map_err(|e| Error::local("cannot create a socket pair", &e))
}

/// Rejects a copy of a directory into itself, which would never end.
///
/// Rules may leave the destination out; otherwise it fails when the walk comes to it.
fn refuse_into_itself(items: &[SourceItem], options: &TransferOptions) -> Result<(), Error> {
    let destination = options.destination.path();
    let existing = destination.canonicalize();
    // A destination that does not exist yet is created in its parent.
    let parent = destination.parent().filter(|p| !p.as_os_str().is_empty());
    let above = match &existing {
        Ok(existing) => Ok(existing.clone()),
        Err(_) => parent.unwrap_or(Path::new(".")).canonicalize(),
    };
    let Ok(above) = above else { return Ok(()) };
    let may_leave_out = options.rules.may_leave_out_dirs();
    let is_refused = |source: PathBuf| match may_leave_out {
        true => existing.as_ref().is_ok_and(|existing| *existing == source),
        false => above.starts_with(source),
    };
    let is_inside = |path: &&PathBuf| path.canonicalize().is_ok_and(is_refused);
    let dirs = items.iter().filter(|item| item.stat.kind == bankfull_sys::FileKind::Dir);
    match dirs.flat_map(whole_dirs).collect::<Vec<_>>().iter().find(is_inside) {
        None => Ok(()),
        Some(path) => {
            let path = path.display();
            let text = format!("cannot copy {path} into itself: choose a destination outside it");
            Err(Error::new(ErrorKind::Usage, text))
        }
    }
}

/// Returns the paths of a source that are copied with all that they contain.
fn whole_dirs(item: &SourceItem) -> Vec<PathBuf> {
    // Symlinks are copied as links; if they are followed, the walk detects loops.
    let is_dir = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let beneath = |name: &[u8]| {
        let parts = components(name).map(OsStr::from_bytes);
        parts.fold(item.operand.clone(), |path, part| path.join(part))
    };
    match &item.names {
        Some(ItemNames::Known(names)) if names.is_recursive() => {
            names.iter().map(beneath).filter(is_dir).collect()
        }
        Some(_) => Vec::new(),
        None => vec![item.operand.clone()],
    }
}

/// A running local copy.
struct LocalCopy<'c> {
    runner: &'c SessionRunner<'c>,
    session: &'c Arc<Session>,
    threads: u32,
    rules: &'c SendRules,
}

impl LocalCopy<'_> {
    fn run(
        &self,
        items: &[SourceItem],
        target: ReceiveTarget,
        near: UnixStream,
        far: UnixStream,
    ) -> Result<SideSummaries, Error> {
        let _waits = self.session.limit_waits();
        // Both sides count the same files: only the receiver's counters are shown.
        let unseen = SessionStats::new(&NoEvents, Instant::now());
        let (to_receiver, to_sender) = (Outbox::default(), Outbox::default());
        to_sender.block_when_full();
        let rules = self.rules.clone();
        let sender = Sender::new(self.session, to_receiver.clone(), &unseen, rules);
        let session = Arc::clone(self.session);
        let (receiver, hashing) =
            Receiver::new(session, to_sender.clone(), self.runner.stats, target);
        let mut sender_reader = self.reader(&near)?;
        let mut receiver_reader = self.reader(&far)?;
        let mover = mover::Mover::new(&sender, &receiver.store);
        let loss = sender_reader.loss();
        let loss = &loss;
        let sender_done = Latch::default();
        thread::scope(|scope| {
            self.start_writers(scope, [(&to_receiver, near), (&to_sender, far)], loss);
            self.session.spawn(scope, || self.runner.tick(&to_sender));
            self.session.spawn(scope, || sender.walk(items));
            self.session.spawn(scope, || receiver.run_hashing(hashing));
            self.session.spawn(scope, || receiver.run_held(self.runner.timeout));
            let workers = self.start_movers(scope, &mover);
            self.session.spawn(scope, || {
                sender.finish(|| workers.into_iter().for_each(|w| drop(w.join())));
            });
            self.session.spawn(scope, || {
                if let Err(e) = sender.run_control(&mut sender_reader) {
                    self.session.fail(e);
                }
                sender_done.set();
            });
            let result = receiver.run_control(&mut receiver_reader).and_then(|report| {
                receiver.finish();
                // The sender learns of failures, which keep the sources.
                if !sender_done.wait(self.runner.timeout) {
                    let text = "the sender did not end in time";
                    return Err(Error::new(ErrorKind::Timeout, text));
                }
                self.session.take_error().map_or(Ok(report), Err)
            });
            let result = match result {
                Ok(report) => {
                    sender.remove_sources(self.runner.stats);
                    let receiver = self.runner.stats.receiver_report();
                    Ok(SideSummaries { sender: report, receiver })
                }
                Err(error) => {
                    self.session.fail(error);
                    Err(self.session.take_error().unwrap_or_else(Error::interrupted))
                }
            };
            to_sender.close();
            to_receiver.close();
            if result.is_ok() {
                to_sender.wait_writer_done(self.runner.timeout);
            }
            self.runner.ended.set();
            result
        })
    }

    /// Reports the entries of the sources.
    fn list(&self, items: &[SourceItem]) -> Result<SideSummaries, Error> {
        let _waits = self.session.limit_waits();
        let (near, far) = socket_pair()?;
        let unseen = SessionStats::new(&NoEvents, Instant::now());
        let (to_receiver, to_sender) = (Outbox::default(), Outbox::default());
        let sender = Sender::new(self.session, to_receiver.clone(), &unseen, self.rules.clone());
        let mut sender_reader = self.reader(&near)?;
        let mut receiver_reader = self.reader(&far)?;
        let loss = sender_reader.loss();
        let loss = &loss;
        thread::scope(|scope| {
            self.start_writers(scope, [(&to_receiver, near), (&to_sender, far)], loss);
            self.session.spawn(scope, || self.runner.tick(&to_sender));
            self.session.spawn(scope, || sender.walk(items));
            self.session.spawn(scope, || sender.finish(|| {}));
            self.session.spawn(scope, || {
                if let Err(e) = sender.run_control(&mut sender_reader) {
                    self.session.fail(e);
                }
            });
            let lister = Lister::new(to_sender.clone(), self.runner.stats, items.len());
            let listed = lister.run(&mut receiver_reader);
            let result = listed.map_err(|error| {
                self.session.fail(error);
                self.session.take_error().unwrap_or_else(Error::interrupted)
            });
            to_sender.close();
            to_receiver.close();
            self.runner.ended.set();
            let receiver = self.runner.stats.report();
            result.map(|sender| SideSummaries { sender, receiver })
        })
    }

    /// Starts the writers of both sides.
    fn start_writers<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        sides: [(&'env Outbox, UnixStream); 2],
        loss: &'env ConnectionLoss,
    ) {
        for (outbox, output) in sides {
            let release = outbox.clone();
            self.session.on_stop(move || release.release());
            self.session.spawn(scope, move || {
                if let Err(e) = outbox.run_writer(Box::new(output), loss) {
                    self.session.fail(e);
                }
            });
        }
    }

    /// Starts the movers; continues with fewer if threads are short.
    fn start_movers<'scope, 'env: 'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        mover: &'scope mover::Mover<'_, '_>,
    ) -> Vec<ScopedJoinHandle<'scope, ()>> {
        let mut workers = Vec::new();
        for number in 0..self.threads {
            match try_spawn_joinable(scope, move || mover.run(number)) {
                Ok(worker) => workers.push(worker),
                Err(_) if number > 0 => break,
                Err(error) => {
                    self.session.fail(error);
                    break;
                }
            }
            add(&self.runner.stats.counts.streams, 1);
        }
        workers
    }

    fn reader(&self, socket: &UnixStream) -> Result<ControlReader, Error> {
        let unusable = |e: io::Error| Error::local("cannot use a socket pair", &e);
        let input = socket.try_clone().map_err(unusable)?;
        let wake = socket.try_clone().map_err(unusable)?;
        self.session.on_stop(move || drop(wake.shutdown(Shutdown::Both)));
        let mut reader = ControlReader::new(Box::new(input), "this host".to_owned(), "");
        reader.set_authenticated();
        Ok(reader)
    }
}
