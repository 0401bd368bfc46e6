//! Which files are read and written past the page cache.

use crate::options::Direct;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

/// Smaller files go through the page cache: whoever uses them soon finds them there, and opening
/// them once more costs something. (measured: docs/block-io.md)
const LEAST_BYTES: u64 = 16 << 20;

/// Decides by file, and remembers what it has found out of the last disk.
#[derive(Debug)]
pub(crate) struct CacheBypass {
    direct: Direct,
    /// A device, and whether requests to it may come in any order.
    disk: Option<(u64, bool)>,
    asked: Asked,
}

/// Whom the kernel's answers come from.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// Whether the disk with this number rotates.
    rotates: fn(u64) -> Option<bool>,
    /// How much of a range is in the cache.
    cached_bytes: fn(&File, u64, u64) -> Option<u64>,
}

impl CacheBypass {
    pub(crate) fn new(direct: Direct) -> Self {
        let asked =
            Asked { rotates: bankfull_sys::rotates, cached_bytes: bankfull_sys::cached_bytes };
        Self { direct, disk: None, asked }
    }

    /// Whether a range of a file is to be read past the cache: not what is in it for the most part.
    pub(crate) fn reads(&mut self, file: &File, range: &Range<u64>) -> bool {
        if self.direct == Direct::On {
            return true;
        }
        let len = range.end.saturating_sub(range.start);
        let Asked { cached_bytes, .. } = self.asked;
        let is_cold = || cached_bytes(file, range.start, len);
        self.writes(file) && is_cold().is_some_and(|cached| cached < len / 2)
    }

    /// Whether a file of its present size is to be written past the cache.
    pub(crate) fn writes(&mut self, file: &File) -> bool {
        match self.direct {
            Direct::On => true,
            Direct::Off => false,
            Direct::Auto => file
                .metadata()
                .is_ok_and(|stat| stat.len() >= LEAST_BYTES && self.takes_any_order(stat.dev())),
        }
    }

    /// Where a disk rotates, requests are put in order by the page cache and what reads ahead for
    /// it, and many at a time would be in each other's way.
    fn takes_any_order(&mut self, device: u64) -> bool {
        match self.disk {
            Some((known, takes)) if known == device => takes,
            _ => {
                let takes = (self.asked.rotates)(device) == Some(false);
                self.disk = Some((device, takes));
                takes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_small_or_on_no_disk_goes_through_the_cache_unless_it_is_said() {
        let memory = tempfile::tempfile_in("/dev/shm").unwrap();
        memory.set_len(LEAST_BYTES).unwrap();
        let small = tempfile::tempfile().unwrap();
        small.set_len(LEAST_BYTES - 1).unwrap();
        for file in [&memory, &small] {
            let mut auto = CacheBypass::new(Direct::Auto);
            assert!(!auto.reads(file, &(0..1)) && !auto.writes(file));
            let mut on = CacheBypass::new(Direct::On);
            assert!(on.reads(file, &(0..1)) && on.writes(file));
            let mut off = CacheBypass::new(Direct::Off);
            assert!(!off.reads(file, &(0..1)) && !off.writes(file));
        }
    }

    #[test]
    fn by_itself_it_passes_what_is_large_and_cold_on_disks_that_do_not_rotate_and_nothing_else() {
        const LEN: u64 = 1 << 20;
        let quick: fn(u64) -> Option<bool> = |_| Some(false);
        let cold: fn(&File, u64, u64) -> Option<u64> = |_, _, len| Some(len / 2 - 1);
        for (size, rotates, cached_bytes, reads, writes) in [
            (LEAST_BYTES, quick, cold, true, true),
            (LEAST_BYTES - 1, quick, cold, false, false),
            (LEAST_BYTES, |_| Some(true), cold, false, false),
            // A file system on no disk, or on several.
            (LEAST_BYTES, |_| None, cold, false, false),
            (LEAST_BYTES, quick, |_, _, len| Some(len / 2), false, true),
            // An old kernel, or a file of somebody else.
            (LEAST_BYTES, quick, |_, _, _| None, false, true),
        ] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(size).unwrap();
            let asked = Asked { rotates, cached_bytes };
            let mut auto = CacheBypass { asked, ..CacheBypass::new(Direct::Auto) };
            let told = (auto.reads(&file, &(0..LEN)), auto.writes(&file));
            let known = (rotates(0), cached_bytes(&file, 0, LEN));
            assert_eq!(told, (reads, writes), "{size} bytes, {known:?}");
        }
    }
}
