//! What the threads of one session share: the first error, the way to stop, and what is told of it.

use crate::block_io::{Engine, PIECE_BYTES};
use crate::counts::{Account, Counts, add, read};
use crate::datagram_room::Advice;
use crate::error::Error;
use crate::event::{Event, EventSink, Outcome, Progress, Summary};
use crate::net::asked::{Asked, Gate};
use crate::net::control::lock;
use crate::net::quic::{InTurn, QuicSight};
use crate::net::socket::{BurstLimit, Socket};
use crate::net::staging::Staging;
use crate::net::stream::DataStream;
use crate::overrides::Overrides;
use crate::paths::Sight;
use crate::threads::try_spawn;
use crate::throttle::Throttle;
use crate::tune::{Sharing, Spread, Steered};
use bankfull_control::sobas::CachedPath;
use bankfull_control::{Bytes, Limit, Rate, Stage, StageMeter, StageTimes, limited_by, pacing};
use bankfull_proto::wire::control::{
    Cause, Credit, Failure, Message, PathBytes, Problem, SideSummary,
};
use bankfull_sys::{Pipe, TcpInfo};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

type Closer = Box<dyn Fn() + Send>;

/// The state that the threads of a session share.
#[derive(Default)]
pub(crate) struct Session {
    error: Mutex<Option<Error>>,
    stopped: AtomicBool,
    /// Ends the control connection, and whatever else waits.
    closers: Mutex<Vec<Closer>>,
    streams: Mutex<Streams>,
    /// What the control thread passes on to whoever steers the data connections.
    pub(crate) steered: Steered,
    /// What the user has set.
    pub(crate) overrides: Overrides,
    /// How many data connections there are meant to be at first.
    planned: u32,
    /// How many there may come to be; `None` where their number stays.
    pub(crate) max_streams: Option<u32>,
    /// How many are to carry data, and what tells whoever makes them.
    wanted: Mutex<u32>,
    wanted_changed: Condvar,
    /// Tells whoever takes connections that the far side makes.
    takers: Mutex<Vec<Closer>>,
    /// What holds the data connections on the sending side.
    throttle: Option<Arc<Throttle>>,
    /// The longest burst of a data connection on the sending side.
    pub(crate) burst_limit: Arc<BurstLimit>,
    /// What has the data connections begin in turns on the sending side, where they are steered.
    pub(crate) spread: Option<Spread>,
    /// What the data connections were asked for, where they send nothing unasked.
    pub(crate) asked: Option<Arc<Asked>>,
    /// How the data connections share an interface with others, on the receiving side.
    pub(crate) sharing: Sharing,
    /// Where what is received waits until it is written.
    pub(crate) staging: Arc<Staging>,
    /// What could be set here for the socket of the data connections, until somebody watches that.
    pub(crate) advice: Mutex<Option<Advice>>,
    /// What an earlier copy saw of the path.
    pub(crate) remembered: Option<CachedPath>,
    /// How many files may be announced and not settled, where the receiver has said so.
    pub(crate) max_outstanding_files: Option<u32>,
}

#[derive(Default)]
struct Streams {
    open: BTreeMap<u32, Socket>,
    /// Numbers that one side gave up: such a connection must not be used when it appears late.
    ended: HashSet<u32>,
    /// Of connections that were left.
    left: Carried,
    /// Of those of QUIC.
    quic: InTurn,
}

/// What data connections did, counted by TCP or QUIC.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Carried {
    /// Data received, and data that the far side has acknowledged.
    pub(crate) received: u64,
    pub(crate) acked: u64,
    /// Segments sent again.
    pub(crate) retransmits: u64,
    /// How many of those had arrived before.
    pub(crate) spurious_retransmits: u64,
    /// The shortest round trip.
    pub(crate) rtt_min: Option<Duration>,
    /// The round trip of one of QUIC, smoothed.
    pub(crate) rtt_quic: Option<Duration>,
    /// Data in a full segment: the largest of a connection; zero where nobody knows.
    pub(crate) segment: Bytes,
}

impl Carried {
    /// Adds what one of them did.
    pub(crate) fn add(&mut self, info: &TcpInfo) {
        self.received += info.bytes_received.unwrap_or_default();
        self.acked += info.bytes_acked.unwrap_or_default();
        self.retransmits += u64::from(info.total_retrans);
        self.spurious_retransmits += u64::from(info.dsack_dups.unwrap_or_default());
        let seen = info.min_rtt.filter(|rtt| !rtt.is_zero());
        self.rtt_min = self.rtt_min.into_iter().chain(seen).min();
        self.segment = self.segment.max(Bytes(info.snd_mss.into()));
    }

    /// Adds what those of QUIC did.
    fn add_quic(&mut self, sight: &QuicSight) {
        self.received += sight.received;
        self.acked += sight.sent.saturating_sub(sight.lost);
        self.retransmits += sight.lost_packets;
        self.rtt_quic = Some(sight.rtt).filter(|rtt| !rtt.is_zero());
    }
}

impl Session {
    /// A session with what the user has set, of so many data connections.
    pub(crate) fn new(overrides: Overrides, planned: u32) -> Self {
        let wanted = Mutex::new(planned);
        Self { throttle: overrides.throttle(), overrides, planned, wanted, ..Self::default() }
    }

    /// What each data connection has of the windows, where the user has set them.
    pub(crate) fn window_share(&self) -> Option<Bytes> {
        let count = self.planned.max(self.stream_count() as u32);
        self.overrides.window.map(|window| pacing::window_per_stream(window, count))
    }

    /// The most that the user allows: by a rate, and by the windows of connections that were left.
    pub(crate) fn allowed(&self) -> Allowed {
        let rtt_min = lock(&self.streams).left.rtt_min;
        let window = self.overrides.window.zip(rtt_min).map(|(window, rtt)| window.per(rtt));
        Allowed { rate_max: self.overrides.rate_max, window }
    }

    /// Ends the session with an error. The first one counts.
    pub(crate) fn fail(&self, error: Error) {
        lock(&self.error).get_or_insert(error);
        self.stop();
    }

    /// Wakes everything that waits; threads then notice [`is_stopped`](Self::is_stopped).
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        for socket in lock(&self.streams).open.values() {
            socket.shutdown();
        }
        for close in &*lock(&self.closers) {
            close();
        }
        if let Some(throttle) = &self.throttle {
            throttle.end();
        }
        if let Some(asked) = &self.asked {
            asked.end();
        }
        self.wake_makers();
    }

    /// So many data connections are to carry data from now on; those that came last rest, and what
    /// is missing is made. Where their number is to stay, nothing changes, whatever the far side
    /// asks for.
    pub(crate) fn want_streams(&self, count: u32) {
        let Some(most) = self.max_streams else { return };
        *lock(&self.wanted) = count.clamp(1, most.max(1));
        self.wanted_changed.notify_all();
    }

    /// How many data connections are to carry data.
    pub(crate) fn wanted_streams(&self) -> u32 {
        *lock(&self.wanted)
    }

    /// Waits, though not for long, until more than `made` are wanted, or something else has
    /// happened. How many are wanted.
    pub(crate) fn wait_wanted(&self, made: u32, timeout: Duration) -> u32 {
        let wanted = lock(&self.wanted);
        if *wanted > made {
            return *wanted;
        }
        let waited = self.wanted_changed.wait_timeout(wanted, timeout);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes whoever waits for more to be wanted, or to arrive.
    pub(crate) fn wake_makers(&self) {
        self.wanted_changed.notify_all();
        for wake in &*lock(&self.takers) {
            wake();
        }
    }

    /// Has `wake` called by [`wake_makers`](Self::wake_makers).
    pub(crate) fn on_enough(&self, wake: impl Fn() + Send + 'static) {
        lock(&self.takers).push(Box::new(wake));
    }

    /// From this number on data connections are to rest; `None`: none is.
    pub(crate) fn resting_from(&self) -> Option<u32> {
        let wanted = self.wanted_streams() as usize;
        lock(&self.streams).open.keys().nth(wanted).copied()
    }

    /// How many data connections there are that are to carry data.
    pub(crate) fn carrying_count(&self) -> u32 {
        self.wanted_streams().min(self.stream_count() as u32)
    }

    /// Whether a data connection is to carry nothing for now.
    pub(crate) fn is_resting(&self, number: u32) -> bool {
        self.resting_from().is_some_and(|first| number >= first)
    }

    /// Readies a connection to send as the user wants it, and waits for its turn to begin. False
    /// when the session ends instead.
    pub(crate) fn ready_to_send(&self, number: u32, stream: &mut DataStream) -> bool {
        stream.set_throttle(self.throttle());
        stream.set_gate(self.asked.as_ref().map(|asked| Gate::new(Arc::clone(asked), number)));
        stream.set_burst_limit(Arc::clone(&self.burst_limit));
        if self.overrides.engine == Some(Engine::Splice) {
            // It was chosen: nothing else does in its place.
            match Pipe::new(PIECE_BYTES) {
                Ok(pipe) => stream.set_pipe(Some(pipe)),
                Err(e) => {
                    self.fail(Error::local("cannot make a pipe for engine splice", &e));
                    return false;
                }
            }
        }
        let ready = self.overrides.ready_sender(stream.socket());
        let is_ready = ready.map_err(|failure| self.fail(failure.into())).is_ok();
        if let Some(spread) = self.spread.as_ref().filter(|_| is_ready) {
            spread.wait(stream.socket());
        }
        is_ready
    }

    /// What a connection has to wait for before it sends, if anything.
    pub(crate) fn throttle(&self) -> Option<Arc<Throttle>> {
        self.throttle.clone()
    }

    /// Starts a thread of this session. Where the system gives none, the session ends, and says so.
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

    /// What ended the session.
    pub(crate) fn take_error(&self) -> Option<Error> {
        lock(&self.error).take()
    }

    /// Has `close` called when the session stops; at once if it did already.
    pub(crate) fn on_stop(&self, close: impl Fn() + Send + 'static) {
        let mut closers = lock(&self.closers);
        if self.is_stopped() {
            close();
        }
        closers.push(Box::new(close));
    }

    /// Enters a data connection, so that it can be ended from elsewhere. An error when its number
    /// was given up already.
    pub(crate) fn enter_stream(&self, number: u32, socket: &Socket) -> io::Result<()> {
        let socket = socket.try_clone()?;
        let mut streams = lock(&self.streams);
        if self.is_stopped() {
            socket.shutdown();
        }
        if streams.ended.contains(&number) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        streams.open.insert(number, socket);
        Ok(())
    }

    /// Removes a data connection. True when it was there.
    pub(crate) fn leave_stream(&self, number: u32) -> bool {
        let mut streams = lock(&self.streams);
        let left = streams.open.remove(&number);
        if let Some(info) = left.as_ref().and_then(Socket::info) {
            streams.left.add(&info);
        }
        if let Some(sight) = left.as_ref().and_then(Socket::quic_sight) {
            streams.left.segment = streams.left.segment.max(sight.segment);
        }
        left.is_some()
    }

    /// Data in a full segment of the connections that were left, or a packet of QUIC; zero where
    /// nobody knows.
    pub(crate) fn segment(&self) -> Bytes {
        lock(&self.streams).left.segment
    }

    /// Does something with each data connection.
    pub(crate) fn each_stream(&self, mut act: impl FnMut(u32, &Socket)) {
        lock(&self.streams).open.iter().for_each(|(&number, socket)| act(number, socket));
    }

    /// Looks at each data connection with what TCP tells of it. What they did, those of QUIC, too,
    /// and those before them that were left.
    pub(crate) fn look(&self, mut act: impl FnMut(u32, &Socket, &TcpInfo)) -> Carried {
        let mut streams = lock(&self.streams);
        // All streams that carry data belong to one connection of QUIC.
        let first = streams.open.values().find_map(Socket::quic_sight);
        if let Some(sight) = first {
            streams.quic.take(sight);
        }
        let mut carried = streams.left;
        carried.add_quic(&streams.quic.sum());
        for (&number, socket) in &streams.open {
            if let Some(info) = socket.info() {
                carried.add(&info);
                act(number, socket, &info);
            }
        }
        carried
    }

    /// How many data connections there are.
    pub(crate) fn stream_count(&self) -> usize {
        lock(&self.streams).open.len()
    }

    /// Ends one data connection for good. True when there was such a connection.
    pub(crate) fn close_stream(&self, number: u32) -> bool {
        if let Some(asked) = &self.asked {
            // Whoever waits there to be asked finds the connection ended.
            asked.ask(&[Credit { stream: number, bytes: u64::MAX }]);
        }
        let mut streams = lock(&self.streams);
        streams.ended.insert(number);
        match streams.open.get(&number) {
            Some(socket) => {
                socket.shutdown();
                true
            }
            None => false,
        }
    }
}

/// A transfer that had this share of the rate that was allowed was limited by that where the
/// network did. (ours: short ones take a while to begin and to end)
const MAX_SHARE: f64 = 0.5;

/// The most data per second that the user allows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Allowed {
    rate_max: Option<Rate>,
    /// By the windows that are set.
    window: Option<Rate>,
}

/// What both sides of a transfer report at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) sender: SideSummary,
    pub(crate) receiver: SideSummary,
}

/// Counts, meters and events of a session in one place.
pub(crate) struct Tally<'a> {
    pub(crate) counts: Counts,
    times: Mutex<StageTimes>,
    /// For how long data connections have kept processors busy.
    busy: Mutex<Duration>,
    started: Instant,
    events: &'a dyn EventSink,
    sight: Mutex<Sight>,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(events: &'a dyn EventSink, started: Instant) -> Self {
        let (counts, times, busy, sight) = Default::default();
        Self { counts, times, busy, started, events, sight }
    }

    pub(crate) fn event(&self, event: Event) {
        self.events.event(event);
    }

    /// What is seen of the path.
    pub(crate) fn sight(&self) -> MutexGuard<'_, Sight> {
        lock(&self.sight)
    }

    /// Time since the transfer began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn notice(&self, message: impl Into<String>) {
        self.event(Event::Notice { message: message.into() });
    }

    /// A file, directory or symlink that failed.
    pub(crate) fn file_failed(&self, path: PathBuf, failure: &Failure) {
        let vanished = failure.cause() == Cause::SourceVanished;
        add(&self.counts.files_failed, 1);
        add(&self.counts.files_vanished, u64::from(vanished));
        let message = crate::error::printable(&failure.text);
        self.event(Event::FileFailed { path, message, vanished });
    }

    /// What the far side tells of something there.
    pub(crate) fn problem_there(&self, problem: Problem) {
        let Problem { path, failure } = problem;
        if failure.cause() == Cause::Warning {
            return self.notice(crate::error::printable(&failure.text));
        }
        self.file_failed(PathBuf::from(OsString::from_vec(path.0)), &failure);
    }

    /// A file that the destination had already.
    pub(crate) fn file_skipped(&self, path: PathBuf, bytes: u64) {
        add(&self.counts.files_skipped, 1);
        add(&self.counts.bytes_skipped, bytes);
        self.settled(path, Outcome::Unchanged, bytes, None);
    }

    /// A file has changed while it was read: what has come of it is nothing.
    pub(crate) fn changed(&self, path: &Path, account: &Account) {
        self.counts.take_back(account);
        self.notice(format!("{} changed while it was read: it is read again", path.display()));
    }

    /// A file that is in place now.
    pub(crate) fn file_copied(&self, path: PathBuf, bytes: u64, blake3: Option<String>) {
        add(&self.counts.files_copied, 1);
        self.settled(path, Outcome::Copied, bytes, blake3);
    }

    pub(crate) fn settled(
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
        self.event(Event::Settled { path, outcome, bytes: Bytes(bytes), blake3: hash });
    }

    pub(crate) fn progress(&self) -> Progress {
        let c = &self.counts;
        let settled = [&c.bytes_moved, &c.bytes_resumed, &c.bytes_skipped, &c.bytes_holes];
        let settled: u64 = settled.into_iter().map(read).sum();
        let void = read(&c.bytes_void);
        Progress {
            files_total: read(&c.files_total),
            bytes_total: Bytes(read(&c.bytes_total)),
            total_is_final: c.total_is_final.load(Ordering::Relaxed),
            files_done: read(&c.files_copied) + read(&c.files_skipped) + read(&c.files_failed),
            bytes_done: Bytes(settled.saturating_sub(void)),
            bytes_moved: Bytes(read(&c.bytes_moved)),
            elapsed: self.started.elapsed(),
        }
    }

    /// Adds what a worker thread measured, and for how long its connection kept a processor busy.
    pub(crate) fn add_times(&self, times: &StageTimes, busy: Duration) {
        lock(&self.times).merge(times);
        *lock(&self.busy) += busy;
    }

    /// For how long data connections have kept processors busy.
    pub(crate) fn busy(&self) -> Duration {
        *lock(&self.busy)
    }

    /// What worker threads have measured so far.
    pub(crate) fn times(&self) -> StageTimes {
        *lock(&self.times)
    }

    pub(crate) fn report(&self) -> SideSummary {
        let c = &self.counts;
        SideSummary::new(&lock(&self.times), read(&c.retransmits), read(&c.files_failed))
    }

    /// What limited the transfer, which had so long for its data, where so much was allowed.
    fn limit(&self, ends: &Ends, allowed: &Allowed, ran: Duration) -> Limit {
        // Waiting for nothing is no limit.
        if read(&self.counts.bytes_moved) == 0 {
            return Limit::Nothing;
        }
        let went = Bytes(read(&self.counts.wire_bytes)).per(ran).bits_per_sec() as f64;
        let is_all = |most: Option<Rate>| {
            most.is_some_and(|most| went >= most.bits_per_sec() as f64 * MAX_SHARE)
        };
        match limited_by(&ends.sender.times(), &ends.receiver.times()) {
            Limit::Network if is_all(allowed.rate_max) => Limit::RateMax,
            Limit::Network if is_all(allowed.window) => Limit::Buffer,
            limit => limit,
        }
    }

    /// The summary, given what both sides report, what was allowed, and how long data could go.
    pub(crate) fn summary(&self, ends: &Ends, allowed: &Allowed, ran: Duration) -> Summary {
        let c = &self.counts;
        let limit = self.limit(ends, allowed, ran);
        Summary {
            files: read(&c.files_copied),
            dirs: read(&c.dirs),
            symlinks: read(&c.symlinks),
            links_made: read(&c.links_made),
            bytes: Bytes(read(&c.bytes_moved).saturating_sub(read(&c.bytes_void))),
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

/// A stage meter on this thread's clock.
pub(crate) struct Meter {
    meter: StageMeter,
    origin: Instant,
    /// What the thread had used of a processor when that was taken last.
    busy: Duration,
}

impl Meter {
    pub(crate) fn start() -> Self {
        let busy = bankfull_sys::thread_cpu_time();
        Self { meter: StageMeter::new(Duration::ZERO), origin: Instant::now(), busy }
    }

    /// Charges the time since the last mark to a stage.
    pub(crate) fn mark(&mut self, stage: Stage) {
        self.meter.mark(stage, self.origin.elapsed());
    }

    pub(crate) fn take(&mut self) -> StageTimes {
        self.meter.take()
    }

    /// What the thread has used of a processor since this was asked last.
    pub(crate) fn take_busy(&mut self) -> Duration {
        let now = bankfull_sys::thread_cpu_time();
        now.saturating_sub(std::mem::replace(&mut self.busy, now))
    }
}

/// What failed, or what the user should know, for the far side.
pub(crate) fn problem(path: PathBuf, failure: Failure) -> Message {
    Message::Problem(Problem { path: PathBytes(path.into_os_string().into_vec()), failure })
}

/// A path for messages: relative, from its parts.
pub(crate) fn join(dir: &Path, name: &std::ffi::OsStr) -> PathBuf {
    if dir.as_os_str().is_empty() { PathBuf::from(name) } else { dir.join(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::thread;

    /// With so many connections at first, and eight at most.
    fn may_change(streams: u32) -> Session {
        let mut session = Session::new(Overrides::default(), streams);
        session.max_streams = Some(8);
        session
    }

    #[test]
    fn no_more_are_wanted_than_are_allowed_and_a_fixed_number_stays() {
        let session = may_change(4);
        session.want_streams(1000);
        assert_eq!(session.wanted_streams(), 8);
        let fixed = Session::new(Overrides::default(), 4);
        fixed.want_streams(8);
        assert_eq!(fixed.wanted_streams(), 4);
    }

    #[test]
    fn those_that_came_last_rest_until_more_are_wanted() {
        let session = may_change(3);
        let sockets: Vec<Socket> =
            (0..3).map(|_| Socket::Unix(UnixStream::pair().unwrap().0)).collect();
        for (number, socket) in [7, 2, 4].into_iter().zip(&sockets) {
            session.enter_stream(number, socket).unwrap();
        }
        let resting = || [2, 4, 7].map(|number| session.is_resting(number));
        assert_eq!((resting(), session.carrying_count()), ([false; 3], 3));
        session.want_streams(1);
        assert_eq!((resting(), session.carrying_count()), ([false, true, true], 1));
        // Another one takes the place of one that is lost.
        session.leave_stream(2);
        assert_eq!(resting(), [false, false, true]);
        session.want_streams(5);
        assert_eq!((resting(), session.carrying_count()), ([false; 3], 2));
        session.want_streams(0);
        assert!(!session.is_resting(4), "one carries data at least");
    }

    #[test]
    fn who_makes_connections_is_woken_when_more_are_wanted() {
        let session = may_change(4);
        assert_eq!(session.wait_wanted(4, Duration::from_millis(1)), 4);
        thread::scope(|scope| {
            let waits = scope.spawn(|| session.wait_wanted(4, Duration::from_secs(20)));
            session.want_streams(8);
            assert_eq!(waits.join().unwrap(), 8);
        });
    }
    #[test]
    fn what_the_user_allowed_is_named_where_about_that_came_over_the_network() {
        let tally = Tally::new(&crate::event::NoEvents, Instant::now());
        add(&tally.counts.bytes_moved, 1_000_000);
        add(&tally.counts.wire_bytes, 1_000_000);
        let network = StageTimes { network: Duration::from_secs(1), ..StageTimes::default() };
        let report = SideSummary::new(&network, 0, 0);
        let ends = Ends { sender: report, receiver: report };
        let limit = |rate_max: Option<u64>, window: Option<u64>| {
            let [rate_max, window] =
                [rate_max, window].map(|rate| rate.map(Rate::from_bytes_per_sec));
            tally.limit(&ends, &Allowed { rate_max, window }, Duration::from_secs(1))
        };
        assert_eq!(limit(None, None), Limit::Network);
        assert_eq!(limit(Some(1_100_000), None), Limit::RateMax);
        assert_eq!(limit(None, Some(1_100_000)), Limit::Buffer);
        assert_eq!(limit(Some(9_000_000), Some(9_000_000)), Limit::Network);
    }
}
