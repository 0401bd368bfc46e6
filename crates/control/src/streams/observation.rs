//! Observations of the stream tuner, and samples of throughput.

use crate::bottleneck::LimitSamples;
use crate::path_control::{PathState, RATE_DEVIATION, State};
use crate::tcp::{MIN_RTT_FILTER_LEN, REPAIR_TIME};
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// RTTs and minimum time of one evaluation: the repair time of a loss. A sample takes twice as
/// long.
pub(super) const INTERVAL: (u32, Duration) = REPAIR_TIME;

/// RTTs and minimum time after which a search ends.
///
/// The rate or the limiting factor must differ for as long before the next search. (chosen: a
/// sample takes 8 RTTs, and as many until its streams have left slow start)
pub(super) const MAX_SEARCH_TIME: (u32, Duration) = (40, MIN_RTT_FILTER_LEN);

/// Throughput of a number of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Number of streams, at least 1.
    pub streams: u32,
    /// Total payload rate of the streams.
    pub rate: Rate,
}

/// State of all streams together. Counters are cumulative.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Time since the start of the transfer.
    pub now: Duration,
    /// Streams that carry data.
    pub active_streams: u32,
    /// Data received.
    pub received: Bytes,
    /// Min RTT.
    pub min_rtt: Duration,
    /// State of the controller of the window.
    pub state: State,
    /// Findings of that controller about the path.
    pub path: PathState,
    /// True if the sender's streams may use BBR.
    pub has_bbr: bool,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Payload of a full segment; zero if unknown.
    pub mss: Bytes,
    /// Capacity of the line, if known, or the user's maximum if that is less.
    pub capacity: Option<Rate>,
    /// Rate limit of the user.
    pub rate_max: Option<Rate>,
    /// Fewest streams whose windows cover the path.
    pub min_streams: u32,
    /// Most data of one stream in flight, as the hosts allow.
    pub max_inflight_bytes: Bytes,
    /// Load of the two hosts.
    pub hosts: HostLoad,
}

/// Load of the sender and of the receiver, in this order. Counters are cumulative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostLoad {
    /// App-limited samples of the sender, and receiver-limited samples.
    pub samples: [LimitSamples; 2],
    /// CPU time of the streams.
    pub busy: [Duration; 2],
    /// CPUs of the side with fewer.
    pub cpus: u32,
}

/// Returns the longer of the time and the number of RTTs.
pub(super) fn interval_for((round_trips, time): (u32, Duration), min_rtt: Duration) -> Duration {
    time.max(min_rtt * round_trips)
}

/// Returns the time in which a change is complete: half of a search.
///
/// A stream ends with its block, which takes long on a slow line; after a change of the rate limit
/// the data in the buffers of both hosts still arrives at another rate.
pub(super) fn settle_time(min_rtt: Duration) -> Duration {
    interval_for(MAX_SEARCH_TIME, min_rtt) / 2
}

/// Returns the rate between two observations.
pub(super) fn rate_between(earlier: &Observation, latest: &Observation) -> Rate {
    let received = Bytes(latest.received.0.saturating_sub(earlier.received.0));
    received.per(latest.now.saturating_sub(earlier.now))
}

/// Returns true if a rate is nearly the capacity; a much higher one refutes the capacity.
pub(super) fn fills_line(rate: Rate, capacity: Option<Rate>) -> bool {
    let share = |line: Rate| rate.bits_per_sec() as f64 / line.bits_per_sec().max(1) as f64;
    capacity.is_some_and(|line| (share(line) - 1.0).abs() < RATE_DEVIATION)
}
