//! Findings of SOBAS about the path, for the choice of the number of streams.

use super::Sobas;
use crate::path_control::{PathState, Reason, State};

impl Sobas {
    /// Returns the findings about the path.
    #[must_use]
    pub fn path_state(&self) -> PathState {
        let is_lost_without_queue = matches!(
            self.last_reason,
            Some(Reason::LostWithoutQueue | Reason::CongestedLoss | Reason::LossSensitiveCc)
        );
        let disabled_by = self.last_reason.filter(|_| self.state == State::Disabled);
        PathState {
            is_lossy: is_lost_without_queue || self.has_loss_without_queue(),
            is_short: disabled_by == Some(Reason::ShortPath),
            is_oversubscribed: matches!(disabled_by, Some(Reason::TooManyStreams(_))),
            has_foreign_queue: false,
            is_ack_limited: false,
            is_full: matches!(self.state, State::Limited | State::Growing | State::Reprobing),
        }
    }
}
