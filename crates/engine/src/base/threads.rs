//! Thread creation that can fail, since users and containers have limits. New threads log in the
//! span of their creator.

use super::error::Error;
use std::thread::{self, Scope, ScopedJoinHandle};
use tracing::Span;

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
    thread::Builder::new()
        .spawn_scoped(scope, in_this_span(work))
        .map_err(|e| Error::thread_start(&e))
}

/// Returns the work of a new thread, which logs in the span of the caller.
pub(crate) fn in_this_span<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let span = Span::current();
    move || span.in_scope(work)
}
