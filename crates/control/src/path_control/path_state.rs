//! Findings of a controller about the path, for the choice of the number of streams.

/// Findings about the path, from the last decision and the latest intervals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathState {
    /// True if losses continue at lower rates: random loss, or a queue of others that overflows.
    pub is_lossy: bool,
    /// True if nothing is limited: the RTT is too short, as on a local network.
    pub is_short: bool,
    /// True if the path holds only a few segments of each stream.
    ///
    /// There are too many streams, or cross traffic leaves too little.
    pub is_oversubscribed: bool,
    /// True if other flows or a varying rate keep a queue despite lower rates.
    pub has_cross_traffic_queue: bool,
    /// True if TCP, to which the path is left, keeps a queue of several RTTs (bufferbloat).
    pub has_long_queue: bool,
    /// True if a queue stands now under BBR, which runs because of a long one.
    pub has_standing_queue: bool,
    /// True if a queue of acknowledgements limits the rate.
    pub is_ack_limited: bool,
}
