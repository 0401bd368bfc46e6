//! Quota of a share: the space and the entries that it may hold.
//!
//! A walk of the share counts both, and sessions add what they write. What is deleted or replaced
//! meanwhile, and what others add, is found by another walk once the quota seems to be used up.

use crate::base::sync::lock;
use crate::model::access::Quota;
use bankfull_proto::wire::control::{Cause, Failure};
use bankfull_sys::{Dir, FileKind};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Pause between two walks, as a multiple of the time of one. (chosen: a crowd of clients of a full
/// share makes the daemon walk for a tenth of the time)
const WALK_PAUSE_FACTOR: u32 = 9;

/// Maximum depth of a walk, whose directories are open. (chosen: twice that of copies)
const MAX_WALK_DEPTH: usize = 2 * bankfull_proto::limits::MAX_DIRECTORY_DEPTH;

/// Unit of the space that a file takes, in bytes. (usual block of ext4, XFS and btrfs)
const BLOCK_BYTES: u64 = 4096;

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
}

/// Count of what a share holds.
#[derive(Debug, Default)]
struct Count {
    /// Present use, at most; `None` before the first walk.
    used: Option<Usage>,
    /// Space and files that running sessions have yet to write.
    reserved: Usage,
}

/// Last walk.
#[derive(Debug, Clone, Copy)]
struct Walk {
    ended: Instant,
    took: Duration,
}

/// Quota of a share, with the count of what it holds.
#[derive(Debug)]
pub(crate) struct StorageQuota {
    share: String,
    dir: Arc<Dir>,
    limit: Quota,
    count: Mutex<Count>,
    /// Held during a walk.
    walked: Mutex<Option<Walk>>,
}

impl StorageQuota {
    /// Creates the quota of a share, which is not walked yet.
    pub(crate) fn new(share: &str, dir: Arc<Dir>, limit: Quota) -> Self {
        let (count, walked) = Default::default();
        Self { share: share.to_owned(), dir, limit, count, walked }
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
    pub(crate) fn add_entry(&self, is_stopped: &dyn Fn() -> bool) -> Result<(), Failure> {
        let entry = Usage { bytes: 0, entries: 1 };
        self.take(entry, is_stopped)?;
        lock(&self.count).write(entry);
        Ok(())
    }

    /// Reserves bytes and counts entries; walks the share if it is unknown or seems to be full.
    fn take(&self, wanted: Usage, is_stopped: &dyn Fn() -> bool) -> Result<(), Failure> {
        for _ in 0..2 {
            let known = lock(&self.count).take(wanted, &self.limit);
            if known == Some(true) {
                return Ok(());
            }
            self.walk(known.is_some(), is_stopped).map_err(|e| {
                let text = format!("cannot count what the share {} holds: {e}", self.share);
                Failure::new(Cause::Io, text)
            })?;
        }
        match lock(&self.count).take(wanted, &self.limit) {
            Some(true) => Ok(()),
            _ => Err(self.used_up()),
        }
    }

    fn used_up(&self) -> Failure {
        let bytes = self.limit.bytes.map(|bytes| bytes.to_string());
        let entries = self.limit.entries.map(|entries| format!("{entries} entries"));
        let limits: Vec<String> = bytes.into_iter().chain(entries).collect();
        let text = format!(
            "the quota of the share {} ({}) is used up: delete files there, or ask the \
             administrator of the server for a larger one",
            self.share,
            limits.join(", ")
        );
        Failure::new(Cause::NoSpace, text)
    }

    /// Counts what is there, unless that was just done.
    ///
    /// # Errors
    /// The share cannot be read; `Interrupted` once the session has stopped.
    fn walk(&self, is_known: bool, is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
        let mut walked = lock(&self.walked);
        let is_recent = |last: Walk| last.ended.elapsed() < last.took * WALK_PAUSE_FACTOR;
        // Another thread may have walked while this one waited.
        if walked.is_some_and(is_recent) || (!is_known && lock(&self.count).used.is_some()) {
            return Ok(());
        }
        let before = lock(&self.count).used.unwrap_or_default();
        let started = Instant::now();
        let found = usage_of(&self.dir, is_stopped)?;
        let mut count = lock(&self.count);
        let now = count.used.unwrap_or_default();
        // What was written meanwhile may have been missed.
        count.used = Some(Usage {
            bytes: found.bytes + (now.bytes - before.bytes),
            entries: found.entries + (now.entries - before.entries),
        });
        *walked = Some(Walk { ended: Instant::now(), took: started.elapsed() });
        Ok(())
    }
}

impl Count {
    /// Takes what is wanted, if the limit allows it; `None` if it is unknown what is used.
    fn take(&mut self, wanted: Usage, limit: &Quota) -> Option<bool> {
        let used = self.used?;
        let reserved = self.reserved.plus(wanted);
        let Usage { bytes, entries } = used.plus(reserved);
        let is_within = (wanted.bytes == 0 || limit.bytes.is_none_or(|max| bytes <= max.0))
            && (wanted.entries == 0 || limit.entries.is_none_or(|max| entries <= max));
        if is_within {
            self.reserved = reserved;
        }
        Some(is_within)
    }

    /// Records that what was reserved is written.
    fn write(&mut self, written: Usage) {
        self.reserved.bytes = self.reserved.bytes.saturating_sub(written.bytes);
        self.reserved.entries = self.reserved.entries.saturating_sub(written.entries);
        self.used = self.used.map(|used| used.plus(written));
    }
}

/// Space that is reserved for a file. At its end, all of it counts as written.
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
        left.bytes -= bytes;
        lock(&self.quota.count).write(Usage { bytes, entries: 0 });
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let left = *lock(&self.left);
        lock(&self.quota.count).write(left);
    }
}

/// Counts the entries beneath a directory, and the space of the files.
///
/// Each of the names of a file has its part of the space. Directories that cannot be read count as
/// empty.
///
/// # Errors
/// The directory itself cannot be read; `Interrupted` once `is_stopped`.
fn usage_of(root: &Dir, is_stopped: &dyn Fn() -> bool) -> io::Result<Usage> {
    let mut usage = Usage::default();
    let mut open = vec![(root.try_clone()?, root.read_entries()?)];
    while let Some((dir, reader)) = open.last_mut() {
        if is_stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let Some(entry) = reader.next_chunk(1).unwrap_or_default().pop() else {
            open.pop();
            continue;
        };
        usage.entries += 1;
        let Ok(stat) = dir.stat(&entry.name) else { continue };
        let child = match stat.kind {
            FileKind::File => {
                usage.bytes = usage.bytes.saturating_add(stat.allocated / stat.nlink.max(1));
                continue;
            }
            FileKind::Dir => dir.open_child_dir(&entry.name),
            _ => continue,
        };
        if let Ok(child) = child
            && let Ok(reader) = child.read_entries()
            && open.len() < MAX_WALK_DEPTH
        {
            open.push((child, reader));
        }
    }
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_control::Bytes;
    use std::fs;

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
        let usage = usage_of(&Dir::open(dir.path()).unwrap(), RUNS).unwrap();
        let allocated = bankfull_sys::stat_file(fs::File::open(dir.path().join("g")).unwrap());
        assert_eq!(usage, Usage { bytes: allocated.unwrap().allocated, entries: 5 });
        assert!(usage_of(&Dir::open(dir.path()).unwrap(), &|| true).is_err());
    }

    #[test]
    fn space_is_refused_until_files_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let quota = quota(dir.path(), 64 << 10, 100);
        let first = quota.reserve((40_000, false), RUNS).unwrap();
        let failure = quota.reserve((40_000, false), RUNS).unwrap_err();
        assert_eq!(failure.cause(), Cause::NoSpace);
        assert!(
            failure.text.contains("the quota of the share data (64.0 KiB, 100 entries) is used up")
        );
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
        drop(file);
        let text = quota.add_entry(RUNS).unwrap_err().text;
        assert!(text.contains("3 entries) is used up"), "{text}");
        assert!(quota.reserve((1, false), RUNS).is_ok());
    }
}
