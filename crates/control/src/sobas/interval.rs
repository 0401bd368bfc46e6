//! Measurement intervals of two RTTs, and the patterns that SOBAS looks for in them.

use crate::bottleneck::Bottleneck;
use crate::path_control::{Observation, RATE_DEVIATION, TICK};
use crate::units::Rate;
use std::collections::VecDeque;
use std::time::Duration;

/// Length of an interval in RTTs. (SOBAS paper §IV.B)
const INTERVAL_RTTS: u32 = 2;

/// Shortest interval. (SOBAS paper §IV.B: two probes, one each 10 ms)
const MIN_INTERVAL: Duration = TICK.saturating_mul(2);

/// Intervals of a flat rate in slow start, and later. (SOBAS paper §IV.B, footnote 3)
const FLAT_INTERVALS: (usize, usize) = (2, 5);

/// Largest difference of nearly equal rates, as a share. (the paper has no figure; bursts of 1 ms
/// are 5 % of the shortest interval)
pub(super) const RATE_SPREAD: f64 = RATE_DEVIATION / 2.0;

/// Share of a flat rate below which a fall is a drop. (chosen: the paper has no figure; three times
/// the spread, and half of what CUBIC falls after a loss, RFC 9438 §4.6)
const DROP_SHARE: f64 = 0.85;

/// Measurements over two RTTs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Interval {
    /// End of the interval.
    pub(super) at: Duration,
    /// Its length.
    pub(super) time: Duration,
    /// Data received per second.
    pub(super) rate: Rate,
    /// Mean RTT of the probes.
    pub(super) rtt: Duration,
    /// Probes lost.
    probes_lost: u64,
    /// Last bottleneck other than the path in the interval, or the path.
    bottleneck: Bottleneck,
}

/// A rate that was constant for some intervals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FlatRate {
    /// Mean rate.
    pub(super) rate: Rate,
    /// True if probes were lost meanwhile: the path is congested.
    pub(super) is_congested: bool,
}

/// Divides a transfer into intervals, and keeps the latest.
#[derive(Debug, Clone, Default)]
pub(super) struct Intervals {
    /// Oldest first.
    latest: VecDeque<Interval>,
    /// Min RTT of the probes, and of TCP.
    min_rtt: Option<Duration>,
    tcp_min_rtt: Option<Duration>,
    /// Last observation of the preceding interval.
    start: Option<Observation>,
    rtt_sum: Duration,
    rtt_count: u32,
    bottleneck: Bottleneck,
    /// True once the sender has retransmitted, which ends slow start.
    has_lost: bool,
}

impl Intervals {
    /// Returns the min RTT; zero before the first sample.
    pub(super) fn min_rtt(&self) -> Duration {
        self.min_rtt.or(self.tcp_min_rtt).unwrap_or_default()
    }

    /// Records the RTT of a probe.
    pub(super) fn on_rtt_sample(&mut self, rtt: Duration) {
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        self.rtt_sum += rtt;
        self.rtt_count += 1;
    }

    /// Records an observation; returns the interval that it completes, if any.
    ///
    /// An interval without data is left out: the path is interrupted, or the sender silent.
    pub(super) fn observe(&mut self, sample: &Observation) -> Option<Interval> {
        if let Some(rtt) = sample.rtt {
            self.on_rtt_sample(rtt);
        }
        self.tcp_min_rtt = sample.tcp_min_rtt.or(self.tcp_min_rtt);
        if sample.bottleneck != Bottleneck::Path {
            self.bottleneck = sample.bottleneck;
        }
        // Intervals begin with the first RTT.
        if self.min_rtt().is_zero() {
            self.start = None;
        }
        let start = *self.start.get_or_insert(*sample);
        let time = sample.now.saturating_sub(start.now);
        if time < (self.min_rtt() * INTERVAL_RTTS).max(MIN_INTERVAL) {
            return None;
        }
        let mean_rtt = self.rtt_sum.checked_div(self.rtt_count);
        let interval = Interval {
            at: sample.now,
            time,
            rate: (sample.received - start.received).per(time),
            rtt: mean_rtt.unwrap_or(self.min_rtt()),
            probes_lost: sample.probes_lost.saturating_sub(start.probes_lost),
            bottleneck: std::mem::take(&mut self.bottleneck),
        };
        self.has_lost |= sample.retransmits > start.retransmits;
        self.start = Some(*sample);
        (self.rtt_sum, self.rtt_count) = (Duration::ZERO, 0);
        if interval.rate == Rate::default() {
            return None;
        }
        self.latest.push_back(interval);
        if self.latest.len() > FLAT_INTERVALS.1 {
            self.latest.pop_front();
        }
        Some(interval)
    }

    /// Forgets the intervals: the limits of the transfer have changed.
    pub(super) fn clear(&mut self) {
        self.latest.clear();
    }

    /// Returns the rate if it is flat ("flat-rate" in the paper).
    pub(super) fn flat_rate(&self, is_start: bool) -> Option<FlatRate> {
        let (in_slow_start, later) = FLAT_INTERVALS;
        self.flat(0, if is_start && !self.has_lost { in_slow_start } else { later })
    }

    /// Returns the flat rate before a drop in the last interval ("const-rate-drop" in the paper).
    pub(super) fn rate_before_drop(&self) -> Option<FlatRate> {
        let flat = self.flat(1, FLAT_INTERVALS.0)?;
        let last = self.latest.back()?;
        let is_drop = (last.rate.bits_per_sec() as f64)
            < DROP_SHARE * flat.rate.bits_per_sec() as f64
            && last.bottleneck == Bottleneck::Path;
        is_drop.then_some(flat)
    }

    /// Returns the rate of `count` intervals before the last `after`, if it is flat.
    fn flat(&self, after: usize, count: usize) -> Option<FlatRate> {
        let found = || self.latest.iter().rev().skip(after).take(count);
        let rates = || found().map(|interval| interval.rate.bits_per_sec());
        let (low, high) = (rates().min()?, rates().max()?);
        let mean = rates().sum::<u64>() as f64 / count as f64;
        let is_flat = found().count() == count
            && (high - low) as f64 <= RATE_SPREAD * mean
            && found().all(|interval| interval.bottleneck == Bottleneck::Path);
        is_flat.then(|| FlatRate {
            rate: Rate::from_bits_per_sec(mean),
            is_congested: found().any(|interval| interval.probes_lost > 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    const MS: Duration = Duration::from_millis(1);

    /// Records intervals of 40 ms with these rates in Mbit/s.
    fn run(rates: &[u32]) -> (Intervals, Observation) {
        let mut intervals = Intervals::default();
        let mut seen = Observation { rtt: Some(20 * MS), ..Observation::default() };
        intervals.observe(&seen);
        for rate in rates {
            seen.now += 40 * MS;
            seen.received += Bytes(u64::from(rate * 5_000));
            intervals.observe(&seen);
        }
        (intervals, seen)
    }

    fn flat_rates(rates: &[u32]) -> [Option<u64>; 3] {
        let intervals = run(rates).0;
        let found =
            [intervals.flat_rate(true), intervals.flat_rate(false), intervals.rate_before_drop()];
        found.map(|flat| flat.map(|flat| flat.rate.bits_per_sec() / 1_000_000))
    }

    #[test]
    fn interval_spans_two_rtts() {
        let mut intervals = Intervals::default();
        let of = |ms: u32, rtt| Observation {
            now: MS * ms,
            received: Bytes(u64::from(ms) * 100_000),
            rtt,
            tcp_min_rtt: Some(25 * MS),
            ..Observation::default()
        };
        assert_eq!(intervals.observe(&of(0, None)), None);
        assert_eq!(intervals.min_rtt(), 25 * MS, "TCP's until the first probe");
        intervals.on_rtt_sample(20 * MS);
        intervals.on_rtt_sample(21 * MS);
        assert_eq!(intervals.observe(&of(39, Some(22 * MS))), None);
        let interval = intervals.observe(&of(40, Some(29 * MS))).unwrap();
        assert_eq!((interval.at, interval.time, interval.rtt), (40 * MS, 40 * MS, 23 * MS));
        assert_eq!((interval.rate.bits_per_sec(), intervals.min_rtt()), (800_000_000, 20 * MS));
        let next = intervals.observe(&of(80, None)).unwrap();
        assert_eq!(next.rtt, 20 * MS, "without a sample");
    }

    #[test]
    fn rate_is_flat_for_two_or_five_intervals() {
        assert_eq!(flat_rates(&[100, 200, 400]), [None; 3]);
        assert_eq!(flat_rates(&[200, 400, 404]), [Some(402), None, None]);
        assert_eq!(flat_rates(&[400, 404, 396, 400, 400]), [Some(400), Some(400), None]);
        assert_eq!(flat_rates(&[400, 430, 400, 400, 400]), [Some(400), None, None]);
        assert_eq!(flat_rates(&[100, 400, 404, 330]), [None, None, Some(402)]);
        assert_eq!(flat_rates(&[100, 400, 404, 350]), [None; 3], "a smaller fall");
    }

    #[test]
    fn flat_rate_after_a_loss_needs_five_intervals() {
        let (mut intervals, mut seen) = run(&[400]);
        for expected in [false, false, false, true] {
            seen.now += 40 * MS;
            seen.received += Bytes(2_000_000);
            seen.retransmits = 1;
            intervals.observe(&seen);
            assert_eq!(intervals.flat_rate(true).is_some(), expected);
        }
    }

    #[test]
    fn lost_probe_congests_and_a_host_is_no_path() {
        let (mut intervals, mut seen) = run(&[400]);
        let mut next = |lost: u64, bottleneck| {
            seen.now += 40 * MS;
            seen.received += Bytes(2_000_000);
            (seen.probes_lost, seen.bottleneck) = (seen.probes_lost + lost, bottleneck);
            intervals.observe(&seen);
            intervals.flat_rate(true).map(|flat| flat.is_congested)
        };
        let found = [1, 0, 0].map(|lost| next(lost, Bottleneck::Path));
        assert_eq!(found, [Some(true), Some(true), Some(false)]);
        assert_eq!(next(0, Bottleneck::Sender), None);
    }
}
