//! Room for the datagrams that come while the thread of a socket does something else: its receive
//! buffer, as large as the load asks for and memory allows. Sockets that carry QUIC have it, and
//! the lab's service of datagrams, which measures what it is worth.
//!
//! What never lives here: the rule (`bankfull_control::rrda`), and reading from the socket.

use crate::net::control::lock;
use bankfull_control::Bytes;
use bankfull_control::rrda::{Bounds, EPOCH, Epoch, Reason, Rrda};
use bankfull_sys::ReceiveBuffer;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The least size of a service's buffer. (paper, §V-A: 1 MB, the size of the static scheme, so that
/// it never has less than that; 1 Gbit/s for 8 ms, two time slices of the scheduler)
pub const LEAST: Bytes = Bytes::mib(1);

/// And at most this part of all memory, and so much, unless less is said. (ours: 10 Gbit/s for
/// 0.2 s)
const MEMORY_PART: u64 = 16;
const MOST: Bytes = Bytes::mib(256);

/// How often the memory in use is read.
const MEMORY_LOOK: Duration = Duration::from_secs(1);

/// A datagram, as long as none has come. (RFC 9000, §14)
const DATAGRAM: u64 = 1200;

/// What is told of it, where less was granted than was wanted and that discarded something.
#[derive(Clone, Debug, Default)]
pub struct Shortage(Arc<Mutex<Lack>>);

#[derive(Debug, Default)]
struct Lack {
    /// How often that was so.
    count: u64,
    /// The size that was wanted last, and the one that was granted.
    sizes: (Bytes, Bytes),
}

/// What an administrator could set, for one who is to be told of it.
#[derive(Debug)]
pub struct Advice {
    shortage: Shortage,
    /// How often there had been a shortage when it was looked at last, and the largest size told.
    seen: u64,
    told: Bytes,
}

impl Shortage {
    /// For one who is told of what happens from now on.
    #[must_use]
    pub fn advice(&self) -> Advice {
        let seen = lock(&self.0).count;
        Advice { shortage: self.clone(), seen, told: Bytes(0) }
    }
}

impl Advice {
    /// Something to tell: once, and again where twice as much was wanted.
    pub fn news(&mut self) -> Option<String> {
        let lack = lock(&self.shortage.0);
        let is_new = std::mem::replace(&mut self.seen, lack.count) < lack.count;
        let (wanted, granted) = lack.sizes;
        if !is_new || wanted.0 < 2 * self.told.0 {
            return None;
        }
        self.told = wanted;
        Some(format!(
            "datagrams were discarded here, since net.core.rmem_max holds their buffer to {granted}: \
             `sysctl -w net.core.rmem_max={}` lets it grow to what was needed",
            wanted.0
        ))
    }
}

/// The receive buffer of a socket, as long as it is looked after.
#[derive(Debug)]
pub struct DatagramRoom {
    rrda: Rrda,
    least: Bytes,
    epoch: Instant,
    /// In this epoch: bytes and datagrams that were taken out, and the most that stood.
    taken: u64,
    datagrams: u64,
    used: u64,
    /// What stood in it when the epoch began.
    standing: u64,
    /// What was discarded in it, as far as it was seen.
    seen: Bytes,
    /// How often it was looked at, of all time.
    looks: u64,
    /// Mean size of the datagrams of the last epoch in which some were taken out.
    each: u64,
    /// Dropped by the kernel, of all time.
    dropped: u32,
    /// Memory in use, and when that was read.
    memory: (Instant, f64),
    shortage: Shortage,
    reason: Reason,
}

impl DatagramRoom {
    /// Gives a socket room for `least`, in bytes of data; it will not have more than `limit`, but
    /// for that. `None` where the kernel does not tell how full it is.
    #[must_use]
    pub fn new(
        socket: &UdpSocket,
        shortage: Shortage,
        least: Bytes,
        limit: Option<Bytes>,
    ) -> Option<Self> {
        let dropped = bankfull_sys::receive_buffer(socket).ok()?.dropped;
        let memory = bankfull_sys::memory().ok();
        let max = memory.map_or(MOST, |memory| MOST.min(Bytes(memory.total / MEMORY_PART)));
        let max = limit.map_or(max, |limit| max.min(limit));
        let mut rrda = Rrda::new(Bounds { min: least, max }, None);
        if let Ok(granted) = bankfull_sys::set_receive_buffer(socket, least.0) {
            rrda.on_granted(Bytes(granted));
        }
        let now = Instant::now();
        Some(Self {
            rrda,
            least,
            epoch: now,
            taken: 0,
            datagrams: 0,
            standing: 0,
            used: 0,
            seen: Bytes(0),
            looks: 0,
            each: DATAGRAM,
            dropped,
            memory: (now, memory.map_or(0.0, |memory| memory.used_part())),
            shortage,
            reason: Reason::Kept,
        })
    }

    /// Its size, in bytes of data.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.rrda.size()
    }

    /// Looks how full it is: when something is about to be taken out, and as often as is worth it
    /// while nobody does. Where it is too full, there is more room at once. Answers with what
    /// stands in it.
    pub fn look(&mut self, socket: &UdpSocket) -> Bytes {
        self.looks += 1;
        let Ok(buffer) = bankfull_sys::receive_buffer(socket) else { return Bytes(0) };
        let standing = Bytes(buffer.used);
        let discarded = self.discarded(buffer);
        if buffer.used <= self.used && discarded <= self.seen {
            return standing;
        }
        (self.used, self.seen) = (self.used.max(buffer.used), self.seen.max(discarded));
        let before = self.rrda.size();
        let (wanted, reason) = self.rrda.on_look(Bytes(buffer.used), discarded, self.memory.1);
        self.reason = reason;
        self.set(socket, (before, wanted), discarded);
        standing
    }

    /// Why it has that size, by the last epoch or look.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// How often anybody has looked at it.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Bytes that were discarded in this epoch.
    fn discarded(&self, buffer: ReceiveBuffer) -> Bytes {
        let each = self.taken.checked_div(self.datagrams).unwrap_or(self.each);
        Bytes(u64::from(buffer.dropped.wrapping_sub(self.dropped)) * each)
    }

    fn set(&mut self, socket: &UdpSocket, (before, wanted): (Bytes, Bytes), discarded: Bytes) {
        if wanted == before {
            return;
        }
        let Ok(granted) = bankfull_sys::set_receive_buffer(socket, wanted.0) else { return };
        let granted = Bytes(granted);
        self.rrda.on_granted(granted);
        if granted < wanted && discarded > Bytes(0) {
            let mut lack = lock(&self.shortage.0);
            lack.count += 1;
            lack.sizes = (wanted, granted);
        }
    }

    /// A datagram of so many bytes was taken out.
    pub fn on_taken(&mut self, bytes: usize) {
        self.taken += bytes as u64;
        self.datagrams += 1;
    }

    /// Whether it is larger than the least, and so is to be looked at again soon, although nothing
    /// comes.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.rrda.size() > self.least
    }

    /// Sets its size, where an epoch is over.
    pub fn advance(&mut self, socket: &UdpSocket, now: Instant) {
        let elapsed = now.saturating_duration_since(self.epoch);
        if elapsed < EPOCH {
            return;
        }
        self.epoch = now;
        let Ok(buffer) = bankfull_sys::receive_buffer(socket) else { return };
        let discarded = self.discarded(buffer);
        self.dropped = buffer.dropped;
        self.each = self.taken.checked_div(self.datagrams).unwrap_or(self.each);
        // What stands there now has arrived since, or stood there before and was not taken out.
        let part = EPOCH.as_secs_f64() / elapsed.as_secs_f64();
        let in_an_epoch = |bytes: u64| Bytes((bytes as f64 * part) as u64);
        let epoch = Epoch {
            arrived: in_an_epoch(self.taken + discarded.0 + buffer.used),
            processed: in_an_epoch(self.taken + self.standing),
            discarded,
            used: Bytes(self.used.max(buffer.used)),
            memory: self.memory(now),
        };
        (self.taken, self.datagrams, self.used, self.seen) = (0, 0, 0, Bytes(0));
        self.standing = buffer.used;
        let before = self.rrda.size();
        let (wanted, reason) = self.rrda.on_epoch(&epoch);
        self.reason = reason;
        self.set(socket, (before, wanted), discarded);
    }

    /// The part of memory that is in use.
    fn memory(&mut self, now: Instant) -> f64 {
        if now.saturating_duration_since(self.memory.0) > MEMORY_LOOK
            && let Ok(memory) = bankfull_sys::memory()
        {
            self.memory = (now, memory.used_part());
        }
        self.memory.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_discarded_has_room_at_once_and_not_at_the_end_of_the_epoch() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let shortage = Shortage::default();
        let mut advice = shortage.advice();
        let mut room = DatagramRoom::new(&socket, shortage.clone(), LEAST, None).unwrap();
        let least = room.size();
        room.look(&socket);
        assert_eq!(room.size(), least);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        (0..4000).for_each(|_| drop(client.send(&[0; 1000])));
        room.look(&socket);
        let grown = room.size();
        assert!(grown > least || advice.news().is_some(), "{grown}");
        room.look(&socket);
        assert_eq!(room.size(), grown, "no more was discarded since");
    }

    #[test]
    fn a_queue_that_grows_is_a_surplus_before_anything_is_lost_and_one_that_drains_is_not() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut room = DatagramRoom::new(&socket, Shortage::default(), LEAST, None).unwrap();
        if room.size() < LEAST {
            eprintln!("skipped: net.core.rmem_max grants a buffer of {} only", room.size());
            return;
        }
        room.memory.1 = 0.4;
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        let (mut now, mut reasons) = (room.epoch, Vec::new());
        for _ in 0..3 {
            (0..200).for_each(|_| assert_eq!(client.send(&[0; 1000]).unwrap(), 1000));
            now += EPOCH;
            room.advance(&socket, now);
            reasons.push(room.reason());
        }
        assert_eq!(reasons, [Reason::Kept, Reason::Kept, Reason::Surplus]);
        let grown = room.size();
        assert!(grown > LEAST, "{grown}");
        // The kernel counts what was taken out only when that is much, or all.
        (0..600).for_each(|_| room.on_taken(socket.recv(&mut [0; 2000]).unwrap()));
        for _ in 0..3 {
            now += EPOCH;
            room.advance(&socket, now);
        }
        assert_eq!(room.reason(), Reason::Draining);
        assert!(room.size() < grown, "{} of {grown}", room.size());
    }

    #[test]
    fn it_stays_within_what_it_is_given() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        for (limit, most) in [(Bytes(1), LEAST), (Bytes::mib(2), Bytes::mib(2))] {
            let limit = Some(limit);
            let mut room = DatagramRoom::new(&socket, Shortage::default(), LEAST, limit).unwrap();
            for _ in 0..4 {
                (0..4000).for_each(|_| drop(client.send(&[0; 1000])));
                room.look(&socket);
            }
            assert!(room.size() <= most, "{} of {most}", room.size());
        }
    }

    #[test]
    fn it_grows_when_something_is_discarded_and_shrinks_when_the_load_is_over() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let shortage = Shortage::default();
        let mut advice = shortage.advice();
        let mut room = DatagramRoom::new(&socket, shortage.clone(), LEAST, None).unwrap();
        let (least, mut most) = (room.rrda.size(), Bytes(0));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        let mut now = room.epoch;
        for epoch in 0..100 {
            // A burst of 4 MB each second, for three.
            if epoch % 10 == 0 && epoch < 30 {
                (0..4000).for_each(|_| drop(client.send(&[0; 1000])));
            }
            room.look(&socket);
            let mut buf = [0; 2000];
            while let Ok(bytes) = socket.recv(&mut buf) {
                room.on_taken(bytes);
            }
            now += EPOCH;
            room.advance(&socket, now);
            most = most.max(room.rrda.size());
        }
        match advice.news() {
            // The kernel grants no more.
            Some(advice) => assert!(advice.contains("sysctl -w net.core.rmem_max="), "{advice}"),
            None => assert!(most.0 >= least.0 * 4, "{most} after {least}"),
        }
        assert!(!room.is_large() && advice.news().is_none(), "{}", room.rrda.size());
    }
}
