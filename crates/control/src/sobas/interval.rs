//! Measurement intervals of two RTTs: rate, queue and losses.

use crate::bottleneck::Bottleneck;
use crate::loss::LossSample;
use crate::path_control::Observation;
use crate::units::{Bytes, Rate};
use std::collections::VecDeque;
use std::time::Duration;

/// Length of an interval in RTTs. (SOBAS paper §IV.B)
const INTERVAL_RTTS: u32 = 2;

/// Shortest interval. (chosen: two RTT probes)
const MIN_INTERVAL: Duration = Duration::from_millis(20);

/// RTT samples above the minimum that make a standing queue. (chosen: a burst takes up to 1 ms of
/// the line, and two probes in a row may follow one)
const STANDING_QUEUE_SAMPLES: usize = 6;

/// Retention of observations: RTTs, and at least this time. (chosen: enough for the start to see
/// when the rate flattened)
const SAMPLE_RETENTION: (u32, Duration) = (4, Duration::from_millis(200));

/// Measurements over two RTTs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Interval {
    /// End of the interval.
    pub at: Duration,
    /// Data received.
    pub data: Bytes,
    /// Data received per second.
    pub rate: Rate,
    /// Queueing delay present all the time: the smallest of the interval and of the last six RTT
    /// samples, above the min RTT.
    pub standing_queue: Duration,
    /// Mean queueing delay, above the min RTT.
    pub mean_queue: Duration,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// Probes lost.
    pub probes_lost: u64,
    /// Last bottleneck other than the path in the interval, or the path.
    pub bottleneck: Bottleneck,
}

impl Interval {
    /// Returns the loss sample of the interval.
    pub(super) fn losses(&self) -> LossSample {
        LossSample::new(self.retransmits, self.data, self.mss)
    }
}

/// Collects observations and divides them into intervals.
#[derive(Debug, Clone, Default)]
pub(super) struct PathSampler {
    samples: VecDeque<Observation>,
    /// Min RTT of the probes, and of TCP.
    min_rtt: Option<Duration>,
    tcp_min_rtt: Option<Duration>,
    /// Last observation of the preceding interval.
    start: Option<Observation>,
    rtt_sum: Duration,
    rtt_count: u32,
    bottleneck: Bottleneck,
}

impl PathSampler {
    /// Records an observation; returns the interval that it completes, if any.
    pub(super) fn observe(&mut self, sample: &Observation) -> Option<Interval> {
        if let Some(rtt) = sample.rtt {
            self.add_rtt(rtt);
        }
        self.tcp_min_rtt = sample.tcp_min_rtt.or(self.tcp_min_rtt);
        if sample.bottleneck != Bottleneck::Path {
            self.bottleneck = sample.bottleneck;
        }
        self.retain(sample);
        let start = *self.start.get_or_insert(*sample);
        let elapsed = sample.now.saturating_sub(start.now);
        if elapsed < self.interval_length() {
            return None;
        }
        Some(self.close(&start, sample))
    }

    /// Records a probe RTT between two observations.
    pub(super) fn observe_rtt(&mut self, rtt: Duration) {
        if let Some(&last) = self.samples.back() {
            self.samples.push_back(Observation { rtt: Some(rtt), ..last });
            self.add_rtt(rtt);
        }
    }

    fn add_rtt(&mut self, rtt: Duration) {
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        self.rtt_sum += rtt;
        self.rtt_count += 1;
    }

    /// Returns the min RTT, that of an empty queue; zero before the first sample.
    pub(super) fn min_rtt(&self) -> Duration {
        self.min_rtt.or(self.tcp_min_rtt).unwrap_or_default()
    }

    /// Resets the min RTT, after a change of path.
    pub(super) fn reset_min_rtt(&mut self) {
        self.min_rtt = None;
    }

    /// Returns the rate over the last `time`, or over the retained part of it.
    pub(super) fn rate_over(&self, time: Duration) -> Rate {
        let Some(last) = self.samples.back() else { return Rate::default() };
        let from = last.now.saturating_sub(time);
        let first = self.samples.iter().rev().find(|sample| sample.now <= from);
        self.rate_between(first.or(self.samples.front()), Some(last))
    }

    /// Returns the rate over the `time` that ended `ago` before the last observation.
    pub(super) fn rate_before(&self, ago: Duration, time: Duration) -> Rate {
        let Some(last) = self.samples.back() else { return Rate::default() };
        let end = last.now.saturating_sub(ago);
        let at = |time: Duration| self.samples.iter().rev().find(|sample| sample.now <= time);
        self.rate_between(at(end.saturating_sub(time)).or(self.samples.front()), at(end))
    }

    /// Returns the smallest of the last `count` RTTs above the min RTT; zero with fewer samples.
    pub(super) fn standing_queue(&self, count: usize) -> Duration {
        let latest: Vec<_> =
            self.samples.iter().rev().filter_map(|sample| sample.rtt).take(count).collect();
        let least = latest.iter().min().filter(|_| latest.len() == count);
        least.map_or(Duration::ZERO, |&least| least.saturating_sub(self.min_rtt()))
    }

    fn rate_between(&self, first: Option<&Observation>, last: Option<&Observation>) -> Rate {
        match (first, last) {
            (Some(a), Some(b)) => (b.received - a.received).per(b.now.saturating_sub(a.now)),
            _ => Rate::default(),
        }
    }

    /// Returns the length of an interval.
    pub(super) fn interval_length(&self) -> Duration {
        (self.min_rtt() * INTERVAL_RTTS).max(MIN_INTERVAL)
    }

    fn retain(&mut self, sample: &Observation) {
        let (round_trips, least) = SAMPLE_RETENTION;
        let retention = (self.min_rtt() * round_trips).max(least);
        self.samples.push_back(*sample);
        while self
            .samples
            .front()
            .is_some_and(|first| sample.now.saturating_sub(first.now) > retention)
        {
            self.samples.pop_front();
        }
    }

    fn close(&mut self, start: &Observation, end: &Observation) -> Interval {
        let beyond = |rtt: Duration| rtt.saturating_sub(self.min_rtt());
        let mean =
            if self.rtt_count > 0 { beyond(self.rtt_sum / self.rtt_count) } else { Duration::ZERO };
        let interval = Interval {
            at: end.now,
            data: end.received - start.received,
            rate: (end.received - start.received).per(end.now.saturating_sub(start.now)),
            standing_queue: self
                .standing_queue(STANDING_QUEUE_SAMPLES.max(self.rtt_count as usize)),
            mean_queue: mean,
            retransmits: end.retransmits.saturating_sub(start.retransmits),
            mss: end.mss,
            probes_lost: end.probes_lost.saturating_sub(start.probes_lost),
            bottleneck: self.bottleneck,
        };
        self.start = Some(*end);
        self.reset();
        interval
    }

    fn reset(&mut self) {
        self.rtt_sum = Duration::ZERO;
        self.rtt_count = 0;
        self.bottleneck = Bottleneck::Path;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Records 1 MB per 10 ms with these RTTs in ms.
    fn run(sampler: &mut PathSampler, rtts: &[u32]) -> Vec<Interval> {
        let from =
            sampler.samples.back().map_or(0, |sample| sample.now.as_millis() as u32 / 10 + 1);
        let sample = rtts.iter().zip(from..).map(|(&rtt, n)| Observation {
            now: 10 * MS * n,
            received: Bytes(u64::from(n) * 1_000_000),
            rtt: Some(MS * rtt),
            ..Observation::default()
        });
        sample.filter_map(|sample| sampler.observe(&sample)).collect()
    }

    #[test]
    fn interval_spans_two_rtts_with_rate_and_queue() {
        let mut sampler = PathSampler::default();
        let intervals = run(&mut sampler, &[20, 20, 21, 22, 23, 26, 24, 24, 24]);
        assert_eq!(intervals.len(), 2);
        assert_eq!(intervals[1].at, 80 * MS);
        assert_eq!(intervals[1].rate.bits_per_sec(), 800_000_000);
        assert_eq!(intervals[1].standing_queue, 2 * MS);
        assert_eq!(intervals[1].mean_queue, MS * 9 / 2);
        assert_eq!(sampler.standing_queue(3), 4 * MS);
        assert_eq!(sampler.rate_over(20 * MS).bits_per_sec(), 800_000_000);
    }

    #[test]
    fn min_rtt_uses_tcp_until_first_probe() {
        let mut sampler = PathSampler::default();
        assert_eq!(sampler.min_rtt(), Duration::ZERO);
        let sample = Observation { tcp_min_rtt: Some(25 * MS), ..Observation::default() };
        sampler.observe(&sample);
        assert_eq!(sampler.min_rtt(), 25 * MS);
        sampler.observe(&Observation { rtt: Some(26 * MS), ..sample });
        assert_eq!(sampler.min_rtt(), 26 * MS, "probes are answered later than TCP's segments");
    }

    #[test]
    fn rtt_between_samples_counts_like_sampled_rtt() {
        let (mut often, mut seldom) = (PathSampler::default(), PathSampler::default());
        let rtts = [20, 21, 22, 23, 26, 24, 24, 25, 23];
        let all = run(&mut often, &rtts);
        let mut intervals = Vec::new();
        for (n, rtt) in (0..).zip(rtts) {
            if n % 2 == 1 {
                seldom.observe_rtt(MS * rtt);
                continue;
            }
            intervals.extend(seldom.observe(&Observation {
                now: 10 * MS * n,
                received: Bytes(u64::from(n) * 1_000_000),
                rtt: Some(MS * rtt),
                ..Observation::default()
            }));
        }
        assert_eq!(intervals, all);
        assert_eq!(seldom.standing_queue(4), often.standing_queue(4));
    }

    #[test]
    fn retained_samples_are_bounded() {
        let mut sampler = PathSampler::default();
        run(&mut sampler, &[20; 10_000]);
        assert!(sampler.samples.len() <= 22, "{}", sampler.samples.len());
    }
}
