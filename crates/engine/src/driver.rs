//! Runs one agreed transfer on one side: the threads of the sending or receiving side, the writer
//! of the control channel, heartbeats and progress, and an orderly end.

use crate::cancel::{Cancel, attend};
use crate::counts::add;
use crate::error::{Error, ErrorKind};
use crate::event::{Event, EventSink, Summary};
use crate::load::Load;
use crate::net::control::{ControlReader, Outbox, lock};
use crate::net::stream::DataStream;
use crate::receiver::{Receiver, Target};
use crate::sender::Sender;
use crate::sender::walk::SourceItem;
use crate::session::{Ends, Session, Tally};
use crate::threads::try_spawn;
use crate::transfer::Transfer;
use crate::tune::{Pacer, Receiving, Steer, Steering, Teller, hold_windows, watch, watch_room};
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

/// How often progress is told and a cancel is looked for: ten times a second.
const TICK: Duration = Duration::from_millis(100);

/// Longest time between two signs of life. A quarter of the time-out leaves room for three lost
/// ones.
const PING_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// As long as the connections themselves hold: they have time-outs of their own.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How long the last words of a session may take to be sent.
const FAREWELL: Duration = Duration::from_secs(1);

/// Back-off of a lost data connection: doubles from the first to the second.
const RECONNECT_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A connection that lived this long worked: what ended it is news, not more of the same.
const HEALTHY: Duration = Duration::from_secs(1);

/// Where data connections come from.
pub(crate) enum Streams {
    /// This side connects.
    Connect {
        connector: Arc<dyn Connect + Send + Sync>,
        count: u32,
        /// Connections made already.
        ready: Vec<(u32, DataStream)>,
    },
    /// The far side connects; the listener passes on what belongs to this session.
    Accept(mpsc::Receiver<Arrival>),
}

/// What a listener passes on: a connection and its number, or `None` to have it looked whether more
/// are needed.
pub(crate) type Arrival = Option<(u32, DataStream)>;

/// Makes data connections.
pub(crate) trait Connect {
    /// Makes one and attaches it. The number is new for each.
    fn connect(&self) -> Result<(u32, DataStream), Error>;
}

/// The control channel of an agreed session.
pub(crate) struct Channel {
    pub(crate) reader: ControlReader,
    pub(crate) output: Box<dyn Write + Send>,
    pub(crate) outbox: Outbox,
    /// Ends the connection at once, whoever waits on it.
    pub(crate) close: Close,
}

/// Ends a connection.
pub(crate) type Close = Arc<dyn Fn() + Send + Sync>;

/// What a transfer needs beside its role.
pub(crate) struct Drive<'a> {
    pub(crate) session: Arc<Session>,
    pub(crate) tally: &'a Tally<'a>,
    pub(crate) cancel: &'a Cancel,
    pub(crate) timeout: Duration,
    /// Whether progress events are wanted.
    pub(crate) progress: bool,
    /// Set when the transfer is over, so that the ticking ends at once.
    pub(crate) over: Latch,
    /// Whether data connections are steered, and with what.
    pub(crate) steer: Mutex<Steer>,
}

/// Something that happens once, and can be waited for.
#[derive(Default)]
pub(crate) struct Latch {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Latch {
    pub(crate) fn set(&self) {
        *lock(&self.is_set) = true;
        self.changed.notify_all();
    }

    /// Waits until it is set; false when `timeout` passed first.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(lock(&self.is_set), timeout, |set| !*set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Tells where each operand lands: `landing` are paths on the host of the destination.
pub(crate) fn tell_landing(events: &dyn EventSink, transfer: &Transfer, landing: &[PathBytes]) {
    for (source, path) in transfer.sources.iter().zip(landing) {
        let path = PathBuf::from(OsString::from_vec(path.0.clone()));
        events.event(Event::Landing {
            source: source.to_path(),
            destination: transfer.destination.with_path(path).to_path(),
        });
    }
}

/// Which part this side plays.
pub(crate) enum Part {
    Send {
        items: Vec<SourceItem>,
        dry_run: bool,
    },
    Receive(Target),
    /// Nothing is copied: filler goes over the path for so long.
    SendLoad(Duration),
    ReceiveLoad(Duration),
}

/// Counts running stream threads.
#[derive(Default)]
struct Crew {
    active: Mutex<usize>,
    changed: Condvar,
}

impl Crew {
    /// Waits until all have ended; false when `timeout` passed first.
    fn join(&self, session: &Session, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut active = lock(&self.active);
        while *active > 0 && !session.is_stopped() {
            if Instant::now() >= until {
                return false;
            }
            let waited = self.changed.wait_timeout(active, TICK);
            active = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn enter(&self) {
        *lock(&self.active) += 1;
    }

    fn count(&self) -> u32 {
        u32::try_from(*lock(&self.active)).unwrap_or(u32::MAX)
    }

    fn leave(&self) {
        *lock(&self.active) -= 1;
        self.changed.notify_all();
    }
}

impl Drive<'_> {
    /// Runs the transfer to its end.
    pub(crate) fn run(
        &self,
        channel: Channel,
        part: Part,
        streams: Streams,
    ) -> Result<Summary, Error> {
        let began = Instant::now();
        let Channel { mut reader, output, outbox, close } = channel;
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
            let receives = matches!(part, Part::Receive(_) | Part::ReceiveLoad(_));
            let receiving = matches!(part, Part::Receive(_)).then(Receiving::new);
            self.session.spawn(scope, move || self.steer(outbox, receives));
            let result = match part {
                Part::Send { items, dry_run } => {
                    let sender = Sender::new(&self.session, outbox.clone(), self.tally, dry_run);
                    self.send(&sender, &mut reader, &items, streams)
                }
                Part::Receive(target) => self.receive(&mut reader, outbox, target, streams),
                Part::SendLoad(time) => self.send_load(&mut reader, outbox, time, streams),
                Part::ReceiveLoad(time) => self.receive_load(&mut reader, outbox, time, streams),
            };
            let result = self.conclude(result, &mut reader, outbox, receives);
            close();
            self.over.set();
            drop(receiving);
            result
        });
        let allowed = self.session.allowed();
        result.map(|ends| self.tally.summary(&ends, &allowed, began.elapsed()))
    }

    /// Ends the session in order, or tells the peer why not.
    fn conclude(
        &self,
        result: Result<Ends, Error>,
        reader: &mut ControlReader,
        outbox: &Outbox,
        receives: bool,
    ) -> Result<Ends, Error> {
        let result = match result {
            Ok(times) => Ok(times),
            Err(error) => {
                self.session.stop();
                // What ended the session comes first; what the control thread saw may only follow.
                // But where a connection broke, the peer's last word is why, or its silence: the
                // kernel tells one thread of that, and others of a broken pipe.
                let is_cause = |first: &Error| {
                    let was_silent = first.is_loss() && error.kind() == ErrorKind::Timeout;
                    !was_silent && (!first.is_loss() || error.is_loss())
                };
                Err(self.session.take_error().filter(is_cause).unwrap_or(error))
            }
        };
        if let Err(error) = &result
            && (error.is_said() || !matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout))
        {
            outbox.post(&Message::Error(error.to_failure()));
        }
        outbox.close();
        let flushed = outbox.wait_gone(if result.is_ok() { self.timeout } else { FAREWELL });
        // The sender closes; the receiver waits for that, so that its last word is surely read.
        if result.is_ok() && flushed && receives {
            reader.wait_for_end();
        }
        self.session.stop();
        result
    }

    /// Signs of life, progress, and the user's wish to stop.
    pub(crate) fn tick(&self, outbox: &Outbox) {
        let interval = (self.timeout / 4).min(PING_INTERVAL_MAX);
        let mut pinged = Instant::now();
        while !self.over.wait(TICK.min(interval)) {
            if self.cancel.is_cancelled() && !self.session.is_stopped() {
                self.session.fail(Error::interrupted());
            }
            if self.progress {
                self.tally.event(Event::Progress(self.tally.progress()));
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
        streams: Streams,
    ) -> Result<Ends, Error> {
        let crew = Crew::default();
        let run = |number, stream| sender.run_stream(number, stream);
        let is_over = || sender.is_complete();
        let result = thread::scope(|scope| {
            self.session.spawn(scope, || sender.walk(items));
            self.session.spawn(scope, || sender.run_dry());
            self.man_streams(scope, &crew, streams, &run, &is_over);
            self.session.spawn(scope, || {
                sender.finish(|| {
                    crew.join(&self.session, FOREVER);
                });
            });
            let result = sender.run_control(reader).inspect_err(|_| self.session.stop());
            self.session.wake_makers();
            result
        });
        // Now that the streams have handed in what they measured.
        result.map(|receiver| Ends { sender: self.tally.report(), receiver })
    }

    fn receive(
        &self,
        reader: &mut ControlReader,
        outbox: &Outbox,
        target: Target,
        streams: Streams,
    ) -> Result<Ends, Error> {
        outbox.wait_when_full();
        let session = Arc::clone(&self.session);
        let (receiver, queue) = Receiver::new(session, outbox.clone(), self.tally, target);
        let crew = Crew::default();
        let run = |number, stream| receiver.run_stream(number, stream);
        let is_over = || receiver.is_finished();
        thread::scope(|scope| {
            self.session.spawn(scope, || receiver.run_compare(queue));
            self.session.spawn(scope, || receiver.finish_unasked());
            self.session.spawn(scope, || receiver.run_merge());
            self.man_streams(scope, &crew, streams, &run, &is_over);
            let sender = receiver.run_control(reader).inspect_err(|_| self.session.stop())?;
            self.session.wake_makers();
            // The sender has nothing more to say, and nobody reads what would come.
            reader.end_tunnel();
            self.join(&crew, reader)?;
            receiver.finish();
            Ok(Ends { sender, receiver: self.tally.report() })
        })
    }

    /// Waits for the data connections of a sender that is finished.
    fn join(&self, crew: &Crew, reader: &ControlReader) -> Result<(), Error> {
        if crew.join(&self.session, self.timeout) {
            return Ok(());
        }
        self.session.stop();
        let text = format!("{} is finished but does not end its data connections", reader.peer());
        Err(Error::new(ErrorKind::Timeout, text))
    }

    fn send_load(
        &self,
        reader: &mut ControlReader,
        outbox: &Outbox,
        time: Duration,
        streams: Streams,
    ) -> Result<Ends, Error> {
        let load = Load::new(&self.session, outbox.clone(), self.tally, Role::Sender, time);
        let crew = Crew::default();
        let run = |number, stream| load.send(number, stream);
        let is_over = || load.is_over();
        let result = thread::scope(|scope| {
            self.man_streams(scope, &crew, streams, &run, &is_over);
            self.session.spawn(scope, || {
                load.finish(|| {
                    // Where the far side connects, there is nobody to join at first.
                    while !load.is_over() && !self.session.is_stopped() {
                        thread::sleep(TICK);
                    }
                    crew.join(&self.session, FOREVER);
                });
            });
            let result = load.run_sender(reader).inspect_err(|_| self.session.stop());
            self.session.wake_makers();
            result
        });
        result.map(|receiver| Ends { sender: self.tally.report(), receiver })
    }

    fn receive_load(
        &self,
        reader: &mut ControlReader,
        outbox: &Outbox,
        time: Duration,
        streams: Streams,
    ) -> Result<Ends, Error> {
        let load = Load::new(&self.session, outbox.clone(), self.tally, Role::Receiver, time);
        let crew = Crew::default();
        let run = |number, stream| load.receive(number, stream);
        let is_over = || load.is_over();
        thread::scope(|scope| {
            self.man_streams(scope, &crew, streams, &run, &is_over);
            let sender = load.run_receiver(reader).inspect_err(|_| self.session.stop())?;
            self.session.wake_makers();
            self.join(&crew, reader)?;
            let receiver = self.tally.report();
            outbox.post(&Message::Done(receiver));
            Ok(Ends { sender, receiver })
        })
    }

    /// Steers the data connections: the receiving side holds them, the sending side paces them.
    fn steer(&self, outbox: &Outbox, receives: bool) {
        let probing = match std::mem::take(&mut *lock(&self.steer)) {
            Steer::With(probing) => probing.map(|probing| *probing),
            // Whoever sends keeps below a rate all the same.
            Steer::Not if !receives && self.session.overrides.rate_max.is_some() => None,
            Steer::Not => return self.leave_to_kernel(outbox, receives),
        };
        let outbox = outbox.clone();
        let own = probing.as_ref().and_then(|probing| probing.own.clone());
        thread::scope(|scope| {
            if let Some(port) = &own {
                self.session.spawn(scope, || port.run());
            }
            let teller = Teller::new(self.tally, self.progress);
            match receives {
                true => Steering::new(&self.session, outbox, teller, probing).run(&self.over),
                false => Pacer::new(&self.session, outbox, teller, probing).run(&self.over),
            }
            if let Some(port) = &own {
                port.stop();
            }
        });
    }

    /// Steers nothing: windows are as the user has set them, if at all.
    fn leave_to_kernel(&self, outbox: &Outbox, receives: bool) {
        let teller = Teller::new(self.tally, self.progress);
        let advice = lock(&self.session.advice).take().filter(|_| receives);
        thread::scope(|scope| {
            if let Some(mut advice) = advice {
                let teller = Teller::new(self.tally, self.progress);
                let told = move || watch_room(&mut advice, &teller, outbox, &self.over);
                self.session.spawn(scope, told);
            }
            let watch = || watch(&self.session, teller, outbox, receives, &self.over);
            self.session.spawn(scope, watch);
            if receives {
                hold_windows(&self.session, &self.over);
            }
        });
    }

    /// Starts the stream threads, or the thread that starts one for each accepted connection.
    fn man_streams<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        crew: &'env Crew,
        streams: Streams,
        run: &'env (dyn Fn(u32, DataStream) -> io::Result<()> + Sync),
        is_over: &'env (dyn Fn() -> bool + Sync),
    ) {
        match streams {
            Streams::Connect { connector, count, ready } => {
                let keep = move |first| {
                    let connector = Arc::clone(&connector);
                    crew.enter();
                    add(&self.tally.counts.streams, 1);
                    let started = try_spawn(scope, move || {
                        self.keep_stream(&connector, first, run, is_over);
                        crew.leave();
                    });
                    if let Err(error) = started {
                        crew.leave();
                        self.carry_on_without(crew, error);
                    }
                };
                let mut ready = ready.into_iter();
                (0..count).for_each(|_| keep(ready.next()));
                if let Some(most) = self.session.max_streams {
                    self.session.spawn(scope, move || self.keep_more(crew, most, keep, is_over));
                }
            }
            Streams::Accept(accepted) => {
                self.session.spawn(scope, move || {
                    while !self.session.is_stopped() && !is_over() {
                        match accepted.recv_timeout(TICK) {
                            Ok(Some((number, stream))) => {
                                crew.enter();
                                add(&self.tally.counts.streams, 1);
                                let started = try_spawn(scope, move || {
                                    // The far side makes a lost one again, or notices its end.
                                    let _ = run(number, stream);
                                    crew.leave();
                                });
                                if let Err(error) = started {
                                    crew.leave();
                                    self.carry_on_without(crew, error);
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

    /// There is no thread for a data connection: others do without it, if there are any.
    fn carry_on_without(&self, crew: &Crew, error: Error) {
        if crew.count() == 0 {
            return self.session.fail(error);
        }
        self.tally.notice(format!("one data connection fewer: {error}"));
    }

    /// Has more streams kept whenever more are wanted than before. One that was given up is made
    /// again then, and not sooner.
    fn keep_more(
        &self,
        crew: &Crew,
        most: u32,
        keep: impl Fn(Option<(u32, DataStream)>),
        is_over: &(dyn Fn() -> bool + Sync),
    ) {
        let mut before = crew.count();
        while !self.session.is_stopped() && !is_over() {
            let wanted = self.session.wait_wanted(before, TICK).min(most);
            while wanted > before && crew.count() < wanted && !is_over() {
                keep(None);
            }
            before = wanted;
        }
    }

    /// Runs one stream, making its connection again when it is lost.
    fn keep_stream(
        &self,
        connector: &Arc<dyn Connect + Send + Sync>,
        mut first: Option<(u32, DataStream)>,
        run: &(dyn Fn(u32, DataStream) -> io::Result<()> + Sync),
        is_over: &(dyn Fn() -> bool + Sync),
    ) {
        let mut delay = RECONNECT_DELAYS.0;
        let mut healthy = Instant::now();
        let needless = || self.session.is_stopped() || is_over();
        let connect = || {
            let connector = Arc::clone(connector);
            attend(needless, move || connector.connect())
        };
        while !needless() {
            let mut lived = Duration::ZERO;
            let (error, lost) = match first.take().map_or_else(connect, Ok) {
                Ok((number, stream)) => {
                    let started = Instant::now();
                    let result = run(number, stream);
                    lived = started.elapsed();
                    match result {
                        Ok(()) => return,
                        Err(e) => (broken(), Some(e)),
                    }
                }
                Err(error) => (error, None),
            };
            if lived > HEALTHY {
                delay = RECONNECT_DELAYS.0;
                healthy = Instant::now();
            }
            self.pause(delay);
            delay = (delay * 2).min(RECONNECT_DELAYS.1);
            if needless() {
                // The transfer ended meanwhile, and its connections with it.
                return;
            }
            let passing = matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout);
            if !passing || healthy.elapsed() > self.timeout {
                if self.session.stream_count() == 0 {
                    return self.session.fail(error);
                }
                // Others carry on without this one.
                return self.tally.notice(format!("one data connection fewer: {error}"));
            }
            if let Some(lost) = lost {
                let why = crate::error::plain(&lost);
                self.tally.notice(format!("a data connection was lost ({why}); making it again"));
            }
        }
    }
}

impl Drive<'_> {
    /// Waits, but not beyond the end of the session.
    fn pause(&self, delay: Duration) {
        let until = Instant::now() + delay;
        while Instant::now() < until && !self.session.is_stopped() {
            thread::sleep(TICK.min(delay));
        }
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::Network, "data connections break as soon as they are made")
}
