//! When a run must end, whatever it is doing: at its limit, or when somebody asks.

use crate::error::{LabError, Result};
use crate::signals::Signals;
use std::thread;
use std::time::{Duration, Instant};

/// Longest sleep before looking again. (ours: whoever pressed Ctrl-C does not notice it)
const LOOK: Duration = Duration::from_millis(10);

/// The end of a run at the latest.
#[derive(Debug, Clone, Copy)]
pub struct Deadline<'s> {
    signals: &'s Signals,
    limit: Duration,
    at: Instant,
}

impl<'s> Deadline<'s> {
    /// The limit counts from now on.
    #[must_use]
    pub fn new(signals: &'s Signals, limit: Duration) -> Self {
        Self { signals, limit, at: Instant::now() + limit }
    }

    /// Why it must end now; `None` as long as it may go on.
    #[must_use]
    pub fn reached(&self) -> Option<String> {
        if self.signals.count() > 0 {
            return Some("interrupted".to_owned());
        }
        (Instant::now() > self.at).then(|| format!("given up after {:?}", self.limit))
    }

    /// Fails when it must end.
    ///
    /// # Errors
    /// [`LabError::Command`] with the name of what had to end, and why.
    pub fn check(&self, what: &str) -> Result<()> {
        self.reached().map_or(Ok(()), |why| Err(LabError::Command(what.to_owned(), why)))
    }

    /// Sleeps until a moment.
    ///
    /// # Errors
    /// What [`Deadline::check`] says, as soon as it does.
    pub fn sleep_until(&self, moment: Instant, what: &str) -> Result<()> {
        loop {
            self.check(what)?;
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_at_its_moment_at_the_limit_or_when_somebody_asks() {
        let signals = Signals::none();
        let deadline = Deadline::new(&signals, Duration::from_secs(60));
        let began = Instant::now();
        deadline.sleep_until(began + Duration::from_millis(30), "it").unwrap();
        assert!(began.elapsed() >= Duration::from_millis(30));
        let short = Deadline::new(&signals, Duration::from_millis(20));
        let later = Instant::now() + Duration::from_secs(60);
        let error = short.sleep_until(later, "it").unwrap_err().to_string();
        assert_eq!(error, "`it` failed: given up after 20ms");
        signals.ask();
        let error = deadline.sleep_until(later, "it").unwrap_err().to_string();
        assert_eq!(error, "`it` failed: interrupted");
    }
}
