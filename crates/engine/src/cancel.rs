//! A request to stop, shared between threads.

use crate::error::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often a wait looks whether the request was made.
const LOOK: Duration = Duration::from_millis(50);

/// Asks a running transfer or server to stop. Clones share the same request.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    own: Arc<AtomicBool>,
    /// Counts as well.
    above: Option<Arc<AtomicBool>>,
}

impl Cancel {
    /// A request not made yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the request. A transfer stops mostly at once, and within about two seconds where the
    /// far side must be told or an ssh does not end by itself. It keeps what is verified, and can
    /// be continued by the same call.
    pub fn cancel(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    /// Whether the request was made.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let is_made = |request: &Arc<AtomicBool>| request.load(Ordering::Relaxed);
        is_made(&self.own) || self.above.as_ref().is_some_and(is_made)
    }

    /// A request of its own, which counts as made when this one is. One that stands beneath another
    /// has none beneath itself.
    pub(crate) fn beneath(&self) -> Self {
        Self { own: Arc::default(), above: Some(Arc::clone(&self.own)) }
    }

    /// Does something that may wait long for others, such as connecting, and gives up waiting as
    /// soon as the request is made. The work then ends by its own time-outs, seen by nobody.
    pub(crate) fn attend<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        attend(|| self.is_cancelled(), work)
    }
}

/// Does something that may wait long for others, and gives up waiting as soon as nobody needs it
/// any more. The work then ends by its own time-outs, seen by nobody.
pub(crate) fn attend<T: Send + 'static>(
    is_needless: impl Fn() -> bool,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (sent, done) = mpsc::channel();
    let started = std::thread::Builder::new().spawn(move || drop(sent.send(work())));
    started.map_err(|e| Error::no_thread(&e))?;
    loop {
        match done.recv_timeout(LOOK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if !is_needless() => {}
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
    fn work_that_panics_is_no_interruption() {
        let failed = Cancel::new().attend(|| -> Result<(), Error> { panic!("on purpose") });
        let error = failed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Local);
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    #[test]
    fn a_request_reaches_those_beneath_it_and_none_above() {
        let cancel = Cancel::new();
        let [one, other] = [cancel.beneath(), cancel.beneath()];
        one.cancel();
        assert!(one.is_cancelled() && !other.is_cancelled() && !cancel.is_cancelled());
        cancel.cancel();
        assert!(other.clone().is_cancelled());
    }

    #[test]
    fn work_is_waited_for_until_the_request_is_made() {
        let cancel = Cancel::new();
        assert_eq!(cancel.attend(|| Ok(7)).unwrap(), 7);
        let failed = cancel.attend(|| Err::<(), _>(Error::new(ErrorKind::Source, "gone")));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Source);
        let (_never, forever) = mpsc::channel::<()>();
        cancel.cancel();
        let left = cancel.attend(move || forever.recv().map_err(|_| Error::interrupted()));
        assert_eq!(left.unwrap_err().kind(), ErrorKind::Interrupted);
    }
}
