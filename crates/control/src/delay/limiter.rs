//! Window of a limited path, adjusted after each round.
//!
//! A round is an RTT in which a change takes effect, and a measurement.

use super::losses::{LOSS_MEMORY, LossHistory, MAX_LOSSES, MAX_OVERFLOWS};
use super::path::{Path, bytes_at, rate_of, ratio, scaled};
use super::round::{Outcome, Reductions, Round};
use super::samples::{LIFETIME, MIN_ROUND, REPAIR_TIME, STANDING_SAMPLES, repair_time};
use super::target::{Level, QueueTarget};
use super::trial::{MAX_FINDINGS, TRIAL_STEP, Trial};
use crate::bottleneck::Bottleneck;
use crate::path_control::{Observation, RATE_DEVIATION, Reason, START_GAIN, State, TICK};
use crate::tcp::CUBIC_BETA;
use crate::units::Rate;
use std::collections::VecDeque;
use std::time::Duration;

/// Smallest and largest step of growth.
///
/// Half of the error of a rate, as a step of the whole error overflows a queue of 0.02 BDP, and
/// half of slow start's growth.
pub(super) const STEP_RANGE: (f64, f64) = ((1.0 - START_GAIN) / 2.0, 0.5);

/// Steps in a row above the capacity that do not refute it. (chosen: the bucket of a policer passes
/// some)
const MAX_STEPS_ABOVE_CAPACITY: u32 = 2;

/// Gain of the window's correction by the error of the queue. (chosen: stable with a delay of one
/// round)
const TRIM_GAIN: f64 = 0.5;

/// Minimum share of the limit at which the window counts as limiting: within the error of a rate.
pub(super) const USED_SHARE: f64 = 1.0 - RATE_DEVIATION;

/// Consecutive rounds with a queue of acknowledgements that show a slow reverse path. (chosen: slow
/// start may cause one for a round or two)
const ACK_LIMITED_ROUNDS: u32 = 2;

/// Share of the RTT above which a queue is reduced without a trial. (chosen: a trial adds as much)
pub(super) const MAX_TRIAL_QUEUE: f64 = TRIAL_STEP;

/// Queueing delay above which a queue is long, in RTTs. (measured, `cellular-weak` in virtual time:
/// without this rule, a path of 0.4 to 4 Mbit/s carries a quarter less)
pub(super) const LONG_QUEUE_RTTS: u32 = 2;

/// Growth of the window.
#[derive(Debug, Clone, Default)]
struct Growth {
    /// Last step; zero if the window does not grow.
    step: f64,
    /// Steps in a row with a rate above the capacity.
    steps_above_capacity: u32,
    /// Time of the next step at the earliest.
    next_at: Duration,
    /// Start of a time without a change, losses or a queue, and the rate then.
    unchanged: Option<(Duration, Rate)>,
    /// Share of the limit that TCP does not reach at a steady rate.
    unreached: f64,
}

impl Growth {
    /// Ends growth, until the queue is short again.
    fn stop(&mut self) {
        self.step = 0.0;
    }
}

/// Window of a limited path.
#[derive(Debug, Clone, Default)]
pub(super) struct Limiter {
    /// Data in flight of all streams together, in bytes.
    pub(super) window: f64,
    /// Rate that it allows, while the pacing rate alone limits.
    paced: Rate,
    /// Pacing rate that was requested last.
    requested: Rate,
    pub(super) target: QueueTarget,
    /// Losses without a queue.
    losses: LossHistory,
    /// Overflows of a queue at less than half of the line.
    overflows: LossHistory,
    /// Time at which the last change has taken effect.
    pub(super) settled_at: Duration,
    growth: Growth,
    /// Rate without losses, after losses without a queue.
    lossless: Option<Rate>,
    pub(super) reductions: Option<Reductions>,
    pub(super) trial: Trial,
    /// Window to restore after the base delay was measured without a queue.
    drained_window: Option<f64>,
    /// Time since when the window does not limit the rate.
    unused_since: Option<Duration>,
    /// Rounds in a row with a queue of acknowledgements.
    ack_limited_rounds: u32,
    /// Rates of the latest rounds.
    rates: VecDeque<(Duration, Rate)>,
}

impl Limiter {
    /// Begins to limit a path to a rate, with the target queue.
    pub(super) fn start(&mut self, path: &Path, rate: Rate, now: Duration) {
        let (target, losses) = (self.target.clone(), self.losses.clone());
        *self = Self { target, losses, ..Self::default() };
        (self.window, self.paced) = (self.window_for(path, rate).max(path.least_window()), rate);
        (self.requested, self.settled_at) = (self.limit(path), now + path.samples.rtt());
    }

    /// Counts the present window as the first reduction of the one that built a queue.
    pub(super) fn begin_draining(&mut self, path: &Path, rate: Rate, queue: Duration) {
        let window = bytes_at(rate, path.rtt() + queue);
        self.reductions = Some(Reductions { window, queue, rate, count: 1, has_lost: false });
    }

    /// Records a loss of the start without a queue.
    pub(super) fn on_start_loss(&mut self, path: &Path, at: Duration) {
        self.losses.record(at, path.rtt());
    }

    /// Forgets losses, as the congestion control has changed.
    pub(super) fn forget_losses(&mut self) {
        self.losses = LossHistory::default();
    }

    /// Returns the window of a rate, with the target queue.
    fn window_for(&self, path: &Path, rate: Rate) -> f64 {
        bytes_at(rate, path.rtt() + self.target.queue(path.rtt()))
    }

    /// Returns the rate that the window allows, with the target queue.
    pub(super) fn limit(&self, path: &Path) -> Rate {
        rate_of(self.window, path.rtt() + self.target.queue(path.rtt()))
    }

    /// Processes an observation; at the end of a round, adjusts the window.
    pub(super) fn observe(&mut self, path: &mut Path, latest: &Observation) -> Outcome {
        if let Some(length) = path.samples.outages.take_ended() {
            return self.on_outage(path, latest.now, length);
        }
        if path.samples.outages.awaits_data() {
            return Outcome::Kept;
        }
        let Some(round) = self.measure(path, latest) else { return Outcome::Kept };
        // At a host bottleneck the host responds late, and no queue grows on the path.
        if latest.bottleneck != Bottleneck::Path {
            self.settled_at = round.now;
            return Outcome::Kept;
        }
        // Unlike a window, a pacing rate does not depend on the delay of acknowledgements.
        if path.is_paced_alone() {
            self.window = self.window_for(path, self.paced);
        }
        self.record(path, &round);
        if self.ack_limited_rounds >= ACK_LIMITED_ROUNDS && !path.is_reverse_path_slow {
            path.is_reverse_path_slow = true;
            return Outcome::Left(Reason::AckQueue(path.samples.reverse_queueing_delay()));
        }
        let outcome = self.end_round(path, &round);
        self.paced = self.limit(path);
        outcome
    }

    /// Discards what was measured before an outage, and awaits the effect of the window.
    ///
    /// A path that fails again and again is left to TCP.
    fn on_outage(&mut self, path: &Path, now: Duration, length: Duration) -> Outcome {
        if path.samples.outages.count() > MAX_FINDINGS {
            return Outcome::Left(Reason::Unsteady);
        }
        self.window /= 1.0 + self.trial.end().map_or(0.0, |(_, step)| step);
        self.window = self.drained_window.take().unwrap_or(self.window);
        (self.reductions, self.unused_since, self.growth.unchanged) = (None, None, None);
        self.growth.stop();
        self.requested = self.limit(path);
        self.settled_at = now + path.rtt() + TICK;
        Outcome::Changed(State::Limited, Reason::Interrupted(length))
    }

    /// Returns the measurements of a round that has ended.
    fn measure(&mut self, path: &Path, latest: &Observation) -> Option<Round> {
        let (now, from) = (latest.now, self.settled_at);
        if now < from {
            return None;
        }
        let (samples, rtt) = (&path.samples, path.samples.rtt());
        let queue = if now >= from + (rtt / 2).max(MIN_ROUND) {
            samples.least_queue(from).filter(|(_, count)| *count > 1)?.0
        } else {
            let queue = samples.latest_queue(STANDING_SAMPLES, from);
            Some(queue).filter(|&queue| self.target.level(queue, path.rtt()) == Level::High)?
        };
        let is_lossy = samples.retransmits_since(now.saturating_sub(rtt * REPAIR_TIME.0)) > 0;
        // A repair delivers all data behind a loss at once.
        let rate_time = if is_lossy { rtt * REPAIR_TIME.0 } else { rtt };
        let rate = samples.rate_over(rate_time.max(MIN_ROUND));
        // A rate of zero means an interrupted path or a silent sender.
        let segment = rate.time_for(path.mss).filter(|_| rate.bits_per_sec() > 0)?;
        self.target.set_segment(segment);
        Some(Round { now, rate, queue, retransmits: samples.retransmits_since(from) })
    }

    /// Remembers the rate, and counts queues of acknowledgements.
    fn record(&mut self, path: &Path, round: &Round) {
        let rate = round.rate.min(self.limit(path));
        self.rates.push_back((round.now, rate));
        while self.rates.front().is_some_and(|(at, _)| round.now > *at + LIFETIME) {
            self.rates.pop_front();
        }
        let allowed = (path.samples.min_rtt() / 2).max(TICK);
        let is_ack_limited = path.samples.reverse_queueing_delay() > allowed
            && !path.samples.outages.is_route_unknown()
            && self.target.level(round.queue, path.rtt()) != Level::High;
        self.ack_limited_rounds = if is_ack_limited { self.ack_limited_rounds + 1 } else { 0 };
    }

    /// Returns the highest rate of the remembered rounds.
    fn highest_rate(&self) -> Rate {
        self.rates.iter().map(|(_, rate)| *rate).max().unwrap_or_default()
    }

    fn end_round(&mut self, path: &mut Path, round: &Round) -> Outcome {
        if let Some(window) = self.drained_window.take() {
            path.samples.rebase(self.settled_at, round.now);
            self.window = window;
            return self.change(path, round, State::Limited, Reason::QueueDrained(round.rate));
        }
        let data = bytes_at(round.rate, round.now.saturating_sub(self.settled_at));
        // No lower rate saves the segments of an outage.
        let is_expected =
            path.is_repairing_outage(round.now) || path.is_baseline_loss(round.retransmits, data);
        if round.retransmits > 0 && !is_expected {
            self.window /= 1.0 + self.trial.end().map_or(0.0, |(_, step)| step);
            return self.attribute(path, round).unwrap_or_else(|| self.on_loss(path, round));
        }
        if self.target.level(round.queue, path.rtt()) != Level::High {
            path.samples.confirm_route(self.settled_at, round.now);
        }
        if round.retransmits == 0 && !path.samples.outages.is_route_unknown() {
            self.target.on_held(round.queue, round.now);
        }
        if let Some(outcome) = self.end_trial(path, round).or_else(|| self.attribute(path, round)) {
            return outcome;
        }
        if self.is_window_abandoned(path, round) {
            let is_shared = self.overflows.is_recent(round.now);
            let shared = Reason::SharedOverflow(round.queue);
            return Outcome::Left(if is_shared { shared } else { Reason::Unused });
        }
        let level = self.target.level(round.queue, path.rtt());
        self.measure_unreached(path, round, level);
        let is_window_limiting = self.is_window_limiting(path, round);
        let full = path.capacity.map(|line| scaled(line, USED_SHARE));
        if (is_window_limiting || level == Level::High)
            && !self.target.on_round(level, round, path.rtt(), full)
        {
            return Outcome::Left(Reason::Unsteady);
        }
        match level {
            _ if !is_window_limiting => self.wait(round),
            Level::Low => self.grow(path, round),
            _ if self.needs_trial(path, round) => self.begin_trial(path, round),
            Level::High => {
                self.reduce(path, round, round.queue);
                let reason = Reason::StandingQueue(round.queue);
                self.change(path, round, State::Limited, reason)
            }
            Level::Near => self.hold(path, round),
        }
    }

    /// Measures another round with the same window.
    fn wait(&mut self, round: &Round) -> Outcome {
        self.settled_at = round.now;
        Outcome::Kept
    }

    /// Applies the window, and awaits its effect.
    pub(super) fn change(
        &mut self,
        path: &Path,
        round: &Round,
        state: State,
        reason: Reason,
    ) -> Outcome {
        self.window = self.window.max(path.least_window());
        let limit = self.limit(path);
        if (ratio(limit, self.requested) - 1.0).abs() > STEP_RANGE.0 {
            self.growth.unchanged = None;
        }
        self.requested = limit;
        // A request waits for a tick.
        self.settled_at = round.now + path.samples.rtt() + TICK;
        Outcome::Changed(state, reason)
    }

    /// Measures the share of the limit that TCP does not reach.
    ///
    /// After losses, TCP's rate still rises. Once it is steady, the window counts as limiting
    /// despite this share, which is due to whole segments, bursts and their delay.
    fn measure_unreached(&mut self, path: &Path, round: &Round, level: Level) {
        let rate = path.samples.rate_over(repair_time(path.samples.rtt()));
        let share = (1.0 - ratio(rate, self.limit_with(path, round))).max(0.0);
        let (since, before) = *self.growth.unchanged.get_or_insert((round.now, rate));
        if round.retransmits > 0 || level == Level::High {
            self.growth.unchanged = None;
        } else if rate > scaled(before, 1.0 + STEP_RANGE.0) {
            self.growth.unchanged = Some((round.now, rate));
        } else if round.now > since + LOSS_MEMORY {
            self.growth.unreached = share.min(1.0 - CUBIC_BETA);
        }
        self.growth.unreached = self.growth.unreached.min(share);
    }

    /// Returns true if the window limits the rate.
    fn is_window_limiting(&self, path: &Path, round: &Round) -> bool {
        round.rate >= scaled(self.limit_with(path, round), USED_SHARE - self.growth.unreached)
    }

    /// Returns the rate that the window allows, with the present queue.
    fn limit_with(&self, path: &Path, round: &Round) -> Rate {
        let queued = path.rtt() + self.target.queue(path.rtt()).max(round.queue);
        // Bounded by the last request, as the RTT may have fallen since.
        rate_of(self.window, queued.max(path.samples.data_rtt())).min(self.requested)
    }

    /// Returns true if TCP has left the window unused for a repair time.
    fn is_window_abandoned(&mut self, path: &Path, round: &Round) -> bool {
        let limit = self.limit_with(path, round);
        if path.baseline_loss.is_some() || round.rate > scaled(limit, CUBIC_BETA) {
            self.unused_since = None;
            return false;
        }
        let since = *self.unused_since.get_or_insert(round.now);
        round.now > since + repair_time(path.rtt())
    }

    /// Widens the window; steps double while no queue appears.
    fn grow(&mut self, path: &mut Path, round: &Round) -> Outcome {
        self.reductions = None;
        let limit = self.limit(path);
        // BBR fills the line by itself.
        let line = path.capacity.filter(|_| path.baseline_loss.is_some());
        let is_allowed = path.rate_max.into_iter().chain(line).all(|max| limit < max);
        // Beyond the capacity, TCP has to use the whole window first.
        let is_beyond = path.capacity.is_some_and(|line| limit >= line);
        let is_unused = is_beyond && round.rate < scaled(limit, START_GAIN - self.growth.unreached);
        // The RTT has fallen since the last request, and the rate that the window allows has risen.
        if is_unused && limit > scaled(self.requested, 1.0 + STEP_RANGE.0) {
            let reason = Reason::QueueHeld(round.rate, round.queue);
            return self.change(path, round, State::Limited, reason);
        }
        if !is_allowed || is_unused || round.now < self.growth.next_at {
            return self.wait(round);
        }
        let step = self.next_step(path, round, limit);
        self.grow_by(path, round, step)
    }

    /// Returns the next step.
    ///
    /// Twice the last step; after two steps, at least half of the distance to a rate that the path
    /// has carried before.
    fn next_step(&mut self, path: &mut Path, round: &Round, limit: Rate) -> f64 {
        let (least, largest) = STEP_RANGE;
        let half_target = self.target.queue(path.rtt()).div_duration_f64(path.rtt()) / 2.0;
        let least = half_target.clamp(least, largest);
        let step = (self.growth.step * 2.0).clamp(least, largest);
        let distance = |rate: Rate| ratio(rate, limit) - 1.0;
        let recent = distance(self.highest_rate()) / 2.0;
        let step = if self.growth.step > least { step.max(recent).min(largest) } else { step };
        let Some(capacity) = path.capacity else { return step };
        // Under BBR, repairs deliver more than the line within an RTT.
        let is_above =
            path.baseline_loss.is_none() && round.rate > scaled(capacity, 1.0 + STEP_RANGE.0);
        self.growth.steps_above_capacity =
            if is_above { self.growth.steps_above_capacity + 1 } else { 0 };
        if self.growth.steps_above_capacity > MAX_STEPS_ABOVE_CAPACITY {
            (path.capacity, self.growth.steps_above_capacity) = (None, 0);
        }
        let line = distance(capacity);
        if line <= least {
            return least;
        }
        if self.growth.step > least { step.max(line / 2.0).min(line) } else { step.min(line) }
    }

    /// Widens the window by a step.
    pub(super) fn grow_by(&mut self, path: &Path, round: &Round, step: f64) -> Outcome {
        self.growth.step = step;
        self.window *= 1.0 + step;
        self.change(path, round, State::Growing, Reason::RateRose(round.rate))
    }

    /// Keeps a window that left no queue, and ends growth.
    pub(super) fn keep(&mut self, path: &Path, round: &Round) -> Outcome {
        self.growth.stop();
        self.change(path, round, State::Limited, Reason::RateRose(round.rate))
    }

    /// Moves the window so that the queue approaches its target.
    ///
    /// Drains the queue if the base delay has expired.
    fn hold(&mut self, path: &Path, round: &Round) -> Outcome {
        self.reductions = None;
        self.growth.stop();
        let (rtt, target) = (path.rtt(), self.target.queue(path.rtt()));
        if path.samples.is_base_expired(round.now) && !path.samples.has_floor() {
            self.drained_window = Some(self.window);
            self.window = bytes_at(round.rate, rtt.saturating_sub(target)).min(self.window);
            return self.change(path, round, State::Limited, Reason::BaseDelayExpired);
        }
        let error = target.as_secs_f64() - round.queue.as_secs_f64();
        self.window *= 1.0 + TRIM_GAIN * error / (rtt + target).as_secs_f64();
        let reason = Reason::QueueHeld(round.rate, round.queue);
        self.change(path, round, State::Limited, reason)
    }

    /// Reduces the window so that the queue falls to its target.
    fn reduce(&mut self, path: &Path, round: &Round, queue: Duration) {
        self.growth.stop();
        // A queue that has doubled since the first reduction is a new one.
        let (window, rate) = (self.window, round.rate);
        let first = Reductions { window, queue, rate, count: 0, has_lost: false };
        let same = self.reductions.filter(|earlier| queue <= earlier.queue * 2);
        let earlier = same.unwrap_or(first);
        let has_lost = earlier.has_lost || round.retransmits > 0;
        self.reductions = Some(Reductions { count: earlier.count + 1, has_lost, ..earlier });
        let rtt = path.rtt();
        let share = (rtt + self.target.queue(rtt)).div_duration_f64(rtt + queue);
        self.window *= share.clamp(CUBIC_BETA, 1.0);
    }

    /// Returns the rate that the path has sustained.
    fn sustained_rate(&self, path: &Path) -> Rate {
        // The bucket of a policer passes more for a shorter time.
        let sustained = path.samples.highest_rate(repair_time(path.samples.rtt()));
        sustained.max(scaled(self.highest_rate(), USED_SHARE))
    }

    /// Records an overflow; returns true if other flows cause it.
    ///
    /// They then fill most of the line and keep a long queue; bursts alone overflow only short
    /// ones.
    pub(super) fn record_shared_overflow(
        &mut self,
        path: &Path,
        now: Duration,
        rate: Rate,
    ) -> bool {
        let (rtt, min_rtt) = (path.samples.rtt(), path.samples.min_rtt());
        let is_long = rtt > min_rtt + min_rtt.mul_f64(MAX_TRIAL_QUEUE);
        is_long && path.is_minor_share(rate) && self.overflows.record(now, rtt) > MAX_OVERFLOWS
    }

    /// Reacts to losses: a queue overflowed, or the path drops above some rate, or at random.
    fn on_loss(&mut self, path: &mut Path, round: &Round) -> Outcome {
        let rtt = path.samples.rtt();
        let queue = path.samples.largest_queue(round.now.saturating_sub(rtt * 2));
        self.growth.stop();
        if self.target.level(queue, path.rtt()) != Level::Low {
            if self.record_shared_overflow(path, round.now, round.rate) {
                return Outcome::Left(Reason::SharedOverflow(queue));
            }
            path.samples.confirm_route(self.settled_at, round.now);
            self.target.on_overflow(queue);
            self.trial.on_full(round);
            // Other traffic may have the rest of the line.
            let limit = self.limit(path);
            path.capacity = path.capacity.map(|line| line.min(limit));
            self.reduce(path, round, queue);
            return self.change(path, round, State::Limited, Reason::Overflowed(round.rate));
        }
        let rate = self.sustained_rate(path);
        if path.is_starting(round.now) && path.is_below_line(rate) {
            return self.wait(round);
        }
        // Losses of a probe above a lossless rate are due to the rate.
        let limit = self.limit(path);
        let is_probe = self.lossless.is_some_and(|rate| limit > scaled(rate, 1.0 + STEP_RANGE.0));
        if !is_probe && self.losses.record(round.now, path.rtt()) > MAX_LOSSES {
            return Outcome::Left(Reason::CongestedLoss);
        }
        let lossless = scaled(rate.min(limit), START_GAIN);
        self.window = self.window_for(path, lossless).min(self.window);
        (self.lossless, path.capacity) = (Some(lossless), Some(lossless));
        let pause = if is_probe { LOSS_MEMORY } else { REPAIR_TIME.1 * self.losses.count() };
        self.growth.next_at = round.now + pause;
        self.change(path, round, State::Limited, Reason::LostWithoutQueue)
    }
}
