//! Threads of a session's data streams: started, reconnected after a loss, and waited for.

use crate::base::cancel::run_abandonable;
use crate::base::error::{Error, ErrorKind, os_message};
use crate::base::sync::lock;
use crate::base::threads::{try_spawn, try_spawn_now};
use crate::session::Session;
use crate::stats::counters::add;
use crate::stats::session_stats::SessionStats;
use crate::transport::data_stream::DataStream;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};
use tracing::debug;

/// Interval of checks for the end of the session.
const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// Wait without a limit of its own: the connections have timeouts.
const NO_TIMEOUT: Duration = Duration::from_secs(u32::MAX as u64);

/// First and longest delay before a lost data stream is reconnected; the delay doubles in between.
const RECONNECT_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(5));

/// Lifetime after which a data stream counts as established, which resets the backoff.
const MIN_HEALTHY_LIFETIME: Duration = Duration::from_secs(1);

/// Source of a session's data streams.
pub(crate) enum StreamSource {
    /// This side connects.
    Connect {
        connector: Arc<dyn Connect + Send + Sync>,
        count: u32,
        /// Streams that are connected already, with their numbers.
        ready: Vec<(u32, DataStream)>,
    },
    /// The peer connects; the listener forwards the streams of this session.
    Accept(mpsc::Receiver<AcceptedStream>),
}

/// An accepted data stream with its number, or `None` to wake the receiver.
pub(crate) type AcceptedStream = Option<(u32, DataStream)>;

/// Makes data streams.
pub(crate) trait Connect {
    /// Connects and attaches one data stream; returns its number, which is unique in the session.
    fn connect(&self) -> Result<(u32, DataStream), Error>;
}

/// Counter of running stream threads that can be waited for.
#[derive(Default)]
struct WaitGroup {
    active: Mutex<usize>,
    changed: Condvar,
}

impl WaitGroup {
    /// Waits until the count is zero or the session stops; returns false after `timeout`.
    fn wait(&self, session: &Session, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut active = lock(&self.active);
        while *active > 0 && !session.is_stopped() {
            if Instant::now() >= until {
                return false;
            }
            let waited = self.changed.wait_timeout(active, TICK_INTERVAL);
            active = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn add(&self) {
        *lock(&self.active) += 1;
    }

    fn count(&self) -> u32 {
        u32::try_from(*lock(&self.active)).unwrap_or(u32::MAX)
    }

    fn done(&self) {
        *lock(&self.active) -= 1;
        self.changed.notify_all();
    }
}

/// Function that runs a stream until it ends; an error is its loss.
type RunStream<'a> = &'a (dyn Fn(u32, DataStream) -> io::Result<()> + Sync);

/// Threads of a session's data streams.
pub(crate) struct StreamThreads<'a> {
    session: &'a Session,
    stats: &'a SessionStats<'a>,
    /// Time without a healthy connection after which a stream is given up.
    timeout: Duration,
    run: RunStream<'a>,
    /// True if no stream is needed any more.
    is_done: &'a (dyn Fn() -> bool + Sync),
    group: WaitGroup,
}

impl<'a> StreamThreads<'a> {
    /// Returns the threads of a session's streams, of which none is started yet. See the fields.
    pub(crate) fn new(
        session: &'a Session,
        stats: &'a SessionStats<'a>,
        timeout: Duration,
        run: RunStream<'a>,
        is_done: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        Self { session, stats, timeout, run, is_done, group: WaitGroup::default() }
    }

    /// Waits until all threads have ended or the session stops.
    pub(crate) fn join(&self) {
        self.group.wait(self.session, NO_TIMEOUT);
    }

    /// Waits for the streams to end after the sender has finished; false after the timeout.
    pub(crate) fn join_in_time(&self) -> bool {
        self.group.wait(self.session, self.timeout)
    }

    /// Starts a thread for each stream, or the thread that accepts streams.
    pub(crate) fn spawn<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        streams: StreamSource,
    ) {
        match streams {
            StreamSource::Connect { connector, count, ready } => {
                let start_stream = move |ready_stream| {
                    let connector = Arc::clone(&connector);
                    self.group.add();
                    add(&self.stats.counts.streams, 1);
                    let started = self.try_spawn(scope, move || {
                        self.run_with_reconnect(&connector, ready_stream);
                        self.group.done();
                    });
                    if let Err(error) = started {
                        self.group.done();
                        self.on_thread_shortage(error);
                    }
                };
                let mut ready = ready.into_iter();
                (0..count).for_each(|_| start_stream(ready.next()));
                if let Some(max_streams) = self.session.target.max {
                    self.session.spawn(scope, move || self.spawn_wanted(max_streams, start_stream));
                }
            }
            StreamSource::Accept(accepted) => {
                self.session.spawn(scope, move || {
                    while !self.session.is_stopped() && !(self.is_done)() {
                        match accepted.recv_timeout(TICK_INTERVAL) {
                            Ok(Some((number, stream))) => {
                                self.group.add();
                                add(&self.stats.counts.streams, 1);
                                let started = self.try_spawn(scope, move || {
                                    debug!(number, "stream accepted");
                                    // The peer reconnects a lost stream, or notices its end.
                                    log_stream_end(number, &(self.run)(number, stream));
                                    self.group.done();
                                });
                                if let Err(error) = started {
                                    self.group.done();
                                    self.on_thread_shortage(error);
                                }
                            }
                            Ok(None) | Err(RecvTimeoutError::Timeout) => {}
                            Err(RecvTimeoutError::Disconnected) => return,
                        }
                    }
                });
            }
        }
    }

    /// Starts a thread of a stream; waits for it only if there is no other.
    fn try_spawn<'scope, 'env: 'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        work: impl FnOnce() + Send + 'scope,
    ) -> Result<(), Error> {
        match self.group.count() {
            0 | 1 => try_spawn(scope, work),
            _ => try_spawn_now(scope, work),
        }
    }

    /// Continues with fewer streams after a thread could not be started; fails if there is none.
    fn on_thread_shortage(&self, error: Error) {
        if self.group.count() == 0 {
            return self.session.fail(error);
        }
        self.stats.warn(format!("continuing with one data stream fewer: {error}"));
    }

    /// Starts streams when the wanted number grows. A stream that failed for good is not replaced
    /// until then.
    fn spawn_wanted(&self, max_streams: u32, start_stream: impl Fn(Option<(u32, DataStream)>)) {
        let mut previous = self.group.count();
        while !self.session.is_stopped() && !(self.is_done)() {
            let wanted = self.session.target.wait_wanted(previous, TICK_INTERVAL).min(max_streams);
            while wanted > previous && self.group.count() < wanted && !(self.is_done)() {
                start_stream(None);
            }
            previous = wanted;
        }
    }

    /// Runs one stream, and reconnects it after a loss.
    fn run_with_reconnect(
        &self,
        connector: &Arc<dyn Connect + Send + Sync>,
        mut ready: Option<(u32, DataStream)>,
    ) {
        let mut delay = RECONNECT_BACKOFF.0;
        let mut last_healthy = Instant::now();
        let is_unneeded = || self.session.is_stopped() || (self.is_done)();
        let connect = || {
            let connector = Arc::clone(connector);
            run_abandonable(is_unneeded, move || connector.connect())
        };
        while !is_unneeded() {
            let mut lifetime = Duration::ZERO;
            let (error, lost) = match ready.take().map_or_else(connect, Ok) {
                Ok((number, stream)) => {
                    debug!(number, "stream connected");
                    let started = Instant::now();
                    let result = (self.run)(number, stream);
                    log_stream_end(number, &result);
                    lifetime = started.elapsed();
                    match result {
                        Ok(()) => return,
                        Err(e) => (unstable_streams(), Some(e)),
                    }
                }
                Err(error) => (error, None),
            };
            if lifetime > MIN_HEALTHY_LIFETIME {
                delay = RECONNECT_BACKOFF.0;
                last_healthy = Instant::now();
            }
            self.pause(delay);
            delay = (delay * 2).min(RECONNECT_BACKOFF.1);
            if is_unneeded() {
                // The session ended meanwhile, and its streams with it.
                return;
            }
            let is_transient = matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout);
            if !is_transient || last_healthy.elapsed() > self.timeout {
                if self.session.stream_count() == 0 {
                    return self.session.fail(error);
                }
                // The other streams continue.
                return self.stats.warn(format!("continuing with one data stream fewer: {error}"));
            }
            if let Some(lost) = lost {
                let why = os_message(&lost);
                self.stats.warn(format!("data stream lost ({why}): reconnecting"));
            }
        }
    }

    /// Waits for `delay`, or until the session stops.
    fn pause(&self, delay: Duration) {
        let until = Instant::now() + delay;
        while Instant::now() < until && !self.session.is_stopped() {
            thread::sleep(TICK_INTERVAL.min(delay));
        }
    }
}

fn log_stream_end(number: u32, result: &io::Result<()>) {
    match result {
        Ok(()) => debug!(number, "stream ended"),
        Err(error) => debug!(number, reason = &*error.to_string(), "stream lost"),
    }
}

fn unstable_streams() -> Error {
    Error::new(ErrorKind::Network, "each data stream is lost right after it connects")
}
