//! Coscheduling state of a receiving session.

use crate::base::barrier::BarrierParty;
use crate::base::sync::lock;
use bankfull_control::Rate;
use bankfull_control::ictcp::Reason;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Coscheduling state of a receiving session.
#[derive(Debug, Default)]
pub(crate) struct InterfaceSharing {
    /// The session's windows and pacing may be tuned.
    pub(crate) is_tunable: bool,
    /// The sender needs credit for all data.
    pub(crate) is_grant_driven: bool,
    /// Number of sessions that will share the interface, including future ones.
    expected_sessions: Option<Arc<AtomicUsize>>,
    /// Handle at the barrier, if the sender sends in rounds.
    pub(crate) barrier_party: Option<BarrierParty>,
    /// Link rate that the user set.
    pub(crate) link_rate: Option<Rate>,
    /// Sum of the session's window clamps in bytes; 0 while not coscheduled.
    window: AtomicU64,
    /// Number of connections that share the interface.
    connections: AtomicUsize,
    /// Decision about the session's streams made last.
    last_decision: Mutex<Option<LastDecision>>,
}

/// Latest decision about the streams of a session on a shared interface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LastDecision {
    /// Reason for the window set last.
    pub(crate) reason: Reason,
    /// Pacing rate requested from the sender, if any.
    pub(crate) pacing: Option<Rate>,
}

impl InterfaceSharing {
    /// Creates the state of a session that is not coscheduled yet. See the fields.
    pub(crate) fn new(
        is_tunable: bool,
        is_grant_driven: bool,
        link_rate: Option<Rate>,
        expected_sessions: Option<Arc<AtomicUsize>>,
    ) -> Self {
        Self { is_tunable, is_grant_driven, link_rate, expected_sessions, ..Self::default() }
    }

    /// True if the session is coscheduled even while alone: it sends in rounds, or more sessions
    /// are expected.
    pub(crate) fn needs_coscheduling(&self) -> bool {
        let is_many = |count: &Arc<AtomicUsize>| count.load(Ordering::Relaxed) > 1;
        self.barrier_party.is_some() || self.expected_sessions.as_ref().is_some_and(is_many)
    }

    /// Returns the session's total window and the interface's connections while coscheduled.
    pub(crate) fn coscheduled(&self) -> Option<(u64, usize)> {
        let window = self.window.load(Ordering::Relaxed);
        (window > 0).then(|| (window, self.connections.load(Ordering::Relaxed)))
    }

    /// Returns the latest decision while coscheduled.
    pub(crate) fn last_decision(&self) -> Option<LastDecision> {
        *lock(&self.last_decision)
    }

    /// Records the reason for a new window.
    pub(crate) fn set_window_reason(&self, reason: Reason) {
        let mut last = lock(&self.last_decision);
        *last = Some(LastDecision { reason, pacing: last.and_then(|last| last.pacing) });
    }

    /// Records the pacing rate requested from the sender.
    pub(crate) fn set_pacing(&self, pacing: Rate) {
        if let Some(last) = &mut *lock(&self.last_decision) {
            last.pacing = Some(pacing);
        }
    }

    /// Sets the session's total window, 0 to end coscheduling, and the interface's connections.
    pub(crate) fn set_coscheduled(&self, window: u64, connections: usize) {
        if window == 0 {
            *lock(&self.last_decision) = None;
        }
        self.window.store(window, Ordering::Relaxed);
        self.connections.store(connections, Ordering::Relaxed);
    }
}
