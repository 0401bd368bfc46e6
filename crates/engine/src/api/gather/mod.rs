//! Copies from many sources into one place, all at once.
//!
//! This module decides when a source runs, its destination, and the effect of failed sources. Each
//! source is a [`Transfer`] with one data stream.

pub(crate) mod layout;
pub(crate) mod rounds;
mod starts;
#[cfg(test)]
mod tests;

use layout::Layout;

use super::filters::Filters;
use super::selection::{Comparison, FileList, Selection};
use super::transfer::Transfer;
use crate::base::barrier::Barrier;
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind, failure, flush_failure};
use crate::base::event::{Event, EventSink, NoEvents, Summary};
use crate::base::location::Location;
use crate::base::sync::lock;
use crate::base::threads::try_spawn;
use crate::file_io::path_root::ReceiveOptions;
use crate::file_io::root::PathRoot;
use crate::model::merge_conflicts::{MergeConflicts, SharedDir};
use crate::model::metadata::Metadata;
use crate::model::options::{DaemonOptions, Fsync, SshOptions, Tune};
use crate::model::overrides::MIN_RATE_LIMIT;
use crate::model::throttle::Throttle;
use crate::routes::client::path_bytes;
use bankfull_control::{Bytes, Rate, Schedule};
use bankfull_proto::wire::control::{Failure, Source};
use bankfull_sys::Dir;
use starts::{LoginLimiter, LoginPermit};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tracing::info_span;

/// Sources that run at a time. (chosen: each has about ten threads and dozens of open files)
const MAX_CONCURRENT_SOURCES: usize = 256;

/// Receives the events of a gather. Many threads call it, so it must not block for long: queue the
/// event and show it later.
pub trait GatherSink: Send + Sync {
    /// Receives one event of a source, numbered from 0 in the given order.
    fn event(&self, source: usize, event: Event);

    /// False if the sink ignores [`Event::Completed`], which is then not created.
    fn wants_completed(&self) -> bool {
        true
    }

    /// Receives the result of a source, once for each. Sources stopped before their turn end as
    /// [`ErrorKind::Interrupted`]. The only later events are warnings about directories shared by
    /// merged sources.
    fn source_done(&self, source: usize, result: &Result<Summary, Error>) {
        let _ = (source, result);
    }
}

impl GatherSink for NoEvents {
    fn event(&self, _source: usize, _event: Event) {}
}

/// A copy from many sources on other hosts into one directory of this host. All sources are read at
/// once. Build it, then [`run`](Self::run) it.
///
/// ```no_run
/// use bankfull::{Cancel, Gather, Location, NoEvents};
///
/// let sources = ["one:/var/log", "two:/var/log", "bankfull://three/log"];
/// let sources = sources.map(|operand| Location::parse(operand.as_ref()));
/// let sources = sources.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let done = Gather::new(sources, "/srv/logs".into()).run(&NoEvents, &Cancel::new())?;
/// for (source, error) in done.failed() {
///     eprintln!("{source}: {error}");
/// }
/// # Ok::<(), bankfull::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Gather {
    sources: Vec<Location>,
    destination: PathBuf,
    layout: Layout,
    max_failed: Option<u32>,
    /// Options common to all sources.
    template: Transfer,
}

impl Gather {
    /// A gather of `sources` on other hosts into the directory `destination` of this host.
    /// Defaults: a directory per host, no limit of failed sources, and those of [`Transfer::new`].
    /// The directory is created if it is missing, its parent is not.
    #[must_use]
    pub fn new(sources: Vec<Location>, destination: PathBuf) -> Self {
        let template = Transfer::new(Vec::new(), Location::Local(destination.clone())).streams(1);
        Self { sources, destination, layout: Layout::default(), max_failed: None, template }
    }

    /// Sets the layout at the destination.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets how many sources may fail before the others are stopped; `None`, the default: all. A
    /// source fails with an [`Error`] of its own; failed files in it do not count.
    #[must_use]
    pub fn max_failed(mut self, limit: Option<u32>) -> Self {
        self.max_failed = limit;
        self
    }

    /// See [`Transfer::encryption`].
    #[must_use]
    pub fn encryption(mut self, encryption: bool) -> Self {
        self.template = self.template.encryption(encryption);
        self
    }

    /// Sets when received files are flushed to the disk. [`Fsync::End`]: once, after all sources.
    #[must_use]
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.template = self.template.fsync(fsync);
        self
    }

    /// See [`Transfer::checksum`].
    #[must_use]
    pub fn checksum(mut self, checksum: bool) -> Self {
        self.template = self.template.checksum(checksum);
        self
    }

    /// See [`Transfer::retry_for`]; without effect if sources are merged or take turns in rounds.
    #[must_use]
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.template = self.template.retry_for(time);
        self
    }

    /// See [`Transfer::filters`].
    #[must_use]
    pub fn filters(mut self, filters: Filters) -> Self {
        self.template = self.template.filters(filters);
        self
    }

    /// See [`Transfer::metadata`]. Merged sources have no hard links.
    #[must_use]
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.template = self.template.metadata(metadata);
        self
    }

    /// See [`Transfer::selection`].
    #[must_use]
    pub fn selection(mut self, selection: &Selection) -> Self {
        self.template = self.template.selection(selection);
        self
    }

    /// See [`Transfer::files_from`]; the names are those beneath each source.
    #[must_use]
    pub fn files_from(mut self, list: FileList) -> Self {
        self.template = self.template.files_from(list);
        self
    }

    /// See [`Transfer::comparison`].
    #[must_use]
    pub fn comparison(mut self, comparison: Comparison) -> Self {
        self.template = self.template.comparison(comparison);
        self
    }

    /// See [`Transfer::trust_journal`].
    #[must_use]
    pub fn trust_journal(mut self, trust_journal: bool) -> Self {
        self.template = self.template.trust_journal(trust_journal);
        self
    }

    /// See [`Transfer::dry_run`].
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.template = self.template.dry_run(dry_run);
        self
    }

    /// See [`Transfer::timeout`]. It applies to each source separately.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.template = self.template.timeout(timeout);
        self
    }

    /// See [`Transfer::tune`].
    #[must_use]
    pub fn tune(mut self, tune: Tune) -> Self {
        self.template = self.template.tune(tune);
        self
    }

    /// See [`Transfer::link_rate`].
    #[must_use]
    pub fn link_rate(mut self, rate: Rate) -> Self {
        self.template = self.template.link_rate(rate);
        self
    }

    /// Limits the data rate of all sources together. Default: no limit.
    ///
    /// The sources share the rate about equally; a share that one does not use is left to the
    /// others. A rate below [`MIN_RATE_LIMIT`](crate::MIN_RATE_LIMIT) for each concurrent source is
    /// refused as [`ErrorKind::Usage`].
    #[must_use]
    pub fn max_rate(mut self, rate: Rate) -> Self {
        self.template = self.template.max_rate(rate);
        self
    }

    /// See [`Transfer::schedule`]; the limits apply as that of [`max_rate`](Self::max_rate).
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.template = self.template.schedule(schedule);
        self
    }

    /// See [`Transfer::max_memory`]; the limit applies to all sources together.
    #[must_use]
    pub fn max_memory(mut self, limit: Bytes) -> Self {
        self.template = self.template.max_memory(limit);
        self
    }

    /// Sets how agents are started over ssh.
    #[must_use]
    pub fn ssh(mut self, ssh: SshOptions) -> Self {
        self.template = self.template.ssh(ssh);
        self
    }

    /// Sets how daemons and this client authenticate each other, the same for all daemons.
    #[must_use]
    pub fn daemon(mut self, daemon: DaemonOptions) -> Self {
        self.template = self.template.daemon(daemon);
        self
    }

    /// Copies from all sources, up to 256 at a time, each over one data stream. A source that is
    /// unreachable, refuses or breaks off has failed and is not retried; the others go on. Its
    /// verified data is kept, and the same call resumes it.
    ///
    /// # Errors
    /// - [`ErrorKind::Usage`] if a source is on this host, or two have the same destination, and
    ///   [`ErrorKind::Local`] if the destination cannot be used; nothing was started then.
    /// - [`ErrorKind::Interrupted`] after a cancellation.
    /// - The kind of the last failure, if more sources failed than [`max_failed`](Self::max_failed)
    ///   allows.
    ///
    /// The failure of all sources is not an error; the summary reports it.
    pub fn run(self, events: &dyn GatherSink, cancel: &Cancel) -> Result<GatherSummary, Error> {
        self.run_with(events, cancel, None)
    }

    /// Runs the gather, in rounds if there is a barrier.
    fn run_with(
        self,
        events: &dyn GatherSink,
        cancel: &Cancel,
        barrier: Option<Arc<Barrier>>,
    ) -> Result<GatherSummary, Error> {
        let started = Instant::now();
        let conflicts = self.conflicts();
        let mut transfers = self.transfers(conflicts.as_ref())?;
        for (number, transfer) in transfers.iter_mut().enumerate() {
            transfer.context.barrier_party = barrier.as_ref().map(|barrier| barrier.party(number));
        }
        let base = self.open_destination()?;
        let run = GatherRun {
            next: AtomicUsize::new(0),
            results: Mutex::new(vec![None; transfers.len()]),
            transfers,
            limiter: LoginLimiter::default(),
            conflicts,
            barrier,
            failures: Mutex::default(),
            max_failed: self.max_failed,
            stop: cancel.child(),
            unfinished: Arc::new(AtomicUsize::new(self.sources.len())),
            events,
        };
        let started_all = thread::scope(|scope| {
            let running = run.transfers.len().min(MAX_CONCURRENT_SOURCES);
            let start = |_| try_spawn(scope, || run.work());
            let started = match run.barrier {
                // Rounds need all sources at once.
                Some(_) => (0..running).try_for_each(start),
                // With fewer threads, fewer sources run at a time.
                None => start(0).map(|()| drop((1..running).try_for_each(start))),
            };
            started.inspect_err(|_| run.stop.cancel())
        });
        let GatherRun { results, failures, conflicts, .. } = run;
        if let (Some(base), Some(conflicts)) = (&base, conflicts) {
            for dir in conflicts.drain_shared_dirs() {
                if let Err(Failure { text: message, .. }) = apply_metadata(base, &dir) {
                    events.event(dir.source, Event::Warning { message });
                }
            }
        }
        if cancel.is_cancelled() {
            return Err(Error::interrupted());
        }
        started_all?;
        self.flush(base)?;
        if let Some(error) = lock(&failures).limit_error.take() {
            return Err(error);
        }
        let results = std::mem::take(&mut *lock(&results));
        let ended = |result: Option<_>| result.unwrap_or_else(|| Err(Error::interrupted()));
        let results = results.into_iter().map(ended);
        Ok(GatherSummary::new(self.sources.into_iter().zip(results).collect(), started.elapsed()))
    }

    /// Conflict resolution, if the sources are merged.
    fn conflicts(&self) -> Option<Arc<MergeConflicts>> {
        match self.layout {
            Layout::ByHost => None,
            Layout::Merged(policy) => Some(MergeConflicts::new(
                policy,
                self.sources.iter().map(ToString::to_string).collect(),
            )),
        }
    }

    /// The transfer of each source.
    fn transfers(&self, conflicts: Option<&Arc<MergeConflicts>>) -> Result<Vec<Transfer>, Error> {
        let usage = |text: String| Err(Error::new(ErrorKind::Usage, text));
        if let Some(local) = self.sources.iter().find(|source| source.is_local()) {
            return usage(format!(
                "{local} is on this host, but gather fetches from others: write host:path or \
                 bankfull://host/path, or use cp"
            ));
        }
        if self.sources.is_empty() {
            return usage("no source given".to_owned());
        }
        if conflicts.is_some() && self.sources.len() > MAX_CONCURRENT_SOURCES {
            // A source that waits for its turn would block all running ones.
            return usage(format!(
                "{} sources: up to {MAX_CONCURRENT_SOURCES} can be merged; gather them in several \
                 commands",
                self.sources.len()
            ));
        }
        let receive_limit = self.receive_limit()?;
        let directories = layout::directories(&self.sources, &self.destination, self.layout)?;
        let mut transfers = Vec::with_capacity(directories.len());
        for (number, (source, directory)) in self.sources.iter().zip(directories).enumerate() {
            let mut transfer = self.template.clone();
            transfer.options.sources = vec![source.clone()];
            transfer.options.destination = Location::Local(directory);
            transfer.context.parent_is_planned = true;
            transfer.context.receive_limit.clone_from(&receive_limit);
            transfer.context.merge_handle = conflicts.map(|conflicts| conflicts.handle(number));
            // The gather flushes once for all sources.
            if transfer.options.rules.fsync == Fsync::End {
                transfer.options.rules.fsync = Fsync::None;
            }
            transfer.check()?;
            transfers.push(transfer);
        }
        Ok(transfers)
    }

    /// The rate limit that the sources share, if there is one.
    fn receive_limit(&self) -> Result<Option<Arc<Throttle>>, Error> {
        let overrides = &self.template.options.overrides;
        let at_once = self.sources.len().min(MAX_CONCURRENT_SOURCES);
        let Some(lowest) = overrides.lowest_rate_limit() else { return Ok(None) };
        if lowest.bytes_per_sec() / (at_once as u64) < MIN_RATE_LIMIT.bytes_per_sec() {
            let text = format!(
                "rate limit {lowest} is too low for {at_once} sources at a time: allow \
                 {MIN_RATE_LIMIT} for each"
            );
            return Err(Error::new(ErrorKind::Usage, text));
        }
        Ok(Some(Arc::new(Throttle::new(overrides.rate_limit()))))
    }

    /// Opens or creates the destination; `None` in a dry run if it does not exist.
    fn open_destination(&self) -> Result<Option<Arc<Dir>>, Error> {
        let options = ReceiveOptions {
            fsync: self.template.options.rules.fsync,
            comparison: self.template.options.rules.comparison,
            earlier: self.template.options.rules.earlier.clone(),
            dry_run: self.template.options.dry_run,
            parent_is_planned: false,
            resume_policy: self.template.options.rules.resume_policy(),
            quota: None,
        };
        // As for a copy of a directory's contents.
        let contents = Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None };
        let typed = path_bytes(&self.destination);
        let opened = PathRoot::Host.open_destination(&typed.0, &[contents], options)?;
        Ok(opened.0.base)
    }

    /// Flushes received data to the disk, if that is due at the end.
    fn flush(&self, base: Option<Arc<Dir>>) -> Result<(), Error> {
        let base = base.filter(|_| {
            self.template.options.rules.fsync == Fsync::End && !self.template.options.dry_run
        });
        let flushed = base.map_or(Ok(()), |base| base.sync_filesystem());
        flushed.map_err(|e| Error::on_this_host(flush_failure(&e)))
    }
}

/// Sets mode and time of a directory that several sources share.
fn apply_metadata(base: &Dir, shared: &SharedDir) -> Result<(), Failure> {
    let found = match shared.path.as_os_str().is_empty() {
        true => base.try_clone(),
        false => base.open_beneath(shared.path.as_os_str().as_bytes()),
    };
    let what = || format!("cannot set mode and time of {}", shared.path.display());
    found.and_then(|dir| (shared.set_metadata)(&dir)).map_err(|e| failure(what(), &e))
}

/// State shared by the threads of a gather.
struct GatherRun<'a> {
    transfers: Vec<Transfer>,
    /// Next source to run.
    next: AtomicUsize,
    results: Mutex<Vec<Option<Result<Summary, Error>>>>,
    limiter: LoginLimiter,
    conflicts: Option<Arc<MergeConflicts>>,
    /// Barrier of a gather in rounds.
    barrier: Option<Arc<Barrier>>,
    failures: Mutex<Failures>,
    max_failed: Option<u32>,
    /// Stops all sources.
    stop: Cancel,
    /// Number of sources that have not ended.
    unfinished: Arc<AtomicUsize>,
    events: &'a dyn GatherSink,
}

#[derive(Debug, Default)]
struct Failures {
    count: u32,
    /// Error of the failure that exceeded the limit, which ends the gather.
    limit_error: Option<Error>,
}

impl GatherRun<'_> {
    /// Runs sources one after the other until there are none.
    fn work(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(transfer) = self.transfers.get(number) else { return };
            let guard = SourceGuard { run: self, number };
            let result = self.run_one(number, transfer).map_err(|error| self.cause(error));
            drop(guard);
            if let (Err(error), [source]) = (&result, &transfer.options.sources[..]) {
                self.count_failure(source, error);
            }
            self.events.source_done(number, &result);
            if let Some(slot) = lock(&self.results).get_mut(number) {
                *slot = Some(result);
            }
        }
    }

    fn run_one(&self, number: usize, transfer: &Transfer) -> Result<Summary, Error> {
        if self.stop.is_cancelled() {
            return Err(Error::interrupted());
        }
        let login = match &transfer.options.sources[..] {
            [Location::Ssh { host, .. }] => Some(self.limiter.acquire(host, &self.stop)?),
            _ => None,
        };
        let sink = SourceSink { events: self.events, number, login: Mutex::new(login) };
        let mut transfer = transfer.clone();
        transfer.context.concurrent_receivers = Some(Arc::clone(&self.unfinished));
        info_span!("source", number).in_scope(|| transfer.run(&sink, &self.stop))
    }

    /// Turns an error after the stop of all sources into an interruption, its cause.
    fn cause(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Interrupted || !self.stop.is_cancelled() {
            return error;
        }
        Error::new(ErrorKind::Interrupted, format!("interrupted: {error}"))
    }

    /// Counts a failed source, and stops the others if the limit is exceeded. Interrupted sources
    /// do not count.
    fn count_failure(&self, source: &Location, error: &Error) {
        if error.kind() == ErrorKind::Interrupted {
            return;
        }
        let mut failures = lock(&self.failures);
        failures.count += 1;
        let Some(limit) = self.max_failed.filter(|&limit| failures.count == limit + 1) else {
            return;
        };
        let others = "the others were stopped; run the same command again to continue";
        let text = match limit {
            // The sink has got the error itself.
            0 => format!("{source} failed; no source may fail, so {others}"),
            _ => format!(
                "{source} failed; the limit of failed sources ({limit}) is exceeded, so {others}"
            ),
        };
        failures.limit_error = Some(Error::new(error.kind(), text));
        self.stop.cancel();
    }
}

/// Marks a source as ended on drop, also if its thread panics: other sources wait for it.
struct SourceGuard<'r, 'a> {
    run: &'r GatherRun<'a>,
    number: usize,
}

impl Drop for SourceGuard<'_, '_> {
    fn drop(&mut self) {
        self.run.unfinished.fetch_sub(1, Ordering::Relaxed);
        if let Some(conflicts) = &self.run.conflicts {
            conflicts.source_ended(self.number);
        }
        if let Some(barrier) = &self.run.barrier {
            barrier.on_source_ended(self.number);
        }
    }
}

/// Forwards the events of one source.
struct SourceSink<'a> {
    events: &'a dyn GatherSink,
    number: usize,
    /// Held until the agent has connected.
    login: Mutex<Option<LoginPermit<'a>>>,
}

impl EventSink for SourceSink<'_> {
    fn event(&self, event: Event) {
        if matches!(event, Event::Connected { .. }) {
            lock(&self.login).take();
        }
        self.events.event(self.number, event);
    }

    fn wants_completed(&self) -> bool {
        self.events.wants_completed()
    }
}

/// Result of a gather.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GatherSummary {
    /// Result of each source, in the given order.
    pub sources: Vec<(Location, Result<Summary, Error>)>,
    /// Sums over all sources that did not fail, with or without failed files. `elapsed` is the time
    /// of the whole gather; the limits are in each source's summary.
    pub total: Summary,
}

impl GatherSummary {
    fn new(sources: Vec<(Location, Result<Summary, Error>)>, elapsed: Duration) -> Self {
        let mut total = Summary { elapsed, ..Summary::default() };
        sources.iter().filter_map(|(_, result)| result.as_ref().ok()).for_each(|one| {
            total.add(one);
        });
        Self { sources, total }
    }

    /// Failed sources and their errors.
    pub fn failed(&self) -> impl Iterator<Item = (&Location, &Error)> {
        self.sources.iter().filter_map(|(source, result)| Some((source, result.as_ref().err()?)))
    }

    /// Content bits per second over the whole gather.
    #[must_use]
    pub fn goodput(&self) -> Rate {
        self.total.goodput()
    }
}
