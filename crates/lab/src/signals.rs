//! Requests to end, counted: whatever was made is removed first.

use crate::error::{LabError, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Counts signals that ask to end.
#[derive(Debug)]
pub struct Signals {
    all: Arc<AtomicUsize>,
    terms: Arc<AtomicUsize>,
}

impl Signals {
    /// Counts nothing by itself.
    #[must_use]
    pub fn none() -> Self {
        Self { all: Arc::default(), terms: Arc::default() }
    }

    /// As if a signal had come from a terminal.
    pub fn ask(&self) {
        self.all.fetch_add(1, Ordering::SeqCst);
    }

    /// From here on, signals end nothing by themselves.
    ///
    /// # Errors
    /// When the system lets nobody watch signals.
    pub fn watch() -> Result<Self> {
        let watched = Self::none();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let (all, terms) = (Arc::clone(&watched.all), Arc::clone(&watched.terms));
            let mut signals = signal_hook::iterator::Signals::new([signal])
                .map_err(|e| LabError::io("cannot watch signals", e))?;
            thread::spawn(move || {
                for signal in signals.forever() {
                    all.fetch_add(1, Ordering::SeqCst);
                    if signal != SIGINT {
                        terms.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        Ok(watched)
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.load(Ordering::SeqCst)
    }

    /// Whether all of them came from a terminal, which sends them to the programs on the hosts,
    /// too.
    #[must_use]
    pub fn is_from_terminal(&self) -> bool {
        self.terms.load(Ordering::SeqCst) == 0
    }

    /// The exit code of who was asked to end, by the shell's convention: 128 and the signal's
    /// number.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        128 + if self.is_from_terminal() { SIGINT } else { SIGTERM } as u8
    }

    /// Whether programs that run must be ended by force: the first Ctrl-C they see themselves, and
    /// end in their own way.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.count() > 1 || (self.count() > 0 && !self.is_from_terminal())
    }
}
