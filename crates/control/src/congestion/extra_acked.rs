//! Data that is in flight because its acknowledgements are aggregated.
//!
//! On the reverse path, in the receiver's thread or on a radio link, acknowledgements accumulate
//! and then arrive in a batch. More than the bandwidth-delay product must be in flight until the
//! next batch. (draft-ietf-ccwg-bbr-05 §5.5.9, BBRUpdateACKAggregation)

use super::rate_sampler::MaxFilter;
use std::time::Duration;

/// Window allowance for aggregated acknowledgements.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExtraAcked {
    /// Start of the current aggregate.
    started: Duration,
    /// Bytes acknowledged since.
    acked: u64,
    /// Bytes acknowledged beyond the estimated bandwidth.
    excess: MaxFilter,
}

impl ExtraAcked {
    /// Returns the allowance in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.excess.get().unwrap_or_default() as u64
    }

    /// Records acknowledged bytes. `bw`: estimated bandwidth, in bytes per second.
    pub(crate) fn on_ack(&mut self, now: Duration, round: u64, bytes: u64, bw: f64, cwnd: u64) {
        let mut expected = bw * now.saturating_sub(self.started).as_secs_f64();
        if self.acked as f64 <= expected {
            (self.started, self.acked, expected) = (now, 0, 0.0);
        }
        self.acked += bytes;
        let excess = (self.acked as f64 - expected).min(cwnd as f64);
        self.excess.update(round, excess, false);
    }

    /// Forgets what was measured before a round.
    pub(crate) fn expire_before(&mut self, round: u64) {
        self.excess.expire_before(round);
    }
}
