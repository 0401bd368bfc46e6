//! The thread of a UDP socket: it takes what comes, hands it to the connections, and sends what
//! they have to send, in batches.

use super::link::{Link, QuicStream, State, Terms, kind_of};
use super::waker::{Alarm, Waker};
use crate::datagram_room::DatagramRoom;
use crate::net::control::lock;
use crate::net::staging::{Staging, Unread};
use bankfull_control::rrda::EPOCH;
use bytes::BytesMut;
use quinn_proto::{
    ClientConfig, ConnectError, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint,
    EndpointEvent, Event, Incoming, ServerConfig, Transmit,
};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a UDP datagram holds at most. (RFC 768; over IPv6 a little more)
const DATAGRAM_BYTES: usize = 65_507;

/// Batches that one connection sends before others, and what has come, have their turn. (ours: half
/// a megabyte at most)
const BATCHES: usize = 8;

/// From so many connections on whose handshake is not over, others have to show first that what is
/// sent to where they say they are reaches them. (RFC 9000, §8.1.2; ours: a session has two)
const UNPROVED_MAX: usize = 8;

/// A connection without a stream is ended after so long. (as long as one may take to say what it
/// wants)
const UNUSED_MAX: Duration = Duration::from_secs(30);

/// A host that says that nobody has the port is believed of a connection that was asked for a sign
/// of life then, if none has come for so long and it is said again. (ours: whoever would forge that
/// cannot keep the other side from answering)
const SILENT: Duration = Duration::from_secs(2);

/// No longer than this does the thread sleep. (ours: how late unused connections may be seen)
const SLEEP_MAX: Duration = Duration::from_secs(5);

/// The serving side of a socket.
pub(super) struct Serving {
    /// As it is for whoever comes from there, and how that connection is treated.
    pub(super) config: Box<dyn Fn(SocketAddr) -> (Arc<ServerConfig>, Terms) + Send>,
    /// So many connections are taken.
    pub(super) connections_max: usize,
    /// Where streams go that others have opened.
    pub(super) streams: Sender<(QuicStream, SocketAddr)>,
}

/// What belongs to a socket.
pub(super) struct Driver {
    /// Shared with those who connect.
    pub(super) endpoint: Arc<Mutex<Endpoint>>,
    pub(super) socket: UdpSocket,
    pub(super) udp: UdpSocketState,
    pub(super) waker: Arc<Waker>,
    pub(super) alarm: Alarm,
    /// Connections that were begun on this side.
    pub(super) begun: Arc<Mutex<Vec<Arc<Link>>>>,
    pub(super) serving: Option<Serving>,
    /// The socket's receive buffer, where the kernel tells how full it is.
    pub(super) room: Option<DatagramRoom>,
    /// What may wait in memory.
    pub(super) staging: Arc<Staging>,
    /// Another socket at the same port, which may be told of what this one has sent.
    pub(super) sibling: Option<UdpSocket>,
}

/// A connection, and when it wants to be looked at without anything having happened.
struct Held {
    link: Arc<Link>,
    since: Instant,
    /// Its part of the memory, once the other side has shown that it may be here.
    unread: Option<Unread>,
    until: Option<Instant>,
    is_ready: bool,
    /// When its host said that nobody has the port, if nothing has come from there since.
    refused: Option<Instant>,
}

/// The state of its loop.
struct Work {
    driver: Driver,
    links: HashMap<ConnectionHandle, Held>,
    /// Connections to look at.
    ready: VecDeque<ConnectionHandle>,
    /// What was to be sent when the socket had no room.
    unsent: Option<Transmit>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// Streams that nobody waits for any more, until no connection is locked.
    unwanted: Vec<QuicStream>,
}

impl Driver {
    /// Runs until it is stopped; then all connections are ended.
    pub(super) fn run(self) {
        let incoming = vec![0; BATCH_SIZE * DATAGRAM_BYTES.next_power_of_two()];
        let mut work = Work {
            driver: self,
            links: HashMap::new(),
            ready: VecDeque::new(),
            unsent: None,
            outgoing: Vec::with_capacity(DATAGRAM_BYTES),
            incoming,
            unwanted: Vec::new(),
        };
        while !work.driver.waker.is_stopped() {
            let has_come = work.receive();
            work.look();
            let has_sent = work.send();
            work.unwanted.clear();
            if !has_come && !has_sent {
                work.sleep();
            }
        }
        work.end();
    }
}

/// Begins a connection; the driver takes it over.
pub(super) fn connect(
    endpoint: &Mutex<Endpoint>,
    begun: &Mutex<Vec<Arc<Link>>>,
    waker: &Arc<Waker>,
    (config, terms): (ClientConfig, Terms),
    address: SocketAddr,
) -> Result<Arc<Link>, ConnectError> {
    let (handle, connection) =
        lock(endpoint).connect(Instant::now(), config, address, super::NAME)?;
    let link = Link::new(handle, connection, Arc::clone(waker), terms);
    lock(begun).push(Arc::clone(&link));
    waker.tell(handle);
    Ok(link)
}

impl Held {
    /// Its host says that nobody has the port. Whether it is asked for a sign of life.
    fn on_refusal(&mut self) -> bool {
        let mut state = self.link.state();
        let is_asked = state.is_connected && self.refused.is_none();
        if is_asked {
            self.refused = Some(Instant::now());
            state.connection.ping();
        } else if self.refused.is_none_or(|since| since.elapsed() > SILENT) {
            let kind = io::ErrorKind::ConnectionRefused;
            self.link.on_over(&mut state, kind, kind.to_string());
        }
        is_asked
    }
}

impl Work {
    /// Takes what has come. Whether anything has.
    fn receive(&mut self) -> bool {
        if let Some(room) = &mut self.driver.room {
            room.look(&self.driver.socket);
            room.advance(&self.driver.socket, Instant::now());
        }
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut incoming = std::mem::take(&mut self.incoming);
        let part = incoming.len() / BATCH_SIZE;
        let mut parts: Vec<IoSliceMut<'_>> =
            incoming.chunks_mut(part).map(IoSliceMut::new).collect();
        let socket = UdpSockRef::from(&self.driver.socket);
        let received = self.driver.udp.recv(socket, &mut parts, &mut metas);
        let now = Instant::now();
        if let Err(error) = &received {
            self.on_error(error);
        }
        let count = received.unwrap_or(0);
        for (meta, part) in metas.iter().zip(&parts).take(count) {
            // The kernel counts what it has joined as one.
            if let Some(room) = &mut self.driver.room {
                room.on_taken(meta.len);
            }
            let mut rest = &part[..meta.len];
            while !rest.is_empty() {
                let datagram;
                (datagram, rest) = rest.split_at(meta.stride.min(rest.len()));
                self.take(now, meta, datagram);
            }
        }
        self.incoming = incoming;
        count > 0
    }

    /// A network has said something of what was sent.
    fn on_error(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::WouldBlock {
            self.hear_refusals();
        }
    }

    /// Takes all that networks have said of what was sent, by this socket or its sibling. Where the
    /// other host says that nobody has the port, whoever waits for it is told.
    fn hear_refusals(&mut self) {
        let Driver { socket, sibling, .. } = &self.driver;
        let sockets = [Some(socket), sibling.as_ref()].into_iter().flatten();
        let refused = |socket| bankfull_sys::refused_by(socket).ok().flatten();
        let heard = sockets.flat_map(|socket| std::iter::from_fn(move || refused(socket)));
        for peer in heard.collect::<Vec<_>>() {
            let mut asked = Vec::new();
            for (&handle, held) in &mut self.links {
                if held.link.state().connection.remote_address() == peer && held.on_refusal() {
                    asked.push(handle);
                }
            }
            asked.into_iter().for_each(|handle| self.make_ready(handle));
        }
    }

    fn take(&mut self, now: Instant, meta: &RecvMeta, datagram: &[u8]) {
        let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
        let mut answer = Vec::new();
        let event = lock(&self.driver.endpoint).handle(
            now,
            meta.addr,
            meta.dst_ip,
            ecn,
            BytesMut::from(datagram),
            &mut answer,
        );
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(held) = self.links.get_mut(&handle) {
                    held.refused = None;
                    held.link.state().connection.handle_event(event);
                    self.make_ready(handle);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.admit(now, incoming),
            // What cannot be sent is lost, as any datagram may be.
            Some(DatagramEvent::Response(transmit)) => {
                let _ = self.transmit(&transmit, &answer);
            }
            None => {}
        }
    }

    /// Takes a connection in, where there is room.
    fn admit(&mut self, now: Instant, incoming: Incoming) {
        let most = self.driver.serving.as_ref().map_or(0, |serving| serving.connections_max);
        // What is kept of ended ones has a bound, too.
        let kept_most = most * 2;
        if most > 0 && self.links.len() >= kept_most {
            self.let_go(|held| held.link.state().connection.is_closed());
        }
        if most > 0 && self.open_count() >= most {
            // Connections of those who have not shown that they may be here keep nobody out.
            self.let_go(|held| {
                let state = held.link.state();
                !state.is_trusted() && !state.connection.is_closed()
            });
        }
        let is_full = self.open_count() >= most || self.links.len() >= kept_most;
        let mut answer = Vec::new();
        let mut endpoint = lock(&self.driver.endpoint);
        let Some(serving) = &self.driver.serving else {
            endpoint.ignore(incoming);
            return;
        };
        let accepted = if is_full {
            Err(Some(endpoint.refuse(incoming, &mut answer)))
        } else if !incoming.remote_address_validated() && self.unproved() >= UNPROVED_MAX {
            Err(endpoint.retry(incoming, &mut answer).ok())
        } else {
            let (config, terms) = (serving.config)(incoming.remote_address());
            let accepted = endpoint.accept(incoming, now, &mut answer, Some(config));
            accepted.map(|new| (new, terms)).map_err(|e| e.response)
        };
        drop(endpoint);
        match accepted {
            Ok(((handle, connection), terms)) => {
                let link = Link::new(handle, connection, Arc::clone(&self.driver.waker), terms);
                self.hold(link);
            }
            Err(Some(transmit)) => drop(self.transmit(&transmit, &answer)),
            Err(None) => {}
        }
    }

    /// Makes room by the connection that has been there for longest of these.
    fn let_go(&mut self, of: impl Fn(&Held) -> bool) {
        let these = self.links.values().filter(|held| of(held));
        let oldest = these.min_by_key(|held| held.since).map(|held| Arc::clone(&held.link));
        let Some(link) = oldest else { return };
        link.close();
        self.turn(&link);
        if self.links.remove(&link.handle()).is_some() {
            lock(&self.driver.endpoint).handle_event(link.handle(), EndpointEvent::drained());
        }
    }

    /// Connections that have not been ended: what is kept of the others for a while, for datagrams
    /// that come late (RFC 9000, §10.2), keeps nobody out.
    fn open_count(&self) -> usize {
        self.links.values().filter(|held| !held.link.state().connection.is_closed()).count()
    }

    /// Connections of which nobody knows yet that they come from where they say.
    fn unproved(&self) -> usize {
        self.links.values().filter(|held| !held.link.state().is_connected).count()
    }

    fn hold(&mut self, link: Arc<Link>) {
        let handle = link.handle();
        let (since, unread, until) = (Instant::now(), None, None);
        let held = Held { link, since, unread, until, is_ready: false, refused: None };
        self.links.insert(handle, held);
        self.make_ready(handle);
    }

    fn make_ready(&mut self, handle: ConnectionHandle) {
        if let Some(held) = self.links.get_mut(&handle)
            && !std::mem::replace(&mut held.is_ready, true)
        {
            self.ready.push_back(handle);
        }
    }

    /// Finds the connections that have something to do.
    fn look(&mut self) {
        // In this order: one that was told of was begun before, or it would be nobody's.
        let told = self.driver.waker.take();
        let begun = std::mem::take(&mut *lock(&self.driver.begun));
        begun.into_iter().for_each(|link| self.hold(link));
        told.into_iter().for_each(|handle| self.make_ready(handle));
        let now = Instant::now();
        let is_due = |held: &Held| held.until.is_some_and(|until| until <= now);
        let due: Vec<_> =
            self.links.iter().filter(|(_, held)| is_due(held)).map(|(&handle, _)| handle).collect();
        due.into_iter().for_each(|handle| self.make_ready(handle));
    }

    /// Lets each connection that is ready have its turn. Whether there is more to do at once.
    fn send(&mut self) -> bool {
        if let Some(transmit) = self.unsent.take() {
            let outgoing = std::mem::take(&mut self.outgoing);
            let sent = self.transmit(&transmit, &outgoing);
            self.outgoing = outgoing;
            if is_full(&sent) {
                self.unsent = Some(transmit);
                return false;
            }
        }
        for _ in 0..self.ready.len() {
            let Some(handle) = self.ready.pop_front() else { break };
            let Some(held) = self.links.get_mut(&handle) else { continue };
            held.is_ready = false;
            let link = Arc::clone(&held.link);
            if self.turn(&link) {
                self.make_ready(handle);
            }
            if self.unsent.is_some() {
                return false;
            }
        }
        !self.ready.is_empty()
    }

    /// What a connection has to do: timers, packets, news. Whether it has more to send.
    fn turn(&mut self, link: &Arc<Link>) -> bool {
        link.begin();
        self.set_windows(link);
        let mut has_more = true;
        for _ in 0..BATCHES {
            let now = Instant::now();
            let mut state = link.state();
            if state.connection.poll_timeout().is_some_and(|until| until <= now) {
                state.connection.handle_timeout(now);
            }
            self.pass_on(link, &mut state);
            self.outgoing.clear();
            let mtu = usize::from(state.connection.current_mtu());
            let most = (DATAGRAM_BYTES / mtu).clamp(1, self.driver.udp.max_gso_segments());
            let transmit = state.connection.poll_transmit(now, most, &mut self.outgoing);
            drop(state);
            let Some(transmit) = transmit else {
                has_more = false;
                break;
            };
            let outgoing = std::mem::take(&mut self.outgoing);
            let sent = self.transmit(&transmit, &outgoing);
            self.outgoing = outgoing;
            if is_full(&sent) {
                self.unsent = Some(transmit);
                break;
            }
            if let Err(error) = sent {
                self.on_unsent(link, &error);
            }
        }
        self.settle(link);
        has_more
    }

    /// Something could not be sent. Where the other side has never been reached, and this socket
    /// has no other, it never will be: it need not be waited for.
    fn on_unsent(&self, link: &Link, error: &io::Error) {
        let mut state = link.state();
        if self.driver.serving.is_none() && !state.is_connected && is_no_way(error) {
            link.on_over(&mut state, error.kind(), error.to_string());
        }
    }

    /// Passes on what a connection has to tell: to the socket's table of connections, and to the
    /// threads that use it.
    fn pass_on(&mut self, link: &Arc<Link>, state: &mut State) {
        while let Some(event) = state.connection.poll_endpoint_events() {
            let answer = lock(&self.driver.endpoint).handle_event(link.handle(), event);
            if let Some(event) = answer {
                state.connection.handle_event(event);
            }
        }
        while let Some(event) = state.connection.poll() {
            match event {
                Event::Connected => link.on_connected(state),
                Event::ConnectionLost { reason } => {
                    link.on_over(state, kind_of(&reason), reason.to_string());
                }
                Event::Stream(event) => {
                    let opened = link.on_stream(state, event);
                    let peer = state.connection.remote_address();
                    for id in opened {
                        let stream = QuicStream::new(link, state, id, None);
                        self.give_out(stream, peer);
                    }
                }
                _ => {}
            }
        }
    }

    fn give_out(&mut self, stream: QuicStream, peer: SocketAddr) {
        let unwanted = match &self.driver.serving {
            Some(serving) => serving.streams.send((stream, peer)).err().map(|unsent| unsent.0.0),
            None => Some(stream),
        };
        // It ends, but not here, where its connection is locked.
        self.unwanted.extend(unwanted);
    }

    /// Gives a connection its part of the memory, where the other side may be here; before it
    /// sends, so that its word of that goes at once.
    fn set_windows(&mut self, link: &Link) {
        let mut state = link.state();
        if let Some(held) = self.links.get_mut(&link.handle()).filter(|_| state.is_trusted()) {
            let unread = held.unread.get_or_insert_with(|| self.driver.staging.unread());
            state.set_windows(unread.most());
        }
    }

    /// When a connection is to be looked at again; lets go of one that is over.
    fn settle(&mut self, link: &Arc<Link>) {
        let mut state = link.state();
        if self.driver.serving.is_some()
            && state.unused.is_some_and(|since| since.elapsed() > UNUSED_MAX)
        {
            drop(state);
            link.close();
            state = link.state();
        }
        self.pass_on(link, &mut state);
        let until = state.connection.poll_timeout();
        let is_over = state.connection.is_drained();
        drop(state);
        if is_over {
            self.links.remove(&link.handle());
        } else if let Some(held) = self.links.get_mut(&link.handle()) {
            held.until = until;
        }
    }

    fn transmit(&mut self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let sent = self.driver.udp.try_send(
            UdpSockRef::from(&self.driver.socket),
            &quinn_udp::Transmit {
                destination: transmit.destination,
                // The window heeds no marks, so none are asked for.
                ecn: None,
                contents: &bytes[..transmit.size],
                segment_size: transmit.segment_size,
                src_ip: transmit.src_ip,
            },
        );
        if let Err(error) = &sent {
            self.on_error(error);
        }
        sent
    }

    /// Sleeps until something comes, somebody has something to send, or a timer is due.
    fn sleep(&mut self) {
        // What nobody takes would wake the thread again and again, and has room that is data's.
        self.hear_refusals();
        if !self.driver.waker.may_sleep() {
            return;
        }
        let now = Instant::now();
        let due = self.links.values().filter_map(|held| held.until).min();
        let is_large = self.driver.room.as_ref().is_some_and(DatagramRoom::is_large);
        let most = if is_large { EPOCH } else { SLEEP_MAX };
        let due = due.map_or(most, |due| due.saturating_duration_since(now).min(most));
        let Driver { socket, alarm, .. } = &mut self.driver;
        let woken = bankfull_sys::wait_either(&alarm.0, &*socket, self.unsent.is_some(), due);
        self.driver.waker.on_awake();
        if woken.is_ok_and(|woken| woken) {
            self.driver.alarm.clear();
        }
        if due == SLEEP_MAX {
            let handles: Vec<_> = self.links.keys().copied().collect();
            handles.into_iter().for_each(|handle| self.make_ready(handle));
        }
    }

    /// Ends all connections, and tells the other sides once.
    fn end(&mut self) {
        self.look();
        let links: Vec<_> = self.links.values().map(|held| Arc::clone(&held.link)).collect();
        for link in links {
            link.close();
            self.turn(&link);
        }
    }
}

impl Drop for Work {
    /// Whatever it is that ends it, nobody waits for it any more.
    fn drop(&mut self) {
        self.driver.waker.stop();
        let begun = std::mem::take(&mut *lock(&self.driver.begun));
        for link in begun.iter().chain(self.links.values().map(|held| &held.link)) {
            let why = "the thread of its socket has ended".to_owned();
            link.on_over(&mut link.state(), io::ErrorKind::NotConnected, why);
        }
    }
}

/// Whether nothing can be sent there from here.
fn is_no_way(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, PermissionDenied};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | PermissionDenied)
}

/// Whether the socket had no room for something.
fn is_full(sent: &io::Result<()>) -> bool {
    sent.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
}
