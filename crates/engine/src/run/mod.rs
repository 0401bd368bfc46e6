//! Run of one session: its threads, and the handles that it shares with others.

pub(crate) mod context;
pub(crate) mod driver;
mod rate_timer;
pub(crate) mod streams;
