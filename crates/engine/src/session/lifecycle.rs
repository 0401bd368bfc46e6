//! First error and stop signal of a session.

use crate::base::error::Error;
use crate::base::sync::lock;
use bankfull_sys::set_wait_end;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Callback that ends a connection or wakes a thread.
pub(crate) type Callback = Box<dyn Fn() + Send>;

/// First error and stop signal of a session.
#[derive(Default)]
pub(crate) struct Lifecycle {
    error: Mutex<Option<Error>>,
    stopped: Arc<AtomicBool>,
    /// Called when the session stops.
    stop_callbacks: Mutex<Vec<Callback>>,
}

impl Lifecycle {
    /// Records the error that ends the session; the first one is kept.
    pub(crate) fn record_error(&self, error: Error) {
        lock(&self.error).get_or_insert(error);
    }

    /// Takes the error that ended the session.
    pub(crate) fn take_error(&self) -> Option<Error> {
        lock(&self.error).take()
    }

    /// Marks the session as stopped.
    pub(crate) fn set_stopped(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Ends the waits of this thread and its new ones once the session stops.
    pub(crate) fn limit_waits(&self) -> WaitLimit {
        WaitLimit(set_wait_end(Some(Arc::clone(&self.stopped))))
    }

    /// Calls the registered callbacks, after [`set_stopped`](Self::set_stopped).
    pub(crate) fn run_stop_callbacks(&self) {
        for close in &*lock(&self.stop_callbacks) {
            close();
        }
    }

    /// Registers `close` to be called when the session stops, immediately if it has stopped.
    pub(crate) fn on_stop(&self, close: impl Fn() + Send + 'static) {
        let mut stop_callbacks = lock(&self.stop_callbacks);
        if self.is_stopped() {
            close();
        }
        stop_callbacks.push(Box::new(close));
    }
}

/// Limit of this thread's waits for resources; restores the earlier one on drop.
pub(crate) struct WaitLimit(Option<Arc<AtomicBool>>);

impl Drop for WaitLimit {
    fn drop(&mut self) {
        set_wait_end(self.0.take());
    }
}
