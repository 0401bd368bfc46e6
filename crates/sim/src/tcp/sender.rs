//! The sending side: what is sent next, and what is taken for lost.
//!
//! Loss is detected by the order of transmission (RFC 8985, without the time for reordering, for
//! there is none). A recovery sends as RFC 6937 says; a lost tail is probed for (RFC 8985 §7), and
//! then there is the time-out.

use super::congestion::{Algorithm, Congestion, INITIAL_WINDOW, Progress, RttSample};
use super::ranges::Ranges;
use super::rtt::{RTO_MIN, Rtt};
use super::{Ack, MSS, Receiver, Segments};
use bankfull_control::Rate;
use std::collections::VecDeque;
use std::time::Duration;

/// Segments of the largest super-packet: 64 KiB (GSO_LEGACY_MAX_SIZE, include/linux/netdevice.h)
/// of 1500 bytes on the line.
pub const SUPER_PACKET_SEGMENTS: u64 = 43;

/// Segments of the smallest one, where there are so many (tcp_min_tso_segs, 2, ip-sysctl.rst).
const SUPER_PACKET_SEGMENTS_MIN: u64 = 2;

/// A super-packet takes about 1 ms at the pacing rate: the rate shifted by 10
/// (sk_pacing_shift_init, net/core/sock.c).
const SUPER_PACKETS_PER_SEC: f64 = 1024.0;

/// Short paths get larger ones: 64 KiB shifted by the least round trip in µs, shifted by 9
/// (tcp_tso_rtt_log, ip-sysctl.rst; tcp_tso_autosize, net/ipv4/tcp_output.c).
const SUPER_PACKET_RTT_LOG: u32 = 9;

/// Pacing rate in windows per round trip while the window is below half of the threshold
/// (tcp_pacing_ss_ratio, 200 %, ip-sysctl.rst).
const PACING_SLOW_START: f64 = 2.0;

/// The same later (tcp_pacing_ca_ratio, 120 %, ip-sysctl.rst).
const PACING_AVOIDANCE: f64 = 1.2;

/// What a sender has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Segments transmitted, again or for the first time.
    pub segments: u64,
    /// Segments transmitted again, probes for a lost tail included.
    pub retransmits: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// Probes for a lost tail.
    pub probes: u64,
    /// Times that the window was reduced for a loss, time-outs not counted.
    pub recoveries: u64,
    /// Round trips measured.
    pub rtt_samples: u64,
    /// Sum of those.
    pub rtt_sum: Duration,
    /// Longest of those.
    pub rtt_max: Duration,
}

/// Segments that were sent together and of which nothing was heard.
#[derive(Debug, Clone, Copy)]
struct Transmission {
    segments: Segments,
    at: Duration,
    is_retransmission: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is missing.
    Open,
    /// Losses are being repaired.
    Recovery,
    /// After a time-out.
    Loss,
}

/// Proportional rate reduction (RFC 6937 §3).
#[derive(Debug, Clone, Copy, Default)]
struct Reduction {
    prior_window: u64,
    delivered: u64,
    sent: u64,
}

/// What an acknowledgement told.
#[derive(Debug, Clone, Copy, Default)]
struct News {
    delivered: u64,
    lost: u64,
    /// Of the lost ones, those that had been lost before.
    lost_again: u64,
    rtt: Option<Duration>,
    has_advanced: bool,
}

/// Whether the window was what limited, round by round (tcp_cwnd_validate,
/// net/ipv4/tcp_output.c).
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    is_limited: bool,
    most_in_flight: u64,
    round_end: u64,
}

/// A sender.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    /// Byte after the last that the application has written.
    written: u64,
    /// First byte that was never sent.
    next: u64,
    /// First byte that is not acknowledged.
    acked: u64,
    /// First byte that must not be sent.
    edge: u64,
    /// In the order of transmission.
    in_flight: VecDeque<Transmission>,
    /// Segments of those.
    pipe: u64,
    lost: Ranges,
    /// Number of the next transmission.
    number: u64,
    state: State,
    /// The repair is over when this is acknowledged.
    repair_end: u64,
    reduction: Reduction,
    congestion: Congestion,
    usage: Usage,
    rtt: Rtt,
    pacing: Option<f64>,
    /// When pacing allows the next super-packet.
    pace_at: Duration,
    timeout_at: Option<Duration>,
    probe_at: Option<Duration>,
    /// Acknowledged when the probe that was sent has been answered.
    probe_end: Option<u64>,
    backoff: u32,
    last_sent: Duration,
    counts: SenderCounts,
}

impl Sender {
    /// A sender whose handshake took `rtt`.
    pub(crate) fn new(algorithm: Algorithm, edge: u64, rtt: Duration) -> Self {
        let mut sender = Self {
            written: 0,
            next: 0,
            acked: 0,
            edge,
            in_flight: VecDeque::new(),
            pipe: 0,
            lost: Ranges::default(),
            number: 0,
            state: State::Open,
            repair_end: 0,
            reduction: Reduction::default(),
            congestion: Congestion::new(algorithm),
            usage: Usage::default(),
            rtt: Rtt::default(),
            pacing: None,
            pace_at: Duration::ZERO,
            timeout_at: None,
            probe_at: None,
            probe_end: None,
            backoff: 0,
            last_sent: Duration::ZERO,
            counts: SenderCounts::default(),
        };
        sender.rtt.sample(rtt);
        sender
    }

    /// The application writes so much more.
    pub(crate) fn write(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// The application writes no more than what was sent, so many bytes in all.
    pub(crate) fn finish(&mut self) -> u64 {
        self.written = self.next;
        self.written
    }

    /// Limits the rate of data, or no longer. A rate below 1 byte/s counts as that.
    pub(crate) fn set_pacing(&mut self, rate: Option<Rate>) {
        self.pacing = rate.map(|rate| (rate.bits_per_sec() as f64 / 8.0).max(1.0));
    }

    pub(crate) fn counts(&self) -> SenderCounts {
        self.counts
    }

    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// First byte that is not acknowledged.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// The congestion window in segments.
    pub(crate) fn window(&self) -> u64 {
        self.congestion.window()
    }

    /// The next super-packet, if one may be sent now.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Segments> {
        if self.pacing.is_some() && now < self.pace_at {
            return None;
        }
        self.restart_after_idle(now);
        let room = self.congestion.window().saturating_sub(self.pipe);
        if room == 0 {
            self.note_usage(self.has_something_to_send());
            return None;
        }
        let most = room.min(self.super_packet());
        let is_retransmission = !self.lost.is_empty();
        let (start, end) = match self.lost.take_first(most * MSS) {
            Some(range) => range,
            None => self.new_data(most)?,
        };
        let sent = self.transmit(now, (start, end), is_retransmission);
        self.note_usage(self.pipe >= self.congestion.window());
        Some(sent)
    }

    /// When pacing allows what could be sent otherwise.
    pub(crate) fn paced_until(&self, now: Duration) -> Option<Duration> {
        let waits = self.pacing.is_some() && now < self.pace_at;
        (waits && self.has_something_to_send()).then_some(self.pace_at)
    }

    /// When [`Self::on_time`] wants to be called.
    pub(crate) fn timer(&self) -> Option<Duration> {
        match (self.probe_at, self.timeout_at) {
            (Some(probe), Some(timeout)) => Some(probe.min(timeout)),
            (probe, timeout) => probe.or(timeout),
        }
    }

    /// An acknowledgement arrives.
    pub(crate) fn on_ack(&mut self, now: Duration, ack: &Ack, receiver: &mut Receiver) {
        let mut news = News::default();
        while let Some((start, end)) = receiver.take_arrived(ack.high) {
            self.settle(now, start, end, &mut news);
        }
        self.edge = self.edge.max(ack.edge);
        news.has_advanced = ack.next > self.acked;
        if news.has_advanced {
            self.acked = ack.next;
            self.lost.trim_below(ack.next);
            self.backoff = 0;
            self.probe_end = self.probe_end.filter(|&end| end > ack.next);
        }
        if self.acked == self.next {
            // What is still in flight was sent once too often.
            self.in_flight.clear();
            self.pipe = 0;
        }
        if let Some(rtt) = news.rtt {
            self.on_rtt(now, rtt);
        }
        self.on_news(now, &news);
        if self.acked == self.next {
            self.timeout_at = None;
            self.probe_at = None;
        } else if news.has_advanced || news.delivered > 0 {
            self.timeout_at = Some(now + self.rtt.timeout(self.backoff));
            self.arm_probe(now);
        }
    }

    /// A timer may have run out. A probe is returned; after a time-out, [`Self::poll`] has what is
    /// to be sent.
    pub(crate) fn on_time(&mut self, now: Duration) -> Option<Segments> {
        if self.probe_at.is_some_and(|at| at <= now) {
            return self.probe(now);
        }
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.on_timeout(now);
        }
        None
    }

    /// Transmissions `start..end` arrived; what was sent before them and did not is lost.
    fn settle(&mut self, now: Duration, start: u64, end: u64, news: &mut News) {
        while let Some(front) = self.in_flight.front_mut() {
            let first = front.segments.number;
            if first >= end {
                return;
            }
            let has_arrived = first >= start;
            let until = if has_arrived { end } else { start };
            let mut sent = *front;
            if first + front.segments.count() > until {
                sent.segments = front.segments.take(until - first);
            } else {
                self.in_flight.pop_front();
            }
            let count = sent.segments.count();
            self.pipe -= count;
            if has_arrived {
                news.delivered += count;
                if !sent.is_retransmission {
                    news.rtt = Some(now - sent.at);
                }
            } else {
                news.lost += count;
                news.lost_again += if sent.is_retransmission { count } else { 0 };
                self.mark_lost(&sent.segments);
            }
        }
    }

    fn mark_lost(&mut self, segments: &Segments) {
        self.lost.insert(segments.start.max(self.acked), segments.end);
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
            acked: self.acked,
            next: self.next,
            paced: self.pacing_rate(),
        });
    }

    fn on_news(&mut self, now: Duration, news: &News) {
        if self.state != State::Open && self.acked >= self.repair_end {
            if self.state == State::Recovery {
                self.congestion.set_window_to_threshold();
            }
            self.state = State::Open;
        }
        let is_new_event = match self.state {
            State::Open => news.lost > 0 || !self.lost.is_empty(),
            State::Loss => news.lost_again > 0,
            State::Recovery => false,
        };
        if is_new_event {
            self.begin_recovery();
        }
        if self.state == State::Recovery {
            self.reduce(news);
        } else if news.has_advanced && !is_new_event && self.is_window_limited() {
            let min_rtt = self.rtt.min().unwrap_or_default();
            self.congestion.grow(&Progress { now, segments: news.delivered, min_rtt });
        }
    }

    fn begin_recovery(&mut self) {
        self.counts.recoveries += 1;
        self.reduction =
            Reduction { prior_window: self.congestion.window(), delivered: 0, sent: 0 };
        self.congestion.on_loss();
        self.repair_end = self.next;
        if self.acked == self.next {
            // A probe has repaired the loss that it told of (RFC 8985 §7.4).
            self.congestion.set_window_to_threshold();
        } else {
            self.state = State::Recovery;
        }
    }

    /// Sets the window of a recovery (RFC 6937 §3.1, with the slow start reduction bound).
    fn reduce(&mut self, news: &News) {
        let reduction = &mut self.reduction;
        reduction.delivered += news.delivered;
        let threshold = self.congestion.threshold() as u64;
        let may_send = if self.pipe > threshold {
            let prior = reduction.prior_window.max(1);
            (reduction.delivered * threshold).div_ceil(prior).saturating_sub(reduction.sent)
        } else {
            let owed = reduction.delivered.saturating_sub(reduction.sent).max(news.delivered);
            let is_clean = news.has_advanced && news.lost == 0;
            (owed + u64::from(is_clean)).min(threshold - self.pipe)
        };
        // The first retransmission leaves at once (tcp_cwnd_reduction, net/ipv4/tcp_input.c).
        let may_send = may_send.max(u64::from(reduction.sent == 0));
        self.congestion.set_window(self.pipe + may_send);
    }

    fn on_timeout(&mut self, now: Duration) {
        self.counts.timeouts += 1;
        let is_first = self.backoff == 0 && self.state != State::Recovery;
        if is_first {
            self.congestion.on_loss();
        }
        self.congestion.on_timeout();
        // The oldest, and all that should have been heard of by now (tcp_timeout_mark_lost,
        // net/ipv4/tcp_input.c).
        let mut is_oldest = true;
        while let Some(sent) = self.in_flight.front().copied()
            && (is_oldest || sent.at + self.rtt.latest() <= now)
        {
            self.in_flight.pop_front();
            self.pipe -= sent.segments.count();
            self.mark_lost(&sent.segments);
            is_oldest = false;
        }
        self.congestion.set_window(self.pipe + 1);
        self.state = State::Loss;
        self.repair_end = self.next;
        self.backoff += 1;
        self.probe_at = None;
        self.probe_end = None;
        self.timeout_at = Some(now + self.rtt.timeout(self.backoff));
    }

    /// Sends one segment beyond the window, new or the last again, to provoke an answer
    /// (RFC 8985 §7.3).
    fn probe(&mut self, now: Duration) -> Option<Segments> {
        self.probe_at = None;
        self.counts.probes += 1;
        let new = self.new_data(1);
        let last = self.next - 1 - (self.next - 1 - self.acked) % MSS;
        let sent = self.transmit(now, new.unwrap_or((last, self.next)), new.is_none());
        self.probe_end = Some(self.next);
        self.probe_at = None;
        self.timeout_at = Some(now + self.rtt.timeout(self.backoff));
        Some(sent)
    }

    /// Arms the probe where one is due: nothing is missing, and none was sent. It comes before
    /// the time-out (RFC 8985 §7.2).
    fn arm_probe(&mut self, now: Duration) {
        let is_due = self.state == State::Open && self.probe_end.is_none() && self.pipe > 0;
        let at = now + self.rtt.probe_timeout(self.pipe == 1);
        self.probe_at = is_due.then(|| self.timeout_at.map_or(at, |timeout| at.min(timeout)));
    }

    fn has_something_to_send(&self) -> bool {
        !self.lost.is_empty() || self.new_data(1).is_some()
    }

    /// New data of at most so many segments: full ones, or the last one.
    fn new_data(&self, segments: u64) -> Option<(u64, u64)> {
        let left = self.written - self.next;
        let open = self.edge.saturating_sub(self.next);
        let bytes = if left <= open { left } else { open - open % MSS };
        let bytes = bytes.min(segments * MSS);
        (bytes > 0).then_some((self.next, self.next + bytes))
    }

    fn transmit(&mut self, now: Duration, range: (u64, u64), is_retransmission: bool) -> Segments {
        let segments = Segments { number: self.number, start: range.0, end: range.1 };
        let count = segments.count();
        self.pace(now, range.1 - range.0);
        self.in_flight.push_back(Transmission { segments, at: now, is_retransmission });
        self.pipe += count;
        self.number += count;
        self.last_sent = now;
        self.counts.segments += count;
        if self.state == State::Recovery {
            self.reduction.sent += count;
        }
        if is_retransmission {
            self.counts.retransmits += count;
        }
        self.next = self.next.max(range.1);
        if self.timeout_at.is_none() {
            self.timeout_at = Some(now + self.rtt.timeout(self.backoff));
        }
        if !is_retransmission {
            self.arm_probe(now);
        }
        segments
    }

    /// Bytes a second at which to send; `None`: as fast as the window allows.
    fn pacing_rate(&self) -> Option<f64> {
        let most = self.pacing?;
        let smoothed = self.rtt.smoothed()?.as_secs_f64();
        let window = self.congestion.window().max(self.pipe) as f64;
        let is_slow_start = window < self.congestion.threshold() / 2.0;
        let ratio = if is_slow_start { PACING_SLOW_START } else { PACING_AVOIDANCE };
        Some(most.min(window * MSS as f64 * ratio / smoothed.max(1e-9)).max(1.0))
    }

    /// Puts off the next super-packet (tcp_update_skb_after_send, net/ipv4/tcp_output.c).
    fn pace(&mut self, now: Duration, bytes: u64) {
        let Some(rate) = self.pacing_rate() else { return };
        if self.counts.segments < INITIAL_WINDOW {
            return;
        }
        let takes = Duration::from_secs_f64(bytes as f64 / rate);
        // Being late is made good, by half of a super-packet at most.
        let credit = now.saturating_sub(self.pace_at).min(takes / 2);
        self.pace_at = self.pace_at.max(now) + takes - credit;
    }

    /// Segments of a super-packet.
    fn super_packet(&self) -> u64 {
        let Some(rate) = self.pacing_rate() else { return SUPER_PACKET_SEGMENTS };
        let min_rtt_us = self.rtt.min().unwrap_or_default().as_micros();
        let shift = u32::try_from(min_rtt_us >> SUPER_PACKET_RTT_LOG).unwrap_or(u32::MAX);
        let extra = 65_536_u64.checked_shr(shift).unwrap_or(0);
        let bytes = (rate / SUPER_PACKETS_PER_SEC) as u64 + extra;
        (bytes / MSS).clamp(SUPER_PACKET_SEGMENTS_MIN, SUPER_PACKET_SEGMENTS)
    }

    fn restart_after_idle(&mut self, now: Duration) {
        let is_idle = self.acked == self.next && self.next < self.written && self.next > 0;
        let idle = now - self.last_sent;
        if is_idle && idle > RTO_MIN {
            self.congestion.on_idle(idle, self.rtt.timeout(0));
            self.last_sent = now;
        }
    }

    fn note_usage(&mut self, is_limited: bool) {
        let usage = &mut self.usage;
        let is_new_round = self.acked >= usage.round_end;
        let is_more = !usage.is_limited && self.pipe > usage.most_in_flight;
        if is_new_round || is_limited || is_more {
            *usage = Usage { is_limited, most_in_flight: self.pipe, round_end: self.next };
        }
    }

    fn is_window_limited(&self) -> bool {
        let is_doubling = self.congestion.is_in_slow_start();
        let half_used = self.congestion.window() < 2 * self.usage.most_in_flight;
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

    fn all(sender: &mut Sender, now: Duration) -> Vec<Segments> {
        std::iter::from_fn(|| sender.poll(now)).collect()
    }

    #[test]
    fn an_unpaced_sender_sends_the_first_window_at_once() {
        let mut sender = sender(Algorithm::Cubic);
        let sent = all(&mut sender, MS);
        assert_eq!(sent, [Segments { number: 0, start: 0, end: 10 * MSS }]);
        assert_eq!(sender.timer(), Some(MS + 42 * MS), "a probe for a lost tail");
    }

    #[test]
    fn super_packets_take_about_a_millisecond_at_the_pacing_rate() {
        for (rate_mbit, segments) in [(1.0, 2), (100.0, 8), (300.0, 25), (10_000.0, 43)] {
            let mut sender = sender(Algorithm::Cubic);
            sender.congestion.set_window(100_000);
            sender.set_pacing(Some(Rate::from_bits_per_sec(rate_mbit * 1e6)));
            sender.counts.segments = INITIAL_WINDOW;
            let sent = all(&mut sender, MS);
            assert_eq!((sent.len(), sent[0].count()), (1, segments), "{rate_mbit} Mbit/s");
            let gap = (sender.paced_until(MS).unwrap() - MS).as_secs_f64();
            let expected = (segments * MSS * 8) as f64 / (rate_mbit * 1e6);
            // Nothing was sent for 1 ms, which is made good by half of a super-packet at most.
            assert!(gap <= expected && gap >= expected / 2.0 - 1e-9, "{rate_mbit}: {gap}");
        }
    }

    /// A window of 100 segments of which those of `lost` do not arrive, segment by segment.
    fn with_losses(lost: std::ops::Range<u64>) -> (Sender, Vec<Segments>) {
        let mut sender = sender(Algorithm::NewReno);
        sender.congestion.set_window(100);
        let mut receiver = Receiver::new(Bytes(1 << 30));
        let mut again = Vec::new();
        for mut burst in all(&mut sender, MS) {
            while burst.start < burst.end {
                let segment = burst.take(1);
                if !lost.contains(&segment.number)
                    && let Some(ack) = receiver.on_segments(10 * MS, &segment)
                {
                    sender.on_ack(20 * MS, &ack, &mut receiver);
                    again.extend(all(&mut sender, 20 * MS));
                }
            }
        }
        (sender, again)
    }

    #[test]
    fn many_losses_of_a_round_are_one_reduction_and_retransmissions_come_first() {
        let (sender, again) = with_losses(20..40);
        assert_eq!(sender.counts.recoveries, 1);
        assert!((50.0..62.0).contains(&sender.congestion.threshold()));
        let first = again.iter().find(|sent| sent.start < 100 * MSS).unwrap();
        assert_eq!(first.start, 20 * MSS);
        assert_eq!(sender.counts.retransmits, 20, "all of them, before anything new");
    }

    #[test]
    fn a_recovery_sends_about_one_segment_for_two_that_arrive() {
        let (sender, _) = with_losses(20..21);
        // 79 arrive after the loss; half of the window is to be left at the end of the round.
        assert!((35..=45).contains(&sender.reduction.sent), "{:?}", sender.reduction);
    }

    #[test]
    fn a_time_out_sends_one_segment_again_and_the_next_one_waits_twice_as_long() {
        let mut sender = sender(Algorithm::Cubic);
        all(&mut sender, Duration::ZERO);
        assert!(sender.on_time(42 * MS).is_some(), "the probe");
        let timeout = sender.timer().unwrap();
        assert_eq!(timeout, 42 * MS + 220 * MS);
        assert_eq!(sender.on_time(timeout), None);
        let again = all(&mut sender, timeout);
        assert_eq!(again, [Segments { number: 11, start: 0, end: MSS }]);
        assert_eq!(sender.timer(), Some(timeout + 440 * MS));
        assert_eq!((sender.counts.timeouts, sender.counts.probes), (1, 1));
    }
}
