//! Probes that measure the wait of packets until the emulator reads them. Deliveries cannot show
//! this wait.
//!
//! A thread sends small datagrams from each host, with their send time, to an address that no host
//! has. They wait in the interface like all packets, and end where they are read.

use bankfull_sys::tun::OFFLOAD_HEADER_BYTES;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Destination of probes: the last address of the hosts' network, which no host has, and the
/// discard port. (RFC 863)
pub const BLACKHOLE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 77, 255, 254), 9);

/// Interval between probes, and hosts that send at each. (chosen: hundreds of probes in a short
/// run, beside thousands of packets)
const SEND_INTERVAL: Duration = Duration::from_millis(10);
const HOSTS_PER_INTERVAL: usize = 4;

/// Time after another packet in which a probe counts. (chosen: two intervals, so that one follows
/// every packet)
const BUSY_PERIOD: Duration = Duration::from_millis(20);

/// Offset of the destination address behind the offload header, and bytes of the timestamp. (RFC
/// 791; chosen)
const DESTINATION_OFFSET: usize = OFFLOAD_HEADER_BYTES + 16;
const TIMESTAMP_BYTES: usize = 8;

/// Sends probes until dropped.
#[derive(Debug)]
pub(crate) struct ProbeSender {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProbeSender {
    /// Starts sending from sockets connected to [`BLACKHOLE`]; timestamps count from `started`.
    pub(crate) fn start(sockets: Vec<UdpSocket>, started: Instant) -> io::Result<Self> {
        for socket in &sockets {
            socket.set_nonblocking(true)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let thread_stop = Arc::clone(&stop);
        let thread = thread::Builder::new().name("probes".to_owned()).spawn(move || {
            for first in (0..).step_by(HOSTS_PER_INTERVAL) {
                if thread_stop.load(Ordering::SeqCst) {
                    return;
                }
                for at in first..first + HOSTS_PER_INTERVAL.min(sockets.len()) {
                    let timestamp = started.elapsed().as_nanos() as u64;
                    // A full queue may drop it; other probes show the wait.
                    let _ = sockets[at % sockets.len()].send(&timestamp.to_le_bytes());
                }
                thread::sleep(SEND_INTERVAL);
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for ProbeSender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Selects probes sent near other packets: in idle time, probes are punctual and would hide the
/// waits.
#[derive(Debug, Default)]
pub(crate) struct BusyPeriod {
    last: Option<Duration>,
}

impl BusyPeriod {
    /// Records the read time of another packet.
    pub(crate) fn on_packet(&mut self, now: Duration) {
        self.last = Some(now);
    }

    /// True if a probe sent at `sent` counts.
    pub(crate) fn contains(&self, sent: Duration) -> bool {
        self.last.is_some_and(|last| sent <= last + BUSY_PERIOD)
    }
}

/// Send time of a probe; `None` for other packets.
pub(crate) fn sent_at(packet: &[u8]) -> Option<Duration> {
    let destination = packet.get(DESTINATION_OFFSET..DESTINATION_OFFSET + 4)?;
    if destination != BLACKHOLE.0.octets() {
        return None;
    }
    let timestamp = packet.get(DESTINATION_OFFSET + 4..)?.last_chunk::<TIMESTAMP_BYTES>()?;
    Some(Duration::from_nanos(u64::from_le_bytes(*timestamp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Datagram as read from an interface: offload header, IP, UDP, data.
    fn datagram(to: Ipv4Addr, data: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; OFFLOAD_HEADER_BYTES + 20 + 8];
        packet[OFFLOAD_HEADER_BYTES] = 0x45;
        packet[DESTINATION_OFFSET..DESTINATION_OFFSET + 4].copy_from_slice(&to.octets());
        packet.extend(data);
        packet
    }

    #[test]
    fn only_probes_have_send_time() {
        let timestamp = 123_456_789u64.to_le_bytes();
        let packet = datagram(BLACKHOLE.0, &timestamp);
        assert_eq!(sent_at(&packet), Some(Duration::from_nanos(123_456_789)));
        assert_eq!(sent_at(&datagram(Ipv4Addr::new(10, 77, 0, 1), &timestamp)), None);
        assert_eq!(sent_at(&packet[..DESTINATION_OFFSET + 6]), None);
        assert_eq!(sent_at(&[]), None);
    }

    #[test]
    fn probes_near_other_packets_count() {
        let ms = Duration::from_millis;
        let mut busy = BusyPeriod::default();
        assert!(!busy.contains(ms(5)), "none has come yet");
        busy.on_packet(ms(1000));
        assert!(busy.contains(ms(990)), "it waited with the other");
        assert!(busy.contains(ms(1015)));
        assert!(!busy.contains(ms(1021)), "it was idle");
        busy.on_packet(ms(61_000));
        assert!(busy.contains(ms(61_003)) && !busy.contains(ms(61_030)));
    }

    #[test]
    fn probes_are_sent_until_dropped() {
        let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
        sink.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(sink.local_addr().unwrap()).unwrap();
        let started = Instant::now();
        let probes = ProbeSender::start(vec![socket], started).unwrap();
        let mut timestamp = [0; TIMESTAMP_BYTES];
        for _ in 0..3 {
            assert_eq!(sink.recv(&mut timestamp).unwrap(), TIMESTAMP_BYTES);
            assert!(Duration::from_nanos(u64::from_le_bytes(timestamp)) <= started.elapsed());
        }
        drop(probes);
        sink.set_nonblocking(true).unwrap();
        while sink.recv(&mut timestamp).is_ok() {}
        thread::sleep(SEND_INTERVAL * 3);
        assert!(sink.recv(&mut timestamp).is_err());
    }
}
