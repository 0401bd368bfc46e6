//! Feedback between the two sides: reports, rate requests, credit, stage times.
//!
//! Only [`Credit`] affects which data is sent; a session completes without all other feedback.

use crate::error::WireError;
use crate::limits::{MAX_REPORT_RTTS, MAX_TEXT_BYTES};
use crate::wire::bounds::at_most;
use bankfull_control::StageTimes;
use minicbor::{Decode, Encode};
use std::time::Duration;

/// Returns stage times as sent: nanoseconds of read, compute, network, write, idle.
#[must_use]
pub fn stage_nanos(times: &StageTimes) -> [u64; 5] {
    let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    [times.read, times.compute, times.network, times.write, times.idle].map(nanos)
}

/// Returns the stage times of a received [`stage_nanos`] array.
#[must_use]
pub fn stage_times(nanos: [u64; 5]) -> StageTimes {
    let [read, compute, network, write, idle] = nanos.map(Duration::from_nanos);
    StageTimes { read, compute, network, write, idle }
}

/// Byte offset up to which a data stream may send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Credit {
    /// Number of the data stream.
    #[n(0)]
    pub stream: u32,
    /// Payload bytes that may be sent on it, counted from its start.
    #[n(1)]
    pub bytes: u64,
}

/// Rate, stream count and congestion control that the receiver requests (like RTCP TMMBR).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RateRequest {
    /// Rate of all data streams together in bytes per second; absent: not limited.
    #[n(0)]
    pub bytes_per_sec: Option<u64>,
    /// Number of data streams that carry data; absent: all.
    #[n(1)]
    pub streams: Option<u32>,
    /// True to use BBR instead of the initial congestion control; absent: no.
    #[n(2)]
    pub use_bbr: Option<bool>,
}

/// Rate limit that the user has set for the time from now on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RateLimit {
    /// Maximum data rate of all data streams together, in bytes per second; absent: no limit.
    #[n(0)]
    pub bytes_per_sec: Option<u64>,
}

/// Periodic statistics of the sender (like RTCP SR). Counts start with the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SenderReport {
    /// Retransmitted segments.
    #[n(0)]
    pub retransmits: u64,
    /// Samples of data streams.
    #[n(1)]
    pub samples: u64,
    /// App-limited samples: no unsent data.
    #[n(2)]
    pub app_limited: u64,
    /// Smoothed RTT of TCP in microseconds, the minimum over the data streams.
    #[n(3)]
    pub rtt_us: Option<u64>,
    /// Receive windows granted by the peer, the sum over the data streams in bytes.
    #[n(4)]
    pub window: Option<u64>,
    /// Stage times of the sender, see [`stage_nanos`].
    #[n(5)]
    pub stage_nanos: Option<[u64; 5]>,
    /// CPUs available to the sender.
    #[n(6)]
    pub cpus: Option<u32>,
    /// Maximum bytes in flight on one data stream.
    #[n(7)]
    pub max_inflight_bytes: Option<u64>,
    /// True if the data streams can use BBR; absent: no.
    #[n(8)]
    pub bbr_available: Option<bool>,
    /// CPU time of the data streams in nanoseconds.
    #[n(9)]
    pub cpu_nanos: Option<u64>,
    /// Spurious retransmits, from DSACK (RFC 2883).
    #[n(10)]
    pub spurious_retransmits: Option<u64>,
}

/// Periodic state and measurements of the receiver (like RTCP RR), over all data streams.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ReceiverReport {
    /// State of the controller, one word; empty without a controller.
    #[n(0)]
    pub state: String,
    /// Receive window in bytes; absent: not limited.
    #[n(1)]
    pub window: Option<u64>,
    /// Requested rate in bytes per second; absent: not limited.
    #[n(2)]
    pub bytes_per_sec: Option<u64>,
    /// RTT samples since the last report, in microseconds.
    #[n(3)]
    pub rtts_us: Vec<u32>,
    /// Samples of data streams since the session began.
    #[n(4)]
    pub samples: u64,
    /// Receiver-limited samples since the session began: received data that was not read yet.
    #[n(5)]
    pub receiver_limited: u64,
    /// Reason of a decision since the last report.
    #[n(6)]
    pub reason: Option<String>,
    /// Stage times of the receiver, see [`stage_nanos`].
    #[n(7)]
    pub stage_nanos: Option<[u64; 5]>,
    /// Capacity of the path in bytes per second, from packet trains.
    #[n(8)]
    pub capacity: Option<u64>,
    /// Probes that were answered or lost.
    #[n(9)]
    pub probes: u64,
    /// Probes that were lost.
    #[n(10)]
    pub probes_lost: u64,
    /// Number of data streams that carry data, if it was just decided.
    #[n(11)]
    pub streams: Option<u32>,
    /// Buffered peak since the last report in bytes, over all sessions of the receiver's process.
    #[n(12)]
    pub buffered_peak: Option<u64>,
    /// Buffer limit in bytes.
    #[n(13)]
    pub buffer_limit: Option<u64>,
    /// Reason of a change of the buffer limit since the last report.
    #[n(14)]
    pub buffer_reason: Option<String>,
    /// Controller that made the decision: 0 window and rate, 1 streams, 2 shared interface,
    /// 3 window and rate by delay.
    #[n(15)]
    pub controller: Option<u32>,
}

impl ReceiverReport {
    pub(super) fn check(&self) -> Result<(), WireError> {
        at_most("the name of a state", self.state.len(), MAX_TEXT_BYTES)?;
        at_most("the RTT samples of a report", self.rtts_us.len(), MAX_REPORT_RTTS)?;
        [&self.reason, &self.buffer_reason]
            .into_iter()
            .flatten()
            .try_for_each(|reason| at_most("a reason", reason.len(), MAX_TEXT_BYTES))
    }
}

/// Totals of one side at the end of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SideSummary {
    /// Stage times, see [`stage_nanos`].
    #[n(0)]
    pub stage_nanos: [u64; 5],
    /// Segments retransmitted on the data streams of this side.
    #[n(1)]
    pub retransmits: u64,
    /// Files that failed on this side.
    #[n(2)]
    pub failed: u64,
    /// Entries that the receiver created without content; absent from the sender.
    #[n(3)]
    pub created: Option<Created>,
}

/// Entries without content that a receiver created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Created {
    /// Directories.
    #[n(0)]
    pub dirs: u64,
    /// Further names of entries.
    #[n(1)]
    pub hard_links: u64,
    /// Sockets, devices and FIFOs.
    #[n(2)]
    pub special_files: u64,
    /// Files that became hard links to earlier copies.
    #[n(3)]
    pub linked_files: u64,
    /// Bytes in those files.
    #[n(4)]
    pub linked_bytes: u64,
}

impl SideSummary {
    /// Creates a summary.
    #[must_use]
    pub fn new(times: &StageTimes, retransmits: u64, failed: u64) -> Self {
        Self { stage_nanos: stage_nanos(times), retransmits, failed, created: None }
    }

    /// Returns the stage times.
    #[must_use]
    pub fn times(&self) -> StageTimes {
        stage_times(self.stage_nanos)
    }
}
