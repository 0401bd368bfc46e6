//! Runs one negotiated session on one side: its threads, heartbeats, progress and orderly end.

use super::rate_timer::RateTimer;
use super::streams::{StreamSource, StreamThreads};
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{Event, EventSink, Summary};
use crate::base::sync::{Latch, lock};
use crate::file_io::roots::{ReceiveTarget, SendRules, SourceItem};
use crate::model::transfer_options::TransferOptions;
use crate::session::Session;
use crate::stats::session_stats::{SessionStats, SideSummaries};
use crate::transfer::lister::Lister;
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
use bankfull_proto::wire::control::{Direction, Message, PathBytes};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of progress events and of checks for cancellation.
const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// Upper bound of the heartbeat interval, which is a quarter of the timeout: three may be lost.
const MAX_PING_INTERVAL: Duration = Duration::from_secs(10);

/// Shortest interval of heartbeats, whatever timeout the peer states. (chosen: a quarter of the
/// shortest timeout that a user may set, 0.1 s)
const MIN_PING_INTERVAL: Duration = Duration::from_millis(25);

/// Time to send the final messages of a failed session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The control channel of a negotiated session.
pub(crate) struct ControlChannel {
    pub(crate) reader: ControlReader,
    pub(crate) output: Box<dyn Write + Send>,
    pub(crate) outbox: Outbox,
    /// Closes the connection immediately; pending reads and writes fail.
    pub(crate) close: CloseFn,
}

/// Function that closes a connection; true: everything was written, and may still be under way.
pub(crate) type CloseFn = Arc<dyn Fn(bool) + Send + Sync>;

/// Everything that a session needs to run, except its task.
pub(crate) struct SessionRunner<'a> {
    pub(crate) session: Arc<Session>,
    pub(crate) stats: &'a SessionStats<'a>,
    pub(crate) cancel: &'a Cancel,
    pub(crate) timeout: Duration,
    /// True to emit progress events.
    pub(crate) report_progress: bool,
    /// Set at the end of the session; stops the ticker without delay.
    pub(crate) ended: Latch,
    /// Tuning of the data streams, taken when it starts.
    pub(crate) autotune: Mutex<Autotune>,
    /// True if the sender removes files at the end: its messages extend the wait for that.
    pub(crate) awaits_removal: bool,
    /// Time by which the peer must have closed the connection, at the end.
    pub(crate) close_by: Mutex<Option<Instant>>,
}

/// Emits the resolved destination of each source: paths on the receiver's host.
pub(crate) fn report_destinations(
    events: &dyn EventSink,
    options: &TransferOptions,
    destinations: &[PathBytes],
) {
    // A pattern has several destinations.
    let is_whole = options.sources.len() == destinations.len();
    for (source, path) in options.sources.iter().zip(destinations).filter(|_| is_whole) {
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
        rules: Box<SendRules>,
    },
    Receive(Box<ReceiveTarget>),
    /// Throughput test: filler is sent for this time, and no file.
    SendTest(Duration),
    ReceiveTest(Duration),
    /// Listing of the sender's entries, of this many sources.
    List(usize),
}

impl SessionTask {
    /// Returns the throughput test of a server, whose client pulls or pushes for this time.
    pub(crate) fn test(direction: Direction, time: Duration) -> Self {
        match direction {
            Direction::Pull => Self::SendTest(time),
            Direction::Push => Self::ReceiveTest(time),
        }
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
        let _waits = self.session.limit_waits();
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
            let receives = !matches!(task, SessionTask::Send { .. } | SessionTask::SendTest(_));
            let receiving = matches!(task, SessionTask::Receive(_)).then(ReceivingGuard::new);
            self.session.spawn(scope, move || self.run_autotune(outbox, receives));
            let result = match task {
                SessionTask::Send { items, rules } => {
                    let sender = Sender::new(&self.session, outbox.clone(), self.stats, *rules);
                    self.send(&sender, &mut reader, &items, streams)
                }
                SessionTask::Receive(target) => self.receive(&mut reader, outbox, *target, streams),
                SessionTask::SendTest(time) => self.send_test(&mut reader, outbox, time, streams),
                SessionTask::ReceiveTest(time) => {
                    self.receive_test(&mut reader, outbox, time, streams)
                }
                SessionTask::List(sources) => self.list(&mut reader, outbox, sources),
            };
            let (result, is_flushed) = self.close_session(result, &mut reader, outbox, receives);
            close(is_flushed);
            self.ended.set();
            drop(receiving);
            result
        });
        let user_limits = self.session.user_limits();
        result.map(|ends| self.stats.summary(&ends, &user_limits, started.elapsed()))
    }

    /// Closes the session in order, or reports the error to the peer.
    ///
    /// Returns the result of the session, and true if all messages were written.
    fn close_session(
        &self,
        result: Result<SideSummaries, Error>,
        reader: &mut ControlReader,
        outbox: &Outbox,
        receives: bool,
    ) -> (Result<SideSummaries, Error>, bool) {
        let result = match result {
            Ok(times) => Ok(times),
            Err(error) => {
                self.session.stop();
                // The session's first error is the cause; the control thread's may follow from it.
                // After a lost connection the latter is more specific: the peer's error message, or
                // a timeout. The kernel reports the cause to one thread; the rest get a broken
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
            *lock(&self.close_by) = Some(Instant::now() + self.timeout);
            reader.read_until_closed(|message| {
                // Reports of sources that the sender could not remove.
                if let Message::Problem(problem) = message {
                    self.stats.on_peer_problem(problem);
                }
                if self.awaits_removal {
                    *lock(&self.close_by) = Some(Instant::now() + self.timeout);
                }
            });
            if lock(&self.close_by).is_some_and(|at| Instant::now() >= at) {
                self.stats.warn("the sender did not end in time");
            }
        }
        self.session.stop();
        (result, flushed)
    }

    /// Runs the ticker: heartbeats, progress events, rate limits by schedule, and cancellation.
    pub(crate) fn tick(&self, outbox: &Outbox) {
        let interval = (self.timeout / 4).clamp(MIN_PING_INTERVAL, MAX_PING_INTERVAL);
        let mut rate_timer = RateTimer::new(&self.session);
        let mut pinged = Instant::now();
        while !self.ended.wait(TICK_INTERVAL.min(interval)) {
            if self.cancel.is_cancelled() && !self.session.is_stopped() {
                self.session.fail(Error::interrupted());
            }
            // Otherwise pings and single bytes would keep the connection open forever.
            if lock(&self.close_by).is_some_and(|at| Instant::now() >= at) {
                self.session.stop();
            }
            if let Some(timer) = &mut rate_timer {
                timer.poll(outbox, self.stats);
            }
            if self.report_progress {
                self.stats.event(Event::Progress(self.stats.progress()));
            }
            if pinged.elapsed() >= interval {
                outbox.post_ping();
                pinged = Instant::now();
            }
        }
        if self.report_progress {
            self.stats.event(Event::Progress(self.stats.progress()));
        }
    }

    fn send(
        &self,
        sender: &Sender<'_>,
        reader: &mut ControlReader,
        items: &[SourceItem],
        streams: StreamSource,
    ) -> Result<SideSummaries, Error> {
        let run = |number, stream| sender.run_stream(number, stream);
        let is_done = || sender.queue.is_complete();
        let threads = self.stream_threads(&run, &is_done);
        let result = thread::scope(|scope| {
            self.session.spawn(scope, || sender.walk(items));
            self.session.spawn(scope, || sender.run_dry_run());
            threads.spawn(scope, streams);
            self.session.spawn(scope, || {
                sender.finish(|| {
                    threads.join();
                });
            });
            let result = sender.run_control(reader).inspect_err(|_| self.session.stop());
            self.session.target.wake_spawners();
            result
        });
        if result.is_ok() {
            sender.remove_sources(self.stats);
        }
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
        let run = |number, stream| receiver.run_stream(number, stream);
        let is_done = || receiver.is_finished();
        let threads = self.stream_threads(&run, &is_done);
        thread::scope(|scope| {
            self.session.spawn(scope, || receiver.run_hashing(queue));
            self.session.spawn(scope, || receiver.run_held(self.timeout));
            self.session.spawn(scope, || receiver.finish_early());
            self.session.spawn(scope, || receiver.run_merge());
            threads.spawn(scope, streams);
            let sender = receiver.run_control(reader).inspect_err(|_| self.session.stop())?;
            self.session.target.wake_spawners();
            // The sender has finished: data in the tunnel has no reader any more.
            reader.close_tunnel();
            self.wait_for_streams(&threads, reader)?;
            if !receiver.finish() {
                return Err(self.session.take_error().unwrap_or_else(Error::interrupted));
            }
            Ok(SideSummaries { sender, receiver: self.stats.receiver_report() })
        })
    }

    fn list(
        &self,
        reader: &mut ControlReader,
        outbox: &Outbox,
        sources: usize,
    ) -> Result<SideSummaries, Error> {
        let lister = Lister::new(outbox.clone(), self.stats, sources);
        let sender = lister.run(reader).inspect_err(|_| self.session.stop())?;
        Ok(SideSummaries { sender, receiver: self.stats.report() })
    }

    fn stream_threads<'s>(
        &'s self,
        run: &'s (dyn Fn(u32, DataStream) -> io::Result<()> + Sync),
        is_done: &'s (dyn Fn() -> bool + Sync),
    ) -> StreamThreads<'s> {
        StreamThreads::new(&self.session, self.stats, self.timeout, run, is_done)
    }

    /// Waits for the data streams to end after the sender has finished.
    fn wait_for_streams(
        &self,
        streams: &StreamThreads<'_>,
        reader: &ControlReader,
    ) -> Result<(), Error> {
        if streams.join_in_time() {
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
        let run = |number, stream| load.send(number, stream);
        let is_done = || load.is_over();
        let threads = self.stream_threads(&run, &is_done);
        let result = thread::scope(|scope| {
            threads.spawn(scope, streams);
            self.session.spawn(scope, || {
                load.finish(|| {
                    // If the peer connects, the group is empty at first.
                    while !load.is_over() && !self.session.is_stopped() {
                        thread::sleep(TICK_INTERVAL);
                    }
                    threads.join();
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
        let run = |number, stream| load.receive(number, stream);
        let is_done = || load.is_over();
        let threads = self.stream_threads(&run, &is_done);
        thread::scope(|scope| {
            threads.spawn(scope, streams);
            let sender = load.run_receiver(reader).inspect_err(|_| self.session.stop())?;
            self.session.target.wake_spawners();
            self.wait_for_streams(&threads, reader)?;
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
            Autotune::Off if !receives && self.session.throttle().is_some() => None,
            Autotune::Off => return self.run_untuned(outbox, receives),
        };
        let outbox = outbox.clone();
        let own = probing.as_ref().and_then(|probing| probing.own_port.clone());
        thread::scope(|scope| {
            if let Some(port) = &own {
                self.session.spawn(scope, || port.run());
            }
            let telemetry = Telemetry::new(self.stats, self.report_progress);
            match receives {
                true => {
                    ReceiverTuner::new(&self.session, outbox, telemetry, probing).run(&self.ended)
                }
                false => {
                    SenderTuner::new(&self.session, outbox, telemetry, probing).run(&self.ended)
                }
            }
            if let Some(port) = &own {
                port.stop();
            }
        });
    }

    /// Runs without autotuning: the windows are the user's or the kernel's.
    fn run_untuned(&self, outbox: &Outbox, receives: bool) {
        let telemetry = Telemetry::new(self.stats, self.report_progress);
        let advice = lock(&self.session.advice).take().filter(|_| receives);
        thread::scope(|scope| {
            if let Some(mut advice) = advice {
                let telemetry = Telemetry::new(self.stats, self.report_progress);
                let watch_socket =
                    move || watch_udp_buffer(&mut advice, &telemetry, outbox, &self.ended);
                self.session.spawn(scope, watch_socket);
            }
            let watch = || monitor::watch(&self.session, telemetry, outbox, receives, &self.ended);
            self.session.spawn(scope, watch);
            if receives {
                clamp_windows(&self.session, &self.ended);
            }
        });
    }
}
