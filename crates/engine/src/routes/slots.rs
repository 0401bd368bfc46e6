//! Connection slots of a daemon. A session is admitted with slots for its control connection and
//! its first data stream; further streams get slots while there are any.

use crate::base::sync::lock;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Slots that a session is admitted with: its control connection and its first data stream.
const SLOTS_PER_SESSION: usize = 2;

/// Maximum number of clients that wait for slots; later ones are refused as busy at once. (chosen:
/// each holds a thread and some descriptors)
const MAX_WAITING: usize = 128;

/// Interval at which a waiting client's thread checks whether the daemon ends.
/// (chosen: a daemon ends within 2 s of its drain)
const OVER_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Connection slots of a daemon.
#[derive(Debug)]
pub(crate) struct Slots {
    max: usize,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// Waiting clients, by their order of arrival.
    waiting: BTreeSet<u64>,
    arrived: u64,
}

impl Slots {
    /// Creates `max` free slots, at least those of one session.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let (state, released) = Default::default();
        Arc::new(Self { max: max.max(SLOTS_PER_SESSION), state, released })
    }

    /// Waits for the slots of a session, in order of arrival. `None` after `limit`, once `is_over`,
    /// or if too many clients wait.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        limit: Duration,
        is_over: impl Fn() -> bool,
    ) -> Option<Arc<SessionSlots>> {
        let deadline = Instant::now() + limit;
        let mut state = lock(&self.state);
        if state.waiting.len() >= MAX_WAITING {
            return None;
        }
        let ticket = state.arrived;
        state.arrived += 1;
        state.waiting.insert(ticket);
        let is_admitted = loop {
            let is_first = state.waiting.first() == Some(&ticket);
            if is_first && self.max - state.used >= SLOTS_PER_SESSION {
                break true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || is_over() {
                break false;
            }
            let waited = self.released.wait_timeout(state, left.min(OVER_POLL_INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting.remove(&ticket);
        if is_admitted {
            state.used += SLOTS_PER_SESSION;
        }
        drop(state);
        // The next one in order may have room, too.
        self.released.notify_all();
        let streams = Mutex::new(Streams { reserved: SLOTS_PER_SESSION - 1, attached: 0 });
        is_admitted.then(|| Arc::new(SessionSlots { slots: Arc::clone(self), streams }))
    }

    /// Takes a slot for a further data stream; false if clients wait or there is none.
    fn take_one(&self) -> bool {
        let mut state = lock(&self.state);
        let is_free = state.used < self.max && state.waiting.is_empty();
        state.used += usize::from(is_free);
        is_free
    }

    fn release(&self, count: usize) {
        lock(&self.state).used -= count;
        self.released.notify_all();
    }
}

/// Slots of a session, released when it and its streams have ended.
#[derive(Debug)]
pub(crate) struct SessionSlots {
    slots: Arc<Slots>,
    streams: Mutex<Streams>,
}

#[derive(Debug)]
struct Streams {
    /// Slots of data streams. Those of lost streams stay reserved for their successors.
    reserved: usize,
    attached: usize,
}

impl SessionSlots {
    /// Number of data streams that have or would now get a slot.
    pub(crate) fn max_streams(&self) -> usize {
        let free = self.slots.max - lock(&self.slots.state).used;
        lock(&self.streams).reserved + free
    }

    /// Takes the slot of a data stream; `None` if there is none.
    pub(crate) fn attach(self: &Arc<Self>) -> Option<StreamSlot> {
        let mut streams = lock(&self.streams);
        if streams.attached == streams.reserved {
            if !self.slots.take_one() {
                return None;
            }
            streams.reserved += 1;
        }
        streams.attached += 1;
        Some(StreamSlot(Arc::clone(self)))
    }
}

impl Drop for SessionSlots {
    fn drop(&mut self) {
        let control = SLOTS_PER_SESSION - 1;
        self.slots.release(lock(&self.streams).reserved + control);
    }
}

/// Slot of an attached data stream.
#[derive(Debug)]
pub(crate) struct StreamSlot(Arc<SessionSlots>);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        lock(&self.0.streams).attached -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const AT_ONCE: Duration = Duration::ZERO;
    const PATIENT: Duration = Duration::from_secs(60);

    #[test]
    fn session_is_admitted_with_a_data_stream() {
        let slots = Slots::new(5);
        let first = slots.reserve(AT_ONCE, || false).unwrap();
        assert_eq!(first.max_streams(), 4);
        let second = slots.reserve(AT_ONCE, || false).unwrap();
        assert!(
            slots.reserve(AT_ONCE, || false).is_none(),
            "a control connection alone is of no use"
        );
        assert_eq!(second.max_streams(), 2);
        let streams = [second.attach(), second.attach()];
        assert!(streams.iter().all(Option::is_some) && second.attach().is_none());
        // The first stream of every session has its slot.
        assert!(first.attach().is_some());
    }

    #[test]
    fn slot_of_lost_stream_is_kept_for_its_session() {
        let slots = Slots::new(4);
        let first = slots.reserve(AT_ONCE, || false).unwrap();
        let second = slots.reserve(AT_ONCE, || false).unwrap();
        let lost = first.attach().unwrap();
        drop(lost);
        assert!(slots.reserve(AT_ONCE, || false).is_none());
        let again = first.attach().unwrap();
        assert!(first.attach().is_none());
        // A stream that outlives its session keeps the slots.
        drop(first);
        assert!(slots.reserve(AT_ONCE, || false).is_none());
        drop(again);
        assert!(slots.reserve(AT_ONCE, || false).is_some());
        drop(second);
    }

    #[test]
    fn waiting_sessions_are_admitted_in_order() {
        let slots = Slots::new(2);
        let mut running = slots.reserve(AT_ONCE, || false).unwrap();
        let (sender, admitted) = std::sync::mpsc::channel();
        let mut waiting = Vec::new();
        for number in 0..4 {
            let (slots, sender) = (Arc::clone(&slots), sender.clone());
            let is_waiting = || lock(&slots.state).waiting.len();
            let before = is_waiting();
            let other = Arc::clone(&slots);
            waiting.push(thread::spawn(move || {
                let session = other.reserve(PATIENT, || false).unwrap();
                sender.send((number, session)).unwrap();
            }));
            while is_waiting() == before {
                thread::sleep(Duration::from_millis(1));
            }
        }
        // While clients wait, no session gets more.
        assert!(running.attach().is_some());
        for expected in 0..4 {
            drop(running);
            let (number, session) = admitted.recv_timeout(PATIENT).unwrap();
            assert_eq!(number, expected);
            running = session;
        }
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn waiting_ends_with_the_daemon() {
        let slots = Slots::new(2);
        let _running = slots.reserve(AT_ONCE, || false).unwrap();
        let (started, is_over) = (Instant::now(), std::cell::Cell::new(false));
        let ends = || is_over.replace(true);
        assert!(slots.reserve(PATIENT, ends).is_none());
        assert!(started.elapsed() < PATIENT && lock(&slots.state).waiting.is_empty());
    }

    #[test]
    fn waiting_clients_are_limited() {
        let slots = Slots::new(2);
        let _running = slots.reserve(AT_ONCE, || false).unwrap();
        lock(&slots.state).waiting.extend(1000..1000 + MAX_WAITING as u64);
        let started = Instant::now();
        assert!(slots.reserve(PATIENT, || false).is_none());
        assert!(started.elapsed() < PATIENT);
    }
}
