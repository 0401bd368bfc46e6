//! The daemon: one port, one root or several shares, many clients.

use super::limits::{
    ConnectionLimits, RESERVED_OPEN_FILES, ServerLimits, USUAL_OPEN_FILES, check_open_files,
};
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{Event, EventSink};
use crate::base::event_log::{EventLog, PeerLog, STARTUP_LOG_TARGET, connection_span};
use crate::base::log_limiter::LogLimiter;
use crate::base::sync::lock;
use crate::base::threads::try_spawn;
use crate::model::access::Grant;
use crate::model::metadata::Permits;
use crate::model::options::{
    Access, CertificateFiles, Fingerprint, ServeOptions, default_state_dir,
};
use crate::routes::access::AccessControl;
use crate::routes::admission::{Acceptor, GreetingDeadline, PendingConn, Preamble};
use crate::routes::session_manager::{ControlConn, Policy, SessionManager};
use crate::routes::slots::Slots;
use crate::stats::server_status::ServerStatus;
use crate::transport::buffer_pool::BufferPool;
use crate::transport::channel_binding::channel_binding;
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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// A daemon bound to its port. [`run`](Self::run) serves.
pub struct Server {
    acceptor: Arc<Acceptor>,
    address: SocketAddr,
    certificate: Arc<tls::ServerCertificate>,
    /// Files of the certificate, if it is the administrator's.
    certificate_files: Option<CertificateFiles>,
    config: Arc<ServerConfig>,
    limits: ConnectionLimits,
    slots: Arc<Slots>,
    sessions: SessionManager,
    /// Port that accepts QUIC connections, and the streams opened on them.
    quic: Option<Mutex<(QuicPort, IncomingStreams)>>,
    /// Reason why the UDP port is unavailable.
    udp_error: Option<String>,
    log_limiter: Arc<LogLimiter>,
    /// Turns of the loop that accepts connections.
    accept_iterations: AtomicU64,
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
        let listener = listen(options.listen)?;
        Self::bind_to(listener, options)
    }

    /// As [`bind`](Self::bind), with a port that listens already; `options.listen` does not count.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_to(listener: TcpListener, options: ServeOptions) -> Result<Self, Error> {
        let access = AccessControl::open(&options.access)?;
        let identity = load_identity(&options)?;
        let certificate = Arc::new(tls::ServerCertificate::new(&identity)?);
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
                closed_dirs: true,
            },
            unencrypted_allowed: options.allow_unencrypted,
            timeout: options.timeout,
            link_rate: options.link_rate,
            buffer_pool: BufferPool::new(options.max_memory),
        };
        let config = tls::server_config(Arc::clone(&certificate))?;
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
            certificate,
            certificate_files: options.certificate,
            config,
            limits,
            slots: Slots::new(limits.connections),
            sessions: SessionManager::new(access, policy, probes),
            quic: quic.map(Mutex::new),
            udp_error,
            log_limiter: Arc::new(LogLimiter::new()),
            accept_iterations: AtomicU64::new(0),
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
        let usage = self.sessions.policy.buffer_pool.usage();
        ServerStatus {
            pending: self.acceptor.pending_count() as u64,
            staged: usage.used,
            staging_limit: usage.limit,
            staging_wait: usage.waited,
            ..self.sessions.status()
        }
    }

    /// Replaces the rules for clients; those in force stay if the new ones are refused.
    ///
    /// Sessions whose token is no longer accepted are ended. Others keep their directory.
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

    /// Replaces the grants (tokens and keys with permissions), and nothing else.
    ///
    /// Sessions whose grant was removed or has other permissions now are ended.
    pub fn set_grants(&self, grants: &[Grant]) {
        self.sessions.access.set_grants(grants);
        self.sessions.end_refused();
    }

    /// Turns of the loop that accepts connections, several a second while it works.
    #[must_use]
    pub fn accept_iterations(&self) -> u64 {
        self.accept_iterations.load(Ordering::Relaxed)
    }

    /// Fingerprint of the certificate, for clients to pin.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.certificate.fingerprint()
    }

    /// Reads the files of the certificate again, for connections from then on.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] for files that cannot be used; the certificate in use stays.
    pub fn reload_certificate(&self) -> Result<(), Error> {
        let Some(files) = &self.certificate_files else { return Ok(()) };
        let earlier = self.fingerprint();
        self.certificate.replace(&Identity::load_files(files)?)?;
        let fingerprint = self.fingerprint();
        if fingerprint != earlier {
            info!(%fingerprint, "certificate read again");
        }
        Ok(())
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
            self.accept_iterations.fetch_add(1, Ordering::Relaxed);
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
            events.event(Event::ClientDone { peer, request: None, result: Err(error) });
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
        let binding = channel_binding(tls.as_ref(), &socket);
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
            binding,
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
        let (request, result) = self.sessions.serve(control, false, events);
        events.event(Event::ClientDone { peer: peer.to_owned(), request, result });
        Ok(())
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).map_err(|e| {
        let hint = match e.kind() {
            io::ErrorKind::AddrInUse => " (choose another port with --listen)",
            io::ErrorKind::PermissionDenied => " (ports below 1024 need root)",
            _ => "",
        };
        let text = crate::base::error::os_message(&e);
        Error::new(ErrorKind::Network, format!("cannot listen on {address}: {text}{hint}"))
    })
}

/// Loads the certificate: of the administrator's files, else the one kept in the state directory.
fn load_identity(options: &ServeOptions) -> Result<Identity, Error> {
    match (&options.certificate, &options.state_dir) {
        (Some(files), _) => Identity::load_files(files),
        (None, Some(dir)) => Identity::load_or_generate(dir),
        (None, None) => Identity::load_or_generate(&default_state_dir()?),
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
