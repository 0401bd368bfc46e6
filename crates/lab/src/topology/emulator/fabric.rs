//! The emulated network between the hosts, without I/O. Each host has an uplink into the network,
//! and a port, the last hop towards it, shared by all senders.
//!
//! ```text
//! host a ── uplink a ──┐              ┌── port a ── host a
//!                      ├── switch ────┤
//! host b ── uplink b ──┘              └── port b ── host b
//! ```
//!
//! Times are scheduled times: a packet that enters late is late, its schedule is exact.

use crate::topology::emulator::packet::Packet;
use crate::topology::emulator::record::{Recorder, Recording};
use bankfull_sim::{Link, LinkConfig, SegmentRun};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

/// Longest burst of datagrams that arrive together, as with interrupt coalescing of a network card.
/// (chosen: Linux drivers wait 20 µs to 50 µs)
const COALESCE_TIME: Duration = Duration::from_micros(50);

/// Attachment of a host to the network.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// IPv4 address.
    pub address: Ipv4Addr,
    /// Link from the host into the network.
    pub uplink: LinkConfig,
    /// Link from the network to the host.
    pub port: LinkConfig,
}

/// Segments due at a host.
pub(crate) struct Delivery {
    pub(crate) endpoint: usize,
    pub(crate) scheduled: Duration,
    pub(crate) packet: Rc<Packet>,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// Next hop of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    Port,
    Host,
}

struct Event {
    at: Duration,
    /// Sequence number: events at equal times keep their order.
    seq: u64,
    hop: Hop,
    endpoint: usize,
    packet: Rc<Packet>,
    first: u32,
    count: u32,
}

/// The running network.
pub(crate) struct Fabric {
    addresses: Vec<Ipv4Addr>,
    uplinks: Vec<Link>,
    ports: Vec<Link>,
    events: BinaryHeap<Reverse<Event>>,
    scheduled: u64,
    runs: Vec<SegmentRun>,
    pub(crate) recorder: Recorder,
}

impl Fabric {
    pub(crate) fn new(endpoints: &[Endpoint], seed: u64, interval: Duration) -> Self {
        let link = |(at, config): (usize, &LinkConfig)| {
            // Own seed for each link, the same for the same link in every run.
            Link::new(config.clone(), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64)
        };
        let uplinks = endpoints.iter().map(|s| &s.uplink).enumerate();
        let ports = endpoints.iter().map(|s| &s.port).enumerate();
        Self {
            addresses: endpoints.iter().map(|s| s.address).collect(),
            uplinks: uplinks.map(|(at, config)| link((2 * at, config))).collect(),
            ports: ports.map(|(at, config)| link((2 * at + 1, config))).collect(),
            events: BinaryHeap::new(),
            scheduled: 0,
            runs: Vec::new(),
            recorder: Recorder::new(endpoints.len(), interval),
        }
    }

    /// Cuts all ports, or restores them.
    pub(crate) fn set_cut(&mut self, is_cut: bool) {
        self.ports.iter_mut().for_each(|port| port.set_cut(is_cut));
    }

    /// Accepts a packet of a host that was sent at `now` and read at `read_at`. It meets the queue
    /// of the time it was sent, but arrives no sooner than the path's delay after it was read.
    /// Returns false if no host has its destination address.
    pub(crate) fn enter(
        &mut self,
        now: Duration,
        read_at: Duration,
        from: usize,
        mut packet: Packet,
    ) -> bool {
        let destination = packet.flow.destination;
        let Some(to) = self.addresses.iter().position(|a| *a == destination) else { return false };
        let delays = self.uplinks[from].config().delay + self.ports[to].config().delay;
        packet.not_before = read_at + delays;
        let packet = Rc::new(packet);
        if self.next_event_at().is_none_or(|at| at > now) {
            self.recorder.advance(now, &mut self.ports);
        }
        let mut runs = std::mem::take(&mut self.runs);
        self.uplinks[from].offer(now, &packet.burst, &mut runs);
        for run in &runs {
            // Earlier events must be processed first.
            let is_next = self.next_event_at().is_none_or(|at| at > now);
            if run.arrives <= now && is_next {
                self.enqueue_at_port(now, to, &packet, run.first, run.count);
            } else {
                self.schedule(run.arrives, Hop::Port, to, &packet, run.first, run.count);
            }
        }
        self.runs = runs;
        true
    }

    /// Ends the recording.
    pub(crate) fn finish(self) -> Recording {
        self.recorder.finish(&self.ports)
    }

    /// Time of the next event.
    pub(crate) fn next_event_at(&self) -> Option<Duration> {
        self.events.peek().map(|Reverse(event)| event.at)
    }

    /// Processes events up to `now`, or up to the next delivery.
    pub(crate) fn next_delivery(&mut self, now: Duration) -> Option<Delivery> {
        loop {
            if self.events.peek().is_none_or(|Reverse(event)| event.at > now) {
                self.recorder.advance(now, &mut self.ports);
                return None;
            }
            let Reverse(event) = self.events.pop()?;
            self.recorder.advance(event.at, &mut self.ports);
            let Event { at, endpoint, packet, first, count, .. } = event;
            match event.hop {
                Hop::Port => self.enqueue_at_port(at, endpoint, &packet, first, count),
                Hop::Host => {
                    self.recorder.on_delivered(
                        endpoint,
                        &packet.flow,
                        packet.wire_bytes(first, count),
                    );
                    return Some(Delivery { endpoint, scheduled: at, packet, first, count });
                }
            }
        }
    }

    /// Enqueues segments at the port of a host.
    fn enqueue_at_port(
        &mut self,
        now: Duration,
        to: usize,
        packet: &Rc<Packet>,
        first: u32,
        count: u32,
    ) {
        let mut runs = Vec::new();
        let (end, coalesced) = (first + count, self.coalesced(to, packet).clamp(1, count));
        for first in (first..end).step_by(coalesced as usize) {
            let coalesced = coalesced.min(end - first);
            self.ports[to].offer(now, &packet.burst_of(first, coalesced), &mut runs);
            for run in &runs {
                let at = run.arrives.max(packet.not_before);
                self.schedule(at, Hop::Host, to, packet, first + run.first, run.count);
            }
        }
        self.recorder.on_enqueued(to, now, &mut self.ports[to]);
    }

    /// Number of segments of a packet that may arrive together.
    fn coalesced(&self, to: usize, packet: &Packet) -> u32 {
        let rate = self.ports[to].config().rate.filter(|_| packet.is_datagrams());
        let bytes = rate.map(|rate| rate.bytes_per_sec() as f64 * COALESCE_TIME.as_secs_f64());
        bytes.map_or(u32::MAX, |bytes| bytes as u32 / packet.burst.segment_bytes.max(1))
    }

    fn schedule(
        &mut self,
        at: Duration,
        hop: Hop,
        endpoint: usize,
        packet: &Rc<Packet>,
        first: u32,
        count: u32,
    ) {
        self.scheduled += 1;
        let packet = Rc::clone(packet);
        let seq = self.scheduled;
        self.events.push(Reverse(Event { at, seq, hop, endpoint, packet, first, count }));
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_control::{Bytes, Rate};

    /// Enters a packet that was read when it was sent.
    fn enter_now(fabric: &mut Fabric, now: Duration, from: usize, packet: Packet) -> bool {
        fabric.enter(now, now, from, packet)
    }

    const MS: Duration = Duration::from_millis(1);

    fn address(host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, host)
    }

    /// A UDP packet of `total` bytes between two hosts.
    fn udp(from: u8, to: u8, total: u16) -> Packet {
        let mut bytes = vec![0; 10 + usize::from(total)];
        let ip = &mut bytes[10..];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[9] = 17;
        ip[12..16].copy_from_slice(&address(from).octets());
        ip[16..20].copy_from_slice(&address(to).octets());
        Packet::parse(bytes).unwrap()
    }

    fn endpoint(host: u8, access: LinkConfig, port: LinkConfig) -> Endpoint {
        Endpoint { address: address(host), uplink: access, port }
    }

    /// Deliveries with their times, up to a time.
    fn run(fabric: &mut Fabric, until: Duration) -> Vec<(usize, Duration)> {
        let mut found = Vec::new();
        while let Some(delivery) = fabric.next_delivery(until) {
            found.push((delivery.endpoint, delivery.scheduled));
        }
        found
    }

    #[test]
    fn port_serves_senders_in_arrival_order() {
        let port = LinkConfig {
            rate: Some(Rate::from_bits_per_sec(10e6)),
            delay: MS,
            buffer: Bytes(2600),
            ..LinkConfig::default()
        };
        let access = |ms| LinkConfig { delay: MS * ms, ..LinkConfig::default() };
        let endpoints = [
            endpoint(1, access(0), port),
            endpoint(2, access(0), LinkConfig::default()),
            endpoint(3, access(5), LinkConfig::default()),
        ];
        let mut fabric = Fabric::new(&endpoints, 1, MS);
        // 1250 bytes take 1 ms. The packet with the long access link arrives after the first.
        assert!(enter_now(&mut fabric, Duration::ZERO, 2, udp(3, 1, 1250)));
        for _ in 0..3 {
            assert!(enter_now(&mut fabric, Duration::ZERO, 1, udp(2, 1, 1250)));
        }
        assert_eq!(run(&mut fabric, MS * 20), [(0, MS * 2), (0, MS * 3), (0, MS * 7)]);
        assert!(!enter_now(&mut fabric, MS * 20, 1, udp(2, 9, 100)), "unknown address");
        let recording = fabric.finish();
        assert_eq!(recording.totals[0].overflowed, 1);
        assert_eq!(recording.flows.len(), 2);
        let delivered: u64 = recording.ports[0].iter().map(|sample| sample.delivered.0).sum();
        assert_eq!(delivered, 3 * 1250);
        let backlog = recording.ports[0].iter().map(|sample| sample.max_backlog.0).max();
        assert_eq!(backlog, Some(2500));
    }

    #[test]
    fn late_read_uses_queue_of_send_time() {
        let port = LinkConfig {
            rate: Some(Rate::from_bits_per_sec(10e6)),
            delay: MS * 5,
            buffer: Bytes(1250),
            ..LinkConfig::default()
        };
        let endpoints = [1, 2].map(|host| endpoint(host, LinkConfig::default(), port.clone()));
        let mut fabric = Fabric::new(&endpoints, 1, MS);
        for sent in [1, 2, 3] {
            assert!(fabric.enter(MS * sent, MS * 10, 0, udp(1, 2, 1250)));
        }
        assert_eq!(run(&mut fabric, MS * 20), [(1, MS * 15), (1, MS * 15), (1, MS * 15)]);
        assert_eq!(fabric.finish().totals[1].overflowed, 0);
    }

    #[test]
    fn cut_network_delivers_nothing() {
        let plain = |host| endpoint(host, LinkConfig::default(), LinkConfig::default());
        let mut fabric = Fabric::new(&[plain(1), plain(2)], 1, MS);
        fabric.set_cut(true);
        enter_now(&mut fabric, MS, 0, udp(1, 2, 100));
        fabric.set_cut(false);
        enter_now(&mut fabric, MS * 2, 0, udp(1, 2, 100));
        assert_eq!(run(&mut fabric, MS * 9), [(1, MS * 2)]);
    }
}
