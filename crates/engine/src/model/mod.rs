//! Plain data of a transfer: options, access to a daemon, client keys, overrides, rate limits, path
//! cache, merge conflicts.

pub(crate) mod access;
pub(crate) mod client_key;
pub(crate) mod io_method;
pub(crate) mod merge_conflicts;
pub(crate) mod metadata;
pub(crate) mod options;
pub(crate) mod overrides;
pub(crate) mod path_cache;
pub(crate) mod rate_schedule;
pub(crate) mod shared_limit;
pub(crate) mod throttle;
pub(crate) mod transfer_options;
