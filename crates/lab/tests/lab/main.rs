//! The live emulator against theory, with real sockets: what it promises about round trips, rates,
//! losses and content. Needs root and TUN; says so where it is skipped.
//!
//! A run that came too late to be believed is repeated twice, and then told as not tested: that is
//! the machine's fault, not the emulator's, as long as it happens to few tests.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test, what cannot be arranged is a failure"
)]

mod cleanup;
mod conformance;
mod copies;
mod gathering;
mod scenarios;
mod tuned;

use bankfull_lab::emulator::Recording;
use bankfull_lab::error::LabError;
use bankfull_lab::network::{Network, Plan};
// On the real standard error: of a test that passes, cargo shows nothing else.
use bankfull_lab::say;
use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;

/// Runs a void measurement is repeated. (design: "repeated at most twice")
const REPEATS: usize = 2;

/// Held by a test that measures, and shared by those that keep the machine busy for long.
static MACHINE: RwLock<()> = RwLock::new(());

/// A network, or a word why there is none.
fn start(plan: &Plan) -> Option<Network> {
    match Network::start(plan) {
        Ok(network) => Some(network),
        Err(error) if is_forbidden(&error) => {
            say(&format!("skipped: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether this machine, or the container that this runs in, lets nobody make networks.
fn is_forbidden(error: &LabError) -> bool {
    let text = error.to_string().to_lowercase();
    matches!(error, LabError::NotRoot | LabError::Missing(..))
        || ["not permitted", "permission denied", "read-only file system"]
            .iter()
            .any(|words| text.contains(words))
}

/// Measures on a network until the run may be believed.
#[track_caller]
fn believed<T>(plan: &Plan, measure: impl Fn(&Network) -> T) -> Option<(T, Recording)> {
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..=REPEATS {
        let network = start(plan)?;
        let found = measure(&network);
        let outcome = network.stop().unwrap();
        match outcome.void() {
            None => return Some((found, outcome.recording)),
            Some(why) => say(&format!("void: {why}")),
        }
    }
    too_busy();
    None
}

/// Most tests that may end without a run that may be believed, before the whole fails. (ours: one
/// burst of other work on the machine hits some neighbours; an emulator that is late hits all)
const BUSY_MAX: usize = 3;

/// The tests that have ended so.
static BUSY: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Says that a test has measured nothing, since all its runs were void; panics when there were too
/// many such tests to believe that something was tested.
#[track_caller]
fn too_busy() {
    let place = Location::caller();
    // With one test at a time all have the same thread.
    let thread = thread::current();
    let name = thread.name().filter(|name| *name != "main");
    let name = name.map_or_else(|| format!("{}:{}", place.file(), place.line()), str::to_owned);
    let mut busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    say(&format!("NOT TESTED, this machine is too busy to emulate a network now: {name}"));
    busy.insert(name);
    let all = busy.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    assert!(busy.len() <= BUSY_MAX, "too busy in more than {BUSY_MAX} tests: {all}");
}
