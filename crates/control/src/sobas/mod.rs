//! SOBAS: the window and the pacing rate of a TCP transfer, found while it runs (Prasad, Jain,
//! Dovrolis 2003). It fills a path without overflowing it, and stands aside on congested ones.
//!
//! What lives here: the state machine ([`Sobas`]), what it measures ([`Observation`], [`Window`]),
//! why it decides ([`Reason`]), the capacity of a path from packet trains ([`capacity`]) and how
//! much time there is to notice an overflow ([`overflow`]). What never lives here: sockets, clocks,
//! how many connections there should be. `docs/algorithms/sobas.md` has the diagram, and tells what
//! is not as in the paper and why.

pub mod capacity;
mod decision;
mod history;
mod hold;
mod lossy;
mod measure;
pub mod overflow;
mod reason;
mod start;
mod steps;

pub use decision::{Config, Decision, Remembered};
pub use measure::{Observation, Window};
pub use reason::{Reason, State};

use crate::holder::Holder;
use crate::losses::Losses;
use crate::units::{Bytes, Rate};
use history::{DROP_SHARE, FLAT_WINDOWS, History};
use measure::Measure;
use start::START_SHARE;
use std::time::Duration;
use steps::Steps;

/// Where a round trip takes as long as this, every second tick is enough to look at the
/// connections. (ours: windows take four looks then, and a look at 16 connections 0.1 ms)
pub const SELDOM_RTT: Duration = Duration::from_millis(40);

/// A step has brought something if the rate rose by this share of it. (ours)
const STEP_SHARE: f64 = 0.4;

/// Rates are compared over this time at least, and then true to this share. (ours: TCP sends at
/// once what takes 1 ms)
const RATE_TIME: Duration = Duration::from_millis(100);
const RATE_ERROR: f64 = 0.01;

/// So many round trips more has to come within. (ours: CUBIC grows by a percent in ten, where it
/// has lost something before)
const GROWTH_ROUND_TRIPS: u32 = 10;

/// What is held is at most this multiple of what comes. (ours: acknowledgements in bunches cost
/// about a percent)
const HELD_OVER: f64 = 1.015;

/// What is lost within so many round trips after a limit was set was sent before it. (ours: a round
/// trip to take effect, some for the repair)
const GRACE_ROUND_TRIPS: u32 = 8;

/// An overflow lowers a limit by no more than to this share, unless a queue shows what the path
/// carries. [algorithms: a drop of 15 %]
const RETREAT_SHARE: f64 = 0.85;

/// A path on which the rate is not steady for so many windows cannot be held at one. (ours)
const UNSTEADY_WINDOWS: u32 = 8;

/// How long a limit is kept before it is looked for more. [algorithms: 10 s]
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// And where others have the rest of the line: they may leave. (ours: a look is 3 % more for ten
/// round trips at most)
const LOOK_EVERY_SHARED: Duration = Duration::from_secs(2);

/// The first time, after so many round trips: the limit was found in a hurry. (ours)
const LOOK_FIRST_ROUND_TRIPS: u32 = 20;

/// Who stands aside sends no more than this multiple of the capacity. (ours: the end of slow start
/// then overflows nothing, and trains err by less)
const ASIDE_SHARE: f64 = 1.05;

/// What comes below this share of what the first windows bring is not held: that would be no limit.
/// (ours)
const FLOOR_SHARE: f64 = 0.8;

/// So much of the rate is left to drain a queue. (ours: a queue of 4 % is gone after two round
/// trips)
const DRAIN_SHARE: f64 = 0.98;

/// And so much of what a full path carried is held once its queue is gone. (ours: rates are true to
/// a percent)
const FILL_SHARE: f64 = 0.99;

/// A queue that stands after so many reductions in a row, or of so much in all, is not ours: others
/// take what we leave. (ours)
const DRAINS_MAX: u32 = 4;
const DRAINED_SHARE: f64 = 0.7;

/// So often may somebody come while one queue stands. (ours: once more than that, and what falls is
/// our own part of a path that others congest)
const NEWCOMERS_MAX: u32 = 2;

/// It is forgotten that one stood after so many windows without. (ours)
const CALM_WINDOWS: u32 = 20;

/// Where nothing is held for others' sake, we are not to be seen for this long. [algorithms: 10 s]
const CALM: Duration = Duration::from_secs(10);

/// And for this long where a queue stands: then the path has become a longer one. (ours: CUBIC's
/// flows lose nothing for ten seconds and more)
const CALM_WITH_QUEUE: Duration = Duration::from_secs(30);

/// The controller of a transfer.
#[derive(Debug, Clone)]
pub struct Sobas {
    config: Config,
    state: State,
    measure: Measure,
    /// How many data connections there are.
    streams: u32,
    /// What the path loses at random, where they take no loss for congestion.
    usual: Option<Losses>,
    /// When the first data came.
    began_at: Option<Duration>,
    /// What the trains told, and the same until more has come.
    told: Option<Rate>,
    capacity: Option<Rate>,
    /// What the path is taken to carry.
    target: Option<Rate>,
    history: History,
    /// The highest rate that came without loss since the target was set.
    peak: Rate,
    /// The rate before the last step, and the target then.
    before: Rate,
    held: Rate,
    /// What was lost then, where losses went on.
    lost_before: Option<Losses>,
    /// Windows to let pass until a change can be seen.
    settling: u32,
    /// When the last change could be seen.
    settled_at: Duration,
    drains: u32,
    /// How often somebody came while the queue stood.
    newcomers: u32,
    /// What was held before the first reduction.
    drained_from: Option<Rate>,
    /// What the path can be held at once its queue is gone, and whether that was done already
    /// since it was looked for more.
    refill: Option<Rate>,
    has_refilled: bool,
    unsteady: u32,
    /// Windows without a queue.
    calm: u32,
    steps: Steps,
    /// When the path was full last.
    full_at: Option<Duration>,
    limited_at: Duration,
    look_at: Duration,
    calm_since: Duration,
}

impl Sobas {
    /// A controller that holds nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: State::Probing,
            measure: Measure::default(),
            streams: 1,
            usual: None,
            began_at: None,
            told: None,
            capacity: None,
            target: None,
            history: History::default(),
            peak: Rate::default(),
            before: Rate::default(),
            held: Rate::default(),
            lost_before: None,
            settling: 0,
            settled_at: Duration::ZERO,
            drains: 0,
            newcomers: 0,
            drained_from: None,
            refill: None,
            has_refilled: false,
            unsteady: 0,
            calm: 0,
            steps: Steps::default(),
            full_at: None,
            limited_at: Duration::ZERO,
            look_at: Duration::ZERO,
            calm_since: Duration::ZERO,
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The round trip without a queue; zero before the first.
    #[must_use]
    pub fn rtt_min(&self) -> Duration {
        self.measure.rtt_min()
    }

    /// The estimate of the capacity has come: the rate of data, without headers.
    pub fn on_capacity(&mut self, now: Duration, rate: Rate) -> Option<Decision> {
        (self.told, self.capacity) = (Some(rate), Some(rate));
        self.start_with_estimate(now)
    }

    /// Whether every second tick is enough to look at the connections. Not in the start, which ends
    /// as soon as a queue grows.
    #[must_use]
    pub fn looks_seldom(&self) -> bool {
        let is_start =
            matches!(self.state, State::Probing | State::StartBounded | State::StartOpen);
        !is_start && self.rtt_min() >= SELDOM_RTT
    }

    /// A probe's round trip has come at a tick without a look.
    pub fn on_round_trip(&mut self, rtt: Duration) {
        self.measure.take_rtt(rtt);
    }

    /// Takes what was seen at a look; what is to be held from now on, if that changes.
    pub fn observe(&mut self, seen: &Observation) -> Option<Decision> {
        let window = self.measure.take(seen);
        self.streams = seen.streams.max(1);
        if self.began_at.is_none() && seen.received > Bytes(0) {
            self.began_at = Some(seen.now);
        }
        if self.is_short() {
            let has_stood_aside = self.state == State::Disabled;
            return (!has_stood_aside).then(|| self.disable(seen.now, Reason::ShortPath));
        }
        // A capacity may be known before there is a connection whose round trip goes with it.
        if let Some(decision) = self.start_with_estimate(seen.now) {
            return Some(decision);
        }
        if self.state == State::Probing {
            let is_early = self.began_at.is_none() && self.rtt_min().is_zero();
            let waits = is_early || seen.now < self.config.probe_time;
            return (!waits).then(|| self.start_without_estimate(seen.now));
        }
        if let Some(decision) = self.watch_start(seen) {
            return Some(decision);
        }
        // When nothing at all comes, the path is cut or the source is silent: there is no rate.
        let window = window.filter(|window| window.rate.bits_per_sec() > 0)?;
        let window = self.without_usual(window);
        self.history.push(window);
        if self.settling > 0 {
            self.settling -= 1;
            self.settled_at = window.at;
            return None;
        }
        if window.retransmits == 0 {
            self.peak = self.peak.max(self.history.steady_rate());
        }
        match self.state {
            State::Probing => None,
            State::StartBounded | State::StartOpen => self.judge_start(&window),
            State::Growing | State::Reprobing => self.judge_growth(&window),
            State::Limited => self.judge_limit(&window),
            State::Avoidance => self.judge_avoidance(&window),
            State::Disabled => self.judge_calm(&window),
        }
    }

    fn judge_limit(&mut self, window: &Window) -> Option<Decision> {
        if window.retransmits > 0 || self.history.has_dropped() {
            if self.history.has_seen_queue(self.queue_allowed()) {
                return self.judge_overflow(window);
            }
            let goes_on = self.history.is_congested(self.queue_allowed());
            return match goes_on && !self.is_held_by_us(window) {
                true => Some(self.disable(window.at, Reason::CongestedLoss)),
                // A congestion control that does not mind: then neither does the search for more.
                false => goes_on.then(|| self.look_for_more(window)).flatten(),
            };
        }
        // Where a host is what holds it up, no queue grows: it is the host that answers late.
        if window.standing > self.queue_allowed() && window.holder == Holder::Path {
            return self.judge_queue(window);
        }
        self.drains = 0;
        self.calm += 1;
        if self.calm >= CALM_WINDOWS {
            self.drained_from = None;
            (self.unsteady, self.newcomers) = (0, 0);
        }
        self.fill(window).or_else(|| self.look_for_more(window))
    }

    /// The path carried so much when its queue was there.
    fn remember_full(&mut self) {
        let carried = self.history.steady_rate().min(self.rate_now());
        let carried = self.capacity.map_or(carried, |capacity| carried.min(capacity));
        self.refill = Some(scaled(carried, FILL_SHARE)).filter(|_| !self.has_refilled);
    }

    /// What was let go to drain a queue is taken back once it is gone; only once, for the queue may
    /// be others'.
    fn fill(&mut self, window: &Window) -> Option<Decision> {
        if window.queue > self.queue_allowed() / 2 || !self.is_all_taken() {
            return None;
        }
        let rate = self.refill.take().filter(|&rate| self.target.is_some_and(|was| was < rate))?;
        self.has_refilled = true;
        self.target = Some(rate);
        self.peak = Rate::default();
        self.settling = 1;
        Some(self.enter(State::Limited, window.at, Reason::Drained(rate)))
    }

    /// Allows more now and then, where all that is allowed is taken.
    fn look_for_more(&mut self, window: &Window) -> Option<Decision> {
        let looks = window.at >= self.look_at && self.is_all_taken() && !self.is_at_max();
        looks.then(|| self.step(window, Reason::TimeToLook))
    }

    /// What was lost was lost in a queue: ours, if it is not from before the limit.
    fn judge_overflow(&mut self, window: &Window) -> Option<Decision> {
        let since = window.at.saturating_sub(self.limited_at);
        if since < self.rtt_min() * GRACE_ROUND_TRIPS {
            return None;
        }
        // Where less comes than we allow, less of that would change nothing.
        let stands = window.standing > self.queue_allowed();
        if !stands && !self.is_held_by_us(window) {
            return None;
        }
        if self.history.is_steady() {
            Some(self.retreat(window))
        } else {
            self.judge_unsteady(window)
        }
    }

    /// A queue stands: a little less, or, if that has not helped, nothing is held.
    fn judge_queue(&mut self, window: &Window) -> Option<Decision> {
        self.calm = 0;
        if self.history.standing_before() <= self.queue_allowed() {
            return None;
        }
        if !self.history.is_steady() {
            return self.judge_unsteady(window);
        }
        self.drains += 1;
        let target = self.target.unwrap_or(window.rate);
        let has_newcomer = self.history.steady_rate() < scaled(target, DROP_SHARE);
        if has_newcomer {
            // Somebody has come: that was no reduction of ours.
            self.drained_from = None;
            self.newcomers += 1;
        }
        let from = *self.drained_from.get_or_insert(target.min(self.history.steady_rate()));
        let in_vain = self.drains > DRAINS_MAX
            || self.newcomers > NEWCOMERS_MAX
            || target <= self.rate_min()
            || target < scaled(from, DRAINED_SHARE);
        if in_vain || self.has_small_share(window.rate) {
            return Some(self.disable(window.at, Reason::CongestedQueue(window.standing)));
        }
        self.remember_full();
        // What was there before they came is not to be taken back.
        self.refill = self.refill.filter(|_| !has_newcomer);
        let rate = scaled(self.history.steady_rate().min(target), DRAIN_SHARE);
        Some(self.limit(rate, window.at, Reason::StandingQueue(window.standing)))
    }

    fn judge_unsteady(&mut self, window: &Window) -> Option<Decision> {
        self.unsteady += 1;
        if self.unsteady < UNSTEADY_WINDOWS {
            return None;
        }
        self.unsteady = 0;
        Some(self.avoid(window.at, Reason::Unsteady))
    }

    fn judge_growth(&mut self, window: &Window) -> Option<Decision> {
        let at = window.at;
        if window.retransmits > 0 && self.history.has_seen_queue(self.queue_allowed()) {
            return Some(self.retreat(window));
        }
        let rate = self.held.max(scaled(window.rate, DRAIN_SHARE));
        let is_usual = self.lost_before.is_some_and(|before| !window.losses().exceed(before));
        if window.retransmits > 0 && !is_usual {
            return Some(self.limit(rate, at, Reason::LostWithoutQueue));
        }
        let is_ours = window.holder == Holder::Path;
        if is_ours && window.standing > self.queue_allowed() {
            self.remember_full();
            return Some(self.limit(rate, at, Reason::QueueGrew(rate, window.standing)));
        }
        if at < self.settled_at + RATE_TIME {
            return None;
        }
        let rate = self.rate_now();
        if rate >= scaled(self.before, 1.0 + self.steps.taken() * STEP_SHARE) {
            self.drained_from = None;
            return Some(self.step(window, Reason::RateRose(rate)));
        }
        // A full path would have a queue by now, or soon: TCP may only grow slowly.
        if at < self.settled_at + self.rtt_min() * GROWTH_ROUND_TRIPS {
            return None;
        }
        let why = if is_ours { Reason::NothingToGain(rate) } else { Reason::HeldBy(window.holder) };
        Some(self.limit(self.held.max(rate), at, why))
    }

    /// Nothing is held but the pace, until the path is full or turns out to be congested.
    fn judge_avoidance(&mut self, window: &Window) -> Option<Decision> {
        if window.retransmits > 0 {
            if self.history.has_seen_queue(self.queue_allowed()) {
                return Some(self.retreat(window));
            }
            let reason = Reason::CongestedLoss;
            return self
                .history
                .is_congested(self.queue_allowed())
                .then(|| self.disable(window.at, reason));
        }
        if !self.history.is_even(FLAT_WINDOWS.1) {
            return None;
        }
        let stands = window.standing > self.queue_allowed();
        if stands && self.has_small_share(window.rate) {
            return Some(self.disable(window.at, Reason::CongestedQueue(window.standing)));
        }
        let is_full = stands || self.is_held_by_us(window) && !self.is_rate_max(window.rate);
        let reason = Reason::FlatRate(window.rate);
        is_full.then(|| self.limit(window.rate, window.at, reason))
    }

    /// Others have left, or the path is another one.
    fn judge_calm(&mut self, window: &Window) -> Option<Decision> {
        if window.retransmits > 0 || window.probes_lost > 0 {
            self.calm_since = window.at;
        }
        // What comes beyond it refutes what the trains told.
        let rate = self.rate_now();
        if self.capacity.is_some_and(|capacity| rate > scaled(capacity, 1.0 + RATE_ERROR)) {
            self.capacity = None;
            return Some(self.enter(State::Disabled, window.at, Reason::RateRose(rate)));
        }
        let stands = window.standing > self.queue_allowed();
        let calm = window.at.saturating_sub(self.calm_since);
        if calm < if stands { CALM_WITH_QUEUE } else { CALM } {
            return None;
        }
        if stands {
            self.measure.forget_rtt();
        }
        Some(self.avoid(window.at, Reason::Calm))
    }

    /// Nothing is held but the pace, at what the trains told; what came before counts no more.
    fn avoid(&mut self, now: Duration, reason: Reason) -> Decision {
        self.target = self.capacity.map(|rate| scaled(rate, START_SHARE));
        (self.peak, self.refill) = (Rate::default(), None);
        self.enter(State::Avoidance, now, reason)
    }

    /// A buffer overflowed: to what came before that, and never more than had been allowed. Where a
    /// queue stands, what comes is what the path carries.
    fn retreat(&mut self, window: &Window) -> Decision {
        self.refill = None;
        let came = self.peak.max(window.rate);
        let held = self.state == State::Limited && window.standing <= self.queue_allowed();
        let rate = match self.target {
            Some(target) if held => came.max(scaled(target, RETREAT_SHARE)).min(target),
            Some(target) => came.min(target),
            None => came,
        };
        let rate = scaled(rate, DRAIN_SHARE);
        // What goes on though much less is sent is not ours.
        let from = *self.drained_from.get_or_insert(self.target.unwrap_or(rate));
        if self.state == State::Limited && rate < scaled(from, DRAINED_SHARE) {
            return self.disable(window.at, Reason::CongestedLoss);
        }
        self.limit(rate, window.at, Reason::Overflowed(rate))
    }

    /// Holds the path at a rate.
    fn limit(&mut self, rate: Rate, now: Duration, reason: Reason) -> Decision {
        // What the user allows is held by the pace alone, and so little fits any path.
        let is_wanted = self.config.rate_max.is_some_and(|max| rate >= max);
        if rate < scaled(self.rate_min(), FLOOR_SHARE) && !is_wanted {
            return self.disable(now, Reason::TooManyStreams(rate));
        }
        let looked = matches!(self.state, State::Growing | State::Reprobing);
        // A rate that fell meanwhile is TCP's, which repairs a loss, or a host's: not the path's.
        let is_full = looked
            && !matches!(reason, Reason::HeldBy(_))
            && self.rate_now() >= scaled(self.before, 1.0 - RATE_ERROR);
        let is_shared = self.capacity.is_some_and(|c| rate < scaled(c, DROP_SHARE));
        let every = if is_shared { LOOK_EVERY_SHARED } else { LOOK_EVERY };
        let soon = (self.rtt_min() * LOOK_FIRST_ROUND_TRIPS).min(every);
        // A queue that is drained now is what the last look has left.
        let was_full = self.full_at.is_some_and(|at| now.saturating_sub(at) < soon);
        if is_full && self.steps.end() {
            self.full_at = Some(now);
            self.look_at = now + every;
        } else if looked || !was_full {
            self.look_at = now + soon;
        }
        self.steps.rewind();
        self.limited_at = now;
        self.target = Some(rate.max(self.rate_min()));
        self.peak = Rate::default();
        self.settling = 1;
        self.enter(State::Limited, now, reason)
    }

    /// Allows a little more than what comes.
    fn step(&mut self, window: &Window, reason: Reason) -> Decision {
        let rate = self.rate_now();
        if let Some(max) = self.config.rate_max.filter(|_| self.is_rate_max(rate)) {
            return self.limit(max, window.at, Reason::RateMax(max));
        }
        let is_start = matches!(self.state, State::StartBounded | State::Growing);
        self.before = rate;
        (self.refill, self.has_refilled) = (None, false);
        self.lost_before = Some(window.losses()).filter(|_| window.retransmits > 0);
        self.held = self.target.unwrap_or(rate).min(scaled(rate, HELD_OVER));
        let is_beyond = self.capacity.is_some_and(|capacity| rate > capacity);
        if self.steps.refutes(is_beyond) {
            self.capacity = None;
        }
        let next = scaled(rate, 1.0 + self.steps.next());
        let taken = self.steps.take(self.capacity.is_some_and(|capacity| next > capacity));
        self.target = Some(scaled(rate.max(self.held), 1.0 + taken));
        self.settling = 1;
        let state = if is_start { State::Growing } else { State::Reprobing };
        self.enter(state, window.at, reason)
    }

    fn disable(&mut self, now: Duration, reason: Reason) -> Decision {
        self.target = None;
        self.calm_since = now;
        self.drains = 0;
        (self.drained_from, self.refill) = (None, None);
        (self.unsteady, self.newcomers) = (0, 0);
        self.enter(State::Disabled, now, reason)
    }

    fn enter(&mut self, state: State, now: Duration, reason: Reason) -> Decision {
        self.state = state;
        let capped = |rate: Rate| self.config.rate_max.map_or(rate, |max| rate.min(max));
        self.target = self.target.map(capped);
        // Where the sender is to stay below what the path carries, no queue can grow.
        let is_aside = matches!(state, State::Avoidance | State::Disabled);
        let is_open = is_aside || self.is_at_max() || self.usual.is_some();
        let target = self.target.filter(|_| state != State::Disabled);
        let window = target.filter(|_| !is_open).map(|rate| self.window_for(rate));
        let window = window.unwrap_or(self.config.window_max).min(self.config.window_max);
        let most = self.capacity.filter(|_| state == State::Disabled && !self.is_short());
        let most = most.map(|rate| capped(scaled(rate, ASIDE_SHARE)));
        let pacing = target.or(most).or(self.config.rate_max);
        Decision { at: now, state, window, pacing, reason }
    }
}

fn scaled(rate: Rate, factor: f64) -> Rate {
    Rate::from_bits_per_sec(rate.bits_per_sec() as f64 * factor)
}

#[cfg(test)]
mod tests;
