//! Transport: sockets, TLS, QUIC, the control channel and the data streams; independent of the
//! data transferred.

pub(crate) mod ahead;
pub(crate) mod asked;
pub(crate) mod control;
pub(crate) mod identity;
pub(crate) mod known_hosts;
pub(crate) mod pipe;
pub(crate) mod probe;
pub(crate) mod quic;
pub(crate) mod socket;
pub(crate) mod staging;
pub(crate) mod stream;
pub(crate) mod tls;
