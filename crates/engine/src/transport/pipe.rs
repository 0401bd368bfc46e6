//! Pipe ends with a timeout, like sockets. Another thread can stop them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Interval at which a blocked call checks whether it was stopped.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time for final messages after the stop. (chosen: enough for those of this side and a live peer)
const FINAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Reading end of a pipe, with a timeout.
pub(crate) struct PipeReader {
    pipe: File,
    control: PipeControl,
}

/// Writing end of a pipe, with a timeout.
pub(crate) struct PipeWriter {
    pipe: File,
    control: PipeControl,
}

/// Controls a [`PipeReader`] and its [`PipeWriter`] from another thread. Clones share the state.
#[derive(Clone)]
pub(crate) struct PipeControl(Arc<SharedState>);

struct SharedState {
    stopped_at: OnceLock<Instant>,
    timeout_ms: AtomicU64,
}

impl PipeControl {
    /// Ends the reader and limits the waits of the writer. The reader sees the end of the pipe.
    ///
    /// Bytes that are in the pipe come first, unless the peer adds ever more.
    pub(crate) fn stop(&self) {
        self.0.stopped_at.get_or_init(Instant::now);
    }

    /// Sets the timeout of a read or a write.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.0.timeout_ms.store(ms, Ordering::SeqCst);
    }

    /// Returns the time since the stop, if there was one.
    fn stopped_for(&self) -> Option<Duration> {
        self.0.stopped_at.get().map(Instant::elapsed)
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.0.timeout_ms.load(Ordering::SeqCst))
    }
}

impl PipeReader {
    pub(crate) fn new(pipe: impl Into<OwnedFd>, timeout: Duration) -> Self {
        let state = SharedState { stopped_at: OnceLock::new(), timeout_ms: AtomicU64::new(0) };
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
        let started = Instant::now();
        loop {
            let stopped_for = self.control.stopped_for();
            if stopped_for.is_some_and(|time| time >= FINAL_TIMEOUT) {
                return Ok(0);
            }
            let wait = if stopped_for.is_some() { Duration::ZERO } else { STOP_POLL_INTERVAL };
            if bankfull_sys::wait_readable(&self.pipe, wait)? {
                return self.pipe.read(out);
            }
            if stopped_for.is_some() {
                return Ok(0);
            }
            if started.elapsed() >= self.control.timeout() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

impl PipeWriter {
    /// Returns the writing end that belongs to the same connection as `control`.
    pub(crate) fn new(pipe: impl Into<OwnedFd>, control: PipeControl) -> Self {
        Self { pipe: File::from(pipe.into()), control }
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let started = Instant::now();
        while !bankfull_sys::wait_writable(&self.pipe, STOP_POLL_INTERVAL)? {
            let is_stopped = self.control.stopped_for().is_some();
            let limit = if is_stopped { FINAL_TIMEOUT } else { self.control.timeout() };
            if started.elapsed() >= limit {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        // A longer write might block in the kernel, where it cannot be stopped.
        self.pipe.write(&bytes[..bytes.len().min(bankfull_sys::PIPE_BUF)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_times_out_and_soon_after_stop() {
        let ((reader, _peer), (_unread, writer)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let control = PipeReader::new(reader, Duration::from_millis(1)).control();
        let mut writer = PipeWriter::new(writer, control.clone());
        let full = writer.write_all(&vec![0; 8 << 20]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
        control.set_timeout(Duration::from_secs(3600));
        control.stop();
        let started = Instant::now();
        assert_eq!(writer.write_all(b"bye").unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() < 10 * FINAL_TIMEOUT);
    }

    #[test]
    fn large_write_arrives_in_order() {
        let ((reader, _peer), (mut unread, writer)) = (io::pipe().unwrap(), io::pipe().unwrap());
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
    fn read_times_out_and_ends_after_stop() {
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

    #[test]
    fn read_ends_after_stop_although_peer_keeps_writing() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut reader = PipeReader::new(reader, Duration::from_secs(3600));
        let control = reader.control();
        let writing = std::thread::spawn(move || {
            while writer.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        control.stop();
        let mut reads = 0;
        while reader.read(&mut [0]).unwrap() > 0 {
            reads += 1;
            assert!(reads < 5000, "does not end");
        }
        drop(reader);
        writing.join().unwrap();
    }
}
