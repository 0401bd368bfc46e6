//! Open and closed data streams of a session, and their totals.

use crate::base::sync::lock;
use crate::stats::quic_stats::Cumulative;
use crate::stats::transport_stats::TransportStats;
use crate::transport::socket::Socket;
use bankfull_control::Bytes;
use bankfull_sys::TcpInfo;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Mutex;
use std::time::Duration;

/// Maximum number of closed streams that are remembered: the window of stream numbers. (an earlier
/// one is refused by `StreamNumbers`)
const MAX_CLOSED: usize = 1024;

/// Data streams of a session by their numbers.
#[derive(Default)]
pub(crate) struct StreamTable {
    state: Mutex<TableState>,
}

#[derive(Default)]
struct TableState {
    open: BTreeMap<u32, Socket>,
    /// Numbers of streams that either side has given up, the highest [`MAX_CLOSED`]; a late
    /// connection with one is refused.
    closed: BTreeSet<u32>,
    /// Sum over the TCP streams that were removed.
    removed_stats: TransportStats,
    /// Sum over QUIC connections, one after another.
    quic: Cumulative,
}

impl StreamTable {
    /// Adds a data stream.
    ///
    /// # Errors
    /// `ConnectionAborted` if its number was given up; errors of duplicating the socket.
    pub(crate) fn add(&self, number: u32, socket: &Socket) -> io::Result<()> {
        let socket = socket.try_clone()?;
        let mut state = lock(&self.state);
        if state.closed.contains(&number) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.open.insert(number, socket);
        Ok(())
    }

    /// Removes a data stream; returns true if it was present.
    pub(crate) fn remove(&self, number: u32) -> bool {
        let mut state = lock(&self.state);
        let removed = state.open.remove(&number);
        if let Some(info) = removed.as_ref().and_then(Socket::tcp_info) {
            state.removed_stats.add_tcp(&info);
        }
        if let Some(stats) = removed.as_ref().and_then(Socket::quic_stats) {
            state.removed_stats.mss = state.removed_stats.mss.max(stats.segment);
        }
        removed.is_some()
    }

    /// Closes a data stream for good; returns true if it was present.
    pub(crate) fn close(&self, number: u32) -> bool {
        let mut state = lock(&self.state);
        state.closed.insert(number);
        if state.closed.len() > MAX_CLOSED {
            state.closed.pop_first();
        }
        match state.open.get(&number) {
            Some(socket) => {
                socket.shutdown();
                true
            }
            None => false,
        }
    }

    /// Shuts down all streams; their threads then fail.
    pub(crate) fn shutdown(&self) {
        lock(&self.state).open.values().for_each(Socket::shutdown);
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.state).open.len()
    }

    /// Returns the number of the stream at `index` in ascending order.
    pub(crate) fn number_at(&self, index: usize) -> Option<u32> {
        lock(&self.state).open.keys().nth(index).copied()
    }

    /// Returns the largest MSS of removed streams, or the QUIC packet size; zero if unknown.
    pub(crate) fn mss(&self) -> Bytes {
        lock(&self.state).removed_stats.mss
    }

    /// Records the min RTT of the control connection, which no data delays.
    pub(crate) fn record_min_rtt(&self, min_rtt: Option<Duration>) {
        let mut state = lock(&self.state);
        let known = min_rtt.filter(|rtt| !rtt.is_zero());
        state.removed_stats.min_rtt = state.removed_stats.min_rtt.into_iter().chain(known).min();
    }

    /// Returns the smallest min RTT of the control connection and of removed TCP streams.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        lock(&self.state).removed_stats.min_rtt
    }

    pub(crate) fn for_each(&self, mut visit: impl FnMut(u32, &Socket)) {
        lock(&self.state).open.iter().for_each(|(&number, socket)| visit(number, socket));
    }

    /// Calls `visit` with the `TCP_INFO` of each stream; returns totals, with QUIC and removed
    /// streams included.
    pub(crate) fn sample(&self, mut visit: impl FnMut(u32, &Socket, &TcpInfo)) -> TransportStats {
        let mut state = lock(&self.state);
        // All streams share one QUIC connection.
        let quic = state.open.values().find_map(Socket::quic_stats);
        if let Some(stats) = quic {
            state.quic.record(stats);
        }
        let mut total = state.removed_stats;
        total.add_quic(&state.quic.total());
        for (&number, socket) in &state.open {
            if let Some(info) = socket.tcp_info() {
                total.add_tcp(&info);
                visit(number, socket, &info);
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::quic::tests::pair;
    use std::io::{Read, Write};
    use std::thread;

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[test]
    fn min_rtt_is_that_of_the_control_connection_at_most() {
        let table = StreamTable::default();
        let record = |ms| table.record_min_rtt(Some(Duration::from_millis(ms)));
        record(60);
        record(0);
        record(80);
        assert_eq!(table.sample(|_, _, _| {}).min_rtt, Some(Duration::from_millis(60)));
    }

    #[test]
    fn closed_streams_are_remembered_in_bounded_memory() {
        let table = StreamTable::default();
        (0..100_000).for_each(|number| assert!(!table.close(number)));
        let state = lock(&table.state);
        assert_eq!(state.closed.len(), MAX_CLOSED);
        assert!(state.closed.contains(&99_999) && !state.closed.contains(&0));
    }

    #[test]
    fn table_counts_a_shared_connection_once() {
        let pair = pair();
        let (local, remote) = (StreamTable::default(), StreamTable::default());
        let data = vec![7; 8 << 20];
        let mut all = Vec::new();
        for number in 0..2 {
            let mut stream = pair.connection.open(TIMEOUT).unwrap();
            stream.write_all(b"x").unwrap();
            let (mut accepted, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
            accepted.read_exact(&mut [0]).unwrap();
            local.add(number, &Socket::Quic(stream.clone())).unwrap();
            remote.add(number, &Socket::Quic(accepted.clone())).unwrap();
            all.push((stream, accepted));
        }
        let (stream, accepted) = &mut all[0];
        let (mut stream, mut accepted) = (stream.clone(), accepted.clone());
        thread::scope(|scope| {
            scope.spawn(|| stream.write_all(&data).unwrap());
            accepted.read_exact(&mut vec![0; data.len()]).unwrap();
        });
        let (sent, received) = (local.sample(|_, _, _| {}), remote.sample(|_, _, _| {}));
        assert!(sent.quic_smoothed_rtt.is_some() && received.quic_smoothed_rtt.is_some());
        // Includes protocol overhead, retransmissions and MTU probes.
        let expected = data.len() as u64..2 * data.len() as u64;
        assert!(
            expected.contains(&sent.acked) && expected.contains(&received.received),
            "{sent:?} {received:?}"
        );
        assert_eq!(local.mss(), Bytes(0), "no stream was removed");
        local.remove(0);
        assert!(local.mss() >= Bytes(1200), "the QUIC minimum");
        local.remove(1);
        assert!(local.sample(|_, _, _| {}).acked >= sent.acked, "counts persist");
    }
}
