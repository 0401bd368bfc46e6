//! Losses without a queue, over recent rounds.

use super::samples::repair_time;
use std::collections::VecDeque;
use std::time::Duration;

/// Time for which such losses are remembered, and growth pauses after a probe. (measured,
/// docs/algorithms/delay.md: with shorter pauses a policed path carries 3 % less)
pub(super) const MEMORY: Duration = Duration::from_secs(3);

/// Events that may be due to the rate. (chosen: the start, and two probes)
const MAX_EVENTS: usize = 3;

/// Rounds that lost segments without a queue.
#[derive(Debug, Clone, Default)]
pub(super) struct LossHistory {
    events: VecDeque<Duration>,
}

impl LossHistory {
    /// Records a round that lost segments; returns true if lower rates do not end the losses.
    pub(super) fn record(&mut self, now: Duration, rtt: Duration) -> bool {
        // The repair of an event loses and sends again.
        let is_repaired = |at: &Duration| now >= *at + repair_time(rtt);
        if self.events.back().is_none_or(is_repaired) {
            self.events.push_back(now);
        }
        while self.events.front().is_some_and(|&at| now > at + MEMORY) {
            self.events.pop_front();
        }
        self.events.len() > MAX_EVENTS
    }

    /// Returns the number of remembered events.
    pub(super) fn count(&self) -> u32 {
        self.events.len() as u32
    }

    /// Returns true if there was an event lately.
    pub(super) fn is_recent(&self, now: Duration) -> bool {
        self.events.back().is_some_and(|&at| now <= at + MEMORY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fourth_event_in_three_seconds_is_not_due_to_the_rate() {
        let run = |interval: u64, rtt: u64| {
            let mut losses = LossHistory::default();
            let at = Duration::from_millis;
            (0..40).position(|n| losses.record(at(n * interval), at(rtt)))
        };
        assert_eq!([run(100, 50), run(100, 200), run(1_200, 50)], [Some(9), Some(24), None]);
    }
}
