//! Others that fill the port's queue: whether there are any, and how much of it is to be ours
//! beside them. Whoever has a part of a full queue has that part of the port; giving way to them
//! at each overflow would leave them all of it.

use crate::units::{Bytes, Rate};

/// They may be there where it overflows although less than this part of the port is ours; and this
/// part is to be. (ours: when it overflows, the port is full; and half is fair to whoever is there)
const HALF: f64 = 0.5;

/// Ours is shorter again above this part. (ours: half, and what it may be wrong by)
const TOO_MUCH: f64 = 0.6;

/// They have gone when this part of the port is ours, or when it has not overflowed for so many
/// half slots. (ours: 1 s at least)
const ALONE: f64 = 0.8;
const QUIET: u32 = 100;

/// After an overflow ours is 0.7 of what it was: beside others no more than this part of what came
/// before comes then, in the mean of so many half slots, and nearly all of it where nobody else is.
/// (ours: between 0.7 and 1; as many as a longer queue is looked at)
const LEFT: f64 = 0.87;
const TEST: u32 = 8;

/// Beside others ours is longer by this factor, or shorter, after so many half slots. (ours)
const STEP: f64 = 1.25;
const STEP_SLOTS: u32 = 3;

/// When ours is longer by the first factor, this much more has come, or there are no others after
/// all. (ours: less than in proportion, for others give way slowly)
const GROWN: (f64, f64) = (2.0, 1.2);

/// What came is smoothed: a half slot has this weight. (ours: others' windows go to and fro)
const WEIGHT: f64 = 0.25;

/// What turned out, and what of the queue is ours then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// There are others: as much as before, and no more giving way.
    Others(Bytes),
    /// Beside them: so much.
    Beside(Bytes),
    /// There are none.
    None,
    /// They have gone.
    Gone,
}

/// Others at the port.
#[derive(Debug)]
pub(super) struct Crowd {
    /// What the port is known to carry; nothing can be said without it.
    known: Option<Rate>,
    /// What comes, smoothed, and of how many half slots.
    rate: f64,
    seen: u32,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Alone,
    /// Ours was so long, and so much came; what has come since, in how many half slots.
    Tested {
        before: Bytes,
        rate: f64,
        since: f64,
        slots: u32,
    },
    /// When ours was so long, so much came. Half slots since it overflowed, and since the last
    /// step.
    Crowded {
        before: Bytes,
        rate: f64,
        quiet: u32,
        slots: u32,
    },
}

impl Crowd {
    pub(super) fn new(known: Option<Rate>) -> Self {
        Self { known, rate: 0.0, seen: 0, state: State::Alone }
    }

    /// What comes, as part of the port.
    fn part(&self) -> Option<f64> {
        let known = self.known.filter(|known| known.bits_per_sec() > 0)?;
        Some(self.rate / known.bits_per_sec() as f64)
    }

    /// It has overflowed, while so much of the queue was ours; `so_far`: what has come in this half
    /// slot. Whether ours is to give way.
    pub(super) fn on_overflow(&mut self, bytes: Bytes, so_far: Rate) -> bool {
        if self.seen == 0 {
            self.rate = so_far.bits_per_sec() as f64;
        }
        match &mut self.state {
            State::Crowded { quiet, .. } => {
                *quiet = 0;
                return false;
            }
            State::Tested { .. } => {}
            State::Alone => {
                if self.part().is_some_and(|part| part < HALF) {
                    let rate = self.rate;
                    self.state = State::Tested { before: bytes, rate, since: 0.0, slots: 0 };
                }
            }
        }
        true
    }

    /// So much came in a half slot, while so much of the queue was ours; `is_short`: and more would
    /// have, had it been allowed.
    pub(super) fn on_rate(&mut self, rate: Rate, bytes: Bytes, is_short: bool) -> Option<Finding> {
        let rate = rate.bits_per_sec() as f64;
        let weight = if self.seen > 0 { WEIGHT } else { 1.0 };
        self.seen = self.seen.saturating_add(1);
        self.rate += weight * (rate - self.rate);
        match self.state {
            State::Alone => None,
            State::Tested { before, rate: then, since, slots } => {
                self.test(before, then, since + rate, slots + 1)
            }
            State::Crowded { before, rate: then, quiet, slots } => {
                let is_over = quiet >= QUIET || self.part().is_none_or(|part| part >= ALONE);
                if is_over {
                    self.state = State::Alone;
                    return Some(Finding::Gone);
                }
                let (quiet, slots) = (quiet + 1, slots + 1);
                self.state = State::Crowded { before, rate: then, quiet, slots };
                if slots < STEP_SLOTS { None } else { self.step(bytes, is_short) }
            }
        }
    }

    /// Whether giving way has brought less.
    fn test(&mut self, before: Bytes, then: f64, since: f64, slots: u32) -> Option<Finding> {
        if slots < TEST {
            self.state = State::Tested { before, rate: then, since, slots };
            return None;
        }
        let is_less = since / f64::from(slots) < then * LEFT;
        self.state = match is_less {
            true => State::Crowded { before, rate: then, quiet: 0, slots: 0 },
            false => State::Alone,
        };
        Some(if is_less { Finding::Others(before) } else { Finding::None })
    }

    /// Ours is longer or shorter by a step, until half of the port is.
    fn step(&mut self, bytes: Bytes, is_short: bool) -> Option<Finding> {
        let State::Crowded { before, rate, quiet, .. } = self.state else { return None };
        let has_grown = bytes.0 as f64 >= before.0 as f64 * GROWN.0;
        if has_grown && self.rate < rate * GROWN.1 {
            self.state = State::Alone;
            return Some(Finding::None);
        }
        let (before, rate) = if has_grown { (bytes, self.rate) } else { (before, rate) };
        self.state = State::Crowded { before, rate, quiet, slots: 0 };
        let part = self.part()?;
        let factor = match () {
            () if part > TOO_MUCH => 1.0 / STEP,
            () if part < HALF && is_short => STEP,
            () => return None,
        };
        Some(Finding::Beside(Bytes((bytes.0 as f64 * factor) as u64)))
    }

    /// Whether there are others, as far as that is known.
    pub(super) fn is_there(&self) -> bool {
        matches!(self.state, State::Crowded { .. })
    }
}
