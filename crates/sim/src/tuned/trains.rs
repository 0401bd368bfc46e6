//! Packet trains of a tuned transfer. Its receiver computes the capacity of the path from them.

use super::TunerConfig;
use super::prober::{DatagramSender, PacketKind, TunerPacket};
use crate::presets::PathConfig;
use crate::world::World;
use bankfull_control::path_control::capacity::{
    self, Arrival, Evaluation, TRAIN_COUNT, TRAIN_PACKETS,
};
use bankfull_control::{Bytes, Rate, pacing};
use std::time::Duration;

/// Bytes of a train's packet at the IP layer. (spec/wire.md, section 16)
const TRAIN_PACKET_BYTES: u32 = 1500;

/// Interval of packet trains. (crates/engine/src/tuning/sender/mod.rs)
const TRAIN_INTERVAL: Duration = Duration::from_millis(3);

/// Timeout for the rest of the trains after the last packet. (crates/engine/src/tuning/trains.rs)
const TRAIN_TIMEOUT: Duration = Duration::from_millis(30);

/// Maximum number of requests for more trains. (crates/engine/src/tuning/mod.rs)
const MAX_TRAIN_REQUESTS: u32 = 2;

/// Source of the capacity of a tuned transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trains {
    /// Trains that are sent along the path.
    Sent,
    /// A fraction of the link rate, reported after two RTTs.
    Reported(f64),
    /// No measurement.
    Unavailable,
}

/// Packet of a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrainPacket {
    train: u64,
    /// Packets of the train.
    pub(super) packets: u32,
    sent: Duration,
}

/// Sends packet trains and collects them.
#[derive(Debug)]
pub(super) struct TrainProber {
    /// Capacity to report, and when.
    reported: Option<(Duration, Rate)>,
    /// Time that a request for more trains takes.
    request_delay: Duration,
    packets: u32,
    /// Number of the first train.
    first: u64,
    arrivals: [Vec<Arrival>; TRAIN_COUNT],
    last_arrival: Option<Duration>,
    /// The last packet of the last train arrived.
    is_complete: bool,
    is_evaluated: bool,
    requests: u32,
}

impl TrainProber {
    pub(super) fn new(
        world: &mut World<TunerPacket>,
        sender: &DatagramSender,
        path: &PathConfig,
        config: &TunerConfig,
    ) -> Self {
        let line = path.forward.rate.unwrap_or_default().bits_per_sec() as f64;
        let trains = if config.is_udp_blocked { Trains::Unavailable } else { config.trains };
        let reported = match trains {
            Trains::Reported(share) => {
                Some((path.rtt() * 2, payload_rate(Rate::from_bits_per_sec(line * share))))
            }
            Trains::Sent | Trains::Unavailable => None,
        };
        let prober = Self { reported, ..Self::of(TRAIN_PACKETS as u32, path.reverse.delay) };
        if trains == Trains::Sent {
            prober.send(world, sender, config.start);
        }
        prober
    }

    /// Returns a prober that expects trains of a length.
    fn of(packets: u32, request_delay: Duration) -> Self {
        Self {
            reported: None,
            request_delay,
            packets,
            first: 0,
            arrivals: Default::default(),
            last_arrival: None,
            is_complete: false,
            is_evaluated: false,
            requests: 0,
        }
    }

    /// Sends all trains, the first at a time.
    fn send(&self, world: &mut World<TunerPacket>, sender: &DatagramSender, from: Duration) {
        for train in 0..TRAIN_COUNT as u32 {
            let sent = from + TRAIN_INTERVAL * train;
            let packet =
                TrainPacket { train: self.first + u64::from(train), packets: self.packets, sent };
            let burst = (self.packets, TRAIN_PACKET_BYTES);
            sender.send(world, sent, PacketKind::Train(packet), burst);
        }
    }

    pub(super) fn on_packet(
        &mut self,
        packet: &TrainPacket,
        (number, at): (u32, Duration),
        is_last: bool,
        now: Duration,
    ) {
        let Some(index) = packet.train.checked_sub(self.first) else { return };
        let Some(train) = self.arrivals.get_mut(index as usize) else { return };
        // The network may duplicate packets.
        if train.len() < self.packets as usize {
            let bytes = Bytes(TRAIN_PACKET_BYTES.into());
            train.push(Arrival { number: number.into(), at, sent: packet.sent, bytes });
            self.last_arrival = Some(now);
            self.is_complete |= is_last && index as usize == TRAIN_COUNT - 1;
        }
    }

    /// Returns whether trains were evaluated.
    pub(super) fn has_result(&self) -> bool {
        self.is_evaluated || self.requests > 0
    }

    /// Returns the capacity once the trains are complete or timed out, or requests more.
    pub(super) fn poll(
        &mut self,
        world: &mut World<TunerPacket>,
        sender: &DatagramSender,
        now: Duration,
    ) -> Option<Rate> {
        if let Some((_, rate)) = self.reported.take_if(|(at, _)| now >= *at) {
            return Some(rate);
        }
        let last_arrival = self.last_arrival.filter(|_| !self.is_evaluated)?;
        if !self.is_complete && now < last_arrival + TRAIN_TIMEOUT {
            return None;
        }
        self.is_evaluated = true;
        match capacity::evaluate(&self.arrivals, self.packets as usize) {
            Evaluation::Capacity(rate) => Some(payload_rate(rate)),
            Evaluation::Repeat(packets) if self.requests < MAX_TRAIN_REQUESTS => {
                let from = world.now() + self.request_delay;
                *self = Self {
                    first: self.first + TRAIN_COUNT as u64,
                    requests: self.requests + 1,
                    ..Self::of(packets as u32, self.request_delay)
                };
                self.send(world, sender, from);
                None
            }
            Evaluation::Repeat(_) | Evaluation::Inconclusive => None,
        }
    }
}

fn payload_rate(line: Rate) -> Rate {
    pacing::payload_rate(line, pacing::DEFAULT_MSS)
}
