//! Attribution of a delay: trials with a wider window, and the outcome of reductions.

use super::limiter::{LONG_QUEUE_RTTS, Limiter, MAX_TRIAL_QUEUE, USED_SHARE};
use super::path::{Path, ratio, scaled};
use super::round::{Outcome, Round};
use crate::path_control::{RATE_DEVIATION, Reason, START_GAIN, State};
use crate::tcp::CUBIC_BETA;

/// Growth of the window in a trial: twice the error of a rate. (chosen: an error then seems half of
/// the response at most; measured, docs/algorithms/sensitivity.md: twice as much regrets more)
const TRIAL_STEP: f64 = 2.0 * RATE_DEVIATION;

/// The same at the rate that packet trains measured: twice the error of a rate.
const SMALL_TRIAL_STEP: f64 = (1.0 - START_GAIN) * 2.0;

/// Responses to a step that are none, or nearly the whole. (chosen: halfway to the response beside
/// one equal flow)
const RESPONSE_BOUNDS: (f64, f64) = (0.25, 0.75);

/// Trials with other flows, or queues that stay, within ten seconds before TCP takes over. (chosen:
/// one or two may be chance)
const MAX_FINDINGS: usize = 2;

/// Reductions in which it is removed. (measured, a fluid model in delay/tests.rs: one may coincide
/// with a fall of the rate)
const MIN_CUTS: u32 = 2;

impl Limiter {
    /// Returns true if the delay may be no queue of a full path.
    pub(super) fn needs_trial(&self, path: &Path, round: &Round) -> bool {
        if path.baseline_loss.is_some() {
            return false;
        }
        // After a pause, the route may be another.
        if path.samples.resumed_at().is_some() {
            return true;
        }
        round.queue <= path.rtt().mul_f64(MAX_TRIAL_QUEUE) && !self.trial.was_full(round)
    }

    /// Widens the window to see whether the rate follows.
    pub(super) fn begin_trial(&mut self, path: &Path, round: &Round) -> Outcome {
        let is_near = path.capacity.is_some_and(|line| round.rate >= scaled(line, USED_SHARE));
        let step = if is_near { SMALL_TRIAL_STEP } else { TRIAL_STEP };
        self.cut = None;
        self.trial.begin(round, step);
        self.window *= 1.0 + step;
        self.change(path, round, State::Growing, Reason::ProbeUp)
    }

    /// Evaluates a trial.
    ///
    /// The rate follows the window if the path is not full, the queue if it is, and both in part if
    /// other flows share it.
    pub(super) fn end_trial(&mut self, path: &mut Path, round: &Round) -> Option<Outcome> {
        let (before, step) = self.trial.end()?;
        let has_resumed = path.samples.end_resumption();
        let rate = (ratio(round.rate, before.rate) - 1.0) / step;
        let grown = round.queue.saturating_sub(before.queue);
        let queue = grown.div_duration_f64(path.rtt()) / step;
        let (small, large) = RESPONSE_BOUNDS;
        if rate > large && queue < small {
            if has_resumed {
                path.samples.rebase(self.settled_at, round.now);
            } else {
                path.samples.raise_floor(round.queue, round.now);
                path.capacity = None;
            }
            // The verdict of a small one lies within the error of a rate.
            if step <= SMALL_TRIAL_STEP {
                return Some(self.change(
                    path,
                    round,
                    State::Growing,
                    Reason::RateRose(round.rate),
                ));
            }
            return Some(self.grow_by(path, round, step * 2.0));
        }
        // If neither follows, TCP does not use the window yet.
        if rate >= small || queue >= small {
            if rate > small && step > SMALL_TRIAL_STEP {
                let count = self.trial.on_shared(round.now);
                if count > MAX_FINDINGS || path.is_minor_share(round.rate) {
                    return Some(Outcome::Left(Reason::SharedQueue(round.queue)));
                }
            } else {
                self.trial.on_full(&before);
            }
            self.window /= 1.0 + step;
        }
        Some(self.change(path, round, State::Limited, Reason::NoGain(round.rate)))
    }

    /// Decides whether a queue that was to drain is one of this transfer.
    pub(super) fn attribute(&mut self, path: &mut Path, round: &Round) -> Option<Outcome> {
        let cut = self.cut?;
        let share = 1.0 - self.window / cut.window;
        let expected = (path.rtt() + cut.queue).mul_f64(share.max(0.0));
        let has_drained = cut.queue >= round.queue + expected / 2;
        let has_rate_followed = round.rate < scaled(cut.rate, 1.0 - share / 2.0);
        if !has_rate_followed && share > SMALL_TRIAL_STEP {
            self.trial.on_full(round);
        }
        if has_drained || !has_rate_followed {
            self.cut = None;
            return None;
        }
        // A falling rate hides the effect of less.
        let is_enough = share >= 1.0 - CUBIC_BETA || self.window <= path.least_window();
        // A round lasts as long as the queue: after a long one, a second reduction is too late.
        let is_long = round.queue > path.rtt() * LONG_QUEUE_RTTS;
        if (cut.count < MIN_CUTS && !is_long) || !is_enough {
            return None;
        }
        self.cut = None;
        let reason = Reason::CongestedQueue(round.queue);
        let count = self.trial.on_foreign_queue(round.now);
        // Another route loses nothing.
        let has_lost = cut.has_lost || round.retransmits > 0;
        if has_lost && path.is_minor_share(round.rate) {
            return Some(Outcome::Left(Reason::SharedOverflow(round.queue)));
        }
        // Reductions alone may leave less than half of the line.
        if count > MAX_FINDINGS || is_long || path.is_minor_share(cut.rate) {
            return Some(Outcome::Left(reason));
        }
        if path.samples.is_base_expired(round.now) {
            path.samples.rebase(self.settled_at, round.now);
        } else {
            path.samples.raise_floor(round.queue, round.now);
        }
        self.window = cut.window;
        Some(self.change(path, round, State::Limited, reason))
    }
}
