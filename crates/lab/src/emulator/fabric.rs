//! The emulated network between the hosts, without I/O: every host has an uplink (its access to the
//! network) and a port (the last hop towards it, shared by all who send to it).
//!
//! ```text
//! host a ── uplink a ──┐              ┌── port a ── host a
//!                      ├── switch ────┤
//! host b ── uplink b ──┘              └── port b ── host b
//! ```
//!
//! Times are planned times: what enters late is late, what is planned is exact.

use super::packet::Packet;
use super::record::{Recorder, Recording};
use bankfull_sim::{Link, LinkConfig, Run};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

/// Datagrams arrive in bunches that take so long on the line at most, as through a network card
/// that waits a little before it interrupts. (ours: Linux's cards wait 20 µs to 50 µs)
const DATAGRAMS_TIME: Duration = Duration::from_micros(50);

/// A host's place in the network.
#[derive(Debug, Clone)]
pub struct Station {
    /// Its address.
    pub address: Ipv4Addr,
    /// From the host into the network.
    pub uplink: LinkConfig,
    /// From the network to the host.
    pub port: LinkConfig,
}

/// Segments that are due at a host.
pub(crate) struct Delivery {
    pub(crate) station: usize,
    pub(crate) planned: Duration,
    pub(crate) packet: Rc<Packet>,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// Where a piece arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Port,
    Host,
}

struct Event {
    at: Duration,
    /// Order of planning: pieces of equal time stay in order.
    number: u64,
    place: Place,
    station: usize,
    packet: Rc<Packet>,
    first: u32,
    count: u32,
}

/// The network at work.
pub(crate) struct Fabric {
    addresses: Vec<Ipv4Addr>,
    uplinks: Vec<Link>,
    ports: Vec<Link>,
    agenda: BinaryHeap<Reverse<Event>>,
    planned: u64,
    runs: Vec<Run>,
    pub(crate) recorder: Recorder,
}

impl Fabric {
    pub(crate) fn new(stations: &[Station], seed: u64, interval: Duration) -> Self {
        let link = |(at, config): (usize, &LinkConfig)| {
            // A seed of its own for each link, the same for the same place in every run.
            Link::new(config.clone(), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64)
        };
        let uplinks = stations.iter().map(|s| &s.uplink).enumerate();
        let ports = stations.iter().map(|s| &s.port).enumerate();
        Self {
            addresses: stations.iter().map(|s| s.address).collect(),
            uplinks: uplinks.map(|(at, config)| link((2 * at, config))).collect(),
            ports: ports.map(|(at, config)| link((2 * at + 1, config))).collect(),
            agenda: BinaryHeap::new(),
            planned: 0,
            runs: Vec::new(),
            recorder: Recorder::new(stations.len(), interval),
        }
    }

    /// Cuts all ways, or joins them again.
    pub(crate) fn set_cut(&mut self, is_cut: bool) {
        self.ports.iter_mut().for_each(|port| port.set_cut(is_cut));
    }

    /// A host sends a packet, which was read at a moment that may be later: it finds the queues as
    /// they were when it was sent, but no packet arrives sooner than its way takes from then on.
    /// False when nobody has its destination's address.
    pub(crate) fn enter(
        &mut self,
        now: Duration,
        read: Duration,
        from: usize,
        mut packet: Packet,
    ) -> bool {
        let destination = packet.flow.destination;
        let Some(to) = self.addresses.iter().position(|a| *a == destination) else { return false };
        let delays = self.uplinks[from].config().delay + self.ports[to].config().delay;
        packet.not_before = read + delays;
        let packet = Rc::new(packet);
        if self.next_at().is_none_or(|at| at > now) {
            self.recorder.advance(now, &mut self.ports);
        }
        let mut runs = std::mem::take(&mut self.runs);
        self.uplinks[from].offer(now, &packet.burst, &mut runs);
        for run in &runs {
            // What is due already comes first.
            let is_next = self.next_at().is_none_or(|at| at > now);
            if run.arrives <= now && is_next {
                self.at_port(now, to, &packet, run.first, run.count);
            } else {
                self.plan(run.arrives, Place::Port, to, &packet, run.first, run.count);
            }
        }
        self.runs = runs;
        true
    }

    /// Ends the work.
    pub(crate) fn finish(self) -> Recording {
        self.recorder.finish(&self.ports)
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.agenda.peek().map(|Reverse(event)| event.at)
    }

    /// Lets happen what is due, up to the next delivery.
    pub(crate) fn next_due(&mut self, now: Duration) -> Option<Delivery> {
        loop {
            if self.agenda.peek().is_none_or(|Reverse(event)| event.at > now) {
                self.recorder.advance(now, &mut self.ports);
                return None;
            }
            let Reverse(event) = self.agenda.pop()?;
            self.recorder.advance(event.at, &mut self.ports);
            let Event { at, station, packet, first, count, .. } = event;
            match event.place {
                Place::Port => self.at_port(at, station, &packet, first, count),
                Place::Host => {
                    self.recorder.delivered(station, &packet.flow, packet.wire_bytes(first, count));
                    return Some(Delivery { station, planned: at, packet, first, count });
                }
            }
        }
    }

    /// Segments come to the port of a host.
    fn at_port(&mut self, now: Duration, to: usize, packet: &Rc<Packet>, first: u32, count: u32) {
        let mut runs = Vec::new();
        let (end, bunch) = (first + count, self.bunch(to, packet).clamp(1, count));
        for first in (first..end).step_by(bunch as usize) {
            let bunch = bunch.min(end - first);
            self.ports[to].offer(now, &packet.burst_of(first, bunch), &mut runs);
            for run in &runs {
                let at = run.arrives.max(packet.not_before);
                self.plan(at, Place::Host, to, packet, first + run.first, run.count);
            }
        }
        self.recorder.queued(to, now, &mut self.ports[to]);
    }

    /// Segments of a packet that may arrive together.
    fn bunch(&self, to: usize, packet: &Packet) -> u32 {
        let rate = self.ports[to].config().rate.filter(|_| packet.is_datagrams());
        let bytes = rate.map(|rate| rate.bytes_per_sec() as f64 * DATAGRAMS_TIME.as_secs_f64());
        bytes.map_or(u32::MAX, |bytes| bytes as u32 / packet.burst.segment_bytes.max(1))
    }

    fn plan(
        &mut self,
        at: Duration,
        place: Place,
        station: usize,
        packet: &Rc<Packet>,
        first: u32,
        count: u32,
    ) {
        self.planned += 1;
        let packet = Rc::clone(packet);
        let number = self.planned;
        self.agenda.push(Reverse(Event { at, number, place, station, packet, first, count }));
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
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_control::{Bytes, Rate};

    /// A packet that was read as soon as it was sent.
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

    fn station(host: u8, access: LinkConfig, port: LinkConfig) -> Station {
        Station { address: address(host), uplink: access, port }
    }

    /// Deliveries with their times, up to a moment.
    fn run(fabric: &mut Fabric, until: Duration) -> Vec<(usize, Duration)> {
        let mut found = Vec::new();
        while let Some(delivery) = fabric.next_due(until) {
            found.push((delivery.station, delivery.planned));
        }
        found
    }

    #[test]
    fn many_senders_share_one_port_in_the_order_of_their_coming() {
        let port = LinkConfig {
            rate: Some(Rate::from_bits_per_sec(10e6)),
            delay: MS,
            buffer: Bytes(2600),
            ..LinkConfig::default()
        };
        let access = |ms| LinkConfig { delay: MS * ms, ..LinkConfig::default() };
        let stations = [
            station(1, access(0), port),
            station(2, access(0), LinkConfig::default()),
            station(3, access(5), LinkConfig::default()),
        ];
        let mut fabric = Fabric::new(&stations, 1, MS);
        // 1250 bytes are 1 ms. The far one comes after the near one is through.
        assert!(enter_now(&mut fabric, Duration::ZERO, 2, udp(3, 1, 1250)));
        for _ in 0..3 {
            assert!(enter_now(&mut fabric, Duration::ZERO, 1, udp(2, 1, 1250)));
        }
        assert_eq!(run(&mut fabric, MS * 20), [(0, MS * 2), (0, MS * 3), (0, MS * 7)]);
        assert!(!enter_now(&mut fabric, MS * 20, 1, udp(2, 9, 100)), "nobody lives there");
        let recording = fabric.finish();
        assert_eq!(recording.totals[0].overflowed, 1);
        assert_eq!(recording.flows.len(), 2);
        let delivered: u64 = recording.ports[0].iter().map(|sample| sample.delivered.0).sum();
        assert_eq!(delivered, 3 * 1250);
        let backlog = recording.ports[0].iter().map(|sample| sample.backlog_max.0).max();
        assert_eq!(backlog, Some(2500));
    }

    #[test]
    fn what_was_read_late_found_the_queue_of_its_time_but_arrives_late() {
        let port = LinkConfig {
            rate: Some(Rate::from_bits_per_sec(10e6)),
            delay: MS * 5,
            buffer: Bytes(1250),
            ..LinkConfig::default()
        };
        let stations = [1, 2].map(|host| station(host, LinkConfig::default(), port.clone()));
        let mut fabric = Fabric::new(&stations, 1, MS);
        for sent in [1, 2, 3] {
            assert!(fabric.enter(MS * sent, MS * 10, 0, udp(1, 2, 1250)));
        }
        assert_eq!(run(&mut fabric, MS * 20), [(1, MS * 15), (1, MS * 15), (1, MS * 15)]);
        assert_eq!(fabric.finish().totals[1].overflowed, 0);
    }

    #[test]
    fn a_cut_network_delivers_nothing() {
        let plain = |host| station(host, LinkConfig::default(), LinkConfig::default());
        let mut fabric = Fabric::new(&[plain(1), plain(2)], 1, MS);
        fabric.set_cut(true);
        enter_now(&mut fabric, MS, 0, udp(1, 2, 100));
        fabric.set_cut(false);
        enter_now(&mut fabric, MS * 2, 0, udp(1, 2, 100));
        assert_eq!(run(&mut fabric, MS * 9), [(1, MS * 2)]);
    }
}
