//! Allowed queue at the port. It starts at a safe size, grows on trial if the port is underused and
//! growth brings more, and shrinks after an overflow. Beside cross traffic `cross_traffic` sets it.

use super::capacity::UNDERUSED_FRACTION;
use super::slots::EVALUATION_SUBSLOTS;
use crate::pacing::MIN_WINDOW;
use crate::tcp::CUBIC_BETA;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Initial allowed queue, beyond the BDP. (chosen: what the smallest supported port buffer, 64 kB,
/// holds without headers and with the BDP queued as well)
pub const INITIAL_QUEUE: Bytes = Bytes(40_000);

/// Maximum allowed queue. (chosen: the port buffer of shallow switches; measured,
/// docs/algorithms/sensitivity-gather.md: half of it slows irregular hosts, twice moves nothing)
pub(super) const MAX_QUEUE: Bytes = Bytes::kib(256);

/// Growth of the queue in a trial, and step of the queue beside cross traffic. (measured,
/// docs/algorithms/sensitivity-gather.md: smaller steps leave ports of irregular hosts underused)
pub(super) const GROWTH_FACTOR: f64 = 1.5;

/// Time without growth after an overflow or a failed trial. (measured, ictcp-unknown.txt: after
/// half of it, windows grow again before a found capacity has settled)
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Rate gain that keeps the longer queue. (measured, docs/algorithms/sensitivity-gather.md: twice
/// the gain gives up queues that irregular hosts need; without it, useless queues are kept)
const MIN_TRIAL_GAIN: f64 = 1.03;

/// State of the allowed queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) limit: Bytes,
    last_overflow: Option<Duration>,
    trial: Option<Trial>,
    /// Time before which nothing grows beyond its share.
    hold_until: Duration,
    /// Time of the next trial after a failed one.
    next_trial_at: Duration,
    /// Time from a failed trial to the next, doubled by each.
    retry_delay: Duration,
    /// Number and sum of the rates since the last evaluation.
    rates: (u32, f64),
}

/// Trial of a longer queue.
#[derive(Debug, Clone, Copy)]
struct Trial {
    before: Bytes,
    rate: f64,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            limit: INITIAL_QUEUE,
            last_overflow: None,
            trial: None,
            hold_until: Duration::ZERO,
            next_trial_at: Duration::ZERO,
            retry_delay: RETRY_DELAY,
            rates: (0, 0.0),
        }
    }

    /// True if windows may not grow beyond their share.
    pub(super) fn is_on_hold(&self, now: Duration) -> bool {
        now < self.hold_until
    }

    /// Records the rate of a subslot and starts or ends trials. `is_underused`: windows or grants
    /// limited the rate. `repairs_fast`: no loss waits for a timeout.
    pub(super) fn on_rate(
        &mut self,
        now: Duration,
        rate: Rate,
        capacity: Option<Rate>,
        is_underused: bool,
        repairs_fast: bool,
    ) {
        self.rates = (self.rates.0 + 1, self.rates.1 + rate.bits_per_sec() as f64);
        if self.rates.0 < EVALUATION_SUBSLOTS {
            return;
        }
        let mean = self.rates.1 / f64::from(self.rates.0);
        self.rates = (0, 0.0);
        if let Some(trial) = self.trial.take() {
            self.end_trial(now, trial, mean);
        }
        // A trial that overflows costs little then, and may gain what is left.
        let full = if repairs_fast { 1.0 / MIN_TRIAL_GAIN } else { UNDERUSED_FRACTION };
        let full = capacity.unwrap_or_default().bits_per_sec() as f64 * full;
        let is_due = now >= self.hold_until.max(self.next_trial_at);
        if is_underused && is_due && mean < full {
            self.trial = Some(Trial { before: self.limit, rate: mean });
            let longer = Bytes((self.limit.0 as f64 * GROWTH_FACTOR) as u64);
            self.limit = longer.min(MAX_QUEUE);
        }
    }

    /// Keeps the longer queue of a trial, or returns to the one before.
    fn end_trial(&mut self, now: Duration, trial: Trial, rate: f64) {
        if rate >= trial.rate * MIN_TRIAL_GAIN {
            self.retry_delay = RETRY_DELAY;
            return;
        }
        self.limit = trial.before;
        self.next_trial_at = now + self.retry_delay;
        self.retry_delay = self.retry_delay.saturating_mul(2);
    }

    /// True if the last overflow is so recent that the reaction cannot show yet.
    pub(super) fn is_settling(&self, now: Duration, settle: Duration) -> bool {
        self.last_overflow.is_some_and(|at| now.saturating_sub(at) < settle)
    }

    /// Shrinks the queue after an overflow, and lets nothing grow for a while.
    pub(super) fn on_overflow(&mut self, now: Duration) {
        self.trial = None;
        self.last_overflow = Some(now);
        self.hold_until = now + RETRY_DELAY;
        self.limit = Bytes((self.limit.0 as f64 * CUBIC_BETA) as u64).max(MIN_WINDOW);
    }

    /// Sets the queue beside cross traffic, without trials or hold.
    pub(super) fn set_limit(&mut self, now: Duration, limit: Bytes) {
        self.trial = None;
        self.hold_until = self.hold_until.min(now);
        let min = INITIAL_QUEUE.min(self.limit);
        self.limit = limit.max(min).min(MAX_QUEUE);
    }

    /// Caps the queue at its initial size once cross traffic has ended.
    pub(super) fn reset_limit(&mut self) {
        self.limit = self.limit.min(INITIAL_QUEUE);
    }
}
