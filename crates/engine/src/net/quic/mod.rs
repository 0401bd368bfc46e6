//! QUIC: streams over a UDP socket, for paths that TCP does not do well on. A connection and its
//! streams are used as sockets are (`link.rs`); one thread for each UDP socket moves the packets
//! (`driver.rs`), and threads that use a stream wake it (`waker.rs`).
//!
//! The protocol itself, its cryptography and its congestion control are the crate's
//! `quinn-proto`; datagrams go in batches by `quinn-udp`. Nothing here knows what is transferred.

mod congestion;
mod driver;
mod link;
mod sight;
#[cfg(test)]
mod tests;
mod waker;
mod windows;

use crate::datagram_room::{Advice, DatagramRoom, Shortage};
use crate::error::{Error, ErrorKind, NOBODY_LISTENS, way_to_reach};
use crate::net::identity::fingerprint_of;
use crate::net::staging::Staging;
use crate::options::Fingerprint;
use bankfull_control::Bytes;
use bankfull_proto::limits::MAX_STREAMS;
use congestion::{Deliveries, Gate};
use driver::{Driver, Serving};
pub(crate) use link::QuicStream;
use link::{Link, Terms};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Endpoint, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig,
    TransportConfig, VarInt,
};
use quinn_udp::{UdpSockRef, UdpSocketState};
pub(crate) use sight::{InTurn, QuicSight};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use waker::Waker;

/// Whom the client greets; a certificate is known by its fingerprint.
const NAME: &str = "bankfull";

/// What the two sides say they speak. (ALPN, RFC 7301)
const PROTOCOL: &[u8] = b"bankfull";

/// Headers of IP and UDP. (RFC 8200, RFC 791, RFC 768)
const HEADERS_V6: u32 = 48;
const HEADERS_V4: u32 = 28;

/// What every path carries. (RFC 9000, §14)
const DATAGRAM_MIN: u16 = 1200;

/// No window of a stream is a limit: the connection's is.
const STREAM_WINDOW: u32 = 1 << 30;

/// What the kernel may keep of what is sent, as far as it grants that. (ours: 1 Gbit/s for 30 ms)
const BUFFER_BYTES: usize = 4 << 20;

/// The receive buffer of a socket is no smaller, however little memory there may be. (ours: what
/// Linux gives to any socket, rounded up)
const SOCKET_LEAST: Bytes = Bytes::kib(256);

/// After so long a silence it is asked whether the other side is still there. (ours: how soon one
/// is missed that has died; its host answers that nobody has the port)
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// A UDP socket, and the thread that serves it.
pub(crate) struct QuicPort {
    endpoint: Arc<Mutex<Endpoint>>,
    begun: Arc<Mutex<Vec<Arc<Link>>>>,
    waker: Arc<Waker>,
    shortage: Shortage,
    /// What the windows of a connection have at first.
    first_windows: Bytes,
    thread: Option<JoinHandle<()>>,
}

/// What a server takes in.
pub(crate) struct QuicServer {
    /// Its TLS configuration.
    pub(crate) tls: Arc<rustls::ServerConfig>,
    /// How long a connection may be silent.
    pub(crate) timeout: Duration,
    /// So many connections at a time.
    pub(crate) connections_max: usize,
    /// What may wait in memory.
    pub(crate) staging: Arc<Staging>,
    /// Another socket at the same port: the kernel tells either of the two that nobody has the
    /// port where something was sent, by a hash of the addresses.
    pub(crate) sibling: Option<UdpSocket>,
}

/// Streams that clients have opened, and where they come from.
pub(crate) type Streams = Receiver<(QuicStream, SocketAddr)>;

/// A connection that was begun on this side. It ends with its last stream, when nothing else holds
/// it either.
#[derive(Clone)]
pub(crate) struct QuicConnection {
    link: Arc<Link>,
    owner: Arc<Owner>,
}

/// Ends a connection that nobody has any more.
struct Owner {
    link: Arc<Link>,
    /// Whose thread still sends what there is to say.
    _port: Arc<QuicPort>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl QuicPort {
    /// Connections to others, from any port, with what may wait in memory.
    pub(crate) fn client(peer: SocketAddr, staging: Arc<Staging>) -> io::Result<Arc<Self>> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        Self::start(socket, staging, None, (None, Shortage::default())).map(Arc::new)
    }

    /// Takes in what comes to a socket.
    pub(crate) fn server(socket: UdpSocket, server: QuicServer) -> io::Result<(Self, Streams)> {
        let (sender, streams) = mpsc::channel();
        let mut tls = (*server.tls).clone();
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        let tls = Arc::new(QuicServerConfig::try_from(tls).map_err(io::Error::other)?);
        let shortage = Shortage::default();
        let told = shortage.clone();
        let least = first_windows(&server.staging);
        let config = move |peer| {
            let mut config = ServerConfig::with_crypto(tls.clone());
            let windows = (windows::STRANGE, least);
            let (gate, timeout) = (Gate::default(), server.timeout);
            let shortage = told.clone();
            let terms = Terms { gate, timeout, is_own: false, windows, shortage };
            config.transport_config(Arc::new(transport(peer, &terms)));
            (Arc::new(config), terms)
        };
        let sibling = server.sibling;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (usual, _) = config(any);
        let serving = Serving {
            config: Box::new(config),
            connections_max: server.connections_max,
            streams: sender,
        };
        let serving = Some((serving, usual));
        Ok((Self::start(socket, server.staging, serving, (sibling, shortage))?, streams))
    }

    fn start(
        socket: UdpSocket,
        staging: Arc<Staging>,
        serving: Option<(Serving, Arc<ServerConfig>)>,
        (sibling, shortage): (Option<UdpSocket>, Shortage),
    ) -> io::Result<Self> {
        let udp = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // As much as there is: the kernel grants what it likes.
        let buffers = socket2::SockRef::from(&socket);
        let _ = buffers.set_send_buffer_size(BUFFER_BYTES);
        // Without that, whoever is gone is missed after a time-out.
        for socket in [Some(&socket), sibling.as_ref()].into_iter().flatten() {
            let _ = bankfull_sys::note_refusals(socket, socket.local_addr()?);
        }
        let (serving, usual) = serving.unzip();
        let mut config = EndpointConfig::default();
        config.max_udp_payload_size(u16::MAX - 8).map_err(io::Error::other)?;
        let endpoint = Endpoint::new(Arc::new(config), usual, !udp.may_fragment(), None);
        let endpoint = Arc::new(Mutex::new(endpoint));
        let (waker, alarm) = Waker::new()?;
        let (waker, begun) = (Arc::new(waker), Arc::default());
        let first_windows = first_windows(&staging);
        let most = staging.socket_most();
        let least = most.map_or(windows::LEAST, |most| most.clamp(SOCKET_LEAST, windows::LEAST));
        let room = DatagramRoom::new(&socket, shortage.clone(), least, most);
        let driver = Driver {
            endpoint: Arc::clone(&endpoint),
            socket,
            udp,
            waker: Arc::clone(&waker),
            alarm,
            begun: Arc::clone(&begun),
            serving,
            room,
            staging,
            sibling,
        };
        let thread = thread::Builder::new().name("quic".to_owned()).spawn(|| driver.run())?;
        Ok(Self { endpoint, begun, waker, shortage, first_windows, thread: Some(thread) })
    }

    /// What an administrator could set for this socket, where something is discarded from now on.
    pub(crate) fn advice(&self) -> Advice {
        self.shortage.advice()
    }

    /// Connects, and makes the handshake within `limit`; returns the connection, which may then be
    /// silent for `timeout`, and the fingerprint shown.
    pub(crate) fn connect(
        self: &Arc<Self>,
        address: SocketAddr,
        tls: &Arc<rustls::ClientConfig>,
        (limit, timeout): (Duration, Duration),
        peer: &str,
    ) -> Result<(QuicConnection, Fingerprint), Error> {
        let unusable = |e: String| Error::new(ErrorKind::Local, format!("QUIC is unusable: {e}"));
        let mut tls = (**tls).clone();
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        let tls = QuicClientConfig::try_from(tls).map_err(|e| unusable(e.to_string()))?;
        let mut config = ClientConfig::new(Arc::new(tls));
        let windows = (self.first_windows, self.first_windows);
        let (gate, shortage) = (Gate::default(), self.shortage.clone());
        let terms = Terms { gate, timeout, is_own: true, windows, shortage };
        config.transport_config(Arc::new(transport(address, &terms)));
        let (endpoint, begun, waker) = (&self.endpoint, &self.begun, &self.waker);
        let link = driver::connect(endpoint, begun, waker, (config, terms), address)
            .map_err(|e| unusable(e.to_string()))?;
        let owner = Arc::new(Owner { link: Arc::clone(&link), _port: Arc::clone(self) });
        link.wait_connected(limit).map_err(|e| explain(peer, &e))?;
        let shown = link.certificate().as_ref().map(fingerprint_of);
        let shown = shown.ok_or_else(|| {
            Error::new(ErrorKind::Protocol, format!("{peer} showed no certificate"))
        })?;
        Ok((QuicConnection { link, owner }, shown))
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
        let id = self.link.open(timeout)?;
        let owner: Arc<dyn Send + Sync> = Arc::clone(&self.owner) as _;
        Ok(QuicStream::new(&self.link, &mut self.link.state(), id, Some(owner)))
    }
}

/// What each window of a connection has at first: of a session's two, where memory is limited.
fn first_windows(staging: &Staging) -> Bytes {
    staging.socket_most().map_or(windows::LEAST, |most| windows::least(Bytes(most.0 / 2)))
}

/// How connections with `peer` work.
fn transport(peer: SocketAddr, terms: &Terms) -> TransportConfig {
    let timeout = terms.timeout;
    let (receive, send) = terms.windows;
    let mut config = TransportConfig::default();
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(datagram_most(peer));
    config
        .max_idle_timeout(IdleTimeout::try_from(timeout).ok())
        .keep_alive_interval(Some(KEEP_ALIVE.min(timeout / 4)))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_concurrent_bidi_streams(VarInt::from_u32(MAX_STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u64(receive.0).unwrap_or(VarInt::MAX))
        .send_window(send.0)
        .mtu_discovery_config(Some(mtu))
        .congestion_controller_factory(Arc::new(Deliveries(terms.gate.clone())))
        .datagram_receive_buffer_size(None);
    config
}

/// What a datagram to `peer` may hold: what the way out takes.
fn datagram_most(peer: SocketAddr) -> u16 {
    let headers = if peer.ip().to_canonical().is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
    let mtu = bankfull_sys::path_mtu(peer).unwrap_or(u32::from(DATAGRAM_MIN) + headers);
    u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX - 8).max(DATAGRAM_MIN)
}

fn explain(peer: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::new(
            ErrorKind::Timeout,
            format!(
                "{peer} does not answer by QUIC: is `bankfull serve` running there, and does UDP \
                 pass? (--transport tcp does without)"
            ),
        ),
        io::ErrorKind::ConnectionRefused => {
            let error = Error::network(format!("cannot connect to {peer} by QUIC"), error);
            Error::new(error.kind(), format!("{error}{NOBODY_LISTENS}"))
        }
        io::ErrorKind::ResourceBusy => {
            let text = format!(
                "{peer} has no room for more connections: try again later, or start it with more \
                 --max-connections"
            );
            Error::new(ErrorKind::Network, text).heard()
        }
        _ => {
            let failed = Error::network(format!("cannot connect to {peer} by QUIC"), error);
            Error::new(failed.kind(), format!("{failed}{}", way_to_reach(error)))
        }
    }
}
