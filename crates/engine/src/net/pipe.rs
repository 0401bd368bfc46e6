//! The reading end of a pipe, with a time-out and a way to stop it: what sockets have of their own.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a wait looks whether it was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// A pipe that is read with a time-out.
pub(crate) struct PipeReader {
    pipe: File,
    control: PipeControl,
}

/// Stops a [`PipeReader`] or sets its time-out, from another thread. Clones are the same.
#[derive(Clone)]
pub(crate) struct PipeControl(Arc<State>);

struct State {
    stopped: AtomicBool,
    timeout_ms: AtomicU64,
}

impl PipeControl {
    /// Wakes the reader, which then sees the end of the pipe.
    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
    }

    /// Sets how long a read may wait.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.0.timeout_ms.store(ms, Ordering::SeqCst);
    }

    fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::SeqCst)
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.0.timeout_ms.load(Ordering::SeqCst))
    }
}

impl PipeReader {
    pub(crate) fn new(pipe: impl Into<OwnedFd>, timeout: Duration) -> Self {
        let state = State { stopped: AtomicBool::new(false), timeout_ms: AtomicU64::new(0) };
        let control = PipeControl(Arc::new(state));
        control.set_timeout(timeout);
        Self { pipe: File::from(pipe.into()), control }
    }

    pub(crate) fn control(&self) -> PipeControl {
        self.control.clone()
    }
}

impl Read for PipeReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        while !bankfull_sys::wait_readable(&self.pipe, LOOK)? {
            if self.control.is_stopped() {
                return Ok(0);
            }
            if began.elapsed() >= self.control.timeout() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        self.pipe.read(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_read_gives_up_after_its_time_out_and_ends_when_stopped() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut reader = PipeReader::new(reader, Duration::from_millis(1));
        let mut byte = [0];
        assert_eq!(reader.read(&mut byte).unwrap_err().kind(), io::ErrorKind::TimedOut);
        reader.control().set_timeout(Duration::from_secs(3600));
        writer.write_all(b"x").unwrap();
        assert_eq!((reader.read(&mut byte).unwrap(), byte), (1, *b"x"));
        reader.control().stop();
        assert_eq!(reader.read(&mut byte).unwrap(), 0);
    }
}
