//! Connections that the guard follows, and the reasons to leave one alone.

use crate::cgroups::Paths;
use crate::port::Port;
use crate::slot::{self, Endpoints, Slot};
use bankfull_control::Bytes;
use bankfull_sys::SharedWords;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

/// Command name of this program's own processes, whose tuner sets their windows.
const OWN_COMMAND: &str = "bankfull";

/// Reason why a connection is held or left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its window may be set.
    Guarded,
    /// Its peer is not reached through the interface.
    OtherInterface,
    /// Its RTT is long: its bottleneck is elsewhere.
    LongRtt,
    /// This program's own connection, which has a tuner.
    Own,
}

impl Standing {
    /// Returns the stable name used in machine-readable output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Guarded => "guarded",
            Self::OtherInterface => "other-interface",
            Self::LongRtt => "long-rtt",
            Self::Own => "own",
        }
    }
}

/// Connection as it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Number of the socket, unique until the host restarts.
    pub id: u64,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// Address of this host.
    pub local: SocketAddr,
    /// Accepted by this host, or by its guest.
    pub is_passive: bool,
    /// That of a guest: it has no process here.
    pub is_forwarded: bool,
    /// Path of the cgroup below its mount; empty if it is gone.
    pub cgroup: String,
    /// Inode of the network namespace.
    pub netns: u32,
    /// Process that connected or listened; 0 if unknown.
    pub process: u32,
    /// Name of its command; empty if unknown.
    pub command: String,
    /// Min RTT when the connection was last judged; `None` if unknown.
    pub rtt: Option<Duration>,
    /// Reason why it is held or left alone.
    pub standing: Standing,
}

/// Counts of a connection that has ended, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    /// Payload; the end of the peer's stream counts as a byte, as in the kernel.
    pub bytes: Bytes,
    /// Segments received out of order; for a guest, packets received after a gap.
    pub out_of_order: Option<u64>,
    /// Packets sent with a DSACK (RFC 2883), a report of spurious retransmits; `None` for guests.
    pub dsacks: Option<u64>,
}

/// Connection with what changes.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) connection: Connection,
    pub(crate) slot: u32,
    pub(crate) received: u64,
    /// Bytes received until the last report of its rate.
    reported: u64,
    /// Time of the last sample with more bytes.
    pub(crate) active_at: Option<Duration>,
    pub(crate) lost_segments: u64,
    /// Window that was ordered; 0: none.
    pub(crate) ordered: u32,
}

impl Followed {
    /// Returns the bytes received since the last report of the rate.
    pub(crate) fn unreported(&self, received: u64) -> u64 {
        received.saturating_sub(self.reported)
    }

    /// Returns the final counts, from the last state of the slot if that is known.
    pub(crate) fn received_until(&self, last: Option<&Slot>) -> Received {
        let dsacks = last.filter(|_| !self.connection.is_forwarded);
        Received {
            bytes: Bytes(last.map_or(self.received, |last| last.received)),
            out_of_order: last.map(|last| last.out_of_order.into()),
            dsacks: dsacks.map(|last| last.dsacks.into()),
        }
    }

    /// True if its window may be set.
    fn is_guarded(&self) -> bool {
        self.connection.standing == Standing::Guarded
    }
}

/// All connections by socket cookie.
#[derive(Debug)]
pub(crate) struct Connections {
    by_cookie: BTreeMap<u64, Followed>,
    paths: Paths,
    max_rtt: Duration,
}

impl Connections {
    pub(crate) fn new(paths: Paths, max_rtt: Duration) -> Self {
        Self { by_cookie: BTreeMap::new(), paths, max_rtt }
    }

    /// Adds the connection in a slot, which has received `received` bytes so far.
    ///
    /// Returns `None` if the connection is known, or another one has taken the slot meanwhile.
    pub(crate) fn open(
        &mut self,
        slots: &SharedWords,
        (slot, cookie, received): (u32, u64, u64),
        port: &mut Port,
    ) -> Option<&Connection> {
        let state = Slot::read(slots, slot);
        let endpoints = Endpoints::read(slots, slot);
        let is_known = self.by_cookie.get(&cookie).is_some_and(|known| known.slot == slot);
        if state.cookie != cookie || is_known {
            return None;
        }
        let connection = self.describe(&state, &endpoints, port);
        let followed = Followed {
            connection,
            slot,
            received,
            reported: received,
            active_at: None,
            lost_segments: 0,
            ordered: 0,
        };
        self.by_cookie.insert(cookie, followed);
        self.by_cookie.get(&cookie).map(|followed| &followed.connection)
    }

    fn describe(&mut self, state: &Slot, endpoints: &Endpoints, port: &mut Port) -> Connection {
        let command = command_of(endpoints.owner);
        let rtt = min_rtt(state);
        let standing = match () {
            () if endpoints.is_own || command == OWN_COMMAND => Standing::Own,
            () if !port.has_peer(endpoints.remote.ip()) => Standing::OtherInterface,
            () if rtt.is_some_and(|rtt| rtt > self.max_rtt) => Standing::LongRtt,
            () => Standing::Guarded,
        };
        Connection {
            id: state.cookie,
            remote: endpoints.remote,
            local: endpoints.local,
            is_passive: endpoints.is_passive,
            is_forwarded: endpoints.is_forwarded,
            cgroup: self.paths.path(endpoints.cgroup),
            netns: endpoints.netns,
            process: endpoints.owner,
            command,
            rtt,
            standing,
        }
    }

    /// Removes a connection that has ended.
    pub(crate) fn close(&mut self, cookie: u64) -> Option<Followed> {
        self.by_cookie.remove(&cookie)
    }

    /// Returns cookies and slots of forwarded connections without packets since a time.
    pub(crate) fn silent_forwarded(&self, slots: &SharedWords, since_ns: u64) -> Vec<(u64, u32)> {
        let forwarded = self.by_cookie.iter().filter(|(_, one)| one.connection.is_forwarded);
        let all = forwarded.map(|(&cookie, followed)| (cookie, followed.slot));
        all.filter(|&(_, slot)| slot::updated_ns(slots, slot) < since_ns).collect()
    }

    /// Returns the connections that received since the last call, and how many bytes.
    pub(crate) fn take_received(
        &mut self,
        slots: &SharedWords,
    ) -> impl Iterator<Item = (&Connection, u64)> {
        self.by_cookie.iter_mut().filter_map(move |(&cookie, followed)| {
            let state = Slot::read(slots, followed.slot);
            let received = followed.unreported(state.received);
            if state.cookie != cookie || received == 0 {
                return None;
            }
            followed.reported = state.received;
            Some((&followed.connection, received))
        })
    }

    /// Judges connections with a long RTT anew: a queue may have delayed their handshakes.
    ///
    /// Returns the cookies of those that are guarded from now on.
    pub(crate) fn judge_long_anew(&mut self, slots: &SharedWords) -> Vec<u64> {
        let max_rtt = self.max_rtt;
        let long = self
            .by_cookie
            .iter_mut()
            .filter(|(_, followed)| followed.connection.standing == Standing::LongRtt);
        let judged = long.filter_map(|(&cookie, followed)| {
            let state = Slot::read(slots, followed.slot);
            let rtt = min_rtt(&state).filter(|&rtt| state.cookie == cookie && rtt <= max_rtt)?;
            followed.connection.rtt = Some(rtt);
            followed.connection.standing = Standing::Guarded;
            // Bytes received earlier do not count.
            followed.received = state.received;
            followed.lost_segments = state.out_of_order.into();
            slot::order(slots, followed.slot, cookie, 0);
            Some(cookie)
        });
        judged.collect()
    }

    /// Returns the cookies of connections that have left their slots.
    pub(crate) fn vanished(&self, slots: &SharedWords) -> Vec<u64> {
        let followed = self.by_cookie.iter();
        let vanished =
            followed.filter(|(cookie, followed)| slot::cookie(slots, followed.slot) != **cookie);
        vanished.map(|(&cookie, _)| cookie).collect()
    }

    /// Returns slots, cookies and bytes received of connections that are not known.
    pub(crate) fn unknown(&self, slots: &SharedWords, count: u32) -> Vec<(u32, u64, u64)> {
        let used = (0..count).map(|index| (index, slot::cookie(slots, index)));
        used.filter(|(_, cookie)| *cookie != 0 && !self.by_cookie.contains_key(cookie))
            .map(|(index, cookie)| (index, cookie, Slot::read(slots, index).received))
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_cookie.len()
    }

    /// Returns a connection by socket cookie.
    pub(crate) fn get_mut(&mut self, cookie: u64) -> Option<&mut Followed> {
        self.by_cookie.get_mut(&cookie)
    }

    /// Returns a connection by socket cookie if its window may be set.
    pub(crate) fn guarded_one_mut(&mut self, cookie: u64) -> Option<&mut Followed> {
        self.by_cookie.get_mut(&cookie).filter(|followed| followed.is_guarded())
    }

    /// Returns the connections whose windows may be set.
    pub(crate) fn guarded_mut(&mut self) -> impl Iterator<Item = (u64, &mut Followed)> {
        let guarded = self.by_cookie.iter_mut();
        guarded
            .filter(|(_, followed)| followed.is_guarded())
            .map(|(&cookie, followed)| (cookie, followed))
    }
}

/// Returns the smallest RTT so far; `None` if it is unknown.
fn min_rtt(state: &Slot) -> Option<Duration> {
    let is_known = state.min_rtt_us > 0 && state.min_rtt_us < u32::MAX;
    is_known.then(|| Duration::from_micros(state.min_rtt_us.into()))
}

/// Returns the command name of a process; empty if it is unknown or gone.
fn command_of(process: u32) -> String {
    if process == 0 {
        return String::new();
    }
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim_end_matches('\n').to_owned()
}
