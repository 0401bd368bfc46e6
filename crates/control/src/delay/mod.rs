//! Delay-based control of window and pacing rate: a short queue at the bottleneck of any path.
//!
//! The queueing delay in the direction of the data is held near a target. If it is shorter, the
//! path may carry more, and the window grows by doubling steps. If it is longer, the window follows
//! the delivered data. Trials tell such a queue from other delay. `docs/algorithms/delay.md` has
//! the diagram, the constants and the measurements.
//!
//! Contents: the controller ([`DelayController`]) with its start, the window of a limited path,
//! trials, the target, losses without a queue, and samples of the path. No sockets, no clock.

mod attribution;
mod limiter;
mod losses;
mod outages;
mod path;
mod round;
mod samples;
mod start;
mod target;
#[cfg(test)]
mod tests;
mod trial;

use crate::loss::LossSample;
use crate::path_control::{
    Config, Decision, Observation, PathState, Reason, SPARSE_SAMPLING_RTT, START_GAIN, State,
};
use crate::tcp::{FAST_RETRANSMIT_SEGMENTS, MIN_RTO, MIN_RTT_FILTER_LEN};
use crate::units::{Bytes, Rate};
use limiter::{LONG_QUEUE_RTTS, Limiter, STEP_RANGE};
use path::{Path, bytes_at, scaled};
use round::Outcome;
use samples::{MIN_ROUND, REPAIR_TIME, repair_time};
use std::time::Duration;
use target::Level;

/// Share of the capacity for BBR beside flows that fill the line: that of one of two flows.
const SHARED_PACING_GAIN: f64 = 0.5;

/// Window of the start, as a multiple of rate × RTT. (BBR: bbr_cwnd_gain, net/ipv4/tcp_bbr.c)
const START_WINDOW_GAIN: f64 = 2.0;

/// The controller of window and pacing rate of a transfer.
#[derive(Debug, Clone)]
pub struct DelayController {
    config: Config,
    state: State,
    /// Reason for the last fallback to TCP.
    fallback_reason: Option<Reason>,
    path: Path,
    /// Rate of a bounded start.
    start_rate: Rate,
    /// Time of the first loss in the start.
    lost_at: Option<Duration>,
    limiter: Limiter,
    quiet_since: Duration,
    /// True if TCP keeps a long queue on a path that is left to it.
    has_long_queue: bool,
    /// True while the streams run BBR because of such a queue.
    is_bbr_for_queue: bool,
    /// Window that lets this queue drain, and the time at which draining ends.
    drain: Option<(f64, Duration)>,
    /// Time of the last return from [`State::Disabled`].
    returned_at: Option<Duration>,
    /// Time without losses before the next return.
    ///
    /// Doubled after each return that lasted for less, as TCP's timeout is at each expiry (RFC 6298
    /// §5.5).
    quiet_time: Duration,
}

impl DelayController {
    /// Returns a controller that limits nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: State::Probing,
            fallback_reason: None,
            path: Path::new(config.rate_max),
            start_rate: Rate::default(),
            lost_at: None,
            limiter: Limiter::default(),
            quiet_since: Duration::ZERO,
            has_long_queue: false,
            is_bbr_for_queue: false,
            drain: None,
            returned_at: None,
            quiet_time: MIN_RTT_FILTER_LEN,
        }
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the min RTT; zero before the first sample.
    #[must_use]
    pub fn min_rtt(&self) -> Duration {
        self.path.samples.min_rtt()
    }

    /// Returns the findings about the path.
    #[must_use]
    pub fn path_state(&self) -> PathState {
        let disabled_by = self.fallback_reason.filter(|_| self.state == State::Disabled);
        let has_cross_traffic_queue = matches!(
            disabled_by,
            Some(
                Reason::CongestedQueue(_)
                    | Reason::SharedOverflow(_)
                    | Reason::SharedQueue(_)
                    | Reason::Unsteady
            )
        );
        PathState {
            is_lossy: matches!(
                disabled_by,
                Some(
                    Reason::CongestedLoss
                        | Reason::SharedOverflow(_)
                        | Reason::Unused
                        | Reason::AckQueue(_)
                )
            ),
            has_cross_traffic_queue,
            has_long_queue: disabled_by.is_some() && self.has_long_queue,
            has_standing_queue: self.is_bbr_for_queue && self.present_state(self.path.now).1,
            is_short: disabled_by == Some(Reason::ShortPath),
            is_oversubscribed: self.is_oversubscribed(),
            is_ack_limited: self.path.is_reverse_path_slow,
        }
    }

    /// Returns true if the path holds only a few segments of each stream.
    fn is_oversubscribed(&self) -> bool {
        let (window, rate) = match self.state {
            State::StartBounded => (bytes_at(self.start_rate, self.min_rtt()), self.start_rate),
            State::Limited | State::Growing => {
                (self.limiter.window, self.limiter.limit(&self.path))
            }
            _ => return false,
        };
        // Others may have the rest of the line.
        !self.path.is_minor_share(rate)
            && window < self.path.segments(FAST_RETRANSMIT_SEGMENTS as f64)
    }

    /// Returns the capacity estimate: a payload rate.
    #[must_use]
    pub fn line_capacity(&self) -> Option<Rate> {
        self.path.train_capacity
    }

    /// Sets the capacity estimate: a payload rate.
    pub fn on_capacity(&mut self, now: Duration, rate: Rate) -> Option<Decision> {
        self.path.on_train_capacity(rate);
        self.start_with_estimate(now)
    }

    /// Returns true if every second tick suffices to sample the streams.
    #[must_use]
    pub fn allows_sparse_sampling(&self) -> bool {
        let is_start =
            matches!(self.state, State::Probing | State::StartBounded | State::StartOpen);
        !is_start && self.min_rtt() >= SPARSE_SAMPLING_RTT
    }

    /// Records the delays of a probe at a tick without an observation.
    pub fn on_delay_sample(&mut self, now: Duration, rtt: Duration, forward: Option<Duration>) {
        self.path.samples.record_delay(now, rtt, forward);
    }

    /// Processes an observation; returns a decision if window or pacing rate change.
    pub fn observe(&mut self, latest: &Observation) -> Option<Decision> {
        let paced_line = self.path.line();
        self.path.record(latest);
        if self.path.is_short() {
            // A window in which a queue drains ends as well.
            let is_disabled = self.state == State::Disabled && self.drain.take().is_none();
            return (!is_disabled).then(|| self.enter_disabled(latest.now, Reason::ShortPath));
        }
        if let Some(decision) = self.start_with_estimate(latest.now) {
            return Some(decision);
        }
        match self.state {
            State::Probing => self.observe_probing(latest),
            State::StartBounded | State::StartOpen => self.observe_start(latest),
            State::Disabled => self.observe_disabled(latest, paced_line),
            _ => match self.limiter.observe(&mut self.path, latest) {
                Outcome::Kept => None,
                Outcome::Changed(state, reason) => Some(self.enter(state, latest.now, reason)),
                Outcome::Left(reason) => Some(self.enter_disabled(latest.now, reason)),
            },
        }
    }

    /// Enters or leaves a loss-tolerant congestion control, such as BBR.
    ///
    /// `baseline_loss` is the random loss of the path; `None` ends it. Such losses do not count,
    /// and no window is set, since data after a lost segment needs buffer until the repair: the
    /// pacing rate alone limits the path.
    pub fn on_loss_tolerant_cc(
        &mut self,
        now: Duration,
        baseline_loss: Option<LossSample>,
    ) -> Option<Decision> {
        let before = std::mem::replace(&mut self.path.baseline_loss, baseline_loss);
        if before.is_some() == baseline_loss.is_some() {
            return None;
        }
        let was_for_queue = std::mem::take(&mut self.is_bbr_for_queue);
        if self.path.is_short() {
            return None;
        }
        self.limiter.forget_losses();
        let (is_entered, rate) = (baseline_loss.is_some(), self.present_state(now).0);
        if is_entered {
            self.path.capacity = self.path.train_capacity;
        }
        self.is_bbr_for_queue = is_entered && self.path_state().has_long_queue;
        let reason = match is_entered {
            true if self.is_bbr_for_queue => Reason::ShortQueueCc,
            true => Reason::LossTolerantCc,
            false => Reason::LossSensitiveCc,
        };
        self.drain = self.is_bbr_for_queue.then(|| self.drain_at(now, rate));
        if self.is_overflow_shared() || self.is_bbr_for_queue || was_for_queue {
            self.quiet_since = now;
            return Some(self.enter(State::Disabled, now, reason));
        }
        let line = self.path.capacity.filter(|_| is_entered);
        let rate = line.map_or(rate, |rate| scaled(rate, START_GAIN));
        Some(self.enter_limited(rate, now, reason))
    }

    /// Returns the window that lets a long queue drain, and the latest end of draining.
    ///
    /// By then, BBR itself measures the min RTT anew. Without this window, BBR would keep the
    /// previous one until three rounds have shown the bandwidth, and overflow the queue.
    fn drain_at(&self, now: Duration, rate: Rate) -> (f64, Duration) {
        let window = bytes_at(rate, self.path.rtt()) * START_WINDOW_GAIN;
        (window.max(self.path.least_window()), now + MIN_RTT_FILTER_LEN)
    }

    /// Ends the time for the long queue to drain; returns the decision once it is over.
    fn end_drain(&mut self, now: Duration) -> Option<Decision> {
        let (_, until) = self.drain.as_mut()?;
        let rtt = self.path.rtt();
        let queue = self.path.samples.least_queue(now.saturating_sub(rtt));
        if queue.is_some_and(|(queue, _)| queue < rtt) {
            *until = (*until).min(now + repair_time(rtt));
        }
        self.drain.take_if(|(_, until)| now >= *until)?;
        Some(self.enter(State::Disabled, now, Reason::ShortQueueCc))
    }

    /// Updates whether TCP keeps a long queue; unchanged while BBR runs because of one.
    ///
    /// BBR has two BDPs in flight at most, a queue of an RTT.
    fn update_long_queue(&mut self, now: Duration) {
        let samples = &self.path.samples;
        let from = now.saturating_sub(samples.rtt().max(MIN_ROUND));
        let Some((queue, _)) = samples.least_queue(from).filter(|_| !self.is_bbr_for_queue) else {
            return;
        };
        let rtt = self.path.rtt();
        // Shorter queues hardly delay other flows, and delays of radio links are as long.
        let is_long = queue > (rtt * LONG_QUEUE_RTTS).max(MIN_RTO);
        self.has_long_queue = is_long || self.has_long_queue && queue > rtt;
    }

    /// Returns true if the path was left because a queue of others overflows.
    fn is_overflow_shared(&self) -> bool {
        matches!(self.fallback_reason, Some(Reason::SharedOverflow(_)))
    }

    /// Returns true if BBR is paced beside others at a part of the line.
    fn is_pacing_shared(&self) -> bool {
        self.path.baseline_loss.is_some() && self.is_overflow_shared()
    }

    /// Returns the rate of the last RTT, and whether a queue stood.
    fn present_state(&self, now: Duration) -> (Rate, bool) {
        let samples = &self.path.samples;
        let from = now.saturating_sub(samples.rtt().max(MIN_ROUND));
        let queue = samples.least_queue(from).map_or(Duration::ZERO, |(queue, _)| queue);
        let level = self.limiter.target.level(queue, self.path.rtt());
        (samples.rate_over(now - from), level == Level::High)
    }

    /// Re-enables control once cross traffic has ended or the path has changed.
    ///
    /// `paced_line` is the capacity for which the pacing rate is set.
    fn observe_disabled(
        &mut self,
        latest: &Observation,
        paced_line: Option<Rate>,
    ) -> Option<Decision> {
        self.update_long_queue(latest.now);
        let (rate, stands) = self.present_state(latest.now);
        let samples = &self.path.samples;
        let rtt = samples.rtt().max(MIN_ROUND);
        let from = latest.now.saturating_sub(rtt);
        let (lost, data) = (samples.retransmits_since(from), bytes_at(rate, latest.now - from));
        if lost > 0 && !self.path.is_baseline_loss(lost, data) {
            self.quiet_since = latest.now;
            if stands && self.limiter.record_shared_overflow(&self.path, latest.now, rate) {
                return self.on_shared_overflow(latest.now);
            }
        }
        // Data behind a loss arrives at once.
        let is_repaired = latest.now > self.quiet_since + rtt * REPAIR_TIME.0;
        let is_above = |line| rate > scaled(line, 1.0 + STEP_RANGE.0);
        let is_dropped = paced_line.is_some() && self.path.line().is_none();
        if is_dropped || is_repaired && self.path.line().is_some_and(is_above) {
            self.path.capacity = None;
            return Some(self.enter(State::Disabled, latest.now, Reason::RateRose(rate)));
        }
        // Without TCP's queue, there is no sign that the rate has stopped varying.
        if self.is_bbr_for_queue {
            return self.end_drain(latest.now);
        }
        // CUBIC flows may go without losses for more than ten seconds.
        let quiet_time = match self.is_pacing_shared() {
            // A fixed share of the line is not a rate that TCP has found.
            true => MIN_RTT_FILTER_LEN,
            false if stands => self.quiet_time * 2,
            false => self.quiet_time,
        };
        if latest.now.saturating_sub(self.quiet_since) < quiet_time {
            return None;
        }
        self.returned_at = Some(latest.now);
        self.path.is_reverse_path_slow = false;
        if stands {
            self.path.samples.rebase(from, latest.now);
        }
        Some(self.enter_limited(rate, latest.now, Reason::Quiet))
    }

    /// Records that TCP loses segments in a queue of others.
    fn on_shared_overflow(&mut self, now: Duration) -> Option<Decision> {
        let samples = &self.path.samples;
        let queue = samples.largest_queue(now.saturating_sub(samples.rtt().max(MIN_ROUND)));
        let reason = Reason::SharedOverflow(queue);
        let is_known = self.is_overflow_shared();
        self.fallback_reason = Some(reason);
        (!is_known).then(|| self.enter(State::Disabled, now, reason))
    }

    fn enter_disabled(&mut self, now: Duration, reason: Reason) -> Decision {
        let was_brief = |at: Duration| now < at + self.quiet_time;
        self.quiet_time = match self.returned_at.take().map(was_brief) {
            Some(true) => self.quiet_time.saturating_mul(2),
            _ => MIN_RTT_FILTER_LEN,
        };
        (self.quiet_since, self.fallback_reason) = (now, Some(reason));
        self.enter(State::Disabled, now, reason)
    }

    /// Limits the path to a rate, with the target queue.
    fn enter_limited(&mut self, rate: Rate, now: Duration, reason: Reason) -> Decision {
        self.path.samples.forget_tcp_rtt();
        self.path.samples.outages.take_ended();
        self.limiter.start(&self.path, rate, now);
        self.enter(State::Limited, now, reason)
    }

    /// Returns a decision with window and pacing rate of a state.
    fn enter(&mut self, state: State, now: Duration, reason: Reason) -> Decision {
        self.state = state;
        let open = self.config.window_max;
        let (window, pacing) = match state {
            State::StartBounded => {
                let window = bytes_at(self.start_rate, self.min_rtt()) * START_WINDOW_GAIN;
                (Some(window), Some(self.start_rate))
            }
            State::Limited | State::Growing => {
                (Some(self.limiter.window), Some(self.limiter.limit(&self.path)))
            }
            State::Disabled => {
                let line = self.path.line().filter(|_| !self.path.is_short());
                // Slow start then overflows the queue only slightly when it ends.
                let gain =
                    if self.is_pacing_shared() { SHARED_PACING_GAIN } else { 1.0 / START_GAIN };
                (self.drain.map(|(window, _)| window), line.map(|rate| scaled(rate, gain)))
            }
            _ => (None, None),
        };
        let max = self.path.rate_max;
        let pacing = pacing.filter(|_| !self.path.is_reverse_path_slow);
        let pacing = pacing.into_iter().chain(max).min();
        // At the user's maximum, pacing alone keeps the rate.
        let is_paced_alone = self.path.is_paced_alone() && self.drain.is_none();
        let is_open = is_paced_alone || max.is_some() && pacing == max;
        // TCP grows its own window only while that limits it.
        let room = if state == State::Growing { self.path.segments(1.0) } else { 0.0 };
        let window = window.filter(|_| !is_open);
        let window = window.map_or(open, |window| Bytes((window + room) as u64).min(open));
        Decision { at: now, state, window, pacing, reason }
    }
}
