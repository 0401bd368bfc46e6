//! Content of unknown size, such as standard input, that is sent while it is read.
//!
//! Blocks stay in memory until they are acknowledged. Reading pauses while too many are kept.

use crate::base::sync::lock;
use bankfull_proto::blocks::{BlockSet, Run};
use bankfull_proto::limits::MAX_FILE_BLOCKS;
use bankfull_sys::{Stat, memory_file, stat_file};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Name of the entry, for messages. The destination has another one.
pub(crate) const INPUT_NAME: &str = "-";

/// Bytes that are read before anything is sent: the size of a shorter input is known. (chosen: the
/// padding of a longer one's last block, of 1 MiB at most, is 6 % of it at most)
pub(crate) const SHORT_INPUT_BYTES: u64 = 16 << 20;

/// Maximum of the bytes that wait for the receiver. (chosen: the product of 10 Gbit/s and 200 ms)
const MAX_HELD_BYTES: u64 = 256 << 20;

/// Share of the free memory that these bytes may take. (chosen: as for received data)
const HELD_MEMORY_SHARE: u64 = 4;

/// Smallest maximum of the waiting bytes: two of the largest blocks.
const MIN_HELD_BYTES: u64 = 32 << 20;

/// Bytes read at a time. (chosen: four times the capacity of a pipe)
const CHUNK_BYTES: usize = 256 << 10;

/// Interval at which a wait notices the end of the session. (chosen: ends seem immediate)
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Open file whose content is sent while it is read.
#[derive(Debug)]
pub(crate) struct SpooledInput {
    input: File,
    /// Content that the receiver does not have yet, at its offset. In memory.
    spool: File,
    /// Time at which the input was opened, mode and owner.
    pub(crate) stat: Stat,
    /// Random version.
    pub(crate) version: u64,
    max_held: u64,
    state: Mutex<State>,
    /// Signals blocks that the receiver has.
    released: Condvar,
}

#[derive(Debug)]
struct State {
    /// Bytes read.
    size: u64,
    is_at_end: bool,
    /// Blocks that wait for the receiver.
    held: BlockSet,
    /// True once a block has left the spool.
    has_released: bool,
    buffer: Vec<u8>,
}

impl SpooledInput {
    /// Prepares an open file to be read from where it is.
    ///
    /// # Errors
    /// Shortage of descriptors or memory.
    pub(crate) fn new(input: File) -> io::Result<Self> {
        let spool = memory_file(&[])?;
        let mut version = [0; 8];
        bankfull_sys::random(&mut version)?;
        let now = stat_file(&spool)?;
        // As open(2) creates files.
        let stat = Stat { mode: 0o666 & !bankfull_sys::umask(), ..now };
        let free = bankfull_sys::memory().map_or(0, |memory| memory.available);
        let max_held = (free / HELD_MEMORY_SHARE).clamp(MIN_HELD_BYTES, MAX_HELD_BYTES);
        let state = State {
            size: 0,
            is_at_end: false,
            held: BlockSet::new(MAX_FILE_BLOCKS),
            has_released: false,
            buffer: Vec::new(),
        };
        let version = u64::from_ne_bytes(version);
        let (state, released) = (Mutex::new(state), Condvar::new());
        Ok(Self { input, spool, stat, version, max_held, state, released })
    }

    /// Returns the bytes read so far: the size once the input is at its end.
    pub(crate) fn size(&self) -> u64 {
        lock(&self.state).size
    }

    /// True if everything that was read is still here.
    pub(crate) fn can_restart(&self) -> bool {
        !lock(&self.state).has_released
    }

    /// Opens the spool, which has the content at its offsets.
    ///
    /// # Errors
    /// Shortage of descriptors.
    pub(crate) fn open(&self) -> io::Result<File> {
        self.spool.try_clone()
    }

    /// Reads until there are `size` bytes, or the input ends; returns true at its end.
    ///
    /// `None` once `is_stopped`.
    ///
    /// # Errors
    /// Read errors, and shortage of memory.
    pub(crate) fn read_to(
        &self,
        size: u64,
        is_stopped: impl Fn() -> bool,
    ) -> io::Result<Option<bool>> {
        // One thread reads; the lock is not held while it waits.
        let mut buffer = std::mem::take(&mut lock(&self.state).buffer);
        buffer.resize(CHUNK_BYTES, 0);
        let read = self.read_through(&mut buffer, size, is_stopped);
        lock(&self.state).buffer = buffer;
        read
    }

    fn read_through(
        &self,
        buffer: &mut [u8],
        size: u64,
        is_stopped: impl Fn() -> bool,
    ) -> io::Result<Option<bool>> {
        loop {
            let (at, is_at_end) = {
                let state = lock(&self.state);
                (state.size, state.is_at_end)
            };
            if is_at_end || at >= size {
                return Ok(Some(is_at_end));
            }
            if is_stopped() {
                return Ok(None);
            }
            if !bankfull_sys::wait_readable(&self.input, STOP_CHECK_INTERVAL)? {
                continue;
            }
            let len = (size - at).min(buffer.len() as u64) as usize;
            match (&self.input).read(&mut buffer[..len]) {
                Ok(0) => lock(&self.state).is_at_end = true,
                Ok(n) => {
                    self.spool.write_all_at(&buffer[..n], at)?;
                    lock(&self.state).size += n as u64;
                }
                Err(e) if is_temporary(&e) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Extends the last block with zeros.
    ///
    /// # Errors
    /// Write errors of the spool.
    pub(crate) fn pad(&self, size: u64) -> io::Result<()> {
        self.spool.set_len(size)
    }

    /// Counts a block as waiting for the receiver; waits first while too many do.
    ///
    /// Returns false once `is_stopped`.
    pub(crate) fn hold(&self, index: u64, block: u64, is_stopped: impl Fn() -> bool) -> bool {
        let mut state = lock(&self.state);
        // A lost session may have left it.
        if state.held.contains(index) {
            return true;
        }
        while (state.held.count() + 1) * block > self.max_held {
            if is_stopped() {
                return false;
            }
            let waited = self.released.wait_timeout(state, STOP_CHECK_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.held.insert(index);
        true
    }

    /// Frees blocks that the receiver has.
    pub(crate) fn release(&self, run: Run, block: u64) {
        let range = run.first..run.first.saturating_add(run.count);
        let mut state = lock(&self.state);
        let released: Vec<Run> = state.held.runs_within(range.clone()).collect();
        if released.is_empty() {
            return;
        }
        state.held.remove_range(range);
        state.has_released = true;
        drop(state);
        for run in released {
            // Memory that cannot be freed now is freed with the spool.
            let _ = bankfull_sys::punch_hole(&self.spool, run.first * block, run.count * block);
        }
        self.released.notify_all();
    }
}

/// True for an error after which the input is read again.
fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::thread;

    const BLOCK: u64 = 1 << 20;

    fn pipe() -> (SpooledInput, File) {
        let (reader, writer) = io::pipe().unwrap();
        let input = SpooledInput::new(File::from(OwnedFd::from(reader))).unwrap();
        (input, File::from(OwnedFd::from(writer)))
    }

    #[test]
    fn content_is_read_up_to_a_size_or_the_end() {
        let (input, mut writer) = pipe();
        writer.write_all(b"0123456789").unwrap();
        assert_eq!(input.read_to(4, || false).unwrap(), Some(false));
        assert_eq!(input.size(), 4);
        // Nothing more is there: only the stop ends the wait.
        assert_eq!(input.read_to(100, || input.size() == 10).unwrap(), None);
        drop(writer);
        assert_eq!(input.read_to(100, || false).unwrap(), Some(true));
        let mut content = [0; 10];
        input.open().unwrap().read_exact_at(&mut content, 0).unwrap();
        assert_eq!((&content, input.size()), (b"0123456789", 10));
    }

    #[test]
    fn reader_waits_until_the_receiver_has_blocks() {
        let (input, _writer) = pipe();
        let blocks = input.max_held / BLOCK;
        assert!((0..blocks).all(|index| input.hold(index, BLOCK, || false)));
        assert!(!input.hold(blocks, BLOCK, || true) && input.can_restart());
        // A second session finds them held, and does not wait for them.
        assert!((0..blocks).all(|index| input.hold(index, BLOCK, || true)));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| input.hold(blocks, BLOCK, || false));
            // A block that is not held frees nothing.
            input.release(Run { first: blocks + 7, count: 1 }, BLOCK);
            thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            input.release(Run { first: 3, count: 1 }, BLOCK);
            assert!(waiting.join().unwrap());
        });
        assert!(!input.can_restart());
        assert!(!input.hold(blocks + 1, BLOCK, || true), "freed once");
    }

    #[test]
    fn released_block_takes_no_memory() {
        let (input, writer) = pipe();
        thread::scope(|scope| {
            scope.spawn(move || (&writer).write_all(&vec![7; 2 * BLOCK as usize]).unwrap());
            assert_eq!(input.read_to(2 * BLOCK, || false).unwrap(), Some(false));
        });
        let allocated = || stat_file(&input.spool).unwrap().allocated;
        assert_eq!(allocated(), 2 * BLOCK);
        assert!(input.hold(0, BLOCK, || false) && input.hold(1, BLOCK, || false));
        input.release(Run { first: 0, count: 1 }, BLOCK);
        assert_eq!(allocated(), BLOCK);
    }
}
