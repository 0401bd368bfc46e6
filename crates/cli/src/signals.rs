//! SIGINT, SIGTERM and SIGHUP: each signal runs the next shutdown step; the signal after the last
//! step ends the program at once. A daemon may have another use for SIGHUP.

use crate::exit::Exit;
use bankfull::{Error, ErrorKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::sync::Arc;

/// Action of one signal. It runs on a separate thread, so it may take locks.
pub(crate) type Step = Box<dyn FnOnce() + Send>;

/// Action of each SIGHUP, on the same thread.
pub(crate) type Repeated = Box<dyn FnMut() + Send>;

/// Installs handlers: each signal runs the next of `steps`.
///
/// # Errors
/// [`ErrorKind::Local`] if signals cannot be handled, or no thread can be started.
pub(crate) fn on_signals(steps: Vec<Step>) -> Result<(), Error> {
    catch(false)?.run(steps, None)
}

/// Signals that are caught, and wait to be handled.
pub(crate) struct Caught(Signals);

/// Catches SIGINT and SIGTERM from now on, and SIGHUP unless it is ignored, as with nohup(1).
///
/// With `is_service`, SIGHUP is caught in any case, since it does not end a service.
///
/// A write beyond the file size limit then fails, instead of ending the program by SIGXFSZ.
pub(crate) fn catch(is_service: bool) -> Result<Caught, Error> {
    let hangup = (is_service || !is_ignored(SIGHUP)).then_some(SIGHUP);
    let caught = [SIGINT, SIGTERM].into_iter().chain(hangup);
    let signals = Signals::new(caught).and_then(|signals| {
        // Nothing reads the flag: the handler alone makes the system call fail.
        flag::register(SIGXFSZ, Arc::default())?;
        Ok(Caught(signals))
    });
    signals.map_err(|e| {
        let error = Error::local("cannot handle signals", &e);
        Error::new(ErrorKind::Local, format!("{error}: check the resource limits"))
    })
}

/// True if the program was started with a signal ignored. (proc_pid_status(5))
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

impl Caught {
    /// Starts the thread that runs one step per signal.
    ///
    /// With `on_hangup`, SIGHUP runs that instead.
    pub(crate) fn run(
        self,
        steps: Vec<Step>,
        mut on_hangup: Option<Repeated>,
    ) -> Result<(), Error> {
        let mut signals = self.0;
        let handle = move || {
            let mut steps = steps.into_iter();
            for signal in signals.forever() {
                if let (SIGHUP, Some(reload)) = (signal, &mut on_hangup) {
                    reload();
                    continue;
                }
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
