//! Reader of a data stream's frames.
//!
//! One thread receives and decrypts while another hashes and writes; chunks between the two are
//! held in the buffer pool (`buffer_pool.rs`).

use super::buffer_pool::{BufferPool, CHUNK_BYTES, PoolChunk, PoolShare};
use super::data_stream::DataStream;
use super::receive_hook::ReceiveHook;
use super::socket::Socket;
use super::socket::clamp_window;
use crate::base::barrier::BarrierParty;
use crate::base::sync::lock;
use crate::base::threads::try_spawn;
use bankfull_control::Bytes;
use bankfull_proto::wire::data::{HEADER_BYTES, Header, TAG_BYTES, Tagger};
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use std::time::Duration;

/// Initial receive window. Linux starts with 64 KiB, which slow start fills in its third RTT,
/// before the kernel has autotuned it. (measured at 1 Gbit/s, 100 ms, 16 streams: senders waited up
/// to 0.3 s for the window; with 512 KiB a copy of 82 MB ends 0.09 s sooner)
const INITIAL_WINDOW_BYTES: u32 = 512 << 10;

/// Events of a data stream, in order.
pub(crate) enum FrameEvent {
    /// Header of a frame; payload and tag follow.
    Header([u8; HEADER_BYTES], Header),
    /// Next bytes of the payload.
    Chunk(PoolChunk),
    /// Tag: the end of a frame.
    Tag([u8; TAG_BYTES]),
    /// Read timeout between frames.
    Idle,
    /// End of the stream, as sent by the peer.
    End,
}

/// Counters of the reading thread since they were taken last.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ReaderStats {
    pub(crate) wire_bytes: u64,
    pub(crate) crypto_time: Duration,
    /// CPU time of the thread.
    pub(crate) cpu_time: Duration,
}

/// Consuming end of a data stream.
pub(crate) struct DataFrameReader {
    events: Receiver<io::Result<FrameEvent>>,
    share: Arc<PoolShare>,
    stats: Arc<Mutex<ReaderStats>>,
    tagger: Tagger,
    socket: Socket,
    /// Receives the verified bytes, if a round of synchronized senders waits for them.
    barrier: Option<BarrierParty>,
}

impl DataFrameReader {
    /// Starts the reading thread. `window` is the receive window set by the user; without it a flow
    /// hook may manage the window, else the kernel does.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut stream: DataStream,
        pool: &Arc<BufferPool>,
        window: Option<Bytes>,
        flow_hook: Option<Box<dyn ReceiveHook>>,
    ) -> io::Result<Self> {
        let socket = stream.socket().try_clone()?;
        let barrier = flow_hook.as_ref().and_then(|hook| hook.barrier_party());
        let is_window_managed = flow_hook.as_ref().is_some_and(|hook| hook.is_clamped());
        stream.set_flow_hook(flow_hook);
        if let Socket::Tcp(tcp) = &socket
            && !is_window_managed
        {
            let bytes = window.map(|window| u32::try_from(window.0).unwrap_or(u32::MAX));
            // If this fails, the kernel's autotuning opens the window.
            let _ = bankfull_sys::grow_receive_window(tcp, bytes.unwrap_or(INITIAL_WINDOW_BYTES));
        }
        if let Some(window) = window {
            clamp_window(&socket, window);
        }
        // Unbounded, but limited by the buffer pool: each frame has a chunk.
        let (sender, events) = channel();
        let share = pool.share();
        let stats = Arc::new(Mutex::new(ReaderStats::default()));
        let tagger = stream.tagger();
        let reader = ReaderThread {
            stream,
            sender,
            share: Arc::clone(&share),
            stats: Arc::clone(&stats),
            cpu_time: Duration::ZERO,
        };
        try_spawn(scope, move || reader.run()).map_err(io::Error::other)?;
        Ok(Self { events, share, stats, tagger, socket, barrier })
    }

    /// Waits for the next event.
    pub(crate) fn next_event(&mut self) -> io::Result<FrameEvent> {
        match self.events.try_recv() {
            Err(TryRecvError::Empty) => self.share.on_starved(),
            Err(TryRecvError::Disconnected) => {}
            Ok(event) => return event,
        }
        // A thread that failed has sent its error already.
        self.events.recv().unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Waits for the next event, which must be a chunk of payload.
    pub(crate) fn next_chunk(&mut self) -> io::Result<PoolChunk> {
        match self.next_event()? {
            FrameEvent::Chunk(chunk) => Ok(chunk),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Reads the tag of a frame; false if it does not match the payload.
    pub(crate) fn verify_tag(
        &mut self,
        header: &[u8; HEADER_BYTES],
        payload_hash: &[u8; 32],
    ) -> io::Result<bool> {
        let FrameEvent::Tag(tag) = self.next_event()? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let expected = self.tagger.next(header, payload_hash);
        // In constant time: on an unencrypted stream the tag authenticates the data.
        Ok(blake3::Hash::from_bytes(expected) == blake3::Hash::from_bytes(tag))
    }

    /// Reports a frame whose `bytes` of payload are verified and written.
    pub(crate) fn report_verified(&self, bytes: u64) {
        if let Some(barrier) = &self.barrier {
            barrier.on_verified(bytes);
        }
    }

    /// Reports `bytes` of payload that arrived damaged. The sender repeats them in the same round.
    pub(crate) fn report_damaged(&self, bytes: u64) {
        if let Some(barrier) = &self.barrier {
            barrier.on_damaged(bytes);
        }
    }

    /// Returns the counters since the last call.
    pub(crate) fn take_stats(&self) -> ReaderStats {
        std::mem::take(&mut lock(&self.stats))
    }
}

/// Ends the reading thread, which must not block on an abandoned stream.
impl Drop for DataFrameReader {
    fn drop(&mut self) {
        self.socket.shutdown();
        while self.events.recv().is_ok() {}
    }
}

/// State of the reading thread.
struct ReaderThread {
    stream: DataStream,
    sender: Sender<io::Result<FrameEvent>>,
    share: Arc<PoolShare>,
    stats: Arc<Mutex<ReaderStats>>,
    /// CPU time at the last report.
    cpu_time: Duration,
}

impl ReaderThread {
    fn run(mut self) {
        self.cpu_time = bankfull_sys::thread_cpu_time();
        loop {
            let event = self.read_frame();
            let is_last = match &event {
                Ok(event) => matches!(event, FrameEvent::End),
                Err(_) => true,
            };
            if self.sender.send(event).is_err() || is_last {
                return;
            }
        }
    }

    /// Reads a frame and emits all its events but the last, which it returns.
    fn read_frame(&mut self) -> io::Result<FrameEvent> {
        let (bytes, header) = match self.stream.receive_header() {
            Ok(Some(header)) => header,
            Ok(None) => {
                self.publish_stats();
                return Ok(FrameEvent::End);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(FrameEvent::Idle),
            Err(e) => return Err(e),
        };
        let len = match header {
            Header::Block { len, .. } | Header::Pack { len, .. } => len as usize,
            // Copies do not use filler frames: the consumer ends the connection.
            Header::End | Header::Filler { .. } => 0,
        };
        self.stream.on_frame_start(len as u64);
        self.emit(FrameEvent::Header(bytes, header))?;
        if len == 0 && header != Header::End {
            // Invalid; the consumer has the header, and reports why.
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut left = len;
        while left > 0 {
            let mut chunk = self.share.allocate(left.min(CHUNK_BYTES))?;
            self.stream.receive_payload(&mut chunk)?;
            left -= chunk.len();
            self.publish_stats();
            self.emit(FrameEvent::Chunk(chunk))?;
        }
        let mut tag = [0; TAG_BYTES];
        self.stream.receive(&mut tag)?;
        self.publish_stats();
        Ok(FrameEvent::Tag(tag))
    }

    fn emit(&self, event: FrameEvent) -> io::Result<()> {
        self.sender.send(Ok(event)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn publish_stats(&mut self) {
        let mut stats = lock(&self.stats);
        stats.wire_bytes += self.stream.take_wire_bytes();
        stats.crypto_time += self.stream.take_crypto_time();
        let cpu_time = bankfull_sys::thread_cpu_time();
        stats.cpu_time += cpu_time.saturating_sub(std::mem::replace(&mut self.cpu_time, cpu_time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::data_stream::tests::pair;
    use std::thread;

    #[test]
    fn frame_with_changed_payload_fails_its_tag() {
        let (mut a, b) = pair();
        let header = Header::Block { file: 1, offset: 0, len: 4 };
        for (payload, tagged) in [(b"good", b"good"), (b"evil", b"good")] {
            let bytes = a.begin_frame(&header);
            a.send(payload).unwrap();
            a.end_frame(&bytes, blake3::hash(tagged).as_bytes());
        }
        a.begin_frame(&Header::End);
        a.flush().unwrap();
        thread::scope(|scope| {
            let mut b = DataFrameReader::start(scope, b, &Arc::default(), None, None).unwrap();
            for expected in [true, false] {
                let FrameEvent::Header(bytes, got) = b.next_event().unwrap() else {
                    panic!("no header")
                };
                assert_eq!(got, header);
                let hash = blake3::hash(&b.next_chunk().unwrap());
                assert_eq!(b.verify_tag(&bytes, hash.as_bytes()).unwrap(), expected);
            }
            assert!(matches!(b.next_event().unwrap(), FrameEvent::End));
        });
    }

    #[test]
    fn dropped_reader_ends_its_thread() {
        let (_a, b) = pair();
        thread::scope(|scope| {
            drop(DataFrameReader::start(scope, b, &Arc::default(), None, None).unwrap())
        });
    }
}
