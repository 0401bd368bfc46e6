//! Networks of peers whose bottleneck may be the guarded port: their connections start with less.

use crate::programs::NetworkMap;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

/// Most networks that are known at a time. (`max_entries` in `bpf/state.h`)
const MAX_NETWORKS: usize = 4096;

/// Most networks of one address of the interface: those of a /16.
const MAX_OF_ADDRESS: u32 = 256;

/// Networks as the BPF programs have them.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    known: BTreeSet<u32>,
}

impl Networks {
    /// Adds the networks of an interface: their hosts are near.
    pub(crate) fn add_near(&mut self, interface: &str, map: &mut NetworkMap) {
        // Without them, the networks of guarded connections are learnt.
        let near = bankfull_sys::networks_of(interface).unwrap_or_default();
        let near = near.into_iter().flat_map(|(address, mask)| numbers(address, mask));
        near.for_each(|number| self.set(number, map));
    }

    /// Adds the network of a guarded connection's peer.
    pub(crate) fn add(&mut self, peer: IpAddr, map: &mut NetworkMap) {
        let number = number(peer);
        if !self.known.contains(&number) {
            self.set(number, map);
        }
    }

    fn set(&mut self, number: u32, map: &mut NetworkMap) {
        // The map replaces those that were used least.
        if self.known.len() >= MAX_NETWORKS {
            self.known.clear();
        }
        if map.insert(number, 1, 0).is_ok() {
            self.known.insert(number);
        }
    }
}

/// Returns the numbers of the networks of an address and its mask; none if there are too many.
fn numbers(address: IpAddr, mask: IpAddr) -> Vec<u32> {
    let (IpAddr::V4(address), IpAddr::V4(mask)) = (address, mask) else {
        return vec![number(address)];
    };
    let first = u32::from(address) & u32::from(mask);
    let count = (!u32::from(mask) >> 8) + 1;
    if count > MAX_OF_ADDRESS { Vec::new() } else { (first >> 8..).take(count as usize).collect() }
}

/// Returns the number of a network: /24, or /64 folded to 32 bits.
pub(crate) fn number(peer: IpAddr) -> u32 {
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
    use std::net::Ipv4Addr;

    #[test]
    fn peers_of_one_network_share_a_number() {
        let of = |peer: &str| number(peer.parse().unwrap());
        assert_eq!(of("10.1.2.3"), 0x000a_0102);
        assert_eq!(of("10.1.2.3"), of("::ffff:10.1.2.200"));
        assert_ne!(of("10.1.2.3"), of("10.1.3.3"));
        assert_eq!(of("2001:db8::1"), 0x2001_0db8);
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }

    #[test]
    fn networks_of_an_interface_are_listed_up_to_a_limit() {
        let of = |address: [u8; 4], mask: [u8; 4]| {
            numbers(Ipv4Addr::from(address).into(), Ipv4Addr::from(mask).into())
        };
        assert_eq!(of([10, 1, 2, 3], [255, 255, 255, 0]), [0x000a_0102]);
        assert_eq!(of([10, 1, 2, 3], [255, 255, 255, 240]), [0x000a_0102]);
        assert_eq!(of([10, 1, 3, 3], [255, 255, 254, 0]), [0x000a_0102, 0x000a_0103]);
        assert_eq!(of([10, 77, 0, 1], [255, 255, 0, 0]).len(), 256);
        assert!(of([10, 77, 0, 1], [255, 0, 0, 0]).is_empty());
        let ipv6 = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(numbers(ipv6("2001:db8::1"), ipv6("ffff:ffff:ffff:ffff::")), [0x2001_0db8]);
    }
}
