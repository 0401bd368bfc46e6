//! Base: errors, events, cancellation and threads, which every folder above uses.

pub(crate) mod accounts;
pub(crate) mod backoff;
pub(crate) mod barrier;
pub(crate) mod cancel;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod event_log;
pub(crate) mod failure_fold;
pub(crate) mod fs_names;
pub(crate) mod hex;
pub(crate) mod location;
pub(crate) mod log_limiter;
pub(crate) mod owner_access;
pub(crate) mod part_names;
pub(crate) mod strangers;
pub(crate) mod sync;
pub(crate) mod threads;
