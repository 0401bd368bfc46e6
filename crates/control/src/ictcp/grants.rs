//! Grants: which connections may send more.
//!
//! The bytes that all active connections can have in flight beyond their BDP fit in the allowed
//! queue; other connections wait. Where the paper would need windows below a segment, waiting
//! connections get no grant yet.

use super::connection::{Connection, GRANT_AHEAD_WINDOWS};
use super::queue::MAX_QUEUE;
use super::reason::Reason;
use super::slots::EVALUATION_SUBSLOTS;
use super::{Action, ConnectionId, Ictcp};
use crate::tcp::FAST_RETRANSMIT_SEGMENTS;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// Size of a grant, unless the window is larger: the buffer of a port. (measured,
/// docs/algorithms/sensitivity-gather.md: half of it loses goodput, twice gains none)
const GRANT_BYTES: u64 = MAX_QUEUE.0;

/// Divisor of all windows for their growth per slot while the capacity is unknown: windows more
/// than double before it is judged. (measured, docs/algorithms/sensitivity-gather.md: half or twice
/// finds it later)
pub(super) const CAPACITY_PROBE_DIVISOR: u64 = EVALUATION_SUBSLOTS as u64;

/// Fair share of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    rate: Rate,
    queue: u64,
}

impl Share {
    /// Returns the connection's BDP at its share, without a queue.
    fn bdp(&self, connection: &Connection) -> u64 {
        let rate = self.rate.bytes_per_sec() as f64;
        (rate * connection.path.min_rtt().as_secs_f64()) as u64
    }

    /// Returns the connection's window at its share.
    pub(super) fn window(&self, connection: &Connection) -> u64 {
        self.bdp(connection) + self.queue
    }
}

impl Ictcp {
    /// Returns how many connections share the port at a time: unscheduled ones, and a few with
    /// grants.
    fn active_limit(&self) -> u64 {
        let active_limit = self.active_limit.get().unwrap_or_else(|| self.compute_active_limit());
        self.active_limit.set(Some(active_limit));
        active_limit
    }

    fn compute_active_limit(&self) -> u64 {
        let counted = self.connections.values().filter(|c| c.is_demanding());
        let (mut unscheduled, mut rtt_sum, mut min_share_sum) = (0, 0.0, 0);
        for connection in counted {
            unscheduled += u64::from(!connection.ledger.grant_driven);
            rtt_sum += connection.path.min_rtt().as_secs_f64();
            min_share_sum += connection.mss() * FAST_RETRANSMIT_SEGMENTS;
        }
        let count = self.demanding_count.max(1);
        if self.capacity.is_unknown() {
            return count;
        }
        let capacity = self.capacity.rate().unwrap_or_default().bytes_per_sec() as f64;
        let total = (capacity * rtt_sum / count as f64) as u64 + self.queue.limit.0;
        let active_limit = (total * count).checked_div(min_share_sum).unwrap_or(count);
        count.min(active_limit.max(1).max(unscheduled))
    }

    /// Returns the fair share of a connection with demand.
    pub(super) fn share(&self) -> Share {
        self.share_of(self.active_limit())
    }

    fn share_of(&self, count: u64) -> Share {
        let capacity = self.capacity.rate().unwrap_or_default().bytes_per_sec();
        Share {
            rate: Rate::from_bytes_per_sec(capacity / count),
            queue: self.queue.limit.0 / count,
        }
    }

    /// Returns the bytes that a connection can have in flight after a grant.
    fn in_flight_bound(&self, connection: &Connection, granted: u64) -> u64 {
        if self.config.can_clamp_windows {
            granted.min(connection.max_in_flight())
        } else {
            granted
        }
    }

    /// Returns the size of the next grant.
    fn grant_size(&self, connection: &Connection) -> u64 {
        if !self.config.can_clamp_windows {
            let target = self.share().bdp(connection) + self.queue.limit.0 / 2;
            return target.saturating_sub(connection.ledger.outstanding());
        }
        let size = GRANT_BYTES.max(connection.window * GRANT_AHEAD_WINDOWS * 2);
        size.min(connection.max_grant())
    }

    /// Returns the outstanding bytes at or below which the next grant is due.
    fn grant_threshold(&self, connection: &Connection, is_contended: bool) -> u64 {
        match self.config.can_clamp_windows {
            false => self.share().bdp(connection),
            true => connection.grant_threshold(is_contended),
        }
    }

    /// True if a grant is due.
    fn is_grant_due(&self, connection: &Connection, is_contended: bool) -> bool {
        connection.ledger.outstanding() <= self.grant_threshold(connection, is_contended)
            && self.grant_size(connection) > 0
    }

    /// Returns the byte count at which the controller needs the next
    /// [`on_received`](Self::on_received). Counted since the connection joined; a grant may be due
    /// at that count.
    #[must_use]
    pub fn next_report_at(&self, id: ConnectionId) -> Option<Bytes> {
        let connection = self.connections.get(&id)?;
        let thresholds =
            [false, true].map(|is_contended| self.grant_threshold(connection, is_contended));
        connection.next_report_at(thresholds).map(Bytes)
    }

    /// Queues a connection for its next grant, if one is due.
    pub(super) fn enqueue(&mut self, id: ConnectionId) {
        let is_contended = !self.waiting.is_empty();
        let Some(connection) = self.connections.get(&id) else { return };
        let is_due = !connection.is_waiting && self.is_grant_due(connection, is_contended);
        if !is_due || connection.ledger.demand == 0 {
            return;
        }
        // A small grant goes first, or the connection would wait for all others each time.
        match connection.ledger.received > 0 && connection.has_excess_offer() {
            true => self.waiting.push_front(id),
            false => self.waiting.push_back(id),
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_waiting = true;
        }
    }

    /// Issues grants to waiting connections while they fit.
    pub(super) fn issue_grants(&mut self, now: Duration) {
        while let Some(&id) = self.waiting.front() {
            self.reclaim_window(now, id);
            let Some(connection) = self.connections.get(&id) else {
                self.waiting.pop_front();
                continue;
            };
            // The window may have shrunk while the connection waited.
            let is_due = self.is_grant_due(connection, false);
            let bytes = self.grant_size(connection).min(connection.ledger.demand);
            if is_due && !self.fits(id, bytes) {
                return;
            }
            self.waiting.pop_front();
            if is_due {
                self.activate(now, id);
            }
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.is_waiting = false;
                if is_due {
                    connection.ledger.grant(bytes);
                    self.actions.push(Action::Grant(id, Bytes(bytes)));
                }
            }
        }
        self.lend_windows(now);
    }

    /// Lends unused shares to active connections while none waits.
    fn lend_windows(&mut self, now: Duration) {
        let count = self.active.len() as u64;
        let is_contended = count == 0 || !self.waiting.is_empty() || count >= self.active_limit();
        if is_contended || !self.config.can_clamp_windows || self.capacity.is_unknown() {
            return;
        }
        let share = self.share_of(count);
        for &id in &self.active {
            if let Some(connection) = self.connections.get_mut(&id)
                && connection.ledger.grant_driven
                && connection.lend_window(now, share.window(connection))
            {
                self.actions.push(Action::SetWindow(
                    id,
                    Bytes(connection.window),
                    Reason::BelowShare,
                ));
            }
        }
    }

    /// Takes a lent window back before the next grant, unless the connection is alone.
    fn reclaim_window(&mut self, now: Duration, id: ConnectionId) {
        let is_alone = self.waiting.len() <= 1 && self.active.iter().all(|&active| active == id);
        if is_alone {
            return;
        }
        let share = self.share();
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.reclaim_window(now, share.window(connection))
        {
            self.actions.push(Action::SetWindow(id, Bytes(connection.window), Reason::FairShare));
        }
    }

    /// Returns the total window growth that fits in the BDP and the allowed queue.
    pub(super) fn window_headroom(&self) -> u64 {
        let share = self.share();
        let counted = self.connections.values().filter(|c| c.is_demanding());
        let (total, beyond) = counted.fold((0, 0), |(total, beyond), c| {
            (total + c.window, beyond + c.window.saturating_sub(share.bdp(c)))
        });
        let headroom = self.queue.limit.0.saturating_sub(beyond);
        if self.capacity.is_unknown() {
            headroom.max(total / CAPACITY_PROBE_DIVISOR)
        } else {
            headroom
        }
    }

    /// True if a grant still fits in the BDP and the allowed queue. Counts the bytes of all active
    /// connections.
    fn fits(&self, id: ConnectionId, bytes: u64) -> bool {
        let others = self.active.iter().filter(|&&other| other != id);
        let mut others: Vec<&Connection> =
            others.filter_map(|id| self.connections.get(id)).collect();
        let count = others.len() + 1;
        // Unscheduled connections are limited by their windows; counting them would block grants.
        others.retain(|other| other.ledger.grant_driven);
        let Some(own) = self.connections.get(&id).filter(|_| !others.is_empty()) else {
            return true;
        };
        let rate = self.capacity.rate().unwrap_or_default().bytes_per_sec() as f64;
        let rate = rate / count as f64;
        let queued = |connection: &Connection, granted: u64| {
            let bdp = (rate * connection.path.min_rtt().as_secs_f64()) as u64;
            self.in_flight_bound(connection, granted).saturating_sub(bdp)
        };
        let granted = own.ledger.outstanding().saturating_add(bytes);
        // Outstanding bytes of unscheduled connections are unbounded.
        let total = others.iter().fold(queued(own, granted), |total, other| {
            total.saturating_add(queued(other, other.ledger.outstanding()))
        });
        let probe_allowance = match self.capacity.is_unknown() {
            true => {
                others.iter().fold(own.window, |sum, other| sum + other.window)
                    / CAPACITY_PROBE_DIVISOR
            }
            false => 0,
        };
        total <= self.queue.limit.0 + probe_allowance
    }

    /// Activates a connection that gets a grant, or sends without one.
    pub(super) fn activate(&mut self, now: Duration, id: ConnectionId) {
        let share = self.share();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.activate(now) {
            connection.set_window(share.window(connection));
            self.actions.push(Action::SetWindow(id, Bytes(connection.window), Reason::Initial));
        }
        self.active.insert(id);
        self.active_time.start(now + connection.path.min_rtt(), self.received);
    }
}
