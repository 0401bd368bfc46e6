//! Transfer of files in one session: the sender, the receivers, and the throughput test.

mod accounts;
mod dir_filters;
mod ignores;
pub(crate) mod lister;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod throughput_test;
