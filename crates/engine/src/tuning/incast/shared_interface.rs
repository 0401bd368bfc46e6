//! Interface shared by several receiving sessions, with all streams that use it.

use super::can_clamp_windows;
use super::flow_hook::FlowState;
use crate::base::sync::lock;
use crate::session::Session;
use crate::transport::control::Outbox;
use crate::transport::socket::Socket;
use crate::transport::socket::clamp_window;
use crate::tuning::{MAX_TCP_WINDOW, SAMPLE_INTERVAL};
use bankfull_control::ictcp::{Action, Config, ConnectionId, Ictcp, NewConnection, Sample};
use bankfull_control::pacing::{DEFAULT_MSS, DEFAULT_MTU};
use bankfull_control::{Bytes, Rate};
use bankfull_proto::wire::control::{Message, RateRequest, SenderReport};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Receive window that Linux offers before any clamp, if the kernel does not report it. (tcp_rmem's
/// default of 128 KiB yields 64 KiB, and 70 KiB after the first segment)
const DEFAULT_OFFERED_WINDOW: u32 = 72 << 10;

/// Most bytes received on a stream before the interface is notified. (chosen: half a millisecond
/// of 1 Gbit/s)
const MAX_NOTIFY_BYTES: u64 = 64 << 10;

/// Time that a session stays coscheduled once alone. (chosen: the sessions of a gather start one
/// after the other)
const DISENGAGE_DELAY: Duration = Duration::from_secs(1);

/// Shared interface of this process.
#[derive(Debug)]
pub(crate) struct SharedInterface {
    state: Mutex<State>,
    started: Instant,
}

#[derive(Debug)]
struct State {
    /// Link rate in packets' bytes, if known.
    link_rate: Option<Rate>,
    members: BTreeMap<ConnectionId, Member>,
    next_id: ConnectionId,
    /// Set while the streams are coscheduled.
    controller: Option<Ictcp>,
    /// The ticker thread runs.
    has_ticker: bool,
    alone_since: Option<Duration>,
    /// Rate limit that all sessions share, as the controller knows it.
    rate_max: Option<Rate>,
}

/// Stream of a session on this interface.
struct Member {
    session: Arc<Session>,
    outbox: Outbox,
    number: u32,
    socket: Socket,
    flow: Arc<FlowState>,
    /// Bytes received before it joined the controller.
    received_at_join: u64,
    /// Data has arrived since it joined.
    has_received: bool,
    requested_rate: Option<Rate>,
    /// Lost segments attributed to this stream.
    lost_segments: u64,
    /// Lost segments of its session when last counted.
    counted_session_loss: u64,
    /// In rounds: verified bytes of its source when it joined.
    barrier_offset: u64,
    /// In rounds: bytes requested since.
    barrier_requested: u64,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Member {
    fn new(
        session: Arc<Session>,
        outbox: Outbox,
        number: u32,
        socket: Socket,
        flow: Arc<FlowState>,
    ) -> Self {
        Self {
            session,
            outbox,
            number,
            socket,
            flow,
            received_at_join: 0,
            has_received: false,
            requested_rate: None,
            lost_segments: 0,
            counted_session_loss: 0,
            barrier_offset: 0,
            barrier_requested: 0,
        }
    }

    fn received(&self) -> u64 {
        self.flow.received.load(Ordering::Relaxed)
    }

    fn credit(&self) -> u64 {
        self.flow.credit.load(Ordering::Relaxed)
    }

    /// True if the sender needs credit and has no unlimited credit yet.
    fn is_grant_driven(&self) -> bool {
        self.session.sharing.is_grant_driven && self.credit() < u64::MAX
    }

    /// Grants the sender credit up to this offset.
    fn grant(&self, bytes: u64) {
        self.flow.credit.store(bytes, Ordering::Relaxed);
        if self.session.sharing.is_grant_driven {
            self.outbox.post_credit(self.number, bytes);
        }
    }

    /// Requests a rate from the sender, `None` for unlimited.
    fn request_rate(&self, rate: Option<Rate>) {
        let bytes_per_sec = rate.map(Rate::bytes_per_sec);
        // Dropped if the outbox is full: the session then has larger problems.
        self.outbox.try_post(&Message::RateRequest(RateRequest {
            bytes_per_sec,
            ..RateRequest::default()
        }));
    }

    /// Joins the controller.
    fn join(&mut self, controller: &mut Ictcp, now: Duration, id: ConnectionId) {
        // Before any request to the sender, so that the session's own tuner sends none.
        self.session.sharing.set_coscheduled(1, 1);
        let info = self.socket.tcp_info().unwrap_or_default();
        self.received_at_join = self.received();
        self.has_received = false;
        let mss = Bytes(if info.snd_mss > 0 { info.snd_mss.into() } else { DEFAULT_MSS.0 });
        let offered_window = Bytes(info.rcv_wnd.unwrap_or(DEFAULT_OFFERED_WINDOW).into());
        let is_grant_driven = self.is_grant_driven();
        self.counted_session_loss = lost_segments(&self.session.feedback.last_sender_report());
        let joining = NewConnection {
            mss,
            rtt: info.min_rtt,
            offered_window,
            grant_driven: is_grant_driven,
            lost_segments: self.lost_segments,
        };
        controller.join(now, id, &joining);
        if let Some(party) = &self.session.sharing.barrier_party {
            self.barrier_offset = party.progress().1;
            self.request_more(controller, id);
        } else if is_grant_driven {
            controller.add_demand(id, Bytes(u64::MAX));
        } else if self.received_at_join > 0 {
            // Lifts a rate that its own tuner may have requested.
            self.request_rate(None);
        }
    }

    /// Returns the stream's lost segments, with the session's new losses if `is_first`.
    fn attribute_loss(&mut self, session_loss: u64, is_first: bool) -> u64 {
        let new = session_loss.saturating_sub(self.counted_session_loss);
        self.lost_segments += if is_first { new } else { 0 };
        self.counted_session_loss = self.counted_session_loss.max(session_loss);
        self.lost_segments
    }

    /// In rounds: requests the bytes that the barrier allows by now.
    fn request_more(&mut self, controller: &mut Ictcp, id: ConnectionId) {
        let Some(party) = &self.session.sharing.barrier_party else { return };
        let allowed = party.progress().0.saturating_sub(self.barrier_offset);
        if allowed > self.barrier_requested {
            controller.add_demand(id, Bytes(allowed - self.barrier_requested));
            self.barrier_requested = allowed;
        }
    }

    /// Returns the stream to its session's own tuner.
    fn release(&mut self) {
        self.flow.notify_at.store(u64::MAX, Ordering::Relaxed);
        self.flow.window.store(0, Ordering::Relaxed);
        clamp_window(&self.socket, MAX_TCP_WINDOW);
        if self.is_grant_driven() {
            self.grant(u64::MAX);
        }
        if self.requested_rate.take().is_some() {
            self.request_rate(None);
        }
        self.session.sharing.set_coscheduled(0, 0);
    }

    /// Schedules the next notification, at `next` bytes since it joined or earlier.
    fn schedule_notify(&self, next: Option<Bytes>) {
        let latest = self.received() + MAX_NOTIFY_BYTES;
        let next = next.map_or(latest, |next| latest.min(self.received_at_join + next.0));
        self.flow.notify_at.store(next, Ordering::Relaxed);
    }
}

/// Returns a sender's lost segments: retransmitted ones without the spurious.
fn lost_segments(report: &SenderReport) -> u64 {
    report.retransmits.saturating_sub(report.spurious_retransmits.unwrap_or_default())
}

impl SharedInterface {
    pub(crate) fn new(link_rate: Option<Rate>) -> Self {
        let state = State {
            link_rate,
            members: BTreeMap::new(),
            next_id: 0,
            controller: None,
            has_ticker: false,
            alone_since: None,
            rate_max: None,
        };
        Self { state: Mutex::new(state), started: Instant::now() }
    }

    /// Attaches a stream. Returns its id.
    pub(crate) fn attach(
        self: &Arc<Self>,
        session: Arc<Session>,
        outbox: Outbox,
        number: u32,
        socket: Socket,
        flow: Arc<FlowState>,
    ) -> ConnectionId {
        let now = self.started.elapsed();
        let mut state = lock(&self.state);
        let id = state.next_id;
        state.next_id += 1;
        state.link_rate = session.sharing.link_rate.or(state.link_rate);
        state.members.insert(id, Member::new(session, outbox, number, socket, flow));
        if state.controller.is_some() {
            state.join(now, id);
        } else if state.is_shared() {
            state.engage(now);
        } else if let Some(member) = state.members.get(&id) {
            member.grant(u64::MAX);
        }
        state.execute_actions(now);
        state.publish_windows();
        if state.controller.is_some() && !std::mem::replace(&mut state.has_ticker, true) {
            let interface = Arc::clone(self);
            // Without a ticker, stalled senders go unnoticed, so coscheduling ends.
            let ticker =
                thread::Builder::new().name("incast".into()).spawn(move || interface.run_ticker());
            if ticker.is_err() {
                state.disengage();
            }
        }
        id
    }

    /// Detaches a stream that has ended.
    pub(crate) fn detach(&self, id: ConnectionId) {
        let now = self.started.elapsed();
        let mut state = lock(&self.state);
        if let Some(member) = state.members.remove(&id) {
            state.on_detached(&member);
        }
        if let Some(controller) = &mut state.controller {
            controller.leave(now, id);
        }
        state.execute_actions(now);
        state.publish_windows();
    }

    /// Handles the notification of a stream, which may end its time slot.
    pub(crate) fn on_received(&self, id: ConnectionId) {
        let now = self.started.elapsed();
        let mut state = lock(&self.state);
        let State { controller: Some(controller), members, .. } = &mut *state else { return };
        let Some(member) = members.get_mut(&id) else { return };
        controller.on_received(now, id, Bytes(member.received() - member.received_at_join));
        if !std::mem::replace(&mut member.has_received, true)
            && let Some(window) = member.socket.tcp_info().and_then(|info| info.rcv_wnd)
        {
            controller
                .on_window_offered(id, Bytes(member.socket.unread_bytes() + u64::from(window)));
        }
        member.schedule_notify(controller.next_report_at(id));
        state.execute_actions(now);
    }

    /// In rounds: allows a frame that ends at this offset of the stream to be completed.
    pub(crate) fn extend(&self, id: ConnectionId, end: u64) {
        let now = self.started.elapsed();
        let mut state = lock(&self.state);
        let State { controller: Some(controller), members, .. } = &mut *state else { return };
        let Some(member) = members.get_mut(&id) else { return };
        if let Some(party) = &member.session.sharing.barrier_party {
            party.extend(member.barrier_offset + end);
        }
        member.request_more(controller, id);
        state.execute_actions(now);
    }

    /// In rounds: requests newly allowed bytes of all streams.
    pub(crate) fn request_more(&self) {
        let now = self.started.elapsed();
        let mut state = lock(&self.state);
        let State { controller: Some(controller), members, .. } = &mut *state else { return };
        members.iter_mut().for_each(|(&id, member)| member.request_more(controller, id));
        state.execute_actions(now);
    }

    /// Ticks the controller until the interface is no longer shared.
    fn run_ticker(&self) {
        loop {
            thread::sleep(SAMPLE_INTERVAL);
            let now = self.started.elapsed();
            let mut state = lock(&self.state);
            state.tick(now);
            state.execute_actions(now);
            state.publish_windows();
            if state.should_disengage(now) {
                state.disengage();
                return;
            }
        }
    }
}

impl State {
    /// Ends coscheduling of a session whose last stream was detached.
    fn on_detached(&self, detached: &Member) {
        let is_same = |member: &Member| Arc::ptr_eq(&member.session, &detached.session);
        if !self.members.values().any(is_same) {
            detached.session.sharing.set_coscheduled(0, 0);
            if detached.requested_rate.is_some() {
                detached.request_rate(None);
            }
        }
    }

    /// True if several sessions are attached or expected.
    fn is_shared(&self) -> bool {
        let needs = |member: &Member| member.session.sharing.needs_coscheduling();
        self.has_multiple_sessions() || self.members.values().any(needs)
    }

    fn has_multiple_sessions(&self) -> bool {
        let mut sessions = self.members.values().map(|member| Arc::as_ptr(&member.session));
        let first = sessions.next();
        first.is_some_and(|first| sessions.any(|other| other != first))
    }

    /// Returns the data rate that the sessions may fill, if known: the interface's, or the user's
    /// lower limit.
    fn capacity(&self) -> Option<Rate> {
        let data = DEFAULT_MSS.0 as f64 / DEFAULT_MTU.0 as f64;
        let link = self.link_rate.map(|rate| rate.bits_per_sec() as f64 * data);
        link.map(Rate::from_bits_per_sec).into_iter().chain(self.rate_max).min()
    }

    /// Returns the rate limit that all sessions share; `None` if some have none.
    fn shared_rate_max(&self) -> Option<Rate> {
        let limit = |member: &Member| member.session.receive_limit.as_ref()?.user_rate();
        let limits = self.members.values().map(limit).collect::<Option<Vec<_>>>()?;
        limits.into_iter().max()
    }

    /// Passes a change of the shared rate limit to the controller.
    fn poll_rate_max(&mut self) {
        let rate_max = self.shared_rate_max();
        if std::mem::replace(&mut self.rate_max, rate_max) != rate_max {
            let capacity = self.capacity();
            self.controller.iter_mut().for_each(|controller| controller.set_capacity(capacity));
        }
    }

    /// Starts coscheduling of all streams.
    fn engage(&mut self, now: Duration) {
        self.rate_max = self.shared_rate_max();
        let capacity = self.capacity();
        let holds_windows = can_clamp_windows();
        let config = Config { capacity, can_clamp_windows: holds_windows, ..Config::default() };
        self.controller = Some(Ictcp::new(config));
        self.alone_since = None;
        let ids: Vec<ConnectionId> = self.members.keys().copied().collect();
        ids.into_iter().for_each(|id| self.join(now, id));
    }

    fn join(&mut self, now: Duration, id: ConnectionId) {
        if let (Some(controller), Some(member)) = (&mut self.controller, self.members.get_mut(&id))
        {
            member.join(controller, now, id);
        }
    }

    /// Ends coscheduling of all streams.
    fn disengage(&mut self) {
        self.controller = None;
        self.has_ticker = false;
        self.members.values_mut().for_each(Member::release);
    }

    /// True if at most one session was attached for the delay, and none is expected.
    fn should_disengage(&mut self, now: Duration) -> bool {
        if self.is_shared() {
            self.alone_since = None;
            return false;
        }
        let since = *self.alone_since.get_or_insert(now);
        self.members.is_empty() || now >= since + DISENGAGE_DELAY
    }

    /// Passes a sample of all streams to the controller.
    fn tick(&mut self, now: Duration) {
        self.poll_rate_max();
        let Some(controller) = &mut self.controller else { return };
        let mut counted = BTreeSet::new();
        let samples = self.members.iter_mut().map(|(&id, member)| {
            let report = member.session.feedback.last_sender_report();
            // A report covers all streams of a session: its losses go to the first.
            let is_first = counted.insert(Arc::as_ptr(&member.session));
            Sample {
                id,
                received: Bytes(member.received() - member.received_at_join),
                rtt: report.rtt_us.map(Duration::from_micros),
                lost_segments: member.attribute_loss(lost_segments(&report), is_first),
            }
        });
        let samples: Vec<Sample> = samples.collect();
        controller.tick(now, &samples);
    }

    /// Executes the controller's actions: grants, windows and rate requests.
    fn execute_actions(&mut self, now: Duration) {
        let Some(controller) = &mut self.controller else { return };
        let actions: Vec<Action> = controller.poll_actions(now).collect();
        for action in actions {
            match action {
                Action::Grant(id, bytes) => {
                    let Some(member) = self.members.get(&id) else { continue };
                    member.grant(member.credit().saturating_add(bytes.0));
                    member.schedule_notify(controller.next_report_at(id));
                }
                Action::SetWindow(id, window, reason) => {
                    let Some(member) = self.members.get(&id) else { continue };
                    member.session.sharing.set_window_reason(reason);
                    member.schedule_notify(controller.next_report_at(id));
                    let bytes = u32::try_from(window.0).unwrap_or(u32::MAX);
                    member.flow.window.store(bytes, Ordering::Relaxed);
                    if let Socket::Tcp(tcp) = &member.socket {
                        // If the kernel cannot clamp it, time slots alone limit the stream.
                        let _ = bankfull_sys::set_window_clamp(tcp, bytes);
                    }
                }
                Action::SetPacing(id, rate) => {
                    let Some(member) = self.members.get_mut(&id) else { continue };
                    member.requested_rate = Some(rate);
                    let session = Arc::as_ptr(&member.session);
                    let own = self.members.values().filter(|m| Arc::as_ptr(&m.session) == session);
                    let total = own.filter_map(|m| m.requested_rate).map(Rate::bytes_per_sec).sum();
                    if let Some(member) = self.members.get(&id) {
                        let total = Rate::from_bytes_per_sec(total);
                        member.session.sharing.set_pacing(total);
                        member.request_rate(Some(total));
                    }
                }
            }
        }
    }

    /// Publishes the total window of each session.
    fn publish_windows(&self) {
        if self.controller.is_none() {
            return;
        }
        let mut windows = BTreeMap::new();
        for member in self.members.values() {
            let (_, sum) =
                windows.entry(Arc::as_ptr(&member.session)).or_insert((&member.session, 0));
            *sum += u64::from(member.flow.window.load(Ordering::Relaxed));
        }
        for (session, window) in windows.into_values() {
            // At least 1, because 0 means not coscheduled.
            session.sharing.set_coscheduled(window.max(1), self.members.len());
        }
    }
}
