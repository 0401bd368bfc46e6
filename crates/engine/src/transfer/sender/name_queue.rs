//! Names of a list that the receiver has: requested in parts, of which two are in memory at most.

use super::Sender;
use crate::base::sync::lock;
use bankfull_proto::limits::MAX_LIST_PART_NAMES;
use bankfull_proto::wire::control::{Message, PathBytes};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Names that are left when the next part is requested. (chosen: half of a part)
const REQUEST_BELOW: usize = MAX_LIST_PART_NAMES / 2;

/// Interval of checks for the end of the session. (chosen: as for held files)
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Names that were received and not walked.
#[derive(Debug, Default)]
pub(super) struct NameQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    names: VecDeque<PathBytes>,
    is_requested: bool,
    is_ended: bool,
}

impl NameQueue {
    /// Adds a part of the list; an empty one is its end.
    pub(super) fn add(&self, part: Vec<PathBytes>) {
        let mut state = lock(&self.state);
        state.is_requested = false;
        state.is_ended = part.is_empty();
        state.names.extend(part);
        self.changed.notify_all();
    }
}

impl Sender<'_> {
    /// Returns the next name of the receiver's list; `None` at its end, and after a stop.
    pub(super) fn next_name(&self) -> Option<Vec<u8>> {
        let mut state = lock(&self.names.state);
        loop {
            let is_low = state.names.len() < REQUEST_BELOW;
            if is_low && !state.is_requested && !state.is_ended {
                state.is_requested = true;
                lock(&self.guard).on_list_requested();
                self.outbox.post(&Message::ListRequest);
            }
            if let Some(name) = state.names.pop_front() {
                return Some(name.0);
            }
            if state.is_ended || self.session.is_stopped() {
                return None;
            }
            let waited = self.names.changed.wait_timeout(state, STOP_CHECK_INTERVAL);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}
