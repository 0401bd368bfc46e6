//! Reading ahead on a data connection: one thread takes bytes off the socket and decrypts them
//! while another hashes and writes the ones before. What is between them is staged (`staging.rs`).

use super::control::lock;
use super::socket::Socket;
use super::staging::{PIECE_BYTES, Piece, Share, Staging};
use super::stream::DataStream;
use crate::tune::{BarrierSeat, Lane, hold_window};
use bankfull_control::Bytes;
use bankfull_proto::wire::data::{HEADER_BYTES, Header, TAG_BYTES, Tagger};
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope};
use std::time::Duration;

/// Receive window to begin with. Linux begins with 64 KiB, which a slow start passes in its third
/// round trip, before the kernel has seen that it should grow. [measured over 1 Gbit/s, 100 ms, 16
/// streams: senders waited up to 0.3 s for the window; with 512 KiB a copy of 82 MB ends 0.09 s
/// sooner]
const WINDOW_BYTES: u32 = 512 << 10;

/// What comes off a connection, in order.
pub(crate) enum Taken {
    /// A header; its payload and tag follow.
    Header([u8; HEADER_BYTES], Header),
    /// The next bytes of the payload.
    Piece(Piece),
    /// The end of a frame.
    Tag([u8; TAG_BYTES]),
    /// Nothing came for a while.
    Idle,
    /// The sender ended the stream.
    End,
}

/// Figures of the reading thread, handed in as it goes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) wire_bytes: u64,
    pub(crate) crypto_time: Duration,
    /// On a processor.
    pub(crate) busy: Duration,
}

/// The consuming end.
pub(crate) struct ReadAhead {
    taken: Receiver<io::Result<Taken>>,
    share: Arc<Share>,
    figures: Arc<Mutex<Figures>>,
    tagger: Tagger,
    socket: Socket,
    /// Whom to tell what is verified and written, where that is waited for.
    seat: Option<BarrierSeat>,
}

impl ReadAhead {
    /// Starts the reading thread. The receive window is what the user has set, or what is held of
    /// it with others, else the kernel's.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut stream: DataStream,
        staging: &Arc<Staging>,
        window: Option<Bytes>,
        lane: Option<Lane>,
    ) -> io::Result<Self> {
        let socket = stream.socket().try_clone()?;
        let seat = lane.as_ref().and_then(Lane::seat);
        let is_held = lane.as_ref().is_some_and(Lane::is_held);
        stream.set_lane(lane);
        if let Socket::Tcp(tcp) = &socket
            && !is_held
        {
            let bytes = window.map(|window| u32::try_from(window.0).unwrap_or(u32::MAX));
            // Where it cannot be opened, the kernel's own pace does.
            let _ = bankfull_sys::open_window(tcp, bytes.unwrap_or(WINDOW_BYTES));
        }
        if let Some(window) = window {
            hold_window(&socket, window);
        }
        // Bounded by the pieces: each frame has one.
        let (sender, taken) = channel();
        let share = staging.share();
        let figures = Arc::new(Mutex::new(Figures::default()));
        let tagger = stream.tagger();
        let reader = Reader {
            stream,
            sender,
            share: Arc::clone(&share),
            figures: Arc::clone(&figures),
            busy: Duration::ZERO,
        };
        thread::Builder::new().spawn_scoped(scope, move || reader.run())?;
        Ok(Self { taken, share, figures, tagger, socket, seat })
    }

    /// The next thing off the connection; waits for it.
    pub(crate) fn next(&mut self) -> io::Result<Taken> {
        match self.taken.try_recv() {
            Err(TryRecvError::Empty) => self.share.on_starved(),
            Err(TryRecvError::Disconnected) => {}
            Ok(taken) => return taken,
        }
        // A reader that is gone said why before.
        self.taken.recv().unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    /// The next thing, which must be a piece of payload.
    pub(crate) fn next_piece(&mut self) -> io::Result<Piece> {
        match self.next()? {
            Taken::Piece(piece) => Ok(piece),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Reads the tag of a frame and compares it; false when the payload is not what was sent.
    pub(crate) fn next_tag(
        &mut self,
        header: &[u8; HEADER_BYTES],
        payload_hash: &[u8; 32],
    ) -> io::Result<bool> {
        let Taken::Tag(tag) = self.next()? else { return Err(io::ErrorKind::InvalidData.into()) };
        let expected = self.tagger.next(header, payload_hash);
        // In constant time: on a plain stream the tag is a secret's proof.
        Ok(blake3::Hash::from_bytes(expected) == blake3::Hash::from_bytes(tag))
    }

    /// A frame with so much payload is dealt with: all that it brought is verified and written.
    pub(crate) fn frame_done(&self, bytes: u64) {
        if let Some(seat) = &self.seat {
            seat.done(bytes);
        }
    }

    /// So much of a frame's payload was damaged on its way, and is sent again in the same round.
    pub(crate) fn comes_again(&self, bytes: u64) {
        if let Some(seat) = &self.seat {
            seat.again(bytes);
        }
    }

    /// What the reading thread measured since the last call.
    pub(crate) fn take_figures(&self) -> Figures {
        std::mem::take(&mut lock(&self.figures))
    }
}

/// Nobody takes what is read any more: the reading thread must not wait for more.
impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.socket.shutdown();
        while self.taken.recv().is_ok() {}
    }
}

/// The reading thread.
struct Reader {
    stream: DataStream,
    sender: Sender<io::Result<Taken>>,
    share: Arc<Share>,
    figures: Arc<Mutex<Figures>>,
    /// What it had used of a processor when that was reported last.
    busy: Duration,
}

impl Reader {
    fn run(mut self) {
        self.busy = bankfull_sys::thread_cpu_time();
        loop {
            let step = self.frame();
            let last = match &step {
                Ok(taken) => matches!(taken, Taken::End),
                Err(_) => true,
            };
            if self.sender.send(step).is_err() || last {
                return;
            }
        }
    }

    /// Takes a whole frame but its tag, which is returned.
    fn frame(&mut self) -> io::Result<Taken> {
        let (bytes, header) = match self.stream.receive_header() {
            Ok(Some(header)) => header,
            Ok(None) => {
                self.report();
                return Ok(Taken::End);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Taken::Idle),
            Err(e) => return Err(e),
        };
        let len = match header {
            Header::Block { len, .. } | Header::Pack { len, .. } => len as usize,
            // A copy takes no filler: whoever reads this frame ends the connection.
            Header::End | Header::Filler { .. } => 0,
        };
        self.stream.frame_begins(len as u64);
        self.pass(Taken::Header(bytes, header))?;
        if len == 0 && header != Header::End {
            // Nobody sends that, and whoever takes it knows why it is wrong.
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut left = len;
        while left > 0 {
            let mut piece = self.share.take(left.min(PIECE_BYTES))?;
            self.stream.receive_payload(&mut piece)?;
            left -= piece.len();
            self.report();
            self.pass(Taken::Piece(piece))?;
        }
        let mut tag = [0; TAG_BYTES];
        self.stream.receive(&mut tag)?;
        self.report();
        Ok(Taken::Tag(tag))
    }

    fn pass(&self, taken: Taken) -> io::Result<()> {
        self.sender.send(Ok(taken)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn report(&mut self) {
        let mut figures = lock(&self.figures);
        figures.wire_bytes += self.stream.take_wire_bytes();
        figures.crypto_time += self.stream.take_crypto_time();
        let busy = bankfull_sys::thread_cpu_time();
        figures.busy += busy.saturating_sub(std::mem::replace(&mut self.busy, busy));
    }
}
