//! Counts termination signals, so that hosts and files are removed before exit.

use crate::base::error::{LabError, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Counter of SIGINT, SIGTERM and SIGHUP.
#[derive(Debug)]
pub struct Signals {
    all: Arc<AtomicUsize>,
    terms: Arc<AtomicUsize>,
}

impl Signals {
    /// Counter that watches no signal.
    #[must_use]
    pub fn unwatched() -> Self {
        Self { all: Arc::default(), terms: Arc::default() }
    }

    /// Counts a signal as if it came from the terminal.
    pub fn interrupt(&self) {
        self.all.fetch_add(1, Ordering::SeqCst);
    }

    /// Installs handlers that count the signals instead of ending the process.
    ///
    /// # Errors
    /// [`LabError::Io`] if the handlers cannot be installed.
    pub fn watch() -> Result<Self> {
        let watched = Self::unwatched();
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

    /// Number of signals received.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.load(Ordering::SeqCst)
    }

    /// True if all signals came from the terminal. The terminal also sends them to the programs on
    /// the hosts.
    #[must_use]
    pub fn is_from_terminal(&self) -> bool {
        self.terms.load(Ordering::SeqCst) == 0
    }

    /// Exit code by the shell's convention: 128 plus the signal's number.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        128 + if self.is_from_terminal() { SIGINT } else { SIGTERM } as u8
    }

    /// True if running programs must be killed.
    ///
    /// They receive the first Ctrl-C themselves and may end on their own.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.count() > 1 || (self.count() > 0 && !self.is_from_terminal())
    }
}
