//! The daemon: one port, one root, many clients.

use crate::anchor::Anchor;
use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind};
use crate::event::{Event, EventSink};
use crate::host::{Caller, Host, Policy};
use crate::net::control::{ControlReader, lock, split_tls};
use crate::net::identity::Identity;
use crate::net::stream::{Socket, configure};
use crate::net::tls;
use crate::options::{Fingerprint, ServeOptions, default_state_dir};
use bankfull_proto::wire::attach::{CONTROL_MAGIC, DATA_MAGIC};
use bankfull_proto::wire::control::{Cause, Failure};
use bankfull_sys::Dir;
use rustls::{Connection, ServerConfig};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a client may take to authenticate and to say what it wants, however slowly it sends.
/// (OpenSSH's LoginGraceTime is 120 s for people who type; nobody types here.)
const GREETING_MAX: Duration = Duration::from_secs(10);

/// Connections over the limit that are still told so before they are closed.
const BUSY_MAX: usize = 16;

/// How often the accept loop looks at its clock.
const TICK: Duration = Duration::from_millis(100);

/// A daemon that is bound to its port. [`run`](Self::run) serves.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    fingerprint: Fingerprint,
    config: Arc<ServerConfig>,
    connections_max: usize,
    state: Arc<State>,
}

/// What the connection threads share.
struct State {
    host: Host,
    connections: AtomicUsize,
    /// Connections whose thread runs: strangers and control connections, not data.
    talking: AtomicUsize,
    /// Connections that have not asked for anything yet, and until when they may.
    waiting: Mutex<HashMap<u64, (Instant, TcpStream)>>,
    draining: Cancel,
}

/// A connection that is counted; dropping it makes room for another.
struct Seated(Arc<State>);

impl Drop for Seated {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A connection that has said nothing yet.
struct Newcomer {
    id: u64,
    socket: TcpStream,
    seat: Seated,
    /// There is no room for it; it may be told so.
    busy: bool,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the root, loads or makes the certificate, and binds the port.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] when the root or the certificate cannot be used,
    /// [`ErrorKind::Network`] when the port cannot be bound.
    pub fn bind(options: ServeOptions) -> Result<Self, Error> {
        let root = Dir::open(&options.root)
            .map_err(|e| Error::local(format!("cannot serve {}", options.root.display()), &e))?;
        let state_dir = options.state_dir.map_or_else(default_state_dir, Ok)?;
        let identity = Identity::load_or_generate(&state_dir)?;
        let listener = TcpListener::bind(options.listen).map_err(|e| {
            let hint = match e.kind() {
                io::ErrorKind::AddrInUse => " (choose another port with --listen)",
                io::ErrorKind::PermissionDenied => " (ports below 1024 need root)",
                _ => "",
            };
            let text = crate::error::plain(&e);
            Error::new(
                ErrorKind::Network,
                format!("cannot listen on {}: {text}{hint}", options.listen),
            )
        })?;
        let unusable = |e| Error::local("the listening socket is unusable", &e);
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        // A daemon holds many files; it is no error when the limit cannot be raised.
        let _ = bankfull_sys::raise_open_file_limit();
        let policy = Policy {
            token: options.token,
            read_only: options.read_only,
            plain_allowed: options.allow_plain,
            timeout: options.timeout,
        };
        let state = State {
            host: Host::new(Anchor::Root(Arc::new(root)), policy),
            connections: AtomicUsize::new(0),
            talking: AtomicUsize::new(0),
            waiting: Mutex::default(),
            draining: Cancel::new(),
        };
        Ok(Self {
            listener,
            address,
            fingerprint: identity.fingerprint(),
            config: tls::server_config(&identity)?,
            connections_max: options.connections_max,
            state: Arc::new(state),
        })
    }

    /// The address bound.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Fingerprint of the certificate, for clients to pin.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Serves until drained: at a request on `drain` it takes no new clients and waits for the
    /// running sessions to end; a request on `abort` ends those too.
    ///
    /// # Errors
    /// [`ErrorKind::Network`] when the port fails.
    pub fn run(&self, events: &dyn EventSink, drain: &Cancel, abort: &Cancel) -> Result<(), Error> {
        thread::scope(|scope| {
            let mut next = 0;
            loop {
                self.end_overdue();
                if drain.is_cancelled() || abort.is_cancelled() {
                    self.state.draining.cancel();
                    if abort.is_cancelled() {
                        self.state.host.abort();
                    }
                    // Data connections still come in while a session runs.
                    if self.state.host.session_count() == 0 {
                        self.end_waiting();
                    }
                    if self.state.talking.load(Ordering::SeqCst) == 0 {
                        return Ok(());
                    }
                }
                let failed = |e| Error::network(format!("the port {} failed", self.address), &e);
                if !bankfull_sys::wait_readable(&self.listener, TICK).map_err(failed)? {
                    continue;
                }
                match self.listener.accept() {
                    Ok((socket, peer)) => {
                        next += 1;
                        let id = next;
                        let seat = self.admit(id, &socket);
                        scope.spawn(move || self.greet(id, socket, peer, seat, events));
                    }
                    Err(e) if is_passing(&e) => thread::sleep(Duration::from_millis(10)),
                    Err(e) => return Err(failed(e)),
                }
            }
        })
    }

    /// Counts a connection and starts its clock.
    fn admit(&self, id: u64, socket: &TcpStream) -> Seated {
        self.state.connections.fetch_add(1, Ordering::SeqCst);
        self.state.talking.fetch_add(1, Ordering::SeqCst);
        if let Ok(handle) = socket.try_clone() {
            lock(&self.state.waiting).insert(id, (Instant::now() + GREETING_MAX, handle));
        }
        Seated(Arc::clone(&self.state))
    }

    /// Ends connections that took too long to say what they want.
    fn end_overdue(&self) {
        let now = Instant::now();
        lock(&self.state.waiting).retain(|_, (until, socket)| {
            let keep = *until > now;
            if !keep {
                let _ = socket.shutdown(Shutdown::Both);
            }
            keep
        });
    }

    fn end_waiting(&self) {
        for (_, socket) in lock(&self.state.waiting).values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// One connection's thread.
    fn greet(
        &self,
        id: u64,
        socket: TcpStream,
        peer: SocketAddr,
        seat: Seated,
        events: &dyn EventSink,
    ) {
        // An IPv4 client on an IPv6 socket is shown as what it is.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port()).to_string();
        let count = self.state.connections.load(Ordering::SeqCst);
        if count <= self.connections_max + BUSY_MAX {
            let busy = count > self.connections_max;
            let caller = Newcomer { id, socket, seat, busy };
            if let Err(error) = self.talk(caller, &peer, events) {
                events.event(Event::ClientDone { peer, result: Err(error.to_string()) });
            }
        }
        lock(&self.state.waiting).remove(&id);
        self.state.talking.fetch_sub(1, Ordering::SeqCst);
    }

    fn talk(&self, newcomer: Newcomer, peer: &str, events: &dyn EventSink) -> Result<(), Error> {
        let Newcomer { id, mut socket, seat, busy } = newcomer;
        let timeout = self.state.host.policy.timeout;
        let failed = |e: io::Error| Error::network(format!("the connection of {peer} failed"), &e);
        socket.set_nonblocking(false).map_err(failed)?;
        configure(&socket, timeout).map_err(failed)?;
        socket.set_read_timeout(Some(timeout.min(GREETING_MAX))).map_err(failed)?;
        let mut first = [0];
        if bankfull_sys::peek(&socket, &mut first).map_err(failed)? == 0 {
            // Port scanners and health checks connect and go.
            return Ok(());
        }
        match first[0] {
            tls::HANDSHAKE_BYTE => {
                let (connection, magic) = tls::accept_magic(&self.config, &mut socket)?;
                match magic {
                    CONTROL_MAGIC => self.control(id, connection, socket, peer, busy, events),
                    DATA_MAGIC => {
                        self.attach(id, socket, Some(connection), seat, peer, events);
                        Ok(())
                    }
                    _ => Err(Error::new(ErrorKind::Protocol, format!("{peer} speaks no bankfull"))),
                }
            }
            byte if byte == DATA_MAGIC[0] => {
                let mut magic = [0; 8];
                socket.read_exact(&mut magic).map_err(failed)?;
                if magic != DATA_MAGIC {
                    let text = format!("{peer} speaks no bankfull");
                    return Err(Error::new(ErrorKind::Protocol, text));
                }
                self.attach(id, socket, None, seat, peer, events);
                Ok(())
            }
            _ => Err(turn_away(&mut socket, peer)),
        }
    }

    fn attach(
        &self,
        id: u64,
        socket: TcpStream,
        connection: Option<Connection>,
        seat: Seated,
        peer: &str,
        events: &dyn EventSink,
    ) {
        let socket = Socket::Tcp(socket);
        let attached = self.state.host.attach(socket, connection, &DATA_MAGIC, Box::new(seat));
        lock(&self.state.waiting).remove(&id);
        if attached.is_err() {
            // A session that ended a moment ago, mostly.
            let message = format!("a data connection of {peer} belongs to no session");
            events.event(Event::Notice { message });
        }
    }

    fn control(
        &self,
        id: u64,
        connection: Connection,
        socket: TcpStream,
        peer: &str,
        busy: bool,
        events: &dyn EventSink,
    ) -> Result<(), Error> {
        let failed = |e: io::Error| Error::network(format!("the connection of {peer} failed"), &e);
        let wake = socket.try_clone().map_err(failed)?;
        let close = socket.try_clone().map_err(failed)?;
        let asked = socket.try_clone().map_err(failed)?;
        let (input, output) = split_tls(connection, socket).map_err(failed)?;
        let state = Arc::clone(&self.state);
        let caller = Caller {
            reader: ControlReader::new(input, peer.to_owned(), ""),
            output,
            wake: Box::new(move || drop(wake.shutdown(Shutdown::Read))),
            close: Arc::new(move || drop(close.shutdown(Shutdown::Both))),
            data_port: None,
            data_hosts: Vec::new(),
            fingerprint: None,
            on_asked: Box::new(move |timeout| {
                lock(&state.waiting).remove(&id);
                let _ = asked.set_read_timeout(Some(timeout));
            }),
        };
        if busy || self.state.draining.is_cancelled() {
            let (cause, text) = if busy {
                (Cause::Busy, "the server has no room for more connections: try again later")
            } else {
                (Cause::Cancelled, "the server is shutting down")
            };
            let error = Failure::new(cause, text).into();
            caller.refuse_ungreeted(&error);
            return Err(error);
        }
        events.event(Event::ClientConnected { peer: peer.to_owned() });
        let result = self.state.host.serve(caller, false, events).map_err(|e| e.to_string());
        events.event(Event::ClientDone { peer: peer.to_owned(), result });
        Ok(())
    }
}

/// Answers whoever speaks something else; a browser or curl deserves words.
fn turn_away(socket: &mut TcpStream, peer: &str) -> Error {
    const WORDS: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
        Connection: close\r\n\r\nThis is a bankfull port. Use `bankfull cp`.\n";
    let mut start = [0; 8];
    let n = socket.read(&mut start).unwrap_or(0);
    let is_http = start[..n].iter().take_while(|b| b.is_ascii_uppercase()).count() >= 3;
    if is_http {
        let _ = socket.write_all(WORDS.as_bytes());
    }
    let what = if is_http { "HTTP" } else { "something else" };
    Error::new(ErrorKind::Protocol, format!("{peer} speaks {what}, not bankfull"))
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
