//! Window growth of CUBIC between congestion events (RFC 9438), as in Linux.
//!
//! Out of scope: slow start, loss detection and the window itself, which the caller keeps.

pub use crate::tcp::CUBIC_BETA as BETA;
use std::time::Duration;

/// Growth constant C, in segments per cubic second. (RFC 9438 §5.1)
const CUBIC_C: f64 = 0.4;

/// Maximum target, in windows. (RFC 9438 §4.2)
const MAX_TARGET_RATIO: f64 = 1.5;

/// CUBIC state (RFC 9438 §4), with windows in segments.
#[derive(Debug, Clone, Default)]
pub struct Cubic {
    /// Window before the last reduction, lowered by fast convergence.
    w_max: f64,
    epoch: Option<Epoch>,
}

/// Congestion-avoidance epoch: growth since the last reduction.
#[derive(Debug, Clone)]
struct Epoch {
    start: Duration,
    /// Seconds from the start until the window reaches its origin point.
    k: f64,
    origin_point: f64,
    /// Reno-friendly window estimate. (RFC 9438 §4.3)
    w_est: f64,
}

impl Cubic {
    /// Records a congestion event at `window`, which the caller then multiplies by [`BETA`].
    pub fn on_loss(&mut self, window: f64) {
        self.epoch = None;
        // Fast convergence (RFC 9438 §4.7).
        let is_below_w_max = window < self.w_max;
        self.w_max = if is_below_w_max { window * (1.0 + BETA) / 2.0 } else { window };
    }

    /// Excludes idle time from growth. (RFC 9438 §5.8; cubictcp_cwnd_event, tcp_cubic.c)
    pub fn on_idle(&mut self, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle;
        }
    }

    /// Returns the window after `segments` more were delivered. `now` counts from any fixed origin.
    #[must_use]
    pub fn next_window(
        &mut self,
        window: f64,
        segments: f64,
        now: Duration,
        min_rtt: Duration,
    ) -> f64 {
        let w_max = self.w_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: now,
            k: ((w_max - window).max(0.0) / CUBIC_C).cbrt(),
            origin_point: w_max.max(window),
            w_est: window,
        });
        // RFC 9438 §4.3 raises α to 1 above the last maximum; Linux does not (bictcp_update,
        // tcp_cubic.c).
        const ALPHA_CUBIC: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        epoch.w_est += ALPHA_CUBIC * segments / window;
        let target_time = now.saturating_sub(epoch.start) + min_rtt;
        let w_cubic = epoch.origin_point + CUBIC_C * (target_time.as_secs_f64() - epoch.k).powi(3);
        let target = w_cubic.clamp(window, MAX_TARGET_RATIO * window);
        (window + (target - window) * (segments / window).min(1.0)).max(epoch.w_est)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    #[test]
    fn window_returns_to_w_max_after_k_seconds() {
        let mut cubic = Cubic::default();
        cubic.on_loss(1000.0);
        let mut window = 1000.0 * BETA;
        // K = cbrt(300 / 0.4) = 9.09 s, 454 rounds of 20 ms.
        let mut at = [0.0; 500];
        for (n, at) in at.iter_mut().enumerate() {
            window = cubic.next_window(window, window, RTT * n as u32, RTT);
            *at = window;
        }
        assert!((930.0..985.0).contains(&at[227]), "{}", at[227]);
        assert!((995.0..1003.0).contains(&at[454]), "{}", at[454]);
        assert!(at[470] - at[440] < 1.0);
    }

    #[test]
    fn second_loss_below_w_max_lowers_it_further() {
        let mut cubic = Cubic::default();
        cubic.on_loss(1000.0);
        cubic.on_loss(800.0);
        assert!((cubic.w_max - 680.0).abs() < 1e-9);
    }

    #[test]
    fn idle_time_causes_no_growth() {
        let mut cubic = Cubic::default();
        cubic.on_loss(1000.0);
        let before = cubic.next_window(700.0, 1.0, RTT, RTT);
        cubic.on_idle(RTT * 1000);
        let after = cubic.next_window(before, 1.0, RTT * 1001, RTT);
        assert!(after - before < 1.0, "{before}, {after}");
    }
}
