//! Statistics: counters of files, of stage times and of the transport.

pub(crate) mod changes;
pub(crate) mod counters;
mod limit_use;
pub(crate) mod lost_sessions;
pub(crate) mod quic_stats;
pub(crate) mod server_status;
pub(crate) mod session_stats;
pub(crate) mod thread_meter;
pub(crate) mod transport_stats;
