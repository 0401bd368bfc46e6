//! Memory of its own, which goes back to the host when it is dropped.
//!
//! What the allocator gets back it often keeps, for whoever asks next; this it never sees.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

/// Bytes in memory, all zero at first. What was not touched yet takes none.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is the only way to its memory, and nothing in it belongs to a thread.
unsafe impl Send for Pages {}
// SAFETY: as above; shared, it is only read.
unsafe impl Sync for Pages {}

impl Pages {
    /// So many bytes, rounded up to whole pages by the kernel.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for none; `OutOfMemory` where the host or a limit of this process has none.
    pub fn new(len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses where; nothing that is there already is touched.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `base` on are mapped, initialised by the kernel, and ours alone
        // until it is dropped; whoever writes has it borrowed mutably.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: it was mapped in `new` with this length, and no reference into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_zero_keep_what_is_written_and_go_back() {
        const LEN: usize = 64 << 20;
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let mut pages = Pages::new(LEN).unwrap();
        assert!(pages.iter().step_by(4096).all(|&byte| byte == 0));
        pages.fill(7);
        assert!(pages.len() == LEN && pages[LEN - 1] == 7);
        let full = resident();
        drop(pages);
        assert!(resident() + LEN / 2 < full);
        assert_eq!(Pages::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(Pages::new(usize::MAX / 2).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }
}
