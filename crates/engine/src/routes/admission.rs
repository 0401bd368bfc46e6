//! Accepting side of a port: limits the number of strangers and the time of their greeting, and
//! classifies connections by their first bytes. Shared by the daemon's port and the agent's data
//! port.

use crate::base::error::{Error, ErrorKind};
use crate::base::log_limiter::network;
use crate::base::strangers::{self, Stranger};
use crate::base::sync::lock;
use crate::transport::quic::connection::QuicStream;
use crate::transport::socket::{Socket, configure};
use crate::transport::tls;
use bankfull_proto::wire::attach::{CONTROL_MAGIC, DATA_MAGIC};
use rustls::{Connection, ServerConfig};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tracing::warn;

/// Time for a client to authenticate and send its request, however slowly. (chosen: a path cut for
/// 5 s recovers its retransmission up to 11 s after the cut began, or 23 s after it if that is lost
/// too; OpenSSH's LoginGraceTime of 120 s allows for typing, which is not needed here)
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

/// Seconds that the kernel keeps a connection on which nothing arrives. (as [`GREETING_TIMEOUT`])
const DEFER_SECS: u8 = 30;

/// Connections that the kernel keeps. (net.core.somaxconn of Linux, the highest without privileges)
const BACKLOG: u16 = 4096;

/// Interval at which the accepting thread checks deadlines.
/// (chosen: a daemon ends within 2 s of its drain)
const ACCEPT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Pause before a retry, until descriptors or memory are free.
/// (chosen: connections end many times a second)
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Minimum interval between warnings of one kind. (chosen: a line a minute)
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// A listening port and its connections.
pub(crate) struct Acceptor {
    listener: TcpListener,
    /// Maximum number of strangers, see [`Pending::network`].
    max_strangers: usize,
    accepted_count: AtomicU64,
    /// Threads of pending and control connections; those of data streams do not count.
    active_threads: AtomicUsize,
    pending: Mutex<PendingTable>,
    shortage_warning: WarningInterval,
    crowd_warning: WarningInterval,
}

/// Connections without a request yet, in the order of their arrival.
type PendingTable = BTreeMap<u64, Pending>;

/// A connection without a request yet.
struct Pending {
    /// Time of its arrival.
    since: Instant,
    socket: Socket,
    /// Network of a stranger, a peer that has not authenticated; `None` for others.
    network: Option<IpAddr>,
}

/// An accepted connection that has not authenticated.
pub(crate) struct PendingConn {
    pub(crate) socket: Socket,
    pub(crate) peer: SocketAddr,
    pub(crate) deadline: GreetingDeadline,
}

/// Time of the last warning of a kind.
#[derive(Default)]
struct WarningInterval(Mutex<Option<Instant>>);

impl WarningInterval {
    /// True if a warning is due, at most once per [`WARNING_INTERVAL`].
    fn is_due(&self) -> bool {
        let mut last = lock(&self.0);
        let is_due = last.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

/// Greeting deadline of a connection, and its active thread while it exists. The deadline ends with
/// the client's request.
pub(crate) struct GreetingDeadline {
    acceptor: Arc<Acceptor>,
    id: u64,
}

impl GreetingDeadline {
    /// Callback for a proof of the peer's identity: it is no stranger from then on.
    pub(crate) fn on_authenticated(&self) -> impl FnOnce() + Send + 'static {
        let (acceptor, id) = (Arc::clone(&self.acceptor), self.id);
        move || {
            if let Some(pending) = lock(&acceptor.pending).get_mut(&id) {
                pending.network = None;
            }
        }
    }

    /// Callback for the client's request, which ends the deadline.
    pub(crate) fn on_request(&self) -> impl FnOnce() + Send + 'static {
        let (acceptor, id) = (Arc::clone(&self.acceptor), self.id);
        move || drop(lock(&acceptor.pending).remove(&id))
    }
}

impl Drop for GreetingDeadline {
    fn drop(&mut self) {
        lock(&self.acceptor.pending).remove(&self.id);
        self.acceptor.active_threads.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Classification of a connection by its first bytes.
pub(crate) enum Preamble {
    /// Closed without a byte. Port scanners, health checks and clients with surplus connections do
    /// so.
    Closed,
    /// A control connection; over TCP, with its TLS state.
    Control(Option<Box<Connection>>),
    /// A data stream, encrypted or not.
    Data(Option<Box<Connection>>),
    /// Another protocol, whose bytes are still unread.
    OtherProtocol,
}

impl Acceptor {
    /// Starts to accept connections of `listener`, of which at most `max_strangers` have not
    /// authenticated.
    pub(crate) fn new(listener: TcpListener, max_strangers: usize) -> io::Result<Arc<Self>> {
        listener.set_nonblocking(true)?;
        // Without it, pacing alone may limit a stream.
        let _ = bankfull_sys::limit_window_scale(&listener);
        // Without it, connections that send nothing count as strangers at once.
        let _ = bankfull_sys::defer_accept(&listener, DEFER_SECS, BACKLOG);
        Ok(Arc::new(Self {
            listener,
            max_strangers,
            accepted_count: AtomicU64::new(0),
            active_threads: AtomicUsize::new(0),
            pending: Mutex::default(),
            shortage_warning: WarningInterval::default(),
            crowd_warning: WarningInterval::default(),
        }))
    }

    /// Waits a moment for a connection, and closes overdue ones. Errors are those of the port
    /// itself.
    pub(crate) fn admit(self: &Arc<Self>) -> io::Result<Option<PendingConn>> {
        self.close_overdue();
        let accepted = bankfull_sys::wait_readable(&self.listener, ACCEPT_POLL_INTERVAL);
        if let Ok(false) = accepted {
            return Ok(None);
        }
        let accepted = accepted.and_then(|_| self.listener.accept()).and_then(|(socket, peer)| {
            if is_silent(&socket) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            // A connection without a handle to close it could not be timed: drop it.
            let handle = socket.try_clone()?;
            Ok((Socket::Tcp(socket), peer, Socket::Tcp(handle)))
        });
        match accepted {
            Ok((socket, peer, handle)) => Ok(Some(self.track(socket, peer, handle))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) if !is_fatal(&e) => {
                if self.shortage_warning.is_due() {
                    let reason = &*crate::base::error::os_message(&e);
                    warn!(reason, "cannot accept a connection");
                }
                thread::sleep(RETRY_PAUSE);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Admits a stream that a client has opened on a QUIC connection.
    pub(crate) fn admit_stream(
        self: &Arc<Self>,
        stream: QuicStream,
        peer: SocketAddr,
    ) -> PendingConn {
        let handle = stream.clone();
        self.track(Socket::Quic(stream), peer, Socket::Quic(handle))
    }

    /// Starts the deadline of a connection, and makes room for it among the strangers.
    fn track(self: &Arc<Self>, socket: Socket, peer: SocketAddr, handle: Socket) -> PendingConn {
        let id = self.accepted_count.fetch_add(1, Ordering::SeqCst);
        // An IPv4 client of an IPv6 socket is shown by its IPv4 address.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        self.active_threads.fetch_add(1, Ordering::SeqCst);
        let since = Instant::now();
        let evicted = {
            let mut pending = lock(&self.pending);
            let network = Some(network(peer.ip()));
            pending.insert(id, Pending { since, socket: handle, network });
            evict_stranger(&mut pending, self.max_strangers)
        };
        if let Some(Pending { socket, network, .. }) = evicted {
            socket.shutdown();
            if self.crowd_warning.is_due() {
                let network = network.map_or_else(String::new, |network| network.to_string());
                warn!(network, "connection dropped: too many have not authenticated");
            }
        }
        let deadline = GreetingDeadline { acceptor: Arc::clone(self), id };
        PendingConn { socket, peer, deadline }
    }

    fn close_overdue(&self) {
        lock(&self.pending).retain(|_, pending| {
            let keep = pending.since.elapsed() < GREETING_TIMEOUT;
            if !keep {
                pending.socket.shutdown();
            }
            keep
        });
    }

    /// Ends reading on all pending connections. Their threads see end of file and may still answer.
    pub(crate) fn stop_reading_pending(&self) {
        lock(&self.pending).values().for_each(|pending| pending.socket.stop_reading());
    }

    /// Number of connections that have made no request yet.
    pub(crate) fn pending_count(&self) -> usize {
        lock(&self.pending).len()
    }

    /// True if no connection's thread runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.active_threads.load(Ordering::SeqCst) == 0
    }
}

impl PendingConn {
    /// Waits for the first bytes and classifies them. Sets a read timeout of at most
    /// [`GREETING_TIMEOUT`], which lasts until it is replaced.
    pub(crate) fn read_preamble(
        &mut self,
        config: &Arc<ServerConfig>,
        timeout: Duration,
    ) -> Result<Preamble, Error> {
        let Self { socket, peer, .. } = self;
        let failed =
            |e: io::Error| Error::network(format!("the connection from {peer} failed"), &e);
        let unknown = || {
            Error::new(ErrorKind::Protocol, format!("{peer} does not speak the bankfull protocol"))
        };
        socket.set_read_timeout(Some(timeout.min(GREETING_TIMEOUT))).map_err(failed)?;
        let mut magic = [0; DATA_MAGIC.len()];
        let Socket::Tcp(socket) = socket else {
            return match socket.read_exact(&mut magic) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Preamble::Closed),
                Err(e) => Err(failed(e)),
                Ok(()) => match magic {
                    DATA_MAGIC => Ok(Preamble::Data(None)),
                    CONTROL_MAGIC => Ok(Preamble::Control(None)),
                    _ => Err(unknown()),
                },
            };
        };
        socket.set_nonblocking(false).map_err(failed)?;
        configure(socket, timeout).map_err(failed)?;
        let mut first = [0];
        if bankfull_sys::peek(&*socket, &mut first).map_err(failed)? == 0 {
            return Ok(Preamble::Closed);
        }
        let connection = match first[0] {
            tls::HANDSHAKE_BYTE => {
                let Some((connection, inside)) = tls::accept_magic(config, socket)? else {
                    return Ok(Preamble::Closed);
                };
                magic = inside;
                Some(Box::new(connection))
            }
            byte if byte == DATA_MAGIC[0] => {
                socket.read_exact(&mut magic).map_err(failed)?;
                None
            }
            _ => return Ok(Preamble::OtherProtocol),
        };
        match (magic, connection) {
            (DATA_MAGIC, connection) => Ok(Preamble::Data(connection)),
            (CONTROL_MAGIC, Some(connection)) => Ok(Preamble::Control(Some(connection))),
            _ => Err(unknown()),
        }
    }
}

/// Removes a stranger if there are more than `max`; see [`strangers::excess`].
fn evict_stranger(pending: &mut PendingTable, max: usize) -> Option<Pending> {
    let stranger = |(&key, one): (&u64, &Pending)| {
        Some(Stranger { key, network: one.network?, since: one.since })
    };
    let strangers: Vec<_> = pending.iter().filter_map(stranger).collect();
    pending.remove(&strangers::excess(&strangers, max)?)
}

/// True if the kernel has kept a connection for [`DEFER_SECS`] without data.
///
/// It then sends its SYN-ACK again. A connection by a SYN cookie is not kept, and has no
/// retransmission; one with data may have some. (net/ipv4/inet_connection_sock.c)
fn is_silent(socket: &TcpStream) -> bool {
    let retransmits = bankfull_sys::tcp_info(socket).map_or(0, |info| info.total_retrans);
    let has_data = || {
        socket.set_nonblocking(true).is_err()
            || !bankfull_sys::peek(socket, &mut [0])
                .is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    };
    retransmits > 0 && !has_data()
}

/// True if the port itself is lost: the descriptor is no listening socket. (accept(2))
///
/// All other errors are those of a client or its network, or a shortage, and pass.
fn is_fatal(error: &io::Error) -> bool {
    const EBADF: i32 = 9;
    const EFAULT: i32 = 14;
    const EINVAL: i32 = 22;
    const ENOTSOCK: i32 = 88;
    const EOPNOTSUPP: i32 = 95;
    matches!(error.raw_os_error(), Some(EBADF | EFAULT | EINVAL | ENOTSOCK | EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::strangers::GREETING_GRACE;
    use std::io::Write;

    fn acceptor_of(max_strangers: usize) -> (Arc<Acceptor>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (Acceptor::new(listener, max_strangers).unwrap(), address)
    }

    fn acceptor() -> (Arc<Acceptor>, SocketAddr) {
        acceptor_of(8)
    }

    fn connect(acceptor: &Arc<Acceptor>, address: SocketAddr) -> (TcpStream, PendingConn) {
        let mut client = TcpStream::connect(address).unwrap();
        // The kernel keeps a connection without data.
        client.write_all(b"x").unwrap();
        let mut conn = loop {
            if let Some(conn) = acceptor.admit().unwrap() {
                break conn;
            }
        };
        let Socket::Tcp(socket) = &conn.socket else { unreachable!() };
        socket.set_nonblocking(false).unwrap();
        conn.socket.read_exact(&mut [0]).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (client, conn)
    }

    fn age_all(acceptor: &Acceptor, age: Duration) {
        lock(&acceptor.pending).values_mut().for_each(|one| one.since -= age);
    }

    #[test]
    fn thread_is_active_until_deadline_is_dropped() {
        let (acceptor, address) = acceptor();
        assert!(acceptor.admit().unwrap().is_none() && acceptor.is_idle());
        let (_a, first) = connect(&acceptor, address);
        assert!(!acceptor.is_idle());
        drop(first.deadline);
        assert!(acceptor.is_idle() && lock(&acceptor.pending).is_empty());
    }

    #[test]
    fn crowd_evicts_its_oldest_stranger_unless_all_are_young() {
        let (acceptor, address) = acceptor_of(2);
        let (mut known_client, known) = connect(&acceptor, address);
        known.deadline.on_authenticated()();
        let (mut oldest_client, _oldest) = connect(&acceptor, address);
        let _second = connect(&acceptor, address);
        let (mut newest_client, _newest) = connect(&acceptor, address);
        assert_eq!(newest_client.read(&mut [0]).unwrap(), 0, "it was closed");
        age_all(&acceptor, GREETING_GRACE);
        let _late = connect(&acceptor, address);
        assert_eq!(oldest_client.read(&mut [0]).unwrap(), 0, "it was closed");
        known_client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(known_client.read(&mut [0]).is_err(), "it is open");
    }

    #[test]
    fn stranger_of_small_network_survives_a_crowd() {
        let socket = || Socket::Unix(std::os::unix::net::UnixStream::pair().unwrap().0);
        let (mut pending, since) = (PendingTable::new(), Instant::now() - GREETING_GRACE);
        let mut add = |id: u64, address: &str| {
            let network = Some(network(address.parse().unwrap()));
            pending.insert(id, Pending { since, socket: socket(), network });
            let before: Vec<u64> = pending.keys().copied().collect();
            let evicted = evict_stranger(&mut pending, 4);
            let is_gone = |id: &u64| !pending.contains_key(id);
            assert_eq!(evicted.is_some(), before.iter().any(is_gone));
            before.into_iter().find(is_gone)
        };
        for (id, address) in ["192.0.2.1", "2001:db8::1", "2001:db8::2"].into_iter().enumerate() {
            assert_eq!(add(id as u64, address), None);
        }
        assert_eq!(add(3, "2001:db8::3:1"), None);
        // The /64 network has most, whatever its hosts are called.
        assert_eq!(add(4, "2001:db8::4"), Some(1));
        assert_eq!(add(5, "2001:db8:0:1::1"), Some(2));
        assert_eq!(add(6, "2001:db8:0:1::2"), Some(3));
        for id in 7..100 {
            let evicted = add(id, "2001:db8:0:1::3");
            assert!(evicted.is_some_and(|id| id > 3), "{evicted:?}");
        }
    }

    #[test]
    fn pending_connection_is_answered_after_reading_stops() {
        let (acceptor, address) = acceptor();
        let (mut client, mut conn) = connect(&acceptor, address);
        acceptor.stop_reading_pending();
        let Socket::Tcp(tcp) = &conn.socket else { unreachable!() };
        tcp.set_nonblocking(false).unwrap();
        assert_eq!(conn.socket.read(&mut [0]).unwrap(), 0);
        conn.socket.write_all(b"no").unwrap();
        let mut answer = [0; 2];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"no");
    }

    #[test]
    fn pending_connection_overdue_is_closed() {
        let (acceptor, address) = acceptor();
        let (mut client, conn) = connect(&acceptor, address);
        age_all(&acceptor, GREETING_TIMEOUT);
        assert!(acceptor.admit().unwrap().is_none());
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        drop(conn);
        assert!(acceptor.is_idle());
    }
}
