//! Time in which something was asked for, and what came in it: rates without the pauses between
//! requests, which say nothing of the line.

use crate::units::{Bytes, Rate};
use std::time::Duration;

/// What came in how much time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Busy {
    /// Up to when it was counted, with what had come by then; `None` in a pause.
    counted: Option<(Duration, u64)>,
    time: Duration,
    bytes: u64,
}

impl Busy {
    /// Something is asked for; nothing can come before `from`.
    pub(super) fn begin(&mut self, from: Duration, received: u64) {
        self.counted.get_or_insert((from, received));
    }

    /// What came by `from` does not count, nor what came before.
    pub(super) fn restart(&mut self, from: Duration, received: u64) {
        (self.time, self.bytes) = Default::default();
        self.counted = self.counted.map(|_| (from, received));
    }

    /// So much has come up to now.
    pub(super) fn advance(&mut self, now: Duration, received: u64) {
        if let Some((from, before)) = &mut self.counted
            && received > *before
        {
            // What comes sooner than was thought takes no time, and is not counted.
            if now >= *from {
                self.time += now - *from;
                self.bytes += received - *before;
                *from = now;
            }
            *before = received;
        }
    }

    /// All has come that was asked for.
    pub(super) fn pause(&mut self, now: Duration, received: u64) {
        self.advance(now, received);
        self.counted = None;
    }

    /// Whether nothing is asked for.
    pub(super) fn is_paused(&self) -> bool {
        self.counted.is_none()
    }

    /// Time in which something could come.
    pub(super) fn time(&self) -> Duration {
        self.time
    }

    /// The rate so far.
    pub(super) fn rate(&self) -> Rate {
        Bytes(self.bytes).per(self.time)
    }

    /// The rate, and begins anew.
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
    fn pauses_do_not_count() {
        let mut busy = Busy::default();
        for round in 0..10 {
            let start = MS * 100 * round;
            busy.begin(start + MS, u64::from(round) * 1000);
            busy.advance(start + MS * 2, u64::from(round) * 1000 + 500);
            busy.pause(start + MS * 3, u64::from(round) * 1000 + 1000);
        }
        assert_eq!(busy.time(), MS * 20);
        assert_eq!(busy.take(), Rate::from_bytes_per_sec(500_000));
        assert_eq!((busy.time(), busy.take()), (Duration::ZERO, Rate::default()));
    }

    #[test]
    fn what_comes_at_the_same_instant_counts() {
        let mut busy = Busy::default();
        busy.begin(MS, 0);
        [100, 300, 500].into_iter().for_each(|received| busy.advance(MS * 2, received));
        assert_eq!(busy.take(), Rate::from_bytes_per_sec(500_000));
    }

    #[test]
    fn what_comes_early_takes_no_time_and_says_nothing() {
        let mut busy = Busy::default();
        busy.begin(MS * 5, 0);
        busy.advance(MS * 4, 100);
        busy.advance(MS * 6, 300);
        assert_eq!(busy.take(), Rate::from_bytes_per_sec(200_000));
    }
}
