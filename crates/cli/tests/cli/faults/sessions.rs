//! Inputs that fuzzing found for the two sides of a session: none panics, hangs, or writes beside
//! its destination.

use crate::harness::Scratch;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[path = "../../../../../fuzz/fuzz_targets/session/mod.rs"]
mod session;

/// Sessions at a time: each mostly waits.
const THREADS: usize = 12;

/// Plays each line of hexadecimal digits to a side.
fn replay(kept: &str, side: fn(&Path, &[u8])) {
    let inputs: Vec<Vec<u8>> = kept.lines().map(bytes).collect();
    assert!(inputs.len() > 20, "{} inputs", inputs.len());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let scratch = Scratch::new();
                while let Some(input) = inputs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    side(scratch.path(), input);
                }
            });
        }
    });
}

fn bytes(line: &str) -> Vec<u8> {
    assert!(line.len().is_multiple_of(2), "{line}");
    let byte = |at| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    (0..line.len()).step_by(2).map(byte).collect()
}

#[test]
fn hostile_senders_found_by_fuzzing_end_their_session_only() {
    replay(include_str!("../../../../../fuzz/kept/receiver_session.hex"), session::receive);
}

#[test]
fn hostile_receivers_found_by_fuzzing_end_their_session_only() {
    replay(include_str!("../../../../../fuzz/kept/sender_session.hex"), session::send);
}
