//! Detection of cross traffic at the port; the allowed queue then aims at half of the capacity.
//!
//! A flow's share of a full queue is its share of the port. Backing off at each overflow would
//! leave the port to loss-based cross traffic.

use super::capacity::UNDERUSED_FRACTION;
use super::connection::THROUGHPUT_SMOOTHING;
use super::queue::GROWTH_FACTOR;
use super::slots::EVALUATION_SUBSLOTS;
use crate::tcp::CUBIC_BETA;
use crate::units::{Bytes, Rate};

/// Target share of the port beside cross traffic; an overflow below it suggests cross traffic.
/// (chosen: an overflowing port is full, and half is fair)
const TARGET_SHARE: f64 = 0.5;

/// Rate after backing off, relative to before, below which cross traffic is present: halfway
/// between CUBIC's factor, as with cross traffic, and 1, as without.
const CONTENDED_RATE_FRACTION: f64 = (1.0 + CUBIC_BETA) / 2.0;

/// Finding about cross traffic, with the allowed queue that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// Cross traffic is present; the queue from before the test is restored.
    Detected(Bytes),
    /// The queue takes a step towards the target share.
    QueueAdjusted(Bytes),
    /// No cross traffic is present.
    Absent,
    /// Cross traffic has ended.
    Ended,
}

/// Detector of cross traffic.
#[derive(Debug)]
pub(super) struct CrossTraffic {
    /// Known capacity; without it nothing is detected.
    capacity: Option<Rate>,
    /// Smoothed rate in bits per second.
    rate: f64,
    subslot_count: u32,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Alone,
    /// Queue and rate before the overflow, and the rates since.
    Testing {
        queue_before: Bytes,
        rate_before: f64,
        rate_sum: f64,
        subslots: u32,
    },
    /// Subslots since the last step.
    Contended {
        subslots: u32,
    },
}

impl CrossTraffic {
    pub(super) fn new(capacity: Option<Rate>) -> Self {
        Self { capacity, rate: 0.0, subslot_count: 0, state: State::Alone }
    }

    /// Returns the rate as a fraction of the capacity.
    fn share(&self) -> Option<f64> {
        let capacity = self.capacity.filter(|capacity| capacity.bits_per_sec() > 0)?;
        Some(self.rate / capacity.bits_per_sec() as f64)
    }

    /// Records an overflow, with the allowed queue and the rate in the current subslot. Returns
    /// whether to back off.
    pub(super) fn on_overflow(&mut self, queue: Bytes, current_rate: Rate) -> bool {
        if self.subslot_count == 0 {
            self.rate = current_rate.bits_per_sec() as f64;
        }
        match &mut self.state {
            State::Contended { .. } => return false,
            State::Testing { .. } => {}
            State::Alone => {
                if self.share().is_some_and(|share| share < TARGET_SHARE) {
                    self.state = State::Testing {
                        queue_before: queue,
                        rate_before: self.rate,
                        rate_sum: 0.0,
                        subslots: 0,
                    };
                }
            }
        }
        true
    }

    /// Records the rate of a subslot, with the allowed queue. `is_underused`: windows or grants
    /// limited the rate.
    pub(super) fn on_rate(
        &mut self,
        rate: Rate,
        queue: Bytes,
        is_underused: bool,
    ) -> Option<Finding> {
        let rate = rate.bits_per_sec() as f64;
        let weight = if self.subslot_count > 0 { 1.0 - THROUGHPUT_SMOOTHING } else { 1.0 };
        self.subslot_count = self.subslot_count.saturating_add(1);
        self.rate += weight * (rate - self.rate);
        match self.state {
            State::Alone => None,
            State::Testing { queue_before, rate_before, rate_sum, subslots } => {
                self.test(queue_before, rate_before, rate_sum + rate, subslots + 1)
            }
            State::Contended { .. }
                if self.share().is_none_or(|share| share >= UNDERUSED_FRACTION) =>
            {
                self.state = State::Alone;
                Some(Finding::Ended)
            }
            State::Contended { subslots } if subslots + 1 < EVALUATION_SUBSLOTS => {
                self.state = State::Contended { subslots: subslots + 1 };
                None
            }
            State::Contended { .. } => {
                self.state = State::Contended { subslots: 0 };
                self.step(queue, is_underused)
            }
        }
    }

    /// Tests whether backing off has lowered the rate.
    fn test(
        &mut self,
        queue_before: Bytes,
        rate_before: f64,
        rate_sum: f64,
        subslots: u32,
    ) -> Option<Finding> {
        if subslots < EVALUATION_SUBSLOTS {
            self.state = State::Testing { queue_before, rate_before, rate_sum, subslots };
            return None;
        }
        let is_less = rate_sum / f64::from(subslots) < rate_before * CONTENDED_RATE_FRACTION;
        self.state = match is_less {
            true => State::Contended { subslots: 0 },
            false => State::Alone,
        };
        Some(if is_less { Finding::Detected(queue_before) } else { Finding::Absent })
    }

    /// Steps the queue towards the target share.
    fn step(&self, queue: Bytes, is_underused: bool) -> Option<Finding> {
        let share = self.share()?;
        let factor = match () {
            () if share > TARGET_SHARE => 1.0 / GROWTH_FACTOR,
            () if is_underused => GROWTH_FACTOR,
            () => return None,
        };
        Some(Finding::QueueAdjusted(Bytes((queue.0 as f64 * factor) as u64)))
    }

    /// True if cross traffic is known to be present.
    pub(super) fn is_present(&self) -> bool {
        matches!(self.state, State::Contended { .. })
    }
}
