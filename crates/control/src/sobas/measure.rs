//! What was seen of a transfer, as windows of two round trips: rate, queue, losses.

use crate::holder::Holder;
use crate::losses::Losses;
use crate::units::{Bytes, Rate};
use std::collections::VecDeque;
use std::time::Duration;

/// A window lasts so many round trips. [SOBAS, section IV.B]
const WINDOW_ROUND_TRIPS: u32 = 2;

/// But at least this. (ours: two probes of the round trip)
const WINDOW_MIN: Duration = Duration::from_millis(20);

/// A queue stands when so many round trips are longer. (ours: what is sent at once takes up to 1 ms
/// of the line, and two probes in a row may come behind it)
const STANDING_LOOKS: usize = 6;

/// What is kept of the past, in round trips and at least. (ours: what the start needs, to tell when
/// the rate began to flatten)
const KEPT: (u32, Duration) = (4, Duration::from_millis(200));

/// What the engine sees at a tick. Counts are from the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Observation {
    /// Since the beginning of the transfer.
    pub now: Duration,
    /// Data connections now.
    pub streams: u32,
    /// Data received in order, on all connections.
    pub received: Bytes,
    /// The latest round trip of a probe; `None` when none came since the last tick.
    pub rtt: Option<Duration>,
    /// The least round trip that TCP has had, for the time until a probe's is known.
    pub rtt_tcp: Option<Duration>,
    /// Probes that were lost on the way that the data goes.
    pub probes_lost: u64,
    /// Segments that the sender sent again, on all connections.
    pub retransmits: u64,
    /// Data in a full segment; zero where that is not known.
    pub segment: Bytes,
    /// Who holds the transfer up.
    pub holder: Holder,
}

/// A window of two round trips.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Window {
    /// Its end.
    pub at: Duration,
    /// Data received.
    pub data: Bytes,
    /// The same per second.
    pub rate: Rate,
    /// The least round trip in it, and among the last six, beyond the least of all: a queue that
    /// stood all the time.
    pub standing: Duration,
    /// The mean one, beyond the least of all.
    pub queue: Duration,
    /// Segments sent again.
    pub retransmits: u64,
    /// Data in a full one.
    pub segment: Bytes,
    /// Probes lost.
    pub probes_lost: u64,
    /// Who held it up at some time in it.
    pub holder: Holder,
}

impl Window {
    /// What was sent again in it, of so much.
    pub(super) fn losses(&self) -> Losses {
        Losses::of(self.retransmits, self.data, self.segment)
    }
}

/// Collects observations.
#[derive(Debug, Clone, Default)]
pub(super) struct Measure {
    past: VecDeque<Observation>,
    /// The least of the probes' round trips, and TCP's.
    rtt_min: Option<Duration>,
    rtt_tcp: Option<Duration>,
    /// The last observation of the window before.
    begin: Option<Observation>,
    sum: Duration,
    count: u32,
    holder: Holder,
}

impl Measure {
    /// Takes an observation; a window, if it ends one.
    pub(super) fn take(&mut self, seen: &Observation) -> Option<Window> {
        if let Some(rtt) = seen.rtt {
            self.count_rtt(rtt);
        }
        self.rtt_tcp = seen.rtt_tcp.or(self.rtt_tcp);
        if seen.holder != Holder::Path {
            self.holder = seen.holder;
        }
        self.remember(seen);
        let begin = *self.begin.get_or_insert(*seen);
        let took = seen.now.saturating_sub(begin.now);
        if took < self.window_length() {
            return None;
        }
        Some(self.close(&begin, seen))
    }

    /// Takes a round trip of a probe that came between two observations.
    pub(super) fn take_rtt(&mut self, rtt: Duration) {
        if let Some(&last) = self.past.back() {
            self.past.push_back(Observation { rtt: Some(rtt), ..last });
            self.count_rtt(rtt);
        }
    }

    fn count_rtt(&mut self, rtt: Duration) {
        self.rtt_min = Some(self.rtt_min.map_or(rtt, |min| min.min(rtt)));
        self.sum += rtt;
        self.count += 1;
    }

    /// The round trip of a path without a queue; zero before the first.
    pub(super) fn rtt_min(&self) -> Duration {
        self.rtt_min.or(self.rtt_tcp).unwrap_or_default()
    }

    /// Forgets the least round trip: the path is another one.
    pub(super) fn forget_rtt(&mut self) {
        self.rtt_min = None;
    }

    /// The rate over the last `time`, or as much of it as is known.
    pub(super) fn rate_over(&self, time: Duration) -> Rate {
        let Some(last) = self.past.back() else { return Rate::default() };
        let from = last.now.saturating_sub(time);
        let first = self.past.iter().rev().find(|seen| seen.now <= from);
        self.rate_between(first.or(self.past.front()), Some(last))
    }

    /// The rate over `time` that ended `ago`.
    pub(super) fn rate_before(&self, ago: Duration, time: Duration) -> Rate {
        let Some(last) = self.past.back() else { return Rate::default() };
        let end = last.now.saturating_sub(ago);
        let at = |time: Duration| self.past.iter().rev().find(|seen| seen.now <= time);
        self.rate_between(at(end.saturating_sub(time)).or(self.past.front()), at(end))
    }

    /// The least of the last `count` round trips, beyond the least of all; zero when there are not
    /// so many.
    pub(super) fn standing(&self, count: usize) -> Duration {
        let latest: Vec<_> =
            self.past.iter().rev().filter_map(|seen| seen.rtt).take(count).collect();
        let least = latest.iter().min().filter(|_| latest.len() == count);
        least.map_or(Duration::ZERO, |&least| least.saturating_sub(self.rtt_min()))
    }

    fn rate_between(&self, first: Option<&Observation>, last: Option<&Observation>) -> Rate {
        match (first, last) {
            (Some(a), Some(b)) => (b.received - a.received).per(b.now.saturating_sub(a.now)),
            _ => Rate::default(),
        }
    }

    /// How long a window is.
    pub(super) fn window_length(&self) -> Duration {
        (self.rtt_min() * WINDOW_ROUND_TRIPS).max(WINDOW_MIN)
    }

    fn remember(&mut self, seen: &Observation) {
        let (round_trips, least) = KEPT;
        let kept = (self.rtt_min() * round_trips).max(least);
        self.past.push_back(*seen);
        while self.past.front().is_some_and(|first| seen.now.saturating_sub(first.now) > kept) {
            self.past.pop_front();
        }
    }

    fn close(&mut self, begin: &Observation, end: &Observation) -> Window {
        let beyond = |rtt: Duration| rtt.saturating_sub(self.rtt_min());
        let mean = if self.count > 0 { beyond(self.sum / self.count) } else { Duration::ZERO };
        let window = Window {
            at: end.now,
            data: end.received - begin.received,
            rate: (end.received - begin.received).per(end.now.saturating_sub(begin.now)),
            standing: self.standing(STANDING_LOOKS.max(self.count as usize)),
            queue: mean,
            retransmits: end.retransmits.saturating_sub(begin.retransmits),
            segment: end.segment,
            probes_lost: end.probes_lost.saturating_sub(begin.probes_lost),
            holder: self.holder,
        };
        self.begin = Some(*end);
        self.reset();
        window
    }

    fn reset(&mut self) {
        self.sum = Duration::ZERO;
        self.count = 0;
        self.holder = Holder::Path;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// 1 MB each 10 ms, with these round trips.
    fn run(measure: &mut Measure, rtts: &[u32]) -> Vec<Window> {
        let from = measure.past.back().map_or(0, |seen| seen.now.as_millis() as u32 / 10 + 1);
        let seen = rtts.iter().zip(from..).map(|(&rtt, n)| Observation {
            now: 10 * MS * n,
            received: Bytes(u64::from(n) * 1_000_000),
            rtt: Some(MS * rtt),
            ..Observation::default()
        });
        seen.filter_map(|seen| measure.take(&seen)).collect()
    }

    #[test]
    fn a_window_lasts_two_round_trips_and_tells_rate_and_queue() {
        let mut measure = Measure::default();
        let windows = run(&mut measure, &[20, 20, 21, 22, 23, 26, 24, 24, 24]);
        assert_eq!(windows.len(), 2);
        assert_eq!(windows[1].at, 80 * MS);
        assert_eq!(windows[1].rate.bits_per_sec(), 800_000_000);
        assert_eq!(windows[1].standing, 2 * MS);
        assert_eq!(windows[1].queue, MS * 9 / 2);
        assert_eq!(measure.standing(3), 4 * MS);
        assert_eq!(measure.rate_over(20 * MS).bits_per_sec(), 800_000_000);
    }

    #[test]
    fn the_round_trip_of_tcp_counts_until_a_probe_tells_one() {
        let mut measure = Measure::default();
        assert_eq!(measure.rtt_min(), Duration::ZERO);
        let seen = Observation { rtt_tcp: Some(25 * MS), ..Observation::default() };
        measure.take(&seen);
        assert_eq!(measure.rtt_min(), 25 * MS);
        measure.take(&Observation { rtt: Some(26 * MS), ..seen });
        assert_eq!(measure.rtt_min(), 26 * MS, "probes are answered later than TCP's segments");
    }

    #[test]
    fn round_trips_between_two_looks_count_as_those_at_looks_do() {
        let (mut often, mut seldom) = (Measure::default(), Measure::default());
        let rtts = [20, 21, 22, 23, 26, 24, 24, 25, 23];
        let all = run(&mut often, &rtts);
        let mut windows = Vec::new();
        for (n, rtt) in (0..).zip(rtts) {
            if n % 2 == 1 {
                seldom.take_rtt(MS * rtt);
                continue;
            }
            windows.extend(seldom.take(&Observation {
                now: 10 * MS * n,
                received: Bytes(u64::from(n) * 1_000_000),
                rtt: Some(MS * rtt),
                ..Observation::default()
            }));
        }
        assert_eq!(windows, all);
        assert_eq!(seldom.standing(4), often.standing(4));
    }

    #[test]
    fn the_past_that_is_kept_is_bounded() {
        let mut measure = Measure::default();
        run(&mut measure, &[20; 10_000]);
        assert!(measure.past.len() <= 22, "{}", measure.past.len());
    }
}
