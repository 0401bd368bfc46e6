//! Rate limit that several sessions share: those of a gather, or those of a daemon's share.
//!
//! On the receiving side, a reading thread waits after each read from its socket, so that flow
//! control holds its sender.

use super::throttle::Throttle;
use bankfull_control::{Bytes, Rate};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A session's handle on the rate limit that it shares with others.
#[derive(Debug)]
pub(crate) struct SharedLimit {
    throttle: Arc<Throttle>,
    /// The limit is the administrator's, not the user's.
    is_fixed: bool,
    /// Bytes that all sessions had received when this one began.
    received_before: Bytes,
    /// The session has ended; its threads wait no more.
    is_over: AtomicBool,
}

impl SharedLimit {
    /// Creates the handle of a session that begins.
    pub(crate) fn new(throttle: Arc<Throttle>) -> Self {
        let received_before = throttle.passed();
        Self { throttle, is_fixed: false, received_before, is_over: AtomicBool::new(false) }
    }

    /// Creates the handle of a session that uses a share, whose limit it cannot change.
    pub(crate) fn of_share(throttle: Arc<Throttle>) -> Self {
        Self { is_fixed: true, ..Self::new(throttle) }
    }

    /// Returns the limit of all sessions together, if there is one now.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.throttle.rate()
    }

    /// Returns that limit, if the user has set it.
    pub(crate) fn user_rate(&self) -> Option<Rate> {
        self.rate().filter(|_| !self.is_fixed)
    }

    /// Replaces the limit of all sessions together, unless it is fixed.
    pub(crate) fn set_rate(&self, rate: Option<Rate>) {
        if !self.is_fixed {
            self.throttle.set_rate(rate);
        }
    }

    /// Returns the bytes of all sessions since this one began, if the user limits them.
    pub(crate) fn received(&self) -> Option<Bytes> {
        (!self.is_fixed)
            .then(|| Bytes(self.throttle.passed().0.saturating_sub(self.received_before.0)))
    }

    /// Returns the size limit of one read or burst, in bytes.
    pub(crate) fn max_burst_bytes(&self) -> usize {
        self.throttle.max_burst_bytes()
    }

    /// Waits for the time that bytes take.
    ///
    /// Bytes beyond a burst were read before the limit became lower, and take no time.
    ///
    /// # Errors
    /// `ConnectionAborted` if the session ends first.
    pub(crate) fn wait(&self, bytes: usize) -> io::Result<()> {
        let is_over = || self.is_over.load(Ordering::Relaxed);
        self.throttle.wait_unless(bytes, 0, is_over).map(drop)
    }

    /// Ends the waits of this session; those of others go on.
    pub(crate) fn close(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.throttle.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn closed_session_leaves_the_limit_to_the_others() {
        let throttle = Arc::new(Throttle::new(Some(Rate::from_bytes_per_sec(1))));
        let ended = SharedLimit::new(Arc::clone(&throttle));
        ended.wait(1_000).unwrap();
        let other = SharedLimit::new(throttle);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| ended.wait(1));
            ended.close();
            assert!(waiting.join().unwrap().is_err());
        });
        assert!(ended.wait(1).is_err());
        other.set_rate(Some(Rate::from_bytes_per_sec(1_000_000)));
        assert_eq!((ended.rate(), other.max_burst_bytes()), (other.rate(), 10_000));
        let started = Instant::now();
        (0..5).for_each(|_| other.wait(10_000).unwrap());
        assert!(started.elapsed() >= Duration::from_millis(35), "{:?}", started.elapsed());
        let received = (Some(Bytes(51_000)), Some(Bytes(50_000)));
        assert_eq!((ended.received(), other.received()), received);
    }

    #[test]
    fn limit_of_a_share_is_not_changed_by_a_session() {
        let rate = Some(Rate::from_bytes_per_sec(1_000));
        let limit = SharedLimit::of_share(Arc::new(Throttle::new(rate)));
        limit.set_rate(None);
        assert_eq!((limit.rate(), limit.user_rate(), limit.received()), (rate, None, None));
    }
}
