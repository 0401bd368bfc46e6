//! TCP sender: decides what to send next, and detects losses.
//!
//! Losses are detected by the order of transmission (RFC 8985), with a reordering window once
//! reordering was seen. A recovery follows RFC 6937, and is undone if it was spurious; a lost tail
//! is probed for (RFC 8985 §7) before the retransmission timeout.

mod loss;

use super::bbr::{AckSample, Bbr};
use super::congestion::{Algorithm, CongestionControl, RttSample};
use super::delivery::Delivery;
use super::flight::{Flight, Rack};
use super::pacer::{self, Pacer};
use super::ranges::Ranges;
use super::recovery::{Recovery, State};
use super::rtt::{RTO_MIN, RttEstimator};
use super::{Ack, MSS, Receiver, Segments};
use bankfull_control::Rate;
use std::time::Duration;

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
    /// Segments reported to have arrived twice, also if the network duplicated them
    /// (tcpi_dsack_dups, include/uapi/linux/tcp.h).
    pub spurious_retransmits: u64,
    /// Segments that arrived after a later one (tcpi_reord_seen, include/uapi/linux/tcp.h).
    pub reordering_seen: u64,
    /// Segments that experienced congestion (CE, RFC 3168).
    pub marked: u64,
    /// Window reductions after marks, without a loss.
    pub mark_reductions: u64,
    /// RTT samples.
    pub rtt_samples: u64,
    /// Sum of the RTT samples.
    pub rtt_sum: Duration,
    /// Longest RTT sample.
    pub rtt_max: Duration,
}

/// Effects of an acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
struct AckEffects {
    delivered: u64,
    lost: u64,
    /// Lost segments that were retransmissions.
    retransmissions_lost: u64,
    /// Echo of the acknowledgement if the left edge advanced.
    echo: Option<u64>,
    rtt: Option<Duration>,
    /// Time of transmission of the latest arrival.
    sent_at: Option<Duration>,
    /// Segments in flight before the acknowledgement.
    prior_in_flight: u64,
    has_mark: bool,
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

/// Retransmission and probe timers.
#[derive(Debug, Clone, Copy, Default)]
struct Timers {
    timeout_at: Option<Duration>,
    probe_at: Option<Duration>,
    /// Time at which late transmissions are lost.
    reordering_at: Option<Duration>,
    /// Number of the latest probe that was a retransmission.
    probe_number: Option<u64>,
    /// The probe has been answered when this byte is acknowledged.
    probe_end: Option<u64>,
    backoff: u32,
}

/// TCP sender.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    seq: Sequence,
    flight: Flight,
    rack: Rack,
    delivery: Delivery,
    lost: Ranges,
    recovery: Recovery,
    congestion: CongestionControl,
    usage: WindowUsage,
    rtt: RttEstimator,
    pacer: Pacer,
    timers: Timers,
    last_sent: Duration,
    /// Payload bytes of a full segment.
    mss: u64,
    counts: SenderCounts,
}

impl Sender {
    /// Creates a sender whose handshake took `rtt`.
    pub(crate) fn new(algorithm: Algorithm, right_edge: u64, rtt: Duration) -> Self {
        let mut sender = Self {
            seq: Sequence { written: 0, next: 0, acked: 0, right_edge },
            flight: Flight::default(),
            rack: Rack::default(),
            delivery: Delivery::default(),
            lost: Ranges::default(),
            recovery: Recovery::new(),
            congestion: CongestionControl::new(algorithm),
            usage: WindowUsage::default(),
            rtt: RttEstimator::default(),
            pacer: Pacer::default(),
            timers: Timers::default(),
            last_sent: Duration::ZERO,
            mss: MSS,
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

    /// Replaces the congestion control (TCP_CONGESTION, tcp(7)).
    pub(crate) fn set_algorithm(&mut self, now: Duration, algorithm: Algorithm) {
        if self.counts.segments == 0 {
            self.congestion = CongestionControl::new(algorithm);
        } else if algorithm != self.congestion.algorithm() {
            self.congestion.replace(now, algorithm, self.mss, &self.rtt, &self.delivery.total);
        }
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

    /// Returns the congestion window in bytes.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.congestion.window() * self.mss
    }

    /// Returns the next super-packet, if one may be sent now.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Segments> {
        if self.is_paced() && now < self.pacer.next_send {
            return None;
        }
        if self.counts.segments == 0 {
            self.congestion.start(now, self.rtt.latest());
        }
        self.restart_after_idle(now);
        let room = self.congestion.window().saturating_sub(self.flight.pipe);
        if room == 0 {
            self.record_window_usage(self.has_something_to_send());
            return None;
        }
        let max_segments = room.min(self.super_packet_segments());
        let is_retransmission = !self.lost.is_empty();
        let (start, end) = match self.lost.take_first(max_segments * self.mss) {
            Some(range) => range,
            None => match self.new_data(max_segments) {
                Some(range) => range,
                None => {
                    if self.seq.next == self.seq.written {
                        self.delivery.set_app_limited(self.flight.pipe);
                    }
                    return None;
                }
            },
        };
        let sent = self.transmit(now, (start, end), is_retransmission);
        if is_retransmission {
            self.recovery.on_retransmission(sent.number, sent.count());
        }
        self.record_window_usage(self.flight.pipe >= self.congestion.window());
        Some(sent)
    }

    /// Returns when pacing allows the next super-packet, if only pacing delays it.
    pub(crate) fn paced_until(&self, now: Duration) -> Option<Duration> {
        let waits = self.is_paced() && now < self.pacer.next_send;
        (waits && self.has_something_to_send()).then_some(self.pacer.next_send)
    }

    /// Returns when [`Self::on_time`] must be called.
    pub(crate) fn timer(&self) -> Option<Duration> {
        let timers = &self.timers;
        let all = [timers.timeout_at, timers.probe_at, timers.reordering_at];
        all.into_iter().flatten().min()
    }

    /// Processes an acknowledgement.
    pub(crate) fn on_ack(&mut self, now: Duration, ack: &Ack, receiver: &mut Receiver) {
        let prior_in_flight = self.flight.pipe;
        let mut effects = AckEffects { prior_in_flight, ..AckEffects::default() };
        while let Some(arrival) = receiver.take_arrival(ack.arrivals) {
            self.on_arrival(now, &arrival, &mut effects);
        }
        self.detect_losses(now, &mut effects);
        if ack.next < self.seq.acked && effects.delivered == 0 {
            // A later acknowledgement has arrived (old_ack, tcp_ack, net/ipv4/tcp_input.c).
            return;
        }
        self.seq.right_edge = self.seq.right_edge.max(ack.right_edge);
        effects.has_advanced = ack.next > self.seq.acked;
        if effects.has_advanced {
            self.seq.acked = ack.next;
            effects.echo = Some(ack.echo);
            self.lost.trim_below(ack.next);
            self.flight.forget_below(ack.next);
            self.timers.backoff = 0;
            self.timers.probe_end = self.timers.probe_end.filter(|&end| end > ack.next);
        }
        if self.seq.acked == self.seq.next {
            // The remaining transmissions were spurious.
            self.flight.clear();
        }
        if let Some(rtt) = effects.rtt {
            self.on_rtt(now, rtt);
        }
        if let Some(sent_at) = effects.sent_at {
            self.congestion.on_delay(now, ack.arrived_at.saturating_sub(sent_at));
        }
        effects.has_mark = ack.has_echo_of_mark;
        self.update_state(now, &effects);
        if self.congestion.bbr().is_some() {
            self.update_model(now, &effects);
        }
        let (in_flight, is_app_limited) = (self.flight.pipe, self.delivery.is_app_limited());
        self.congestion
            .update_quic(|quic| quic.on_end_ack(effects.lost, in_flight, is_app_limited));
        self.leave_black_hole();
        if self.recovery.state == State::Marked && self.recovery.end == self.seq.next {
            receiver.confirm_mark_from(self.flight.next_number());
        }
        if self.seq.acked == self.seq.next {
            self.timers.timeout_at = None;
            self.timers.probe_at = None;
            self.timers.reordering_at = None;
        } else if effects.has_advanced || effects.delivered > 0 {
            self.timers.timeout_at = Some(now + self.rtt.timeout(self.timers.backoff));
            self.arm_probe(now);
        }
    }

    /// Processes expired timers, and returns a tail loss probe.
    ///
    /// After a retransmission timeout, [`Self::poll`] returns the retransmissions.
    pub(crate) fn on_time(&mut self, now: Duration) -> Option<Segments> {
        if self.timers.reordering_at.is_some_and(|at| at <= now) {
            let mut effects = AckEffects::default();
            self.detect_losses(now, &mut effects);
            self.update_state(now, &effects);
        }
        if self.timers.probe_at.is_some_and(|at| at <= now) {
            return self.send_probe(now);
        }
        if self.timers.timeout_at.is_some_and(|at| at <= now) {
            self.on_timeout(now);
        }
        None
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

    /// Passes an acknowledgement to an algorithm that models the path.
    fn update_model(&mut self, now: Duration, effects: &AckEffects) {
        let min_rtt = self.rtt.min().unwrap_or_default();
        let rate = self.delivery.sample(now, effects.delivered, min_rtt);
        self.congestion.on_ack_sample(&AckSample {
            now,
            rate,
            rtt: effects.rtt,
            delivered: effects.delivered,
            lost: effects.lost,
            prior_in_flight: effects.prior_in_flight,
            in_flight: self.flight.pipe,
            window: self.congestion.window(),
            state: self.recovery.state,
            total: self.delivery.total,
            next_send: self.pacer.next_send,
        });
        if self.congestion.bbr().is_some_and(Bbr::is_probing_rtt) {
            self.delivery.set_app_limited(self.flight.pipe);
        }
    }

    /// Sends one segment beyond the window to elicit an acknowledgement (RFC 8985 §7.3). The
    /// segment is new, or the last one again.
    fn send_probe(&mut self, now: Duration) -> Option<Segments> {
        self.timers.probe_at = None;
        self.counts.probes += 1;
        let bytes = self.probe_bytes();
        let new = self.new_data(1).map(|(start, end)| (start, end.min(start + bytes)));
        let last = self.seq.next - 1 - (self.seq.next - 1 - self.seq.acked) % bytes;
        let sent = self.transmit(now, new.unwrap_or((last, self.seq.next)), new.is_none());
        self.timers.probe_end = Some(self.seq.next);
        self.timers.probe_number = new.is_none().then_some(sent.number);
        self.timers.probe_at = None;
        self.timers.timeout_at = Some(now + self.rtt.timeout(self.timers.backoff));
        Some(sent)
    }

    /// Arms the probe timer if nothing is lost and no probe is outstanding.
    ///
    /// The timer expires no later than the retransmission timeout (RFC 8985 §7.2).
    fn arm_probe(&mut self, now: Duration) {
        let is_allowed = matches!(self.recovery.state, State::Open | State::Marked)
            && self.timers.probe_end.is_none()
            && self.timers.reordering_at.is_none();
        let can_probe = (is_allowed || self.is_in_black_hole()) && self.flight.pipe > 0;
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
        let bytes = if left <= open { left } else { open - open % self.mss };
        let bytes = bytes.min(segments * self.mss);
        (bytes > 0).then_some((self.seq.next, self.seq.next + bytes))
    }

    fn transmit(&mut self, now: Duration, range: (u64, u64), is_retransmission: bool) -> Segments {
        let is_first_in_flight = self.seq.acked == self.seq.next;
        if is_first_in_flight && self.delivery.is_app_limited() {
            self.congestion.on_restart(now);
        }
        let stamp = self.delivery.stamp(now, is_first_in_flight);
        self.congestion.update_quic(|quic| quic.on_sent(now, range.1 - range.0));
        self.delay_next_send(now, range.1 - range.0);
        let segments = self.flight.push(now, range, self.mss, is_retransmission, stamp);
        let count = segments.count();
        self.last_sent = now;
        self.counts.segments += count;
        if matches!(self.recovery.state, State::Recovery | State::Marked) {
            self.recovery.reduction.sent += count;
        }
        if is_retransmission {
            self.counts.retransmits += count;
        }
        self.seq.next = self.seq.next.max(range.1);
        if self.timers.timeout_at.is_none() {
            self.timers.timeout_at = Some(now + self.rtt.timeout(self.timers.backoff));
        }
        if !is_retransmission || self.is_in_black_hole() {
            self.arm_probe(now);
        }
        segments
    }

    /// Returns the pacing rate in bytes per second; `None` if not paced.
    fn pacing_rate(&self) -> Option<f64> {
        if let Some(bbr) = self.congestion.bbr() {
            let rate = bbr.pacing_rate().max(1.0);
            return Some(self.pacer.max_rate.map_or(rate, |max_rate| max_rate.min(rate)));
        }
        if let Some(quic) = self.congestion.quic() {
            return Some(quic.pacing_rate(self.rtt.smoothed()?));
        }
        let max_rate = self.pacer.max_rate?;
        let smoothed = self.rtt.smoothed()?.as_secs_f64();
        let window = self.congestion.window().max(self.flight.pipe) as f64;
        let is_slow_start = window < self.congestion.threshold() / 2.0;
        let ratio = if is_slow_start { PACING_SLOW_START_RATIO } else { PACING_AVOIDANCE_RATIO };
        Some(max_rate.min(window * self.mss as f64 * ratio / smoothed.max(1e-9)).max(1.0))
    }

    fn is_paced(&self) -> bool {
        self.pacer.max_rate.is_some() || self.congestion.keeps_window()
    }

    /// Returns the size of a super-packet in segments.
    fn super_packet_segments(&self) -> u64 {
        if let Some(quic) = self.congestion.quic() {
            return quic.burst_segments();
        }
        let bbr = self.congestion.bbr();
        let min = bbr.map_or(pacer::MIN_SUPER_PACKET_SEGMENTS, Bbr::min_super_packet);
        let min_rtt = self.rtt.min().unwrap_or_default();
        pacer::super_packet_segments(self.pacing_rate(), min_rtt, self.mss, min)
    }

    fn delay_next_send(&mut self, now: Duration, bytes: u64) {
        if let Some(rate) = self.pacing_rate() {
            self.pacer.delay_next(now, bytes, rate, self.counts.segments);
        }
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
    use super::super::window::INITIAL_WINDOW;
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
        assert_eq!(sent, [Segments { number: 0, start: 0, end: 10 * MSS, mss: MSS }]);
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
                    && let Some(ack) = receiver.on_segments(10 * MS, &segment, false)
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
        assert_eq!(retransmitted, [Segments { number: 11, start: 0, end: MSS, mss: MSS }]);
        assert_eq!(sender.timer(), Some(timeout + 440 * MS));
        assert_eq!((sender.counts.timeouts, sender.counts.probes), (1, 1));
    }
}
