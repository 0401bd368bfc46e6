//! Guarded interface: its rate, and whether a peer is reached through it.

use crate::error::Error;
use bankfull_control::Rate;
use bankfull_control::pacing::{DEFAULT_MSS, DEFAULT_MTU};
use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Most remembered peers; beyond, all are looked up again. (chosen: some hundred kilobytes)
const MAX_PEERS: usize = 4096;

/// Port that a lookup names; nothing is sent there. (RFC 863, discard)
const LOOKUP_PORT: u16 = 9;

/// Guarded interface.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// Capacity in payload, if known.
    pub(crate) capacity: Option<Rate>,
    peers: HashMap<IpAddr, bool>,
}

impl Port {
    /// Opens an interface, with its rate if that is given.
    pub(crate) fn open(name: &str, link_rate: Option<Rate>) -> Result<Self, Error> {
        let names = interfaces();
        if !names.iter().any(|known| known == name) {
            return Err(Error::new(format!(
                "there is no interface {name}: this network namespace has {}",
                names.join(", ")
            )));
        }
        let packets = link_rate.or_else(|| bankfull_sys::link_speed(name).map(packet_rate));
        let capacity = packets.map(payload_rate);
        Ok(Self { name: name.to_owned(), capacity, peers: HashMap::new() })
    }

    /// Checks that the interface exists.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match interfaces().contains(&self.name) {
            true => Ok(()),
            false => Err(Error::new(format!("the interface {} is gone", self.name))),
        }
    }

    /// True if the host reaches a peer through this interface.
    pub(crate) fn has_peer(&mut self, peer: IpAddr) -> bool {
        if self.peers.len() >= MAX_PEERS {
            self.peers.clear();
        }
        let name = &self.name;
        *self.peers.entry(peer).or_insert_with(|| interface_to(peer).as_deref() == Some(name))
    }

    /// Forgets the routes to peers, which may have changed.
    pub(crate) fn forget_routes(&mut self) {
        self.peers.clear();
    }
}

/// Returns the index of an interface; `None` if there is none of that name.
pub(crate) fn interface_index(name: &str) -> Option<u32> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    rustix::net::netdevice::name_to_index(&socket, name).ok()
}

/// Returns the names of the interfaces in this thread's network namespace.
fn interfaces() -> Vec<String> {
    // Unlike /sys/class/net, it does not depend on the mounts.
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let names = table.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Returns the rate of IP packets with headers at a link speed in bit/s.
fn packet_rate(link_speed: u64) -> Rate {
    let frame = (DEFAULT_MTU.0 + bankfull_sys::ETHERNET_OVERHEAD_BYTES) as f64;
    Rate::from_bits_per_sec(link_speed as f64 * DEFAULT_MTU.0 as f64 / frame)
}

/// Returns the payload rate at a rate of IP packets with headers.
fn payload_rate(packets: Rate) -> Rate {
    let share = DEFAULT_MSS.0 as f64 / DEFAULT_MTU.0 as f64;
    Rate::from_bits_per_sec(packets.bits_per_sec() as f64 * share)
}

/// Returns the interface on the route to a peer: the one with the source address.
fn interface_to(peer: IpAddr) -> Option<String> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(SocketAddr::new(peer, LOOKUP_PORT)).ok()?;
    let local = socket.local_addr().ok()?.ip();
    bankfull_sys::interface_of(local).ok().flatten().map(|interface| interface.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_peers_are_reached_through_lo() {
        let mut port = Port::open("lo", None).unwrap();
        assert!(port.has_peer("127.0.0.1".parse().unwrap()));
        // No route leads to an address for documentation through the loopback interface.
        assert!(!port.has_peer("192.0.2.1".parse().unwrap()));
        assert_eq!(port.capacity, None);
    }

    #[test]
    fn unknown_interfaces_are_refused_with_the_known_ones() {
        for name in ["none7", "", "../net/lo"] {
            let error = Port::open(name, None).unwrap_err().to_string();
            assert!(error.contains("lo"), "{error}");
        }
    }

    #[test]
    fn payload_is_less_than_the_link_rate() {
        let rate = payload_rate(packet_rate(1_000_000_000)).bits_per_sec();
        assert!((940_000_000..942_000_000).contains(&rate), "{rate}");
    }
}
