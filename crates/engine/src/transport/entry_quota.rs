//! Share of a session's outstanding entries in the memory of received data.

use bankfull_control::Bytes;
use bankfull_proto::limits::MAX_OUTSTANDING_FILES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of an outstanding entry on the receiver. (measured: 65536 files take 47 MB with all else;
/// a name may have 255 bytes)
const ENTRY_BYTES: u64 = 1 << 10;

/// Fraction of the memory limit for the outstanding files of one session.
///
/// Its directories may take the same. The k-th of several sessions gets a k-th of it: 160 sessions
/// together get 71 %. (chosen: all of [`MAX_OUTSTANDING_FILES`] at the highest default limit)
const LIMIT_DIVISOR: u64 = 16;

/// Fraction of the memory limit that entries leave in any case. (chosen: a quarter)
const REMAINDER_DIVISOR: u64 = 4;

/// Least number of outstanding files. (chosen: half a pack of files of 4 KiB)
const MIN_OUTSTANDING_FILES: u64 = 128;

/// Outstanding entries of all sessions that receive.
#[derive(Debug, Default)]
pub(super) struct EntryUsage {
    sessions: AtomicU64,
    bytes: AtomicU64,
}

impl EntryUsage {
    /// Returns what the entries leave of a memory limit, in bytes.
    pub(super) fn remainder(&self, limit: u64) -> u64 {
        let bytes = self.bytes.load(Ordering::Relaxed);
        limit.saturating_sub(bytes).max(limit / REMAINDER_DIVISOR)
    }
}

/// Quota of a session's outstanding files; those in use count as received data.
#[derive(Debug)]
pub(crate) struct EntryQuota {
    usage: Arc<EntryUsage>,
    max_files: u32,
    /// Bytes of the session that the pool counts.
    used: AtomicU64,
}

impl EntryQuota {
    /// Returns the quota of a new session, under the memory limit of all.
    pub(super) fn new(usage: Arc<EntryUsage>, limit: Bytes) -> Arc<Self> {
        let sessions = usage.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        let max_files = max_files(limit, sessions);
        Arc::new(Self { usage, max_files, used: AtomicU64::new(0) })
    }

    /// Returns the maximum number of outstanding files.
    pub(crate) fn max_files(&self) -> u32 {
        self.max_files
    }

    /// Returns the number to announce; `None` for the protocol's.
    pub(crate) fn announced(&self) -> Option<u32> {
        Some(self.max_files).filter(|&files| files != MAX_OUTSTANDING_FILES)
    }

    /// Sets the number of outstanding entries, and the bytes that the session keeps beside them.
    pub(crate) fn set_outstanding(&self, entries: usize, kept_bytes: usize) {
        let bytes = entries as u64 * ENTRY_BYTES + kept_bytes as u64;
        let before = self.used.swap(bytes, Ordering::Relaxed);
        // Wraps for a decrease.
        self.usage.bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for EntryQuota {
    fn drop(&mut self) {
        self.set_outstanding(0, 0);
        self.usage.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

fn max_files(limit: Bytes, sessions: u64) -> u32 {
    let files = limit.0 / LIMIT_DIVISOR / ENTRY_BYTES / sessions.max(1);
    let max = u64::from(MAX_OUTSTANDING_FILES);
    u32::try_from(files.clamp(MIN_OUTSTANDING_FILES, max)).unwrap_or(MAX_OUTSTANDING_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_follows_the_limit_and_the_sessions() {
        let mib = |n: u64| Bytes(n << 20);
        assert_eq!(max_files(mib(1024), 1), MAX_OUTSTANDING_FILES);
        assert_eq!(max_files(mib(4096), 1), MAX_OUTSTANDING_FILES);
        assert_eq!(max_files(mib(64), 1), 4096);
        assert_eq!(max_files(mib(64), 4), 1024);
        assert_eq!(max_files(mib(1), 50), 128);
    }

    #[test]
    fn quotas_of_many_sessions_stay_below_the_limit() {
        let limit = 1 << 30;
        let files: u64 = (1..=160).map(|k| u64::from(max_files(Bytes(limit), k))).sum();
        assert!(2 * files * ENTRY_BYTES < limit * 3 / 4);
    }

    #[test]
    fn outstanding_entries_count_until_the_session_ends() {
        let (usage, limit) = (Arc::<EntryUsage>::default(), 64 << 20);
        let quota = || EntryQuota::new(Arc::clone(&usage), Bytes(limit));
        let (first, second) = (quota(), quota());
        assert_eq!((first.max_files(), second.max_files()), (4096, 2048));
        first.set_outstanding(1000, 0);
        second.set_outstanding(24, 0);
        first.set_outstanding(1, 4096);
        assert_eq!(usage.remainder(limit), limit - 25 * ENTRY_BYTES - 4096);
        drop((first, second));
        assert_eq!(usage.remainder(limit), limit);
        assert_eq!(quota().announced(), Some(4096));
    }
}
