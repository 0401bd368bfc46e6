//! The service manager: readiness, reloads, the watchdog, and a socket that it listens on.
//! (sd_notify(3), sd_listen_fds(3))

use bankfull::{Error, ErrorKind, Server};
use sd_notify::NotifyState;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Minimum interval of watchdog notifications. (chosen: a manager that requests a shorter one does
/// not get it)
const MIN_WATCHDOG_INTERVAL: Duration = Duration::from_millis(100);

/// Interval at which the stop timeout is extended. (chosen: far below a manager's usual timeout)
const STOP_INTERVAL: Duration = Duration::from_secs(10);

/// Time for the shutdown after the drain. (chosen: more than the daemon waits for threads)
const END_MARGIN: Duration = Duration::from_secs(5);

/// Interval at which the status of the daemon is sent. (chosen: `systemctl status` shows it)
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// Notifies the service manager, if there is one.
fn notify(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

/// Reports that clients may connect.
pub(super) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reason why the last reload was refused, for the status.
static REFUSED: Mutex<Option<String>> = Mutex::new(None);

fn status_text(sessions: u64) -> String {
    let refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*refused {
        Some(why) => format!("{sessions} sessions; the last reload was refused: {why}"),
        None => format!("{sessions} sessions"),
    }
}

/// Reports that shares and tokens are read again, runs `reload`, and reports its end.
pub(super) fn reloading(reload: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
    let result = reload();
    let refused = result.as_ref().err().map(ToString::to_string);
    let status = refused.as_ref().map(|why| format!("the reload was refused: {why}"));
    *REFUSED.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    let status = status.as_deref().unwrap_or("reloaded");
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    result
}

/// Reports that the daemon drains, for a time that the manager has to wait.
pub(super) fn stopping(drain_timeout: Duration) {
    let status = NotifyState::Status("stopping after the running sessions");
    notify(&[NotifyState::Stopping, status]);
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    // Repeatedly, since a single extension is limited to 71 minutes.
    let extend = move || {
        let started = Instant::now();
        while started.elapsed() < drain_timeout {
            let micros = (2 * STOP_INTERVAL + END_MARGIN).as_micros();
            notify(&[NotifyState::ExtendTimeoutUsec(u32::try_from(micros).unwrap_or(u32::MAX))]);
            thread::sleep(STOP_INTERVAL.min(drain_timeout));
        }
    };
    // Without it, the unit's own time applies.
    let _ = thread::Builder::new().spawn(extend);
}

/// Starts the thread that reports the daemon's state, if there is a service manager.
///
/// The watchdog is notified only while the daemon accepts connections, so that the manager restarts
/// one that hangs.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn watch(server: &Arc<Server>) -> Result<(), Error> {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return Ok(());
    }
    let watchdog = sd_notify::watchdog_enabled();
    // As recommended by sd_watchdog_enabled(3): half of its time.
    let interval = watchdog.map(|limit| (limit / 2).max(MIN_WATCHDOG_INTERVAL));
    let server = Arc::clone(server);
    let report = move || {
        let (mut seen, mut since_status) = (server.accept_iterations(), STATUS_INTERVAL);
        loop {
            let turns = server.accept_iterations();
            if watchdog.is_some() && turns != seen {
                notify(&[NotifyState::Watchdog]);
                seen = turns;
            }
            if since_status >= STATUS_INTERVAL {
                let status = server.status();
                let sessions = status.receiving.sessions + status.sending.sessions;
                notify(&[NotifyState::Status(&status_text(sessions))]);
                since_status = Duration::ZERO;
            }
            let pause = interval.unwrap_or(STATUS_INTERVAL).min(STATUS_INTERVAL);
            thread::sleep(pause);
            since_status += pause;
        }
    };
    let started = thread::Builder::new().spawn(report);
    started.map(drop).map_err(|e| Error::thread_start(&e))
}

/// Returns the socket that the service manager has passed to this daemon, if any.
///
/// # Errors
/// Several sockets, or one that is no listening TCP socket.
pub(super) fn listener() -> Result<Option<TcpListener>, Error> {
    let unusable = |why: String| {
        let text = format!("the socket of the service manager cannot be used: {why}");
        Error::new(ErrorKind::Local, text)
    };
    let mut sockets = sd_notify::listen_fds().map_err(|e| unusable(e.to_string()))?;
    match (sockets.next(), sockets.next()) {
        (None, _) => Ok(None),
        (Some(socket), None) => bankfull::inherited_listener(socket)
            .map(Some)
            .map_err(|_| unusable("it is no listening TCP socket".to_owned())),
        (Some(_), Some(_)) => {
            Err(unusable("there are several: leave one ListenStream= in the .socket".to_owned()))
        }
    }
}
