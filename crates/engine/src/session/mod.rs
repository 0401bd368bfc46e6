//! State that the threads of one session share: first error, stop signal, streams and settings.

pub(crate) mod feedback_inbox;
pub(crate) mod interface_sharing;
mod lifecycle;
pub(crate) mod send_setup;
mod stream_table;
mod stream_target;

use crate::base::error::Error;
use crate::base::threads::try_spawn;
use crate::file_io::storage_quota::StorageQuota;
use crate::model::overrides::Overrides;
use crate::model::overrides::check_rate_limit;
use crate::model::shared_limit::SharedLimit;
use crate::model::throttle::Throttle;
use crate::stats::session_stats::UserLimits;
use crate::stats::transport_stats::TransportStats;
use crate::transport::buffer_pool::BufferPool;
use crate::transport::data_stream::DataStream;
use crate::transport::entry_quota::EntryQuota;
use crate::transport::socket::Socket;
use crate::transport::udp_receive_buffer::BufferAdvice;
use bankfull_control::path_control::CachedPath;
use bankfull_control::{Bytes, ControllerKind, Rate, pacing};
use bankfull_proto::limits::MAX_OUTSTANDING_FILES;
use bankfull_proto::session::{Guard, Role};
use bankfull_proto::wire::control::RateLimit;
use bankfull_sys::TcpInfo;
use feedback_inbox::FeedbackInbox;
use interface_sharing::InterfaceSharing;
use lifecycle::{Lifecycle, WaitLimit};
use send_setup::SendSetup;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use stream_table::StreamTable;
use stream_target::StreamTarget;
use tracing::debug;

/// State that the threads of a session share.
#[derive(Default)]
pub(crate) struct Session {
    lifecycle: Lifecycle,
    pub(crate) streams: StreamTable,
    /// Number of streams that are to carry data.
    pub(crate) target: StreamTarget,
    /// Statistics and requests of the peer, from the control thread to the tuner.
    pub(crate) feedback: FeedbackInbox,
    pub(crate) overrides: Overrides,
    /// Limits of the data streams, on the sending side.
    pub(crate) send: SendSetup,
    /// Rate limit shared with other sessions, on the receiving side.
    pub(crate) receive_limit: Option<Arc<SharedLimit>>,
    /// The peer follows changes of the rate limit.
    pub(crate) is_rate_followed: bool,
    /// Sharing of the interface with other sessions, on the receiving side.
    pub(crate) sharing: InterfaceSharing,
    /// Buffers for received data that waits for the disk.
    pub(crate) buffer_pool: Arc<BufferPool>,
    /// Quota of outstanding entries, on the receiving side.
    pub(crate) entry_quota: Option<Arc<EntryQuota>>,
    /// Quota of the share, on the receiving side.
    pub(crate) storage_quota: Option<Arc<StorageQuota>>,
    /// Advice about the UDP socket's receive buffer; taken by the thread that watches it.
    pub(crate) advice: Mutex<Option<BufferAdvice>>,
    /// Rate and RTT of the path in an earlier transfer.
    pub(crate) cached_path: Option<CachedPath>,
    /// Controller of window and pacing rate, on the receiving side.
    pub(crate) controller: ControllerKind,
}

impl Session {
    /// Returns a session with the user's settings and this initial number of streams.
    pub(crate) fn new(overrides: Overrides, initial_streams: u32) -> Self {
        let send = SendSetup::new(overrides.throttle());
        let target = StreamTarget::new(initial_streams);
        Self { send, overrides, target, ..Self::default() }
    }

    /// Returns each stream's share of the window that the user has set.
    pub(crate) fn window_share(&self) -> Option<Bytes> {
        let count = self.target.initial().max(self.stream_count() as u32);
        self.overrides.window.map(|window| pacing::window_per_stream(window, count))
    }

    /// Returns the number of outstanding files that are of use on the path.
    pub(crate) fn useful_outstanding_files(&self) -> u32 {
        let sampled = self.streams.sample(|_, _, _| {});
        let rtt = sampled.min_rtt.or(sampled.quic_smoothed_rtt);
        rtt.map_or(MAX_OUTSTANDING_FILES, send_setup::useful_files)
    }

    /// Returns the rates that the user's settings allow: rate limit, and window over min RTT.
    pub(crate) fn user_limits(&self) -> UserLimits {
        let min_rtt = self.streams.min_rtt();
        let window = self.overrides.window.zip(min_rtt).map(|(window, rtt)| window.per(rtt));
        let shared_bytes = self.shared_bytes();
        UserLimits { rate_max: self.rate_max(), shared_bytes, window, is_local: false }
    }

    /// Returns the bytes of all sessions that share a rate limit, if this one does.
    pub(crate) fn shared_bytes(&self) -> Option<Bytes> {
        self.receive_limit.as_ref().and_then(|limit| limit.received())
    }

    /// Returns the present rate limit of all data streams together.
    pub(crate) fn rate_max(&self) -> Option<Rate> {
        self.throttle().and_then(|throttle| throttle.rate())
    }

    /// Replaces the rate limit, on this side. No effect unless a change was expected.
    pub(crate) fn set_rate_max(&self, rate: Option<Rate>) {
        if let Some(throttle) = self.throttle() {
            throttle.set_rate(rate);
        }
        if let Some(limit) = &self.receive_limit {
            limit.set_rate(rate);
        }
    }

    /// True if a rate limit that the session shares holds its data on this side.
    pub(crate) fn is_receiving_limited(&self) -> bool {
        self.receive_limit.as_ref().is_some_and(|limit| limit.rate().is_some())
    }

    /// Applies the client's change of the rate limit.
    ///
    /// # Errors
    /// A limit that is too low.
    pub(crate) fn on_rate_limit(&self, limit: RateLimit) -> Result<(), Error> {
        let rate = limit.bytes_per_sec.map(Rate::from_bytes_per_sec);
        check_rate_limit(rate)?;
        self.set_rate_max(rate);
        Ok(())
    }

    /// Returns the guard of this side's messages, which has this role.
    pub(crate) fn guard(&self, role: Role) -> Guard {
        Guard::new(role).with_rate_changes(self.overrides.rate_changes)
    }

    /// Stops the session with an error; the first one is kept.
    pub(crate) fn fail(&self, error: Error) {
        debug!(reason = &*error.to_string(), "session failed");
        self.lifecycle.record_error(error);
        self.stop();
    }

    /// Stops the session and wakes its threads, which then check [`is_stopped`](Self::is_stopped).
    pub(crate) fn stop(&self) {
        self.lifecycle.set_stopped();
        self.streams.shutdown();
        self.lifecycle.run_stop_callbacks();
        self.send.close();
        if let Some(limit) = &self.receive_limit {
            limit.close();
        }
        self.target.wake_spawners();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.lifecycle.is_stopped()
    }

    /// Ends the waits of this thread and its new ones once the session stops.
    pub(crate) fn limit_waits(&self) -> WaitLimit {
        self.lifecycle.limit_waits()
    }

    /// Takes the error that ended the session.
    pub(crate) fn take_error(&self) -> Option<Error> {
        self.lifecycle.take_error()
    }

    /// Registers `close` to be called when the session stops, immediately if it has stopped.
    pub(crate) fn on_stop(&self, close: impl Fn() + Send + 'static) {
        self.lifecycle.on_stop(close);
    }

    /// Starts a thread of this session; on failure the session ends with that error.
    pub(crate) fn spawn<'scope, 'env: 'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        work: impl FnOnce() + Send + 'scope,
    ) {
        if let Err(e) = try_spawn(scope, work) {
            self.fail(e);
        }
    }

    /// Sets how many streams carry data: the most recent ones pause, missing ones are made. No
    /// effect if the number is fixed.
    pub(crate) fn set_wanted_streams(&self, count: u32) {
        self.target.set_wanted(count);
    }

    /// Returns how many streams are to carry data.
    pub(crate) fn wanted_streams(&self) -> u32 {
        self.target.wanted()
    }

    /// Returns the first stream number that is paused; `None` if no stream is.
    pub(crate) fn first_paused(&self) -> Option<u32> {
        self.streams.number_at(self.wanted_streams() as usize)
    }

    /// Returns how many existing streams carry data.
    pub(crate) fn active_stream_count(&self) -> u32 {
        self.wanted_streams().min(self.stream_count() as u32)
    }

    /// True if a stream is paused: it carries no data for now.
    pub(crate) fn is_paused(&self, number: u32) -> bool {
        self.first_paused().is_some_and(|first| number >= first)
    }

    /// Applies the user's settings to a sending stream, then waits for its staggered start. Returns
    /// false if a setting failed, which ends the session.
    pub(crate) fn prepare_sender(&self, number: u32, stream: &mut DataStream) -> bool {
        let prepared = self.send.prepare(&self.overrides, number, stream);
        prepared.map_err(|error| self.fail(error)).is_ok()
    }

    /// Returns the rate limit that sending streams wait for.
    pub(crate) fn throttle(&self) -> Option<Arc<Throttle>> {
        self.send.throttle()
    }

    /// Adds a data stream, so that [`stop`](Self::stop) can shut it down. Fails with
    /// `ConnectionAborted` if its number was given up.
    pub(crate) fn add_stream(&self, number: u32, socket: &Socket) -> io::Result<()> {
        let added = self.streams.add(number, socket);
        // After it was added: a stop in between shuts it down.
        if self.is_stopped() {
            socket.shutdown();
        }
        added
    }

    /// Removes a data stream; returns true if it was present.
    pub(crate) fn remove_stream(&self, number: u32) -> bool {
        self.streams.remove(number)
    }

    /// Closes a data stream for good; returns true if it was present.
    pub(crate) fn close_stream(&self, number: u32) -> bool {
        self.send.release_credit(number);
        self.streams.close(number)
    }

    pub(crate) fn stream_count(&self) -> usize {
        self.streams.count()
    }

    pub(crate) fn for_each_stream(&self, visit: impl FnMut(u32, &Socket)) {
        self.streams.for_each(visit);
    }

    /// Calls `visit` with the `TCP_INFO` of each stream; returns totals, with QUIC and removed
    /// streams included.
    pub(crate) fn sample_streams(
        &self,
        visit: impl FnMut(u32, &Socket, &TcpInfo),
    ) -> TransportStats {
        self.streams.sample(visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// Session with `streams` streams at first and at most eight.
    fn adjustable_session(streams: u32) -> Session {
        let mut session = Session::new(Overrides::default(), streams);
        session.target.max = Some(8);
        session
    }

    #[test]
    fn rate_limit_of_the_client_replaces_the_request() {
        let overrides = Overrides { rate_changes: true, ..Overrides::default() };
        let session = Session::new(overrides, 1);
        let change = |bytes_per_sec| session.on_rate_limit(RateLimit { bytes_per_sec });
        assert_eq!(session.rate_max(), None);
        change(Some(1_000_000)).unwrap();
        assert_eq!(session.rate_max(), Some(Rate::from_bytes_per_sec(1_000_000)));
        for too_low in [0, 12_499] {
            let error = change(Some(too_low)).unwrap_err();
            assert!(error.to_string().contains("is too low"), "{error}");
        }
        assert_eq!(session.rate_max(), Some(Rate::from_bytes_per_sec(1_000_000)));
        change(None).unwrap();
        assert_eq!(session.rate_max(), None);
    }

    #[test]
    fn most_recent_streams_pause_until_more_are_wanted() {
        let session = adjustable_session(3);
        let sockets: Vec<Socket> =
            (0..3).map(|_| Socket::Unix(UnixStream::pair().unwrap().0)).collect();
        for (number, socket) in [7, 2, 4].into_iter().zip(&sockets) {
            session.add_stream(number, socket).unwrap();
        }
        let paused = || [2, 4, 7].map(|number| session.is_paused(number));
        assert_eq!((paused(), session.active_stream_count()), ([false; 3], 3));
        session.set_wanted_streams(1);
        assert_eq!((paused(), session.active_stream_count()), ([false, true, true], 1));
        // A paused stream replaces a lost one.
        session.remove_stream(2);
        assert_eq!(paused(), [false, false, true]);
        session.set_wanted_streams(5);
        assert_eq!((paused(), session.active_stream_count()), ([false; 3], 2));
        session.set_wanted_streams(0);
        assert!(!session.is_paused(4), "at least one stream carries data");
    }
}
