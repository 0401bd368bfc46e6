//! TCP connection in virtual time: sender and receiver without clock and network.
//!
//! The module decides which bytes are sent when, by receive window, congestion control
//! ([`congestion`]) and pacing; it has acknowledgements, loss detection and recovery, and timers
//! ([`rtt`]). Where the RFCs leave a choice, constants and behaviour are those of Linux.
//! `docs/sim.md` states what is not modelled. Time is an argument; links and event order are in
//! [`crate::world`]; data has no content, only byte numbers.
//!
//! Every transmitted segment has a transmission number. Segments and acknowledgements may arrive in
//! any order, and more than once.

mod bbr;
pub mod congestion;
mod delivery;
mod flight;
mod ledbat;
mod pacer;
mod quic;
mod ranges;
mod receiver;
mod recovery;
pub mod rtt;
mod segments;
mod sender;
#[cfg(test)]
mod tests;
mod window;

pub use congestion::Algorithm;
pub use pacer::MAX_SUPER_PACKET_SEGMENTS;
pub use receiver::ACK_DELAY;
pub(crate) use receiver::Receiver;
pub(crate) use segments::{Ack, Segments};
pub use segments::{HEADER_BYTES, MAX_WINDOW, MSS};
pub(crate) use sender::Sender;
pub use sender::SenderCounts;
