//! Allowed queue at the port. It starts at a safe size, grows on trial if the port is underused and
//! growth brings more, and shrinks after an overflow. Beside cross traffic `cross_traffic` sets it.

use crate::pacing::DEFAULT_MSS;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Initial allowed queue, beyond the BDP. (chosen: what the smallest supported port buffer, 64 kB,
/// holds without headers and with the BDP queued as well)
const INITIAL_QUEUE: Bytes = Bytes(40_000);

/// Minimum allowed queue, however often it overflows. (chosen: whole windows of some senders)
const MIN_QUEUE: Bytes = Bytes(8 * DEFAULT_MSS.0);

/// Maximum allowed queue. (chosen: the port buffer of shallow switches)
const MAX_QUEUE: Bytes = Bytes::kib(256);

/// Factor on windows and queue after an overflow. (CUBIC, RFC 9438 §4.6)
pub(super) const OVERFLOW_BETA: f64 = 0.7;

/// Minimum hold time: nothing grows after an overflow. It doubles when overflows repeat. (chosen)
const MIN_HOLD_TIME: Duration = Duration::from_secs(1);

/// Maximum hold time. (chosen)
const MAX_HOLD_TIME: Duration = Duration::from_secs(32);

/// Fraction of the capacity below which a longer queue is tried. (chosen: the start and end of a
/// round leave the port idle without a lack of windows)
const UNDERUSED_FRACTION: f64 = 0.8;

/// The same if RTTs show an almost empty queue. (chosen: the rest is the slowness of hosts)
const UNDERUSED_EMPTY_FRACTION: f64 = 0.93;

/// Growth of the queue in a trial. (chosen)
const TRIAL_FACTOR: f64 = 1.25;

/// Rate gain that keeps the longer queue. (chosen)
const MIN_TRIAL_GAIN: f64 = 1.03;

/// Subslots of a trial. (chosen: rounds differ)
const TRIAL_SUBSLOTS: u32 = 8;

/// Delay before the next trial after a failed one. (chosen: hosts are slow for moments)
const TRIAL_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Fraction of the allowed queue below which RTTs show it empty: the hosts are the bottleneck.
/// (chosen: an empty queue cannot overflow)
const EMPTY_QUEUE_FRACTION: f64 = 0.25;

/// Fraction of the capacity below which trials are fast: no queue stands then. (chosen: to ramp up
/// quickly)
const FAST_TRIAL_FRACTION: f64 = 0.5;

/// Growth of the queue in a fast trial. (chosen)
const FAST_TRIAL_FACTOR: f64 = 1.5;

/// Subslots of a fast trial. (chosen)
const FAST_TRIAL_SUBSLOTS: u32 = 3;

/// State of the allowed queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) limit: Bytes,
    hold_until: Duration,
    hold_time: Duration,
    trial: Option<Trial>,
    /// Time of the next trial after a failed one.
    next_trial_at: Duration,
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
            hold_until: Duration::ZERO,
            hold_time: MIN_HOLD_TIME,
            trial: None,
            next_trial_at: Duration::ZERO,
            rates: (0, 0.0),
        }
    }

    /// True if windows may not grow beyond their share.
    pub(super) fn is_on_hold(&self, now: Duration) -> bool {
        now < self.hold_until
    }

    /// Records the rate of a subslot and starts or ends trials. `is_underused`: windows or grants
    /// limited the rate; `queue_estimate`: from RTTs.
    pub(super) fn on_rate(
        &mut self,
        now: Duration,
        rate: Rate,
        capacity: Option<Rate>,
        is_underused: bool,
        queue_estimate: Option<Bytes>,
    ) {
        self.rates = (self.rates.0 + 1, self.rates.1 + rate.bits_per_sec() as f64);
        let mean = self.rates.1 / f64::from(self.rates.0);
        let capacity = capacity.unwrap_or_default().bits_per_sec() as f64;
        let empty_below = self.limit.0 as f64 * EMPTY_QUEUE_FRACTION;
        let is_empty = queue_estimate.is_some_and(|estimate| (estimate.0 as f64) < empty_below);
        let is_far_below = mean < capacity * FAST_TRIAL_FRACTION;
        let (trial, factor) = if is_far_below {
            (FAST_TRIAL_SUBSLOTS, FAST_TRIAL_FACTOR)
        } else {
            (TRIAL_SUBSLOTS, TRIAL_FACTOR)
        };
        if self.rates.0 < trial {
            return;
        }
        self.rates = (0, 0.0);
        if let Some(trial) = self.trial.take()
            && mean < trial.rate * MIN_TRIAL_GAIN
            && !is_empty
        {
            self.limit = trial.before;
            self.next_trial_at = now + TRIAL_RETRY_DELAY;
        }
        let full = capacity * if is_empty { UNDERUSED_EMPTY_FRACTION } else { UNDERUSED_FRACTION };
        if is_underused && !self.is_on_hold(now) && now >= self.next_trial_at && mean < full {
            self.trial = Some(Trial { before: self.limit, rate: mean });
            let longer = Bytes((self.limit.0 as f64 * factor) as u64);
            self.limit = longer.min(MAX_QUEUE);
        }
    }

    /// True if the last overflow is so recent that the reaction cannot show yet.
    pub(super) fn is_settling(&self, now: Duration, settle: Duration) -> bool {
        let since = now.saturating_sub(self.hold_until.saturating_sub(self.hold_time));
        self.hold_until > Duration::ZERO && since < settle
    }

    /// Shrinks the queue after an overflow and starts a hold.
    pub(super) fn on_overflow(&mut self, now: Duration) {
        self.trial = None;
        self.hold(now);
        self.limit = Bytes((self.limit.0 as f64 * OVERFLOW_BETA) as u64).max(MIN_QUEUE);
    }

    /// Sets the queue beside cross traffic, without trials or hold.
    pub(super) fn set_limit(&mut self, now: Duration, limit: Bytes) {
        self.trial = None;
        self.hold_time = MIN_HOLD_TIME;
        self.hold_until = self.hold_until.min(now);
        let min = INITIAL_QUEUE.min(self.limit);
        self.limit = limit.max(min).min(MAX_QUEUE);
    }

    /// Caps the queue at its initial size once cross traffic has ended.
    pub(super) fn reset_limit(&mut self) {
        self.limit = self.limit.min(INITIAL_QUEUE);
    }

    /// Starts a hold, twice as long if the last one was recent.
    fn hold(&mut self, now: Duration) {
        let is_again =
            self.hold_until > Duration::ZERO && now < self.hold_until + self.hold_time * 2;
        self.hold_time =
            if is_again { (self.hold_time * 2).min(MAX_HOLD_TIME) } else { MIN_HOLD_TIME };
        self.hold_until = now + self.hold_time;
    }
}
