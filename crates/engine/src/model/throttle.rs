//! Rate limit shared by all data streams of a session: each stream waits before it sends a burst.
//!
//! TCP pacing alone does not suffice: it only divides the rate among the connections for some time
//! ahead, sends the first segments unpaced, and does not exist through ssh. Here it smooths the
//! traffic within the limit.
//!
//! The limit may change, and end, while streams wait for it: they then wait anew at the new rate.

use crate::base::sync::lock;
use bankfull_control::pacing::RateLimiter;
use bankfull_control::{Bytes, Rate};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Burst size while there is no limit, in bytes. (chosen: one read of a stream; a limit that begins
/// finds no more than this under way in each stream)
const UNLIMITED_BURST_BYTES: usize = 256 << 10;

/// A rate shared by the data streams of a session.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Rate in bytes per second, 0 without a limit: that of `turns`, to be read without a lock.
    rate: AtomicU64,
    turns: Mutex<Turns>,
    /// Signalled when waiting streams have to look again.
    changed: Condvar,
    /// Origin of the times of `turns`.
    origin: Instant,
}

#[derive(Debug)]
struct Turns {
    limiter: RateLimiter,
    /// Number of changes of the rate. Turns reserved before the last one are void.
    changes: u64,
    /// Bytes that have had their turn.
    passed: u64,
    is_closed: bool,
}

impl Turns {
    fn max_burst_bytes(&self) -> usize {
        match self.limiter.rate() > Rate::default() {
            true => self.limiter.quantum().0 as usize,
            false => UNLIMITED_BURST_BYTES,
        }
    }

    /// Reserves a turn; returns when it begins, and its bytes without the overhead.
    ///
    /// At most a burst is reserved: one at the old rate might take minutes at the new one.
    fn reserve(&mut self, now: Duration, bytes: usize, overhead: usize) -> (Duration, usize) {
        let granted = bytes.min(self.max_burst_bytes());
        let charged = Bytes((granted + overhead) as u64);
        (self.limiter.reserve(now, charged), granted)
    }
}

impl Throttle {
    /// Creates a throttle; `None`: without a limit for now.
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        let rate = rate.unwrap_or_default();
        let limiter = RateLimiter::new(rate);
        Self {
            rate: AtomicU64::new(rate.bytes_per_sec()),
            turns: Mutex::new(Turns { limiter, changes: 0, passed: 0, is_closed: false }),
            changed: Condvar::new(),
            origin: Instant::now(),
        }
    }

    /// Returns the limit, if there is one.
    pub(crate) fn rate(&self) -> Option<Rate> {
        let rate = Rate::from_bytes_per_sec(self.rate.load(Ordering::Relaxed));
        Some(rate).filter(|rate| *rate > Rate::default())
    }

    /// Replaces the limit; `None`: no limit. Waiting streams wait anew.
    pub(crate) fn set_rate(&self, rate: Option<Rate>) {
        if self.rate() == rate {
            return;
        }
        let rate = rate.unwrap_or_default();
        let mut turns = lock(&self.turns);
        turns.limiter.set_rate(self.origin.elapsed(), rate);
        turns.changes += 1;
        self.rate.store(rate.bytes_per_sec(), Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Returns the bytes that streams have waited for until now.
    pub(crate) fn passed(&self) -> Bytes {
        Bytes(lock(&self.turns).passed)
    }

    /// Returns the size limit of one burst, in bytes.
    pub(crate) fn max_burst_bytes(&self) -> usize {
        lock(&self.turns).max_burst_bytes()
    }

    /// Waits until a burst may be sent; returns how many of `bytes` it may have.
    ///
    /// `overhead` are bytes that were sent without waiting before.
    ///
    /// # Errors
    /// `ConnectionAborted` if the session ends first.
    pub(crate) fn wait(&self, bytes: usize, overhead: usize) -> io::Result<usize> {
        self.wait_unless(bytes, overhead, || false)
    }

    /// Waits for a turn; returns how many of `bytes` it is for.
    ///
    /// # Errors
    /// `ConnectionAborted` if the throttle is closed first, or `is_abandoned` after a
    /// [`wake`](Self::wake).
    pub(crate) fn wait_unless(
        &self,
        bytes: usize,
        overhead: usize,
        is_abandoned: impl Fn() -> bool,
    ) -> io::Result<usize> {
        let mut reserved = None;
        let mut turns = lock(&self.turns);
        loop {
            if turns.is_closed || is_abandoned() {
                // Others need not wait for a turn that is not taken.
                if let Some((changes, (_, granted))) = reserved
                    && changes == turns.changes
                {
                    turns.limiter.refund(Bytes((granted + overhead) as u64));
                }
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let now = self.origin.elapsed();
            let (start, granted) = match reserved {
                Some((changes, turn)) if changes == turns.changes => turn,
                _ => turns.reserve(now, bytes, overhead),
            };
            reserved = Some((turns.changes, (start, granted)));
            if start <= now {
                turns.passed += (bytes + overhead) as u64;
                return Ok(granted);
            }
            let waited = self.changed.wait_timeout(turns, start - now);
            turns = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Charges bytes that were sent without waiting; later bursts wait for them.
    pub(crate) fn charge(&self, bytes: usize) {
        lock(&self.turns).limiter.reserve(self.origin.elapsed(), Bytes(bytes as u64));
    }

    /// Lets waiting streams check whether they are abandoned.
    pub(crate) fn wake(&self) {
        // With the lock: none is between its check and its wait.
        let _turns = lock(&self.turns);
        self.changed.notify_all();
    }

    /// Wakes all waiting streams with an error: the session ends.
    pub(crate) fn close(&self) {
        lock(&self.turns).is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    fn bytes_per_sec(rate: u64) -> Option<Rate> {
        Some(Rate::from_bytes_per_sec(rate))
    }

    /// A throttle on which the next burst waits for 12 days.
    fn blocked() -> Throttle {
        let throttle = Throttle::new(bytes_per_sec(1));
        throttle.wait(0, 1_000_000).unwrap();
        throttle
    }

    #[test]
    fn concurrent_streams_share_the_rate() {
        let throttle = Throttle::new(bytes_per_sec(1_000_000));
        let started = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..10).for_each(|_| assert_eq!(throttle.wait(5_000, 0).unwrap(), 5_000))
                });
            }
        });
        // 40 bursts of 5 ms each; the last one starts when the others have ended.
        assert!(started.elapsed() >= Duration::from_millis(185), "{:?}", started.elapsed());
    }

    #[test]
    fn close_wakes_waiting_streams() {
        let throttle = blocked();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| throttle.wait(1, 0));
            throttle.close();
            assert!(waiting.join().unwrap().is_err());
        });
        assert!(throttle.wait(0, 0).is_err());
    }

    #[test]
    fn new_rate_releases_streams_that_wait_at_the_old_one() {
        for rate in [None, bytes_per_sec(1_000_000)] {
            let throttle = blocked();
            thread::scope(|scope| {
                let waiting = [(); 3].map(|()| scope.spawn(|| throttle.wait(10_000, 0)));
                throttle.set_rate(rate);
                waiting.into_iter().for_each(|waiting| assert!(waiting.join().unwrap().is_ok()));
            });
            assert_eq!(throttle.rate(), rate);
        }
    }

    #[test]
    fn burst_of_the_old_rate_is_split_at_the_new_one() {
        let throttle = Throttle::new(bytes_per_sec(1_000));
        throttle.wait(0, 1_000_000).unwrap();
        thread::scope(|scope| {
            let waiting = [(); 3].map(|()| scope.spawn(|| throttle.wait(256 << 10, 0)));
            let started = Instant::now();
            throttle.set_rate(bytes_per_sec(20_000));
            for granted in waiting.map(|waiting| waiting.join().unwrap().unwrap()) {
                assert_eq!(granted, 1448);
            }
            // Two turns of 72 ms; whole bursts would take 26 s.
            assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        });
    }

    #[test]
    fn limit_that_begins_makes_streams_wait() {
        let throttle = Throttle::new(None);
        let started = Instant::now();
        (0..1_000).for_each(|_| assert_eq!(throttle.wait(1 << 20, 0).unwrap(), 256 << 10));
        assert_eq!((throttle.rate(), throttle.max_burst_bytes()), (None, 256 << 10));
        throttle.set_rate(bytes_per_sec(100_000));
        assert_eq!(throttle.max_burst_bytes(), 1448);
        let unlimited = started.elapsed();
        (0..9).for_each(|_| assert_eq!(throttle.wait(5_000, 0).unwrap(), 1448));
        assert!(started.elapsed() >= unlimited + Duration::from_millis(95));
    }

    #[test]
    fn wake_ends_the_wait_of_abandoned_streams_alone() {
        let throttle = blocked();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let abandoned =
                scope.spawn(|| throttle.wait_unless(1, 0, || is_over.load(Ordering::Relaxed)));
            let other = scope.spawn(|| throttle.wait(1, 0));
            is_over.store(true, Ordering::Relaxed);
            throttle.wake();
            assert!(abandoned.join().unwrap().is_err());
            assert!(!other.is_finished());
            throttle.set_rate(None);
            assert!(other.join().unwrap().is_ok());
        });
    }
}
