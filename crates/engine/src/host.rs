//! The serving side of sessions: what a daemon and an ssh agent have in common. Greets clients,
//! checks what they ask for, and brings data connections to their sessions.

use crate::anchor::{PathRoot, ReceiveOptions};
use crate::cancel::Cancel;
use crate::client::software;
use crate::datagram_room::BufferAdvice;
use crate::driver::{
    AcceptedStream, CloseFn, ControlChannel, Latch, SessionRunner, SessionTask, StreamSource,
};
use crate::error::{Error, ErrorKind};
use crate::event::{EventSink, Summary};
use crate::net::control::{ControlReader, Outbox, lock, write_now};
use crate::net::probe::ProbePort;
use crate::net::socket::Socket;
use crate::net::staging::BufferPool;
use crate::net::stream::{DataStream, BoxedPermit, Unattached, read_attach};
use crate::options::Fsync;
use crate::overrides::Overrides;
use crate::session::{Session, SessionStats};
use crate::tune::{Probing, Sharing, Spread, Steer, is_receiving};
use bankfull_control::Rate;
use bankfull_control::sobas::CachedPath;
use bankfull_proto::wire::attach::{self, Attach};
use bankfull_proto::wire::control::{
    self, Cause, Direction, Failure, Hello, Message, Open, Opened, Welcome,
};
use bankfull_proto::wire::{WireError, common_version};
use rustls::Connection;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// What clients may do.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) token: Option<Vec<u8>>,
    pub(crate) read_only: bool,
    pub(crate) unencrypted_allowed: bool,
    pub(crate) timeout: Duration,
    /// What the link carries by which clients send, where that is known.
    pub(crate) link_rate: Option<Rate>,
    /// What may wait in memory until it is written, of all clients together.
    pub(crate) buffer_pool: Arc<BufferPool>,
}

/// A session that data connections may join.
struct Slot {
    version: u16,
    key: [u8; 32],
    unencrypted: bool,
    max_streams: u32,
    nonces: HashSet<[u8; 32]>,
    /// Numbers of its connections so far: each has one of its own.
    numbers: HashSet<u32>,
    accepted: mpsc::Sender<AcceptedStream>,
    session: Arc<Session>,
}

/// The serving side.
pub(crate) struct Host {
    pub(crate) anchor: PathRoot,
    pub(crate) policy: Policy,
    /// Where datagrams come in, if they can.
    pub(crate) probes: Option<Arc<ProbePort>>,
    /// Once requested, running sessions go on and no other begins.
    pub(crate) draining: Cancel,
    sessions: Mutex<HashMap<[u8; 16], Slot>>,
    /// Sessions that ended lately: some of their data connections come late.
    ended: Mutex<VecDeque<[u8; 16]>>,
}

/// How many sessions that ended are remembered. (ours: what may end within a round trip)
const ENDED_MAX: usize = 64;

/// What was agreed with a client.
struct Agreed {
    open: Open,
    opened: Opened,
    part: SessionTask,
}

/// A client's control connection, greeted by nobody yet.
pub(crate) struct Caller {
    pub(crate) reader: ControlReader,
    pub(crate) output: Box<dyn Write + Send>,
    pub(crate) wake: Box<dyn Fn() + Send>,
    pub(crate) close: CloseFn,
    /// How many data connections it may have.
    pub(crate) max_streams: u32,
    /// What an agent tells of its data port.
    pub(crate) data_port: Option<u16>,
    pub(crate) data_hosts: Vec<String>,
    pub(crate) fingerprint: Option<[u8; 32]>,
    /// Where it comes from, if its datagrams have to come from there too.
    pub(crate) peer: Option<IpAddr>,
    /// What could be set here for the socket by which it comes.
    pub(crate) advice: Option<BufferAdvice>,
    /// Called once the client is authenticated and has asked for something, with the time-out that
    /// holds from then on.
    pub(crate) on_asked: Box<dyn FnOnce(Duration) + Send>,
}

impl Caller {
    fn write(&mut self, message: &Message) -> Result<(), Error> {
        self.write_raw(&control::encode(message)?)
    }

    fn write_raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        write_now(&mut *self.output, bytes, self.reader.peer())
    }

    /// Tells a client that was not greeted why it will not be.
    pub(crate) fn refuse_ungreeted(mut self, error: &Error) {
        let _ = self.write_raw(&control::MAGIC);
        // A connection closed with bytes unread would be reset, and the reason lost.
        let _ = self.reader.next();
        self.refuse(error);
    }

    /// Tells the client why there will be no session.
    pub(crate) fn refuse(mut self, error: &Error) {
        let _ = self.write(&Message::Error(error.to_failure()));
        (self.close)();
    }
}

impl Host {
    pub(crate) fn new(anchor: PathRoot, policy: Policy, probes: Option<Arc<ProbePort>>) -> Self {
        Self {
            anchor,
            policy,
            probes,
            draining: Cancel::new(),
            sessions: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    /// How many sessions run.
    pub(crate) fn session_count(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Ends all sessions.
    pub(crate) fn abort(&self) {
        for slot in lock(&self.sessions).values() {
            slot.session.fail(Failure::new(Cause::Cancelled, "the server was shut down").into());
        }
    }

    /// Serves one client on its control connection, whose magic was read.
    pub(crate) fn serve(
        &self,
        mut caller: Caller,
        tunnelled: bool,
        events: &dyn EventSink,
    ) -> Result<Summary, Error> {
        let started = Instant::now();
        let welcome = match self.greet(&mut caller) {
            Ok(welcome) => welcome,
            Err(error) => {
                caller.refuse(&error);
                return Err(error);
            }
        };
        let opened = self.open(&mut caller);
        let agreed = match opened {
            Ok(agreed) => agreed,
            Err(error) => {
                caller.refuse(&error);
                return Err(error);
            }
        };
        self.run(caller, &welcome, agreed, tunnelled, events, started)
    }

    fn greet(&self, caller: &mut Caller) -> Result<Welcome, Error> {
        caller.write_raw(&control::MAGIC)?;
        let Message::Hello(hello) = self.hear(caller)? else {
            return Err(WireError::Unexpected("no hello").into());
        };
        let version = common_version(hello.min_version, hello.max_version)?;
        self.check_token(&hello)?;
        caller.reader.set_authenticated();
        let mut welcome = Welcome {
            version,
            software: software(),
            max_streams: caller.max_streams,
            unencrypted_allowed: self.policy.unencrypted_allowed,
            data_port: caller.data_port,
            data_hosts: std::mem::take(&mut caller.data_hosts),
            fingerprint: caller.fingerprint,
            timeout_ms: u64::try_from(self.policy.timeout.as_millis()).ok(),
            ..Welcome::default()
        };
        let random = |out: &mut [u8]| {
            bankfull_sys::random(out).map_err(|e| Error::local("no randomness", &e))
        };
        random(&mut welcome.session)?;
        random(&mut welcome.session_key)?;
        caller.write(&Message::Welcome(welcome.clone()))?;
        Ok(welcome)
    }

    /// What a client says that has no session yet, unless none will begin any more.
    fn hear(&self, caller: &mut Caller) -> Result<Message, Error> {
        let heard = caller.reader.next();
        // A port that drains lets nobody say more: then the end is not the client's doing.
        let is_ended = heard.as_ref().map_or_else(|e| e.kind() == ErrorKind::Network, |_| true);
        if is_ended && self.draining.is_cancelled() {
            return Err(Failure::new(
                Cause::Cancelled,
                "the server is shutting down: try again later",
            )
            .into());
        }
        heard
    }

    fn check_token(&self, hello: &Hello) -> Result<(), Error> {
        let Some(expected) = &self.policy.token else { return Ok(()) };
        let shown = hello.token.as_deref().unwrap_or_default();
        // Hashes have equal length, and comparing them takes the same time wherever they differ.
        if blake3::hash(shown) == blake3::hash(expected) {
            return Ok(());
        }
        let text = match &hello.token {
            None => "a token is needed: give --token-file FILE or set BANKFULL_TOKEN",
            Some(_) => "the token is wrong: ask whoever runs the server for the right one",
        };
        Err(Failure::new(Cause::BadToken, text).into())
    }

    /// Agrees on what the client asks for.
    fn open(&self, caller: &mut Caller) -> Result<Agreed, Error> {
        let Message::Open(open) = self.hear(caller)? else {
            return Err(WireError::Unexpected("no request").into());
        };
        std::mem::replace(&mut caller.on_asked, Box::new(|_| {}))(self.timeout_for(&open));
        if open.unencrypted && !self.policy.unencrypted_allowed {
            let text = "data without encryption is not allowed here";
            return Err(Failure::new(Cause::UnencryptedRefused, text).into());
        }
        let overrides = Overrides::of(&open)?;
        overrides.check()?;
        overrides.check_encryption(!open.unencrypted)?;
        if open.direction == Direction::Pull {
            overrides.check_sender()?;
        }
        if let Some(ms) = open.throughput_test_ms {
            let time = Duration::from_millis(ms.into());
            let part = match open.direction {
                Direction::Pull => SessionTask::SendTest(time),
                Direction::Push => SessionTask::ReceiveTest(time),
            };
            return Ok(Agreed { open, opened: Opened::default(), part });
        }
        let (opened, part) = match open.direction {
            Direction::Pull => {
                let items = self.anchor.resolve_sources(&open.paths)?;
                let sources = items.iter().map(|item| item.to_source()).collect();
                let part = SessionTask::Send { items, dry_run: open.dry_run };
                (Opened { sources, credit: open.credit, ..Opened::default() }, part)
            }
            Direction::Push if self.policy.read_only => {
                let text = "this server is read-only: it was started with --read-only";
                return Err(Failure::new(Cause::ReadOnly, text).into());
            }
            Direction::Push => {
                let path = open.paths.first().map(|path| path.0.clone()).unwrap_or_default();
                let options = ReceiveOptions {
                    fsync: match open.fsync {
                        control::Fsync::None => Fsync::None,
                        control::Fsync::File => Fsync::File,
                        control::Fsync::End => Fsync::End,
                    },
                    checksum: open.checksum,
                    dry_run: open.dry_run,
                    parent_is_planned: false,
                    set_id: matches!(self.anchor, PathRoot::Host),
                };
                let (target, destinations) =
                    self.anchor.open_destination(&path, &open.sources, options)?;
                // Where others send here, too, they take turns.
                let credit =
                    open.credit.filter(|&credit| credit && is_receiving() && !open.dry_run);
                (Opened { destinations, credit, ..Opened::default() }, SessionTask::Receive(target))
            }
        };
        Ok(Agreed { open, opened, part })
    }

    /// The shorter of the two sides' time-outs: what signs of life must keep up with.
    fn timeout_for(&self, open: &Open) -> Duration {
        match open.timeout_ms {
            0 => self.policy.timeout,
            ms => self.policy.timeout.min(Duration::from_millis(ms)),
        }
    }

    fn run(
        &self,
        mut caller: Caller,
        welcome: &Welcome,
        agreed: Agreed,
        tunnelled: bool,
        events: &dyn EventSink,
        started: Instant,
    ) -> Result<Summary, Error> {
        let is_steered = is_steered(&agreed.open);
        let mut session = self.session(&agreed, welcome, tunnelled)?;
        session.advice = Mutex::new(caller.advice.take());
        let session = Arc::new(session);
        session.on_stop(std::mem::replace(&mut caller.wake, Box::new(|| {})));
        let (accepted, streams) = mpsc::channel();
        let maker = accepted.clone();
        session.on_spawner_wake(move || drop(maker.send(None)));
        let outbox = Outbox::default();
        let slot = Slot {
            version: welcome.version,
            key: welcome.session_key,
            unencrypted: agreed.open.unencrypted,
            max_streams: welcome.max_streams,
            nonces: HashSet::new(),
            numbers: HashSet::new(),
            accepted: accepted.clone(),
            session: Arc::clone(&session),
        };
        let steer = match is_steered {
            false => Steer::Not,
            // The client knocks; until then nobody knows where its datagrams come from.
            true => Steer::With(self.probes.as_ref().map(|port| {
                let line = port.join(welcome.session, welcome.session_key, caller.peer);
                Box::new(Probing { line, door: None, own: None })
            })),
        };
        // Before the client hears that it may connect, and that datagrams are waited for.
        lock(&self.sessions).insert(welcome.session, slot);
        caller.write(&Message::Opened(agreed.opened)).inspect_err(|_| {
            self.forget(welcome.session);
        })?;
        if tunnelled {
            let key = welcome.session_key;
            let near = crate::tunnel::open(&mut caller.reader, &outbox)
                .map_err(|e| Error::local("cannot make a tunnel through ssh", &e))?;
            let accept = move || accept_tunnelled(near, &key, &accepted);
            std::thread::Builder::new().spawn(accept).map_err(|e| Error::no_thread(&e))?;
        }
        let stats = SessionStats::new(events, started);
        let drive = SessionRunner {
            session,
            stats: &stats,
            cancel: &Cancel::new(),
            timeout: self.timeout_for(&agreed.open),
            report_progress: false,
            ended: Latch::default(),
            autotune: Mutex::new(steer),
        };
        let channel = ControlChannel {
            reader: caller.reader,
            output: caller.output,
            outbox,
            close: caller.close,
        };
        let result = drive.run(channel, agreed.part, StreamSource::Accept(streams));
        self.forget(welcome.session);
        result
    }

    /// A session as it was agreed.
    fn session(
        &self,
        agreed: &Agreed,
        welcome: &Welcome,
        tunnelled: bool,
    ) -> Result<Session, Error> {
        let Agreed { open, opened, .. } = agreed;
        let streams = open.streams.min(welcome.max_streams);
        let mut session = Session::new(Overrides::of(open)?, streams);
        session.remembered = open.remembered.map(|[bytes_per_sec, rtt_us]| CachedPath {
            rate: Rate::from_bytes_per_sec(bytes_per_sec),
            rtt: Duration::from_micros(rtt_us),
        });
        let is_steered = is_steered(open);
        session.buffer_pool = Arc::clone(&self.policy.buffer_pool);
        session.start_stagger = is_steered.then(|| Spread::new(streams));
        session.max_streams = open.max_streams.filter(|_| is_steered && !tunnelled);
        session.max_streams = session.max_streams.map(|most| most.min(welcome.max_streams));
        let credit = opened.credit == Some(true);
        match open.direction {
            Direction::Pull => {
                session.credit = credit.then(Arc::default);
                session.max_outstanding_files = open.max_outstanding_files;
            }
            Direction::Push => {
                let takes_part = is_steered && open.throughput_test_ms.is_none();
                session.sharing = Sharing::new(takes_part, credit, self.policy.link_rate, None);
            }
        }
        Ok(session)
    }

    fn forget(&self, session: [u8; 16]) {
        lock(&self.sessions).remove(&session);
        let mut ended = lock(&self.ended);
        ended.push_back(session);
        if ended.len() > ENDED_MAX {
            ended.pop_front();
        }
    }

    /// Brings a data connection, whose magic was read, to its session. Whoever cannot prove to
    /// belong to one is not answered. `NotFound` when its session has ended.
    pub(crate) fn attach(
        &self,
        socket: Socket,
        tls: Option<Connection>,
        magic: &[u8; 8],
        seat: BoxedPermit,
    ) -> io::Result<()> {
        let encrypted = tls.is_some() || socket.is_encrypted();
        let (unattached, bytes) = read_attach(socket, tls, magic)?;
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let late = || io::Error::from(io::ErrorKind::NotFound);
        let attach = Attach::decode(&bytes).map_err(io::Error::other)?;
        let (key, accepted) = {
            let mut sessions = lock(&self.sessions);
            let slot = sessions.get_mut(&attach.session).ok_or_else(|| {
                let is_late = lock(&self.ended).contains(&attach.session);
                if is_late { late() } else { refused() }
            })?;
            let known = attach::verify(&bytes, &slot.key);
            let known = known && attach.version == slot.version;
            if !known || (!encrypted && !slot.unencrypted) || !slot.nonces.insert(attach.nonce) {
                return Err(refused());
            }
            let running = slot.session.stream_count();
            if running >= slot.max_streams as usize || !slot.numbers.insert(attach.stream) {
                return Err(refused());
            }
            (slot.key, slot.accepted.clone())
        };
        let mut stream = finish_attach(unattached, &attach, &key, self.policy.timeout)?;
        stream.set_permit(seat);
        accepted.send(Some((attach.stream, stream))).map_err(|_| late())
    }
}

fn finish_attach(
    unattached: Unattached,
    attach: &Attach,
    key: &[u8; 32],
    timeout: Duration,
) -> io::Result<DataStream> {
    let stream = DataStream::accept(unattached, attach, key)?;
    stream.socket().set_authenticated();
    stream.socket().set_read_timeout(Some(timeout))?;
    Ok(stream)
}

/// Whether the data connections of such a session are steered.
fn is_steered(open: &Open) -> bool {
    open.autotune_off != Some(true) && open.window.is_none()
}

/// Waits for the one data connection that may come through the control channel. It is not
/// encrypted by us: ssh does that.
fn accept_tunnelled(
    near: std::os::unix::net::UnixStream,
    key: &[u8; 32],
    accepted: &mpsc::Sender<AcceptedStream>,
) {
    let attached = || -> io::Result<()> {
        let mut socket = Socket::Unix(near);
        let mut magic = [0; 8];
        io::Read::read_exact(&mut socket, &mut magic)?;
        let (unattached, bytes) = read_attach(socket, None, &magic)?;
        let attach = Attach::decode(&bytes).map_err(io::Error::other)?;
        if !attach::verify(&bytes, key) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let stream = DataStream::accept(unattached, &attach, key)?;
        accepted
            .send(Some((attach.stream, stream)))
            .map_err(|_| io::ErrorKind::ConnectionAborted.into())
    };
    // The client notices by itself when its tunnel does not answer.
    let _ = attached();
}
