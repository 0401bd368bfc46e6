//! What SOBAS starts with, and what it decides.

use super::reason::{Reason, State};
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// What a transfer starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The widest window; what holds nothing.
    pub window_max: Bytes,
    /// How long to wait for the estimate of the capacity.
    pub probe_time: Duration,
    /// The most that is ever allowed; `None`: what the path carries.
    pub rate_max: Option<Rate>,
    /// What an earlier transfer saw, for where no estimate of the capacity comes.
    pub remembered: Option<Remembered>,
}

/// What a transfer saw of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// The rate of data at which it was held last.
    pub rate: Rate,
    /// The shortest round trip.
    pub rtt: Duration,
}

/// What is to be held from now on, for all connections together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// When it was made.
    pub at: Duration,
    /// Where the controller stands now.
    pub state: State,
    /// The receive window.
    pub window: Bytes,
    /// The rate of data; `None`: as TCP does without us.
    pub pacing: Option<Rate>,
    /// Why.
    pub reason: Reason,
}
