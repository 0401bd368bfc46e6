//! Global slots: in the first half of each it is seen what the port has free, in the second
//! windows may grow by that much. (paper, §IV-B)

use super::busy::Busy;
use crate::units::Rate;
use std::time::Duration;

/// A half is no shorter. (ours: how often a program can afford to look at hundreds of connections;
/// the paper's driver sees each packet)
pub(super) const HALF_MIN: Duration = Duration::from_millis(10);

/// Which half begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Half {
    /// It is seen what comes, and nothing grows.
    #[default]
    Measure,
    /// Windows may grow.
    Spend,
}

/// Slots of time in which something comes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slots {
    half: Half,
    quota: Rate,
}

impl Slots {
    /// When a half is over: the one that begins, and what came in the last one.
    pub(super) fn advance(&self, busy: &mut Busy, length: Duration) -> Option<(Half, Rate)> {
        (busy.time() >= length).then(|| {
            let next = if self.half == Half::Measure { Half::Spend } else { Half::Measure };
            (next, busy.take())
        })
    }

    /// A half begins, with so much free.
    pub(super) fn begin(&mut self, half: Half, free: Rate) {
        self.half = half;
        self.quota = if half == Half::Spend { free } else { Rate::default() };
    }

    pub(super) fn half(&self) -> Half {
        self.half
    }

    pub(super) fn is_spending(&self) -> bool {
        self.half == Half::Spend
    }

    /// Takes something from the quota, if it is there.
    pub(super) fn spend(&mut self, cost: Rate) -> bool {
        let is_there = self.is_spending() && cost <= self.quota;
        if is_there {
            let left = self.quota.bits_per_sec() - cost.bits_per_sec();
            self.quota = Rate::from_bits_per_sec(left as f64);
        }
        is_there
    }
}
