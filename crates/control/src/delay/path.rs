//! Properties of a path and of a transfer over it: samples, capacity, streams, limits.

use super::samples::{MIN_ROUND, Samples, repair_time};
use crate::loss::LossSample;
use crate::pacing;
use crate::path_control::{Observation, RATE_DEVIATION, is_short_path};
use crate::tcp::INITIAL_WINDOW_SEGMENTS;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Smallest window of a stream in segments: with one, the receiver delays its ACK (RFC 5681 §4.2).
const LEAST_WINDOW_SEGMENTS: u64 = 2;

/// Properties of a path and of a transfer over it.
#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) samples: Samples,
    /// Time of the last observation.
    pub(super) now: Duration,
    /// Number of data streams.
    pub(super) streams: u32,
    /// Payload of a full segment.
    pub(super) mss: Bytes,
    /// Random loss of the path, while the streams run a loss-tolerant congestion control.
    pub(super) baseline_loss: Option<LossSample>,
    /// A queue of acknowledgements limited the rate: smaller bursts would need more of them.
    pub(super) is_reverse_path_slow: bool,
    /// Time of the first data.
    pub(super) first_data_at: Option<Duration>,
    /// Capacity reported by packet trains, unless the data was faster.
    pub(super) train_capacity: Option<Rate>,
    /// Capacity in use: lowered by losses; `None` once the transfer has refuted it.
    pub(super) capacity: Option<Rate>,
    /// Rate limit of the user, if any.
    pub(super) rate_max: Option<Rate>,
}

impl Path {
    /// Returns a path without measurements.
    pub(super) fn new(rate_max: Option<Rate>) -> Self {
        Self {
            samples: Samples::default(),
            now: Duration::ZERO,
            streams: 1,
            mss: pacing::DEFAULT_MSS,
            baseline_loss: None,
            is_reverse_path_slow: false,
            first_data_at: None,
            train_capacity: None,
            capacity: None,
            rate_max,
        }
    }

    /// Records an observation.
    pub(super) fn record(&mut self, latest: &Observation) {
        self.samples.record(latest);
        self.now = latest.now;
        self.streams = latest.streams.max(1);
        if latest.mss > Bytes(0) {
            self.mss = latest.mss;
        }
        if self.first_data_at.is_none() && latest.received > Bytes(0) {
            self.first_data_at = Some(latest.now);
        }
        if let Some(line) = self.train_capacity
            && refutes(self.samples.rate_over(repair_time(self.samples.rtt())), line)
        {
            (self.train_capacity, self.capacity) = (None, None);
        }
    }

    /// Records the capacity that packet trains measured.
    ///
    /// Ignored if the data is faster: behind a fair scheduler, a train among data measures the
    /// share of one flow.
    pub(super) fn on_train_capacity(&mut self, line: Rate) {
        if !refutes(self.samples.rate_over(self.samples.rtt().max(MIN_ROUND)), line) {
            (self.train_capacity, self.capacity) = (Some(line), Some(line));
        }
    }

    /// Returns true if the pacing rate alone limits the streams.
    ///
    /// Under a loss-tolerant congestion control, data after a lost segment needs buffer until the
    /// repair.
    pub(super) fn is_paced_alone(&self) -> bool {
        self.baseline_loss.is_some() && !self.is_reverse_path_slow
    }

    /// Returns the RTT without queueing delay in the direction of the data.
    pub(super) fn rtt(&self) -> Duration {
        self.samples.unqueued_rtt().max(self.samples.min_rtt())
    }

    /// Returns true if the RTT is too short to distinguish a queue from host delays.
    pub(super) fn is_short(&self) -> bool {
        is_short_path(self.samples.min_rtt())
    }

    /// Returns true if losses may be those of the start.
    pub(super) fn is_starting(&self, now: Duration) -> bool {
        self.first_data_at.is_none_or(|began| now < began + repair_time(self.rtt()) * 2)
    }

    /// Returns true if TCP may repair what an outage lost.
    pub(super) fn is_repairing_outage(&self, now: Duration) -> bool {
        self.samples.outages.ended_at().is_some_and(|at| now < at + repair_time(self.rtt()))
    }

    /// Returns the capacity of the line, unless it was refuted: others may have a part of it.
    pub(super) fn line(&self) -> Option<Rate> {
        self.train_capacity.filter(|_| self.capacity.is_some())
    }

    /// Returns true if a rate is below the capacity.
    pub(super) fn is_below_line(&self, rate: Rate) -> bool {
        self.capacity.is_some_and(|line| rate < line)
    }

    /// Returns true if other flows must fill the line: a rate is below half of its capacity.
    pub(super) fn is_minor_share(&self, rate: Rate) -> bool {
        self.train_capacity.is_some_and(|line| rate < scaled(line, 0.5))
    }

    /// Returns the bytes of all streams together with `each` segments per stream.
    pub(super) fn segments(&self, each: f64) -> f64 {
        each * (self.mss.0 * u64::from(self.streams)) as f64
    }

    /// Returns the initial windows of all streams together, in bytes.
    pub(super) fn initial_windows(&self) -> f64 {
        self.segments(INITIAL_WINDOW_SEGMENTS as f64)
    }

    /// Returns the smallest windows of all streams together, in bytes.
    pub(super) fn least_window(&self) -> f64 {
        self.segments(LEAST_WINDOW_SEGMENTS as f64)
    }

    /// Returns true if losses do not exceed the random loss of the path.
    pub(super) fn is_baseline_loss(&self, retransmits: u64, data: f64) -> bool {
        let sample = LossSample::new(retransmits, Bytes(data as u64), self.mss);
        self.baseline_loss.is_some_and(|baseline| !sample.exceeds(baseline))
    }
}

/// Returns true if a rate exceeds a capacity by more than the error of both.
fn refutes(rate: Rate, line: Rate) -> bool {
    rate > scaled(line, 1.0 + RATE_DEVIATION)
}

/// Returns the amount of data at a rate over a time, in bytes.
pub(super) fn bytes_at(rate: Rate, time: Duration) -> f64 {
    rate.bits_per_sec() as f64 / 8.0 * time.as_secs_f64()
}

/// Returns the rate of an amount of data in a time.
pub(super) fn rate_of(bytes: f64, time: Duration) -> Rate {
    Rate::from_bits_per_sec(bytes * 8.0 / time.as_secs_f64().max(f64::MIN_POSITIVE))
}

/// Returns a multiple of a rate.
pub(super) fn scaled(rate: Rate, factor: f64) -> Rate {
    Rate::from_bits_per_sec(rate.bits_per_sec() as f64 * factor)
}

/// Returns the quotient of two rates.
pub(super) fn ratio(rate: Rate, base: Rate) -> f64 {
    rate.bits_per_sec() as f64 / (base.bits_per_sec() as f64).max(1.0)
}
