//! Synchronization: a lock without poisoning, and a latch.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks a mutex, poisoned or not: after a panic the report matters more than consistent state.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One-shot event that threads can wait for.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Latch {
    pub(crate) fn set(&self) {
        *lock(&self.is_set) = true;
        self.changed.notify_all();
    }

    /// Waits until the latch is set; returns false after `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(lock(&self.is_set), timeout, |set| !*set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
