//! BBR, version 1: a window and a pacing rate from a model of the path.
//!
//! The model is the maximum of the delivery rate over ten rounds, and the min RTT over ten seconds.
//! Constants and behaviour are those of Linux (net/ipv4/tcp_bbr.c). Windows are in segments, rates
//! in segments per second.

mod aggregation;
mod policer;

use super::MSS;
use super::delivery::{MaxFilter, RateSample, Total};
use super::pacer::{MAX_SUPER_PACKET_SEGMENTS, SUPER_PACKETS_PER_SEC};
use super::recovery::State;
use super::rtt::RttEstimator;
use super::window::INITIAL_WINDOW;
use aggregation::Aggregation;
use policer::Policer;
use std::time::Duration;

/// Phases of the gain cycle (CYCLE_LEN, tcp_bbr.c).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// Number of phases from which the first one is drawn (bbr_cycle_rand, tcp_bbr.c).
const CYCLE_START_PHASES: u64 = 7;

/// Window of the maximum delivery rate, in rounds (bbr_bw_rtts, tcp_bbr.c).
const BANDWIDTH_ROUNDS: u64 = CYCLE.len() as u64 + 2;

/// Window of the min RTT (bbr_min_rtt_win_sec, tcp_bbr.c).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);

/// Minimum time in which the queue is drained to measure the min RTT (bbr_probe_rtt_mode_ms,
/// tcp_bbr.c).
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);

/// Minimum window, also during that time (bbr_cwnd_min_target, tcp_bbr.c).
const MIN_WINDOW: u64 = 4;

/// Fraction of the modelled rate at which segments are paced (bbr_pacing_margin_percent,
/// tcp_bbr.c).
const PACING_MARGIN: f64 = 0.99;

/// Gain that doubles the rate each round: 2 / ln 2 (bbr_high_gain, tcp_bbr.c).
const STARTUP_GAIN: f64 = 2.885;

/// Gain of the window in the steady state (bbr_cwnd_gain, tcp_bbr.c).
const WINDOW_GAIN: f64 = 2.0;

/// Growth per round below which the path may be full (bbr_full_bw_thresh, tcp_bbr.c).
const FULL_GROWTH: f64 = 1.25;

/// Rounds without that growth after which the path is full (bbr_full_bw_cnt, tcp_bbr.c).
const FULL_ROUNDS: u32 = 3;

/// Pacing rate in bytes per second below which single segments are sent (bbr_min_tso_rate,
/// tcp_bbr.c).
const SINGLE_SEGMENT_RATE: f64 = 1.2e6 / 8.0;

/// Acknowledgement, as the model needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckSample {
    pub(super) now: Duration,
    pub(super) rate: Option<RateSample>,
    pub(super) rtt: Option<Duration>,
    /// Segments newly delivered.
    pub(super) delivered: u64,
    /// Segments newly presumed lost.
    pub(super) lost: u64,
    /// Segments in flight before the acknowledgement.
    pub(super) prior_in_flight: u64,
    pub(super) in_flight: u64,
    /// Window, before and after.
    pub(super) window: u64,
    pub(super) state: State,
    pub(super) total: Total,
    /// Time at which pacing allows the next super-packet.
    pub(super) next_send: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// Estimate of the delivery rate, by rounds.
#[derive(Debug, Clone, Default)]
struct Bandwidth {
    max: MaxFilter,
    rounds: u64,
    /// A round ends when a segment arrives that was sent after this many were delivered.
    round_end: u64,
    is_round_start: bool,
    /// Rate of the last round with growth, and the rounds since then.
    full: (f64, u32),
    is_full: bool,
}

/// Estimate of the min RTT.
#[derive(Debug, Clone, Default)]
struct MinRtt {
    value: Duration,
    at: Duration,
    /// End of the time in which the queue is drained, once it is drained.
    probe_until: Option<Duration>,
    has_probed_a_round: bool,
}

/// BBR.
#[derive(Debug, Clone)]
pub(super) struct Bbr {
    mode: Mode,
    bandwidth: Bandwidth,
    min_rtt: MinRtt,
    /// Phase of the gain cycle, and its start.
    phase: (usize, Duration),
    gain: f64,
    /// Pacing rate in bytes per second.
    pacing_rate: f64,
    /// Window before a recovery or a probe of the RTT.
    prior_window: u64,
    prior_state: State,
    /// The window conserves packets, in the first round of a recovery.
    conserves_packets: bool,
    /// The flow restarts after it lacked data.
    is_restart: bool,
    policer: Policer,
    aggregation: Aggregation,
    mss: u64,
}

impl Bbr {
    pub(super) fn new() -> Self {
        Self {
            mode: Mode::Startup,
            bandwidth: Bandwidth::default(),
            min_rtt: MinRtt::default(),
            phase: (0, Duration::ZERO),
            gain: STARTUP_GAIN,
            pacing_rate: 0.0,
            prior_window: 0,
            prior_state: State::Open,
            conserves_packets: false,
            is_restart: false,
            policer: Policer::default(),
            aggregation: Aggregation::default(),
            mss: MSS,
        }
    }

    /// Sets the payload bytes of a segment; the modelled rate stays that of segments
    /// (bbr_rate_bytes_per_sec, tcp_bbr.c).
    pub(super) fn set_mss(&mut self, mss: u64) {
        self.mss = mss;
    }

    /// Starts the flow with the RTT of the handshake.
    ///
    /// This RTT paces the first window only. The modelled handshake meets no queue, and a min RTT
    /// without the queue of other flows would delay their common RTT probes by ten seconds.
    pub(super) fn start(&mut self, now: Duration, rtt: Duration) {
        self.min_rtt = MinRtt { value: Duration::MAX, at: now, ..MinRtt::default() };
        let rate = INITIAL_WINDOW as f64 / rtt.as_secs_f64().max(1e-6);
        self.pacing_rate = bytes_per_sec(rate * STARTUP_GAIN * PACING_MARGIN, self.mss);
        self.aggregation.begin_epoch(now);
    }

    /// Takes over a flow from another algorithm (bbr_init, tcp_bbr.c).
    pub(super) fn take_over(
        &mut self,
        now: Duration,
        window: u64,
        rtt: &RttEstimator,
        total: &Total,
    ) {
        let value = rtt.min().unwrap_or(Duration::MAX);
        self.min_rtt = MinRtt { value, at: now, ..MinRtt::default() };
        let smoothed = rtt.smoothed().unwrap_or_default().as_secs_f64();
        self.pacing_rate =
            bytes_per_sec(window as f64 / smoothed.max(1e-6) * STARTUP_GAIN, self.mss);
        self.bandwidth.round_end = total.delivered;
        self.aggregation.begin_epoch(now);
    }

    /// Returns the slow start threshold that BBR leaves behind (bbr_check_drain, tcp_bbr.c).
    pub(super) fn threshold(&self) -> Option<u64> {
        self.bandwidth.is_full.then(|| self.target_in_flight(1.0))
    }

    /// Returns the pacing rate in bytes per second.
    pub(super) fn pacing_rate(&self) -> f64 {
        self.pacing_rate
    }

    /// Returns the minimum size of a super-packet (bbr_min_tso_segs, tcp_bbr.c).
    pub(super) fn min_super_packet(&self) -> u64 {
        if self.pacing_rate < SINGLE_SEGMENT_RATE { 1 } else { 2 }
    }

    /// Returns whether the queue is being drained, which lowers rate samples.
    pub(super) fn is_probing_rtt(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    /// Updates the model and the pacing rate; returns the window.
    pub(super) fn on_ack(&mut self, ack: &AckSample) -> u64 {
        let mut ack = *ack;
        self.update_bandwidth(&ack);
        self.update_aggregation(&ack);
        if self.mode == Mode::ProbeBandwidth && self.has_phase_ended(&ack) {
            self.begin_phase(self.phase.0 + 1, &ack.total);
        }
        self.check_full(&ack);
        self.check_drained(&ack);
        self.update_min_rtt(&mut ack);
        self.gain = match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => 1.0 / STARTUP_GAIN,
            Mode::ProbeBandwidth if self.policer.is_used => 1.0,
            Mode::ProbeBandwidth => CYCLE[self.phase.0],
            Mode::ProbeRtt => 1.0,
        };
        self.set_pacing_rate(self.gain);
        self.next_window(&ack)
    }

    /// Saves the window at the start of a recovery or a probe (bbr_save_cwnd, tcp_bbr.c).
    pub(super) fn save_window(&mut self, window: u64) {
        let is_cut = is_recovery(self.prior_state) || self.mode == Mode::ProbeRtt;
        self.prior_window = if is_cut { self.prior_window.max(window) } else { window };
    }

    /// Records a retransmission timeout (bbr_set_state, tcp_bbr.c).
    pub(super) fn on_timeout(&mut self, total: &Total) {
        self.prior_state = State::Loss;
        self.bandwidth.full.0 = 0.0;
        self.bandwidth.is_round_start = true;
        self.sample_policer(1, false, total);
    }

    /// Records that a recovery was spurious (bbr_undo_cwnd, tcp_bbr.c).
    pub(super) fn on_undo(&mut self, total: &Total) {
        self.bandwidth.full = (0.0, 0);
        self.policer.reset(total);
    }

    /// Records the first transmission after the flow lacked data (bbr_cwnd_event, tcp_bbr.c).
    pub(super) fn on_restart(&mut self, now: Duration) {
        self.is_restart = true;
        self.aggregation.begin_epoch(now);
        if self.mode == Mode::ProbeBandwidth {
            self.set_pacing_rate(1.0);
        }
    }

    /// Returns the modelled rate.
    fn rate(&self) -> f64 {
        if self.policer.is_used { self.policer.rate } else { self.bandwidth.max.get() }
    }

    fn set_pacing_rate(&mut self, gain: f64) {
        let rate = bytes_per_sec(self.rate() * gain * PACING_MARGIN, self.mss);
        if self.bandwidth.is_full || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// Returns the bandwidth-delay product with a gain (bbr_bdp, tcp_bbr.c).
    fn bdp(&self, rate: f64, gain: f64) -> u64 {
        if self.min_rtt.value == Duration::MAX {
            return INITIAL_WINDOW;
        }
        (rate * self.min_rtt.value.as_secs_f64() * gain).ceil() as u64
    }

    /// Returns the size of super-packets (bbr_tso_segs_goal, tcp_bbr.c).
    fn super_packet(&self) -> u64 {
        let segments = (self.pacing_rate / SUPER_PACKETS_PER_SEC) as u64 / self.mss;
        segments.clamp(self.min_super_packet(), MAX_SUPER_PACKET_SEGMENTS)
    }

    /// Adds to a window what the hosts hold back (bbr_quantization_budget, tcp_bbr.c).
    fn with_budget(&self, window: u64) -> u64 {
        let even = (window + 3 * self.super_packet()).next_multiple_of(2);
        let is_probing = self.mode == Mode::ProbeBandwidth && self.phase.0 == 0;
        even + if is_probing { 2 } else { 0 }
    }

    /// Returns the segments that should be in flight (bbr_inflight, tcp_bbr.c).
    fn target_in_flight(&self, gain: f64) -> u64 {
        self.with_budget(self.bdp(self.bandwidth.max.get(), gain))
    }

    /// Returns the segments in the network when the next one leaves (bbr_packets_in_net_at_edt).
    fn in_flight_at_next_send(&self, ack: &AckSample, in_flight: u64) -> u64 {
        let wait = ack.next_send.saturating_sub(ack.now).as_secs_f64();
        let next = if self.gain > 1.0 { self.super_packet() } else { 0 };
        (in_flight + next).saturating_sub((self.rate() * wait) as u64)
    }

    /// Updates the maximum of the delivery rate (bbr_update_bw, tcp_bbr.c).
    fn update_bandwidth(&mut self, ack: &AckSample) {
        self.bandwidth.is_round_start = false;
        let Some(sample) = ack.rate else { return };
        if sample.prior_delivered >= self.bandwidth.round_end {
            self.bandwidth.round_end = ack.total.delivered;
            self.bandwidth.rounds += 1;
            self.bandwidth.is_round_start = true;
            self.conserves_packets = false;
        }
        self.sample_policer(ack.lost, sample.is_app_limited, &ack.total);
        let rate = sample.delivered as f64 / sample.interval.as_secs_f64();
        let bandwidth = &mut self.bandwidth;
        if !sample.is_app_limited || rate >= bandwidth.max.get() {
            bandwidth.max.update(BANDWIDTH_ROUNDS, bandwidth.rounds, rate);
        }
    }

    /// Updates the long-term rate of a policer (bbr_lt_bw_sampling, tcp_bbr.c).
    fn sample_policer(&mut self, lost: u64, is_app_limited: bool, total: &Total) {
        let is_round_start = self.bandwidth.is_round_start;
        if !self.policer.is_used {
            self.policer.sample(lost, is_app_limited, is_round_start, total);
        } else if self.mode == Mode::ProbeBandwidth && is_round_start && self.policer.has_expired()
        {
            self.policer.reset(total);
            self.begin_cycle(total);
        }
    }

    fn update_aggregation(&mut self, ack: &AckSample) {
        if ack.rate.is_some() && ack.delivered > 0 {
            let is_round_start = self.bandwidth.is_round_start;
            let rate = self.rate();
            self.aggregation.update(&ack.total, rate, ack.delivered, ack.window, is_round_start);
        }
    }

    /// Returns whether the phase of the gain cycle has ended (bbr_is_next_cycle_phase).
    fn has_phase_ended(&self, ack: &AckSample) -> bool {
        let is_long = ack.total.delivered_at.saturating_sub(self.phase.1) > self.min_rtt.value;
        let in_flight = self.in_flight_at_next_send(ack, ack.prior_in_flight);
        if self.gain > 1.0 {
            is_long && (ack.lost > 0 || in_flight >= self.target_in_flight(self.gain))
        } else if self.gain < 1.0 {
            is_long || in_flight <= self.target_in_flight(1.0)
        } else {
            is_long
        }
    }

    fn begin_phase(&mut self, phase: usize, total: &Total) {
        self.phase = (phase % CYCLE.len(), total.delivered_at);
    }

    /// Begins the gain cycle in a phase that is not the second (bbr_reset_probe_bw_mode).
    fn begin_cycle(&mut self, total: &Total) {
        self.mode = Mode::ProbeBandwidth;
        // Time is as good as random numbers, and needs no seed.
        let seed = total.delivered_at.as_nanos() as u64;
        let phase = fastrand::Rng::with_seed(seed).u64(0..CYCLE_START_PHASES) as usize;
        self.begin_phase(CYCLE.len() - phase, total);
    }

    /// Detects that the path is full (bbr_check_full_bw_reached, tcp_bbr.c).
    fn check_full(&mut self, ack: &AckSample) {
        let bandwidth = &mut self.bandwidth;
        let is_app_limited = ack.rate.is_some_and(|sample| sample.is_app_limited);
        if bandwidth.is_full || !bandwidth.is_round_start || is_app_limited {
            return;
        }
        if bandwidth.max.get() >= bandwidth.full.0 * FULL_GROWTH {
            bandwidth.full = (bandwidth.max.get(), 0);
            return;
        }
        bandwidth.full.1 += 1;
        bandwidth.is_full = bandwidth.full.1 >= FULL_ROUNDS;
    }

    /// Enters and leaves the mode that drains the queue of the start (bbr_check_drain, tcp_bbr.c).
    fn check_drained(&mut self, ack: &AckSample) {
        if self.mode == Mode::Startup && self.bandwidth.is_full {
            self.mode = Mode::Drain;
        }
        let in_flight = self.in_flight_at_next_send(ack, ack.in_flight);
        if self.mode == Mode::Drain && in_flight <= self.target_in_flight(1.0) {
            self.begin_cycle(&ack.total);
        }
    }

    /// Updates the min RTT, and drains the queue to measure it (bbr_update_min_rtt, tcp_bbr.c).
    fn update_min_rtt(&mut self, ack: &mut AckSample) {
        let has_expired = ack.now > self.min_rtt.at + MIN_RTT_WINDOW;
        if let Some(rtt) = ack.rtt.filter(|&rtt| rtt <= self.min_rtt.value || has_expired) {
            self.min_rtt.value = rtt;
            self.min_rtt.at = ack.now;
        }
        if has_expired && !self.is_restart && self.mode != Mode::ProbeRtt {
            self.save_window(ack.window);
            self.mode = Mode::ProbeRtt;
            self.min_rtt.probe_until = None;
        }
        if self.mode == Mode::ProbeRtt {
            self.probe_rtt(ack);
        }
        self.is_restart &= ack.rate.is_none_or(|sample| sample.delivered == 0);
    }

    fn probe_rtt(&mut self, ack: &mut AckSample) {
        let Some(until) = self.min_rtt.probe_until else {
            if ack.in_flight <= MIN_WINDOW {
                self.min_rtt.probe_until = Some(ack.now + PROBE_RTT_TIME);
                self.min_rtt.has_probed_a_round = false;
                self.bandwidth.round_end = ack.total.delivered;
            }
            return;
        };
        self.min_rtt.has_probed_a_round |= self.bandwidth.is_round_start;
        if self.min_rtt.has_probed_a_round && ack.now > until {
            self.min_rtt.at = ack.now;
            ack.window = ack.window.max(self.prior_window);
            if self.bandwidth.is_full {
                self.begin_cycle(&ack.total);
            } else {
                self.mode = Mode::Startup;
            }
        }
    }

    /// Returns the next window (bbr_set_cwnd, tcp_bbr.c).
    fn next_window(&mut self, ack: &AckSample) -> u64 {
        let mut window = ack.window;
        if ack.delivered > 0 {
            window = self.window_around_recovery(ack);
            if !self.conserves_packets {
                window = self.window_towards_target(ack, window);
            }
        }
        if self.mode == Mode::ProbeRtt { window.min(MIN_WINDOW) } else { window }
    }

    /// Cuts the window at the start of a recovery, and restores it after
    /// (bbr_set_cwnd_to_recover_or_restore, tcp_bbr.c).
    fn window_around_recovery(&mut self, ack: &AckSample) -> u64 {
        let mut window = ack.window;
        if ack.lost > 0 {
            window = window.saturating_sub(ack.lost).max(1);
        }
        if ack.state == State::Recovery && self.prior_state != State::Recovery {
            self.conserves_packets = true;
            self.bandwidth.round_end = ack.total.delivered;
            window = ack.in_flight + ack.delivered;
        } else if is_recovery(self.prior_state) && !is_recovery(ack.state) {
            window = window.max(self.prior_window);
            self.conserves_packets = false;
        }
        self.prior_state = ack.state;
        if self.conserves_packets { window.max(ack.in_flight + ack.delivered) } else { window }
    }

    fn window_towards_target(&self, ack: &AckSample, window: u64) -> u64 {
        let gain = match self.mode {
            Mode::Startup | Mode::Drain => STARTUP_GAIN,
            Mode::ProbeBandwidth => WINDOW_GAIN,
            Mode::ProbeRtt => 1.0,
        };
        let rate = self.rate();
        let is_full = self.bandwidth.is_full;
        let aggregated = if is_full { self.aggregation.window(rate) } else { 0 };
        let target = self.with_budget(self.bdp(rate, gain) + aggregated);
        let next = if is_full {
            (window + ack.delivered).min(target)
        } else if window < target || ack.total.delivered < INITIAL_WINDOW {
            window + ack.delivered
        } else {
            window
        };
        next.max(MIN_WINDOW)
    }
}

fn is_recovery(state: State) -> bool {
    matches!(state, State::Recovery | State::Loss)
}

fn bytes_per_sec(rate: f64, mss: u64) -> f64 {
    rate * mss as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(20);

    /// Flow whose acknowledgements each end a round of 20 ms.
    struct Flow {
        bbr: Bbr,
        now: Duration,
        delivered: u64,
        window: u64,
    }

    impl Flow {
        fn new() -> Self {
            let mut bbr = Bbr::new();
            bbr.start(Duration::ZERO, RTT);
            Self { bbr, now: Duration::ZERO, delivered: 0, window: INITIAL_WINDOW }
        }

        /// Acknowledges the segments of a round, of which others are lost.
        fn round(&mut self, segments: u64, rtt: Duration, lost: u64, state: State) {
            self.now += RTT;
            let prior_delivered = self.delivered;
            self.delivered += segments;
            self.window = self.bbr.on_ack(&AckSample {
                now: self.now,
                rate: Some(RateSample {
                    delivered: segments,
                    interval: RTT,
                    prior_delivered,
                    is_app_limited: false,
                }),
                rtt: Some(rtt),
                delivered: segments,
                lost,
                prior_in_flight: self.window.min(2 * segments),
                in_flight: self.window.min(segments),
                window: self.window,
                state,
                total: Total { delivered: self.delivered, delivered_at: self.now, lost },
                next_send: self.now,
            });
        }

        /// Returns a flow that has filled a path of 100 segments per round.
        fn steady() -> Self {
            let mut flow = Self::new();
            for segments in [10, 20, 40, 80, 100, 100, 100, 100] {
                flow.round(segments, RTT, 0, State::Open);
            }
            flow
        }

        /// Returns the pacing rate as a multiple of the rate of the path.
        fn pacing_gain(&self) -> f64 {
            self.bbr.pacing_rate() / (5000.0 * MSS as f64 * PACING_MARGIN)
        }
    }

    #[test]
    fn startup_ends_after_three_rounds_without_growth() {
        let mut flow = Flow::new();
        for segments in [10, 20, 40, 80, 100] {
            flow.round(segments, RTT, 0, State::Open);
            assert_eq!(flow.bbr.mode, Mode::Startup);
        }
        let gain = flow.pacing_gain();
        assert!((gain - STARTUP_GAIN).abs() < 0.01, "{gain}");
        (0..2).for_each(|_| flow.round(100, RTT, 0, State::Open));
        assert_eq!(flow.bbr.mode, Mode::Startup, "100 is a growth of 25 % over 80");
        flow.round(100, RTT, 0, State::Open);
        assert_eq!(flow.bbr.mode, Mode::ProbeBandwidth, "nothing is left to drain");
    }

    #[test]
    fn steady_flow_cycles_its_gain_and_holds_two_bdp() {
        let mut flow = Flow::steady();
        let mut gains = Vec::new();
        for _ in 0..16 {
            // A phase is longer than the RTT.
            flow.now += MS;
            flow.round(100, RTT, 0, State::Open);
            gains.push((flow.pacing_gain() * 100.0).round() as u64);
            // Two BDPs of 100, one for ACKs that arrive at once, and what the hosts hold back.
            assert!((306..=330).contains(&flow.window), "{}", flow.window);
        }
        assert!(gains.contains(&125) && gains.contains(&75), "{gains:?}");
        assert!(gains.iter().filter(|&&gain| gain == 100).count() >= 10, "{gains:?}");
    }

    #[test]
    fn rtt_is_probed_after_ten_seconds_for_200_ms() {
        let mut flow = Flow::steady();
        let mut probes = 0;
        for _ in 0..600 {
            // The queue stands, except while the RTT is probed.
            let is_probing = flow.bbr.is_probing_rtt();
            probes += u32::from(is_probing);
            assert_eq!(flow.window == MIN_WINDOW, is_probing, "{flow:?}", flow = flow.bbr);
            let (segments, rtt) = if is_probing { (4, RTT) } else { (100, 2 * RTT) };
            flow.round(segments, rtt, 0, State::Open);
        }
        assert!((10..=13).contains(&probes), "{probes} rounds of 20 ms");
        assert_eq!(flow.bbr.min_rtt.value, RTT);
    }

    #[test]
    fn recovery_conserves_packets_for_a_round_and_restores_window() {
        let mut flow = Flow::steady();
        flow.round(100, RTT, 0, State::Open);
        let before = flow.window;
        flow.bbr.save_window(before);
        // The first acknowledgement of the recovery does not end a round.
        flow.bbr.bandwidth.round_end = u64::MAX;
        flow.round(100, RTT, 3, State::Recovery);
        assert_eq!(flow.window, 100 + 100, "in flight, and delivered");
        flow.round(50, RTT, 10, State::Recovery);
        assert!(flow.window > 100 && !flow.bbr.conserves_packets, "{}", flow.window);
        flow.window = 60;
        flow.round(50, RTT, 0, State::Open);
        assert!(flow.window >= before - 10, "{} {before}", flow.window);
    }
}
