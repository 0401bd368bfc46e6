//! LEDBAT (RFC 6817): a window that keeps the one-way queueing delay at a target.
//!
//! It yields to flows that queue for longer. Slow start, which the RFC leaves open, ends at a
//! fraction of the target, with the window that caused this delay: half of the current one.

use super::window::{AckProgress, Window};
use std::collections::VecDeque;
use std::time::Duration;

/// Target of the queueing delay (RFC 6817 §2.5: at most 100 ms; CCONTROL_TARGET, libutp).
const TARGET: Duration = Duration::from_millis(100);

/// Fraction of the target at which slow start ends (libutp, utp_internal.cpp).
const SLOW_START_EXIT: f64 = 0.9;

/// Segments by which the window grows per round at most (GAIN, RFC 6817 §2.5).
const GAIN: f64 = 1.0;

/// Minutes for which the least delay counts (BASE_HISTORY, RFC 6817 §2.5).
const BASE_HISTORY: usize = 10;

/// Interval of that history (RFC 6817 §2.4.2).
const BASE_INTERVAL: Duration = Duration::from_secs(60);

/// Latest delays of which the least is the current one (CURRENT_FILTER, RFC 6817 §2.5).
const CURRENT_FILTER: usize = 4;

/// Segments that the window may exceed those in flight by (ALLOWED_INCREASE, RFC 6817 §2.5).
const ALLOWED_INCREASE: f64 = 1.0;

/// Minimum window in segments (MIN_CWND, RFC 6817 §2.5).
const MIN_WINDOW: f64 = 2.0;

/// Multiplicative decrease after a loss (RFC 6817 §2.4.2).
pub(super) const BETA: f64 = 0.5;

/// State of LEDBAT.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledbat {
    /// Least delay of each of the latest minutes.
    base: VecDeque<Duration>,
    /// Start of the latest minute.
    minute: Duration,
    /// Latest delays.
    current: VecDeque<Duration>,
}

impl Ledbat {
    /// Records the one-way delay of a segment.
    pub(crate) fn on_delay(&mut self, now: Duration, delay: Duration) {
        if self.base.is_empty() || now >= self.minute + BASE_INTERVAL {
            self.minute = now;
            self.base.push_back(delay);
        }
        if self.base.len() > BASE_HISTORY {
            self.base.pop_front();
        }
        if let Some(least) = self.base.back_mut() {
            *least = delay.min(*least);
        }
        self.current.push_back(delay);
        if self.current.len() > CURRENT_FILTER {
            self.current.pop_front();
        }
    }

    /// Returns the queueing delay.
    fn queueing_delay(&self) -> Duration {
        let base = self.base.iter().min().copied().unwrap_or_default();
        self.current.iter().min().copied().unwrap_or_default().saturating_sub(base)
    }

    /// Returns the window after an acknowledgement (RFC 6817 §2.4.2).
    pub(crate) fn next_window(&self, mut window: Window, ack: &AckProgress) -> Window {
        let segments = ack.segments as f64;
        let delay = self.queueing_delay().as_secs_f64() / TARGET.as_secs_f64();
        if window.size < window.threshold {
            if delay > SLOW_START_EXIT {
                window.size = (window.size / 2.0).max(MIN_WINDOW);
                window.threshold = window.size;
            } else if ack.is_window_limited {
                window.size = (window.size + segments).min(window.threshold);
                return window;
            }
        }
        let next = window.size + GAIN * (1.0 - delay) * segments / window.size;
        // The segments that were just delivered were in flight.
        let most = ack.in_flight as f64 + segments + ALLOWED_INCREASE;
        window.size = next.min(most.max(window.size)).max(MIN_WINDOW);
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the window after a round with the whole of it delivered.
    fn round(ledbat: &Ledbat, window: Window) -> Window {
        let segments = window.size as u64;
        let ack = AckProgress {
            now: MS,
            segments,
            min_rtt: MS,
            in_flight: segments,
            is_window_limited: true,
        };
        ledbat.next_window(window, &ack)
    }

    #[test]
    fn window_follows_distance_from_target() {
        for (queue_ms, change) in [(0, 1.0), (50, 0.5), (100, 0.0), (300, -2.0)] {
            let mut ledbat = Ledbat::default();
            ledbat.on_delay(MS, 20 * MS);
            (0..CURRENT_FILTER).for_each(|_| ledbat.on_delay(MS, MS * (20 + queue_ms)));
            let window = Window { size: 50.0, threshold: 40.0 };
            let next = round(&ledbat, window).size;
            assert!((next - 50.0 - change).abs() < 0.01, "{queue_ms}: {next}");
        }
    }

    #[test]
    fn slow_start_ends_below_target() {
        let mut ledbat = Ledbat::default();
        ledbat.on_delay(MS, 20 * MS);
        let window = Window { size: 50.0, threshold: f64::INFINITY };
        assert_eq!(round(&ledbat, window).size as u64, 100);
        (0..CURRENT_FILTER).for_each(|_| ledbat.on_delay(MS, 115 * MS));
        assert_eq!(round(&ledbat, window).threshold as u64, 25);
    }

    #[test]
    fn base_delay_is_forgotten_after_ten_minutes() {
        let mut ledbat = Ledbat::default();
        ledbat.on_delay(Duration::ZERO, 20 * MS);
        for minute in 1..=9 {
            (0..4).for_each(|_| ledbat.on_delay(BASE_INTERVAL * minute, 50 * MS));
            assert_eq!(ledbat.queueing_delay(), 30 * MS, "{minute}");
        }
        ledbat.on_delay(BASE_INTERVAL * 10, 50 * MS);
        assert_eq!(ledbat.queueing_delay(), Duration::ZERO);
    }
}
