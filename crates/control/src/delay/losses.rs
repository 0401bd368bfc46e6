//! Losses without a queue, over recent rounds.

use super::samples::repair_time;
use std::collections::VecDeque;
use std::time::Duration;

/// Time for which losses without a queue are remembered, and growth pauses after a probe.
/// (measured, docs/algorithms/delay.md: with shorter pauses a policed path carries 3 % less)
pub(super) const LOSS_MEMORY: Duration = Duration::from_secs(3);

/// Losses without a queue that may be due to the rate. (measured, docs/algorithms/sensitivity.md:
/// with one, policers lose more; with four, random loss is found late)
pub(super) const MAX_LOSSES: usize = 2;

/// Overflows that may be due to this transfer. (measured, kinds in virtual time: with two, a path
/// beside a CUBIC flow carries 3 % less)
pub(super) const MAX_OVERFLOWS: usize = 3;

/// Rounds that lost segments without a queue.
#[derive(Debug, Clone, Default)]
pub(super) struct LossHistory {
    events: VecDeque<Duration>,
}

impl LossHistory {
    /// Records a round that lost segments; returns the number of remembered events.
    pub(super) fn record(&mut self, now: Duration, rtt: Duration) -> usize {
        // The repair of an event causes further losses and retransmissions.
        let is_repaired = |at: &Duration| now >= *at + repair_time(rtt);
        if self.events.back().is_none_or(is_repaired) {
            self.events.push_back(now);
        }
        while self.events.front().is_some_and(|&at| now > at + LOSS_MEMORY) {
            self.events.pop_front();
        }
        self.events.len()
    }

    /// Returns the number of remembered events.
    pub(super) fn count(&self) -> u32 {
        self.events.len() as u32
    }

    /// Returns true if there was an event lately.
    pub(super) fn is_recent(&self, now: Duration) -> bool {
        self.events.back().is_some_and(|&at| now <= at + LOSS_MEMORY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_three_seconds_are_remembered() {
        let run = |interval: u64, rtt: u64| {
            let mut losses = LossHistory::default();
            let at = Duration::from_millis;
            (0..40).position(|n| losses.record(at(n * interval), at(rtt)) > MAX_OVERFLOWS)
        };
        assert_eq!([run(100, 50), run(100, 200), run(1_200, 50)], [Some(9), Some(24), None]);
    }
}
