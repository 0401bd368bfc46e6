//! A range of a file in memory, read as bytes.
//!
//! Others may cut the file while it is mapped. What lies behind its end then cannot be read: the
//! kernel sends `SIGBUS`, which ends a process that does nothing about it. Here a handler puts
//! zeros in the place of what is gone, the read goes on, and the mapping knows that it is not
//! whole.
//! The handler is set when the first mapping is made, and leaves to whoever was there before it
//! what is not in a mapping of ours.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most mappings at a time. [ours: far more than connections, and a handler looks through them all]
const MAPPINGS_MAX: usize = 1024;

/// A mapping as the handler sees it. One without an end is nobody's.
struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    torn: AtomicBool,
}

static SLOTS: [Slot; MAPPINGS_MAX] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        torn: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];

impl Slot {
    /// One that is nobody's, which is the caller's from now on.
    fn take() -> Option<&'static Self> {
        let slot = SLOTS.iter().find(|slot| !slot.taken.swap(true, Ordering::AcqRel))?;
        slot.torn.store(false, Ordering::Release);
        Some(slot)
    }

    /// Where its mapping is.
    fn set(&self, start: usize, len: usize) {
        self.start.store(start, Ordering::Release);
        self.end.store(start + len, Ordering::Release);
    }

    fn give_back(&self) {
        self.end.store(0, Ordering::Release);
        self.taken.store(false, Ordering::Release);
    }

    /// Where its mapping ends, if an address is in it.
    fn end_of(&self, address: usize) -> Option<usize> {
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        // Else it is another mapping's by now.
        let is_one = self.start.load(Ordering::Acquire) == start;
        (is_one && (start..end).contains(&address)).then_some(end)
    }
}

/// What the process did about `SIGBUS` before; an error where it cannot be changed.
static BEFORE: OnceLock<Result<Action, i32>> = OnceLock::new();

struct Action(libc::sigaction);

// SAFETY: it holds a number and an address of a function, which any thread may read.
unsafe impl Send for Action {}
// SAFETY: as above.
unsafe impl Sync for Action {}

/// Sets the handler, once.
fn watch() -> io::Result<()> {
    let set = BEFORE.get_or_init(|| {
        // SAFETY: the structure is made of integers and addresses, for which all bytes zero is a
        // value: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both structures outlive the call; the handler does only what a handler may.
        let outcome =
            unsafe { libc::sigaction(libc::SIGBUS, &raw const action, before.as_mut_ptr()) };
        match outcome {
            // SAFETY: the kernel has written the structure.
            0 => Ok(Action(unsafe { before.assume_init() })),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
        }
    });
    set.as_ref().map(|_| ()).map_err(|&code| io::Error::from_raw_os_error(code))
}

/// Puts zeros where a mapping of ours has lost its file; else lets happen what would have.
extern "C" fn on_bus(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid structure, in which SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let page = page_bytes();
    // What a process has sent is no access, and has no address.
    // SAFETY: as above.
    let is_access = unsafe { (*info).si_code } > 0;
    let found = SLOTS.iter().find_map(|slot| Some((slot, slot.end_of(address)?)));
    if let Some((slot, end)) = found.filter(|_| is_access) {
        let from = address & !(page - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // First, so that nobody reads zeros and finds the mapping whole.
        slot.torn.store(true, Ordering::Release);
        // SAFETY: the pages from there to the end of the mapping are ours to replace, and are read
        // as plain bytes only; whoever reads them waits in this handler.
        let placed =
            unsafe { libc::mmap(from as *mut _, end - from, libc::PROT_READ, flags, -1, 0) };
        if placed != libc::MAP_FAILED {
            return;
        }
    }
    // The access is made again behind this, and meets what was there before.
    if let Some(Ok(before)) = BEFORE.get() {
        // SAFETY: the structure is what the kernel gave us.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const before.0, ptr::null_mut()) };
    } else {
        // SAFETY: the default ends the process, as it would have without us.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
    if !is_access {
        // SAFETY: it is blocked until this handler returns, and comes then.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

/// Bytes of a page.
fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Whether the kernel could not read from a mapping since its file was cut. It can, once this
/// process has read there: then zeros stand for what is gone.
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFAULT)
}

/// A range of a file in memory. Its bytes are the file's own: they change when somebody writes to
/// it, so that nothing may rest on reading the same twice.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    mapped: usize,
    /// Where the range begins in it.
    lead: usize,
    len: usize,
    slot: &'static Slot,
}

// SAFETY: it is read only, and nothing in it belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on. They come to memory when they are read, or with
    /// [`fetch`](Self::fetch).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a length of zero; `ENODEV` where the file system cannot; `OutOfMemory`
    /// where there are too many mappings.
    pub fn new(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        watch()?;
        let page = page_bytes() as u64;
        let lead = (offset % page) as usize;
        let mapped =
            len.checked_add(lead).filter(|_| len > 0).ok_or(io::ErrorKind::InvalidInput)?;
        let from = libc::off_t::try_from(offset - lead as u64)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let slot = Slot::take().ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: the kernel chooses the place; the descriptor is open for the call.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), mapped, protection, flags, file.as_raw_fd(), from)
        };
        let Some(base) = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED)
        else {
            let error = io::Error::last_os_error();
            slot.give_back();
            return Err(error);
        };
        slot.set(base.as_ptr() as usize, mapped);
        Ok(Self { base, mapped, lead, len, slot })
    }

    /// Has the kernel bring bytes of the range to memory in one call, not page by page as they are
    /// read. What it cannot do of it (before 5.14, or behind the end of the file) comes then.
    pub fn fetch(&self, range: Range<usize>) {
        let page = page_bytes();
        let start = (self.lead + range.start.min(self.len)) / page * page;
        let end = self.lead + range.end.min(self.len);
        if start < end {
            // SAFETY: the range lies in what is mapped as long as `self` lives, at a page's begin.
            unsafe {
                let from = self.base.as_ptr().add(start);
                libc::madvise(from.cast(), end - start, libc::MADV_POPULATE_READ);
            }
        }
    }

    /// The bytes; zeros in the place of what the file does not have any more, see
    /// [`is_whole`](Self::is_whole).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped as long as `self` lives, and readable: what has gone of the
        // file is replaced by zeros when it is touched. That others may write to the file is in the
        // type's description.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(self.lead), self.len) }
    }

    /// Whether all that was read so far was the file's.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.slot.torn.load(Ordering::Acquire)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // First, so that the handler does not put pages where others have mapped something since.
        self.slot.end.store(0, Ordering::Release);
        // SAFETY: nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
        self.slot.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// A file of so many bytes, each of them its position's last digits, never zero.
    fn file_of(bytes: usize) -> (File, Vec<u8>) {
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 + 1).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        (file, content)
    }

    #[test]
    fn a_mapping_has_the_bytes_of_its_range_wherever_it_begins() {
        let (file, content) = file_of(5 * page_bytes() + 7);
        for (offset, len) in [(0, content.len()), (1, 10), (page_bytes() - 1, page_bytes() + 2)] {
            let mapping = Mapping::new(&file, offset as u64, len).unwrap();
            mapping.fetch(len / 2..len + 5);
            assert_eq!(mapping.bytes(), &content[offset..offset + len]);
            assert!(mapping.is_whole());
        }
        assert!(Mapping::new(&file, 0, 0).is_err());
    }

    #[test]
    fn what_is_cut_off_reads_as_zeros_and_is_known_while_others_stay_whole() {
        let page = page_bytes();
        let (file, content) = file_of(8 * page);
        let (other, others) = file_of(8 * page);
        let mapping = Mapping::new(&file, 0, 8 * page).unwrap();
        let beside = Mapping::new(&other, 0, 8 * page).unwrap();
        file.set_len(2 * page as u64 + 1).unwrap();
        assert_eq!(mapping.bytes()[..2 * page], content[..2 * page]);
        assert!(mapping.is_whole(), "nothing was read of what is gone");
        assert!(mapping.bytes()[3 * page..].iter().all(|&byte| byte == 0));
        assert!(!mapping.is_whole());
        assert_eq!(beside.bytes(), others);
        assert!(beside.is_whole());
        drop(mapping);
        let again = Mapping::new(&other, 0, page).unwrap();
        assert!(again.is_whole(), "a place that was torn before is as good as new");
    }

    #[test]
    fn many_threads_may_lose_their_files_at_once() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let (file, _) = file_of(4 * page_bytes());
                        let mapping = Mapping::new(&file, 0, 4 * page_bytes()).unwrap();
                        file.set_len(0).unwrap();
                        assert!(mapping.bytes().iter().all(|&byte| byte == 0));
                        assert!(!mapping.is_whole());
                    }
                });
            }
        });
    }

    /// Runs by itself in a process of its own, which ends by it.
    #[test]
    #[ignore = "ends its process: another test starts it"]
    fn fault_elsewhere() {
        let (file, _) = file_of(page_bytes());
        let _watched = Mapping::new(&file, 0, 1).unwrap();
        let flags = libc::MAP_SHARED;
        let fd = file.as_raw_fd();
        // SAFETY: as in `Mapping::new`; what is read behind the end of the file ends the process.
        let lost =
            unsafe { libc::mmap(ptr::null_mut(), 2 * page_bytes(), libc::PROT_READ, flags, fd, 0) };
        // SAFETY: mapped, and without a byte of the file behind it.
        let byte = unsafe { lost.cast::<u8>().add(page_bytes()).read_volatile() };
        panic!("{byte} was read");
    }

    #[test]
    fn what_is_not_in_a_mapping_of_ours_ends_the_process_as_ever() {
        let this = std::env::current_exe().unwrap();
        let name = "mapping::tests::fault_elsewhere";
        let done = Command::new(this).args(["--ignored", "--exact", name]).output().unwrap();
        assert_eq!(done.status.signal(), Some(libc::SIGBUS), "{done:?}");
    }
}
