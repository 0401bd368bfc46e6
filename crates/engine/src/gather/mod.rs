//! Many sources into one place, all at once.
//!
//! What lives here: which source runs when, where it lands, and what becomes of all when some fail.
//! What does not: how one is copied. Each source is a [`Transfer`] of its own, with one data
//! connection.

pub(crate) mod claims;
mod layout;
mod rounds;
mod starts;

pub use claims::Merge;
pub use layout::Layout;
pub use rounds::{Round, Rounds};

use crate::anchor::{PathRoot, ReceiveOptions};
use crate::cancel::Cancel;
use crate::client::path_bytes;
use crate::error::{Error, ErrorKind, failure};
use crate::event::{Event, EventSink, NoEvents, Summary};
use crate::location::Location;
use crate::net::control::lock;
use crate::options::{DaemonOptions, Fsync, SshOptions, Tune};
use crate::threads::try_spawn;
use crate::transfer::Transfer;
use crate::tune::Barrier;
use bankfull_control::{Bytes, Rate};
use bankfull_proto::wire::control::{Failure, Source};
use bankfull_sys::Dir;
use claims::{Claims, SharedDir};
use starts::{Start, Starts};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Sources that run at a time; others wait for their turn. (ours: each has about ten threads, and
/// files open by the dozen)
const RUNNING_MAX: usize = 256;

/// Takes the events of a gathering. Called from many threads, so it must not block for long: an
/// event is best put aside and shown later.
pub trait GatherSink: Send + Sync {
    /// Takes one event of the source with this number, counted from 0 in the order they were given
    /// in.
    fn event(&self, source: usize, event: Event);

    /// A source came to its end. Once for each, also for those that were stopped before their turn
    /// came, which end as [`ErrorKind::Interrupted`]; nothing more comes of it but, where sources
    /// are merged, notices about directories that it shares with others.
    fn source_done(&self, source: usize, result: &Result<Summary, Error>) {
        let _ = (source, result);
    }
}

impl GatherSink for NoEvents {
    fn event(&self, _source: usize, _event: Event) {}
}

/// Copies from many places of other hosts into one directory of this one, all at once. Build it,
/// then [`run`](Self::run) it.
///
/// ```no_run
/// use bankfull::{Cancel, Gather, Location, NoEvents};
///
/// let sources = ["one:/var/log", "two:/var/log", "bankfull://three/log"];
/// let sources = sources.map(|place| Location::parse(place.as_ref()));
/// let sources = sources.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let done = Gather::new(sources, "/srv/logs".into()).run(&NoEvents, &Cancel::new())?;
/// for (place, why) in done.failed() {
///     eprintln!("{place}: {why}");
/// }
/// # Ok::<(), bankfull::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Gather {
    sources: Vec<Location>,
    destination: PathBuf,
    layout: Layout,
    failed_max: Option<u32>,
    /// What all sources have in common.
    each: Transfer,
}

impl Gather {
    /// A gathering of `sources`, which are on other hosts, in the directory `destination` of this
    /// one, with the defaults: each source under its host's name, no limit of failed sources, and
    /// those of [`Transfer::new`]. The directory is made where it is missing, its parent is not.
    #[must_use]
    pub fn new(sources: Vec<Location>, destination: PathBuf) -> Self {
        let each = Transfer::new(Vec::new(), Location::Local(destination.clone())).streams(1);
        Self { sources, destination, layout: Layout::default(), failed_max: None, each }
    }

    /// Where the sources land.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// How many sources may fail before the others are stopped; `None`, the default: all of them.
    /// A source fails with an [`Error`] of its own; failed files in it do not count.
    #[must_use]
    pub fn max_failed(mut self, most: Option<u32>) -> Self {
        self.failed_max = most;
        self
    }

    /// See [`Transfer::encryption`].
    #[must_use]
    pub fn encryption(mut self, encryption: bool) -> Self {
        self.each = self.each.encryption(encryption);
        self
    }

    /// When received files are flushed to the disk. [`Fsync::End`]: once, when all sources have
    /// come to their end.
    #[must_use]
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.each = self.each.fsync(fsync);
        self
    }

    /// See [`Transfer::checksum`].
    #[must_use]
    pub fn checksum(mut self, checksum: bool) -> Self {
        self.each = self.each.checksum(checksum);
        self
    }

    /// See [`Transfer::dry_run`].
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.each = self.each.dry_run(dry_run);
        self
    }

    /// See [`Transfer::timeout`]. It counts for each source by itself.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.each = self.each.timeout(timeout);
        self
    }

    /// See [`Transfer::tune`].
    #[must_use]
    pub fn tune(mut self, tune: Tune) -> Self {
        self.each = self.each.tune(tune);
        self
    }

    /// See [`Transfer::link_rate`].
    #[must_use]
    pub fn link_rate(mut self, rate: Rate) -> Self {
        self.each = self.each.link_rate(rate);
        self
    }

    /// See [`Transfer::memory_max`]: of all sources together.
    #[must_use]
    pub fn memory_max(mut self, most: Bytes) -> Self {
        self.each = self.each.memory_max(most);
        self
    }

    /// How far sides are started over ssh.
    #[must_use]
    pub fn ssh(mut self, ssh: SshOptions) -> Self {
        self.each = self.each.ssh(ssh);
        self
    }

    /// How daemons are trusted and told who we are: the same for all of them.
    #[must_use]
    pub fn daemon(mut self, daemon: DaemonOptions) -> Self {
        self.each = self.each.daemon(daemon);
        self
    }

    /// Copies from all sources, up to 256 at a time and each over one data connection. A source
    /// that cannot be reached, refuses or breaks off does not keep the others: it has failed, and
    /// is not tried again. What is verified of it is kept, and the same call continues there.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where a source is on this host, or two would land on each other, and
    /// [`ErrorKind::Local`] where the destination cannot be used: then nothing was begun.
    /// [`ErrorKind::Interrupted`] after a cancel. Where more sources have failed than
    /// [`max_failed`](Self::max_failed) allows, the kind of the failure that was one too many. That
    /// all sources have failed is none of these: the summary says so.
    pub fn run(self, events: &dyn GatherSink, cancel: &Cancel) -> Result<GatherSummary, Error> {
        self.run_with(events, cancel, None)
    }

    /// Copies, in rounds where there is a barrier.
    fn run_with(
        self,
        events: &dyn GatherSink,
        cancel: &Cancel,
        barrier: Option<Arc<Barrier>>,
    ) -> Result<GatherSummary, Error> {
        let started = Instant::now();
        let claims = self.claims();
        let mut transfers = self.transfers(claims.as_ref())?;
        for (number, transfer) in transfers.iter_mut().enumerate() {
            transfer.seat = barrier.as_ref().map(|barrier| barrier.seat(number));
        }
        let base = self.open_destination()?;
        let run = Run {
            next: AtomicUsize::new(0),
            results: Mutex::new(vec![None; transfers.len()]),
            transfers,
            starts: Starts::default(),
            claims,
            barrier,
            failures: Mutex::default(),
            failed_max: self.failed_max,
            stop: cancel.beneath(),
            unfinished: Arc::new(AtomicUsize::new(self.sources.len())),
            events,
        };
        let started_all = thread::scope(|scope| {
            let running = run.transfers.len().min(RUNNING_MAX);
            // In rounds all have to be there.
            let started = (0..running).try_for_each(|_| try_spawn(scope, || run.work()));
            started.inspect_err(|_| run.stop.cancel())
        });
        let Run { results, failures, claims, .. } = run;
        if let (Some(base), Some(claims)) = (&base, claims) {
            for dir in claims.take_shared() {
                if let Err(Failure { text: message, .. }) = settle(base, &dir) {
                    events.event(dir.source, Event::Notice { message });
                }
            }
        }
        if cancel.is_cancelled() {
            return Err(Error::interrupted());
        }
        started_all?;
        self.flush(base)?;
        if let Some(error) = lock(&failures).last_straw.take() {
            return Err(error);
        }
        let results = std::mem::take(&mut *lock(&results));
        let ended = |result: Option<_>| result.unwrap_or_else(|| Err(Error::interrupted()));
        let results = results.into_iter().map(ended);
        Ok(GatherSummary::new(self.sources.into_iter().zip(results).collect(), started.elapsed()))
    }

    /// What says which source counts where, if they are merged.
    fn claims(&self) -> Option<Arc<Claims>> {
        match self.layout {
            Layout::ByHost => None,
            Layout::Merged(rule) => {
                Some(Claims::new(rule, self.sources.iter().map(ToString::to_string).collect()))
            }
        }
    }

    /// The transfer of each source.
    fn transfers(&self, claims: Option<&Arc<Claims>>) -> Result<Vec<Transfer>, Error> {
        let usage = |text: String| Err(Error::new(ErrorKind::Usage, text));
        if let Some(near) = self.sources.iter().find(|source| source.is_local()) {
            return usage(format!(
                "{near} is on this host, and gather fetches from others: write host:path or \
                 bankfull://host/path, or use cp"
            ));
        }
        if self.sources.is_empty() {
            return usage("no source given".to_owned());
        }
        if claims.is_some() && self.sources.len() > RUNNING_MAX {
            // One that waits for its turn would be waited for by all that have theirs.
            return usage(format!(
                "{} sources: up to {RUNNING_MAX} can be merged; gather them in several commands",
                self.sources.len()
            ));
        }
        let directories = layout::directories(&self.sources, &self.destination, self.layout)?;
        let mut transfers = Vec::with_capacity(directories.len());
        for (number, (source, directory)) in self.sources.iter().zip(directories).enumerate() {
            let mut transfer = self.each.clone();
            transfer.sources = vec![source.clone()];
            transfer.destination = Location::Local(directory);
            transfer.parent_is_planned = true;
            transfer.claimant = claims.map(|claims| claims.claimant(number));
            // Once at the end is once, not once for each source.
            if transfer.fsync == Fsync::End {
                transfer.fsync = Fsync::None;
            }
            transfer.check()?;
            transfers.push(transfer);
        }
        Ok(transfers)
    }

    /// Opens the destination, or makes it; `None` in a dry run where it does not exist yet.
    fn open_destination(&self) -> Result<Option<Arc<Dir>>, Error> {
        let options = ReceiveOptions {
            fsync: self.each.fsync,
            checksum: self.each.checksum,
            dry_run: self.each.dry_run,
            parent_is_planned: false,
            set_id: false,
        };
        // As for a copy of what is in a directory.
        let contents = Source { name: Vec::new(), is_dir: true, contents: true };
        let typed = path_bytes(&self.destination);
        let opened = PathRoot::Host.open_destination(&typed.0, &[contents], options)?;
        Ok(opened.0.base)
    }

    /// Flushes what was received to the disk, where that is to be done at the end.
    fn flush(&self, base: Option<Arc<Dir>>) -> Result<(), Error> {
        let base = base.filter(|_| self.each.fsync == Fsync::End && !self.each.dry_run);
        let flushed = base.map_or(Ok(()), |base| base.sync_filesystem());
        flushed.map_err(|e| Error::here(failure("cannot flush the destination to disk", &e)))
    }
}

/// Gives a directory into which several sources have put something its metadata.
fn settle(base: &Dir, shared: &SharedDir) -> Result<(), Failure> {
    let found = match shared.path.as_os_str().is_empty() {
        true => base.try_clone(),
        false => base.open_beneath(shared.path.as_os_str().as_bytes()),
    };
    let set = |dir: Dir| {
        dir.set_own_mode(shared.mode)?;
        dir.set_own_mtime(shared.mtime)
    };
    let what = || format!("cannot set mode and time of {}", shared.path.display());
    found.and_then(set).map_err(|e| failure(what(), &e))
}

/// What the threads of a gathering share.
struct Run<'a> {
    transfers: Vec<Transfer>,
    /// The source whose turn comes next.
    next: AtomicUsize,
    results: Mutex<Vec<Option<Result<Summary, Error>>>>,
    starts: Starts,
    claims: Option<Arc<Claims>>,
    /// Where they send in rounds.
    barrier: Option<Arc<Barrier>>,
    failures: Mutex<Failures>,
    failed_max: Option<u32>,
    /// Stops all sources.
    stop: Cancel,
    /// How many have not come to their end.
    unfinished: Arc<AtomicUsize>,
    events: &'a dyn GatherSink,
}

#[derive(Debug, Default)]
struct Failures {
    count: u32,
    /// What ends the gathering: one failure too many.
    last_straw: Option<Error>,
}

impl Run<'_> {
    /// A thread: runs one source after the other, as long as there are any.
    fn work(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(transfer) = self.transfers.get(number) else { return };
            let end = End { run: self, number };
            let result = self.run_one(number, transfer).map_err(|error| self.cause(error));
            drop(end);
            if let (Err(error), [source]) = (&result, &transfer.sources[..]) {
                self.count_failure(source, error);
            }
            self.events.source_done(number, &result);
            if let Some(place) = lock(&self.results).get_mut(number) {
                *place = Some(result);
            }
        }
    }

    fn run_one(&self, number: usize, transfer: &Transfer) -> Result<Summary, Error> {
        if self.stop.is_cancelled() {
            return Err(Error::interrupted());
        }
        let start = match &transfer.sources[..] {
            [Location::Ssh { host, .. }] => Some(self.starts.wait(host, &self.stop)?),
            _ => None,
        };
        let sink = OneSource { events: self.events, number, start: Mutex::new(start) };
        let company = Arc::clone(&self.unfinished);
        transfer.clone().in_company(company).run(&sink, &self.stop)
    }

    /// What an error comes from: whatever breaks after all were stopped is a consequence of that.
    fn cause(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Interrupted || !self.stop.is_cancelled() {
            return error;
        }
        Error::new(ErrorKind::Interrupted, format!("interrupted: {error}"))
    }

    /// Counts a source that has failed, and stops the others where that is one too many. What was
    /// stopped has not failed.
    fn count_failure(&self, source: &Location, error: &Error) {
        if error.kind() == ErrorKind::Interrupted {
            return;
        }
        let mut failures = lock(&self.failures);
        failures.count += 1;
        let Some(most) = self.failed_max.filter(|&most| failures.count == most + 1) else { return };
        let others = "the others were stopped; run the same command again to continue";
        let text = match most {
            0 => format!("{source}: {error}; no source may fail, so {others}"),
            _ => format!(
                "{source}: {error}; more sources have failed than may ({most}), so {others}"
            ),
        };
        failures.last_straw = Some(Error::new(error.kind(), text));
        self.stop.cancel();
    }
}

/// A source comes to its end when this is dropped, also where its thread panics: others wait for
/// it.
struct End<'r, 'a> {
    run: &'r Run<'a>,
    number: usize,
}

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.run.unfinished.fetch_sub(1, Ordering::Relaxed);
        if let Some(claims) = &self.run.claims {
            claims.ended(self.number);
        }
        if let Some(barrier) = &self.run.barrier {
            barrier.ended(self.number);
        }
    }
}

/// Passes on the events of one source.
struct OneSource<'a> {
    events: &'a dyn GatherSink,
    number: usize,
    /// Lasts until the far side is there.
    start: Mutex<Option<Start<'a>>>,
}

impl EventSink for OneSource<'_> {
    fn event(&self, event: Event) {
        if matches!(event, Event::Connected { .. }) {
            lock(&self.start).take();
        }
        self.events.event(self.number, event);
    }
}

/// What a gathering did.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GatherSummary {
    /// How each source ended, in the order they were given in.
    pub sources: Vec<(Location, Result<Summary, Error>)>,
    /// The sums over all sources that came to their end, with or without failed files; `elapsed` is
    /// the time of the whole, and what limited each source stands with that.
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

    /// The sources that have failed, and why.
    pub fn failed(&self) -> impl Iterator<Item = (&Location, &Error)> {
        self.sources.iter().filter_map(|(source, result)| Some((source, result.as_ref().err()?)))
    }

    /// Content bits per second over the whole gathering.
    #[must_use]
    pub fn goodput(&self) -> Rate {
        self.total.goodput()
    }
}

#[cfg(test)]
mod tests;
