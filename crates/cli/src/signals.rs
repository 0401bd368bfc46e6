//! SIGINT and SIGTERM: each signal runs the next shutdown step; the signal after the last step ends
//! the program at once.

use crate::exit::Exit;
use bankfull::{Error, ErrorKind};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// Action of one signal. It runs on a separate thread, so it may take locks.
pub(crate) type Step = Box<dyn FnOnce() + Send>;

/// Installs handlers: each signal runs the next of `steps`.
///
/// # Errors
/// [`ErrorKind::Local`] if signals cannot be handled, or no thread can be started.
pub(crate) fn on_signals(steps: Vec<Step>) -> Result<(), Error> {
    catch()?.run(steps)
}

/// Signals that are caught, and wait to be handled.
pub(crate) struct Caught(Signals);

/// Catches SIGINT and SIGTERM from now on.
pub(crate) fn catch() -> Result<Caught, Error> {
    let signals = Signals::new([SIGINT, SIGTERM]).map_err(|e| {
        let error = Error::local("cannot handle signals", &e);
        Error::new(ErrorKind::Local, format!("{error}: check the resource limits"))
    })?;
    Ok(Caught(signals))
}

impl Caught {
    /// Starts the thread that runs one step per signal.
    pub(crate) fn run(self, steps: Vec<Step>) -> Result<(), Error> {
        let mut signals = self.0;
        let handle = move || {
            let mut steps = steps.into_iter();
            for _signal in signals.forever() {
                match steps.next() {
                    Some(step) => step(),
                    // No destructors and no locks: a blocked output must not delay the exit.
                    None => low_level::exit(Exit::Interrupted.code().into()),
                }
            }
        };
        let started = std::thread::Builder::new().spawn(handle);
        started.map(drop).map_err(|e| Error::thread_start(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn signal_runs_the_next_step() {
        let (sender, steps_run) = channel();
        let steps = [1, 2].map(|n| -> Step {
            let sender = sender.clone();
            Box::new(move || sender.send(n).unwrap())
        });
        on_signals(steps.into()).unwrap();
        for (signal, step) in [(SIGTERM, 1), (SIGINT, 2)] {
            low_level::raise(signal).unwrap();
            assert_eq!(steps_run.recv_timeout(Duration::from_secs(10)), Ok(step));
        }
    }
}
