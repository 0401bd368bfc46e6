//! Adapters for external programs.

pub(super) mod aria2;
pub(super) mod curl;
mod nginx;
pub(super) mod programs;
mod ssh;
pub(super) mod udt;
