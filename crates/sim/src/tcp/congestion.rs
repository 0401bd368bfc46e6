//! Congestion control: number of segments that may be in flight.
//!
//! NewReno (RFC 5681, 6582) and CUBIC (RFC 9438) with HyStart as in Linux (net/ipv4/tcp_cubic.c:
//! exit by delay and by the length of the ACK train). The sender detects losses, and decides how
//! many segments leave during a recovery.

use super::bbr::{AckSample, Bbr};
use super::delivery::Total;
use super::ledbat::{self, Ledbat};
use super::quic::Quic;
use super::rtt::RttEstimator;
pub use super::window::INITIAL_WINDOW;
use super::window::{AckProgress, Window};
use bankfull_control::congestion::cubic::{self, Cubic};
use std::time::Duration;

/// Minimum slow start threshold in segments (RFC 5681 §3.1).
const MIN_SSTHRESH: f64 = 2.0;

/// Multiplicative decrease of NewReno after a loss (RFC 5681 §3.1).
const RENO_BETA: f64 = 0.5;

/// Fraction of the window kept as threshold without a loss (RFC 2861; tcp_current_ssthresh,
/// include/net/tcp.h).
const THRESHOLD_FACTOR: f64 = 0.75;

/// Congestion control algorithm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// NewReno (RFC 5681 and 6582).
    NewReno,
    /// CUBIC (RFC 9438) with HyStart.
    #[default]
    Cubic,
    /// BBR, version 1, as in Linux; it paces by itself.
    Bbr,
    /// LEDBAT (RFC 6817), which yields to other flows.
    Ledbat,
    /// The engine's controller of QUIC senders, paced as by `quinn-proto`.
    Quic,
}

/// Congestion control state of a sender.
#[derive(Debug, Clone)]
pub(crate) struct CongestionControl {
    algorithm: Algorithm,
    window: f64,
    threshold: f64,
    cubic: Cubic,
    hystart: HyStart,
    bbr: Option<Box<Bbr>>,
    ledbat: Option<Box<Ledbat>>,
    quic: Option<Box<Quic>>,
}

impl CongestionControl {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let quic = (algorithm == Algorithm::Quic).then(|| Box::new(Quic::new()));
        let window = quic.as_ref().map_or(INITIAL_WINDOW, |quic| quic.window());
        Self {
            algorithm,
            window: window as f64,
            threshold: f64::INFINITY,
            cubic: Cubic::default(),
            hystart: HyStart::default(),
            bbr: (algorithm == Algorithm::Bbr).then(|| Box::new(Bbr::new())),
            ledbat: (algorithm == Algorithm::Ledbat).then(Box::default),
            quic,
        }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Sets the RTT of the handshake when the first segment is sent.
    pub(crate) fn start(&mut self, now: Duration, rtt: Duration) {
        if let Some(bbr) = &mut self.bbr {
            bbr.start(now, rtt);
        }
    }

    /// Replaces the algorithm of a flow; the window stays (tcp_reinit_congestion_control,
    /// net/ipv4/tcp_cong.c).
    pub(super) fn replace(
        &mut self,
        now: Duration,
        algorithm: Algorithm,
        mss: u64,
        rtt: &RttEstimator,
        total: &Total,
    ) {
        let threshold = match &self.bbr {
            Some(bbr) => bbr.threshold().map_or(f64::INFINITY, |threshold| threshold as f64),
            None if algorithm == Algorithm::Bbr => f64::INFINITY,
            None => self.threshold,
        };
        *self = Self { window: self.window, threshold, ..Self::new(algorithm) };
        self.set_mss(mss);
        if let Some(bbr) = &mut self.bbr {
            bbr.take_over(now, self.window as u64, rtt, total);
        }
    }

    /// Sets the payload bytes of a segment.
    pub(super) fn set_mss(&mut self, mss: u64) {
        if let Some(bbr) = &mut self.bbr {
            bbr.set_mss(mss);
        }
        self.update_quic(|quic| quic.set_mss(mss));
    }

    /// Returns the state of BBR, which paces, and sets its window also during a recovery.
    pub(super) fn bbr(&self) -> Option<&Bbr> {
        self.bbr.as_deref()
    }

    /// Returns the controller of a QUIC sender, which paces by itself.
    pub(super) fn quic(&self) -> Option<&Quic> {
        self.quic.as_deref()
    }

    /// Returns whether the algorithm sets its window also during a recovery.
    pub(super) fn keeps_window(&self) -> bool {
        self.bbr.is_some() || self.quic.is_some()
    }

    /// Changes the controller of a QUIC sender, and takes its window over.
    pub(super) fn update_quic(&mut self, update: impl FnOnce(&mut Quic)) {
        if let Some(quic) = &mut self.quic {
            update(quic);
            self.window = quic.window() as f64;
        }
    }

    /// Passes an acknowledgement to BBR.
    pub(super) fn on_ack_sample(&mut self, ack: &AckSample) {
        if let Some(bbr) = &mut self.bbr {
            self.window = bbr.on_ack(ack) as f64;
        }
    }

    /// Passes the one-way delay of a segment to LEDBAT.
    pub(crate) fn on_delay(&mut self, now: Duration, delay: Duration) {
        if let Some(ledbat) = &mut self.ledbat {
            ledbat.on_delay(now, delay);
        }
    }

    /// Records the first transmission after the flow lacked data.
    pub(crate) fn on_restart(&mut self, now: Duration) {
        if let Some(bbr) = &mut self.bbr {
            bbr.on_restart(now);
        }
    }

    /// Returns the congestion window in segments.
    pub(crate) fn window(&self) -> u64 {
        self.window as u64
    }

    /// Sets the window during a recovery, which has its own rules.
    pub(crate) fn set_window(&mut self, segments: u64) {
        self.window = segments as f64;
    }

    /// Returns the slow start threshold in segments.
    pub(crate) fn threshold(&self) -> f64 {
        self.threshold
    }

    pub(crate) fn is_in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Passes an RTT sample to HyStart.
    pub(crate) fn on_rtt(&mut self, sample: &RttSample) {
        let can_exit = self.algorithm == Algorithm::Cubic && self.is_in_slow_start();
        if can_exit && self.hystart.should_exit(sample, self.window) {
            self.threshold = self.window;
        }
    }

    /// Grows the window after an acknowledgement, if it was the limit.
    pub(crate) fn on_ack(&mut self, ack_progress: &AckProgress) {
        if let Some(ledbat) = &mut self.ledbat {
            let window = Window { size: self.window, threshold: self.threshold };
            Window { size: self.window, threshold: self.threshold } =
                ledbat.next_window(window, ack_progress);
            return;
        }
        if self.keeps_window() || !ack_progress.is_window_limited {
            return;
        }
        let mut segments = ack_progress.segments as f64;
        if self.is_in_slow_start() {
            let step = segments.min((self.threshold - self.window).ceil());
            self.window += step;
            segments -= step;
        }
        if segments > 0.0 {
            self.window = match self.algorithm {
                Algorithm::NewReno => self.window + segments / self.window,
                _ => self.cubic.next_window(
                    self.window,
                    segments,
                    ack_progress.now,
                    ack_progress.min_rtt,
                ),
            };
        }
    }

    /// Lowers the threshold after a loss; called once per round trip with losses.
    pub(crate) fn on_loss(&mut self) {
        if let Some(bbr) = &mut self.bbr {
            bbr.save_window(self.window as u64);
        }
        if self.keeps_window() {
            return;
        }
        let beta = match self.algorithm {
            Algorithm::NewReno => RENO_BETA,
            Algorithm::Ledbat => ledbat::BETA,
            _ => {
                self.cubic.on_loss(self.window);
                cubic::BETA
            }
        };
        self.threshold = (self.window * beta).max(MIN_SSTHRESH);
    }

    /// Returns the window, to undo a reduction.
    pub(crate) fn saved(&self) -> Window {
        Window { size: self.window, threshold: self.threshold }
    }

    /// Undoes a reduction (tcp_undo_cwnd_reduction, net/ipv4/tcp_input.c; tcp_reno_undo_cwnd).
    pub(super) fn undo(&mut self, before: Window, total: &Total) {
        if let Some(bbr) = &mut self.bbr {
            bbr.on_undo(total);
        }
        if self.keeps_window() {
            return;
        }
        self.window = self.window.max(before.size);
        self.threshold = self.threshold.max(before.threshold);
    }

    /// Ends a recovery (RFC 6582 §3.2, step 3; tcp_end_cwnd_reduction, net/ipv4/tcp_input.c).
    pub(crate) fn set_window_to_threshold(&mut self) {
        // One that began under BBR has no threshold.
        if !self.keeps_window() && self.threshold.is_finite() {
            self.window = self.threshold.max(1.0);
        }
    }

    /// Resets the state after a retransmission timeout (RFC 9438 §4.8; bictcp_state, tcp_cubic.c).
    pub(super) fn on_timeout(&mut self, total: &Total) {
        if let Some(bbr) = &mut self.bbr {
            bbr.on_timeout(total);
        }
        self.cubic = Cubic::default();
        self.hystart = HyStart::default();
    }

    /// Raises the threshold to most of the window (tcp_current_ssthresh, include/net/tcp.h).
    pub(super) fn keep_threshold(&mut self) {
        self.threshold = self.threshold.max(self.window * THRESHOLD_FACTOR);
    }

    /// Reduces the window after an idle time: halved for each timeout (RFC 2861; tcp_cwnd_restart,
    /// net/ipv4/tcp_output.c).
    pub(crate) fn on_idle(&mut self, idle: Duration, timeout: Duration) {
        if self.keeps_window() {
            return;
        }
        self.cubic.on_idle(idle);
        let halvings = (idle.as_secs_f64() / timeout.as_secs_f64()) as i32;
        if halvings > 0 {
            self.keep_threshold();
            let round_min_rtt = self.window.min(INITIAL_WINDOW as f64);
            self.window = (self.window / 2_f64.powi(halvings)).max(round_min_rtt);
        }
    }
}

/// RTT sample with the state of the sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RttSample {
    pub(crate) now: Duration,
    pub(crate) rtt: Duration,
    pub(crate) min_rtt: Duration,
    /// First unacknowledged byte.
    pub(crate) acked: u64,
    /// First byte that was never sent.
    pub(crate) next: u64,
    /// Pacing rate in bytes per second; `None` if not paced.
    pub(crate) pacing_rate: Option<f64>,
}

/// Minimum window for an exit of slow start, in segments (hystart_low_window, tcp_cubic.c).
const HYSTART_MIN_WINDOW: f64 = 16.0;

/// RTT samples per round before its delay counts (HYSTART_MIN_SAMPLES, tcp_cubic.c; RFC 9406 §4.3).
const HYSTART_MIN_SAMPLES: u32 = 8;

/// Bounds of the delay increase that ends slow start: 1/8 of the min RTT within these
/// (HYSTART_DELAY_MIN and HYSTART_DELAY_MAX, tcp_cubic.c; RFC 9406 §4.3).
const HYSTART_DELAY_BOUNDS: (Duration, Duration) =
    (Duration::from_millis(4), Duration::from_millis(16));

/// Maximum gap between the ACKs of one train (hystart_ack_delta_us, tcp_cubic.c).
const HYSTART_MAX_ACK_GAP: Duration = Duration::from_millis(2);

/// Allowance for pacing in the length of a train: bytes of four super-packets, and its maximum
/// (hystart_ack_delay, tcp_cubic.c).
const HYSTART_PACING_ALLOWANCE: (f64, Duration) = (4.0 * 65_536.0, Duration::from_millis(1));

/// HyStart: detects the end of slow start before a loss.
#[derive(Debug, Clone, Default)]
struct HyStart {
    has_exited: bool,
    /// The round ends when this byte is acknowledged.
    round_end: u64,
    round_start: Duration,
    last_ack: Duration,
    round_min_rtt: Option<Duration>,
    samples: u32,
}

impl HyStart {
    fn should_exit(&mut self, sample: &RttSample, window: f64) -> bool {
        if self.has_exited || window < HYSTART_MIN_WINDOW {
            return false;
        }
        if sample.acked > self.round_end {
            self.round_end = sample.next;
            self.round_start = sample.now;
            self.last_ack = sample.now;
            self.round_min_rtt = None;
            self.samples = 0;
        }
        self.has_exited = self.is_ack_train_long(sample) || self.has_delay_increased(sample);
        self.has_exited
    }

    /// Returns whether the round's ACK train is longer than half of the min RTT.
    fn is_ack_train_long(&mut self, sample: &RttSample) -> bool {
        if sample.now - self.last_ack > HYSTART_MAX_ACK_GAP {
            return false;
        }
        self.last_ack = sample.now;
        let limit = match sample.pacing_rate {
            None => sample.min_rtt / 2,
            Some(rate) => {
                let (bytes, most) = HYSTART_PACING_ALLOWANCE;
                sample.min_rtt + most.min(Duration::from_secs_f64(bytes / rate.max(1.0)))
            }
        };
        sample.now - self.round_start > limit
    }

    fn has_delay_increased(&mut self, sample: &RttSample) -> bool {
        let round_min_rtt =
            self.round_min_rtt.map_or(sample.rtt, |round_min_rtt| round_min_rtt.min(sample.rtt));
        self.round_min_rtt = Some(round_min_rtt);
        if self.samples < HYSTART_MIN_SAMPLES {
            self.samples += 1;
            return false;
        }
        let (low, high) = HYSTART_DELAY_BOUNDS;
        round_min_rtt > sample.min_rtt + (sample.min_rtt / 8).clamp(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MSS;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ack_progress(now: Duration, segments: u64) -> AckProgress {
        AckProgress {
            now,
            segments,
            min_rtt: 20 * MS,
            in_flight: segments,
            is_window_limited: true,
        }
    }

    /// Runs rounds of 20 ms in which the whole window is delivered.
    fn rounds(control: &mut CongestionControl, from: u32, count: u32) {
        for n in from..from + count {
            control.on_ack(&ack_progress(20 * MS * n, control.window()));
        }
    }

    #[test]
    fn slow_start_doubles_then_new_reno_adds_one_segment() {
        let mut control = CongestionControl::new(Algorithm::NewReno);
        rounds(&mut control, 0, 4);
        assert_eq!(control.window(), 160);
        control.on_loss();
        control.set_window_to_threshold();
        assert_eq!(control.window(), 80);
        rounds(&mut control, 4, 10);
        assert_eq!(control.window(), 90);
    }

    #[test]
    fn cubic_regains_old_window_after_k_seconds() {
        let mut control = CongestionControl::new(Algorithm::Cubic);
        control.window = 1000.0;
        control.on_loss();
        control.set_window_to_threshold();
        assert_eq!(control.window(), 700);
        // K = cbrt(300 / 0.4) = 9.09 s, 454 rounds of 20 ms.
        rounds(&mut control, 0, 227);
        assert!((930..985).contains(&control.window()), "{}", control.window());
        rounds(&mut control, 227, 227);
        assert!((995..=1003).contains(&control.window()), "{}", control.window());
        rounds(&mut control, 454, 300);
        assert!(control.window() > 1080, "it probes for bandwidth: {}", control.window());
    }

    #[test]
    fn small_cubic_window_grows_like_new_reno() {
        let mut control = CongestionControl::new(Algorithm::Cubic);
        control.window = 20.0;
        control.on_loss();
        control.set_window_to_threshold();
        // From 14 to 20 at 0.53 segments per round takes 11 rounds; K alone would be 2.5 s.
        rounds(&mut control, 0, 13);
        assert!(control.window() >= 20, "{}", control.window());
    }

    #[test]
    fn hystart_exits_on_delay_increase() {
        let mut control = CongestionControl::new(Algorithm::Cubic);
        control.window = 100.0;
        let mut sample = RttSample {
            now: MS,
            rtt: 20 * MS,
            min_rtt: 20 * MS,
            acked: 1,
            next: 9,
            pacing_rate: None,
        };
        for n in 0..20 {
            sample.now = MS * (20 * n);
            control.on_rtt(&sample);
        }
        assert!(control.is_in_slow_start());
        sample = RttSample { rtt: 25 * MS, acked: 10, next: 20, ..sample };
        (0..9).for_each(|_| control.on_rtt(&sample));
        assert!(!control.is_in_slow_start(), "5 ms are more than the 4 ms that are allowed");
    }

    #[test]
    fn hystart_exits_on_long_ack_train() {
        let mut control = CongestionControl::new(Algorithm::Cubic);
        control.window = 100.0;
        let mut now = MS;
        for _ in 0..12 {
            assert!(control.is_in_slow_start());
            let (rtt, min_rtt) = (20 * MS, 20 * MS);
            control.on_rtt(&RttSample { now, rtt, min_rtt, acked: 1, next: 9, pacing_rate: None });
            now += MS;
        }
        assert!(!control.is_in_slow_start());
    }

    #[test]
    fn switch_from_bbr_in_recovery_keeps_window() {
        let mut control = CongestionControl::new(Algorithm::Bbr);
        control.window = 50.0;
        control.on_loss();
        control.replace(MS, Algorithm::Cubic, MSS, &RttEstimator::default(), &Total::default());
        control.set_window_to_threshold();
        assert_eq!((control.window(), control.is_in_slow_start()), (50, true));
    }

    #[test]
    fn idle_time_halves_window_down_to_initial() {
        let mut control = CongestionControl::new(Algorithm::Cubic);
        control.window = 200.0;
        control.on_idle(500 * MS, 220 * MS);
        assert_eq!(control.window(), 50);
        control.on_idle(5000 * MS, 220 * MS);
        assert_eq!(control.window(), 10);
    }
}
