//! Holds all data connections of a session together below a rate: each waits for its turn before it
//! sends. TCP's own pacing only smooths what that lets through: it shares a rate among connections
//! for some time to come, lets the first segments go unpaced, and there is none through ssh.
//!
//! Does not know connections, nor what they send.

use crate::driver::Latch;
use crate::net::control::lock;
use bankfull_control::pacing::RateLimiter;
use bankfull_control::{Bytes, Rate};
use std::io;
use std::sync::Mutex;
use std::time::Instant;

/// A rate that the connections of a session share.
pub(crate) struct Throttle {
    turns: Mutex<RateLimiter>,
    turn_bytes: usize,
    began: Instant,
    over: Latch,
}

impl Throttle {
    pub(crate) fn new(rate: Rate) -> Self {
        let turns = RateLimiter::new(rate);
        let turn_bytes = turns.quantum().0 as usize;
        Self { turns: Mutex::new(turns), turn_bytes, began: Instant::now(), over: Latch::default() }
    }

    /// The most to send in one turn.
    pub(crate) fn turn_bytes(&self) -> usize {
        self.turn_bytes
    }

    /// Waits until so many bytes may be sent.
    ///
    /// # Errors
    /// `ConnectionAborted` when the session has ended meanwhile.
    pub(crate) fn wait(&self, bytes: usize) -> io::Result<()> {
        let now = self.began.elapsed();
        let begin = lock(&self.turns).reserve(now, Bytes(bytes as u64));
        match self.over.wait(begin.saturating_sub(now)) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// Counts bytes that were sent out of turn: what comes after them waits.
    pub(crate) fn count(&self, bytes: usize) {
        lock(&self.turns).reserve(self.began.elapsed(), Bytes(bytes as u64));
    }

    /// Lets go whoever waits: the session ends.
    pub(crate) fn end(&self) {
        self.over.set();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn all_together_keep_the_rate() {
        let throttle = Throttle::new(Rate::from_bytes_per_sec(1_000_000));
        let started = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| throttle.wait(5_000).unwrap()));
            }
        });
        // Turn by turn, and the last one begins when the others have ended.
        assert!(started.elapsed() >= Duration::from_millis(185), "{:?}", started.elapsed());
    }

    #[test]
    fn whoever_waits_is_let_go_when_the_session_ends() {
        let throttle = Throttle::new(Rate::from_bytes_per_sec(1));
        throttle.wait(1_000_000).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| throttle.wait(1));
            throttle.end();
            assert!(waiting.join().unwrap().is_err());
        });
        assert!(throttle.wait(0).is_err());
    }
}
