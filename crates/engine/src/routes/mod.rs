//! Routes to the other side: client, daemon sessions, local copies, admission.

pub(crate) mod access;
pub(crate) mod admission;
pub(crate) mod client;
pub(crate) mod local;
mod request;
pub(crate) mod session_manager;
mod session_table;
mod share_limits;
pub(crate) mod slots;
mod stream_numbers;
