//! Rate limit of log lines per peer address. It bounds how fast a peer fills the log.
//!
//! Each address has a token bucket; an IPv6 network of 64 bits counts as one address. Peers that
//! have not authenticated share another bucket, since one host may have many addresses.

use super::sync::lock;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Size and rate of the bucket of an address. (chosen: a script that starts ten copies a second)
const PEER_LINES: BucketSize = BucketSize { burst: 100.0, per_sec: 10.0 };

/// Size and rate of the bucket that all unauthenticated peers share. (chosen: 35 MiB a day)
const UNAUTHENTICATED_LINES: BucketSize = BucketSize { burst: 200.0, per_sec: 2.0 };

/// Maximum number of addresses with a bucket of their own. (chosen: 100 KiB)
const MAX_PEERS: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct BucketSize {
    /// Lines that a full bucket allows.
    burst: f64,
    per_sec: f64,
}

/// Token bucket with the number of lines that it refused.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    updated: Instant,
    left_out: u64,
}

impl Bucket {
    fn new(size: BucketSize, now: Instant) -> Self {
        Self { tokens: size.burst, updated: now, left_out: 0 }
    }

    /// Takes a token, if there is one. Returns the number of lines left out before it.
    fn take(&mut self, size: BucketSize, now: Instant) -> Option<u64> {
        let elapsed = now.saturating_duration_since(self.updated);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * size.per_sec).min(size.burst);
        self.updated = now;
        if self.tokens < 1.0 {
            self.left_out += 1;
            return None;
        }
        self.tokens -= 1.0;
        Some(std::mem::take(&mut self.left_out))
    }

    /// True if the bucket is full again, so that a new one does the same.
    fn is_idle(&self, size: BucketSize, now: Instant) -> bool {
        let refill = Duration::from_secs_f64((size.burst - self.tokens) / size.per_sec);
        self.left_out == 0 && now.saturating_duration_since(self.updated) >= refill
    }
}

/// Buckets of all peers of a daemon.
#[derive(Debug)]
pub(crate) struct LogLimiter(Mutex<Buckets>);

#[derive(Debug)]
struct Buckets {
    peers: HashMap<IpAddr, Bucket>,
    unauthenticated: Bucket,
}

/// Lines that were left out before one that is allowed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Lines about this address.
    pub(crate) peer: u64,
    /// Lines about unauthenticated peers.
    pub(crate) unauthenticated: u64,
}

impl LogLimiter {
    pub(crate) fn new() -> Self {
        let unauthenticated = Bucket::new(UNAUTHENTICATED_LINES, Instant::now());
        Self(Mutex::new(Buckets { peers: HashMap::new(), unauthenticated }))
    }

    /// Allows one more line about a peer, and returns the number left out before.
    ///
    /// `None` if the line is to be left out.
    pub(crate) fn admit(&self, peer: IpAddr, is_authenticated: bool) -> Option<LeftOut> {
        lock(&self.0).admit(network(peer), is_authenticated, Instant::now())
    }
}

impl Buckets {
    fn admit(&mut self, peer: IpAddr, is_authenticated: bool, now: Instant) -> Option<LeftOut> {
        self.make_room(peer, now);
        let bucket = self.peers.entry(peer).or_insert_with(|| Bucket::new(PEER_LINES, now));
        let peer = bucket.take(PEER_LINES, now)?;
        if is_authenticated {
            return Some(LeftOut { peer, unauthenticated: 0 });
        }
        let unauthenticated = self.unauthenticated.take(UNAUTHENTICATED_LINES, now);
        if unauthenticated.is_none() {
            bucket.left_out = peer;
        }
        Some(LeftOut { peer, unauthenticated: unauthenticated? })
    }

    /// Removes the idle buckets if there are too many, else the one unused for longest.
    fn make_room(&mut self, peer: IpAddr, now: Instant) {
        if self.peers.len() < MAX_PEERS || self.peers.contains_key(&peer) {
            return;
        }
        self.peers.retain(|_, bucket| !bucket.is_idle(PEER_LINES, now));
        if self.peers.len() >= MAX_PEERS {
            let oldest = self.peers.iter().min_by_key(|(_, bucket)| bucket.updated);
            if let Some(oldest) = oldest.map(|(peer, _)| *peer) {
                self.peers.remove(&oldest);
            }
        }
    }
}

/// Returns the address that represents a peer: its /64 network for IPv6.
///
/// Hosts choose the lower 64 bits. (RFC 4291 §2.5.4)
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(now: Instant) -> Buckets {
        Buckets { peers: HashMap::new(), unauthenticated: Bucket::new(UNAUTHENTICATED_LINES, now) }
    }

    fn v4(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(n).into()
    }

    #[test]
    fn peer_beyond_its_rate_is_left_out_and_counted() {
        let now = Instant::now();
        let mut buckets = buckets(now);
        let admitted = (0..150).filter(|_| buckets.admit(v4(1), true, now).is_some()).count();
        assert_eq!(admitted, 100);
        assert!(buckets.admit(v4(2), true, now).is_some(), "another peer has its own bucket");
        let later = now + Duration::from_secs(1);
        let left_out = LeftOut { peer: 50, unauthenticated: 0 };
        assert_eq!(buckets.admit(v4(1), true, later), Some(left_out));
        assert_eq!(buckets.admit(v4(1), true, later), Some(LeftOut::default()));
    }

    #[test]
    fn unauthenticated_peers_share_a_bucket() {
        let now = Instant::now();
        let mut buckets = buckets(now);
        let admitted = (0..9000).filter(|&n| buckets.admit(v4(n), false, now).is_some()).count();
        assert_eq!(admitted, 200);
        assert!(buckets.admit(v4(9999), true, now).is_some(), "clients are still logged");
        let later = now + Duration::from_secs(1);
        let next = buckets.admit(v4(1), false, later).unwrap();
        assert_eq!(next.unauthenticated, 8800);
    }

    #[test]
    fn number_of_buckets_is_bounded() {
        let now = Instant::now();
        let mut buckets = buckets(now);
        for n in 0..5000 {
            buckets.admit(v4(n), true, now + Duration::from_millis(n.into()));
        }
        assert!(buckets.peers.len() <= MAX_PEERS);
        let newest = v4(4999);
        assert!(buckets.peers.contains_key(&newest));
    }

    #[test]
    fn ipv6_network_counts_as_one_peer() {
        let parsed = |text: &str| network(text.parse().unwrap());
        assert_eq!(parsed("2001:db8::1"), parsed("2001:db8::ffff:1"));
        assert_ne!(parsed("2001:db8::1"), parsed("2001:db8:0:1::1"));
        assert_eq!(parsed("::ffff:10.0.0.1"), parsed("10.0.0.1"));
    }
}
