//! How long packets wait until the emulator reads them, which no delivery tells: a thread lets each
//! host send small datagrams with the moment of their sending, to an address that no host has. They
//! wait in the interface like all others, and end where they are read.

use bankfull_sys::tun::OFFLOAD_HEADER_BYTES;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Where they are sent: the last address of the hosts' network, which no host gets, at the port of
/// those who want no answer. (RFC 863)
pub const NOWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 77, 255, 254), 9);

/// How often some are sent, and from how many hosts at a time. (ours: hundreds in a short run,
/// beside many thousands of packets)
const EVERY: Duration = Duration::from_millis(10);
const AT_ONCE: usize = 4;

/// A probe counts so long after another packet. (ours: twice their distance, so that one comes
/// behind every packet)
const BESIDE: Duration = Duration::from_millis(20);

/// Place of the destination's address in an IPv4 header, and bytes of the moment. (RFC 791; ours)
const DESTINATION: usize = OFFLOAD_HEADER_BYTES + 16;
const MOMENT_BYTES: usize = 8;

/// Sends until it is dropped.
#[derive(Debug)]
pub(crate) struct Probes {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Probes {
    /// Sends from sockets that are connected with nowhere; moments are those since `started`.
    pub(crate) fn start(sockets: Vec<UdpSocket>, started: Instant) -> io::Result<Self> {
        for socket in &sockets {
            socket.set_nonblocking(true)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::Builder::new().name("probes".to_owned()).spawn(move || {
            for first in (0..).step_by(AT_ONCE) {
                if seen.load(Ordering::SeqCst) {
                    return;
                }
                for at in first..first + AT_ONCE.min(sockets.len()) {
                    let moment = started.elapsed().as_nanos() as u64;
                    // One that does not fit in is missing where others wait long.
                    let _ = sockets[at % sockets.len()].send(&moment.to_le_bytes());
                }
                thread::sleep(EVERY);
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tells probes beside which other packets came from those of idle time: these are punctual, and
/// of those who waited they say nothing.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    last: Option<Duration>,
}

impl Beside {
    /// Another packet was read.
    pub(crate) fn packet(&mut self, now: Duration) {
        self.last = Some(now);
    }

    /// Whether a probe that was sent then, and is read now, counts.
    pub(crate) fn counts(&self, sent: Duration) -> bool {
        self.last.is_some_and(|last| sent <= last + BESIDE)
    }
}

/// When a packet was sent, if it is one of these.
pub(crate) fn sent_at(packet: &[u8]) -> Option<Duration> {
    let destination = packet.get(DESTINATION..DESTINATION + 4)?;
    if destination != NOWHERE.0.octets() {
        return None;
    }
    let moment = packet.get(DESTINATION + 4..)?.last_chunk::<MOMENT_BYTES>()?;
    Some(Duration::from_nanos(u64::from_le_bytes(*moment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As an interface gives a datagram: offload header, IP, UDP, data.
    fn datagram(to: Ipv4Addr, data: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; OFFLOAD_HEADER_BYTES + 20 + 8];
        packet[OFFLOAD_HEADER_BYTES] = 0x45;
        packet[DESTINATION..DESTINATION + 4].copy_from_slice(&to.octets());
        packet.extend(data);
        packet
    }

    #[test]
    fn only_what_goes_nowhere_tells_its_moment() {
        let moment = 123_456_789u64.to_le_bytes();
        let packet = datagram(NOWHERE.0, &moment);
        assert_eq!(sent_at(&packet), Some(Duration::from_nanos(123_456_789)));
        assert_eq!(sent_at(&datagram(Ipv4Addr::new(10, 77, 0, 1), &moment)), None);
        assert_eq!(sent_at(&packet[..DESTINATION + 6]), None);
        assert_eq!(sent_at(&[]), None);
    }

    #[test]
    fn only_those_count_beside_which_others_came() {
        let ms = Duration::from_millis;
        let mut beside = Beside::default();
        assert!(!beside.counts(ms(5)), "none has come yet");
        beside.packet(ms(1000));
        assert!(beside.counts(ms(990)), "it waited with the other");
        assert!(beside.counts(ms(1015)));
        assert!(!beside.counts(ms(1021)), "it was idle");
        beside.packet(ms(61_000));
        assert!(beside.counts(ms(61_003)) && !beside.counts(ms(61_030)));
    }

    #[test]
    fn moments_are_sent_until_they_are_dropped() {
        let nowhere = UdpSocket::bind("127.0.0.1:0").unwrap();
        nowhere.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(nowhere.local_addr().unwrap()).unwrap();
        let started = Instant::now();
        let probes = Probes::start(vec![socket], started).unwrap();
        let mut moment = [0; MOMENT_BYTES];
        for _ in 0..3 {
            assert_eq!(nowhere.recv(&mut moment).unwrap(), MOMENT_BYTES);
            assert!(Duration::from_nanos(u64::from_le_bytes(moment)) <= started.elapsed());
        }
        drop(probes);
        nowhere.set_nonblocking(true).unwrap();
        while nowhere.recv(&mut moment).is_ok() {}
        thread::sleep(EVERY * 3);
        assert!(nowhere.recv(&mut moment).is_err());
    }
}
