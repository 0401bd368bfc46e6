//! Services with held connections, whose new connections start with the mean of their windows.

use crate::connections::{Connection, Connections};
use crate::networks;
use crate::programs::ServiceMap;
use bankfull_control::pacing::DEFAULT_MSS;
use std::collections::BTreeMap;

/// Key of the BPF map. (`struct service` in `bpf/state.h`)
pub(crate) type ServiceKey = [u16; 4];

/// Most first windows in segments. (RFC 6928: senders start with ten)
const MAX_FIRST_SEGMENTS: u64 = 10;

/// Most services that are known at a time. (`max_entries` in `bpf/state.h`)
const MAX_SERVICES: usize = 4096;

/// Services as the BPF program has them.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// First windows in segments.
    known: BTreeMap<ServiceKey, u32>,
}

impl Services {
    /// Remembers the mean window of each service with held connections.
    pub(crate) fn remember(&mut self, connections: &mut Connections, map: &mut ServiceMap) {
        let mut sums: BTreeMap<ServiceKey, (u64, u64)> = BTreeMap::new();
        for (_, followed) in connections.guarded_mut().filter(|(_, one)| one.ordered > 0) {
            let (sum, count) = sums.entry(key(&followed.connection)).or_default();
            (*sum, *count) = (*sum + u64::from(followed.ordered), *count + 1);
        }
        for (key, (sum, count)) in sums {
            let segments = (sum / count.max(1) / DEFAULT_MSS.0).clamp(1, MAX_FIRST_SEGMENTS) as u32;
            if self.known.get(&key) != Some(&segments) {
                self.set(key, segments, map);
            }
        }
    }

    /// Forgets the first windows, as no connection is held any more.
    pub(crate) fn forget(&mut self, map: &mut ServiceMap) {
        for key in std::mem::take(&mut self.known).into_keys() {
            // The map may have evicted the service already.
            let _ = map.remove(&key);
        }
    }

    fn set(&mut self, key: ServiceKey, segments: u32, map: &mut ServiceMap) {
        if self.known.len() >= MAX_SERVICES {
            self.forget(map);
        }
        if map.insert(key, segments, 0).is_ok() {
            self.known.insert(key, segments);
        }
    }
}

/// Returns the key of a connection's service: the server's port, which is the lower one, whether it
/// is that of this host, and the peer's network.
fn key(connection: &Connection) -> ServiceKey {
    let (local, remote) = (connection.local.port(), connection.remote.port());
    let network = networks::number(connection.remote.ip()).to_ne_bytes();
    let half = |at: usize| u16::from_ne_bytes([network[at], network[at + 1]]);
    [local.min(remote), (local < remote).into(), half(0), half(2)]
}
