//! TCP sender: decides what to send next, and detects losses.
//!
//! Losses are detected by the order of transmission (RFC 8985, without a reordering window, since
//! paths do not reorder). A recovery follows RFC 6937; a lost tail is probed for (RFC 8985 §7)
//! before the retransmission timeout.

use super::congestion::{AckProgress, Algorithm, CongestionControl, INITIAL_WINDOW, RttSample};
use super::ranges::Ranges;
use super::rtt::{RTO_MIN, RttEstimator};
use super::{Ack, MSS, Receiver, Segments};
use bankfull_control::Rate;
use std::collections::VecDeque;
use std::time::Duration;

/// Segments of the largest super-packet: 64 KiB (GSO_LEGACY_MAX_SIZE, include/linux/netdevice.h) of
/// 1500 bytes on the line.
pub const MAX_SUPER_PACKET_SEGMENTS: u64 = 43;

/// Segments of the smallest super-packet, if available (tcp_min_tso_segs, 2, ip-sysctl.rst).
const MIN_SUPER_PACKET_SEGMENTS: u64 = 2;

/// Super-packets per second at the pacing rate: the rate shifted by 10 (sk_pacing_shift_init,
/// net/core/sock.c).
const SUPER_PACKETS_PER_SEC: f64 = 1024.0;

/// Shift of the min RTT for larger super-packets on short paths: 64 KiB shifted by the min RTT in
/// µs, shifted by 9 (tcp_tso_rtt_log, ip-sysctl.rst; tcp_tso_autosize, net/ipv4/tcp_output.c).
const SUPER_PACKET_RTT_SHIFT: u32 = 9;

/// Pacing rate in windows per RTT while the window is below half of the threshold
/// (tcp_pacing_ss_ratio, 200 %, ip-sysctl.rst).
const PACING_SLOW_START_RATIO: f64 = 2.0;

/// Pacing rate in windows per RTT above half of the threshold (tcp_pacing_ca_ratio, 120 %,
/// ip-sysctl.rst).
const PACING_AVOIDANCE_RATIO: f64 = 1.2;

/// Counters of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Transmitted segments, including retransmissions.
    pub segments: u64,
    /// Retransmitted segments, including tail loss probes.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Window reductions after a loss, excluding timeouts.
    pub recoveries: u64,
    /// RTT samples.
    pub rtt_samples: u64,
    /// Sum of the RTT samples.
    pub rtt_sum: Duration,
    /// Longest RTT sample.
    pub rtt_max: Duration,
}

/// Segments that were sent together and are not known to be delivered or lost.
#[derive(Debug, Clone, Copy)]
struct Transmission {
    segments: Segments,
    at: Duration,
    is_retransmission: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No loss.
    Open,
    /// Fast recovery.
    Recovery,
    /// Recovery after a retransmission timeout.
    Loss,
}

/// Proportional rate reduction (RFC 6937 §3).
#[derive(Debug, Clone, Copy, Default)]
struct RateReduction {
    prior_window: u64,
    delivered: u64,
    sent: u64,
}

/// Effects of an acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
struct AckEffects {
    delivered: u64,
    lost: u64,
    /// Lost segments that were retransmissions.
    retransmissions_lost: u64,
    rtt: Option<Duration>,
    has_advanced: bool,
}

/// Window usage per round trip: whether the window was the limit (tcp_cwnd_validate,
/// net/ipv4/tcp_output.c).
#[derive(Debug, Clone, Copy, Default)]
struct WindowUsage {
    is_limited: bool,
    max_in_flight: u64,
    round_end: u64,
}

/// Byte positions of the data.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    /// End of the data that the application has written.
    written: u64,
    /// First byte that was never sent.
    next: u64,
    /// First unacknowledged byte.
    acked: u64,
    /// Right edge of the receive window: first byte that must not be sent.
    right_edge: u64,
}

/// Transmissions in flight.
#[derive(Debug, Clone, Default)]
struct Flight {
    /// Transmissions, in order.
    transmissions: VecDeque<Transmission>,
    /// Segments in flight.
    pipe: u64,
    /// Number of the next transmission.
    next_number: u64,
}

/// Progress of loss recovery.
#[derive(Debug, Clone, Copy)]
struct Recovery {
    state: State,
    /// The recovery ends when this byte is acknowledged.
    end: u64,
    reduction: RateReduction,
}

/// Pacing of the payload.
#[derive(Debug, Clone, Copy, Default)]
struct Pacer {
    /// Maximum rate in bytes per second; `None` if not paced.
    max_rate: Option<f64>,
    /// Time at which pacing allows the next super-packet.
    next_send: Duration,
}

/// Retransmission and probe timers.
#[derive(Debug, Clone, Copy, Default)]
struct Timers {
    timeout_at: Option<Duration>,
    probe_at: Option<Duration>,
    /// The probe has been answered when this byte is acknowledged.
    probe_end: Option<u64>,
    backoff: u32,
}

/// TCP sender.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    seq: Sequence,
    flight: Flight,
    lost: Ranges,
    recovery: Recovery,
    congestion: CongestionControl,
    usage: WindowUsage,
    rtt: RttEstimator,
    pacer: Pacer,
    timers: Timers,
    last_sent: Duration,
    counts: SenderCounts,
}

impl Sender {
    /// Creates a sender whose handshake took `rtt`.
    pub(crate) fn new(algorithm: Algorithm, right_edge: u64, rtt: Duration) -> Self {
        let mut sender = Self {
            seq: Sequence { written: 0, next: 0, acked: 0, right_edge },
            flight: Flight::default(),
            lost: Ranges::default(),
            recovery: Recovery { state: State::Open, end: 0, reduction: RateReduction::default() },
            congestion: CongestionControl::new(algorithm),
            usage: WindowUsage::default(),
            rtt: RttEstimator::default(),
            pacer: Pacer::default(),
            timers: Timers::default(),
            last_sent: Duration::ZERO,
            counts: SenderCounts::default(),
        };
        sender.rtt.sample(rtt);
        sender
    }

    /// Adds data written by the application.
    pub(crate) fn write(&mut self, bytes: u64) {
        self.seq.written = self.seq.written.saturating_add(bytes);
    }

    /// Ends the data with the last byte sent; returns the total.
    pub(crate) fn finish(&mut self) -> u64 {
        self.seq.written = self.seq.next;
        self.seq.written
    }

    /// Sets the maximum pacing rate of payload, at least 1 byte/s; `None` removes it.
    pub(crate) fn set_pacing(&mut self, rate: Option<Rate>) {
        self.pacer.max_rate = rate.map(|rate| (rate.bits_per_sec() as f64 / 8.0).max(1.0));
    }

    pub(crate) fn counts(&self) -> SenderCounts {
        self.counts
    }

    pub(crate) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Returns the first unacknowledged byte.
    pub(crate) fn acked(&self) -> u64 {
        self.seq.acked
    }

    /// Returns the congestion window in segments.
    pub(crate) fn window(&self) -> u64 {
        self.congestion.window()
    }

    /// Returns the next super-packet, if one may be sent now.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Segments> {
        if self.pacer.max_rate.is_some() && now < self.pacer.next_send {
            return None;
        }
        self.restart_after_idle(now);
        let room = self.congestion.window().saturating_sub(self.flight.pipe);
        if room == 0 {
            self.record_window_usage(self.has_something_to_send());
            return None;
        }
        let max_segments = room.min(self.super_packet_segments());
        let is_retransmission = !self.lost.is_empty();
        let (start, end) = match self.lost.take_first(max_segments * MSS) {
            Some(range) => range,
            None => self.new_data(max_segments)?,
        };
        let sent = self.transmit(now, (start, end), is_retransmission);
        self.record_window_usage(self.flight.pipe >= self.congestion.window());
        Some(sent)
    }

    /// Returns when pacing allows the next super-packet, if only pacing delays it.
    pub(crate) fn paced_until(&self, now: Duration) -> Option<Duration> {
        let waits = self.pacer.max_rate.is_some() && now < self.pacer.next_send;
        (waits && self.has_something_to_send()).then_some(self.pacer.next_send)
    }

    /// Returns when [`Self::on_time`] must be called.
    pub(crate) fn timer(&self) -> Option<Duration> {
        match (self.timers.probe_at, self.timers.timeout_at) {
            (Some(probe), Some(timeout)) => Some(probe.min(timeout)),
            (probe, timeout) => probe.or(timeout),
        }
    }

    /// Processes an acknowledgement.
    pub(crate) fn on_ack(&mut self, now: Duration, ack: &Ack, receiver: &mut Receiver) {
        let mut effects = AckEffects::default();
        while let Some((start, end)) = receiver.take_arrived(ack.high) {
            self.on_arrival(now, start, end, &mut effects);
        }
        self.seq.right_edge = self.seq.right_edge.max(ack.right_edge);
        effects.has_advanced = ack.next > self.seq.acked;
        if effects.has_advanced {
            self.seq.acked = ack.next;
            self.lost.trim_below(ack.next);
            self.timers.backoff = 0;
            self.timers.probe_end = self.timers.probe_end.filter(|&end| end > ack.next);
        }
        if self.seq.acked == self.seq.next {
            // The remaining transmissions were spurious.
            self.flight.transmissions.clear();
            self.flight.pipe = 0;
        }
        if let Some(rtt) = effects.rtt {
            self.on_rtt(now, rtt);
        }
        self.update_state(now, &effects);
        if self.seq.acked == self.seq.next {
            self.timers.timeout_at = None;
            self.timers.probe_at = None;
        } else if effects.has_advanced || effects.delivered > 0 {
            self.timers.timeout_at = Some(now + self.rtt.timeout(self.timers.backoff));
            self.arm_probe(now);
        }
    }

    /// Processes expired timers, and returns a tail loss probe.
    ///
    /// After a retransmission timeout, [`Self::poll`] returns the retransmissions.
    pub(crate) fn on_time(&mut self, now: Duration) -> Option<Segments> {
        if self.timers.probe_at.is_some_and(|at| at <= now) {
            return self.send_probe(now);
        }
        if self.timers.timeout_at.is_some_and(|at| at <= now) {
            self.on_timeout(now);
        }
        None
    }

    /// Records the arrival of transmissions `start..end`; earlier ones in flight are lost.
    fn on_arrival(&mut self, now: Duration, start: u64, end: u64, effects: &mut AckEffects) {
        while let Some(front) = self.flight.transmissions.front_mut() {
            let first = front.segments.number;
            if first >= end {
                return;
            }
            let has_arrived = first >= start;
            let until = if has_arrived { end } else { start };
            let mut sent = *front;
            if first + front.segments.count() > until {
                sent.segments = front.segments.split_off_first(until - first);
            } else {
                self.flight.transmissions.pop_front();
            }
            let count = sent.segments.count();
            self.flight.pipe -= count;
            if has_arrived {
                effects.delivered += count;
                if !sent.is_retransmission {
                    effects.rtt = Some(now - sent.at);
                }
            } else {
                effects.lost += count;
                effects.retransmissions_lost += if sent.is_retransmission { count } else { 0 };
                self.mark_lost(&sent.segments);
            }
        }
    }

    fn mark_lost(&mut self, segments: &Segments) {
        self.lost.insert(segments.start.max(self.seq.acked), segments.end);
    }

    fn on_rtt(&mut self, now: Duration, rtt: Duration) {
        self.rtt.sample(rtt);
        self.counts.rtt_samples += 1;
        self.counts.rtt_sum += rtt;
        self.counts.rtt_max = self.counts.rtt_max.max(rtt);
        self.congestion.on_rtt(&RttSample {
            now,
            rtt,
            min_rtt: self.rtt.min().unwrap_or(rtt),
            acked: self.seq.acked,
            next: self.seq.next,
            pacing_rate: self.pacing_rate(),
        });
    }

    fn update_state(&mut self, now: Duration, effects: &AckEffects) {
        if self.recovery.state != State::Open && self.seq.acked >= self.recovery.end {
            if self.recovery.state == State::Recovery {
                self.congestion.set_window_to_threshold();
            }
            self.recovery.state = State::Open;
        }
        let is_new_event = match self.recovery.state {
            State::Open => effects.lost > 0 || !self.lost.is_empty(),
            State::Loss => effects.retransmissions_lost > 0,
            State::Recovery => false,
        };
        if is_new_event {
            self.begin_recovery();
        }
        if self.recovery.state == State::Recovery {
            self.reduce(effects);
        } else if effects.has_advanced && !is_new_event && self.is_window_limited() {
            let min_rtt = self.rtt.min().unwrap_or_default();
            self.congestion.on_ack(&AckProgress { now, segments: effects.delivered, min_rtt });
        }
    }

    fn begin_recovery(&mut self) {
        self.counts.recoveries += 1;
        self.recovery.reduction =
            RateReduction { prior_window: self.congestion.window(), delivered: 0, sent: 0 };
        self.congestion.on_loss();
        self.recovery.end = self.seq.next;
        if self.seq.acked == self.seq.next {
            // A probe has repaired the loss that it revealed (RFC 8985 §7.4).
            self.congestion.set_window_to_threshold();
        } else {
            self.recovery.state = State::Recovery;
        }
    }

    /// Sets the window during a recovery (RFC 6937 §3.1, with the slow start reduction bound).
    fn reduce(&mut self, effects: &AckEffects) {
        let reduction = &mut self.recovery.reduction;
        reduction.delivered += effects.delivered;
        let threshold = self.congestion.threshold() as u64;
        let may_send = if self.flight.pipe > threshold {
            let prior = reduction.prior_window.max(1);
            (reduction.delivered * threshold).div_ceil(prior).saturating_sub(reduction.sent)
        } else {
            let limit = reduction.delivered.saturating_sub(reduction.sent).max(effects.delivered);
            let is_clean = effects.has_advanced && effects.lost == 0;
            (limit + u64::from(is_clean)).min(threshold - self.flight.pipe)
        };
        // The first retransmission leaves at once (tcp_cwnd_reduction, net/ipv4/tcp_input.c).
        let may_send = may_send.max(u64::from(reduction.sent == 0));
        self.congestion.set_window(self.flight.pipe + may_send);
    }

    fn on_timeout(&mut self, now: Duration) {
        self.counts.timeouts += 1;
        let is_first = self.timers.backoff == 0 && self.recovery.state != State::Recovery;
        if is_first {
            self.congestion.on_loss();
        }
        self.congestion.on_timeout();
        // Marks the oldest transmission as lost, and all that should have been acknowledged by now
        // (tcp_timeout_mark_lost, net/ipv4/tcp_input.c).
        let mut is_oldest = true;
        while let Some(sent) = self.flight.transmissions.front().copied()
            && (is_oldest || sent.at + self.rtt.latest() <= now)
        {
            self.flight.transmissions.pop_front();
            self.flight.pipe -= sent.segments.count();
            self.mark_lost(&sent.segments);
            is_oldest = false;
        }
        self.congestion.set_window(self.flight.pipe + 1);
        self.recovery.state = State::Loss;
        self.recovery.end = self.seq.next;
        self.timers.backoff += 1;
        self.timers.probe_at = None;
        self.timers.probe_end = None;
        self.timers.timeout_at = Some(now + self.rtt.timeout(self.timers.backoff));
    }

    /// Sends one segment beyond the window to elicit an acknowledgement (RFC 8985 §7.3). The
    /// segment is new, or the last one again.
    fn send_probe(&mut self, now: Duration) -> Option<Segments> {
        self.timers.probe_at = None;
        self.counts.probes += 1;
        let new = self.new_data(1);
        let last = self.seq.next - 1 - (self.seq.next - 1 - self.seq.acked) % MSS;
        let sent = self.transmit(now, new.unwrap_or((last, self.seq.next)), new.is_none());
        self.timers.probe_end = Some(self.seq.next);
        self.timers.probe_at = None;
        self.timers.timeout_at = Some(now + self.rtt.timeout(self.timers.backoff));
        Some(sent)
    }

    /// Arms the probe timer if nothing is lost and no probe is outstanding.
    ///
    /// The timer expires no later than the retransmission timeout (RFC 8985 §7.2).
    fn arm_probe(&mut self, now: Duration) {
        let can_probe = self.recovery.state == State::Open
            && self.timers.probe_end.is_none()
            && self.flight.pipe > 0;
        let at = now + self.rtt.probe_timeout(self.flight.pipe == 1);
        self.timers.probe_at =
            can_probe.then(|| self.timers.timeout_at.map_or(at, |timeout| at.min(timeout)));
    }

    fn has_something_to_send(&self) -> bool {
        !self.lost.is_empty() || self.new_data(1).is_some()
    }

    /// Returns the next range of new data, at most `segments`: full ones, or the last one.
    fn new_data(&self, segments: u64) -> Option<(u64, u64)> {
        let left = self.seq.written - self.seq.next;
        let open = self.seq.right_edge.saturating_sub(self.seq.next);
        let bytes = if left <= open { left } else { open - open % MSS };
        let bytes = bytes.min(segments * MSS);
        (bytes > 0).then_some((self.seq.next, self.seq.next + bytes))
    }

    fn transmit(&mut self, now: Duration, range: (u64, u64), is_retransmission: bool) -> Segments {
        let segments = Segments { number: self.flight.next_number, start: range.0, end: range.1 };
        let count = segments.count();
        self.delay_next_send(now, range.1 - range.0);
        self.flight.transmissions.push_back(Transmission { segments, at: now, is_retransmission });
        self.flight.pipe += count;
        self.flight.next_number += count;
        self.last_sent = now;
        self.counts.segments += count;
        if self.recovery.state == State::Recovery {
            self.recovery.reduction.sent += count;
        }
        if is_retransmission {
            self.counts.retransmits += count;
        }
        self.seq.next = self.seq.next.max(range.1);
        if self.timers.timeout_at.is_none() {
            self.timers.timeout_at = Some(now + self.rtt.timeout(self.timers.backoff));
        }
        if !is_retransmission {
            self.arm_probe(now);
        }
        segments
    }

    /// Returns the pacing rate in bytes per second; `None` if not paced.
    fn pacing_rate(&self) -> Option<f64> {
        let max_rate = self.pacer.max_rate?;
        let smoothed = self.rtt.smoothed()?.as_secs_f64();
        let window = self.congestion.window().max(self.flight.pipe) as f64;
        let is_slow_start = window < self.congestion.threshold() / 2.0;
        let ratio = if is_slow_start { PACING_SLOW_START_RATIO } else { PACING_AVOIDANCE_RATIO };
        Some(max_rate.min(window * MSS as f64 * ratio / smoothed.max(1e-9)).max(1.0))
    }

    /// Delays the next super-packet (tcp_update_skb_after_send, net/ipv4/tcp_output.c).
    fn delay_next_send(&mut self, now: Duration, bytes: u64) {
        let Some(rate) = self.pacing_rate() else { return };
        if self.counts.segments < INITIAL_WINDOW {
            return;
        }
        let send_time = Duration::from_secs_f64(bytes as f64 / rate);
        // Lateness is compensated, up to half of a super-packet.
        let credit = now.saturating_sub(self.pacer.next_send).min(send_time / 2);
        self.pacer.next_send = self.pacer.next_send.max(now) + send_time - credit;
    }

    /// Returns the size of a super-packet in segments.
    fn super_packet_segments(&self) -> u64 {
        let Some(rate) = self.pacing_rate() else { return MAX_SUPER_PACKET_SEGMENTS };
        let min_rtt_us = self.rtt.min().unwrap_or_default().as_micros();
        let shift = u32::try_from(min_rtt_us >> SUPER_PACKET_RTT_SHIFT).unwrap_or(u32::MAX);
        let extra = 65_536_u64.checked_shr(shift).unwrap_or(0);
        let bytes = (rate / SUPER_PACKETS_PER_SEC) as u64 + extra;
        (bytes / MSS).clamp(MIN_SUPER_PACKET_SEGMENTS, MAX_SUPER_PACKET_SEGMENTS)
    }

    fn restart_after_idle(&mut self, now: Duration) {
        let is_idle = self.seq.acked == self.seq.next
            && self.seq.next < self.seq.written
            && self.seq.next > 0;
        let idle = now - self.last_sent;
        if is_idle && idle > RTO_MIN {
            self.congestion.on_idle(idle, self.rtt.timeout(0));
            self.last_sent = now;
        }
    }

    fn record_window_usage(&mut self, is_limited: bool) {
        let usage = &mut self.usage;
        let is_new_round = self.seq.acked >= usage.round_end;
        let is_more = !usage.is_limited && self.flight.pipe > usage.max_in_flight;
        if is_new_round || is_limited || is_more {
            *usage = WindowUsage {
                is_limited,
                max_in_flight: self.flight.pipe,
                round_end: self.seq.next,
            };
        }
    }

    fn is_window_limited(&self) -> bool {
        let is_doubling = self.congestion.is_in_slow_start();
        let half_used = self.congestion.window() < 2 * self.usage.max_in_flight;
        self.usage.is_limited || (is_doubling && half_used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_control::Bytes;

    const MS: Duration = Duration::from_millis(1);

    fn sender(algorithm: Algorithm) -> Sender {
        let mut sender = Sender::new(algorithm, 1 << 30, 20 * MS);
        sender.write(u64::MAX);
        sender
    }

    fn poll_all(sender: &mut Sender, now: Duration) -> Vec<Segments> {
        std::iter::from_fn(|| sender.poll(now)).collect()
    }

    #[test]
    fn unpaced_sender_sends_initial_window_at_once() {
        let mut sender = sender(Algorithm::Cubic);
        let sent = poll_all(&mut sender, MS);
        assert_eq!(sent, [Segments { number: 0, start: 0, end: 10 * MSS }]);
        assert_eq!(sender.timer(), Some(MS + 42 * MS), "a probe for a lost tail");
    }

    #[test]
    fn super_packets_take_about_1_ms_at_pacing_rate() {
        for (rate_mbit, segments) in [(1.0, 2), (100.0, 8), (300.0, 25), (10_000.0, 43)] {
            let mut sender = sender(Algorithm::Cubic);
            sender.congestion.set_window(100_000);
            sender.set_pacing(Some(Rate::from_bits_per_sec(rate_mbit * 1e6)));
            sender.counts.segments = INITIAL_WINDOW;
            let sent = poll_all(&mut sender, MS);
            assert_eq!((sent.len(), sent[0].count()), (1, segments), "{rate_mbit} Mbit/s");
            let gap = (sender.paced_until(MS).unwrap() - MS).as_secs_f64();
            let expected = (segments * MSS * 8) as f64 / (rate_mbit * 1e6);
            // The idle time of 1 ms is compensated by half of a super-packet at most.
            assert!(gap <= expected && gap >= expected / 2.0 - 1e-9, "{rate_mbit}: {gap}");
        }
    }

    /// Sends a window of 100 segments, of which `lost` do not arrive; returns later transmissions.
    fn with_losses(lost: std::ops::Range<u64>) -> (Sender, Vec<Segments>) {
        let mut sender = sender(Algorithm::NewReno);
        sender.congestion.set_window(100);
        let mut receiver = Receiver::new(Bytes(1 << 30));
        let mut retransmitted = Vec::new();
        for mut burst in poll_all(&mut sender, MS) {
            while burst.start < burst.end {
                let segment = burst.split_off_first(1);
                if !lost.contains(&segment.number)
                    && let Some(ack) = receiver.on_segments(10 * MS, &segment)
                {
                    sender.on_ack(20 * MS, &ack, &mut receiver);
                    retransmitted.extend(poll_all(&mut sender, 20 * MS));
                }
            }
        }
        (sender, retransmitted)
    }

    #[test]
    fn losses_of_one_round_cause_one_reduction() {
        let (sender, retransmitted) = with_losses(20..40);
        assert_eq!(sender.counts.recoveries, 1);
        assert!((50.0..62.0).contains(&sender.congestion.threshold()));
        let first = retransmitted.iter().find(|sent| sent.start < 100 * MSS).unwrap();
        assert_eq!(first.start, 20 * MSS);
        assert_eq!(sender.counts.retransmits, 20, "all of them, before anything new");
    }

    #[test]
    fn recovery_sends_one_segment_per_two_delivered() {
        let (sender, _) = with_losses(20..21);
        // 79 arrive after the loss; half of the window should remain at the end of the round.
        assert!(
            (35..=45).contains(&sender.recovery.reduction.sent),
            "{:?}",
            sender.recovery.reduction
        );
    }

    #[test]
    fn timeout_retransmits_one_segment_and_backs_off() {
        let mut sender = sender(Algorithm::Cubic);
        poll_all(&mut sender, Duration::ZERO);
        assert!(sender.on_time(42 * MS).is_some(), "the probe");
        let timeout = sender.timer().unwrap();
        assert_eq!(timeout, 42 * MS + 220 * MS);
        assert_eq!(sender.on_time(timeout), None);
        let retransmitted = poll_all(&mut sender, timeout);
        assert_eq!(retransmitted, [Segments { number: 11, start: 0, end: MSS }]);
        assert_eq!(sender.timer(), Some(timeout + 440 * MS));
        assert_eq!((sender.counts.timeouts, sender.counts.probes), (1, 1));
    }
}
