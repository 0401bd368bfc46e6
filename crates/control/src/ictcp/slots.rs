//! Global slots of two subslots: the first measures the available bandwidth, the second lets
//! windows grow by it. (paper, §IV-B)

use super::active_time::ActiveTime;
use crate::path_control::TICK;
use crate::units::Rate;
use std::time::Duration;

/// Minimum length of a subslot: one sample. The paper's driver sees each packet.
pub(super) const MIN_SUBSLOT: Duration = TICK;

/// Subslots after which rates are compared.
///
/// This holds for trials of a longer queue, for tests for cross traffic, and between two steps of
/// the queue beside it. As many growths without a new peak show the capacity. (measured,
/// docs/algorithms/sensitivity-gather.md: half or twice loses goodput)
pub(super) const EVALUATION_SUBSLOTS: u32 = 8;

/// Returns the time after which a decision or a grant has had its effect: two RTTs and subslots.
pub(super) fn settling_time(rtt: Duration) -> Duration {
    (rtt + MIN_SUBSLOT) * 2
}

/// Subslot of a global slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Subslot {
    /// The available bandwidth is measured and nothing grows.
    #[default]
    Measure,
    /// Windows may grow within the quota.
    Increase,
}

/// Current subslot and its quota, in active time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slots {
    subslot: Subslot,
    quota: Rate,
}

impl Slots {
    /// Returns the next subslot and the rate of the last, when the last is over.
    pub(super) fn advance(
        &self,
        active_time: &mut ActiveTime,
        length: Duration,
    ) -> Option<(Subslot, Rate)> {
        (active_time.elapsed() >= length).then(|| {
            let next =
                if self.subslot == Subslot::Measure { Subslot::Increase } else { Subslot::Measure };
            (next, active_time.take())
        })
    }

    /// Starts a subslot with the available bandwidth.
    pub(super) fn start(&mut self, subslot: Subslot, available: Rate) {
        self.subslot = subslot;
        self.quota = if subslot == Subslot::Increase { available } else { Rate::default() };
    }

    pub(super) fn subslot(&self) -> Subslot {
        self.subslot
    }

    pub(super) fn is_increase(&self) -> bool {
        self.subslot == Subslot::Increase
    }

    /// Spends some of the quota, if it suffices.
    pub(super) fn spend(&mut self, cost: Rate) -> bool {
        let is_there = self.is_increase() && cost <= self.quota;
        if is_there {
            let left = self.quota.bits_per_sec() - cost.bits_per_sec();
            self.quota = Rate::from_bits_per_sec(left as f64);
        }
        is_there
    }
}
