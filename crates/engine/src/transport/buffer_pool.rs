//! Buffer pool: memory for received data that waits to be written.
//!
//! All transfers of a process share one pool and its limit. RRDA sets the limit by the load
//! (`control::rrda::pool`); unused memory is returned to the system.

use super::entry_quota::{EntryQuota, EntryUsage};
use crate::base::error::Error;
use crate::base::sync::lock;
use bankfull_control::Bytes;
use bankfull_control::rrda::backlog::Backlog;
use bankfull_control::rrda::pool::{Interval, PoolLimit as LimitController};
use bankfull_control::rrda::{Bounds, EPOCH_INTERVAL, Reason};
use bankfull_sys::{Memory, Pages, retry_shortage};
use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Size of a chunk, which is received, hashed and written at once: fits the L2 cache of a core.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Chunks guaranteed to each stream: one being filled, one being written, and four between them,
/// which bridge a short stall of either thread and still fit the L3 cache. 24 MiB for 16 streams.
const CHUNKS_PER_STREAM: u64 = 6;
const GUARANTEED_BYTES: u64 = CHUNKS_PER_STREAM * CHUNK_BYTES as u64;

/// Default limit: this fraction of free memory, at most [`MAX_DEFAULT_LIMIT`]. Data not written yet
/// is sent again after an interruption. (chosen: 10 Gbit/s for 0.8 s)
const FREE_MEMORY_DIVISOR: u64 = 4;
const MAX_DEFAULT_LIMIT: Bytes = Bytes::mib(1024);

/// Fraction of the limit reserved for streams below [`CHUNKS_PER_STREAM`]. With it, a stalled disk
/// does not delay transfers to another one. (chosen: a quarter)
const RESERVE_DIVISOR: u64 = 4;

/// Free chunks kept beyond the guaranteed ones, if they were in use in this epoch.
///
/// The kernel zeroes each new page. (chosen: 1 Gbit/s for 64 ms)
const MAX_SPARE_BYTES: u64 = 8 << 20;

/// Fraction of the limit for unread data of QUIC connections. Their receive buffers are in this
/// process and count in addition to the limit. (chosen: a quarter)
const UNREAD_DIVISOR: u64 = 4;

/// Longest wait for memory that the system denies. (chosen: other sessions release theirs sooner,
/// and the other side gives up later)
const SHORTAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which free memory is read.
const MEMORY_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Memory shared by all streams of a process.
#[derive(Default)]
pub(crate) struct BufferPool {
    /// Limit set by the user.
    limit: Option<Bytes>,
    state: Mutex<Option<PoolState>>,
    /// True if a writing thread has waited for data in this epoch.
    was_starved: AtomicBool,
    /// Outstanding entries, which take from the limit.
    entries: Arc<EntryUsage>,
    /// Connections that buffer unread data in this process.
    unread_quotas: AtomicU64,
    /// Limit of all their unread data, and when it was computed.
    unread_limit: Mutex<Option<(Instant, Bytes)>>,
}

/// State of the buffer, for telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferStatus {
    /// Peak of buffered bytes since the last call.
    pub(crate) peak: Bytes,
    /// Buffer limit.
    pub(crate) size: Bytes,
    /// Time and reason of the last change of the limit.
    pub(crate) change: Option<(Instant, Reason)>,
}

/// Use of the memory for received data.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StagingUsage {
    /// Bytes in use.
    pub(crate) used: Bytes,
    /// Their present limit.
    pub(crate) limit: Bytes,
    /// Time since the start in which streams waited for memory.
    pub(crate) waited: Duration,
}

/// Memory quota for the unread data of one QUIC connection.
pub(crate) struct UnreadQuota(Arc<BufferPool>);

struct PoolState {
    /// Origin of the times of backlogs.
    origin: Instant,
    controller: LimitController,
    /// Time and reason of the last change of the limit.
    change: Option<(Instant, Reason)>,
    /// Upper bound of the pool, in bytes, as of `memory_read_at`.
    limit: u64,
    /// Fraction of the host's memory in use, as of `memory_read_at`.
    memory_used: f64,
    memory_read_at: Instant,
    /// Bytes of allocated chunks.
    used_bytes: u64,
    /// Peak of `used_bytes` since the last [`BufferPool::status`].
    peak: u64,
    /// Part of `used_bytes` beyond the guaranteed chunks of each stream.
    extra_bytes: u64,
    /// Free chunks that are retained.
    spare: Vec<Pages>,
    /// Number of streams.
    shares: u64,
    /// Streams that wait for a chunk, in order.
    waiting: VecDeque<Arc<PoolShare>>,
    /// Time in which streams have waited.
    full: FullTime,
    /// Start of the present epoch.
    epoch_start: Instant,
    epoch: Interval,
}

/// Time in which at least one stream waited for a chunk.
#[derive(Debug, Default)]
struct FullTime {
    /// Start of the time that is not counted yet.
    since: Option<Instant>,
    total: Duration,
}

/// Share of one stream in the pool.
pub(crate) struct PoolShare {
    pool: Arc<BufferPool>,
    /// Bytes of allocated chunks; changed with the pool locked.
    used: AtomicU64,
    /// Decides whether the stream may exceed its guaranteed chunks.
    backlog: Mutex<Backlog>,
    released: Condvar,
}

/// Memory for a chunk of received data; dropping it releases the memory.
pub(crate) struct PoolChunk {
    pages: Option<Pages>,
    len: usize,
    share: Arc<PoolShare>,
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferPool").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl BufferPool {
    /// Returns a pool with the limit set by the user, if any.
    pub(crate) fn new(limit: Option<Bytes>) -> Arc<Self> {
        Arc::new(Self { limit, ..Self::default() })
    }

    /// Returns the share of a new stream.
    pub(crate) fn share(self: &Arc<Self>) -> Arc<PoolShare> {
        let mut state = lock(&self.state);
        let state = state.get_or_insert_with(|| PoolState::new(self));
        state.shares += 1;
        state.set_bounds();
        Arc::new(PoolShare {
            pool: Arc::clone(self),
            used: AtomicU64::new(0),
            backlog: Mutex::new(Backlog::new(state.origin.elapsed(), Bytes(GUARANTEED_BYTES))),
            released: Condvar::new(),
        })
    }

    /// Returns the quota of a new QUIC connection.
    pub(crate) fn unread_quota(self: &Arc<Self>) -> UnreadQuota {
        self.unread_quotas.fetch_add(1, Ordering::Relaxed);
        UnreadQuota(Arc::clone(self))
    }

    /// Returns the quota of outstanding entries of a new session.
    pub(crate) fn entry_quota(&self) -> Arc<EntryQuota> {
        EntryQuota::new(Arc::clone(&self.entries), self.present_limit())
    }

    /// Returns the user's limit, or that by free memory.
    fn present_limit(&self) -> Bytes {
        let used = || lock(&self.state).as_ref().map_or(0, |state| state.used_bytes);
        self.limit.unwrap_or_else(|| default_limit(bankfull_sys::memory().ok(), used()))
    }

    /// Returns the limit for unread data of all QUIC connections.
    fn unread_limit(&self) -> Bytes {
        let mut cached = lock(&self.unread_limit);
        let known = cached.filter(|(at, _)| at.elapsed() < MEMORY_SAMPLE_INTERVAL);
        let read = || (Instant::now(), Bytes(self.present_limit().0 / UNREAD_DIVISOR));
        cached.insert(known.unwrap_or_else(read)).1
    }

    /// Returns the size limit of a UDP receive buffer. `None` if the user has set no memory limit.
    pub(crate) fn socket_buffer_limit(&self) -> Option<Bytes> {
        self.limit.map(|limit| Bytes(limit.0 / UNREAD_DIVISOR))
    }

    /// Returns the state of the buffer; `None` if nothing is received.
    pub(crate) fn status(&self) -> Option<BufferStatus> {
        let mut state = lock(&self.state);
        let state = state.as_mut()?;
        let peak = std::mem::replace(&mut state.peak, state.used_bytes).max(state.used_bytes);
        Some(BufferStatus {
            peak: Bytes(peak),
            size: state.controller.size(),
            change: state.change,
        })
    }

    /// Returns the present use; zeros if nothing is received.
    pub(crate) fn usage(&self) -> StagingUsage {
        let state = lock(&self.state);
        let usage = state.as_ref().map(|state| StagingUsage {
            used: Bytes(state.used_bytes),
            limit: state.controller.size(),
            waited: state.full.total,
        });
        usage.unwrap_or_default()
    }

    /// Returns the present limit.
    #[cfg(test)]
    fn size(&self) -> Bytes {
        lock(&self.state).as_ref().map_or(Bytes(0), |state| state.controller.size())
    }
}

impl PoolState {
    fn new(pool: &BufferPool) -> Self {
        let now = Instant::now();
        let mut state = Self {
            origin: now,
            controller: LimitController::new(Bounds { min: Bytes(0), max: Bytes(0) }),
            change: None,
            limit: 0,
            memory_used: 0.0,
            memory_read_at: now,
            used_bytes: 0,
            peak: 0,
            extra_bytes: 0,
            spare: Vec::new(),
            shares: 0,
            waiting: VecDeque::new(),
            full: FullTime::default(),
            epoch_start: now,
            epoch: empty_interval(0, 0.0),
        };
        state.read_memory(pool, now);
        state
    }

    /// Reads the memory of the host and updates the limit.
    fn read_memory(&mut self, pool: &BufferPool, now: Instant) {
        self.memory_read_at = now;
        let memory = bankfull_sys::memory().ok();
        self.memory_used = memory.map_or(0.0, |memory| memory.used_fraction());
        // Memory of the pool is not free, but available to it.
        let limit = pool.limit.unwrap_or_else(|| default_limit(memory, self.used_bytes)).0;
        self.limit = pool.entries.remainder(limit);
        self.set_bounds();
    }

    fn set_bounds(&mut self) {
        let max = self.limit - self.limit / RESERVE_DIVISOR;
        let before = self.controller.size();
        self.controller.set_bounds(Bounds { min: Bytes(self.guaranteed_bytes()), max: Bytes(max) });
        self.record_change(before, Reason::Bound);
    }

    /// Records the reason if the limit has changed.
    fn record_change(&mut self, before: Bytes, reason: Reason) {
        if self.controller.size() != before {
            self.change = Some((Instant::now(), reason));
        }
    }

    /// Returns the bytes guaranteed to all streams together.
    fn guaranteed_bytes(&self) -> u64 {
        let max = self.limit - self.limit / RESERVE_DIVISOR;
        (self.shares * GUARANTEED_BYTES).min(max)
    }

    /// True if a stream may allocate a chunk.
    fn can_allocate(&self, share: &PoolShare, now: Instant) -> bool {
        let chunk = CHUNK_BYTES as u64;
        let used = share.used.load(Ordering::Relaxed);
        let fits = self.used_bytes + chunk <= self.limit;
        let beyond = Bytes((used + chunk).saturating_sub(GUARANTEED_BYTES));
        let is_admitted = || {
            self.extra_bytes + chunk
                <= self.controller.size().0.saturating_sub(self.guaranteed_bytes())
                && lock(&share.backlog).admits(now.duration_since(self.origin), beyond)
        };
        // One chunk is always granted: data that a stream leaves unread may block the others.
        fits && (beyond == Bytes(0) || is_admitted()) || used == 0
    }

    /// Updates the limit at the end of an epoch.
    fn advance(&mut self, pool: &BufferPool, now: Instant) {
        let elapsed = now.saturating_duration_since(self.epoch_start);
        if elapsed < EPOCH_INTERVAL {
            return;
        }
        self.add_wait_time(now);
        self.epoch.elapsed = elapsed;
        self.epoch.was_starved = pool.was_starved.swap(false, Ordering::Relaxed);
        if now.saturating_duration_since(self.memory_read_at) >= MEMORY_SAMPLE_INTERVAL {
            self.read_memory(pool, now);
        }
        let before = self.controller.size();
        let (size, reason) = self.controller.on_epoch(&self.epoch);
        self.record_change(before, reason);
        if size > before {
            self.waiting.iter().for_each(|share| share.released.notify_one());
        }
        self.spare.truncate(self.max_spare());
        self.epoch_start = now;
        self.epoch = empty_interval(self.used_bytes, self.memory_used);
    }

    /// Adds the time during which a stream waited for a chunk.
    fn add_wait_time(&mut self, now: Instant) {
        if let Some(since) = self.full.since {
            let waited = now.saturating_duration_since(since.max(self.epoch_start));
            self.epoch.blocked_time += waited;
            self.full.total += waited;
            self.full.since = (!self.waiting.is_empty()).then_some(now);
        }
    }

    fn allocate(&mut self, share: &PoolShare, now: Instant) -> io::Result<Pages> {
        let pages = self.spare.pop().map_or_else(|| Pages::new(CHUNK_BYTES), Ok)?;
        self.used_bytes += CHUNK_BYTES as u64;
        match share.used.fetch_add(CHUNK_BYTES as u64, Ordering::Relaxed) {
            0 => lock(&share.backlog).on_first_arrival(now.duration_since(self.origin)),
            used if used >= GUARANTEED_BYTES => self.extra_bytes += CHUNK_BYTES as u64,
            _ => {}
        }
        self.epoch.max_used = self.epoch.max_used.max(Bytes(self.used_bytes));
        self.peak = self.peak.max(self.used_bytes);
        self.epoch.arrived += Bytes(CHUNK_BYTES as u64);
        Ok(pages)
    }

    /// Returns the number of free chunks to retain.
    ///
    /// With those in use, they are the guaranteed chunks or the peak of this epoch. A backlog that
    /// lasts thus takes the chunks that it releases, and little is retained once it is processed.
    fn max_spare(&self) -> usize {
        let guaranteed = self.guaranteed_bytes();
        let peak = self.epoch.max_used.0.max(guaranteed);
        let wanted = guaranteed.saturating_sub(self.used_bytes) + MAX_SPARE_BYTES;
        (wanted.min(peak.saturating_sub(self.used_bytes)) / CHUNK_BYTES as u64) as usize
    }

    /// Takes a chunk back; its memory is retained up to [`max_spare`](Self::max_spare).
    fn release(&mut self, pages: Pages, share: &PoolShare) {
        self.used_bytes -= CHUNK_BYTES as u64;
        let used = share.used.fetch_sub(CHUNK_BYTES as u64, Ordering::Relaxed);
        if used > GUARANTEED_BYTES {
            self.extra_bytes -= CHUNK_BYTES as u64;
        }
        let beyond = Bytes(used.saturating_sub(GUARANTEED_BYTES + CHUNK_BYTES as u64));
        lock(&share.backlog).on_processed(self.origin.elapsed(), beyond);
        self.epoch.min_used = self.epoch.min_used.min(Bytes(self.used_bytes));
        self.epoch.processed += Bytes(CHUNK_BYTES as u64);
        if self.spare.len() < self.max_spare() {
            self.spare.push(pages);
        }
        self.shares_to_wake(share, Instant::now())
            .for_each(|waiting| waiting.released.notify_one());
    }

    /// Returns the first waiting stream that may allocate a chunk.
    fn first_allocatable(&self, now: Instant) -> Option<&Arc<PoolShare>> {
        self.waiting.iter().find(|waiting| self.can_allocate(waiting, now))
    }

    /// Returns the streams to wake after `share` has released a chunk: `share` itself if it waits
    /// and may allocate again, and the first other stream that may.
    fn shares_to_wake(
        &self,
        share: &PoolShare,
        now: Instant,
    ) -> impl Iterator<Item = &Arc<PoolShare>> {
        let is_own = move |waiting: &&Arc<PoolShare>| std::ptr::eq(Arc::as_ptr(waiting), share);
        let own = self.waiting.iter().find(is_own).filter(move |own| self.can_allocate(own, now));
        let mut others = self.waiting.iter().filter(move |waiting| !is_own(waiting));
        own.into_iter().chain(others.find(move |other| self.can_allocate(other, now)))
    }
}

fn default_limit(memory: Option<Memory>, used_bytes: u64) -> Bytes {
    memory.map_or(MAX_DEFAULT_LIMIT, |memory| {
        MAX_DEFAULT_LIMIT.min(Bytes((memory.available + used_bytes) / FREE_MEMORY_DIVISOR))
    })
}

/// Returns the initial statistics of an epoch.
fn empty_interval(used_bytes: u64, memory: f64) -> Interval {
    Interval {
        elapsed: Duration::ZERO,
        arrived: Bytes(0),
        processed: Bytes(0),
        max_used: Bytes(used_bytes),
        min_used: Bytes(used_bytes),
        blocked_time: Duration::ZERO,
        was_starved: false,
        memory,
    }
}

impl PoolShare {
    /// Allocates a chunk of `len` bytes, at most [`CHUNK_BYTES`]; waits for memory.
    ///
    /// # Errors
    /// An [`Error`] if the system has had no memory for a while.
    pub(crate) fn allocate(self: &Arc<Self>, len: usize) -> io::Result<PoolChunk> {
        retry_shortage(SHORTAGE_TIMEOUT, || self.try_allocate(len))
            .map_err(|e| io::Error::other(Error::memory(&e)))
    }

    /// Allocates a chunk; waits for memory of the pool, and not for that of the system.
    fn try_allocate(self: &Arc<Self>, len: usize) -> io::Result<PoolChunk> {
        let mut guard = lock(&self.pool.state);
        let mut has_queued = false;
        let pages = loop {
            let now = Instant::now();
            let state = guard.get_or_insert_with(|| PoolState::new(&self.pool));
            state.advance(&self.pool, now);
            if state.can_allocate(self, now) {
                if has_queued {
                    state.waiting.retain(|share| !Arc::ptr_eq(share, self));
                    state.add_wait_time(now);
                }
                let pages = state.allocate(self, now)?;
                // Two releases may have woken this stream twice and no other one.
                if has_queued && let Some(next) = state.first_allocatable(now) {
                    next.released.notify_one();
                }
                break pages;
            }
            if !std::mem::replace(&mut has_queued, true) {
                state.waiting.push_back(Arc::clone(self));
                state.full.since.get_or_insert(now);
            }
            // While all streams wait, no other thread ends the epoch.
            let left =
                EPOCH_INTERVAL.saturating_sub(now.saturating_duration_since(state.epoch_start));
            let halts = lock(&self.backlog).time_to_stall(now.duration_since(state.origin));
            let left = if halts.is_zero() { left } else { left.min(halts) };
            guard =
                self.released.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        Ok(PoolChunk { pages: Some(pages), len: len.min(CHUNK_BYTES), share: Arc::clone(self) })
    }

    /// Records that a writing thread has nothing to write.
    pub(crate) fn on_starved(&self) {
        self.pool.was_starved.store(true, Ordering::Relaxed);
    }
}

impl Drop for PoolShare {
    fn drop(&mut self) {
        let mut guard = lock(&self.pool.state);
        let Some(state) = &mut *guard else { return };
        state.shares -= 1;
        if state.shares == 0 {
            // The next transfer starts with fresh state.
            *guard = None;
            return;
        }
        let retained = state.guaranteed_bytes() / CHUNK_BYTES as u64;
        state.spare.truncate(retained as usize);
        state.set_bounds();
    }
}

impl UnreadQuota {
    /// Returns the quota, in bytes.
    pub(crate) fn limit(&self) -> Bytes {
        let connections = self.0.unread_quotas.load(Ordering::Relaxed).max(1);
        Bytes(self.0.unread_limit().0 / connections)
    }
}

impl Drop for UnreadQuota {
    fn drop(&mut self) {
        self.0.unread_quotas.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for PoolChunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], |pages| &pages[..self.len])
    }
}

impl DerefMut for PoolChunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], |pages| &mut pages[..self.len])
    }
}

impl Drop for PoolChunk {
    fn drop(&mut self) {
        let mut state = lock(&self.share.pool.state);
        if let (Some(state), Some(pages)) = (&mut *state, self.pages.take()) {
            // If nothing is allocated any more, only releases end the epoch.
            state.advance(&self.share.pool, Instant::now());
            state.release(pages, &self.share);
        }
    }
}

#[cfg(test)]
mod tests;
