//! Outages: times in which a path delivers neither data nor probes.

use super::round::MIN_ROUND;
use crate::tcp::{MIN_RTO, MIN_RTT_FILTER_LEN};
use std::time::Duration;

/// Silence above which there is an outage: the longest time between probes, plus a round.
const MIN_OUTAGE: Duration = MIN_RTO.saturating_add(MIN_ROUND);

/// Outages of a path.
///
/// Delays measured across an outage show no queue, and the route may be another one.
#[derive(Debug, Clone, Default)]
pub(super) struct Outages {
    /// Time of the latest tick.
    observed_at: Duration,
    /// Time of the latest data or echo.
    arrived_at: Duration,
    /// True after the first echo: without probes, silence may be due to the sender.
    has_probes: bool,
    /// Length of an outage from the first echo after it to the first data.
    pending: Option<Duration>,
    /// Length of an outage that has ended, until it is taken.
    ended: Option<Duration>,
    /// Time of the first data after the latest outage.
    ended_at: Option<Duration>,
    is_route_unknown: bool,
    /// Times of recent outages.
    times: Vec<Duration>,
}

impl Outages {
    /// Records a tick; silence while the process stalled is no outage.
    pub(super) fn on_tick(&mut self, now: Duration) {
        if now > self.observed_at + MIN_ROUND {
            self.arrived_at = now;
        }
        self.observed_at = now;
    }

    /// Records an echo of a probe.
    pub(super) fn on_echo(&mut self, now: Duration) {
        self.on_arrival(now);
        self.has_probes = true;
    }

    /// Records the arrival of data.
    pub(super) fn on_data(&mut self, now: Duration) {
        self.on_arrival(now);
        if let Some(length) = self.pending.take() {
            (self.ended, self.ended_at) = (Some(length), Some(now));
        }
    }

    fn on_arrival(&mut self, now: Duration) {
        let silence = now.saturating_sub(self.arrived_at);
        self.arrived_at = now;
        if self.has_probes && silence > MIN_OUTAGE {
            (self.pending, self.is_route_unknown) = (Some(silence), true);
            self.times.retain(|at| now < *at + MIN_RTT_FILTER_LEN);
            self.times.push(now);
        }
    }

    /// Returns true from the end of an outage to the first data after it.
    pub(super) fn awaits_data(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns the length of an outage that has ended since the last call.
    pub(super) fn take_ended(&mut self) -> Option<Duration> {
        self.ended.take()
    }

    /// Returns the time of the first data after the latest outage.
    pub(super) fn ended_at(&self) -> Option<Duration> {
        self.ended_at
    }

    /// Returns the number of outages within [`MIN_RTT_FILTER_LEN`] up to the latest.
    pub(super) fn count(&self) -> usize {
        self.times.len()
    }

    /// Returns true after an outage until the route is confirmed.
    pub(super) fn is_route_unknown(&self) -> bool {
        self.is_route_unknown
    }

    /// Marks the route as known; returns true if it was unknown.
    pub(super) fn confirm_route(&mut self) -> bool {
        std::mem::take(&mut self.is_route_unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Ticks each 10 ms up to `end`; echoes arrive outside of `silence`, data until it begins.
    fn run(silence: std::ops::Range<u32>, end: u32, has_probes: bool) -> Outages {
        let mut outages = Outages::default();
        for at in (10..end).step_by(10) {
            outages.on_tick(MS * at);
            if !silence.contains(&at) {
                if has_probes {
                    outages.on_echo(MS * at);
                }
                outages.on_data(MS * at);
            }
        }
        outages
    }

    #[test]
    fn outage_is_a_silence_longer_than_that_before_a_probe() {
        let length = |silence| run(silence, 2000, true).take_ended();
        assert_eq!(length(1000..1230), None);
        assert_eq!(length(1000..1300), Some(MS * 310));
        assert_eq!(run(1000..1300, 2000, false).take_ended(), None, "no probes");
    }

    #[test]
    fn outage_ends_with_the_first_data() {
        let mut outages = run(1000..2000, 2000, true);
        outages.on_echo(MS * 1990);
        assert!(outages.awaits_data() && outages.is_route_unknown());
        assert_eq!((outages.take_ended(), outages.ended_at()), (None, None));
        outages.on_data(MS * 2100);
        assert_eq!(outages.ended_at(), Some(MS * 2100));
        assert_eq!((outages.take_ended(), outages.take_ended()), (Some(MS * 1000), None));
        assert_eq!([outages.confirm_route(), outages.confirm_route()], [true, false]);
    }

    #[test]
    fn stall_of_the_process_is_no_outage() {
        let mut outages = run(0..0, 1000, true);
        outages.on_tick(MS * 1500);
        outages.on_echo(MS * 1500);
        outages.on_data(MS * 1500);
        assert_eq!((outages.take_ended(), outages.count()), (None, 0));
    }

    #[test]
    fn outages_of_ten_seconds_are_counted() {
        let mut outages = Outages::default();
        for at in (10..30_000).step_by(10) {
            outages.on_tick(MS * at);
            if at % 4_000 >= 500 {
                outages.on_echo(MS * at);
            }
        }
        assert_eq!(outages.count(), 3);
    }
}
