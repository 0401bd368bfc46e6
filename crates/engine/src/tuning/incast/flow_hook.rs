//! Hook of a shared interface in the thread that reads a stream: counts received bytes, notifies
//! the interface, and clamps the window.

use super::shared_interface::SharedInterface;
use super::shared_interface_of;
use crate::base::barrier::BarrierParty;
use crate::session::Session;
use crate::transport::control::Outbox;
use crate::transport::receive_hook::ReceiveHook;
use crate::transport::socket::Socket;
use bankfull_control::ictcp::ConnectionId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of first reads after which the clamp is repeated each time: the kernel raises the window
/// with the first full segments, and later now and then. (chosen: several times the reads of
/// an initial window; a clamp is a system call)
const CLAMP_EAGER_READS: u32 = 8;

/// Minimum interval of later clamps. (chosen: over a fast link reads are microseconds apart)
const CLAMP_REFRESH_INTERVAL: Duration = Duration::from_millis(1);

/// State shared by the interface and the reading thread.
#[derive(Debug)]
pub(crate) struct FlowState {
    /// Payload bytes received.
    pub(crate) received: AtomicU64,
    /// Credit: the sender may send payload up to this offset.
    pub(crate) credit: AtomicU64,
    /// Received bytes at which the interface wants to be notified.
    pub(crate) notify_at: AtomicU64,
    /// Window clamp in bytes; 0 if none.
    pub(crate) window: AtomicU32,
}

impl Default for FlowState {
    fn default() -> Self {
        Self {
            received: AtomicU64::new(0),
            credit: AtomicU64::new(0),
            notify_at: AtomicU64::new(u64::MAX),
            window: AtomicU32::new(0),
        }
    }
}

/// Hook of the reading thread. Detaches from the interface when dropped.
pub(crate) struct FlowHook {
    interface: Arc<SharedInterface>,
    id: ConnectionId,
    flow: Arc<FlowState>,
    barrier_party: Option<BarrierParty>,
    /// Payload of all frames begun so far.
    frame_bytes: u64,
    reads: u32,
    clamped_at: Instant,
}

impl FlowHook {
    /// Attaches a stream to the interface that it uses.
    ///
    /// Without a shared interface, grants the sender unlimited credit if it needs credit.
    pub(crate) fn attach(
        session: &Arc<Session>,
        outbox: &Outbox,
        number: u32,
        socket: &Socket,
    ) -> Option<Self> {
        let sharing = &session.sharing;
        let interface = sharing.is_tunable.then(|| shared_interface_of(socket, sharing)).flatten();
        let own = interface.as_ref().and_then(|_| socket.try_clone().ok());
        let Some((interface, own)) = interface.zip(own) else {
            if sharing.is_grant_driven {
                outbox.post_credit(number, u64::MAX);
            }
            return None;
        };
        let flow = Arc::new(FlowState::default());
        let (session_ref, flow_ref) = (Arc::clone(session), Arc::clone(&flow));
        let id = interface.attach(session_ref, outbox.clone(), number, own, flow_ref);
        let barrier_party = sharing.barrier_party.clone();
        let clamped_at = Instant::now();
        Some(Self { interface, id, flow, barrier_party, frame_bytes: 0, reads: 0, clamped_at })
    }
}

impl ReceiveHook for FlowHook {
    fn barrier_party(&self) -> Option<BarrierParty> {
        self.barrier_party.clone()
    }

    fn is_clamped(&self) -> bool {
        self.flow.window.load(Ordering::Relaxed) > 0
    }

    fn has_outstanding_credit(&self) -> bool {
        self.flow.credit.load(Ordering::Relaxed) > self.flow.received.load(Ordering::Relaxed)
    }

    fn on_frame(&mut self, bytes: u64) {
        self.frame_bytes += bytes;
        if self.barrier_party.is_some() {
            self.interface.extend(self.id, self.frame_bytes);
        }
    }

    fn on_read(&mut self, socket: &Socket) {
        let window = self.flow.window.load(Ordering::Relaxed);
        if window == 0 {
            return;
        }
        self.reads = self.reads.saturating_add(1);
        let is_eager = self.reads <= CLAMP_EAGER_READS;
        if !is_eager && self.clamped_at.elapsed() < CLAMP_REFRESH_INTERVAL {
            return;
        }
        self.clamped_at = Instant::now();
        if let Socket::Tcp(tcp) = socket {
            // If the kernel cannot clamp it, time slots alone limit the stream.
            let _ = bankfull_sys::set_window_clamp(tcp, window);
        }
    }

    fn on_payload(&self, bytes: usize) {
        let received = self.flow.received.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if received >= self.flow.notify_at.load(Ordering::Relaxed) {
            self.interface.on_received(self.id);
        }
    }
}

impl Drop for FlowHook {
    fn drop(&mut self) {
        self.interface.detach(self.id);
    }
}
