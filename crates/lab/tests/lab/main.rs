//! The live emulator against theory, with real sockets: RTT, rate, loss and content. Needs root and
//! TUN; skipped with a message otherwise.
//!
//! A void run is repeated twice, and then reported as not tested: the fault of the machine rather
//! than the emulator, as long as few tests are affected.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test, what cannot be arranged is a failure"
)]

mod cleanup;
mod conformance;
mod copies;
mod gathering;
mod guard;
mod guard_effects;
mod guard_requirements;
mod guest_packets;
mod guests;
mod kinds;
mod rate_changes;
mod scenarios;
mod tuned;

use bankfull_lab::base::error::LabError;
use bankfull_lab::model::plan::Plan;
use bankfull_lab::topology::emulator::Recording;
use bankfull_lab::topology::network::Network;
// Writes to the real standard error, since cargo hides the captured output of passing tests.
use bankfull_lab::base::notify;
use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Repeats of a void measurement. (as in scenarios)
const REPEATS: usize = 2;

/// Tests with a long load that run at the same time. (chosen: two processors carry two loads of
/// 100 Mbit/s without delay)
const LOADS_MAX: usize = 2;

/// The machine, shared among the tests: they may have more threads than it has processors.
struct Machine {
    /// Number of shares in use.
    used: Mutex<usize>,
    released: Condvar,
}

static MACHINE: Machine = Machine { used: Mutex::new(0), released: Condvar::new() };

/// Shares of the machine, released when dropped.
struct Shares(usize);

impl Machine {
    /// Waits for the whole machine, to measure on it.
    fn alone(&self) -> Shares {
        self.take(LOADS_MAX)
    }

    /// Waits for a share of the machine, for a long load.
    fn share(&self) -> Shares {
        self.take(1)
    }

    fn take(&self, count: usize) -> Shares {
        let used = self.used.lock().unwrap();
        let is_full = |used: &mut usize| *used + count > LOADS_MAX;
        *self.released.wait_while(used, is_full).unwrap() += count;
        Shares(count)
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        *MACHINE.used.lock().unwrap() -= self.0;
        MACHINE.released.notify_all();
    }
}

/// Starts a network; `None`, with a message, if not allowed.
fn start(plan: &Plan) -> Option<Network> {
    match Network::start(plan) {
        Ok(network) => Some(network),
        Err(error) if is_forbidden(&error) => {
            notify(&format!("skipped: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// True if this machine or container does not allow networks.
fn is_forbidden(error: &LabError) -> bool {
    let text = error.to_string().to_lowercase();
    matches!(error, LabError::NotRoot | LabError::Missing(..))
        || ["not permitted", "permission denied", "read-only file system"]
            .iter()
            .any(|words| text.contains(words))
}

/// Measures until a run is valid.
#[track_caller]
fn measure_valid<T>(plan: &Plan, measure: impl Fn(&Network) -> T) -> Option<(T, Recording)> {
    let _alone = MACHINE.alone();
    for _ in 0..=REPEATS {
        let network = start(plan)?;
        let found = measure(&network);
        let outcome = network.stop().unwrap();
        match outcome.void() {
            None => return Some((found, outcome.recording)),
            Some(why) => notify(&format!("void: {why}")),
        }
    }
    too_busy();
    None
}

/// Largest number of tests without a valid run before the whole suite fails. (chosen: a burst of
/// other load hits a few consecutive tests; a late emulator hits all)
const BUSY_MAX: usize = 3;

/// Tests without a valid run.
static BUSY: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Reports that all runs of a test were void; panics after too many such tests.
#[track_caller]
fn too_busy() {
    let place = Location::caller();
    // With one test thread, all tests share its name.
    let thread = thread::current();
    let name = thread.name().filter(|name| *name != "main");
    let name = name.map_or_else(|| format!("{}:{}", place.file(), place.line()), str::to_owned);
    let mut busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    notify(&format!("NOT TESTED, this machine is too busy to emulate a network: {name}"));
    busy.insert(name);
    let all = busy.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    assert!(busy.len() <= BUSY_MAX, "too busy in more than {BUSY_MAX} tests: {all}");
}
