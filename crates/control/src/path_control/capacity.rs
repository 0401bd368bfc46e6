//! Path capacity from the dispersion of packet trains: packets sent back to back leave the
//! narrowest link at its rate.
//!
//! Sending and receiving them is done elsewhere. Arrival times are those of the kernel.

use super::observation::TICK;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Trains per estimate. (SOBAS paper §IV.B)
pub const TRAIN_COUNT: usize = 5;

/// Packets per train. (chosen: as many as the kernel sends back to back in one call of 65 507
/// bytes)
pub const TRAIN_PACKETS: usize = 44;

/// Upper bound of a longer train. A train that is too short is followed by one of twice the minimum
/// time. (chosen: the shortest measures up to 1.3 Gbit/s, the longest up to 20 Gbit/s)
pub const LONGEST_TRAIN_PACKETS: usize = TRAIN_PACKETS * 16;

/// Shortest measurable duration of a train. Below it, receive batching (interrupt moderation, GRO)
/// dominates. (chosen: ten times the polling interval of Linux network cards, 20 to 50 µs)
pub const MIN_TRAIN_TIME: Duration = Duration::from_micros(400);

/// Fewest arrived packets of a usable train. (chosen: a queue of 0.1 × 10 ms at 100 Mbit/s holds
/// eight, two of which may be cross traffic)
const MIN_ARRIVED_PACKETS: usize = 6;

/// Trains that must agree: all but one. (measured: behind jitter of 8 ms, three of five agree by
/// chance)
const MIN_AGREEING_TRAINS: usize = TRAIN_COUNT - 1;

/// Relative deviation within which two rates count as equal. (chosen: cross traffic causes more,
/// rounding less)
pub(crate) const RATE_DEVIATION: f64 = 0.1;

/// An arrived packet of a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Number of the packet within its train.
    pub number: u64,
    /// Arrival time on the receiver's clock.
    pub at: Duration,
    /// Departure time on the sender's clock.
    pub sent: Duration,
    /// Size at the IP layer.
    pub bytes: Bytes,
}

/// The result of one train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Dispersion {
    /// Arrival rate at the IP layer.
    Rate(Rate),
    /// Arrived within this time, too fast to be measured: a longer train is needed.
    TooShort(Duration),
    /// Too few packets arrived, the train was sent too slowly, or the path reordered it.
    Unusable,
}

impl Dispersion {
    /// Returns the rate, if there is one.
    #[must_use]
    pub fn rate(self) -> Option<Rate> {
        match self {
            Self::Rate(rate) => Some(rate),
            Self::TooShort(_) | Self::Unusable => None,
        }
    }
}

/// The result of all trains together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Evaluation {
    /// Capacity at the IP layer.
    Capacity(Rate),
    /// Trains of this many packets may give a result.
    Repeat(usize),
    /// Further trains would give no more information.
    Inconclusive,
}

/// Evaluates trains of `packets` packets each.
#[must_use]
pub fn evaluate(trains: &[Vec<Arrival>], packets: usize) -> Evaluation {
    let (mut rates, mut too_short) = (Vec::new(), Vec::new());
    for train in trains {
        match dispersion(train) {
            Dispersion::Rate(rate) => rates.push(rate),
            Dispersion::TooShort(took) => too_short.push(took),
            Dispersion::Unusable => {}
        }
    }
    let capacity = agreed_capacity(&rates).or_else(|| agreed_capacity(&queued_rates(trains)));
    if let Some(capacity) = capacity {
        return Evaluation::Capacity(capacity);
    }
    // A queue overflowed: further trains would displace data.
    let arrived: usize = trains.iter().map(Vec::len).sum();
    let is_lost = arrived * 2 < packets * trains.len();
    let longest = trains.iter().filter_map(|train| duration(train)).max().unwrap_or_default();
    let repeat = if too_short.len() > rates.len() {
        // Trains that cross the boundary of a batch take far longer than the others.
        let is_batched = longest > MIN_TRAIN_TIME * 2;
        longer_train(packets, &too_short).filter(|_| !is_batched)
    } else {
        // On a slow line, trains would delay the data for long.
        Some(packets).filter(|_| longest <= TICK)
    };
    repeat.filter(|_| !is_lost).map_or(Evaluation::Inconclusive, Evaluation::Repeat)
}

/// Returns the rates of five parts of all arrivals, as if they were one train.
///
/// On a slow line a train waits for the one before it, and overflows a short queue, while the line
/// is busy all the time.
fn queued_rates(trains: &[Vec<Arrival>]) -> Vec<Rate> {
    // By train and packet: reordered parts are unusable, too.
    let numbered = (0_u64..).zip(trains).flat_map(|(train, packets)| {
        let first = train * LONGEST_TRAIN_PACKETS as u64;
        packets.iter().map(move |packet| Arrival { number: first + packet.number, ..*packet })
    });
    let mut all: Vec<Arrival> = numbered.collect();
    all.sort_by_key(|packet| packet.at);
    let part = all.len().div_ceil(TRAIN_COUNT).max(1);
    all.chunks(part).filter_map(|part| dispersion(part).rate()).collect()
}

/// Returns the time between the first and the last arrival of a train.
fn duration(train: &[Arrival]) -> Option<Duration> {
    let at = train.iter().map(|packet| packet.at);
    Some(at.clone().max()? - at.min()?)
}

/// Returns the rate of a train: the bytes after the first arrivals over the time to the last
/// arrival.
///
/// Packets that arrived together with the first one are its start. Losses do not matter: the
/// narrowest link was busy all the time, as a full queue drops the end of a train.
#[must_use]
pub fn dispersion(train: &[Arrival]) -> Dispersion {
    let first = train.iter().map(|packet| packet.at).min();
    let measured = first.zip(duration(train)).filter(|_| train.len() >= MIN_ARRIVED_PACKETS);
    let Some((first, took)) = measured else { return Dispersion::Unusable };
    if took < MIN_TRAIN_TIME {
        return Dispersion::TooShort(took);
    }
    // Random delays stretch a train that they reorder.
    if !train.is_sorted_by_key(|packet| packet.number) {
        return Dispersion::Unusable;
    }
    let sent = train.iter().map(|packet| packet.sent);
    if let (Some(first), Some(last)) = (sent.clone().min(), sent.max())
        && (last - first) > took.mul_f64(1.0 - RATE_DEVIATION)
    {
        return Dispersion::Unusable;
    }
    let after = train.iter().filter(|packet| packet.at > first);
    let bytes = after.fold(Bytes(0), |sum, packet| sum + packet.bytes);
    Dispersion::Rate(bytes.per(took))
}

/// Returns the number of packets for the next trains, which shall last twice the minimum.
///
/// `took` has the durations of the trains that were too short.
///
/// `None` if `packets` is the maximum already, or `took` is empty.
fn longer_train(packets: usize, took: &[Duration]) -> Option<usize> {
    let mut took = took.to_vec();
    took.sort_unstable();
    // Packets that arrive at once were released together by the network.
    let median = took.get(took.len() / 2).filter(|took| !took.is_zero())?.as_secs_f64();
    let factor = (2.0 * MIN_TRAIN_TIME.as_secs_f64() / median).ceil();
    let next = if factor < LONGEST_TRAIN_PACKETS as f64 {
        packets * factor as usize
    } else {
        LONGEST_TRAIN_PACKETS
    };
    (packets < LONGEST_TRAIN_PACKETS).then_some(next.min(LONGEST_TRAIN_PACKETS))
}

/// Returns the capacity on which the trains agree: the mean of the rates near their median.
///
/// `None` if fewer than four agree.
fn agreed_capacity(rates: &[Rate]) -> Option<Rate> {
    let mut rates: Vec<f64> = rates.iter().map(|rate| rate.bits_per_sec() as f64).collect();
    rates.sort_by(f64::total_cmp);
    let median = *rates.get(rates.len() / 2)?;
    let near: Vec<f64> =
        rates.into_iter().filter(|rate| (rate - median).abs() <= RATE_DEVIATION * median).collect();
    let mean = near.iter().sum::<f64>() / near.len() as f64;
    (near.len() >= MIN_AGREEING_TRAINS).then(|| Rate::from_bits_per_sec(mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// `count` packets of 1500 bytes, 12 µs apart: 1 Gbit/s.
    fn train(count: u32, bunch: u32) -> Vec<Arrival> {
        let at = |n: u32| 12 * US * (n - n % bunch);
        let arrival = |n: u32| Arrival {
            number: n.into(),
            at: at(n),
            sent: Duration::ZERO,
            bytes: Bytes(1500),
        };
        (0..count).map(arrival).collect()
    }

    fn mbit(dispersion: Dispersion) -> u64 {
        let Dispersion::Rate(rate) = dispersion else { panic!("{dispersion:?}") };
        rate.bits_per_sec() / 1_000_000
    }

    #[test]
    fn dispersion_is_the_rate_of_the_narrowest_link() {
        assert_eq!(mbit(dispersion(&train(44, 1))), 1000);
        // Received in batches of 6, each at the time of its first packet.
        assert_eq!(mbit(dispersion(&train(42, 6))), 1000);
    }

    #[test]
    fn dispersion_ignores_packets_dropped_at_the_end() {
        let mut packets = train(44, 1);
        packets.truncate(40);
        assert_eq!(mbit(dispersion(&packets)), 1000);
    }

    #[test]
    fn dispersion_distinguishes_unusable_trains() {
        assert_eq!(dispersion(&train(44, 44)), Dispersion::TooShort(Duration::ZERO));
        assert_eq!(dispersion(&train(33, 1)), Dispersion::TooShort(384 * US));
        assert_eq!(dispersion(&train(5, 1)), Dispersion::Unusable);
        assert_eq!(dispersion(&[]), Dispersion::Unusable);
    }

    #[test]
    fn dispersion_slowly_sent_train_is_unusable() {
        let mut packets = train(44, 1);
        packets.iter_mut().for_each(|packet| packet.sent = packet.at.mul_f64(15.0 / 16.0));
        assert_eq!(dispersion(&packets), Dispersion::Unusable);
        packets.iter_mut().for_each(|packet| packet.sent = packet.at.mul_f64(0.5));
        assert_eq!(mbit(dispersion(&packets)), 1000);
    }

    #[test]
    fn dispersion_reordered_train_is_unusable() {
        let mut packets = train(44, 1);
        packets.swap(20, 22);
        assert_eq!(dispersion(&packets), Dispersion::Unusable);
    }

    #[test]
    fn longer_train_is_bounded() {
        let took = |us: [u32; 3]| us.map(|us| US * us);
        // 5 Gbit/s.
        assert_eq!(longer_train(44, &took([106, 104, 350])), Some(352));
        // 40 Gbit/s.
        assert_eq!(longer_train(44, &took([13, 13, 13])), Some(704));
        assert_eq!(longer_train(44, &took([0, 0, 390])), None, "released together");
        assert_eq!(longer_train(44, &took([399, 390, 390])), Some(132));
        assert_eq!(longer_train(704, &took([350, 300, 340])), None);
        assert_eq!(longer_train(44, &[]), None);
    }

    #[test]
    fn trains_are_repeated_only_where_that_helps() {
        let five = |one: Vec<Arrival>| vec![one; 5];
        let stretched = |factor: u32| {
            let mut packets = train(44, 1);
            packets.iter_mut().for_each(|packet| packet.at *= factor);
            packets
        };
        let Evaluation::Capacity(rate) = evaluate(&five(train(44, 1)), 44) else { panic!() };
        assert_eq!(rate.bits_per_sec(), 1_000_000_000);
        let short = five(train(33, 1));
        assert_eq!(evaluate(&short, 33), Evaluation::Repeat(99));
        // Some trains cross the boundary of a frame of 4 ms.
        let mut frames = short.clone();
        frames[1] = stretched(8);
        assert_eq!(evaluate(&frames, 33), Evaluation::Inconclusive);
        // Most packets of 88 were lost.
        assert_eq!(evaluate(&short, 88), Evaluation::Inconclusive);
        // No four agree, on a fast line and on a slow one.
        let differing = |factor: u32| [1, 1, 2, 3, 4].map(|n| stretched(n * factor)).to_vec();
        assert_eq!(evaluate(&differing(1), 44), Evaluation::Repeat(44));
        assert_eq!(evaluate(&differing(10), 44), Evaluation::Inconclusive);
    }

    #[test]
    fn trains_that_overflow_a_slow_line_are_one() {
        // 10 Mbit/s; five packets of each train but the first found room in the queue.
        let mut arrivals = (0..).map(|n| 1200 * US * n);
        let mut next = |(index, count): (u32, u64)| -> Vec<Arrival> {
            let sent = 3000 * US * index;
            let packet = |(number, at)| Arrival { number, at, sent, bytes: Bytes(1500) };
            (0..count).zip(arrivals.by_ref()).map(packet).collect()
        };
        let trains: Vec<_> = (0..).zip([44, 5, 5, 5, 5]).map(&mut next).collect();
        let Evaluation::Capacity(rate) = evaluate(&trains, 44) else { panic!() };
        assert_eq!(rate.bits_per_sec(), 10_000_000);
        // Not enough for five parts.
        let trains: Vec<_> = (0..).zip([5; 5]).map(&mut next).collect();
        assert_eq!(evaluate(&trains, 44), Evaluation::Inconclusive);
    }

    #[test]
    fn trains_that_jitter_reorders_and_joins_give_no_capacity() {
        // Five trains, one after the other, each of which ends with its first packets.
        let joined = |index: u32| -> Vec<Arrival> {
            let mut packets = train(44, 1);
            packets.iter_mut().for_each(|packet| packet.at += 12 * US * 44 * index);
            let mut numbers: Vec<u64> = packets.iter().map(|packet| packet.number).collect();
            numbers.rotate_left(2);
            for (packet, number) in packets.iter_mut().zip(numbers) {
                packet.number = number;
            }
            packets
        };
        let trains: Vec<_> = (0..5).map(joined).collect();
        assert!(!matches!(evaluate(&trains, 44), Evaluation::Capacity(_)));
    }

    #[test]
    fn agreed_capacity_ignores_outliers() {
        let agreed = |mbit: [f64; 5]| {
            let rates = mbit.map(|mbit| Rate::from_bits_per_sec(mbit * 1e6));
            agreed_capacity(&rates).map(|rate| rate.bits_per_sec() / 1_000_000)
        };
        assert_eq!(agreed([995.0, 1000.0, 620.0, 1005.0, 1000.0]), Some(1000));
        assert_eq!(agreed([995.0, 1000.0, 620.0, 1005.0, 4000.0]), None);
        assert_eq!(agreed_capacity(&[]), None);
    }
}
