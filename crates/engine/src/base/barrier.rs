//! Barrier between the rounds of a gather: each source may send up to a limit, which rises once all
//! sources have reached it.
//!
//! Credit ends at the end of a frame, so that all data of a round is verified and written when the
//! round ends.

use super::sync::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Interval at which [`Barrier::wait`] checks for cancellation.
const BARRIER_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Progress and limits of the sources of a gather. Counts are payload bytes.
#[derive(Debug)]
pub(crate) struct Barrier {
    state: Mutex<State>,
    changed: Condvar,
    /// Requests newly allowed bytes from all sources.
    request_more: fn(),
}

#[derive(Debug)]
struct State {
    /// Limit of the current round. A source may also finish the frame that contains it.
    round_end: u64,
    sources: Vec<Source>,
}

#[derive(Debug, Clone, Default)]
struct Source {
    /// The source may send up to this offset.
    allowed: u64,
    /// Bytes verified and written.
    verified: u64,
    /// Bytes of `verified` that were damaged at first and sent again.
    resent: u64,
    has_ended: bool,
}

impl Source {
    fn is_round_complete(&self) -> bool {
        self.has_ended || self.verified >= self.allowed
    }
}

/// Progress at the end of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RoundProgress {
    /// Bytes of all sources since the beginning; blocks that were sent again count once.
    pub(crate) bytes: u64,
    /// Number of sources with more to send.
    pub(crate) sources_left: usize,
}

impl Barrier {
    /// Creates a barrier for this number of sources, none of which may send yet.
    ///
    /// `request_more` is called when sources may send more.
    pub(crate) fn new(sources: usize, request_more: fn()) -> Arc<Self> {
        let sources = vec![Source::default(); sources];
        let state = Mutex::new(State { round_end: 0, sources });
        Arc::new(Self { state, changed: Condvar::new(), request_more })
    }

    /// Returns the handle of a source.
    pub(crate) fn party(self: &Arc<Self>, source: usize) -> BarrierParty {
        BarrierParty { barrier: Arc::clone(self), source }
    }

    /// Records the end of a source, successful or not.
    pub(crate) fn on_source_ended(&self, source: usize) {
        if let Some(source) = lock(&self.state).sources.get_mut(source) {
            source.has_ended = true;
        }
        self.changed.notify_all();
    }

    /// Begins a round: each source may send this many more bytes.
    pub(crate) fn begin_round(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.round_end = state.round_end.saturating_add(bytes);
        let round_end = state.round_end;
        for source in &mut state.sources {
            source.allowed = source.allowed.max(round_end);
        }
        drop(state);
        (self.request_more)();
    }

    /// Waits for the end of the round. Returns `None` if cancelled.
    pub(crate) fn wait(&self, is_cancelled: impl Fn() -> bool) -> Option<RoundProgress> {
        let mut state = lock(&self.state);
        while !state.sources.iter().all(Source::is_round_complete) {
            if is_cancelled() {
                return None;
            }
            let waited = self.changed.wait_timeout(state, BARRIER_POLL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let new_bytes = |source: &Source| source.verified.saturating_sub(source.resent);
        let bytes = state.sources.iter().map(new_bytes).sum();
        let sources_left = state.sources.iter().filter(|source| !source.has_ended).count();
        Some(RoundProgress { bytes, sources_left })
    }
}

/// Handle of one source at a barrier.
#[derive(Debug, Clone)]
pub(crate) struct BarrierParty {
    barrier: Arc<Barrier>,
    source: usize,
}

impl BarrierParty {
    fn with<T>(&self, act: impl FnOnce(&mut Source) -> T) -> Option<T> {
        lock(&self.barrier.state).sources.get_mut(self.source).map(act)
    }

    /// Returns how many bytes the source may send, and how many are verified.
    pub(crate) fn progress(&self) -> (u64, u64) {
        self.with(|source| (source.allowed, source.verified)).unwrap_or_default()
    }

    /// Allows the source to finish a frame that ends at this offset.
    pub(crate) fn extend(&self, end: u64) {
        self.with(|source| source.allowed = source.allowed.max(end));
    }

    /// Allows the source to send damaged payload again.
    pub(crate) fn on_damaged(&self, bytes: u64) {
        self.with(|source| {
            source.allowed += bytes;
            source.resent += bytes;
        });
        (self.barrier.request_more)();
    }

    /// Records payload that is verified and written.
    pub(crate) fn on_verified(&self, bytes: u64) {
        self.with(|source| source.verified += bytes);
        self.barrier.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_ends_when_each_source_completed_a_frame_or_ended() {
        let barrier = Barrier::new(3, || {});
        let parties = [0, 1, 2].map(|source| barrier.party(source));
        barrier.begin_round(100);
        let poll = || barrier.wait(|| true);
        parties[0].on_verified(100);
        // A frame of 80 bytes that begins at 60 may be finished.
        parties[1].extend(140);
        parties[1].on_verified(60);
        assert_eq!((parties[1].progress(), poll()), ((140, 60), None));
        parties[1].on_verified(80);
        assert_eq!(poll(), None);
        barrier.on_source_ended(2);
        assert_eq!(poll(), Some(RoundProgress { bytes: 240, sources_left: 2 }));
        // The round waits for damaged payload, which counts once.
        parties[0].on_damaged(30);
        parties[0].on_verified(30);
        assert_eq!(poll().map(|progress| progress.bytes), Some(240));
        // Bytes beyond one round count for the next.
        barrier.begin_round(100);
        let progress = [parties[0].progress(), parties[1].progress()];
        assert_eq!(progress, [(200, 130), (200, 140)]);
    }
}
