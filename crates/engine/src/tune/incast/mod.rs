//! Many sessions that receive over one interface: what their senders send at once would overflow
//! the port that leads there. So one [`Port`] for each interface of this process steers all their
//! data connections together, as `bankfull_control::ictcp` decides: windows, turns, pacing. A
//! session that is alone is left to `Steering`.
//!
//! What lives here: which sessions share an interface (`port`), and what the thread that reads a
//! connection tells and holds (`lane`). What does not: the rules.

mod barrier;
mod lane;
mod port;
#[cfg(test)]
mod tests;

pub(crate) use barrier::{Barrier, BarrierSeat};
pub(crate) use lane::Lane;

use crate::net::control::lock;
use crate::net::socket::Socket;
use bankfull_control::Rate;
use bankfull_control::pacing::DEFAULT_MTU;
use bankfull_sys::Interface;
use port::Port;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Kernels before this one do not change the windows of running connections. (Linux 5.15: a window
/// clamp that is set takes effect at once, `tcp_set_window_clamp`)
const HOLDS_WINDOWS: (u32, u32) = (5, 15);

/// An Ethernet link carries each packet with preamble, header, check value and gap: 38 bytes.
/// (IEEE 802.3)
const ETHERNET_BYTES: u64 = 38;

/// Sessions that receive in this process.
static RECEIVING: AtomicUsize = AtomicUsize::new(0);

/// The ports of this process, by their interfaces' names.
static PORTS: Mutex<Vec<(String, Weak<Port>)>> = Mutex::new(Vec::new());

/// Whether sessions receive in this process now.
pub(crate) fn is_receiving() -> bool {
    RECEIVING.load(Ordering::Relaxed) > 0
}

/// Whether windows of running connections can be changed by this kernel, as far as its version
/// tells.
pub(super) fn holds_windows() -> bool {
    bankfull_sys::kernel_version().is_none_or(|version| version >= HOLDS_WINDOWS)
}

/// A session that receives, for as long as this lives.
pub(crate) struct Receiving(());

impl Receiving {
    pub(crate) fn new() -> Self {
        RECEIVING.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        RECEIVING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How the data connections of a session that receives share an interface with others.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Windows and pacing of the session may be steered.
    takes_part: bool,
    /// Its sender sends what it is asked for, and no more.
    pub(crate) obeys: bool,
    /// How many sessions are to share it in all, those included that are still to come.
    company: Option<Arc<AtomicUsize>>,
    /// Its sender sends in rounds.
    pub(crate) seat: Option<BarrierSeat>,
    /// What the link carries, where the user has told.
    link_rate: Option<Rate>,
    /// The windows of its connections together, as they are held; 0: they are not.
    held: AtomicU64,
    /// How many connections share the interface.
    connections: AtomicUsize,
}

impl Sharing {
    /// See the fields.
    pub(crate) fn new(
        takes_part: bool,
        obeys: bool,
        link_rate: Option<Rate>,
        company: Option<Arc<AtomicUsize>>,
    ) -> Self {
        Self { takes_part, obeys, link_rate, company, ..Self::default() }
    }

    /// Whether the port is needed even if there is no other session: others are about to come, or
    /// it asks for each piece.
    fn needs_port(&self) -> bool {
        let is_many = |count: &Arc<AtomicUsize>| count.load(Ordering::Relaxed) > 1;
        self.seat.is_some() || self.company.as_ref().is_some_and(is_many)
    }

    /// The windows of the session's connections together, and how many connections share the
    /// interface, where they do.
    pub(super) fn held(&self) -> Option<(u64, usize)> {
        let held = self.held.load(Ordering::Relaxed);
        (held > 0).then(|| (held, self.connections.load(Ordering::Relaxed)))
    }

    fn hold(&self, windows: u64, connections: usize) {
        self.held.store(windows, Ordering::Relaxed);
        self.connections.store(connections, Ordering::Relaxed);
    }
}

/// The port that a connection comes in by; `None` where nothing can overflow, or nothing can be
/// done about it, and nobody needs one.
fn port_of(socket: &Socket, sharing: &Sharing) -> Option<Arc<Port>> {
    let found = interface_of(socket);
    // The loopback overflows only if the user says what it carries.
    let overflows = |found: &Interface| !found.is_loopback || sharing.link_rate.is_some();
    let nowhere = || Interface { name: String::new(), is_loopback: true };
    let interface = match sharing.seat.is_some() {
        true => found.unwrap_or_else(nowhere),
        false => found.filter(overflows)?,
    };
    let mut ports = lock(&PORTS);
    ports.retain(|(_, port)| port.strong_count() > 0);
    let known = ports.iter().find(|(name, _)| *name == interface.name);
    if let Some(port) = known.and_then(|(_, port)| port.upgrade()) {
        return Some(port);
    }
    let port = Arc::new(Port::new(sharing.link_rate.or_else(|| speed_of(&interface.name))));
    ports.push((interface.name, Arc::downgrade(&port)));
    Some(port)
}

/// The interface that a connection comes in by.
fn interface_of(socket: &Socket) -> Option<Interface> {
    let Socket::Tcp(tcp) = socket else { return None };
    let address = tcp.local_addr().ok()?.ip();
    bankfull_sys::interface_of(address).ok().flatten()
}

/// What the link of an interface carries in packets, if it tells.
fn speed_of(name: &str) -> Option<Rate> {
    let share = DEFAULT_MTU.0 as f64 / (DEFAULT_MTU.0 + ETHERNET_BYTES) as f64;
    bankfull_sys::link_speed(name).map(|bits| Rate::from_bits_per_sec(bits as f64 * share))
}
