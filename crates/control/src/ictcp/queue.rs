//! How long the queue of the port may become: as it was chosen, longer where somebody waits, the
//! port has room and a longer one has brought more, and shorter after it has overflowed. What of a
//! queue that others fill is ours is found elsewhere.

use crate::pacing::DEFAULT_MSS;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// What may stand in the queue of the port, more than what is on the way, to begin with. (ours: of
/// the smallest buffer that we mean to be right for, 64 kB, what is left when headers are counted
/// and what should be on the way is in the queue, too)
const QUEUE: Bytes = Bytes(40_000);

/// The least, however much was lost: whole windows of some senders. (ours)
const QUEUE_MIN: Bytes = Bytes(8 * DEFAULT_MSS.0);

/// And the most, however much more it would bring. (ours: what the ports of shallow switches have)
const QUEUE_MAX: Bytes = Bytes::kib(256);

/// After an overflow, this part of windows and queue is kept. (CUBIC's, RFC 9438 §4.6)
pub(super) const KEPT: f64 = 0.7;

/// Nothing is allowed to grow for so long after an overflow, and twice as long after another one,
/// up to the second. (ours)
const CALM: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(32));

/// A longer queue is tried where less than this part of the capacity comes. (ours: what a round's
/// first and last moments leave empty is no lack of windows)
const SHORT: f64 = 0.8;

/// The same where round trips show that hardly anything stands in it. (ours: what is left then is
/// the hosts' own slowness)
const SHORT_EMPTY: f64 = 0.93;

/// It is longer by this factor then, and stays so where that brings more by this one. (ours)
const LONGER: f64 = 1.25;
const GAIN: f64 = 1.03;

/// It is looked at for so many half slots. (ours: rounds differ)
const TRIAL: u32 = 8;

/// Where it brought no more, it is tried again after so long. (ours: hosts are slow for moments)
const AGAIN: Duration = Duration::from_millis(500);

/// Where round trips show that no more than this part of it stands, hosts are slower than the line.
/// (ours: what does not stand does not overflow)
const EMPTY: f64 = 0.25;

/// Where not even this part of the capacity comes, nothing stands, and it is longer by this factor,
/// after so many half slots. (ours: a ramp is to be short)
const FAR: f64 = 0.5;
const LONGER_FAR: f64 = 1.5;
const TRIAL_FAR: u32 = 3;

/// What may stand in the port's queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) bytes: Bytes,
    calm_until: Duration,
    calm: Duration,
    trial: Option<Trial>,
    /// Where a longer one has brought no more, another is not tried before.
    trial_after: Duration,
    /// What came in the last half slots: their number and the sum.
    seen: (u32, f64),
}

/// A longer queue, tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    before: Bytes,
    rate: f64,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            bytes: QUEUE,
            calm_until: Duration::ZERO,
            calm: CALM.0,
            trial: None,
            trial_after: Duration::ZERO,
            seen: (0, 0.0),
        }
    }

    /// Whether nothing may grow beyond its share for now.
    pub(super) fn is_on_hold(&self, now: Duration) -> bool {
        now < self.calm_until
    }

    /// So much came in a half slot; `is_short`: and more would have, had it been allowed;
    /// `standing`: what stands in it, as far as round trips tell.
    pub(super) fn on_rate(
        &mut self,
        now: Duration,
        rate: Rate,
        capacity: Option<Rate>,
        is_short: bool,
        standing: Option<Bytes>,
    ) {
        self.seen = (self.seen.0 + 1, self.seen.1 + rate.bits_per_sec() as f64);
        let mean = self.seen.1 / f64::from(self.seen.0);
        let capacity = capacity.unwrap_or_default().bits_per_sec() as f64;
        let limit = self.bytes.0 as f64 * EMPTY;
        let is_empty = standing.is_some_and(|standing| (standing.0 as f64) < limit);
        let is_far = mean < capacity * FAR;
        let (trial, factor) = if is_far { (TRIAL_FAR, LONGER_FAR) } else { (TRIAL, LONGER) };
        if self.seen.0 < trial {
            return;
        }
        self.seen = (0, 0.0);
        if let Some(trial) = self.trial.take()
            && mean < trial.rate * GAIN
            && !is_empty
        {
            self.bytes = trial.before;
            self.trial_after = now + AGAIN;
        }
        let full = capacity * if is_empty { SHORT_EMPTY } else { SHORT };
        if is_short && !self.is_on_hold(now) && now >= self.trial_after && mean < full {
            self.trial = Some(Trial { before: self.bytes, rate: mean });
            let longer = Bytes((self.bytes.0 as f64 * factor) as u64);
            self.bytes = longer.min(QUEUE_MAX);
        }
    }

    /// Whether what overflows now has overflowed already, so lately that nothing that was done
    /// about it shows yet.
    pub(super) fn has_overflowed(&self, now: Duration, settle: Duration) -> bool {
        let since = now.saturating_sub(self.calm_until.saturating_sub(self.calm));
        self.calm_until > Duration::ZERO && since < settle
    }

    /// The port has overflowed.
    pub(super) fn on_overflow(&mut self, now: Duration) {
        self.trial = None;
        self.hold(now);
        self.bytes = Bytes((self.bytes.0 as f64 * KEPT) as u64).max(QUEUE_MIN);
    }

    /// So much of a queue that others fill is ours: nothing is tried, and nothing on hold.
    pub(super) fn share(&mut self, now: Duration, bytes: Bytes) {
        self.trial = None;
        self.calm = CALM.0;
        self.calm_until = self.calm_until.min(now);
        let least = QUEUE.min(self.bytes);
        self.bytes = bytes.max(least).min(QUEUE_MAX);
    }

    /// Nobody else fills it: no more than what every port takes.
    pub(super) fn have_alone(&mut self) {
        self.bytes = self.bytes.min(QUEUE);
    }

    /// Nothing grows for a while, and for longer when that was so lately.
    fn hold(&mut self, now: Duration) {
        let is_again = self.calm_until > Duration::ZERO && now < self.calm_until + self.calm * 2;
        self.calm = if is_again { (self.calm * 2).min(CALM.1) } else { CALM.0 };
        self.calm_until = now + self.calm;
    }
}
