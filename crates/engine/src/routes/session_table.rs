//! Running sessions of a daemon or agent: data streams join them, and their totals are summed up.

use super::access::Client;
use super::slots::{SessionSlots, StreamSlot};
use super::stream_numbers::StreamNumbers;
use crate::base::error::Error;
use crate::base::sync::lock;
use crate::run::streams::AcceptedStream;
use crate::session::Session;
use crate::stats::server_status::ServerStatus;
use bankfull_control::StageTimes;
use bankfull_proto::limits::MAX_STREAMS;
use bankfull_proto::wire::attach::{self, Attach};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, mpsc};

/// Ended sessions that are kept. (chosen: as many as may end within an RTT)
const MAX_ENDED_SESSIONS: usize = 64;

/// A session with what it has carried.
#[derive(Clone)]
pub(super) struct CountedSession {
    pub(super) session: Arc<Session>,
    /// True if this side receives.
    pub(super) is_receiving: bool,
    /// Stage times of this side.
    pub(super) stages: Arc<Mutex<StageTimes>>,
}

impl CountedSession {
    /// Adds what the session has carried so far.
    fn add_to(&self, status: &mut ServerStatus) {
        let stats = self.session.sample_streams(|_, _, _| {});
        let stages = *lock(&self.stages);
        status.direction_mut(self.is_receiving).add(self.is_receiving, &stats, &stages);
    }
}

/// A session that data streams may join.
pub(super) struct JoinableSession {
    /// The client that requested it.
    pub(super) client: Client,
    pub(super) version: u16,
    pub(super) key: [u8; 32],
    pub(super) is_unencrypted: bool,
    pub(super) slots: Arc<SessionSlots>,
    pub(super) numbers: StreamNumbers,
    pub(super) accepted: mpsc::Sender<AcceptedStream>,
    pub(super) counted: CountedSession,
}

/// Place of a data stream in its session.
pub(super) struct StreamPlace {
    pub(super) key: [u8; 32],
    pub(super) slot: StreamSlot,
    pub(super) accepted: mpsc::Sender<AcceptedStream>,
}

/// Running sessions by their IDs.
#[derive(Default)]
pub(super) struct SessionTable {
    sessions: Mutex<HashMap<[u8; 16], JoinableSession>>,
    /// Sessions that ended recently; late data streams may still arrive for them.
    recently_ended: Mutex<VecDeque<[u8; 16]>>,
    /// Totals of the sessions that ended. Locked before `sessions`.
    ended: Mutex<ServerStatus>,
}

impl SessionTable {
    /// Number of running sessions.
    pub(super) fn count(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Adds a session, which data streams may join from now on.
    pub(super) fn insert(&self, id: [u8; 16], session: JoinableSession) {
        lock(&self.sessions).insert(id, session);
    }

    /// Removes a session that has ended.
    pub(super) fn remove(&self, id: [u8; 16]) {
        {
            let mut recent = lock(&self.recently_ended);
            recent.push_back(id);
            if recent.len() > MAX_ENDED_SESSIONS {
                recent.pop_front();
            }
        }
        let mut ended = lock(&self.ended);
        let removed = lock(&self.sessions).remove(&id);
        removed.iter().for_each(|session| session.counted.add_to(&mut ended));
    }

    /// Fails all sessions.
    pub(super) fn fail_all(&self, error: impl Fn() -> Error) {
        for entry in lock(&self.sessions).values() {
            entry.counted.session.fail(error());
        }
    }

    /// Fails the sessions of clients that `check` refuses.
    pub(super) fn fail_refused(&self, check: impl Fn(&Client) -> Result<(), Error>) {
        for entry in lock(&self.sessions).values() {
            if let Err(error) = check(&entry.client) {
                entry.counted.session.fail(error);
            }
        }
    }

    /// Returns the sessions at present, and totals of all since the start.
    ///
    /// A session that ends meanwhile counts once.
    pub(super) fn status(&self) -> ServerStatus {
        let ended = lock(&self.ended);
        let mut status = *ended;
        let running: Vec<CountedSession> =
            lock(&self.sessions).values().map(|entry| entry.counted.clone()).collect();
        for counted in &running {
            counted.add_to(&mut status);
            let direction = status.direction_mut(counted.is_receiving);
            direction.sessions += 1;
            direction.streams += counted.session.stream_count() as u64;
        }
        status
    }

    /// Returns the place of a data stream that has proved its membership.
    ///
    /// Fails with `NotFound` when the session has ended, `ResourceBusy` without a slot, and
    /// `PermissionDenied` otherwise.
    pub(super) fn place(
        &self,
        attach: &Attach,
        bytes: &[u8; attach::REQUEST_BYTES],
        is_encrypted: bool,
    ) -> io::Result<StreamPlace> {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let mut sessions = lock(&self.sessions);
        let entry = sessions.get_mut(&attach.session).ok_or_else(|| {
            let is_late = lock(&self.recently_ended).contains(&attach.session);
            if is_late { late() } else { refused() }
        })?;
        let is_authentic = attach::verify(bytes, &entry.key);
        let is_authentic = is_authentic && attach.version == entry.version;
        if !is_authentic
            || (!is_encrypted && !entry.is_unencrypted)
            || !entry.numbers.is_new(attach.stream)
        {
            return Err(refused());
        }
        let running = entry.counted.session.stream_count();
        let slot = entry.slots.attach().filter(|_| running < MAX_STREAMS as usize);
        let slot = slot.ok_or(io::ErrorKind::ResourceBusy)?;
        entry.numbers.insert(attach.stream);
        Ok(StreamPlace { key: entry.key, slot, accepted: entry.accepted.clone() })
    }
}

/// Error of a data stream whose session has ended.
pub(super) fn late() -> io::Error {
    io::ErrorKind::NotFound.into()
}
