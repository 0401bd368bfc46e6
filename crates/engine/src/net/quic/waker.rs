//! How threads tell the driver that there is something to do, at the cost of a system call only
//! where it sleeps.

use crate::net::control::lock;
use quinn_proto::ConnectionHandle;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells the driver what to look at.
pub(super) struct Waker {
    told: Mutex<Vec<ConnectionHandle>>,
    is_stopped: AtomicBool,
    is_asleep: AtomicBool,
    pipe: PipeWriter,
}

/// The driver's side of it.
pub(super) struct Alarm(pub(super) PipeReader);

impl Waker {
    pub(super) fn new() -> io::Result<(Self, Alarm)> {
        let (reader, pipe) = io::pipe()?;
        let waker = Self {
            told: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            pipe,
        };
        Ok((waker, Alarm(reader)))
    }

    /// There is something to do for a connection.
    pub(super) fn tell(&self, handle: ConnectionHandle) {
        lock(&self.told).push(handle);
        self.wake();
    }

    /// The driver is to look again.
    pub(super) fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            let _ = (&self.pipe).write(&[0]);
        }
    }

    /// The driver is to end.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// What was told since the last call.
    pub(super) fn take(&self) -> Vec<ConnectionHandle> {
        std::mem::take(&mut lock(&self.told))
    }

    /// Whether the driver may sleep: from now on it is woken.
    pub(super) fn may_sleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        let may = lock(&self.told).is_empty() && !self.is_stopped();
        if !may {
            self.is_asleep.store(false, Ordering::SeqCst);
        }
        may
    }

    /// The driver has slept.
    pub(super) fn on_awake(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }
}

impl Alarm {
    /// Takes what has woken it.
    pub(super) fn clear(&mut self) {
        let _ = self.0.read(&mut [0; 16]);
    }
}
