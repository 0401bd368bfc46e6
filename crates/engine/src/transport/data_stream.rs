//! Data stream: frames of raw bytes in one direction, encrypted or not.
//!
//! The connecting side attaches it to a session ([`DataStream::attach`]), the accepting side
//! verifies that ([`read_attach`], [`DataStream::accept`]). Then one side sends and the other
//! receives.

use super::credit::StreamCredit;
use super::receive_hook::ReceiveHook;
use super::socket::{BurstLimit, BurstWriter, Socket};
use crate::base::error::{Error, ErrorKind};
use crate::model::io_method::IoMethod;
use crate::model::shared_limit::SharedLimit;
use crate::model::throttle::Throttle;
use bankfull_proto::wire::attach::{self, Attach, REPLY_BYTES, REQUEST_BYTES};
use bankfull_proto::wire::data::{HEADER_BYTES, Header, Tagger};
use bankfull_sys::Pipe;
use rustls::Connection;
use std::any::Any;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes read from a socket at once for decryption: a few full TLS records, which stay in a core's
/// cache. (measured: no gain beyond 256 KiB)
const RAW_BUFFER_BYTES: usize = 256 << 10;

/// Bytes encrypted at once: four full TLS records. rustls allocates each record and frees it when
/// sent; memory freed beyond 128 KiB (`M_TRIM_THRESHOLD`, mallopt(3)) returns to the kernel and is
/// faulted in again page by page. (measured: 2 GB in parts of 256 KiB take 240 000 page faults and
/// 2.1 s of CPU time, in parts of 64 KiB 800 and 1.4 s)
const ENCRYPT_CHUNK_BYTES: usize = 64 << 10;

/// Data stream that belongs to a session.
pub(crate) struct DataStream {
    socket: Socket,
    tls: Option<Box<Connection>>,
    tagger: Tagger,
    /// Headers and tags not sent yet; they are sent with the next payload.
    deferred: Vec<u8>,
    /// Received TLS records that are not decrypted yet.
    raw: RawInput,
    wire_bytes: u64,
    crypto_time: Duration,
    /// Rate limit on the sending side.
    throttle: Option<Arc<Throttle>>,
    /// Rate limit that other sessions share.
    shared_limit: Option<Arc<SharedLimit>>,
    /// Credit granted by the receiver, if the stream needs it to send.
    credit: Option<StreamCredit>,
    /// Hook of the incast controller on the receiving side.
    flow_hook: Option<Box<dyn ReceiveHook>>,
    /// Burst size limit on the sending side.
    burst_limit: Arc<BurstLimit>,
    /// Pipe for splice(2), if files are sent with it.
    pipe: Option<Pipe>,
    /// Bytes sent without waiting for the rate limit: headers, tags and TLS overhead.
    uncharged_bytes: usize,
    /// Admission permit, released with the stream.
    permit: Option<BoxedPermit>,
}

/// Received bytes that are not decrypted yet.
#[derive(Default)]
struct RawInput {
    buffer: Vec<u8>,
    /// Bytes passed to TLS, out of `len` received.
    consumed: usize,
    len: usize,
}

impl RawInput {
    fn is_consumed(&self) -> bool {
        self.consumed == self.len
    }

    /// Replaces the content by what one read of the socket returns; empty at its end.
    fn fill(&mut self, socket: &mut Socket, max_bytes: usize) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.buffer.resize(RAW_BUFFER_BYTES, 0);
        }
        (self.consumed, self.len) = (0, 0);
        let space = &mut self.buffer[..max_bytes.min(RAW_BUFFER_BYTES)];
        self.len = retry_interrupted(|| socket.read(space))?;
        Ok(())
    }
}

/// Admission permit of a server; dropping it frees the slot.
pub(crate) type BoxedPermit = Box<dyn Any + Send>;

impl DataStream {
    fn new(socket: Socket, tls: Option<Connection>) -> Self {
        let mut tls = tls.map(Box::new);
        if let Some(tls) = &mut tls {
            // The stream bounds the queue itself, to one chunk.
            tls.set_buffer_limit(None);
        }
        Self {
            socket,
            tls,
            tagger: Tagger::unkeyed(),
            deferred: Vec::new(),
            raw: RawInput::default(),
            wire_bytes: 0,
            crypto_time: Duration::ZERO,
            throttle: None,
            shared_limit: None,
            credit: None,
            flow_hook: None,
            burst_limit: Arc::default(),
            pipe: None,
            uncharged_bytes: 0,
            permit: None,
        }
    }

    /// Attaches a new connection to a session. Verifies that the peer knows the session key.
    pub(crate) fn attach(
        socket: Socket,
        tls: Option<Connection>,
        attach: &Attach,
        session_key: &[u8; 32],
        peer: &str,
    ) -> Result<Self, Error> {
        let mut stream = Self::new(socket, tls);
        let failed = |e: io::Error| Error::network(format!("a data stream to {peer} failed"), &e);
        stream.write(&attach.encode(session_key)).map_err(failed)?;
        let mut reply = [0; REPLY_BYTES];
        stream.read_exact(&mut reply).map_err(failed)?;
        if !attach::verify_reply(&reply, session_key, &attach.nonce) {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("the data port of {peer} belongs to another server: wrong session key"),
            ));
        }
        stream.set_tag_key(session_key, &attach.nonce);
        Ok(stream)
    }

    /// Accepts a connection after [`read_attach`], once its proof is verified.
    pub(crate) fn accept(
        mut unattached: Unattached,
        attach: &Attach,
        session_key: &[u8; 32],
    ) -> io::Result<Self> {
        let stream = &mut unattached.0;
        stream.write(&attach::reply(session_key, &attach.nonce))?;
        stream.set_tag_key(session_key, &attach.nonce);
        Ok(unattached.0)
    }

    fn set_tag_key(&mut self, session_key: &[u8; 32], nonce: &[u8; 32]) {
        if !self.is_encrypted() {
            self.tagger = Tagger::keyed(attach::stream_key(session_key, nonce));
        }
    }

    /// Holds an admission permit for the lifetime of the stream.
    pub(crate) fn set_permit(&mut self, permit: BoxedPermit) {
        self.permit = Some(permit);
    }

    /// Sets the rate limit to send under.
    pub(crate) fn set_throttle(&mut self, throttle: Option<Arc<Throttle>>) {
        self.throttle = throttle;
    }

    /// Sets the rate limit that is shared with other sessions.
    pub(crate) fn set_shared_limit(&mut self, limit: Option<Arc<SharedLimit>>) {
        self.shared_limit = limit;
    }

    /// Sets the incast controller's hook on the receiving side.
    pub(crate) fn set_flow_hook(&mut self, flow_hook: Option<Box<dyn ReceiveHook>>) {
        self.flow_hook = flow_hook;
    }

    /// Sets the credit that payload needs to be sent.
    pub(crate) fn set_credit(&mut self, credit: Option<StreamCredit>) {
        self.credit = credit;
    }

    /// Sets the burst size limit.
    pub(crate) fn set_burst_limit(&mut self, limit: Arc<BurstLimit>) {
        self.burst_limit = limit;
    }

    /// Sets the pipe to send files with splice(2).
    pub(crate) fn set_pipe(&mut self, pipe: Option<Pipe>) {
        self.pipe = pipe;
    }

    /// True if files can be sent from the kernel: neither encrypted nor limited to bursts.
    pub(crate) fn can_send_file(&self) -> bool {
        !self.is_encrypted() && self.burst_limit.get().is_none()
    }

    /// True if the stream or its transport encrypts.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some() || self.socket.is_encrypted()
    }

    /// Returns the connection, to monitor or end it.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the bytes on the wire since the last call.
    pub(crate) fn take_wire_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.wire_bytes)
    }

    /// Returns the time spent on encryption since the last call.
    pub(crate) fn take_crypto_time(&mut self) -> Duration {
        std::mem::take(&mut self.crypto_time)
    }

    /// Waits for credit after a flush. No frame starts without credit for its payload.
    pub(crate) fn wait_for_credit(&mut self) -> io::Result<()> {
        if self.credit.as_ref().is_none_or(StreamCredit::is_available) {
            return Ok(());
        }
        self.flush()?;
        self.credit.as_ref().map_or(Ok(()), StreamCredit::wait)
    }

    /// Starts a frame; its header is sent with the first bytes of the payload.
    pub(crate) fn begin_frame(&mut self, header: &Header) -> [u8; HEADER_BYTES] {
        let bytes = header.encode();
        self.deferred.extend_from_slice(&bytes);
        bytes
    }

    /// Sends payload from memory.
    pub(crate) fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut rest = payload;
        loop {
            let part;
            (part, rest) = rest.split_at(self.reserve(rest.len())?);
            let before = self.wire_bytes + part.len() as u64;
            self.send_now(part)?;
            if self.throttle.is_some() {
                self.uncharged_bytes += self.wire_bytes.saturating_sub(before) as usize;
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Waits until the stream may send; returns how many of `len` bytes.
    fn reserve(&mut self, len: usize) -> io::Result<usize> {
        let max_burst =
            self.throttle.as_ref().map_or(usize::MAX, |throttle| throttle.max_burst_bytes());
        let of_share = self.shared_limit.as_ref().map_or(usize::MAX, |l| l.max_burst_bytes());
        let wanted = len.min(max_burst).min(of_share);
        let wanted = self.credit.as_mut().map_or(Ok(wanted), |credit| credit.consume(wanted))?;
        if let Some(limit) = &self.shared_limit {
            limit.wait(wanted)?;
        }
        let Some(throttle) = &self.throttle else { return Ok(wanted) };
        let granted = throttle.wait(wanted, std::mem::take(&mut self.uncharged_bytes))?;
        // The limit became lower during the wait.
        if let Some(credit) = self.credit.as_mut().filter(|_| granted < wanted) {
            credit.refund(wanted - granted);
        }
        Ok(granted)
    }

    fn send_now(&mut self, payload: &[u8]) -> io::Result<()> {
        let deferred = std::mem::take(&mut self.deferred);
        let mut output = BurstWriter { socket: &mut self.socket, limit: self.burst_limit.get() };
        match &mut self.tls {
            Some(tls) => {
                let mut started = Instant::now();
                tls.writer().write_all(&deferred)?;
                let (first, rest) = payload.split_at(payload.len().min(ENCRYPT_CHUNK_BYTES));
                for part in std::iter::once(first).chain(rest.chunks(ENCRYPT_CHUNK_BYTES)) {
                    tls.writer().write_all(part)?;
                    self.crypto_time += started.elapsed();
                    while tls.wants_write() {
                        self.wire_bytes += tls.write_tls(&mut output)? as u64;
                    }
                    started = Instant::now();
                }
            }
            None => {
                write_both(&mut output, &deferred, payload)?;
                self.wire_bytes += (deferred.len() + payload.len()) as u64;
            }
        }
        self.deferred = deferred;
        self.deferred.clear();
        Ok(())
    }

    /// Sends payload from a file without copying it through user space.
    ///
    /// For unencrypted streams only. `is_whole` allows one system call for all of it; else a call
    /// is limited by the send buffer.
    ///
    /// # Errors
    /// Errors of the connection; an error of the file is part of the outcome.
    pub(crate) fn send_file(
        &mut self,
        file: &File,
        offset: u64,
        len: usize,
        is_whole: bool,
    ) -> io::Result<SendOutcome> {
        self.flush()?;
        let buffer = self.socket.send_buffer_bytes();
        let max_call_bytes = if is_whole { len } else { IoMethod::sender_call_bytes(buffer) };
        let mut outcome = SendOutcome::default();
        let mut granted = 0;
        while outcome.bytes < len {
            if granted == 0 {
                granted = self.reserve(len - outcome.bytes)?;
            }
            let at = offset + outcome.bytes as u64;
            let call_bytes = granted.min(max_call_bytes);
            let sent = match &self.pipe {
                Some(pipe) => self.socket.splice_file(pipe, file, at, granted),
                None => retry_interrupted(|| self.socket.send_file(file, at, call_bytes)),
            };
            match sent {
                Ok(0) => break,
                Ok(sent) => (outcome.bytes, granted) = (outcome.bytes + sent, granted - sent),
                Err(e) if is_file_error(&e) => {
                    outcome.file_error = Some(e);
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        if let Some(credit) = &mut self.credit {
            credit.refund(granted);
        }
        self.wire_bytes += outcome.bytes as u64;
        Ok(outcome)
    }

    /// Ends a frame with its tag, which is sent with the next frame or [`flush`](Self::flush).
    pub(crate) fn end_frame(&mut self, header: &[u8; HEADER_BYTES], payload_hash: &[u8; 32]) {
        let tag = self.tagger.next(header, payload_hash);
        self.deferred.extend_from_slice(&tag);
    }

    /// Sends deferred headers and tags.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.deferred.is_empty() { Ok(()) } else { self.send(&[]) }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.deferred.extend_from_slice(bytes);
        self.flush()
    }

    /// Reads the next header; `None` after an orderly end ([`Header::End`]).
    ///
    /// # Errors
    /// `WouldBlock` for a read timeout before a header, `TimedOut` within a frame.
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

    /// Fills `out` with bytes of a frame other than payload.
    pub(crate) fn receive(&mut self, out: &mut [u8]) -> io::Result<()> {
        self.read_exact(out)
    }

    /// Fills `out` with payload. Timeouts are ignored while the sender has no credit.
    pub(crate) fn receive_payload(&mut self, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            // Credit granted during the read does not make the data late.
            let had_credit = self.has_outstanding_credit();
            let n = match self.read(out) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !had_credit => continue,
                read => read.map_err(timeout_in_frame)?,
            };
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(flow_hook) = &self.flow_hook {
                flow_hook.on_payload(n);
            }
            out = &mut out[n..];
        }
        Ok(())
    }

    /// Reports the start of a frame with `bytes` of payload.
    pub(crate) fn on_frame_start(&mut self, bytes: u64) {
        if let Some(flow_hook) = &mut self.flow_hook {
            flow_hook.on_frame(bytes);
        }
    }

    fn has_outstanding_credit(&self) -> bool {
        self.flow_hook.as_ref().is_none_or(|hook| hook.has_outstanding_credit())
    }

    /// Returns the tag computation of this stream's frames.
    pub(crate) fn tagger(&self) -> Tagger {
        self.tagger.clone()
    }

    fn read_exact(&mut self, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            let n = self.read(out).map_err(timeout_in_frame)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            out = &mut out[n..];
        }
        Ok(())
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let max_bytes = self.shared_limit.as_ref().map_or(usize::MAX, |l| l.max_burst_bytes());
        let Some(tls) = &mut self.tls else {
            let len = out.len().min(max_bytes);
            let n = retry_interrupted(|| self.socket.read(&mut out[..len]))?;
            self.wire_bytes += n as u64;
            if let Some(flow_hook) = &mut self.flow_hook {
                flow_hook.on_read(&self.socket);
            }
            if let Some(limit) = &self.shared_limit {
                limit.wait(n)?;
            }
            return Ok(n);
        };
        loop {
            match tls.reader().read(out) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if self.raw.is_consumed() {
                self.raw.fill(&mut self.socket, max_bytes)?;
                self.wire_bytes += self.raw.len as u64;
                if let Some(flow_hook) = &mut self.flow_hook {
                    flow_hook.on_read(&self.socket);
                }
                if let Some(limit) = &self.shared_limit {
                    limit.wait(self.raw.len)?;
                }
                if self.raw.len == 0 {
                    tls.read_tls(&mut io::empty())?;
                    continue;
                }
            }
            // One read at a time: rustls buffers little more than a record of plaintext.
            let started = Instant::now();
            let mut raw = &self.raw.buffer[self.raw.consumed..self.raw.len];
            self.raw.consumed += tls.read_tls(&mut raw)?;
            tls.process_new_packets().map_err(io::Error::other)?;
            self.crypto_time += started.elapsed();
        }
    }
}

/// Outcome of sending part of a file; fewer bytes than requested if the file has shrunk.
#[derive(Debug, Default)]
pub(crate) struct SendOutcome {
    /// Bytes sent.
    pub(crate) bytes: usize,
    /// Reason why the kernel cannot send more of this file.
    pub(crate) file_error: Option<io::Error>,
}

/// True if sending failed because of the file, which may still be readable.
///
/// Its file system lacks the call, or its disk or server failed; connections never report these
/// errors. (sendfile(2), splice(2), tcp(7))
fn is_file_error(error: &io::Error) -> bool {
    /// EIO, EINVAL, ENOSYS and ESTALE (errno(3)).
    const FILE_ERRNOS: [i32; 4] = [5, 22, 38, 116];
    error.raw_os_error().is_some_and(|code| FILE_ERRNOS.contains(&code))
}

/// Turns a read timeout into an error, as within a frame.
fn timeout_in_frame(error: io::Error) -> io::Error {
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

/// Writes `first`, then `second`, which may lie in a file mapping.
fn write_both(output: &mut impl Write, mut first: &[u8], mut second: &[u8]) -> io::Result<()> {
    while !(first.is_empty() && second.is_empty()) {
        match output.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(done) => {
                let of_first = done.min(first.len());
                (first, second) = (&first[of_first..], &second[done - of_first..]);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The file was truncated: lost pages read as zeros once this process touches them.
            Err(e) if bankfull_sys::is_mapping_fault(&e) => fault_in(second),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads a byte of each page.
fn fault_in(bytes: &[u8]) {
    const MIN_PAGE_BYTES: usize = 4096;
    bytes.iter().step_by(MIN_PAGE_BYTES).chain(bytes.last()).for_each(|byte| {
        std::hint::black_box(*byte);
    });
}

/// Connection that has requested to join a session and has no reply yet.
pub(crate) struct Unattached(DataStream);

/// Reads the rest of an attach request after its magic.
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
    fn unsendable_file_is_not_a_connection_error() {
        // procfs generates this file on read, and cannot splice it.
        let generated = File::open("/proc/self/environ").unwrap();
        for pipe in [None, Some(Pipe::new(1 << 16).unwrap())] {
            let (mut a, mut b) = pair();
            a.set_pipe(pipe);
            let outcome = a.send_file(&generated, 0, 10, false).unwrap();
            assert!(outcome.bytes == 0 && outcome.file_error.is_some(), "{outcome:?}");
            a.send(b"from memory").unwrap();
            let mut received = [0; 11];
            b.receive(&mut received).unwrap();
            assert_eq!(&received, b"from memory");
            drop(b);
            let file = File::open("/proc/self/exe").unwrap();
            let kind = a.send_file(&file, 0, 10, false).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::BrokenPipe, "a connection error");
        }
    }

    #[test]
    fn payload_in_short_bursts_arrives_unchanged() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut stream = DataStream::new(Socket::Tcp(client), None);
        let limit = Arc::new(BurstLimit::default());
        limit.set(Some(Bytes(1000)));
        stream.set_burst_limit(Arc::clone(&limit));
        assert!(!stream.can_send_file());
        let payload: Vec<u8> = (0..10_300_u32).map(|n| n as u8).collect();
        let header = stream.begin_frame(&Header::Filler { len: payload.len() as u32 });
        stream.send(&payload).unwrap();
        let mut got = vec![0; header.len() + payload.len()];
        server.read_exact(&mut got).unwrap();
        assert!(got[..header.len()] == header && got[header.len()..] == payload);
        let received = bankfull_sys::tcp_info(&server).unwrap().data_segs_in.unwrap();
        assert!(received >= 11, "{received} segments");
        limit.set(None);
        assert!(stream.can_send_file());
    }

    #[test]
    fn connection_without_end_frame_is_an_error() {
        let (a, mut b) = pair();
        drop(a);
        assert_eq!(b.receive_header().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn peer_without_session_key_is_refused() {
        let (a, mut b) = UnixStream::pair().unwrap();
        let attach = Attach { version: 1, stream: 0, session: [1; 16], nonce: [2; 32] };
        b.write_all(&[9; REPLY_BYTES]).unwrap();
        let error =
            DataStream::attach(Socket::Unix(a), None, &attach, &[3; 32], "b").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Refused);
    }
}
