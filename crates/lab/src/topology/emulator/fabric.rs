//! The emulated network between the hosts, without I/O. Each host has an uplink into the network,
//! and a port, the last hop towards it, shared by all senders.
//!
//! ```text
//! host a ── uplink a ──┐              ┌── port a ── host a
//!                      ├── switch ────┤
//! host b ── uplink b ──┘              └── port b ── host b
//! ```
//!
//! Times are scheduled times: a packet may enter late, but its schedule stays exact.

use crate::topology::emulator::packet::Packet;
use crate::topology::emulator::record::{Recorder, Recording};
use bankfull_sim::world::{ExternalPackets, LinkId, Route};
use bankfull_sim::{Background, LinkConfig, World};
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
    /// True if the uplink counts with the receiver's port, as a bottleneck.
    pub has_first_hop: bool,
}

/// Segments due at a host.
pub(crate) struct Delivery {
    pub(crate) endpoint: usize,
    pub(crate) scheduled: Duration,
    pub(crate) packet: Rc<Packet>,
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Congestion experienced, on the way or before.
    pub(crate) is_marked: bool,
}

/// Packet on its way, and the host to which it goes.
type Content = (usize, Rc<Packet>);

/// The running network.
pub(crate) struct Fabric {
    addresses: Vec<Ipv4Addr>,
    uplinks: Vec<LinkId>,
    ports: Vec<LinkId>,
    /// Uplinks that count with the port of the last host.
    first_hops: Vec<LinkId>,
    world: World<Content>,
    pub(crate) recorder: Recorder,
}

impl Fabric {
    pub(crate) fn new(
        endpoints: &[Endpoint],
        background: &[Background],
        seed: u64,
        interval: Duration,
    ) -> Self {
        let mut world = World::with_external(seed);
        let mut links = |config: &dyn Fn(&Endpoint) -> LinkConfig| -> Vec<LinkId> {
            endpoints.iter().map(|endpoint| world.add_link(config(endpoint))).collect()
        };
        let uplinks = links(&|endpoint| endpoint.uplink.clone());
        let ports = links(&|endpoint| endpoint.port.clone());
        // From the first host to the last, without its uplink: the network's, not the host's.
        let ends = ports.last().into_iter().zip(ports.first());
        for (&forward, &reverse) in ends {
            let route = Route { forward: vec![forward], reverse: vec![reverse] };
            for &kind in background {
                world.add_background(&route, kind, Duration::ZERO);
            }
        }
        let bottlenecks = uplinks.iter().zip(endpoints).filter(|(_, one)| one.has_first_hop);
        let first_hops = bottlenecks.map(|(&uplink, _)| uplink).collect();
        Self {
            first_hops,
            addresses: endpoints.iter().map(|endpoint| endpoint.address).collect(),
            uplinks,
            ports,
            world,
            recorder: Recorder::new(endpoints.len(), interval),
        }
    }

    /// Cuts all ports, or restores them.
    pub(crate) fn set_cut(&mut self, is_cut: bool) {
        self.ports.iter().for_each(|&port| self.world.set_cut(port, is_cut));
    }

    /// Accepts a packet of a host that was sent at `now` and read at `read_at`. The packet finds
    /// the queue as of its send time, but arrives no sooner than the path's delay after `read_at`.
    /// Returns false if no host has its destination address.
    pub(crate) fn enter(
        &mut self,
        now: Duration,
        read_at: Duration,
        from: usize,
        packet: Packet,
    ) -> bool {
        let to = self.addresses.iter().position(|a| *a == packet.flow.destination);
        let mtu = to.and_then(|to| self.world.link_config(self.ports[to]).mtu_at(now));
        if let Some(answer) = mtu.and_then(|mtu| packet.too_long_for(mtu)) {
            self.inject(now, read_at, to.unwrap_or_default(), answer);
        }
        self.inject(now, read_at, from, packet)
    }

    fn inject(&mut self, now: Duration, read_at: Duration, from: usize, packet: Packet) -> bool {
        let destination = packet.flow.destination;
        let Some(to) = self.addresses.iter().position(|a| *a == destination) else { return false };
        let (uplink, port) = (self.uplinks[from], self.ports[to]);
        let delay = |link| self.world.link_config(link).delay_at(now);
        let external = ExternalPackets {
            burst: packet.burst,
            first: 0,
            flow: packet.flow.hash(),
            ecn: packet.ecn(),
            is_pure_ack: packet.is_pure_ack(),
            max_run: self.max_run(to, &packet),
            route: [uplink, port].into(),
            not_before: read_at + delay(uplink) + delay(port),
            echo_hop: None,
            echoed_at: None,
            content: (to, Rc::new(packet)),
        };
        self.world.inject(now, external);
        true
    }

    /// Ends the recording.
    pub(crate) fn finish(self) -> Recording {
        self.recorder.finish(&self.world, &self.ports, &self.first_hops)
    }

    /// Time of the next event.
    pub(crate) fn next_event_at(&self) -> Option<Duration> {
        self.world.next_event_at()
    }

    /// Processes events up to `now`, or up to the next delivery.
    pub(crate) fn next_delivery(&mut self, now: Duration) -> Option<Delivery> {
        while let Some(at) = self.world.next_event_at().filter(|at| *at <= now) {
            self.recorder.advance(at, &mut self.world, (&self.ports, &self.first_hops));
            let arrival = self.world.run_next_event();
            let offered = self.world.take_offered().map(LinkId::index);
            // Ports follow the uplinks.
            if let Some(port) = offered.and_then(|link| link.checked_sub(self.uplinks.len())) {
                self.recorder.on_enqueued(port, self.world.backlog_at(self.ports[port], at));
            }
            if let Some(arrival) = arrival {
                let (endpoint, packet) = arrival.content;
                let (first, count) = (arrival.first, arrival.count);
                let bytes = packet.wire_bytes(first, count);
                self.recorder.on_delivered(endpoint, &packet.flow, bytes);
                let (scheduled, is_marked) = (arrival.at, arrival.is_marked);
                return Some(Delivery { endpoint, scheduled, packet, first, count, is_marked });
            }
        }
        self.recorder.advance(now, &mut self.world, (&self.ports, &self.first_hops));
        None
    }

    /// Number of segments of a packet that may arrive together.
    fn max_run(&self, to: usize, packet: &Packet) -> u32 {
        let rate = self.world.link_config(self.ports[to]).rate;
        let Some(rate) = rate.filter(|_| packet.is_datagrams()) else { return u32::MAX };
        let bytes = rate.bytes_per_sec() as f64 * COALESCE_TIME.as_secs_f64();
        (bytes as u32 / packet.burst.segment_bytes.max(1)).max(1)
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
        Endpoint { address: address(host), uplink: access, port, has_first_hop: false }
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
        let mut fabric = Fabric::new(&endpoints, &[], 1, MS);
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
    fn drops_and_queue_of_first_hop_count() {
        let hop = LinkConfig {
            rate: Some(Rate::from_bits_per_sec(10e6)),
            buffer: Bytes(2600),
            ..LinkConfig::default()
        };
        let port = LinkConfig { rate: Some(Rate::from_bits_per_sec(100e6)), ..hop.clone() };
        for has_first_hop in [true, false] {
            let sender = endpoint(1, hop.clone(), LinkConfig::default());
            let receiver = endpoint(2, LinkConfig::default(), port.clone());
            let endpoints = [Endpoint { has_first_hop, ..sender }, receiver];
            let mut fabric = Fabric::new(&endpoints, &[], 1, MS);
            for _ in 0..5 {
                assert!(enter_now(&mut fabric, Duration::ZERO, 0, udp(1, 2, 1250)));
            }
            assert_eq!(run(&mut fabric, MS * 9).len(), 2);
            let recording = fabric.finish();
            let samples = &recording.ports[1];
            let dropped: u64 = samples.iter().map(|sample| sample.dropped).sum();
            let wanted = if has_first_hop { 3 } else { 0 };
            assert_eq!((recording.totals[1].dropped(), dropped), (wanted, wanted));
            let longest = samples.iter().map(|sample| sample.queueing_delay).max();
            let wanted = if has_first_hop { MS } else { Duration::ZERO };
            assert!(longest.is_some_and(|delay| delay >= wanted), "{longest:?}");
            assert!(has_first_hop || longest < Some(MS), "{longest:?}");
        }
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
        let mut fabric = Fabric::new(&endpoints, &[], 1, MS);
        for sent in [1, 2, 3] {
            assert!(fabric.enter(MS * sent, MS * 10, 0, udp(1, 2, 1250)));
        }
        assert_eq!(run(&mut fabric, MS * 20), [(1, MS * 15), (1, MS * 15), (1, MS * 15)]);
        assert_eq!(fabric.finish().totals[1].overflowed, 0);
    }

    #[test]
    fn cut_network_delivers_nothing() {
        let plain = |host| endpoint(host, LinkConfig::default(), LinkConfig::default());
        let mut fabric = Fabric::new(&[plain(1), plain(2)], &[], 1, MS);
        fabric.set_cut(true);
        enter_now(&mut fabric, MS, 0, udp(1, 2, 100));
        assert_eq!(run(&mut fabric, MS), []);
        fabric.set_cut(false);
        enter_now(&mut fabric, MS * 2, 0, udp(1, 2, 100));
        assert_eq!(run(&mut fabric, MS * 9), [(1, MS * 2)]);
    }
}
