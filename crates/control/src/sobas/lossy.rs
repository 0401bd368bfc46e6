//! Losses without a queue: whether they go on, and what they are under a congestion control that
//! takes no loss for congestion.

use super::{Decision, Reason, Sobas, Window};
use crate::losses::Losses;
use std::time::Duration;

impl Sobas {
    /// Whether losses go on while no queue of ours stands.
    #[must_use]
    pub fn loses_without_queue(&self) -> bool {
        self.history.is_congested(self.queue_allowed())
    }

    /// The connections have come under a congestion control that takes no loss for congestion, as
    /// BBR, because the path loses so much at random; or, without, they have left it. Such losses
    /// tell nothing then, and no window is held, for what follows a lost segment needs room until
    /// that is repaired: the pace alone holds the path.
    pub fn on_loss_proof(&mut self, now: Duration, usual: Option<Losses>) -> Option<Decision> {
        let before = std::mem::replace(&mut self.usual, usual);
        if before.is_some() == usual.is_some() {
            return None;
        }
        if self.is_short() {
            return None;
        }
        if usual.is_none() {
            return Some(self.disable(now, Reason::LossCounts));
        }
        // What refuted it may have been a repaired loss, which lets through at once what waited
        // behind it. If it was wrong, the trial will tell.
        self.capacity = self.told;
        Some(self.avoid(now, Reason::LossProof))
    }

    /// What a window tells, where some losses are no congestion.
    pub(super) fn without_usual(&self, window: Window) -> Window {
        match self.usual.is_some_and(|usual| !window.losses().exceed(usual)) {
            true => Window { retransmits: 0, probes_lost: 0, ..window },
            false => window,
        }
    }
}
