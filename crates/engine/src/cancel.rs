//! A request to stop, shared between threads.

use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often a wait looks whether the request was made.
const LOOK: Duration = Duration::from_millis(50);

/// Asks a running transfer or server to stop. Clones share the same request.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A request not made yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the request. A transfer stops within about a tenth of a second, keeps what is
    /// verified, and can be continued by the same call.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the request was made.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Does something that may wait long for others, such as connecting, and gives up waiting as
    /// soon as the request is made. The work then ends by its own time-outs, seen by nobody.
    pub(crate) fn attend<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sent, done) = mpsc::channel();
        std::thread::spawn(move || drop(sent.send(work())));
        loop {
            match done.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) if !self.is_cancelled() => {}
                Err(_) => return Err(Error::interrupted()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

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
