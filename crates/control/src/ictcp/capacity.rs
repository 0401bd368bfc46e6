//! Capacity of the port: known, or measured by allowing more until no more arrives.

use super::slots::Subslot;
use crate::units::Rate;

/// Fraction of the capacity to fill. (paper, §IV-A: α = 0.9. Chosen: more, as windows are bounded
/// by the port's queue, and the overshoot that the paper reserves a tenth for does not occur)
const UTILIZATION_TARGET: f64 = 0.98;

/// Rate relative to the peak that counts as growth. (chosen: a segment per subslot)
const PEAK_GROWTH: f64 = 1.02;

/// Futile growths after which the peak is the capacity. (chosen)
const MAX_FUTILE_GROWTHS: u32 = 6;

/// Fraction of the known capacity below which an overflow indicates a shared path. (chosen)
const SHARED_PATH_FRACTION: f64 = 0.8;

/// Subslots whose maximum gives the current capacity, and the minimum number for that. (chosen:
/// rounds and hosts start and end slowly)
const RECENT_SUBSLOTS: usize = 8;

/// Growth of a reduced capacity each time it is filled. (chosen: 50 steps per second)
const RECOVERY_FACTOR: f64 = 1.02;

fn scaled(rate: Rate, part: f64) -> f64 {
    rate.bits_per_sec() as f64 * part
}

/// Capacity estimate in payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    known: Option<Rate>,
    /// Highest rate of a subslot.
    peak: Rate,
    /// Slots in which windows grew and the rate did not.
    futile_growths: u32,
    has_grown: bool,
    /// Rates of the last subslots.
    recent: [Rate; RECENT_SUBSLOTS],
    subslot_count: usize,
    /// Reduced capacity after an overflow below the known one: a path shared elsewhere.
    reduced: Option<Rate>,
}

impl Capacity {
    pub(super) fn new(known: Option<Rate>) -> Self {
        Self {
            known,
            peak: Rate::default(),
            futile_growths: 0,
            has_grown: false,
            recent: [Rate::default(); RECENT_SUBSLOTS],
            subslot_count: 0,
            reduced: None,
        }
    }

    /// Records that a window has grown.
    pub(super) fn on_growth(&mut self) {
        self.has_grown = true;
    }

    /// Records the rate of a subslot.
    pub(super) fn on_rate(&mut self, rate: Rate, subslot: Subslot) {
        if rate.bits_per_sec() as f64 > scaled(self.peak, PEAK_GROWTH) {
            self.futile_growths = 0;
        } else if subslot == Subslot::Measure && std::mem::take(&mut self.has_grown) {
            self.futile_growths = self.futile_growths.saturating_add(1);
        }
        self.peak = self.peak.max(rate);
        self.recent[self.subslot_count % RECENT_SUBSLOTS] = rate;
        self.subslot_count += 1;
        let known = self.known.unwrap_or_default().bits_per_sec() as f64;
        if let Some(reduced) = self
            .reduced
            .filter(|reduced| rate.bits_per_sec() as f64 > scaled(*reduced, UTILIZATION_TARGET))
        {
            let more = scaled(reduced, RECOVERY_FACTOR);
            self.reduced = (more < known).then(|| Rate::from_bits_per_sec(more));
        }
    }

    /// Reduces the capacity if the port overflowed clearly below it.
    pub(super) fn on_overflow(&mut self) {
        let most = self.recent.into_iter().max().unwrap_or_default();
        let is_less = |known| (most.bits_per_sec() as f64) < scaled(known, SHARED_PATH_FRACTION);
        if self.subslot_count >= RECENT_SUBSLOTS && self.known.is_some_and(is_less) {
            self.reduced = Some(most).filter(|most| most.bits_per_sec() > 0);
        }
    }

    /// Restores the known capacity: cross traffic at the port explains the overflow.
    pub(super) fn restore_known(&mut self) {
        self.reduced = None;
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        self.reduced.or(self.known).or(Some(self.peak).filter(|peak| peak.bits_per_sec() > 0))
    }

    /// True if the capacity is still unknown: each growth has raised the rate.
    pub(super) fn is_unknown(&self) -> bool {
        self.known.is_none() && self.futile_growths < MAX_FUTILE_GROWTHS
    }

    /// Returns the available bandwidth. (paper, §IV-A: BW_A = max(0, α·C − BW_T))
    pub(super) fn free(&self, rate: Rate) -> Rate {
        if self.is_unknown() {
            return rate;
        }
        let filled = scaled(self.rate().unwrap_or_default(), UTILIZATION_TARGET);
        Rate::from_bits_per_sec((filled - rate.bits_per_sec() as f64).max(0.0))
    }
}
