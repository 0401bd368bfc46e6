//! How a window grows between losses by CUBIC (RFC 9438), as Linux has it: fast at first, slowly
//! near where something was lost, faster again beyond.
//!
//! It knows neither slow start nor which losses count; whoever uses it has the window.

use std::time::Duration;

/// What is kept of the window after a loss. (RFC 9438 §4.6)
pub const KEPT: f64 = 0.7;

/// How fast it grows, in segments per cubic second. (RFC 9438 §5.1)
const GROWTH: f64 = 0.4;

/// The target is at most this multiple of the window. (RFC 9438 §4.2)
const TARGET_MAX: f64 = 1.5;

/// The state of CUBIC (RFC 9438 §4). Windows are in segments.
#[derive(Debug, Clone, Default)]
pub struct Cubic {
    /// Window before the last reduction, lowered by fast convergence.
    window_max: f64,
    epoch: Option<Epoch>,
}

/// Growth since the last reduction.
#[derive(Debug, Clone)]
struct Epoch {
    began: Duration,
    /// Seconds until the window is at its origin again.
    k: f64,
    origin: f64,
    /// The window that `NewReno` would have.
    reno: f64,
}

impl Cubic {
    /// Something was lost with this window, of which [`KEPT`] is to be kept.
    pub fn on_loss(&mut self, window: f64) {
        self.epoch = None;
        // Fast convergence (RFC 9438 §4.7).
        let is_shrinking = window < self.window_max;
        self.window_max = if is_shrinking { window * (1.0 + KEPT) / 2.0 } else { window };
    }

    /// Idle time is no time to grow in (RFC 9438 §5.8; cubictcp_cwnd_event, tcp_cubic.c).
    pub fn shift(&mut self, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.began += idle;
        }
    }

    /// The window after `segments` more were delivered, `now` since any fixed beginning; `min_rtt`:
    /// the shortest round trip.
    #[must_use]
    pub fn grown(&mut self, window: f64, segments: f64, now: Duration, min_rtt: Duration) -> f64 {
        let window_max = self.window_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            began: now,
            k: ((window_max - window).max(0.0) / GROWTH).cbrt(),
            origin: window_max.max(window),
            reno: window,
        });
        // NewReno's growth with CUBIC's reduction. RFC 9438 §4.3 has the slope of 1 above the last
        // window; Linux does not (bictcp_update, tcp_cubic.c).
        const SLOPE: f64 = 3.0 * (1.0 - KEPT) / (1.0 + KEPT);
        epoch.reno += SLOPE * segments / window;
        let ahead = now.saturating_sub(epoch.began) + min_rtt;
        let curve = epoch.origin + GROWTH * (ahead.as_secs_f64() - epoch.k).powi(3);
        let target = curve.clamp(window, TARGET_MAX * window);
        (window + (target - window) * (segments / window).min(1.0)).max(epoch.reno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    #[test]
    fn it_is_back_where_something_was_lost_after_k_seconds_and_slow_there() {
        let mut cubic = Cubic::default();
        cubic.on_loss(1000.0);
        let mut window = 1000.0 * KEPT;
        // K = cbrt(300 / 0.4) = 9.09 s, 454 rounds of 20 ms.
        let mut at = [0.0; 500];
        for (n, at) in at.iter_mut().enumerate() {
            window = cubic.grown(window, window, RTT * n as u32, RTT);
            *at = window;
        }
        assert!((930.0..985.0).contains(&at[227]), "{}", at[227]);
        assert!((995.0..1003.0).contains(&at[454]), "{}", at[454]);
        assert!(at[470] - at[440] < 1.0);
    }

    #[test]
    fn a_second_loss_below_the_old_maximum_releases_more() {
        let mut cubic = Cubic::default();
        cubic.on_loss(1000.0);
        cubic.on_loss(800.0);
        assert!((cubic.window_max - 680.0).abs() < 1e-9);
    }

    #[test]
    fn idle_time_does_not_count() {
        let mut cubic = Cubic::default();
        cubic.on_loss(1000.0);
        let before = cubic.grown(700.0, 1.0, RTT, RTT);
        cubic.shift(RTT * 1000);
        let after = cubic.grown(before, 1.0, RTT * 1001, RTT);
        assert!(after - before < 1.0, "{before}, {after}");
    }
}
