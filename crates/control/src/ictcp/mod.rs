//! ICTCP: the receiver of many senders steers their windows, so that together they fill the port
//! without overflowing it (Wu, Feng, Guo, Zhang, *ICTCP: Incast Congestion Control for TCP in
//! Data-Center Networks*, IEEE/ACM Transactions on Networking 21(2), 2013).
//!
//! What lives here: what the port has free in slots of time (`slots`), the rules of a single
//! connection (`connection`), who may be asked for more right now (`asking`), how long the port's
//! queue may become (`queue`), what of it is ours beside others (`crowd`), why (`reason`),
//! and [`Ictcp`], which joins them. Beyond the paper: first windows follow from what the port
//! carries and how many send; senders that would not fit with two segments each are asked in turns;
//! losses, and queues that stand elsewhere, count. `docs/algorithms/ictcp.md` says why.
//!
//! What never lives here: a socket or a clock. Whoever runs it tells what comes and obeys the
//! [`Order`]s.

mod asking;
mod busy;
mod capacity;
mod connection;
mod crowd;
mod queue;
mod reason;
mod slots;
#[cfg(test)]
mod tests;

pub use reason::Reason;

#[cfg(test)]
use crate::pacing::DEFAULT_MSS;
use crate::units::{Bytes, Rate};
use asking::Share;
use busy::Busy;
use capacity::Capacity;
use connection::{Connection, PACED, Verdict};
use crowd::{Crowd, Finding};
use queue::{KEPT, Queue};
use slots::{Half, Slots};
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A connection that data comes on.
pub type Id = u64;

/// "When the available bandwidth is small", those with more than their share give some up: this
/// part of the capacity. (paper, §IV-D: 0.2)
const SCARCE: f64 = 0.2;

/// More than its share by this much. (ours: a step or two would go to and fro else)
const ABOVE: f64 = 1.1;

/// What the port and its senders are like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// What the port carries, in data; `None`: what turns out.
    pub capacity: Option<Rate>,
    /// The smallest window, in segments: 2, or 1 by choice. (paper, §VII-A)
    pub segments_min: u64,
    /// Whether windows of running connections can be steered; else only asking is.
    pub holds_windows: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { capacity: None, segments_min: 2, holds_windows: true }
    }
}

/// A connection, as it joins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Joining {
    /// Data in a full segment.
    pub segment: Bytes,
    /// Its round trip, as far as it is known.
    pub rtt: Option<Duration>,
    /// What its sender has been offered already, and can no longer be taken back.
    pub offered: Bytes,
    /// It sends only what it is asked for.
    pub obeys: bool,
    /// Segments of it that were lost so far, as far as that shows.
    pub lost: u64,
}

/// What is seen of a connection at a tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Which one.
    pub id: Id,
    /// Data that has come on it since it joined.
    pub received: Bytes,
    /// Its round trip now, if anything has told it.
    pub rtt: Option<Duration>,
    /// Segments of it that were lost so far, as far as that shows.
    pub lost: u64,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    /// Its sender may send so many bytes more.
    Ask(Id, Bytes),
    /// Its receive window is this now.
    Window(Id, Bytes, Reason),
    /// Its sender may send no faster.
    Pace(Id, Rate),
}

/// All connections that come in at a port.
#[derive(Debug)]
pub struct Ictcp {
    config: Config,
    connections: BTreeMap<Id, Connection>,
    /// Those that have been asked for something that has not come.
    active: BTreeSet<Id>,
    /// How many something is wanted of, or was lately.
    demanded: u64,
    /// Those that something is wanted of, and that wait for their turn.
    waiting: VecDeque<Id>,
    /// How many share the port at a time, as long as nothing has changed that.
    at_once: Cell<Option<u64>>,
    /// Those that have joined since and send without being asked.
    unasked: Vec<Id>,
    capacity: Capacity,
    slots: Slots,
    busy: Busy,
    received: u64,
    queue: Queue,
    crowd: Crowd,
    orders: Vec<Order>,
}

impl Ictcp {
    /// Nobody sends yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            connections: BTreeMap::new(),
            active: BTreeSet::new(),
            demanded: 0,
            waiting: VecDeque::new(),
            at_once: Cell::new(None),
            unasked: Vec::new(),
            capacity: Capacity::new(config.capacity),
            slots: Slots::default(),
            busy: Busy::default(),
            received: 0,
            queue: Queue::new(),
            crowd: Crowd::new(config.capacity),
            orders: Vec::new(),
        }
    }

    /// A connection is there.
    pub fn join(&mut self, now: Duration, id: Id, joining: &Joining) {
        let mut connection = Connection::new(now, joining, self.config.segments_min);
        if !joining.obeys {
            // It sends what it has.
            self.demanded += u64::from(connection.count(now));
            self.unasked.push(id);
        }
        self.connections.insert(id, connection);
        self.at_once.take();
    }

    /// Those that send without being asked have their share as soon as all are known that joined
    /// together, and nobody has more than that any more.
    fn begin_unasked(&mut self, now: Duration) {
        let unasked = std::mem::take(&mut self.unasked);
        if unasked.is_empty() {
            return;
        }
        unasked.into_iter().for_each(|id| self.begin(now, id));
        self.make_room();
    }

    /// Nobody has more than a fair share, since one more begins.
    fn make_room(&mut self) {
        let share = self.share();
        for (&id, connection) in &mut self.connections {
            let own = share.of(connection);
            if connection.window as f64 > own as f64 * ABOVE && connection.set_window(own) {
                self.orders.push(Order::Window(id, Bytes(connection.window), Reason::Fair));
            }
        }
    }

    /// A connection has ended.
    pub fn leave(&mut self, now: Duration, id: Id) {
        self.waiting.retain(|&waiting| waiting != id);
        self.connections.remove(&id);
        self.at_once.take();
        self.rest(now, id);
    }

    /// So much more is wanted of a connection; `Bytes(u64::MAX)`: all that it will ever have.
    pub fn want(&mut self, id: Id, bytes: Bytes) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.want(bytes) {
            self.demanded += 1;
            self.at_once.take();
        }
        self.queue_up(id);
    }

    /// Nothing more is wanted of a connection than what it was asked for.
    pub fn unwant(&mut self, id: Id) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.unwant();
            self.waiting.retain(|&waiting| waiting != id);
        }
    }

    /// So much has come on a connection since it joined.
    pub fn on_received(&mut self, now: Duration, id: Id, received: Bytes) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let more = connection.receive(now, received.0);
        self.received += more;
        self.busy.advance(now, self.received);
        if !connection.is_active() {
            self.rest(now, id);
        } else if more > 0 && !self.active.contains(&id) {
            // It had fallen silent.
            self.begin(now, id);
        }
        self.queue_up(id);
    }

    /// So much is offered to a sender beyond what was told to have come. Linux widens a window by
    /// itself when the first full segment comes, by an eighth or so, and that cannot be taken back.
    pub fn on_offered(&mut self, id: Id, window: Bytes) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.on_offered(window.0);
        }
    }

    /// What is to be done by now, in this order: whoever has told something asks.
    pub fn take_orders(&mut self, now: Duration) -> impl Iterator<Item = Order> + '_ {
        self.begin_unasked(now);
        self.admit(now);
        if !self.config.holds_windows {
            // There they only say what a request is paced at.
            self.orders.retain(|order| !matches!(order, Order::Window(..)));
        }
        self.pace();
        self.orders.drain(..)
    }

    /// The window of a connection.
    #[must_use]
    pub fn window(&self, id: Id) -> Option<Bytes> {
        self.connections.get(&id).map(|connection| Bytes(connection.window))
    }

    #[cfg(test)]
    fn received_on(&self, id: Id) -> u64 {
        self.connections.get(&id).map_or(0, Connection::received)
    }

    /// How many connections have been asked for something that has not come, and how many wait for
    /// their turn.
    #[must_use]
    pub fn turns(&self) -> (usize, usize) {
        (self.active.len(), self.waiting.len())
    }

    /// What the port carries, in data, as far as it is known.
    #[must_use]
    pub fn capacity(&self) -> Option<Rate> {
        self.capacity.rate()
    }

    /// Looks at all connections, every 10 ms or so, and steers their windows.
    pub fn tick(&mut self, now: Duration, seen: &[Seen]) {
        let mut lossy = Vec::new();
        for seen in seen {
            self.on_received(now, seen.id, seen.received);
            let Some(connection) = self.connections.get_mut(&seen.id) else { continue };
            connection.on_rtt(seen.rtt);
            if connection.on_lost(now, seen.lost) {
                lossy.push(seen.id);
            }
        }
        self.let_silent_rest(now);
        let is_overflow = lossy.len() > 1 || (lossy.len() == 1 && self.active.len() <= 1);
        if is_overflow {
            self.overflowed(now);
        }
        let counted = self.connections.values_mut().map(|c| u64::from(c.count(now)));
        self.demanded = counted.sum();
        self.at_once.take();
        self.advance_slots(now);
        match self.config.holds_windows {
            true => self.steer(now),
            false => self.follow_shares(),
        }
    }

    /// Those that bring nothing although they were asked hold nobody up.
    fn let_silent_rest(&mut self, now: Duration) {
        let is_silent = |id: &Id| self.connections.get(id).is_some_and(|c| c.is_silent(now));
        let silent: Vec<Id> = self.active.iter().copied().filter(is_silent).collect();
        for id in silent {
            self.rest(now, id);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.fall_silent(now);
            }
        }
    }

    /// The halves of the slots, which are those of time in which something comes.
    fn advance_slots(&mut self, now: Duration) {
        let length = self.slot();
        if let Some((half, rate)) = self.slots.advance(&mut self.busy, length) {
            let is_short = !self.waiting.is_empty() || self.is_held();
            self.capacity.on_rate(rate, self.slots.half());
            match self.crowd.on_rate(rate, self.queue.bytes, is_short) {
                Some(Finding::Others(bytes)) => {
                    self.capacity.be_as_known();
                    self.queue.share(now, bytes);
                }
                Some(Finding::Beside(bytes)) => self.queue.share(now, bytes),
                Some(Finding::None | Finding::Gone) => self.queue.have_alone(),
                None if self.crowd.is_there() => {}
                None => {
                    let (capacity, standing) = (self.capacity.rate(), self.standing());
                    self.queue.on_rate(now, rate, capacity, is_short, standing);
                }
            }
            self.at_once.take();
            let free = self.capacity.free(rate);
            self.slots.begin(half, free);
            let scarce = self.capacity.rate().unwrap_or_default().bits_per_sec() as f64 * SCARCE;
            if half == Half::Spend && (free.bits_per_sec() as f64) < scarce {
                self.even_out();
            }
        }
    }

    /// What stands in the port's queue, by the round trips of those that are asked.
    fn standing(&self) -> Option<Bytes> {
        let active = self.active.iter().filter_map(|id| self.connections.get(id));
        let waits = active.filter_map(Connection::waits);
        let (count, sum) = waits.fold((0, Duration::ZERO), |(n, sum), waits| (n + 1, sum + waits));
        let mean = sum.checked_div(count)?;
        let rate = self.capacity.rate()?.bytes_per_sec() as f64;
        Some(Bytes((rate * mean.as_secs_f64()) as u64))
    }

    /// Half a slot: the round trips of the connections, weighed with their share of what comes.
    /// (paper, §IV-B: T = Σ wᵢ·RTTᵢ)
    fn slot(&self) -> Duration {
        let rates = self.connections.values().map(|c| (c.rate().bits_per_sec() as f64, c.rtt()));
        let (sum, weighed) = rates.fold((0.0, 0.0), |(sum, weighed), (rate, rtt)| {
            (sum + rate, weighed + rate * rtt.as_secs_f64())
        });
        let mean = if sum > 0.0 { weighed / sum } else { 0.0 };
        Duration::from_secs_f64(mean).max(slots::HALF_MIN)
    }

    /// Where windows cannot be held, what each should have on its way tells how it is paced.
    fn follow_shares(&mut self) {
        let share = self.share();
        for connection in self.connections.values_mut() {
            connection.set_window(share.of(connection));
        }
    }

    /// Whether windows are what holds those that are asked.
    fn is_held(&self) -> bool {
        self.connections.values().any(|c| c.is_active() && c.is_held())
    }

    /// The port has overflowed.
    fn overflowed(&mut self, now: Duration) {
        // What was sent before it was noticed comes in a round trip, or some. (ours)
        if self.queue.has_overflowed(now, self.rtt_max() * 4 + slots::HALF_MIN * 2) {
            return;
        }
        if !self.crowd.on_overflow(self.queue.bytes, self.busy.rate()) {
            return;
        }
        self.capacity.on_overflow();
        self.queue.on_overflow(now);
        for (&id, connection) in self.connections.iter_mut().filter(|(_, c)| c.is_active()) {
            if connection.shrink_to(KEPT) {
                self.orders.push(Order::Window(id, Bytes(connection.window), Reason::Overflowed));
            }
        }
    }

    /// Those with more than their share give some up.
    fn even_out(&mut self) {
        let share = self.share();
        for (&id, connection) in self.connections.iter_mut().filter(|(_, c)| c.is_active()) {
            let own = share.of(connection);
            if connection.window as f64 > own as f64 * ABOVE && connection.step_down() {
                self.orders.push(Order::Window(id, Bytes(connection.window), Reason::Fair));
            }
        }
    }

    /// Windows of long round trips would come in bursts that no port's queue takes.
    fn pace(&mut self) {
        // Where nothing else holds them, no more than their share.
        let ratio = if self.config.holds_windows { PACED.1 } else { 1.0 };
        let mut paces = Vec::new();
        for order in &self.orders {
            if let Order::Window(id, ..) | Order::Ask(id, _) = *order
                && let Some(pace) = self.connections.get_mut(&id).and_then(|c| c.pace(ratio))
            {
                paces.push(Order::Pace(id, pace));
            }
        }
        self.orders.append(&mut paces);
    }

    /// Steers every connection whose time has come.
    fn steer(&mut self, now: Duration) {
        let share = self.share();
        let may_grow = self.slots.is_spending() && !self.queue.is_on_hold(now);
        let mut room = self.room();
        let each = room / self.demanded.max(1);
        let is_unknown = self.capacity.is_unknown();
        for id in self.poorest_first(&share) {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let verdict = connection.judge();
            let reason = if verdict == Some(Verdict::Shrink) {
                connection.step_down().then_some(Reason::Unused)
            } else if let Some(mut by) = connection.wants_more() {
                if is_unknown {
                    // Whoever does not double any more looks for the capacity, too.
                    by = by.max(connection.window / asking::SEARCHED);
                }
                if connection.window + by <= share.of(connection) {
                    Some(connection.grow(now, by, Reason::BelowShare))
                } else if may_grow {
                    let by = by.min(each.max(connection.step()));
                    let cost = Bytes(by).per(connection.rtt());
                    let is_paid = by <= room && self.slots.spend(cost);
                    if is_paid {
                        room -= by;
                        self.capacity.on_growth();
                    }
                    connection.grow_if(is_paid, now, by)
                } else {
                    // In the next second half.
                    None
                }
            } else {
                None
            };
            if let Some(reason) = reason {
                self.orders.push(Order::Window(id, Bytes(connection.window), reason));
            }
        }
    }

    /// What the port has free goes to those first who have least of their share.
    fn poorest_first(&self, share: &Share) -> Vec<Id> {
        let part = |c: &Connection| c.window as f64 / share.of(c).max(1) as f64;
        let mut ids: Vec<(f64, Id)> =
            self.connections.iter().map(|(&id, c)| (part(c), id)).collect();
        ids.sort_unstable_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
        ids.into_iter().map(|(_, id)| id).collect()
    }

    fn rtt_max(&self) -> Duration {
        self.connections.values().map(Connection::rtt).max().unwrap_or_default()
    }

    /// A connection has brought all that it was asked for. When all have, no time passes in which
    /// anything could come.
    fn rest(&mut self, now: Duration, id: Id) {
        if self.active.remove(&id) && self.active.is_empty() {
            self.busy.pause(now, self.received);
        }
    }
}
