//! Choice of the connection that makes room among those that have not authenticated.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Age up to which a stranger keeps its place against later ones of its network.
///
/// A crowd of clients thus makes progress. (chosen: three round trips of 300 ms, and the CPU)
pub(crate) const GREETING_GRACE: Duration = Duration::from_secs(2);

/// A stranger: a connection that has not authenticated.
pub(crate) struct Stranger<K> {
    pub(crate) key: K,
    /// Its address, or its /64 network for IPv6.
    pub(crate) network: IpAddr,
    /// Time of its arrival.
    pub(crate) since: Instant,
}

/// Returns the stranger to close if there are more than `max`.
///
/// `strangers` is in order of arrival. The network with the most strangers loses its oldest one, or
/// its newest while the oldest is younger than [`GREETING_GRACE`]. A crowd from one network thus
/// closes only its own connections.
pub(crate) fn excess<K: Copy>(strangers: &[Stranger<K>], max: usize) -> Option<K> {
    if strangers.len() <= max {
        return None;
    }
    // Of each network: the number of strangers, the oldest and the newest of them.
    let mut networks: HashMap<IpAddr, (usize, usize, usize)> = HashMap::new();
    for (at, stranger) in strangers.iter().enumerate() {
        let (count, _, newest) = networks.entry(stranger.network).or_insert((0, at, at));
        *count += 1;
        *newest = at;
    }
    let largest = networks.into_values().max_by_key(|&(count, oldest, _)| (count, Reverse(oldest)));
    let (_, oldest, newest) = largest?;
    let is_young = strangers[oldest].since.elapsed() < GREETING_GRACE;
    Some(strangers[if is_young { newest } else { oldest }].key)
}
