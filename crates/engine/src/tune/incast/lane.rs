//! A data connection that shares its port with others, as the thread that reads it sees it: it
//! counts what comes, has the port know when that matters, and holds the window that the port has
//! chosen.

use super::port::Port;
use super::{BarrierSeat, port_of};
use crate::net::control::Outbox;
use crate::net::socket::Socket;
use crate::session::Session;
use bankfull_control::ictcp::Id;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The kernel raises a window by itself when the first full segments come, and then now and then:
/// so it is held again at each of the first reads, and later not before so much time. (ours: on a
/// fast line reads come every few microseconds)
const HELD_AGAIN: (u32, Duration) = (8, Duration::from_millis(1));

/// What the port and the reading thread tell each other.
#[derive(Debug)]
pub(super) struct Flow {
    /// Payload that has come.
    pub(super) received: AtomicU64,
    /// Payload that its sender may send.
    pub(super) asked: AtomicU64,
    /// The port wants to know when so much has come.
    pub(super) next_at: AtomicU64,
    /// The window to be held; 0: none.
    pub(super) window: AtomicU32,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            received: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            next_at: AtomicU64::new(u64::MAX),
            window: AtomicU32::new(0),
        }
    }
}

/// The reading thread's end. It leaves the port when it is dropped.
pub(crate) struct Lane {
    port: Arc<Port>,
    id: Id,
    flow: Arc<Flow>,
    seat: Option<BarrierSeat>,
    /// Payload of the frames so far, whether it has come or not.
    frames: u64,
    reads: u32,
    held_at: Instant,
}

impl Lane {
    /// Joins the port that a connection comes in by. Where there is none, its sender is asked for
    /// all at once, if it waits for that.
    pub(crate) fn enter(
        session: &Arc<Session>,
        outbox: &Outbox,
        number: u32,
        socket: &Socket,
    ) -> Option<Self> {
        let sharing = &session.sharing;
        let port = sharing.takes_part.then(|| port_of(socket, sharing)).flatten();
        let own = port.as_ref().and_then(|_| socket.try_clone().ok());
        let Some((port, own)) = port.zip(own) else {
            if sharing.obeys {
                outbox.post_credit(number, u64::MAX);
            }
            return None;
        };
        let flow = Arc::new(Flow::default());
        let id = port.enter(Arc::clone(session), outbox.clone(), number, own, Arc::clone(&flow));
        let seat = sharing.seat.clone();
        Some(Self { port, id, flow, seat, frames: 0, reads: 0, held_at: Instant::now() })
    }

    /// Its place in rounds.
    pub(crate) fn seat(&self) -> Option<BarrierSeat> {
        self.seat.clone()
    }

    /// Whether its window is held now.
    pub(crate) fn is_held(&self) -> bool {
        self.flow.window.load(Ordering::Relaxed) > 0
    }

    /// Whether its sender has been asked for something that has not come.
    pub(crate) fn is_owed(&self) -> bool {
        self.flow.asked.load(Ordering::Relaxed) > self.flow.received.load(Ordering::Relaxed)
    }

    /// A frame with so much payload begins: in a round it may be sent to its end.
    pub(crate) fn on_frame(&mut self, bytes: u64) {
        self.frames += bytes;
        if self.seat.is_some() {
            self.port.extend(self.id, self.frames);
        }
    }

    /// Something was read from the socket.
    pub(crate) fn on_read(&mut self, socket: &Socket) {
        let window = self.flow.window.load(Ordering::Relaxed);
        if window == 0 {
            return;
        }
        self.reads = self.reads.saturating_add(1);
        if self.reads > HELD_AGAIN.0 && self.held_at.elapsed() < HELD_AGAIN.1 {
            return;
        }
        self.held_at = Instant::now();
        if let Socket::Tcp(tcp) = socket {
            // Where the kernel cannot, turns are left.
            let _ = bankfull_sys::hold_window(tcp, window);
        }
    }

    /// So much payload more has come.
    pub(crate) fn on_payload(&self, bytes: usize) {
        let received = self.flow.received.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if received >= self.flow.next_at.load(Ordering::Relaxed) {
            self.port.on_received(self.id);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.port.leave(self.id);
    }
}
