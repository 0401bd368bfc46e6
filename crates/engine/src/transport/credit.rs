//! Credits of a session's data streams: byte offsets up to which each stream may send.
//!
//! The receiver grants them in control messages; the sender's stream threads wait here for credit.

use crate::base::sync::lock;
use bankfull_proto::limits::MAX_CREDITS;
use bankfull_proto::wire::control::Credit;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Streams that are tracked, present or not; bounds the memory a peer can occupy. (chosen: all
/// streams of a session, each replaced 15 times)
const MAX_TRACKED_STREAMS: usize = 16 * MAX_CREDITS;

/// Credits of all data streams of a session.
#[derive(Debug, Default)]
pub(crate) struct CreditTable {
    state: Mutex<TableState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TableState {
    /// Credit of each stream number: bytes of payload from the beginning of the stream.
    limits: BTreeMap<u32, u64>,
    is_closed: bool,
}

impl CreditTable {
    /// Raises the credits of streams; a credit is never lowered.
    pub(crate) fn grant(&self, credits: &[Credit]) {
        let mut state = lock(&self.state);
        for credit in credits {
            if state.limits.len() >= MAX_TRACKED_STREAMS
                && !state.limits.contains_key(&credit.stream)
            {
                // The lowest number is the oldest stream, which ended long ago.
                state.limits.pop_first();
            }
            let limit = state.limits.entry(credit.stream).or_default();
            *limit = credit.bytes.max(*limit);
        }
        self.changed.notify_all();
    }

    /// Wakes all waiting threads with an error: the session ends.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_all();
    }

    /// True if a stream may send beyond the offset `sent`.
    fn has_credit(&self, stream: u32, sent: u64) -> bool {
        lock(&self.state).limits.get(&stream).is_some_and(|&limit| limit > sent)
    }

    /// Waits until a stream may send beyond the offset `sent`; returns the bytes left.
    fn wait(&self, stream: u32, sent: u64) -> io::Result<u64> {
        let mut state = lock(&self.state);
        loop {
            if state.is_closed {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let limit = state.limits.get(&stream).copied().unwrap_or_default();
            if limit > sent {
                return Ok(limit - sent);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Credit of one data stream.
#[derive(Debug)]
pub(crate) struct StreamCredit {
    table: Arc<CreditTable>,
    stream: u32,
    /// Payload sent so far, in bytes.
    sent: u64,
}

impl StreamCredit {
    /// Returns the credit of the stream with this number, of which nothing is consumed yet.
    pub(crate) fn new(table: Arc<CreditTable>, stream: u32) -> Self {
        Self { table, stream, sent: 0 }
    }

    /// True if at least one byte may be sent without waiting.
    pub(crate) fn is_available(&self) -> bool {
        self.table.has_credit(self.stream, self.sent)
    }

    /// Waits until at least one byte may be sent.
    ///
    /// # Errors
    /// `ConnectionAborted` if the session ends first.
    pub(crate) fn wait(&self) -> io::Result<()> {
        self.table.wait(self.stream, self.sent).map(drop)
    }

    /// Waits for credit, consumes at most `len` bytes of it, and returns how many.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub(crate) fn consume(&mut self, len: usize) -> io::Result<usize> {
        if len == 0 {
            return Ok(0);
        }
        let left = self.table.wait(self.stream, self.sent)?;
        let consumed = usize::try_from(left).unwrap_or(usize::MAX).min(len);
        self.sent += consumed as u64;
        Ok(consumed)
    }

    /// Returns consumed bytes that were not sent.
    pub(crate) fn refund(&mut self, len: usize) {
        self.sent -= len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn credit(stream: u32, bytes: u64) -> Credit {
        Credit { stream, bytes }
    }

    #[test]
    fn consume_stops_at_credit_and_waits_for_more() {
        let table = Arc::new(CreditTable::default());
        // Granted before the stream exists; a lower credit has no effect.
        table.grant(&[credit(3, 100), credit(4, 1)]);
        table.grant(&[credit(3, 50)]);
        let mut stream = StreamCredit::new(Arc::clone(&table), 3);
        assert!(stream.is_available() && !StreamCredit::new(Arc::clone(&table), 5).is_available());
        assert_eq!((stream.consume(60).unwrap(), stream.consume(60).unwrap()), (60, 40));
        assert_eq!((stream.consume(0).unwrap(), stream.is_available()), (0, false));
        stream.refund(5);
        assert_eq!(stream.consume(60).unwrap(), 5);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| stream.consume(60).unwrap());
            table.grant(&[credit(3, 110)]);
            assert_eq!(waiting.join().unwrap(), 10);
        });
    }

    #[test]
    fn close_wakes_waiting_streams() {
        let table = Arc::new(CreditTable::default());
        thread::scope(|scope| {
            let stream = StreamCredit::new(Arc::clone(&table), 1);
            let waiting = scope.spawn(move || stream.wait());
            table.close();
            assert!(waiting.join().unwrap().is_err());
        });
    }

    #[test]
    fn tracked_streams_are_bounded() {
        let table = Arc::new(CreditTable::default());
        (0..100_000).for_each(|stream| table.grant(&[credit(stream, 1)]));
        assert_eq!(lock(&table.state).limits.len(), MAX_TRACKED_STREAMS);
        assert!(table.has_credit(99_999, 0) && !table.has_credit(0, 0));
    }
}
