//! Loss without a queue, and its treatment under a loss-tolerant congestion control.

use super::Sobas;
use super::interval::Interval;
use crate::loss::LossSample;
use crate::path_control::{Decision, Reason};
use std::time::Duration;

impl Sobas {
    /// Returns true if losses continue without a self-induced queue.
    #[must_use]
    pub fn has_loss_without_queue(&self) -> bool {
        self.history.has_loss_without_queue(self.queue_threshold())
    }

    /// Enters or leaves a loss-tolerant congestion control, such as BBR.
    ///
    /// `baseline_loss` is the random loss of the path; `None` ends it. Such losses do not count,
    /// and no window is set, since data after a lost segment needs buffer until the repair: the
    /// pacing rate alone limits the path.
    pub fn on_loss_tolerant_cc(
        &mut self,
        now: Duration,
        baseline_loss: Option<LossSample>,
    ) -> Option<Decision> {
        let before = std::mem::replace(&mut self.baseline_loss, baseline_loss);
        if before.is_some() == baseline_loss.is_some() {
            return None;
        }
        if self.is_short_path() {
            return None;
        }
        if baseline_loss.is_none() {
            return Some(self.enter_disabled(now, Reason::LossSensitiveCc));
        }
        // The refutation may have been a repaired loss, which delivers all data behind it at once.
        // If the capacity was wrong, the trial detects it.
        self.capacity = self.train_capacity;
        Some(self.enter_avoidance(now, Reason::LossTolerantCc))
    }

    /// Removes losses within the baseline from an interval.
    pub(super) fn discount_baseline_loss(&self, interval: Interval) -> Interval {
        let losses = interval.losses();
        match self.baseline_loss.is_some_and(|baseline| !losses.exceeds(baseline)) {
            true => Interval { retransmits: 0, probes_lost: 0, ..interval },
            false => interval,
        }
    }
}
