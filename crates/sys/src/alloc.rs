//! Global allocator that retries while memory is short, then exits with a one-line message.
//!
//! The standard library aborts the program when an allocation fails. This allocator tries again for
//! a while first: another thread may release memory. Large buffers come from [`crate::Pages`],
//! which returns an error instead.

use std::alloc::{GlobalAlloc, Layout, System};
use std::thread;
use std::time::Duration;

use crate::host::exit_now;

/// Attempts of an allocation, and the pause before each but the first. (chosen: two seconds, far
/// longer than a thread uses the buffers of a chunk)
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// Exit code of the program without memory: that of local failures. (docs/exit-codes.md)
const EXIT_CODE: u8 = 11;

/// Arenas of glibc's allocator while the address space is limited. Each reserves 64 MiB of it.
/// (malloc/arena.c, `HEAP_MAX_SIZE`)
#[cfg(target_env = "gnu")]
const LIMITED_ARENAS: libc::c_int = 1;

/// System allocator that repeats failed allocations.
#[derive(Debug, Clone, Copy)]
pub struct RetryingAllocator;

// SAFETY: each function returns what the system's allocator returns, or does not return.
unsafe impl GlobalAlloc for RetryingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantee.
        with_retries(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantee.
        with_retries(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's guarantee; a failed attempt leaves `memory` as it was.
        with_retries(size, || unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Repeats an allocation of `size` bytes while it fails; at last ends the program.
fn with_retries(size: usize, attempt: impl Fn() -> *mut u8) -> *mut u8 {
    for _ in 1..ATTEMPTS {
        let memory = attempt();
        if !memory.is_null() {
            return memory;
        }
        thread::sleep(PAUSE);
    }
    let memory = attempt();
    if memory.is_null() {
        give_up(size);
    }
    memory
}

/// Ends the program with a one-line message, without allocating.
#[cold]
fn give_up(size: usize) -> ! {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = size;
    while at == digits.len() || left > 0 {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    let parts: [&[u8]; 3] = [
        b"bankfull: out of memory: ",
        &digits[at..],
        b" bytes cannot be allocated (see ulimit -v, and memory.max of the container)\n",
    ];
    for part in parts {
        // SAFETY: the bytes are valid; a failure is without consequence.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    exit_now(EXIT_CODE)
}

/// Makes the C library reserve less of a limited address space. Call before threads are started.
pub fn use_few_arenas() {
    #[cfg(target_env = "gnu")]
    if rustix::process::getrlimit(rustix::process::Resource::As).current.is_some() {
        // SAFETY: no other thread runs yet; an option that is not accepted changes nothing.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, LIMITED_ARENAS) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::ptr;

    #[test]
    fn failed_allocation_is_tried_again() {
        let (calls, mut byte) = (Cell::new(0), 0u8);
        let memory = ptr::from_mut(&mut byte);
        let attempt = || match calls.replace(calls.get() + 1) {
            3 => memory,
            _ => ptr::null_mut(),
        };
        assert_eq!(with_retries(1, attempt), memory);
        assert_eq!(calls.get(), 4);
    }

    #[test]
    fn allocations_are_the_systems() {
        let layout = Layout::from_size_align(1000, 64).unwrap();
        let allocator = RetryingAllocator;
        // SAFETY: the layout is valid, and the memory is used within it.
        unsafe {
            let memory = allocator.alloc_zeroed(layout);
            assert!(memory.addr().is_multiple_of(64) && *memory.add(999) == 0);
            memory.add(999).write(7);
            let memory = allocator.realloc(memory, layout, 5000);
            assert_eq!(*memory.add(999), 7);
            allocator.dealloc(memory, Layout::from_size_align(5000, 64).unwrap());
            allocator.dealloc(allocator.alloc(layout), layout);
        }
    }
}
