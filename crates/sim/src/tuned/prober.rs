//! Probes of a tuned transfer: packets that pass the links of its path, back and forth.

use super::TunerConfig;
use super::trains::{TrainPacket, TrainProber};
use crate::link::{Burst, Ecn};
use crate::presets::PathConfig;
use crate::world::{ExternalArrival, ExternalPackets, LinkId, Route, World};
use bankfull_control::{Bytes, ProbeSchedule, Rate};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of a probe and of its echo: 100, and the headers of UDP and IPv4. (spec/wire.md,
/// section 16)
const PROBE_BYTES: u32 = 100 + 8 + 20;

/// Minimum timeout of an echo. (crates/engine/src/transport/probe.rs)
pub(super) const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(600);

/// Largest accepted RTT. (crates/engine/src/tuning/receiver/path_prober.rs)
const MAX_PLAUSIBLE_RTT: Duration = Duration::from_secs(10);

/// Distance in numbers after which a missing echo counts as lost.
/// (crates/engine/src/tuning/probe_loss.rs)
const REORDERING_THRESHOLD: u64 = 3;

/// Content of a datagram of a tuned transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunerPacket {
    /// Identifier of the transfer.
    pub(super) owner: u64,
    pub(super) kind: PacketKind,
}

/// Kind of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// Probe, which its receiver echoes at once.
    Probe {
        number: u64,
        sent: Duration,
    },
    Train(TrainPacket),
}

/// Sends datagrams of a transfer.
#[derive(Debug)]
pub(super) struct DatagramSender {
    owner: u64,
    /// Links from the sender of data to its receiver.
    forward: Rc<[LinkId]>,
    /// Links of a probe and of its echo.
    round_trip: Rc<[LinkId]>,
}

impl DatagramSender {
    /// Sends packets of equal size at a time.
    pub(super) fn send(
        &self,
        world: &mut World<TunerPacket>,
        at: Duration,
        kind: PacketKind,
        (count, bytes): (u32, u32),
    ) {
        let route = match kind {
            PacketKind::Probe { .. } => &self.round_trip,
            PacketKind::Train(_) => &self.forward,
        };
        let external = ExternalPackets {
            content: TunerPacket { owner: self.owner, kind },
            burst: Burst { segments: count, ..Burst::packet(bytes) },
            first: 0,
            flow: self.owner,
            ecn: Ecn::NotCapable,
            is_pure_ack: false,
            max_run: 1,
            route: Rc::clone(route),
            not_before: Duration::ZERO,
            echo_hop: Some(self.round_trip.len() - self.forward.len()),
            echoed_at: None,
        };
        world.inject(at, external);
    }
}

/// Delays of a probe.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeDelay {
    /// Round trip.
    pub(super) rtt: Duration,
    /// One way, from its echo on: the direction of the data.
    pub(super) forward: Duration,
}

/// Measures RTT, loss and capacity of a path with datagrams.
#[derive(Debug)]
pub(super) struct Prober {
    sender: DatagramSender,
    is_udp_blocked: bool,
    schedule: ProbeSchedule,
    next_number: u64,
    /// Numbers without an echo that are not lost yet, in order.
    outstanding: VecDeque<u64>,
    lost: u64,
    last_echo_at: Duration,
    trains: TrainProber,
}

impl Prober {
    pub(super) fn new(
        world: &mut World<TunerPacket>,
        path: &PathConfig,
        route: &Route,
        config: &TunerConfig,
    ) -> Self {
        let round_trip = route.reverse.iter().chain(&route.forward).copied().collect();
        let owner = world.new_flow_hash();
        let forward = route.forward.as_slice().into();
        let sender = DatagramSender { owner, forward, round_trip };
        let trains = TrainProber::new(world, &sender, path, config);
        Self {
            sender,
            is_udp_blocked: config.is_udp_blocked,
            schedule: ProbeSchedule::default(),
            next_number: 0,
            outstanding: VecDeque::new(),
            lost: 0,
            last_echo_at: Duration::ZERO,
            trains,
        }
    }

    /// Records the data received, which decides how often probes are sent.
    pub(super) fn on_received(&mut self, received: Bytes) {
        self.schedule.on_received(received);
    }

    /// Sends the next probe if it is due, and handles arrivals.
    ///
    /// Returns the delays of all echoes, in order.
    pub(super) fn exchange(
        &mut self,
        world: &mut World<TunerPacket>,
        now: Duration,
    ) -> Vec<ProbeDelay> {
        if self.is_udp_blocked {
            return Vec::new();
        }
        if self.schedule.poll_due(now) {
            let (number, sent) = (self.next_number, world.now());
            self.next_number += 1;
            self.outstanding.push_back(number);
            self.sender.send(world, sent, PacketKind::Probe { number, sent }, (1, PROBE_BYTES));
        }
        let owner = self.sender.owner;
        let arrived = world.take_external_arrivals(|packet| packet.owner == owner);
        arrived.iter().filter_map(|arrival| self.on_arrival(arrival, now)).collect()
    }

    fn on_arrival(
        &mut self,
        arrival: &ExternalArrival<TunerPacket>,
        now: Duration,
    ) -> Option<ProbeDelay> {
        match arrival.content.kind {
            PacketKind::Probe { number, sent } => {
                self.on_echo(number);
                self.last_echo_at = now;
                let rtt = arrival.at.saturating_sub(sent);
                let forward = arrival.at.saturating_sub(arrival.echoed_at.unwrap_or(sent));
                let is_plausible = !rtt.is_zero() && rtt < MAX_PLAUSIBLE_RTT;
                is_plausible.then_some(ProbeDelay { rtt, forward })
            }
            PacketKind::Train(packet) => {
                let is_last = arrival.first + arrival.count == packet.packets;
                self.trains.on_packet(&packet, (arrival.first, arrival.at), is_last, now);
                None
            }
        }
    }

    /// Counts probes whose echo is overtaken by several later ones.
    fn on_echo(&mut self, number: u64) {
        self.outstanding.retain(|&outstanding| outstanding != number);
        while self.outstanding.front().is_some_and(|&old| old + REORDERING_THRESHOLD <= number) {
            self.outstanding.pop_front();
            self.lost += 1;
        }
    }

    /// Returns the data rate of the bottleneck link once it is known, and only once.
    pub(super) fn poll_capacity(
        &mut self,
        world: &mut World<TunerPacket>,
        now: Duration,
    ) -> Option<Rate> {
        self.trains.poll(world, &self.sender, now)
    }

    /// Returns whether trains were evaluated.
    pub(super) fn has_result(&self) -> bool {
        self.trains.has_result()
    }

    /// Returns the number of lost probes.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns whether no echo has arrived within the timeout.
    pub(super) fn is_timed_out(&self, now: Duration, min_rtt: Duration) -> bool {
        now > self.last_echo_at + MIN_PROBE_TIMEOUT.max(min_rtt * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Algorithm;
    use crate::world::FlowConfig;
    use bankfull_control::Bytes;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the RTTs in ms that a prober measures beside a flow.
    fn rtts(change: impl FnOnce(&mut PathConfig)) -> Vec<f64> {
        let rate = Rate::from_bits_per_sec(50e6);
        let mut path = PathConfig::new(rate, MS * 20, Bytes(50_000));
        change(&mut path);
        let mut world = World::with_external(1);
        let route = world.add_path(&path);
        let mut prober = Prober::new(&mut world, &path, &route, &TunerConfig::default());
        // Fills the queue in slow start.
        world.add_flow(FlowConfig { algorithm: Algorithm::NewReno, ..FlowConfig::new(&route) });
        let mut rtts = Vec::new();
        world.run_with(MS * 3000, MS * 10, |world| {
            let now = world.now();
            let delays = prober.exchange(world, now);
            rtts.extend(delays.iter().map(|delay| delay.rtt.as_secs_f64() * 1e3));
        });
        rtts.push(prober.lost() as f64);
        rtts
    }

    #[test]
    fn probe_waits_in_queues_of_both_directions() {
        let largest = |rtts: &[f64]| rtts[..rtts.len() - 1].iter().copied().fold(0.0, f64::max);
        let forward = rtts(|_| {});
        // 50 kB at 50 Mbit/s are 8 ms.
        assert!((26.0..29.0).contains(&largest(&forward)), "{}", largest(&forward));
        let back = rtts(|path| {
            (path.reverse.rate, path.reverse.buffer) =
                (Some(Rate::from_bits_per_sec(200e3)), Bytes(1_500));
        });
        assert!(largest(&back) > 45.0, "{}", largest(&back));
        assert!(back[back.len() - 1] > 0.0, "some echoes were dropped there");
    }

    #[test]
    fn lost_probe_counts_after_three_later_echoes() {
        let path = PathConfig::default();
        let mut world = World::with_external(1);
        let route = world.add_path(&path);
        let mut prober = Prober::new(&mut world, &path, &route, &TunerConfig::default());
        prober.outstanding = (0..8).collect();
        let mut lost = |number| {
            prober.on_echo(number);
            prober.lost
        };
        assert_eq!([0, 2, 3, 4, 1, 5].map(&mut lost), [0, 0, 0, 1, 1, 1]);
        assert_eq!(lost(7), 1, "6 may be reordered");
    }
}
