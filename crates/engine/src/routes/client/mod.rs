//! The client: connects to the peer, negotiates the transfer, and runs this side of it.

mod busy_retry;
mod connector;
pub(crate) mod daemon;
mod dial;
mod opening;
pub(crate) mod ssh;

use crate::base::cancel::{Cancel, run_abandonable};
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{Event, EventSink, Route, Summary};
use crate::base::event_log::session_span;
use crate::base::sync::Latch;
use crate::file_io::roots::{SendRules, SourceItem};
use crate::model::client_key::ClientKeyPair;
use crate::model::path_cache::{LossRecord, PathCache, PathMetrics, TransportResult};
use crate::model::shared_limit::SharedLimit;
use crate::model::transfer_options::{Purpose, TransferOptions};
use crate::run::context::RunContext;
use crate::run::driver::{
    CloseFn, ControlChannel, SessionRunner, SessionTask, report_destinations,
};
use crate::run::streams::{Connect, StreamSource};
use crate::session::Session;
use crate::stats::lost_sessions::{LostSessions, SessionTotals};
use crate::stats::session_stats::SessionStats;
use crate::transport::channel_binding::ChannelBinding;
use crate::transport::control::{ControlReader, Outbox, write_now};
use crate::transport::data_stream::DataStream;
use crate::transport::entry_quota::EntryQuota;
use crate::transport::probe::ProbePort;
use crate::transport::start_stagger::StartStagger;
use crate::tuning::{Autotune, ProbeChannel};
use bankfull_control::{Bytes, Limit, LossSample};
use bankfull_proto::limits::MAX_OUTSTANDING_FILES;
use bankfull_proto::wire::control::{
    self, Direction, Hello, KeyProof, Message, Open, Opened, PathBytes, Welcome,
};
use bankfull_proto::wire::{MAX_VERSION, MIN_VERSION, WireError, common_version};
use connector::Connector;
use opening::receive_target;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Largest handshake with a request appended. (chosen: with TLS it fits in one segment even at
/// IPv6's minimum MTU of 1280 bytes, so both arrive together. A server that refuses the client
/// after the handshake has then read the request too; unread bytes would reset the connection and
/// lose the reason.)
const MAX_GREETING_BYTES: usize = 1024;

/// Name and version of this software, for messages.
pub(crate) fn software() -> String {
    format!("bankfull {}", env!("CARGO_PKG_VERSION"))
}

/// A connected peer, before the handshake.
pub(crate) struct Peer {
    pub(crate) reader: ControlReader,
    pub(crate) output: Box<dyn Write + Send>,
    /// Wakes the thread that waits for the peer.
    pub(crate) wake: Box<dyn Fn() + Send>,
    /// Closes the connection.
    pub(crate) close: CloseFn,
    pub(crate) name: String,
    pub(crate) route: Route,
    /// Maximum number of bytes before the peer's first message.
    pub(crate) max_noise_bytes: usize,
    /// Time that remains for the peer's messages up to `Opened`.
    pub(crate) greeting_time: Duration,
    /// Channel binding that a client key signs; `None` over ssh.
    pub(crate) binding: Option<ChannelBinding>,
}

/// The transfer requested from the peer, and what this side knows of it.
#[derive(Clone)]
pub(crate) struct Request<'t> {
    pub(crate) options: &'t TransferOptions,
    /// Handles that the transfer shares with others.
    pub(crate) context: &'t RunContext,
    pub(crate) direction: Direction,
    /// Paths on the peer's host, as typed.
    pub(crate) remote_paths: Vec<PathBytes>,
    /// Sources, if they are on this side.
    pub(crate) items: Vec<SourceItem>,
    /// Measurements of the path by earlier copies; empty if the user has set the parameters.
    pub(crate) earlier: PathMetrics,
    /// Totals of the sessions that this transfer has lost.
    pub(crate) lost: &'t LostSessions,
    /// Quota of outstanding entries, if this side receives.
    pub(crate) entry_quota: Option<Arc<EntryQuota>>,
}

impl Peer {
    fn write(&mut self, message: &Message) -> Result<(), Error> {
        write_now(&mut *self.output, &control::encode(message)?, &self.name)
    }

    /// Runs work that waits for the peer. Cancellation closes the connection.
    pub(crate) fn run_cancellable<T: Send + 'static>(
        mut self,
        cancel: &Cancel,
        work: impl FnOnce(&mut Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<(Self, T), Error> {
        let close = Arc::clone(&self.close);
        let result = cancel.run_cancellable(move || work(&mut self).map(|done| (self, done)));
        // Otherwise the failed work has dropped the connection, and ssh may still print the reason.
        if cancel.is_cancelled() {
            close(true);
        }
        result
    }

    /// Runs work that waits for messages up to `Opened`, in what remains of their time.
    ///
    /// The timeout of a read does not suffice: pings and single bytes would reset it for ever.
    /// Cancellation and lateness close the connection.
    pub(crate) fn run_greeting<T: Send + 'static>(
        mut self,
        cancel: &Cancel,
        work: impl FnOnce(&mut Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<(Self, T), Error> {
        let (close, loss, limit) =
            (Arc::clone(&self.close), self.reader.loss(), self.greeting_time);
        let started = Instant::now();
        let is_late = || started.elapsed() >= limit;
        let work = move || work(&mut self).map(|done| (self, done));
        let result = run_abandonable(|| cancel.is_cancelled() || is_late(), work);
        if cancel.is_cancelled() {
            close(true);
        }
        match result {
            Err(error) if error.kind() == ErrorKind::Interrupted && !cancel.is_cancelled() => {
                close(true);
                Err(loss.to_error(&std::io::ErrorKind::TimedOut.into()))
            }
            done => done.map(|(mut peer, done)| {
                peer.greeting_time = limit.saturating_sub(started.elapsed());
                (peer, done)
            }),
        }
    }

    /// Sends `Hello`, and waits for the first byte of the peer's output.
    pub(crate) fn send_hello(&mut self) -> Result<(), Error> {
        write_now(&mut *self.output, &greeting(None, None)?, &self.name)?;
        self.reader.wait_for_first_byte()
    }

    /// Exchanges `Hello` and `Welcome`, and appends the request if it is short. Returns true if the
    /// request was sent.
    pub(crate) fn handshake_and_open(
        &mut self,
        token: Option<Vec<u8>>,
        key: Option<&ClientKeyPair>,
        open: &Open,
    ) -> Result<(Welcome, bool), Error> {
        let key = self.binding.and_then(|binding| key.map(|key| key.prove(&binding)));
        let mut greeting = greeting(token, key)?;
        let request = control::encode(&Message::Open(open.clone()))?;
        let fits =
            MIN_VERSION == MAX_VERSION && greeting.len() + request.len() <= MAX_GREETING_BYTES;
        if fits {
            greeting.extend_from_slice(&request);
        }
        let greeted = write_now(&mut *self.output, &greeting, &self.name);
        let welcome = greeted.and_then(|()| self.read_welcome());
        let welcome = welcome.map_err(|error| match error.kind() {
            ErrorKind::Network if error.is_connection_loss() => error.dropped(),
            _ => error,
        })?;
        Ok((welcome, fits))
    }

    /// Waits for `Welcome`.
    pub(crate) fn read_welcome(&mut self) -> Result<Welcome, Error> {
        self.reader.expect_magic(self.max_noise_bytes)?;
        match self.reader.next()? {
            Message::Welcome(welcome) => {
                common_version(welcome.version, welcome.version)?;
                self.reader.set_authenticated();
                Ok(welcome)
            }
            _ => Err(WireError::Unexpected("no welcome").into()),
        }
    }

    /// Sends the request, unless it was sent with the handshake, and returns the answer.
    fn open_transfer(&mut self, open: Option<Open>) -> Result<Opened, Error> {
        if let Some(open) = open {
            self.write(&Message::Open(open))?;
        }
        match self.reader.next()? {
            Message::Opened(opened) => Ok(opened),
            _ => Err(WireError::Unexpected("no answer to the request").into()),
        }
    }
}

/// Magic and `Hello`.
fn greeting(token: Option<Vec<u8>>, key: Option<KeyProof>) -> Result<Vec<u8>, Error> {
    let (min_version, max_version) = (MIN_VERSION, MAX_VERSION);
    let hello = Hello { min_version, max_version, software: software(), token, key };
    let mut bytes = control::MAGIC.to_vec();
    bytes.extend_from_slice(&control::encode(&Message::Hello(hello))?);
    Ok(bytes)
}

/// A peer after the handshake.
pub(crate) struct Handshaken {
    pub(crate) peer: Peer,
    pub(crate) welcome: Welcome,
    /// RTT of the path, if known.
    pub(crate) rtt: Option<Duration>,
    /// True if the request was sent with the handshake.
    pub(crate) request_sent: bool,
}

/// Runs a transfer with a peer after the handshake. An error closes the connection.
pub(crate) fn run(
    handshaken: Handshaken,
    connector: Connector,
    request: Request<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let close = Arc::clone(&handshaken.peer.close);
    let _in_session = session_span(&handshaken.welcome.session, &handshaken.peer.name).entered();
    run_handshaken(handshaken, connector, request, events, cancel, started)
        .inspect_err(|_| close(true))
}

fn run_handshaken(
    handshaken: Handshaken,
    connector: Connector,
    mut request: Request<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let Handshaken { mut peer, welcome, rtt, request_sent } = handshaken;
    let options = request.options;
    let wake = std::mem::replace(&mut peer.wake, Box::new(|| {}));
    if !options.encryption && peer.route != Route::Quic && !welcome.unencrypted_allowed {
        return Err(unencrypted_refused(&peer.name));
    }
    let streams = request.streams();
    let open = (!request_sent).then(|| request.open(streams(rtt)));
    let items = std::mem::take(&mut request.items);
    let (mut peer, opened) = peer.run_greeting(cancel, |peer| peer.open_transfer(open))?;
    request.check_answer(&opened, &peer.name)?;
    let task = task_of(&request, items, &opened, events)?;
    let stats = SessionStats::new(events, started);
    let outbox = Outbox::default();
    let DataRoute { connector, ready, route } = match options.dry_run {
        true => DataRoute { connector, ready: Vec::new(), route: peer.route },
        false => choose_route(connector, &mut peer, cancel, &outbox, &stats)?,
    };
    events.event(Event::Connected {
        route,
        software: welcome.software,
        encrypted: options.encryption || matches!(route, Route::SshOnly | Route::Quic),
        at: started.elapsed(),
    });
    let rtt = rtt.or_else(|| ready.first().and_then(|(_, stream)| stream.socket().rtt()));
    let most = if route == Route::SshOnly { 1 } else { welcome.max_streams };
    let count = streams(rtt).min(most);
    warn_ineffective(options, route, welcome.max_streams, &stats);
    connector.limit(count.saturating_sub(ready.len() as u32));
    let keys = (&welcome.session, &welcome.session_key);
    let autotune = request.autotune(|| probe_channel(&ready, &connector, route, keys, &stats));
    let max_streams = options.max_streams().filter(|_| route != Route::SshOnly);
    let max_streams = max_streams.map(|max| max.min(welcome.max_streams));
    let session = request.session(count, max_streams, &opened);
    session.on_stop(wake);
    session.streams.record_min_rtt(rtt);
    let peer_timeout = welcome.timeout_ms.filter(|ms| *ms > 0);
    let peer_timeout = peer_timeout.map_or(Duration::MAX, Duration::from_millis);
    let runner = SessionRunner {
        session: Arc::new(session),
        stats: &stats,
        cancel,
        timeout: options.timeout.min(peer_timeout),
        report_progress: true,
        ended: Latch::default(),
        awaits_removal: options.rules.removes_sources,
        close_by: Mutex::default(),
        autotune: Mutex::new(autotune),
    };
    let channel =
        ControlChannel { reader: peer.reader, output: peer.output, outbox, close: peer.close };
    let streams = StreamSource::Connect { connector: Arc::new(connector), count, ready };
    let result = runner.run(channel, task, streams);
    if result.is_err() {
        request.lost.add(&SessionTotals::of(&stats.counts));
    }
    let path = (rtt, runner.session.streams.mss());
    let observer = stats.path_observer();
    request.record_path(observer.metrics(), path, &result, observer.is_queued());
    result
}

fn unsupported(what: &str, peer: &str) -> Error {
    let text = format!("{peer} does not support {what}: install a newer bankfull there");
    Error::new(ErrorKind::Version, text)
}

/// Route of the data, with the streams that are connected already.
struct DataRoute {
    connector: Connector,
    ready: Vec<(u32, DataStream)>,
    route: Route,
}

/// Chooses the route of the data: over ssh, by connecting the first data stream.
fn choose_route(
    connector: Connector,
    peer: &mut Peer,
    cancel: &Cancel,
    outbox: &Outbox,
    stats: &SessionStats<'_>,
) -> Result<DataRoute, Error> {
    if matches!(peer.route, Route::Daemon | Route::Quic) {
        return Ok(DataRoute { connector, ready: Vec::new(), route: peer.route });
    }
    let late = Instant::now() + connector.timeout();
    let connect = move || Ok((connector.connect(), connector));
    let is_abandoned = || cancel.is_cancelled() || Instant::now() >= late;
    let connected = run_abandonable(is_abandoned, connect).map_err(|e| match e.kind() {
        ErrorKind::Interrupted if !cancel.is_cancelled() => {
            peer.reader.loss().to_error(&std::io::ErrorKind::TimedOut.into())
        }
        _ => e,
    });
    let (made, mut connector) = connected?;
    let (ready, route) = connector.choose_route(made, peer, outbox, stats)?;
    Ok(DataRoute { connector, ready, route })
}

/// Warns of options without effect on this route. Also warns if the peer's limit of `max_streams`
/// data streams is exceeded.
fn warn_ineffective(
    options: &TransferOptions,
    route: Route,
    max_streams: u32,
    stats: &SessionStats<'_>,
) {
    let overrides = &options.overrides;
    let wanted = options.streams.filter(|_| route != Route::SshOnly && !options.dry_run);
    if let Some(wanted) = wanted.filter(|&wanted| wanted > max_streams) {
        stats.warn(format!(
            "{max_streams} of {wanted} data streams are used: the peer allows no more \
             (--max-connections there)"
        ));
    }
    if overrides.needs_tcp() && matches!(route, Route::SshOnly | Route::Quic) {
        let by = if route == Route::Quic { "over QUIC" } else { "through ssh" };
        stats.warn(format!("{by}, a buffer and a congestion control have no effect"));
    }
    if route == Route::Quic && !options.encryption {
        let method = overrides.unencrypted_io_method();
        let method =
            method.map_or(String::new(), |method| format!(", nor has I/O method {method}"));
        stats.warn(format!("QUIC always encrypts: --no-encryption has no effect{method}"));
    }
}

/// Role of this side.
fn task_of(
    request: &Request<'_>,
    items: Vec<SourceItem>,
    opened: &Opened,
    events: &dyn EventSink,
) -> Result<SessionTask, Error> {
    let (options, _context) = (request.options, request.context);
    Ok(match (request.direction, options.purpose.test_time()) {
        (Direction::Push, Some(time)) => SessionTask::SendTest(time),
        (Direction::Pull, Some(time)) => SessionTask::ReceiveTest(time),
        (Direction::Push, None) => {
            report_destinations(events, options, &opened.destinations);
            SessionTask::Send { items, rules: Box::new(SendRules::of_host(options)) }
        }
        (Direction::Pull, None) if options.purpose == Purpose::Listing => {
            SessionTask::List(opened.sources.len())
        }
        (Direction::Pull, None) => {
            SessionTask::Receive(Box::new(receive_target(request, &opened.sources, events)?))
        }
    })
}

fn unencrypted_refused(peer: &str) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!(
            "{peer} does not allow data without encryption: leave out --no-encryption, or start \
             the server with --allow-no-encryption"
        ),
    )
}

/// UDP channel to the address of the data streams, unless they go through ssh.
fn probe_channel(
    ready: &[(u32, DataStream)],
    connector: &Connector,
    route: Route,
    (session, key): (&[u8; 16], &[u8; 32]),
    stats: &SessionStats<'_>,
) -> Option<Box<ProbeChannel>> {
    let connected = ready.first().and_then(|(_, stream)| stream.socket().peer());
    let address = connected.or(connector.address()).filter(|_| route != Route::SshOnly)?;
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // The transfer also runs without datagrams, with fewer measurements.
    let warn = |e| {
        let why = crate::base::error::os_message(&e);
        stats.warn(format!("cannot open a UDP port ({why}): the path is measured by TCP alone"));
    };
    let port = ProbePort::bind(SocketAddr::from((any, 0))).map_err(warn).ok()?;
    let line = port.join(*session, *key, Some(address.ip()));
    Some(Box::new(ProbeChannel { line, register_address: Some(address), own_port: Some(port) }))
}

impl Request<'_> {
    /// Checks that the peer supports features that an older version may lack.
    fn check_answer(&self, opened: &Opened, peer: &str) -> Result<(), Error> {
        if self.context.barrier_party.is_some() && opened.credit != Some(true) {
            return Err(unsupported("rounds", peer));
        }
        if self.context.input.is_some() && opened.open_ended != Some(true) {
            return Err(unsupported("a source of unknown size", peer));
        }
        if self.options.overrides.schedule.is_some() && opened.rate_changes != Some(true) {
            return Err(unsupported("--schedule", peer));
        }
        let needs_changes = self.options.rules.itemizes && self.direction == Direction::Push;
        match needs_changes && opened.itemizes != Some(true) {
            true => Err(unsupported("--itemize-changes", peer)),
            false => Ok(()),
        }
    }

    fn autotune(&self, probe_channel: impl FnOnce() -> Option<Box<ProbeChannel>>) -> Autotune {
        // The probes of many concurrent transfers would be a load of their own.
        let probes =
            self.options.overrides.allows_probes() && !self.context.has_concurrent_receivers();
        match self.options.is_tuned() {
            true => Autotune::On(probes.then(probe_channel).flatten()),
            false => Autotune::Off,
        }
    }

    /// Creates the state shared by the threads of this side. The session has `count` data streams,
    /// and up to `max_streams`.
    fn session(&self, count: u32, max_streams: Option<u32>, opened: &Opened) -> Session {
        let uses_credit = opened.credit == Some(true);
        let mut session = Session::new(self.options.overrides.clone(), count);
        session.cached_path = self.earlier.sustained;
        session.controller = self.options.controller();
        session.buffer_pool = Arc::clone(&self.context.buffer_pool);
        session.target.max = max_streams;
        session.is_rate_followed = opened.rate_changes == Some(true);
        session.entry_quota.clone_from(&self.entry_quota);
        match self.direction {
            Direction::Push => {
                session.send.credit = uses_credit.then(Arc::default);
                if let Some(limit) = opened.max_outstanding_files {
                    session.send.max_outstanding_files = limit.min(MAX_OUTSTANDING_FILES);
                }
            }
            Direction::Pull => {
                session.sharing = self.context.sharing(self.options, uses_credit);
                let limit = self.context.receive_limit.clone();
                session.receive_limit = limit.map(|limit| Arc::new(SharedLimit::new(limit)));
            }
        }
        session.send.start_stagger = self.options.is_tuned().then(|| StartStagger::new(count));
        session
    }

    /// Records measurements of the path, unless the user has set the parameters.
    fn record_path(
        &self,
        seen: PathMetrics,
        (rtt, segment): (Option<Duration>, Bytes),
        result: &Result<Summary, Error>,
        is_queued: Option<bool>,
    ) {
        let earlier = self.earlier;
        let is_quic = self.options.uses_quic();
        let loss = match result {
            // A fixed number of streams yields the loss rate of that number only.
            Ok(done) if done.limited_by == Limit::Network.name() && self.streams_may_vary() => {
                let losses = LossSample::new(done.retransmits, done.wire_bytes, segment);
                let goodput = done.goodput();
                LossRecord::updated(
                    earlier.loss,
                    &TransportResult { is_quic, goodput, losses, is_queued },
                )
            }
            Err(e) if is_quic && matches!(e.kind(), ErrorKind::Network | ErrorKind::Timeout) => {
                earlier.loss.map(LossRecord::with_quic_failure)
            }
            _ => earlier.loss,
        };
        if is_quic {
            // QUIC reveals nothing about the needs of TCP.
            self.save_path(&PathMetrics { loss, ..earlier });
            return;
        }
        let initial = self.options.initial_streams(rtt);
        let streams = match self.options.max_streams() {
            // Without a long-standing decision, the initial number was sufficient.
            Some(_) => seen.streams.or(self.earlier.streams).filter(|&streams| streams > initial),
            // A number set by the user neither measures nor confirms anything.
            None => self.earlier.streams.filter(|_| seen.sustained.is_some()),
        };
        self.save_path(&PathMetrics { streams, loss, ..seen });
    }

    /// True if the user has not set the number of streams.
    fn streams_may_vary(&self) -> bool {
        self.options.uses_quic() || self.options.max_streams().is_some()
    }

    fn save_path(&self, seen: &PathMetrics) {
        let memory = PathCache::for_transfer(self.options, self.direction);
        let is_usual = self.options.overrides.is_empty()
            && (self.options.is_tuned() || self.options.uses_quic());
        if let Some(memory) = memory.filter(|_| is_usual) {
            memory.store(seen, &self.earlier);
        }
    }

    /// Number of data streams to connect, as a function of the path's RTT.
    fn streams(&self) -> impl Fn(Option<Duration>) -> u32 + Send + 'static {
        let options = self.options.clone();
        let earlier = self.earlier.streams.zip(options.max_streams());
        let earlier = earlier.map_or(0, |(streams, max)| streams.min(max));
        move |rtt| if options.dry_run { 0 } else { options.initial_streams(rtt).max(earlier) }
    }

    /// True if the receiver may grant credit; a daemon does so if it has other clients.
    fn may_use_credit(&self) -> bool {
        match self.direction {
            Direction::Push => {
                self.options.is_tuned() && self.options.purpose.test_time().is_none()
            }
            Direction::Pull => self.context.uses_credit(self.options),
        }
    }
}

/// A path as sent.
pub(crate) fn path_bytes(path: &Path) -> PathBytes {
    PathBytes(path.as_os_str().as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// Returns a client at one end of a socket pair, and the other end.
    fn client_with(greeting_time: Duration) -> (Peer, UnixStream) {
        let (near, peer) = UnixStream::pair().unwrap();
        let end = near.try_clone().unwrap();
        let client = Peer {
            reader: ControlReader::new(Box::new(near.try_clone().unwrap()), "server".into(), ""),
            output: Box::new(near),
            wake: Box::new(|| {}),
            close: Arc::new(move |_| drop(end.shutdown(std::net::Shutdown::Both))),
            name: "server".to_owned(),
            route: Route::Daemon,
            max_noise_bytes: 0,
            greeting_time,
            binding: None,
        };
        (client, peer)
    }

    /// Runs a handshake with a request for `paths` paths. Returns the messages that the server has
    /// before it answers, and whether the request was sent.
    fn handshake_with(paths: usize) -> (Vec<Message>, bool) {
        let (mut client, peer) = client_with(Duration::from_secs(60));
        let open = Open {
            direction: Direction::Pull,
            paths: vec![PathBytes(vec![b'p'; 100]); paths],
            sources: Vec::new(),
            fsync: control::Fsync::End,
            checksum: false,
            dry_run: false,
            unencrypted: false,
            streams: 4,
            timeout_ms: 0,
            ..Open::default()
        };
        let token = Some(b"token".to_vec());
        let greeting =
            std::thread::spawn(move || client.handshake_and_open(token, None, &open).unwrap().1);
        let mut server = ControlReader::new(Box::new(peer.try_clone().unwrap()), "near".into(), "");
        server.expect_magic(0).unwrap();
        let mut received = vec![server.next().unwrap()];
        peer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        received.extend(server.next());
        let mut answer = control::MAGIC.to_vec();
        let welcome = Welcome { version: MAX_VERSION, ..Welcome::default() };
        answer.extend(control::encode(&Message::Welcome(welcome)).unwrap());
        (&peer).write_all(&answer).unwrap();
        (received, greeting.join().unwrap())
    }

    #[test]
    fn short_request_is_sent_with_the_handshake() {
        let (received, request_sent) = handshake_with(1);
        assert!(matches!(received[..], [Message::Hello(_), Message::Open(_)]) && request_sent);
        let (received, request_sent) = handshake_with(20);
        assert!(matches!(received[..], [Message::Hello(_)]) && !request_sent);
    }

    #[test]
    fn greeting_messages_share_one_time() {
        let time = Duration::from_millis(400);
        let (client, mut peer) = client_with(time);
        let mut greeting = control::MAGIC.to_vec();
        let welcome = Welcome { version: MAX_VERSION, ..Welcome::default() };
        greeting.extend(control::encode(&Message::Welcome(welcome)).unwrap());
        let started = Instant::now();
        let serving = std::thread::spawn(move || {
            std::thread::sleep(time / 2);
            peer.write_all(&greeting).unwrap();
            let ping = control::encode(&Message::Ping).unwrap();
            // Until the client closes the connection.
            while peer.write_all(&ping).is_ok() {
                std::thread::sleep(time / 40);
            }
        });
        let cancel = Cancel::new();
        let (client, _) = client.run_greeting(&cancel, Peer::read_welcome).unwrap();
        assert!(client.greeting_time <= time / 2, "{:?}", client.greeting_time);
        let late = client.run_greeting(&cancel, |client| client.open_transfer(None)).err().unwrap();
        assert_eq!(late.kind(), ErrorKind::Timeout);
        assert_eq!(late.to_string(), "no response from server within the timeout");
        assert!(started.elapsed() >= time);
        serving.join().unwrap();
    }
}
