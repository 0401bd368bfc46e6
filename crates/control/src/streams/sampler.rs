//! One sample: the throughput of a number of streams during an interval of the real transfer.

use super::observation::Sample;
use super::observation::{INTERVAL, Observation, interval_for, rate_between, settle_time};
use crate::loss::LossSample;
use crate::units::Bytes;
use std::time::Duration;

/// Returns the time of a sample; slow start before it may take as long.
pub(super) fn sample_time(min_rtt: Duration) -> Duration {
    interval_for(INTERVAL, min_rtt) * 2
}

/// A sample in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampler {
    streams: u32,
    /// Time at which the streams were requested.
    requested_at: Duration,
    /// Time at which the number was reached.
    reached_at: Option<Duration>,
    /// Observation at the start of the measurement.
    counting_from: Option<Observation>,
}

/// Returns the loss between two observations.
pub(super) fn losses(earlier: &Observation, latest: &Observation) -> LossSample {
    let received = Bytes(latest.received.0.saturating_sub(earlier.received.0));
    LossSample::new(latest.retransmits.saturating_sub(earlier.retransmits), received, latest.mss)
}

impl Sampler {
    /// Starts a sample of a number of streams that is requested now.
    pub(super) fn new(streams: u32, now: Duration) -> Self {
        Self { streams, requested_at: now, reached_at: None, counting_from: None }
    }

    /// Starts a sample of streams that have been active for some time.
    pub(super) fn of_current(streams: u32, latest: &Observation) -> Self {
        let counting_from = Some(*latest);
        Self { reached_at: Some(latest.now), counting_from, ..Self::new(streams, latest.now) }
    }

    /// Restarts the measurement, after something else limited the streams.
    pub(super) fn restart(&mut self) {
        self.counting_from = None;
    }

    /// Records an observation; returns the sample and its loss once complete.
    pub(super) fn observe(&mut self, latest: &Observation) -> Option<(Sample, LossSample)> {
        let Observation { now, min_rtt, .. } = *latest;
        let is_ready = latest.active_streams == self.streams
            || now >= self.requested_at + settle_time(min_rtt);
        if self.reached_at.is_none() && is_ready {
            self.reached_at = Some(now);
            // If the number is not reached, the sample is of the active streams.
            self.streams = latest.active_streams.max(1);
        }
        let reached_at = self.reached_at?;
        let Some(from) = self.counting_from else {
            if now >= reached_at + sample_time(min_rtt) {
                self.counting_from = Some(*latest);
            }
            return None;
        };
        if now < from.now + sample_time(min_rtt) {
            return None;
        }
        let sample = Sample { streams: self.streams, rate: rate_between(&from, latest) };
        Some((sample, losses(&from, latest)))
    }
}
