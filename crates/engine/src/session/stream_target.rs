//! Number of data streams that are to carry data.

use super::lifecycle::Callback;
use crate::base::sync::lock;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Number of streams that are to carry data, and wake-up of their spawners.
#[derive(Default)]
pub(crate) struct StreamTarget {
    /// Number of data streams to begin with.
    initial: u32,
    /// Upper bound of the number of streams; `None` if the number is fixed.
    pub(crate) max: Option<u32>,
    /// Number of streams that are to carry data, and the signal that it grew.
    wanted: Mutex<u32>,
    wanted_changed: Condvar,
    /// Called to wake the threads that wait for accepted streams.
    spawner_callbacks: Mutex<Vec<Callback>>,
}

impl StreamTarget {
    /// Returns a target of this initial number of streams.
    pub(crate) fn new(initial: u32) -> Self {
        Self { initial, wanted: Mutex::new(initial), ..Self::default() }
    }

    /// Returns the number of data streams to begin with.
    pub(crate) fn initial(&self) -> u32 {
        self.initial
    }

    /// Sets how many streams carry data. No effect if the number is fixed.
    pub(crate) fn set_wanted(&self, count: u32) {
        let Some(max) = self.max else { return };
        *lock(&self.wanted) = count.clamp(1, max.max(1));
        self.wanted_changed.notify_all();
    }

    /// Returns how many streams are to carry data.
    pub(crate) fn wanted(&self) -> u32 {
        *lock(&self.wanted)
    }

    /// Waits until more than `made` streams are wanted; returns early on any wake-up and after
    /// `timeout`. Returns the number wanted.
    pub(crate) fn wait_wanted(&self, made: u32, timeout: Duration) -> u32 {
        let wanted = lock(&self.wanted);
        if *wanted > made {
            return *wanted;
        }
        let waited = self.wanted_changed.wait_timeout(wanted, timeout);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes the threads that make or accept streams.
    pub(crate) fn wake_spawners(&self) {
        self.wanted_changed.notify_all();
        for wake in &*lock(&self.spawner_callbacks) {
            wake();
        }
    }

    /// Registers a callback of [`wake_spawners`](Self::wake_spawners).
    pub(crate) fn on_spawner_wake(&self, wake: impl Fn() + Send + 'static) {
        lock(&self.spawner_callbacks).push(Box::new(wake));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Target of `initial` streams at first and at most eight.
    fn adjustable_target(initial: u32) -> StreamTarget {
        StreamTarget { max: Some(8), ..StreamTarget::new(initial) }
    }

    #[test]
    fn wanted_streams_are_capped_and_fixed_number_stays() {
        let target = adjustable_target(4);
        target.set_wanted(1000);
        assert_eq!(target.wanted(), 8);
        let fixed = StreamTarget::new(4);
        fixed.set_wanted(8);
        assert_eq!(fixed.wanted(), 4);
    }

    #[test]
    fn spawner_is_woken_when_more_streams_are_wanted() {
        let target = adjustable_target(4);
        assert_eq!(target.wait_wanted(4, Duration::from_millis(1)), 4);
        thread::scope(|scope| {
            let waits = scope.spawn(|| target.wait_wanted(4, Duration::from_secs(20)));
            target.set_wanted(8);
            assert_eq!(waits.join().unwrap(), 8);
        });
    }
}
