//! 64-bit words that this process shares with the kernel, such as a mappable BPF array.
//!
//! Every access is one relaxed atomic load or store: both sides may write at any time, and values
//! of several words may be of different moments.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();

/// Words of a shared mapping.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the mapping belongs to this value, and its words are atomic.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `len` words of a descriptor for reading and writing.
    ///
    /// The object behind the descriptor must not shrink while it is mapped; BPF maps do not.
    ///
    /// # Errors
    ///
    /// Any error of `mmap`, such as `EPERM` for a map without `BPF_F_MMAPABLE`.
    pub fn map(descriptor: impl AsFd, len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(WORD_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = descriptor.as_fd().as_raw_fd();
        // SAFETY: no address is requested, so no existing mapping is replaced.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, len })
    }

    /// Returns the number of words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no words.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a word; 0 beyond the end.
    #[must_use]
    pub fn load(&self, index: usize) -> u64 {
        self.word(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Stores a word; nothing happens beyond the end.
    pub fn store(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns a word and sets it to 0, with acquire ordering; 0 beyond the end.
    #[must_use]
    pub fn take(&self, index: usize) -> u64 {
        self.word(index).map_or(0, |word| word.swap(0, Ordering::Acquire))
    }

    fn word(&self, index: usize) -> Option<&AtomicU64> {
        // SAFETY: the index is within the mapping, which is aligned to a page, and lives as long
        // as `self`.
        (index < self.len).then(|| unsafe { self.start.add(index).as_ref() })
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no reference is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len * WORD_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn words_are_shared_with_the_file() {
        let file = crate::memory_file(&[0; 4096]).unwrap();
        let words = SharedWords::map(&file, 3).unwrap();
        file.write_all_at(&7_u64.to_ne_bytes(), 8).unwrap();
        words.store(2, 9);
        let mut read = [0; 8];
        file.read_exact_at(&mut read, 16).unwrap();
        assert_eq!((words.len(), words.load(1), u64::from_ne_bytes(read)), (3, 7, 9));
        assert_eq!((words.take(1), words.take(1), words.take(3)), (7, 0, 0));
    }

    #[test]
    fn words_beyond_the_end_are_zero() {
        let file = crate::memory_file(&[0; 4096]).unwrap();
        let words = SharedWords::map(&file, 1).unwrap();
        words.store(1, 5);
        assert_eq!((words.load(1), words.is_empty()), (0, false));
        assert!(SharedWords::map(&file, usize::MAX).is_err());
    }
}
