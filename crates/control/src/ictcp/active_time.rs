//! Active time: time with grants outstanding, and the bytes received in it. Rates exclude pauses
//! between requests, which depend on the application.

use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Bytes received in active time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ActiveTime {
    /// Time and byte count up to which it is counted; `None` in a pause.
    counted_from: Option<(Duration, u64)>,
    time: Duration,
    bytes: u64,
}

impl ActiveTime {
    /// Starts or continues active time; no data can arrive before `from`.
    pub(super) fn start(&mut self, from: Duration, received: u64) {
        self.counted_from.get_or_insert((from, received));
    }

    /// Discards the count and everything received before `from`.
    pub(super) fn restart(&mut self, from: Duration, received: u64) {
        (self.time, self.bytes) = Default::default();
        self.counted_from = self.counted_from.map(|_| (from, received));
    }

    /// Counts the time and bytes up to the latest arrival, unless paused.
    pub(super) fn advance(&mut self, now: Duration, received: u64) {
        if let Some((from, before)) = &mut self.counted_from
            && received > *before
        {
            // Data from before `from` was granted earlier.
            if now >= *from {
                self.time += now - *from;
                self.bytes += received - *before;
                *from = now;
            }
            *before = received;
        }
    }

    /// Pauses: no grants are outstanding.
    pub(super) fn pause(&mut self, now: Duration, received: u64) {
        self.advance(now, received);
        self.counted_from = None;
    }

    /// True if active time is paused.
    pub(super) fn is_paused(&self) -> bool {
        self.counted_from.is_none()
    }

    /// Returns the active time counted.
    pub(super) fn elapsed(&self) -> Duration {
        self.time
    }

    /// Returns the rate.
    pub(super) fn rate(&self) -> Rate {
        Bytes(self.bytes).per(self.time)
    }

    /// Returns the rate and resets the count.
    pub(super) fn take(&mut self) -> Rate {
        let rate = self.rate();
        (self.time, self.bytes) = Default::default();
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_are_not_counted() {
        let mut active_time = ActiveTime::default();
        for round in 0..10 {
            let start = MS * 100 * round;
            active_time.start(start + MS, u64::from(round) * 1000);
            active_time.advance(start + MS * 2, u64::from(round) * 1000 + 500);
            active_time.pause(start + MS * 3, u64::from(round) * 1000 + 1000);
        }
        assert_eq!(active_time.elapsed(), MS * 20);
        assert_eq!(active_time.take(), Rate::from_bytes_per_sec(500_000));
        assert_eq!((active_time.elapsed(), active_time.take()), (Duration::ZERO, Rate::default()));
    }

    #[test]
    fn simultaneous_arrivals_are_counted() {
        let mut active_time = ActiveTime::default();
        active_time.start(MS, 0);
        [100, 300, 500].into_iter().for_each(|received| active_time.advance(MS * 2, received));
        assert_eq!(active_time.take(), Rate::from_bytes_per_sec(500_000));
    }

    #[test]
    fn early_arrivals_are_ignored() {
        let mut active_time = ActiveTime::default();
        active_time.start(MS * 5, 0);
        active_time.advance(MS * 4, 100);
        active_time.advance(MS * 6, 300);
        assert_eq!(active_time.take(), Rate::from_bytes_per_sec(200_000));
    }
}
