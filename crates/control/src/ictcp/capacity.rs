//! Capacity of the port: known, or measured by allowing more until no more arrives.

use super::slots::{EVALUATION_SUBSLOTS, Subslot};
use crate::units::Rate;

/// Available bandwidth, of the capacity, below which it is scarce: connections above their share
/// shrink. (paper, §IV-D: 0.2) With more, the port is underused.
const SCARCE_BANDWIDTH_FRACTION: f64 = 0.2;

/// Fraction of the capacity below which the port is underused.
pub(super) const UNDERUSED_FRACTION: f64 = 1.0 - SCARCE_BANDWIDTH_FRACTION;

/// Capacity estimate in payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    known: Option<Rate>,
    /// Highest rate of a subslot.
    peak: Rate,
    /// Slots in which windows grew and the rate did not.
    futile_growths: u32,
    has_grown: bool,
}

impl Capacity {
    pub(super) fn new(known: Option<Rate>) -> Self {
        Self { known, peak: Rate::default(), futile_growths: 0, has_grown: false }
    }

    /// Records that a window has grown.
    pub(super) fn on_growth(&mut self) {
        self.has_grown = true;
    }

    /// Records the rate of a subslot.
    pub(super) fn on_rate(&mut self, rate: Rate, subslot: Subslot) {
        if rate > self.peak {
            self.futile_growths = 0;
            self.peak = rate;
        } else if subslot == Subslot::Measure && std::mem::take(&mut self.has_grown) {
            self.futile_growths = self.futile_growths.saturating_add(1);
        }
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        self.known.or(Some(self.peak).filter(|peak| peak.bits_per_sec() > 0))
    }

    /// True if the capacity is still unknown: growth has raised the rate lately.
    pub(super) fn is_unknown(&self) -> bool {
        self.known.is_none() && self.futile_growths < EVALUATION_SUBSLOTS
    }

    /// True if so little bandwidth is available that connections above their share shrink.
    pub(super) fn is_scarce(&self, available: Rate) -> bool {
        let capacity = self.rate().unwrap_or_default().bits_per_sec() as f64;
        (available.bits_per_sec() as f64) < capacity * SCARCE_BANDWIDTH_FRACTION
    }

    /// Returns the available bandwidth. (paper, §IV-A: BW_A = max(0, α·C − BW_T); here α = 1, as
    /// windows are bounded by the port's queue)
    pub(super) fn available_bandwidth(&self, rate: Rate) -> Rate {
        if self.is_unknown() {
            return rate;
        }
        let capacity = self.rate().unwrap_or_default().bits_per_sec();
        Rate::from_bits_per_sec(capacity.saturating_sub(rate.bits_per_sec()) as f64)
    }
}
