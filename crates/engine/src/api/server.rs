//! The daemon: one port, one root or several shares, many clients.

use super::limits::check_open_files;
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{Event, EventSink};
use crate::base::event_log::{EventLog, PeerLog, STARTUP_LOG_TARGET, connection_span};
use crate::base::log_limiter::LogLimiter;
use crate::base::sync::lock;
use crate::base::threads::try_spawn;
use crate::model::access::Grant;
use crate::model::metadata::Permits;
use crate::model::options::{Access, Fingerprint, ServeOptions, default_state_dir};
use crate::routes::access::AccessControl;
use crate::routes::admission::{Acceptor, GreetingDeadline, PendingConn, Preamble};
use crate::routes::session_manager::{ControlConn, Policy, SessionManager};
use crate::routes::slots::Slots;
use crate::stats::server_status::ServerStatus;
use crate::transport::buffer_pool::BufferPool;
use crate::transport::control::{ControlReader, close_when_acked, split};
use crate::transport::identity::Identity;
use crate::transport::probe::ProbePort;
use crate::transport::quic::{IncomingStreams, QuicPort, QuicServer};
use crate::transport::socket::Socket;
use crate::transport::tls;
use bankfull_proto::wire::attach::DATA_MAGIC;
use bankfull_proto::wire::probe::PROBE_MAGIC;
use bankfull_sys::ReuseportPair;
use rustls::{Connection, ServerConfig};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Interval at which the thread that accepts QUIC streams checks for the end.
/// (chosen: a daemon ends within 2 s of its drain)
const STREAM_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Interval at which the tokens of running sessions are checked. (chosen: a revoked one ends within
/// the time of a command)
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Limits of a daemon's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Authenticated connections: control connections and data streams of all clients.
    pub connections: usize,
    /// Connections that have not authenticated.
    pub unauthenticated: usize,
    /// Files and sockets that the process may open.
    pub open_files: u64,
}

/// A daemon bound to its port. [`run`](Self::run) serves.
pub struct Server {
    acceptor: Arc<Acceptor>,
    address: SocketAddr,
    fingerprint: Fingerprint,
    config: Arc<ServerConfig>,
    limits: ConnectionLimits,
    slots: Arc<Slots>,
    sessions: SessionManager,
    /// Port that accepts QUIC connections, and the streams opened on them.
    quic: Option<Mutex<(QuicPort, IncomingStreams)>>,
    /// Reason why the UDP port is unavailable.
    udp_error: Option<String>,
    log_limiter: Arc<LogLimiter>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the root, loads or creates the certificate, and binds the port.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] when the root or the certificate cannot be used,
    /// [`ErrorKind::Network`] when the port cannot be bound.
    pub fn bind(options: ServeOptions) -> Result<Self, Error> {
        let access = AccessControl::open(&options.access)?;
        let state_dir = options.state_dir.map_or_else(default_state_dir, Ok)?;
        let identity = Identity::load_or_generate(&state_dir)?;
        let listener = TcpListener::bind(options.listen).map_err(|e| {
            let hint = match e.kind() {
                io::ErrorKind::AddrInUse => " (choose another port with --listen)",
                io::ErrorKind::PermissionDenied => " (ports below 1024 need root)",
                _ => "",
            };
            let text = crate::base::error::os_message(&e);
            Error::new(
                ErrorKind::Network,
                format!("cannot listen on {}: {text}{hint}", options.listen),
            )
        })?;
        let unusable = |e| Error::local("the listening socket is unusable", &e);
        let address = listener.local_addr().map_err(unusable)?;
        // A failure to raise the limit is not an error.
        let open_files = bankfull_sys::raise_open_file_limit().unwrap_or(USUAL_OPEN_FILES);
        check_open_files(open_files, RESERVED_OPEN_FILES)?;
        let threads = bankfull_sys::max_threads();
        let limits = ConnectionLimits::new(options.max_connections, open_files, threads);
        let acceptor = Acceptor::new(listener, limits.strangers).map_err(unusable)?;
        let policy = Policy {
            permits: Permits {
                owner: options.allow_owner,
                devices: options.allow_devices,
                privileged_xattrs: options.allow_privileged_xattrs,
                set_id: options.allow_owner,
            },
            unencrypted_allowed: options.allow_unencrypted,
            timeout: options.timeout,
            link_rate: options.link_rate,
            buffer_pool: BufferPool::new(options.max_memory),
        };
        let config = tls::server_config(&identity)?;
        let quic = QuicServer {
            tls: Arc::clone(&config),
            timeout: policy.timeout,
            connections_max: limits.connections,
            strangers_max: limits.strangers,
            buffer_pool: Arc::clone(&policy.buffer_pool),
            sibling: None,
            reset_key: identity.derived_key("bankfull 2026 QUIC stateless resets"),
        };
        let (probes, quic, udp_error) = match bind_udp(address, quic) {
            Ok((probes, quic)) => (Some(probes), Some(quic), None),
            Err(e) => (None, None, Some(crate::base::error::os_message(&e))),
        };
        Ok(Self {
            acceptor,
            address,
            fingerprint: identity.fingerprint(),
            config,
            limits,
            slots: Slots::new(limits.connections),
            sessions: SessionManager::new(access, policy, probes),
            quic: quic.map(Mutex::new),
            udp_error,
            log_limiter: Arc::new(LogLimiter::new()),
        })
    }

    /// Address of the port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Limits of connections, as far as the process may serve them.
    #[must_use]
    pub fn limits(&self) -> ServerLimits {
        ServerLimits {
            connections: self.limits.connections,
            unauthenticated: self.limits.strangers,
            open_files: self.limits.open_files,
        }
    }

    /// Sessions at present, and what all have carried since the start.
    #[must_use]
    pub fn status(&self) -> ServerStatus {
        let [staged, staging_limit] = self.sessions.policy.buffer_pool.usage();
        ServerStatus {
            pending: self.acceptor.pending_count() as u64,
            staged,
            staging_limit,
            ..self.sessions.status()
        }
    }

    /// Replaces the rules for clients; those in force stay if the new ones are refused.
    ///
    /// Sessions end whose token is no longer accepted. Others keep their directory.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] for a directory that cannot be opened, [`ErrorKind::Usage`] for shares
    /// that contradict each other.
    pub fn set_access(&self, access: &Access) -> Result<(), Error> {
        self.sessions.access.replace(access)?;
        self.sessions.end_refused();
        Ok(())
    }

    /// True if clients need a token.
    #[must_use]
    pub fn needs_token(&self) -> bool {
        self.sessions.access.needs_token()
    }

    /// Replaces the tokens with permissions of their own, and nothing else.
    ///
    /// Sessions end whose token is gone, or permits something else now.
    pub fn set_grants(&self, grants: &[Grant]) {
        self.sessions.access.set_grants(grants);
        self.sessions.end_refused();
    }

    /// Fingerprint of the certificate, for clients to pin.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Serves until drained. A request on `drain` refuses new clients and waits for the running
    /// sessions; a request on `abort` ends those too.
    ///
    /// # Errors
    /// [`ErrorKind::Network`] when the port fails, [`ErrorKind::Local`] when a thread cannot be
    /// started.
    pub fn run(&self, events: &dyn EventSink, drain: &Cancel, abort: &Cancel) -> Result<(), Error> {
        let result = self.serve_clients(events, drain, abort);
        match &result {
            Ok(()) => info!(target: STARTUP_LOG_TARGET, "stopped"),
            Err(error) => {
                error!(target: STARTUP_LOG_TARGET, reason = &*error.to_string(), "stopped");
            }
        }
        result
    }

    fn serve_clients(
        &self,
        events: &dyn EventSink,
        drain: &Cancel,
        abort: &Cancel,
    ) -> Result<(), Error> {
        thread::scope(|scope| {
            let mut started = Ok(());
            if let Some(probes) = &self.sessions.probes {
                started = try_spawn(scope, || probes.run());
            }
            if let Some(why) = &self.udp_error {
                let port = self.address.port();
                let message = format!(
                    "UDP port {port} is unavailable ({why}): QUIC is off, and copies are tuned by \
                     TCP statistics alone; stop the program that uses the port, or choose another \
                     with --listen"
                );
                warn_of_server(events, message);
            }
            if let Some(message) = self.limits.warning() {
                warn_of_server(events, message);
            }
            let finished = Arc::new(AtomicBool::new(false));
            if let Some(quic) = &self.quic {
                let finished = Arc::clone(&finished);
                let admit = move || self.admit_streams(scope, events, &lock(quic), &finished);
                started = started.and_then(|()| try_spawn(scope, admit));
            }
            let result = started.and_then(|()| self.admit(scope, events, drain, abort));
            finished.store(true, Ordering::SeqCst);
            if let Some(probes) = &self.sessions.probes {
                probes.stop();
            }
            result
        })
    }

    fn admit<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        events: &'scope dyn EventSink,
        drain: &Cancel,
        abort: &Cancel,
    ) -> Result<(), Error> {
        let mut checked = Instant::now();
        loop {
            if checked.elapsed() >= TOKEN_CHECK_INTERVAL {
                // A token may have expired.
                self.sessions.end_refused();
                checked = Instant::now();
            }
            if drain.is_cancelled() || abort.is_cancelled() {
                self.sessions.draining.cancel();
                if abort.is_cancelled() {
                    self.sessions.abort();
                }
                // Data streams still arrive while a session runs.
                if abort.is_cancelled() || self.sessions.session_count() == 0 {
                    self.acceptor.stop_reading_pending();
                }
                if self.acceptor.is_idle() {
                    return Ok(());
                }
            }
            let failed = |e| Error::network(format!("listening on {} failed", self.address), &e);
            if let Some(conn) = self.acceptor.admit().map_err(failed)? {
                self.spawn_handler(scope, conn, events);
            }
        }
    }

    /// Accepts the streams that clients open on QUIC connections, until the end.
    fn admit_streams<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        events: &'scope dyn EventSink,
        (port, streams): &(QuicPort, IncomingStreams),
        finished: &AtomicBool,
    ) {
        let mut advice = port.advice();
        while !finished.load(Ordering::SeqCst) {
            if let Some(message) = advice.next_advice() {
                warn_of_server(events, message);
            }
            if let Ok((stream, peer)) = streams.recv_timeout(STREAM_POLL_INTERVAL) {
                self.spawn_handler(scope, self.acceptor.admit_stream(stream, peer), events);
            }
        }
    }

    /// Starts a connection's thread. Without a thread, it is closed.
    fn spawn_handler<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        conn: PendingConn,
        events: &'scope dyn EventSink,
    ) {
        let log = PeerLog::new(Arc::clone(&self.log_limiter), conn.peer.ip());
        let peer = &*conn.peer.to_string();
        let handle = move || self.handle_connection(conn, events);
        if let Err(error) = try_spawn(scope, handle)
            && log.admits()
        {
            let reason = &*error.to_string();
            warn!(peer, reason, "connection dropped");
        }
    }

    /// Runs a connection's thread and reports its error.
    fn handle_connection(&self, conn: PendingConn, events: &dyn EventSink) {
        let peer = conn.peer.to_string();
        let log = PeerLog::new(Arc::clone(&self.log_limiter), conn.peer.ip());
        let _in_connection = connection_span(&peer).entered();
        if let Err(error) = self.serve_connection(conn, &peer, &log, events) {
            if log.admits() {
                let reason = &*error.to_string();
                warn!(reason, "connection rejected");
            }
            events.event(Event::ClientDone { peer, result: Err(error) });
        }
    }

    fn serve_connection(
        &self,
        mut conn: PendingConn,
        peer: &str,
        log: &PeerLog,
        events: &dyn EventSink,
    ) -> Result<(), Error> {
        let preamble = conn.read_preamble(&self.config, self.sessions.policy.timeout)?;
        let PendingConn { mut socket, deadline, .. } = conn;
        match preamble {
            Preamble::Closed => {}
            Preamble::Control(connection) => {
                let tls = connection.map(|tls| *tls);
                let socket = ClientSocket { socket, tls, peer, log };
                return self.serve_control(&deadline, socket, events);
            }
            Preamble::Data(connection) => {
                self.attach(socket, connection.map(|tls| *tls), log, events);
            }
            Preamble::OtherProtocol => return Err(reject_protocol(&mut socket, peer)),
        }
        Ok(())
    }

    fn attach(
        &self,
        socket: Socket,
        connection: Option<Connection>,
        log: &PeerLog,
        events: &dyn EventSink,
    ) {
        let peer = socket.peer();
        let attached = self.sessions.attach(socket, connection, &DATA_MAGIC);
        if attached.is_err_and(|e| !is_expected(&e)) && log.admits() {
            let peer =
                peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string());
            let message = format!("a data stream from {peer} belongs to no session: closed it");
            warn_of_server(events, message);
        }
    }

    fn serve_control(
        &self,
        deadline: &GreetingDeadline,
        client: ClientSocket<'_>,
        events: &dyn EventSink,
    ) -> Result<(), Error> {
        let ClientSocket { socket, tls, peer, log } = client;
        let failed =
            |e: io::Error| Error::network(format!("the connection from {peer} failed"), &e);
        let wake = socket.try_clone().map_err(failed)?;
        let close = socket.try_clone().map_err(failed)?;
        let handle = socket.try_clone().map_err(failed)?;
        let connection = socket.try_clone().map_err(failed)?;
        let watched = socket.try_clone().map_err(failed)?;
        let (input, output) = split(tls, socket).map_err(failed)?;
        let (on_authenticated, on_request) = (deadline.on_authenticated(), deadline.on_request());
        let address = handle.peer().ok_or_else(|| failed(io::ErrorKind::NotConnected.into()))?;
        let control = ControlConn {
            reader: ControlReader::new(input, peer.to_owned(), ""),
            output,
            wake: Box::new(move || wake.stop_reading()),
            close: Arc::new(move |is_flushed| close_when_acked(&close, is_flushed)),
            slots: Arc::clone(&self.slots),
            data_port: None,
            data_hosts: Vec::new(),
            fingerprint: None,
            peer: Some(address.ip()),
            log: Some(log.clone()),
            min_rtt: handle.tcp_info().and_then(|info| info.min_rtt),
            advice: handle.advice(),
            has_left: Box::new(move || watched.is_ended()),
            on_authenticated: Box::new(move || {
                on_authenticated();
                connection.set_authenticated();
            }),
            on_request: Box::new(move |timeout| {
                on_request();
                let _ = handle.set_read_timeout(Some(timeout));
            }),
        };
        events.event(Event::ClientConnected { peer: peer.to_owned() });
        let result = self.sessions.serve(control, false, events);
        events.event(Event::ClientDone { peer: peer.to_owned(), result });
        Ok(())
    }
}

/// Reports a warning about the server; each session has its own log.
fn warn_of_server(events: &dyn EventSink, message: String) {
    EventLog::of_server(events).event(Event::Warning { message });
}

/// A client's control connection.
struct ClientSocket<'a> {
    socket: Socket,
    /// TLS state of a TCP connection.
    tls: Option<Connection>,
    /// Address of the client, as text.
    peer: &'a str,
    log: &'a PeerLog,
}

/// Binds the UDP port of the same number, for probes and QUIC.
fn bind_udp(
    address: SocketAddr,
    mut quic: QuicServer,
) -> io::Result<(Arc<ProbePort>, (QuicPort, IncomingStreams))> {
    let ReuseportPair { marked, unmarked } =
        bankfull_sys::bind_reuseport_pair(address, PROBE_MAGIC)?;
    quic.sibling = Some(marked.try_clone()?);
    Ok((ProbePort::from_socket(marked)?, QuicPort::server(unmarked, quic)?))
}

/// True if a data stream arrived after its session, or its client, had ended; or without a slot.
fn is_expected(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, ResourceBusy, UnexpectedEof};
    matches!(error.kind(), NotFound | UnexpectedEof | ResourceBusy)
}

/// Descriptors of a process unless its limit says otherwise. (getrlimit(2): the usual soft limit)
const USUAL_OPEN_FILES: u64 = 1024;

/// Descriptors kept for the port, the log, and the directories and files of sessions. (chosen: a
/// sixteenth of the usual limit)
const RESERVED_OPEN_FILES: u64 = 64;

/// Descriptors of an authenticated connection: 5 for control, 3 for a data stream, and its share
/// of open files. (counted in /proc/PID/fd: 11 with one stream and one part file, 3 per further
/// stream)
const OPEN_FILES_PER_CONNECTION: u64 = 8;

/// Descriptors of a connection that has not authenticated: its socket, and a handle to close it.
const OPEN_FILES_PER_STRANGER: u64 = 2;

/// Threads kept for the port, probes, QUIC, signals and output. (counted in /proc/PID/task: 7)
const RESERVED_THREADS: u64 = 10;

/// Threads of an authenticated connection. (counted in /proc/PID/task: 13 for a session that
/// receives by one stream, which are two connections, and 2 per further stream)
const THREADS_PER_CONNECTION: u64 = 7;

/// Maximum number of connections that have not authenticated. (chosen: the data streams of a few
/// dozen clients that connect at once; each costs a thread)
const MAX_STRANGERS: u64 = 512;

/// Minimum number of connections that have not authenticated. (chosen: those of a client that
/// begins)
const MIN_STRANGERS: u64 = 8;

/// Limits of a daemon's connections. Strangers have a quarter of the descriptors.
#[derive(Debug, Clone, Copy)]
struct ConnectionLimits {
    /// Authenticated connections, control and data together.
    connections: usize,
    /// Connections that have not authenticated.
    strangers: usize,
    open_files: u64,
    /// Number of connections that the user wanted, if a limit allows fewer.
    lowered: Option<(LimitedBy, usize)>,
}

/// Limit of the process that lowered the number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitedBy {
    OpenFiles(u64),
    Threads(u64),
}

impl ConnectionLimits {
    /// Fits `wanted` connections into the limits of open files and threads.
    fn new(wanted: usize, open_files: u64, threads: Option<u64>) -> Self {
        let by_files = Self::within(
            open_files.saturating_sub(RESERVED_OPEN_FILES),
            (OPEN_FILES_PER_STRANGER, OPEN_FILES_PER_CONNECTION),
        );
        let by_threads = threads.map_or((MAX_STRANGERS, usize::MAX), |threads| {
            Self::within(threads.saturating_sub(RESERVED_THREADS), (1, THREADS_PER_CONNECTION))
        });
        let limited_by = match threads {
            Some(threads) if by_threads.1 < by_files.1 => LimitedBy::Threads(threads),
            _ => LimitedBy::OpenFiles(open_files),
        };
        let possible = by_files.1.min(by_threads.1);
        Self {
            connections: wanted.min(possible),
            strangers: by_files.0.min(by_threads.0) as usize,
            open_files,
            lowered: (possible < wanted).then_some((limited_by, wanted)),
        }
    }

    /// Returns the strangers and connections that a number of descriptors or threads suffices for.
    fn within(usable: u64, (per_stranger, per_connection): (u64, u64)) -> (u64, usize) {
        let strangers = (usable / 4 / per_stranger).clamp(MIN_STRANGERS, MAX_STRANGERS);
        let left = usable - (strangers * per_stranger).min(usable);
        // The fewest that --max-connections accepts.
        let connections = usize::try_from(left / per_connection).unwrap_or(usize::MAX).max(2);
        (strangers, connections)
    }

    /// Returns the warning that fewer connections are served than wanted.
    fn warning(&self) -> Option<String> {
        let (limited_by, wanted) = self.lowered?;
        let why = match limited_by {
            LimitedBy::OpenFiles(files) => format!(
                "a process may open {files} files here (raise the limit with ulimit -n or \
                 LimitNOFILE=)"
            ),
            LimitedBy::Threads(threads) => format!(
                "this user or container may have {threads} threads (raise the limit with \
                 ulimit -u, LimitNPROC= or TasksMax=)"
            ),
        };
        Some(format!("{} connections are served instead of {wanted}: {why}", self.connections))
    }
}

/// Rejects another protocol; HTTP clients get an answer to read.
fn reject_protocol(socket: &mut Socket, peer: &str) -> Error {
    const RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
        Connection: close\r\n\r\nThis is a bankfull port. Use `bankfull cp`.\n";
    let mut start = [0; 8];
    let n = socket.read(&mut start).unwrap_or(0);
    let is_http = start[..n].iter().take_while(|b| b.is_ascii_uppercase()).count() >= 3;
    if is_http {
        let _ = socket.write_all(RESPONSE.as_bytes());
    }
    let what = if is_http { "HTTP" } else { "another protocol" };
    Error::new(ErrorKind::Protocol, format!("{peer} speaks {what} instead of bankfull"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_the_lower_of_two_limits() {
        let limits = |files, threads| {
            let limits = ConnectionLimits::new(160, files, threads);
            (limits.connections, limits.strangers, limits.lowered.map(|(by, _)| by))
        };
        assert_eq!(limits(1 << 20, None), (160, 512, None));
        assert_eq!(limits(1 << 20, Some(10_000)), (160, 512, None));
        assert_eq!(limits(200, None), (12, 17, Some(LimitedBy::OpenFiles(200))));
        assert_eq!(limits(1 << 20, Some(60)), (5, 12, Some(LimitedBy::Threads(60))));
        assert_eq!(limits(200, Some(10_000)), (12, 17, Some(LimitedBy::OpenFiles(200))));
        assert_eq!(limits(1 << 20, Some(1)).0, 2);
        let text = ConnectionLimits::new(160, 1 << 20, Some(60)).warning().unwrap();
        assert!(text.contains("5 connections are served instead of 160"), "{text}");
    }
}
