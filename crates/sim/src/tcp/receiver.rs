//! The receiving side: puts bytes in order, acknowledges, and says how much may come.
//!
//! The application reads all that is in order at once. What came early stays in the window.

use super::ranges::Ranges;
use super::{Ack, MSS, Segments};
use bankfull_control::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// How long the acknowledgement of a single segment is held back (TCP_DELACK_MIN, HZ / 25,
/// include/net/tcp.h).
pub const ACK_DELAY: Duration = Duration::from_millis(40);

/// With so many segments unacknowledged, an acknowledgement is sent at once (RFC 5681 §4.2).
const ACK_EVERY: u64 = 2;

/// A receiver.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    /// First byte that the application has not got.
    next: u64,
    early: Ranges,
    window: u64,
    /// First byte that must not be sent. It never moves left (RFC 9293 §3.8.6).
    edge: u64,
    /// Transmissions that arrived and of which the sender does not know yet, in their order.
    arrived: VecDeque<(u64, u64)>,
    /// First transmission that has not arrived, nor any later one.
    high: u64,
    unacknowledged: u64,
    ack_at: Option<Duration>,
}

impl Receiver {
    pub(crate) fn new(window: Bytes) -> Self {
        let mut receiver = Self {
            next: 0,
            early: Ranges::default(),
            window: 0,
            edge: 0,
            arrived: VecDeque::new(),
            high: 0,
            unacknowledged: 0,
            ack_at: None,
        };
        receiver.set_window(window);
        receiver.edge = receiver.window;
        receiver
    }

    /// Sets the window that the next acknowledgement tells; less than one segment would be none.
    pub(crate) fn set_window(&mut self, window: Bytes) {
        self.window = window.0.max(MSS);
    }

    /// First byte that the application has not got.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// When the acknowledgement that is held back must be sent.
    pub(crate) fn ack_at(&self) -> Option<Duration> {
        self.ack_at
    }

    /// First byte that the sender may not send, as told so far.
    pub(crate) fn edge(&self) -> u64 {
        self.edge
    }

    /// Segments arrive together.
    pub(crate) fn on_segments(&mut self, now: Duration, segments: &Segments) -> Option<Ack> {
        self.log(segments);
        let was_in_order = self.early.is_empty() && segments.start == self.next;
        if segments.start <= self.next {
            self.next = self.next.max(segments.end);
            self.early.trim_below(self.next);
            if let Some(end) = self.early.take_reaching(self.next) {
                self.next = end;
            }
        } else {
            self.early.insert(segments.start, segments.end);
        }
        self.unacknowledged += segments.count();
        // A small segment ends what the application wrote; Linux acknowledges it as soon as it is
        // read (ICSK_ACK_PUSHED, tcp_measure_rcv_mss and tcp_cleanup_rbuf).
        let is_small = !(segments.end - segments.start).is_multiple_of(MSS);
        // So does a window that would be told twice as large as it is left (tcp_cleanup_rbuf).
        let is_half_used = 2 * self.edge.saturating_sub(self.next) <= self.window;
        let is_due = is_small || is_half_used || self.unacknowledged >= ACK_EVERY;
        if !was_in_order || is_due {
            return Some(self.acknowledge());
        }
        self.ack_at.get_or_insert(now + ACK_DELAY);
        None
    }

    /// The acknowledgement that was held back, when its time has come.
    pub(crate) fn on_time(&mut self, now: Duration) -> Option<Ack> {
        self.ack_at.is_some_and(|at| at <= now).then(|| self.acknowledge())
    }

    /// The next transmissions that arrived, of those below `high`, and forgets them.
    pub(crate) fn take_arrived(&mut self, high: u64) -> Option<(u64, u64)> {
        let first = self.arrived.front_mut().filter(|first| first.0 < high)?;
        let (start, end) = *first;
        if end > high {
            first.0 = high;
            return Some((start, high));
        }
        self.arrived.pop_front()
    }

    fn acknowledge(&mut self) -> Ack {
        self.unacknowledged = 0;
        self.ack_at = None;
        self.edge = self.edge.max(self.next.saturating_add(self.window));
        Ack { next: self.next, high: self.high, edge: self.edge }
    }

    fn log(&mut self, segments: &Segments) {
        let (start, end) = (segments.number, segments.number + segments.count());
        self.high = end;
        match self.arrived.back_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => self.arrived.push_back((start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// `count` segments that start at segment `first`, sent as number `number`.
    fn segments(number: u64, first: u64, count: u64) -> Segments {
        Segments { number, start: first * MSS, end: (first + count) * MSS }
    }

    #[test]
    fn a_single_segment_is_acknowledged_after_40_ms_and_two_at_once() {
        let mut receiver = Receiver::new(Bytes(100_000));
        assert_eq!(receiver.on_segments(MS, &segments(0, 0, 1)), None);
        assert_eq!(receiver.on_time(MS * 40), None);
        let ack = receiver.on_time(MS * 41).unwrap();
        assert_eq!((ack.next, ack.high), (MSS, 1));
        let ack = receiver.on_segments(MS * 42, &segments(1, 1, 2)).unwrap();
        assert_eq!((ack.next, ack.high, receiver.ack_at()), (3 * MSS, 3, None));
        let small = Segments { number: 3, start: 3 * MSS, end: 3 * MSS + 7 };
        assert!(receiver.on_segments(MS * 43, &small).is_some());
    }

    #[test]
    fn a_single_segment_that_uses_half_of_the_window_is_acknowledged_at_once() {
        for (window, is_at_once) in [(MSS, true), (2 * MSS, true), (3 * MSS, false)] {
            let mut receiver = Receiver::new(Bytes(window));
            let ack = receiver.on_segments(MS, &segments(0, 0, 1));
            assert_eq!(ack.is_some(), is_at_once, "{window}");
        }
    }

    #[test]
    fn early_segments_wait_for_the_missing_one() {
        let mut receiver = Receiver::new(Bytes(100_000));
        let ack = receiver.on_segments(MS, &segments(1, 1, 1)).unwrap();
        assert_eq!((ack.next, ack.high), (0, 2));
        let ack = receiver.on_segments(MS, &segments(2, 0, 1)).unwrap();
        assert_eq!(ack.next, 2 * MSS);
        assert_eq!(receiver.take_arrived(2), Some((1, 2)));
        assert_eq!(receiver.take_arrived(2), None);
        assert_eq!(receiver.take_arrived(9), Some((2, 3)));
    }

    #[test]
    fn the_right_edge_never_moves_left() {
        let mut receiver = Receiver::new(Bytes(10 * MSS));
        let edge = receiver.on_segments(MS, &segments(0, 0, 2)).unwrap().edge;
        assert_eq!(edge, 12 * MSS);
        receiver.set_window(Bytes(2 * MSS));
        for n in 1..5 {
            assert_eq!(receiver.on_segments(MS, &segments(2 * n, 2 * n, 2)).unwrap().edge, edge);
        }
        let ack = receiver.on_segments(MS, &segments(10, 10, 2)).unwrap();
        assert_eq!(ack.edge, 14 * MSS);
    }
}
