//! What the port carries: known, or what turns out when more is allowed and no more comes.

use super::slots::Half;
use crate::units::Rate;

/// This part of the capacity is filled, and the rest left free. (paper, §IV-A: α = 0.9. Ours is
/// larger: windows are bounded by what the port's queue takes, so that the tenth which the paper
/// keeps for what its rules overshoot by is not needed)
const FILLED: f64 = 0.98;

/// More came, when it is more by this part. (ours: a segment in a half slot)
const MORE: f64 = 1.02;

/// So often no more may come before that is the capacity. (ours)
const TRIES: u32 = 6;

/// It overflows at less than this part of what it is known to carry: others fill the line. (ours)
const LESS: f64 = 0.8;

/// What came in so many half slots tells, at its most, and nothing before so many. (ours: rounds
/// begin and end slowly, and so do hosts)
const RECENT: usize = 8;

/// It carries so much more each time that what it carried came again. (ours: 50 steps a second)
const REGAINED: f64 = 1.02;

fn part(rate: Rate, part: f64) -> f64 {
    rate.bits_per_sec() as f64 * part
}

/// What the port carries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    known: Option<Rate>,
    /// The most that has come in a half slot.
    peak: Rate,
    /// Slots in which windows grew and no more came after it; whether any has grown in this one.
    tries: u32,
    has_grown: bool,
    /// What came in the last half slots, and how many there have been.
    recent: [Rate; RECENT],
    seen: usize,
    /// It overflowed at less than it is known to carry: it shares a line with others somewhere.
    below: Option<Rate>,
}

impl Capacity {
    pub(super) fn new(known: Option<Rate>) -> Self {
        Self {
            known,
            peak: Rate::default(),
            tries: 0,
            has_grown: false,
            recent: [Rate::default(); RECENT],
            seen: 0,
            below: None,
        }
    }

    /// A window has grown.
    pub(super) fn on_growth(&mut self) {
        self.has_grown = true;
    }

    /// So much came in a half slot.
    pub(super) fn on_rate(&mut self, rate: Rate, half: Half) {
        if rate.bits_per_sec() as f64 > part(self.peak, MORE) {
            self.tries = 0;
        } else if half == Half::Measure && std::mem::take(&mut self.has_grown) {
            self.tries = self.tries.saturating_add(1);
        }
        self.peak = self.peak.max(rate);
        self.recent[self.seen % RECENT] = rate;
        self.seen += 1;
        let known = self.known.unwrap_or_default().bits_per_sec() as f64;
        if let Some(below) =
            self.below.filter(|below| rate.bits_per_sec() as f64 > part(*below, FILLED))
        {
            let more = part(below, REGAINED);
            self.below = (more < known).then(|| Rate::from_bits_per_sec(more));
        }
    }

    /// The port has overflowed, although less came than it is known to carry.
    pub(super) fn on_overflow(&mut self) {
        let most = self.recent.into_iter().max().unwrap_or_default();
        let is_less = |known| (most.bits_per_sec() as f64) < part(known, LESS);
        if self.seen >= RECENT && self.known.is_some_and(is_less) {
            self.below = Some(most).filter(|most| most.bits_per_sec() > 0);
        }
    }

    /// It overflowed because of others that are at the port itself.
    pub(super) fn be_as_known(&mut self) {
        self.below = None;
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        self.below.or(self.known).or(Some(self.peak).filter(|peak| peak.bits_per_sec() > 0))
    }

    /// Whether nothing has told it yet: more came each time that more was allowed.
    pub(super) fn is_unknown(&self) -> bool {
        self.known.is_none() && self.tries < TRIES
    }

    /// What is free where so much comes. (paper, §IV-A: BW_A = max(0, α·C − BW_T))
    pub(super) fn free(&self, rate: Rate) -> Rate {
        if self.is_unknown() {
            return rate;
        }
        let filled = part(self.rate().unwrap_or_default(), FILLED);
        Rate::from_bits_per_sec((filled - rate.bits_per_sec() as f64).max(0.0))
    }
}
