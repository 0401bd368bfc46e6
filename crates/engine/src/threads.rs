//! Threads that may not be had, by the limits of a user or of a container.

use crate::error::Error;
use std::thread::{self, Scope, ScopedJoinHandle};

/// Starts a thread, or says why there is none.
pub(crate) fn try_spawn<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<(), Error> {
    try_start(scope, work).map(drop)
}

/// The same, for whoever waits for what it returns.
pub(crate) fn try_start<'scope, 'env: 'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Error> {
    thread::Builder::new().spawn_scoped(scope, work).map_err(|e| Error::no_thread(&e))
}
