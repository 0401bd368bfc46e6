//! One connection: grants, bytes received, and the rules that grow and shrink its window. (paper,
//! §IV-C and §IV-D)

use super::active_time::ActiveTime;
use super::ledger::Ledger;
use super::path_samples::{PACED_RTT, PathSamples};
use super::reason::Reason;
use super::slots::{MIN_SUBSLOT, settling_time};
use super::{NewConnection, Sample};
use crate::tcp::MIN_RTO;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Weight of the previous throughput when a sample is lower. (paper, §IV-C: β)
pub(super) const THROUGHPUT_SMOOTHING: f64 = 0.75;

/// Relative difference up to which two values count as equal.
///
/// Up to this difference of throughput, the window is the limit and may grow (paper, §IV-C: γ₁).
/// Windows and pacing rates are compared likewise.
const NEGLIGIBLE_DIFFERENCE: f64 = 0.1;

/// Throughput difference above which the window is larger than needed. (paper, §IV-C: γ₂)
const DECREASE_THRESHOLD: f64 = 0.5;

/// Evaluations in a row above that before the window shrinks. (paper, §IV-C: three RTTs; chosen:
/// two, as an evaluation takes an RTT or longer)
const DECREASE_EVALUATIONS: u32 = 2;

/// Window change per step: at least a segment (paper, §IV-C), or the window divided by this.
/// (measured, docs/algorithms/sensitivity-gather.md: smaller steps fill long paths slowly)
const STEP_DIVISOR: u64 = 16;

/// Outstanding bytes, in windows, below which the next grant is due. (chosen: it arrives before the
/// last data has left)
pub(super) const GRANT_AHEAD_WINDOWS: u64 = 2;

/// Pacing rate in windows per RTT. (Linux in congestion avoidance, tcp_pacing_ca_ratio: 1.2)
pub(super) const PACING_RATIO: f64 = 1.2;

/// Decision about a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowDecision {
    Keep,
    Grow,
    Shrink,
}

/// Pauses of one connection.
#[derive(Debug)]
struct Activity {
    /// True before its first activity.
    is_new: bool,
    /// Time of the last data, or of the first grant after a pause.
    last_progress: Duration,
    /// Time since which it is inactive.
    inactive_since: Option<Duration>,
}

/// State of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) window: u64,
    mss: u64,
    min_window: u64,
    pub(super) ledger: Ledger,
    pub(super) path: PathSamples,
    pub(super) is_waiting: bool,
    is_demanding: bool,
    pacing_rate: Rate,
    activity: Activity,
    active_time: ActiveTime,
    throughput: Rate,
    in_slow_start: bool,
    decrease_count: u32,
    window_is_used: bool,
    /// Window before more was lent to it.
    base_window: Option<u64>,
}

impl Connection {
    pub(super) fn new(new_connection: &NewConnection, min_window_segments: u64) -> Self {
        let mss = new_connection.mss.0.max(1);
        let min_window = mss * min_window_segments.max(1);
        Self {
            window: min_window,
            mss,
            min_window,
            ledger: Ledger::new(new_connection.grant_driven, new_connection.offered_window),
            path: PathSamples::new(new_connection),
            is_waiting: false,
            is_demanding: false,
            pacing_rate: Rate::default(),
            activity: Activity {
                is_new: true,
                last_progress: Duration::ZERO,
                inactive_since: None,
            },
            active_time: ActiveTime::default(),
            throughput: Rate::default(),
            in_slow_start: true,
            decrease_count: 0,
            window_is_used: false,
            base_window: None,
        }
    }

    /// Adds demand. Returns whether it had none before.
    pub(super) fn add_demand(&mut self, bytes: Bytes) -> bool {
        self.ledger.demand = self.ledger.demand.saturating_add(bytes.0);
        !std::mem::replace(&mut self.is_demanding, true)
    }

    pub(super) fn clear_demand(&mut self) {
        self.ledger.demand = 0;
        self.is_waiting = false;
    }

    /// Returns the payload of a full segment.
    pub(super) fn mss(&self) -> u64 {
        self.mss
    }

    /// Returns the byte count at which the next report is due.
    pub(super) fn next_report_at(&self, thresholds: [u64; 2]) -> Option<u64> {
        self.ledger.next_report_at(thresholds, self.window)
    }

    pub(super) fn is_active(&self) -> bool {
        self.ledger.outstanding() > 0
    }

    /// Updates whether it has demand, now or lately.
    pub(super) fn update_demanding(&mut self, now: Duration) -> bool {
        self.is_demanding = match self.activity.inactive_since {
            Some(since) => self.is_waiting || now < since + MIN_RTO,
            None => self.is_waiting || self.is_active(),
        };
        self.is_demanding
    }

    /// True if it was granted bytes and has delivered none for long.
    pub(super) fn is_silent(&self, now: Duration) -> bool {
        now >= self.activity.last_progress + settling_time(self.path.rtt())
    }

    /// Stops active time of a silent connection.
    pub(super) fn on_silence(&mut self, now: Duration) {
        self.active_time.pause(now, self.ledger.received);
        self.activity.inactive_since = Some(now);
    }

    /// True if it counted as having demand.
    pub(super) fn is_demanding(&self) -> bool {
        self.is_demanding
    }

    /// Returns the bytes that can be in flight with a clamped window.
    pub(super) fn max_in_flight(&self) -> u64 {
        self.window.max(self.ledger.offered())
    }

    /// Returns the largest grant that the connection's state allows. Before the first data the
    /// kernel cannot clamp the window (Linux raises it on the first full segment), and a larger
    /// offered window is limited by grants until it is used up.
    pub(super) fn max_grant(&self) -> u64 {
        let outstanding = self.ledger.outstanding();
        match self.ledger.received {
            0 => self.min_window.saturating_sub(outstanding),
            _ if self.has_excess_offer() => self.window.saturating_sub(outstanding),
            _ => u64::MAX,
        }
    }

    /// True if the sender was offered more than its window and has some left.
    pub(super) fn has_excess_offer(&self) -> bool {
        self.ledger.offered() > self.window
    }

    /// Returns the outstanding bytes at or below which the next grant is due.
    pub(super) fn grant_threshold(&self, is_contended: bool) -> u64 {
        match is_contended {
            _ if self.has_excess_offer() => self.window / 2,
            true => self.window,
            false => self.window * GRANT_AHEAD_WINDOWS,
        }
    }

    /// Starts a period of activity. Returns whether slow start applies: at the first activity, or
    /// after a long idle time.
    pub(super) fn activate(&mut self, now: Duration) -> bool {
        if self.active_time.is_paused() {
            self.activity.last_progress = now;
        }
        self.active_time.start(now + self.path.rtt(), self.ledger.received);
        let was_idle =
            self.activity.inactive_since.take().is_some_and(|since| now >= since + MIN_RTO);
        self.in_slow_start |= was_idle;
        std::mem::take(&mut self.activity.is_new) || was_idle
    }

    /// Records the bytes received in total. Returns the increase.
    pub(super) fn on_received(&mut self, now: Duration, received: u64) -> u64 {
        let more = self.ledger.on_received(received, self.window);
        if more > 0 {
            self.activity.last_progress = now;
        }
        self.active_time.advance(now, self.ledger.received);
        if more > 0 && !self.is_active() {
            self.active_time.pause(now, self.ledger.received);
            self.activity.inactive_since = Some(now);
        }
        more
    }

    /// Returns the throughput in active time. (paper, §IV-C: measured throughput)
    pub(super) fn throughput(&self) -> Rate {
        self.throughput
    }

    /// True if the window was the limit at the last evaluation.
    pub(super) fn is_window_limited(&self) -> bool {
        self.decrease_count == 0 && self.throughput_difference() <= self.increase_threshold()
    }

    /// Returns the throughput difference: (expected − measured) / expected. (paper, §IV-C)
    fn throughput_difference(&self) -> f64 {
        let throughput = self.throughput.bits_per_sec() as f64;
        let expected = Bytes(self.window).per(self.path.rtt()).bits_per_sec() as f64;
        let expected = expected.max(throughput);
        if expected > 0.0 { (expected - throughput) / expected } else { 0.0 }
    }

    fn increase_threshold(&self) -> f64 {
        NEGLIGIBLE_DIFFERENCE.max(self.mss as f64 / self.window as f64)
    }

    /// Decides about the window if an evaluation is due.
    pub(super) fn evaluate(&mut self) -> Option<WindowDecision> {
        let decision = self.next_decision();
        if let Some(decision) = decision {
            self.window_is_used = decision == WindowDecision::Grow;
        }
        decision
    }

    fn next_decision(&mut self) -> Option<WindowDecision> {
        if self.active_time.elapsed() < MIN_SUBSLOT.max(self.path.rtt()) {
            return None;
        }
        let sample = self.active_time.take().bits_per_sec() as f64;
        let smoothed = THROUGHPUT_SMOOTHING * self.throughput.bits_per_sec() as f64
            + (1.0 - THROUGHPUT_SMOOTHING) * sample;
        self.throughput = Rate::from_bits_per_sec(smoothed.max(sample));
        let has_new_loss = self.path.take_new_loss();
        let throughput_difference = self.throughput_difference();
        if throughput_difference > DECREASE_THRESHOLD
            || has_new_loss
            || self.path.has_remote_queue()
        {
            self.in_slow_start = false;
            self.decrease_count += 1;
            if self.decrease_count >= DECREASE_EVALUATIONS {
                self.decrease_count = 0;
                return Some(WindowDecision::Shrink);
            }
            return Some(WindowDecision::Keep);
        }
        self.decrease_count = 0;
        if throughput_difference > self.increase_threshold() {
            self.in_slow_start = false;
            return Some(WindowDecision::Keep);
        }
        Some(WindowDecision::Grow)
    }

    /// Returns the pacing rate if it has changed enough.
    pub(super) fn next_pacing_rate(&mut self, ratio: f64) -> Option<Rate> {
        let rtt = self.path.known_min_rtt().filter(|&rtt| rtt >= PACED_RTT)?;
        let rate = Bytes(self.window).per(rtt).bits_per_sec() as f64 * ratio;
        let change = (rate - self.pacing_rate.bits_per_sec() as f64).abs();
        let is_changed = change > self.pacing_rate.bits_per_sec() as f64 * NEGLIGIBLE_DIFFERENCE;
        is_changed.then(|| {
            self.pacing_rate = Rate::from_bits_per_sec(rate);
            self.pacing_rate
        })
    }

    /// True if the window exceeds a fair share by more than a negligible part.
    pub(super) fn exceeds_share(&self, fair: u64) -> bool {
        self.window as f64 > fair as f64 * (1.0 + NEGLIGIBLE_DIFFERENCE)
    }

    /// Returns the step by which the window changes outside of slow start.
    pub(super) fn step(&self) -> u64 {
        self.mss.max(self.window / STEP_DIVISOR)
    }

    /// Sets the window, in whole segments. Returns whether it has changed.
    pub(super) fn set_window(&mut self, window: u64) -> bool {
        let window = (window - window % self.mss).max(self.min_window);
        std::mem::replace(&mut self.window, window) != window
    }

    /// Returns the increase wanted, if the window was the limit at the last evaluation.
    pub(super) fn wanted_increase(&self) -> Option<u64> {
        let by = if self.in_slow_start { self.window } else { self.step() };
        self.window_is_used.then_some(by)
    }

    /// Grows the window. Data of the next RTT does not count: the smaller window sent it.
    pub(super) fn grow(&mut self, now: Duration, by: u64, reason: Reason) -> Reason {
        self.window_is_used = false;
        self.set_window(self.window + by);
        self.active_time.restart(now + self.path.rtt(), self.ledger.received);
        reason
    }

    /// Grows the window if the port allows it; otherwise ends slow start.
    pub(super) fn try_grow(&mut self, is_allowed: bool, now: Duration, by: u64) -> Option<Reason> {
        let reason = if self.in_slow_start { Reason::SlowStart } else { Reason::Increased };
        self.in_slow_start &= is_allowed;
        is_allowed.then(|| self.grow(now, by, reason))
    }

    /// Lends a larger window if it is of use. Returns whether the window has changed.
    pub(super) fn lend_window(&mut self, now: Duration, window: u64) -> bool {
        let is_useful = self.ledger.outstanding() > self.window && window >= self.window + self.mss;
        if is_useful {
            self.base_window.get_or_insert(self.window);
            self.set_window(window);
            self.active_time.restart(now + self.path.rtt(), self.ledger.received);
        }
        is_useful
    }

    /// Takes a lent window back, down to the base window or the share. Returns whether it has
    /// changed.
    pub(super) fn reclaim_window(&mut self, now: Duration, share: u64) -> bool {
        let Some(base_window) = self.base_window.take() else { return false };
        let is_changed = self.set_window(self.window.min(base_window.max(share)));
        self.active_time.restart(now + self.path.rtt(), self.ledger.received);
        is_changed
    }

    /// Shrinks the window by a step. Returns whether it has changed.
    pub(super) fn decrease_by_step(&mut self) -> bool {
        self.set_window(self.window.saturating_sub(self.step()))
    }

    /// Scales the window. Returns whether it has changed.
    pub(super) fn scale_window(&mut self, factor: f64) -> bool {
        self.in_slow_start = false;
        self.set_window((self.window as f64 * factor) as u64)
    }
}

impl Sample {
    /// Creates a sample of received bytes only.
    #[must_use]
    pub fn new(id: super::ConnectionId, received: Bytes) -> Self {
        Self { id, received, rtt: None, lost_segments: 0 }
    }
}
