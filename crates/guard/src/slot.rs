//! State of one connection, as the BPF program publishes it (`struct slot` in `bpf/guard.bpf.c`).

use bankfull_sys::SharedWords;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Words of a slot.
pub(crate) const SLOT_WORDS: usize = 16;

/// Word of a slot that this process writes.
const ORDER_WORD: usize = 6;

/// State of one connection; 0 in a field that is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Socket cookie; 0 if the slot is free.
    pub(crate) cookie: u64,
    pub(crate) received: u64,
    pub(crate) rtt_us: u32,
    pub(crate) min_rtt_us: u32,
    pub(crate) out_of_order: u32,
    pub(crate) spurious: u32,
    pub(crate) window: u32,
    pub(crate) clamp: u32,
    pub(crate) mss: u32,
}

/// Properties of a connection that do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) is_passive: bool,
    pub(crate) cgroup: u64,
    pub(crate) netns: u32,
    pub(crate) owner: u32,
}

/// Returns the low and the high half of a word.
fn halves(word: u64) -> (u32, u32) {
    #[cfg(target_endian = "little")]
    return (word as u32, (word >> 32) as u32);
    #[cfg(target_endian = "big")]
    return ((word >> 32) as u32, word as u32);
}

/// Returns the address in two words.
fn address(words: [u64; 2]) -> IpAddr {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&words[1].to_ne_bytes());
    Ipv6Addr::from(bytes).to_canonical()
}

impl Slot {
    /// Reads a slot.
    pub(crate) fn read(slots: &SharedWords, index: u32) -> Self {
        let at = index as usize * SLOT_WORDS;
        let word = |offset| slots.load(at + offset);
        let (rtt_us, min_rtt_us) = halves(word(2));
        let (out_of_order, spurious) = halves(word(3));
        let (window, clamp) = halves(word(4));
        let (mss, _) = halves(word(7));
        Self {
            cookie: word(0),
            received: word(1),
            rtt_us,
            min_rtt_us,
            out_of_order,
            spurious,
            window,
            clamp,
            mss,
        }
    }
}

impl Endpoints {
    /// Reads the endpoints of a slot.
    pub(crate) fn read(slots: &SharedWords, index: u32) -> Self {
        let at = index as usize * SLOT_WORDS;
        let word = |offset| slots.load(at + offset);
        let (ports, is_passive) = halves(word(12));
        let ports = ports.to_ne_bytes();
        let remote_port = u16::from_ne_bytes([ports[0], ports[1]]);
        let local_port = u16::from_ne_bytes([ports[2], ports[3]]);
        let (netns, owner) = halves(word(14));
        Self {
            remote: SocketAddr::new(address([word(8), word(9)]), remote_port),
            local: SocketAddr::new(address([word(10), word(11)]), local_port),
            is_passive: is_passive != 0,
            cgroup: word(13),
            netns,
            owner,
        }
    }
}

/// Orders a window in bytes for the connection in a slot; 0 lifts it.
pub(crate) fn order(slots: &SharedWords, index: u32, cookie: u64, window: u32) {
    let order = if window == 0 { 0 } else { cookie << 32 | u64::from(window) };
    slots.store(index as usize * SLOT_WORDS + ORDER_WORD, order);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> SharedWords {
        let file = bankfull_sys::memory_file(&[0; 4096]).unwrap();
        SharedWords::map(&file, 2 * SLOT_WORDS).unwrap()
    }

    #[test]
    fn slot_fields_are_read_from_their_words() {
        let slots = slots();
        let write = |offset, value: u64| slots.store(SLOT_WORDS + offset, value);
        write(0, 77);
        write(1, 5000);
        let pair = |low: u32, high: u32| {
            u64::from_ne_bytes([low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().unwrap())
        };
        write(2, pair(900, 120));
        write(4, pair(2896, 2920));
        write(7, pair(1460, 1));
        let slot = Slot::read(&slots, 1);
        assert_eq!((slot.cookie, slot.received, slot.rtt_us), (77, 5000, 900));
        assert_eq!((slot.min_rtt_us, slot.window, slot.clamp, slot.mss), (120, 2896, 2920, 1460));
    }

    #[test]
    fn mapped_addresses_are_shown_as_ipv4() {
        let slots = slots();
        let mapped = "::ffff:10.0.0.7".parse::<Ipv6Addr>().unwrap().octets();
        slots.store(9, u64::from_ne_bytes(mapped[8..].try_into().unwrap()));
        let ports = [7440_u16.to_ne_bytes(), 5001_u16.to_ne_bytes(), [1, 0], [0, 0]].concat();
        slots.store(12, u64::from_ne_bytes(ports.try_into().unwrap()));
        let endpoints = Endpoints::read(&slots, 0);
        assert_eq!(endpoints.remote.to_string(), "10.0.0.7:7440");
        assert_eq!(endpoints.local.to_string(), "[::]:5001");
    }

    #[test]
    fn order_names_the_connection() {
        let slots = slots();
        order(&slots, 1, 0x1_0000_0002, 2896);
        assert_eq!(slots.load(SLOT_WORDS + ORDER_WORD), 2 << 32 | 2896);
        order(&slots, 1, 0x1_0000_0002, 0);
        assert_eq!(slots.load(SLOT_WORDS + ORDER_WORD), 0);
    }
}
