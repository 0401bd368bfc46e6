//! Streams whose writes never wait: a thread writes what is queued.
//!
//! For loops that must not stop while the reader of their output does.

use std::io::{Error, ErrorKind, Result, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Maximum number of queued writes; further ones are lost. (chosen: some seconds of the events of a
/// busy guard)
const MAX_QUEUED_WRITES: usize = 1 << 14;

/// Stream that queues what is written.
pub(super) struct QueuedWriter {
    queue: SyncSender<Vec<u8>>,
    state: Arc<State>,
}

/// Rest of a queue whose writer may be gone.
pub(super) struct Backlog {
    state: Arc<State>,
    is_written: Receiver<()>,
}

#[derive(Default)]
struct State {
    lost: AtomicU64,
    failure: Mutex<Option<Error>>,
}

impl State {
    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuedWriter {
    /// Starts the thread that writes to a stream.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub(super) fn start(mut stream: Box<dyn Write + Send>) -> Result<(Self, Backlog)> {
        let (queue, queued) = sync_channel::<Vec<u8>>(MAX_QUEUED_WRITES);
        let (written, is_written) = sync_channel(1);
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        let work = move || {
            let mut write = |data: Vec<u8>| stream.write_all(&data).and_then(|()| stream.flush());
            let mut queued = queued.into_iter();
            // Before the queue is closed, so that the writer finds it.
            *shared.failure() = queued.find_map(|data| write(data).err());
            drop(queued);
            let _ = written.send(());
        };
        thread::Builder::new().name("output".to_owned()).spawn(work)?;
        Ok((Self { queue, state: Arc::clone(&state) }, Backlog { state, is_written }))
    }
}

impl Write for QueuedWriter {
    fn write(&mut self, data: &[u8]) -> Result<usize> {
        match self.queue.try_send(data.to_vec()) {
            Ok(()) => Ok(data.len()),
            Err(TrySendError::Full(_)) => {
                self.state.lost.fetch_add(1, Ordering::Relaxed);
                Ok(data.len())
            }
            // Only after a failure.
            Err(TrySendError::Disconnected(_)) => {
                Err(self.state.failure().take().unwrap_or_else(|| ErrorKind::BrokenPipe.into()))
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Backlog {
    /// Returns the number of writes that were lost.
    pub(super) fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// Waits until a dropped writer's queue is written, or a timeout.
    ///
    /// Returns the failure that the writer did not report.
    pub(super) fn wait(&self, timeout: Duration) -> Option<Error> {
        let _ = self.is_written.recv_timeout(timeout);
        self.state.failure().take()
    }
}

#[cfg(test)]
mod tests {
    use super::super::handles::testing::Buffer;
    use super::*;

    /// Stream that waits for a permission before each write.
    struct Gated(Receiver<Result<()>>, Buffer);

    impl Write for Gated {
        fn write(&mut self, data: &[u8]) -> Result<usize> {
            self.0.recv().unwrap_or(Ok(()))?;
            self.1.write(data)
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn writes_beyond_the_queue_are_lost_and_counted() {
        let (permission, permitted) = sync_channel(1);
        let text = Buffer::default();
        let (mut writer, backlog) =
            QueuedWriter::start(Box::new(Gated(permitted, text.clone()))).unwrap();
        let writes = MAX_QUEUED_WRITES as u64 + 100;
        for number in 0..writes {
            writer.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        // The thread holds one at most.
        assert!((99..=100).contains(&backlog.lost()), "{}", backlog.lost());
        drop((permission, writer));
        assert!(backlog.wait(Duration::from_secs(60)).is_none());
        assert_eq!(text.lines().len() as u64, writes - backlog.lost());
        assert_eq!(text.lines()[..2], ["0", "1"]);
    }

    #[test]
    fn end_waits_no_longer_than_the_timeout() {
        let (_permission, permitted) = sync_channel(1);
        let (mut writer, backlog) =
            QueuedWriter::start(Box::new(Gated(permitted, Buffer::default()))).unwrap();
        writer.write_all(b"x\n").unwrap();
        drop(writer);
        assert!(backlog.wait(Duration::from_millis(1)).is_none());
    }

    #[test]
    fn failure_is_reported_by_a_later_write_or_at_the_end() {
        for writes_again in [true, false] {
            let (permission, permitted) = sync_channel(1);
            permission.send(Err(ErrorKind::StorageFull.into())).unwrap();
            let (mut writer, backlog) =
                QueuedWriter::start(Box::new(Gated(permitted, Buffer::default()))).unwrap();
            writer.write_all(b"x\n").unwrap();
            backlog.is_written.recv().unwrap();
            let found = match writes_again {
                true => writer.write_all(b"y\n").err(),
                false => backlog.wait(Duration::ZERO),
            };
            assert_eq!(found.map(|error| error.kind()), Some(ErrorKind::StorageFull));
        }
    }
}
