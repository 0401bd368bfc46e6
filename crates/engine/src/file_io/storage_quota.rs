//! Quota of a share: the space and the entries that it may hold.
//!
//! A walk of the share counts both; sessions add what they write, and subtract what they replace.
//! Another walk, once the quota seems to be used up, finds files that were deleted meanwhile, and
//! those of other programs. A walk runs in a thread of its own, so that it completes even if the
//! session that started it has ended.

use crate::base::error::Error;
use crate::base::sync::lock;
use crate::base::threads::try_spawn_detached;
use crate::model::access::Quota;
use bankfull_control::Bytes;
use bankfull_proto::wire::control::{Cause, Failure};
use bankfull_sys::{Dir, FileKind};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two walks, as a multiple of the time of one. (chosen: a crowd of clients of a full
/// share makes the daemon walk for a tenth of the time)
const WALK_PAUSE_FACTOR: u32 = 9;

/// Maximum pause between two walks. (chosen: a user who has deleted files tries again by then)
const MAX_WALK_PAUSE: Duration = Duration::from_secs(60);

/// Age of a count after which another walk starts in the background. (chosen: files that other
/// programs add are counted within it)
const MAX_COUNT_AGE: Duration = Duration::from_secs(3600);

/// Interval at which a session that waits for a walk looks for its own end. (chosen: at once, to a
/// user)
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Depth from which a destination is refused: a walk reaches all beneath the others.
pub(crate) const MAX_DESTINATION_DEPTH: usize = bankfull_proto::limits::MAX_DIRECTORY_DEPTH;

/// Maximum depth of a walk, whose directories are open: that of destinations and of copies.
const MAX_WALK_DEPTH: usize = MAX_DESTINATION_DEPTH + bankfull_proto::limits::MAX_DIRECTORY_DEPTH;

/// Unit of the space that a file takes, in bytes. (usual block of ext4, XFS and btrfs)
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Space and entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    bytes: u64,
    entries: u64,
}

impl Usage {
    fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            entries: self.entries.saturating_add(other.entries),
        }
    }

    fn at_least(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), entries: self.entries.max(other.entries) }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            entries: self.entries.saturating_sub(other.entries),
        }
    }
}

/// Last walk.
#[derive(Debug, Clone, Copy)]
struct Walk {
    ended: Instant,
    took: Duration,
}

/// Count of what a share holds.
#[derive(Debug, Default)]
struct Count {
    limit: Quota,
    /// Present use, at most; `None` before the first walk.
    used: Option<Usage>,
    /// Space and files that running sessions have yet to write.
    reserved: Usage,
    /// Content that sessions have written during the present walk.
    meanwhile: Usage,
    is_walking: bool,
    last_walk: Option<Walk>,
    /// Reason why the last walk has failed.
    failure: Option<String>,
}

/// Quota of a share, with the count of what it holds.
#[derive(Debug)]
pub(crate) struct StorageQuota {
    share: String,
    dir: Arc<Dir>,
    count: Mutex<Count>,
    /// Signalled at the end of a walk.
    walked: Condvar,
    /// Held while a file is replaced.
    replacing: Mutex<()>,
}

impl StorageQuota {
    /// Creates the quota of a share, which is not walked yet.
    pub(crate) fn new(share: &str, dir: Arc<Dir>, limit: Quota) -> Self {
        let count = Mutex::new(Count { limit, ..Count::default() });
        let (walked, replacing) = Default::default();
        Self { share: share.to_owned(), dir, count, walked, replacing }
    }

    /// Replaces the limit; what is there stays.
    pub(crate) fn set_limit(&self, limit: Quota) {
        lock(&self.count).limit = limit;
    }

    /// Reserves space for a file, which may be a new entry.
    ///
    /// # Errors
    /// [`Cause::NoSpace`] if the quota does not allow it, [`Cause::Io`] without a walk.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        (bytes, is_new): (u64, bool),
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Reservation, Failure> {
        let bytes = bytes.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX);
        let wanted = Usage { bytes, entries: is_new.into() };
        self.take(wanted, is_stopped)?;
        Ok(Reservation { quota: Arc::clone(self), left: Mutex::new(wanted) })
    }

    /// Counts an entry that is created at once.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub(crate) fn add_entry(
        self: &Arc<Self>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let entry = Usage { bytes: 0, entries: 1 };
        self.take(entry, is_stopped)?;
        lock(&self.count).write(entry);
        Ok(())
    }

    /// Counts a directory that a request is about to create; does not wait for the first walk.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub(crate) fn add_directory(self: &Arc<Self>) -> Result<(), Failure> {
        let mut count = lock(&self.count);
        if count.used.is_none() {
            if !count.is_walking {
                self.start_walk(&mut count).map_err(|e| self.uncounted(&e.to_string()))?;
            }
            count.meanwhile.entries += 1;
            return Ok(());
        }
        drop(count);
        self.add_entry(&|| false)
    }

    /// Begins the replacement of a file; others wait for its end.
    pub(crate) fn replacing(&self) -> MutexGuard<'_, ()> {
        lock(&self.replacing)
    }

    /// Subtracts the space of a file that was replaced.
    pub(crate) fn subtract(&self, bytes: u64) {
        let mut count = lock(&self.count);
        count.used = count.used.map(|used| used.minus(Usage { bytes, entries: 0 }));
    }

    /// Reserves what is wanted; walks the share if its use is unknown or seems to be too much.
    fn take(self: &Arc<Self>, wanted: Usage, is_stopped: &dyn Fn() -> bool) -> Result<(), Failure> {
        self.walk_in_time();
        let mut refused = match lock(&self.count).take(wanted) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        while self.walk(refused.is_none(), is_stopped)? {
            refused = match lock(&self.count).take(wanted) {
                Ok(()) => return Ok(()),
                // What other sessions take is no reason to walk again.
                Err(Some(text)) => return Err(self.used_up(&text)),
                Err(None) => None,
            };
        }
        Err(self.used_up(&refused.unwrap_or_default()))
    }

    fn used_up(&self, why: &str) -> Failure {
        let text = format!(
            "the quota of the share {} does not allow it: {why}; delete files there, or ask the \
             administrator of the server for a larger one",
            self.share
        );
        Failure::new(Cause::NoSpace, text)
    }

    /// Waits for a walk; returns false if the last one is too recent for another.
    ///
    /// # Errors
    /// The share cannot be read; the session has stopped.
    fn walk(
        self: &Arc<Self>,
        is_needed: bool,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<bool, Failure> {
        let mut count = lock(&self.count);
        if !count.is_walking {
            if !is_needed && count.last_walk.is_some_and(Walk::is_recent) {
                return Ok(false);
            }
            self.start_walk(&mut count).map_err(|e| self.uncounted(&e.to_string()))?;
        }
        while count.is_walking {
            if is_stopped() {
                return Err(self.uncounted("the session has ended"));
            }
            let waited = self.walked.wait_timeout(count, STOP_POLL_INTERVAL);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        count.failure.clone().map_or(Ok(true), |why| Err(self.uncounted(&why)))
    }

    /// Starts a walk in a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    fn start_walk(self: &Arc<Self>, count: &mut Count) -> Result<(), Error> {
        let quota = Arc::clone(self);
        try_spawn_detached(move || quota.run_walk())?;
        (count.is_walking, count.meanwhile) = (true, Usage::default());
        Ok(())
    }

    fn uncounted(&self, why: &str) -> Failure {
        let text = format!("cannot count what the share {} holds: {why}", self.share);
        Failure::new(Cause::Io, text)
    }

    /// Starts a walk if the last one was long ago.
    fn walk_in_time(self: &Arc<Self>) {
        let mut count = lock(&self.count);
        let is_old = count.last_walk.is_some_and(|last| last.ended.elapsed() > MAX_COUNT_AGE);
        if is_old && !count.is_walking {
            // Without a thread, the next request tries it again.
            let _ = self.start_walk(&mut count);
        }
    }

    /// Counts what is there.
    fn run_walk(&self) {
        let started = Instant::now();
        let found = usage_of(&self.dir);
        let mut count = lock(&self.count);
        let (before, meanwhile) = (count.used, count.meanwhile);
        (count.used, count.failure) = match (found, before) {
            (Ok((found, None)), _) => (Some(found.plus(meanwhile)), None),
            // What could not be read counts as before.
            (Ok((found, Some(_))), Some(before)) => {
                (Some(found.plus(meanwhile).at_least(before)), None)
            }
            (Ok((_, Some(why))), None) => (None, Some(why)),
            (Err(e), before) => (before, Some(e.to_string())),
        };
        count.last_walk = Some(Walk { ended: Instant::now(), took: started.elapsed() });
        count.is_walking = false;
        self.walked.notify_all();
    }
}

impl Walk {
    fn is_recent(self) -> bool {
        self.ended.elapsed() < (self.took * WALK_PAUSE_FACTOR).min(MAX_WALK_PAUSE)
    }
}

impl Count {
    /// Reserves what is wanted, if the limit allows it.
    ///
    /// # Errors
    /// The use that forbids it; `None` if it is unknown.
    fn take(&mut self, wanted: Usage) -> Result<(), Option<String>> {
        let used = self.used.ok_or(None)?;
        let taken = used.plus(self.reserved);
        let Usage { bytes, entries } = taken.plus(wanted);
        if let Some(max) = self.limit.bytes.filter(|max| wanted.bytes > 0 && bytes > max.0) {
            let (wanted, taken) = (Bytes(wanted.bytes), Bytes(taken.bytes));
            return Err(Some(format!("{wanted} in addition to {taken} in use exceeds {max}")));
        }
        if let Some(max) = self.limit.entries.filter(|max| wanted.entries > 0 && entries > *max) {
            return Err(Some(format!("it has {} entries of {max}", taken.entries)));
        }
        self.reserved = self.reserved.plus(wanted);
        Ok(())
    }

    /// Records that what was reserved is written.
    fn write(&mut self, written: Usage) {
        self.reserved = self.reserved.minus(written);
        self.used = self.used.map(|used| used.plus(written));
        self.meanwhile = self.meanwhile.plus(written);
    }
}

/// Space that is reserved for a file. At its end, the rest is free again.
#[derive(Debug)]
pub(crate) struct Reservation {
    quota: Arc<StorageQuota>,
    left: Mutex<Usage>,
}

impl Reservation {
    /// Records bytes that are about to be written; a file may become larger than it was announced.
    ///
    /// # Errors
    /// `QuotaExceeded` if the quota does not allow more.
    pub(crate) fn write(&self, bytes: u64, is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
        let mut left = lock(&self.left);
        if let Some(missing) = bytes.checked_sub(left.bytes).filter(|missing| *missing > 0) {
            let wanted = Usage { bytes: missing, entries: 0 };
            let taken = self.quota.take(wanted, is_stopped);
            taken.map_err(|e| io::Error::new(io::ErrorKind::QuotaExceeded, e.text))?;
            left.bytes += missing;
        }
        // The entry is there from the first byte on.
        let written = Usage { bytes, entries: left.entries };
        *left = left.minus(written);
        lock(&self.quota.count).write(written);
        Ok(())
    }

    /// Records that written bytes are to be written again in the same place.
    pub(crate) fn give_back(&self, bytes: u64) {
        let again = Usage { bytes, entries: 0 };
        let mut left = lock(&self.left);
        *left = left.plus(again);
        let mut count = lock(&self.quota.count);
        count.reserved = count.reserved.plus(again);
        count.used = count.used.map(|used| used.minus(again));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let left = *lock(&self.left);
        let mut count = lock(&self.quota.count);
        count.reserved = count.reserved.minus(left);
    }
}

/// Counts the entries beneath a directory, and the space of the files.
///
/// The space of a file is divided among its names. Also returns the reason why something could not
/// be read.
///
/// # Errors
/// The directory itself cannot be read.
fn usage_of(root: &Dir) -> io::Result<(Usage, Option<String>)> {
    let mut usage = Usage::default();
    let mut unread = None;
    let mut open = vec![(root.try_clone()?, root.read_entries()?)];
    while let Some((dir, reader)) = open.last_mut() {
        let entry = match reader.next_chunk(1) {
            Ok(mut entries) => entries.pop(),
            Err(e) => {
                unread = Some(e.to_string());
                None
            }
        };
        let Some(entry) = entry else {
            open.pop();
            continue;
        };
        usage.entries += 1;
        let stat = match dir.stat(&entry.name) {
            Ok(stat) => stat,
            Err(e) => {
                if !is_not_counted(&e) {
                    unread = Some(e.to_string());
                }
                continue;
            }
        };
        if stat.kind == FileKind::File {
            usage.bytes = usage.bytes.saturating_add(stat.allocated / stat.nlink.max(1));
        }
        if stat.kind != FileKind::Dir {
            continue;
        }
        let child = dir.open_child_dir(&entry.name);
        match child.and_then(|child| child.read_entries().map(|reader| (child, reader))) {
            Ok(child) if open.len() < MAX_WALK_DEPTH => open.push(child),
            Ok(_) => {
                unread = Some(format!("directories are deeper than {MAX_WALK_DEPTH} levels"));
            }
            Err(e) if is_not_counted(&e) => {}
            Err(e) => unread = Some(e.to_string()),
        }
    }
    Ok((usage, unread))
}

/// True if an error means that an entry need not be counted.
///
/// The entry is gone, or belongs to another user, such as `lost+found`: entries that clients create
/// in a share with a quota stay readable.
fn is_not_counted(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_control::Bytes;
    use rustix::thread::CapabilitySet;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn quota(dir: &std::path::Path, bytes: u64, entries: u64) -> Arc<StorageQuota> {
        let limit = Quota { bytes: Some(Bytes(bytes)), entries: Some(entries) };
        Arc::new(StorageQuota::new("data", Arc::new(Dir::open(dir).unwrap()), limit))
    }

    const RUNS: &dyn Fn() -> bool = &|| false;

    #[test]
    fn walk_counts_entries_and_each_inode_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/f"), vec![1; 10_000]).unwrap();
        fs::hard_link(dir.path().join("a/b/f"), dir.path().join("g")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("l")).unwrap();
        let usage = usage_of(&Dir::open(dir.path()).unwrap()).unwrap();
        let allocated = bankfull_sys::stat_file(fs::File::open(dir.path().join("g")).unwrap());
        assert_eq!(usage, (Usage { bytes: allocated.unwrap().allocated, entries: 5 }, None));
    }

    #[test]
    fn space_is_refused_until_files_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let quota = quota(dir.path(), 64 << 10, 100);
        let first = quota.reserve((40_000, false), RUNS).unwrap();
        let failure = quota.reserve((40_000, false), RUNS).unwrap_err();
        assert_eq!(failure.cause(), Cause::NoSpace);
        let why = "the quota of the share data does not allow it: 40.0 KiB in addition to 40.0 KiB";
        assert!(failure.text.starts_with(why), "{}", failure.text);
        fs::write(dir.path().join("f"), vec![1; 40_000]).unwrap();
        first.write(40_000, RUNS).unwrap();
        drop(first);
        assert!(quota.reserve((40_000, false), RUNS).is_err());
        fs::remove_file(dir.path().join("f")).unwrap();
        // A walk of an empty directory takes no time, and neither does the pause.
        std::thread::sleep(Duration::from_millis(50));
        assert!(quota.reserve((40_000, false), RUNS).is_ok());
    }

    #[test]
    fn file_that_grows_is_refused_beyond_the_quota() {
        let dir = tempfile::tempdir().unwrap();
        let quota = quota(dir.path(), 64 << 10, 100);
        let file = quota.reserve((0, true), RUNS).unwrap();
        (0..16).for_each(|_| file.write(4096, RUNS).unwrap());
        // A walk finds the same.
        fs::write(dir.path().join("g"), vec![1; 64 << 10]).unwrap();
        assert_eq!(file.write(1, RUNS).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    }

    #[test]
    fn entries_are_refused_beyond_the_quota() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        let quota = quota(dir.path(), 1 << 30, 3);
        quota.add_entry(RUNS).unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        // A walk does not see what is yet to be written.
        let file = quota.reserve((10, true), RUNS).unwrap();
        assert!(quota.reserve((10, true), RUNS).is_err());
        fs::write(dir.path().join("g"), "").unwrap();
        file.write(10, RUNS).unwrap();
        drop(file);
        let text = quota.add_entry(RUNS).unwrap_err().text;
        assert!(text.contains("it has 3 entries of 3"), "{text}");
        assert!(quota.reserve((1, false), RUNS).is_ok());
    }

    #[test]
    fn interrupted_and_replaced_files_free_their_space() {
        let dir = tempfile::tempdir().unwrap();
        let quota = quota(dir.path(), 64 << 10, 100);
        let file = quota.reserve((60_000, true), RUNS).unwrap();
        file.write(8192, RUNS).unwrap();
        // The rest is free once the session has lost it.
        drop(file);
        let file = quota.reserve((48 << 10, true), RUNS).unwrap();
        file.write(40 << 10, RUNS).unwrap();
        file.give_back(8 << 10);
        file.write(16 << 10, RUNS).unwrap();
        drop(file);
        let held = |quota: &StorageQuota| lock(&quota.count).used.unwrap();
        assert_eq!(held(&quota), Usage { bytes: 56 << 10, entries: 2 });
        quota.subtract(8192);
        assert_eq!(held(&quota), Usage { bytes: 48 << 10, entries: 2 });
        assert_eq!(lock(&quota.count).reserved, Usage::default());
    }

    #[test]
    fn what_a_walk_cannot_read_counts_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let quota = quota(dir.path(), 64 << 10, 100);
        quota.reserve((40_000, true), RUNS).unwrap().write(40_000, RUNS).unwrap();
        // Deeper than a walk goes.
        let mut at = Dir::open(dir.path()).unwrap();
        for _ in 0..=MAX_WALK_DEPTH {
            at.mkdir("d".as_ref(), 0o700).unwrap();
            at = at.open_child_dir("d".as_ref()).unwrap();
        }
        std::thread::sleep(Duration::from_secs(1));
        assert!(quota.reserve((40_000, true), RUNS).is_err());
        assert!(lock(&quota.count).used.unwrap().bytes >= 40_000);
        // A first walk has nothing that counts for it.
        let limit = Quota { bytes: Some(Bytes(1 << 40)), entries: None };
        let fresh = StorageQuota::new("data", Arc::new(Dir::open(dir.path()).unwrap()), limit);
        let failure = Arc::new(fresh).reserve((1, true), RUNS).unwrap_err();
        assert!(failure.text.contains("directories are deeper than"), "{}", failure.text);
    }

    #[test]
    fn directories_of_requests_count() {
        let dir = tempfile::tempdir().unwrap();
        let quota = quota(dir.path(), 1 << 30, 3);
        let make = |name: &u32| {
            // Longer than the pause between walks: the first may count a directory twice.
            std::thread::sleep(Duration::from_millis(50));
            let added = quota.add_directory().is_ok();
            added.then(|| fs::create_dir(dir.path().join(name.to_string())).unwrap());
            added
        };
        assert_eq!((0..5).filter(make).count(), 3);
    }

    #[test]
    fn directories_of_others_do_not_keep_a_share_full() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("lost+found")).unwrap();
        let closed = fs::Permissions::from_mode(0o0);
        fs::set_permissions(dir.path().join("lost+found"), closed).unwrap();
        let walk = || {
            // Of this thread alone.
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            rustix::thread::set_capabilities(None, sets).unwrap();
            assert!(fs::read_dir(dir.path().join("lost+found")).is_err());
            usage_of(&Dir::open(dir.path()).unwrap()).unwrap()
        };
        let usage = std::thread::scope(|scope| scope.spawn(walk).join().unwrap());
        assert_eq!(usage, (Usage { bytes: 0, entries: 1 }, None));
    }

    #[test]
    fn stopped_session_does_not_wait_for_a_walk() {
        let dir = tempfile::tempdir().unwrap();
        let quota = quota(dir.path(), 64 << 10, 100);
        lock(&quota.count).is_walking = true;
        assert!(quota.reserve((1, true), &|| true).is_err());
    }
}
