//! Direct I/O (`O_DIRECT`), which bypasses the page cache, and page cache queries.

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Alignment that direct I/O (`O_DIRECT`) requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectAlign {
    /// Alignment of memory addresses, in bytes.
    pub memory: u32,
    /// Alignment of offsets and lengths, in bytes.
    pub offset: u32,
}

/// Opens the same file again for direct I/O, and returns it with the required alignment.
///
/// `None` if the filesystem or the kernel (before 6.1) does not report support, or `/proc` is
/// missing.
///
/// # Errors
///
/// Any other error, such as `PermissionDenied`.
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

/// Returns the bytes of a file range in the page cache, in whole pages.
///
/// `None` if the kernel does not report it (before 6.5, or for a file of another user that is not
/// open for writing). Reads no data.
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

/// Number of `cachestat` on all Linux architectures except alpha. (libc defines it for some only)
const SYS_CACHESTAT: libc::c_long = 451;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::skip_test;
    use crate::{Pages, advise_dont_need, sync_all};
    use std::os::unix::fs::FileExt;

    /// Returns a file on a disk with direct I/O, or nothing.
    fn direct_file() -> Option<(File, File, DirectAlign)> {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut content = Pages::new(1 << 20).unwrap();
        content.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
        file.write_all_at(&content[..1_000_001], 0).unwrap();
        sync_all(&file).unwrap();
        let opened = open_direct(&file, false).unwrap();
        let skip_test = || skip_test("this disk or kernel does not report direct I/O");
        let (direct, align) = opened.or_else(skip_test)?;
        Some((file, direct, align))
    }

    #[test]
    fn direct_read_returns_file_and_bypasses_cache() {
        let Some((file, direct, align)) = direct_file() else { return };
        advise_dont_need(&file, 0, 1 << 20).unwrap();
        let mut pages = Pages::new(1 << 20).unwrap();
        assert!(align.offset <= 1 << 16 && align.memory <= 1 << 16, "{align:?}");
        // The read requests the whole last unit, and returns its existing part.
        assert_eq!(direct.read_at(&mut pages, 0).unwrap(), 1_000_001);
        assert!((0..1_000_001).all(|at| pages[at] == (at % 251) as u8));
        for _ in 0..2 {
            let known = cached_bytes(&file, 0, 1 << 19);
            assert!(known.is_none_or(|bytes| bytes < 1 << 18), "{known:?}: looked at, and read");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        // Direct writes are visible to buffered reads.
        let (written, _) = open_direct(&file, true).unwrap().unwrap();
        pages.fill(7);
        written.write_all_at(&pages[..1 << 16], 1 << 16).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, (1 << 16) + 5).unwrap();
        assert_eq!(byte, [7]);
        assert_ne!(cached_bytes(&file, 1 << 16, 1), Some(0));
    }

    #[test]
    fn tmpfs_file_is_always_cached() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all_at(b"x", 0).unwrap();
        assert!(cached_bytes(&file, 0, 1).is_none_or(|bytes| bytes > 0));
    }
}
