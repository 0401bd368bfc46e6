//! Deadline of a run: its timeout, or a termination signal.

use crate::base::error::{LabError, Result};
use crate::base::signals::Signals;
use std::thread;
use std::time::{Duration, Instant};

/// Longest sleep between two checks. (chosen: not noticeable after Ctrl-C)
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Latest end of a run.
#[derive(Debug, Clone, Copy)]
pub struct Deadline<'s> {
    signals: &'s Signals,
    limit: Duration,
    at: Instant,
}

impl<'s> Deadline<'s> {
    /// Deadline `limit` from now.
    #[must_use]
    pub fn new(signals: &'s Signals, limit: Duration) -> Self {
        Self { signals, limit, at: Instant::now() + limit }
    }

    /// Reason to end now; `None` while the run may continue.
    #[must_use]
    pub fn expired(&self) -> Option<String> {
        if self.signals.count() > 0 {
            return Some("interrupted".to_owned());
        }
        (Instant::now() > self.at).then(|| format!("timed out after {:?}", self.limit))
    }

    /// Fails if the run must end.
    ///
    /// # Errors
    /// [`LabError::Command`] with `what` and the reason.
    pub fn check(&self, what: &str) -> Result<()> {
        self.expired().map_or(Ok(()), |why| Err(LabError::Command(what.to_owned(), why)))
    }

    /// Sleeps until `moment`.
    ///
    /// # Errors
    /// [`LabError::Command`] as soon as the deadline has expired.
    pub fn sleep_until(&self, moment: Instant, what: &str) -> Result<()> {
        loop {
            self.check(what)?;
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_ends_at_time_timeout_or_signal() {
        let signals = Signals::unwatched();
        let deadline = Deadline::new(&signals, Duration::from_secs(60));
        let began = Instant::now();
        deadline.sleep_until(began + Duration::from_millis(30), "it").unwrap();
        assert!(began.elapsed() >= Duration::from_millis(30));
        let short = Deadline::new(&signals, Duration::from_millis(20));
        let later = Instant::now() + Duration::from_secs(60);
        let error = short.sleep_until(later, "it").unwrap_err().to_string();
        assert_eq!(error, "`it` failed: timed out after 20ms");
        signals.interrupt();
        let error = deadline.sleep_until(later, "it").unwrap_err().to_string();
        assert_eq!(error, "`it` failed: interrupted");
    }
}
