//! Anonymous memory that is returned to the kernel when dropped.
//!
//! An allocator often keeps freed memory; these pages bypass it.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

/// Zero-initialized bytes. Untouched pages occupy no memory.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is the only access to its memory, and no part of it belongs to a thread.
unsafe impl Send for Pages {}
// SAFETY: as above; shared, it is only read.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes, rounded up to whole pages by the kernel.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for zero bytes; `OutOfMemory` if the host or a limit of this process has too
    /// little.
    pub fn new(len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the address; existing mappings are not affected.
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
        // SAFETY: `len` bytes at `base` are mapped, initialised by the kernel, and owned until the
        // drop; writers borrow mutably.
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
    fn pages_are_zero_writable_and_returned_on_drop() {
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
