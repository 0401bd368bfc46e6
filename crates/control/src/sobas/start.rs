//! How a transfer starts: with what tells the capacity, if anything does, until the path is full or
//! something is lost.

use super::history::{DROP_SHARE, FLAT_WINDOWS};
use super::{Decision, Observation, RATE_TIME, Reason, Remembered, Sobas, State, Window, scaled};
use crate::holder::Holder;
use std::time::Duration;

/// What of the estimated capacity is used at first. (ours: trains err by about a percent, and what
/// is beyond the line's rate is lost where the buffer is shallow)
pub(super) const START_SHARE: f64 = 0.98;

/// A path is the one that is remembered when its shortest round trip is within these shares of that
/// one's. (ours: another route differs by more, another hour by less)
const SAME_RTT: (f64, f64) = (0.8, 1.25);

/// In the start, a queue is there when so many round trips in a row are longer. (ours: one or two
/// are chance)
const START_LOOKS: usize = 3;

/// And the rate of the last round trip is below this multiple of the one before: slow start doubles
/// it. (ours: between 1 and 2, nearer to 1)
const START_GROWTH: f64 = 1.3;

/// The rate in the start is of a round trip, and of this time at least. (ours: two ticks)
const START_RATE_TIME: Duration = Duration::from_millis(20);

impl Sobas {
    /// What the capacity allows, once a round trip is known, too.
    pub(super) fn start_with_estimate(&mut self, now: Duration) -> Option<Decision> {
        let rate = self.capacity?;
        let can_start = matches!(self.state, State::Probing | State::StartOpen);
        if self.is_short() || self.rtt_min().is_zero() || !can_start {
            return None;
        }
        self.target = Some(scaled(rate, START_SHARE));
        Some(self.enter(State::StartBounded, now, Reason::CapacityKnown(rate)))
    }

    /// Nothing tells the capacity: as an earlier transfer left it, if it is the same path, or open.
    pub(super) fn start_without_estimate(&mut self, now: Duration) -> Decision {
        let rtt = self.rtt_min();
        let same = |seen: &Remembered| {
            let (least, most) = (seen.rtt.mul_f64(SAME_RTT.0), seen.rtt.mul_f64(SAME_RTT.1));
            (least..most).contains(&rtt)
        };
        let Some(seen) = self.config.remembered.filter(same) else {
            return self.enter(State::StartOpen, now, Reason::CapacityUnknown);
        };
        self.target = Some(scaled(seen.rate, START_SHARE));
        self.enter(State::StartBounded, now, Reason::Remembered(seen.rate))
    }

    /// The start ends as soon as the round trip grows while the rate does not.
    pub(super) fn watch_start(&mut self, seen: &Observation) -> Option<Decision> {
        let is_start = matches!(self.state, State::StartBounded | State::StartOpen);
        if !is_start || seen.rtt.is_none() || seen.holder != Holder::Path {
            return None;
        }
        let queue = self.measure.standing(START_LOOKS);
        if queue <= self.queue_allowed() {
            return None;
        }
        let round_trip = self.rtt_min().max(START_RATE_TIME);
        let now = self.measure.rate_over(round_trip);
        let before = self.measure.rate_before(round_trip, round_trip);
        if now > scaled(before, START_GROWTH) {
            return None;
        }
        // What came last tells best what the path carries.
        let rate = self.measure.rate_over(round_trip / 2).max(now);
        if self.is_first_windows(rate, seen.now) || self.is_rate_max(rate) {
            return None;
        }
        let reason = Reason::QueueGrew(rate, queue);
        if self.has_small_share(rate) {
            return Some(self.enter(State::Avoidance, seen.now, reason));
        }
        Some(self.limit(rate, seen.now, reason))
    }

    pub(super) fn judge_start(&mut self, window: &Window) -> Option<Decision> {
        if window.retransmits > 0 {
            return self.judge_early_loss(window);
        }
        if !self.history.is_even(FLAT_WINDOWS.0) {
            return None;
        }
        if window.standing > self.queue_allowed() {
            let reason = Reason::FlatRate(window.rate);
            return Some(self.limit(window.rate, window.at, reason));
        }
        let windows = RATE_TIME.div_duration_f64(self.measure.window_length()).ceil() as usize;
        if !self.history.is_even(windows.max(FLAT_WINDOWS.0)) {
            return None;
        }
        // Else it is something else that limits: a small buffer of the hosts, or slow start that
        // ended early.
        let reason = Reason::HeldByUs(self.rate_now());
        self.is_held_by_us(window).then(|| self.step(window, reason))
    }

    /// What is lost of the first, unpaced windows tells nothing of the path. (It may be all that a
    /// shallow buffer takes.)
    fn judge_early_loss(&mut self, window: &Window) -> Option<Decision> {
        if self.is_first_windows(self.peak, window.at) {
            return None;
        }
        if self.state == State::StartOpen {
            // The rate doubled with each round trip until then: none of them is the path's.
            return Some(self.enter(State::Avoidance, window.at, Reason::StartOverflowed));
        }
        let near = self.capacity.is_some_and(|c| self.peak > scaled(c, DROP_SHARE));
        if near || self.history.has_seen_queue(self.queue_allowed()) {
            return Some(self.retreat(window));
        }
        Some(self.enter(State::Avoidance, window.at, Reason::LostWithoutQueue))
    }
}
