//! Collects the packet trains of a session, and computes the capacity. Determines whether more
//! trains are needed.

use super::MAX_TRAIN_REQUESTS;
use crate::transport::probe::ProbeArrival;
use bankfull_control::path_control::capacity::{
    self, Arrival, Evaluation, LONGEST_TRAIN_PACKETS, TRAIN_COUNT, TRAIN_PACKETS,
};
use bankfull_control::{Bytes, Rate, pacing};
use bankfull_proto::limits::MAX_TRAIN_PACKETS;
use std::time::Duration;

/// Timeout for the rest of the trains after the last packet. (chosen: one whole train at 20 Mbit/s)
const TRAIN_TIMEOUT: Duration = Duration::from_millis(30);

// The sender refuses longer trains.
const _: () = assert!(LONGEST_TRAIN_PACKETS <= MAX_TRAIN_PACKETS as usize);

/// Packet trains of a session as they arrive.
pub(crate) struct TrainCollector {
    /// Number of packets in each train.
    packets: usize,
    /// Number of the first train.
    first: u64,
    arrivals: [Vec<Arrival>; TRAIN_COUNT],
    /// Arrival time of the latest packet.
    last_arrival: Option<Duration>,
    /// The last packet of the last train arrived.
    is_complete: bool,
    is_evaluated: bool,
    /// Number of requests for more trains.
    requests: u32,
}

/// Result of all trains together.
#[derive(Debug, PartialEq)]
pub(crate) enum TrainResult {
    /// Data rate of the bottleneck link.
    Capacity(Rate),
    /// Inconclusive: request trains of this many packets, then call
    /// [`TrainCollector::on_requested`].
    Repeat(usize),
    /// The trains say nothing.
    Inconclusive,
}

impl TrainCollector {
    /// Collects the first trains, which the sender sends unrequested.
    pub(crate) fn new() -> Self {
        Self {
            packets: TRAIN_PACKETS,
            first: 0,
            arrivals: Default::default(),
            last_arrival: None,
            is_complete: false,
            is_evaluated: false,
            requests: 0,
        }
    }

    /// Records a packet of a train.
    pub(crate) fn on_packet(&mut self, arrived: &ProbeArrival, now: Duration) {
        let train = arrived.probe.echoed_number.checked_sub(self.first);
        let train = train.and_then(|train| usize::try_from(train).ok());
        let is_last =
            arrived.probe.number.checked_add(1) == Some(arrived.probe.echoed_timestamp_us);
        let is_complete = is_last && train == Some(TRAIN_COUNT - 1);
        let Some(train) = train.and_then(|train| self.arrivals.get_mut(train)) else { return };
        if train.len() < self.packets {
            let bytes = Bytes(arrived.len as u64);
            let sent = Duration::from_micros(arrived.probe.timestamp_us);
            train.push(Arrival { number: arrived.probe.number, at: arrived.at, sent, bytes });
            self.last_arrival = Some(now);
            self.is_complete |= is_complete;
        }
    }

    /// Returns the result once the trains are complete or timed out, and only once.
    ///
    /// `segment` is the payload of a full segment on this path.
    pub(crate) fn poll_result(&mut self, now: Duration, segment: Bytes) -> Option<TrainResult> {
        let last_arrival = self.last_arrival.filter(|_| !self.is_evaluated)?;
        if !self.is_complete && now < last_arrival + TRAIN_TIMEOUT {
            return None;
        }
        self.is_evaluated = true;
        Some(match capacity::evaluate(&self.arrivals, self.packets) {
            Evaluation::Capacity(link_rate) => {
                TrainResult::Capacity(pacing::payload_rate(link_rate, segment))
            }
            Evaluation::Repeat(packets) if self.requests < MAX_TRAIN_REQUESTS => {
                TrainResult::Repeat(packets)
            }
            Evaluation::Repeat(_) | Evaluation::Inconclusive => TrainResult::Inconclusive,
        })
    }

    /// Starts to collect the requested trains; if the request was not sent, returns the same result
    /// again at the next poll.
    pub(crate) fn on_requested(&mut self, packets: usize, is_sent: bool) {
        if !is_sent {
            self.is_evaluated = false;
            return;
        }
        let (first, requests) = (self.first + TRAIN_COUNT as u64, self.requests + 1);
        *self = Self { first, packets, requests, ..Self::new() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_proto::wire::probe::{Kind, ProbePacket};

    const MS: Duration = Duration::from_millis(1);

    /// Delivers the expected five trains with this gap between the packets of each.
    fn arrive(trains: &mut TrainCollector, first: u64, gap: Duration) {
        let packets = trains.packets as u64;
        for train in 0..TRAIN_COUNT as u64 {
            for packet in 0..packets {
                let probe = ProbePacket {
                    kind: Kind::Train,
                    session: [0; 16],
                    number: packet,
                    timestamp_us: 0,
                    echoed_number: first + train,
                    echoed_timestamp_us: packets,
                };
                let at = MS * 100 * (train as u32 + 1) + gap * packet as u32;
                trains.on_packet(&ProbeArrival { probe, at, len: 1500 }, MS);
            }
        }
    }

    #[test]
    fn trains_yield_the_data_rate_for_the_segment_size() {
        let mbit = |segment| {
            let mut trains = TrainCollector::new();
            arrive(&mut trains, 0, Duration::from_micros(12));
            match trains.poll_result(MS, segment) {
                Some(TrainResult::Capacity(rate)) => rate.bits_per_sec() / 1_000_000,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((mbit(pacing::DEFAULT_MSS), mbit(pacing::DEFAULT_MSS_V6)), (965, 952));
    }

    #[test]
    fn trains_too_short_are_requested_longer_twice_at_most() {
        let mut trains = TrainCollector::new();
        let poll = |trains: &mut TrainCollector, now| trains.poll_result(now, pacing::DEFAULT_MSS);
        // Each seems short enough for trains that are ten times, then twice as long.
        let mut gap = Duration::from_micros(2);
        arrive(&mut trains, 0, gap);
        let Some(TrainResult::Repeat(packets)) = poll(&mut trains, MS) else { panic!() };
        assert!(packets > TRAIN_PACKETS && poll(&mut trains, MS).is_none());
        // The outbox was full.
        trains.on_requested(packets, false);
        assert_eq!(poll(&mut trains, MS), Some(TrainResult::Repeat(packets)));
        for requests in 1..=u64::from(MAX_TRAIN_REQUESTS) {
            trains.on_requested(packets, true);
            assert_eq!(poll(&mut trains, MS * 1000), None, "none has arrived yet");
            gap /= 4;
            arrive(&mut trains, requests * TRAIN_COUNT as u64, gap);
            let result = poll(&mut trains, MS * 1000);
            let is_last = requests == MAX_TRAIN_REQUESTS.into();
            let expected = if is_last {
                TrainResult::Inconclusive
            } else {
                TrainResult::Repeat(LONGEST_TRAIN_PACKETS)
            };
            assert_eq!(result, Some(expected));
        }
    }
}
