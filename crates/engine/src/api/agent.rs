//! The agent: the control protocol on standard input and output, data on a separate port.

use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::event::NoEvents;
use crate::base::threads::try_spawn_detached;
use crate::model::metadata::Permits;
use crate::model::options::DEFAULT_TIMEOUT;
use crate::routes::access::AccessControl;
use crate::routes::admission::{Acceptor, PendingConn, Preamble};
use crate::routes::session_manager::{ControlConn, Policy, SessionManager};
use crate::routes::slots::Slots;
use crate::transport::buffer_pool::BufferPool;
use crate::transport::control::ControlReader;
use crate::transport::identity::Identity;
use crate::transport::pipe::{PipeReader, PipeWriter};
use crate::transport::probe::ProbePort;
use crate::transport::tls;
use bankfull_control::Bytes;
use bankfull_proto::limits::MAX_STREAMS;
use bankfull_proto::wire::attach::DATA_MAGIC;
use rustls::ServerConfig;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Connections to the data port that have not proved to belong to the session: all of its streams,
/// and some that open or close.
const MAX_STRANGERS: usize = MAX_STREAMS as usize + 16;

/// Runs the agent of an ssh session until the client is done. Uses standard input and output.
/// `bankfull agent` is this function.
///
/// Returns the kind of the error that ended the session early. The client has received it on the
/// channel; printed on standard error it would appear twice.
///
/// # Errors
/// Errors before the client could be reached on the channel.
pub fn run_agent(options: AgentOptions) -> Result<Option<ErrorKind>, Error> {
    let input = duplicate(io::stdin()).map_err(|e| unusable(&e))?;
    let output = duplicate(io::stdout()).map_err(|e| unusable(&e))?;
    let identity = Identity::generate()?;
    let config = tls::server_config(Arc::new(tls::ServerCertificate::new(&identity)?))?;
    let listener = match listen(options.data_ports) {
        Ok(listener) => listener,
        Err(error) => {
            control(input, output, None)?.refuse_at_start(&error)?;
            return Ok(Some(error.kind()));
        }
    };
    let address = listener.local_addr().map_err(|e| unusable(&e))?;
    let acceptor = Acceptor::new(listener, MAX_STRANGERS).map_err(|e| unusable(&e))?;
    let _ = bankfull_sys::raise_open_file_limit();
    // ssh authenticates the client, so its datagrams may have any source address.
    let probes = ProbePort::bind(address).ok();
    let sessions = Arc::new(session_manager(options.max_memory, probes));
    let finished = Cancel::new();
    let (accepting, until) = (Arc::clone(&sessions), finished.clone());
    let accepting = move || accept(&acceptor, &accepting, &config, &until);
    try_spawn_detached(accepting)?;
    if let Some(probes) = sessions.probes.clone() {
        try_spawn_detached(move || probes.run())?;
    }
    let data_port = DataPort {
        port: address.port(),
        hosts: own_addresses(),
        fingerprint: identity.fingerprint().0,
    };
    let served = serve(&sessions, input, output, Some(data_port));
    finished.cancel();
    served
}

/// Options of an agent.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AgentOptions {
    /// Limit of memory for received data that waits for the disk; see
    /// [`ServeOptions::max_memory`](crate::ServeOptions::max_memory).
    pub max_memory: Option<Bytes>,
    /// Ports of which one receives the data streams; `None`: any free one.
    pub data_ports: Option<RangeInclusive<u16>>,
}

/// Runs an agent over two pipes or one socket until the client is done.
///
/// There is no data port: the client's data also arrives through `input`. See [`run_agent`].
///
/// # Errors
/// As for [`run_agent`].
pub fn run_agent_over(
    input: OwnedFd,
    output: OwnedFd,
    max_memory: Option<Bytes>,
) -> Result<Option<ErrorKind>, Error> {
    serve(&session_manager(max_memory, None), input, output, None)
}

/// Port for the data streams of an agent's client.
struct DataPort {
    port: u16,
    hosts: Vec<String>,
    fingerprint: [u8; 32],
}

fn session_manager(max_memory: Option<Bytes>, probes: Option<Arc<ProbePort>>) -> SessionManager {
    // A user who may log in may do anything here, unencrypted data included: ssh authenticates.
    let policy = Policy {
        permits: Permits::ALL,
        unencrypted_allowed: true,
        timeout: DEFAULT_TIMEOUT,
        link_rate: None,
        buffer_pool: BufferPool::new(max_memory),
    };
    SessionManager::new(AccessControl::of_host(), policy, probes)
}

/// Serves one client on its control connection.
fn serve(
    sessions: &SessionManager,
    input: OwnedFd,
    output: OwnedFd,
    data_port: Option<DataPort>,
) -> Result<Option<ErrorKind>, Error> {
    let mut control = control(input, output, data_port)?;
    control.reader.expect_magic(0)?;
    let (_, served) = sessions.serve(control, true, &NoEvents);
    Ok(served.err().map(|error| error.kind()))
}

/// Returns the control connection of the one client.
fn control(
    input: OwnedFd,
    output: OwnedFd,
    data_port: Option<DataPort>,
) -> Result<ControlConn, Error> {
    let watched = duplicate(&input).map_err(|e| unusable(&e))?;
    let reader = PipeReader::new(input, DEFAULT_TIMEOUT);
    let (wake, clock) = (reader.control(), reader.control());
    let output = PipeWriter::new(output, reader.control());
    Ok(ControlConn {
        reader: ControlReader::new(Box::new(reader), "the client".to_owned(), ""),
        output: Box::new(output),
        wake: Box::new(move || wake.stop()),
        close: Arc::new(|_| {}),
        // One session has all streams.
        slots: Slots::new(1 + MAX_STREAMS as usize),
        data_port: data_port.as_ref().map(|data| data.port),
        fingerprint: data_port.as_ref().map(|data| data.fingerprint),
        data_hosts: data_port.map_or_else(Vec::new, |data| data.hosts),
        binding: None,
        peer: None,
        log: None,
        min_rtt: None,
        advice: None,
        has_left: Box::new(move || bankfull_sys::is_hung_up(&watched)),
        on_authenticated: Box::new(|| {}),
        on_request: Box::new(move |timeout| clock.set_timeout(timeout)),
    })
}

fn unusable(error: &io::Error) -> Error {
    Error::local("standard input or output is unusable", error)
}

fn duplicate(stream: impl AsFd) -> io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

/// Binds a free port on every address, IPv6 and IPv4 if the host has both.
fn listen(ports: Option<RangeInclusive<u16>>) -> Result<TcpListener, Error> {
    let bind = |port| {
        let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        TcpListener::bind(any6).or_else(|_| TcpListener::bind(any4))
    };
    let Some(mut ports) = ports else {
        return bind(0).map_err(|e| Error::network("cannot open a data port", &e));
    };
    let shown = format!("{}-{}", ports.start(), ports.end());
    ports.find_map(|port| bind(port).ok()).ok_or_else(|| {
        let text = format!("none of the ports {shown} is free: choose others with --data-ports");
        Error::new(ErrorKind::Network, text)
    })
}

/// Address at which the ssh client connected: the third word of sshd's `SSH_CONNECTION`.
fn own_addresses() -> Vec<String> {
    let variable = std::env::var("SSH_CONNECTION").unwrap_or_default();
    variable.split_whitespace().nth(2).map(str::to_owned).into_iter().collect()
}

/// Attaches data streams to the session until it ends.
fn accept(
    acceptor: &Arc<Acceptor>,
    sessions: &Arc<SessionManager>,
    config: &Arc<ServerConfig>,
    finished: &Cancel,
) {
    while !finished.is_cancelled() {
        // Without a port, data can still go through ssh.
        let Ok(conn) = acceptor.admit() else { return };
        let Some(conn) = conn else { continue };
        let (sessions, config) = (Arc::clone(sessions), Arc::clone(config));
        // Strangers are not answered; the client detects a failure by itself.
        let attach = move || drop(attach(conn, &sessions, &config));
        let _ = try_spawn_detached(attach);
    }
}

fn attach(
    mut conn: PendingConn,
    sessions: &SessionManager,
    config: &Arc<ServerConfig>,
) -> Result<(), Error> {
    let Preamble::Data(connection) = conn.read_preamble(config, sessions.policy.timeout)? else {
        return Err(Error::new(ErrorKind::Protocol, "an unknown connection to the data port"));
    };
    let PendingConn { socket, deadline: _visit, .. } = conn;
    sessions
        .attach(socket, connection.map(|tls| *tls), &DATA_MAGIC)
        .map_err(|e| Error::network("a data stream failed", &e))
}
