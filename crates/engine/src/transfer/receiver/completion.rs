//! End of the receiving side. The receiver reports completion unasked, which saves a round trip, as
//! soon as everything is announced and every file is completed. After a failure on either side the
//! sender may announce the file again: the receiver then waits for the sender's `Finish`.

use crate::base::sync::lock;
use bankfull_proto::wire::WireError;
use std::sync::{Condvar, Mutex, PoisonError};

/// Counter of outstanding files; shared by all threads of the receiving side.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    state: Mutex<CompletionState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CompletionState {
    /// Announced files and symlinks that are not completed.
    outstanding: u64,
    /// True if the sender has announced everything.
    is_all_announced: bool,
    /// True if [`Completion::wait`] has reported the end.
    is_over: bool,
    /// True if waiting is over: the sender has finished, or the session stops.
    is_released: bool,
}

impl Completion {
    /// Adds `count` announced files and symlinks.
    ///
    /// # Errors
    /// [`WireError::Unexpected`] after the end.
    pub(crate) fn on_announced(&self, count: usize) -> Result<(), WireError> {
        let mut state = lock(&self.state);
        if state.is_over {
            return Err(WireError::Unexpected("an entry after the receiver was done"));
        }
        state.outstanding += count as u64;
        Ok(())
    }

    /// Records that everything is announced.
    pub(crate) fn on_all_announced(&self) {
        lock(&self.state).is_all_announced = true;
        self.changed.notify_all();
    }

    /// Records files and symlinks that are completed without a failure; the message from or to the
    /// sender about it is received or posted.
    pub(crate) fn on_completed(&self, count: usize) {
        let mut state = lock(&self.state);
        state.outstanding = state.outstanding.saturating_sub(count as u64);
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the wait.
    pub(crate) fn release(&self) {
        lock(&self.state).is_released = true;
        self.changed.notify_all();
    }

    /// Waits until all files are completed, after which none may be announced.
    ///
    /// Returns false if the wait was ended instead.
    pub(crate) fn wait(&self) -> bool {
        let waits = |state: &mut CompletionState| {
            let is_over = state.is_all_announced && state.outstanding == 0;
            !is_over && !state.is_released
        };
        let waited = self.changed.wait_while(lock(&self.state), waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_over = !state.is_released;
        state.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_needs_every_announced_file() {
        let completion = Completion::default();
        std::thread::scope(|scope| {
            completion.on_announced(3).unwrap();
            completion.on_completed(3);
            let waiting = scope.spawn(|| completion.wait());
            let is_waiting = || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                !waiting.is_finished()
            };
            assert!(is_waiting());
            completion.on_announced(2).unwrap();
            completion.on_all_announced();
            assert!(is_waiting());
            completion.on_completed(1);
            assert!(is_waiting());
            // A file that failed is announced again: it counts once more.
            completion.on_announced(1).unwrap();
            completion.on_completed(1);
            assert!(is_waiting());
            completion.on_completed(1);
            assert!(waiting.join().unwrap());
        });
        assert!(completion.on_announced(1).is_err());
    }

    #[test]
    fn release_ends_the_wait() {
        let completion = Completion::default();
        completion.on_announced(1).unwrap();
        completion.on_all_announced();
        completion.release();
        assert!(!completion.wait());
        completion.on_completed(1);
        assert!(!completion.wait());
    }
}
