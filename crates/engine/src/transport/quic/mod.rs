//! QUIC: streams over a UDP socket, for paths on which TCP performs badly.
//!
//! Connections and streams are used like sockets (`connection.rs`). One thread per UDP socket moves
//! packets (`driver.rs`); threads that use a stream wake it (`waker.rs`). `quinn-proto` implements
//! the protocol, with the congestion control of `bankfull-control` (`congestion.rs`); `quinn-udp`
//! sends datagrams in batches. Independent of the data transferred.

mod congestion;
pub(crate) mod connection;
mod driver;
#[cfg(test)]
pub(crate) mod tests;
mod waker;
mod windows;

use super::buffer_pool::BufferPool;
use super::identity::fingerprint_of;
use super::udp_receive_buffer::{BufferAdvice, ReceiveBufferLog, UdpReceiveBuffer};
use crate::base::error::{Error, ErrorKind, NO_LISTENER_HINT, reachability_hint};
use crate::model::options::Fingerprint;
use aws_lc_rs::hmac;
use bankfull_control::Bytes;
use bankfull_proto::limits::MAX_STREAMS;
use bankfull_proto::wire::control::{Cause, Failure};
use congestion::{PathControllerFactory, SendGate};
use connection::QuicStream;
use connection::{ConnectionInner, ConnectionParams};
use driver::{Driver, Listener};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, Endpoint, EndpointConfig, HashedConnectionIdGenerator,
    IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt,
};
use quinn_udp::{UdpSockRef, UdpSocketState};

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use waker::Waker;

/// Server name in the handshake; certificates are verified by their fingerprint.
const SERVER_NAME: &str = "bankfull";

/// Application protocol (ALPN, RFC 7301).
const ALPN: &[u8] = b"bankfull";

/// Headers of IP and UDP (RFC 8200, RFC 791, RFC 768).
const HEADER_BYTES_V6: u32 = 48;
const HEADER_BYTES_V4: u32 = 28;

/// UDP payload that every QUIC path carries (RFC 9000 §14).
const MIN_DATAGRAM_BYTES: u16 = 1200;

/// Receive window of a stream: not a limit, since the connection's window is.
const STREAM_RECEIVE_WINDOW: u32 = 1 << 30;

/// Minimum number of streams that wait to be accepted. (chosen: of four sessions)
const MIN_STREAM_QUEUE: usize = 4 * MAX_STREAMS as usize;

/// Send buffer of a socket, as far as the kernel grants it. (chosen: 1 Gbit/s for 30 ms)
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// Minimum receive buffer of a socket under a memory limit. (chosen: the Linux default, rounded up)
const MIN_SOCKET_BUFFER: Bytes = Bytes::kib(256);

/// Maximum number of datagrams without an ACK, requested from the peer. (chosen: Chromium's
/// kMaxRetransmittablePacketsBeforeAck, 10; ACKs of every second one of 300 Mbit/s take 8 Mbit/s of
/// the reverse path)
const ACK_DATAGRAMS: u32 = 10;

/// Age, in RTTs, at which a datagram older than an acknowledged one counts as lost. (RACK's
/// reordering window, a quarter of the RTT, RFC 8985 §6.2; with the packet threshold of three, RFC
/// 9002 §6.1.1, jitter of 3 ms that reorders 100 Mbit/s makes most datagrams count as lost)
const LOSS_TIME_THRESHOLD: f32 = 1.25;

/// Idle time before a PING. (chosen: a dead peer is detected soon, since its host answers that the
/// port is closed)
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// UDP socket and the thread that serves it.
pub(crate) struct QuicPort {
    endpoint: Arc<Mutex<Endpoint>>,
    new_connections: Arc<Mutex<Vec<Arc<ConnectionInner>>>>,
    waker: Arc<Waker>,
    receive_buffer_log: ReceiveBufferLog,
    /// Initial size of each window of a connection.
    initial_window: Bytes,
    thread: Option<JoinHandle<()>>,
}

/// Configuration of the accepting side.
pub(crate) struct QuicServer {
    /// TLS configuration.
    pub(crate) tls: Arc<rustls::ServerConfig>,
    /// Idle timeout of a connection.
    pub(crate) timeout: Duration,
    /// Limit of authenticated connections.
    pub(crate) connections_max: usize,
    /// Limit of connections that have not authenticated.
    pub(crate) strangers_max: usize,
    /// Key of stateless resets, by which a restarted daemon ends connections of its previous run.
    pub(crate) reset_key: [u8; 32],
    /// Buffer pool, which limits the memory for unread data.
    pub(crate) buffer_pool: Arc<BufferPool>,
    /// Second socket on the same port: ICMP errors are delivered to either, by a hash of the
    /// addresses.
    pub(crate) sibling: Option<UdpSocket>,
}

/// Streams opened by clients, with the client's address.
pub(crate) type IncomingStreams = Receiver<(QuicStream, SocketAddr)>;

/// Connection opened by this side; closed with its last stream and handle.
#[derive(Clone)]
pub(crate) struct QuicConnection {
    conn: Arc<ConnectionInner>,
    close_guard: Arc<CloseOnDrop>,
}

/// Closes a connection when its last user is gone.
struct CloseOnDrop {
    conn: Arc<ConnectionInner>,
    /// Keeps the thread that sends the close.
    _port: Arc<QuicPort>,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.conn.close();
    }
}

/// Returns the configuration of an endpoint that ends connections of its earlier run.
///
/// Its stateless resets and connection IDs follow from the key. (RFC 9000, 10.3.2)
fn resetting_endpoint(key: &[u8; 32]) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, key)));
    let mut id_key = [0; 8];
    id_key.copy_from_slice(&blake3::derive_key("bankfull 2026 QUIC connection IDs", key)[..8]);
    let id_key = u64::from_ne_bytes(id_key);
    config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(id_key)));
    config
}

impl QuicPort {
    /// Returns a port for outgoing connections to `peer`, bound to any free port number.
    pub(crate) fn client(peer: SocketAddr, buffer_pool: Arc<BufferPool>) -> io::Result<Arc<Self>> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        let log = (None, ReceiveBufferLog::default());
        Self::start(socket, buffer_pool, None, log, None).map(Arc::new)
    }

    /// Accepts connections on a socket.
    pub(crate) fn server(
        socket: UdpSocket,
        server: QuicServer,
    ) -> io::Result<(Self, IncomingStreams)> {
        let (sender, streams) = mpsc::sync_channel(server.strangers_max.max(MIN_STREAM_QUEUE));
        let mut tls = (*server.tls).clone();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let tls = Arc::new(QuicServerConfig::try_from(tls).map_err(io::Error::other)?);
        let receive_buffer_log = ReceiveBufferLog::default();
        let listener_receive_buffer_log = receive_buffer_log.clone();
        let send_window = initial_window(&server.buffer_pool);
        let config = move |peer| {
            let mut config = ServerConfig::with_crypto(tls.clone());
            // The address of the handshake decides on shares: a forged one never replaces it.
            config.migration(false);
            let windows = (windows::UNAUTHENTICATED_WINDOW, send_window);
            let (gate, timeout) = (SendGate::default(), server.timeout);
            let receive_buffer_log = listener_receive_buffer_log.clone();
            let params =
                ConnectionParams { gate, timeout, is_local: false, windows, receive_buffer_log };
            config.transport_config(Arc::new(transport_config(peer, &params)));
            (Arc::new(config), params)
        };
        let sibling = server.sibling;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (default_config, _) = config(any);
        let listener = Listener {
            config: Box::new(config),
            connections_max: server.connections_max,
            strangers_max: server.strangers_max,
            streams: sender,
        };
        let listener = Some((listener, default_config));
        let endpoint = Some(resetting_endpoint(&server.reset_key));
        let log = (sibling, receive_buffer_log);
        Ok((Self::start(socket, server.buffer_pool, listener, log, endpoint)?, streams))
    }

    fn start(
        socket: UdpSocket,
        buffer_pool: Arc<BufferPool>,
        listener: Option<(Listener, Arc<ServerConfig>)>,
        (sibling, receive_buffer_log): (Option<UdpSocket>, ReceiveBufferLog),
        endpoint: Option<EndpointConfig>,
    ) -> io::Result<Self> {
        let udp = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // The kernel may grant less.
        let buffers = socket2::SockRef::from(&socket);
        let _ = buffers.set_send_buffer_size(SEND_BUFFER_BYTES);
        // Without ICMP errors a dead peer is detected only by the idle timeout.
        for socket in [Some(&socket), sibling.as_ref()].into_iter().flatten() {
            let _ = bankfull_sys::enable_error_queue(socket, socket.local_addr()?);
        }
        let (listener, default_config) = listener.unzip();
        let mut config = endpoint.unwrap_or_default();
        config.max_udp_payload_size(u16::MAX - 8).map_err(io::Error::other)?;
        let endpoint = Endpoint::new(Arc::new(config), default_config, !udp.may_fragment(), None);
        let endpoint = Arc::new(Mutex::new(endpoint));
        let (waker, wake_reader) = Waker::new()?;
        let (waker, new_connections) = (Arc::new(waker), Arc::default());
        let initial_window = initial_window(&buffer_pool);
        let limit = buffer_pool.socket_buffer_limit();
        let min = limit.map_or(windows::MIN_WINDOW, |limit| {
            limit.clamp(MIN_SOCKET_BUFFER, windows::MIN_WINDOW)
        });
        let receive_buffer = UdpReceiveBuffer::new(&socket, receive_buffer_log.clone(), min, limit);
        let driver = Driver {
            endpoint: Arc::clone(&endpoint),
            socket,
            udp,
            waker: Arc::clone(&waker),
            wake_reader,
            new_connections: Arc::clone(&new_connections),
            listener,
            receive_buffer,
            buffer_pool,
            sibling,
        };
        let thread = thread::Builder::new().name("quic".to_owned()).spawn(|| driver.run());
        let thread = thread.map_err(|e| io::Error::other(Error::thread_start(&e)))?;
        Ok(Self {
            endpoint,
            new_connections,
            waker,
            receive_buffer_log,
            initial_window,
            thread: Some(thread),
        })
    }

    /// Returns advice about the receive buffer, if datagrams are dropped from now on.
    pub(crate) fn advice(&self) -> BufferAdvice {
        self.receive_buffer_log.advice()
    }

    /// Connects, and returns the connection and the fingerprint for the caller to verify.
    ///
    /// The handshake takes at most `limit`; the idle timeout is `timeout`.
    pub(crate) fn connect(
        self: &Arc<Self>,
        address: SocketAddr,
        tls: &Arc<rustls::ClientConfig>,
        (limit, timeout): (Duration, Duration),
        peer: &str,
    ) -> Result<(QuicConnection, Fingerprint), Error> {
        let setup_error =
            |e: String| Error::new(ErrorKind::Local, format!("cannot set up QUIC: {e}"));
        let mut tls = (**tls).clone();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let tls = QuicClientConfig::try_from(tls).map_err(|e| setup_error(e.to_string()))?;
        let mut config = ClientConfig::new(Arc::new(tls));
        let windows = (self.initial_window, self.initial_window);
        let (gate, receive_buffer_log) = (SendGate::default(), self.receive_buffer_log.clone());
        let params =
            ConnectionParams { gate, timeout, is_local: true, windows, receive_buffer_log };
        config.transport_config(Arc::new(transport_config(address, &params)));
        let (endpoint, new_connections, waker) =
            (&self.endpoint, &self.new_connections, &self.waker);
        let conn = driver::connect(endpoint, new_connections, waker, (config, params), address)
            .map_err(|e| setup_error(e.to_string()))?;
        let close_guard =
            Arc::new(CloseOnDrop { conn: Arc::clone(&conn), _port: Arc::clone(self) });
        conn.wait_connected(limit).map_err(|e| connect_error(peer, &e))?;
        let presented = conn.certificate().as_ref().map(fingerprint_of);
        let presented = presented.ok_or_else(|| {
            Error::new(ErrorKind::Protocol, format!("{peer} presented no certificate"))
        })?;
        Ok((QuicConnection { conn, close_guard }, presented))
    }
}

impl Drop for QuicPort {
    fn drop(&mut self) {
        self.waker.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl QuicConnection {
    /// Opens a stream.
    pub(crate) fn open(&self, timeout: Duration) -> io::Result<QuicStream> {
        let id = self.conn.open(timeout)?;
        let close_guard: Arc<dyn Send + Sync> = Arc::clone(&self.close_guard) as _;
        Ok(QuicStream::new(&self.conn, &mut self.conn.state(), id, Some(close_guard)))
    }
}

/// Returns the initial size of each window; a session's two connections share a memory limit.
fn initial_window(buffer_pool: &BufferPool) -> Bytes {
    buffer_pool
        .socket_buffer_limit()
        .map_or(windows::MIN_WINDOW, |limit| windows::min_window(Bytes(limit.0 / 2)))
}

/// Returns the transport parameters of connections with `peer`.
fn transport_config(peer: SocketAddr, params: &ConnectionParams) -> TransportConfig {
    let timeout = params.timeout;
    let (receive, send) = params.windows;
    let mut config = TransportConfig::default();
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(max_datagram_bytes(peer));
    let mut acks = AckFrequencyConfig::default();
    // Reordering needs no immediate ACK, as losses are detected by time.
    acks.ack_eliciting_threshold(VarInt::from_u32(ACK_DATAGRAMS)).reordering_threshold(0u8.into());
    config
        .max_idle_timeout(IdleTimeout::try_from(timeout).ok())
        .keep_alive_interval(Some(KEEP_ALIVE_INTERVAL.min(timeout / 4)))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_concurrent_bidi_streams(VarInt::from_u32(MAX_STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_RECEIVE_WINDOW))
        .receive_window(VarInt::from_u64(receive.0).unwrap_or(VarInt::MAX))
        .send_window(send.0)
        .mtu_discovery_config(Some(mtu))
        .ack_frequency_config(Some(acks))
        .packet_threshold(u32::MAX)
        .time_threshold(LOSS_TIME_THRESHOLD)
        .congestion_controller_factory(Arc::new(PathControllerFactory(params.gate.clone())))
        .datagram_receive_buffer_size(None);
    config
}

/// Returns the UDP payload limit to `peer`, by the MTU of the route.
fn max_datagram_bytes(peer: SocketAddr) -> u16 {
    let headers =
        if peer.ip().to_canonical().is_ipv4() { HEADER_BYTES_V4 } else { HEADER_BYTES_V6 };
    let mtu = bankfull_sys::path_mtu(peer).unwrap_or(u32::from(MIN_DATAGRAM_BYTES) + headers);
    u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX - 8).max(MIN_DATAGRAM_BYTES)
}

fn connect_error(peer: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::new(
            ErrorKind::Timeout,
            format!(
                "{peer} does not answer over QUIC: is `bankfull serve` running there, and does the \
                 network pass UDP? (--transport tcp avoids it)"
            ),
        ),
        io::ErrorKind::ConnectionRefused => {
            let error = Error::network(format!("cannot connect to {peer} over QUIC"), error);
            Error::new(error.kind(), format!("{error}{NO_LISTENER_HINT}"))
        }
        io::ErrorKind::ResourceBusy => {
            let text = format!(
                "{peer} has no room for more connections: try again later, or start it with more \
                 --max-connections"
            );
            Error::from_peer(&Failure::new(Cause::Busy, text))
        }
        // A crowded server closes connections that have not authenticated.
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
            Error::network(format!("cannot connect to {peer} over QUIC"), error).dropped()
        }
        _ => {
            let failed = Error::network(format!("cannot connect to {peer} over QUIC"), error);
            Error::new(failed.kind(), format!("{failed}{}", reachability_hint(error)))
        }
    }
}
