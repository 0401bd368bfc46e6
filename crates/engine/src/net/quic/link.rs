//! One QUIC connection and its streams, as the threads see them that use them: they read, write and
//! wait as on a socket. What comes and goes is the driver's business; whoever changes something
//! tells it.

use super::congestion::Gate;
use super::sight::QuicSight;
use super::waker::Waker;
use super::windows::Windows;
use crate::datagram_room::{Advice, Shortage};
use crate::net::control::lock;
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

/// Bytes handed over at once: copied outside of the lock that all streams of a connection share.
/// (ours: some packets; as many as a datagram of the loopback interface holds)
const CHUNK_BYTES: usize = 64 << 10;

/// One QUIC connection.
pub(super) struct Link {
    handle: ConnectionHandle,
    waker: Arc<Waker>,
    state: Mutex<State>,
    /// The handshake is over, another stream may be opened, or everything is over.
    changed: Condvar,
    /// Whether the driver was told that there is something to do.
    is_told: AtomicBool,
    terms: Terms,
}

/// How a connection is treated.
pub(super) struct Terms {
    /// What lets out the connection's end.
    pub(super) gate: Gate,
    /// Whoever writes waits no longer than this while the other side takes nothing of any stream.
    pub(super) timeout: Duration,
    /// Whether it was begun here, and so is trusted from the beginning.
    pub(super) is_own: bool,
    /// What it has to receive and to send at first.
    pub(super) windows: (bankfull_control::Bytes, bankfull_control::Bytes),
    /// What is told of its socket's receive buffer.
    pub(super) shortage: Shortage,
}

/// What the threads of a connection share.
pub(super) struct State {
    pub(super) connection: Connection,
    streams: HashMap<StreamId, Arc<Signals>>,
    windows: Windows,
    pub(super) is_connected: bool,
    over: Option<(io::ErrorKind, String)>,
    /// When it last took something that a stream has written.
    took: Instant,
    /// Packets that were lost, as far as some stream has told of them.
    told_lost: u64,
    /// Since when there has been no stream.
    pub(super) unused: Option<Instant>,
}

/// Who waits for a stream.
#[derive(Default)]
struct Signals {
    readable: Condvar,
    writable: Condvar,
    /// All that was written has arrived, or will not any more.
    is_heard: AtomicBool,
}

impl Link {
    pub(super) fn new(
        handle: ConnectionHandle,
        connection: Connection,
        waker: Arc<Waker>,
        terms: Terms,
    ) -> Arc<Self> {
        let state = State {
            connection,
            streams: HashMap::new(),
            windows: Windows::new(Instant::now(), terms.windows, terms.is_own),
            is_connected: false,
            over: None,
            took: Instant::now(),
            told_lost: 0,
            unused: Some(Instant::now()),
        };
        Arc::new(Self {
            handle,
            waker,
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_told: AtomicBool::new(false),
            terms,
        })
    }

    pub(super) fn handle(&self) -> ConnectionHandle {
        self.handle
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The driver has something to do.
    fn tell(&self) {
        if !self.is_told.swap(true, Ordering::SeqCst) {
            self.waker.tell(self.handle);
        }
    }

    /// The driver begins with what there is to do.
    pub(super) fn begin(&self) {
        self.is_told.store(false, Ordering::SeqCst);
    }

    /// Something has happened to a stream; answers with streams that the other side has opened.
    pub(super) fn on_stream(&self, state: &mut State, event: StreamEvent) -> Vec<StreamId> {
        let signals = |state: &State, id| state.streams.get(&id).cloned();
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
                    signals.is_heard.store(true, Ordering::SeqCst);
                    signals.writable.notify_all();
                }
            }
            StreamEvent::Available { .. } => self.changed.notify_all(),
            StreamEvent::Opened { .. } => {}
        }
        Vec::new()
    }

    pub(super) fn on_connected(&self, state: &mut State) {
        state.is_connected = true;
        self.changed.notify_all();
    }

    /// Everything is over: whoever waits is woken.
    pub(super) fn on_over(&self, state: &mut State, kind: io::ErrorKind, why: String) {
        state.over.get_or_insert((kind, why));
        self.changed.notify_all();
        for signals in state.streams.values() {
            signals.is_heard.store(true, Ordering::SeqCst);
            signals.readable.notify_all();
            signals.writable.notify_all();
        }
    }

    /// Waits until the handshake is over.
    pub(super) fn wait_connected(&self, timeout: Duration) -> io::Result<()> {
        let until = Instant::now() + timeout;
        let mut state = self.state();
        loop {
            state.check()?;
            if state.is_connected {
                return Ok(());
            }
            state = wait(&self.changed, state, Some(until))?;
        }
    }

    /// The certificate that the other side has shown.
    pub(super) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let shown = self.state().connection.crypto_session().peer_identity()?;
        let certificates = shown.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        certificates.into_iter().next()
    }

    /// Opens a stream; waits until the other side allows one more.
    pub(super) fn open(self: &Arc<Self>, timeout: Duration) -> io::Result<StreamId> {
        let until = Instant::now() + timeout;
        let mut state = self.state();
        loop {
            state.check()?;
            if let Some(id) = state.connection.streams().open(Dir::Bi) {
                return Ok(id);
            }
            state = wait(&self.changed, state, Some(until))?;
        }
    }

    /// Ends the connection; the other side is told.
    pub(super) fn close(&self) {
        let mut state = self.state();
        self.terms.gate.open();
        state.connection.close(Instant::now(), VarInt::from_u32(0), Bytes::new());
        self.on_over(&mut state, io::ErrorKind::NotConnected, "it was closed here".to_owned());
        drop(state);
        self.tell();
    }
}

/// Waits for a signal; `WouldBlock` when the time is over.
fn wait<'a>(
    signal: &Condvar,
    state: MutexGuard<'a, State>,
    until: Option<Instant>,
) -> io::Result<MutexGuard<'a, State>> {
    let Some(until) = until else {
        return Ok(signal.wait(state).unwrap_or_else(PoisonError::into_inner));
    };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(signal.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
}

impl State {
    /// Sets the windows as the load asks for, to `most` at most.
    pub(super) fn set_windows(&mut self, most: bankfull_control::Bytes) {
        self.windows.advance(&mut self.connection, most, Instant::now());
    }

    /// Whether the other side has shown that it may be here.
    pub(super) fn is_trusted(&self) -> bool {
        self.windows.is_trusted()
    }

    /// An error where everything is over.
    fn check(&self) -> io::Result<()> {
        let error = |(kind, why): &(io::ErrorKind, String)| io::Error::new(*kind, why.clone());
        self.over.as_ref().map(error).map_or(Ok(()), Err)
    }
}

/// What an end of the connection is called elsewhere.
pub(super) fn kind_of(why: &ConnectionError) -> io::ErrorKind {
    match why {
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

/// A stream in both directions, used like a socket.
#[derive(Clone)]
pub(crate) struct QuicStream(Arc<Inner>);

struct Inner {
    link: Arc<Link>,
    id: StreamId,
    signals: Arc<Signals>,
    /// In microseconds; zero: none.
    read_timeout: AtomicU64,
    /// Nothing is read any more; nor written.
    is_deaf: AtomicBool,
    is_shut: AtomicBool,
    /// Kept while the stream is there.
    _owner: Option<Arc<dyn Send + Sync>>,
}

impl std::fmt::Debug for QuicStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("QuicStream").field(&self.0.id).finish()
    }
}

impl QuicStream {
    pub(super) fn new(
        link: &Arc<Link>,
        state: &mut State,
        id: StreamId,
        owner: Option<Arc<dyn Send + Sync>>,
    ) -> Self {
        let signals = Arc::new(Signals::default());
        state.streams.insert(id, Arc::clone(&signals));
        state.unused = None;
        Self(Arc::new(Inner {
            link: Arc::clone(link),
            id,
            signals,
            read_timeout: AtomicU64::new(0),
            is_deaf: AtomicBool::new(false),
            is_shut: AtomicBool::new(false),
            _owner: owner,
        }))
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) {
        let micros = timeout.map_or(0, |timeout| timeout.as_micros().max(1) as u64);
        self.0.read_timeout.store(micros, Ordering::Relaxed);
    }

    /// Ends both directions: what was written still arrives, and whoever reads is woken.
    pub(crate) fn shutdown(&self) {
        self.0.end();
    }

    /// Ends what is read, and still writes.
    pub(crate) fn stop_reading(&self) {
        self.0.is_deaf.store(true, Ordering::SeqCst);
        let _state = self.0.link.state();
        self.0.signals.readable.notify_all();
    }

    /// Waits until all that was written has arrived, or nothing can any more.
    pub(crate) fn wait_until_heard(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut state = self.0.link.state();
        let _ = state.connection.send_stream(self.0.id).finish();
        self.0.link.tell();
        while state.over.is_none() && !self.0.signals.is_heard.load(Ordering::SeqCst) {
            match wait(&self.0.signals.writable, state, Some(until)) {
                Ok(later) => state = later,
                Err(_) => return,
            }
        }
    }

    pub(crate) fn rtt(&self) -> Duration {
        self.0.link.state().connection.rtt()
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.0.link.state().connection.remote_address()
    }

    /// What an administrator could set for its socket, where something is discarded from now on.
    pub(crate) fn advice(&self) -> Advice {
        self.0.link.terms.shortage.advice()
    }

    /// What the whole connection has done.
    pub(crate) fn sight(&self) -> QuicSight {
        let stats = self.0.link.state().connection.stats();
        QuicSight {
            rtt: stats.path.rtt,
            sent: stats.udp_tx.bytes,
            received: stats.udp_rx.bytes,
            lost: stats.path.lost_bytes,
            lost_packets: stats.path.lost_packets,
            segment: bankfull_control::Bytes(stats.path.current_mtu.into()),
        }
    }

    /// Packets of the whole connection that were lost since one of its streams was asked last: all
    /// of its streams together have told of each once.
    pub(crate) fn newly_lost_packets(&self) -> u64 {
        let mut state = self.0.link.state();
        let lost = state.connection.stats().path.lost_packets;
        lost - std::mem::replace(&mut state.told_lost, lost)
    }

    /// The other side has shown that it may be here: as much of what it sends may wait here as of
    /// anybody else.
    pub(crate) fn trust(&self) {
        self.0.link.state().windows.trust();
        self.0.link.tell();
    }
}

impl Inner {
    fn end(&self) {
        if self.is_shut.swap(true, Ordering::SeqCst) {
            return;
        }
        self.is_deaf.store(true, Ordering::SeqCst);
        let mut state = self.link.state();
        let _ = state.connection.send_stream(self.id).finish();
        let _ = state.connection.recv_stream(self.id).stop(VarInt::from_u32(0));
        self.signals.readable.notify_all();
        self.signals.writable.notify_all();
        drop(state);
        self.link.tell();
    }

    /// Takes what has come, up to so many bytes; `None` where nothing has.
    fn take(&self, state: &mut State, most: usize) -> io::Result<Option<Vec<Bytes>>> {
        let mut stream = state.connection.recv_stream(self.id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(Some(Vec::new())) };
        let (mut taken, mut left) = (Vec::new(), most);
        let ended = loop {
            match chunks.next(left) {
                Ok(Some(chunk)) => {
                    left -= chunk.bytes.len();
                    taken.push(chunk.bytes);
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
            self.link.tell();
        }
        state.windows.on_read(most - left);
        match (taken.is_empty(), ended) {
            (true, Err(e)) => Err(e),
            (true, Ok(false)) => Ok(None),
            _ => Ok(Some(taken)),
        }
    }

    fn put(&self, chunk: &mut [Bytes; 1]) -> io::Result<()> {
        let mut state = self.link.state();
        let began = Instant::now();
        while !chunk[0].is_empty() {
            if self.is_shut.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            state.check()?;
            match state.connection.send_stream(self.id).write_chunks(chunk) {
                Ok(_) => {
                    state.took = Instant::now();
                    self.link.tell();
                }
                Err(WriteError::Blocked) => {
                    // Streams share what a connection may have on its way: as long as it takes
                    // something of one, the others have their turn.
                    let since = state.took.max(began).elapsed();
                    let left = self.link.terms.timeout.saturating_sub(since);
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

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
        let mut state = self.link.state();
        state.streams.remove(&self.id);
        if state.streams.is_empty() {
            state.unused = Some(Instant::now());
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
        let mut state = self.0.link.state();
        let taken = loop {
            if self.0.is_deaf.load(Ordering::SeqCst) {
                return Ok(0);
            }
            if let Some(taken) = self.0.take(&mut state, out.len())? {
                break taken;
            }
            state.check()?;
            state = wait(&self.0.signals.readable, state, timeout)?;
        };
        drop(state);
        let mut filled = 0;
        for bytes in &taken {
            out[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        }
        Ok(filled)
    }
}

impl Write for QuicStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(CHUNK_BYTES)];
        self.0.put(&mut [Bytes::copy_from_slice(part)])?;
        Ok(part.len())
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        for part in parts {
            chunk.extend_from_slice(&part[..part.len().min(CHUNK_BYTES - chunk.len())]);
        }
        let len = chunk.len();
        self.0.put(&mut [Bytes::from(chunk)])?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
