//! Staging: the memory in which what came off the network waits until it is written. All that a
//! process receives shares it, so that its limit is one. How much there may be follows the load by
//! RRDA (`control::rrda::staging`); what is not in use is the host's.

use crate::net::control::lock;
use bankfull_control::Bytes;
use bankfull_control::rrda::backlog::Backlog;
use bankfull_control::rrda::staging::{Interval, Staging as Rule};
use bankfull_control::rrda::{Bounds, EPOCH, Reason};
use bankfull_sys::{Memory, Pages};
use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes received, hashed and written at a time: fits a core's second-level cache.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// Pieces that each connection may have in any case: one that is being filled, one that is being
/// written, and four between them, enough to bridge a short stall of either thread and few enough
/// to stay in the third-level cache. 24 MiB for 16 streams.
const PIECES: u64 = 6;
const OWN_BYTES: u64 = PIECES * PIECE_BYTES as u64;

/// Unless it is said, no more than this part of the memory that is free, and no more than so much:
/// what is not written yet is sent again where a copy is interrupted. (ours: 10 Gbit/s for 0.8 s)
const FREE_PART: u64 = 4;
const MOST: Bytes = Bytes::mib(1024);

/// This part of the limit is left to connections that have less than their [`PIECES`]: a disk that
/// stalls must not hold up what goes to another. (ours)
const RESERVED_PART: u64 = 4;

/// Of what was in use within an epoch and is not, so much is kept at most, since it may be needed
/// again: a new page is emptied by the kernel first. (ours: 1 Gbit/s for 64 ms)
const KEPT_BYTES: u64 = 8 << 20;

/// Where unread data is not kept by the kernel, connections may have this part of the limit for it,
/// beyond the limit. (ours)
const UNREAD_PART: u64 = 4;

/// How often it is read how much memory is free.
const MEMORY_LOOK: Duration = Duration::from_secs(1);

/// The memory that connections share.
#[derive(Default)]
pub(crate) struct Staging {
    /// As the user has said.
    limit: Option<Bytes>,
    state: Mutex<Option<State>>,
    /// Whether somebody has waited for something to write in this epoch.
    was_starved: AtomicBool,
    /// Connections whose unread data is not kept by the kernel, and what all may have.
    unread: AtomicU64,
    unread_most: Mutex<Option<(Instant, Bytes)>>,
}

/// What has come and waits to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Staged {
    /// The most since it was asked last.
    pub(crate) most: Bytes,
    /// How much may wait.
    pub(crate) size: Bytes,
    /// When that has changed last, and why.
    pub(crate) change: Option<(Instant, Reason)>,
}

/// A connection whose unread data is kept in this process.
pub(crate) struct Unread(Arc<Staging>);

struct State {
    /// Times of backlogs count from here.
    origin: Instant,
    rule: Rule,
    /// When its size has changed last, and why.
    change: Option<(Instant, Reason)>,
    /// The most there may be, and the memory in use on this host, as they were read last.
    limit: u64,
    memory: f64,
    looked: Instant,
    /// Bytes of pieces that are in use, and pieces that are kept for the next.
    held: u64,
    /// The most of them since somebody asked for it.
    most: u64,
    /// Of those, what connections have beyond their [`PIECES`].
    extra: u64,
    spare: Vec<Pages>,
    /// Connections.
    shares: u64,
    /// Those that wait for room, and since when there has been one.
    waiting: VecDeque<Arc<Share>>,
    full_since: Option<Instant>,
    /// When the epoch began, and what it has been like.
    began: Instant,
    epoch: Interval,
}

/// A connection's part in it.
pub(crate) struct Share {
    staging: Arc<Staging>,
    /// Bytes of pieces in use; changed under the lock of all.
    used: AtomicU64,
    /// When more may be in use than connections have in any case.
    backlog: Mutex<Backlog>,
    room: Condvar,
}

/// Memory for a piece of what is received. Dropped, it goes back.
pub(crate) struct Piece {
    pages: Option<Pages>,
    len: usize,
    share: Arc<Share>,
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staging").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Staging {
    /// No more than so many bytes, where that is said.
    pub(crate) fn new(limit: Option<Bytes>) -> Arc<Self> {
        Arc::new(Self { limit, ..Self::default() })
    }

    /// A connection's part.
    pub(crate) fn share(self: &Arc<Self>) -> Arc<Share> {
        let mut state = lock(&self.state);
        let state = state.get_or_insert_with(|| State::new(self.limit));
        state.shares += 1;
        state.set_bounds();
        Arc::new(Share {
            staging: Arc::clone(self),
            used: AtomicU64::new(0),
            backlog: Mutex::new(Backlog::new(state.origin.elapsed())),
            room: Condvar::new(),
        })
    }

    /// Of a connection whose unread data is kept in this process.
    pub(crate) fn unread(self: &Arc<Self>) -> Unread {
        self.unread.fetch_add(1, Ordering::Relaxed);
        Unread(Arc::clone(self))
    }

    /// What of the memory may be had by what the kernel, or a library, keeps for connections.
    fn unread_most(&self) -> Bytes {
        let mut most = lock(&self.unread_most);
        let now = Instant::now();
        let known = most.filter(|(at, _)| now.saturating_duration_since(*at) < MEMORY_LOOK);
        let read = || {
            let held = lock(&self.state).as_ref().map_or(0, |state| state.held);
            let limit = self.limit.unwrap_or_else(|| usual(bankfull_sys::memory().ok(), held));
            (now, Bytes(limit.0 / UNREAD_PART))
        };
        most.insert(known.unwrap_or_else(read)).1
    }

    /// What the receive buffer of a socket may have, where a limit is said.
    pub(crate) fn socket_most(&self) -> Option<Bytes> {
        self.limit.map(|limit| Bytes(limit.0 / UNREAD_PART))
    }

    /// What waits in it; `None` where nothing is received.
    pub(crate) fn buffered_peak(&self) -> Option<Staged> {
        let mut state = lock(&self.state);
        let state = state.as_mut()?;
        let most = std::mem::replace(&mut state.most, state.held).max(state.held);
        Some(Staged { most: Bytes(most), size: state.rule.size(), change: state.change })
    }

    /// How much there is room for.
    #[cfg(test)]
    fn size(&self) -> Bytes {
        lock(&self.state).as_ref().map_or(Bytes(0), |state| state.rule.size())
    }
}

impl State {
    fn new(limit: Option<Bytes>) -> Self {
        let now = Instant::now();
        let mut state = Self {
            origin: now,
            rule: Rule::new(Bounds { min: Bytes(0), max: Bytes(0) }),
            change: None,
            limit: 0,
            memory: 0.0,
            looked: now,
            held: 0,
            most: 0,
            extra: 0,
            spare: Vec::new(),
            shares: 0,
            waiting: VecDeque::new(),
            full_since: None,
            began: now,
            epoch: nothing(0, 0.0),
        };
        state.look(limit, now);
        state
    }

    /// Reads how much memory there is.
    fn look(&mut self, limit: Option<Bytes>, now: Instant) {
        self.looked = now;
        let memory = bankfull_sys::memory().ok();
        self.memory = memory.map_or(0.0, |memory| memory.used_part());
        // What is held here is not free, and yet ours to have.
        self.limit = limit.unwrap_or_else(|| usual(memory, self.held)).0;
        self.set_bounds();
    }

    fn set_bounds(&mut self) {
        let max = self.limit - self.limit / RESERVED_PART;
        let before = self.rule.size();
        self.rule.set_bounds(Bounds { min: Bytes(self.least()), max: Bytes(max) });
        self.note_change(before, Reason::Bound);
    }

    /// Notes why the size is another one than before, if it is.
    fn note_change(&mut self, before: Bytes, reason: Reason) {
        if self.rule.size() != before {
            self.change = Some((Instant::now(), reason));
        }
    }

    /// What connections have in any case.
    fn least(&self) -> u64 {
        let max = self.limit - self.limit / RESERVED_PART;
        (self.shares * OWN_BYTES).min(max)
    }

    /// Whether a connection may have another piece.
    fn has_room(&self, share: &Share, now: Instant) -> bool {
        let piece = PIECE_BYTES as u64;
        let used = share.used.load(Ordering::Relaxed);
        let fits = self.held + piece <= self.limit;
        let beyond = Bytes((used + piece).saturating_sub(OWN_BYTES));
        let is_let = || {
            self.extra + piece <= self.rule.size().0.saturating_sub(self.least())
                && lock(&share.backlog).admits(now.duration_since(self.origin), beyond)
        };
        // Each has one in any case: what it does not read may keep others from what they wait for.
        fits && (beyond == Bytes(0) || is_let()) || used == 0
    }

    /// Sets the size, where an epoch is over.
    fn advance(&mut self, staging: &Staging, now: Instant) {
        let elapsed = now.saturating_duration_since(self.began);
        if elapsed < EPOCH {
            return;
        }
        self.count_full(now);
        self.epoch.elapsed = elapsed;
        self.epoch.was_starved = staging.was_starved.swap(false, Ordering::Relaxed);
        if now.saturating_duration_since(self.looked) >= MEMORY_LOOK {
            self.look(staging.limit, now);
        }
        let before = self.rule.size();
        let (size, reason) = self.rule.on_epoch(&self.epoch);
        self.note_change(before, reason);
        if size > before {
            self.waiting.iter().for_each(|share| share.room.notify_one());
        }
        let spare = self.kept_most().saturating_sub(self.held) / PIECE_BYTES as u64;
        self.spare.truncate(spare as usize);
        self.began = now;
        self.epoch = nothing(self.held, self.memory);
    }

    /// Counts the time in which somebody waited.
    fn count_full(&mut self, now: Instant) {
        if let Some(since) = self.full_since {
            self.epoch.kept_out += now.saturating_duration_since(since.max(self.began));
            self.full_since = (!self.waiting.is_empty()).then_some(now);
        }
    }

    fn take(&mut self, share: &Share, now: Instant) -> io::Result<Pages> {
        let pages = self.spare.pop().map_or_else(|| Pages::new(PIECE_BYTES), Ok)?;
        self.held += PIECE_BYTES as u64;
        match share.used.fetch_add(PIECE_BYTES as u64, Ordering::Relaxed) {
            0 => lock(&share.backlog).on_first(now.duration_since(self.origin)),
            used if used >= OWN_BYTES => self.extra += PIECE_BYTES as u64,
            _ => {}
        }
        self.epoch.most = self.epoch.most.max(Bytes(self.held));
        self.most = self.most.max(self.held);
        self.epoch.arrived += Bytes(PIECE_BYTES as u64);
        Ok(pages)
    }

    /// How much is kept for the next piece, in use or not: what connections have in any case, and
    /// what was in use in this epoch, up to [`KEPT_BYTES`] more.
    fn kept_most(&self) -> u64 {
        let least = self.least();
        self.epoch.most.0.clamp(least, least + KEPT_BYTES)
    }

    /// A piece is not needed any more; its memory is kept where connections need that much.
    fn give_back(&mut self, pages: Pages, share: &Share) {
        self.held -= PIECE_BYTES as u64;
        let used = share.used.fetch_sub(PIECE_BYTES as u64, Ordering::Relaxed);
        if used > OWN_BYTES {
            self.extra -= PIECE_BYTES as u64;
        }
        let beyond = Bytes(used.saturating_sub(OWN_BYTES + PIECE_BYTES as u64));
        lock(&share.backlog).on_done(self.origin.elapsed(), beyond);
        self.epoch.least = self.epoch.least.min(Bytes(self.held));
        self.epoch.processed += Bytes(PIECE_BYTES as u64);
        let kept = self.held + (self.spare.len() * PIECE_BYTES) as u64;
        if kept < self.kept_most() {
            self.spare.push(pages);
        }
        self.woken_by(share, Instant::now()).for_each(|waiting| waiting.room.notify_one());
    }

    /// The first of those who wait for whom there is room.
    fn next_waiting(&self, now: Instant) -> Option<&Arc<Share>> {
        self.waiting.iter().find(|waiting| self.has_room(waiting, now))
    }

    /// Whose wait may be over when a connection has given a piece back: its own, where it may have
    /// another one in its place, and that of the first of the others for whom there is room.
    fn woken_by(&self, share: &Share, now: Instant) -> impl Iterator<Item = &Arc<Share>> {
        let is_own = move |waiting: &&Arc<Share>| std::ptr::eq(Arc::as_ptr(waiting), share);
        let own = self.waiting.iter().find(is_own).filter(move |own| self.has_room(own, now));
        let mut others = self.waiting.iter().filter(move |waiting| !is_own(waiting));
        own.into_iter().chain(others.find(move |other| self.has_room(other, now)))
    }
}

fn usual(memory: Option<Memory>, held: u64) -> Bytes {
    memory.map_or(MOST, |memory| MOST.min(Bytes((memory.free + held) / FREE_PART)))
}

/// An epoch in which nothing has happened yet.
fn nothing(held: u64, memory: f64) -> Interval {
    Interval {
        elapsed: Duration::ZERO,
        arrived: Bytes(0),
        processed: Bytes(0),
        most: Bytes(held),
        least: Bytes(held),
        kept_out: Duration::ZERO,
        was_starved: false,
        memory,
    }
}

impl Share {
    /// Memory for a piece of so many bytes, [`PIECE_BYTES`] at most; waits until there is room.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> io::Result<Piece> {
        let mut guard = lock(&self.staging.state);
        let mut has_queued = false;
        let pages = loop {
            let now = Instant::now();
            let state = guard.get_or_insert_with(|| State::new(self.staging.limit));
            state.advance(&self.staging, now);
            if state.has_room(self, now) {
                if has_queued {
                    state.waiting.retain(|share| !Arc::ptr_eq(share, self));
                    state.count_full(now);
                }
                let pages = state.take(self, now)?;
                // What two have given back may have woken this one twice, and nobody else.
                if has_queued && let Some(next) = state.next_waiting(now) {
                    next.room.notify_one();
                }
                break pages;
            }
            if !std::mem::replace(&mut has_queued, true) {
                state.waiting.push_back(Arc::clone(self));
                state.full_since.get_or_insert(now);
            }
            // Nobody else may look at the clock meanwhile.
            let left = EPOCH.saturating_sub(now.saturating_duration_since(state.began));
            let halts = lock(&self.backlog).halts_in(now.duration_since(state.origin));
            let left = if halts.is_zero() { left } else { left.min(halts) };
            guard = self.room.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        Ok(Piece { pages: Some(pages), len: len.min(PIECE_BYTES), share: Arc::clone(self) })
    }

    /// Whoever writes has nothing to do.
    pub(crate) fn on_starved(&self) {
        self.staging.was_starved.store(true, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut guard = lock(&self.staging.state);
        let Some(state) = &mut *guard else { return };
        state.shares -= 1;
        if state.shares == 0 {
            // What comes next is another load.
            *guard = None;
            return;
        }
        let most = state.least() / PIECE_BYTES as u64;
        state.spare.truncate(most as usize);
        state.set_bounds();
    }
}

impl Unread {
    /// How much that may be now.
    pub(crate) fn most(&self) -> Bytes {
        let connections = self.0.unread.load(Ordering::Relaxed).max(1);
        Bytes(self.0.unread_most().0 / connections)
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.0.unread.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], |pages| &pages[..self.len])
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], |pages| &mut pages[..self.len])
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut state = lock(&self.share.staging.state);
        if let (Some(state), Some(pages)) = (&mut *state, self.pages.take()) {
            // Where nothing more is taken, nobody else gives back what is not needed.
            state.advance(&self.share.staging, Instant::now());
            state.give_back(pages, &self.share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    const PIECE: u64 = PIECE_BYTES as u64;

    #[test]
    fn a_connection_has_its_pieces_and_waits_for_more() {
        let staging = Staging::new(Some(Bytes::mib(64)));
        let share = staging.share();
        assert_eq!(staging.size(), Bytes(PIECES * PIECE));
        let mut pieces: Vec<_> = (0..PIECES).map(|_| share.take(PIECE_BYTES).unwrap()).collect();
        let (sender, taken) = mpsc::channel();
        let other = Arc::clone(&share);
        let waiting = thread::spawn(move || sender.send(other.take(5).unwrap()).unwrap());
        assert!(taken.recv_timeout(Duration::from_millis(30)).is_err());
        pieces.pop();
        assert_eq!(taken.recv_timeout(Duration::from_secs(5)).unwrap().len(), 5);
        waiting.join().unwrap();
    }

    #[test]
    fn while_the_disk_stalls_there_is_room_and_all_of_it_is_given_back() {
        let staging = Staging::new(Some(Bytes::mib(64)));
        let share = staging.share();
        share.on_starved();
        let (sender, queue) = mpsc::channel();
        let reader = Arc::clone(&share);
        let began = Instant::now();
        // A disk that takes a piece as it comes, until it stalls.
        let disk = thread::spawn(move || {
            while began.elapsed() < 3 * EPOCH {
                drop(queue.recv().unwrap());
            }
            thread::sleep(6 * EPOCH);
            drop(queue);
        });
        let why = || staging.buffered_peak().and_then(|staged| staged.change);
        let at_first = why();
        assert_eq!(
            at_first.map(|(_, reason)| reason),
            Some(Reason::Bound),
            "there is a connection"
        );
        let mut most = Bytes(0);
        let mut reasons = Vec::new();
        while let Ok(piece) = reader.take(PIECE_BYTES) {
            most = most.max(staging.size());
            reasons.extend(why().filter(|&why| Some(why) != at_first).map(|(_, reason)| reason));
            if sender.send(piece).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        disk.join().unwrap();
        assert!(most > Bytes(4 * PIECES * PIECE), "{most}");
        assert!(most <= Bytes::mib(48), "the rest is for others: {most}");
        assert!(reasons.contains(&Reason::Discarded), "{reasons:?}");
        drop((reader, share));
        assert!(lock(&staging.state).is_none());
    }

    #[test]
    fn the_limit_holds_and_whoever_has_nothing_gets_something() {
        let staging = Staging::new(Some(Bytes(8 * PIECE)));
        let shares: Vec<_> = (0..10).map(|_| staging.share()).collect();
        let many: Vec<_> = (0..6).map(|_| shares[0].take(1)).collect();
        assert!(many.iter().all(Result::is_ok));
        // What is left is for those that have less.
        let _others = [shares[1].take(1).unwrap(), shares[2].take(1).unwrap()];
        // It is full, and yet each has one in any case, and no more.
        let _one = shares[9].take(1).unwrap();
        let (sender, taken) = mpsc::channel();
        let last = Arc::clone(&shares[9]);
        let waiting = thread::spawn(move || sender.send(last.take(1).unwrap()).unwrap());
        assert!(taken.recv_timeout(Duration::from_millis(30)).is_err());
        drop(many);
        taken.recv_timeout(Duration::from_secs(5)).unwrap();
        waiting.join().unwrap();
    }

    #[test]
    fn what_comes_back_wakes_whoever_has_room_by_it() {
        let staging = Staging::new(Some(Bytes(9 * PIECE)));
        let [own, other, third] = [staging.share(), staging.share(), staging.share()];
        let woken = |waiting: &[&Arc<Share>]| {
            let mut guard = lock(&staging.state);
            let state = guard.as_mut().unwrap();
            state.waiting = waiting.iter().map(|&share| Arc::clone(share)).collect();
            // At a moment at which nobody's processing stands still.
            let woken: Vec<_> = state.woken_by(&own, state.origin).map(Arc::as_ptr).collect();
            state.waiting.clear();
            woken
        };
        let [of_own, of_other] = [&own, &other].map(Arc::as_ptr);
        let take = |share: &Arc<Share>, pieces| -> Vec<_> {
            (0..pieces).map(|_| share.take(1).unwrap()).collect()
        };
        let mut others = take(&other, 4);
        others.extend(take(&third, 2));
        let mut pieces = take(&own, 3);
        assert!(woken(&[&other, &third, &own]).is_empty(), "it is full");
        pieces.pop();
        assert_eq!(woken(&[&third, &other]), [Arc::as_ptr(&third)]);
        assert_eq!(woken(&[&other, &own]), [of_own, of_other]);
        // One that has its part, and whose writer runs, is not in the way of others.
        others.truncate(5);
        others.extend(take(&other, 2));
        pieces.pop();
        assert_eq!(woken(&[&other, &third]), [Arc::as_ptr(&third)]);
        assert_eq!(woken(&[&other, &own]), [of_own]);
    }

    #[test]
    fn a_limit_of_next_to_nothing_is_no_deadlock() {
        let staging = Staging::new(Some(Bytes(1)));
        let shares = [staging.share(), staging.share()];
        let threads = shares.map(|share| {
            thread::spawn(move || (0..1000).for_each(|_| drop(share.take(1).unwrap())))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
