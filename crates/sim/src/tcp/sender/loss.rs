//! Detection of losses and marks, recovery, and path MTU discovery.
//!
//! Routers report the MTU (RFC 1191), as to Linux; a QUIC sender detects its fall by losses.
//! Out of scope: the search for a larger one, which Linux begins after ten minutes
//! (ip_rt_mtu_expires, net/ipv4/route.c), and `quinn-proto` a minute after a fall.

use super::{AckEffects, Segments, Sender};
use crate::tcp::HEADER_BYTES;
use crate::tcp::quic::{self, Quic};
use crate::tcp::receiver::Arrival;
use crate::tcp::recovery::{RateReduction, State, Undo};
use crate::tcp::window::AckProgress;
use std::time::Duration;

/// Minimum payload of a full segment (TCP_MIN_MSS, include/net/tcp.h).
const MIN_MSS: u64 = 88;

impl Sender {
    /// Records segments that arrived.
    pub(super) fn on_arrival(
        &mut self,
        now: Duration,
        arrival: &Arrival,
        effects: &mut AckEffects,
    ) {
        let start = arrival.segments.number;
        let end = start + arrival.segments.count();
        let mut delivered = 0;
        if arrival.is_marked {
            self.counts.marked += end - start;
            self.congestion.update_quic(Quic::on_marked);
        }
        while let Some(sent) = self.flight.take(start, end) {
            delivered += sent.segments.count();
            effects.sent_at = Some(sent.at);
            self.delivery.on_arrival(sent.segments.number, sent.at, sent.stamp);
            let is_app_limited = sent.stamp.is_app_limited;
            self.congestion
                .update_quic(|quic| quic.on_arrival(now, sent.at, &sent.segments, is_app_limited));
            if !sent.is_retransmission {
                effects.rtt = Some(now - sent.at);
            }
            self.counts.reordering_seen += self.rack.on_arrival(now, &sent);
        }
        effects.delivered += delivered;
        if delivered < end - start {
            self.on_late_arrival(now, arrival, effects);
        }
        if arrival.duplicates > 0 {
            self.on_duplicates(arrival);
        }
    }

    /// Records the arrival of segments that were presumed lost.
    fn on_late_arrival(&mut self, now: Duration, arrival: &Arrival, effects: &mut AckEffects) {
        let start = arrival.segments.number;
        let end = start + arrival.segments.count();
        while let Some(sent) = self.flight.take_presumed_lost(start, end) {
            self.counts.reordering_seen += self.rack.on_arrival(now, &sent);
            let Segments { start, end, .. } = sent.segments;
            self.lost.remove(start, end);
            self.flight.forget_retransmissions(start, end);
            if arrival.duplicates == 0 {
                effects.delivered += sent.segments.count();
            }
        }
    }

    /// Records segments that arrived twice (tcp_dsack_seen, net/ipv4/tcp_input.c).
    fn on_duplicates(&mut self, arrival: &Arrival) {
        self.counts.spurious_retransmits += arrival.duplicates;
        if self.counts.spurious_retransmits > self.counts.retransmits {
            // The network duplicated segments.
            return;
        }
        // A probe is sent by time, not by the order of arrivals.
        if self.timers.probe_number != Some(arrival.segments.number) {
            self.rack.on_duplicate(self.flight.next_number());
        }
        self.recovery.on_duplicates(arrival.segments.end, arrival.duplicates);
    }

    /// Marks transmissions as lost, and arms the timer for those that may only be late.
    pub(super) fn detect_losses(&mut self, now: Duration, effects: &mut AckEffects) {
        while let Some(sent) = self.rack.take_lost(now, &mut self.flight, &self.rtt) {
            let count = sent.segments.count();
            effects.lost += count;
            self.delivery.total.lost += count;
            effects.retransmissions_lost += if sent.is_retransmission { count } else { 0 };
            self.mark_lost(&sent.segments);
        }
        self.timers.reordering_at = self.rack.lost_at(&self.flight, &self.rtt);
    }

    fn mark_lost(&mut self, segments: &Segments) {
        self.congestion.update_quic(|quic| quic.on_presumed_lost(segments));
        self.lost.insert(segments.start.max(self.seq.acked), segments.end);
    }

    pub(super) fn update_state(&mut self, now: Duration, effects: &AckEffects) {
        self.undo_if_spurious(effects);
        self.end_recovery();
        let is_new_event = match self.recovery.state {
            State::Open | State::Marked => effects.lost > 0 || !self.lost.is_empty(),
            State::Loss => effects.retransmissions_lost > 0,
            State::Recovery => false,
        };
        // Out-of-order deliveries are no sign of a loss if the path reorders (tcp_may_raise_cwnd,
        // net/ipv4/tcp_input.c).
        let has_progress =
            effects.has_advanced || (self.rack.has_seen_reordering() && effects.delivered > 0);
        if is_new_event {
            self.begin_recovery();
        } else if effects.has_mark && self.recovery.state == State::Open {
            self.begin_reduction();
            self.counts.mark_reductions += 1;
            self.recovery.state = State::Marked;
        }
        if matches!(self.recovery.state, State::Recovery | State::Marked) {
            self.reduce(effects);
        } else if has_progress && !is_new_event {
            self.congestion.on_ack(&AckProgress {
                now,
                segments: effects.delivered,
                in_flight: self.flight.pipe,
                min_rtt: self.rtt.min().unwrap_or_default(),
                is_window_limited: self.is_window_limited(),
            });
        }
    }

    /// Undoes the latest reduction if all of its retransmissions were needless.
    fn undo_if_spurious(&mut self, effects: &AckEffects) {
        let has_retransmissions =
            self.flight.retransmissions > 0 && self.seq.acked < self.recovery.end;
        if let Some(window) = self.recovery.spurious(effects.echo, has_retransmissions) {
            self.congestion.undo(window, &self.delivery.total);
            self.recovery.undo = None;
            self.recovery.state = State::Open;
            // Those that still wait for their retransmission count as in flight again.
            let lost = &mut self.lost;
            self.flight.restore_presumed_lost(|start, end| {
                let is_waiting = lost.contains(start, end);
                if is_waiting {
                    lost.remove(start, end);
                }
                is_waiting
            });
        }
    }

    fn end_recovery(&mut self) {
        let (state, end) = (self.recovery.state, self.recovery.end);
        // A reduction after a mark ends when the receiver has confirmed it (tcp_fastretrans_alert,
        // net/ipv4/tcp_input.c).
        let has_ended = self.seq.acked > end || (self.seq.acked == end && state != State::Marked);
        if state == State::Open || !has_ended {
            return;
        }
        if state != State::Loss {
            self.congestion.set_window_to_threshold();
        }
        if state != State::Marked {
            self.rack.on_recovered();
        }
        self.recovery.state = State::Open;
    }

    /// Begins to reduce the window, at most once per round trip.
    fn begin_reduction(&mut self) {
        self.recovery.reduction =
            RateReduction { prior_window: self.congestion.window(), delivered: 0, sent: 0 };
        self.recovery.undo = None;
        self.congestion.on_loss();
        self.recovery.end = self.seq.next;
    }

    fn begin_recovery(&mut self) {
        self.counts.recoveries += 1;
        // If no loss remains, a probe has repaired the one that it revealed (RFC 8985 §7.4).
        let undo =
            Undo::new(self.congestion.saved(), self.seq.acked).filter(|_| !self.lost.is_empty());
        if self.recovery.state == State::Marked {
            // The window is reduced already (tcp_enter_recovery, net/ipv4/tcp_recovery.c).
            self.recovery.end = self.seq.next;
        } else {
            self.begin_reduction();
            self.recovery.undo = undo;
        }
        if self.seq.acked == self.seq.next {
            self.congestion.set_window_to_threshold();
        } else {
            self.recovery.state = State::Recovery;
        }
    }

    /// Sets the window during a recovery, which has its own rules.
    fn reduce(&mut self, effects: &AckEffects) {
        if self.congestion.keeps_window() {
            return;
        }
        let pipe = self.flight.pipe;
        let is_clean = effects.has_advanced && effects.lost == 0;
        let threshold = self.congestion.threshold() as u64;
        let reduction = &mut self.recovery.reduction;
        let may_send = reduction.may_send(pipe, threshold, effects.delivered, is_clean);
        self.congestion.set_window(pipe + may_send);
    }

    pub(super) fn on_timeout(&mut self, now: Duration) {
        self.counts.timeouts += 1;
        let is_reduced = matches!(self.recovery.state, State::Recovery | State::Marked);
        let is_first = self.timers.backoff == 0 && !is_reduced;
        if is_first {
            self.recovery.undo = Undo::new(self.congestion.saved(), self.seq.acked);
            self.congestion.on_loss();
        }
        self.congestion.on_timeout(&self.delivery.total);
        // Marks the oldest transmission as lost, and all that should have been acknowledged by now
        // (tcp_timeout_mark_lost, net/ipv4/tcp_input.c).
        let mut is_oldest = true;
        let latest = self.rtt.latest();
        let lost_before = self.delivery.total.lost;
        while self.flight.oldest().is_some_and(|sent| is_oldest || sent.at + latest <= now)
            && let Some(sent) = self.flight.presume_oldest_lost()
        {
            self.delivery.total.lost += sent.segments.count();
            self.mark_lost(&sent.segments);
            is_oldest = false;
        }
        let (lost, timeouts) = (self.delivery.total.lost - lost_before, self.timers.backoff + 1);
        self.congestion.update_quic(|quic| quic.on_timeout(lost, timeouts));
        self.congestion.set_window(self.flight.pipe + 1);
        self.recovery.state = State::Loss;
        self.recovery.end = self.seq.next;
        self.timers.backoff += 1;
        self.timers.probe_at = None;
        self.timers.probe_end = None;
        self.timers.reordering_at = None;
        self.timers.timeout_at = Some(now + self.rtt.timeout(self.timers.backoff));
    }

    /// Processes the report that a link takes packets of `mtu` bytes at most (tcp_v4_mtu_reduced,
    /// net/ipv4/tcp_ipv4.c).
    pub(crate) fn on_packet_too_long(&mut self, now: Duration, mtu: u32) {
        let mss = u64::from(mtu.saturating_sub(HEADER_BYTES)).max(MIN_MSS);
        if mss >= self.mss {
            return;
        }
        if self.congestion.quic().is_some() {
            if !self.is_in_black_hole() {
                self.congestion.update_quic(Quic::on_packet_too_long);
                self.arm_probe(now);
            }
            return;
        }
        self.set_mss(mss);
        self.retransmit_larger(now);
    }

    /// Marks larger segments in flight as lost, without a reduction (tcp_simple_retransmit,
    /// net/ipv4/tcp_input.c).
    fn retransmit_larger(&mut self, now: Duration) {
        while let Some(sent) = self.flight.presume_larger_lost(self.mss) {
            self.delivery.total.lost += sent.segments.count();
            self.mark_lost(&sent.segments);
        }
        if self.lost.is_empty() {
            return;
        }
        if self.recovery.state != State::Loss {
            if self.recovery.state == State::Open {
                self.congestion.keep_threshold();
            }
            self.congestion.on_timeout(&self.delivery.total);
            self.recovery.state = State::Loss;
            self.recovery.end = self.seq.next;
            self.recovery.undo = None;
        }
        self.timers.probe_at = None;
        self.timers.probe_end = None;
        self.timers.reordering_at = None;
        self.timers.timeout_at = Some(now + self.rtt.timeout(self.timers.backoff));
    }

    fn set_mss(&mut self, mss: u64) {
        self.mss = mss;
        self.congestion.set_mss(mss);
    }

    /// Returns whether the path loses all full segments of a QUIC sender.
    ///
    /// Its probes then are those of QUIC: of the smallest size (connection/mod.rs, quinn-proto
    /// 0.11.19), and also during a recovery (RFC 9002 §6.2). At other times TCP's serve instead.
    pub(super) fn is_in_black_hole(&self) -> bool {
        self.congestion.quic().is_some_and(|quic| quic.black_hole().is_present)
    }

    /// Returns the maximum payload of a probe.
    pub(super) fn probe_bytes(&self) -> u64 {
        if self.is_in_black_hole() { self.mss.min(quic::MIN_MSS) } else { self.mss }
    }

    /// Reduces a QUIC sender's segments to the smallest size after a black hole.
    pub(super) fn leave_black_hole(&mut self) {
        let is_detected =
            self.congestion.quic().is_some_and(|quic| quic.black_hole().is_detected());
        if is_detected && quic::MIN_MSS < self.mss {
            self.set_mss(quic::MIN_MSS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Algorithm, MSS, Segments};

    const MS: Duration = Duration::from_millis(1);

    fn sender() -> Sender {
        let mut sender = Sender::new(Algorithm::Cubic, 1 << 30, 20 * MS);
        sender.write(u64::MAX);
        sender
    }

    #[test]
    fn larger_segments_are_sent_again_at_same_window() {
        let mut sender = sender();
        assert_eq!(sender.poll(MS).map(|sent| sent.count()), Some(10));
        sender.on_packet_too_long(11 * MS, 1280);
        let sent = sender.poll(11 * MS);
        assert_eq!(sent, Some(Segments { number: 10, start: 0, end: 12_280, mss: 1228 }));
        assert_eq!((sender.congestion.window(), sender.counts.recoveries), (10, 0));
        assert!(sender.congestion.is_in_slow_start());
        sender.on_packet_too_long(12 * MS, 1280);
        assert_eq!(sender.poll(12 * MS), None, "a report of the same MTU");
    }

    #[test]
    fn report_without_larger_segments_changes_no_state() {
        let mut sender = sender();
        sender.on_packet_too_long(MS, 1280);
        assert_eq!((sender.mss, sender.recovery.state), (1228, State::Open));
        sender.on_packet_too_long(MS, 1500);
        sender.on_packet_too_long(MS, 20);
        assert_eq!((sender.mss, MSS), (MIN_MSS, 1448));
    }
}
