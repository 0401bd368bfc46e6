//! The control channel: frames of messages in both directions at once, over TLS or over the pipes
//! of an ssh session.
//!
//! One thread reads ([`ControlReader`]); everyone else posts to the [`Outbox`], whose writer thread
//! sends. What waits there is bounded on both sides, and yet the two cannot wait for each other:
//! the sender's reading thread never waits for its outbox, so it always comes to read what the
//! receiver has written; there only the walk and the tunnel wait. On the receiving side everyone
//! does, the reading thread too ([`Outbox::wait_when_full`]).

use crate::error::{Error, ErrorKind, is_timeout};
use crate::net::socket::Socket;
use bankfull_proto::limits::{
    MAX_CONTROL_FRAME_BYTES, MAX_CREDITS, MAX_HELLO_FRAME_BYTES, MAX_RUNS,
};
use bankfull_proto::wire::control::{self, Credit, FileRuns, Message};
use bankfull_proto::wire::frame::FrameReader;
use bankfull_proto::{blocks::Run, wire::WireError};
use rustls::Connection;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const READ_BYTES: usize = 64 << 10;

/// Bytes that may wait in the outbox before those who can have to wait. [ours: some hundred
/// batches]
const OUTBOX_BYTES_MAX: usize = 8 << 20;

/// What a message costs beside its bytes, and what a gathered number costs, at most: the queue's
/// own memory. [ours: small messages must count too]
const MESSAGE_BYTES: usize = 64;
/// See [`MESSAGE_BYTES`].
const NUMBER_BYTES: usize = 16;

/// Locks a mutex; a thread that panicked holding it left nothing half-done that matters more than
/// going on to report the panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a connection stays open for last words that the peer's host has not acknowledged.
/// [ours: at a round trip of 150 ms enough for one retransmission, and short where nobody is there]
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How often that is looked at.
const LAST_WORDS_LOOK: Duration = Duration::from_millis(5);

/// Ends a control connection once the peer's host has what was written. A socket that is closed
/// while something in it is unread, or still comes, resets the connection; then the reason for the
/// end is not sent again where it was lost on its way.
pub(crate) fn close_when_heard(socket: &Socket) {
    let until = Instant::now() + LAST_WORDS;
    match socket {
        Socket::Tcp(tcp) => {
            while is_underway(tcp) && Instant::now() < until {
                thread::sleep(LAST_WORDS_LOOK);
            }
        }
        Socket::Quic(stream) => stream.wait_until_heard(LAST_WORDS),
        Socket::Unix(_) => {}
    }
    socket.shutdown();
}

/// Whether something that was written has not arrived, and still may.
fn is_underway(socket: &TcpStream) -> bool {
    let waits = bankfull_sys::send_queue_bytes(socket).is_ok_and(|bytes| bytes > 0);
    // What was written to a peer that had closed is counted for ever: such a connection is reset,
    // and has no peer any more.
    waits && socket.peer_addr().is_ok()
}

/// Writes to the peer at once: before a session runs there is no outbox.
pub(crate) fn write_now(output: &mut dyn Write, bytes: &[u8], peer: &str) -> Result<(), Error> {
    let written = output.write_all(bytes).and_then(|()| output.flush());
    written.map_err(|e| Error::network(format!("cannot talk to {peer}"), &e))
}

/// The reading half of a channel.
pub(crate) struct ControlReader {
    input: Box<dyn Read + Send>,
    frames: FrameReader,
    peer: String,
    /// What the user may do about a lost connection.
    hint: &'static str,
    tunnel: Option<TunnelSink>,
}

/// What a client may do about a lost connection.
pub(crate) const RUN_AGAIN: &str = "; run the same command again to continue";

/// Takes the bytes of a data connection that travels in control messages; empty at its end.
pub(crate) type TunnelSink = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

impl ControlReader {
    /// Reads from `input`; `peer` names the far side in errors.
    pub(crate) fn new(input: Box<dyn Read + Send>, peer: String, hint: &'static str) -> Self {
        let frames = FrameReader::new(MAX_HELLO_FRAME_BYTES);
        Self { input, frames, peer, hint, tunnel: None }
    }

    /// Lets the peer send frames of full size: it is authenticated.
    pub(crate) fn authenticated(&mut self) {
        self.frames.set_limit(MAX_CONTROL_FRAME_BYTES);
    }

    /// Lets data travel in control messages.
    pub(crate) fn set_tunnel(&mut self, sink: TunnelSink) {
        self.tunnel = Some(sink);
    }

    /// Ends the tunnel's data: whoever reads on it sees the end, after what has come.
    pub(crate) fn end_tunnel(&mut self) {
        if let Some(sink) = &mut self.tunnel {
            // It may be gone already.
            let _ = sink(&[]);
        }
    }

    /// Waits until the peer closes the connection: it has read everything then.
    pub(crate) fn wait_for_end(&mut self) {
        while self.next().is_ok() {}
    }

    /// Reads up to the end of the magic. Bytes before it are skipped: shells print greetings.
    pub(crate) fn expect_magic(&mut self, noise_bytes_max: usize) -> Result<(), Error> {
        let mut seen: VecDeque<u8> = VecDeque::new();
        let mut byte = [0];
        for _ in 0..noise_bytes_max + control::MAGIC.len() {
            self.input.read_exact(&mut byte).map_err(|e| self.lost(&e))?;
            seen.push_back(byte[0]);
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

    /// The next message. Pings and tunnelled data are dealt with here.
    pub(crate) fn next(&mut self) -> Result<Message, Error> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            while let Some(frame) = self.frames.next_frame()? {
                match control::decode(frame)? {
                    Message::Ping => {}
                    Message::Tunnel(bytes) => match &mut self.tunnel {
                        // A tunnel whose stream is gone swallows what still comes.
                        Some(sink) => drop(sink(&bytes.0)),
                        None => return Err(WireError::Unexpected("tunnelled data").into()),
                    },
                    Message::Error(failure) => return Err(Error::from_peer(&failure)),
                    message => return Ok(message),
                }
            }
            let n = match self.input.read(&mut buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|e| self.lost(&e))?,
            };
            if n == 0 {
                return Err(self.lost(&io::ErrorKind::UnexpectedEof.into()));
            }
            self.frames.push(&buffer[..n]);
        }
    }

    fn lost(&self, error: &io::Error) -> Error {
        self.loss().explain(error)
    }

    /// Name of the far side, for messages.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// How the loss of this connection is told.
    pub(crate) fn loss(&self) -> Loss {
        Loss { peer: self.peer.clone(), hint: self.hint }
    }
}

/// Tells the loss of a control connection, whoever notices it.
pub(crate) struct Loss {
    peer: String,
    hint: &'static str,
}

impl Loss {
    fn explain(&self, error: &io::Error) -> Error {
        let Self { peer, hint } = self;
        if is_timeout(error) {
            let text = format!("nothing was heard from {peer} for too long{hint}");
            return Error::new(ErrorKind::Timeout, text);
        }
        let what = match error.kind() {
            io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
            _ => crate::error::plain(error),
        };
        let text = format!("the connection to {peer} was lost ({what}){hint}");
        Error::new(ErrorKind::Network, text)
    }
}

/// Messages on their way out.
#[derive(Default)]
struct Pending {
    messages: VecDeque<Vec<u8>>,
    /// What all that is queued takes, about.
    bytes: usize,
    /// Whoever posts waits while much is queued.
    waits_when_full: bool,
    acks: BTreeMap<u64, Vec<u64>>,
    finished: Vec<u64>,
    /// What data connections are asked for, by their numbers.
    asks: BTreeMap<u32, u64>,
    closed: bool,
    /// The writer thread has ended, one way or the other.
    gone: bool,
    /// Tunnels that carried something and have not ended.
    pumps: usize,
    /// The session stops: nobody must wait for the peer to read.
    released: bool,
    error: Option<WireError>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.acks.is_empty()
            && self.finished.is_empty()
            && self.asks.is_empty()
    }

    /// Whether somebody who can wait has to.
    fn is_full(&self) -> bool {
        self.bytes > OUTBOX_BYTES_MAX && !self.gone && !self.released && !self.closed
    }

    fn push(&mut self, message: &Message) {
        match control::encode(message) {
            Ok(frame) => {
                self.bytes += frame.len() + MESSAGE_BYTES;
                self.messages.push_back(frame);
            }
            Err(e) => self.error = Some(e),
        }
    }
}

/// Takes messages for the peer; shared by all threads of a session.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Arc<OutboxInner>);

#[derive(Default)]
struct OutboxInner {
    pending: Mutex<Pending>,
    changed: Condvar,
}

impl Outbox {
    /// From now on whoever posts waits while much is queued. For the receiving side: a sender that
    /// announces and does not read what it is answered would fill the memory otherwise.
    pub(crate) fn wait_when_full(&self) {
        lock(&self.0.pending).waits_when_full = true;
    }

    /// Waits while much is queued, and the session goes on.
    pub(crate) fn wait_for_room(&self) {
        drop(self.wait_while_full(lock(&self.0.pending)));
    }

    fn wait_while_full<'p>(&self, pending: MutexGuard<'p, Pending>) -> MutexGuard<'p, Pending> {
        let waited = self.0.changed.wait_while(pending, |p| p.is_full());
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to what is queued, after a wait where that is the rule.
    fn add(&self, change: impl FnOnce(&mut Pending)) {
        let mut pending = lock(&self.0.pending);
        if pending.waits_when_full {
            pending = self.wait_while_full(pending);
        }
        // At the end nobody waits, and what does not fit will not be sent any more.
        if !(pending.released && pending.bytes > OUTBOX_BYTES_MAX) {
            change(&mut pending);
        }
        drop(pending);
        self.0.changed.notify_all();
    }

    /// Posts a message.
    pub(crate) fn post(&self, message: &Message) {
        if matches!(message, Message::Error(_)) {
            // The last word, for which there is always room.
            lock(&self.0.pending).push(message);
            self.0.changed.notify_all();
        } else {
            self.add(|pending| pending.push(message));
        }
    }

    /// Posts a sign of life; never waits. Where much is queued, that is one.
    pub(crate) fn post_ping(&self) {
        self.post_if_room(&Message::Ping);
    }

    /// Posts a message unless much is queued; never waits. Whether it was posted.
    pub(crate) fn post_if_room(&self, message: &Message) -> bool {
        let mut pending = lock(&self.0.pending);
        let has_room = !pending.is_full();
        if has_room {
            pending.push(message);
        }
        drop(pending);
        self.0.changed.notify_all();
        has_room
    }

    /// Posts that a block is verified and journalled. Gathered into few messages.
    pub(crate) fn ack(&self, file: u64, index: u64) {
        self.add(|pending| {
            pending.acks.entry(file).or_default().push(index);
            pending.bytes += NUMBER_BYTES;
        });
    }

    /// Posts that files are in place. Gathered into few messages.
    pub(crate) fn finished(&self, files: &[u64]) {
        self.add(|pending| {
            pending.finished.extend_from_slice(files);
            pending.bytes += files.len() * NUMBER_BYTES;
        });
    }

    /// Asks a data connection for payload up to so many bytes from its beginning. Gathered into few
    /// messages; never waits, for there is one for each connection at most.
    pub(crate) fn ask(&self, stream: u32, bytes: u64) {
        lock(&self.0.pending).asks.insert(stream, bytes);
        self.0.changed.notify_all();
    }

    /// A tunnel begins to carry data.
    pub(crate) fn pump_began(&self) {
        lock(&self.0.pending).pumps += 1;
    }

    /// A tunnel has posted its last bytes.
    pub(crate) fn pump_ended(&self) {
        lock(&self.0.pending).pumps -= 1;
        self.0.changed.notify_all();
    }

    /// Waits until what went into tunnels is posted: the next message comes after it.
    pub(crate) fn wait_pumps(&self) {
        let pending = lock(&self.0.pending);
        let waits = |p: &mut Pending| p.pumps > 0 && !p.gone && !p.released;
        drop(self.0.changed.wait_while(pending, waits).unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets go whoever waits to post.
    pub(crate) fn release(&self) {
        lock(&self.0.pending).released = true;
        self.0.changed.notify_all();
    }

    /// Lets the writer thread end when all is sent.
    pub(crate) fn close(&self) {
        lock(&self.0.pending).closed = true;
        self.0.changed.notify_all();
    }

    /// Waits until the writer thread has ended; false when `timeout` passed first.
    pub(crate) fn wait_gone(&self, timeout: Duration) -> bool {
        let pending = lock(&self.0.pending);
        let waited = self.0.changed.wait_timeout_while(pending, timeout, |p| !p.gone);
        waited.unwrap_or_else(PoisonError::into_inner).0.gone
    }

    /// The writer thread: sends what is posted until closed and empty.
    pub(crate) fn run_writer(
        &self,
        mut output: Box<dyn Write + Send>,
        loss: &Loss,
    ) -> Result<(), Error> {
        let result = self.write_all(&mut *output, loss);
        lock(&self.0.pending).gone = true;
        self.0.changed.notify_all();
        result
    }

    fn write_all(&self, output: &mut dyn Write, loss: &Loss) -> Result<(), Error> {
        while let Some(bytes) = self.take()? {
            output.write_all(&bytes).and_then(|()| output.flush()).map_err(|e| loss.explain(&e))?;
        }
        Ok(())
    }

    /// Waits for something to send. Acknowledgements come before the messages posted with them, so
    /// that a stream's end never overtakes what arrived on it.
    fn take(&self) -> Result<Option<Vec<u8>>, Error> {
        let mut pending = lock(&self.0.pending);
        while pending.is_empty() && !pending.closed {
            pending = self.0.changed.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(error) = pending.error.take() {
            return Err(error.into());
        }
        if pending.is_empty() {
            return Ok(None);
        }
        let mut out = Vec::new();
        for message in gathered(&mut pending) {
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

/// Most files in one gathered message: far below what a frame holds.
const GATHERED_MAX: usize = 4096;

fn gathered(pending: &mut Pending) -> Vec<Message> {
    let asks = std::mem::take(&mut pending.asks).into_iter();
    let asks: Vec<Credit> = asks.map(|(stream, bytes)| Credit { stream, bytes }).collect();
    let mut messages: Vec<Message> =
        asks.chunks(MAX_CREDITS).map(|asks| Message::Credits(asks.to_vec())).collect();
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
        if batch.len() >= GATHERED_MAX || runs >= MAX_RUNS {
            messages.push(Message::Acks(std::mem::take(&mut batch)));
            runs = 0;
        }
    }
    if !batch.is_empty() {
        messages.push(Message::Acks(batch));
    }
    for files in std::mem::take(&mut pending.finished).chunks(GATHERED_MAX) {
        messages.push(Message::Finished(files.to_vec()));
    }
    messages
}

/// Ascending numbers as runs.
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

/// Cuts a connection in two halves that work at the same time; `tls` is what encrypts it, where
/// the socket does not.
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
        raw: vec![0; READ_BYTES],
        taken: 0,
        len: 0,
    };
    Ok((Box::new(reader), Box::new(TlsWriter { connection: shared, socket })))
}

struct TlsReader {
    connection: Arc<Mutex<Connection>>,
    socket: Socket,
    raw: Vec<u8>,
    taken: usize,
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
                if self.taken < self.len {
                    let mut raw = &self.raw[self.taken..self.len];
                    self.taken += connection.read_tls(&mut raw)?;
                    connection.process_new_packets().map_err(io::Error::other)?;
                    continue;
                }
            }
            // The lock is not held while waiting, so the writer goes on.
            self.taken = 0;
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
        // rustls bounds what it queues, so pieces go out one by one.
        let piece = &bytes[..bytes.len().min(READ_BYTES)];
        let mut records = Vec::with_capacity(piece.len() + 1024);
        let taken = {
            let mut connection = lock(&self.connection);
            let taken = connection.writer().write(piece)?;
            while connection.wants_write() {
                connection.write_tls(&mut records)?;
            }
            taken
        };
        self.socket.write_all(&records)?;
        Ok(taken)
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
    fn nobody_waits_for_last_words_to_reach_a_peer_that_has_closed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        near.write_all(b"last words").unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while is_underway(&near) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(bankfull_sys::send_queue_bytes(&near).unwrap(), 10, "counted for ever");
        assert!(!is_underway(&near));
    }

    #[test]
    fn acknowledgements_are_gathered_and_come_before_a_streams_end() {
        let outbox = Outbox::default();
        for index in [3, 1, 2, 7] {
            outbox.ack(9, index);
        }
        outbox.post(&Message::StreamEnded(4));
        outbox.finished(&[5, 6]);
        let runs = vec![Run { first: 1, count: 3 }, Run { first: 7, count: 1 }];
        let expected = [
            Message::Acks(vec![FileRuns { file: 9, runs }]),
            Message::Finished(vec![5, 6]),
            Message::StreamEnded(4),
        ];
        assert_eq!(sent(&outbox), expected);
    }

    #[test]
    fn who_posts_to_a_full_outbox_waits_until_something_is_sent_or_the_session_stops() {
        let end = Message::StreamEnded(1);
        for let_go in [|outbox: &Outbox| drop(outbox.take()), Outbox::release, Outbox::close] {
            let outbox = Outbox::default();
            outbox.wait_when_full();
            while !lock(&outbox.0.pending).is_full() {
                outbox.post(&end);
            }
            // Signs of life do not pile up, and do not wait.
            let bytes = lock(&outbox.0.pending).bytes;
            outbox.post_ping();
            assert_eq!(lock(&outbox.0.pending).bytes, bytes);
            thread::scope(|scope| {
                let posting = scope.spawn(|| outbox.post(&end));
                let gathering = scope.spawn(|| outbox.ack(1, 1));
                thread::sleep(Duration::from_millis(20));
                assert!(!posting.is_finished() && !gathering.is_finished());
                let_go(&outbox);
            });
        }
    }

    #[test]
    fn nobody_waits_at_the_outbox_of_a_sender_who_does_not_ask_for_room() {
        let outbox = Outbox::default();
        for number in 0..300_000 {
            outbox.post(&Message::StreamLost(number));
        }
        assert!(lock(&outbox.0.pending).is_full());
        outbox.release();
        outbox.wait_for_room();
    }

    #[test]
    fn a_closed_outbox_sends_what_it_holds_and_then_ends() {
        let outbox = Outbox::default();
        outbox.post(&Message::Nack(Nack { file: 1, index: 2 }));
        outbox.close();
        assert_eq!(sent(&outbox).len(), 1);
        assert!(outbox.take().unwrap().is_none());
    }

    #[test]
    fn the_magic_is_found_behind_a_shells_greeting() {
        let mut input = b"Welcome to the machine\nBKFLBKFLCTRL".to_vec();
        input.extend_from_slice(&control::encode(&Message::StreamEnded(3)).unwrap());
        let mut reader = ControlReader::new(Box::new(io::Cursor::new(input)), "far".into(), "");
        reader.expect_magic(100).unwrap();
        assert_eq!(reader.next().unwrap(), Message::StreamEnded(3));
        let error = reader.next().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Network);
    }

    #[test]
    fn pings_and_tunnelled_bytes_in_front_of_a_message_do_not_hold_it_up() {
        let mut input = Vec::new();
        let bytes = control::Bytes(b"data".to_vec());
        for message in [Message::Tunnel(bytes), Message::Ping, Message::StreamEnded(3)] {
            input.extend_from_slice(&control::encode(&message).unwrap());
        }
        // The input ends right behind the last message: waiting for more would be an error.
        let mut reader = ControlReader::new(Box::new(io::Cursor::new(input)), "far".into(), "");
        let (sent, received) = std::sync::mpsc::channel();
        reader
            .set_tunnel(Box::new(move |bytes| sent.send(bytes.to_vec()).map_err(io::Error::other)));
        assert_eq!(reader.next().unwrap(), Message::StreamEnded(3));
        assert_eq!(received.try_recv().unwrap(), b"data");
    }

    #[test]
    fn a_far_side_that_only_makes_noise_is_no_bankfull() {
        let noise = vec![b'x'; 1000];
        let mut reader = ControlReader::new(Box::new(io::Cursor::new(noise)), "far".into(), "");
        assert_eq!(reader.expect_magic(100).unwrap_err().kind(), ErrorKind::Protocol);
    }
}
