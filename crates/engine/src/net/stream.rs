//! A data connection: frames of raw bytes in one direction, encrypted or plain.
//!
//! The connecting side attaches it to a session ([`DataStream::attach`]), the accepting side checks
//! that ([`read_attach`], [`DataStream::accept`]). After that one side sends and the other
//! receives.

use crate::block_io::Engine;
use crate::error::{Error, ErrorKind};
use crate::net::asked::Gate;
use crate::net::socket::{BurstLimit, Bursts, Socket};
use crate::throttle::Throttle;
use crate::tune::Lane;
use bankfull_proto::wire::attach::{self, Attach, REPLY_BYTES, REQUEST_BYTES};
use bankfull_proto::wire::data::{HEADER_BYTES, Header, Tagger};
use bankfull_sys::Pipe;
use rustls::Connection;
use std::any::Any;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Raw bytes read from a socket at once when they must be decrypted: a few full records, and small
/// enough to stay in a core's cache. [measured: no gain beyond 256 KiB]
const RAW_BYTES: usize = 256 << 10;

/// Bytes encrypted at once: four full records. TLS allocates each record and frees it when it is
/// sent; what is freed beyond 128 KiB (`M_TRIM_THRESHOLD`, mallopt(3)) goes back to the kernel, and
/// comes again page by page. [measured: 2 GB in such parts of 256 KiB take 240 000 page faults and
/// 2.1 s of a processor, in parts of 64 KiB 800 and 1.4 s]
const CIPHER_BYTES: usize = 64 << 10;

/// A data connection that belongs to a session.
pub(crate) struct DataStream {
    socket: Socket,
    tls: Option<Box<Connection>>,
    tagger: Tagger,
    /// Header and tag bytes on their way out, sent with the next payload.
    held: Vec<u8>,
    /// Bytes of TLS records read ahead.
    raw: Vec<u8>,
    raw_taken: usize,
    raw_len: usize,
    wire_bytes: u64,
    crypto_time: Duration,
    /// What this side has to wait for before it sends.
    throttle: Option<Arc<Throttle>>,
    /// What it has to be asked for.
    gate: Option<Gate>,
    /// What it tells whoever steers it with others, as the side that receives.
    lane: Option<Lane>,
    /// The most that TCP is to send at once.
    burst: Arc<BurstLimit>,
    /// Through which bytes of files go, where they are to be spliced.
    pipe: Option<Pipe>,
    /// Bytes that were sent and not waited for: headers, tags, and what TLS adds.
    unpaid: usize,
    /// Given back when the connection is gone.
    seat: Option<Seat>,
}

/// A place among the connections that a server allows; dropping it makes room.
pub(crate) type Seat = Box<dyn Any + Send>;

impl DataStream {
    fn new(socket: Socket, tls: Option<Connection>) -> Self {
        let mut tls = tls.map(Box::new);
        if let Some(tls) = &mut tls {
            // The stream's own loops bound what is queued: one piece.
            tls.set_buffer_limit(None);
        }
        Self {
            socket,
            tls,
            tagger: Tagger::unkeyed(),
            held: Vec::new(),
            raw: Vec::new(),
            raw_taken: 0,
            raw_len: 0,
            wire_bytes: 0,
            crypto_time: Duration::ZERO,
            throttle: None,
            gate: None,
            lane: None,
            burst: Arc::default(),
            pipe: None,
            unpaid: 0,
            seat: None,
        }
    }

    /// Attaches a fresh connection to a session and makes sure that the far side knows it too.
    pub(crate) fn attach(
        socket: Socket,
        tls: Option<Connection>,
        attach: &Attach,
        session_key: &[u8; 32],
        peer: &str,
    ) -> Result<Self, Error> {
        let mut stream = Self::new(socket, tls);
        let lost = |e: io::Error| Error::network(format!("a data connection to {peer} failed"), &e);
        stream.write(&attach.encode(session_key)).map_err(lost)?;
        let mut answer = [0; REPLY_BYTES];
        stream.read_exact(&mut answer).map_err(lost)?;
        if !attach::verify_reply(&answer, session_key, &attach.nonce) {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("{peer} answered on the data port without knowing the session"),
            ));
        }
        stream.use_key(session_key, &attach.nonce);
        Ok(stream)
    }

    /// The accepting side's end, after [`read_attach`] and the check of its proof.
    pub(crate) fn accept(
        mut unattached: Unattached,
        attach: &Attach,
        session_key: &[u8; 32],
    ) -> io::Result<Self> {
        let stream = &mut unattached.0;
        stream.write(&attach::reply(session_key, &attach.nonce))?;
        stream.use_key(session_key, &attach.nonce);
        Ok(unattached.0)
    }

    fn use_key(&mut self, session_key: &[u8; 32], nonce: &[u8; 32]) {
        if !self.is_encrypted() {
            self.tagger = Tagger::keyed(attach::stream_key(session_key, nonce));
        }
    }

    /// Keeps a seat for as long as the connection lives.
    pub(crate) fn keep(&mut self, seat: Seat) {
        self.seat = Some(seat);
    }

    /// Sends in turn with others from now on.
    pub(crate) fn set_throttle(&mut self, throttle: Option<Arc<Throttle>>) {
        self.throttle = throttle;
    }

    /// Shares its port with others from now on, as the side that receives.
    pub(crate) fn set_lane(&mut self, lane: Option<Lane>) {
        self.lane = lane;
    }

    /// Sends payload only as it is asked for from now on.
    pub(crate) fn set_gate(&mut self, gate: Option<Gate>) {
        self.gate = gate;
    }

    /// Keeps to a limit of bursts from now on.
    pub(crate) fn set_burst_limit(&mut self, limit: Arc<BurstLimit>) {
        self.burst = limit;
    }

    /// Sends files through a pipe from now on, where they go straight to the socket.
    pub(crate) fn set_pipe(&mut self, pipe: Option<Pipe>) {
        self.pipe = pipe;
    }

    /// Whether bytes of a file may go straight to the socket: not where they are encrypted, nor
    /// where they are to go in short bursts.
    pub(crate) fn can_send_file(&self) -> bool {
        !self.is_encrypted() && self.burst.get().is_none()
    }

    /// Whether bytes are encrypted by this stream.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some() || self.socket.is_encrypted()
    }

    /// The connection itself, to watch or end it.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Bytes sent or received on the wire since the last call.
    pub(crate) fn take_wire_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.wire_bytes)
    }

    /// Time spent encrypting or decrypting since the last call.
    pub(crate) fn take_crypto_time(&mut self) -> Duration {
        std::mem::take(&mut self.crypto_time)
    }

    /// Waits, with nothing held back, until some payload may be sent: so no frame begins whose
    /// payload nobody has asked for.
    pub(crate) fn wait_until_asked(&mut self) -> io::Result<()> {
        if self.gate.as_ref().is_none_or(Gate::is_open) {
            return Ok(());
        }
        self.flush()?;
        self.gate.as_ref().map_or(Ok(()), Gate::wait)
    }

    /// Starts a frame. Its header travels with the first bytes of the payload.
    pub(crate) fn begin(&mut self, header: &Header) -> [u8; HEADER_BYTES] {
        let bytes = header.encode();
        self.held.extend_from_slice(&bytes);
        bytes
    }

    /// Sends a piece of payload from memory.
    pub(crate) fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut rest = payload;
        loop {
            let turn;
            (turn, rest) = rest.split_at(self.wait_for_turn(rest.len())?);
            let before = self.wire_bytes + turn.len() as u64;
            self.send_now(turn)?;
            if self.throttle.is_some() {
                self.unpaid += self.wire_bytes.saturating_sub(before) as usize;
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Waits until some of so many bytes may be sent, and returns how many.
    fn wait_for_turn(&mut self, len: usize) -> io::Result<usize> {
        let most = self.throttle.as_ref().map_or(usize::MAX, |throttle| throttle.turn_bytes());
        let turn = len.min(most);
        let turn = self.gate.as_mut().map_or(Ok(turn), |gate| gate.take(turn))?;
        if let Some(throttle) = &self.throttle {
            throttle.wait(turn + std::mem::take(&mut self.unpaid))?;
        }
        Ok(turn)
    }

    fn send_now(&mut self, payload: &[u8]) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        let mut output = Bursts { socket: &mut self.socket, limit: self.burst.get() };
        match &mut self.tls {
            Some(tls) => {
                let mut started = Instant::now();
                tls.writer().write_all(&held)?;
                let (first, rest) = payload.split_at(payload.len().min(CIPHER_BYTES));
                for part in std::iter::once(first).chain(rest.chunks(CIPHER_BYTES)) {
                    tls.writer().write_all(part)?;
                    self.crypto_time += started.elapsed();
                    while tls.wants_write() {
                        self.wire_bytes += tls.write_tls(&mut output)? as u64;
                    }
                    started = Instant::now();
                }
            }
            None => {
                write_both(&mut output, &held, payload)?;
                self.wire_bytes += (held.len() + payload.len()) as u64;
            }
        }
        self.held = held;
        self.held.clear();
        Ok(())
    }

    /// Sends a piece of payload straight from a file, without copying it through user space. Only
    /// for streams that are not encrypted; by one call, or as many as suit its buffer. An error is
    /// the connection's; what the file is to blame for comes with what has gone before.
    pub(crate) fn send_file(
        &mut self,
        file: &File,
        offset: u64,
        len: usize,
        is_whole: bool,
    ) -> io::Result<SendOutcome> {
        self.flush()?;
        let buffer = self.socket.send_buffer();
        let at_once = if is_whole { len } else { Engine::sender_bytes(buffer) };
        let mut gone = SendOutcome::default();
        let mut turn = 0;
        while gone.bytes < len {
            if turn == 0 {
                turn = self.wait_for_turn(len - gone.bytes)?;
            }
            let at = offset + gone.bytes as u64;
            let most = turn.min(at_once);
            let sent = match &self.pipe {
                Some(pipe) => self.socket.splice_file(pipe, file, at, turn),
                None => retry_interrupted(|| self.socket.send_file(file, at, most)),
            };
            match sent {
                Ok(0) => break,
                Ok(sent) => (gone.bytes, turn) = (gone.bytes + sent, turn - sent),
                Err(e) if is_of_file(&e) => {
                    gone.refused = Some(e);
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        if let Some(gate) = &mut self.gate {
            gate.give_back(turn);
        }
        self.wire_bytes += gone.bytes as u64;
        Ok(gone)
    }

    /// Ends a frame with its tag, which travels with whatever comes next, or at the next
    /// [`flush`](Self::flush).
    pub(crate) fn end(&mut self, header: &[u8; HEADER_BYTES], payload_hash: &[u8; 32]) {
        let tag = self.tagger.next(header, payload_hash);
        self.held.extend_from_slice(&tag);
    }

    /// Sends what is held back.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() { Ok(()) } else { self.send(&[]) }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.held.extend_from_slice(bytes);
        self.flush()
    }

    /// Reads the next header; `None` when the connection ended in order, that is with
    /// [`Header::End`].
    ///
    /// A read timeout while nothing of a header has come is reported as `WouldBlock`; inside a
    /// frame it is `TimedOut`.
    pub(crate) fn receive_header(&mut self) -> io::Result<Option<([u8; HEADER_BYTES], Header)>> {
        let mut bytes = [0; HEADER_BYTES];
        let first = self.read(&mut bytes)?;
        if first == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_exact(&mut bytes[first..])?;
        match Header::decode(&bytes).map_err(io::Error::other)? {
            Header::End => Ok(None),
            header => Ok(Some((bytes, header))),
        }
    }

    /// Reads what belongs to a frame and is no payload, and fills `out`.
    pub(crate) fn receive(&mut self, out: &mut [u8]) -> io::Result<()> {
        self.read_exact(out)
    }

    /// Reads a piece of payload that fills `out`. While its sender was not asked for more it may
    /// take any time.
    pub(crate) fn receive_payload(&mut self, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            // What it was asked for a moment ago is not late.
            let was_owed = self.is_owed();
            let n = match self.read(out) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !was_owed => continue,
                read => read.map_err(in_frame)?,
            };
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(lane) = &self.lane {
                lane.on_payload(n);
            }
            out = &mut out[n..];
        }
        Ok(())
    }

    /// A frame with so much payload begins.
    pub(crate) fn frame_begins(&mut self, bytes: u64) {
        if let Some(lane) = &mut self.lane {
            lane.on_frame(bytes);
        }
    }

    fn is_owed(&self) -> bool {
        self.lane.as_ref().is_none_or(Lane::is_owed)
    }

    /// What computes the tags of this stream's frames.
    pub(crate) fn tagger(&self) -> Tagger {
        self.tagger.clone()
    }

    fn read_exact(&mut self, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            let n = self.read(out).map_err(in_frame)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            out = &mut out[n..];
        }
        Ok(())
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            let n = retry_interrupted(|| self.socket.read(out))?;
            self.wire_bytes += n as u64;
            if let Some(lane) = &mut self.lane {
                lane.on_read(&self.socket);
            }
            return Ok(n);
        };
        loop {
            match tls.reader().read(out) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if self.raw_taken == self.raw_len {
                if self.raw.is_empty() {
                    self.raw.resize(RAW_BYTES, 0);
                }
                self.raw_taken = 0;
                self.raw_len = 0;
                self.raw_len = retry_interrupted(|| self.socket.read(&mut self.raw))?;
                self.wire_bytes += self.raw_len as u64;
                if let Some(lane) = &mut self.lane {
                    lane.on_read(&self.socket);
                }
                if self.raw_len == 0 {
                    tls.read_tls(&mut io::empty())?;
                    continue;
                }
            }
            // A piece at a time: rustls holds no more than a record or so of decrypted data.
            let started = Instant::now();
            let mut raw = &self.raw[self.raw_taken..self.raw_len];
            self.raw_taken += tls.read_tls(&mut raw)?;
            tls.process_new_packets().map_err(io::Error::other)?;
            self.crypto_time += started.elapsed();
        }
    }
}

/// What has gone of a piece of a file: less than all of it where the file ended early.
#[derive(Debug, Default)]
pub(crate) struct SendOutcome {
    pub(crate) bytes: usize,
    /// Why the kernel does not send more of this file by itself.
    pub(crate) refused: Option<io::Error>,
}

/// Whether sending from a file failed by that file, which may still be read: its file system has no
/// such thing, or its disk or server gave nothing. No connection reports these. (sendfile(2),
/// splice(2), tcp(7))
fn is_of_file(error: &io::Error) -> bool {
    /// EIO, EINVAL, ENOSYS and ESTALE. (errno(3))
    const OF_FILES: [i32; 4] = [5, 22, 38, 116];
    error.raw_os_error().is_some_and(|code| OF_FILES.contains(&code))
}

/// Within a frame nothing may take long.
fn in_frame(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

fn retry_interrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Writes one behind the other. The second may be in a mapping of a file.
fn write_both(output: &mut impl Write, mut first: &[u8], mut second: &[u8]) -> io::Result<()> {
    while !(first.is_empty() && second.is_empty()) {
        match output.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(done) => {
                let of_first = done.min(first.len());
                (first, second) = (&first[of_first..], &second[done - of_first..]);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The file was cut: what is gone reads as zeros as soon as this process reads it.
            Err(e) if bankfull_sys::is_gone(&e) => touch(second),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads something of each page.
fn touch(bytes: &[u8]) {
    const PAGE_BYTES_LEAST: usize = 4096;
    bytes.iter().step_by(PAGE_BYTES_LEAST).chain(bytes.last()).for_each(|byte| {
        std::hint::black_box(*byte);
    });
}

/// A connection that asked to join a session and was not answered yet.
pub(crate) struct Unattached(DataStream);

/// Reads the rest of an attach request whose magic was seen already.
pub(crate) fn read_attach(
    socket: Socket,
    tls: Option<Connection>,
    magic: &[u8; 8],
) -> io::Result<(Unattached, [u8; REQUEST_BYTES])> {
    let mut stream = DataStream::new(socket, tls);
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..magic.len()].copy_from_slice(magic);
    stream.read_exact(&mut bytes[magic.len()..])?;
    Ok((Unattached(stream), bytes))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::net::ahead::{ReadAhead, Taken};
    use bankfull_control::Bytes;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    pub(crate) fn pair() -> (DataStream, DataStream) {
        let (a, b) = UnixStream::pair().unwrap();
        let attach = Attach { version: 1, stream: 0, session: [1; 16], nonce: [2; 32] };
        let key = [3; 32];
        let accept = std::thread::spawn(move || {
            let mut socket = Socket::Unix(b);
            let mut magic = [0; 8];
            socket.read_exact(&mut magic).unwrap();
            let (unattached, bytes) = read_attach(socket, None, &magic).unwrap();
            assert!(attach::verify(&bytes, &key));
            let attach = Attach::decode(&bytes).unwrap();
            DataStream::accept(unattached, &attach, &key).unwrap()
        });
        let a = DataStream::attach(Socket::Unix(a), None, &attach, &key, "b").unwrap();
        (a, accept.join().unwrap())
    }

    #[test]
    fn a_frame_arrives_as_it_was_sent_and_a_changed_payload_is_noticed() {
        let (mut a, b) = pair();
        let header = Header::Block { file: 1, offset: 0, len: 4 };
        for (payload, told) in [(b"good", b"good"), (b"evil", b"good")] {
            let bytes = a.begin(&header);
            a.send(payload).unwrap();
            a.end(&bytes, blake3::hash(told).as_bytes());
        }
        a.begin(&Header::End);
        a.flush().unwrap();
        std::thread::scope(|scope| {
            let mut b = ReadAhead::start(scope, b, &Arc::default(), None, None).unwrap();
            for expected in [true, false] {
                let Taken::Header(bytes, got) = b.next().unwrap() else { panic!("no header") };
                assert_eq!(got, header);
                let hash = blake3::hash(&b.next_piece().unwrap());
                assert_eq!(b.next_tag(&bytes, hash.as_bytes()).unwrap(), expected);
            }
            assert!(matches!(b.next().unwrap(), Taken::End));
        });
    }

    #[test]
    fn a_file_that_the_kernel_does_not_send_by_itself_is_no_trouble_of_the_connection() {
        // It is made when it is read, and goes to no pipe.
        let made = File::open("/proc/self/environ").unwrap();
        for pipe in [None, Some(Pipe::new(1 << 16).unwrap())] {
            let (mut a, mut b) = pair();
            a.set_pipe(pipe);
            let gone = a.send_file(&made, 0, 10, false).unwrap();
            assert!(gone.bytes == 0 && gone.refused.is_some(), "{gone:?}");
            a.send(b"from memory").unwrap();
            let mut came = [0; 11];
            b.receive(&mut came).unwrap();
            assert_eq!(&came, b"from memory");
            drop(b);
            let file = File::open("/proc/self/exe").unwrap();
            let kind = a.send_file(&file, 0, 10, false).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::BrokenPipe, "the connection's");
        }
    }

    #[test]
    fn bytes_that_go_in_short_bursts_arrive_as_they_are() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nodelay(true).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut stream = DataStream::new(Socket::Tcp(near), None);
        let limit = Arc::new(BurstLimit::default());
        limit.set(Some(Bytes(1000)));
        stream.set_burst_limit(Arc::clone(&limit));
        assert!(!stream.can_send_file());
        let payload: Vec<u8> = (0..10_300_u32).map(|n| n as u8).collect();
        let header = stream.begin(&Header::Filler { len: payload.len() as u32 });
        stream.send(&payload).unwrap();
        let mut got = vec![0; header.len() + payload.len()];
        far.read_exact(&mut got).unwrap();
        assert!(got[..header.len()] == header && got[header.len()..] == payload);
        let came = bankfull_sys::tcp_info(&far).unwrap().data_segs_in.unwrap();
        assert!(came >= 11, "in {came} segments");
        limit.set(None);
        assert!(stream.can_send_file());
    }

    #[test]
    fn a_reader_that_is_dropped_does_not_leave_its_thread_waiting() {
        let (_a, b) = pair();
        std::thread::scope(|scope| {
            drop(ReadAhead::start(scope, b, &Arc::default(), None, None).unwrap())
        });
    }

    #[test]
    fn a_connection_that_just_ends_is_an_error() {
        let (a, mut b) = pair();
        drop(a);
        assert_eq!(b.receive_header().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_far_side_without_the_key_is_refused() {
        let (a, mut b) = UnixStream::pair().unwrap();
        let attach = Attach { version: 1, stream: 0, session: [1; 16], nonce: [2; 32] };
        b.write_all(&[9; REPLY_BYTES]).unwrap();
        let error =
            DataStream::attach(Socket::Unix(a), None, &attach, &[3; 32], "b").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Refused);
    }
}
