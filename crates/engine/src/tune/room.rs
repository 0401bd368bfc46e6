//! Buffers beyond what every program may have: a connection whose part of the path does not fit in
//! what the kernel's own tuning reaches gets a buffer that fits, where we are privileged
//! (CAP_NET_ADMIN).

use crate::net::socket::Socket;
use bankfull_control::Bytes;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;

/// The most that is ever given to a connection, in data; the kernel makes it twice as much memory.
/// (ours: 100 Gbit/s over 80 ms by 16 connections)
const GIVEN_MAX: Bytes = Bytes::mib(64);

/// All connections of a session together are given no more than this part of the host's memory, in
/// data. (ours: memory of the kernel's cannot be paged out, and others need some)
const MEMORY_PART: u64 = 16;

/// More than is needed now is given, so that it is not asked for at every step of the controller,
/// which takes 12 % at most. (ours)
const GIVEN_OVER: f64 = 1.25;

/// Which buffer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Receive,
    Send,
}

impl Side {
    /// The setting that bounds the kernel's own tuning.
    pub(super) fn sysctl(self) -> &'static str {
        match self {
            Self::Receive => "net.ipv4.tcp_rmem",
            Self::Send => "net.ipv4.tcp_wmem",
        }
    }

    /// Its values on this host: the least, what connections begin with, and the most.
    pub(super) fn setting(self) -> Option<[u64; 3]> {
        let file = format!("/proc/sys/{}", self.sysctl().replace('.', "/"));
        let values = fs::read_to_string(file).ok()?;
        let values: Vec<u64> = values.split_whitespace().map_while(|n| n.parse().ok()).collect();
        values.try_into().ok()
    }

    /// Gives a connection a buffer for so much data.
    fn force(self, socket: impl AsFd, bytes: u32) -> io::Result<()> {
        match self {
            Self::Receive => bankfull_sys::force_receive_buffer(socket, bytes),
            Self::Send => bankfull_sys::force_send_buffer(socket, bytes),
        }
    }

    /// Whether we may do that: tried with a socket that goes nowhere.
    fn is_allowed(self) -> bool {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        socket.is_ok_and(|socket| self.force(&socket, 1 << 16).is_ok())
    }
}

/// Gives connections room.
#[derive(Debug)]
pub(crate) struct Room {
    side: Side,
    /// What the kernel's tuning reaches, in data: half of the buffer (tcp_adv_win_scale,
    /// ip-sysctl.rst).
    tuned_max: Bytes,
    /// What each has been given.
    given: BTreeMap<u32, Bytes>,
    /// What all of them may be given together.
    most: Bytes,
    is_denied: bool,
}

/// What a session may give its connections on this host.
fn part_of_memory() -> Option<Bytes> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(Bytes(kib * 1024 / MEMORY_PART))
}

impl Room {
    pub(crate) fn new(side: Side) -> Self {
        // Where nobody tells, nothing is given.
        let tuned_max = Bytes(side.setting().map_or(u64::MAX, |[_, _, most]| most / 2));
        let most = part_of_memory().unwrap_or(GIVEN_MAX);
        Self { side, tuned_max, given: BTreeMap::new(), most, is_denied: !side.is_allowed() }
    }

    /// The most data that a connection can have in flight.
    pub(crate) fn max_inflight_bytes(&self) -> Bytes {
        if self.is_denied { self.tuned_max } else { self.tuned_max.max(GIVEN_MAX) }
    }

    /// Sees to it that a connection can have so much in flight, as far as we may.
    pub(crate) fn give(&mut self, number: u32, socket: &Socket, data: Bytes) {
        let (Some(bytes), Socket::Tcp(tcp)) = (self.needed(number, data), socket) else { return };
        let size = u32::try_from(bytes.0).unwrap_or(u32::MAX);
        match self.side.force(tcp, size) {
            Ok(()) => drop(self.given.insert(number, bytes)),
            Err(error) => self.is_denied |= error.kind() == io::ErrorKind::PermissionDenied,
        }
    }

    /// What a connection has to be given, if it is more than it has.
    fn needed(&self, number: u32, data: Bytes) -> Option<Bytes> {
        let before = self.given.get(&number).copied();
        let has = before.unwrap_or(self.tuned_max);
        let wanted = Bytes((data.0 as f64 * GIVEN_OVER) as u64).min(GIVEN_MAX);
        let others: u64 = self.given.values().map(|given| given.0).sum();
        let others = others - before.unwrap_or_default().0;
        let fits = others + wanted.0 <= self.most.0;
        (!self.is_denied && fits && data > has && wanted > has).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_are_given_a_part_of_memory_and_no_more() {
        assert!(part_of_memory().unwrap() > Bytes::mib(1));
        let most = Bytes::mib(24);
        let mut room =
            Room { tuned_max: Bytes::mib(3), is_denied: false, most, ..Room::new(Side::Receive) };
        room.given.insert(0, Bytes::mib(10));
        assert_eq!(room.needed(1, Bytes::mib(8)), Some(Bytes::mib(10)));
        room.given.insert(1, Bytes::mib(10));
        assert_eq!(room.needed(2, Bytes::mib(4)), None);
        assert_eq!(room.needed(1, Bytes::mib(11)), Some(Bytes(14_417_920)), "in place of its own");
    }

    #[test]
    fn it_is_given_where_the_kernel_would_not_and_not_at_every_step() {
        let mut room =
            Room { tuned_max: Bytes::mib(3), is_denied: false, ..Room::new(Side::Receive) };
        assert_eq!(room.max_inflight_bytes(), GIVEN_MAX);
        assert_eq!(room.needed(0, Bytes::mib(3)), None);
        assert_eq!(room.needed(0, Bytes::mib(4)), Some(Bytes::mib(5)));
        room.given.insert(0, Bytes::mib(5));
        assert_eq!(room.needed(0, Bytes::mib(5)), None);
        assert_eq!(room.needed(1, Bytes::mib(4)), Some(Bytes::mib(5)), "another one has nothing");
        assert_eq!(room.needed(0, Bytes::mib(500)), Some(GIVEN_MAX));
        room.given.insert(0, GIVEN_MAX);
        assert_eq!(room.needed(0, Bytes::mib(500)), None);
        room.is_denied = true;
        assert_eq!(
            (room.needed(1, Bytes::mib(4)), room.max_inflight_bytes()),
            (None, Bytes::mib(3))
        );
    }
}
