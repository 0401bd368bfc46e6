//! State that the threads of one session share: first error, stop signal, streams and statistics.

pub(crate) mod feedback_inbox;
pub(crate) mod interface_sharing;

use crate::base::error::Error;
use crate::base::event::{Event, EventSink, Outcome, Progress, Summary};
use crate::base::sync::lock;
use crate::base::threads::try_spawn;
use crate::file_io::block_io::CHUNK_BYTES;
use crate::model::io_method::IoMethod;
use crate::model::overrides::Overrides;
use crate::model::path_cache::PathObserver;
use crate::model::throttle::Throttle;
use crate::stats::counters::{Counts, FileStats, add, read};
use crate::stats::quic_stats::{Cumulative, QuicStats};
use crate::transport::buffer_pool::BufferPool;
use crate::transport::credit::{CreditTable, StreamCredit};
use crate::transport::data_stream::DataStream;
use crate::transport::socket::{BurstLimit, Socket};
use crate::transport::start_stagger::StartStagger;
use crate::transport::udp_receive_buffer::BufferAdvice;
use bankfull_control::sobas::CachedPath;
use bankfull_control::{Bytes, Limit, Rate, Stage, StageMeter, StageTimes, limited_by, pacing};
use bankfull_proto::wire::control::{
    Cause, Credit, Failure, Message, PathBytes, Problem, SideSummary,
};
use bankfull_sys::{Pipe, TcpInfo};
use feedback_inbox::FeedbackInbox;
use interface_sharing::InterfaceSharing;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

type Callback = Box<dyn Fn() + Send>;

/// State that the threads of a session share.
#[derive(Default)]
pub(crate) struct Session {
    error: Mutex<Option<Error>>,
    stopped: AtomicBool,
    /// Called when the session stops: each ends a connection or wakes a thread.
    stop_callbacks: Mutex<Vec<Callback>>,
    streams: Mutex<StreamTable>,
    /// Statistics and requests of the peer, from the control thread to the tuner.
    pub(crate) feedback: FeedbackInbox,
    pub(crate) overrides: Overrides,
    /// Number of data streams to begin with.
    initial_streams: u32,
    /// Upper bound of the number of streams; `None` if the number is fixed.
    pub(crate) max_streams: Option<u32>,
    /// Number of streams that are to carry data, and the signal that it grew.
    wanted: Mutex<u32>,
    wanted_changed: Condvar,
    /// Called to wake the threads that wait for accepted streams.
    spawner_callbacks: Mutex<Vec<Callback>>,
    /// Rate limit of the data streams, on the sending side.
    throttle: Option<Arc<Throttle>>,
    /// Longest burst of a data stream, on the sending side.
    pub(crate) burst_limit: Arc<BurstLimit>,
    /// Staggered start of the data streams, on the sending side, if they are tuned.
    pub(crate) start_stagger: Option<StartStagger>,
    /// Credit of each stream, on the sending side, if the receiver grants any.
    pub(crate) credit: Option<Arc<CreditTable>>,
    /// Sharing of the interface with other sessions, on the receiving side.
    pub(crate) sharing: InterfaceSharing,
    /// Buffers for received data that waits for the disk.
    pub(crate) buffer_pool: Arc<BufferPool>,
    /// Advice about the UDP socket's receive buffer; taken by the thread that watches it.
    pub(crate) advice: Mutex<Option<BufferAdvice>>,
    /// Rate and RTT of the path in an earlier transfer.
    pub(crate) remembered: Option<CachedPath>,
    /// Limit of announced files without a final outcome, if the receiver has set one.
    pub(crate) max_outstanding_files: Option<u32>,
}

#[derive(Default)]
struct StreamTable {
    open: BTreeMap<u32, Socket>,
    /// Numbers of streams that either side has given up; a late connection with one is refused.
    closed: HashSet<u32>,
    /// Sum over the TCP streams that were removed.
    removed_stats: TransportStats,
    /// Sum over QUIC connections, one after another.
    quic: Cumulative,
}

/// Counters and RTTs of data streams, as TCP or QUIC reports them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TransportStats {
    /// Bytes received, and bytes that the peer has acknowledged.
    pub(crate) received: u64,
    pub(crate) acked: u64,
    /// Retransmitted segments, or lost packets of QUIC.
    pub(crate) retransmits: u64,
    /// Spurious retransmissions among them.
    pub(crate) spurious_retransmits: u64,
    /// Smallest min RTT of a TCP stream.
    pub(crate) min_rtt: Option<Duration>,
    /// Smoothed RTT of a QUIC connection.
    pub(crate) quic_smoothed_rtt: Option<Duration>,
    /// Largest MSS of a stream, or QUIC packet size; zero if unknown.
    pub(crate) mss: Bytes,
}

impl TransportStats {
    pub(crate) fn add(&mut self, info: &TcpInfo) {
        self.received += info.bytes_received.unwrap_or_default();
        self.acked += info.bytes_acked.unwrap_or_default();
        self.retransmits += u64::from(info.total_retrans);
        self.spurious_retransmits += u64::from(info.dsack_dups.unwrap_or_default());
        let min_rtt = info.min_rtt.filter(|rtt| !rtt.is_zero());
        self.min_rtt = self.min_rtt.into_iter().chain(min_rtt).min();
        self.mss = self.mss.max(Bytes(info.snd_mss.into()));
    }

    fn add_quic(&mut self, sight: &QuicStats) {
        self.received += sight.received;
        self.acked += sight.sent.saturating_sub(sight.lost);
        self.retransmits += sight.lost_packets;
        self.quic_smoothed_rtt = Some(sight.rtt).filter(|rtt| !rtt.is_zero());
    }
}

impl Session {
    /// Returns a session with the user's settings and this initial number of streams.
    pub(crate) fn new(overrides: Overrides, initial_streams: u32) -> Self {
        let wanted = Mutex::new(initial_streams);
        let throttle = overrides.throttle();
        Self { throttle, overrides, initial_streams, wanted, ..Self::default() }
    }

    /// Returns each stream's share of the window that the user has set.
    pub(crate) fn window_share(&self) -> Option<Bytes> {
        let count = self.initial_streams.max(self.stream_count() as u32);
        self.overrides.window.map(|window| pacing::window_per_stream(window, count))
    }

    /// Returns the rates that the user's settings allow: rate limit, and window over min RTT.
    pub(crate) fn user_limits(&self) -> UserLimits {
        let min_rtt = lock(&self.streams).removed_stats.min_rtt;
        let window = self.overrides.window.zip(min_rtt).map(|(window, rtt)| window.per(rtt));
        UserLimits { rate_max: self.overrides.rate_max, window }
    }

    /// Stops the session with an error; the first one is kept.
    pub(crate) fn fail(&self, error: Error) {
        lock(&self.error).get_or_insert(error);
        self.stop();
    }

    /// Stops the session and wakes its threads, which then check [`is_stopped`](Self::is_stopped).
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        for socket in lock(&self.streams).open.values() {
            socket.shutdown();
        }
        for close in &*lock(&self.stop_callbacks) {
            close();
        }
        if let Some(throttle) = &self.throttle {
            throttle.close();
        }
        if let Some(credit) = &self.credit {
            credit.close();
        }
        self.wake_spawners();
    }

    /// Sets how many streams carry data: the most recent ones pause, missing ones are made. No
    /// effect if the number is fixed.
    pub(crate) fn set_wanted_streams(&self, count: u32) {
        let Some(max) = self.max_streams else { return };
        *lock(&self.wanted) = count.clamp(1, max.max(1));
        self.wanted_changed.notify_all();
    }

    /// Returns how many streams are to carry data.
    pub(crate) fn wanted_streams(&self) -> u32 {
        *lock(&self.wanted)
    }

    /// Waits until more than `made` streams are wanted; returns early on any wake-up and after
    /// `timeout`. Returns the number wanted.
    pub(crate) fn wait_wanted(&self, made: u32, timeout: Duration) -> u32 {
        let wanted = lock(&self.wanted);
        if *wanted > made {
            return *wanted;
        }
        let waited = self.wanted_changed.wait_timeout(wanted, timeout);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes the threads that make or accept streams.
    pub(crate) fn wake_spawners(&self) {
        self.wanted_changed.notify_all();
        for wake in &*lock(&self.spawner_callbacks) {
            wake();
        }
    }

    /// Registers a callback of [`wake_spawners`](Self::wake_spawners).
    pub(crate) fn on_spawner_wake(&self, wake: impl Fn() + Send + 'static) {
        lock(&self.spawner_callbacks).push(Box::new(wake));
    }

    /// Returns the first stream number that is paused; `None` if no stream is.
    pub(crate) fn first_paused(&self) -> Option<u32> {
        let wanted = self.wanted_streams() as usize;
        lock(&self.streams).open.keys().nth(wanted).copied()
    }

    /// Returns how many existing streams carry data.
    pub(crate) fn active_stream_count(&self) -> u32 {
        self.wanted_streams().min(self.stream_count() as u32)
    }

    /// Whether a stream is paused: it carries no data for now.
    pub(crate) fn is_paused(&self, number: u32) -> bool {
        self.first_paused().is_some_and(|first| number >= first)
    }

    /// Applies the user's settings to a sending stream, then waits for its staggered start. Returns
    /// false if a setting failed, which ends the session.
    pub(crate) fn prepare_sender(&self, number: u32, stream: &mut DataStream) -> bool {
        stream.set_throttle(self.throttle());
        stream.set_credit(
            self.credit.as_ref().map(|credit| StreamCredit::new(Arc::clone(credit), number)),
        );
        stream.set_burst_limit(Arc::clone(&self.burst_limit));
        if self.overrides.engine == Some(IoMethod::Splice) {
            // The user chose this engine explicitly: no fallback.
            match Pipe::new(CHUNK_BYTES) {
                Ok(pipe) => stream.set_pipe(Some(pipe)),
                Err(e) => {
                    self.fail(Error::local("cannot create a pipe for engine splice", &e));
                    return false;
                }
            }
        }
        let ready = self.overrides.apply_to_sender(stream.socket().tcp());
        let is_ready = ready.map_err(|failure| self.fail(failure.into())).is_ok();
        if let Some(spread) = self.start_stagger.as_ref().filter(|_| is_ready) {
            spread.wait(stream.socket());
        }
        is_ready
    }

    /// Returns the rate limit that sending streams wait for.
    pub(crate) fn throttle(&self) -> Option<Arc<Throttle>> {
        self.throttle.clone()
    }

    /// Starts a thread of this session; on failure the session ends with that error.
    pub(crate) fn spawn<'scope, 'env: 'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        work: impl FnOnce() + Send + 'scope,
    ) {
        if let Err(e) = try_spawn(scope, work) {
            self.fail(e);
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Takes the error that ended the session.
    pub(crate) fn take_error(&self) -> Option<Error> {
        lock(&self.error).take()
    }

    /// Registers `close` to be called when the session stops, immediately if it has stopped.
    pub(crate) fn on_stop(&self, close: impl Fn() + Send + 'static) {
        let mut stop_callbacks = lock(&self.stop_callbacks);
        if self.is_stopped() {
            close();
        }
        stop_callbacks.push(Box::new(close));
    }

    /// Adds a data stream, so that [`stop`](Self::stop) can shut it down. Fails with
    /// `ConnectionAborted` if its number was given up.
    pub(crate) fn add_stream(&self, number: u32, socket: &Socket) -> io::Result<()> {
        let socket = socket.try_clone()?;
        let mut streams = lock(&self.streams);
        if self.is_stopped() {
            socket.shutdown();
        }
        if streams.closed.contains(&number) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        streams.open.insert(number, socket);
        Ok(())
    }

    /// Removes a data stream; returns true if it was present.
    pub(crate) fn remove_stream(&self, number: u32) -> bool {
        let mut streams = lock(&self.streams);
        let removed = streams.open.remove(&number);
        if let Some(info) = removed.as_ref().and_then(Socket::tcp_info) {
            streams.removed_stats.add(&info);
        }
        if let Some(sight) = removed.as_ref().and_then(Socket::quic_stats) {
            streams.removed_stats.mss = streams.removed_stats.mss.max(sight.segment);
        }
        removed.is_some()
    }

    /// Returns the largest MSS of removed streams, or the QUIC packet size; zero if unknown.
    pub(crate) fn mss(&self) -> Bytes {
        lock(&self.streams).removed_stats.mss
    }

    pub(crate) fn for_each_stream(&self, mut visit: impl FnMut(u32, &Socket)) {
        lock(&self.streams).open.iter().for_each(|(&number, socket)| visit(number, socket));
    }

    /// Calls `visit` with the `TCP_INFO` of each stream; returns totals, with QUIC and removed
    /// streams included.
    pub(crate) fn sample_streams(
        &self,
        mut visit: impl FnMut(u32, &Socket, &TcpInfo),
    ) -> TransportStats {
        let mut streams = lock(&self.streams);
        // All streams share one QUIC connection.
        let quic = streams.open.values().find_map(Socket::quic_stats);
        if let Some(sight) = quic {
            streams.quic.record(sight);
        }
        let mut total = streams.removed_stats;
        total.add_quic(&streams.quic.total());
        for (&number, socket) in &streams.open {
            if let Some(info) = socket.tcp_info() {
                total.add(&info);
                visit(number, socket, &info);
            }
        }
        total
    }

    pub(crate) fn stream_count(&self) -> usize {
        lock(&self.streams).open.len()
    }

    /// Closes a data stream for good; returns true if it was present.
    pub(crate) fn close_stream(&self, number: u32) -> bool {
        if let Some(credit) = &self.credit {
            // Unlimited credit wakes a sender that waits for it; it then finds the stream closed.
            credit.grant(&[Credit { stream: number, bytes: u64::MAX }]);
        }
        let mut streams = lock(&self.streams);
        streams.closed.insert(number);
        match streams.open.get(&number) {
            Some(socket) => {
                socket.shutdown();
                true
            }
            None => false,
        }
    }
}

/// Share of an allowed rate above which that limit, not the network, was the bottleneck.
/// (chosen: short transfers spend much of their time starting and ending)
const MIN_LIMITED_SHARE: f64 = 0.5;

/// Rates that the user's settings allow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UserLimits {
    rate_max: Option<Rate>,
    /// From the window that is set.
    window: Option<Rate>,
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
    times: Mutex<StageTimes>,
    /// CPU time of the threads that serve data streams.
    cpu_time: Mutex<Duration>,
    started: Instant,
    events: &'a dyn EventSink,
    path_observer: Mutex<PathObserver>,
}

impl<'a> SessionStats<'a> {
    pub(crate) fn new(events: &'a dyn EventSink, started: Instant) -> Self {
        let (counts, times, cpu_time, path_observer) = Default::default();
        Self { counts, times, cpu_time, started, events, path_observer }
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

    pub(crate) fn warn(&self, message: impl Into<String>) {
        self.event(Event::Warning { message: message.into() });
    }

    /// Records a failed file, directory or symlink.
    pub(crate) fn file_failed(&self, path: PathBuf, failure: &Failure) {
        let vanished = failure.cause() == Cause::SourceVanished;
        add(&self.counts.files_failed, 1);
        add(&self.counts.files_vanished, u64::from(vanished));
        let message = crate::base::error::printable(&failure.text);
        self.event(Event::FileFailed { path, message, vanished });
    }

    /// Records a failure or a warning that the peer reports.
    pub(crate) fn on_peer_problem(&self, problem: Problem) {
        let Problem { path, failure } = problem;
        if failure.cause() == Cause::Warning {
            return self.warn(crate::base::error::printable(&failure.text));
        }
        self.file_failed(PathBuf::from(OsString::from_vec(path.0)), &failure);
    }

    /// Records a file that the destination already has.
    pub(crate) fn file_skipped(&self, path: PathBuf, bytes: u64) {
        add(&self.counts.files_skipped, 1);
        add(&self.counts.bytes_skipped, bytes);
        self.file_completed(path, Outcome::Unchanged, bytes, None);
    }

    /// Reverts the counters of a file that changed while it was read.
    pub(crate) fn file_changed(&self, path: &Path, account: &FileStats) {
        self.counts.discard(account);
        self.warn(format!("{} changed while it was read: it is read again", path.display()));
    }

    /// Records a file that is in place.
    pub(crate) fn file_copied(&self, path: PathBuf, bytes: u64, blake3: Option<String>) {
        add(&self.counts.files_copied, 1);
        self.file_completed(path, Outcome::Copied, bytes, blake3);
    }

    pub(crate) fn file_completed(
        &self,
        path: PathBuf,
        outcome: Outcome,
        bytes: u64,
        hash: Option<String>,
    ) {
        if outcome == Outcome::WouldCopy {
            add(&self.counts.planned, 1);
            add(&self.counts.bytes_planned, bytes);
        }
        self.event(Event::Completed { path, outcome, bytes: Bytes(bytes), blake3: hash });
    }

    pub(crate) fn progress(&self) -> Progress {
        let c = &self.counts;
        let done = [&c.bytes_moved, &c.bytes_resumed, &c.bytes_skipped, &c.bytes_holes];
        let done: u64 = done.into_iter().map(read).sum();
        let void = read(&c.bytes_discarded);
        Progress {
            files_total: read(&c.files_total),
            bytes_total: Bytes(read(&c.bytes_total)),
            total_is_final: c.total_is_final.load(Ordering::Relaxed),
            files_done: read(&c.files_copied) + read(&c.files_skipped) + read(&c.files_failed),
            bytes_done: Bytes(done.saturating_sub(void)),
            bytes_moved: Bytes(read(&c.bytes_moved)),
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

    pub(crate) fn report(&self) -> SideSummary {
        let c = &self.counts;
        SideSummary::new(&lock(&self.times), read(&c.retransmits), read(&c.files_failed))
    }

    /// Returns the limit of a transfer whose data phase took `ran`.
    fn limit(&self, ends: &SideSummaries, user_limits: &UserLimits, ran: Duration) -> Limit {
        // Waiting without data is no bottleneck.
        if read(&self.counts.bytes_moved) == 0 {
            return Limit::Nothing;
        }
        let goodput = Bytes(read(&self.counts.wire_bytes)).per(ran).bits_per_sec() as f64;
        let is_reached = |max: Option<Rate>| {
            max.is_some_and(|max| goodput >= max.bits_per_sec() as f64 * MIN_LIMITED_SHARE)
        };
        match limited_by(&ends.sender.times(), &ends.receiver.times()) {
            Limit::Network if is_reached(user_limits.rate_max) => Limit::RateMax,
            Limit::Network if is_reached(user_limits.window) => Limit::Buffer,
            limit => limit,
        }
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
        Summary {
            files: read(&c.files_copied),
            dirs: read(&c.dirs),
            symlinks: read(&c.symlinks),
            symlinks_created: read(&c.symlinks_created),
            bytes: Bytes(read(&c.bytes_moved).saturating_sub(read(&c.bytes_discarded))),
            wire_bytes: Bytes(read(&c.wire_bytes)),
            elapsed: self.started.elapsed(),
            streams: read(&c.streams) as u32,
            retransmits: ends.sender.retransmits + ends.receiver.retransmits,
            resumed_bytes: Bytes(read(&c.bytes_resumed)),
            skipped_files: read(&c.files_skipped),
            skipped_bytes: Bytes(read(&c.bytes_skipped)),
            would_copy_entries: read(&c.planned),
            would_copy_bytes: Bytes(read(&c.bytes_planned)),
            failed_files: read(&c.files_failed),
            vanished_files: read(&c.files_vanished),
            special_files_skipped: read(&c.special_files_skipped),
            limited_by: limit.name(),
            limited_by_text: limit.to_string(),
        }
    }
}

/// Stage meter on this thread's clock.
pub(crate) struct ThreadMeter {
    meter: StageMeter,
    origin: Instant,
    /// CPU time of the thread at the last reading.
    cpu_time: Duration,
}

impl ThreadMeter {
    pub(crate) fn start() -> Self {
        let cpu_time = bankfull_sys::thread_cpu_time();
        Self { meter: StageMeter::new(Duration::ZERO), origin: Instant::now(), cpu_time }
    }

    /// Charges the time since the last mark to a stage.
    pub(crate) fn mark(&mut self, stage: Stage) {
        self.meter.mark(stage, self.origin.elapsed());
    }

    pub(crate) fn take(&mut self) -> StageTimes {
        self.meter.take()
    }

    /// Returns the CPU time that the thread has used since the last call.
    pub(crate) fn take_cpu_time(&mut self) -> Duration {
        let now = bankfull_sys::thread_cpu_time();
        now.saturating_sub(std::mem::replace(&mut self.cpu_time, now))
    }
}

/// Builds a message about a failure or a warning for the peer.
pub(crate) fn problem_message(path: PathBuf, failure: Failure) -> Message {
    Message::Problem(Problem { path: PathBytes(path.into_os_string().into_vec()), failure })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::thread;

    /// Session with `streams` streams at first and at most eight.
    fn adjustable_session(streams: u32) -> Session {
        let mut session = Session::new(Overrides::default(), streams);
        session.max_streams = Some(8);
        session
    }

    #[test]
    fn wanted_streams_are_capped_and_fixed_number_stays() {
        let session = adjustable_session(4);
        session.set_wanted_streams(1000);
        assert_eq!(session.wanted_streams(), 8);
        let fixed = Session::new(Overrides::default(), 4);
        fixed.set_wanted_streams(8);
        assert_eq!(fixed.wanted_streams(), 4);
    }

    #[test]
    fn most_recent_streams_pause_until_more_are_wanted() {
        let session = adjustable_session(3);
        let sockets: Vec<Socket> =
            (0..3).map(|_| Socket::Unix(UnixStream::pair().unwrap().0)).collect();
        for (number, socket) in [7, 2, 4].into_iter().zip(&sockets) {
            session.add_stream(number, socket).unwrap();
        }
        let paused = || [2, 4, 7].map(|number| session.is_paused(number));
        assert_eq!((paused(), session.active_stream_count()), ([false; 3], 3));
        session.set_wanted_streams(1);
        assert_eq!((paused(), session.active_stream_count()), ([false, true, true], 1));
        // A paused stream replaces a lost one.
        session.remove_stream(2);
        assert_eq!(paused(), [false, false, true]);
        session.set_wanted_streams(5);
        assert_eq!((paused(), session.active_stream_count()), ([false; 3], 2));
        session.set_wanted_streams(0);
        assert!(!session.is_paused(4), "at least one stream carries data");
    }

    #[test]
    fn spawner_is_woken_when_more_streams_are_wanted() {
        let session = adjustable_session(4);
        assert_eq!(session.wait_wanted(4, Duration::from_millis(1)), 4);
        thread::scope(|scope| {
            let waits = scope.spawn(|| session.wait_wanted(4, Duration::from_secs(20)));
            session.set_wanted_streams(8);
            assert_eq!(waits.join().unwrap(), 8);
        });
    }

    #[test]
    fn limit_names_the_user_setting_that_was_reached() {
        let stats = SessionStats::new(&crate::base::event::NoEvents, Instant::now());
        add(&stats.counts.bytes_moved, 1_000_000);
        add(&stats.counts.wire_bytes, 1_000_000);
        let network = StageTimes { network: Duration::from_secs(1), ..StageTimes::default() };
        let report = SideSummary::new(&network, 0, 0);
        let ends = SideSummaries { sender: report, receiver: report };
        let limit = |rate_max: Option<u64>, window: Option<u64>| {
            let [rate_max, window] =
                [rate_max, window].map(|rate| rate.map(Rate::from_bytes_per_sec));
            stats.limit(&ends, &UserLimits { rate_max, window }, Duration::from_secs(1))
        };
        assert_eq!(limit(None, None), Limit::Network);
        assert_eq!(limit(Some(1_100_000), None), Limit::RateMax);
        assert_eq!(limit(None, Some(1_100_000)), Limit::Buffer);
        assert_eq!(limit(Some(9_000_000), Some(9_000_000)), Limit::Network);
    }
}
