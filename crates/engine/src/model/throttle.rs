//! Rate limit shared by all data streams of a session: each stream waits before it sends a burst.
//!
//! TCP pacing alone does not suffice: it only divides the rate among the connections for some time
//! ahead, sends the first segments unpaced, and does not exist through ssh. Here it smooths the
//! traffic within the limit.

use crate::base::sync::Latch;
use crate::base::sync::lock;
use bankfull_control::pacing::RateLimiter;
use bankfull_control::{Bytes, Rate};
use std::io;
use std::sync::Mutex;
use std::time::Instant;

/// A rate shared by the data streams of a session.
pub(crate) struct Throttle {
    turns: Mutex<RateLimiter>,
    max_burst_bytes: usize,
    /// Origin of the times of `turns`.
    origin: Instant,
    closed: Latch,
}

impl Throttle {
    pub(crate) fn new(rate: Rate) -> Self {
        let turns = RateLimiter::new(rate);
        let max_burst_bytes = turns.quantum().0 as usize;
        Self {
            turns: Mutex::new(turns),
            max_burst_bytes,
            origin: Instant::now(),
            closed: Latch::default(),
        }
    }

    /// Returns the size limit of one burst, in bytes.
    pub(crate) fn max_burst_bytes(&self) -> usize {
        self.max_burst_bytes
    }

    /// Waits until a burst of `bytes` may be sent.
    ///
    /// # Errors
    /// `ConnectionAborted` if the session ends first.
    pub(crate) fn wait(&self, bytes: usize) -> io::Result<()> {
        let now = self.origin.elapsed();
        let start = lock(&self.turns).reserve(now, Bytes(bytes as u64));
        match self.closed.wait(start.saturating_sub(now)) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// Charges bytes that were sent without waiting; later bursts wait for them.
    pub(crate) fn charge(&self, bytes: usize) {
        lock(&self.turns).reserve(self.origin.elapsed(), Bytes(bytes as u64));
    }

    /// Wakes all waiting streams with an error: the session ends.
    pub(crate) fn close(&self) {
        self.closed.set();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn concurrent_streams_share_the_rate() {
        let throttle = Throttle::new(Rate::from_bytes_per_sec(1_000_000));
        let started = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| throttle.wait(5_000).unwrap()));
            }
        });
        // 40 bursts of 5 ms each; the last one starts when the others have ended.
        assert!(started.elapsed() >= Duration::from_millis(185), "{:?}", started.elapsed());
    }

    #[test]
    fn close_wakes_waiting_streams() {
        let throttle = Throttle::new(Rate::from_bytes_per_sec(1));
        throttle.wait(1_000_000).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| throttle.wait(1));
            throttle.close();
            assert!(waiting.join().unwrap().is_err());
        });
        assert!(throttle.wait(0).is_err());
    }
}
