//! How the receiver ends, and when it knows by itself that the sender has nothing more to say: it
//! is done then, and need not wait to be asked, which takes a round trip. It knows when everything
//! is announced and the last word on every file was said. Where a file failed on either side there
//! is no such word, for the sender may announce it again: then the receiver waits to be asked.

use super::{Receiver, place};
use crate::net::control::lock;
use crate::options::Fsync;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::Message;
use std::sync::{Condvar, Mutex, PoisonError};

/// Counts last words. Shared by all threads of the receiving side.
#[derive(Debug, Default)]
pub(super) struct Ending {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Files and symlinks of which the last word was not said.
    open: u64,
    /// No others will be announced.
    all_announced: bool,
    /// Somebody was told that this is the end.
    is_over: bool,
    /// The sender has asked, or the session stops: nobody need wait any more.
    released: bool,
}

impl Ending {
    /// So many files and symlinks are announced.
    ///
    /// # Errors
    /// [`WireError::Unexpected`] after the end.
    pub(super) fn announced(&self, count: usize) -> Result<(), WireError> {
        let mut state = lock(&self.state);
        if state.is_over {
            return Err(WireError::Unexpected("an entry after the receiver was done"));
        }
        state.open += count as u64;
        Ok(())
    }

    /// Everything is announced.
    pub(super) fn all_announced(&self) {
        lock(&self.state).all_announced = true;
        self.changed.notify_all();
    }

    /// So many files and symlinks are settled without a failure, and the sender knows: it has said
    /// so, or what tells it is posted.
    pub(super) fn said(&self, count: usize) {
        let mut state = lock(&self.state);
        state.open = state.open.saturating_sub(count as u64);
        drop(state);
        self.changed.notify_all();
    }

    /// Lets go whoever waits.
    pub(super) fn release(&self) {
        lock(&self.state).released = true;
        self.changed.notify_all();
    }

    /// Waits for the end; false when there is none any more to wait for. Nothing is announced
    /// after it.
    pub(super) fn wait(&self) -> bool {
        let waits = |state: &mut State| {
            let is_over = state.all_announced && state.open == 0;
            !is_over && !state.released
        };
        let waited = self.changed.wait_while(lock(&self.state), waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_over = !state.released;
        state.is_over
    }
}

impl Receiver<'_> {
    /// Finishes as soon as the sender can have nothing more to say, unless it asks first.
    pub(crate) fn finish_unasked(&self) {
        if self.ending.wait() {
            self.finish();
        }
    }

    /// Everything is received: directories get their metadata, and the sender is told. Only once;
    /// who comes second waits for that.
    pub(crate) fn finish(&self) {
        let mut done = lock(&self.done);
        if std::mem::replace(&mut *done, true) {
            return;
        }
        self.settle_dirs();
        if self.fsync == Fsync::End && !self.dry_run {
            let synced = self.base.as_ref().map_or(Ok(()), |base| base.sync_filesystem());
            if let Err(e) = synced {
                let failure = crate::error::failure("cannot flush the destination to disk", &e);
                self.problem(self.dirs.path(0), failure);
            }
        }
        self.outbox.post(&Message::Done(self.tally.report()));
    }

    /// Directories get mode and time last, deepest first, when nothing is put in them any more.
    fn settle_dirs(&self) {
        let announced = std::mem::take(&mut lock(&self.seen).announced);
        if self.dry_run {
            return;
        }
        for entry in announced.iter().rev() {
            if self.defers(entry) {
                continue;
            }
            let id = if entry.name.is_empty() { 0 } else { entry.id };
            let set = self.dirs.open(id).and_then(|dir| {
                let now = dir.stat_self()?;
                if now.mode != entry.mode {
                    dir.set_own_mode(entry.mode)?;
                }
                if now.mtime != place::mtime_of(entry) {
                    dir.set_own_mtime(place::mtime_of(entry))?;
                }
                Ok(())
            });
            if let Err(e) = set {
                let path = self.dirs.path(id);
                let what = format!("cannot set mode and time of {}", path.display());
                self.problem(path, crate::error::failure(what, &e));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_comes_with_the_last_word_and_not_before_all_is_announced() {
        let ending = Ending::default();
        std::thread::scope(|scope| {
            ending.announced(3).unwrap();
            ending.said(3);
            let waiting = scope.spawn(|| ending.wait());
            let is_waiting = || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                !waiting.is_finished()
            };
            assert!(is_waiting());
            ending.announced(2).unwrap();
            ending.all_announced();
            assert!(is_waiting());
            ending.said(1);
            assert!(is_waiting());
            // One that is announced again, in place of one on which nothing was said.
            ending.announced(1).unwrap();
            ending.said(1);
            assert!(is_waiting());
            ending.said(1);
            assert!(waiting.join().unwrap());
        });
        assert!(ending.announced(1).is_err());
    }

    #[test]
    fn a_sender_that_asks_ends_the_wait() {
        let ending = Ending::default();
        ending.announced(1).unwrap();
        ending.all_announced();
        ending.release();
        assert!(!ending.wait());
        ending.said(1);
        assert!(!ending.wait());
    }
}
