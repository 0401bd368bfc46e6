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

/// Segments that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) segments: Segments,
    /// Segments whose data had arrived before (DSACK, RFC 2883).
    pub(crate) duplicates: u64,
    /// The segments experienced congestion (CE, RFC 3168 §5).
    pub(crate) is_marked: bool,
}

/// TCP receiver.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    /// First byte that has not arrived in order.
    next: u64,
    out_of_order: Ranges,
    window: u64,
    /// Right edge of the advertised window. It never moves left (RFC 9293 §3.8.6).
    right_edge: u64,
    /// Segments that arrived and were not reported to the sender, in order of arrival.
    unreported: VecDeque<Arrival>,
    /// Segments that were reported.
    reported: u64,
    /// Segments that arrived.
    arrivals: u64,
    /// First byte that had not arrived in order at the latest acknowledgement.
    acknowledged: u64,
    /// Newest transmission that arrived at or below that byte (TS.Recent, RFC 7323 §4.3).
    echo: u64,
    /// Acknowledgements echo a mark.
    echoes_mark: bool,
    /// First transmission that confirms the reduction after it (CWR, RFC 3168 §6.1.2).
    confirmed_from: u64,
    arrived_at: Duration,
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
            reported: 0,
            arrivals: 0,
            acknowledged: 0,
            echo: 0,
            echoes_mark: false,
            confirmed_from: u64::MAX,
            arrived_at: Duration::ZERO,
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

    /// Stops the echo of marks with transmission `number`, whose sender has reduced its window.
    ///
    /// A real sender sets a flag (CWR) in the next segment with new data.
    pub(crate) fn confirm_mark_from(&mut self, number: u64) {
        self.confirmed_from = number;
    }

    /// Processes segments that arrive together; returns an acknowledgement if one is due.
    pub(crate) fn on_segments(
        &mut self,
        now: Duration,
        segments: &Segments,
        is_marked: bool,
    ) -> Option<Ack> {
        self.arrived_at = now;
        let was_in_order = self.out_of_order.is_empty() && segments.start == self.next;
        if segments.start <= self.acknowledged {
            self.echo = self.echo.max(segments.number);
        }
        let is_first_mark = self.update_echo_of_mark(segments, is_marked);
        let new_bytes = self.store(segments);
        self.record_arrival(segments, segments.end - segments.start - new_bytes, is_marked);
        self.unacknowledged += segments.count();
        // A small segment ends a write of the application; Linux acknowledges it as soon as it is
        // read (ICSK_ACK_PUSHED, tcp_measure_rcv_mss and tcp_cleanup_rbuf).
        let is_small = !(segments.end - segments.start).is_multiple_of(segments.mss);
        // Also due if the window can be advertised at twice its remaining size (tcp_cleanup_rbuf).
        let is_half_used = 2 * self.right_edge.saturating_sub(self.next) <= self.window;
        let is_due = is_first_mark
            || is_small
            || is_half_used
            || self.unacknowledged >= MAX_UNACKNOWLEDGED_SEGMENTS;
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

    /// Removes and returns the next of the first `arrivals` segments.
    pub(crate) fn take_arrival(&mut self, arrivals: u64) -> Option<Arrival> {
        let left = arrivals.checked_sub(self.reported).filter(|&left| left > 0)?;
        let first = self.unreported.front_mut()?;
        let count = first.segments.count();
        if count > left && first.duplicates == 0 {
            self.reported = arrivals;
            return Some(Arrival { segments: first.segments.split_off_first(left), ..*first });
        }
        self.reported += count;
        self.unreported.pop_front()
    }

    fn acknowledge(&mut self) -> Ack {
        self.unacknowledged = 0;
        self.acknowledged = self.next;
        self.ack_at = None;
        self.right_edge = self.right_edge.max(self.next.saturating_add(self.window));
        Ack {
            next: self.next,
            arrivals: self.arrivals,
            echo: self.echo,
            has_echo_of_mark: self.echoes_mark,
            arrived_at: self.arrived_at,
            right_edge: self.right_edge,
        }
    }

    /// Updates the echo of marks; returns whether it begins (__tcp_ecn_check_ce and
    /// tcp_ecn_accept_cwr, net/ipv4/tcp_input.c).
    fn update_echo_of_mark(&mut self, segments: &Segments, is_marked: bool) -> bool {
        if segments.number >= self.confirmed_from {
            self.confirmed_from = u64::MAX;
            self.echoes_mark = false;
        }
        let is_first = is_marked && !self.echoes_mark;
        self.echoes_mark |= is_marked;
        is_first
    }

    /// Stores the data of segments; returns the number of new bytes.
    fn store(&mut self, segments: &Segments) -> u64 {
        let start = segments.start.max(self.next);
        if start > self.next || !self.out_of_order.is_empty() {
            let new_bytes = self.out_of_order.insert(start, segments.end);
            self.next = self.out_of_order.take_reaching(self.next).unwrap_or(self.next);
            return new_bytes;
        }
        let before = self.next;
        self.next = before.max(segments.end);
        self.next - before
    }

    fn record_arrival(&mut self, segments: &Segments, old_bytes: u64, is_marked: bool) {
        let count = segments.count();
        let duplicates = old_bytes.div_ceil(segments.mss).min(count);
        self.arrivals += count;
        match self.unreported.back_mut() {
            Some(last)
                if last.segments.number + last.segments.count() == segments.number
                    && last.segments.end == segments.start
                    && last.segments.mss == segments.mss
                    && (last.segments.end - last.segments.start).is_multiple_of(segments.mss)
                    && last.duplicates + duplicates == 0
                    && last.is_marked == is_marked =>
            {
                last.segments.end = segments.end;
            }
            _ => self.unreported.push_back(Arrival { segments: *segments, duplicates, is_marked }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns `count` segments starting with segment `first`, from transmission `number` on.
    fn segments(number: u64, first: u64, count: u64) -> Segments {
        Segments { number, start: first * MSS, end: (first + count) * MSS, mss: MSS }
    }

    #[test]
    fn single_segment_is_acked_after_40_ms_two_at_once() {
        let mut receiver = Receiver::new(Bytes(100_000));
        assert_eq!(receiver.on_segments(MS, &segments(0, 0, 1), false), None);
        assert_eq!(receiver.on_time(MS * 40), None);
        let ack = receiver.on_time(MS * 41).unwrap();
        assert_eq!((ack.next, ack.arrivals), (MSS, 1));
        let ack = receiver.on_segments(MS * 42, &segments(1, 1, 2), false).unwrap();
        assert_eq!((ack.next, ack.arrivals, receiver.ack_at()), (3 * MSS, 3, None));
        let small = Segments { number: 3, start: 3 * MSS, end: 3 * MSS + 7, mss: MSS };
        assert!(receiver.on_segments(MS * 43, &small, false).is_some());
    }

    #[test]
    fn segment_of_half_the_window_is_acked_at_once() {
        for (window, is_at_once) in [(MSS, true), (2 * MSS, true), (3 * MSS, false)] {
            let mut receiver = Receiver::new(Bytes(window));
            let ack = receiver.on_segments(MS, &segments(0, 0, 1), false);
            assert_eq!(ack.is_some(), is_at_once, "{window}");
        }
    }

    #[test]
    fn out_of_order_segments_wait_for_missing_one() {
        let mut receiver = Receiver::new(Bytes(100_000));
        let ack = receiver.on_segments(MS, &segments(1, 1, 1), false).unwrap();
        assert_eq!((ack.next, ack.arrivals), (0, 1));
        let ack = receiver.on_segments(MS, &segments(2, 0, 1), false).unwrap();
        assert_eq!(ack.next, 2 * MSS);
        let arrival = |segments| Some(Arrival { segments, duplicates: 0, is_marked: false });
        assert_eq!(receiver.take_arrival(1), arrival(segments(1, 1, 1)));
        assert_eq!(receiver.take_arrival(1), None);
        assert_eq!(receiver.take_arrival(9), arrival(segments(2, 0, 1)));
        assert_eq!(receiver.take_arrival(9), None);
    }

    #[test]
    fn duplicate_segments_are_reported_and_acked_at_once() {
        let mut receiver = Receiver::new(Bytes(100_000));
        receiver.on_segments(MS, &segments(0, 0, 4), false).unwrap();
        receiver.on_segments(MS, &segments(6, 6, 2), false).unwrap();
        // One segment below the left edge, the missing two, and one above the gap.
        let ack = receiver.on_segments(MS, &segments(8, 3, 4), false).unwrap();
        assert_eq!((ack.next, ack.arrivals, ack.echo), (8 * MSS, 10, 8));
        let again = receiver.on_segments(MS, &segments(6, 6, 1), false).unwrap();
        assert_eq!((again.next, again.echo), (8 * MSS, 8), "an old timestamp is not echoed");
        let duplicates: Vec<u64> = std::iter::from_fn(|| receiver.take_arrival(again.arrivals))
            .map(|arrival| arrival.duplicates)
            .collect();
        assert_eq!(duplicates, [0, 0, 2, 1]);
    }

    #[test]
    fn right_edge_never_moves_left() {
        let mut receiver = Receiver::new(Bytes(10 * MSS));
        let right_edge = receiver.on_segments(MS, &segments(0, 0, 2), false).unwrap().right_edge;
        assert_eq!(right_edge, 12 * MSS);
        receiver.set_window(Bytes(2 * MSS));
        for n in 1..5 {
            assert_eq!(
                receiver.on_segments(MS, &segments(2 * n, 2 * n, 2), false).unwrap().right_edge,
                right_edge
            );
        }
        let ack = receiver.on_segments(MS, &segments(10, 10, 2), false).unwrap();
        assert_eq!(ack.right_edge, 14 * MSS);
    }

    #[test]
    fn mark_is_echoed_until_reduction_is_confirmed() {
        let mut receiver = Receiver::new(Bytes(100_000));
        let mut echoes = Vec::new();
        for n in 0..6 {
            let ack = receiver.on_segments(MS, &segments(n, n, 1), n == 0 || n == 4);
            echoes.extend(ack.map(|ack| (n, ack.has_echo_of_mark)));
            if n == 1 {
                receiver.confirm_mark_from(3);
            }
        }
        // The first mark is acknowledged at once.
        assert_eq!(echoes, [(0, true), (2, true), (4, true)]);
        let marked = std::iter::from_fn(|| receiver.take_arrival(9)).map(|seen| seen.is_marked);
        assert_eq!(marked.collect::<Vec<_>>(), [true, false, true, false]);
        let ack = receiver.on_segments(MS, &segments(6, 6, 2), false).unwrap();
        assert!(ack.has_echo_of_mark, "the second mark is not confirmed");
    }

    #[test]
    fn segments_of_two_sizes_are_reported_apart() {
        let mut receiver = Receiver::new(Bytes(100_000));
        let large = Segments { number: 0, start: 0, end: 4000, mss: 2000 };
        let small = Segments { number: 2, start: 4000, end: 7000, mss: 1000 };
        receiver.on_segments(MS, &large, false);
        let ack = receiver.on_segments(MS, &small, false).unwrap();
        let reported = std::iter::from_fn(|| receiver.take_arrival(ack.arrivals));
        assert_eq!(reported.map(|one| one.segments).collect::<Vec<_>>(), [large, small]);
    }
}
