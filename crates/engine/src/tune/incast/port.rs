//! All data connections that come in by one interface, steered together while several sessions
//! share it.

use super::holds_windows;
use super::lane::Flow;
use crate::net::control::{Outbox, lock};
use crate::net::socket::Socket;
use crate::session::Session;
use crate::tune::{LOOK, OPEN, hold_window};
use bankfull_control::ictcp::{Config, Ictcp, Id, Joining, Order, Seen};
use bankfull_control::pacing::{DEFAULT_MSS, DEFAULT_MTU};
use bankfull_control::{Bytes, Rate};
use bankfull_proto::wire::control::{Message, RateRequest, SenderReport};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What a connection offers its sender as long as nobody has changed that, where the kernel does
/// not tell. (tcp_rmem's default of 128 KiB gives 64 KiB, and 70 when the first segment has come)
const OFFERED: u32 = 72 << 10;

/// At least as often the port is told what comes. (ours: half a millisecond of 1 Gbit/s)
const TOLD: u64 = 64 << 10;

/// A session that is left alone for so long is steered by itself again. (ours: those of a gather
/// come one after the other)
const ALONE: Duration = Duration::from_secs(1);

/// The connections of an interface.
#[derive(Debug)]
pub(super) struct Port {
    state: Mutex<State>,
    began: Instant,
}

#[derive(Debug)]
struct State {
    /// What the link carries in packets, as far as that is known.
    link_rate: Option<Rate>,
    members: BTreeMap<Id, Member>,
    next: Id,
    /// While several sessions are there.
    control: Option<Ictcp>,
    /// A thread looks at it now and then.
    is_watched: bool,
    alone_since: Option<Duration>,
}

/// A connection.
struct Member {
    session: Arc<Session>,
    outbox: Outbox,
    number: u32,
    socket: Socket,
    flow: Arc<Flow>,
    /// What had come when it joined the control.
    base: u64,
    /// Something has come since.
    is_heard: bool,
    pace: Option<Rate>,
    /// Segments lost on its way, and what its session had lost in all when that was counted last.
    lost: u64,
    session_lost: u64,
    /// In rounds: how far its source had come when it joined, and what was wanted of it since.
    began_at: u64,
    wanted: u64,
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
        flow: Arc<Flow>,
    ) -> Self {
        let (base, lost, session_lost, began_at, wanted) = (0, 0, 0, 0, 0);
        Self {
            session,
            outbox,
            number,
            socket,
            flow,
            base,
            is_heard: false,
            pace: None,
            lost,
            session_lost,
            began_at,
            wanted,
        }
    }

    fn received(&self) -> u64 {
        self.flow.received.load(Ordering::Relaxed)
    }

    fn asked(&self) -> u64 {
        self.flow.asked.load(Ordering::Relaxed)
    }

    /// Whether its sender may be asked for each byte, and was not for all.
    fn obeys(&self) -> bool {
        self.session.sharing.obeys && self.asked() < u64::MAX
    }

    /// Its sender may send up to here.
    fn ask(&self, bytes: u64) {
        self.flow.asked.store(bytes, Ordering::Relaxed);
        if self.session.sharing.obeys {
            self.outbox.post_credit(self.number, bytes);
        }
    }

    fn pace(&self, rate: Option<Rate>) {
        let bytes_per_sec = rate.map(Rate::bytes_per_sec);
        // Where much waits to be sent it has other troubles.
        self.outbox.try_post(&Message::RateRequest(RateRequest {
            bytes_per_sec,
            ..RateRequest::default()
        }));
    }

    /// Is steered with others from now on.
    fn join(&mut self, control: &mut Ictcp, now: Duration, id: Id) {
        // Before anything is asked of the sender here: its session asks for nothing any more.
        self.session.sharing.hold(1, 1);
        let info = self.socket.tcp_info().unwrap_or_default();
        self.base = self.received();
        self.is_heard = false;
        let segment = Bytes(if info.snd_mss > 0 { info.snd_mss.into() } else { DEFAULT_MSS.0 });
        let offered = Bytes(info.rcv_wnd.unwrap_or(OFFERED).into());
        let obeys = self.obeys();
        self.session_lost = lost(&self.session.feedback.last_sight());
        let lost = self.lost;
        control.join(now, id, &Joining { segment, rtt: info.min_rtt, offered, obeys, lost });
        if let Some(seat) = &self.session.sharing.seat {
            self.began_at = seat.course().1;
            self.want_more(control, id);
        } else if obeys {
            control.want(id, Bytes(u64::MAX));
        } else if self.base > 0 {
            // It may have been paced, which would not be its share.
            self.pace(None);
        }
    }

    /// Its session has lost so much by now; what of it counts for this connection, with what did
    /// before.
    fn count_lost(&mut self, session: u64, is_own: bool) -> u64 {
        self.lost += if is_own { session.saturating_sub(self.session_lost) } else { 0 };
        self.session_lost = self.session_lost.max(session);
        self.lost
    }

    /// In rounds: more may be wanted by now.
    fn want_more(&mut self, control: &mut Ictcp, id: Id) {
        let Some(seat) = &self.session.sharing.seat else { return };
        let wanted = seat.course().0.saturating_sub(self.began_at);
        if wanted > self.wanted {
            control.want(id, Bytes(wanted - self.wanted));
            self.wanted = wanted;
        }
    }

    /// Is left to its session again.
    fn release(&mut self) {
        self.flow.next_at.store(u64::MAX, Ordering::Relaxed);
        self.flow.window.store(0, Ordering::Relaxed);
        hold_window(&self.socket, OPEN);
        if self.obeys() {
            self.ask(u64::MAX);
        }
        if self.pace.take().is_some() {
            self.pace(None);
        }
        self.session.sharing.hold(0, 0);
    }

    /// When the port wants to know of it next.
    fn note_next(&self, next: Option<Bytes>) {
        let told = self.received() + TOLD;
        let next = next.map_or(told, |next| told.min(self.base + next.0));
        self.flow.next_at.store(next, Ordering::Relaxed);
    }
}

/// Segments that were lost, as far as the sender tells: a tail that is sent again in doubt is none.
fn lost(sight: &SenderReport) -> u64 {
    sight.retransmits.saturating_sub(sight.spurious_retransmits.unwrap_or_default())
}

impl Port {
    pub(super) fn new(link_rate: Option<Rate>) -> Self {
        let state = State {
            link_rate,
            members: BTreeMap::new(),
            next: 0,
            control: None,
            is_watched: false,
            alone_since: None,
        };
        Self { state: Mutex::new(state), began: Instant::now() }
    }

    /// A connection comes in here.
    pub(super) fn enter(
        self: &Arc<Self>,
        session: Arc<Session>,
        outbox: Outbox,
        number: u32,
        socket: Socket,
        flow: Arc<Flow>,
    ) -> Id {
        let now = self.began.elapsed();
        let mut state = lock(&self.state);
        let id = state.next;
        state.next += 1;
        state.link_rate = session.sharing.link_rate.or(state.link_rate);
        state.members.insert(id, Member::new(session, outbox, number, socket, flow));
        if state.control.is_some() {
            state.join(now, id);
        } else if state.is_shared() {
            state.engage(now);
        } else if let Some(member) = state.members.get(&id) {
            member.ask(u64::MAX);
        }
        state.obey(now);
        state.tell();
        if state.control.is_some() && !std::mem::replace(&mut state.is_watched, true) {
            let port = Arc::clone(self);
            // Without it nobody would see who is silent: then each is left to its session.
            let watching = thread::Builder::new().name("incast".into()).spawn(move || port.watch());
            if watching.is_err() {
                state.disengage();
            }
        }
        id
    }

    /// A connection has ended.
    pub(super) fn leave(&self, id: Id) {
        let now = self.began.elapsed();
        let mut state = lock(&self.state);
        if let Some(left) = state.members.remove(&id) {
            state.let_go(&left);
        }
        if let Some(control) = &mut state.control {
            control.leave(now, id);
        }
        state.obey(now);
        state.tell();
    }

    /// So much has come on a connection that others might have their turn.
    pub(super) fn on_received(&self, id: Id) {
        let now = self.began.elapsed();
        let mut state = lock(&self.state);
        let State { control: Some(control), members, .. } = &mut *state else { return };
        let Some(member) = members.get_mut(&id) else { return };
        control.on_received(now, id, Bytes(member.received() - member.base));
        if !std::mem::replace(&mut member.is_heard, true)
            && let Some(window) = member.socket.tcp_info().and_then(|info| info.rcv_wnd)
        {
            control.on_offered(id, Bytes(member.socket.unread_bytes() + u64::from(window)));
        }
        member.note_next(control.next_look(id));
        state.obey(now);
    }

    /// In rounds: a frame of a connection has begun that ends there, counted from its beginning.
    pub(super) fn extend(&self, id: Id, end: u64) {
        let now = self.began.elapsed();
        let mut state = lock(&self.state);
        let State { control: Some(control), members, .. } = &mut *state else { return };
        let Some(member) = members.get_mut(&id) else { return };
        if let Some(seat) = &member.session.sharing.seat {
            seat.extend(member.began_at + end);
        }
        member.want_more(control, id);
        state.obey(now);
    }

    /// In rounds: another one has begun.
    pub(super) fn ask_more(&self) {
        let now = self.began.elapsed();
        let mut state = lock(&self.state);
        let State { control: Some(control), members, .. } = &mut *state else { return };
        members.iter_mut().for_each(|(&id, member)| member.want_more(control, id));
        state.obey(now);
    }

    /// Looks at all of them now and then, until nobody shares it any more.
    fn watch(&self) {
        loop {
            thread::sleep(LOOK);
            let now = self.began.elapsed();
            let mut state = lock(&self.state);
            state.tick(now);
            state.obey(now);
            state.tell();
            if state.is_done(now) {
                state.disengage();
                return;
            }
        }
    }
}

impl State {
    /// A connection has left. Where its session has none here any more, that is steered by itself
    /// when it has one again.
    fn let_go(&self, left: &Member) {
        let is_same = |member: &Member| Arc::ptr_eq(&member.session, &left.session);
        if !self.members.values().any(is_same) {
            left.session.sharing.hold(0, 0);
            if left.pace.is_some() {
                left.pace(None);
            }
        }
    }

    /// Whether several sessions are there, or are about to be.
    fn is_shared(&self) -> bool {
        self.has_several() || self.members.values().any(|m| m.session.sharing.needs_port())
    }

    fn has_several(&self) -> bool {
        let mut sessions = self.members.values().map(|member| Arc::as_ptr(&member.session));
        let first = sessions.next();
        first.is_some_and(|first| sessions.any(|other| other != first))
    }

    /// What the port carries in data.
    fn capacity(&self) -> Option<Rate> {
        let data = DEFAULT_MSS.0 as f64 / DEFAULT_MTU.0 as f64;
        self.link_rate.map(|rate| Rate::from_bits_per_sec(rate.bits_per_sec() as f64 * data))
    }

    /// Steers all of them together from now on.
    fn engage(&mut self, now: Duration) {
        let capacity = self.capacity();
        let config = Config { capacity, holds_windows: holds_windows(), ..Config::default() };
        self.control = Some(Ictcp::new(config));
        self.alone_since = None;
        let ids: Vec<Id> = self.members.keys().copied().collect();
        ids.into_iter().for_each(|id| self.join(now, id));
    }

    fn join(&mut self, now: Duration, id: Id) {
        if let (Some(control), Some(member)) = (&mut self.control, self.members.get_mut(&id)) {
            member.join(control, now, id);
        }
    }

    /// Leaves them to their sessions.
    fn disengage(&mut self) {
        self.control = None;
        self.is_watched = false;
        self.members.values_mut().for_each(Member::release);
    }

    /// Whether there has been no more than one session for long, nor are others about to come.
    fn is_done(&mut self, now: Duration) -> bool {
        if self.is_shared() {
            self.alone_since = None;
            return false;
        }
        let since = *self.alone_since.get_or_insert(now);
        self.members.is_empty() || now >= since + ALONE
    }

    fn tick(&mut self, now: Duration) {
        let Some(control) = &mut self.control else { return };
        let mut told = BTreeSet::new();
        let seen = self.members.iter_mut().map(|(&id, member)| {
            let sight = member.session.feedback.last_sight();
            // The sender tells of all its connections together: that counts for the first.
            let is_first = told.insert(Arc::as_ptr(&member.session));
            Seen {
                id,
                received: Bytes(member.received() - member.base),
                rtt: sight.rtt_us.map(Duration::from_micros),
                lost: member.count_lost(lost(&sight), is_first),
            }
        });
        let seen: Vec<Seen> = seen.collect();
        control.tick(now, &seen);
    }

    /// Does what was ordered.
    fn obey(&mut self, now: Duration) {
        let Some(control) = &mut self.control else { return };
        let orders: Vec<Order> = control.take_orders(now).collect();
        for order in orders {
            match order {
                Order::Ask(id, bytes) => {
                    let Some(member) = self.members.get(&id) else { continue };
                    member.ask(member.asked().saturating_add(bytes.0));
                    member.note_next(control.next_look(id));
                }
                Order::Window(id, window, _) => {
                    let Some(member) = self.members.get(&id) else { continue };
                    member.note_next(control.next_look(id));
                    let bytes = u32::try_from(window.0).unwrap_or(u32::MAX);
                    member.flow.window.store(bytes, Ordering::Relaxed);
                    if let Socket::Tcp(tcp) = &member.socket {
                        // Where the kernel cannot, turns are left.
                        let _ = bankfull_sys::hold_window(tcp, bytes);
                    }
                }
                Order::Pace(id, rate) => {
                    let Some(member) = self.members.get_mut(&id) else { continue };
                    member.pace = Some(rate);
                    let session = Arc::as_ptr(&member.session);
                    let own = self.members.values().filter(|m| Arc::as_ptr(&m.session) == session);
                    let all = own.filter_map(|m| m.pace).map(Rate::bytes_per_sec).sum();
                    if let Some(member) = self.members.get(&id) {
                        member.pace(Some(Rate::from_bytes_per_sec(all)));
                    }
                }
            }
        }
    }

    /// Tells the sessions what is held of theirs.
    fn tell(&self) {
        if self.control.is_none() {
            return;
        }
        let mut windows = BTreeMap::new();
        for member in self.members.values() {
            let (_, sum) =
                windows.entry(Arc::as_ptr(&member.session)).or_insert((&member.session, 0));
            *sum += u64::from(member.flow.window.load(Ordering::Relaxed));
        }
        for (session, windows) in windows.into_values() {
            // Where windows are not held, they are steered all the same.
            session.sharing.hold(windows.max(1), self.members.len());
        }
    }
}
