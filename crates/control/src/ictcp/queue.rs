//! How long the queue of the port may become: as it was chosen, longer where somebody waits, the
//! port has room and a longer one has brought more, and shorter after it has overflowed.

use crate::pacing::SEGMENT_DATA;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// What may stand in the queue of the port, more than what is on the way, to begin with. (ours: of
/// the smallest buffer that we mean to be right for, 64 kB, what is left when headers are counted
/// and what should be on the way is in the queue, too)
const QUEUE: Bytes = Bytes(40_000);

/// The least, however much was lost: whole windows of some senders. (ours)
const QUEUE_MIN: Bytes = Bytes(8 * SEGMENT_DATA.0);

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

/// Where not even this part of the capacity comes, senders are far, or others have the port: it is
/// longer by this factor, after so many half slots, and tried again after so long. (ours: a ramp
/// is to be short, and half of a port is a fair share of it)
const FAR: f64 = 0.5;
const LONGER_FAR: f64 = 1.5;
const TRIAL_FAR: u32 = 3;
const AGAIN_FAR: Duration = Duration::from_millis(100);

/// Beside others it is shorter again where more than this part comes. (ours: half, and what it may
/// be wrong by)
const MORE_THAN_HALF: f64 = 0.6;

/// There a longer one is looked at when windows have grown by this part, or after so many times
/// that half slots. It has brought more if it has brought this part of what windows have grown by.
/// (ours: whoever has a part of a full queue has that part of the port)
const FOLLOWED: f64 = 0.25;
const FOLLOWED_TIMES: u32 = 8;
const BROUGHT: f64 = 0.3;

/// What came is forgotten by this factor in a half slot. (ours: that little came of those that had
/// lost all is seen some slots after the overflow)
const LATELY: f64 = 0.9;

/// So often in a row it may have brought no more before the port is taken for smaller than it is
/// said to be. (ours: others come and go)
const STUCK: u32 = 3;

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
    /// The most that came lately, as part of the capacity, and how often in a row a longer one has
    /// brought no more where that is little.
    lately: f64,
    stuck: u32,
    /// Others fill it, and have not gone since.
    is_crowded: bool,
}

/// A longer queue, tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    before: Bytes,
    rate: f64,
    windows: Bytes,
    /// So often it was found that windows have not grown.
    looks: u32,
}

/// What a half slot was like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) now: Duration,
    /// What came.
    pub(super) rate: Rate,
    /// What the port carries, as far as that is known.
    pub(super) capacity: Rate,
    /// More would have come, had it been allowed.
    pub(super) is_short: bool,
    /// What stands in the queue, as far as round trips tell.
    pub(super) standing: Option<Bytes>,
    /// All windows together.
    pub(super) windows: Bytes,
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
            lately: 0.0,
            stuck: 0,
            is_crowded: false,
        }
    }

    /// Whether nothing may grow beyond its share for now.
    pub(super) fn is_on_hold(&self, now: Duration) -> bool {
        now < self.calm_until
    }

    /// A half slot is over.
    pub(super) fn on_rate(&mut self, look: &Look) {
        let rate = look.rate.bits_per_sec() as f64;
        let capacity = look.capacity.bits_per_sec() as f64;
        self.lately = (rate / capacity.max(1.0)).max(self.lately * LATELY);
        self.seen = (self.seen.0 + 1, self.seen.1 + rate);
        let mean = self.seen.1 / f64::from(self.seen.0);
        let limit = self.bytes.0 as f64 * EMPTY;
        let is_empty = look.standing.is_some_and(|standing| (standing.0 as f64) < limit);
        let is_far = mean < capacity * FAR;
        let factor = if is_far { LONGER_FAR } else { LONGER };
        if self.seen.0 < if is_far || self.is_crowded { TRIAL_FAR } else { TRIAL } {
            return;
        }
        self.seen = (0, 0.0);
        self.is_crowded &= mean < capacity * SHORT && self.stuck < STUCK;
        if self.is_crowded && mean > capacity * MORE_THAN_HALF {
            // They are to have some, too.
            self.bytes = Bytes((self.bytes.0 as f64 / LONGER) as u64).max(QUEUE);
            self.trial = None;
        }
        if let Some(trial) = self.trial.take() {
            self.judge(trial, look, mean, is_far, is_empty);
        }
        let full = match (self.is_crowded, is_empty) {
            (true, _) => FAR,
            (false, true) => SHORT_EMPTY,
            (false, false) => SHORT,
        };
        let may =
            self.trial.is_none() && !self.is_on_hold(look.now) && look.now >= self.trial_after;
        if look.is_short && may && mean < capacity * full && self.bytes < QUEUE_MAX {
            let windows = look.windows;
            self.trial = Some(Trial { before: self.bytes, rate: mean, windows, looks: 0 });
            let longer = Bytes((self.bytes.0 as f64 * factor) as u64);
            self.bytes = longer.min(QUEUE_MAX);
        }
    }

    /// Keeps a longer one, or does not.
    fn judge(&mut self, trial: Trial, look: &Look, rate: f64, is_far: bool, is_empty: bool) {
        let grown = look.windows.0 as f64 / trial.windows.0.max(1) as f64 - 1.0;
        if is_far && grown < FOLLOWED && !is_empty && trial.looks < FOLLOWED_TIMES {
            self.trial = Some(Trial { looks: trial.looks + 1, ..trial });
            return;
        }
        let gain = if is_far { 1.0 + grown.max(FOLLOWED) * BROUGHT } else { GAIN };
        let has_brought = is_empty || rate >= trial.rate * gain;
        if !has_brought {
            self.bytes = trial.before;
            self.trial_after = look.now + if is_far { AGAIN_FAR } else { AGAIN };
        }
        self.stuck = if is_far && !has_brought { self.stuck + 1 } else { 0 };
    }

    /// Whether others have filled the queue, when it has overflowed: it is full, and yet less than
    /// half of what the port carries comes, and more the longer ours is.
    pub(super) fn is_others(&mut self) -> bool {
        self.is_crowded |= self.lately < FAR && self.stuck < STUCK;
        self.is_crowded
    }

    /// The port has overflowed: whether that is news.
    pub(super) fn on_overflow(&mut self, now: Duration, settle: Duration) -> bool {
        let since = now.saturating_sub(self.calm_until.saturating_sub(self.calm));
        if self.calm_until > Duration::ZERO && since < settle {
            // The same one still.
            return false;
        }
        self.trial = None;
        self.hold(now);
        self.bytes = Bytes((self.bytes.0 as f64 * KEPT) as u64).max(QUEUE_MIN);
        true
    }

    /// Nothing grows for a while, and for longer when that was so lately.
    fn hold(&mut self, now: Duration) {
        let is_again = self.calm_until > Duration::ZERO && now < self.calm_until + self.calm * 2;
        self.calm = if is_again { (self.calm * 2).min(CALM.1) } else { CALM.0 };
        self.calm_until = now + self.calm;
    }
}
