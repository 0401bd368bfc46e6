//! Statistics of a session, and the progress and summary derived from them.

use super::counters::{Counts, FileStats, add, read};
use super::limit_use::{LimitUse, is_most, is_reached};
use crate::base::error::printable;
use crate::base::event::{Event, EventSink, Outcome, Progress, Summary};
use crate::base::sync::lock;
use crate::model::path_cache::PathObserver;
use bankfull_control::{Bytes, Limit, Rate, StageTimes, limited_by};
use bankfull_proto::hash::FileHash;
use bankfull_proto::wire::control::{Cause, Created, Failure, Problem, SideSummary};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Rates that the user's settings allow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UserLimits {
    pub(crate) rate_max: Option<Rate>,
    /// Bytes of all sessions that share `rate_max`, if others do.
    pub(crate) shared_bytes: Option<Bytes>,
    /// From the window that is set.
    pub(crate) window: Option<Rate>,
    /// True for a copy within a host, which has no network.
    pub(crate) is_local: bool,
}

/// Final reports of both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SideSummaries {
    pub(crate) sender: SideSummary,
    pub(crate) receiver: SideSummary,
}

/// Counters, stage times and events of a session.
pub(crate) struct SessionStats<'a> {
    pub(crate) counts: Counts,
    times: Arc<Mutex<StageTimes>>,
    /// CPU time of the threads that serve data streams.
    cpu_time: Mutex<Duration>,
    started: Instant,
    events: &'a dyn EventSink,
    /// False if completed files are only counted, not reported.
    wants_completed: bool,
    path_observer: Mutex<PathObserver>,
    limit_use: Mutex<LimitUse>,
}

impl<'a> SessionStats<'a> {
    pub(crate) fn new(events: &'a dyn EventSink, started: Instant) -> Self {
        let (counts, times, cpu_time, path_observer, limit_use) = Default::default();
        let wants_completed = events.wants_completed();
        Self { counts, times, cpu_time, started, events, wants_completed, path_observer, limit_use }
    }

    /// True if completed files are reported by their paths.
    pub(crate) fn wants_completed(&self) -> bool {
        self.wants_completed
    }

    pub(crate) fn event(&self, event: Event) {
        self.events.event(event);
    }

    /// Returns the collector of path measurements.
    pub(crate) fn path_observer(&self) -> MutexGuard<'_, PathObserver> {
        lock(&self.path_observer)
    }

    /// Returns the time since the transfer began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Records the bytes that the data streams have carried.
    pub(crate) fn on_carried(&self, bytes: u64) {
        self.counts.bytes_carried.fetch_max(bytes, Ordering::Relaxed);
        self.path_observer().on_carried(bytes, self.elapsed());
    }

    pub(crate) fn warn(&self, message: impl Into<String>) {
        self.event(Event::Warning { message: message.into() });
    }

    /// Records a failed file, directory or symlink.
    pub(crate) fn file_failed(&self, path: PathBuf, failure: &Failure) {
        let vanished = failure.cause() == Cause::SourceVanished;
        add(&self.counts.files_failed, 1);
        if failure.cause() == Cause::DeleteLimit {
            self.counts.is_delete_limited.store(true, Ordering::Relaxed);
        }
        add(&self.counts.files_vanished, u64::from(vanished));
        let message = printable(&failure.text);
        let cause = failure.cause().name();
        self.event(Event::FileFailed { path, message, cause, vanished });
    }

    /// Records a failure or a warning that the peer reports.
    pub(crate) fn on_peer_problem(&self, problem: Problem) {
        self.problem(PathBuf::from(OsString::from_vec(problem.path.0)), &problem.failure);
    }

    /// Records a failure, or a warning.
    pub(crate) fn problem(&self, path: PathBuf, failure: &Failure) {
        if failure.cause() == Cause::Warning {
            return self.warn(printable(&failure.text));
        }
        self.file_failed(path, failure);
    }

    /// Records a file that the destination already has.
    pub(crate) fn file_skipped(&self, path: impl FnOnce() -> PathBuf, bytes: u64) {
        add(&self.counts.files_skipped, 1);
        add(&self.counts.bytes_skipped, bytes);
        self.file_completed(path, Outcome::Unchanged, bytes, None);
    }

    /// Records a file that the rules for what exists leave out.
    pub(crate) fn file_left_out(&self, path: impl FnOnce() -> PathBuf, bytes: u64) {
        add(&self.counts.files_left_out, 1);
        add(&self.counts.bytes_left_out, bytes);
        self.file_completed(path, Outcome::LeftOut, bytes, None);
    }

    /// Reverts the counters of a file that changed while it was read.
    pub(crate) fn file_changed(&self, path: &Path, account: &FileStats) {
        self.counts.discard(account);
        let path = printable(&path.to_string_lossy());
        self.warn(format!("{path} changed while it was read: it is read again"));
    }

    /// Warns of a file whose part of an earlier run is damaged.
    pub(crate) fn file_damaged(&self, path: &Path) {
        let path = printable(&path.to_string_lossy());
        self.warn(format!(
            "data of {path} from an earlier run is damaged: the damaged blocks are sent again"
        ));
    }

    /// Records a file that is in place.
    pub(crate) fn file_copied(
        &self,
        path: impl FnOnce() -> PathBuf,
        bytes: u64,
        blake3: Option<FileHash>,
    ) {
        add(&self.counts.files_copied, 1);
        add(&self.counts.bytes_copied, bytes);
        self.file_completed(path, Outcome::Copied, bytes, blake3);
    }

    pub(crate) fn file_completed(
        &self,
        path: impl FnOnce() -> PathBuf,
        outcome: Outcome,
        bytes: u64,
        hash: Option<FileHash>,
    ) {
        if outcome == Outcome::WouldCopy {
            add(&self.counts.planned, 1);
            add(&self.counts.bytes_planned, bytes);
        }
        if matches!(outcome, Outcome::Deleted | Outcome::WouldDelete) {
            add(&self.counts.deleted, 1);
        }
        if self.wants_completed {
            let (path, bytes, blake3) = (path(), Bytes(bytes), hash.map(|hash| hash.to_string()));
            self.event(Event::Completed { path, outcome, bytes, blake3 });
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        let c = &self.counts;
        let passed = [&c.bytes_skipped, &c.bytes_left_out];
        let written = [&c.bytes_moved, &c.bytes_resumed, &c.bytes_holes];
        let done: u64 = passed.into_iter().chain(written).map(read).sum();
        let files_done =
            [&c.files_copied, &c.files_skipped, &c.files_left_out, &c.files_failed].map(read);
        let void = read(&c.bytes_discarded);
        Progress {
            files_total: read(&c.files_total),
            bytes_total: Bytes(read(&c.bytes_total)),
            total_is_final: c.total_is_final.load(Ordering::Relaxed),
            files_done: files_done.into_iter().sum(),
            bytes_done: Bytes(done.saturating_sub(void)),
            bytes_unchecked: Bytes(read(&c.bytes_unchecked)),
            bytes_moved: Bytes(read(&c.bytes_moved)),
            bytes_carried: Bytes(read(&c.bytes_carried).max(read(&c.bytes_moved))),
            elapsed: self.started.elapsed(),
        }
    }

    /// Adds a worker thread's stage times, and the CPU time of its stream.
    pub(crate) fn add_times(&self, times: &StageTimes, cpu_time: Duration) {
        lock(&self.times).merge(times);
        *lock(&self.cpu_time) += cpu_time;
    }

    /// Returns the CPU time that data streams have used.
    pub(crate) fn cpu_time(&self) -> Duration {
        *lock(&self.cpu_time)
    }

    /// Returns the sum of the worker threads' stage times.
    pub(crate) fn times(&self) -> StageTimes {
        *lock(&self.times)
    }

    /// Returns a handle to that sum.
    pub(crate) fn shared_times(&self) -> Arc<Mutex<StageTimes>> {
        Arc::clone(&self.times)
    }

    pub(crate) fn report(&self) -> SideSummary {
        let c = &self.counts;
        SideSummary::new(&lock(&self.times), read(&c.retransmits), read(&c.files_failed))
    }

    /// Returns the totals of a receiver, with what it created.
    pub(crate) fn receiver_report(&self) -> SideSummary {
        let c = &self.counts;
        let created = Created {
            dirs: read(&c.dirs_created),
            hard_links: read(&c.hard_links_created),
            special_files: read(&c.special_files_created),
            linked_files: read(&c.files_linked),
            linked_bytes: read(&c.bytes_linked),
        };
        SideSummary { created: Some(created), ..self.report() }
    }

    /// Returns the limit of a transfer whose data phase took `ran`.
    fn limit(&self, ends: &SideSummaries, user_limits: &UserLimits, ran: Duration) -> Limit {
        // Waiting without data is not a bottleneck.
        if read(&self.counts.bytes_moved) == 0 {
            return Limit::Nothing;
        }
        let carried = self.carried();
        let together = user_limits.shared_bytes.unwrap_or(carried);
        let reached = lock(&self.limit_use).reached_until(ran, together, user_limits.rate_max);
        let is_rate_max = is_most(reached, ran);
        match limited_by(&ends.sender.times(), &ends.receiver.times()) {
            _ if user_limits.is_local && is_rate_max => Limit::RateMax,
            Limit::Network if is_rate_max => Limit::RateMax,
            Limit::Network if is_reached(carried.per(ran), user_limits.window) => Limit::Buffer,
            limit => limit,
        }
    }

    /// Returns the bytes that the data streams carried; within a host, those copied.
    fn carried(&self) -> Bytes {
        Bytes(read(&self.counts.wire_bytes).max(read(&self.counts.bytes_moved)))
    }

    /// Ends the interval of a rate limit, at a time since the data phase began.
    ///
    /// `shared_bytes` are those of all sessions that share it, if others do.
    pub(crate) fn end_limit_interval(
        &self,
        now: Duration,
        shared_bytes: Option<Bytes>,
        limit: Option<Rate>,
    ) {
        let carried = shared_bytes.unwrap_or_else(|| self.carried());
        lock(&self.limit_use).end_interval(now, carried, limit);
    }

    /// Builds the summary; `ran` is the duration of the data phase.
    pub(crate) fn summary(
        &self,
        ends: &SideSummaries,
        user_limits: &UserLimits,
        ran: Duration,
    ) -> Summary {
        let c = &self.counts;
        let limit = self.limit(ends, user_limits, ran);
        let created = ends.receiver.created.unwrap_or_default();
        Summary {
            files: read(&c.files_copied),
            dirs: read(&c.dirs),
            dirs_created: created.dirs,
            symlinks: read(&c.symlinks),
            symlinks_created: read(&c.symlinks_created),
            bytes: Bytes(read(&c.bytes_moved).saturating_sub(read(&c.bytes_discarded))),
            wire_bytes: Bytes(read(&c.wire_bytes)),
            elapsed: self.started.elapsed(),
            streams: read(&c.streams) as u32,
            retransmits: ends.sender.retransmits.saturating_add(ends.receiver.retransmits),
            resumed_bytes: Bytes(read(&c.bytes_resumed)),
            damaged_bytes: Bytes(read(&c.bytes_damaged)),
            skipped_files: read(&c.files_skipped),
            skipped_bytes: Bytes(read(&c.bytes_skipped)),
            linked_files: created.linked_files,
            linked_bytes: Bytes(created.linked_bytes),
            left_out_files: read(&c.files_left_out),
            left_out_bytes: Bytes(read(&c.bytes_left_out)),
            would_copy_entries: read(&c.planned),
            would_copy_bytes: Bytes(read(&c.bytes_planned)),
            deleted: read(&c.deleted),
            is_delete_limited: c.is_delete_limited.load(Ordering::Relaxed),
            failed_files: read(&c.files_failed),
            vanished_files: read(&c.files_vanished),
            hard_links: read(&c.hard_links),
            hard_links_created: created.hard_links,
            special_files: read(&c.special_files),
            special_files_created: created.special_files,
            special_files_skipped: read(&c.special_files_skipped),
            limited_by: limit.name(),
            limited_by_text: limit.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::NoEvents;

    #[test]
    fn limit_names_the_user_setting_that_was_reached() {
        let stats = SessionStats::new(&NoEvents, Instant::now());
        add(&stats.counts.bytes_moved, 1_000_000);
        add(&stats.counts.wire_bytes, 1_000_000);
        let network = StageTimes { network: Duration::from_secs(1), ..StageTimes::default() };
        let report = SideSummary::new(&network, 0, 0);
        let ends = SideSummaries { sender: report, receiver: report };
        let limit = |rate_max: Option<u64>, window: Option<u64>| {
            let [rate_max, window] =
                [rate_max, window].map(|rate| rate.map(Rate::from_bytes_per_sec));
            let limits = UserLimits { rate_max, window, ..UserLimits::default() };
            stats.limit(&ends, &limits, Duration::from_secs(1))
        };
        assert_eq!(limit(None, None), Limit::Network);
        assert_eq!(limit(Some(1_100_000), None), Limit::RateMax);
        assert_eq!(limit(None, Some(1_100_000)), Limit::Buffer);
        assert_eq!(limit(Some(9_000_000), Some(9_000_000)), Limit::Network);
        // A limit that is shared is reached by all sessions together.
        let shared = |bytes| {
            let rate_max = Some(Rate::from_bytes_per_sec(9_000_000));
            let shared_bytes = Some(Bytes(bytes));
            let limits = UserLimits { rate_max, shared_bytes, ..UserLimits::default() };
            stats.limit(&ends, &limits, Duration::from_secs(1))
        };
        assert_eq!([4_000_000, 5_000_000].map(shared), [Limit::Network, Limit::RateMax]);
        // Within a host, whatever the threads did while they waited.
        let write = StageTimes { write: Duration::from_secs(1), ..StageTimes::default() };
        let report = SideSummary::new(&write, 0, 0);
        let ends = SideSummaries { sender: report, receiver: report };
        let local = |rate: u64| {
            let rate_max = Some(Rate::from_bytes_per_sec(rate));
            let limits = UserLimits { rate_max, is_local: true, ..UserLimits::default() };
            stats.limit(&ends, &limits, Duration::from_secs(1))
        };
        assert_eq!((local(1_100_000), local(9_000_000)), (Limit::RateMax, Limit::DestinationWrite));
    }
}
