//! TCP receiver: reassembles bytes, acknowledges, and advertises the receive window.
//!
//! The application reads in-order data immediately. Out-of-order data occupies the window.

use super::ranges::Ranges;
use super::{Ack, MSS, Segments};
use bankfull_control::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// Delay of the acknowledgement of a single segment (TCP_DELACK_MIN, HZ / 25, include/net/tcp.h).
pub const ACK_DELAY: Duration = Duration::from_millis(40);

/// Unacknowledged segments that trigger an immediate acknowledgement (RFC 5681 §4.2).
const MAX_UNACKNOWLEDGED_SEGMENTS: u64 = 2;

/// TCP receiver.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    /// First byte that has not arrived in order.
    next: u64,
    out_of_order: Ranges,
    window: u64,
    /// Right edge of the advertised window. It never moves left (RFC 9293 §3.8.6).
    right_edge: u64,
    /// Transmissions that arrived and were not reported to the sender, in order.
    unreported: VecDeque<(u64, u64)>,
    /// Number after the last transmission that arrived.
    high: u64,
    unacknowledged: u64,
    ack_at: Option<Duration>,
}

impl Receiver {
    pub(crate) fn new(window: Bytes) -> Self {
        let mut receiver = Self {
            next: 0,
            out_of_order: Ranges::default(),
            window: 0,
            right_edge: 0,
            unreported: VecDeque::new(),
            high: 0,
            unacknowledged: 0,
            ack_at: None,
        };
        receiver.set_window(window);
        receiver.right_edge = receiver.window;
        receiver
    }

    /// Sets the window of the next acknowledgement; at least one segment.
    pub(crate) fn set_window(&mut self, window: Bytes) {
        self.window = window.0.max(MSS);
    }

    /// Returns the first byte that has not arrived in order.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns when the delayed acknowledgement must be sent.
    pub(crate) fn ack_at(&self) -> Option<Duration> {
        self.ack_at
    }

    /// Returns the right edge of the window advertised so far.
    pub(crate) fn right_edge(&self) -> u64 {
        self.right_edge
    }

    /// Processes segments that arrive together; returns an acknowledgement if one is due.
    pub(crate) fn on_segments(&mut self, now: Duration, segments: &Segments) -> Option<Ack> {
        self.record_arrival(segments);
        let was_in_order = self.out_of_order.is_empty() && segments.start == self.next;
        if segments.start <= self.next {
            self.next = self.next.max(segments.end);
            self.out_of_order.trim_below(self.next);
            if let Some(end) = self.out_of_order.take_reaching(self.next) {
                self.next = end;
            }
        } else {
            self.out_of_order.insert(segments.start, segments.end);
        }
        self.unacknowledged += segments.count();
        // A small segment ends a write of the application; Linux acknowledges it as soon as it is
        // read (ICSK_ACK_PUSHED, tcp_measure_rcv_mss and tcp_cleanup_rbuf).
        let is_small = !(segments.end - segments.start).is_multiple_of(MSS);
        // Also due if the window can be advertised at twice its remaining size (tcp_cleanup_rbuf).
        let is_half_used = 2 * self.right_edge.saturating_sub(self.next) <= self.window;
        let is_due = is_small || is_half_used || self.unacknowledged >= MAX_UNACKNOWLEDGED_SEGMENTS;
        if !was_in_order || is_due {
            return Some(self.acknowledge());
        }
        self.ack_at.get_or_insert(now + ACK_DELAY);
        None
    }

    /// Returns the delayed acknowledgement if it is due.
    pub(crate) fn on_time(&mut self, now: Duration) -> Option<Ack> {
        self.ack_at.is_some_and(|at| at <= now).then(|| self.acknowledge())
    }

    /// Removes and returns the next arrived transmissions below `high`.
    pub(crate) fn take_arrived(&mut self, high: u64) -> Option<(u64, u64)> {
        let first = self.unreported.front_mut().filter(|first| first.0 < high)?;
        let (start, end) = *first;
        if end > high {
            first.0 = high;
            return Some((start, high));
        }
        self.unreported.pop_front()
    }

    fn acknowledge(&mut self) -> Ack {
        self.unacknowledged = 0;
        self.ack_at = None;
        self.right_edge = self.right_edge.max(self.next.saturating_add(self.window));
        Ack { next: self.next, high: self.high, right_edge: self.right_edge }
    }

    fn record_arrival(&mut self, segments: &Segments) {
        let (start, end) = (segments.number, segments.number + segments.count());
        self.high = end;
        match self.unreported.back_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => self.unreported.push_back((start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns `count` segments starting with segment `first`, from transmission `number` on.
    fn segments(number: u64, first: u64, count: u64) -> Segments {
        Segments { number, start: first * MSS, end: (first + count) * MSS }
    }

    #[test]
    fn single_segment_is_acked_after_40_ms_two_at_once() {
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
    fn segment_of_half_the_window_is_acked_at_once() {
        for (window, is_at_once) in [(MSS, true), (2 * MSS, true), (3 * MSS, false)] {
            let mut receiver = Receiver::new(Bytes(window));
            let ack = receiver.on_segments(MS, &segments(0, 0, 1));
            assert_eq!(ack.is_some(), is_at_once, "{window}");
        }
    }

    #[test]
    fn out_of_order_segments_wait_for_missing_one() {
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
    fn right_edge_never_moves_left() {
        let mut receiver = Receiver::new(Bytes(10 * MSS));
        let right_edge = receiver.on_segments(MS, &segments(0, 0, 2)).unwrap().right_edge;
        assert_eq!(right_edge, 12 * MSS);
        receiver.set_window(Bytes(2 * MSS));
        for n in 1..5 {
            assert_eq!(
                receiver.on_segments(MS, &segments(2 * n, 2 * n, 2)).unwrap().right_edge,
                right_edge
            );
        }
        let ack = receiver.on_segments(MS, &segments(10, 10, 2)).unwrap();
        assert_eq!(ack.right_edge, 14 * MSS);
    }
}
