//! Runs one negotiated session on one side: its threads, heartbeats, progress, reconnects and
//! orderly end.

use crate::base::sync::Latch;

use crate::base::cancel::{Cancel, run_abandonable};
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{Event, EventSink, Summary};
use crate::base::sync::lock;
use crate::base::threads::try_spawn;
use crate::file_io::roots::ReceiveTarget;
use crate::file_io::roots::SourceItem;
use crate::model::transfer_options::TransferOptions;
use crate::session::Session;
use crate::stats::counters::add;
use crate::stats::session_stats::{SessionStats, SideSummaries};
use crate::transfer::receiver::Receiver;
use crate::transfer::sender::Sender;
use crate::transfer::throughput_test::ThroughputTest;
use crate::transport::control::{ControlReader, Outbox};
use crate::transport::data_stream::DataStream;
use crate::tuning::incast::ReceivingGuard;
use crate::tuning::monitor::watch_udp_buffer;
use crate::tuning::receiver::ReceiverTuner;
use crate::tuning::sender::SenderTuner;
use crate::tuning::telemetry::Telemetry;
use crate::tuning::{Autotune, clamp_windows, monitor};
use bankfull_proto::session::Role;
use bankfull_proto::wire::control::{Message, PathBytes};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Interval of progress events and of checks for cancellation.
const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// Upper bound of the heartbeat interval, which is a quarter of the time-out: three may be lost.
const MAX_PING_INTERVAL: Duration = Duration::from_secs(10);

/// Wait without a limit of its own: the connections have time-outs.
const NO_TIMEOUT: Duration = Duration::from_secs(u32::MAX as u64);

/// Time to send the final messages of a failed session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// First and longest delay before a lost data stream is reconnected; the delay doubles in between.
const RECONNECT_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(5));

/// Lifetime after which a data stream counts as established, which resets the backoff.
const MIN_HEALTHY_LIFETIME: Duration = Duration::from_secs(1);

/// Source of a session's data streams.
pub(crate) enum StreamSource {
    /// This side connects.
    Connect { connector: Arc<dyn Connect + Send + Sync>, count: u32, ready: Vec<(u32, DataStream)> },
    /// The peer connects; the listener forwards the streams of this session.
    Accept(mpsc::Receiver<AcceptedStream>),
}

/// An accepted data stream with its number, or `None` to wake the receiver of the channel.
pub(crate) type AcceptedStream = Option<(u32, DataStream)>;

/// Makes data streams.
pub(crate) trait Connect {
    /// Connects and attaches one data stream; returns its number, which is unique in the session.
    fn connect(&self) -> Result<(u32, DataStream), Error>;
}

/// The control channel of a negotiated session.
pub(crate) struct ControlChannel {
    pub(crate) reader: ControlReader,
    pub(crate) output: Box<dyn Write + Send>,
    pub(crate) outbox: Outbox,
    /// Closes the connection immediately; pending reads and writes fail.
    pub(crate) close: CloseFn,
}

pub(crate) type CloseFn = Arc<dyn Fn() + Send + Sync>;

/// Everything that a session needs to run, except its task.
pub(crate) struct SessionRunner<'a> {
    pub(crate) session: Arc<Session>,
    pub(crate) stats: &'a SessionStats<'a>,
    pub(crate) cancel: &'a Cancel,
    pub(crate) timeout: Duration,
    /// Whether to emit progress events.
    pub(crate) report_progress: bool,
    /// Set at the end of the session; stops the ticker without delay.
    pub(crate) ended: Latch,
    /// Tuning of the data streams, taken when it starts.
    pub(crate) autotune: Mutex<Autotune>,
}

/// Emits the resolved destination of each source: paths on the receiver's host.
pub(crate) fn report_destinations(
    events: &dyn EventSink,
    options: &TransferOptions,
    destinations: &[PathBytes],
) {
    for (source, path) in options.sources.iter().zip(destinations) {
        let path = PathBuf::from(OsString::from_vec(path.0.clone()));
        events.event(Event::Destination {
            source: source.to_path(),
            destination: options.destination.with_path(path).to_path(),
        });
    }
}

/// Task of this side in the session.
pub(crate) enum SessionTask {
    Send {
        items: Vec<SourceItem>,
        dry_run: bool,
    },
    Receive(ReceiveTarget),
    /// Throughput test: filler is sent for this time, and no file.
    SendTest(Duration),
    ReceiveTest(Duration),
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

impl SessionRunner<'_> {
    /// Runs the session to its end.
    pub(crate) fn run(
        &self,
        channel: ControlChannel,
        task: SessionTask,
        streams: StreamSource,
    ) -> Result<Summary, Error> {
        let started = Instant::now();
        let ControlChannel { mut reader, output, outbox, close } = channel;
        let release = outbox.clone();
        self.session.on_stop(move || release.release());
        let result = thread::scope(|scope| {
            let loss = reader.loss();
            let outbox = &outbox;
            self.session.spawn(scope, move || {
                if let Err(e) = outbox.run_writer(output, &loss) {
                    self.session.fail(e);
                }
            });
            self.session.spawn(scope, || self.tick(outbox));
            let receives = matches!(task, SessionTask::Receive(_) | SessionTask::ReceiveTest(_));
            let receiving = matches!(task, SessionTask::Receive(_)).then(ReceivingGuard::new);
            self.session.spawn(scope, move || self.run_autotune(outbox, receives));
            let result = match task {
                SessionTask::Send { items, dry_run } => {
                    let sender = Sender::new(&self.session, outbox.clone(), self.stats, dry_run);
                    self.send(&sender, &mut reader, &items, streams)
                }
                SessionTask::Receive(target) => self.receive(&mut reader, outbox, target, streams),
                SessionTask::SendTest(time) => self.send_test(&mut reader, outbox, time, streams),
                SessionTask::ReceiveTest(time) => {
                    self.receive_test(&mut reader, outbox, time, streams)
                }
            };
            let result = self.close_session(result, &mut reader, outbox, receives);
            close();
            self.ended.set();
            drop(receiving);
            result
        });
        let user_limits = self.session.user_limits();
        result.map(|ends| self.stats.summary(&ends, &user_limits, started.elapsed()))
    }

    /// Closes the session in order, or reports the error to the peer.
    fn close_session(
        &self,
        result: Result<SideSummaries, Error>,
        reader: &mut ControlReader,
        outbox: &Outbox,
        receives: bool,
    ) -> Result<SideSummaries, Error> {
        let result = match result {
            Ok(times) => Ok(times),
            Err(error) => {
                self.session.stop();
                // The session's first error is the cause; the control thread's may follow from it.
                // After a lost connection the latter is more specific: the peer's error message, or
                // a time-out. The kernel reports the cause to one thread; the rest get a broken
                // pipe.
                let is_cause = |first: &Error| {
                    let was_silent =
                        first.is_connection_loss() && error.kind() == ErrorKind::Timeout;
                    !was_silent && (!first.is_connection_loss() || error.is_connection_loss())
                };
                Err(self.session.take_error().filter(is_cause).unwrap_or(error))
            }
        };
        if let Err(error) = &result
            && (error.has_protocol_cause()
                || !matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout))
        {
            outbox.post(&Message::Error(error.to_failure()));
        }
        outbox.close();
        let flushed =
            outbox.wait_writer_done(if result.is_ok() { self.timeout } else { CLOSE_TIMEOUT });
        // The sender closes first; the receiver waits for that, so that its last message arrives.
        if result.is_ok() && flushed && receives {
            reader.wait_closed();
        }
        self.session.stop();
        result
    }

    /// Runs the ticker: heartbeats, progress events and cancellation.
    pub(crate) fn tick(&self, outbox: &Outbox) {
        let interval = (self.timeout / 4).min(MAX_PING_INTERVAL);
        let mut pinged = Instant::now();
        while !self.ended.wait(TICK_INTERVAL.min(interval)) {
            if self.cancel.is_cancelled() && !self.session.is_stopped() {
                self.session.fail(Error::interrupted());
            }
            if self.report_progress {
                self.stats.event(Event::Progress(self.stats.progress()));
            }
            if pinged.elapsed() >= interval {
                outbox.post_ping();
                pinged = Instant::now();
            }
        }
    }

    fn send(
        &self,
        sender: &Sender<'_>,
        reader: &mut ControlReader,
        items: &[SourceItem],
        streams: StreamSource,
    ) -> Result<SideSummaries, Error> {
        let group = WaitGroup::default();
        let run = |number, stream| sender.run_stream(number, stream);
        let is_done = || sender.is_complete();
        let result = thread::scope(|scope| {
            self.session.spawn(scope, || sender.walk(items));
            self.session.spawn(scope, || sender.run_dry_run());
            self.spawn_streams(scope, &group, streams, &run, &is_done);
            self.session.spawn(scope, || {
                sender.finish(|| {
                    group.wait(&self.session, NO_TIMEOUT);
                });
            });
            let result = sender.run_control(reader).inspect_err(|_| self.session.stop());
            self.session.target.wake_spawners();
            result
        });
        // After the streams have added their times.
        result.map(|receiver| SideSummaries { sender: self.stats.report(), receiver })
    }

    fn receive(
        &self,
        reader: &mut ControlReader,
        outbox: &Outbox,
        target: ReceiveTarget,
        streams: StreamSource,
    ) -> Result<SideSummaries, Error> {
        outbox.block_when_full();
        let session = Arc::clone(&self.session);
        let (receiver, queue) = Receiver::new(session, outbox.clone(), self.stats, target);
        let group = WaitGroup::default();
        let run = |number, stream| receiver.run_stream(number, stream);
        let is_done = || receiver.is_finished();
        thread::scope(|scope| {
            self.session.spawn(scope, || receiver.run_compare(queue));
            self.session.spawn(scope, || receiver.finish_early());
            self.session.spawn(scope, || receiver.run_merge());
            self.spawn_streams(scope, &group, streams, &run, &is_done);
            let sender = receiver.run_control(reader).inspect_err(|_| self.session.stop())?;
            self.session.target.wake_spawners();
            // The sender has finished: data in the tunnel has no reader any more.
            reader.close_tunnel();
            self.wait_for_streams(&group, reader)?;
            receiver.finish();
            Ok(SideSummaries { sender, receiver: self.stats.report() })
        })
    }

    /// Waits for the data streams to end after the sender has finished.
    fn wait_for_streams(&self, group: &WaitGroup, reader: &ControlReader) -> Result<(), Error> {
        if group.wait(&self.session, self.timeout) {
            return Ok(());
        }
        self.session.stop();
        let text = format!("{} finished but left its data streams open", reader.peer());
        Err(Error::new(ErrorKind::Timeout, text))
    }

    fn send_test(
        &self,
        reader: &mut ControlReader,
        outbox: &Outbox,
        time: Duration,
        streams: StreamSource,
    ) -> Result<SideSummaries, Error> {
        let load =
            ThroughputTest::new(&self.session, outbox.clone(), self.stats, Role::Sender, time);
        let group = WaitGroup::default();
        let run = |number, stream| load.send(number, stream);
        let is_done = || load.is_over();
        let result = thread::scope(|scope| {
            self.spawn_streams(scope, &group, streams, &run, &is_done);
            self.session.spawn(scope, || {
                load.finish(|| {
                    // If the peer connects, the group is empty at first.
                    while !load.is_over() && !self.session.is_stopped() {
                        thread::sleep(TICK_INTERVAL);
                    }
                    group.wait(&self.session, NO_TIMEOUT);
                });
            });
            let result = load.run_sender(reader).inspect_err(|_| self.session.stop());
            self.session.target.wake_spawners();
            result
        });
        result.map(|receiver| SideSummaries { sender: self.stats.report(), receiver })
    }

    fn receive_test(
        &self,
        reader: &mut ControlReader,
        outbox: &Outbox,
        time: Duration,
        streams: StreamSource,
    ) -> Result<SideSummaries, Error> {
        let load =
            ThroughputTest::new(&self.session, outbox.clone(), self.stats, Role::Receiver, time);
        let group = WaitGroup::default();
        let run = |number, stream| load.receive(number, stream);
        let is_done = || load.is_over();
        thread::scope(|scope| {
            self.spawn_streams(scope, &group, streams, &run, &is_done);
            let sender = load.run_receiver(reader).inspect_err(|_| self.session.stop())?;
            self.session.target.wake_spawners();
            self.wait_for_streams(&group, reader)?;
            let receiver = self.stats.report();
            outbox.post(&Message::Done(receiver));
            Ok(SideSummaries { sender, receiver })
        })
    }

    /// Runs the tuner: windows on the receiving side, pacing on the sending side.
    fn run_autotune(&self, outbox: &Outbox, receives: bool) {
        let probing = match std::mem::take(&mut *lock(&self.autotune)) {
            Autotune::On(probing) => probing.map(|probing| *probing),
            // A rate limit is enforced on the sending side even without autotuning.
            Autotune::Off if !receives && self.session.overrides.rate_max.is_some() => None,
            Autotune::Off => return self.run_untuned(outbox, receives),
        };
        let outbox = outbox.clone();
        let own = probing.as_ref().and_then(|probing| probing.own_port.clone());
        thread::scope(|scope| {
            if let Some(port) = &own {
                self.session.spawn(scope, || port.run());
            }
            let teller = Telemetry::new(self.stats, self.report_progress);
            match receives {
                true => ReceiverTuner::new(&self.session, outbox, teller, probing).run(&self.ended),
                false => SenderTuner::new(&self.session, outbox, teller, probing).run(&self.ended),
            }
            if let Some(port) = &own {
                port.stop();
            }
        });
    }

    /// Runs without autotuning: the windows are the user's or the kernel's.
    fn run_untuned(&self, outbox: &Outbox, receives: bool) {
        let teller = Telemetry::new(self.stats, self.report_progress);
        let advice = lock(&self.session.advice).take().filter(|_| receives);
        thread::scope(|scope| {
            if let Some(mut advice) = advice {
                let teller = Telemetry::new(self.stats, self.report_progress);
                let watch_socket =
                    move || watch_udp_buffer(&mut advice, &teller, outbox, &self.ended);
                self.session.spawn(scope, watch_socket);
            }
            let watch = || monitor::watch(&self.session, teller, outbox, receives, &self.ended);
            self.session.spawn(scope, watch);
            if receives {
                clamp_windows(&self.session, &self.ended);
            }
        });
    }

    /// Starts a thread for each stream, or the thread that starts one for each accepted stream.
    fn spawn_streams<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        group: &'env WaitGroup,
        streams: StreamSource,
        run: &'env (dyn Fn(u32, DataStream) -> io::Result<()> + Sync),
        is_done: &'env (dyn Fn() -> bool + Sync),
    ) {
        match streams {
            StreamSource::Connect { connector, count, ready } => {
                let start_stream = move |ready_stream| {
                    let connector = Arc::clone(&connector);
                    group.add();
                    add(&self.stats.counts.streams, 1);
                    let started = try_spawn(scope, move || {
                        self.run_with_reconnect(&connector, ready_stream, run, is_done);
                        group.done();
                    });
                    if let Err(error) = started {
                        group.done();
                        self.on_thread_shortage(group, error);
                    }
                };
                let mut ready = ready.into_iter();
                (0..count).for_each(|_| start_stream(ready.next()));
                if let Some(max_streams) = self.session.target.max {
                    self.session.spawn(scope, move || {
                        self.spawn_wanted(group, max_streams, start_stream, is_done)
                    });
                }
            }
            StreamSource::Accept(accepted) => {
                self.session.spawn(scope, move || {
                    while !self.session.is_stopped() && !is_done() {
                        match accepted.recv_timeout(TICK_INTERVAL) {
                            Ok(Some((number, stream))) => {
                                group.add();
                                add(&self.stats.counts.streams, 1);
                                let started = try_spawn(scope, move || {
                                    // The peer reconnects a lost stream, or notices its end.
                                    let _ = run(number, stream);
                                    group.done();
                                });
                                if let Err(error) = started {
                                    group.done();
                                    self.on_thread_shortage(group, error);
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

    /// Continues with fewer streams after a thread could not be started; fails if there is none.
    fn on_thread_shortage(&self, group: &WaitGroup, error: Error) {
        if group.count() == 0 {
            return self.session.fail(error);
        }
        self.stats.warn(format!("continuing with one data stream fewer: {error}"));
    }

    /// Starts streams when the wanted number grows. A stream that failed for good is not replaced
    /// until then.
    fn spawn_wanted(
        &self,
        group: &WaitGroup,
        max_streams: u32,
        start_stream: impl Fn(Option<(u32, DataStream)>),
        is_done: &(dyn Fn() -> bool + Sync),
    ) {
        let mut previous = group.count();
        while !self.session.is_stopped() && !is_done() {
            let wanted = self.session.target.wait_wanted(previous, TICK_INTERVAL).min(max_streams);
            while wanted > previous && group.count() < wanted && !is_done() {
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
        run: &(dyn Fn(u32, DataStream) -> io::Result<()> + Sync),
        is_done: &(dyn Fn() -> bool + Sync),
    ) {
        let mut delay = RECONNECT_BACKOFF.0;
        let mut last_healthy = Instant::now();
        let is_unneeded = || self.session.is_stopped() || is_done();
        let connect = || {
            let connector = Arc::clone(connector);
            run_abandonable(is_unneeded, move || connector.connect())
        };
        while !is_unneeded() {
            let mut lifetime = Duration::ZERO;
            let (error, lost) = match ready.take().map_or_else(connect, Ok) {
                Ok((number, stream)) => {
                    let started = Instant::now();
                    let result = run(number, stream);
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
                let why = crate::base::error::os_message(&lost);
                self.stats.warn(format!("data stream lost ({why}): reconnecting"));
            }
        }
    }
}

impl SessionRunner<'_> {
    /// Waits for `delay`, or until the session stops.
    fn pause(&self, delay: Duration) {
        let until = Instant::now() + delay;
        while Instant::now() < until && !self.session.is_stopped() {
            thread::sleep(TICK_INTERVAL.min(delay));
        }
    }
}

fn unstable_streams() -> Error {
    Error::new(ErrorKind::Network, "each data stream is lost right after it connects")
}
