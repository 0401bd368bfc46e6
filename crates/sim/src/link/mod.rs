//! Link model: one output port with a queue, a line, and a delay.
//!
//! A packet passes the policer, the queueing discipline ([`queue`]), the line with a rate that may
//! vary ([`rate`], [`trace`]), and the propagation behind it. All packets that arrive at the port,
//! from one input or many, share the queue. The model knows only their sizes: their content is an
//! opaque payload of the caller. A burst (a super-packet of the kernel's segmentation offload) is
//! queued or dropped segment by segment.
//!
//! Not modelled: buffers counted in packets, corruption, and processing delay of the port.

mod config;
mod line;
mod packets;
mod port;
mod propagation;
pub mod queue;
pub mod rate;
mod time;
pub mod trace;

#[cfg(test)]
mod tests;

pub use config::{DEFAULT_QUANTUM, Impairments, Jitter, LinkConfig, Reordering};
pub use packets::{Arrival, Burst, Ecn, LinkCounts, Packets};
pub use port::Link;
