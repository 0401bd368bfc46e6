//! Connection to a daemon: transport, fingerprint check, token.

use super::busy_retry::BusyRetry;
use super::connector::Connector;
use super::dial::{CONNECT_TIMEOUT, Dialer, PendingDials, QuicDialer};
use super::{Handshaken, Peer, Request, run};
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind, lowercase_first, reachability_hint};
use crate::base::event::{Event, EventSink, Route, Summary};
use crate::model::options::{DaemonOptions, Fingerprint, Transport, default_state_dir};
use crate::model::path_cache::LossRecord;
use crate::model::transfer_options::TransferOptions;
use crate::transport::buffer_pool::BufferPool;
use crate::transport::channel_binding::channel_binding;
use crate::transport::control::{ControlReader, RERUN_HINT, close_when_acked, split};
use crate::transport::known_hosts::KnownHosts;
use crate::transport::quic::QuicPort;
use crate::transport::socket::{Socket, configure, tcp_rtt};
use crate::transport::tls;
use bankfull_proto::wire::control::Welcome;
use rustls::Connection;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Address of a daemon and parameters of its connections.
#[derive(Clone)]
struct DaemonTarget {
    host: String,
    port: u16,
    /// Name in messages.
    name: String,
    timeout: Duration,
    /// Memory for received data that waits for the disk.
    buffer_pool: Arc<BufferPool>,
}

/// Connection to a daemon that has presented its certificate. Includes the data streams started
/// with it.
struct DaemonConn {
    socket: Socket,
    /// TLS state, if the socket does not encrypt.
    tls: Option<Connection>,
    fingerprint: Fingerprint,
    rtt: Option<Duration>,
    dialer: Dialer,
    pending: PendingDials,
    port: Option<Arc<QuicPort>>,
    /// Error of QUIC, if it was tried first and failed.
    quic_error: Option<Error>,
}

impl DaemonConn {
    /// Returns the warning that the preferred transport is not used, if so.
    fn fallback_warning(&self, transport: Transport, prefers_quic: bool) -> Option<String> {
        if let Some(why) = &self.quic_error {
            return Some(format!("the data goes over TCP: {why}"));
        }
        let why = match prefers_quic {
            true => "an earlier copy over TCP had random losses on this path",
            false => "no TCP connection could be made",
        };
        let is_fallback = transport == Transport::Auto && self.tls.is_none();
        is_fallback.then(|| format!("the data goes over QUIC: {why}"))
    }
}

/// Runs a transfer with the daemon at `host:port`.
pub(crate) fn transfer(
    host: &str,
    port: u16,
    request: Request<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let name =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let timeout = request.options.timeout;
    let buffer_pool = Arc::clone(&request.context.buffer_pool);
    let target =
        DaemonTarget { host: host.to_owned(), port, name: name.clone(), timeout, buffer_pool };
    let transport = match request.options.daemon.transport {
        // Gather rounds need credit, which QUIC does not use.
        Transport::Auto if request.context.barrier_party.is_some() => Transport::Tcp,
        transport => transport,
    };
    let admitted = admit_with_retry(&target, transport, &request, events, cancel)?;
    let Admitted { options, peer, connector, welcome, rtt, request_sent, port, is_fallback } =
        admitted;
    let mut earlier = request.earlier;
    if is_fallback {
        earlier.loss = earlier.loss.map(LossRecord::with_quic_failure);
    }
    let request = Request { options: &options, earlier, ..request };
    let advice = port.map(|port| port.advice());
    let handshaken = Handshaken { peer, welcome, rtt, request_sent };
    let result = run(handshaken, connector, request, events, cancel, started);
    if let Some(message) = advice.and_then(|mut advice| advice.next_advice()) {
        events.event(Event::Warning { message });
    }
    result
}

/// A daemon that has admitted this client.
struct Admitted {
    /// The options of the transfer, with the transport in use.
    options: TransferOptions,
    peer: Peer,
    connector: Connector,
    welcome: Welcome,
    rtt: Option<Duration>,
    /// True if the request was sent with the handshake.
    request_sent: bool,
    port: Option<Arc<QuicPort>>,
    /// True if QUIC was tried first and failed.
    is_fallback: bool,
}

/// Connects until the daemon admits this client, or the timeout has passed.
fn admit_with_retry(
    target: &DaemonTarget,
    transport: Transport,
    request: &Request<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
) -> Result<Admitted, Error> {
    let mut retry = BusyRetry::new(target.timeout, is_known(target, &request.options.daemon));
    loop {
        let admitted = admit(target, transport, request, retry.is_first(), events, cancel);
        let Some(error) = admitted.as_ref().err().filter(|error| retry.is_allowed(error)) else {
            return admitted;
        };
        if retry.is_first() {
            let seconds = target.timeout.as_secs_f64();
            let message = format!("{error} (trying again for up to {seconds} s)");
            events.event(Event::Warning { message });
        }
        let pause = retry.next_pause();
        cancel.run_cancellable(move || {
            std::thread::sleep(pause);
            Ok(())
        })?;
    }
}

/// Connects once, checks the fingerprint, and exchanges the handshake.
///
/// The data streams start to connect at the same time, unless the daemon was busy before.
fn admit(
    target: &DaemonTarget,
    transport: Transport,
    request: &Request<'_>,
    is_first: bool,
    events: &dyn EventSink,
    cancel: &Cancel,
) -> Result<Admitted, Error> {
    let encryption = request.options.encryption;
    let count = request.streams();
    let streams = move |rtt| if is_first { count(rtt) } else { 0 };
    let prefers_quic = request.earlier.loss.is_some_and(LossRecord::prefers_quic);
    let owned = target.clone();
    let conn = cancel.run_cancellable(move || {
        let all = addresses(&owned)?;
        match transport {
            Transport::Tcp => connect_tcp(&owned, &all, owned.timeout, encryption, streams),
            Transport::Quic => connect_quic(&owned, &all, owned.timeout, &streams),
            Transport::Auto => connect_auto(&owned, &all, encryption, prefers_quic, streams),
        }
    })?;
    let warn = |message| events.event(Event::Warning { message });
    conn.fallback_warning(transport, prefers_quic).into_iter().for_each(warn);
    let DaemonConn { socket, tls, fingerprint, rtt, dialer, pending, port, quic_error } = conn;
    let mut options = request.options.clone();
    options.daemon.transport = if tls.is_some() { Transport::Tcp } else { Transport::Quic };
    let name = &target.name;
    if let Some(file) = verify_fingerprint(name, fingerprint, &options.daemon)? {
        let file = file.display();
        warn(format!("trusting {name} with fingerprint {fingerprint} from now on ({file})"));
    }
    let is_encrypted = encryption || socket.is_encrypted();
    let peer = control_peer(socket, tls, target)?;
    let actual = Request { options: &options, ..request.clone() };
    let (token, key) = (options.daemon.token.clone(), options.daemon.key.clone());
    let open = actual.open(actual.streams()(rtt));
    let (peer, (welcome, request_sent)) =
        peer.run_greeting(cancel, move |peer| peer.handshake_and_open(token, key.as_ref(), &open))?;
    let connector = Connector::new(dialer, pending, is_encrypted.then_some(fingerprint), &welcome);
    let is_fallback = quic_error.is_some();
    Ok(Admitted { options, peer, connector, welcome, rtt, request_sent, port, is_fallback })
}

/// Returns the peer at the other end of a control connection.
fn control_peer(
    socket: Socket,
    tls: Option<Connection>,
    target: &DaemonTarget,
) -> Result<Peer, Error> {
    let name = &target.name;
    let lost = |e: io::Error| Error::network(format!("the connection to {name} failed"), &e);
    let route = if tls.is_some() { Route::Daemon } else { Route::Quic };
    let wake = socket.try_clone().map_err(lost)?;
    let close = socket.try_clone().map_err(lost)?;
    let binding = channel_binding(tls.as_ref(), &socket);
    let (input, output) = split(tls, socket).map_err(lost)?;
    Ok(Peer {
        reader: ControlReader::new(input, name.to_owned(), RERUN_HINT),
        output,
        wake: Box::new(move || wake.stop_reading()),
        close: Arc::new(move |is_flushed| close_when_acked(&close, is_flushed)),
        name: name.to_owned(),
        route,
        max_noise_bytes: 0,
        greeting_time: target.timeout,
        binding,
    })
}

/// Connects over TCP and falls back to QUIC if that is unreachable; in reverse order if
/// `prefers_quic`.
fn connect_auto(
    target: &DaemonTarget,
    all: &[SocketAddr],
    encryption: bool,
    prefers_quic: bool,
    streams: impl Fn(Option<Duration>) -> u32,
) -> Result<DaemonConn, Error> {
    let limit = CONNECT_TIMEOUT.min(target.timeout);
    let is_unreachable =
        |error: &Error| matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout);
    if prefers_quic {
        // TCP has worked on this path before, so any failure of QUIC falls back to it.
        let is_quic_failure = |error: &Error| {
            is_unreachable(error) || matches!(error.kind(), ErrorKind::Local | ErrorKind::Protocol)
        };
        return match connect_quic(target, all, limit, &streams) {
            Err(error) if is_quic_failure(&error) => {
                connect_tcp(target, all, target.timeout, encryption, streams)
                    .map(|conn| DaemonConn { quic_error: Some(error), ..conn })
            }
            conn => conn,
        };
    }
    match connect_tcp(target, all, limit, encryption, &streams) {
        // The reason for the failure of TCP is the one that users can act on.
        Err(error) if is_unreachable(&error) => {
            connect_quic(target, all, limit, &streams).map_err(|quic| both_failed(&error, &quic))
        }
        conn => conn,
    }
}

/// Error when both transports fail; a hint common to both appears once.
fn both_failed(tcp: &Error, quic: &Error) -> Error {
    let text = match quic.is_connection_loss() {
        true => format!("{tcp}; QUIC also failed: no response"),
        false => format!("{tcp}; QUIC also failed: {quic}"),
    };
    Error::new(tcp.kind(), text)
}

/// Connects over TCP within `limit`.
fn connect_tcp(
    target: &DaemonTarget,
    all: &[SocketAddr],
    limit: Duration,
    encryption: bool,
    streams: impl Fn(Option<Duration>) -> u32,
) -> Result<DaemonConn, Error> {
    let tls = tls::client_config()?;
    let (mut socket, address) = connect_first(target, all, limit)?;
    // The data streams connect while the two sides negotiate.
    let dialer = Dialer {
        addresses: vec![address],
        tls: encryption.then(|| Arc::clone(&tls)),
        quic: None,
        timeout: target.timeout,
        peer: target.name.clone(),
    };
    let rtt = tcp_rtt(&socket);
    let pending = dialer.start_dialing(streams(rtt));
    let (connection, fingerprint) = tls::connect(&tls, &mut socket, &target.name)?;
    let (socket, tls) = (Socket::Tcp(socket), Some(connection));
    Ok(DaemonConn { socket, tls, fingerprint, rtt, dialer, pending, port: None, quic_error: None })
}

/// Connects over QUIC. Data uses a second connection, so that data waiting for the disk cannot
/// block control messages.
fn connect_quic(
    target: &DaemonTarget,
    all: &[SocketAddr],
    limit: Duration,
    streams: &impl Fn(Option<Duration>) -> u32,
) -> Result<DaemonConn, Error> {
    let mut last = Error::new(
        ErrorKind::Network,
        format!("{} has no IP address: check the name", target.host),
    );
    // As with TCP, the next address if one is unreachable.
    for address in all {
        match connect_quic_to(target, *address, limit / all.len() as u32, streams) {
            Err(e) if matches!(e.kind(), ErrorKind::Network | ErrorKind::Timeout) => last = e,
            conn => return conn,
        }
    }
    Err(last)
}

fn connect_quic_to(
    target: &DaemonTarget,
    address: SocketAddr,
    limit: Duration,
    streams: &impl Fn(Option<Duration>) -> u32,
) -> Result<DaemonConn, Error> {
    let tls = tls::client_config()?;
    let port = QuicPort::client(address, Arc::clone(&target.buffer_pool)).map_err(|e| {
        e.downcast().unwrap_or_else(|e| Error::network("cannot open a UDP port", &e))
    })?;
    let lost =
        |e: io::Error| Error::network(format!("the connection to {} failed", target.name), &e);
    let quic = QuicDialer::new(Arc::clone(&port), Arc::clone(&tls));
    let dialer = Dialer {
        addresses: vec![address],
        tls: None,
        quic: Some(Arc::new(quic)),
        timeout: target.timeout,
        peer: target.name.clone(),
    };
    let (connection, fingerprint) =
        port.connect(address, &tls, (limit, target.timeout), &target.name)?;
    let stream = connection.open(target.timeout).map_err(lost)?;
    stream.set_read_timeout(Some(target.timeout));
    let rtt = Some(stream.rtt());
    let pending = dialer.start_dialing(streams(rtt));
    let socket = Socket::Quic(stream);
    let port = Some(port);
    Ok(DaemonConn { socket, tls: None, fingerprint, rtt, dialer, pending, port, quic_error: None })
}

fn addresses(target: &DaemonTarget) -> Result<Vec<SocketAddr>, Error> {
    let DaemonTarget { host, port, .. } = target;
    let all = (host.as_str(), *port).to_socket_addrs().map_err(|e| unresolved(host, &e))?;
    Ok(all.collect())
}

/// Error for a host name without an address.
fn unresolved(host: &str, error: &io::Error) -> Error {
    let text = error.to_string();
    // The prefix of the standard library repeats this message.
    let why = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    let text = format!(
        "cannot find the address of {host}: {} (check the name, or give an IP address)",
        lowercase_first(why)
    );
    Error::new(ErrorKind::Network, text)
}

fn connect_first(
    target: &DaemonTarget,
    all: &[SocketAddr],
    limit: Duration,
) -> Result<(TcpStream, SocketAddr), Error> {
    let DaemonTarget { name, timeout, .. } = target;
    let timeout = *timeout;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for &address in all {
        match TcpStream::connect_timeout(&address, limit / all.len() as u32) {
            Ok(socket) => {
                configure(&socket, timeout)
                    .and_then(|()| socket.set_read_timeout(Some(timeout)))
                    .map_err(|e| Error::network(format!("cannot connect to {name}"), &e))?;
                return Ok((socket, address));
            }
            Err(e) => last = e,
        }
    }
    let error = Error::network(format!("cannot connect to {name}"), &last);
    Err(Error::new(error.kind(), format!("{error}{}", reachability_hint(&last))))
}

/// Checks the daemon's fingerprint. Returns the file that now remembers it, if it was unknown.
fn verify_fingerprint(
    name: &str,
    fingerprint: Fingerprint,
    options: &DaemonOptions,
) -> Result<Option<PathBuf>, Error> {
    if let Some(expected) = options.fingerprint {
        if expected == fingerprint {
            // `--accept-new` also remembers a fingerprint that was verified by option.
            let remember = |dir| KnownHosts::new(dir).check(name, fingerprint, true);
            return match options.accept_new {
                true => state_dir(options).and_then(remember),
                false => Ok(None),
            };
        }
        return Err(Error::new(
            ErrorKind::Refused,
            format!(
                "{name} presents the fingerprint {fingerprint}, not the expected {expected}: check \
                 the address, and the fingerprint that the server prints when it starts"
            ),
        ));
    }
    KnownHosts::new(state_dir(options)?).check(name, fingerprint, options.accept_new)
}

/// True if the fingerprint of the daemon is known.
fn is_known(target: &DaemonTarget, options: &DaemonOptions) -> bool {
    let find = |dir| KnownHosts::new(dir).find(&target.name);
    options.fingerprint.is_some() || state_dir(options).and_then(find).is_ok_and(|f| f.is_some())
}

fn state_dir(options: &DaemonOptions) -> Result<PathBuf, Error> {
    options.state_dir.clone().map_or_else(default_state_dir, Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_proto::wire::control::{Cause, Failure};

    #[test]
    fn both_transports_failed_hint_appears_once() {
        let error = |text: &str| Error::new(ErrorKind::Network, text);
        let tcp = error("cannot connect to h:1: refused (try it)");
        let message = |quic: &Error| both_failed(&tcp, quic).to_string();
        assert_eq!(
            message(&error("cannot connect to h:1 over QUIC: refused (try it)")),
            "cannot connect to h:1: refused (try it); QUIC also failed: no response"
        );
        assert_eq!(
            message(&Error::from_peer(&Failure::new(Cause::Busy, "h:1 is busy"))),
            "cannot connect to h:1: refused (try it); QUIC also failed: the peer reported: h:1 is busy"
        );
    }

    #[test]
    fn unresolved_name_has_one_reason_and_a_hint() {
        let library = "failed to lookup address information: Name or service not known";
        assert_eq!(
            unresolved("hots", &io::Error::other(library)).to_string(),
            "cannot find the address of hots: name or service not known (check the name, or give \
             an IP address)"
        );
    }
}
