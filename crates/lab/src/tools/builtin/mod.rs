//! Built-in traffic generators and services.

pub(super) mod datagrams;
pub(super) mod generators;
pub(super) mod incast;
