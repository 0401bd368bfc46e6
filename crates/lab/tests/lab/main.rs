//! The live emulator against theory, with real sockets: what it promises about round trips, rates,
//! losses and content. Needs root and TUN; says so where it is skipped.
//!
//! A run that came too late to be believed is repeated twice, and then skipped with a word: that is
//! the machine's fault, not the emulator's.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test, what cannot be arranged is a failure"
)]

mod cleanup;
mod conformance;
mod copies;
mod scenarios;

use bankfull_lab::emulator::Recording;
use bankfull_lab::error::LabError;
use bankfull_lab::network::{Network, Plan};
// On the real standard error: of a test that passes, cargo shows nothing else.
use bankfull_lab::say;
use std::sync::{PoisonError, RwLock};

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
    say("skipped: this machine is too busy to emulate a network now");
    None
}
