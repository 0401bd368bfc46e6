//! Parameters of a link.

use super::queue::QueueConfig;
use super::rate::{Policer, RateVariation};
use crate::cross_traffic::CrossTraffic;
use crate::loss::Loss;
use bankfull_control::{Bytes, Rate};
use std::time::Duration;

/// Default of [`LinkConfig::quantum`]: 64 KiB at 1 Gbit/s. (chosen: the largest super-packet at the
/// rate where hosts coalesce that much)
pub const DEFAULT_QUANTUM: Duration = Duration::from_micros(525);

/// Parameters of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Link rate, the highest if it varies; `None`: infinite, so that there is never a queue.
    pub rate: Option<Rate>,
    /// Variation of the rate.
    pub variation: RateVariation,
    /// Times at which the line sends nothing, for a duration each; packets wait in the queue.
    pub silences: Vec<(Duration, Duration)>,
    /// Bytes that leave at once after idle time, as from a token bucket; zero: none.
    pub shaper_burst: Bytes,
    /// Policer in front of the queue.
    pub policer: Option<Policer>,
    /// Queueing discipline.
    pub queue: QueueConfig,
    /// Marks ECN-capable packets where the queueing discipline would drop others (RFC 3168).
    pub ecn: bool,
    /// A later acknowledgement replaces a queued one of its connection; for drop-tail queues.
    pub thins_acks: bool,
    /// Queue capacity, including the packet in transmission. Packets that exceed it are dropped.
    pub buffer: Bytes,
    /// One-way propagation delay behind the queue.
    pub delay: Duration,
    /// Further impairments.
    pub impairments: Impairments,
    /// Loss on the line, behind the queue.
    pub loss: Loss,
    /// Unresponsive cross traffic through the same queue.
    pub cross: CrossTraffic,
    /// Longest transmission time of a run; longer runs are split.
    pub quantum: Duration,
}

impl Default for LinkConfig {
    /// Returns an infinitely fast link without delay and loss.
    fn default() -> Self {
        Self {
            rate: None,
            variation: RateVariation::Constant,
            silences: Vec::new(),
            shaper_burst: Bytes(0),
            policer: None,
            queue: QueueConfig::DropTail,
            ecn: false,
            thins_acks: false,
            buffer: Bytes(u64::MAX),
            delay: Duration::ZERO,
            impairments: Impairments::default(),
            loss: Loss::None,
            cross: CrossTraffic::None,
            quantum: DEFAULT_QUANTUM,
        }
    }
}

impl LinkConfig {
    /// Returns the MTU at a time; `None`: any packet fits.
    #[must_use]
    pub fn mtu_at(&self, now: Duration) -> Option<u32> {
        let changed = self.impairments.mtu_changes.iter().rev().find(|(at, _)| *at <= now);
        changed.map(|&(_, mtu)| mtu)
    }

    /// Returns the propagation delay at a time.
    #[must_use]
    pub fn delay_at(&self, now: Duration) -> Duration {
        let changed = self.impairments.delay_changes.iter().rev().find(|(at, _)| *at <= now);
        changed.map_or(self.delay, |&(_, delay)| delay)
    }
}

/// Impairments of a link other than loss; none by default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Impairments {
    /// Times from which the delay has other values, in ascending order.
    pub delay_changes: Vec<(Duration, Duration)>,
    /// Times from which longer packets are dropped, in ascending order; bytes.
    pub mtu_changes: Vec<(Duration, u32)>,
    /// Random delay behind the queue.
    pub jitter: Option<Jitter>,
    /// Segments that later ones overtake.
    pub reordering: Option<Reordering>,
    /// Share of segments that arrive twice.
    pub duplication: f64,
    /// Interval at which frames of aggregated packets leave; `None`: each packet at once.
    pub aggregation: Option<Duration>,
}

/// Random delay, uniform between zero and its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jitter {
    /// Maximum.
    pub max: Duration,
    /// Time for which a random value holds; zero: each segment has its own.
    pub period: Duration,
    /// Later segments overtake earlier ones.
    pub reorders: bool,
}

/// Segments that are delayed, so that later ones overtake them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reordering {
    /// Share of the segments, 0 to 1.
    pub share: f64,
    /// Additional delay.
    pub delay: Duration,
}
