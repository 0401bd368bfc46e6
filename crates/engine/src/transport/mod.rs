//! Transport: sockets, TLS, QUIC, the control channel and the data streams; independent of the
//! data transferred.

pub(crate) mod buffer_pool;
pub(crate) mod channel_binding;
pub(crate) mod control;
pub(crate) mod credit;
pub(crate) mod data_stream;
pub(crate) mod entry_quota;
pub(crate) mod frame_reader;
mod handshake_gate;
pub(crate) mod identity;
pub(crate) mod known_hosts;
pub(crate) mod pipe;
pub(crate) mod probe;
pub(crate) mod quic;
pub(crate) mod receive_hook;
pub(crate) mod socket;
pub(crate) mod start_stagger;
pub(crate) mod tls;
pub(crate) mod tunnel;
pub mod udp_receive_buffer;
