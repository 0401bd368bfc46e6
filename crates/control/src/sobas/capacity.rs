//! The capacity of a path from the dispersion of packet trains: packets sent at once leave the
//! narrowest link at its rate.
//!
//! What it does not do: send or receive them. Times of arrival are the kernel's.

use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Trains that make an estimate. [SOBAS, section IV.B: five]
pub const TRAINS: usize = 5;

/// Packets of a train. [algorithms: about 48 of 1472 bytes; ours: as many as the kernel sends back
/// to back for one call, 65 507 bytes]
pub const TRAIN_PACKETS: usize = 44;

/// A train that is too short is followed by one that takes twice the least time, as far as the
/// short one tells, and has no more packets than this: 1.3 Gbit/s are measured with the shortest,
/// 20 Gbit/s with the longest. (ours)
pub const LONGEST: usize = TRAIN_PACKETS * 16;

/// A train must take this long, or a receiver that takes packets in bunches (interrupt moderation,
/// GRO) decides what is measured, and not the path. (ours: some ten times what Linux waits between
/// polls of a card, 20 µs to 50 µs)
pub const TRAIN_TIME_MIN: Duration = Duration::from_micros(400);

/// A train of which fewer packets have come says nothing. (ours: a queue of a tenth of a round trip
/// of 10 ms at 100 Mbit/s holds eight, and two may be somebody else's)
const ARRIVED_MIN: usize = 6;

/// A train whose sending took more than this share of its arriving tells of its sender. (ours: the
/// last of some sixteen calls begins when fifteen sixteenths are gone, where the line is as fast as
/// the host; it should be well behind)
const SENT_SHARE: f64 = 0.8;

/// So many trains have to agree. (ours: most of five)
const AGREED_MIN: usize = 3;

/// Estimates that differ by more than this from their median are not counted. (ours: what cross
/// traffic does to a train is more than that, rounding is less)
const OUTLIER: f64 = 0.1;

/// A packet of a train that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When, on the receiver's clock.
    pub at: Duration,
    /// When it was sent, on the sender's clock.
    pub sent: Duration,
    /// Its bytes at the IP layer.
    pub bytes: Bytes,
}

/// What a train told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Dispersion {
    /// The rate at which it came, at the IP layer.
    Rate(Rate),
    /// It came too fast to be measured, within this time: a longer one is needed.
    TooShort(Duration),
    /// Too little of it arrived, or it was sent too slowly.
    TooFew,
}

impl Dispersion {
    /// The rate, if there is one.
    #[must_use]
    pub fn rate(self) -> Option<Rate> {
        match self {
            Self::Rate(rate) => Some(rate),
            Self::TooShort(_) | Self::TooFew => None,
        }
    }
}

/// The rate of a train. Packets that arrived together, at the time of the first, are its start;
/// those after them came within the time that passed until the last. Lost ones do not matter: the
/// narrowest link was busy all the time, for what does not fit in its queue is at the end of a
/// train.
#[must_use]
pub fn dispersion(train: &[Arrival]) -> Dispersion {
    let first = train.iter().map(|packet| packet.at).min();
    let last = train.iter().map(|packet| packet.at).max();
    let (Some(first), Some(last), true) = (first, last, train.len() >= ARRIVED_MIN) else {
        return Dispersion::TooFew;
    };
    let took = last - first;
    if took < TRAIN_TIME_MIN {
        return Dispersion::TooShort(took);
    }
    let sent = train.iter().map(|packet| packet.sent);
    if let (Some(first), Some(last)) = (sent.clone().min(), sent.max())
        && (last - first) > took.mul_f64(SENT_SHARE)
    {
        return Dispersion::TooFew;
    }
    let after = train.iter().filter(|packet| packet.at > first);
    let bytes = after.fold(Bytes(0), |sum, packet| sum + packet.bytes);
    Dispersion::Rate(bytes.per(took))
}

/// How many packets the next trains need, where some of `packets` came in these times, which are
/// too short; `None`: no more are tried.
#[must_use]
pub fn longer(packets: usize, took: &[Duration]) -> Option<usize> {
    let mut took = took.to_vec();
    took.sort_unstable();
    // One that came all at once tells nothing of how long another one takes.
    let median = took.get(took.len() / 2)?.as_secs_f64();
    let times = (2.0 * TRAIN_TIME_MIN.as_secs_f64() / median).ceil();
    let next = if times < LONGEST as f64 { packets * times as usize } else { LONGEST };
    (packets < LONGEST).then_some(next.min(LONGEST))
}

/// The capacity that trains agree on: the mean of those near the median. `None` where there are
/// not three that do.
#[must_use]
pub fn capacity(rates: &[Rate]) -> Option<Rate> {
    let mut rates: Vec<f64> = rates.iter().map(|rate| rate.bits_per_sec() as f64).collect();
    rates.sort_by(f64::total_cmp);
    let median = *rates.get(rates.len() / 2)?;
    let near: Vec<f64> =
        rates.into_iter().filter(|rate| (rate - median).abs() <= OUTLIER * median).collect();
    let mean = near.iter().sum::<f64>() / near.len() as f64;
    (near.len() >= AGREED_MIN).then(|| Rate::from_bits_per_sec(mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// `count` packets of 1500 bytes, 12 µs apart: 1 Gbit/s.
    fn train(count: u32, bunch: u32) -> Vec<Arrival> {
        let at = |n: u32| 12 * US * (n - n % bunch);
        let arrival = |n| Arrival { at: at(n), sent: Duration::ZERO, bytes: Bytes(1500) };
        (0..count).map(arrival).collect()
    }

    fn mbit(dispersion: Dispersion) -> u64 {
        let Dispersion::Rate(rate) = dispersion else { panic!("{dispersion:?}") };
        rate.bits_per_sec() / 1_000_000
    }

    #[test]
    fn a_train_tells_the_rate_of_the_narrowest_link() {
        assert_eq!(mbit(dispersion(&train(44, 1))), 1000);
        // Taken in bunches of 6, each at the time of its first.
        assert_eq!(mbit(dispersion(&train(42, 6))), 1000);
    }

    #[test]
    fn packets_that_were_dropped_at_its_end_do_not_matter() {
        let mut packets = train(44, 1);
        packets.truncate(40);
        assert_eq!(mbit(dispersion(&packets)), 1000);
    }

    #[test]
    fn what_cannot_be_measured_is_told_apart() {
        assert_eq!(dispersion(&train(44, 44)), Dispersion::TooShort(Duration::ZERO));
        assert_eq!(dispersion(&train(33, 1)), Dispersion::TooShort(384 * US));
        assert_eq!(dispersion(&train(5, 1)), Dispersion::TooFew);
        assert_eq!(dispersion(&[]), Dispersion::TooFew);
    }

    #[test]
    fn a_train_that_was_sent_slowly_tells_nothing() {
        let mut packets = train(44, 1);
        packets.iter_mut().for_each(|packet| packet.sent = packet.at.mul_f64(0.9));
        assert_eq!(dispersion(&packets), Dispersion::TooFew);
        packets.iter_mut().for_each(|packet| packet.sent = packet.at.mul_f64(0.5));
        assert_eq!(mbit(dispersion(&packets)), 1000);
    }

    #[test]
    fn what_came_too_fast_is_tried_with_more_packets_and_not_for_ever() {
        let took = |us: [u32; 3]| us.map(|us| US * us);
        // 5 Gbit/s.
        assert_eq!(longer(44, &took([106, 104, 350])), Some(352));
        // 40 Gbit/s, and what came at once.
        assert_eq!(longer(44, &took([13, 13, 13])), Some(704));
        assert_eq!(longer(44, &took([0, 0, 390])), Some(704));
        assert_eq!(longer(44, &took([399, 390, 390])), Some(132));
        assert_eq!(longer(704, &took([350, 300, 340])), None);
        assert_eq!(longer(44, &[]), None);
    }

    #[test]
    fn a_train_that_met_cross_traffic_is_left_out() {
        let agreed = |mbit: [f64; 5]| {
            let rates = mbit.map(|mbit| Rate::from_bits_per_sec(mbit * 1e6));
            capacity(&rates).map(|rate| rate.bits_per_sec() / 1_000_000)
        };
        assert_eq!(agreed([995.0, 1000.0, 620.0, 1005.0, 4000.0]), Some(1000));
        assert_eq!(agreed([400.0, 1000.0, 620.0, 1005.0, 4000.0]), None);
        assert_eq!(capacity(&[]), None);
    }
}
