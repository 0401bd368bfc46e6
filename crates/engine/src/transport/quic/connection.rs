//! QUIC connection and its streams, used by threads like sockets.
//!
//! The driver moves the packets; each change here notifies it.

use super::congestion::SendGate;
use super::waker::Waker;
use super::windows::Windows;
use crate::base::sync::lock;
use crate::stats::quic_stats::QuicStats;
use crate::transport::udp_receive_buffer::{BufferAdvice, ReceiveBufferLog};
use bytes::Bytes;
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, Dir, ReadError, StreamEvent, StreamId,
    TransportErrorCode, VarInt, WriteError,
};
use rustls::pki_types::CertificateDer;
use std::collections::HashMap;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::debug;

/// Bytes passed to the connection at once; copied outside its lock. (chosen: the largest datagram
/// of the loopback interface)
const MAX_WRITE_BYTES: usize = 64 << 10;

/// QUIC connection, shared by its streams and the driver.
pub(crate) struct ConnectionInner {
    handle: ConnectionHandle,
    waker: Arc<Waker>,
    state: Mutex<ConnectionState>,
    /// Signals the end of the handshake, a higher stream limit, or the close.
    changed: Condvar,
    /// True if the driver is notified and has not serviced the connection yet.
    is_notified: AtomicBool,
    params: ConnectionParams,
}

/// Parameters of a connection.
pub(crate) struct ConnectionParams {
    /// Paces, and lets the close be sent while the congestion window is full.
    pub(crate) gate: SendGate,
    /// Limit of a blocked write without progress on any stream of the connection.
    pub(crate) timeout: Duration,
    /// True if this side opened the connection; its peer is authenticated from the start.
    pub(crate) is_local: bool,
    /// Initial receive and send window.
    pub(crate) windows: (bankfull_control::Bytes, bankfull_control::Bytes),
    /// Log of its socket's receive buffer.
    pub(crate) receive_buffer_log: ReceiveBufferLog,
}

/// State shared by the threads of a connection.
pub(crate) struct ConnectionState {
    pub(crate) connection: Connection,
    streams: HashMap<StreamId, Arc<StreamSignals>>,
    windows: Windows,
    pub(crate) is_connected: bool,
    close_reason: Option<(io::ErrorKind, String)>,
    /// Time when a stream last passed on data to send.
    last_progress: Instant,
    /// Lost packets that a stream has reported already.
    reported_lost_packets: u64,
    /// Time since which there are no streams.
    pub(crate) unused_since: Option<Instant>,
}

/// Signals of a stream to its threads.
#[derive(Default)]
struct StreamSignals {
    readable: Condvar,
    writable: Condvar,
    /// True once all data is acknowledged, or cannot be any more.
    is_send_done: AtomicBool,
}

impl ConnectionInner {
    pub(crate) fn new(
        handle: ConnectionHandle,
        connection: Connection,
        waker: Arc<Waker>,
        params: ConnectionParams,
    ) -> Arc<Self> {
        let state = ConnectionState {
            connection,
            streams: HashMap::new(),
            windows: Windows::new(Instant::now(), params.windows, params.is_local),
            is_connected: false,
            close_reason: None,
            last_progress: Instant::now(),
            reported_lost_packets: 0,
            unused_since: Some(Instant::now()),
        };
        Arc::new(Self {
            handle,
            waker,
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_notified: AtomicBool::new(false),
            params,
        })
    }

    pub(crate) fn handle(&self) -> ConnectionHandle {
        self.handle
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ConnectionState> {
        lock(&self.state)
    }

    /// Notifies the driver that the connection needs service.
    fn notify_driver(&self) {
        if !self.is_notified.swap(true, Ordering::SeqCst) {
            self.waker.notify(self.handle);
        }
    }

    /// Clears the notification; the driver starts to service the connection.
    pub(crate) fn clear_notified(&self) {
        self.is_notified.store(false, Ordering::SeqCst);
    }

    /// Handles an event of a stream; returns streams that the peer has opened.
    pub(crate) fn on_stream(
        &self,
        state: &mut ConnectionState,
        event: StreamEvent,
    ) -> Vec<StreamId> {
        let signals = |state: &ConnectionState, id| state.streams.get(&id).cloned();
        match event {
            StreamEvent::Opened { dir: Dir::Bi } => {
                let accept = || state.connection.streams().accept(Dir::Bi);
                return std::iter::from_fn(accept).collect();
            }
            StreamEvent::Readable { id } => {
                if let Some(signals) = signals(state, id) {
                    signals.readable.notify_all();
                }
            }
            StreamEvent::Writable { id } => {
                if let Some(signals) = signals(state, id) {
                    signals.writable.notify_all();
                }
            }
            StreamEvent::Finished { id } | StreamEvent::Stopped { id, .. } => {
                if let Some(signals) = signals(state, id) {
                    signals.is_send_done.store(true, Ordering::SeqCst);
                    signals.writable.notify_all();
                }
            }
            StreamEvent::Available { .. } => self.changed.notify_all(),
            StreamEvent::Opened { .. } => {}
        }
        Vec::new()
    }

    pub(crate) fn on_connected(&self, state: &mut ConnectionState) {
        state.is_connected = true;
        self.changed.notify_all();
    }

    /// Records the end of the connection and wakes all waiting threads.
    pub(crate) fn on_closed(
        &self,
        state: &mut ConnectionState,
        kind: io::ErrorKind,
        reason: String,
    ) {
        if state.close_reason.is_none() {
            let (address, reason) = (state.connection.remote_address(), &*reason);
            debug!(%address, reason, "QUIC connection closed");
        }
        state.close_reason.get_or_insert((kind, reason));
        self.changed.notify_all();
        for signals in state.streams.values() {
            signals.is_send_done.store(true, Ordering::SeqCst);
            signals.readable.notify_all();
            signals.writable.notify_all();
        }
    }

    /// Waits for the end of the handshake.
    pub(crate) fn wait_connected(&self, timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        loop {
            state.check_open()?;
            if state.is_connected {
                return Ok(());
            }
            state = wait(&self.changed, state, Some(deadline))?;
        }
    }

    /// Returns the certificate that the peer has presented.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let identity = self.state().connection.crypto_session().peer_identity()?;
        let certificates = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        certificates.into_iter().next()
    }

    /// Exports keying material (RFC 5705); `None` before the end of the handshake.
    pub(crate) fn export(&self, out: &mut [u8], label: &[u8]) -> Option<()> {
        self.state().connection.crypto_session().export_keying_material(out, label, &[]).ok()
    }

    /// Opens a stream; waits until the peer allows one more.
    pub(crate) fn open(self: &Arc<Self>, timeout: Duration) -> io::Result<StreamId> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        loop {
            state.check_open()?;
            if let Some(id) = state.connection.streams().open(Dir::Bi) {
                return Ok(id);
            }
            state = wait(&self.changed, state, Some(deadline))?;
        }
    }

    /// Returns the pacing and close that its congestion controller shares.
    pub(super) fn gate(&self) -> &SendGate {
        &self.params.gate
    }

    /// Closes the connection and notifies the peer.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        self.params.gate.close_connection();
        state.connection.close(Instant::now(), VarInt::from_u32(0), Bytes::new());
        self.on_closed(&mut state, io::ErrorKind::NotConnected, "closed locally".to_owned());
        drop(state);
        self.notify_driver();
    }
}

/// Waits for a signal; `WouldBlock` after the deadline.
fn wait<'a>(
    signal: &Condvar,
    state: MutexGuard<'a, ConnectionState>,
    deadline: Option<Instant>,
) -> io::Result<MutexGuard<'a, ConnectionState>> {
    let Some(deadline) = deadline else {
        return Ok(signal.wait(state).unwrap_or_else(PoisonError::into_inner));
    };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(signal.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
}

impl ConnectionState {
    /// Updates the windows within `limit`.
    pub(crate) fn set_windows(&mut self, limit: bankfull_control::Bytes) {
        self.windows.advance(&mut self.connection, limit, Instant::now());
    }

    /// True if the peer is authenticated.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.windows.is_authenticated()
    }

    /// Returns the error of a closed connection.
    fn check_open(&self) -> io::Result<()> {
        let error =
            |(kind, reason): &(io::ErrorKind, String)| io::Error::new(*kind, reason.clone());
        self.close_reason.as_ref().map(error).map_or(Ok(()), Err)
    }
}

/// Maps the end of a connection to an I/O error kind.
pub(crate) fn error_kind(error: &ConnectionError) -> io::ErrorKind {
    match error {
        ConnectionError::TimedOut => io::ErrorKind::TimedOut,
        ConnectionError::LocallyClosed => io::ErrorKind::NotConnected,
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            io::ErrorKind::ResourceBusy
        }
        ConnectionError::ConnectionClosed(_)
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset => io::ErrorKind::ConnectionReset,
        _ => io::ErrorKind::Other,
    }
}

/// Bidirectional stream, used like a socket.
#[derive(Clone)]
pub(crate) struct QuicStream(Arc<StreamInner>);

struct StreamInner {
    conn: Arc<ConnectionInner>,
    id: StreamId,
    signals: Arc<StreamSignals>,
    /// In microseconds; zero disables it.
    read_timeout: AtomicU64,
    /// True if reading has ended.
    is_read_closed: AtomicBool,
    /// True once both directions are closed by this side.
    is_closed_locally: AtomicBool,
    /// Keeps the connection open while the stream exists.
    _close_guard: Option<Arc<dyn Send + Sync>>,
}

impl std::fmt::Debug for QuicStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("QuicStream").field(&self.0.id).finish()
    }
}

impl QuicStream {
    pub(crate) fn new(
        conn: &Arc<ConnectionInner>,
        state: &mut ConnectionState,
        id: StreamId,
        close_guard: Option<Arc<dyn Send + Sync>>,
    ) -> Self {
        let signals = Arc::new(StreamSignals::default());
        state.streams.insert(id, Arc::clone(&signals));
        state.unused_since = None;
        Self(Arc::new(StreamInner {
            conn: Arc::clone(conn),
            id,
            signals,
            read_timeout: AtomicU64::new(0),
            is_read_closed: AtomicBool::new(false),
            is_closed_locally: AtomicBool::new(false),
            _close_guard: close_guard,
        }))
    }

    /// Exports keying material (RFC 5705) of the connection.
    pub(crate) fn export(&self, out: &mut [u8], label: &[u8]) -> Option<()> {
        self.0.conn.export(out, label)
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) {
        let micros = timeout.map_or(0, |timeout| timeout.as_micros().max(1) as u64);
        self.0.read_timeout.store(micros, Ordering::Relaxed);
    }

    /// Closes both directions: sent data still arrives, and blocked readers are woken.
    pub(crate) fn shutdown(&self) {
        self.0.close();
    }

    /// Closes the receiving direction; sending continues.
    pub(crate) fn stop_reading(&self) {
        self.0.is_read_closed.store(true, Ordering::SeqCst);
        let _state = self.0.conn.state();
        self.0.signals.readable.notify_all();
    }

    /// True once the connection is closed, or reading was stopped.
    pub(crate) fn is_ended(&self) -> bool {
        self.0.is_read_closed.load(Ordering::SeqCst) || self.0.conn.state().close_reason.is_some()
    }

    /// Waits until all data is acknowledged, or no longer can be.
    pub(crate) fn wait_until_acked(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut state = self.0.conn.state();
        let _ = state.connection.send_stream(self.0.id).finish();
        self.0.conn.notify_driver();
        while state.close_reason.is_none() && !self.0.signals.is_send_done.load(Ordering::SeqCst) {
            match wait(&self.0.signals.writable, state, Some(deadline)) {
                Ok(later) => state = later,
                Err(_) => return,
            }
        }
    }

    pub(crate) fn rtt(&self) -> Duration {
        self.0.conn.state().connection.rtt()
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.0.conn.state().connection.remote_address()
    }

    /// Returns advice about the socket's receive buffer, if datagrams are dropped from now on.
    pub(crate) fn advice(&self) -> BufferAdvice {
        self.0.conn.params.receive_buffer_log.advice()
    }

    /// Returns the statistics of the whole connection.
    pub(crate) fn stats(&self) -> QuicStats {
        let state = self.0.conn.state();
        let stats = state.connection.stats();
        QuicStats {
            rtt: stats.path.rtt,
            sent: stats.udp_tx.bytes,
            received: stats.udp_rx.bytes,
            lost: stats.path.lost_bytes,
            lost_packets: stats.path.lost_packets,
            segment: bankfull_control::Bytes(stats.path.current_mtu.into()),
            windows: state.windows.sizes(),
            udp_buffer_change: self.0.conn.params.receive_buffer_log.last_change(),
        }
    }

    /// Returns the packets lost since the last call on any stream of the connection.
    pub(crate) fn newly_lost_packets(&self) -> u64 {
        let mut state = self.0.conn.state();
        let lost = state.connection.stats().path.lost_packets;
        lost - std::mem::replace(&mut state.reported_lost_packets, lost)
    }

    /// Marks the peer as authenticated, which widens its receive window.
    pub(crate) fn set_authenticated(&self) {
        self.0.conn.state().windows.set_authenticated();
        self.0.conn.notify_driver();
    }
}

impl StreamInner {
    fn close(&self) {
        if self.is_closed_locally.swap(true, Ordering::SeqCst) {
            return;
        }
        self.is_read_closed.store(true, Ordering::SeqCst);
        let mut state = self.conn.state();
        let _ = state.connection.send_stream(self.id).finish();
        let _ = state.connection.recv_stream(self.id).stop(VarInt::from_u32(0));
        self.signals.readable.notify_all();
        self.signals.writable.notify_all();
        drop(state);
        self.conn.notify_driver();
    }

    /// Returns received data, up to `max_bytes`; `None` if there is none yet.
    fn read_chunks(
        &self,
        state: &mut ConnectionState,
        max_bytes: usize,
    ) -> io::Result<Option<Vec<Bytes>>> {
        let mut stream = state.connection.recv_stream(self.id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(Some(Vec::new())) };
        let (mut received, mut left) = (Vec::new(), max_bytes);
        let is_finished = loop {
            match chunks.next(left) {
                Ok(Some(chunk)) => {
                    left -= chunk.bytes.len();
                    received.push(chunk.bytes);
                    if left == 0 {
                        break Ok(false);
                    }
                }
                Ok(None) => break Ok(true),
                Err(ReadError::Blocked) => break Ok(false),
                Err(ReadError::Reset(_)) => break Err(io::ErrorKind::ConnectionReset.into()),
            }
        };
        if chunks.finalize().should_transmit() {
            self.conn.notify_driver();
        }
        state.windows.on_read(max_bytes - left);
        match (received.is_empty(), is_finished) {
            (true, Err(e)) => Err(e),
            (true, Ok(false)) => Ok(None),
            _ => Ok(Some(received)),
        }
    }

    fn write_chunk(&self, chunk: &mut [Bytes; 1]) -> io::Result<()> {
        let mut state = self.conn.state();
        let start = Instant::now();
        while !chunk[0].is_empty() {
            if self.is_closed_locally.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            state.check_open()?;
            match state.connection.send_stream(self.id).write_chunks(chunk) {
                Ok(_) => {
                    state.last_progress = Instant::now();
                    self.conn.notify_driver();
                }
                Err(WriteError::Blocked) => {
                    // Streams share the connection's window: progress of one means that the others
                    // will be served.
                    let blocked = state.last_progress.max(start).elapsed();
                    let left = self.conn.params.timeout.saturating_sub(blocked);
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    let waited = self.signals.writable.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Err(WriteError::Stopped(_)) => return Err(io::ErrorKind::ConnectionReset.into()),
                Err(WriteError::ClosedStream) => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
        Ok(())
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        self.close();
        let mut state = self.conn.state();
        state.streams.remove(&self.id);
        if state.streams.is_empty() {
            state.unused_since = Some(Instant::now());
        }
    }
}

impl Read for QuicStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let timeout = match self.0.read_timeout.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Instant::now() + Duration::from_micros(micros)),
        };
        let mut state = self.0.conn.state();
        let received = loop {
            if self.0.is_read_closed.load(Ordering::SeqCst) {
                return Ok(0);
            }
            if let Some(received) = self.0.read_chunks(&mut state, out.len())? {
                break received;
            }
            state.check_open()?;
            state = wait(&self.0.signals.readable, state, timeout)?;
        };
        drop(state);
        let mut filled = 0;
        for bytes in &received {
            out[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        }
        Ok(filled)
    }
}

impl Write for QuicStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(MAX_WRITE_BYTES)];
        self.0.write_chunk(&mut [Bytes::copy_from_slice(part)])?;
        Ok(part.len())
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut chunk = Vec::with_capacity(MAX_WRITE_BYTES);
        for part in parts {
            chunk.extend_from_slice(&part[..part.len().min(MAX_WRITE_BYTES - chunk.len())]);
        }
        let len = chunk.len();
        self.0.write_chunk(&mut [Bytes::from(chunk)])?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
