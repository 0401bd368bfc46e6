//! Congestion control: how many segments may be in flight.
//!
//! NewReno (RFC 5681, 6582) and CUBIC (RFC 9438) with HyStart as Linux has it
//! (net/ipv4/tcp_cubic.c: exit by delay and by the length of the ACK train). What is lost, and how
//! many segments leave during a recovery, is decided by the sender.

use bankfull_control::cubic::{self, Cubic};
use std::time::Duration;

/// Segments that may be sent at first (RFC 6928; TCP_INIT_CWND, include/net/tcp.h).
pub const INITIAL_WINDOW: u64 = 10;

/// The threshold never falls below this (RFC 5681 §3.1).
const SSTHRESH_MIN: f64 = 2.0;

/// What NewReno keeps of its window after a loss (RFC 5681 §3.1).
const RENO_BETA: f64 = 0.5;

/// What of the window is kept as threshold after an idle time: 3/4 (RFC 2861;
/// tcp_current_ssthresh, include/net/tcp.h).
const IDLE_SHARE: f64 = 0.75;

/// Which congestion control.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 5681 and 6582.
    NewReno,
    /// RFC 9438, with HyStart.
    #[default]
    Cubic,
}

/// What an acknowledgement told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) now: Duration,
    /// Segments that are known to be delivered since the last one.
    pub(crate) segments: u64,
    /// Least round trip so far.
    pub(crate) min_rtt: Duration,
}

/// A congestion window.
#[derive(Debug, Clone)]
pub(crate) struct Congestion {
    algorithm: Algorithm,
    window: f64,
    threshold: f64,
    cubic: Cubic,
    hystart: HyStart,
}

impl Congestion {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            window: INITIAL_WINDOW as f64,
            threshold: f64::INFINITY,
            cubic: Cubic::default(),
            hystart: HyStart::default(),
        }
    }

    /// Segments that may be in flight.
    pub(crate) fn window(&self) -> u64 {
        self.window as u64
    }

    /// Sets the window for a recovery, which has its own rules.
    pub(crate) fn set_window(&mut self, segments: u64) {
        self.window = segments as f64;
    }

    /// The slow start threshold in segments.
    pub(crate) fn threshold(&self) -> f64 {
        self.threshold
    }

    pub(crate) fn is_in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// A measured round trip, for HyStart.
    pub(crate) fn on_rtt(&mut self, sample: &RttSample) {
        let is_looking = self.algorithm == Algorithm::Cubic && self.is_in_slow_start();
        if is_looking && self.hystart.finds_the_end(sample, self.window) {
            self.threshold = self.window;
        }
    }

    /// Grows the window; only to be called when the window was what limited.
    pub(crate) fn grow(&mut self, progress: &Progress) {
        let mut segments = progress.segments as f64;
        if self.is_in_slow_start() {
            let step = segments.min((self.threshold - self.window).ceil());
            self.window += step;
            segments -= step;
        }
        if segments > 0.0 {
            self.window = match self.algorithm {
                Algorithm::NewReno => self.window + segments / self.window,
                Algorithm::Cubic => {
                    self.cubic.next_window(self.window, segments, progress.now, progress.min_rtt)
                }
            };
        }
    }

    /// A loss: lowers the threshold, once for each round in which something is lost.
    pub(crate) fn on_loss(&mut self) {
        let kept = match self.algorithm {
            Algorithm::NewReno => RENO_BETA,
            Algorithm::Cubic => {
                self.cubic.on_loss(self.window);
                cubic::BETA
            }
        };
        self.threshold = (self.window * kept).max(SSTHRESH_MIN);
    }

    /// Ends a recovery (RFC 6582 §3.2, step 3).
    pub(crate) fn set_window_to_threshold(&mut self) {
        self.window = self.threshold.max(1.0);
    }

    /// A time-out: what was learned is forgotten (RFC 9438 §4.8; bictcp_state, tcp_cubic.c).
    pub(crate) fn on_timeout(&mut self) {
        self.cubic = Cubic::default();
        self.hystart = HyStart::default();
    }

    /// Nothing was sent for `idle`, longer than the time-out: halves the window for each time-out
    /// (RFC 2861; tcp_cwnd_restart, net/ipv4/tcp_output.c).
    pub(crate) fn on_idle(&mut self, idle: Duration, timeout: Duration) {
        self.cubic.on_idle(idle);
        let halvings = (idle.as_secs_f64() / timeout.as_secs_f64()) as i32;
        if halvings > 0 {
            self.threshold = self.threshold.max(self.window * IDLE_SHARE);
            let least = self.window.min(INITIAL_WINDOW as f64);
            self.window = (self.window / 2_f64.powi(halvings)).max(least);
        }
    }
}

/// A measured round trip, and where the sender stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RttSample {
    pub(crate) now: Duration,
    pub(crate) rtt: Duration,
    pub(crate) min_rtt: Duration,
    /// First byte that is not acknowledged.
    pub(crate) acked: u64,
    /// First byte that was never sent.
    pub(crate) next: u64,
    /// Whether the sender is paced, and at how many bytes a second.
    pub(crate) paced: Option<f64>,
}

/// Below this window slow start goes on (hystart_low_window, tcp_cubic.c).
const HYSTART_LOW_WINDOW: f64 = 16.0;

/// Samples before a round's delay counts (HYSTART_MIN_SAMPLES, tcp_cubic.c; RFC 9406 §4.3).
const HYSTART_SAMPLES: u32 = 8;

/// By how much the delay must grow: 1/8 of the least, within these bounds (HYSTART_DELAY_MIN and
/// HYSTART_DELAY_MAX, tcp_cubic.c; RFC 9406 §4.3).
const HYSTART_DELAY: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));

/// ACKs that are closer than this belong to one train (hystart_ack_delta_us, tcp_cubic.c).
const HYSTART_ACK_GAP: Duration = Duration::from_millis(2);

/// What pacing may add to a train: four super-packets, at most 1 ms (hystart_ack_delay,
/// tcp_cubic.c).
const HYSTART_PACED: (f64, Duration) = (4.0 * 65_536.0, Duration::from_millis(1));

/// Looks for the end of slow start before something is lost.
#[derive(Debug, Clone, Default)]
struct HyStart {
    has_found: bool,
    /// The round ends when this byte is acknowledged.
    round_end: u64,
    round_began: Duration,
    last_ack: Duration,
    least: Option<Duration>,
    samples: u32,
}

impl HyStart {
    fn finds_the_end(&mut self, sample: &RttSample, window: f64) -> bool {
        if self.has_found || window < HYSTART_LOW_WINDOW {
            return false;
        }
        if sample.acked > self.round_end {
            self.round_end = sample.next;
            self.round_began = sample.now;
            self.last_ack = sample.now;
            self.least = None;
            self.samples = 0;
        }
        self.has_found = self.train_is_long(sample) || self.delay_grew(sample);
        self.has_found
    }

    /// The ACKs of a round come for as long as half of the least round trip.
    fn train_is_long(&mut self, sample: &RttSample) -> bool {
        if sample.now - self.last_ack > HYSTART_ACK_GAP {
            return false;
        }
        self.last_ack = sample.now;
        let limit = match sample.paced {
            None => sample.min_rtt / 2,
            Some(rate) => {
                let (bytes, most) = HYSTART_PACED;
                sample.min_rtt + most.min(Duration::from_secs_f64(bytes / rate.max(1.0)))
            }
        };
        sample.now - self.round_began > limit
    }

    fn delay_grew(&mut self, sample: &RttSample) -> bool {
        let least = self.least.map_or(sample.rtt, |least| least.min(sample.rtt));
        self.least = Some(least);
        if self.samples < HYSTART_SAMPLES {
            self.samples += 1;
            return false;
        }
        let (low, high) = HYSTART_DELAY;
        least > sample.min_rtt + (sample.min_rtt / 8).clamp(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn progress(now: Duration, segments: u64) -> Progress {
        Progress { now, segments, min_rtt: 20 * MS }
    }

    /// Rounds of 20 ms in which all of the window is delivered.
    fn rounds(control: &mut Congestion, from: u32, count: u32) {
        for n in from..from + count {
            control.grow(&progress(20 * MS * n, control.window()));
        }
    }

    #[test]
    fn slow_start_doubles_and_new_reno_then_adds_one_segment_a_round() {
        let mut control = Congestion::new(Algorithm::NewReno);
        rounds(&mut control, 0, 4);
        assert_eq!(control.window(), 160);
        control.on_loss();
        control.set_window_to_threshold();
        assert_eq!(control.window(), 80);
        rounds(&mut control, 4, 10);
        assert_eq!(control.window(), 90);
    }

    #[test]
    fn cubic_is_back_at_its_old_window_after_k_seconds_and_flat_there() {
        let mut control = Congestion::new(Algorithm::Cubic);
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
        assert!(control.window() > 1080, "it looks for more: {}", control.window());
    }

    #[test]
    fn small_windows_of_cubic_grow_like_new_reno() {
        let mut control = Congestion::new(Algorithm::Cubic);
        control.window = 20.0;
        control.on_loss();
        control.set_window_to_threshold();
        // From 14 to 20 at 0.53 segments a round takes 11 rounds; K alone would be 2.5 s.
        rounds(&mut control, 0, 13);
        assert!(control.window() >= 20, "{}", control.window());
    }

    #[test]
    fn hystart_ends_slow_start_when_the_delay_of_a_round_has_grown() {
        let mut control = Congestion::new(Algorithm::Cubic);
        control.window = 100.0;
        let mut sample =
            RttSample { now: MS, rtt: 20 * MS, min_rtt: 20 * MS, acked: 1, next: 9, paced: None };
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
    fn hystart_ends_slow_start_when_the_train_fills_half_a_round() {
        let mut control = Congestion::new(Algorithm::Cubic);
        control.window = 100.0;
        let mut now = MS;
        for _ in 0..12 {
            assert!(control.is_in_slow_start());
            let (rtt, min_rtt) = (20 * MS, 20 * MS);
            control.on_rtt(&RttSample { now, rtt, min_rtt, acked: 1, next: 9, paced: None });
            now += MS;
        }
        assert!(!control.is_in_slow_start());
    }

    #[test]
    fn idle_time_halves_the_window_for_each_time_out_down_to_the_first_window() {
        let mut control = Congestion::new(Algorithm::Cubic);
        control.window = 200.0;
        control.on_idle(500 * MS, 220 * MS);
        assert_eq!(control.window(), 50);
        control.on_idle(5000 * MS, 220 * MS);
        assert_eq!(control.window(), 10);
    }
}
