//! The packet trains of a session, as they arrive: when they are complete, what they tell, and
//! whether others are needed.

use super::TRAINS_ASKED_MAX;
use crate::net::probe::ProbeArrival;
use bankfull_control::sobas::capacity::{
    self, Arrival, Dispersion, LONGEST_TRAIN_PACKETS, TRAIN_COUNT, TRAIN_PACKETS,
};
use bankfull_control::{Bytes, Rate, pacing};
use bankfull_proto::limits::MAX_TRAIN_PACKETS;
use std::time::Duration;

/// How long to wait for more of the trains after what came last. (ours: a whole one at 20 Mbit/s)
const TRAINS_WAIT: Duration = Duration::from_millis(30);

/// Where a train came more slowly, no others are asked for. (ours: at 50 Mbit/s five take 53 ms
/// of the line, which is as much as they may cost)
const AGAIN_RATE_MIN: Rate = Rate::from_bytes_per_sec(6_250_000);

// A longer one would be refused.
const _: () = assert!(LONGEST_TRAIN_PACKETS <= MAX_TRAIN_PACKETS as usize);

/// The packet trains of a session.
pub(super) struct Trains {
    /// How many packets each has, and the number of the first.
    packets: usize,
    first: u64,
    arrivals: [Vec<Arrival>; TRAIN_COUNT],
    /// When the last packet came.
    latest: Option<Duration>,
    /// The last packet of the last train has come.
    is_whole: bool,
    is_over: bool,
    /// How often others were asked for.
    asked: u32,
}

/// What trains tell together.
#[derive(Debug, PartialEq)]
pub(super) enum Told {
    /// The rate of data.
    Rate(Rate),
    /// Nothing: others are needed, of so many packets. They are expected once they were asked for.
    Others(usize),
}

impl Trains {
    /// The first ones.
    pub(super) fn new() -> Self {
        Self {
            packets: TRAIN_PACKETS,
            first: 0,
            arrivals: Default::default(),
            latest: None,
            is_whole: false,
            is_over: false,
            asked: 0,
        }
    }

    /// A packet of a train that came.
    pub(super) fn take(&mut self, arrived: &ProbeArrival, now: Duration) {
        let train = arrived.probe.echoed_number.checked_sub(self.first);
        let train = train.and_then(|train| usize::try_from(train).ok());
        let is_last =
            arrived.probe.number.checked_add(1) == Some(arrived.probe.echoed_timestamp_us);
        let is_whole = is_last && train == Some(TRAIN_COUNT - 1);
        let Some(train) = train.and_then(|train| self.arrivals.get_mut(train)) else { return };
        if train.len() < self.packets {
            let bytes = Bytes(arrived.len as u64);
            let sent = Duration::from_micros(arrived.probe.timestamp_us);
            train.push(Arrival { at: arrived.at, sent, bytes });
            self.latest = Some(now);
            self.is_whole |= is_whole;
        }
    }

    /// What they tell, once they are complete, and once, of a path whose segments carry so much.
    pub(super) fn told(&mut self, now: Duration, segment: Bytes) -> Option<Told> {
        let latest = self.latest.filter(|_| !self.is_over)?;
        if !self.is_whole && now < latest + TRAINS_WAIT {
            return None;
        }
        self.is_over = true;
        self.judge(segment)
    }

    fn judge(&self, segment: Bytes) -> Option<Told> {
        let (mut rates, mut too_short) = (Vec::new(), Vec::new());
        for train in &self.arrivals {
            match capacity::dispersion(train) {
                Dispersion::Rate(rate) => rates.push(rate),
                Dispersion::TooShort(took) => too_short.push(took),
                Dispersion::Unusable => {}
            }
        }
        let may_ask = self.asked < TRAINS_ASKED_MAX;
        if too_short.len() > rates.len() {
            let longer = capacity::longer_train(self.packets, &too_short).filter(|_| may_ask);
            return longer.map(Told::Others);
        }
        let data_rate = |line| pacing::payload_rate(line, segment);
        let told = capacity::agreed_capacity(&rates).map(data_rate).map(Told::Rate);
        let is_slow = rates.iter().any(|rate| *rate < AGAIN_RATE_MIN);
        let again = || may_ask.then_some(Told::Others(self.packets));
        if told.is_some() || is_slow { told } else { again() }
    }

    /// Others of so many packets were asked for, if they were: else they tell the same again.
    pub(super) fn asked_for(&mut self, packets: usize, is_asked: bool) {
        if !is_asked {
            self.is_over = false;
            return;
        }
        let (first, asked) = (self.first + TRAIN_COUNT as u64, self.asked + 1);
        *self = Self { first, packets, asked, ..Self::new() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_proto::wire::probe::{Kind, ProbePacket};

    const MS: Duration = Duration::from_millis(1);

    /// Five trains of which each but the first packet came so long after the one before.
    fn arrive(trains: &mut Trains, first: u64, apart: Duration) {
        for train in 0..TRAIN_COUNT as u64 {
            for packet in 0..TRAIN_PACKETS as u64 {
                let probe = ProbePacket {
                    kind: Kind::Train,
                    session: [0; 16],
                    number: packet,
                    timestamp_us: 0,
                    echoed_number: first + train,
                    echoed_timestamp_us: TRAIN_PACKETS as u64,
                };
                let at = MS * 100 * (train as u32 + 1) + apart * packet as u32;
                trains.take(&ProbeArrival { probe, at, len: 1500 }, MS);
            }
        }
    }

    #[test]
    fn they_tell_the_rate_of_data_for_segments_of_the_path() {
        let mbit = |segment| {
            let mut trains = Trains::new();
            arrive(&mut trains, 0, Duration::from_micros(12));
            match trains.told(MS, segment) {
                Some(Told::Rate(rate)) => rate.bits_per_sec() / 1_000_000,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((mbit(pacing::DEFAULT_MSS), mbit(pacing::DEFAULT_MSS_V6)), (965, 952));
    }

    #[test]
    fn longer_ones_are_asked_for_until_they_are_and_twice_at_most() {
        let mut trains = Trains::new();
        let told = |trains: &mut Trains, now| trains.told(now, pacing::DEFAULT_MSS);
        let apart = Duration::from_micros(2);
        arrive(&mut trains, 0, apart);
        let Some(Told::Others(packets)) = told(&mut trains, MS) else { panic!() };
        assert!(packets > TRAIN_PACKETS && told(&mut trains, MS).is_none());
        // There was no room for the question.
        trains.asked_for(packets, false);
        assert_eq!(told(&mut trains, MS), Some(Told::Others(packets)));
        for asked in 1..=u64::from(TRAINS_ASKED_MAX) {
            trains.asked_for(packets, true);
            assert_eq!(told(&mut trains, MS * 1000), None, "none has come yet");
            arrive(&mut trains, asked * TRAIN_COUNT as u64, apart);
            let told = told(&mut trains, MS * 1000);
            assert_eq!(told.is_some(), asked < TRAINS_ASKED_MAX.into(), "{told:?}");
        }
    }
}
