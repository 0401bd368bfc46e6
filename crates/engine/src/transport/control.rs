//! Control channel: framed messages in both directions, over TLS, QUIC or the pipes of an ssh
//! session.
//!
//! One thread reads ([`ControlReader`]); all others post to the [`Outbox`], whose writer thread
//! sends. The outbox is bounded on both sides without deadlock: the sender's reading thread never
//! blocks on its outbox, so it always reads the receiver's messages; on that side only the walk and
//! the tunnel wait. On the receiving side every thread waits, the reading thread too
//! ([`Outbox::block_when_full`]).

use crate::base::sync::lock;

use super::socket::Socket;
use crate::base::error::{Error, ErrorKind, is_timeout};
use bankfull_proto::blocks::Run;
use bankfull_proto::limits::{
    MAX_CONTROL_FRAME_BYTES, MAX_CREDITS, MAX_HELLO_FRAME_BYTES, MAX_RUNS,
};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{self, Credit, FileRuns, Message};
use bankfull_proto::wire::frame::FrameReader;
use rustls::Connection;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes read from a socket at once, and written to TLS at once.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Size of the outbox beyond which posting threads wait. (chosen: several hundred batches)
const MAX_OUTBOX_BYTES: usize = 8 << 20;

/// Memory overhead of a queued message, so that small messages count too. (chosen: upper bound)
const MESSAGE_OVERHEAD_BYTES: usize = 64;
/// Memory overhead of a queued block or file number. (chosen: upper bound)
const ENTRY_OVERHEAD_BYTES: usize = 16;

/// Time to wait for the peer's host to acknowledge the final message. (chosen: covers one
/// retransmission at an RTT of 150 ms, and is short if the host is gone)
const CLOSE_ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval at which the acknowledgement is checked.
const CLOSE_ACK_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Closes a control connection once the peer's host has acknowledged all data.
///
/// Closing a socket with unread or arriving data resets the connection; a lost final message would
/// not be retransmitted then. A peer that does not read, so that not everything could be written
/// (`is_flushed`), is not waited for.
pub(crate) fn close_when_acked(socket: &Socket, is_flushed: bool) {
    if !is_flushed {
        return socket.shutdown();
    }
    let deadline = Instant::now() + CLOSE_ACK_TIMEOUT;
    match socket {
        Socket::Tcp(tcp) => {
            while has_unacked_data(tcp) && Instant::now() < deadline {
                thread::sleep(CLOSE_ACK_POLL_INTERVAL);
            }
        }
        Socket::Quic(stream) => stream.wait_until_acked(CLOSE_ACK_TIMEOUT),
        Socket::Unix(_) => {}
    }
    socket.shutdown();
}

/// True if sent data is unacknowledged and may still arrive.
fn has_unacked_data(socket: &TcpStream) -> bool {
    let has_queued = bankfull_sys::send_queue_bytes(socket).is_ok_and(|bytes| bytes > 0);
    // Data sent to a peer that had closed stays counted; but such a connection is reset and has no
    // peer address.
    has_queued && socket.peer_addr().is_ok()
}

/// Writes to the peer at once, before a session has an outbox.
pub(crate) fn write_now(output: &mut dyn Write, bytes: &[u8], peer: &str) -> Result<(), Error> {
    let written = output.write_all(bytes).and_then(|()| output.flush());
    written.map_err(|e| Error::network(format!("cannot write to {peer}"), &e))
}

/// Reading half of a control channel.
pub(crate) struct ControlReader {
    input: Box<dyn Read + Send>,
    frames: FrameReader,
    peer: String,
    /// Suffix of errors: the user's way out of a lost connection.
    hint: &'static str,
    is_authenticated: bool,
    /// First byte of the peer, if it was awaited.
    first_byte: Option<u8>,
    tunnel: Option<TunnelSink>,
}

/// Hint of a client about a lost connection.
pub(crate) const RERUN_HINT: &str = "; run the same command again to continue";

/// Receives the bytes of a tunnelled data stream; an empty slice marks the end.
pub(crate) type TunnelSink = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

impl ControlReader {
    /// Reads from `input`; `peer` names the peer in errors. The hint applies once authenticated.
    pub(crate) fn new(input: Box<dyn Read + Send>, peer: String, hint: &'static str) -> Self {
        let frames = FrameReader::new(MAX_HELLO_FRAME_BYTES);
        Self { input, frames, peer, hint, is_authenticated: false, first_byte: None, tunnel: None }
    }

    /// Accepts frames of full size, since the peer is authenticated.
    pub(crate) fn set_authenticated(&mut self) {
        self.is_authenticated = true;
        self.frames.set_limit(MAX_CONTROL_FRAME_BYTES);
    }

    /// Accepts tunnelled data and passes it to `sink`.
    pub(crate) fn set_tunnel(&mut self, sink: TunnelSink) {
        self.tunnel = Some(sink);
    }

    /// Ends the tunnelled data: its reader sees the end after all received bytes.
    pub(crate) fn close_tunnel(&mut self) {
        if let Some(sink) = &mut self.tunnel {
            // The tunnel may be closed already.
            let _ = sink(&[]);
        }
    }

    /// Reads until the peer closes the connection, after it has read everything.
    pub(crate) fn read_until_closed(&mut self, mut on_message: impl FnMut(Message)) {
        while let Ok(message) = self.next() {
            on_message(message);
        }
    }

    /// Waits for the first byte before the magic.
    pub(crate) fn wait_for_first_byte(&mut self) -> Result<(), Error> {
        self.first_byte = Some(self.read_byte()?);
        Ok(())
    }

    fn read_byte(&mut self) -> Result<u8, Error> {
        let mut byte = [0];
        self.input.read_exact(&mut byte).map_err(|e| self.loss_error(&e))?;
        Ok(byte[0])
    }

    /// Reads up to the end of the magic. Skips the output of a login shell before it.
    pub(crate) fn expect_magic(&mut self, noise_bytes_max: usize) -> Result<(), Error> {
        let mut seen: VecDeque<u8> = VecDeque::new();
        for _ in 0..noise_bytes_max + control::MAGIC.len() {
            let byte = self.first_byte.take().map_or_else(|| self.read_byte(), Ok)?;
            seen.push_back(byte);
            if seen.len() > control::MAGIC.len() {
                seen.pop_front();
            }
            if seen.iter().eq(control::MAGIC.iter()) {
                return Ok(());
            }
        }
        Err(Error::new(
            ErrorKind::Protocol,
            format!("{} does not speak the bankfull protocol", self.peer),
        ))
    }

    /// Waits for the next message; handles pings and tunnelled data itself.
    pub(crate) fn next(&mut self) -> Result<Message, Error> {
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        loop {
            while let Some(frame) = self.frames.next_frame()? {
                match control::decode(frame)? {
                    Message::Ping => {}
                    Message::Tunnel(bytes) => match &mut self.tunnel {
                        // Data of a closed tunnel is dropped.
                        Some(sink) => drop(sink(&bytes.0)),
                        None => return Err(WireError::Unexpected("tunnelled data").into()),
                    },
                    Message::Error(failure) => return Err(Error::from_peer(&failure)),
                    message => return Ok(message),
                }
            }
            let n = match self.input.read(&mut buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|e| self.loss_error(&e))?,
            };
            if n == 0 {
                return Err(self.loss_error(&io::ErrorKind::UnexpectedEof.into()));
            }
            self.frames.push(&buffer[..n]);
        }
    }

    fn loss_error(&self, error: &io::Error) -> Error {
        self.loss().to_error(error)
    }

    /// Returns the name of the peer, for messages.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Returns the description of this connection's loss.
    pub(crate) fn loss(&self) -> ConnectionLoss {
        // Before the handshake nothing has begun that could be continued.
        let hint = if self.is_authenticated { self.hint } else { "" };
        ConnectionLoss { peer: self.peer.clone(), hint }
    }
}

/// Describes the loss of a control connection, for the reading and the writing thread.
pub(crate) struct ConnectionLoss {
    peer: String,
    hint: &'static str,
}

impl ConnectionLoss {
    /// Returns the error for this cause.
    pub(crate) fn to_error(&self, error: &io::Error) -> Error {
        let Self { peer, hint } = self;
        if is_timeout(error) {
            let text = format!("no response from {peer} within the timeout{hint}");
            return Error::new(ErrorKind::Timeout, text);
        }
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
            _ => crate::base::error::os_message(error),
        };
        let text = format!("the connection to {peer} was lost ({reason}){hint}");
        Error::new(ErrorKind::Network, text)
    }
}

/// Queue of outgoing messages.
#[derive(Default)]
struct Pending {
    messages: VecDeque<Vec<u8>>,
    /// Approximate memory of the queue, in bytes.
    bytes: usize,
    /// True if posting threads wait while the queue is full.
    blocks_when_full: bool,
    /// Acknowledged blocks to send, by file.
    acks: BTreeMap<u64, Vec<u64>>,
    /// Completed files to send.
    finished: Vec<u64>,
    /// Credits to send, by stream number.
    credits: BTreeMap<u32, u64>,
    is_closed: bool,
    /// True once the writer thread has ended.
    is_writer_done: bool,
    /// Tunnels that have carried data and are open.
    active_tunnels: usize,
    /// True once the session stops: no thread may wait for the peer any more.
    is_released: bool,
    error: Option<WireError>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.acks.is_empty()
            && self.finished.is_empty()
            && self.credits.is_empty()
    }

    /// True if posting threads must wait.
    fn is_full(&self) -> bool {
        self.bytes > MAX_OUTBOX_BYTES
            && !self.is_writer_done
            && !self.is_released
            && !self.is_closed
    }

    fn push(&mut self, message: &Message) {
        match control::encode(message) {
            Ok(frame) => {
                self.bytes += frame.len() + MESSAGE_OVERHEAD_BYTES;
                self.messages.push_back(frame);
            }
            Err(e) => self.error = Some(e),
        }
    }
}

/// Queue of messages for the peer, shared by all threads of a session.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Arc<OutboxInner>);

#[derive(Default)]
struct OutboxInner {
    pending: Mutex<Pending>,
    changed: Condvar,
}

impl Outbox {
    /// Makes posting threads wait while the queue is full.
    ///
    /// For the receiving side: a sender that announces files and does not read the replies would
    /// fill the memory.
    pub(crate) fn block_when_full(&self) {
        lock(&self.0.pending).blocks_when_full = true;
    }

    /// Waits until the queue has room or the session stops.
    pub(crate) fn wait_for_room(&self) {
        drop(self.wait_while_full(lock(&self.0.pending)));
    }

    fn wait_while_full<'p>(&self, pending: MutexGuard<'p, Pending>) -> MutexGuard<'p, Pending> {
        let waited = self.0.changed.wait_while(pending, |p| p.is_full());
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the queue, after a wait if threads wait for room.
    fn add(&self, change: impl FnOnce(&mut Pending)) {
        let mut pending = lock(&self.0.pending);
        if pending.blocks_when_full {
            pending = self.wait_while_full(pending);
        }
        // After the release a full queue is never sent.
        if !(pending.is_released && pending.bytes > MAX_OUTBOX_BYTES) {
            change(&mut pending);
        }
        drop(pending);
        self.0.changed.notify_all();
    }

    /// Posts a message.
    pub(crate) fn post(&self, message: &Message) {
        if matches!(message, Message::Error(_)) {
            // The final message always fits.
            lock(&self.0.pending).push(message);
            self.0.changed.notify_all();
        } else {
            self.add(|pending| pending.push(message));
        }
    }

    /// Posts a keep-alive unless the queue is full, which serves as one. Never waits.
    pub(crate) fn post_ping(&self) {
        self.try_post(&Message::Ping);
    }

    /// Posts a message unless the queue is full; returns whether it did. Never waits.
    pub(crate) fn try_post(&self, message: &Message) -> bool {
        let mut pending = lock(&self.0.pending);
        let has_room = !pending.is_full();
        if has_room {
            pending.push(message);
        }
        drop(pending);
        self.0.changed.notify_all();
        has_room
    }

    /// Posts that a block is verified and journalled; coalesced.
    pub(crate) fn post_ack(&self, file: u64, index: u64) {
        self.add(|pending| {
            pending.acks.entry(file).or_default().push(index);
            pending.bytes += ENTRY_OVERHEAD_BYTES;
        });
    }

    /// Posts that files are complete; coalesced.
    pub(crate) fn post_finished(&self, files: &[u64]) {
        self.add(|pending| {
            pending.finished.extend_from_slice(files);
            pending.bytes += files.len() * ENTRY_OVERHEAD_BYTES;
        });
    }

    /// Posts the credit of a data stream, in bytes from its beginning; coalesced.
    ///
    /// Never waits, since each stream has at most one entry.
    pub(crate) fn post_credit(&self, stream: u32, bytes: u64) {
        lock(&self.0.pending).credits.insert(stream, bytes);
        self.0.changed.notify_all();
    }

    /// Records that a tunnel carries data.
    pub(crate) fn on_tunnel_start(&self) {
        lock(&self.0.pending).active_tunnels += 1;
    }

    /// Records that a tunnel has posted its last bytes.
    pub(crate) fn on_tunnel_end(&self) {
        lock(&self.0.pending).active_tunnels -= 1;
        self.0.changed.notify_all();
    }

    /// Waits until all tunnelled data is posted, so that the next message follows it.
    pub(crate) fn wait_for_tunnels(&self) {
        let pending = lock(&self.0.pending);
        let must_wait =
            |p: &mut Pending| p.active_tunnels > 0 && !p.is_writer_done && !p.is_released;
        drop(self.0.changed.wait_while(pending, must_wait).unwrap_or_else(PoisonError::into_inner));
    }

    /// Wakes all waiting threads: the session stops.
    pub(crate) fn release(&self) {
        lock(&self.0.pending).is_released = true;
        self.0.changed.notify_all();
    }

    /// Ends the writer thread once the queue is sent.
    pub(crate) fn close(&self) {
        lock(&self.0.pending).is_closed = true;
        self.0.changed.notify_all();
    }

    /// Waits for the end of the writer thread; false after `timeout`.
    pub(crate) fn wait_writer_done(&self, timeout: Duration) -> bool {
        let pending = lock(&self.0.pending);
        let waited = self.0.changed.wait_timeout_while(pending, timeout, |p| !p.is_writer_done);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_writer_done
    }

    /// Runs the writer thread: sends messages until the queue is closed and empty.
    pub(crate) fn run_writer(
        &self,
        mut output: Box<dyn Write + Send>,
        loss: &ConnectionLoss,
    ) -> Result<(), Error> {
        let result = self.write_all(&mut *output, loss);
        lock(&self.0.pending).is_writer_done = true;
        self.0.changed.notify_all();
        result
    }

    fn write_all(&self, output: &mut dyn Write, loss: &ConnectionLoss) -> Result<(), Error> {
        while let Some(bytes) = self.take()? {
            output
                .write_all(&bytes)
                .and_then(|()| output.flush())
                .map_err(|e| loss.to_error(&e))?;
        }
        Ok(())
    }

    /// Waits for messages and returns their bytes.
    ///
    /// Acknowledgements precede the messages posted with them, so that the end of a stream never
    /// overtakes them.
    fn take(&self) -> Result<Option<Vec<u8>>, Error> {
        let mut pending = lock(&self.0.pending);
        while pending.is_empty() && !pending.is_closed {
            pending = self.0.changed.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(error) = pending.error.take() {
            return Err(error.into());
        }
        if pending.is_empty() {
            return Ok(None);
        }
        let mut out = Vec::new();
        for message in coalesced_messages(&mut pending) {
            out.extend_from_slice(&control::encode(&message)?);
        }
        for frame in std::mem::take(&mut pending.messages) {
            out.extend_from_slice(&frame);
        }
        pending.bytes = 0;
        drop(pending);
        self.0.changed.notify_all();
        Ok(Some(out))
    }
}

/// Files of one coalesced message: far below the limit of a frame.
const MAX_COALESCED_FILES: usize = 4096;

fn coalesced_messages(pending: &mut Pending) -> Vec<Message> {
    let credits = std::mem::take(&mut pending.credits).into_iter();
    let credits: Vec<Credit> = credits.map(|(stream, bytes)| Credit { stream, bytes }).collect();
    let mut messages: Vec<Message> =
        credits.chunks(MAX_CREDITS).map(|credits| Message::Credits(credits.to_vec())).collect();
    let mut acks = Vec::new();
    for (file, mut indices) in std::mem::take(&mut pending.acks) {
        indices.sort_unstable();
        for runs in runs_of(&indices).chunks(MAX_RUNS / 4) {
            acks.push(FileRuns { file, runs: runs.to_vec() });
        }
    }
    let mut batch = Vec::new();
    let mut runs = 0;
    for ack in acks {
        runs += ack.runs.len();
        batch.push(ack);
        if batch.len() >= MAX_COALESCED_FILES || runs >= MAX_RUNS {
            messages.push(Message::Acks(std::mem::take(&mut batch)));
            runs = 0;
        }
    }
    if !batch.is_empty() {
        messages.push(Message::Acks(batch));
    }
    for files in std::mem::take(&mut pending.finished).chunks(MAX_COALESCED_FILES) {
        messages.push(Message::Finished(files.to_vec()));
    }
    messages
}

/// Merges ascending numbers into runs.
pub(crate) fn runs_of(indices: &[u64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &index in indices {
        match runs.last_mut() {
            Some(run) if run.first + run.count == index => run.count += 1,
            _ => runs.push(Run { first: index, count: 1 }),
        }
    }
    runs
}

/// Splits a connection into halves for concurrent use; `tls` encrypts it, unless the socket does.
pub(crate) fn split(
    tls: Option<Connection>,
    socket: Socket,
) -> io::Result<(Box<dyn Read + Send>, Box<dyn Write + Send>)> {
    let Some(connection) = tls else {
        return Ok((Box::new(socket.try_clone()?), Box::new(socket)));
    };
    let shared = Arc::new(Mutex::new(connection));
    let reader = TlsReader {
        connection: Arc::clone(&shared),
        socket: socket.try_clone()?,
        raw: vec![0; READ_BUFFER_BYTES],
        consumed: 0,
        len: 0,
    };
    Ok((Box::new(reader), Box::new(TlsWriter { connection: shared, socket })))
}

struct TlsReader {
    connection: Arc<Mutex<Connection>>,
    socket: Socket,
    raw: Vec<u8>,
    consumed: usize,
    len: usize,
}

impl Read for TlsReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            {
                let mut connection = lock(&self.connection);
                match connection.reader().read(out) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    done => return done,
                }
                if self.consumed < self.len {
                    let mut raw = &self.raw[self.consumed..self.len];
                    self.consumed += connection.read_tls(&mut raw)?;
                    connection.process_new_packets().map_err(io::Error::other)?;
                    continue;
                }
            }
            // The lock is released while waiting, so that the writer can continue.
            self.consumed = 0;
            self.len = 0;
            self.len = self.socket.read(&mut self.raw)?;
            if self.len == 0 {
                lock(&self.connection).read_tls(&mut io::empty())?;
            }
        }
    }
}

struct TlsWriter {
    connection: Arc<Mutex<Connection>>,
    socket: Socket,
}

impl Write for TlsWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // rustls bounds its queue, so long writes are split.
        let part = &bytes[..bytes.len().min(READ_BUFFER_BYTES)];
        let mut records = Vec::with_capacity(part.len() + 1024);
        let consumed = {
            let mut connection = lock(&self.connection);
            let consumed = connection.writer().write(part)?;
            while connection.wants_write() {
                connection.write_tls(&mut records)?;
            }
            consumed
        };
        self.socket.write_all(&records)?;
        Ok(consumed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use bankfull_proto::wire::control::Nack;

    pub(crate) fn sent(outbox: &Outbox) -> Vec<Message> {
        let bytes = outbox.take().unwrap().unwrap_or_default();
        let mut frames = FrameReader::new(MAX_CONTROL_FRAME_BYTES);
        frames.push(&bytes);
        let mut messages = Vec::new();
        while let Some(frame) = frames.next_frame().unwrap() {
            messages.push(control::decode(frame).unwrap());
        }
        messages
    }

    #[test]
    fn data_to_closed_peer_does_not_count_as_unacked() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        client.write_all(b"last bytes").unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while has_unacked_data(&client) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(bankfull_sys::send_queue_bytes(&client).unwrap(), 10, "still counted");
        assert!(!has_unacked_data(&client));
    }

    #[test]
    fn acks_are_coalesced_and_precede_the_stream_end() {
        let outbox = Outbox::default();
        for index in [3, 1, 2, 7] {
            outbox.post_ack(9, index);
        }
        outbox.post(&Message::StreamEnded(4));
        outbox.post_finished(&[5, 6]);
        let runs = vec![Run { first: 1, count: 3 }, Run { first: 7, count: 1 }];
        let expected = [
            Message::Acks(vec![FileRuns { file: 9, runs }]),
            Message::Finished(vec![5, 6]),
            Message::StreamEnded(4),
        ];
        assert_eq!(sent(&outbox), expected);
    }

    #[test]
    fn full_outbox_blocks_until_sent_released_or_closed() {
        let end = Message::StreamEnded(1);
        for unblock in [|outbox: &Outbox| drop(outbox.take()), Outbox::release, Outbox::close] {
            let outbox = Outbox::default();
            outbox.block_when_full();
            while !lock(&outbox.0.pending).is_full() {
                outbox.post(&end);
            }
            // Keep-alives neither accumulate nor wait.
            let bytes = lock(&outbox.0.pending).bytes;
            outbox.post_ping();
            assert_eq!(lock(&outbox.0.pending).bytes, bytes);
            thread::scope(|scope| {
                let posting = scope.spawn(|| outbox.post(&end));
                let acking = scope.spawn(|| outbox.post_ack(1, 1));
                thread::sleep(Duration::from_millis(20));
                assert!(!posting.is_finished() && !acking.is_finished());
                unblock(&outbox);
            });
        }
    }

    #[test]
    fn unblocking_outbox_never_blocks_post() {
        let outbox = Outbox::default();
        for number in 0..300_000 {
            outbox.post(&Message::StreamLost(number));
        }
        assert!(lock(&outbox.0.pending).is_full());
        outbox.release();
        outbox.wait_for_room();
    }

    #[test]
    fn closed_outbox_is_drained() {
        let outbox = Outbox::default();
        outbox.post(&Message::Nack(Nack { file: 1, index: 2 }));
        outbox.close();
        assert_eq!(sent(&outbox).len(), 1);
        assert!(outbox.take().unwrap().is_none());
    }

    #[test]
    fn magic_is_found_after_shell_output() {
        let mut input = b"Welcome to the machine\nBKFLBKFLCTRL".to_vec();
        input.extend_from_slice(&control::encode(&Message::StreamEnded(3)).unwrap());
        let mut reader = ControlReader::new(Box::new(io::Cursor::new(input)), "peer".into(), "");
        reader.expect_magic(100).unwrap();
        assert_eq!(reader.next().unwrap(), Message::StreamEnded(3));
        let error = reader.next().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Network);
    }

    #[test]
    fn pings_and_tunnelled_data_are_skipped() {
        let mut input = Vec::new();
        let bytes = control::Bytes(b"data".to_vec());
        for message in [Message::Tunnel(bytes), Message::Ping, Message::StreamEnded(3)] {
            input.extend_from_slice(&control::encode(&message).unwrap());
        }
        // The input ends after the last message: a further read would be an error.
        let mut reader = ControlReader::new(Box::new(io::Cursor::new(input)), "peer".into(), "");
        let (sent, received) = std::sync::mpsc::channel();
        reader
            .set_tunnel(Box::new(move |bytes| sent.send(bytes.to_vec()).map_err(io::Error::other)));
        assert_eq!(reader.next().unwrap(), Message::StreamEnded(3));
        assert_eq!(received.try_recv().unwrap(), b"data");
    }

    #[test]
    fn peer_without_magic_is_rejected() {
        let noise = vec![b'x'; 1000];
        let mut reader = ControlReader::new(Box::new(io::Cursor::new(noise)), "peer".into(), "");
        assert_eq!(reader.expect_magic(100).unwrap_err().kind(), ErrorKind::Protocol);
    }
}
