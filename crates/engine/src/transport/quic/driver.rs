//! Thread of a UDP socket: receives datagrams, passes them to connections, and sends in batches.

mod admission;

use super::connection::{
    ConnectionInner, ConnectionParams, ConnectionState, QuicStream, error_kind,
};
use super::waker::{WakeReader, Waker};
use crate::base::sync::lock;
use crate::transport::buffer_pool::{BufferPool, UnreadQuota};
use crate::transport::udp_receive_buffer::UdpReceiveBuffer;
use bankfull_control::rrda::EPOCH_INTERVAL;
use bytes::BytesMut;
use quinn_proto::{
    ClientConfig, ConnectError, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, Event,
    ServerConfig, Transmit,
};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum UDP payload over IPv4 (RFC 768); IPv6 allows slightly more.
const MAX_DATAGRAM_BYTES: usize = 65_507;

/// Batches a connection sends before other connections and received datagrams are served. (chosen:
/// half a megabyte at most)
const MAX_BATCHES_PER_TURN: usize = 8;

/// Unfinished handshakes beyond which clients must validate their address. (RFC 9000 §8.1.2;
/// chosen: a session has two)
const MAX_UNVALIDATED: usize = 8;

/// Lifetime of a connection without streams. (chosen: the time a client may take for its first
/// request)
const UNUSED_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay after which a repeated ICMP "port unreachable" ends a connection. Applies if the
/// connection did not answer a PING. (chosen: a forged ICMP message cannot suppress the answer)
const REFUSAL_CONFIRM_TIME: Duration = Duration::from_secs(2);

/// Maximum sleep of the thread. (chosen: delay in detecting unused connections)
const MAX_SLEEP: Duration = Duration::from_secs(5);

/// Accepting side of a socket.
pub(crate) struct Listener {
    /// Returns the configuration for connections from an address.
    pub(crate) config: Box<dyn Fn(SocketAddr) -> (Arc<ServerConfig>, ConnectionParams) + Send>,
    /// Limit of authenticated connections.
    pub(crate) connections_max: usize,
    /// Limit of connections that have not authenticated.
    pub(crate) strangers_max: usize,
    /// Receives the streams opened by clients.
    pub(crate) streams: SyncSender<(QuicStream, SocketAddr)>,
}

/// Resources of a socket.
pub(crate) struct Driver {
    /// Shared with connecting threads.
    pub(crate) endpoint: Arc<Mutex<Endpoint>>,
    pub(crate) socket: UdpSocket,
    pub(crate) udp: UdpSocketState,
    pub(crate) waker: Arc<Waker>,
    pub(crate) wake_reader: WakeReader,
    /// Connections opened by this side since the last turn.
    pub(crate) new_connections: Arc<Mutex<Vec<Arc<ConnectionInner>>>>,
    pub(crate) listener: Option<Listener>,
    /// Receive buffer of the socket, if the kernel reports its fill level.
    pub(crate) receive_buffer: Option<UdpReceiveBuffer>,
    /// Buffer pool, which limits the memory for unread data.
    pub(crate) buffer_pool: Arc<BufferPool>,
    /// Second socket on the same port, which may get the ICMP errors of this one.
    pub(crate) sibling: Option<UdpSocket>,
}

/// Connection and its schedule.
struct ConnectionEntry {
    conn: Arc<ConnectionInner>,
    accepted_at: Instant,
    /// Share of memory, once the peer is authenticated.
    unread_quota: Option<UnreadQuota>,
    next_timeout: Option<Instant>,
    is_ready: bool,
    /// Time of an ICMP "port unreachable", if nothing was received since.
    refused_at: Option<Instant>,
}

/// State of the event loop.
struct EventLoop {
    driver: Driver,
    connections: HashMap<ConnectionHandle, ConnectionEntry>,
    /// Connections to service, in order.
    ready: VecDeque<ConnectionHandle>,
    /// Datagrams that did not fit into the socket's send buffer.
    blocked_transmit: Option<Transmit>,
    send_buffer: Vec<u8>,
    receive_buffers: Vec<u8>,
    /// Streams to drop once no connection is locked.
    rejected_streams: Vec<QuicStream>,
}

impl Driver {
    /// Runs until stopped; then closes all connections.
    pub(crate) fn run(self) {
        let receive_buffers = vec![0; BATCH_SIZE * MAX_DATAGRAM_BYTES.next_power_of_two()];
        let mut event_loop = EventLoop {
            driver: self,
            connections: HashMap::new(),
            ready: VecDeque::new(),
            blocked_transmit: None,
            send_buffer: Vec::with_capacity(MAX_DATAGRAM_BYTES),
            receive_buffers,
            rejected_streams: Vec::new(),
        };
        while !event_loop.driver.waker.is_stopped() {
            let has_received = event_loop.receive();
            event_loop.collect_ready();
            let has_sent = event_loop.send();
            event_loop.rejected_streams.clear();
            if !has_received && !has_sent {
                event_loop.sleep();
            }
        }
        event_loop.close_all();
    }
}

/// Opens a connection and hands it to the driver.
pub(crate) fn connect(
    endpoint: &Mutex<Endpoint>,
    new_connections: &Mutex<Vec<Arc<ConnectionInner>>>,
    waker: &Arc<Waker>,
    (config, params): (ClientConfig, ConnectionParams),
    address: SocketAddr,
) -> Result<Arc<ConnectionInner>, ConnectError> {
    let (handle, connection) =
        lock(endpoint).connect(Instant::now(), config, address, super::SERVER_NAME)?;
    let conn = ConnectionInner::new(handle, connection, Arc::clone(waker), params);
    lock(new_connections).push(Arc::clone(&conn));
    waker.notify(handle);
    Ok(conn)
}

impl ConnectionEntry {
    /// Handles an ICMP "port unreachable" of the peer; returns whether a PING was queued.
    fn on_refusal(&mut self) -> bool {
        let mut state = self.conn.state();
        let is_probed = state.is_connected && self.refused_at.is_none();
        if is_probed {
            self.refused_at = Some(Instant::now());
            state.connection.ping();
        } else if self.refused_at.is_none_or(|since| since.elapsed() > REFUSAL_CONFIRM_TIME) {
            let kind = io::ErrorKind::ConnectionRefused;
            self.conn.on_closed(&mut state, kind, kind.to_string());
        }
        is_probed
    }
}

impl EventLoop {
    /// Receives datagrams; returns whether there were any.
    fn receive(&mut self) -> bool {
        if let Some(buffer) = &mut self.driver.receive_buffer {
            buffer.sample(&self.driver.socket);
            buffer.advance(&self.driver.socket, Instant::now());
        }
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut buffers = std::mem::take(&mut self.receive_buffers);
        let len = buffers.len() / BATCH_SIZE;
        let mut parts: Vec<IoSliceMut<'_>> = buffers.chunks_mut(len).map(IoSliceMut::new).collect();
        let socket = UdpSockRef::from(&self.driver.socket);
        let received = self.driver.udp.recv(socket, &mut parts, &mut metas);
        let now = Instant::now();
        if let Err(error) = &received {
            self.on_error(error);
        }
        let count = received.unwrap_or(0);
        for (meta, part) in metas.iter().zip(&parts).take(count) {
            // The kernel counts coalesced datagrams as one.
            if let Some(buffer) = &mut self.driver.receive_buffer {
                buffer.on_received(meta.len);
            }
            let mut rest = &part[..meta.len];
            while !rest.is_empty() {
                let datagram;
                (datagram, rest) = rest.split_at(meta.stride.min(rest.len()));
                self.on_datagram(now, meta, datagram);
            }
        }
        self.receive_buffers = buffers;
        count > 0
    }

    /// Handles a socket error, which may have been caused by ICMP.
    fn on_error(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::WouldBlock {
            self.drain_refusals();
        }
    }

    /// Reads the error queues of both sockets and handles "port unreachable" of the peers.
    fn drain_refusals(&mut self) {
        let Driver { socket, sibling, .. } = &self.driver;
        let sockets = [Some(socket), sibling.as_ref()].into_iter().flatten();
        let refused = |socket| bankfull_sys::next_rejected_destination(socket).ok().flatten();
        let refusals = sockets.flat_map(|socket| std::iter::from_fn(move || refused(socket)));
        for peer in refusals.collect::<Vec<_>>() {
            let mut probed = Vec::new();
            for (&handle, entry) in &mut self.connections {
                if entry.conn.state().connection.remote_address() == peer && entry.on_refusal() {
                    probed.push(handle);
                }
            }
            probed.into_iter().for_each(|handle| self.make_ready(handle));
        }
    }

    fn on_datagram(&mut self, now: Instant, meta: &RecvMeta, datagram: &[u8]) {
        let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
        let mut response = Vec::new();
        let event = lock(&self.driver.endpoint).handle(
            now,
            meta.addr,
            meta.dst_ip,
            ecn,
            BytesMut::from(datagram),
            &mut response,
        );
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(entry) = self.connections.get_mut(&handle) {
                    entry.refused_at = None;
                    entry.conn.state().connection.handle_event(event);
                    self.make_ready(handle);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.admit(now, incoming),
            // A failed send counts as a lost datagram.
            Some(DatagramEvent::Response(transmit)) => {
                let _ = self.transmit(&transmit, &response);
            }
            None => {}
        }
    }

    fn insert(&mut self, conn: Arc<ConnectionInner>) {
        let handle = conn.handle();
        let entry = ConnectionEntry {
            conn,
            accepted_at: Instant::now(),
            unread_quota: None,
            next_timeout: None,
            is_ready: false,
            refused_at: None,
        };
        self.connections.insert(handle, entry);
        self.make_ready(handle);
    }

    fn make_ready(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.connections.get_mut(&handle)
            && !std::mem::replace(&mut entry.is_ready, true)
        {
            self.ready.push_back(handle);
        }
    }

    /// Queues the connections that need service: new, notified or due.
    fn collect_ready(&mut self) {
        // The order matters: a connection is registered before it is notified.
        let notified = self.driver.waker.take_notified();
        let new_connections = std::mem::take(&mut *lock(&self.driver.new_connections));
        new_connections.into_iter().for_each(|conn| self.insert(conn));
        notified.into_iter().for_each(|handle| self.make_ready(handle));
        let now = Instant::now();
        let is_due =
            |entry: &ConnectionEntry| entry.next_timeout.is_some_and(|timeout| timeout <= now);
        let due: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, entry)| is_due(entry))
            .map(|(&handle, _)| handle)
            .collect();
        due.into_iter().for_each(|handle| self.make_ready(handle));
    }

    /// Services the ready connections; returns whether more work is left.
    fn send(&mut self) -> bool {
        if let Some(transmit) = self.blocked_transmit.take() {
            let send_buffer = std::mem::take(&mut self.send_buffer);
            let sent = self.transmit(&transmit, &send_buffer);
            self.send_buffer = send_buffer;
            if would_block(&sent) {
                self.blocked_transmit = Some(transmit);
                return false;
            }
        }
        for _ in 0..self.ready.len() {
            let Some(handle) = self.ready.pop_front() else { break };
            let Some(entry) = self.connections.get_mut(&handle) else { continue };
            entry.is_ready = false;
            let conn = Arc::clone(&entry.conn);
            if self.service(&conn) {
                self.make_ready(handle);
            }
            if self.blocked_transmit.is_some() {
                return false;
            }
        }
        !self.ready.is_empty()
    }

    /// Services a connection: timers, events, packets. Returns whether it has more to send.
    fn service(&mut self, conn: &Arc<ConnectionInner>) -> bool {
        conn.clear_notified();
        self.set_windows(conn);
        let mut has_more = true;
        for _ in 0..MAX_BATCHES_PER_TURN {
            let now = Instant::now();
            let mut state = conn.state();
            if state.connection.poll_timeout().is_some_and(|timeout| timeout <= now) {
                state.connection.handle_timeout(now);
            }
            self.dispatch_events(conn, &mut state);
            self.send_buffer.clear();
            let mtu = usize::from(state.connection.current_mtu());
            let burst = conn.gate().begin_batch(now).unwrap_or(u64::MAX);
            let bytes = usize::try_from(burst).unwrap_or(usize::MAX).min(MAX_DATAGRAM_BYTES);
            let max_datagrams = (bytes / mtu).clamp(1, self.driver.udp.max_gso_segments());
            let transmit =
                state.connection.poll_transmit(now, max_datagrams, &mut self.send_buffer);
            conn.gate().end_batch();
            drop(state);
            let Some(transmit) = transmit else {
                has_more = false;
                break;
            };
            let send_buffer = std::mem::take(&mut self.send_buffer);
            let sent = self.transmit(&transmit, &send_buffer);
            self.send_buffer = send_buffer;
            if would_block(&sent) {
                self.blocked_transmit = Some(transmit);
                break;
            }
            if let Err(error) = sent {
                self.on_send_error(conn, &error);
            }
        }
        self.finish_service(conn);
        has_more
    }

    /// Closes a connection whose first datagrams cannot be sent. Applies only if this socket is its
    /// only one.
    fn on_send_error(&self, conn: &ConnectionInner, error: &io::Error) {
        let mut state = conn.state();
        if self.driver.listener.is_none() && !state.is_connected && is_unreachable(error) {
            conn.on_closed(&mut state, error.kind(), error.to_string());
        }
    }

    /// Dispatches events of a connection to the endpoint and to the threads that use it.
    fn dispatch_events(&mut self, conn: &Arc<ConnectionInner>, state: &mut ConnectionState) {
        while let Some(event) = state.connection.poll_endpoint_events() {
            let response = lock(&self.driver.endpoint).handle_event(conn.handle(), event);
            if let Some(event) = response {
                state.connection.handle_event(event);
            }
        }
        while let Some(event) = state.connection.poll() {
            match event {
                Event::Connected => conn.on_connected(state),
                Event::ConnectionLost { reason } => {
                    conn.on_closed(state, error_kind(&reason), reason.to_string());
                }
                Event::Stream(event) => {
                    let opened = conn.on_stream(state, event);
                    let peer = state.connection.remote_address();
                    for id in opened {
                        let stream = QuicStream::new(conn, state, id, None);
                        self.deliver_stream(stream, peer);
                    }
                }
                _ => {}
            }
        }
    }

    fn deliver_stream(&mut self, stream: QuicStream, peer: SocketAddr) {
        let rejected = match &self.driver.listener {
            // A crowd opens streams faster than they are accepted.
            Some(listener) => listener.streams.try_send((stream, peer)).err().map(|e| match e {
                TrySendError::Full((stream, _)) | TrySendError::Disconnected((stream, _)) => stream,
            }),
            None => Some(stream),
        };
        // Dropped later, since its connection is locked here.
        self.rejected_streams.extend(rejected);
    }

    /// Updates the windows of an authenticated connection before it sends. MAX_DATA is then sent at
    /// once.
    fn set_windows(&mut self, conn: &ConnectionInner) {
        let mut state = conn.state();
        if let Some(entry) =
            self.connections.get_mut(&conn.handle()).filter(|_| state.is_authenticated())
        {
            let quota =
                entry.unread_quota.get_or_insert_with(|| self.driver.buffer_pool.unread_quota());
            state.set_windows(quota.limit());
        }
    }

    /// Schedules the next service of a connection, or removes it if drained.
    fn finish_service(&mut self, conn: &Arc<ConnectionInner>) {
        let mut state = conn.state();
        if self.driver.listener.is_some()
            && state.unused_since.is_some_and(|since| since.elapsed() > UNUSED_TIMEOUT)
        {
            drop(state);
            conn.close();
            state = conn.state();
        }
        self.dispatch_events(conn, &mut state);
        let paced_until = conn.gate().next_send(Instant::now());
        let next_timeout =
            [state.connection.poll_timeout(), paced_until].into_iter().flatten().min();
        let is_drained = state.connection.is_drained();
        drop(state);
        if is_drained {
            self.connections.remove(&conn.handle());
        } else if let Some(entry) = self.connections.get_mut(&conn.handle()) {
            entry.next_timeout = next_timeout;
        }
    }

    fn transmit(&mut self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let sent = self.driver.udp.try_send(
            UdpSockRef::from(&self.driver.socket),
            &quinn_udp::Transmit {
                destination: transmit.destination,
                ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
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

    /// Sleeps until a datagram, a notification, or a timer.
    fn sleep(&mut self) {
        // Unread errors would wake the thread repeatedly, and occupy the receive buffer.
        self.drain_refusals();
        if !self.driver.waker.prepare_sleep() {
            return;
        }
        let now = Instant::now();
        let timeout = self.connections.values().filter_map(|entry| entry.next_timeout).min();
        let is_above_min =
            self.driver.receive_buffer.as_ref().is_some_and(UdpReceiveBuffer::is_above_min);
        let max_sleep = if is_above_min { EPOCH_INTERVAL } else { MAX_SLEEP };
        let sleep =
            timeout.map_or(max_sleep, |at| at.saturating_duration_since(now).min(max_sleep));
        let Driver { socket, wake_reader, .. } = &mut self.driver;
        let woken = bankfull_sys::wait_either(
            &wake_reader.0,
            &*socket,
            self.blocked_transmit.is_some(),
            sleep,
        );
        self.driver.waker.on_awake();
        if woken.is_ok_and(|woken| woken) {
            self.driver.wake_reader.clear();
        }
        if sleep == MAX_SLEEP {
            let handles: Vec<_> = self.connections.keys().copied().collect();
            handles.into_iter().for_each(|handle| self.make_ready(handle));
        }
    }

    /// Closes all connections and notifies their peers once.
    fn close_all(&mut self) {
        self.collect_ready();
        let connections: Vec<_> =
            self.connections.values().map(|entry| Arc::clone(&entry.conn)).collect();
        for conn in connections {
            conn.close();
            self.service(&conn);
        }
    }
}

impl Drop for EventLoop {
    /// Ends all waits, whatever ended the thread.
    fn drop(&mut self) {
        self.driver.waker.stop();
        let new_connections = std::mem::take(&mut *lock(&self.driver.new_connections));
        for conn in new_connections.iter().chain(self.connections.values().map(|entry| &entry.conn))
        {
            let reason = "the thread of its socket has ended".to_owned();
            conn.on_closed(&mut conn.state(), io::ErrorKind::NotConnected, reason);
        }
    }
}

/// True if there is no route, or no permission, to send to the address.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, PermissionDenied};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | PermissionDenied)
}

/// True if the socket's send buffer was full.
fn would_block(sent: &io::Result<()>) -> bool {
    sent.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
}
