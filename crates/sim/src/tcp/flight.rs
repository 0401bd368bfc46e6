//! Transmissions in flight, and the detection of lost ones by time of transmission (RFC 8985).
//!
//! Transmissions are numbered in order of time, so the lost ones are always the oldest. A
//! transmission that was presumed lost is remembered until its data is acknowledged: it may still
//! arrive.

use super::Segments;
use super::delivery::Stamp;
use super::rtt::RttEstimator;
use std::collections::VecDeque;
use std::time::Duration;

/// Parts of the min RTT by which the reordering window grows (RFC 8985 §6.2; tcp_rack_reo_wnd,
/// net/ipv4/tcp_recovery.c).
const REORDERING_WINDOW_DIVISOR: u32 = 4;

/// Maximum number of those parts (tcp_rack_update_reo_wnd, net/ipv4/tcp_recovery.c).
const MAX_REORDERING_STEPS: u32 = 255;

/// Recoveries for which a larger reordering window persists (RFC 8985 §6.2;
/// TCP_RACK_RECOVERY_THRESH, include/net/tcp.h).
const REORDERING_PERSISTENCE: u32 = 16;

/// Segments that were sent together and are not known to be delivered or lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transmission {
    pub(super) segments: Segments,
    pub(super) at: Duration,
    pub(super) is_retransmission: bool,
    pub(super) stamp: Stamp,
}

impl Transmission {
    /// Returns the number after the last one.
    fn end(&self) -> u64 {
        self.segments.number + self.segments.count()
    }
}

/// Transmissions in flight.
#[derive(Debug, Clone, Default)]
pub(super) struct Flight {
    /// Transmissions, in order.
    transmissions: VecDeque<Transmission>,
    /// Transmissions that were presumed lost, in order.
    presumed_lost: VecDeque<Transmission>,
    /// Segments in flight.
    pub(super) pipe: u64,
    /// Segments in flight that are retransmissions.
    pub(super) retransmissions: u64,
    /// Number of the next transmission.
    next_number: u64,
}

impl Flight {
    /// Adds a transmission of a byte range in segments of `mss` bytes.
    pub(super) fn push(
        &mut self,
        at: Duration,
        (start, end): (u64, u64),
        mss: u64,
        is_retransmission: bool,
        stamp: Stamp,
    ) -> Segments {
        let segments = Segments { number: self.next_number, start, end, mss };
        self.next_number += segments.count();
        let sent = Transmission { segments, at, is_retransmission, stamp };
        self.add_to_pipe(&sent);
        self.transmissions.push_back(sent);
        segments
    }

    /// Removes and returns the first transmissions of `start..end` that are in flight.
    pub(super) fn take(&mut self, start: u64, end: u64) -> Option<Transmission> {
        let taken = take_part(&mut self.transmissions, start, end)?;
        self.remove_from_pipe(&taken);
        Some(taken)
    }

    /// Removes and returns the first transmissions of `start..end` that were presumed lost.
    pub(super) fn take_presumed_lost(&mut self, start: u64, end: u64) -> Option<Transmission> {
        take_part(&mut self.presumed_lost, start, end)
    }

    /// Returns the number of the next transmission.
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Returns the oldest transmission.
    pub(super) fn oldest(&self) -> Option<&Transmission> {
        self.transmissions.front()
    }

    /// Returns the newest transmission before `number`.
    fn newest_before(&self, number: u64) -> Option<&Transmission> {
        let after = self.transmissions.partition_point(|sent| sent.segments.number < number);
        self.transmissions.get(after.checked_sub(1)?)
    }

    /// Removes and returns the oldest transmission, which is presumed lost.
    pub(super) fn presume_oldest_lost(&mut self) -> Option<Transmission> {
        self.presume_lost(0)
    }

    /// Removes and returns the oldest transmission with larger segments, which is presumed lost.
    pub(super) fn presume_larger_lost(&mut self, mss: u64) -> Option<Transmission> {
        self.presume_lost(self.transmissions.iter().position(|sent| sent.segments.largest() > mss)?)
    }

    fn presume_lost(&mut self, at: usize) -> Option<Transmission> {
        let sent = self.transmissions.remove(at)?;
        self.remove_from_pipe(&sent);
        let number = sent.segments.number;
        if self.presumed_lost.back().is_none_or(|last| last.segments.number < number) {
            self.presumed_lost.push_back(sent);
        } else {
            let at = self.presumed_lost.partition_point(|lost| lost.segments.number < number);
            self.presumed_lost.insert(at, sent);
        }
        Some(sent)
    }

    /// Returns presumed losses to the flight if `is_waiting` holds for their bytes.
    pub(super) fn restore_presumed_lost(&mut self, mut is_waiting: impl FnMut(u64, u64) -> bool) {
        for at in (0..self.presumed_lost.len()).rev() {
            let Segments { start, end, .. } = self.presumed_lost[at].segments;
            if is_waiting(start, end)
                && let Some(sent) = self.presumed_lost.remove(at)
            {
                self.add_to_pipe(&sent);
                let number = sent.segments.number;
                let at = self.transmissions.partition_point(|sent| sent.segments.number < number);
                self.transmissions.insert(at, sent);
            }
        }
    }

    /// Removes retransmissions of segments whose bytes have all arrived otherwise.
    ///
    /// A segment that has arrived in part stays.
    pub(super) fn forget_retransmissions(&mut self, start: u64, end: u64) {
        let mut at = 0;
        while self.retransmissions > 0
            && let Some(sent) = self.transmissions.get(at)
        {
            at += 1;
            let Segments { number, mss, .. } = sent.segments;
            let bytes = (sent.segments.start.max(start), sent.segments.end.min(end));
            let first = bytes.0.saturating_sub(sent.segments.start).div_ceil(mss);
            let count = match bytes.1.saturating_sub(sent.segments.start) {
                _ if bytes.1 == sent.segments.end => sent.segments.count(),
                arrived => arrived / mss,
            };
            if sent.is_retransmission && bytes.0 < bytes.1 && first < count {
                self.take(number + first, number + count);
                at = 0;
            }
        }
    }

    /// Forgets presumed losses whose data is acknowledged.
    pub(super) fn forget_below(&mut self, acked: u64) {
        while self.presumed_lost.front().is_some_and(|lost| lost.segments.end <= acked) {
            self.presumed_lost.pop_front();
        }
    }

    /// Forgets all transmissions.
    pub(super) fn clear(&mut self) {
        self.transmissions.clear();
        self.presumed_lost.clear();
        self.pipe = 0;
        self.retransmissions = 0;
    }

    fn add_to_pipe(&mut self, sent: &Transmission) {
        self.pipe += sent.segments.count();
        self.retransmissions += if sent.is_retransmission { sent.segments.count() } else { 0 };
    }

    fn remove_from_pipe(&mut self, sent: &Transmission) {
        self.pipe -= sent.segments.count();
        self.retransmissions -= if sent.is_retransmission { sent.segments.count() } else { 0 };
    }
}

/// Removes and returns the first part of `start..end` in a queue.
fn take_part(queue: &mut VecDeque<Transmission>, start: u64, end: u64) -> Option<Transmission> {
    let is_front = queue.front()?.end() > start;
    let at = if is_front { 0 } else { queue.partition_point(|sent| sent.end() <= start) };
    let found = queue.get_mut(at)?;
    let whole = *found;
    let number = whole.segments.number;
    if number >= end {
        return None;
    }
    if start <= number && whole.end() <= end {
        return queue.remove(at);
    }
    let mut rest = whole.segments;
    let before = rest.split_off_first(start.saturating_sub(number));
    let taken = rest.split_off_first(end - rest.number);
    let part = |segments| Transmission { segments, ..whole };
    *found = part(if before.start < before.end { before } else { rest });
    if before.start < before.end && rest.start < rest.end {
        queue.insert(at + 1, part(rest));
    }
    Some(part(taken))
}

/// Loss detection by time of transmission (RFC 8985 §6.2).
///
/// Linux waits for three duplicate segments or a quarter of the min RTT before it presumes the
/// first loss (tcp_rack_reo_wnd). The model does not wait until it has seen reordering.
#[derive(Debug, Clone, Default)]
pub(super) struct Rack {
    /// Number after the newest transmission that arrived.
    high: u64,
    /// RTT of that transmission.
    rtt: Duration,
    has_seen_reordering: bool,
    /// Steps of the reordering window beyond the first.
    extra_steps: u32,
    /// Recoveries until the window has its first size again.
    persistence: u32,
    /// Duplicates are ignored until this transmission arrives.
    round_end: u64,
}

impl Rack {
    /// Records an arrived transmission; returns its segments that were reordered.
    pub(super) fn on_arrival(&mut self, now: Duration, sent: &Transmission) -> u64 {
        if sent.segments.number >= self.high {
            self.high = sent.end();
            self.rtt = now - sent.at;
            return 0;
        }
        // The arrival of a retransmission may be that of its predecessor (RFC 8985 §6.2, step 3).
        if sent.is_retransmission {
            return 0;
        }
        self.has_seen_reordering = true;
        sent.segments.count()
    }

    /// Extends the window after a spurious retransmission, at most once per round trip.
    pub(super) fn on_duplicate(&mut self, next_number: u64) {
        if self.has_seen_reordering && self.high >= self.round_end {
            self.extra_steps = (self.extra_steps + 1).min(MAX_REORDERING_STEPS - 1);
            self.persistence = REORDERING_PERSISTENCE;
            self.round_end = next_number;
        }
    }

    /// Records the end of a recovery.
    pub(super) fn on_recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.extra_steps = 0;
        }
    }

    /// Returns the time for which a transmission may be late; zero until reordering was seen.
    fn window(&self, rtt: &RttEstimator) -> Duration {
        if !self.has_seen_reordering {
            return Duration::ZERO;
        }
        let step = rtt.min().unwrap_or_default() / REORDERING_WINDOW_DIVISOR;
        (step * (1 + self.extra_steps)).min(rtt.smoothed().unwrap_or_default())
    }

    /// Removes and returns the oldest transmission if it is lost by now.
    pub(super) fn take_lost(
        &self,
        now: Duration,
        flight: &mut Flight,
        rtt: &RttEstimator,
    ) -> Option<Transmission> {
        let oldest = flight.oldest().filter(|sent| sent.segments.number < self.high)?;
        if oldest.at + self.rtt + self.window(rtt) > now {
            return None;
        }
        flight.presume_oldest_lost()
    }

    /// Returns when the transmissions before the newest arrived one are lost, if there are any.
    pub(super) fn lost_at(&self, flight: &Flight, rtt: &RttEstimator) -> Option<Duration> {
        flight.oldest().filter(|sent| sent.segments.number < self.high)?;
        Some(flight.newest_before(self.high)?.at + self.rtt + self.window(rtt))
    }

    /// Returns whether reordering was seen.
    pub(super) fn has_seen_reordering(&self) -> bool {
        self.has_seen_reordering
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::MSS;

    const MS: Duration = Duration::from_millis(1);

    /// Returns a flight of bursts of ten segments, one per ms.
    fn flight(bursts: u64) -> Flight {
        let mut flight = Flight::default();
        for n in 0..bursts {
            let range = (n * 10 * MSS, (n + 1) * 10 * MSS);
            flight.push(MS * n as u32, range, MSS, false, Stamp::default());
        }
        flight
    }

    #[test]
    fn part_of_transmission_is_taken_from_the_middle() {
        let mut flight = flight(3);
        let taken = flight.take(13, 15).unwrap();
        assert_eq!(
            taken.segments,
            Segments { number: 13, start: 13 * MSS, end: 15 * MSS, mss: MSS }
        );
        assert_eq!((flight.pipe, flight.take(13, 15).is_none()), (28, true));
        assert_eq!(flight.take(8, 40).unwrap().segments.number, 8);
        assert_eq!(flight.take(8, 40).unwrap().segments.count(), 3);
        assert_eq!(flight.take(8, 40).unwrap().segments.number, 15);
        assert_eq!(flight.take(8, 40).unwrap().segments.count(), 10);
        assert_eq!((flight.pipe, flight.take(8, 40).is_none()), (8, true));
    }

    #[test]
    fn reordering_window_grows_by_duplicates_once_per_round() {
        let mut rtt = RttEstimator::default();
        rtt.sample(40 * MS);
        let mut flight = flight(4);
        let mut rack = Rack::default();
        let newest = flight.take(20, 30).unwrap();
        assert_eq!(rack.on_arrival(42 * MS, &newest), 0);
        assert_eq!(rack.window(&rtt), Duration::ZERO);
        let late = flight.take(10, 20).unwrap();
        assert_eq!(rack.on_arrival(44 * MS, &late), 10);
        assert_eq!(rack.window(&rtt), 10 * MS);
        assert!(rack.take_lost(49 * MS, &mut flight, &rtt).is_none(), "sent at 0, 50 ms ago");
        assert_eq!(rack.lost_at(&flight, &rtt), Some(50 * MS));
        assert!(rack.take_lost(50 * MS, &mut flight, &rtt).is_some());
        for expected in [20, 20] {
            rack.on_duplicate(40);
            assert_eq!(rack.window(&rtt), expected * MS);
        }
        rack.on_arrival(45 * MS, &flight.take(30, 40).unwrap());
        for _ in 0..9 {
            rack.on_duplicate(40);
        }
        assert_eq!(rack.window(&rtt), 40 * MS, "at most the smoothed RTT");
        (0..REORDERING_PERSISTENCE).for_each(|_| rack.on_recovered());
        assert_eq!(rack.window(&rtt), 10 * MS);
    }

    #[test]
    fn restored_losses_are_in_flight_again() {
        let mut flight = flight(3);
        flight.presume_oldest_lost();
        flight.presume_oldest_lost();
        flight.push(MS * 9, (0, 10 * MSS), MSS, true, Stamp::default());
        assert_eq!((flight.pipe, flight.retransmissions), (20, 10));
        flight.restore_presumed_lost(|start, _| start >= 10 * MSS);
        assert_eq!((flight.pipe, flight.oldest().unwrap().segments.number), (30, 10));
        flight.forget_retransmissions(2 * MSS, 4 * MSS);
        assert_eq!((flight.pipe, flight.retransmissions), (28, 8));
        assert!(flight.take_presumed_lost(0, 10).is_some());
    }

    #[test]
    fn arrival_of_part_leaves_retransmission_in_flight() {
        let mut flight = Flight::default();
        flight.push(MS, (0, 3000), 1000, true, Stamp::default());
        flight.forget_retransmissions(0, 1400);
        assert_eq!((flight.pipe, flight.oldest().unwrap().segments.start), (2, 1000));
        flight.forget_retransmissions(1400, 2900);
        assert_eq!(flight.pipe, 2);
        flight.forget_retransmissions(1400, 3000);
        assert_eq!((flight.pipe, flight.retransmissions), (1, 1));
    }

    #[test]
    fn only_larger_segments_are_presumed_lost() {
        let mut flight = flight(2);
        flight.push(MS * 2, (20 * MSS, 20 * MSS + 700), MSS, false, Stamp::default());
        flight.push(MS * 3, (21 * MSS, 22 * MSS), MSS, false, Stamp::default());
        let lost = std::iter::from_fn(|| flight.presume_larger_lost(1228));
        assert_eq!(lost.map(|sent| sent.segments.number).collect::<Vec<_>>(), [0, 10, 21]);
        assert_eq!((flight.pipe, flight.oldest().unwrap().segments.number), (1, 20));
    }
}
