//! Statistics: counters of files, of stage times and of the transport.

pub(crate) mod counters;
pub(crate) mod quic_stats;
