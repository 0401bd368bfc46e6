//! ICTCP: receiver-side congestion control for many senders into one switch port.
//!
//! The receiver sets the windows of all senders so that together they fill the port without
//! overflowing it (Wu, Feng, Guo, Zhang, *ICTCP: Incast Congestion Control for TCP in Data-Center
//! Networks*, IEEE/ACM Transactions on Networking 21(2), 2013).
//!
//! Parts: available bandwidth and global slots (`capacity`, `slots`), the window rules of a
//! connection (`connection`), grants (`grants`), the port's queue (`queue`), cross traffic
//! (`cross_traffic`), reasons (`reason`), and [`Ictcp`], which joins them.
//!
//! Beyond the paper: initial windows follow from the capacity and the number of senders; senders
//! beyond the active limit wait for grants; losses and queues elsewhere on the path count.
//! `docs/algorithms/ictcp.md` explains why.
//!
//! Out of scope: sockets and clocks. The caller reports what arrives and carries out the
//! [`Action`]s.

mod active_time;
mod capacity;
mod connection;
mod cross_traffic;
mod grants;
mod ledger;
mod path_samples;
mod queue;
mod reason;
mod slots;
#[cfg(test)]
mod tests;

pub use queue::INITIAL_QUEUE;
pub use reason::Reason;

#[cfg(test)]
use crate::pacing::DEFAULT_MSS;
use crate::tcp::{CUBIC_BETA, FAST_RETRANSMIT_SEGMENTS};
use crate::units::{Bytes, Rate};
use active_time::ActiveTime;
use capacity::Capacity;
use connection::{Connection, PACING_RATIO, WindowDecision};
use cross_traffic::{CrossTraffic, Finding};
use grants::Share;
use queue::Queue;
use slots::{Slots, Subslot};
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Identifier of a data connection.
pub type ConnectionId = u64;

/// Properties of the port and its senders.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Capacity of the port in payload; `None` if it must be measured.
    pub capacity: Option<Rate>,
    /// Minimum window in segments: 2, or 1 by choice. (paper, §VII-A)
    pub min_window_segments: u64,
    /// True if windows of running connections can change; otherwise only grants and pacing limit
    /// them.
    pub can_clamp_windows: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { capacity: None, min_window_segments: 2, can_clamp_windows: true }
    }
}

/// Properties of a connection that joins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NewConnection {
    /// Payload of a full segment.
    pub mss: Bytes,
    /// RTT, if known.
    pub rtt: Option<Duration>,
    /// Window already offered to the sender, which cannot be withdrawn.
    pub offered_window: Bytes,
    /// The sender sends only what it was granted.
    pub grant_driven: bool,
    /// Segments known to be lost so far.
    pub lost_segments: u64,
}

/// Sample of a connection at a tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Sampled connection.
    pub id: ConnectionId,
    /// Bytes received since it joined.
    pub received: Bytes,
    /// Current RTT, if reported.
    pub rtt: Option<Duration>,
    /// Segments known to be lost so far.
    pub lost_segments: u64,
}

/// Action to carry out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Grant more bytes to the sender.
    Grant(ConnectionId, Bytes),
    /// Set the receive window.
    SetWindow(ConnectionId, Bytes, Reason),
    /// Set the sender's pacing rate.
    SetPacing(ConnectionId, Rate),
}

/// Controller of all connections into a port.
#[derive(Debug)]
pub struct Ictcp {
    config: Config,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Connections with granted bytes outstanding.
    active: BTreeSet<ConnectionId>,
    /// Number of connections with demand, now or lately.
    demanding_count: u64,
    /// Connections with demand that wait for a grant.
    waiting: VecDeque<ConnectionId>,
    /// Cached number of connections that share the port at a time.
    active_limit: Cell<Option<u64>>,
    /// Connections without grants that have joined since the last poll.
    new_unscheduled: Vec<ConnectionId>,
    capacity: Capacity,
    slots: Slots,
    active_time: ActiveTime,
    received: u64,
    queue: Queue,
    cross_traffic: CrossTraffic,
    actions: Vec<Action>,
}

impl Ictcp {
    /// Creates a controller without connections.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            connections: BTreeMap::new(),
            active: BTreeSet::new(),
            demanding_count: 0,
            waiting: VecDeque::new(),
            active_limit: Cell::new(None),
            new_unscheduled: Vec::new(),
            capacity: Capacity::new(config.capacity),
            slots: Slots::default(),
            active_time: ActiveTime::default(),
            received: 0,
            queue: Queue::new(),
            cross_traffic: CrossTraffic::new(config.capacity),
            actions: Vec::new(),
        }
    }

    /// Adds a connection.
    pub fn join(&mut self, now: Duration, id: ConnectionId, new_connection: &NewConnection) {
        let mut connection = Connection::new(new_connection, self.config.min_window_segments);
        if !new_connection.grant_driven {
            // An unscheduled sender sends as soon as it has data.
            self.demanding_count += u64::from(connection.update_demanding(now));
            self.new_unscheduled.push(id);
        }
        self.connections.insert(id, connection);
        self.active_limit.take();
    }

    /// Gives new unscheduled connections their share and caps the others. Called once all that
    /// joined together are known.
    fn start_unscheduled(&mut self, now: Duration) {
        let new_unscheduled = std::mem::take(&mut self.new_unscheduled);
        if new_unscheduled.is_empty() {
            return;
        }
        new_unscheduled.into_iter().for_each(|id| self.activate(now, id));
        self.cap_windows();
    }

    /// Caps all windows at the fair share.
    fn cap_windows(&mut self) {
        let share = self.share();
        for (&id, connection) in &mut self.connections {
            let fair = share.window(connection);
            if connection.exceeds_share(fair) && connection.set_window(fair) {
                self.actions.push(Action::SetWindow(
                    id,
                    Bytes(connection.window),
                    Reason::FairShare,
                ));
            }
        }
    }

    /// Removes a connection.
    pub fn leave(&mut self, now: Duration, id: ConnectionId) {
        self.waiting.retain(|&waiting| waiting != id);
        self.connections.remove(&id);
        self.active_limit.take();
        self.deactivate(now, id);
    }

    /// Adds demand to a connection; `Bytes(u64::MAX)` is unlimited.
    pub fn add_demand(&mut self, id: ConnectionId, bytes: Bytes) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.add_demand(bytes) {
            self.demanding_count += 1;
            self.active_limit.take();
        }
        self.enqueue(id);
    }

    /// Clears the demand beyond what was granted.
    pub fn clear_demand(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.clear_demand();
            self.waiting.retain(|&waiting| waiting != id);
        }
    }

    /// Records the bytes received on a connection since it joined.
    pub fn on_received(&mut self, now: Duration, id: ConnectionId, received: Bytes) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let more = connection.on_received(now, received.0);
        self.received += more;
        self.active_time.advance(now, self.received);
        if !connection.is_active() {
            self.deactivate(now, id);
        } else if more > 0 && !self.active.contains(&id) {
            // It was deactivated as silent.
            self.activate(now, id);
        }
        self.enqueue(id);
    }

    /// Records a window offered beyond the bytes reported as received. Linux raises a window by
    /// about an eighth when the first full segment arrives, and cannot withdraw it.
    pub fn on_window_offered(&mut self, id: ConnectionId, window: Bytes) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.ledger.on_window_offered(window.0);
        }
    }

    /// Returns the actions due, in order; poll after each report.
    pub fn poll_actions(&mut self, now: Duration) -> impl Iterator<Item = Action> + '_ {
        self.start_unscheduled(now);
        self.issue_grants(now);
        if !self.config.can_clamp_windows {
            // Without clamping, windows only determine the pacing rate.
            self.actions.retain(|action| !matches!(action, Action::SetWindow(..)));
        }
        self.update_pacing();
        self.actions.drain(..)
    }

    /// Returns the window of a connection.
    #[must_use]
    pub fn window(&self, id: ConnectionId) -> Option<Bytes> {
        self.connections.get(&id).map(|connection| Bytes(connection.window))
    }

    #[cfg(test)]
    fn received_on(&self, id: ConnectionId) -> u64 {
        self.connections.get(&id).map_or(0, |connection| connection.ledger.received)
    }

    #[cfg(test)]
    fn connection_counts(&self) -> (usize, usize) {
        (self.active.len(), self.waiting.len())
    }

    /// Returns the capacity in payload, as far as it is known.
    #[must_use]
    pub fn capacity(&self) -> Option<Rate> {
        self.capacity.rate()
    }

    /// Replaces the known capacity; what was measured of the port is forgotten.
    pub fn set_capacity(&mut self, capacity: Option<Rate>) {
        self.config.capacity = capacity;
        self.capacity = Capacity::new(capacity);
        self.cross_traffic = CrossTraffic::new(capacity);
        self.queue.reset_limit();
        self.active_limit.take();
        self.cap_windows();
    }

    /// Applies samples of all connections, about every 10 ms, and adjusts their windows.
    pub fn tick(&mut self, now: Duration, samples: &[Sample]) {
        let mut lossy = Vec::new();
        for sample in samples {
            self.on_received(now, sample.id, sample.received);
            let Some(connection) = self.connections.get_mut(&sample.id) else { continue };
            connection.path.on_rtt(sample.rtt);
            if connection.path.on_lost(sample.lost_segments) {
                lossy.push(sample.id);
            }
        }
        self.deactivate_silent(now);
        let is_overflow = lossy.len() > 1 || (lossy.len() == 1 && self.active.len() <= 1);
        if is_overflow {
            self.handle_overflow(now);
        }
        let counted = self.connections.values_mut().map(|c| u64::from(c.update_demanding(now)));
        self.demanding_count = counted.sum();
        self.active_limit.take();
        self.advance_slots(now);
        match self.config.can_clamp_windows {
            true => self.adjust_windows(now),
            false => self.apply_shares(),
        }
    }

    /// Deactivates connections that deliver nothing despite grants, so that they block no others.
    fn deactivate_silent(&mut self, now: Duration) {
        let is_silent =
            |id: &ConnectionId| self.connections.get(id).is_some_and(|c| c.is_silent(now));
        let silent: Vec<ConnectionId> = self.active.iter().copied().filter(is_silent).collect();
        for id in silent {
            self.deactivate(now, id);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.on_silence(now);
            }
        }
    }

    /// Advances the global slots, which count active time only.
    fn advance_slots(&mut self, now: Duration) {
        let length = self.subslot_duration();
        if let Some((subslot, rate)) = self.slots.advance(&mut self.active_time, length) {
            let is_underused = !self.waiting.is_empty() || self.is_window_limited();
            self.capacity.on_rate(rate, self.slots.subslot());
            match self.cross_traffic.on_rate(rate, self.queue.limit, is_underused) {
                Some(Finding::Detected(bytes) | Finding::QueueAdjusted(bytes)) => {
                    self.queue.set_limit(now, bytes);
                }
                Some(Finding::Absent | Finding::Ended) => self.queue.reset_limit(),
                None if self.cross_traffic.is_present() => {}
                None => {
                    let (capacity, fast) = (self.capacity.rate(), self.repairs_fast());
                    self.queue.on_rate(now, rate, capacity, is_underused, fast);
                }
            }
            self.active_limit.take();
            let available = self.capacity.available_bandwidth(rate);
            self.slots.start(subslot, available);
            if subslot == Subslot::Increase && self.capacity.is_scarce(available) {
                self.enforce_fairness();
            }
        }
    }

    /// Returns the subslot length: the RTTs of the connections weighted by their traffic. (paper,
    /// §IV-B: T = Σ wᵢ·RTTᵢ)
    fn subslot_duration(&self) -> Duration {
        let rates =
            self.connections.values().map(|c| (c.throughput().bits_per_sec() as f64, c.path.rtt()));
        let (sum, weighed) = rates.fold((0.0, 0.0), |(sum, weighed), (rate, rtt)| {
            (sum + rate, weighed + rate * rtt.as_secs_f64())
        });
        let mean = if sum > 0.0 { weighed / sum } else { 0.0 };
        Duration::from_secs_f64(mean).max(slots::MIN_SUBSLOT)
    }

    /// Sets windows to the fair share if they cannot be clamped; they determine the pacing rate.
    fn apply_shares(&mut self) {
        let share = self.share();
        for connection in self.connections.values_mut() {
            connection.set_window(share.window(connection));
        }
    }

    /// True if each active window is large enough to repair a loss without a timeout.
    ///
    /// False while the capacity is unknown: windows grow then to find it.
    fn repairs_fast(&self) -> bool {
        let mut active = self.connections.values().filter(|c| c.is_active());
        self.config.capacity.is_some()
            && self.waiting.is_empty()
            && active.all(|c| c.window >= FAST_RETRANSMIT_SEGMENTS * c.mss())
    }

    /// True if an active connection is limited by its window.
    #[must_use]
    pub fn is_window_limited(&self) -> bool {
        self.connections.values().any(|c| c.is_active() && c.is_window_limited())
    }

    /// Handles an overflow of the port's queue.
    fn handle_overflow(&mut self, now: Duration) {
        // Data sent before the overflow was noticed still arrives.
        if self.queue.is_settling(now, slots::settling_time(self.max_rtt())) {
            return;
        }
        if !self.cross_traffic.on_overflow(self.queue.limit, self.active_time.rate()) {
            return;
        }
        self.queue.on_overflow(now);
        for (&id, connection) in self.connections.iter_mut().filter(|(_, c)| c.is_active()) {
            if connection.scale_window(CUBIC_BETA) {
                self.actions.push(Action::SetWindow(
                    id,
                    Bytes(connection.window),
                    Reason::Overflowed,
                ));
            }
        }
    }

    /// Shrinks connections above their share by a step.
    fn enforce_fairness(&mut self) {
        let share = self.share();
        for (&id, connection) in self.connections.iter_mut().filter(|(_, c)| c.is_active()) {
            let fair = share.window(connection);
            if connection.exceeds_share(fair) && connection.decrease_by_step() {
                self.actions.push(Action::SetWindow(
                    id,
                    Bytes(connection.window),
                    Reason::FairShare,
                ));
            }
        }
    }

    /// Paces connections whose RTT is long: their windows are bursts that overflow any port.
    fn update_pacing(&mut self) {
        // Without clamping, nothing else holds a connection to its share.
        let ratio = if self.config.can_clamp_windows { PACING_RATIO } else { 1.0 };
        let mut pacing = Vec::new();
        for action in &self.actions {
            if let Action::SetWindow(id, ..) | Action::Grant(id, _) = *action
                && let Some(rate) =
                    self.connections.get_mut(&id).and_then(|c| c.next_pacing_rate(ratio))
            {
                pacing.push(Action::SetPacing(id, rate));
            }
        }
        self.actions.append(&mut pacing);
    }

    /// Applies the window rules to each connection that is due.
    fn adjust_windows(&mut self, now: Duration) {
        let share = self.share();
        let may_grow = self.slots.is_increase() && !self.queue.is_on_hold(now);
        let mut headroom = self.window_headroom();
        let each = headroom / self.demanding_count.max(1);
        let is_unknown = self.capacity.is_unknown();
        for id in self.by_smallest_share(&share) {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let decision = connection.evaluate();
            let reason = if decision == Some(WindowDecision::Shrink) {
                connection.decrease_by_step().then_some(Reason::Unused)
            } else if let Some(mut by) = connection.wanted_increase() {
                if is_unknown {
                    // Connections past slow start also probe for the capacity.
                    by = by.max(connection.window / grants::CAPACITY_PROBE_DIVISOR);
                }
                if connection.window + by <= share.window(connection) {
                    Some(connection.grow(now, by, Reason::BelowShare))
                } else if may_grow {
                    let by = by.min(each.max(connection.step()));
                    let cost = Bytes(by).per(connection.path.rtt());
                    let is_paid = by <= headroom && self.slots.spend(cost);
                    if is_paid {
                        headroom -= by;
                        self.capacity.on_growth();
                    }
                    connection.try_grow(is_paid, now, by)
                } else {
                    // Waits for the next `Increase` subslot.
                    None
                }
            } else {
                None
            };
            if let Some(reason) = reason {
                self.actions.push(Action::SetWindow(id, Bytes(connection.window), reason));
            }
        }
    }

    /// Orders connections by window relative to their share, smallest first, to receive free
    /// bandwidth.
    fn by_smallest_share(&self, share: &Share) -> Vec<ConnectionId> {
        let relative = |c: &Connection| c.window as f64 / share.window(c).max(1) as f64;
        let mut ids: Vec<(f64, ConnectionId)> =
            self.connections.iter().map(|(&id, c)| (relative(c), id)).collect();
        ids.sort_unstable_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
        ids.into_iter().map(|(_, id)| id).collect()
    }

    fn max_rtt(&self) -> Duration {
        self.connections.values().map(|connection| connection.path.rtt()).max().unwrap_or_default()
    }

    /// Marks a connection inactive. Without any active one, active time stops.
    fn deactivate(&mut self, now: Duration, id: ConnectionId) {
        if self.active.remove(&id) && self.active.is_empty() {
            self.active_time.pause(now, self.received);
        }
    }
}
