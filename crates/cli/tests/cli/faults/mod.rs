//! Bad input and bad luck: what cannot work ends with one line that names the thing and what to
//! do, with the exit code for it, without a panic, and without a trace outside the destination.
//!
//! [`operands`]: places that are missing or of the wrong kind. [`files`]: single files that fail
//! while the others are copied. [`trust`]: tokens, fingerprints, limits. [`strangers`]: far sides
//! that are no bankfull. [`clients`] and [`servers`]: peers that break the protocol. [`seals`]:
//! when a file is put in place. [`logins`]: ssh that fails. [`interrupts`]: Ctrl-C while there is
//! no session yet. [`unsettled`]: how much a daemon announces at a time. [`threads`]: none to be
//! had. Interruptions of a running one are the subject of `resume`.

mod asks;
mod clients;
mod files;
mod interrupts;
mod logins;
mod operands;
mod seals;
mod servers;
mod strangers;
mod threads;
mod trust;
mod unsettled;

use crate::harness::{Daemon, Scratch, assert_same, run, write_file};

/// Whether a daemon still serves: a new client gets a file through.
#[track_caller]
fn check_alive(daemon: &mut Daemon) {
    assert!(!daemon.is_over(), "the daemon died:\n{}", daemon.err());
    let (from, to) = (Scratch::new(), Scratch::new());
    write_file(&from.join("proof of life"), b"alive");
    let mut push = daemon.cp();
    push.arg(from.join("proof of life")).arg(daemon.url("proof of life"));
    run(&mut push).expect(0);
    let mut pull = daemon.cp();
    pull.arg(daemon.url("proof of life")).arg(to.join("back"));
    run(&mut pull).expect(0);
    assert_same(&from.join("proof of life"), &to.join("back"));
    assert!(!daemon.err().contains("panicked"), "{}", daemon.err());
}
