//! Thread creation that can fail, since users and containers have limits. New threads log in the
//! span of their creator, and their waits for resources end with those of their creator.

use super::error::Error;
use super::sync::lock;
use bankfull_sys::{retry_shortage, set_wait_end, wait_end};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;
use tracing::Span;

/// Longest wait for a thread. (chosen: in a crowd sessions end many times a second; a user who has
/// no thread left is told soon)
const SHORTAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts a thread; waits a moment if threads are short.
pub(crate) fn try_spawn<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<(), Error> {
    let start = |work: Shared<_>| start(scope, move || run(&work)).map(drop);
    retry_while_short(work, start).map_err(|e| Error::thread_start(&e))
}

/// Starts a thread; fails at once if threads are short.
pub(crate) fn try_spawn_now<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<(), Error> {
    try_spawn_joinable(scope, work).map(drop)
}

/// Starts a thread and returns its handle; fails at once if threads are short.
pub(crate) fn try_spawn_joinable<'scope, 'env: 'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Error> {
    start(scope, work).map_err(|e| Error::thread_start(&e))
}

/// Starts a thread that outlives its creator; waits a moment if threads are short.
pub(crate) fn try_spawn_detached(work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let start =
        |work: Shared<_>| thread::Builder::new().spawn(in_this_span(move || run(&work))).map(drop);
    retry_while_short(work, start).map_err(|e| Error::thread_start(&e))
}

fn start<'scope, 'env: 'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    thread::Builder::new().spawn_scoped(scope, in_this_span(work))
}

/// Work of a thread, which a failed start must not lose.
type Shared<F> = Arc<Mutex<Option<F>>>;

/// Starts work again while threads are short.
fn retry_while_short<F: FnOnce()>(
    work: F,
    start: impl Fn(Shared<F>) -> io::Result<()>,
) -> io::Result<()> {
    let work = Arc::new(Mutex::new(Some(work)));
    retry_shortage(SHORTAGE_TIMEOUT, || start(Arc::clone(&work)))
}

fn run<F: FnOnce()>(work: &Mutex<Option<F>>) {
    let work = lock(work).take();
    work.into_iter().for_each(|work| work());
}

/// Returns the work of a new thread, which logs and waits as the caller does.
pub(crate) fn in_this_span<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let (span, end) = (Span::current(), wait_end());
    move || {
        set_wait_end(end);
        span.in_scope(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn shortage() -> io::Error {
        io::Error::from_raw_os_error(11)
    }

    #[test]
    fn work_survives_a_shortage_of_threads() {
        let (done, tries) = (Cell::new(0), Cell::new(0));
        let start = |work: Shared<_>| {
            if tries.replace(tries.get() + 1) < 3 {
                return Err(shortage());
            }
            run(&work);
            Ok(())
        };
        retry_while_short(|| done.set(done.get() + 1), start).unwrap();
        assert_eq!((done.get(), tries.get()), (1, 4));
        let failed = retry_while_short(|| {}, |_| Err(io::ErrorKind::InvalidInput.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn waits_of_threads_end_with_those_of_their_creator() {
        let end = Arc::new(AtomicBool::new(false));
        let before = set_wait_end(Some(Arc::clone(&end)));
        let is_over = thread::scope(|scope| {
            let waits = try_spawn_joinable(scope, || {
                retry_shortage(Duration::from_secs(60), || Err::<(), _>(shortage())).is_err()
            });
            end.store(true, Ordering::Relaxed);
            waits.unwrap().join().unwrap()
        });
        assert!(is_over);
        set_wait_end(before);
    }
}
