//! Base: errors, events, cancellation and threads, which every folder above uses.

pub(crate) mod barrier;
pub(crate) mod cancel;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod fs_names;
pub(crate) mod location;
pub(crate) mod part_names;
pub(crate) mod sync;
pub(crate) mod threads;
