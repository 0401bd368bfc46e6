//! What the tests of this crate share.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode};
use tempfile::TempDir;

use crate::Dir;

/// How long something that happens at once may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A new empty directory, removed when the first half is dropped.
pub(crate) fn scratch() -> (TempDir, Dir) {
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    (root, dir)
}

/// A name from bytes.
pub(crate) fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Creates a FIFO.
pub(crate) fn make_fifo(dir: &Dir, fifo: &str) {
    rustix::fs::mknodat(dir, fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// The answer of `call`, which fails the test instead of hanging it.
pub(crate) fn without_hanging<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || answer.send(call()));
    answered.recv_timeout(PATIENCE).expect("hangs")
}

/// Waits until `happened`, and fails the test if it does not.
pub(crate) fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The raw OS error of a failure.
#[track_caller]
pub(crate) fn errno<T>(outcome: io::Result<T>) -> i32 {
    let err = outcome.err().expect("succeeded");
    err.raw_os_error().unwrap_or_else(|| panic!("not from the kernel: {err}"))
}

/// The kind of a failure.
#[track_caller]
pub(crate) fn kind<T>(outcome: io::Result<T>) -> io::ErrorKind {
    outcome.err().expect("succeeded").kind()
}

/// What a test cannot do here, said. With `BANKFULL_MUST_DIRECT` in the environment it fails.
#[track_caller]
pub(crate) fn cannot<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("BANKFULL_MUST_DIRECT").is_none(), "{why}");
    println!("skipped: {why}");
    None
}
