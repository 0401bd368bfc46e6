//! Cross traffic at the port: detects it, and sets the allowed queue for half of the capacity.
//!
//! A flow's share of a full queue is its share of the port. Backing off at each overflow would
//! leave the port to loss-based cross traffic.

use crate::units::{Bytes, Rate};

/// Target share of the port beside cross traffic; an overflow below it suggests cross traffic.
/// (chosen: an overflowing port is full, and half is fair)
const TARGET_SHARE: f64 = 0.5;

/// Share above which the queue shrinks again. (chosen: the target and its error)
const MAX_SHARE: f64 = 0.6;

/// Share at which cross traffic has ended. (chosen)
const NO_CROSS_TRAFFIC_SHARE: f64 = 0.8;

/// Subslots without an overflow after which cross traffic has ended. (chosen: 1 s at least)
const NO_OVERFLOW_SUBSLOTS: u32 = 100;

/// Rate after backing off to 0.7, relative to before, below which cross traffic is present.
/// (chosen: between 0.7 with cross traffic and 1 without)
const CONTENDED_RATE_FRACTION: f64 = 0.87;

/// Subslots of that test. (chosen: as many as a trial of a longer queue)
const TEST_SUBSLOTS: u32 = 8;

/// Factor of a step of the queue. (chosen)
const QUEUE_STEP_FACTOR: f64 = 1.25;

/// Subslots between two steps. (chosen)
const QUEUE_STEP_SUBSLOTS: u32 = 3;

/// Queue growth after which the rate gain is checked. (chosen)
const GROWTH_CHECK_FACTOR: f64 = 2.0;

/// Rate gain below which that growth shows no cross traffic. (chosen: less than proportional, as
/// cross traffic backs off slowly)
const MIN_GROWTH_GAIN: f64 = 1.2;

/// Weight of a subslot in the smoothed rate. (chosen: windows of cross traffic oscillate)
const RATE_SMOOTHING_WEIGHT: f64 = 0.25;

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
    /// Queue and rate at the last check, and subslots since the last overflow and step.
    Contended {
        queue_before: Bytes,
        rate_before: f64,
        subslots_without_overflow: u32,
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
            State::Contended { subslots_without_overflow, .. } => {
                *subslots_without_overflow = 0;
                return false;
            }
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
        let weight = if self.subslot_count > 0 { RATE_SMOOTHING_WEIGHT } else { 1.0 };
        self.subslot_count = self.subslot_count.saturating_add(1);
        self.rate += weight * (rate - self.rate);
        match self.state {
            State::Alone => None,
            State::Testing { queue_before, rate_before, rate_sum, subslots } => {
                self.test(queue_before, rate_before, rate_sum + rate, subslots + 1)
            }
            State::Contended { queue_before, rate_before, subslots_without_overflow, subslots } => {
                let is_over = subslots_without_overflow >= NO_OVERFLOW_SUBSLOTS
                    || self.share().is_none_or(|share| share >= NO_CROSS_TRAFFIC_SHARE);
                if is_over {
                    self.state = State::Alone;
                    return Some(Finding::Ended);
                }
                let (subslots_without_overflow, subslots) =
                    (subslots_without_overflow + 1, subslots + 1);
                self.state = State::Contended {
                    queue_before,
                    rate_before,
                    subslots_without_overflow,
                    subslots,
                };
                if subslots < QUEUE_STEP_SUBSLOTS { None } else { self.step(queue, is_underused) }
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
        if subslots < TEST_SUBSLOTS {
            self.state = State::Testing { queue_before, rate_before, rate_sum, subslots };
            return None;
        }
        let is_less = rate_sum / f64::from(subslots) < rate_before * CONTENDED_RATE_FRACTION;
        self.state = match is_less {
            true => State::Contended {
                queue_before,
                rate_before,
                subslots_without_overflow: 0,
                subslots: 0,
            },
            false => State::Alone,
        };
        Some(if is_less { Finding::Detected(queue_before) } else { Finding::Absent })
    }

    /// Steps the queue towards the target share.
    fn step(&mut self, queue: Bytes, is_underused: bool) -> Option<Finding> {
        let State::Contended { queue_before, rate_before, subslots_without_overflow, .. } =
            self.state
        else {
            return None;
        };
        let has_grown = queue.0 as f64 >= queue_before.0 as f64 * GROWTH_CHECK_FACTOR;
        if has_grown && self.rate < rate_before * MIN_GROWTH_GAIN {
            self.state = State::Alone;
            return Some(Finding::Absent);
        }
        let (queue_before, rate_before) =
            if has_grown { (queue, self.rate) } else { (queue_before, rate_before) };
        self.state =
            State::Contended { queue_before, rate_before, subslots_without_overflow, subslots: 0 };
        let share = self.share()?;
        let factor = match () {
            () if share > MAX_SHARE => 1.0 / QUEUE_STEP_FACTOR,
            () if share < TARGET_SHARE && is_underused => QUEUE_STEP_FACTOR,
            () => return None,
        };
        Some(Finding::QueueAdjusted(Bytes((queue.0 as f64 * factor) as u64)))
    }

    /// True if cross traffic is known to be present.
    pub(super) fn is_present(&self) -> bool {
        matches!(self.state, State::Contended { .. })
    }
}
