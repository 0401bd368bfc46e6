//! Opening of files while descriptors are short.

use rustix::io::{Errno, retry_on_intr};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a descriptor. (chosen: a third of the default time-out for silence)
const SHORTAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval of attempts. (chosen: sessions close files many times a second)
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Calls a function that opens a file, again after `EINTR`, and while descriptors are short.
///
/// # Errors
///
/// Errors of the function; `EMFILE` and `ENFILE` only after [`SHORTAGE_TIMEOUT`].
pub(crate) fn retry_opening<T>(open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    retry_until(Instant::now() + SHORTAGE_TIMEOUT, open)
}

fn retry_until<T>(
    deadline: Instant,
    mut open: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        match retry_on_intr(&mut open) {
            Err(Errno::MFILE | Errno::NFILE) if Instant::now() < deadline => {
                thread::sleep(RETRY_INTERVAL);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_is_waited_for_until_the_deadline() {
        let mut results = vec![Ok(7), Err(Errno::NFILE), Err(Errno::INTR), Err(Errno::MFILE)];
        assert_eq!(retry_opening(|| results.pop().unwrap()), Ok(7));
        let mut calls = 0;
        let mut fail = |errno| {
            retry_until(Instant::now(), || {
                calls += 1;
                Err::<(), _>(errno)
            })
        };
        assert_eq!(fail(Errno::MFILE), Err(Errno::MFILE));
        assert_eq!(fail(Errno::ACCESS), Err(Errno::ACCESS));
        assert_eq!(calls, 2);
    }
}
