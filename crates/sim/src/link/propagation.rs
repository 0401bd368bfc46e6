//! Propagation behind the queue: delay, jitter, reordering, aggregation.

use super::config::{Impairments, LinkConfig};
use super::time::{Picos, duration, picos};
use fastrand::Rng;

/// Propagation in operation. Times must not decrease.
#[derive(Debug, Clone)]
pub(super) struct Propagation {
    rng: Rng,
    /// Present random delay, and until when it holds.
    jitter: Picos,
    jitter_until: Picos,
    last_arrival: Picos,
}

impl Propagation {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), jitter: 0, jitter_until: 0, last_arrival: 0 }
    }

    /// Returns when a segment arrives whose transmission has ended.
    pub(super) fn arrival(&mut self, config: &LinkConfig, sent: Picos) -> Picos {
        let impairments = &config.impairments;
        let sent = match impairments.aggregation {
            Some(interval) => sent.next_multiple_of(picos(interval).max(1)),
            None => sent,
        };
        let delay = match impairments.delay_changes.is_empty() {
            true => config.delay,
            false => config.delay_at(duration(sent)),
        };
        let arrival = sent + picos(delay);
        let arrival = arrival + self.jitter(impairments, sent);
        if let Some(reordering) = impairments.reordering
            && self.rng.f64() < reordering.share
        {
            return arrival + picos(reordering.delay);
        }
        let Some(jitter) = impairments.jitter else { return arrival };
        if jitter.reorders {
            return arrival;
        }
        self.last_arrival = self.last_arrival.max(arrival);
        self.last_arrival
    }

    /// Returns whether the next segment arrives twice.
    pub(super) fn is_next_duplicated(&mut self, impairments: &Impairments) -> bool {
        impairments.duplication > 0.0 && self.rng.f64() < impairments.duplication
    }

    fn jitter(&mut self, impairments: &Impairments, sent: Picos) -> Picos {
        let Some(jitter) = impairments.jitter else { return 0 };
        if sent >= self.jitter_until {
            self.jitter = (self.rng.f64() * picos(jitter.max) as f64) as Picos;
            self.jitter_until = sent + picos(jitter.period);
        }
        self.jitter
    }
}
