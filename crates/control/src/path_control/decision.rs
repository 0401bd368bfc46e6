//! Configuration and decisions of a controller.

use super::reason::{Reason, State};
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Configuration of a transfer's controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Widest window; it limits nothing.
    pub window_max: Bytes,
    /// Time to wait for the capacity estimate.
    pub capacity_timeout: Duration,
    /// Rate limit of the user, if any.
    pub rate_max: Option<Rate>,
    /// Measurement of an earlier transfer, used without a capacity estimate.
    pub cached_path: Option<CachedPath>,
}

/// A path as measured by an earlier transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedPath {
    /// Payload rate of its last limit.
    pub rate: Rate,
    /// Min RTT.
    pub rtt: Duration,
}

/// Window and pacing rate from now on, for all streams together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Time of the decision.
    pub at: Duration,
    /// New state of the controller.
    pub state: State,
    /// Receive window.
    pub window: Bytes,
    /// Payload rate; `None`: not paced by the controller.
    pub pacing: Option<Rate>,
    /// Cause of the decision.
    pub reason: Reason,
}
