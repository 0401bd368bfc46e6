//! Limits of this host, and paths that earlier copies have measured.

use crate::model::path_cache::PathCache;
use crate::tuning::socket_buffers::{BufferSide, SocketBuffers};
use bankfull_control::{Bytes, Rate};
use std::path::Path;
use std::time::Duration;

/// Path that an earlier copy has measured.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RememberedPath {
    /// True if this host was the sender.
    pub is_outgoing: bool,
    /// The other host, with the port of a daemon.
    pub host: String,
    /// Rate that it sustained.
    pub rate: Rate,
    /// Min RTT.
    pub rtt: Duration,
    /// Number of streams, if it is higher than the initial one.
    pub streams: Option<u32>,
}

impl RememberedPath {
    /// A path with a rate and an RTT.
    #[must_use]
    pub fn new(is_outgoing: bool, host: impl Into<String>, rate: Rate, rtt: Duration) -> Self {
        Self { is_outgoing, host: host.into(), rate, rtt, streams: None }
    }

    /// Bandwidth-delay product.
    #[must_use]
    pub fn bdp(&self) -> Bytes {
        Bytes((self.rate.bytes_per_sec() as f64 * self.rtt.as_secs_f64()) as u64)
    }
}

/// Returns the paths measured in the last week, from the state directory of the copies.
#[must_use]
pub fn remembered_paths(state_dir: &Path) -> Vec<RememberedPath> {
    PathCache::all(state_dir)
        .into_iter()
        .filter_map(|(name, metrics)| {
            let (way, host) = name.split_once(' ')?;
            let known = metrics.sustained?;
            let (is_outgoing, streams) = (way == "to", metrics.streams);
            let (host, rate, rtt) = (host.to_owned(), known.rate, known.rtt);
            Some(RememberedPath { is_outgoing, host, rate, rtt, streams })
        })
        .collect()
}

/// Returns the most data that a TCP connection can have in flight: sent, or received.
#[must_use]
pub fn max_inflight(is_outgoing: bool) -> Bytes {
    let side = if is_outgoing { BufferSide::Send } else { BufferSide::Receive };
    SocketBuffers::new(side).max_inflight()
}
