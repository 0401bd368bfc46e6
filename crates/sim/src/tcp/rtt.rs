//! How long a round trip takes, and how long to wait for one (RFC 6298, with Linux's numbers).
//!
//! Only segments that were sent once are measured (Karn's rule); the caller sees to that.

use std::time::Duration;

/// Least variance part of a time-out. RFC 6298 §2.4 asks for 1 s in all; Linux adds at least this
/// to the smoothed RTT (TCP_RTO_MIN, HZ / 5, include/net/tcp.h).
pub const RTO_MIN: Duration = Duration::from_millis(200);

/// Longest time-out (TCP_RTO_MAX, include/net/tcp.h).
pub const RTO_MAX: Duration = Duration::from_secs(120);

/// Time-out before anything was measured (RFC 6298 §2.1).
pub const RTO_INITIAL: Duration = Duration::from_secs(1);

/// Weight of a sample in the smoothed RTT: 1/8 (RFC 6298 §2.3).
const SRTT_SHARE: u32 = 8;

/// Weight of a sample in the variance: 1/4 (RFC 6298 §2.3).
const RTTVAR_SHARE: u32 = 4;

/// How many variances a time-out is above the smoothed RTT (RFC 6298 §2.2, K).
const RTO_VARIANCES: u32 = 4;

/// What a loss probe waits beyond 2 × SRTT when more than one segment is in flight: two ticks of
/// 1 ms (TCP_TIMEOUT_MIN, include/net/tcp.h).
const PROBE_EXTRA: Duration = Duration::from_millis(2);

/// The same when a single segment is in flight, whose acknowledgement may be delayed (RFC 8985
/// §7.2, WCDelAckT; Linux takes TCP_RTO_MIN, tcp_schedule_loss_probe).
const PROBE_EXTRA_SINGLE: Duration = RTO_MIN;

/// Estimates of the round trip.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    variance: Duration,
    latest: Duration,
    min: Option<Duration>,
}

impl Rtt {
    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.latest = rtt;
        self.min = Some(self.min.map_or(rtt, |min| min.min(rtt)));
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.variance = rtt / 2;
            return;
        };
        let error = smoothed.abs_diff(rtt);
        self.variance = self.variance - self.variance / RTTVAR_SHARE + error / RTTVAR_SHARE;
        self.smoothed = Some(smoothed - smoothed / SRTT_SHARE + rtt / SRTT_SHARE);
    }

    /// Smoothed; `None` before the first sample.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The latest sample; zero before the first.
    pub(crate) fn latest(&self) -> Duration {
        self.latest
    }

    /// The least of all samples.
    pub(crate) fn min(&self) -> Option<Duration> {
        self.min
    }

    /// The time-out after `backoff` time-outs in a row.
    pub(crate) fn timeout(&self, backoff: u32) -> Duration {
        let first = self.smoothed.map_or(RTO_INITIAL, |smoothed| {
            smoothed + (self.variance * RTO_VARIANCES).max(RTO_MIN)
        });
        first.saturating_mul(1 << backoff.min(16)).min(RTO_MAX)
    }

    /// When to probe for a lost tail (RFC 8985 §7.2).
    pub(crate) fn probe_timeout(&self, is_single: bool) -> Duration {
        let extra = if is_single { PROBE_EXTRA_SINGLE } else { PROBE_EXTRA };
        self.smoothed.map_or(RTO_INITIAL, |smoothed| 2 * smoothed + extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_steady_path_times_out_200_ms_after_its_round_trip_and_then_backs_off() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(0), RTO_INITIAL);
        (0..100).for_each(|_| rtt.sample(20 * MS));
        assert_eq!(rtt.smoothed(), Some(20 * MS));
        assert_eq!(rtt.timeout(0).as_millis(), 220);
        assert_eq!(rtt.timeout(2).as_millis(), 880);
        assert_eq!(rtt.timeout(60), RTO_MAX);
    }

    #[test]
    fn a_path_that_varies_gets_four_variances() {
        let mut rtt = Rtt::default();
        (0..1000).for_each(|n| rtt.sample(MS * (100 + 200 * (n % 2))));
        // Deviation 100 ms around a mean of 200 ms.
        let timeout = rtt.timeout(0).as_millis();
        assert!((550..680).contains(&timeout), "{timeout}");
        assert_eq!(rtt.min(), Some(100 * MS));
        assert_eq!(rtt.latest(), 300 * MS);
    }

    #[test]
    fn a_probe_waits_longer_for_a_single_segment() {
        let mut rtt = Rtt::default();
        rtt.sample(20 * MS);
        assert_eq!(rtt.probe_timeout(false), 42 * MS);
        assert_eq!(rtt.probe_timeout(true), 240 * MS);
    }
}
