//! Concurrent file reads with `io_uring`.
//!
//! They keep a disk busy under direct I/O, which has no readahead.

use crate::Pages;
use io_uring::{IoUring, Probe, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// Pause before a retry when the kernel is busy. (chosen: far below the latency of a rotational
/// disk)
const BUSY_RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Ring of concurrent reads, each with a buffer of its own; all buffers have the same size.
pub struct ReadRing {
    ring: IoUring,
    slots: Vec<Slot>,
}

struct Slot {
    pages: Pages,
    state: ReadState,
    /// File of the pending read.
    file: Option<Arc<File>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Idle,
    /// The kernel may write to the pages.
    Pending,
    /// Result of the read: bytes, or a negative error number.
    Done(i32),
}

impl std::fmt::Debug for ReadRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reads").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl ReadRing {
    /// Creates `count` page-aligned buffers of `bytes`.
    ///
    /// `None` if the kernel lacks `io_uring` or denies it to this process.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, or any other error of the kernel.
    pub fn new(count: usize, bytes: usize) -> io::Result<Option<Self>> {
        let entries = u32::try_from(count.max(1)).map_err(|_| io::ErrorKind::InvalidInput)?;
        let ring = match IoUring::new(entries.next_power_of_two()) {
            Ok(ring) => ring,
            Err(e) if is_unavailable(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut probe = Probe::new();
        let is_known = ring.submitter().register_probe(&mut probe).is_ok();
        if !is_known || !probe.is_supported(opcode::Read::CODE) {
            return Ok(None);
        }
        let slot =
            || Ok(Slot { pages: Pages::new(bytes.max(1))?, state: ReadState::Idle, file: None });
        let slots = (0..count.max(1)).map(|_| slot()).collect::<io::Result<_>>()?;
        Ok(Some(Self { ring, slots }))
    }

    /// Returns whether this process may use `io_uring`.
    #[must_use]
    pub fn is_available() -> bool {
        matches!(Self::new(1, 1), Ok(Some(_)))
    }

    /// Starts reading `len` bytes of a file at `offset` into a buffer. The buffer's content is
    /// lost.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the buffer does not exist, is too small, or is still being filled.
    pub fn begin(
        &mut self,
        index: usize,
        file: &Arc<File>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let slot = self.slots.get_mut(index).ok_or(io::ErrorKind::InvalidInput)?;
        let fits = u32::try_from(len).ok().filter(|_| len <= slot.pages.len());
        let len =
            fits.filter(|_| slot.state != ReadState::Pending).ok_or(io::ErrorKind::InvalidInput)?;
        let file = slot.file.insert(Arc::clone(file));
        let fd = types::Fd(file.as_raw_fd());
        let read = opcode::Read::new(fd, slot.pages.as_mut_ptr(), len).offset(offset).build();
        // SAFETY: the pages belong to this slot, and the descriptor stays open, until the read is
        // completed, for which `bytes`, `begin` and `drop` wait.
        let pushed = unsafe { self.ring.submission().push(&read.user_data(index as u64)) };
        // There is an entry for each slot.
        pushed.map_err(|_| io::ErrorKind::WouldBlock)?;
        slot.state = ReadState::Pending;
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Nothing was submitted: the next call submits the entry.
                Err(e) if is_busy(&e) => self.reap_completions(0)?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits until a buffer is filled, and returns its bytes: fewer than requested at the end of
    /// the file.
    ///
    /// # Errors
    ///
    /// Any error of the read; `InvalidInput` if none was started.
    pub fn bytes(&mut self, index: usize) -> io::Result<&[u8]> {
        loop {
            let state = self.slots.get(index).map_or(ReadState::Idle, |slot| slot.state);
            match state {
                ReadState::Idle => return Err(io::ErrorKind::InvalidInput.into()),
                ReadState::Pending => self.reap_completions(1)?,
                ReadState::Done(result) if result < 0 => {
                    return Err(io::Error::from_raw_os_error(-result));
                }
                ReadState::Done(came) => return Ok(&self.slots[index].pages[..came as usize]),
            }
        }
    }

    /// Processes completions, and waits for at least `min_completions` of them.
    fn reap_completions(&mut self, min_completions: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(min_completions) {
            Err(e) if is_busy(&e) => std::thread::sleep(BUSY_RETRY_PAUSE),
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
        for done in self.ring.completion() {
            if let Some(slot) = self.slots.get_mut(done.user_data() as usize) {
                slot.state = ReadState::Done(done.result());
                slot.file = None;
            }
        }
        Ok(())
    }
}

impl Drop for ReadRing {
    fn drop(&mut self) {
        while self.slots.iter().any(|slot| slot.state == ReadState::Pending) {
            if self.reap_completions(1).is_err() {
                // The kernel may still write to the buffers: they are leaked.
                self.slots.drain(..).for_each(std::mem::forget);
            }
        }
    }
}

/// Returns whether the call is missing, denied (seccomp, `kernel.io_uring_disabled`), or out of
/// locked memory (before 5.12).
fn is_unavailable(error: &io::Error) -> bool {
    let withheld = [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| withheld.contains(&code))
}

/// Returns whether completions must be processed first.
fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::skip_test;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    /// Returns a ring of `count` reads, or nothing if this process may not use `io_uring`.
    fn ring_or_skip(count: usize) -> Option<ReadRing> {
        let reads = ReadRing::new(count, 4096).unwrap();
        reads.or_else(|| skip_test("io_uring is unavailable to this process"))
    }

    #[test]
    fn reads_complete_in_any_order() {
        let Some(mut reads) = ring_or_skip(4) else { return };
        let content: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        let file = Arc::new(file);
        for (index, at) in [0, 5000, 10_001, 18_000].into_iter().enumerate() {
            reads.begin(index, &file, at, 4096).unwrap();
        }
        // The file ends before the last buffer is full.
        assert_eq!(reads.bytes(3).unwrap(), &content[18_000..]);
        for (index, at) in [(2, 10_001), (0, 0), (1, 5000)] {
            assert_eq!(reads.bytes(index).unwrap(), &content[at..at + 4096]);
        }
        reads.begin(3, &file, 30_000, 1).unwrap();
        assert!(reads.bytes(3).unwrap().is_empty());
    }

    #[test]
    fn invalid_reads_fail_and_drop_waits_for_pending() {
        let Some(mut reads) = ring_or_skip(1) else { return };
        let kind = |outcome: io::Result<()>| outcome.unwrap_err().kind();
        assert_eq!(reads.bytes(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let file = Arc::new(tempfile::tempfile().unwrap());
        assert_eq!(kind(reads.begin(0, &file, 0, 5000)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(reads.begin(1, &file, 0, 1)), io::ErrorKind::InvalidInput);
        let dir = Arc::new(File::open("/").unwrap());
        reads.begin(0, &dir, 0, 1).unwrap();
        assert_eq!(reads.bytes(0).unwrap_err().raw_os_error(), Some(libc::EISDIR));
        // A read of an empty pipe: the drop waits until data arrives.
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = Arc::new(File::from(OwnedFd::from(reader)));
        reads.begin(0, &reader, 0, 10).unwrap();
        assert_eq!(kind(reads.begin(0, &file, 0, 1)), io::ErrorKind::InvalidInput);
        let dropping = std::thread::spawn(move || drop(reads));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!dropping.is_finished());
        writer.write_all(b"late").unwrap();
        dropping.join().unwrap();
    }
}
