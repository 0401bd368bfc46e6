//! Thread creation that can fail, since users and containers have limits.

use super::error::Error;
use std::thread::{self, Scope, ScopedJoinHandle};

/// Starts a thread.
pub(crate) fn try_spawn<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<(), Error> {
    try_spawn_joinable(scope, work).map(drop)
}

/// Starts a thread and returns its handle.
pub(crate) fn try_spawn_joinable<'scope, 'env: 'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Error> {
    thread::Builder::new().spawn_scoped(scope, work).map_err(|e| Error::thread_start(&e))
}
