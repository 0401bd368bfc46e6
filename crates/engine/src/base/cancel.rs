//! Cancellation, shared between threads.

use super::error::{Error, ErrorKind};
use super::threads::try_spawn_detached;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Interval at which a wait checks for cancellation. (chosen: not noticed by a user)
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Stops a running transfer or server on request. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    own: Arc<AtomicBool>,
    /// State of the parent, whose cancellation counts as well.
    parent: Option<Arc<AtomicBool>>,
}

impl Cancel {
    /// A handle that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the stop. Most transfers stop at once; it takes up to about two seconds if the peer
    /// must be informed or ssh does not exit. Verified data is kept, and the same call resumes it.
    pub fn cancel(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    /// True if a stop was requested.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let is_made = |request: &Arc<AtomicBool>| request.load(Ordering::Relaxed);
        is_made(&self.own) || self.parent.as_ref().is_some_and(is_made)
    }

    /// A handle that is cancelled on its own or with this one. Only one level: a child's child does
    /// not see this handle.
    pub(crate) fn child(&self) -> Self {
        Self { own: Arc::default(), parent: Some(Arc::clone(&self.own)) }
    }

    /// Runs blocking work (such as connecting) in a thread and stops waiting on cancellation. The
    /// abandoned work ends by its own timeouts, and its result is dropped.
    pub(crate) fn run_cancellable<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        run_abandonable(|| self.is_cancelled(), work)
    }
}

/// Runs blocking work in a thread and stops waiting once `is_abandoned`. The abandoned work ends by
/// its own timeouts, and its result is dropped.
pub(crate) fn run_abandonable<T: Send + 'static>(
    is_abandoned: impl Fn() -> bool,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (sent, done) = mpsc::channel();
    try_spawn_detached(move || drop(sent.send(work())))?;
    loop {
        match done.recv_timeout(POLL_INTERVAL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if !is_abandoned() => {}
            Err(RecvTimeoutError::Timeout) => return Err(Error::interrupted()),
            Err(RecvTimeoutError::Disconnected) => {
                let text = "a thread of this program panicked: please report this bug";
                return Err(Error::new(ErrorKind::Local, text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellable_work_panic_is_a_local_error() {
        let failed =
            Cancel::new().run_cancellable(|| -> Result<(), Error> { panic!("on purpose") });
        let error = failed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Local);
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    #[test]
    fn cancel_reaches_children_but_not_parents() {
        let cancel = Cancel::new();
        let [one, other] = [cancel.child(), cancel.child()];
        one.cancel();
        assert!(one.is_cancelled() && !other.is_cancelled() && !cancel.is_cancelled());
        cancel.cancel();
        assert!(other.clone().is_cancelled());
    }

    #[test]
    fn cancellable_work_is_awaited_until_cancel() {
        let cancel = Cancel::new();
        assert_eq!(cancel.run_cancellable(|| Ok(7)).unwrap(), 7);
        let failed = cancel.run_cancellable(|| Err::<(), _>(Error::new(ErrorKind::Source, "gone")));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Source);
        let (_never, forever) = mpsc::channel::<()>();
        cancel.cancel();
        let left = cancel.run_cancellable(move || forever.recv().map_err(|_| Error::interrupted()));
        assert_eq!(left.unwrap_err().kind(), ErrorKind::Interrupted);
    }
}
