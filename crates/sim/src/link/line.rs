//! Line of a link: transmission times at a rate that may vary, and the work that lies ahead.

use super::config::LinkConfig;
use super::rate::{RateSchedule, RateVariation};
use super::time::{Picos, duration, picos};
use bankfull_control::{Bytes, Rate};
use std::collections::VecDeque;
use std::time::Duration;

/// Later than any time of a run.
const NEVER: Picos = Picos::MAX / 2;

/// Rest of a transmission that is a rounding error: a nanosecond. (chosen: 2000 packets of half a
/// picosecond each; 24 Gbit/s in a millisecond of a trace)
///
/// Without it, the seventh of seven packets in a millisecond of a trace would wait for the next
/// millisecond with an opportunity, however late.
const ROUNDING_PICOS: f64 = 1000.0;

/// Transmission at a constant rate, without pause.
#[derive(Debug, Clone, Copy)]
struct Work {
    start: Picos,
    end: Picos,
    picos_per_byte: f64,
}

/// Line in operation. Times must not decrease.
#[derive(Debug, Clone)]
pub(super) struct Line {
    schedule: RateSchedule,
    /// Transmissions ahead, in order; adjacent ones at the same rate are one.
    work: VecDeque<Work>,
    idle_at: Picos,
    /// Head start of a token bucket that is full.
    burst: Picos,
}

/// Transmission of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transmission {
    pub(super) start: Picos,
    pub(super) end: Picos,
}

impl Line {
    /// Creates the line of a link; `None` if it is infinitely fast.
    pub(super) fn new(config: &LinkConfig, seed: u64) -> Option<Self> {
        let rate = config.rate.filter(|rate| rate.bits_per_sec() > 0)?;
        let burst = config.shaper_burst.0 as f64 / rate.bytes_per_sec() as f64 * 1e12;
        Some(Self {
            schedule: RateSchedule::new(rate, &config.variation, &config.silences, seed),
            work: VecDeque::new(),
            idle_at: 0,
            burst: burst as Picos,
        })
    }

    /// Returns when the last packet will have been transmitted.
    pub(super) fn idle_at(&self) -> Picos {
        self.idle_at.saturating_sub(self.burst)
    }

    /// Transmits a packet after those before it.
    pub(super) fn transmit(&mut self, now: Picos, bytes: u32) -> Transmission {
        self.forget_work_before(now);
        let start = self.idle_at.max(now);
        let mut left = f64::from(bytes);
        let mut at = start;
        loop {
            let stretch = self.schedule.at(at);
            let length = (left * stretch.picos_per_byte).min(NEVER as f64).round() as Picos;
            let end = at.saturating_add(length).min(stretch.end);
            self.add_work(Work { start: at, end, picos_per_byte: stretch.picos_per_byte });
            if at.saturating_add(length) <= stretch.end || stretch.end == Picos::MAX {
                self.idle_at = end;
                break;
            }
            left -= (end - at) as f64 / stretch.picos_per_byte;
            if left * stretch.picos_per_byte < ROUNDING_PICOS {
                self.idle_at = end;
                break;
            }
            at = end;
        }
        let early = |time: Picos| time.saturating_sub(self.burst).max(now);
        Transmission { start: early(start), end: early(self.idle_at) }
    }

    /// Returns the bytes that wait for transmission or are in it.
    pub(super) fn backlog(&mut self, now: Picos) -> Bytes {
        self.forget_work_before(now);
        let bytes = |work: &Work| (work.end - work.start.max(now)) as f64 / work.picos_per_byte;
        let sum: f64 = self.work.iter().map(bytes).sum();
        let Some(last) = self.work.back().filter(|_| self.burst > 0) else {
            return Bytes(sum.round() as u64);
        };
        // Tokens of the bucket count as sent.
        Bytes((sum - self.burst as f64 / last.picos_per_byte).max(0.0).round() as u64)
    }

    /// Returns the transmission time of bytes at the rate of the last transmission's end.
    pub(super) fn time_for(&mut self, now: Picos, bytes: u64) -> Duration {
        let rate = self.schedule.at(self.idle_at.max(now)).picos_per_byte;
        // A silent line has no rate: the nominal one tells more than infinity.
        let rate = if rate.is_finite() { rate } else { self.schedule.nominal_picos_per_byte() };
        duration((bytes as f64 * rate) as Picos)
    }

    fn add_work(&mut self, work: Work) {
        match self.work.back_mut() {
            Some(last) if last.end == work.start && last.picos_per_byte == work.picos_per_byte => {
                last.end = work.end;
            }
            _ => self.work.push_back(work),
        }
    }

    fn forget_work_before(&mut self, now: Picos) {
        while self.work.front().is_some_and(|work| work.end <= now) {
            self.work.pop_front();
        }
    }
}

impl LinkConfig {
    /// Returns the bytes that the line can send in an interval, for a seed.
    #[must_use]
    pub fn capacity(&self, seed: u64, from: Duration, to: Duration) -> Bytes {
        let Some(rate) = self.rate else { return Bytes(u64::MAX) };
        let mut schedule = RateSchedule::new(rate, &self.variation, &self.silences, seed);
        // Stretches before the interval advance a random walk.
        schedule.bytes_between(0, picos(from));
        Bytes(schedule.bytes_between(picos(from), picos(to)) as u64)
    }

    /// Returns the mean rate since the start, limited by the policer, for a seed.
    #[must_use]
    pub fn mean_rate(&self, seed: u64, time: Duration) -> Option<Rate> {
        let mean = match self.variation {
            RateVariation::Constant if self.silences.is_empty() => self.rate?,
            _ => self.capacity(seed, Duration::ZERO, time).per(time),
        };
        Some(self.policer.map_or(mean, |policer| mean.min(policer.rate)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::Trace;
    use super::*;
    use std::sync::Arc;

    const MS: Duration = Duration::from_millis(1);

    fn line(change: impl FnOnce(&mut LinkConfig)) -> Line {
        let mut config =
            LinkConfig { rate: Some(Rate::from_bits_per_sec(12e6)), ..LinkConfig::default() };
        change(&mut config);
        Line::new(&config, 1).unwrap()
    }

    #[test]
    fn packet_is_sent_at_two_rates_when_the_rate_changes() {
        // 1500 bytes take 1 ms, and 4 ms from 2.5 ms on.
        let slow = Rate::from_bits_per_sec(3e6);
        let mut line = line(|config| {
            config.variation = RateVariation::Steps(vec![(MS * 5 / 2, slow)]);
        });
        let ends: Vec<Picos> = (0..4).map(|_| line.transmit(0, 1500).end / 1_000_000).collect();
        assert_eq!(ends, [1000, 2000, 4500, 8500]);
        assert_eq!(line.backlog(0), Bytes(6000));
        assert_eq!(line.backlog(picos(MS * 2)), Bytes(3000));
        assert_eq!(line.backlog(picos(MS * 9)), Bytes(0));
    }

    #[test]
    fn silence_delays_what_is_queued() {
        let mut line = line(|config| config.silences = vec![(MS, MS * 300)]);
        assert_eq!(line.transmit(0, 1500).end, picos(MS));
        assert_eq!(line.transmit(0, 1500).end, picos(MS * 302));
        assert_eq!(line.backlog(picos(MS * 150)), Bytes(1500));
    }

    #[test]
    fn packets_of_a_trace_end_with_their_millisecond() {
        // A seventh of a millisecond is rounded up to picoseconds.
        let trace = Trace::parse_mahimahi(&format!("{}100\n", "1\n".repeat(7))).unwrap();
        let mut line = line(|config| config.variation = RateVariation::Trace(Arc::new(trace)));
        let ends: Vec<Picos> = (0..8).map(|_| line.transmit(0, 1500).end).collect();
        assert_eq!(ends[6..], [picos(MS), picos(MS * 100)]);
    }

    #[test]
    fn token_bucket_sends_burst_at_once_then_its_rate() {
        let mut line = line(|config| config.shaper_burst = Bytes(6000));
        let ends: Vec<Picos> = (0..6).map(|_| line.transmit(0, 1500).end).collect();
        assert_eq!(ends, [0, 0, 0, 0, picos(MS), picos(MS * 2)]);
        assert_eq!(line.backlog(0), Bytes(3000));
        // After 3 ms, of which one is idle, the bucket has tokens for one packet.
        let later = picos(MS * 3);
        assert_eq!(line.transmit(later, 1500).end, later);
        assert_eq!(line.transmit(later, 1500).end, later + picos(MS));
    }

    #[test]
    fn line_without_any_further_rate_never_sends() {
        let mut line = line(|config| {
            config.variation = RateVariation::Steps(vec![(MS, Rate::from_bits_per_sec(0.0))]);
        });
        line.transmit(0, 1500);
        assert!(line.transmit(0, 1500).end > picos(Duration::from_secs(86_400)));
    }
}
