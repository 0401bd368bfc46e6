//! Division of a rate, and of the matching window, among the streams of a session.
//!
//! A stream that repairs a loss or has little to send leaves its unused share to the saturated
//! streams, so that all together use the whole. This module sets nothing and does not choose the
//! rate.

use crate::pacing::MIN_WINDOW;
use crate::units::{Bytes, Rate};
use std::collections::BTreeMap;
use std::time::Duration;

/// Used part of its share at which a stream counts as saturated. (chosen: allows for a segment more
/// or less per interval)
const SATURATED_SHARE: f64 = 0.97;

/// Headroom of an unsaturated stream, as a multiple of its use: twice what a saturated one may
/// leave unused. That is more than TCP's growth in an interval, and little of the rate is unused.
const HEADROOM: f64 = 1.0 + 2.0 * (1.0 - SATURATED_SHARE);

/// Smallest share, as a part of an equal one. (chosen: the stream may resume at any time)
const MIN_FAIR_SHARE: f64 = 0.25;

/// Part of a segment added to a window of whole segments. (the kernel rounds an offered window up
/// to 1 KiB at most, `__tcp_select_window` in net/ipv4/tcp_output.c: less than the rest of one)
const PART_OF_SEGMENT: f64 = 0.25;

/// The shares of all streams of a session.
#[derive(Debug, Clone, Default)]
pub struct StreamShares {
    streams: BTreeMap<u32, StreamShare>,
    /// Start of the current measurement interval.
    interval_start: Duration,
    /// Number of active streams.
    active: u32,
    /// Sum of their shares.
    whole: f64,
}

/// The share of one stream, and the bytes that it carried.
#[derive(Debug, Clone, Copy)]
struct StreamShare {
    /// Bytes carried at the start of the interval.
    bytes_at_start: u64,
    /// Bytes carried so far.
    bytes: u64,
    /// Share of the whole; `None` while the stream is inactive.
    share: Option<f64>,
}

impl StreamShare {
    /// Returns the bytes carried in this interval.
    fn carried(&self) -> u64 {
        self.bytes.saturating_sub(self.bytes_at_start)
    }

    fn is_active(&self) -> bool {
        self.share.is_some() || self.carried() > 0
    }
}

impl StreamShares {
    /// Records the bytes carried so far by each stream, as (stream number, bytes).
    ///
    /// A new stream counts from here on, and a stream that is missing is dropped. At the end of an
    /// interval the shares of `rate` are recomputed; without a rate, streams that carried data get
    /// equal shares.
    pub fn observe(
        &mut self,
        now: Duration,
        interval: Duration,
        rate: Option<Rate>,
        carried: &[(u32, u64)],
    ) {
        let observed = |&(number, bytes): &(u32, u64)| {
            let new = StreamShare { bytes_at_start: bytes, bytes, share: None };
            let stream = self.streams.get(&number).copied().unwrap_or(new);
            (number, StreamShare { bytes, ..stream })
        };
        self.streams = carried.iter().map(observed).collect();
        self.sum_active();
        let elapsed = now.saturating_sub(self.interval_start);
        if elapsed >= interval {
            self.interval_start = now;
            self.redistribute(
                rate.map_or(0.0, |rate| rate.bytes_per_sec() as f64 * elapsed.as_secs_f64()),
            );
            self.sum_active();
        }
    }

    /// Sums up the active streams, once for all shares.
    fn sum_active(&mut self) {
        let active = || self.streams.values().filter(|stream| stream.is_active());
        self.active = active().count() as u32;
        let equal = self.equal_share();
        self.whole = active().map(|stream| stream.share.unwrap_or(equal)).sum();
    }

    /// Returns the share of each stream if all active ones have the same.
    fn equal_share(&self) -> f64 {
        1.0 / f64::from(self.active_count().max(1))
    }

    /// Returns the number of active streams; of all streams if none is active.
    #[must_use]
    pub fn active_count(&self) -> u32 {
        if self.active > 0 { self.active } else { self.streams.len() as u32 }
    }

    /// Returns the share of a stream, 0 to 1.
    ///
    /// An inactive stream gets an average share when it starts, at the expense of all others.
    #[must_use]
    pub fn share(&self, number: u32) -> f64 {
        let own = self.streams.get(&number).and_then(|stream| stream.share);
        let own = own.unwrap_or_else(|| self.equal_share());
        if self.whole > 0.0 { own / self.whole } else { own }
    }

    /// Returns the part of `rate` for a stream.
    #[must_use]
    pub fn rate(&self, number: u32, rate: Rate) -> Rate {
        Rate::from_bits_per_sec(rate.bits_per_sec() as f64 * self.share(number))
    }

    /// Returns the part of `window` for a stream.
    #[must_use]
    pub fn window(&self, number: u32, window: Bytes) -> Bytes {
        Bytes((window.0 as f64 * self.share(number)) as u64).max(MIN_WINDOW)
    }

    /// Returns the parts of `window` for all streams, in whole segments of a payload.
    ///
    /// Each stream holds back a partial segment, which adds up over many streams. The parts of
    /// active streams are rounded so that their sum is the window.
    #[must_use]
    pub fn windows(&self, window: Bytes, mss: Bytes) -> BTreeMap<u32, Bytes> {
        let mss = mss.0.max(1) as f64;
        // Single precision hides the error of a sum.
        let segments = |share: f64| ((window.0 as f64 / mss * share) as f32).floor();
        let mut before = 0.0;
        let part = |(&number, stream): (&u32, &StreamShare)| {
            let own = self.share(number);
            let segments = if stream.is_active() {
                let from = segments(before);
                before += own;
                segments(before) - from
            } else {
                segments(own)
            };
            let bytes = (f64::from(segments) + PART_OF_SEGMENT) * mss;
            (number, Bytes(bytes as u64).max(MIN_WINDOW))
        };
        self.streams.iter().map(part).collect()
    }

    /// Distributes the surplus equally if all demands, with headroom, fit the available bytes.
    ///
    /// Returns false, and changes nothing, if they do not fit or no stream carried data.
    fn distribute_surplus(&mut self, available: f64) -> bool {
        let demand_of = |stream: &StreamShare| stream.carried() as f64 / available * HEADROOM;
        let active = self.streams.values().filter(|stream| stream.carried() > 0);
        let (count, demand) =
            active.fold((0, 0.0), |(n, sum), stream| (n + 1, sum + demand_of(stream)));
        if available <= 0.0 || count == 0 || demand >= 1.0 {
            return false;
        }
        let rest = (1.0 - demand) / f64::from(count);
        for stream in self.streams.values_mut() {
            stream.share = (stream.carried() > 0).then(|| demand_of(stream) + rest);
            stream.bytes_at_start = stream.bytes;
        }
        true
    }

    /// Recomputes the shares from the carried bytes, of `available` bytes in all.
    fn redistribute(&mut self, available: f64) {
        if self.distribute_surplus(available) {
            return;
        }
        let equal = self.equal_share();
        let mut demands = BTreeMap::new();
        for (&number, stream) in self.streams.iter().filter(|(_, stream)| stream.carried() > 0) {
            let share = stream.share.unwrap_or(equal);
            let used = if available > 0.0 { stream.carried() as f64 / available } else { 1.0 };
            let demand = (used * HEADROOM).min(share).max(equal * MIN_FAIR_SHARE);
            demands.insert(number, (used < share * SATURATED_SHARE).then_some(demand));
        }
        let reserved: f64 = demands.values().flatten().sum();
        let saturated = demands.values().filter(|demand| demand.is_none()).count();
        // The rest goes to the saturated streams, or to all if there are none.
        let recipients = if saturated > 0 { saturated } else { demands.len() };
        let rest = (1.0 - reserved).max(0.0) / recipients.max(1) as f64;
        for (number, stream) in &mut self.streams {
            stream.bytes_at_start = stream.bytes;
            stream.share = demands.get(number).map(|demand| match demand {
                Some(demand) if saturated > 0 => *demand,
                Some(demand) => demand + rest,
                None => rest.max(equal * MIN_FAIR_SHARE),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    /// Streams over a path that carries 1 MB per interval.
    #[derive(Default)]
    struct Connections {
        shares: StreamShares,
        now: Duration,
        carried: Vec<u64>,
    }

    impl Connections {
        /// Runs one interval in which each stream uses at most its limit of the rate.
        fn advance(&mut self, limits: &[f64]) {
            self.carried.resize(limits.len(), 0);
            let all = |carried: &[u64]| -> Vec<(u32, u64)> {
                (0..).zip(carried.iter().copied()).collect()
            };
            if self.now.is_zero() {
                self.shares.observe(self.now, INTERVAL, None, &all(&self.carried));
            }
            for (number, available) in limits.iter().enumerate() {
                let takes = available.min(self.shares.share(number as u32));
                self.carried[number] += (takes * 1e6) as u64;
            }
            self.now += INTERVAL;
            let rate = Rate::from_bytes_per_sec(10_000_000);
            self.shares.observe(self.now, INTERVAL, Some(rate), &all(&self.carried));
        }

        fn all(&self) -> Vec<f64> {
            let of = |number| (self.shares.share(number) * 1000.0).round() / 1000.0;
            (0..self.carried.len() as u32).map(of).collect()
        }
    }

    #[test]
    fn shares_saturated_streams_are_equal() {
        let mut four = Connections::default();
        (0..5).for_each(|_| four.advance(&[1.0; 4]));
        assert_eq!((four.all(), four.shares.active_count()), (vec![0.25; 4], 4));
        let window = four.shares.window(0, Bytes(1_000_000));
        assert_eq!((window, four.shares.window(0, Bytes(4_000))), (Bytes(250_000), Bytes(2_896)));
    }

    #[test]
    fn windows_are_whole_segments_and_sum_up() {
        let mut four = Connections::default();
        (0..5).for_each(|_| four.advance(&[1.0; 4]));
        let windows = |window: u64| -> Vec<u64> {
            let windows = four.shares.windows(Bytes(window), Bytes(1_000));
            windows.values().map(|window| window.0).collect()
        };
        assert_eq!(windows(40_000), [10_250; 4]);
        assert_eq!(windows(42_000), [10_250, 11_250, 10_250, 11_250]);
        assert_eq!(windows(43_999), [10_250, 11_250, 11_250, 11_250]);
        assert_eq!(windows(4_000), [MIN_WINDOW.0; 4]);
    }

    #[test]
    fn shares_unused_part_goes_to_saturated_streams() {
        let mut four = Connections::default();
        (0..3).for_each(|_| four.advance(&[0.1, 1.0, 1.0, 1.0]));
        assert_eq!(four.all(), [0.106, 0.298, 0.298, 0.298]);
        // It recovers step by step until all are equal.
        four.advance(&[0.12, 1.0, 1.0, 1.0]);
        assert!(four.all()[0] > 0.2, "{:?}", four.all());
        (0..3).for_each(|_| four.advance(&[1.0; 4]));
        assert_eq!(four.all(), [0.25; 4]);
    }

    #[test]
    fn shares_unsaturated_streams_split_the_surplus() {
        let mut two = Connections::default();
        for _ in 0..4 {
            two.advance(&[0.1, 0.3]);
            let all = two.all();
            assert!(
                all[0] > 0.2 && all[1] > 0.5 && (all[0] + all[1] - 1.0).abs() < 0.01,
                "{all:?}"
            );
        }
    }

    #[test]
    fn shares_inactive_stream_starts_with_equal_share() {
        let mut three = Connections::default();
        three.advance(&[1.0; 3]);
        (0..2).for_each(|_| three.advance(&[1.0, 0.0, 0.0]));
        assert_eq!((three.all()[0], three.shares.active_count()), (1.0, 1));
        // As soon as one starts, the other has less.
        three.carried[1] += 1;
        let carried: Vec<(u32, u64)> = (0..).zip(three.carried.iter().copied()).collect();
        three.shares.observe(three.now, INTERVAL, None, &carried);
        assert_eq!((three.shares.active_count(), three.all()[..2].iter().sum()), (2, 1.0));
        // A closed stream is removed; if all are inactive, each may start.
        three.shares.observe(three.now + INTERVAL, INTERVAL, None, &carried[..2]);
        three.shares.observe(three.now + INTERVAL * 2, INTERVAL, None, &carried[..2]);
        assert_eq!((three.shares.active_count(), three.all()[0]), (2, 0.5));
        assert_eq!(StreamShares::default().share(7), 1.0);
    }
}
