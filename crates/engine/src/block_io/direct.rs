//! Which files are read and written past the page cache.

use crate::options::Direct;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

/// Smaller files go through the page cache: whoever uses them soon finds them there, and opening
/// them once more costs something. (measured: docs/block-io.md)
const LEAST_BYTES: u64 = 16 << 20;

/// Decides by file, and remembers what it has found out of the last disk.
#[derive(Debug, Default)]
pub(crate) struct PassBy {
    direct: Direct,
    /// A device, and whether requests to it may come in any order.
    disk: Option<(u64, bool)>,
}

impl PassBy {
    pub(crate) fn new(direct: Direct) -> Self {
        Self { direct, disk: None }
    }

    /// Whether a range of a file is to be read past the cache: not what is in it for the most part.
    pub(crate) fn reads(&mut self, file: &File, range: &Range<u64>) -> bool {
        if self.direct == Direct::On {
            return true;
        }
        let len = range.end.saturating_sub(range.start);
        let is_cold = || bankfull_sys::cached_bytes(file, range.start, len);
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
                let takes = bankfull_sys::rotates(device) == Some(false);
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
            let mut auto = PassBy::new(Direct::Auto);
            assert!(!auto.reads(file, &(0..1)) && !auto.writes(file));
            let mut on = PassBy::new(Direct::On);
            assert!(on.reads(file, &(0..1)) && on.writes(file));
            let mut off = PassBy::new(Direct::Off);
            assert!(!off.reads(file, &(0..1)) && !off.writes(file));
        }
    }
}
