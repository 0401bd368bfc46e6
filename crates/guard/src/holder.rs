//! Windows of the guarded connections, while several of them receive.

use crate::connections::Connections;
use crate::port::Port;
use crate::slot::{self, Slot};
use bankfull_control::ictcp::{Action, Config, Ictcp, NewConnection, Reason, Sample};
use bankfull_control::{Bytes, Rate};
use bankfull_sys::SharedWords;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time after its last data for which a connection counts as receiving. (minimum RTO of Linux; RFC
/// 5681 §4.1: after a longer pause, a sender starts with its initial window again)
pub(crate) const ACTIVE_TIME: Duration = Duration::from_millis(200);

/// Time for which windows stay held once fewer than two connections receive. (chosen: rounds of
/// requests have pauses)
const RELEASE_DELAY: Duration = Duration::from_secs(1);

/// Longest RTT with a queue, as a multiple of the RTT limit. (chosen: a full queue of 256 kB at
/// 1 Gbit/s is one limit of 2 ms)
const QUEUED_RTTS: u32 = 10;

/// Change of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowChange {
    pub(crate) cookie: u64,
    /// New window; `None` if it was lifted.
    pub(crate) window: Option<Bytes>,
    pub(crate) reason: Option<Reason>,
}

/// Sums over the guarded connections of one tick.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Connections that have received lately.
    pub(crate) active: usize,
    /// Bytes since the last tick.
    pub(crate) received: u64,
    /// Windows of those that have received lately.
    pub(crate) windows: u64,
    /// Segments were lost since the last tick.
    pub(crate) has_losses: bool,
    /// A window was the limit of a connection at its last evaluation.
    pub(crate) is_limited: bool,
}

/// Controller of the guarded connections.
#[derive(Debug)]
pub(crate) struct Holder {
    min_window_segments: u64,
    /// Upper limit of RTT samples: a peer may forge longer ones.
    max_rtt: Duration,
    controller: Option<Ictcp>,
    /// Connections that have joined the controller, with the bytes received before.
    joined: BTreeMap<u64, u64>,
    /// Connections that have received lately, and those that have joined the controller.
    watched: BTreeSet<u64>,
    few_since: Option<Duration>,
}

impl Holder {
    /// Creates a holder of connections whose RTT was at most `max_rtt` at first.
    pub(crate) fn new(min_window_segments: u64, max_rtt: Duration) -> Self {
        Self {
            min_window_segments,
            max_rtt: max_rtt.saturating_mul(QUEUED_RTTS),
            controller: None,
            joined: BTreeMap::new(),
            watched: BTreeSet::new(),
            few_since: None,
        }
    }

    /// True while windows are held.
    pub(crate) fn is_engaged(&self) -> bool {
        self.controller.is_some()
    }

    /// Returns the capacity of the port, as far as it is known.
    pub(crate) fn capacity(&self) -> Option<Rate> {
        self.controller.as_ref().and_then(Ictcp::capacity)
    }

    /// Samples the connections, and returns the changes of their windows.
    ///
    /// `updated` lists the slots with changes; idle connections are not read. With `is_free`, the
    /// guard sets no windows.
    pub(crate) fn tick(
        &mut self,
        now: Duration,
        (slots, updated): (&SharedWords, &[u32]),
        connections: &mut Connections,
        port: &Port,
        is_free: bool,
    ) -> (Totals, Vec<WindowChange>) {
        self.watched.extend(updated.iter().map(|&slot| slot::cookie(slots, slot)));
        let (mut totals, samples) = self.sample(now, slots, connections);
        let mut changes = Vec::new();
        if totals.active >= 2 && !is_free {
            self.few_since = None;
            self.engage(port);
        } else if self.should_release(now) {
            changes = self.release(connections);
        }
        changes.extend(self.control(now, &samples));
        totals.is_limited = self.controller.as_ref().is_some_and(Ictcp::is_window_limited);
        (totals, changes)
    }

    /// Reads the watched connections; those that have become idle are watched no longer.
    fn sample(
        &mut self,
        now: Duration,
        slots: &SharedWords,
        connections: &mut Connections,
    ) -> (Totals, Vec<(u64, Slot)>) {
        let mut totals = Totals::default();
        let mut samples = Vec::new();
        let joined = &self.joined;
        self.watched.retain(|&cookie| {
            let Some(followed) = connections.guarded_one_mut(cookie) else { return false };
            let state = Slot::read(slots, followed.slot);
            if state.cookie != cookie {
                return false;
            }
            let more = state.received.saturating_sub(followed.received);
            if more > 0 {
                followed.received = state.received;
                followed.active_at = Some(now);
            }
            let is_active = followed.active_at.is_some_and(|at| now < at + ACTIVE_TIME);
            totals.active += usize::from(is_active);
            totals.windows += if is_active { u64::from(followed.ordered) } else { 0 };
            totals.received += more;
            let lost = lost_segments(&state);
            totals.has_losses |= lost > followed.lost_segments;
            followed.lost_segments = lost;
            let is_watched = is_active || joined.contains_key(&cookie);
            if is_watched {
                samples.push((cookie, state));
            }
            is_watched
        });
        (totals, samples)
    }

    /// Passes samples to the controller, if there is one, and returns its changes.
    fn control(&mut self, now: Duration, samples: &[(u64, Slot)]) -> Vec<WindowChange> {
        let Some(controller) = &mut self.controller else { return Vec::new() };
        for (cookie, state) in samples {
            self.joined.entry(*cookie).or_insert_with(|| {
                join(controller, now, *cookie, state, self.max_rtt);
                state.received
            });
        }
        let max_rtt = self.max_rtt;
        let samples =
            samples.iter().map(|(id, state)| sample(*id, state, self.joined[id], max_rtt));
        let samples: Vec<Sample> = samples.collect();
        controller.tick(now, &samples);
        controller.poll_actions(now).filter_map(window_change).collect()
    }

    fn engage(&mut self, port: &Port) {
        let config = Config {
            capacity: port.capacity,
            min_window_segments: self.min_window_segments,
            can_clamp_windows: true,
        };
        self.controller.get_or_insert_with(|| Ictcp::new(config));
    }

    fn should_release(&mut self, now: Duration) -> bool {
        self.is_engaged() && now >= *self.few_since.get_or_insert(now) + RELEASE_DELAY
    }

    /// Lifts all windows.
    pub(crate) fn release(&mut self, connections: &mut Connections) -> Vec<WindowChange> {
        self.controller = None;
        self.joined.clear();
        self.few_since = None;
        let held = connections.guarded_mut().filter(|(_, followed)| followed.ordered > 0);
        held.map(|(cookie, _)| WindowChange { cookie, window: None, reason: None }).collect()
    }

    /// Removes a connection that has ended.
    pub(crate) fn close(&mut self, now: Duration, cookie: u64) {
        if self.joined.remove(&cookie).is_some()
            && let Some(controller) = &mut self.controller
        {
            controller.leave(now, cookie);
        }
    }
}

/// Orders the changed windows.
pub(crate) fn apply(slots: &SharedWords, connections: &mut Connections, changes: &[WindowChange]) {
    for change in changes {
        let Some(followed) = connections.get_mut(change.cookie) else { continue };
        let bytes = change.window.map_or(0, |window| u32::try_from(window.0).unwrap_or(u32::MAX));
        followed.ordered = bytes;
        // Another connection may have taken the slot.
        if slot::cookie(slots, followed.slot) != change.cookie {
            continue;
        }
        slot::order(slots, followed.slot, change.cookie, bytes);
    }
}

fn join(controller: &mut Ictcp, now: Duration, cookie: u64, state: &Slot, max_rtt: Duration) {
    let rtt = micros(state.min_rtt_us).map(|rtt| rtt.min(max_rtt));
    let new = NewConnection {
        mss: Bytes(u64::from(state.mss).max(1)),
        rtt,
        offered_window: Bytes(state.window.into()),
        grant_driven: false,
        lost_segments: lost_segments(state),
    };
    controller.join(now, cookie, &new);
}

/// Returns the sample of a connection, with the bytes received before it joined.
fn sample(id: u64, state: &Slot, before: u64, max_rtt: Duration) -> Sample {
    let rtt = micros(state.rtt_us).or(micros(state.min_rtt_us)).map(|rtt| rtt.min(max_rtt));
    let received = Bytes(state.received.saturating_sub(before));
    Sample { id, received, rtt, lost_segments: lost_segments(state) }
}

/// Returns the segments that count as lost: those out of order, as a receiver sees no others.
fn lost_segments(state: &Slot) -> u64 {
    state.out_of_order.into()
}

/// Returns a time that the kernel reports; `None` if it is unknown.
fn micros(us: u32) -> Option<Duration> {
    (us > 0 && us < u32::MAX).then(|| Duration::from_micros(us.into()))
}

fn window_change(action: Action) -> Option<WindowChange> {
    match action {
        Action::SetWindow(cookie, window, reason) => {
            Some(WindowChange { cookie, window: Some(window), reason: Some(reason) })
        }
        // Other programs take neither grants nor rates.
        Action::Grant(..) | Action::SetPacing(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroups::Paths;
    use crate::slot::SLOT_WORDS;
    use std::net::Ipv4Addr;
    use std::path::PathBuf;

    const TICK: Duration = Duration::from_millis(10);

    /// Slots of some connections to this host, with an RTT of 0.1 ms.
    struct Host {
        slots: SharedWords,
        connections: Connections,
        port: Port,
        holder: Holder,
        now: Duration,
    }

    impl Host {
        fn new(count: u32) -> Self {
            let file = bankfull_sys::memory_file(&[0; 1 << 16]).unwrap();
            let slots = SharedWords::map(&file, 1 << 13).unwrap();
            let paths = Paths::new(PathBuf::from("/nonexistent"));
            let connections = Connections::new(paths, Duration::from_millis(2));
            let port = Port::open("lo", Some(Rate::from_bits_per_sec(1e9))).unwrap();
            let mut host = Self {
                slots,
                connections,
                port,
                holder: Holder::new(2, Duration::from_millis(2)),
                now: Duration::ZERO,
            };
            (0..count).for_each(|index| host.open(index));
            host
        }

        fn open(&mut self, index: u32) {
            let cookie = u64::from(index) + 1;
            let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
            self.store(index, 0, cookie);
            self.store(index, 2, u64::from_ne_bytes(pair(0, 100)));
            self.store(index, 3, u64::from_ne_bytes(pair(0, 65_535)));
            self.store(index, 4, u64::from_ne_bytes(pair(0, 1460)));
            self.store(index, 7, u64::from_ne_bytes(pair(1, 0)));
            self.store(index, 9, u64::from_ne_bytes(mapped[8..].try_into().unwrap()));
            let opened = self.connections.open(&self.slots, (index, cookie, 0), &mut self.port);
            assert_eq!(opened.unwrap().standing.name(), "guarded");
        }

        fn store(&self, index: u32, word: usize, value: u64) {
            self.slots.store(index as usize * SLOT_WORDS + word, value);
        }

        /// Lets connections receive so many bytes each in a tick; returns the changes.
        fn tick(&mut self, receiving: std::ops::Range<u32>, bytes: u64) -> Vec<WindowChange> {
            self.now += TICK;
            for index in receiving.clone() {
                let received = self.slots.load(index as usize * SLOT_WORDS + 1) + bytes;
                self.store(index, 1, received);
            }
            let news = (&self.slots, &receiving.collect::<Vec<u32>>()[..]);
            let (_, changes) =
                self.holder.tick(self.now, news, &mut self.connections, &self.port, false);
            apply(&self.slots, &mut self.connections, &changes);
            changes
        }

        /// Returns the window that is ordered; 0: none.
        fn ordered(&self, index: u32) -> u64 {
            self.slots.load(index as usize * SLOT_WORDS + 6) & u64::from(u32::MAX)
        }
    }

    fn pair(low: u32, high: u32) -> [u8; 8] {
        [low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().unwrap()
    }

    #[test]
    fn windows_of_many_fit_the_port() {
        let mut host = Host::new(47);
        for _ in 0..100 {
            host.tick(0..47, 25_000);
        }
        let ordered: Vec<u64> = (0..47).map(|index| host.ordered(index)).collect();
        assert!(ordered.iter().all(|&window| window >= 2 * 1460), "{ordered:?}");
        let sum: u64 = ordered.iter().sum();
        assert!(sum <= 47 * 2 * 1460 + 40_000, "{sum}: {ordered:?}");
    }

    #[test]
    fn single_connection_is_left_alone() {
        let mut host = Host::new(8);
        for _ in 0..100 {
            assert_eq!(host.tick(3..4, 1_000_000), []);
        }
        assert_eq!(host.ordered(3), 0);
    }

    #[test]
    fn windows_are_lifted_once_few_receive() {
        let mut host = Host::new(4);
        (0..20).for_each(|_| drop(host.tick(0..4, 100_000)));
        assert!((0..4).all(|index| host.ordered(index) > 0));
        let mut lifted = Vec::new();
        (0..130).for_each(|_| lifted.extend(host.tick(0..1, 100_000)));
        assert!(lifted.iter().filter(|change| change.window.is_none()).count() >= 4, "{lifted:?}");
        assert!((0..4).all(|index| host.ordered(index) == 0));
    }

    #[test]
    fn ended_connection_gets_no_order() {
        let mut host = Host::new(4);
        (0..20).for_each(|_| drop(host.tick(0..4, 100_000)));
        host.holder.close(host.now, 1);
        host.connections.close(1);
        // Another connection has the slot.
        host.store(0, 0, 99);
        host.store(0, 6, 0);
        (0..20).for_each(|_| drop(host.tick(1..4, 100_000)));
        assert_eq!(host.ordered(0), 0);
    }
}
