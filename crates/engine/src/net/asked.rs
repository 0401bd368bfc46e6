//! What the receiver has asked each data connection for, where its sender sends nothing unasked.
//! The sending side's threads wait here.

use crate::net::control::lock;
use bankfull_proto::limits::MAX_CREDITS;
use bankfull_proto::wire::control::Credit;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Connections that are known here, there or not yet, without much being kept on a peer's word.
/// (ours: those that there may be, and as many that come in their place)
const KNOWN_MAX: usize = 16 * MAX_CREDITS;

/// What all connections of a session were asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of payload that each may send, from its beginning.
    allowed: BTreeMap<u32, u64>,
    is_over: bool,
}

impl Asked {
    /// Takes in what is asked for. What was asked for once stays so.
    pub(crate) fn ask(&self, asks: &[Credit]) {
        let mut state = lock(&self.state);
        for ask in asks {
            if state.allowed.len() >= KNOWN_MAX && !state.allowed.contains_key(&ask.stream) {
                // Those with the least numbers have ended long since.
                state.allowed.pop_first();
            }
            let allowed = state.allowed.entry(ask.stream).or_default();
            *allowed = ask.bytes.max(*allowed);
        }
        self.changed.notify_all();
    }

    /// Lets go whoever waits: the session ends.
    pub(crate) fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }

    /// Whether a connection that has sent so much may send more.
    fn allows(&self, number: u32, sent: u64) -> bool {
        lock(&self.state).allowed.get(&number).is_some_and(|&allowed| allowed > sent)
    }

    /// Waits until a connection that has sent so much may send more, and returns how much.
    fn wait(&self, number: u32, sent: u64) -> io::Result<u64> {
        let mut state = lock(&self.state);
        loop {
            if state.is_over {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let allowed = state.allowed.get(&number).copied().unwrap_or_default();
            if allowed > sent {
                return Ok(allowed - sent);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What one connection may send.
#[derive(Debug)]
pub(crate) struct Gate {
    asked: Arc<Asked>,
    number: u32,
    sent: u64,
}

impl Gate {
    pub(crate) fn new(asked: Arc<Asked>, number: u32) -> Self {
        Self { asked, number, sent: 0 }
    }

    /// Whether something may be sent without waiting.
    pub(crate) fn is_open(&self) -> bool {
        self.asked.allows(self.number, self.sent)
    }

    /// Waits until something may be sent.
    ///
    /// # Errors
    /// `ConnectionAborted` when the session has ended meanwhile.
    pub(crate) fn wait(&self) -> io::Result<()> {
        self.asked.wait(self.number, self.sent).map(drop)
    }

    /// Waits until some of so many bytes may be sent, counts them as sent, and returns how many.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub(crate) fn take(&mut self, len: usize) -> io::Result<usize> {
        if len == 0 {
            return Ok(0);
        }
        let allowed = self.asked.wait(self.number, self.sent)?;
        let taken = usize::try_from(allowed).unwrap_or(usize::MAX).min(len);
        self.sent += taken as u64;
        Ok(taken)
    }

    /// So many of the bytes that were counted were not sent.
    pub(crate) fn give_back(&mut self, len: usize) {
        self.sent -= len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn ask(stream: u32, bytes: u64) -> Credit {
        Credit { stream, bytes }
    }

    #[test]
    fn a_connection_sends_what_it_was_asked_for_and_waits_for_the_rest() {
        let asked = Arc::new(Asked::default());
        // Before the connection is there, and never less again.
        asked.ask(&[ask(3, 100), ask(4, 1)]);
        asked.ask(&[ask(3, 50)]);
        let mut gate = Gate::new(Arc::clone(&asked), 3);
        assert!(gate.is_open() && !Gate::new(Arc::clone(&asked), 5).is_open());
        assert_eq!((gate.take(60).unwrap(), gate.take(60).unwrap()), (60, 40));
        assert_eq!((gate.take(0).unwrap(), gate.is_open()), (0, false));
        gate.give_back(5);
        assert_eq!(gate.take(60).unwrap(), 5);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.take(60).unwrap());
            asked.ask(&[ask(3, 110)]);
            assert_eq!(waiting.join().unwrap(), 10);
        });
    }

    #[test]
    fn whoever_waits_is_let_go_when_the_session_ends() {
        let asked = Arc::new(Asked::default());
        thread::scope(|scope| {
            let gate = Gate::new(Arc::clone(&asked), 1);
            let waiting = scope.spawn(move || gate.wait());
            asked.end();
            assert!(waiting.join().unwrap().is_err());
        });
    }

    #[test]
    fn no_more_connections_are_kept_than_a_session_can_have_had() {
        let asked = Arc::new(Asked::default());
        (0..100_000).for_each(|number| asked.ask(&[ask(number, 1)]));
        assert_eq!(lock(&asked.state).allowed.len(), KNOWN_MAX);
        assert!(asked.allows(99_999, 0) && !asked.allows(0, 0));
    }
}
