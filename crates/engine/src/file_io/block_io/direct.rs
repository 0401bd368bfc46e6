//! Decision about which files bypass the page cache.

use crate::model::options::DirectIo;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

/// Smallest file that bypasses the page cache. Smaller ones are often read again from the cache,
/// and opening them twice has a cost. (measured: docs/block-io.md)
const MIN_DIRECT_BYTES: u64 = 16 << 20;

/// Decides per file, and remembers the last disk.
#[derive(Debug)]
pub(crate) struct CacheBypass {
    direct: DirectIo,
    /// Device number, and true if it does not rotate.
    disk: Option<(u64, bool)>,
    queries: KernelQueries,
}

/// System calls behind the decision.
#[derive(Debug, Clone, Copy)]
struct KernelQueries {
    /// True if the disk of this device number rotates.
    rotates: fn(u64) -> Option<bool>,
    /// Bytes of a range that are in the page cache.
    cached_bytes: fn(&File, u64, u64) -> Option<u64>,
}

impl CacheBypass {
    pub(crate) fn new(direct: DirectIo) -> Self {
        let queries = KernelQueries {
            rotates: bankfull_sys::is_rotational,
            cached_bytes: bankfull_sys::cached_bytes,
        };
        Self { direct, disk: None, queries }
    }

    /// True if a range should bypass the cache. In automatic mode, false if most of the range is
    /// cached.
    pub(crate) fn bypasses_read(&mut self, file: &File, range: &Range<u64>) -> bool {
        if self.direct == DirectIo::On {
            return true;
        }
        let len = range.end.saturating_sub(range.start);
        let KernelQueries { cached_bytes, .. } = self.queries;
        let is_cold = || cached_bytes(file, range.start, len);
        self.bypasses_write(file) && is_cold().is_some_and(|cached| cached < len / 2)
    }

    /// True if a file of its present size should be written past the cache.
    pub(crate) fn bypasses_write(&mut self, file: &File) -> bool {
        match self.direct {
            DirectIo::On => true,
            DirectIo::Off => false,
            DirectIo::Auto => file.metadata().is_ok_and(|stat| {
                stat.len() >= MIN_DIRECT_BYTES && self.is_non_rotating(stat.dev())
            }),
        }
    }

    /// True if the disk does not rotate. On a rotating one, the page cache and its readahead order
    /// the requests, and many at a time would interfere.
    fn is_non_rotating(&mut self, device: u64) -> bool {
        match self.disk {
            Some((known, is_non_rotating)) if known == device => is_non_rotating,
            _ => {
                let is_non_rotating = (self.queries.rotates)(device) == Some(false);
                self.disk = Some((device, is_non_rotating));
                is_non_rotating
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_or_diskless_file_uses_cache_unless_forced() {
        let memory = tempfile::tempfile_in("/dev/shm").unwrap();
        memory.set_len(MIN_DIRECT_BYTES).unwrap();
        let small = tempfile::tempfile().unwrap();
        small.set_len(MIN_DIRECT_BYTES - 1).unwrap();
        for file in [&memory, &small] {
            let mut auto = CacheBypass::new(DirectIo::Auto);
            assert!(!auto.bypasses_read(file, &(0..1)) && !auto.bypasses_write(file));
            let mut on = CacheBypass::new(DirectIo::On);
            assert!(on.bypasses_read(file, &(0..1)) && on.bypasses_write(file));
            let mut off = CacheBypass::new(DirectIo::Off);
            assert!(!off.bypasses_read(file, &(0..1)) && !off.bypasses_write(file));
        }
    }

    #[test]
    fn auto_bypasses_only_large_cold_non_rotating_files() {
        const RANGE_BYTES: u64 = 1 << 20;
        let non_rotating: fn(u64) -> Option<bool> = |_| Some(false);
        let cold: fn(&File, u64, u64) -> Option<u64> = |_, _, len| Some(len / 2 - 1);
        for (size, rotates, cached_bytes, reads, writes) in [
            (MIN_DIRECT_BYTES, non_rotating, cold, true, true),
            (MIN_DIRECT_BYTES - 1, non_rotating, cold, false, false),
            (MIN_DIRECT_BYTES, |_| Some(true), cold, false, false),
            // A file system on no disk, or on several.
            (MIN_DIRECT_BYTES, |_| None, cold, false, false),
            (MIN_DIRECT_BYTES, non_rotating, |_, _, len| Some(len / 2), false, true),
            // An old kernel, or a file of another user.
            (MIN_DIRECT_BYTES, non_rotating, |_, _, _| None, false, true),
        ] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(size).unwrap();
            let queries = KernelQueries { rotates, cached_bytes };
            let mut auto = CacheBypass { queries, ..CacheBypass::new(DirectIo::Auto) };
            let decision =
                (auto.bypasses_read(&file, &(0..RANGE_BYTES)), auto.bypasses_write(&file));
            let known = (rotates(0), cached_bytes(&file, 0, RANGE_BYTES));
            assert_eq!(decision, (reads, writes), "{size} bytes, {known:?}");
        }
    }
}
