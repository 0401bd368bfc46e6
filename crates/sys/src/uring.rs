//! Reads of a file that are on their way while others are made (`io_uring`): what keeps a disk busy
//! that nobody reads ahead for, since the page cache is passed by.

use crate::Pages;
use io_uring::{IoUring, Probe, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// The kernel is tried again so soon where it has too much to do. (ours)
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Buffers of one size, each of which a read may be filling.
pub struct Reads {
    ring: IoUring,
    slots: Vec<Slot>,
}

struct Slot {
    pages: Pages,
    state: State,
    /// What is read from, until that is over.
    file: Option<Arc<File>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// The kernel may write to its pages.
    Under,
    /// As a read has ended: bytes, or an error's number below zero.
    Over(i32),
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reads").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl Reads {
    /// So many buffers of so many bytes, at pages' begins; `None` where the kernel has no
    /// `io_uring`, or does not let this process have it.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, or what else the kernel reports.
    pub fn new(count: usize, bytes: usize) -> io::Result<Option<Self>> {
        let entries = u32::try_from(count.max(1)).map_err(|_| io::ErrorKind::InvalidInput)?;
        let ring = match IoUring::new(entries.next_power_of_two()) {
            Ok(ring) => ring,
            Err(e) if is_withheld(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut probe = Probe::new();
        let is_known = ring.submitter().register_probe(&mut probe).is_ok();
        if !is_known || !probe.is_supported(opcode::Read::CODE) {
            return Ok(None);
        }
        let slot = || Ok(Slot { pages: Pages::new(bytes.max(1))?, state: State::Idle, file: None });
        let slots = (0..count.max(1)).map(|_| slot()).collect::<io::Result<_>>()?;
        Ok(Some(Self { ring, slots }))
    }

    /// Whether the kernel lets this process have it.
    #[must_use]
    pub fn are_possible() -> bool {
        matches!(Self::new(1, 1), Ok(Some(_)))
    }

    /// Begins to fill a buffer with `len` bytes of a file from `offset` on; what it held is gone.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there is no such buffer, or it is too small, or still being filled.
    pub fn begin(
        &mut self,
        index: usize,
        file: &Arc<File>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let slot = self.slots.get_mut(index).ok_or(io::ErrorKind::InvalidInput)?;
        let fits = u32::try_from(len).ok().filter(|_| len <= slot.pages.len());
        let len = fits.filter(|_| slot.state != State::Under).ok_or(io::ErrorKind::InvalidInput)?;
        let file = slot.file.insert(Arc::clone(file));
        let fd = types::Fd(file.as_raw_fd());
        let read = opcode::Read::new(fd, slot.pages.as_mut_ptr(), len).offset(offset).build();
        // SAFETY: the pages are this slot's, and the descriptor stays open, until the read is over,
        // which `bytes`, `begin` and `drop` wait for.
        let pushed = unsafe { self.ring.submission().push(&read.user_data(index as u64)) };
        // There is an entry for each slot.
        pushed.map_err(|_| io::ErrorKind::WouldBlock)?;
        slot.state = State::Under;
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Nothing of it has begun: the entry is taken in by the next call.
                Err(e) if is_busy(&e) => self.reap(0)?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits until a buffer is filled, and hands out what came: less than asked for where the file
    /// has ended.
    ///
    /// # Errors
    ///
    /// What the read reports; `InvalidInput` where none was begun.
    pub fn bytes(&mut self, index: usize) -> io::Result<&[u8]> {
        loop {
            let state = self.slots.get(index).map_or(State::Idle, |slot| slot.state);
            match state {
                State::Idle => return Err(io::ErrorKind::InvalidInput.into()),
                State::Under => self.reap(1)?,
                State::Over(result) if result < 0 => {
                    return Err(io::Error::from_raw_os_error(-result));
                }
                State::Over(came) => return Ok(&self.slots[index].pages[..came as usize]),
            }
        }
    }

    /// Takes in what is over, and waits until at least so much is.
    fn reap(&mut self, least: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(least) {
            Err(e) if is_busy(&e) => std::thread::sleep(BUSY_PAUSE),
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
        for done in self.ring.completion() {
            if let Some(slot) = self.slots.get_mut(done.user_data() as usize) {
                slot.state = State::Over(done.result());
                slot.file = None;
            }
        }
        Ok(())
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        while self.slots.iter().any(|slot| slot.state == State::Under) {
            if self.reap(1).is_err() {
                // The kernel may write to them still: they are nobody's from now on.
                self.slots.drain(..).for_each(std::mem::forget);
            }
        }
    }
}

/// There is no such call, or it is not for this process (seccomp, `kernel.io_uring_disabled`), or
/// what it may lock is used up (before 5.12).
fn is_withheld(error: &io::Error) -> bool {
    let withheld = [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| withheld.contains(&code))
}

/// What is over must be taken in first.
fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cannot;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    /// So many, or none where this process may not have any.
    fn some_reads(count: usize) -> Option<Reads> {
        let reads = Reads::new(count, 4096).unwrap();
        reads.or_else(|| cannot("this process may not have io_uring"))
    }

    #[test]
    fn reads_end_in_any_order_and_each_has_its_bytes() {
        let Some(mut reads) = some_reads(4) else { return };
        let content: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        let file = Arc::new(file);
        for (index, at) in [0, 5000, 10_001, 18_000].into_iter().enumerate() {
            reads.begin(index, &file, at, 4096).unwrap();
        }
        // The file ends before the last one is full.
        assert_eq!(reads.bytes(3).unwrap(), &content[18_000..]);
        for (index, at) in [(2, 10_001), (0, 0), (1, 5000)] {
            assert_eq!(reads.bytes(index).unwrap(), &content[at..at + 4096]);
        }
        reads.begin(3, &file, 30_000, 1).unwrap();
        assert!(reads.bytes(3).unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_is_an_error_and_what_is_under_way_is_waited_for() {
        let Some(mut reads) = some_reads(1) else { return };
        let kind = |outcome: io::Result<()>| outcome.unwrap_err().kind();
        assert_eq!(reads.bytes(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let file = Arc::new(tempfile::tempfile().unwrap());
        assert_eq!(kind(reads.begin(0, &file, 0, 5000)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(reads.begin(1, &file, 0, 1)), io::ErrorKind::InvalidInput);
        let dir = Arc::new(File::open("/").unwrap());
        reads.begin(0, &dir, 0, 1).unwrap();
        assert_eq!(reads.bytes(0).unwrap_err().raw_os_error(), Some(libc::EISDIR));
        // A pipe in which nothing comes: dropped, it waits until something does.
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
