//! Coscheduling of sessions that receive over the same interface. Their senders together would
//! overflow the switch port that leads to it (incast).
//!
//! One [`SharedInterface`] for each interface of this process controls the windows, time slots and
//! pacing of all its streams, as `bankfull_control::ictcp` decides. A session that is alone is left
//! to `ReceiverTuner`.
//!
//! `shared_interface` holds the streams of an interface, `flow_hook` the hook of a reading
//! thread.

pub(crate) mod flow_hook;
pub(crate) mod shared_interface;
#[cfg(test)]
mod tests;

use crate::base::sync::lock;
use crate::session::interface_sharing::InterfaceSharing;
use crate::transport::socket::Socket;
use bankfull_control::Rate;
use bankfull_control::pacing::DEFAULT_MTU;
use bankfull_sys::Interface;
use shared_interface::SharedInterface;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// First kernel that applies a window clamp to an established connection at once. (Linux 5.15,
/// `tcp_set_window_clamp`)
const MIN_WINDOW_CLAMP_KERNEL: (u32, u32) = (5, 15);

/// Number of receiving sessions in this process.
static RECEIVING_SESSIONS: AtomicUsize = AtomicUsize::new(0);

/// Shared interfaces of this process by name.
static INTERFACES: Mutex<Vec<(String, Weak<SharedInterface>)>> = Mutex::new(Vec::new());

/// True if this process has receiving sessions.
pub(crate) fn is_receiving() -> bool {
    RECEIVING_SESSIONS.load(Ordering::Relaxed) > 0
}

/// True if this kernel's version supports window clamps on established connections.
pub(crate) fn can_clamp_windows() -> bool {
    bankfull_sys::kernel_version().is_none_or(|version| version >= MIN_WINDOW_CLAMP_KERNEL)
}

/// Guard that counts a receiving session while it lives.
pub(crate) struct ReceivingGuard(());

impl ReceivingGuard {
    pub(crate) fn new() -> Self {
        RECEIVING_SESSIONS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for ReceivingGuard {
    fn drop(&mut self) {
        RECEIVING_SESSIONS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the shared interface of a connection.
///
/// `None` if the interface cannot overflow or is unknown, and the session sends without rounds.
fn shared_interface_of(
    socket: &Socket,
    sharing: &InterfaceSharing,
) -> Option<Arc<SharedInterface>> {
    let found = interface_of(socket);
    // The loopback overflows only if the user set its rate.
    let can_overflow = |found: &Interface| !found.is_loopback || sharing.link_rate.is_some();
    let unknown = || Interface { name: String::new(), is_loopback: true };
    let interface = match sharing.barrier_party.is_some() {
        true => found.unwrap_or_else(unknown),
        false => found.filter(can_overflow)?,
    };
    let mut interfaces = lock(&INTERFACES);
    interfaces.retain(|(_, shared)| shared.strong_count() > 0);
    let known = interfaces.iter().find(|(name, _)| *name == interface.name);
    if let Some(shared) = known.and_then(|(_, shared)| shared.upgrade()) {
        return Some(shared);
    }
    let link_rate = sharing.link_rate.or_else(|| link_packet_rate(&interface.name));
    let shared = Arc::new(SharedInterface::new(link_rate));
    interfaces.push((interface.name, Arc::downgrade(&shared)));
    Some(shared)
}

/// Requests the bytes that a new round allows, on all interfaces.
pub(crate) fn request_more() {
    let interfaces: Vec<Arc<SharedInterface>> =
        lock(&INTERFACES).iter().filter_map(|(_, interface)| interface.upgrade()).collect();
    interfaces.into_iter().for_each(|interface| interface.request_more());
}

/// Returns the interface that a connection uses.
fn interface_of(socket: &Socket) -> Option<Interface> {
    let Socket::Tcp(tcp) = socket else { return None };
    let address = tcp.local_addr().ok()?.ip();
    bankfull_sys::interface_of(address).ok().flatten()
}

/// Returns the link rate of an interface in packets' bytes, without Ethernet overhead.
fn link_packet_rate(name: &str) -> Option<Rate> {
    let total = (DEFAULT_MTU.0 + bankfull_sys::ETHERNET_OVERHEAD_BYTES) as f64;
    let share = DEFAULT_MTU.0 as f64 / total;
    bankfull_sys::link_speed(name).map(|bits| Rate::from_bits_per_sec(bits as f64 * share))
}
