//! Who may be asked for more right now. What all of them could have on its way at once, beyond what
//! the line itself holds, fits in the queue that is allowed; whoever does not fit any more waits
//! for its turn. A mover owns its requests: where the paper would need windows below a segment, it
//! does not ask yet.

use super::connection::{AHEAD, Connection};
use super::reason::Reason;
use super::{Ictcp, Id, Order};
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// What is asked for at once: at least so much, at most so much, and what the port carries in this
/// time. (ours: turns are short beside a second, and a message is little beside what it asks for)
const TURN_MIN: u64 = 256 << 10;
const TURN_MAX: u64 = 4 << 20;
const TURN_TIME: Duration = Duration::from_millis(2);

/// So many take their turns at the same time at least, and more only where each has a window of so
/// many segments. (ours: one may be slow; and what is lost of fewer than four segments, RFC 5681
/// §3.2, is not noticed before a time-out)
const AT_ONCE: u64 = 4;
const WINDOW_GOOD: u64 = 4;

/// As long as nobody knows what the port carries, windows grow by this part in a slot. (ours: TCP's
/// slow start doubles, and overflows what it finds by as much)
pub(super) const SEARCHED: u64 = 8;

/// What each connection has of the port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    rate: Rate,
    queue: u64,
}

impl Share {
    /// What a connection that has its share holds on its way, without a queue.
    fn on_line(&self, connection: &Connection) -> u64 {
        let rate = self.rate.bytes_per_sec() as f64;
        (rate * connection.rtt_least().as_secs_f64()) as u64
    }

    /// The window of a connection that has its share.
    pub(super) fn of(&self, connection: &Connection) -> u64 {
        self.on_line(connection) + self.queue
    }
}

impl Ictcp {
    /// How many share the line and the queue at a time: those that send by themselves, and a few
    /// of those that take turns.
    fn at_once(&self) -> u64 {
        let at_once = self.at_once.get().unwrap_or_else(|| self.count_at_once());
        self.at_once.set(Some(at_once));
        at_once
    }

    fn count_at_once(&self) -> u64 {
        let counted = self.connections.values().filter(|c| c.is_counted());
        let (mut willful, mut round_trips, mut good) = (0, 0.0, 0);
        for connection in counted {
            willful += u64::from(!connection.obeys());
            round_trips += connection.rtt_least().as_secs_f64();
            good += connection.segment() * WINDOW_GOOD;
        }
        let count = self.demanded.max(1);
        if self.capacity.is_unknown() {
            return count;
        }
        let carried = self.capacity.rate().unwrap_or_default().bytes_per_sec() as f64;
        let all = (carried * round_trips / count as f64) as u64 + self.queue.bytes.0;
        let at_once = (all * count).checked_div(good).unwrap_or(count);
        count.min(at_once.max(AT_ONCE).max(willful))
    }

    /// What each has, of those that something is wanted of, or was lately.
    pub(super) fn share(&self) -> Share {
        self.share_of(self.at_once())
    }

    fn share_of(&self, count: u64) -> Share {
        let capacity = self.capacity.rate().unwrap_or_default().bytes_per_sec();
        Share {
            rate: Rate::from_bytes_per_sec(capacity / count),
            queue: self.queue.bytes.0 / count,
        }
    }

    /// What a connection has on its way at most, if it is asked for so much.
    fn claim(&self, connection: &Connection, asked: u64) -> u64 {
        if self.config.holds_windows { asked.min(connection.exposure()) } else { asked }
    }

    /// What is asked for at once.
    fn turn(&self, connection: &Connection) -> u64 {
        if !self.config.holds_windows {
            let held = self.share().on_line(connection) + self.queue.bytes.0 / 2;
            return held.saturating_sub(connection.outstanding());
        }
        let carried = self.capacity.rate().unwrap_or_default().bytes_per_sec() as f64;
        let turn = (carried * TURN_TIME.as_secs_f64()) as u64;
        let turn = turn.clamp(TURN_MIN, TURN_MAX).max(connection.window * AHEAD * 2);
        turn.min(connection.ask_max())
    }

    /// A connection is to be asked again when no more than this of what it was asked for is
    /// missing.
    fn ahead(&self, connection: &Connection, is_crowded: bool) -> u64 {
        match self.config.holds_windows {
            false => self.share().on_line(connection),
            true => connection.ahead(is_crowded),
        }
    }

    /// Whether it is time to ask a connection again.
    fn is_time(&self, connection: &Connection, is_crowded: bool) -> bool {
        connection.outstanding() <= self.ahead(connection, is_crowded) && self.turn(connection) > 0
    }

    /// When the control wants to know of a connection next, by what has come on it since it joined:
    /// then it, or others, may be asked for more.
    #[must_use]
    pub fn next_look(&self, id: Id) -> Option<Bytes> {
        let connection = self.connections.get(&id)?;
        let ahead = [false, true].map(|is_crowded| self.ahead(connection, is_crowded));
        connection.next_look(ahead).map(Bytes)
    }

    /// A connection is to be asked again, soon or when its turn comes.
    pub(super) fn queue_up(&mut self, id: Id) {
        let is_crowded = !self.waiting.is_empty();
        let Some(connection) = self.connections.get(&id) else { return };
        let is_time = !connection.is_waiting && self.is_time(connection, is_crowded);
        if !is_time || connection.wanted() == 0 {
            return;
        }
        // Whoever can be asked for little only would wait for a round of all others each time.
        match connection.received() > 0 && connection.has_offered_more() {
            true => self.waiting.push_front(id),
            false => self.waiting.push_back(id),
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_waiting = true;
        }
    }

    /// Asks those whose turn it is.
    pub(super) fn admit(&mut self, now: Duration) {
        while let Some(&id) = self.waiting.front() {
            self.take_back(now, id);
            let Some(connection) = self.connections.get(&id) else {
                self.waiting.pop_front();
                continue;
            };
            // Its window may have become smaller while it waited.
            let is_time = self.is_time(connection, false);
            let bytes = self.turn(connection).min(connection.wanted());
            if is_time && !self.fits(id, bytes) {
                return;
            }
            self.waiting.pop_front();
            if is_time {
                self.begin(now, id);
            }
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.is_waiting = false;
                if is_time {
                    connection.ask(bytes);
                    self.orders.push(Order::Ask(id, Bytes(bytes)));
                }
            }
        }
        self.lend(now);
    }

    /// When nobody waits, those that are still asked have what the others have left.
    fn lend(&mut self, now: Duration) {
        let count = self.active.len() as u64;
        let is_crowded = count == 0 || !self.waiting.is_empty() || count >= self.at_once();
        if is_crowded || !self.config.holds_windows || self.capacity.is_unknown() {
            return;
        }
        let share = self.share_of(count);
        for &id in &self.active {
            if let Some(connection) = self.connections.get_mut(&id)
                && connection.obeys()
                && connection.borrow(now, share.of(connection))
            {
                self.orders.push(Order::Window(id, Bytes(connection.window), Reason::BelowShare));
            }
        }
    }

    /// Before a connection is asked again, what was lent to it is the others', if there are any.
    fn take_back(&mut self, now: Duration, id: Id) {
        let is_alone = self.waiting.len() <= 1 && self.active.iter().all(|&active| active == id);
        if is_alone {
            return;
        }
        let share = self.share();
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.give_back(now, share.of(connection))
        {
            self.orders.push(Order::Window(id, Bytes(connection.window), Reason::Fair));
        }
    }

    /// By how much windows may grow so that all of them still fit on the line and in the queue.
    pub(super) fn room(&self) -> u64 {
        let share = self.share();
        let counted = self.connections.values().filter(|c| c.is_counted());
        let (all, beyond) = counted.fold((0, 0), |(all, beyond), c| {
            (all + c.window, beyond + c.window.saturating_sub(share.on_line(c)))
        });
        let room = self.queue.bytes.0.saturating_sub(beyond);
        if self.capacity.is_unknown() { room.max(all / SEARCHED) } else { room }
    }

    /// Whether a connection may be asked for so much: with it, what could be on its way of all of
    /// them fits on the line and in the queue.
    fn fits(&self, id: Id, bytes: u64) -> bool {
        let others = self.active.iter().filter(|&&other| other != id);
        let mut others: Vec<&Connection> =
            others.filter_map(|id| self.connections.get(id)).collect();
        let count = others.len() + 1;
        // Those that send by themselves have no turns, and others would wait for theirs for ever:
        // they are held by their windows.
        others.retain(|other| other.obeys());
        let Some(own) = self.connections.get(&id).filter(|_| !others.is_empty()) else {
            return true;
        };
        let rate = self.capacity.rate().unwrap_or_default().bytes_per_sec() as f64;
        let rate = rate / count as f64;
        let standing = |connection: &Connection, asked: u64| {
            let on_line = (rate * connection.rtt_least().as_secs_f64()) as u64;
            self.claim(connection, asked).saturating_sub(on_line)
        };
        let asked = own.outstanding().saturating_add(bytes);
        // One that sends by itself may have any amount on its way.
        let all = others.iter().fold(standing(own, asked), |all, other| {
            all.saturating_add(standing(other, other.outstanding()))
        });
        let searched = match self.capacity.is_unknown() {
            true => others.iter().fold(own.window, |sum, other| sum + other.window) / SEARCHED,
            false => 0,
        };
        all <= self.queue.bytes.0 + searched
    }

    /// A connection is asked for something, or sends by itself.
    pub(super) fn begin(&mut self, now: Duration, id: Id) {
        let share = self.share();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.begin(now) {
            connection.set_window(share.of(connection));
            self.orders.push(Order::Window(id, Bytes(connection.window), Reason::Began));
        }
        self.active.insert(id);
        self.busy.begin(now + connection.rtt_least(), self.received);
    }
}
