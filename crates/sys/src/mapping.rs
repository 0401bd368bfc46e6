//! Read-only file mappings that survive truncation of the file.
//!
//! If the file is truncated while it is mapped, a read behind its end raises `SIGBUS`, which kills
//! the process by default. The handler here replaces the missing pages by zeros, the read
//! continues, and the mapping is marked as not whole.
//!
//! The first mapping installs the handler. A `SIGBUS` outside these mappings is passed to the
//! previous handler.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum number of mappings in the process. (chosen: far more than streams, and short enough for
/// the handler's linear search)
const MAX_MAPPINGS: usize = 1024;

/// Mapping as seen by the handler. A slot whose `end` is zero has no mapping.
struct Slot {
    is_taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    is_torn: AtomicBool,
}

static SLOTS: [Slot; MAX_MAPPINGS] = [const {
    Slot {
        is_taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        is_torn: AtomicBool::new(false),
    }
}; MAX_MAPPINGS];

impl Slot {
    /// Allocates a free slot for the caller.
    fn allocate() -> Option<&'static Self> {
        let slot = SLOTS.iter().find(|slot| !slot.is_taken.swap(true, Ordering::AcqRel))?;
        slot.is_torn.store(false, Ordering::Release);
        Some(slot)
    }

    /// Sets the address range of the mapping.
    fn set(&self, start: usize, len: usize) {
        self.start.store(start, Ordering::Release);
        self.end.store(start + len, Ordering::Release);
    }

    fn release(&self) {
        self.end.store(0, Ordering::Release);
        self.is_taken.store(false, Ordering::Release);
    }

    /// Returns the end of the mapping if it contains an address.
    fn end_of(&self, address: usize) -> Option<usize> {
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        // Otherwise another mapping has taken the slot.
        let is_one = self.start.load(Ordering::Acquire) == start;
        (is_one && (start..end).contains(&address)).then_some(end)
    }
}

/// Previous action for `SIGBUS`; an error if it cannot be changed.
static PREVIOUS_ACTION: OnceLock<Result<SignalAction, i32>> = OnceLock::new();

struct SignalAction(libc::sigaction);

// SAFETY: the structure holds a number and a function address, which any thread may read.
unsafe impl Send for SignalAction {}
// SAFETY: as above.
unsafe impl Sync for SignalAction {}

/// Installs the handler, once.
fn install_handler() -> io::Result<()> {
    let set = PREVIOUS_ACTION.get_or_init(|| {
        // SAFETY: the structure consists of integers and addresses, for which all zero bytes are a
        // value: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            on_sigbus;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both structures outlive the call; the handler is async-signal-safe.
        let outcome =
            unsafe { libc::sigaction(libc::SIGBUS, &raw const action, before.as_mut_ptr()) };
        match outcome {
            // SAFETY: the kernel has written the structure.
            0 => Ok(SignalAction(unsafe { before.assume_init() })),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
        }
    });
    set.as_ref().map(|_| ()).map_err(|&code| io::Error::from_raw_os_error(code))
}

/// Replaces the missing pages of a truncated mapping by zeros, or invokes the previous action.
extern "C" fn on_sigbus(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure, in which SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let page = page_size();
    // A signal sent by a process is not a memory access, and has no address.
    // SAFETY: as above.
    let is_access = unsafe { (*info).si_code } > 0;
    let found = SLOTS.iter().find_map(|slot| Some((slot, slot.end_of(address)?)));
    if let Some((slot, end)) = found.filter(|_| is_access) {
        let from = address & !(page - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // Set first: a reader that sees zeros must find the mapping torn.
        slot.is_torn.store(true, Ordering::Release);
        // SAFETY: the pages from there to the end of the mapping belong to it, and are only read as
        // plain bytes; their readers wait in this handler.
        let placed =
            unsafe { libc::mmap(from as *mut _, end - from, libc::PROT_READ, flags, -1, 0) };
        if placed != libc::MAP_FAILED {
            return;
        }
    }
    // The access is repeated after the return, and triggers the previous action.
    if let Some(Ok(before)) = PREVIOUS_ACTION.get() {
        // SAFETY: the structure was returned by the kernel.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const before.0, ptr::null_mut()) };
    } else {
        // SAFETY: the default action ends the process, as without this handler.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
    if !is_access {
        // SAFETY: the signal is blocked until this handler returns, and delivered then.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

/// Returns the page size in bytes.
fn page_size() -> usize {
    rustix::param::page_size()
}

/// Returns whether a system call failed because a mapped file was truncated.
///
/// The call succeeds after this process has read the pages, which are then replaced by zeros.
#[must_use]
pub fn is_mapping_fault(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFAULT)
}

/// Read-only mapping of a file range.
///
/// Concurrent writes to the file change its bytes, so two reads may differ.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    mapped: usize,
    /// Offset of the range in the mapped pages.
    offset_in_page: usize,
    len: usize,
    slot: &'static Slot,
}

// SAFETY: it is read-only, and no part of it belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Mapping {
    /// Maps `len` bytes of a file at `offset`.
    ///
    /// Pages are loaded when they are read, or by [`populate`](Self::populate).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a length of zero; `ENODEV` if the filesystem cannot map files;
    /// `OutOfMemory` if there are too many mappings.
    pub fn new(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        install_handler()?;
        let page = page_size() as u64;
        let offset_in_page = (offset % page) as usize;
        let mapped = len
            .checked_add(offset_in_page)
            .filter(|_| len > 0)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let from = libc::off_t::try_from(offset - offset_in_page as u64)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let slot = Slot::allocate().ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: the kernel chooses the address; the descriptor is open during the call.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), mapped, protection, flags, file.as_raw_fd(), from)
        };
        let Some(base) = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED)
        else {
            let error = io::Error::last_os_error();
            slot.release();
            return Err(error);
        };
        slot.set(base.as_ptr() as usize, mapped);
        Ok(Self { base, mapped, offset_in_page, len, slot })
    }

    /// Loads pages of the range with one call instead of page faults.
    ///
    /// Pages that the call cannot load (before Linux 5.14, or behind the end of the file) are
    /// loaded when they are read.
    pub fn populate(&self, range: Range<usize>) {
        let page = page_size();
        let start = (self.offset_in_page + range.start.min(self.len)) / page * page;
        let end = self.offset_in_page + range.end.min(self.len);
        if start < end {
            // SAFETY: the range lies within the mapping, which lives as long as `self`, and starts
            // at a page.
            unsafe {
                let from = self.base.as_ptr().add(start);
                libc::madvise(from.cast(), end - start, libc::MADV_POPULATE_READ);
            }
        }
    }

    /// Returns the bytes; zeros replace a truncated part, see [`is_whole`](Self::is_whole).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped and readable as long as `self` lives: a truncated part is
        // replaced by zeros on access. The documentation of the type covers concurrent writes to
        // the file.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(self.offset_in_page), self.len) }
    }

    /// Returns whether all bytes read so far came from the file.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.slot.is_torn.load(Ordering::Acquire)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Set first: the handler must not replace pages of a later mapping at this address.
        self.slot.end.store(0, Ordering::Release);
        // SAFETY: no borrow of it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
        self.slot.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Returns a file of `bytes` bytes, none zero, and its content.
    fn file_of(bytes: usize) -> (File, Vec<u8>) {
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 + 1).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        (file, content)
    }

    #[test]
    fn mapping_at_any_offset_has_file_bytes() {
        let (file, content) = file_of(5 * page_size() + 7);
        for (offset, len) in [(0, content.len()), (1, 10), (page_size() - 1, page_size() + 2)] {
            let mapping = Mapping::new(&file, offset as u64, len).unwrap();
            mapping.populate(len / 2..len + 5);
            assert_eq!(mapping.bytes(), &content[offset..offset + len]);
            assert!(mapping.is_whole());
        }
        assert!(Mapping::new(&file, 0, 0).is_err());
    }

    #[test]
    fn truncated_mapping_reads_zeros_others_stay_whole() {
        let page = page_size();
        let (file, content) = file_of(8 * page);
        let (other, other_content) = file_of(8 * page);
        let mapping = Mapping::new(&file, 0, 8 * page).unwrap();
        let other_mapping = Mapping::new(&other, 0, 8 * page).unwrap();
        file.set_len(2 * page as u64 + 1).unwrap();
        assert_eq!(mapping.bytes()[..2 * page], content[..2 * page]);
        assert!(mapping.is_whole(), "no truncated page was read");
        assert!(mapping.bytes()[3 * page..].iter().all(|&byte| byte == 0));
        assert!(!mapping.is_whole());
        assert_eq!(other_mapping.bytes(), other_content);
        assert!(other_mapping.is_whole());
        drop(mapping);
        let again = Mapping::new(&other, 0, page).unwrap();
        assert!(again.is_whole(), "a reused slot is not torn");
    }

    #[test]
    fn concurrent_truncations_are_survived() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let (file, _) = file_of(4 * page_size());
                        let mapping = Mapping::new(&file, 0, 4 * page_size()).unwrap();
                        file.set_len(0).unwrap();
                        assert!(mapping.bytes().iter().all(|&byte| byte == 0));
                        assert!(!mapping.is_whole());
                    }
                });
            }
        });
    }

    /// Raises `SIGBUS` outside a mapping of this module, and so ends its process.
    #[test]
    #[ignore = "ends its process: another test starts it"]
    fn sigbus_outside_mapping() {
        let (file, _) = file_of(page_size());
        let _watched = Mapping::new(&file, 0, 1).unwrap();
        let flags = libc::MAP_SHARED;
        let fd = file.as_raw_fd();
        // SAFETY: as in `Mapping::new`; the read behind the end of the file ends the process.
        let lost =
            unsafe { libc::mmap(ptr::null_mut(), 2 * page_size(), libc::PROT_READ, flags, fd, 0) };
        // SAFETY: mapped, without any byte of the file behind it.
        let byte = unsafe { lost.cast::<u8>().add(page_size()).read_volatile() };
        panic!("{byte} was read");
    }

    #[test]
    fn sigbus_elsewhere_ends_process() {
        let this = std::env::current_exe().unwrap();
        let name = "mapping::tests::sigbus_outside_mapping";
        let done = Command::new(this).args(["--ignored", "--exact", name]).output().unwrap();
        assert_eq!(done.status.signal(), Some(libc::SIGBUS), "{done:?}");
    }
}
