//! Helpers of this crate's tests.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode};
use tempfile::TempDir;

use crate::Dir;

/// Maximum duration of an immediate operation on a busy host. (chosen: far above any measured)
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Creates an empty directory, removed when the first value is dropped.
pub(crate) fn scratch() -> (TempDir, Dir) {
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    (root, dir)
}

/// Returns a name made of bytes.
pub(crate) fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Creates a FIFO.
pub(crate) fn make_fifo(dir: &Dir, fifo: &str) {
    rustix::fs::mknodat(dir, fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Runs `call` in a thread, and panics if it does not return in time.
pub(crate) fn with_timeout<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || answer.send(call()));
    answered.recv_timeout(TEST_TIMEOUT).expect("hangs")
}

/// Waits until `happened` returns true; panics if it does not in time.
pub(crate) fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !happened() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the raw OS error of a failure.
#[track_caller]
pub(crate) fn errno<T>(outcome: io::Result<T>) -> i32 {
    let err = outcome.err().expect("succeeded");
    err.raw_os_error().unwrap_or_else(|| panic!("not from the kernel: {err}"))
}

/// Returns the kind of a failure.
#[track_caller]
pub(crate) fn kind<T>(outcome: io::Result<T>) -> io::ErrorKind {
    outcome.err().expect("succeeded").kind()
}

/// Reports a skipped test, or panics if `BANKFULL_MUST_DIRECT` is in the environment.
#[track_caller]
pub(crate) fn skip_test<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("BANKFULL_MUST_DIRECT").is_none(), "{why}");
    println!("skipped: {why}");
    None
}
