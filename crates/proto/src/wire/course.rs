//! How a transfer goes: what the two sides tell each other of the path and of their threads.
//! Nothing in a session depends on it, but for what is asked for ([`Ask`]).

use bankfull_control::StageTimes;
use minicbor::{Decode, Encode};
use std::time::Duration;

/// Stage times as they travel: nanoseconds of reading, computing, network, writing, idle.
#[must_use]
pub fn stage_nanos(times: &StageTimes) -> [u64; 5] {
    let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    [times.read, times.compute, times.network, times.write, times.idle].map(nanos)
}

/// What [`stage_nanos`] was made of.
#[must_use]
pub fn stage_times(nanos: [u64; 5]) -> StageTimes {
    let [read, compute, network, write, idle] = nanos.map(Duration::from_nanos);
    StageTimes { read, compute, network, write, idle }
}

/// What a data connection is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ask {
    /// Number of the data connection.
    #[n(0)]
    pub stream: u32,
    /// So many bytes of payload may be sent on it, counted from its beginning.
    #[n(1)]
    pub bytes: u64,
}

/// The rate of data that the receiver asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Pace {
    /// Bytes per second, of all data connections together; absent: as fast as TCP sends by itself.
    #[n(0)]
    pub bytes_per_sec: Option<u64>,
    /// How many data connections are to carry data from now on; absent: as many as there are.
    #[n(1)]
    pub streams: Option<u32>,
    /// Whether the data connections are to use BBR; otherwise what they began with. Absent: no.
    #[n(2)]
    pub bbr: Option<bool>,
}

/// What the sender sees of its data connections. Counts are from the beginning of the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Sight {
    /// Segments sent again.
    #[n(0)]
    pub retransmits: u64,
    /// How often a connection was looked at.
    #[n(1)]
    pub looks: u64,
    /// How often it had nothing left to send.
    #[n(2)]
    pub idle: u64,
    /// Round trip as TCP smooths it, in microseconds: the least of the connections.
    #[n(3)]
    pub rtt_us: Option<u64>,
    /// The receive windows that were granted, in bytes, of all data connections together.
    #[n(4)]
    pub window: Option<u64>,
    /// What the sender's threads spent their time with, see [`stage_nanos`].
    #[n(5)]
    pub stage_nanos: Option<[u64; 5]>,
    /// Processors that the sender may use.
    #[n(6)]
    pub processors: Option<u32>,
    /// The most data in bytes that a connection can have in flight there.
    #[n(7)]
    pub reach: Option<u64>,
    /// Whether its connections may be asked to use BBR. Absent: no.
    #[n(8)]
    pub bbr: Option<bool>,
    /// For how long its connections have kept processors busy, in nanoseconds.
    #[n(9)]
    pub busy_nanos: Option<u64>,
    /// Segments sent again although they had arrived, as the receiver's TCP has told (DSACK).
    #[n(10)]
    pub needless: Option<u64>,
}

/// What the receiver holds and sees, of all data connections together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Course {
    /// Where its controller stands, in one word.
    #[n(0)]
    pub state: String,
    /// The receive window in bytes that it holds; absent: none.
    #[n(1)]
    pub window: Option<u64>,
    /// The rate in bytes per second that it asks for; absent: none.
    #[n(2)]
    pub bytes_per_sec: Option<u64>,
    /// The round trips that it saw since the last report, in microseconds.
    #[n(3)]
    pub rtts_us: Vec<u32>,
    /// How often it looked at a connection, and how often the receiver's own threads had not come
    /// to read what was there; since the session began.
    #[n(4)]
    pub looks: u64,
    /// See above.
    #[n(5)]
    pub unread: u64,
    /// Why this is held, where that has just been decided.
    #[n(6)]
    pub reason: Option<String>,
    /// What the receiver's threads spent their time with, see [`stage_nanos`].
    #[n(7)]
    pub stage_nanos: Option<[u64; 5]>,
    /// The line's rate of data in bytes per second, as packet trains told it.
    #[n(8)]
    pub capacity: Option<u64>,
    /// How many probes were answered or lost so far, and how many of them were lost.
    #[n(9)]
    pub probes: u64,
    /// See above.
    #[n(10)]
    pub probes_lost: u64,
    /// How many data connections are to carry data, where that has just been decided.
    #[n(11)]
    pub streams: Option<u32>,
    /// The most bytes that had come and waited to be written since the last report, of all that the
    /// receiver's process takes in.
    #[n(12)]
    pub staged: Option<u64>,
    /// How many bytes may wait there.
    #[n(13)]
    pub staging: Option<u64>,
    /// Why, where that has changed since the last report.
    #[n(14)]
    pub staging_reason: Option<String>,
}
