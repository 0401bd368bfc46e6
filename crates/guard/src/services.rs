//! Services with guarded connections: new ones of theirs start with what the present ones may use.

use crate::connections::{Connection, Connections};
use crate::programs::ServiceMap;
use bankfull_control::pacing::DEFAULT_MSS;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Key of the BPF map. (`struct service` in `bpf/guard.bpf.c`)
pub(crate) type ServiceKey = [u16; 4];

/// Most first windows in segments. (RFC 6928: senders start with ten)
const MAX_FIRST_SEGMENTS: u64 = 10;

/// Most services that are known at a time. (`max_entries` in `bpf/guard.bpf.c`)
const MAX_SERVICES: usize = 4096;

/// Services as the BPF program has them.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// First windows in segments; 0: free.
    known: BTreeMap<ServiceKey, u32>,
}

impl Services {
    /// Adds the service of a guarded connection.
    pub(crate) fn add(&mut self, connection: &Connection, map: &mut ServiceMap) {
        let key = key(connection);
        if !self.known.contains_key(&key) {
            self.set(key, 0, map);
        }
    }

    /// Remembers the mean window of each service with held connections.
    pub(crate) fn remember(&mut self, connections: &mut Connections, map: &mut ServiceMap) {
        let mut sums: BTreeMap<ServiceKey, (u64, u64)> = BTreeMap::new();
        for (_, followed) in connections.guarded_mut().filter(|(_, one)| one.ordered > 0) {
            let (sum, count) = sums.entry(key(&followed.connection)).or_default();
            (*sum, *count) = (*sum + u64::from(followed.ordered), *count + 1);
        }
        for (key, (sum, count)) in sums {
            let segments = (sum / count.max(1) / DEFAULT_MSS.0).clamp(1, MAX_FIRST_SEGMENTS) as u32;
            if self.known.get(&key) != Some(&segments) {
                self.set(key, segments, map);
            }
        }
    }

    /// Frees the first windows, as no connection is held any more.
    pub(crate) fn free(&mut self, map: &mut ServiceMap) {
        let held = self.known.iter().filter(|&(_, &segments)| segments > 0);
        let held: Vec<ServiceKey> = held.map(|(&key, _)| key).collect();
        held.into_iter().for_each(|key| self.set(key, 0, map));
    }

    fn set(&mut self, key: ServiceKey, segments: u32, map: &mut ServiceMap) {
        // The map replaces those that were used least.
        if self.known.len() >= MAX_SERVICES {
            self.known.clear();
        }
        if map.insert(key, segments, 0).is_ok() {
            self.known.insert(key, segments);
        }
    }
}

/// Returns the key of a connection's service: the server's port, which is the lower one, whether it
/// is that of this host, and the peer's network.
fn key(connection: &Connection) -> ServiceKey {
    let (local, remote) = (connection.local.port(), connection.remote.port());
    let network = network(connection.remote.ip()).to_ne_bytes();
    let half = |at: usize| u16::from_ne_bytes([network[at], network[at + 1]]);
    [local.min(remote), (local < remote).into(), half(0), half(2)]
}

/// Returns the number of a network: /24, or /64 folded to 32 bits.
fn network(peer: IpAddr) -> u32 {
    match peer.to_canonical() {
        IpAddr::V4(address) => u32::from(address) >> 8,
        IpAddr::V6(address) => fold(address),
    }
}

fn fold(address: Ipv6Addr) -> u32 {
    let high = (u128::from(address) >> 64) as u64;
    (high >> 32) as u32 ^ high as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_one_network_share_a_number() {
        let of = |peer: &str| network(peer.parse().unwrap());
        assert_eq!(of("10.1.2.3"), 0x000a_0102);
        assert_eq!(of("10.1.2.3"), of("::ffff:10.1.2.200"));
        assert_ne!(of("10.1.2.3"), of("10.1.3.3"));
        assert_eq!(of("2001:db8::1"), 0x2001_0db8);
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }
}
