//! Limit of TLS handshakes that are computed at the same time: strangers cause them at no cost.

use crate::base::sync::lock;
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::thread;

/// Fraction of the processors for handshakes of clients. (chosen: half; transfers keep the rest)
const PROCESSORS_DIVISOR: usize = 2;

/// Gate of all accepting ports of this process.
pub(super) static GATE: LazyLock<HandshakeGate> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    HandshakeGate::new((processors / PROCESSORS_DIVISOR).max(1))
});

/// Gate that a limited number of threads pass at a time.
pub(super) struct HandshakeGate {
    free: Mutex<usize>,
    released: Condvar,
}

impl HandshakeGate {
    fn new(places: usize) -> Self {
        Self { free: Mutex::new(places), released: Condvar::new() }
    }

    /// Runs a computation, which must not wait for the peer, in one of the places.
    pub(super) fn pass<T>(&self, compute: impl FnOnce() -> T) -> T {
        let waited = self.released.wait_while(lock(&self.free), |free| *free == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        let _place = Place(self);
        compute()
    }
}

/// A place in use, also while its thread unwinds.
struct Place<'g>(&'g HandshakeGate);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn computations_beyond_the_limit_wait() {
        let gate = HandshakeGate::new(2);
        let (running, highest) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    gate.pass(|| {
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        highest.fetch_max(now, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(5));
                        running.fetch_sub(1, Ordering::SeqCst);
                    });
                });
            }
        });
        assert_eq!(highest.into_inner(), 2);
    }

    #[test]
    fn panic_releases_its_place() {
        let gate = HandshakeGate::new(1);
        assert!(catch_unwind(AssertUnwindSafe(|| gate.pass(|| panic!("in a handshake")))).is_err());
        gate.pass(|| ());
    }
}
