//! RTT estimation and timeouts (RFC 6298, with the constants of Linux).
//!
//! The caller ensures that retransmitted segments are not measured (Karn's algorithm).

use std::time::Duration;

/// Minimum variance part of a retransmission timeout.
///
/// RFC 6298 §2.4 requires a total of 1 s; Linux adds at least this to the smoothed RTT
/// (TCP_RTO_MIN, HZ / 5, include/net/tcp.h).
pub const RTO_MIN: Duration = Duration::from_millis(200);

/// Maximum retransmission timeout (TCP_RTO_MAX, include/net/tcp.h).
pub const RTO_MAX: Duration = Duration::from_secs(120);

/// Retransmission timeout before the first RTT sample (RFC 6298 §2.1).
pub const RTO_INITIAL: Duration = Duration::from_secs(1);

/// Weight of a sample in the smoothed RTT: 1/8 (RFC 6298 §2.3).
const SRTT_DIVISOR: u32 = 8;

/// Weight of a sample in the variance: 1/4 (RFC 6298 §2.3).
const RTTVAR_DIVISOR: u32 = 4;

/// Factor of the RTT variance in a retransmission timeout (RFC 6298 §2.2, K).
const RTO_RTTVAR_FACTOR: u32 = 4;

/// Margin of a probe timeout above 2 × SRTT with several segments in flight: two ticks of 1 ms
/// (TCP_TIMEOUT_MIN, include/net/tcp.h).
const PROBE_TIMEOUT_MARGIN: Duration = Duration::from_millis(2);

/// Margin of a probe timeout with a single segment in flight. Its acknowledgement may be delayed
/// (RFC 8985 §7.2, WCDelAckT; Linux uses TCP_RTO_MIN, tcp_schedule_loss_probe).
const PROBE_TIMEOUT_MARGIN_SINGLE: Duration = RTO_MIN;

/// RTT estimator.
#[derive(Debug, Clone, Default)]
pub(crate) struct RttEstimator {
    smoothed: Option<Duration>,
    variance: Duration,
    latest: Duration,
    min: Option<Duration>,
}

impl RttEstimator {
    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.latest = rtt;
        self.min = Some(self.min.map_or(rtt, |min| min.min(rtt)));
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.variance = rtt / 2;
            return;
        };
        let error = smoothed.abs_diff(rtt);
        self.variance = self.variance - self.variance / RTTVAR_DIVISOR + error / RTTVAR_DIVISOR;
        self.smoothed = Some(smoothed - smoothed / SRTT_DIVISOR + rtt / SRTT_DIVISOR);
    }

    /// Returns the smoothed RTT; `None` before the first sample.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Returns the latest sample; zero before the first.
    pub(crate) fn latest(&self) -> Duration {
        self.latest
    }

    /// Returns the min RTT.
    pub(crate) fn min(&self) -> Option<Duration> {
        self.min
    }

    /// Returns the retransmission timeout after `backoff` consecutive timeouts.
    pub(crate) fn timeout(&self, backoff: u32) -> Duration {
        let first = self.smoothed.map_or(RTO_INITIAL, |smoothed| {
            smoothed + (self.variance * RTO_RTTVAR_FACTOR).max(RTO_MIN)
        });
        first.saturating_mul(1 << backoff.min(16)).min(RTO_MAX)
    }

    /// Returns the probe timeout for a tail loss (RFC 8985 §7.2).
    pub(crate) fn probe_timeout(&self, is_single: bool) -> Duration {
        let margin = if is_single { PROBE_TIMEOUT_MARGIN_SINGLE } else { PROBE_TIMEOUT_MARGIN };
        self.smoothed.map_or(RTO_INITIAL, |smoothed| 2 * smoothed + margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn timeout_on_steady_path_is_rtt_plus_200_ms() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.timeout(0), RTO_INITIAL);
        (0..100).for_each(|_| rtt.sample(20 * MS));
        assert_eq!(rtt.smoothed(), Some(20 * MS));
        assert_eq!(rtt.timeout(0).as_millis(), 220);
        assert_eq!(rtt.timeout(2).as_millis(), 880);
        assert_eq!(rtt.timeout(60), RTO_MAX);
    }

    #[test]
    fn timeout_on_varying_path_adds_four_variances() {
        let mut rtt = RttEstimator::default();
        (0..1000).for_each(|n| rtt.sample(MS * (100 + 200 * (n % 2))));
        // Deviation 100 ms around a mean of 200 ms.
        let timeout = rtt.timeout(0).as_millis();
        assert!((550..680).contains(&timeout), "{timeout}");
        assert_eq!(rtt.min(), Some(100 * MS));
        assert_eq!(rtt.latest(), 300 * MS);
    }

    #[test]
    fn probe_timeout_is_longer_for_single_segment() {
        let mut rtt = RttEstimator::default();
        rtt.sample(20 * MS);
        assert_eq!(rtt.probe_timeout(false), 42 * MS);
        assert_eq!(rtt.probe_timeout(true), 240 * MS);
    }
}
