//! State of one connection, as the BPF program publishes it (`struct slot` in `bpf/state.h`).

use bankfull_sys::SharedWords;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Words of a slot.
pub(crate) const SLOT_WORDS: usize = 16;

/// Word of a slot with the order, which this process writes.
const ORDER_WORD: usize = 6;

/// Word of a slot with the time of its last update.
const UPDATED_WORD: usize = 5;

/// Word of a slot with the number of DSACKs.
const DSACKS_WORD: usize = 14;

/// Flags of a connection. (`bpf/state.h`)
const PASSIVE: u32 = 1;
const FORWARDED: u32 = 2;
const OWN: u32 = 4;

/// State of one connection; 0 in a field that is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Socket cookie; 0 if the slot is free.
    pub(crate) cookie: u64,
    pub(crate) received: u64,
    pub(crate) rtt_us: u32,
    pub(crate) min_rtt_us: u32,
    pub(crate) out_of_order: u32,
    pub(crate) window: u32,
    pub(crate) clamp: u32,
    pub(crate) mss: u32,
    /// Packets with a DSACK (RFC 2883) that were sent.
    pub(crate) dsacks: u32,
}

/// Properties of a connection that do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) is_passive: bool,
    /// True for a connection of a guest.
    pub(crate) is_forwarded: bool,
    /// True for a connection of bankfull itself.
    pub(crate) is_own: bool,
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
        let word = |offset| slots.load(index as usize * SLOT_WORDS + offset);
        let (rtt_us, min_rtt_us) = halves(word(2));
        let (out_of_order, window) = halves(word(3));
        let (clamp, mss) = halves(word(4));
        let (cookie, received, dsacks) = (word(0), word(1), halves(word(DSACKS_WORD)).0);
        Self { cookie, received, rtt_us, min_rtt_us, out_of_order, window, clamp, mss, dsacks }
    }
}

impl Endpoints {
    /// Reads the endpoints of a slot.
    pub(crate) fn read(slots: &SharedWords, index: u32) -> Self {
        let word = |offset| slots.load(index as usize * SLOT_WORDS + offset);
        let (flags, owner) = halves(word(7));
        let (ports, netns) = halves(word(12));
        let ports = ports.to_ne_bytes();
        let remote_port = u16::from_ne_bytes([ports[0], ports[1]]);
        let local_port = u16::from_ne_bytes([ports[2], ports[3]]);
        Self {
            remote: SocketAddr::new(address([word(8), word(9)]), remote_port),
            local: SocketAddr::new(address([word(10), word(11)]), local_port),
            is_passive: flags & PASSIVE != 0,
            is_forwarded: flags & FORWARDED != 0,
            is_own: flags & OWN != 0,
            cgroup: word(13),
            netns,
            owner,
        }
    }
}

/// Window clamp of a connection that is not limited. (`UNLIMITED_WINDOW` in `bpf/guard.bpf.c`)
const UNLIMITED_WINDOW: u32 = 65_535 << 14;

/// Order for a connection that is left alone. (`LEFT_ALONE` in `bpf/state.h`)
const LEFT_ALONE: u32 = u32::MAX;

/// Returns the cookie of the connection in a slot; 0 if it is free.
pub(crate) fn cookie(slots: &SharedWords, index: u32) -> u64 {
    slots.load(index as usize * SLOT_WORDS)
}

/// Returns the time of the last update, on the monotonic clock in nanoseconds.
pub(crate) fn updated_ns(slots: &SharedWords, index: u32) -> u64 {
    slots.load(index as usize * SLOT_WORDS + UPDATED_WORD)
}

/// Returns the numbers of slots whose byte is set, and clears these bytes.
pub(crate) fn take_marked(updated: &SharedWords) -> Vec<u32> {
    let mut marked = Vec::new();
    for (word, first) in (0..updated.len()).zip((0..).step_by(8)) {
        // Most are 0, and reading them is cheaper.
        if updated.load(word) != 0 {
            let bytes = updated.take(word).to_ne_bytes();
            marked.extend((first..).zip(bytes).filter(|(_, mark)| *mark != 0).map(|(at, _)| at));
        }
    }
    marked
}

/// Number of held connections of this host's sockets outside of some network namespaces.
pub(crate) fn held_elsewhere(slots: &SharedWords, count: u32, namespaces: &BTreeSet<u64>) -> usize {
    let is_held = |index: u32| {
        let order = slots.load(index as usize * SLOT_WORDS + ORDER_WORD) as u32;
        let slot = Slot::read(slots, index);
        // Programs lift windows without an order.
        slot.cookie != 0 && ![0, LEFT_ALONE].contains(&order) && slot.clamp < UNLIMITED_WINDOW
    };
    let is_elsewhere = |index: u32| {
        let endpoints = Endpoints::read(slots, index);
        !endpoints.is_forwarded && !namespaces.contains(&endpoints.netns.into())
    };
    (0..count).filter(|&index| is_held(index) && is_elsewhere(index)).count()
}

/// Clears a slot: packets of its connection count no longer.
pub(crate) fn vacate(slots: &SharedWords, index: u32) {
    slots.store(index as usize * SLOT_WORDS + ORDER_WORD, 0);
    slots.store(index as usize * SLOT_WORDS, 0);
}

/// Orders a window in bytes for the connection in a slot; 0 lifts it.
pub(crate) fn order(slots: &SharedWords, index: u32, cookie: u64, window: u32) {
    let order = if window == 0 { 0 } else { cookie << 32 | u64::from(window) };
    slots.store(index as usize * SLOT_WORDS + ORDER_WORD, order);
}

/// Orders that the connection in a slot is left alone.
pub(crate) fn leave_alone(slots: &SharedWords, index: u32, cookie: u64) {
    order(slots, index, cookie, LEFT_ALONE);
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
        write(3, pair(7, 2896));
        write(4, pair(2920, 1460));
        write(14, pair(3, 0));
        let slot = Slot::read(&slots, 1);
        assert_eq!((slot.cookie, slot.received, slot.rtt_us), (77, 5000, 900));
        assert_eq!((slot.min_rtt_us, slot.out_of_order, slot.window), (120, 7, 2896));
        assert_eq!((slot.clamp, slot.mss, slot.dsacks), (2920, 1460, 3));
    }

    #[test]
    fn marked_slots_are_taken_once() {
        let file = bankfull_sys::memory_file(&[0; 4096]).unwrap();
        let updated = SharedWords::map(&file, 3).unwrap();
        updated.store(0, u64::from_ne_bytes([0, 1, 0, 0, 0, 0, 0, 1]));
        updated.store(2, u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(take_marked(&updated), [1, 7, 16]);
        assert!(take_marked(&updated).is_empty());
    }

    #[test]
    fn mapped_addresses_are_shown_as_ipv4() {
        let slots = slots();
        let mapped = "::ffff:10.0.0.7".parse::<Ipv6Addr>().unwrap().octets();
        slots.store(9, u64::from_ne_bytes(mapped[8..].try_into().unwrap()));
        let ports = [7440_u16.to_ne_bytes(), 5001_u16.to_ne_bytes(), [1, 0], [0, 0]].concat();
        slots.store(12, u64::from_ne_bytes(ports.try_into().unwrap()));
        slots.store(7, u64::from_ne_bytes([2, 0, 0, 0, 9, 0, 0, 0]));
        let endpoints = Endpoints::read(&slots, 0);
        assert_eq!(endpoints.remote.to_string(), "10.0.0.7:7440");
        assert_eq!(endpoints.local.to_string(), "[::]:5001");
        assert!(endpoints.is_forwarded && !endpoints.is_passive);
        assert_eq!(endpoints.owner, 9);
    }

    #[test]
    fn held_connections_of_other_namespaces_are_counted() {
        let file = bankfull_sys::memory_file(&[0; 4096]).unwrap();
        let slots = SharedWords::map(&file, 4 * SLOT_WORDS).unwrap();
        let at = |index: usize, word: usize| index * SLOT_WORDS + word;
        for (index, netns, flags) in [(0, 7_u64, 0_u32), (1, 8, 0), (2, 0, FORWARDED), (3, 9, 0)] {
            slots.store(at(index, 0), 40 + index as u64);
            slots.store(at(index, 7), flags.into());
            slots.store(at(index, 12), netns << 32);
            order(&slots, index as u32, 40 + index as u64, 3000);
        }
        leave_alone(&slots, 3, 43);
        let of =
            |namespaces: &[u64]| held_elsewhere(&slots, 4, &namespaces.iter().copied().collect());
        assert_eq!((of(&[]), of(&[7]), of(&[7, 8])), (2, 1, 0));
        slots.store(at(1, 4), u64::from(UNLIMITED_WINDOW));
        assert_eq!(of(&[7]), 0, "lifted by the program");
        slots.store(at(1, 4), 0);
        order(&slots, 1, 41, 0);
        assert_eq!(of(&[7]), 0);
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
