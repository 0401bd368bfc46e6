//! Retries of a connection that a busy daemon does not admit yet.

use crate::base::backoff::Backoff;
use crate::base::error::Error;
use std::time::{Duration, Instant};

/// First and longest pause before a retry. (chosen: the daemon keeps a client waiting for 3 s
/// itself)
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// Retries after an unknown server has closed connections without a message.
///
/// Another program may listen there; a crowded daemon also closes connections. (chosen: about a
/// second)
const MAX_DROPPED_RETRIES: u32 = 3;

/// Retries of a connection to a busy daemon.
pub(super) struct BusyRetry {
    deadline: Instant,
    backoff: Backoff,
    retries: u32,
    dropped: u32,
    /// True if the server is known to be a daemon.
    is_known: bool,
}

impl BusyRetry {
    /// Starts the time of all attempts together.
    pub(super) fn new(timeout: Duration, is_known: bool) -> Self {
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or(now);
        let backoff = Backoff::new(PAUSES.0, PAUSES.1);
        Self { deadline, backoff, retries: 0, dropped: 0, is_known }
    }

    /// True before the first retry.
    pub(super) fn is_first(&self) -> bool {
        self.retries == 0
    }

    /// True if the connection may be tried again after this error.
    pub(super) fn is_allowed(&mut self, error: &Error) -> bool {
        self.dropped += u32::from(error.is_dropped());
        let max_dropped = if self.is_known { u32::MAX } else { MAX_DROPPED_RETRIES };
        let is_temporary = error.is_busy() || error.is_dropped() && self.dropped <= max_dropped;
        is_temporary && Instant::now() < self.deadline
    }

    /// Returns the time to wait before the next attempt.
    pub(super) fn next_pause(&mut self) -> Duration {
        self.retries += 1;
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.backoff.next_pause().min(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;
    use bankfull_proto::wire::control::{Cause, Failure};

    fn busy() -> Error {
        Error::from_peer(&Failure::new(Cause::Busy, "no room"))
    }

    fn dropped() -> Error {
        Error::new(ErrorKind::Network, "closed").dropped()
    }

    #[test]
    fn busy_daemon_is_tried_until_the_deadline() {
        let mut retry = BusyRetry::new(Duration::from_secs(60), false);
        assert!(retry.is_first());
        for _ in 0..100 {
            assert!(retry.is_allowed(&busy()));
            let pause = retry.next_pause();
            assert!((PAUSES.0 / 2..=PAUSES.1).contains(&pause), "{pause:?}");
        }
        assert!(!retry.is_first());
        assert!(!BusyRetry::new(Duration::ZERO, true).is_allowed(&busy()));
    }

    #[test]
    fn server_that_drops_connections_is_tried_few_times() {
        let mut retry = BusyRetry::new(Duration::from_secs(60), false);
        for _ in 0..MAX_DROPPED_RETRIES {
            assert!(retry.is_allowed(&dropped()));
        }
        assert!(!retry.is_allowed(&dropped()));
        let mut known = BusyRetry::new(Duration::from_secs(60), true);
        assert!((0..100).all(|_| known.is_allowed(&dropped())));
        assert!(!retry.is_allowed(&Error::new(ErrorKind::Network, "unreachable")));
    }
}
