//! Wakes the driver thread; costs a system call only while the driver sleeps.

use crate::base::sync::lock;
use quinn_proto::ConnectionHandle;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes the driver and queues the connections that need service.
pub(crate) struct Waker {
    notified: Mutex<Vec<ConnectionHandle>>,
    is_stopped: AtomicBool,
    is_asleep: AtomicBool,
    pipe: PipeWriter,
}

/// The driver's end of the wake-up pipe.
pub(crate) struct WakeReader(pub(crate) PipeReader);

impl Waker {
    pub(crate) fn new() -> io::Result<(Self, WakeReader)> {
        let (reader, pipe) = io::pipe()?;
        let waker = Self {
            notified: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            pipe,
        };
        Ok((waker, WakeReader(reader)))
    }

    /// Queues a connection for service and wakes the driver.
    pub(crate) fn notify(&self, handle: ConnectionHandle) {
        lock(&self.notified).push(handle);
        self.wake();
    }

    /// Wakes the driver if it sleeps.
    pub(crate) fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            let _ = (&self.pipe).write(&[0]);
        }
    }

    /// Makes the driver end.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Returns the connections queued since the last call.
    pub(crate) fn take_notified(&self) -> Vec<ConnectionHandle> {
        std::mem::take(&mut lock(&self.notified))
    }

    /// Marks the driver as asleep; false if there is work, and it must not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        let may_sleep = lock(&self.notified).is_empty() && !self.is_stopped();
        if !may_sleep {
            self.is_asleep.store(false, Ordering::SeqCst);
        }
        may_sleep
    }

    /// Marks the driver as awake.
    pub(crate) fn on_awake(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }
}

impl WakeReader {
    /// Reads the wake-up bytes, so that the pipe is not readable any more.
    pub(crate) fn clear(&mut self) {
        let _ = self.0.read(&mut [0; 16]);
    }
}
