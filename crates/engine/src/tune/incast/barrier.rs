//! Rounds: every source may send so far and no farther until all have. What is asked for ends where
//! a frame ends, so that all that came of a round is verified and written when it is over.

use super::PORTS;
use super::port::Port;
use crate::net::control::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often who waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// How far the sources of a gathering have come, and may come. Counts are bytes of payload.
#[derive(Debug)]
pub(crate) struct Barrier {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Every source may send up to here, and to the end of the frame in which that is.
    open_to: u64,
    sources: Vec<Source>,
}

#[derive(Debug, Clone, Default)]
struct Source {
    /// Up to here it is asked.
    allowed: u64,
    /// So much has been verified and written.
    done: u64,
    /// That much of it was damaged, and came again.
    again: u64,
    is_over: bool,
}

impl Source {
    fn is_there(&self) -> bool {
        self.is_over || self.done >= self.allowed
    }
}

/// What has come by the end of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Came {
    /// From all sources since the beginning, what was damaged and came again counted once.
    pub(crate) bytes: u64,
    /// How many have more to send.
    pub(crate) left: usize,
}

impl Barrier {
    /// Of so many sources, none of which may send yet.
    pub(crate) fn new(sources: usize) -> Arc<Self> {
        let sources = vec![Source::default(); sources];
        let state = Mutex::new(State { open_to: 0, sources });
        Arc::new(Self { state, changed: Condvar::new() })
    }

    /// The place of a source.
    pub(crate) fn seat(self: &Arc<Self>, source: usize) -> BarrierSeat {
        BarrierSeat { barrier: Arc::clone(self), source }
    }

    /// A source has ended, one way or the other.
    pub(crate) fn ended(&self, source: usize) {
        if let Some(source) = lock(&self.state).sources.get_mut(source) {
            source.is_over = true;
        }
        self.changed.notify_all();
    }

    /// Lets every source send so much more.
    pub(crate) fn open(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.open_to = state.open_to.saturating_add(bytes);
        let open_to = state.open_to;
        for source in &mut state.sources {
            source.allowed = source.allowed.max(open_to);
        }
        drop(state);
        ask_more();
    }

    /// Waits until all that was let through is there. What has come then; `None` where it is of no
    /// use any more.
    pub(crate) fn wait(&self, is_needless: impl Fn() -> bool) -> Option<Came> {
        let mut state = lock(&self.state);
        while !state.sources.iter().all(Source::is_there) {
            if is_needless() {
                return None;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let bytes =
            state.sources.iter().map(|source| source.done.saturating_sub(source.again)).sum();
        let left = state.sources.iter().filter(|source| !source.is_over).count();
        Some(Came { bytes, left })
    }
}

/// More may be wanted of the sources than before.
fn ask_more() {
    let ports: Vec<Arc<Port>> =
        lock(&PORTS).iter().filter_map(|(_, port)| port.upgrade()).collect();
    ports.into_iter().for_each(|port| port.ask_more());
}

/// The place of one source at a barrier.
#[derive(Debug, Clone)]
pub(crate) struct BarrierSeat {
    barrier: Arc<Barrier>,
    source: usize,
}

impl BarrierSeat {
    fn with<T>(&self, act: impl FnOnce(&mut Source) -> T) -> Option<T> {
        lock(&self.barrier.state).sources.get_mut(self.source).map(act)
    }

    /// How far it may send, and how far it has come.
    pub(super) fn course(&self) -> (u64, u64) {
        self.with(|source| (source.allowed, source.done)).unwrap_or_default()
    }

    /// A frame has begun that ends there: it may be sent as a whole.
    pub(super) fn extend(&self, end: u64) {
        self.with(|source| source.allowed = source.allowed.max(end));
    }

    /// So much of a frame's payload was damaged: it may be sent again.
    pub(crate) fn again(&self, bytes: u64) {
        self.with(|source| {
            source.allowed += bytes;
            source.again += bytes;
        });
        ask_more();
    }

    /// So much of a frame's payload is verified and written.
    pub(crate) fn done(&self, bytes: u64) {
        self.with(|source| source.done += bytes);
        self.barrier.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_over_when_each_source_has_sent_its_last_frame_or_ended() {
        let barrier = Barrier::new(3);
        let seats = [0, 1, 2].map(|source| barrier.seat(source));
        barrier.open(100);
        let is_over = || barrier.wait(|| true);
        seats[0].done(100);
        // A frame of 80 that begins at 60 may be sent.
        seats[1].extend(140);
        seats[1].done(60);
        assert_eq!((seats[1].course(), is_over()), ((140, 60), None));
        seats[1].done(80);
        assert_eq!(is_over(), None);
        barrier.ended(2);
        assert_eq!(is_over(), Some(Came { bytes: 240, left: 2 }));
        // What was damaged is waited for again, and counts once.
        seats[0].again(30);
        seats[0].done(30);
        assert_eq!(is_over().map(|came| came.bytes), Some(240));
        // What it sent beyond one round it need not in the next.
        barrier.open(100);
        assert_eq!([seats[0].course(), seats[1].course()], [(200, 130), (200, 140)]);
    }
}
