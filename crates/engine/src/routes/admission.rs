//! Accepting side of a port: counts connections, limits the time of their greeting, and classifies
//! them by their first bytes. Shared by the daemon's port and the agent's data port, which decide
//! on limits and answers.

use crate::base::error::{Error, ErrorKind};
use crate::base::sync::lock;
use crate::transport::quic::connection::QuicStream;
use crate::transport::socket::{Socket, configure};
use crate::transport::tls;
use bankfull_proto::wire::attach::{CONTROL_MAGIC, DATA_MAGIC};
use rustls::{Connection, ServerConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tracing::warn;

/// Time for a client to authenticate and send its request, however slowly. (chosen: a path cut for
/// 5 s recovers its retransmission up to 11 s after the cut began, or 23 s after it if that is lost
/// too; OpenSSH's LoginGraceTime of 120 s allows for typing, which is not needed here)
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which the accepting thread checks deadlines.
const ACCEPT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Pause before a retry, until descriptors, memory or connections are free.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Minimum interval between warnings that no connection can be accepted. (chosen: a line a minute)
const SHORTAGE_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// A listening port and its connections.
pub(crate) struct Acceptor {
    listener: TcpListener,
    accepted_count: AtomicU64,
    /// Connections in the order of their arrival.
    connections: Mutex<BTreeSet<u64>>,
    /// Threads of pending and control connections; those of data streams do not count.
    active_threads: AtomicUsize,
    /// Connections without a request yet, and their deadlines; the oldest first.
    pending: Mutex<BTreeMap<u64, (Instant, Socket)>>,
    /// Time of the last warning about a shortage of descriptors or memory.
    warned_of_shortage: Mutex<Option<Instant>>,
}

/// An accepted connection that has not authenticated.
pub(crate) struct PendingConn {
    pub(crate) socket: Socket,
    pub(crate) peer: SocketAddr,
    /// Number of connections, this one included.
    pub(crate) count: usize,
    pub(crate) permit: Permit,
    pub(crate) deadline: GreetingDeadline,
}

/// Admission slot of a connection; dropping it frees the slot.
pub(crate) struct Permit {
    acceptor: Arc<Acceptor>,
    id: u64,
}

impl Permit {
    /// Number of connections up to this one; later ones do not count.
    pub(crate) fn position(&self) -> usize {
        lock(&self.acceptor.connections).range(..=self.id).count()
    }

    /// Waits until the position is at most `max` or `limit` has passed, and returns it. A waiting
    /// connection gives up its place to later ones, because sessions were promised slots for their
    /// data streams.
    pub(crate) fn wait_for_position(&self, max: usize, limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        loop {
            let mut connections = lock(&self.acceptor.connections);
            connections.remove(&self.id);
            let position = connections.range(..self.id).count() + 1;
            if position <= max || Instant::now() >= deadline {
                connections.insert(self.id);
                return position;
            }
            drop(connections);
            thread::sleep(RETRY_PAUSE);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.acceptor.connections).remove(&self.id);
    }
}

/// Greeting deadline of a connection, and its active thread while it exists. The deadline ends with
/// the client's request.
pub(crate) struct GreetingDeadline {
    acceptor: Arc<Acceptor>,
    id: u64,
}

impl GreetingDeadline {
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
    /// Starts to accept connections of `listener`.
    pub(crate) fn new(listener: TcpListener) -> io::Result<Arc<Self>> {
        listener.set_nonblocking(true)?;
        Ok(Arc::new(Self {
            listener,
            accepted_count: AtomicU64::new(0),
            connections: Mutex::default(),
            active_threads: AtomicUsize::new(0),
            pending: Mutex::default(),
            warned_of_shortage: Mutex::default(),
        }))
    }

    /// Waits a moment for a connection, and closes overdue ones. Errors are those of the port
    /// itself.
    pub(crate) fn admit(self: &Arc<Self>) -> io::Result<Option<PendingConn>> {
        self.close_overdue();
        if !bankfull_sys::wait_readable(&self.listener, ACCEPT_POLL_INTERVAL)? {
            return Ok(None);
        }
        let accepted = self.listener.accept().and_then(|(socket, peer)| {
            // A connection without a handle to close it could not be timed: drop it.
            let handle = socket.try_clone()?;
            Ok((Socket::Tcp(socket), peer, Socket::Tcp(handle)))
        });
        match accepted {
            Ok((socket, peer, handle)) => Ok(Some(self.track(socket, peer, handle))),
            Err(e) if is_transient(&e) => {
                self.warn_of_shortage(&e);
                thread::sleep(RETRY_PAUSE);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Logs that a connection could not be accepted, now and then.
    fn warn_of_shortage(&self, error: &io::Error) {
        let mut warned = lock(&self.warned_of_shortage);
        if warned.is_none_or(|at: Instant| at.elapsed() >= SHORTAGE_WARNING_INTERVAL) {
            *warned = Some(Instant::now());
            let reason = &*crate::base::error::os_message(error);
            warn!(reason, "cannot accept a connection");
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

    /// Counts a connection and starts its deadline.
    fn track(self: &Arc<Self>, socket: Socket, peer: SocketAddr, handle: Socket) -> PendingConn {
        let id = self.accepted_count.fetch_add(1, Ordering::SeqCst);
        let count = {
            let mut connections = lock(&self.connections);
            connections.insert(id);
            connections.len()
        };
        self.active_threads.fetch_add(1, Ordering::SeqCst);
        lock(&self.pending).insert(id, (Instant::now() + GREETING_TIMEOUT, handle));
        // An IPv4 client of an IPv6 socket is shown by its IPv4 address.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let (permit, deadline) = (
            Permit { acceptor: Arc::clone(self), id },
            GreetingDeadline { acceptor: Arc::clone(self), id },
        );
        PendingConn { socket, peer, count, permit, deadline }
    }

    fn close_overdue(&self) {
        let now = Instant::now();
        lock(&self.pending).retain(|_, (until, socket)| {
            let keep = *until > now;
            if !keep {
                socket.shutdown();
            }
            keep
        });
    }

    /// Closes the oldest pending connection other than `conn`. False if there is none.
    pub(crate) fn evict_oldest(&self, conn: &PendingConn) -> bool {
        let mut pending = lock(&self.pending);
        let Some(oldest) = pending.first_entry().filter(|e| *e.key() != conn.deadline.id) else {
            return false;
        };
        let (_, socket) = oldest.remove();
        socket.shutdown();
        true
    }

    /// Ends reading on all pending connections. Their threads see end of file and may still answer.
    pub(crate) fn stop_reading_pending(&self) {
        for (_, socket) in lock(&self.pending).values() {
            socket.stop_reading();
        }
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

/// True if a retry may succeed soon: the client is gone, or descriptors are short.
fn is_transient(error: &io::Error) -> bool {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    ) || matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn acceptor() -> (Arc<Acceptor>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (Acceptor::new(listener).unwrap(), address)
    }

    fn connect(acceptor: &Arc<Acceptor>, address: SocketAddr) -> (TcpStream, PendingConn) {
        let client = TcpStream::connect(address).unwrap();
        let conn = loop {
            if let Some(conn) = acceptor.admit().unwrap() {
                break conn;
            }
        };
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (client, conn)
    }

    #[test]
    fn connections_are_counted_until_permit_is_dropped() {
        let (acceptor, address) = acceptor();
        assert!(acceptor.admit().unwrap().is_none() && acceptor.is_idle());
        let (_a, first) = connect(&acceptor, address);
        let (_b, second) = connect(&acceptor, address);
        assert_eq!((first.count, second.count), (1, 2));
        drop(second);
        // A data stream keeps its permit after its greeting thread has ended.
        let PendingConn { permit, deadline, .. } = first;
        drop(deadline);
        assert!(acceptor.is_idle() && lock(&acceptor.pending).is_empty());
        let (_c, third) = connect(&acceptor, address);
        assert_eq!(third.count, 2);
        drop(permit);
        assert_eq!(third.permit.position(), 1);
    }

    #[test]
    fn permit_waits_for_earlier_connections_only() {
        let (acceptor, address) = acceptor();
        let (_a, first) = connect(&acceptor, address);
        let (_b, second) = connect(&acceptor, address);
        let (_c, _third) = connect(&acceptor, address);
        assert_eq!(
            second.permit.wait_for_position(1, Duration::ZERO),
            2,
            "no connection has closed"
        );
        let leaving = thread::spawn(move || {
            thread::sleep(RETRY_PAUSE);
            drop(first);
        });
        assert_eq!(second.permit.wait_for_position(1, Duration::from_secs(60)), 1);
        leaving.join().unwrap();
    }

    #[test]
    fn eviction_closes_oldest_pending_connection() {
        let (acceptor, address) = acceptor();
        let (_active, active) = connect(&acceptor, address);
        active.deadline.on_request()();
        let (mut oldest_client, _oldest) = connect(&acceptor, address);
        let (_late, late) = connect(&acceptor, address);
        assert!(acceptor.evict_oldest(&late));
        assert_eq!(oldest_client.read(&mut [0]).unwrap(), 0, "it was closed");
        assert!(!acceptor.evict_oldest(&late), "no other is pending");
    }

    #[test]
    fn pending_connection_is_answered_after_reading_stops() {
        use std::io::Write;
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
        lock(&acceptor.pending).values_mut().for_each(|(until, _)| *until = Instant::now());
        assert!(acceptor.admit().unwrap().is_none());
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        drop(conn);
        assert!(acceptor.is_idle());
    }
}
