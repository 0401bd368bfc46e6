//! Waits while a resource is short: descriptors, memory or threads of the process or the host.
//!
//! A wait ends early on a thread whose work is over; see [`set_wait_end`].

use rustix::io::{Errno, retry_on_intr};
use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a descriptor. (chosen: a third of the default timeout for silence)
pub const SHORTAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Least duration of a wait that counts as in vain. (chosen: files are closed many times a second)
const MIN_FUTILE_WAIT: Duration = Duration::from_secs(1);

/// Interval of attempts. (chosen: sessions close files many times a second)
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

thread_local! {
    static WAIT_END: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Sets the flag that ends this thread's waits for resources once it is true.
///
/// Returns the flag before.
pub fn set_wait_end(flag: Option<Arc<AtomicBool>>) -> Option<Arc<AtomicBool>> {
    WAIT_END.with(|end| end.replace(flag))
}

/// Returns the flag that ends this thread's waits, for another thread of the same work.
#[must_use]
pub fn wait_end() -> Option<Arc<AtomicBool>> {
    WAIT_END.with(|end| end.borrow().clone())
}

/// Calls a function in which this thread waits for no resource.
pub fn without_waits<T>(call: impl FnOnce() -> T) -> T {
    static OVER: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));
    let before = set_wait_end(Some(Arc::clone(&OVER)));
    let result = call();
    set_wait_end(before);
    result
}

fn is_wait_over() -> bool {
    WAIT_END.with(|end| end.borrow().as_ref().is_some_and(|end| end.load(Ordering::Relaxed)))
}

/// Calls a function, and retries it while descriptors, memory or threads are short.
///
/// # Errors
///
/// Errors of the function; those of a shortage (see [`is_shortage`]) only after `timeout`, or once
/// the thread's waits are over.
pub fn retry_shortage<T>(
    timeout: Duration,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut wait = Wait::of(timeout);
    loop {
        match attempt() {
            Err(e) if is_shortage(&e) && wait.sleep_unless_over() => {}
            done => return done,
        }
    }
}

/// A wait for a resource.
struct Wait {
    began: Instant,
    deadline: Instant,
}

/// Time of the process's last wait in vain; waits soon after it are skipped.
static LAST_FUTILE_WAIT: Mutex<Option<Instant>> = Mutex::new(None);

impl Wait {
    fn of(timeout: Duration) -> Self {
        let began = Instant::now();
        let last = *LAST_FUTILE_WAIT.lock().unwrap_or_else(PoisonError::into_inner);
        let was_futile = last.is_some_and(|at| at.elapsed() < SHORTAGE_TIMEOUT);
        Self { began, deadline: if was_futile { began } else { began + timeout } }
    }

    /// Waits for a moment; false once the wait is over.
    fn sleep_unless_over(&mut self) -> bool {
        let now = Instant::now();
        if is_wait_over() {
            return false;
        }
        if now >= self.deadline {
            if now - self.began >= MIN_FUTILE_WAIT {
                *LAST_FUTILE_WAIT.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
            }
            return false;
        }
        thread::sleep(RETRY_INTERVAL);
        true
    }
}

/// True for the errors `EAGAIN` (of a thread), `ENOMEM`, `EMFILE` and `ENFILE`.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    let code = Errno::from_io_error(error);
    matches!(code, Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE))
}

/// Calls a function that opens a file, again after `EINTR`, and while descriptors are short.
///
/// # Errors
///
/// Errors of the function; `EMFILE`, `ENFILE` and `ENOMEM` only after [`SHORTAGE_TIMEOUT`].
pub(crate) fn retry_opening<T>(open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    retry_within(SHORTAGE_TIMEOUT, open)
}

fn retry_within<T>(
    timeout: Duration,
    mut open: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut wait = Wait::of(timeout);
    loop {
        match retry_on_intr(&mut open) {
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) if wait.sleep_unless_over() => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_is_waited_for_until_the_deadline() {
        let mut results =
            vec![Ok(7), Err(Errno::NFILE), Err(Errno::INTR), Err(Errno::NOMEM), Err(Errno::MFILE)];
        assert_eq!(retry_opening(|| results.pop().unwrap()), Ok(7));
        let mut calls = 0;
        let mut fail = |errno| {
            retry_within(Duration::ZERO, || {
                calls += 1;
                Err::<(), _>(errno)
            })
        };
        assert_eq!(fail(Errno::MFILE), Err(Errno::MFILE));
        assert_eq!(fail(Errno::ACCESS), Err(Errno::ACCESS));
        assert_eq!(calls, 2);
    }

    #[test]
    fn shortage_of_each_kind_is_waited_for() {
        let mut results = vec![
            Ok(7),
            Err(Errno::AGAIN.into()),
            Err(Errno::NOMEM.into()),
            Err(Errno::NFILE.into()),
            Err(Errno::MFILE.into()),
        ];
        assert_eq!(retry_shortage(SHORTAGE_TIMEOUT, || results.pop().unwrap()).unwrap(), 7);
        let fail = |errno: Errno| retry_shortage(Duration::ZERO, || Err::<(), _>(errno.into()));
        assert_eq!(fail(Errno::AGAIN).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let mut denied = vec![Errno::ACCESS];
        let once = || Err::<(), _>(denied.pop().unwrap().into());
        let error = retry_shortage(SHORTAGE_TIMEOUT, once).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn wait_ends_with_the_work_of_its_thread() {
        let end = Arc::new(AtomicBool::new(true));
        assert!(set_wait_end(Some(Arc::clone(&end))).is_none());
        assert!(wait_end().is_some_and(|flag| Arc::ptr_eq(&flag, &end)));
        let started = Instant::now();
        assert_eq!(retry_opening(|| Err::<(), _>(Errno::MFILE)), Err(Errno::MFILE));
        let short = || Err::<(), _>(Errno::NOMEM.into());
        assert!(retry_shortage(SHORTAGE_TIMEOUT, short).is_err());
        assert!(started.elapsed() < SHORTAGE_TIMEOUT);
        assert!(set_wait_end(None).is_some() && !is_wait_over());
        assert!(without_waits(is_wait_over) && !is_wait_over());
    }
}
