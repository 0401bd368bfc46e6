//! Rate limit on the receiving side, which the sessions of a gather share.
//!
//! A reading thread waits after each read from its socket, so that flow control holds its sender.

use super::throttle::Throttle;
use bankfull_control::{Bytes, Rate};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A session's handle on the rate limit that it shares with others.
#[derive(Debug)]
pub(crate) struct ReceiveLimit {
    throttle: Arc<Throttle>,
    /// Bytes that all sessions had received when this one began.
    received_before: Bytes,
    /// The session has ended; its threads wait no more.
    is_over: AtomicBool,
}

impl ReceiveLimit {
    /// Creates the handle of a session that begins.
    pub(crate) fn new(throttle: Arc<Throttle>) -> Self {
        let received_before = throttle.passed();
        Self { throttle, received_before, is_over: AtomicBool::new(false) }
    }

    /// Returns the limit of all sessions together, if there is one now.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.throttle.rate()
    }

    /// Replaces the limit of all sessions together.
    pub(crate) fn set_rate(&self, rate: Option<Rate>) {
        self.throttle.set_rate(rate);
    }

    /// Returns the bytes that all sessions have received since this one began.
    pub(crate) fn received(&self) -> Bytes {
        Bytes(self.throttle.passed().0.saturating_sub(self.received_before.0))
    }

    /// Returns the size limit of one read, in bytes.
    pub(crate) fn max_read_bytes(&self) -> usize {
        self.throttle.max_burst_bytes()
    }

    /// Waits for the time that received bytes take.
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
        let ended = ReceiveLimit::new(Arc::clone(&throttle));
        ended.wait(1_000).unwrap();
        let other = ReceiveLimit::new(throttle);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| ended.wait(1));
            ended.close();
            assert!(waiting.join().unwrap().is_err());
        });
        assert!(ended.wait(1).is_err());
        other.set_rate(Some(Rate::from_bytes_per_sec(1_000_000)));
        assert_eq!((ended.rate(), other.max_read_bytes()), (other.rate(), 10_000));
        let started = Instant::now();
        (0..5).for_each(|_| other.wait(10_000).unwrap());
        assert!(started.elapsed() >= Duration::from_millis(35), "{:?}", started.elapsed());
        assert_eq!((ended.received(), other.received()), (Bytes(51_000), Bytes(50_000)));
    }
}
