//! Attribution of a delay: trials with a wider window, and the outcome of reductions.

use super::limiter::{LONG_QUEUE_RTTS, Limiter, MAX_TRIAL_QUEUE, USED_SHARE};
use super::path::{Path, ratio, scaled};
use super::round::{Outcome, Round};
use super::trial::{Finding, MAX_FINDINGS, TRIAL_STEP};
use crate::path_control::{Reason, START_GAIN, State};
use crate::tcp::CUBIC_BETA;

/// Growth of the window in a trial near the capacity: twice the error of packet trains.
const SMALL_TRIAL_STEP: f64 = (1.0 - START_GAIN) * 2.0;

/// Minimum number of reductions before a queue is attributed to other flows. (measured, fluid model
/// in delay/tests.rs: a single one may coincide with a fall of the rate)
const MIN_REDUCTIONS: u32 = 2;

impl Limiter {
    /// Returns true if the delay may be no queue of a full path.
    pub(super) fn needs_trial(&self, path: &Path, round: &Round) -> bool {
        if path.baseline_loss.is_some() {
            return false;
        }
        if path.samples.outages.is_route_unknown() {
            return true;
        }
        round.queue <= path.rtt().mul_f64(MAX_TRIAL_QUEUE) && !self.trial.was_full(round)
    }

    /// Widens the window to see whether the rate follows.
    pub(super) fn begin_trial(&mut self, path: &Path, round: &Round) -> Outcome {
        let is_near = path.capacity.is_some_and(|line| round.rate >= scaled(line, USED_SHARE));
        let is_small = is_near && !path.samples.outages.is_route_unknown();
        let step = if is_small { SMALL_TRIAL_STEP } else { TRIAL_STEP };
        self.reductions = None;
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
        let rate = (ratio(round.rate, before.rate) - 1.0) / step;
        let grown = round.queue.saturating_sub(before.queue);
        let queue = grown.div_duration_f64(path.rtt()) / step;
        let finding = Finding::of(rate, queue, step <= SMALL_TRIAL_STEP);
        if matches!(finding, Finding::Full | Finding::Shared) {
            path.samples.confirm_route(self.settled_at, round.now);
            self.window /= 1.0 + step;
        }
        match finding {
            Finding::NotFull => return Some(self.end_queueless_trial(path, round, step)),
            Finding::Full => self.trial.on_full(&before),
            Finding::Shared => {
                let count = self.trial.on_shared(round.now);
                if count > MAX_FINDINGS || path.is_minor_share(round.rate) {
                    return Some(Outcome::Left(Reason::SharedQueue(round.queue)));
                }
            }
            // TCP does not use the window yet.
            Finding::NotLimited => {}
        }
        Some(self.change(path, round, State::Limited, Reason::NoGain(round.rate)))
    }

    /// Treats the delay as no queue, since the rate has followed the window.
    fn end_queueless_trial(&mut self, path: &mut Path, round: &Round, step: f64) -> Outcome {
        if path.samples.outages.is_route_unknown() {
            path.samples.rebase(self.settled_at, round.now);
            path.samples.confirm_route(self.settled_at, round.now);
            return self.grow_by(path, round, step * 2.0);
        }
        path.samples.raise_floor(round.queue, round.now);
        path.capacity = None;
        if step > SMALL_TRIAL_STEP {
            return self.grow_by(path, round, step * 2.0);
        }
        // A response to a small step may be an error of the rate.
        self.keep(path, round)
    }

    /// Decides, by the effect of the reductions, whether this transfer causes the queue.
    pub(super) fn attribute(&mut self, path: &mut Path, round: &Round) -> Option<Outcome> {
        let reductions = self.reductions?;
        let share = 1.0 - self.window / reductions.window;
        let expected = (path.rtt() + reductions.queue).mul_f64(share.max(0.0));
        let has_drained = reductions.queue >= round.queue + expected / 2;
        let has_rate_followed = round.rate < scaled(reductions.rate, 1.0 - share / 2.0);
        if !has_rate_followed && share > SMALL_TRIAL_STEP {
            self.trial.on_full(round);
        }
        if has_drained || !has_rate_followed {
            self.reductions = None;
            return None;
        }
        // A falling rate hides the effect of smaller reductions.
        let is_enough = share >= 1.0 - CUBIC_BETA || self.window <= path.least_window();
        // A round lasts as long as the queue: after a long one, a second reduction is too late.
        let is_long = round.queue > path.rtt() * LONG_QUEUE_RTTS;
        if (reductions.count < MIN_REDUCTIONS && !is_long) || !is_enough {
            return None;
        }
        self.reductions = None;
        let reason = Reason::CongestedQueue(round.queue);
        let count = self.trial.on_undrained_queue(round.now);
        // A change of route alone causes no losses.
        let has_lost = reductions.has_lost || round.retransmits > 0;
        if has_lost && path.is_minor_share(round.rate) {
            return Some(Outcome::Left(Reason::SharedOverflow(round.queue)));
        }
        // The rate before counts, as the reductions alone may leave less than half of the line.
        if count > MAX_FINDINGS || is_long || path.is_minor_share(reductions.rate) {
            return Some(Outcome::Left(reason));
        }
        if path.samples.is_base_expired(round.now) {
            path.samples.rebase(self.settled_at, round.now);
        } else {
            path.samples.raise_floor(round.queue, round.now);
        }
        self.window = reductions.window;
        Some(self.change(path, round, State::Limited, reason))
    }
}
