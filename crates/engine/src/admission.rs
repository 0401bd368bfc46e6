//! Who comes in at a port: connections are counted, have a short time to say what they want, and
//! show by their first bytes what they are. A daemon's port and an ssh agent's data port share
//! this. How many are allowed, and what they are answered, is the business of those two.

use crate::error::{Error, ErrorKind};
use crate::net::control::lock;
use crate::net::quic::QuicStream;
use crate::net::socket::{Socket, configure};
use crate::net::tls;
use bankfull_proto::wire::attach::{CONTROL_MAGIC, DATA_MAGIC};
use rustls::{Connection, ServerConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a client may take to authenticate and to say what it wants, however slowly it sends.
/// (ours: a path that is cut for 5 s is tried again up to 11 s after the cut began, and 23 s after
/// it when that is lost, too. OpenSSH's LoginGraceTime is 120 s for people who type; nobody types
/// here.)
const GREETING_MAX: Duration = Duration::from_secs(30);

/// How often the accepting thread looks at its clock.
const TICK: Duration = Duration::from_millis(100);

/// How long to wait for descriptors or memory to come back, or for others to leave.
const PAUSE: Duration = Duration::from_millis(10);

/// A port, and the connections that came in by it.
pub(crate) struct Door {
    listener: TcpListener,
    came: AtomicU64,
    /// Connections by when they came.
    connections: Mutex<BTreeSet<u64>>,
    /// Connections whose thread runs: strangers and control connections, not data.
    talking: AtomicUsize,
    /// Connections that have not asked for anything yet, and until when they may; the first has
    /// waited longest.
    waiting: Mutex<BTreeMap<u64, (Instant, Socket)>>,
}

/// A connection that has said nothing yet.
pub(crate) struct Newcomer {
    pub(crate) socket: Socket,
    pub(crate) peer: SocketAddr,
    /// How many connections there are with this one.
    pub(crate) count: usize,
    pub(crate) seat: Seated,
    pub(crate) visit: Visit,
}

/// A connection that is counted; dropping it makes room for another.
pub(crate) struct Seated {
    door: Arc<Door>,
    id: u64,
}

impl Seated {
    /// How many connections there are up to this one: those that came later do not count.
    pub(crate) fn place(&self) -> usize {
        lock(&self.door.connections).range(..=self.id).count()
    }

    /// Its place, once that is no more than `most`, or as it is after `limit`. While it waits, it
    /// takes nobody's room that came later: sessions were promised some for their data.
    pub(crate) fn wait_for_place(&self, most: usize, limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        loop {
            let mut connections = lock(&self.door.connections);
            connections.remove(&self.id);
            let place = connections.range(..self.id).count() + 1;
            if place <= most || Instant::now() >= deadline {
                connections.insert(self.id);
                return place;
            }
            drop(connections);
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        lock(&self.door.connections).remove(&self.id);
    }
}

/// A connection's thread, for as long as it runs. Its clock runs until it has asked for something.
pub(crate) struct Visit {
    door: Arc<Door>,
    id: u64,
}

impl Visit {
    /// What stops the clock: the client has asked for something.
    pub(crate) fn on_asked(&self) -> impl FnOnce() + Send + 'static {
        let (door, id) = (Arc::clone(&self.door), self.id);
        move || drop(lock(&door.waiting).remove(&id))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        lock(&self.door.waiting).remove(&self.id);
        self.door.talking.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the first bytes of a connection say.
pub(crate) enum Opening {
    /// It ended without a word: port scanners and health checks connect and go, and so do clients
    /// that find that they will not need all the connections they have begun.
    Nothing,
    /// A control connection; by TCP, with what encrypts it.
    Control(Option<Box<Connection>>),
    /// A data connection, encrypted or plain.
    Data(Option<Box<Connection>>),
    /// Something else than bankfull, whose bytes are still to be read.
    Stranger,
}

impl Door {
    /// Admits connections to `listener`.
    pub(crate) fn new(listener: TcpListener) -> io::Result<Arc<Self>> {
        listener.set_nonblocking(true)?;
        Ok(Arc::new(Self {
            listener,
            came: AtomicU64::new(0),
            connections: Mutex::default(),
            talking: AtomicUsize::new(0),
            waiting: Mutex::default(),
        }))
    }

    /// Waits a moment for a newcomer, and ends connections that took too long to say what they
    /// want. An error is the port's own.
    pub(crate) fn admit(self: &Arc<Self>) -> io::Result<Option<Newcomer>> {
        self.end_overdue();
        if !bankfull_sys::wait_readable(&self.listener, TICK)? {
            return Ok(None);
        }
        let accepted = self.listener.accept().and_then(|(socket, peer)| {
            // Without a handle to end it, a connection would have no clock: then it is closed.
            let handle = socket.try_clone()?;
            Ok((Socket::Tcp(socket), peer, Socket::Tcp(handle)))
        });
        match accepted {
            Ok((socket, peer, handle)) => Ok(Some(self.seat(socket, peer, handle))),
            Err(e) if is_passing(&e) => {
                thread::sleep(PAUSE);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Admits a stream that a client has opened on a QUIC connection.
    pub(crate) fn admit_stream(self: &Arc<Self>, stream: QuicStream, peer: SocketAddr) -> Newcomer {
        let handle = stream.clone();
        self.seat(Socket::Quic(stream), peer, Socket::Quic(handle))
    }

    /// Counts a connection and starts its clock.
    fn seat(self: &Arc<Self>, socket: Socket, peer: SocketAddr, handle: Socket) -> Newcomer {
        let id = self.came.fetch_add(1, Ordering::SeqCst);
        let count = {
            let mut connections = lock(&self.connections);
            connections.insert(id);
            connections.len()
        };
        self.talking.fetch_add(1, Ordering::SeqCst);
        lock(&self.waiting).insert(id, (Instant::now() + GREETING_MAX, handle));
        // An IPv4 client on an IPv6 socket is shown as what it is.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let (seat, visit) =
            (Seated { door: Arc::clone(self), id }, Visit { door: Arc::clone(self), id });
        Newcomer { socket, peer, count, seat, visit }
    }

    fn end_overdue(&self) {
        let now = Instant::now();
        lock(&self.waiting).retain(|_, (until, socket)| {
            let keep = *until > now;
            if !keep {
                socket.shutdown();
            }
            keep
        });
    }

    /// Ends the connection that has waited longest without asking for anything, for the sake of
    /// `newcomer`. False when there is no other.
    pub(crate) fn make_room(&self, newcomer: &Newcomer) -> bool {
        let mut waiting = lock(&self.waiting);
        let Some(longest) = waiting.first_entry().filter(|e| *e.key() != newcomer.visit.id) else {
            return false;
        };
        let (_, socket) = longest.remove();
        socket.shutdown();
        true
    }

    /// Lets those who have not asked for anything say no more. Their threads find the end of what
    /// they read, and may still answer.
    pub(crate) fn hear_no_more(&self) {
        for (_, socket) in lock(&self.waiting).values() {
            socket.stop_reading();
        }
    }

    /// Whether no connection's thread runs.
    pub(crate) fn is_quiet(&self) -> bool {
        self.talking.load(Ordering::SeqCst) == 0
    }
}

impl Newcomer {
    /// Waits for its first bytes. Reads then wait no longer than a greeting may take, until
    /// somebody sets another time-out.
    pub(crate) fn listen(
        &mut self,
        config: &Arc<ServerConfig>,
        timeout: Duration,
    ) -> Result<Opening, Error> {
        let Self { socket, peer, .. } = self;
        let failed = |e: io::Error| Error::network(format!("the connection of {peer} failed"), &e);
        let unknown = || Error::new(ErrorKind::Protocol, format!("{peer} speaks no bankfull"));
        socket.set_read_timeout(Some(timeout.min(GREETING_MAX))).map_err(failed)?;
        let mut magic = [0; DATA_MAGIC.len()];
        let Socket::Tcp(socket) = socket else {
            return match socket.read_exact(&mut magic) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Opening::Nothing),
                Err(e) => Err(failed(e)),
                Ok(()) => match magic {
                    DATA_MAGIC => Ok(Opening::Data(None)),
                    CONTROL_MAGIC => Ok(Opening::Control(None)),
                    _ => Err(unknown()),
                },
            };
        };
        socket.set_nonblocking(false).map_err(failed)?;
        configure(socket, timeout).map_err(failed)?;
        let mut first = [0];
        if bankfull_sys::peek(&*socket, &mut first).map_err(failed)? == 0 {
            return Ok(Opening::Nothing);
        }
        let connection = match first[0] {
            tls::HANDSHAKE_BYTE => {
                let Some((connection, inside)) = tls::accept_magic(config, socket)? else {
                    return Ok(Opening::Nothing);
                };
                magic = inside;
                Some(Box::new(connection))
            }
            byte if byte == DATA_MAGIC[0] => {
                socket.read_exact(&mut magic).map_err(failed)?;
                None
            }
            _ => return Ok(Opening::Stranger),
        };
        match (magic, connection) {
            (DATA_MAGIC, connection) => Ok(Opening::Data(connection)),
            (CONTROL_MAGIC, Some(connection)) => Ok(Opening::Control(Some(connection))),
            _ => Err(unknown()),
        }
    }
}

/// Whether accepting may work again soon: the client is gone already, or descriptors are short.
fn is_passing(error: &io::Error) -> bool {
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

    fn door() -> (Arc<Door>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (Door::new(listener).unwrap(), address)
    }

    fn come(door: &Arc<Door>, address: SocketAddr) -> (TcpStream, Newcomer) {
        let client = TcpStream::connect(address).unwrap();
        let newcomer = loop {
            if let Some(newcomer) = door.admit().unwrap() {
                break newcomer;
            }
        };
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (client, newcomer)
    }

    #[test]
    fn connections_are_counted_until_they_are_gone() {
        let (door, address) = door();
        assert!(door.admit().unwrap().is_none() && door.is_quiet());
        let (_a, first) = come(&door, address);
        let (_b, second) = come(&door, address);
        assert_eq!((first.count, second.count), (1, 2));
        drop(second);
        // A data connection's thread ends, and its seat stays taken.
        let Newcomer { seat, visit, .. } = first;
        drop(visit);
        assert!(door.is_quiet() && lock(&door.waiting).is_empty());
        let (_c, third) = come(&door, address);
        assert_eq!(third.count, 2);
        drop(seat);
        assert_eq!(third.seat.place(), 1);
    }

    #[test]
    fn who_finds_no_room_waits_for_those_who_came_before_and_not_for_others() {
        let (door, address) = door();
        let (_a, first) = come(&door, address);
        let (_b, second) = come(&door, address);
        let (_c, _third) = come(&door, address);
        assert_eq!(second.seat.wait_for_place(1, Duration::ZERO), 2, "nobody has left");
        let leaving = thread::spawn(move || {
            thread::sleep(PAUSE);
            drop(first);
        });
        assert_eq!(second.seat.wait_for_place(1, Duration::from_secs(60)), 1);
        leaving.join().unwrap();
    }

    #[test]
    fn room_is_made_by_who_has_waited_longest_and_not_by_who_has_asked() {
        let (door, address) = door();
        let (_asked, asked) = come(&door, address);
        asked.visit.on_asked()();
        let (mut stranger, _waiting) = come(&door, address);
        let (_late, late) = come(&door, address);
        assert!(door.make_room(&late));
        assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "it was ended");
        assert!(!door.make_room(&late), "nobody else waits");
    }

    #[test]
    fn who_is_heard_no_more_may_still_be_answered() {
        use std::io::Write;
        let (door, address) = door();
        let (mut client, mut newcomer) = come(&door, address);
        door.hear_no_more();
        let Socket::Tcp(tcp) = &newcomer.socket else { unreachable!() };
        tcp.set_nonblocking(false).unwrap();
        assert_eq!(newcomer.socket.read(&mut [0]).unwrap(), 0);
        newcomer.socket.write_all(b"no").unwrap();
        let mut answer = [0; 2];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"no");
    }

    #[test]
    fn who_waits_too_long_is_ended() {
        let (door, address) = door();
        let (mut client, newcomer) = come(&door, address);
        lock(&door.waiting).values_mut().for_each(|(until, _)| *until = Instant::now());
        assert!(door.admit().unwrap().is_none());
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        drop(newcomer);
        assert!(door.is_quiet());
    }
}
