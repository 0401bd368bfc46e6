//! Invalid input and failures: a failing command ends with one line that names the object and the
//! way out, with the right exit code, without a panic, and without traces outside the destination.
//!
//! [`operands`]: missing or unsuitable operands. [`files`]: single files that fail while others
//! are copied. [`trust`]: tokens, fingerprints, limits. [`foreign_peers`]: peers that do not speak
//! bankfull. [`clients`] and [`servers`]: peers that violate the protocol. [`crowds`]: many
//! clients and strangers. [`denied`]: modes that deny access. [`digests`]: file digests.
//! [`ended`]: work after an end. [`logins`]: ssh failures. [`interrupts`]: Ctrl-C before a
//! session. [`outstanding`]: limits of outstanding files. [`limits`]: little memory. [`threads`]:
//! thread shortage. [`rates`]: rate limits of peers. [`sessions`]: inputs that fuzzing found.
//! [`injection`]: system calls that fail, and kills at them. Interruptions of a running copy are
//! in `resume`.

mod clients;
mod credit;
mod crowds;
mod denied;
mod digests;
mod ended;
mod files;
mod foreign_peers;
mod injection;
mod interrupts;
mod limits;
mod logins;
mod metadata;
mod operands;
mod outstanding;
mod rates;
mod servers;
mod sessions;
mod threads;
mod trust;

use crate::harness::{Daemon, Scratch, assert_same, run, write_file};

/// Checks that a daemon still serves a new client.
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
