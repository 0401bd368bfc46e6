//! The two ends of pipes, with a time-out and a way to stop them: what sockets have of their own.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a wait looks whether it was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// How long last words may wait for room in the pipe once all else was stopped.
const FAREWELL: Duration = Duration::from_secs(1);

/// A pipe that is read with a time-out.
pub(crate) struct PipeReader {
    pipe: File,
    control: PipeControl,
}

/// A pipe that is written with a time-out.
pub(crate) struct PipeWriter {
    pipe: File,
    control: PipeControl,
}

/// Stops a [`PipeReader`] or sets its time-out, from another thread, and that of the [`PipeWriter`]
/// which goes with it. Clones are the same.
#[derive(Clone)]
pub(crate) struct PipeControl(Arc<State>);

struct State {
    stopped: AtomicBool,
    timeout_ms: AtomicU64,
}

impl PipeControl {
    /// Wakes the reader, which then sees the end of the pipe. The writer does not wait for long any
    /// more.
    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
    }

    /// Sets how long a read or a write may wait.
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

impl PipeWriter {
    /// The other direction of what `control` belongs to.
    pub(crate) fn new(pipe: impl Into<OwnedFd>, control: PipeControl) -> Self {
        Self { pipe: File::from(pipe.into()), control }
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let began = Instant::now();
        while !bankfull_sys::wait_writable(&self.pipe, LOOK)? {
            let limit = if self.control.is_stopped() { FAREWELL } else { self.control.timeout() };
            if began.elapsed() >= limit {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        // More than that might wait, and nothing could end it.
        self.pipe.write(&bytes[..bytes.len().min(bankfull_sys::PIPE_BYTES)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_gives_up_after_its_time_out_or_soon_after_the_stop() {
        let ((reader, _far), (_unread, writer)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let control = PipeReader::new(reader, Duration::from_millis(1)).control();
        let mut writer = PipeWriter::new(writer, control.clone());
        let full = writer.write_all(&vec![0; 8 << 20]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
        control.set_timeout(Duration::from_secs(3600));
        control.stop();
        let began = Instant::now();
        assert_eq!(writer.write_all(b"bye").unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < 10 * FAREWELL);
    }

    #[test]
    fn what_is_written_arrives_in_order_however_much_it_is() {
        let ((reader, _far), (mut unread, writer)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let control = PipeReader::new(reader, Duration::from_secs(60)).control();
        let mut writer = PipeWriter::new(writer, control);
        let sent: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        let copy = sent.clone();
        let writing = std::thread::spawn(move || writer.write_all(&copy));
        let mut got = Vec::new();
        unread.read_to_end(&mut got).unwrap();
        writing.join().unwrap().unwrap();
        assert!(got == sent);
    }

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
