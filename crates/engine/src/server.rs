//! The daemon: one port, one root, many clients.

use crate::admission::{Door, Newcomer, Opening, Seated, Visit};
use crate::anchor::PathRoot;
use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind};
use crate::event::{Event, EventSink};
use crate::host::{Caller, Host, Policy};
use crate::net::control::{ControlReader, close_when_acked, lock, split};
use crate::net::identity::Identity;
use crate::net::probe::ProbePort;
use crate::net::quic::{QuicPort, QuicServer, IncomingStreams};
use crate::net::socket::Socket;
use crate::net::staging::BufferPool;
use crate::net::tls;
use crate::options::{Fingerprint, ServeOptions, default_state_dir};
use crate::threads::try_spawn;
use bankfull_proto::limits::MAX_STREAMS;
use bankfull_proto::wire::attach::DATA_MAGIC;
use bankfull_proto::wire::control::{Cause, Failure};
use bankfull_proto::wire::probe::PROBE_MAGIC;
use bankfull_sys::{Dir, SharedPort};
use rustls::{Connection, ServerConfig};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Connections over the limit that are still told so before they are closed. (ours: those of three
/// clients that each begin 16 for data while they are waiting for room)
const BUSY_MAX: usize = 64;

/// How long a client that finds no room waits for others that are leaving. (ours: the threads of a
/// session that its client has ended are gone within a round trip, and within this also where they
/// wait for a processor)
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// How often the thread that waits for streams sees whether all is over.
const TICK: Duration = Duration::from_millis(100);

/// A daemon that is bound to its port. [`run`](Self::run) serves.
pub struct Server {
    door: Arc<Door>,
    address: SocketAddr,
    fingerprint: Fingerprint,
    config: Arc<ServerConfig>,
    connections_max: usize,
    host: Host,
    /// Where QUIC connections come in, until it serves.
    quic: Option<Mutex<(QuicPort, IncomingStreams)>>,
    /// Why there is no port for datagrams.
    unheard: Option<String>,
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
        let address = listener.local_addr().map_err(unusable)?;
        let door = Door::new(listener).map_err(unusable)?;
        // A daemon holds many files; it is no error when the limit cannot be raised.
        let _ = bankfull_sys::raise_open_file_limit();
        let policy = Policy {
            token: options.token,
            read_only: options.read_only,
            unencrypted_allowed: options.allow_plain,
            timeout: options.timeout,
            link_rate: options.link_rate,
            buffer_pool: BufferPool::new(options.memory_max),
        };
        let config = tls::server_config(&identity)?;
        let quic = QuicServer {
            tls: Arc::clone(&config),
            timeout: policy.timeout,
            connections_max: options.connections_max,
            buffer_pool: Arc::clone(&policy.buffer_pool),
            sibling: None,
        };
        let (probes, quic, unheard) = match by_datagrams(address, quic) {
            Ok((probes, quic)) => (Some(probes), Some(quic), None),
            Err(e) => (None, None, Some(crate::error::plain(&e))),
        };
        Ok(Self {
            door,
            address,
            fingerprint: identity.fingerprint(),
            config,
            connections_max: options.connections_max,
            host: Host::new(PathRoot::Dir(Arc::new(root)), policy, probes),
            quic: quic.map(Mutex::new),
            unheard,
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
    /// [`ErrorKind::Network`] when the port fails, [`ErrorKind::Local`] when there are no threads.
    pub fn run(&self, events: &dyn EventSink, drain: &Cancel, abort: &Cancel) -> Result<(), Error> {
        thread::scope(|scope| {
            let mut started = Ok(());
            if let Some(probes) = &self.host.probes {
                started = try_spawn(scope, || probes.run());
            }
            if let Some(why) = &self.unheard {
                let port = self.address.port();
                let message = format!(
                    "UDP port {port} cannot be had ({why}): there is no QUIC, and copies are tuned by \
                     what TCP tells alone; end the program that has it, or serve on another port \
                     (--listen)"
                );
                events.event(Event::Notice { message });
            }
            let over = Arc::new(AtomicBool::new(false));
            if let Some(quic) = &self.quic {
                let over = Arc::clone(&over);
                let admit = move || self.admit_streams(scope, events, &lock(quic), &over);
                started = started.and_then(|()| try_spawn(scope, admit));
            }
            let result = started.and_then(|()| self.admit(scope, events, drain, abort));
            over.store(true, Ordering::SeqCst);
            if let Some(probes) = &self.host.probes {
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
        loop {
            if drain.is_cancelled() || abort.is_cancelled() {
                self.host.draining.cancel();
                if abort.is_cancelled() {
                    self.host.abort();
                }
                // Data connections still come in while a session runs.
                if self.host.session_count() == 0 {
                    self.door.hear_no_more();
                }
                if self.door.is_quiet() {
                    return Ok(());
                }
            }
            let failed = |e| Error::network(format!("the port {} failed", self.address), &e);
            if let Some(newcomer) = self.door.admit().map_err(failed)? {
                self.receive(scope, newcomer, events);
            }
        }
    }

    /// Takes in what clients open on QUIC connections, until all is over.
    fn admit_streams<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        events: &'scope dyn EventSink,
        (port, streams): &(QuicPort, IncomingStreams),
        over: &AtomicBool,
    ) {
        let mut advice = port.advice();
        while !over.load(Ordering::SeqCst) {
            if let Some(message) = advice.next_advice() {
                events.event(Event::Notice { message });
            }
            if let Ok((stream, peer)) = streams.recv_timeout(TICK) {
                self.receive(scope, self.door.admit_stream(stream, peer), events);
            }
        }
    }

    /// Starts a newcomer's thread. One that finds no room to be told so, or no thread, is closed.
    fn receive<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        newcomer: Newcomer,
        events: &'scope dyn EventSink,
    ) {
        if newcomer.count <= self.connections_max + BUSY_MAX {
            let greet = move || self.greet(newcomer, events);
            let _ = thread::Builder::new().spawn_scoped(scope, greet);
        }
    }

    /// One connection's thread.
    fn greet(&self, newcomer: Newcomer, events: &dyn EventSink) {
        let peer = newcomer.peer.to_string();
        if let Err(error) = self.talk(newcomer, &peer, events) {
            events.event(Event::ClientDone { peer, result: Err(error) });
        }
    }

    fn talk(
        &self,
        mut newcomer: Newcomer,
        peer: &str,
        events: &dyn EventSink,
    ) -> Result<(), Error> {
        let opening = newcomer.listen(&self.config, self.host.policy.timeout)?;
        let Newcomer { mut socket, seat, visit, .. } = newcomer;
        match opening {
            Opening::Nothing => {}
            Opening::Control(connection) => {
                // With it, one that carries data.
                let place =
                    seat.wait_for_place(self.connections_max.saturating_sub(1), LEAVING_MAX);
                let room = self.connections_max.saturating_sub(place);
                let tls = connection.map(|tls| *tls);
                return self.control(&visit, tls, socket, peer, room, events);
            }
            // A session that came first has taken the room that was promised to this one.
            Opening::Data(_) if seat.place() > self.connections_max => {}
            Opening::Data(connection) => {
                self.attach(socket, connection.map(|tls| *tls), seat, peer, events);
            }
            Opening::Stranger => return Err(turn_away(&mut socket, peer)),
        }
        Ok(())
    }

    fn attach(
        &self,
        socket: Socket,
        connection: Option<Connection>,
        seat: Seated,
        peer: &str,
        events: &dyn EventSink,
    ) {
        let attached = self.host.attach(socket, connection, &DATA_MAGIC, Box::new(seat));
        // One that comes too late for its session is no news.
        if attached.is_err_and(|e| !is_late(&e)) {
            let message = format!("a data connection of {peer} belongs to no session");
            events.event(Event::Notice { message });
        }
    }

    fn control(
        &self,
        visit: &Visit,
        tls: Option<Connection>,
        socket: Socket,
        peer: &str,
        room: usize,
        events: &dyn EventSink,
    ) -> Result<(), Error> {
        let failed = |e: io::Error| Error::network(format!("the connection of {peer} failed"), &e);
        let wake = socket.try_clone().map_err(failed)?;
        let close = socket.try_clone().map_err(failed)?;
        let asked = socket.try_clone().map_err(failed)?;
        let (input, output) = split(tls, socket).map_err(failed)?;
        let on_asked = visit.on_asked();
        let address = asked.peer().ok_or_else(|| failed(io::ErrorKind::NotConnected.into()))?;
        let caller = Caller {
            reader: ControlReader::new(input, peer.to_owned(), ""),
            output,
            wake: Box::new(move || wake.stop_reading()),
            close: Arc::new(move || close_when_acked(&close)),
            max_streams: u32::try_from(room).unwrap_or(u32::MAX).min(MAX_STREAMS),
            data_port: None,
            data_hosts: Vec::new(),
            fingerprint: None,
            peer: Some(address.ip()),
            advice: asked.advice(),
            on_asked: Box::new(move |timeout| {
                on_asked();
                asked.set_authenticated();
                let _ = asked.set_read_timeout(Some(timeout));
            }),
        };
        if room == 0 {
            let text = "the server has no room for more connections: try again later, or start it \
                        with more --max-connections";
            let error = Failure::new(Cause::Busy, text).into();
            caller.refuse_ungreeted(&error);
            return Err(error);
        }
        events.event(Event::ClientConnected { peer: peer.to_owned() });
        let result = self.host.serve(caller, false, events);
        events.event(Event::ClientDone { peer: peer.to_owned(), result });
        Ok(())
    }
}

/// Datagrams come in at the same port number: probes of sessions, and QUIC.
fn by_datagrams(
    address: SocketAddr,
    mut quic: QuicServer,
) -> io::Result<(Arc<ProbePort>, (QuicPort, IncomingStreams))> {
    let SharedPort { marked, other } = bankfull_sys::share_udp_port(address, PROBE_MAGIC)?;
    quic.sibling = Some(marked.try_clone()?);
    Ok((ProbePort::from_socket(marked)?, QuicPort::server(other, quic)?))
}

/// Whether a data connection only came after its session, or its client, had ended.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

/// Answers whoever speaks something else; a browser or curl deserves words.
fn turn_away(socket: &mut Socket, peer: &str) -> Error {
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
