//! Results of trials that tell a queue of this transfer from other delay.

use super::path::ratio;
use super::round::Round;
use super::samples::LIFETIME;
use crate::path_control::RATE_DEVIATION;
use crate::units::Rate;
use std::time::Duration;

/// Deviation of the rate within which a path stays full after a trial. (measured, beside a flow of
/// 500 Mbit/s in crates/sim/tests/sim/automatic.rs: with 0.1, trials take from its share)
const RESULT_DEVIATION: f64 = 0.15;

/// Growth of the window in a trial: twice the error of a rate. (chosen: an error then seems half of
/// the response at most)
pub(super) const TRIAL_STEP: f64 = 2.0 * RATE_DEVIATION;

/// Findings of other flows or undrained queues tolerated within ten seconds before the fallback.
/// (chosen: one or two may be chance)
pub(super) const MAX_FINDINGS: usize = 2;

/// Response to a step below which the rate or the queue does not follow. (chosen: half of that
/// beside one equal flow)
const NO_RESPONSE: f64 = 0.25;

/// Finding of a trial about the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// The rate follows alone: the delay is no queue.
    NotFull,
    /// The queue follows alone; after a small step, also anything in between.
    Full,
    /// Both follow: the share of the rate that follows is the share of other flows.
    Shared,
    /// Neither follows: the window does not limit the rate.
    NotLimited,
}

impl Finding {
    /// Returns the finding from the responses of rate and queue, as shares of the step.
    ///
    /// After a small step, an error of the rate may be half of its response.
    pub(super) fn of(rate: f64, queue: f64, is_small: bool) -> Self {
        let whole = if is_small { 1.0 - NO_RESPONSE } else { NO_RESPONSE };
        match (rate >= NO_RESPONSE, queue >= NO_RESPONSE) {
            (true, false) if rate >= whole => Self::NotFull,
            (true, true) if !is_small => Self::Shared,
            (false, false) => Self::NotLimited,
            _ => Self::Full,
        }
    }
}

/// Trial in progress, and results of earlier ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Trial {
    /// Round before, and growth of the window.
    pending: Option<(Round, f64)>,
    /// Time and rate at which the path was last found full.
    full: Option<(Duration, Rate)>,
    /// Times of trials that found other flows.
    shared: Vec<Duration>,
    /// Times of queues that reductions did not drain.
    undrained: Vec<Duration>,
}

impl Trial {
    /// Begins a trial with a step of the window.
    pub(super) fn begin(&mut self, before: &Round, step: f64) {
        self.pending = Some((*before, step));
    }

    /// Ends a trial; returns the round before it, and its step.
    pub(super) fn end(&mut self) -> Option<(Round, f64)> {
        self.pending.take()
    }

    /// Records that the path is full at the rate of a round.
    pub(super) fn on_full(&mut self, round: &Round) {
        self.full = Some((round.now, round.rate));
    }

    /// Returns true if the path was found full at about the rate of a round.
    pub(super) fn was_full(&self, round: &Round) -> bool {
        self.full.is_some_and(|(at, rate)| {
            let deviation = (ratio(round.rate, rate) - 1.0).abs();
            round.now < at + LIFETIME && deviation <= RESULT_DEVIATION
        })
    }

    /// Records that other flows share the path; returns the number of such trials.
    pub(super) fn on_shared(&mut self, now: Duration) -> usize {
        count_recent(&mut self.shared, now)
    }

    /// Records a queue that reductions did not drain; returns the number of such queues.
    pub(super) fn on_undrained_queue(&mut self, now: Duration) -> usize {
        count_recent(&mut self.undrained, now)
    }
}

/// Adds a time, and returns the number of recent ones.
fn count_recent(times: &mut Vec<Duration>, now: Duration) -> usize {
    times.retain(|at| now < *at + LIFETIME);
    times.push(now);
    times.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_follow_from_the_responses_of_rate_and_queue() {
        use Finding::{Full, NotFull, NotLimited, Shared};
        let of = |is_small| {
            [(1.0, 0.0), (0.5, 0.1), (0.0, 1.0), (0.5, 0.5), (1.0, 0.3), (0.2, 0.2), (-0.5, 0.0)]
                .map(|(rate, queue)| Finding::of(rate, queue, is_small))
        };
        assert_eq!(of(false), [NotFull, NotFull, Full, Shared, Shared, NotLimited, NotLimited]);
        assert_eq!(of(true), [NotFull, Full, Full, Full, Full, NotLimited, NotLimited]);
    }
}
