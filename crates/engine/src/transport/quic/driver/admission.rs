//! Admission of connections to a socket: limits of authenticated ones and of strangers.

use super::{ConnectionEntry, ConnectionInner, EventLoop, MAX_UNVALIDATED};
use crate::base::log_limiter::network;
use crate::base::strangers::{self, Stranger};
use crate::base::sync::lock;
use quinn_proto::{ConnectionHandle, EndpointEvent, Incoming};
use std::sync::Arc;
use std::time::Instant;

impl EventLoop {
    /// Accepts a connection, refuses it, or requests address validation.
    pub(super) fn admit(&mut self, now: Instant, incoming: Incoming) {
        let limits = self.driver.listener.as_ref();
        let (max_authenticated, max_strangers) =
            limits.map_or((0, 0), |listener| (listener.connections_max, listener.strangers_max));
        // Bounds the closed connections that are kept.
        let max_kept = (max_authenticated + max_strangers) * 2;
        if self.connections.len() >= max_kept {
            self.evict_oldest_closed();
        }
        let is_full =
            self.authenticated_count() >= max_authenticated || self.connections.len() >= max_kept;
        let mut response = Vec::new();
        let mut endpoint = lock(&self.driver.endpoint);
        let Some(listener) = &self.driver.listener else {
            endpoint.ignore(incoming);
            return;
        };
        let accepted = if is_full {
            Err(Some(endpoint.refuse(incoming, &mut response)))
        } else if !incoming.remote_address_validated()
            && self.unvalidated_count() >= MAX_UNVALIDATED
        {
            Err(endpoint.retry(incoming, &mut response).ok())
        } else {
            let (config, params) = (listener.config)(incoming.remote_address());
            let accepted = endpoint.accept(incoming, now, &mut response, Some(config));
            accepted.map(|new| (new, params)).map_err(|e| e.response)
        };
        drop(endpoint);
        match accepted {
            Ok(((handle, connection), params)) => {
                let conn = ConnectionInner::new(
                    handle,
                    connection,
                    Arc::clone(&self.driver.waker),
                    params,
                );
                self.insert(conn);
                self.evict_stranger(max_strangers);
            }
            Err(Some(transmit)) => drop(self.transmit(&transmit, &response)),
            Err(None) => {}
        }
    }

    /// Removes the oldest closed connection.
    fn evict_oldest_closed(&mut self) {
        let closed =
            self.connections.iter().filter(|(_, one)| one.conn.state().connection.is_closed());
        let oldest = closed.min_by_key(|(_, entry)| entry.accepted_at).map(|(&handle, _)| handle);
        oldest.into_iter().for_each(|handle| self.evict(handle));
    }

    /// Closes a connection that has not authenticated if there are too many.
    fn evict_stranger(&mut self, max: usize) {
        let stranger = |(&key, entry): (&ConnectionHandle, &ConnectionEntry)| {
            let state = entry.conn.state();
            let is_stranger = !state.is_authenticated() && !state.connection.is_closed();
            let network = network(state.connection.remote_address().ip());
            is_stranger.then_some(Stranger { key, network, since: entry.accepted_at })
        };
        let mut strangers: Vec<_> = self.connections.iter().filter_map(stranger).collect();
        strangers.sort_by_key(|stranger| stranger.since);
        let excess = strangers::excess(&strangers, max);
        excess.into_iter().for_each(|handle| self.evict(handle));
    }

    /// Closes and removes a connection.
    fn evict(&mut self, handle: ConnectionHandle) {
        let Some(entry) = self.connections.get(&handle) else { return };
        let conn = Arc::clone(&entry.conn);
        conn.close();
        self.service(&conn);
        if self.connections.remove(&conn.handle()).is_some() {
            lock(&self.driver.endpoint).handle_event(conn.handle(), EndpointEvent::drained());
        }
    }

    /// Returns the number of open authenticated connections.
    ///
    /// Closed ones are kept for late datagrams (RFC 9000 §10.2) and do not count.
    fn authenticated_count(&self) -> usize {
        let counts = |entry: &&ConnectionEntry| {
            let state = entry.conn.state();
            state.is_authenticated() && !state.connection.is_closed()
        };
        self.connections.values().filter(counts).count()
    }

    /// Returns the number of connections whose peer address is not validated.
    fn unvalidated_count(&self) -> usize {
        self.connections.values().filter(|entry| !entry.conn.state().is_connected).count()
    }
}
