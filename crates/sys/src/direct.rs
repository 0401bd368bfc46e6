//! Files whose reads and writes pass the page cache by (`O_DIRECT`), and whether something is in
//! the page cache.

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// How reads and writes that pass the page cache by (`O_DIRECT`) must lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectAlign {
    /// Bytes of which addresses in memory are multiples.
    pub memory: u32,
    /// Bytes of which offsets and lengths are multiples.
    pub offset: u32,
}

/// The same file, opened anew so that what is read and written passes the page cache by, with what
/// it asks for; `None` where its file system, or the kernel (before 6.1), does not tell that it
/// can, or `/proc` is not there.
///
/// # Errors
///
/// What goes wrong otherwise, such as `PermissionDenied`.
pub fn open_direct(f: &File, is_written: bool) -> io::Result<Option<(File, DirectAlign)>> {
    let stat = rustix::fs::statx(f, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let Ok(stat) = stat else { return Ok(None) };
    let align = DirectAlign { memory: stat.stx_dio_mem_align, offset: stat.stx_dio_offset_align };
    let is_told = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    if !is_told || align.memory == 0 || align.offset == 0 {
        return Ok(None);
    }
    let access = if is_written { OFlags::WRONLY } else { OFlags::RDONLY };
    let path = format!("/proc/self/fd/{}", f.as_raw_fd());
    match rustix::fs::open(path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()) {
        Ok(opened) => Ok(Some((opened.into(), align))),
        Err(Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// How many bytes of a range of a file are in the page cache, in whole pages; `None` where the
/// kernel does not tell (before 6.5, or of a file that is neither ours nor open for writing).
/// Nothing is read for that.
#[must_use]
pub fn cached_bytes(f: &File, offset: u64, len: u64) -> Option<u64> {
    // struct cachestat_range and struct cachestat, include/uapi/linux/mman.h
    let range = [offset, len];
    let mut stat = [0_u64; 5];
    // SAFETY: the descriptor is open while `f` is borrowed; the kernel reads two numbers and writes
    // five, which outlive the call.
    let outcome = unsafe {
        libc::syscall(SYS_CACHESTAT, f.as_raw_fd(), range.as_ptr(), stat.as_mut_ptr(), 0)
    };
    (outcome == 0).then(|| stat[0].saturating_mul(rustix::param::page_size() as u64))
}

/// The same number on all of Linux's architectures that we know of. (libc has it on some only)
const SYS_CACHESTAT: libc::c_long = 451;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cannot;
    use crate::{Pages, advise_dont_need, sync_all};
    use std::os::unix::fs::FileExt;

    /// A file on a disk that can, or none.
    fn direct_file() -> Option<(File, File, DirectAlign)> {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut content = Pages::new(1 << 20).unwrap();
        content.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
        file.write_all_at(&content[..1_000_001], 0).unwrap();
        sync_all(&file).unwrap();
        let opened = open_direct(&file, false).unwrap();
        let cannot = || cannot("this disk, or this kernel, tells of nothing past the page cache");
        let (direct, align) = opened.or_else(cannot)?;
        Some((file, direct, align))
    }

    #[test]
    fn what_is_read_past_the_cache_is_the_file_and_not_in_the_cache() {
        let Some((file, direct, align)) = direct_file() else { return };
        advise_dont_need(&file, 0, 1 << 20).unwrap();
        let mut pages = Pages::new(1 << 20).unwrap();
        assert!(align.offset <= 1 << 16 && align.memory <= 1 << 16, "{align:?}");
        // The whole last unit is asked for, and what there is of it comes.
        assert_eq!(direct.read_at(&mut pages, 0).unwrap(), 1_000_001);
        assert!((0..1_000_001).all(|at| pages[at] == (at % 251) as u8));
        for _ in 0..2 {
            let known = cached_bytes(&file, 0, 1 << 19);
            assert!(known.is_none_or(|bytes| bytes < 1 << 18), "{known:?}: looked at, and read");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        // What is written comes back to whoever reads through the cache.
        let (written, _) = open_direct(&file, true).unwrap().unwrap();
        pages.fill(7);
        written.write_all_at(&pages[..1 << 16], 1 << 16).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, (1 << 16) + 5).unwrap();
        assert_eq!(byte, [7]);
        assert_ne!(cached_bytes(&file, 1 << 16, 1), Some(0));
    }

    #[test]
    fn a_file_in_memory_is_always_there() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all_at(b"x", 0).unwrap();
        assert!(cached_bytes(&file, 0, 1).is_none_or(|bytes| bytes > 0));
    }
}
