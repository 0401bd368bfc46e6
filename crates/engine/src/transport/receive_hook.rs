//! Hook of a controller in the thread that reads a data stream.

use super::socket::Socket;
use crate::base::barrier::BarrierParty;

/// Hook called by the reading thread of a data stream.
pub(crate) trait ReceiveHook: Send {
    /// True if the hook clamps the receive window.
    fn is_clamped(&self) -> bool;

    /// True if the sender has credit for data that has not arrived.
    fn has_outstanding_credit(&self) -> bool;

    /// Returns the source's handle at the barrier, if it sends in rounds.
    fn barrier_party(&self) -> Option<BarrierParty>;

    /// Records the start of a frame with this payload in bytes.
    fn on_frame(&mut self, bytes: u64);

    /// Follows each read from the socket.
    fn on_read(&mut self, socket: &Socket);

    /// Records received payload in bytes.
    fn on_payload(&self, bytes: usize);
}
