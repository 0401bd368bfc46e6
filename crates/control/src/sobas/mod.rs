//! SOBAS: window and pacing rate of a TCP transfer, adjusted while it runs (Prasad, Jain, Dovrolis
//! 2003). The controller fills a path without overflowing its buffer, and sets no window on
//! congested ones.
//!
//! Contents: the state machine ([`Sobas`]), its input ([`Observation`], [`Interval`]) and output
//! ([`Decision`], [`Reason`], [`PathState`]), the capacity of a path from packet trains
//! ([`capacity`]) and the time until a buffer overflows ([`overflow`]). No sockets, no clock; the
//! number of streams is chosen elsewhere ([`crate::streams`]). `docs/algorithms/sobas.md` has the
//! diagram, the constants and the differences from the paper.

mod history;
mod interval;
mod limits;
mod loss_tolerance;
pub mod overflow;
mod path_state;
mod start;
mod step_size;
#[cfg(test)]
mod tests;

pub use interval::Interval;

use crate::bottleneck::Bottleneck;
use crate::loss::LossSample;
use crate::path_control::{
    Config, Decision, Observation, Reason, SPARSE_SAMPLING_RTT, START_GAIN, State, is_short_path,
};
use crate::units::{Bytes, Rate};
use history::{DROP_SHARE, FLAT_INTERVALS, IntervalHistory};
use interval::PathSampler;
use std::time::Duration;
use step_size::StepSize;

/// Part of a step that the rate must gain for the step to succeed. (chosen: by trial)
const MIN_STEP_GAIN: f64 = 0.4;

/// Shortest interval for comparing rates. (chosen: TCP sends bursts of 1 ms)
const MIN_RATE_INTERVAL: Duration = Duration::from_millis(100);

/// Relative error of a rate over [`MIN_RATE_INTERVAL`]. (chosen: as above)
const RATE_ERROR: f64 = 0.01;

/// RTTs for the rate to grow after a step. (chosen: after a loss CUBIC grows by a percent in ten
/// RTTs)
const MAX_GROWTH_RTTS: u32 = 10;

/// Upper bound of the fallback rate, as a multiple of the current rate. (chosen: ACKs in bunches
/// cost about a percent)
const MAX_FALLBACK_FACTOR: f64 = 1.015;

/// RTTs after a new limit in which losses still belong to data sent before it. (chosen: one RTT to
/// take effect, some for the repair)
const LOSS_GRACE_RTTS: u32 = 8;

/// Smallest factor of one reduction after an overflow. Not applied if a queue shows the rate of the
/// path. (chosen: as `DROP_SHARE`)
const MIN_REDUCTION_SHARE: f64 = 0.85;

/// Intervals with an unsteady rate after which a path is no longer limited. (chosen: by trial)
const MAX_UNSTEADY_INTERVALS: u32 = 8;

/// Interval between probes for more bandwidth. (chosen: not measured)
const PROBE_UP_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between probes while cross traffic uses the rest of the line. The traffic may end.
/// (chosen: a probe is 3 % more for ten RTTs at most)
const SHARED_PROBE_UP_INTERVAL: Duration = Duration::from_secs(2);

/// RTTs until the first probe, since the first limit is inaccurate. (chosen: by trial)
const FIRST_PROBE_UP_RTTS: u32 = 20;

/// Pacing rate in [`State::Disabled`], as a multiple of the capacity. (chosen: the end of slow
/// start then overflows nothing, and the error of trains is smaller)
const DISABLED_PACING_GAIN: f64 = 1.05;

/// Smallest limit, as a share of the rate of the initial windows. (chosen: a lower one would not
/// limit)
const MIN_INITIAL_WINDOW_SHARE: f64 = 0.8;

/// Factor of the rate while a queue drains. (chosen: a queue of 4 % drains in two RTTs)
const DRAIN_GAIN: f64 = 0.98;

/// Factor of the full path's rate after its queue has drained. (chosen: the relative error of a
/// rate is one percent)
const POST_DRAIN_GAIN: f64 = 0.99;

/// Reductions in a row after which a standing queue belongs to cross traffic. (chosen: by trial)
const MAX_DRAINS: u32 = 4;

/// Total factor of such reductions, likewise. (chosen: by trial)
const MIN_DRAINED_SHARE: f64 = 0.7;

/// New flows that may appear while one queue stands. (chosen: with one more, the falling rate is
/// this transfer's share of a path that cross traffic congests)
const MAX_FLOW_ARRIVALS: u32 = 2;

/// Intervals without a queue after which earlier reductions are forgotten. (chosen: by trial)
const QUIET_INTERVALS: u32 = 20;

/// Time without losses after which [`State::Disabled`] ends. (chosen: not measured)
const QUIET_TIME: Duration = Duration::from_secs(10);

/// The same time while a queue stands: the path has a longer RTT then. (chosen: CUBIC flows lose
/// nothing for more than ten seconds)
const QUIET_TIME_WITH_QUEUE: Duration = Duration::from_secs(30);

/// The controller of window and pacing rate of a transfer.
#[derive(Debug, Clone)]
pub struct Sobas {
    config: Config,
    state: State,
    /// Reason of the last decision.
    last_reason: Option<Reason>,
    sampler: PathSampler,
    /// Number of data streams.
    streams: u32,
    /// Random loss of the path, while the streams run a loss-tolerant congestion control.
    baseline_loss: Option<LossSample>,
    /// Time of the first data.
    first_data_at: Option<Duration>,
    /// Capacity reported by packet trains; `capacity` is the same until a higher rate refutes it.
    train_capacity: Option<Rate>,
    capacity: Option<Rate>,
    /// Estimated rate of the path.
    target_rate: Option<Rate>,
    history: IntervalHistory,
    /// Highest rate without loss since the target was set.
    max_lossless_rate: Rate,
    /// Rate before the last step, and the rate to restore if nothing is gained.
    rate_before_step: Rate,
    fallback_rate: Rate,
    /// Loss before the last step, if there was any.
    loss_before_step: Option<LossSample>,
    /// Intervals to skip until a change takes effect.
    intervals_to_skip: u32,
    /// End of the last skipped interval.
    settled_at: Duration,
    drain_count: u32,
    /// New flows observation while the queue stood.
    flow_arrivals: u32,
    /// Target before the first reduction.
    rate_before_drain: Option<Rate>,
    /// Target after the queue has drained; set once per probe (`is_restored`).
    post_drain_rate: Option<Rate>,
    is_restored: bool,
    unsteady_intervals: u32,
    /// Intervals without a queue.
    quiet_intervals: u32,
    steps: StepSize,
    /// Time at which the path was last observation full.
    last_full_at: Option<Duration>,
    limited_at: Duration,
    next_probe_at: Duration,
    quiet_since: Duration,
}

impl Sobas {
    /// Returns a controller that limits nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: State::Probing,
            last_reason: None,
            sampler: PathSampler::default(),
            streams: 1,
            baseline_loss: None,
            first_data_at: None,
            train_capacity: None,
            capacity: None,
            target_rate: None,
            history: IntervalHistory::default(),
            max_lossless_rate: Rate::default(),
            rate_before_step: Rate::default(),
            fallback_rate: Rate::default(),
            loss_before_step: None,
            intervals_to_skip: 0,
            settled_at: Duration::ZERO,
            drain_count: 0,
            flow_arrivals: 0,
            rate_before_drain: None,
            post_drain_rate: None,
            is_restored: false,
            unsteady_intervals: 0,
            quiet_intervals: 0,
            steps: StepSize::default(),
            last_full_at: None,
            limited_at: Duration::ZERO,
            next_probe_at: Duration::ZERO,
            quiet_since: Duration::ZERO,
        }
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the min RTT, that of an empty queue; zero before the first sample.
    #[must_use]
    pub fn min_rtt(&self) -> Duration {
        self.sampler.min_rtt()
    }

    /// Sets the capacity estimate: a payload rate.
    pub fn on_capacity(&mut self, now: Duration, rate: Rate) -> Option<Decision> {
        (self.train_capacity, self.capacity) = (Some(rate), Some(rate));
        self.start_with_estimate(now)
    }

    /// Returns true if every second tick suffices to sample the streams.
    ///
    /// Never during the start, which ends as soon as a queue grows.
    #[must_use]
    pub fn allows_sparse_sampling(&self) -> bool {
        let is_start =
            matches!(self.state, State::Probing | State::StartBounded | State::StartOpen);
        !is_start && self.min_rtt() >= SPARSE_SAMPLING_RTT
    }

    /// Records the RTT of a probe at a tick without an observation.
    pub fn on_rtt_sample(&mut self, rtt: Duration) {
        self.sampler.observe_rtt(rtt);
    }

    /// Processes an observation; returns a decision if window or pacing rate change.
    pub fn observe(&mut self, observation: &Observation) -> Option<Decision> {
        let interval = self.sampler.observe(observation);
        self.streams = observation.streams.max(1);
        if self.first_data_at.is_none() && observation.received > Bytes(0) {
            self.first_data_at = Some(observation.now);
        }
        if self.is_short_path() {
            let is_disabled = self.state == State::Disabled;
            return (!is_disabled).then(|| self.enter_disabled(observation.now, Reason::ShortPath));
        }
        // The capacity may arrive before the first stream has an RTT.
        if let Some(decision) = self.start_with_estimate(observation.now) {
            return Some(decision);
        }
        if self.state == State::Probing {
            let is_early = self.first_data_at.is_none() && self.min_rtt().is_zero();
            let is_waiting = is_early || observation.now < self.config.capacity_timeout;
            return (!is_waiting).then(|| self.start_without_estimate(observation.now));
        }
        if let Some(decision) = self.check_start_queue(observation) {
            return Some(decision);
        }
        // A rate of zero means an interrupted path or a silent sender.
        let interval = interval.filter(|interval| interval.rate.bits_per_sec() > 0)?;
        let interval = self.discount_baseline_loss(interval);
        self.history.push(interval);
        if self.intervals_to_skip > 0 {
            self.intervals_to_skip -= 1;
            self.settled_at = interval.at;
            return None;
        }
        if interval.retransmits == 0 {
            self.max_lossless_rate = self.max_lossless_rate.max(self.history.median_rate());
        }
        match self.state {
            State::Probing => None,
            State::StartBounded | State::StartOpen => self.update_start(&interval),
            State::Growing | State::Reprobing => self.update_growing(&interval),
            State::Limited => self.update_limited(&interval),
            State::Avoidance => self.update_avoidance(&interval),
            State::Disabled => self.update_disabled(&interval),
        }
    }

    fn update_limited(&mut self, interval: &Interval) -> Option<Decision> {
        if interval.retransmits > 0 || self.history.has_dropped() {
            if self.history.has_recent_queue(self.queue_threshold()) {
                return self.on_overflow(interval);
            }
            let is_congested = self.has_loss_without_queue();
            return match is_congested && !self.is_target_limited(interval) {
                true => Some(self.enter_disabled(interval.at, Reason::CongestedLoss)),
                // A loss-tolerant congestion control: the search for more continues, too.
                false => is_congested.then(|| self.probe_up(interval)).flatten(),
            };
        }
        // No queue grows at a host bottleneck; the host answers late.
        if interval.standing_queue > self.queue_threshold()
            && interval.bottleneck == Bottleneck::Path
        {
            return self.on_standing_queue(interval);
        }
        self.drain_count = 0;
        self.quiet_intervals += 1;
        if self.quiet_intervals >= QUIET_INTERVALS {
            self.rate_before_drain = None;
            (self.unsteady_intervals, self.flow_arrivals) = (0, 0);
        }
        self.restore_after_drain(interval).or_else(|| self.probe_up(interval))
    }

    /// Records the rate of the path while its queue stood.
    fn record_full_rate(&mut self) {
        let carried = self.history.median_rate().min(self.current_rate());
        let carried = self.capacity.map_or(carried, |capacity| carried.min(capacity));
        self.post_drain_rate = Some(scaled(carried, POST_DRAIN_GAIN)).filter(|_| !self.is_restored);
    }

    /// Restores the rate that was given up to drain a queue. Only once, as the queue may belong to
    /// cross traffic.
    fn restore_after_drain(&mut self, interval: &Interval) -> Option<Decision> {
        if interval.mean_queue > self.queue_threshold() / 2 || !self.is_target_reached() {
            return None;
        }
        let rate = self
            .post_drain_rate
            .take()
            .filter(|&rate| self.target_rate.is_some_and(|target| target < rate))?;
        self.is_restored = true;
        self.target_rate = Some(rate);
        self.max_lossless_rate = Rate::default();
        self.intervals_to_skip = 1;
        Some(self.enter(State::Limited, interval.at, Reason::QueueDrained(rate)))
    }

    /// Allows more from time to time, if the current target is reached.
    fn probe_up(&mut self, interval: &Interval) -> Option<Decision> {
        let is_due = interval.at >= self.next_probe_at;
        let can_grow = self.is_target_reached() && !self.is_target_at_rate_max();
        (is_due && can_grow).then(|| self.step_up(interval, Reason::ProbeUp))
    }

    /// Reduces the limit after losses in a self-induced queue, unless they predate the limit.
    fn on_overflow(&mut self, interval: &Interval) -> Option<Decision> {
        let since = interval.at.saturating_sub(self.limited_at);
        if since < self.min_rtt() * LOSS_GRACE_RTTS {
            return None;
        }
        // Below the target, a lower target would change nothing.
        let stands = interval.standing_queue > self.queue_threshold();
        if !stands && !self.is_target_limited(interval) {
            return None;
        }
        if self.history.is_steady() {
            Some(self.reduce_after_overflow(interval))
        } else {
            self.on_unsteady_rate(interval)
        }
    }

    /// Drains a standing queue; disables the limit if that fails repeatedly.
    fn on_standing_queue(&mut self, interval: &Interval) -> Option<Decision> {
        self.quiet_intervals = 0;
        if self.history.previous_standing_queue() <= self.queue_threshold() {
            return None;
        }
        if !self.history.is_steady() {
            return self.on_unsteady_rate(interval);
        }
        self.drain_count += 1;
        let target = self.target_rate.unwrap_or(interval.rate);
        let has_flow_arrived = self.history.median_rate() < scaled(target, DROP_SHARE);
        if has_flow_arrived {
            // A new flow took the rate; not a reduction by the controller.
            self.rate_before_drain = None;
            self.flow_arrivals += 1;
        }
        let from = *self.rate_before_drain.get_or_insert(target.min(self.history.median_rate()));
        let is_persistent = self.drain_count > MAX_DRAINS
            || self.flow_arrivals > MAX_FLOW_ARRIVALS
            || target <= self.min_rate()
            || target < scaled(from, MIN_DRAINED_SHARE);
        if is_persistent || self.has_small_share(interval.rate) {
            let reason = Reason::CongestedQueue(interval.standing_queue);
            return Some(self.enter_disabled(interval.at, reason));
        }
        self.record_full_rate();
        // The rate before the new flow is not restored.
        self.post_drain_rate = self.post_drain_rate.filter(|_| !has_flow_arrived);
        let rate = scaled(self.history.median_rate().min(target), DRAIN_GAIN);
        Some(self.enter_limited(rate, interval.at, Reason::StandingQueue(interval.standing_queue)))
    }

    fn on_unsteady_rate(&mut self, interval: &Interval) -> Option<Decision> {
        self.unsteady_intervals += 1;
        if self.unsteady_intervals < MAX_UNSTEADY_INTERVALS {
            return None;
        }
        self.unsteady_intervals = 0;
        Some(self.enter_avoidance(interval.at, Reason::Unsteady))
    }

    fn update_growing(&mut self, interval: &Interval) -> Option<Decision> {
        let at = interval.at;
        if interval.retransmits > 0 && self.history.has_recent_queue(self.queue_threshold()) {
            return Some(self.reduce_after_overflow(interval));
        }
        let rate = self.fallback_rate.max(scaled(interval.rate, DRAIN_GAIN));
        let is_baseline_loss =
            self.loss_before_step.is_some_and(|before| !interval.losses().exceeds(before));
        if interval.retransmits > 0 && !is_baseline_loss {
            return Some(self.enter_limited(rate, at, Reason::LostWithoutQueue));
        }
        let is_path_limited = interval.bottleneck == Bottleneck::Path;
        if is_path_limited && interval.standing_queue > self.queue_threshold() {
            self.record_full_rate();
            let reason = Reason::QueueGrew(rate, interval.standing_queue);
            return Some(self.enter_limited(rate, at, reason));
        }
        if at < self.settled_at + MIN_RATE_INTERVAL {
            return None;
        }
        let rate = self.current_rate();
        if rate >= scaled(self.rate_before_step, 1.0 + self.steps.last() * MIN_STEP_GAIN) {
            self.rate_before_drain = None;
            return Some(self.step_up(interval, Reason::RateRose(rate)));
        }
        // A full path would have a queue by now; TCP may just grow slowly.
        if at < self.settled_at + self.min_rtt() * MAX_GROWTH_RTTS {
            return None;
        }
        let reason = match interval.bottleneck {
            Bottleneck::Path => Reason::NoGain(rate),
            host => Reason::LimitedBy(host),
        };
        Some(self.enter_limited(self.fallback_rate.max(rate), at, reason))
    }

    /// Keeps only the pacing rate until the path is full or proves congested.
    fn update_avoidance(&mut self, interval: &Interval) -> Option<Decision> {
        if interval.retransmits > 0 {
            if self.history.has_recent_queue(self.queue_threshold()) {
                return Some(self.reduce_after_overflow(interval));
            }
            let is_congested = self.has_loss_without_queue();
            return is_congested.then(|| self.enter_disabled(interval.at, Reason::CongestedLoss));
        }
        if !self.history.is_flat(FLAT_INTERVALS.1) {
            return None;
        }
        let stands = interval.standing_queue > self.queue_threshold();
        if stands && self.has_small_share(interval.rate) {
            let reason = Reason::CongestedQueue(interval.standing_queue);
            return Some(self.enter_disabled(interval.at, reason));
        }
        let is_full =
            stands || self.is_target_limited(interval) && !self.reaches_rate_max(interval.rate);
        let reason = Reason::FlatRate(interval.rate);
        is_full.then(|| self.enter_limited(interval.rate, interval.at, reason))
    }

    /// Re-enables control once cross traffic has ended or the path has changed.
    fn update_disabled(&mut self, interval: &Interval) -> Option<Decision> {
        if interval.retransmits > 0 || interval.probes_lost > 0 {
            self.quiet_since = interval.at;
        }
        // A higher rate refutes the capacity estimate.
        let rate = self.current_rate();
        if self.capacity.is_some_and(|capacity| rate > scaled(capacity, 1.0 + RATE_ERROR)) {
            self.capacity = None;
            return Some(self.enter(State::Disabled, interval.at, Reason::RateRose(rate)));
        }
        let stands = interval.standing_queue > self.queue_threshold();
        let quiet_time = interval.at.saturating_sub(self.quiet_since);
        if quiet_time < if stands { QUIET_TIME_WITH_QUEUE } else { QUIET_TIME } {
            return None;
        }
        if stands {
            self.sampler.reset_min_rtt();
        }
        Some(self.enter_avoidance(interval.at, Reason::Quiet))
    }

    /// Removes the window limit and paces at the start share of the capacity; resets earlier peaks.
    fn enter_avoidance(&mut self, now: Duration, reason: Reason) -> Decision {
        self.target_rate = self.capacity.map(|rate| scaled(rate, START_GAIN));
        (self.max_lossless_rate, self.post_drain_rate) = (Rate::default(), None);
        self.enter(State::Avoidance, now, reason)
    }

    /// Reduces the target after an overflow to the highest rate without loss. Never raises the
    /// target.
    ///
    /// While a queue stands, the current rate is that of the path.
    fn reduce_after_overflow(&mut self, interval: &Interval) -> Decision {
        self.post_drain_rate = None;
        let lossless_rate = self.max_lossless_rate.max(interval.rate);
        let has_no_queue =
            self.state == State::Limited && interval.standing_queue <= self.queue_threshold();
        let rate = match self.target_rate {
            Some(target) if has_no_queue => {
                lossless_rate.max(scaled(target, MIN_REDUCTION_SHARE)).min(target)
            }
            Some(target) => lossless_rate.min(target),
            None => lossless_rate,
        };
        let rate = scaled(rate, DRAIN_GAIN);
        // Losses that continue at a much lower rate are not self-induced.
        let from = *self.rate_before_drain.get_or_insert(self.target_rate.unwrap_or(rate));
        if self.state == State::Limited && rate < scaled(from, MIN_DRAINED_SHARE) {
            return self.enter_disabled(interval.at, Reason::CongestedLoss);
        }
        self.enter_limited(rate, interval.at, Reason::Overflowed(rate))
    }

    /// Limits the path to `rate`.
    fn enter_limited(&mut self, rate: Rate, now: Duration, reason: Reason) -> Decision {
        // A limit at the user's maximum is kept by pacing alone and fits any path.
        let is_rate_max = self.config.rate_max.is_some_and(|max| rate >= max);
        if rate < scaled(self.min_rate(), MIN_INITIAL_WINDOW_SHARE) && !is_rate_max {
            return self.enter_disabled(now, Reason::TooManyStreams(rate));
        }
        let is_probing = matches!(self.state, State::Growing | State::Reprobing);
        // A rate that fell meanwhile is due to loss repair or a host, not to the path.
        let is_full = is_probing
            && !matches!(reason, Reason::LimitedBy(_))
            && self.current_rate() >= scaled(self.rate_before_step, 1.0 - RATE_ERROR);
        let is_shared = self.capacity.is_some_and(|c| rate < scaled(c, DROP_SHARE));
        let every = if is_shared { SHARED_PROBE_UP_INTERVAL } else { PROBE_UP_INTERVAL };
        let soon = (self.min_rtt() * FIRST_PROBE_UP_RTTS).min(every);
        // A queue that is drained now was left by the last probe.
        let was_just_full = self.last_full_at.is_some_and(|at| now.saturating_sub(at) < soon);
        if is_full && self.steps.on_no_gain() {
            self.last_full_at = Some(now);
            self.next_probe_at = now + every;
        } else if is_probing || !was_just_full {
            self.next_probe_at = now + soon;
        }
        self.steps.reset();
        self.limited_at = now;
        self.target_rate = Some(rate.max(self.min_rate()));
        self.max_lossless_rate = Rate::default();
        self.intervals_to_skip = 1;
        self.enter(State::Limited, now, reason)
    }

    /// Raises the target a little above the current rate.
    fn step_up(&mut self, interval: &Interval, reason: Reason) -> Decision {
        let rate = self.current_rate();
        if let Some(max) = self.config.rate_max.filter(|_| self.reaches_rate_max(rate)) {
            return self.enter_limited(max, interval.at, Reason::RateMax(max));
        }
        let is_start = matches!(self.state, State::StartBounded | State::Growing);
        self.rate_before_step = rate;
        (self.post_drain_rate, self.is_restored) = (None, false);
        self.loss_before_step = Some(interval.losses()).filter(|_| interval.retransmits > 0);
        self.fallback_rate =
            self.target_rate.unwrap_or(rate).min(scaled(rate, MAX_FALLBACK_FACTOR));
        let is_above_capacity = self.capacity.is_some_and(|capacity| rate > capacity);
        if self.steps.refutes_capacity(is_above_capacity) {
            self.capacity = None;
        }
        let next = scaled(rate, 1.0 + self.steps.next());
        let taken = self.steps.advance(self.capacity.is_some_and(|capacity| next > capacity));
        self.target_rate = Some(scaled(rate.max(self.fallback_rate), 1.0 + taken));
        self.intervals_to_skip = 1;
        let state = if is_start { State::Growing } else { State::Reprobing };
        self.enter(state, interval.at, reason)
    }

    fn enter_disabled(&mut self, now: Duration, reason: Reason) -> Decision {
        self.target_rate = None;
        self.quiet_since = now;
        self.drain_count = 0;
        (self.rate_before_drain, self.post_drain_rate) = (None, None);
        (self.unsteady_intervals, self.flow_arrivals) = (0, 0);
        self.enter(State::Disabled, now, reason)
    }

    fn enter(&mut self, state: State, now: Duration, reason: Reason) -> Decision {
        (self.state, self.last_reason) = (state, Some(reason));
        let capped = |rate: Rate| self.config.rate_max.map_or(rate, |max| rate.min(max));
        self.target_rate = self.target_rate.map(capped);
        // If the sender stays below the path's rate, no queue can grow.
        let is_open_state = matches!(state, State::Avoidance | State::Disabled);
        let is_open = is_open_state || self.is_target_at_rate_max() || self.baseline_loss.is_some();
        let target = self.target_rate.filter(|_| state != State::Disabled);
        let window = target.filter(|_| !is_open).map(|rate| self.window_for(rate));
        let window = window.unwrap_or(self.config.window_max).min(self.config.window_max);
        let ceiling = self.capacity.filter(|_| state == State::Disabled && !self.is_short_path());
        let ceiling = ceiling.map(|rate| capped(scaled(rate, DISABLED_PACING_GAIN)));
        let pacing = target.or(ceiling).or(self.config.rate_max);
        Decision { at: now, state, window, pacing, reason }
    }
}

fn scaled(rate: Rate, factor: f64) -> Rate {
    Rate::from_bits_per_sec(rate.bits_per_sec() as f64 * factor)
}
