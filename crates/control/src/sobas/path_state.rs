//! Findings of SOBAS about the path, for the choice of the number of streams.

use super::Sobas;
use super::reason::{Reason, State};

/// Findings about the path, from the last decision and the latest intervals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathState {
    /// True if losses continue without a queue: cross traffic in a shallow buffer, or random loss.
    pub is_lossy: bool,
    /// True if nothing is limited: the RTT is too short, as on a local network.
    pub is_short: bool,
    /// True if nothing is limited: the initial windows of all streams exceed what the path carries.
    /// There are too many streams, or cross traffic leaves too little.
    pub is_oversubscribed: bool,
    /// True if other flows or a varying rate keep a queue despite lower rates.
    pub has_foreign_queue: bool,
    /// True if a queue of acknowledgements limits the rate.
    pub is_ack_limited: bool,
    /// True if the path is full at the current target. Remains true after the target is raised.
    pub is_full: bool,
}

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
