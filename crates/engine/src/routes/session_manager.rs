//! Serving side of sessions, shared by daemon and agent: the handshake with clients, checks of
//! their requests, and the attachment of data streams.

use super::access::{AccessControl, Client, Place};
use super::client::software;
use super::request::{
    metadata_target, outstanding_limit, receive_options, refuse_delete_in_root, refuse_long_answer,
    send_rules, source_paths, subject_of,
};
use super::session_table::{CountedSession, JoinableSession, SessionTable, StreamPlace, late};
use super::share_limits::ShareLimits;
use super::slots::{SessionSlots, Slots};
use super::stream_numbers::StreamNumbers;
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{ClientRequest, EventSink, Progress, Summary};
use crate::base::event_log::{EventLog, PeerLog, Subject, enter_session};
use crate::base::sync::Latch;
use crate::base::threads::try_spawn_detached;
use crate::file_io::path_root::ReceiveOptions;
use crate::file_io::patterns::Expansion;
use crate::file_io::root::PathRoot;
use crate::file_io::roots::{ChangeReader, sources_of};
use crate::model::metadata::Permits;
use crate::model::overrides::Overrides;
use crate::run::driver::{CloseFn, ControlChannel, SessionRunner, SessionTask};
use crate::run::streams::{AcceptedStream, StreamSource};
use crate::session::Session;
use crate::session::interface_sharing::InterfaceSharing;
use crate::stats::server_status::ServerStatus;
use crate::stats::session_stats::SessionStats;
use crate::transport::buffer_pool::BufferPool;
use crate::transport::channel_binding::ChannelBinding;
use crate::transport::control::{ControlReader, Outbox, write_now};
use crate::transport::data_stream::{DataStream, Unattached, read_attach};
use crate::transport::entry_quota::EntryQuota;
use crate::transport::probe::ProbePort;
use crate::transport::socket::Socket;
use crate::transport::start_stagger::StartStagger;
use crate::transport::udp_receive_buffer::BufferAdvice;
use crate::tuning::incast::is_receiving;
use crate::tuning::{Autotune, ProbeChannel};
use bankfull_control::path_control::CachedPath;
use bankfull_control::{ControllerKind, Rate};
use bankfull_proto::limits::MAX_STREAMS;
use bankfull_proto::wire::attach::{self, Attach};
use bankfull_proto::wire::control::{
    self, Cause, Direction, Failure, Message, Open, Opened, WalkRules, Welcome,
};
use bankfull_proto::wire::{WireError, common_version};
use rustls::Connection;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Permissions and limits of clients.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) permits: Permits,
    pub(crate) unencrypted_allowed: bool,
    pub(crate) timeout: Duration,
    /// Rate of the link by which clients send, if known.
    pub(crate) link_rate: Option<Rate>,
    /// Memory for received data that waits for the disk, of all clients together.
    pub(crate) buffer_pool: Arc<BufferPool>,
}

/// Sessions of a daemon or an agent.
pub(crate) struct SessionManager {
    pub(crate) access: AccessControl,
    pub(crate) policy: Policy,
    /// UDP port of the probes, if available.
    pub(crate) probes: Option<Arc<ProbePort>>,
    /// Once cancelled, running sessions go on and none begins.
    pub(crate) draining: Cancel,
    table: SessionTable,
}

/// Time that a client waits for slots before it learns that the daemon is busy. (chosen: well below
/// a client's timeout; a waiting client keeps its place, one that tries again does not)
const SLOT_WAIT: Duration = Duration::from_secs(3);

/// Result of the negotiation with a client.
struct Negotiated {
    open: Open,
    opened: Opened,
    task: SessionTask,
    /// Quota of outstanding entries, if this side receives.
    entry_quota: Option<Arc<EntryQuota>>,
    limits: ShareLimits,
}

/// Session that is about to run.
struct SessionSetup {
    client: Client,
    welcome: Welcome,
    slots: Arc<SessionSlots>,
    negotiated: Negotiated,
    tunnelled: bool,
    started: Instant,
}

/// A client's control connection before its handshake.
pub(crate) struct ControlConn {
    pub(crate) reader: ControlReader,
    pub(crate) output: Box<dyn Write + Send>,
    pub(crate) wake: Box<dyn Fn() + Send>,
    pub(crate) close: CloseFn,
    /// Slots that the session's connections need.
    pub(crate) slots: Arc<Slots>,
    pub(crate) data_port: Option<u16>,
    pub(crate) data_hosts: Vec<String>,
    pub(crate) fingerprint: Option<[u8; 32]>,
    pub(crate) binding: Option<ChannelBinding>,
    /// Source address required of the client's datagrams, if any.
    pub(crate) peer: Option<IpAddr>,
    /// Limit of the log lines about the client; `None` if there is only one client.
    pub(crate) log: Option<PeerLog>,
    /// Min RTT of a TCP connection.
    pub(crate) min_rtt: Option<Duration>,
    /// Hints for the administrator about the socket of this connection.
    pub(crate) advice: Option<BufferAdvice>,
    /// True once the client has closed the connection; it is not read before the session.
    pub(crate) has_left: Box<dyn Fn() -> bool + Send>,
    /// Callback for the client's valid token.
    pub(crate) on_authenticated: Box<dyn FnOnce() + Send>,
    /// Callback for the authenticated client's request, with the timeout that applies from then on.
    pub(crate) on_request: Box<dyn FnOnce(Duration) + Send>,
}

impl ControlConn {
    fn write(&mut self, message: &Message) -> Result<(), Error> {
        self.write_raw(&control::encode(message)?)
    }

    fn write_raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        write_now(&mut *self.output, bytes, self.reader.peer())
    }

    /// Refuses the client of an agent that cannot work.
    ///
    /// # Errors
    /// The client does not begin as one.
    pub(crate) fn refuse_at_start(mut self, error: &Error) -> Result<(), Error> {
        self.reader.expect_magic(0)?;
        self.write_raw(&control::MAGIC)?;
        self.reader.next()?;
        self.refuse(error);
        Ok(())
    }

    /// Sends the client the reason why there is no session.
    pub(crate) fn refuse(mut self, error: &Error) {
        let _ = self.write(&Message::Error(error.to_failure()));
        (self.close)(true);
    }
}

impl SessionManager {
    pub(crate) fn new(
        access: AccessControl,
        policy: Policy,
        probes: Option<Arc<ProbePort>>,
    ) -> Self {
        Self { access, policy, probes, draining: Cancel::new(), table: SessionTable::default() }
    }

    /// Number of running sessions.
    pub(crate) fn session_count(&self) -> usize {
        self.table.count()
    }

    /// Sessions at present, and totals of all since the start.
    pub(crate) fn status(&self) -> ServerStatus {
        self.table.status()
    }

    /// Ends all sessions.
    pub(crate) fn abort(&self) {
        self.table.fail_all(|| Failure::new(Cause::Cancelled, "the server was shut down").into());
    }

    /// Ends the sessions of clients that are no longer accepted.
    pub(crate) fn end_refused(&self) {
        self.table.fail_refused(|client| self.access.check(client));
    }

    /// Serves a client on its control connection, whose magic has been read.
    ///
    /// Returns its request, too, once that was read.
    pub(crate) fn serve(
        &self,
        mut conn: ControlConn,
        tunnelled: bool,
        events: &dyn EventSink,
    ) -> (Option<ClientRequest>, Result<Summary, Error>) {
        let started = Instant::now();
        let (mut subject, mut progress) = (None, Progress::default());
        let log = conn.log.clone();
        let result = match self.prepare(&mut conn, &mut subject) {
            Ok((client, welcome, slots, negotiated)) => {
                let events: &dyn EventSink = match &log {
                    Some(log) => &EventLog::of_peer(events, log.clone()),
                    None => &EventLog::new(events),
                };
                if log.as_ref().is_none_or(PeerLog::admits) {
                    subject.iter().for_each(Subject::log_start);
                }
                let session =
                    SessionSetup { client, welcome, slots, negotiated, tunnelled, started };
                self.run(conn, session, events, &mut progress)
            }
            Err(error) => {
                conn.refuse(&error);
                Err(error)
            }
        };
        if log.is_none_or(|log| log.admits()) {
            match (&subject, &result) {
                (Some(subject), result) => subject.log_end(result, &progress),
                (None, Err(error)) => Subject::log_refused(error),
                (None, Ok(_)) => {}
            }
        }
        (subject.map(|subject| subject.with_outcome(&result, &progress)), result)
    }

    /// Exchanges the handshake and agrees on the request, which `subject` then describes.
    fn prepare(
        &self,
        conn: &mut ControlConn,
        subject: &mut Option<Subject>,
    ) -> Result<(Client, Welcome, Arc<SessionSlots>, Negotiated), Error> {
        let (client, welcome, slots) = self.handshake(conn)?;
        enter_session(&welcome.session);
        conn.log.iter().for_each(PeerLog::set_authenticated);
        let Message::Open(open) = self.next_message(conn)? else {
            return Err(WireError::Unexpected("no request").into());
        };
        *subject = Some(subject_of(&open, client.name()));
        let negotiated = self.negotiate(conn, open, &client)?;
        Ok((client, welcome, slots, negotiated))
    }

    fn handshake(
        &self,
        conn: &mut ControlConn,
    ) -> Result<(Client, Welcome, Arc<SessionSlots>), Error> {
        conn.write_raw(&control::MAGIC)?;
        let Message::Hello(hello) = self.next_message(conn)? else {
            return Err(WireError::Unexpected("no hello").into());
        };
        let version = common_version(hello.min_version, hello.max_version)?;
        let client = self.access.authenticate(&hello, conn.binding.as_ref())?;
        conn.reader.set_authenticated();
        std::mem::replace(&mut conn.on_authenticated, Box::new(|| {}))();
        let is_draining = || self.draining.is_cancelled();
        let slots =
            conn.slots.reserve(SLOT_WAIT, is_draining).ok_or_else(|| match is_draining() {
                true => shutting_down(),
                false => busy(),
            })?;
        let max_streams = u32::try_from(slots.max_streams()).unwrap_or(u32::MAX).min(MAX_STREAMS);
        let mut welcome = Welcome {
            version,
            software: software(),
            max_streams,
            unencrypted_allowed: self.policy.unencrypted_allowed,
            data_port: conn.data_port,
            data_hosts: std::mem::take(&mut conn.data_hosts),
            fingerprint: conn.fingerprint,
            timeout_ms: u64::try_from(self.policy.timeout.as_millis()).ok(),
            ..Welcome::default()
        };
        for random in [&mut welcome.session[..], &mut welcome.session_key] {
            let failed = |e| Error::local("cannot read random bytes", &e);
            bankfull_sys::random(random).map_err(failed)?;
        }
        conn.write(&Message::Welcome(welcome.clone()))?;
        Ok((client, welcome, slots))
    }

    /// Reads a message of a client without a session; fails if the server is shutting down.
    fn next_message(&self, conn: &mut ControlConn) -> Result<Message, Error> {
        let received = conn.reader.next();
        // A draining port ends reading itself: the end is not the client's doing.
        let is_ended = received.as_ref().map_or_else(|e| e.kind() == ErrorKind::Network, |_| true);
        if is_ended && self.draining.is_cancelled() {
            return Err(shutting_down());
        }
        received
    }

    /// Checks the client's request and agrees on the session.
    fn negotiate(
        &self,
        conn: &mut ControlConn,
        mut open: Open,
        client: &Client,
    ) -> Result<Negotiated, Error> {
        std::mem::replace(&mut conn.on_request, Box::new(|_| {}))(self.timeout_for(&open));
        if open.unencrypted && !self.policy.unencrypted_allowed {
            let text = "data without encryption is not allowed here: leave out --no-encryption";
            return Err(Failure::new(Cause::UnencryptedRefused, text).into());
        }
        let overrides = Overrides::from_open(&open)?;
        overrides.check()?;
        overrides.check_encryption(!open.unencrypted)?;
        if open.direction == Direction::Pull {
            overrides.check_sender()?;
        }
        if let Some(ms) = open.throughput_test_ms {
            let task = SessionTask::test(open.direction, Duration::from_millis(ms.into()));
            let (opened, limits) = (Opened::default(), self.access.test_limits(client, conn.peer)?);
            return Ok(Negotiated { open, opened, task, entry_quota: None, limits });
        }
        let place = &self.access.place(client, conn.peer, &mut open)?;
        let entry_quota =
            (open.direction == Direction::Push).then(|| self.policy.buffer_pool.entry_quota());
        let (opened, task) = match open.direction {
            Direction::Pull if place.is_read_only && open.remove_sources == Some(true) => {
                let text = "this server is read-only: its files cannot be removed";
                return Err(Failure::new(Cause::ReadOnly, text).into());
            }
            Direction::Pull => {
                let rules = send_rules(&open, &place.root)?;
                let paths = source_paths(&open, expansion(conn, &place.root))?;
                let items = place.root.resolve_sources(&paths, &rules.walk, None)?;
                PathRoot::refuse_special(&items, rules.metadata.rules)?;
                let sources = sources_of(&items);
                let task = SessionTask::Send { items, rules: Box::new(rules) };
                let (credit, rate_changes) = (open.credit, open.rate_changes);
                (Opened { sources, credit, rate_changes, ..Opened::default() }, task)
            }
            Direction::Push if place.is_read_only => {
                let text = "uploads are refused: the server or the share is read-only";
                return Err(Failure::new(Cause::ReadOnly, text).into());
            }
            Direction::Push => self.receive(conn, &open, (place, entry_quota.as_deref()))?,
        };
        Ok(Negotiated { open, opened, task, entry_quota, limits: place.limits.clone() })
    }

    /// Opens the destination of a push.
    fn receive(
        &self,
        conn: &ControlConn,
        open: &Open,
        (place, entry_quota): (&Place, Option<&EntryQuota>),
    ) -> Result<(Opened, SessionTask), Error> {
        let home = |path| expansion(conn, &place.root).home(path);
        let path = open.paths.first().map(home).transpose()?.map(|path| path.0).unwrap_or_default();
        refuse_long_answer(open, &path)?;
        let quota = place.limits.quota();
        let permits = Permits { closed_dirs: quota.is_none(), ..self.policy.permits };
        let options = ReceiveOptions { quota, ..receive_options(open) };
        let (mut target, destinations) =
            place.root.open_destination(&path, &open.sources, options)?;
        let destinations = destinations.into_iter().map(|path| place.shown(path)).collect();
        target.requested.walk =
            open.walk.as_ref().and_then(WalkRules::to_receiver).unwrap_or_default();
        target.metadata = metadata_target(open, permits)?;
        target.requested.changes =
            open.itemize.filter(|asked| *asked).map(|_| ChangeReader::Sender);
        refuse_delete_in_root(open, &target)?;
        if open.delete.is_some() {
            let filters = target.metadata.filters.clone();
            (target.requested.delete, target.requested.filters) = (open.delete, filters);
        }
        // With other receivers, senders take time slots.
        let uses_credit = open.credit.filter(|&credit| credit && is_receiving() && !open.dry_run);
        let max_outstanding_files = entry_quota.and_then(|quota| quota.announced());
        let opened = Opened {
            destinations,
            credit: uses_credit,
            max_outstanding_files,
            itemizes: open.itemize.filter(|asked| *asked),
            open_ended: open.sources.iter().any(|source| source.is_open_ended()).then_some(true),
            rate_changes: open.rate_changes,
            ..Opened::default()
        };
        Ok((opened, SessionTask::Receive(Box::new(target))))
    }

    /// Smaller of the two sides' timeouts, which the heartbeats must meet.
    fn timeout_for(&self, open: &Open) -> Duration {
        match open.timeout_ms {
            0 => self.policy.timeout,
            ms => self.policy.timeout.min(Duration::from_millis(ms)),
        }
    }

    fn run(
        &self,
        mut conn: ControlConn,
        session: SessionSetup,
        events: &dyn EventSink,
        progress: &mut Progress,
    ) -> Result<Summary, Error> {
        let SessionSetup { client, welcome, slots, negotiated, tunnelled, started } = session;
        let mut session = self.session(&negotiated, &welcome, tunnelled)?;
        session.advice = Mutex::new(conn.advice.take());
        session.streams.record_min_rtt(conn.min_rtt);
        let session = Arc::new(session);
        session.on_stop(std::mem::replace(&mut conn.wake, Box::new(|| {})));
        let (accepted, streams) = mpsc::channel();
        let maker = accepted.clone();
        session.target.on_spawner_wake(move || drop(maker.send(None)));
        let outbox = Outbox::default();
        let stats = SessionStats::new(events, started);
        let entry = JoinableSession {
            client,
            version: welcome.version,
            key: welcome.session_key,
            is_unencrypted: negotiated.open.unencrypted,
            slots,
            numbers: StreamNumbers::default(),
            accepted: accepted.clone(),
            counted: CountedSession {
                session: Arc::clone(&session),
                is_receiving: negotiated.open.direction == Direction::Push,
                stages: stats.shared_times(),
            },
        };
        let autotune = match is_autotuned(&negotiated.open) {
            false => Autotune::Off,
            true => self.autotune(&welcome, conn.peer),
        };
        self.begin(&mut conn, (welcome.session, entry), negotiated.opened)?;
        if tunnelled {
            let key = welcome.session_key;
            let local_end = crate::transport::tunnel::open(&mut conn.reader, &outbox)
                .map_err(|e| Error::local("cannot open a tunnel through ssh", &e))?;
            let accept = move || accept_tunnelled(local_end, &key, &accepted);
            try_spawn_detached(accept)?;
        }
        let runner = SessionRunner {
            session,
            stats: &stats,
            cancel: &Cancel::new(),
            timeout: self.timeout_for(&negotiated.open),
            report_progress: false,
            ended: Latch::default(),
            awaits_removal: false,
            close_by: Mutex::default(),
            autotune: Mutex::new(autotune),
        };
        let channel =
            ControlChannel { reader: conn.reader, output: conn.output, outbox, close: conn.close };
        let result = runner.run(channel, negotiated.task, StreamSource::Accept(streams));
        self.table.remove(welcome.session);
        *progress = stats.progress();
        result
    }

    /// Lets data streams join a session, and answers its client.
    fn begin(
        &self,
        conn: &mut ControlConn,
        (id, entry): ([u8; 16], JoinableSession),
        opened: Opened,
    ) -> Result<(), Error> {
        let client = entry.client.clone();
        // Before the client learns that it may connect and send datagrams.
        self.table.insert(id, entry);
        // A revocation before this insertion did not find the session in the table: check again.
        let accepted = self.access.check(&client).inspect_err(|error| {
            let _ = conn.write(&Message::Error(error.to_failure()));
        });
        let answered = accepted.and_then(|()| conn.write(&Message::Opened(opened)));
        answered.inspect_err(|_| self.table.remove(id))
    }

    /// Tuning of a session, by probes if this side has a port for them.
    fn autotune(&self, welcome: &Welcome, peer: Option<IpAddr>) -> Autotune {
        // The client registers its address; until then it is unknown.
        Autotune::On(self.probes.as_ref().map(|port| {
            let line = port.join(welcome.session, welcome.session_key, peer);
            Box::new(ProbeChannel { line, register_address: None, own_port: None })
        }))
    }

    /// The negotiated session.
    fn session(
        &self,
        negotiated: &Negotiated,
        welcome: &Welcome,
        tunnelled: bool,
    ) -> Result<Session, Error> {
        let Negotiated { open, opened, .. } = negotiated;
        let streams = open.streams.min(welcome.max_streams);
        let mut session = Session::new(Overrides::from_open(open)?, streams);
        session.entry_quota.clone_from(&negotiated.entry_quota);
        session.cached_path = open.cached_path.map(|[bytes_per_sec, rtt_us]| CachedPath {
            rate: Rate::from_bytes_per_sec(bytes_per_sec),
            rtt: Duration::from_micros(rtt_us),
        });
        if open.tune_sobas == Some(true) {
            session.controller = ControllerKind::Sobas;
        }
        let is_autotuned = is_autotuned(open);
        session.buffer_pool = Arc::clone(&self.policy.buffer_pool);
        session.send.start_stagger = is_autotuned.then(|| StartStagger::new(streams));
        session.target.max = open.max_streams.filter(|_| is_autotuned && !tunnelled);
        session.target.max = session.target.max.map(|max| max.min(welcome.max_streams));
        negotiated.limits.apply(&mut session, open.direction);
        let uses_credit = opened.credit == Some(true);
        match open.direction {
            Direction::Pull => {
                session.send.credit = uses_credit.then(Arc::default);
                session.send.max_outstanding_files = outstanding_limit(open);
            }
            Direction::Push => {
                let takes_part = is_autotuned && open.throughput_test_ms.is_none();
                session.sharing =
                    InterfaceSharing::new(takes_part, uses_credit, self.policy.link_rate, None);
            }
        }
        Ok(session)
    }

    /// Attaches a data stream, whose magic has been read, to its session. A peer that fails to
    /// prove membership is not answered. `NotFound` when the session has ended, `ResourceBusy`
    /// without a slot.
    pub(crate) fn attach(
        &self,
        socket: Socket,
        tls: Option<Connection>,
        magic: &[u8; 8],
    ) -> io::Result<()> {
        let encrypted = tls.is_some() || socket.is_encrypted();
        let (unattached, bytes) = read_attach(socket, tls, magic)?;
        let attach = Attach::decode(&bytes).map_err(io::Error::other)?;
        let place = self.table.place(&attach, &bytes, encrypted)?;
        let StreamPlace { key, slot, accepted } = place;
        let mut stream = finish_attach(unattached, &attach, &key, self.policy.timeout)?;
        stream.set_permit(Box::new(slot));
        accepted.send(Some((attach.stream, stream))).map_err(|_| late())
    }
}

/// Returns the expansion of a client's paths, which ends when the client has left.
fn expansion<'c>(conn: &'c ControlConn, root: &'c PathRoot) -> Expansion<'c> {
    Expansion { root, has_left: &*conn.has_left }
}

/// Error of a client whose session has not begun when the server ends.
fn shutting_down() -> Error {
    Failure::new(Cause::Cancelled, "the server is shutting down: try again later").into()
}

/// Error of a client that gets no slots.
fn busy() -> Error {
    let text = "the server has reached its connection limit: try again later, or start it with a \
                larger --max-connections";
    Failure::new(Cause::Busy, text).into()
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

/// True if the data streams of the requested session are tuned.
fn is_autotuned(open: &Open) -> bool {
    open.autotune_off != Some(true) && open.window.is_none()
}

/// Waits for the one data stream that may use the control channel. ssh encrypts it.
fn accept_tunnelled(
    local_end: std::os::unix::net::UnixStream,
    key: &[u8; 32],
    accepted: &mpsc::Sender<AcceptedStream>,
) {
    let attached = || -> io::Result<()> {
        let mut socket = Socket::Unix(local_end);
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
    // The client detects by itself that its tunnel does not answer.
    let _ = attached();
}
