//! Public interface: transfers, gathers, probes, the daemon and the agent.

pub(crate) mod agent;
pub(crate) mod delete;
pub(crate) mod earlier;
pub(crate) mod filters;
pub(crate) mod gather;
pub(crate) mod host;
mod input;
pub(crate) mod limits;
pub(crate) mod list;
mod output;
pub(crate) mod probe;
mod reconnect;
pub(crate) mod selection;
pub(crate) mod server;
pub(crate) mod transfer;
