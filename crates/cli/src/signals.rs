//! SIGINT and SIGTERM: each signal takes the next step towards the end, the one after the last step
//! ends the program at once.

use crate::exit::Exit;
use bankfull::{Error, ErrorKind};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// What a signal does; called on a thread of its own, so it may take locks.
pub(crate) type Step = Box<dyn FnOnce() + Send>;

/// From now on, each signal takes the next of `steps`.
///
/// # Errors
/// [`ErrorKind::Local`] when the system does not let us handle signals, or there is no thread.
pub(crate) fn on_signals(steps: Vec<Step>) -> Result<(), Error> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|e| {
        let error = Error::local("signals cannot be handled", &e);
        Error::new(ErrorKind::Local, format!("{error}; check the limits"))
    })?;
    let handle = move || {
        let mut steps = steps.into_iter();
        for _signal in signals.forever() {
            match steps.next() {
                Some(step) => step(),
                // No destructors and no locks: an output that hangs must not keep us.
                None => low_level::exit(Exit::Interrupted.code().into()),
            }
        }
    };
    let started = std::thread::Builder::new().spawn(handle);
    started.map(drop).map_err(|e| Error::thread_start(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn each_signal_takes_the_next_step() {
        let (told, steps_taken) = channel();
        let steps = [1, 2].map(|n| -> Step {
            let told = told.clone();
            Box::new(move || told.send(n).unwrap())
        });
        on_signals(steps.into()).unwrap();
        for (signal, step) in [(SIGTERM, 1), (SIGINT, 2)] {
            low_level::raise(signal).unwrap();
            assert_eq!(steps_taken.recv_timeout(Duration::from_secs(10)), Ok(step));
        }
    }
}
