//! A hostile sender against the receiving side of a real session, which writes files.

#![no_main]

mod session;

use libfuzzer_sys::fuzz_target;
use signal_hook::consts::SIGPIPE;
use signal_hook::flag;
use std::sync::Arc;

fuzz_target!(
    // The fuzzer's main function leaves it, unlike that of Rust: a write would end the process.
    init: drop(flag::register(SIGPIPE, Arc::default())),
    |input: &[u8]| session::run_here(session::receive, input)
);
