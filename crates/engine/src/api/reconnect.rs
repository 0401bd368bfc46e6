//! Reconnection: a transfer whose session is lost begins another one, which resumes.

use crate::base::backoff::Backoff;
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{Event, EventSink, Progress, Summary};
use crate::base::sync::lock;
use crate::stats::lost_sessions::LostSessions;
use crate::transport::control::RERUN_HINT;
use bankfull_control::Bytes;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// First and longest pause before a new connection. (chosen: a daemon that restarts is back within
/// a second; during an outage of minutes, two attempts a minute suffice)
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Interval of checks for cancellation during a pause. (chosen: below what a user notices)
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Longest time from the end of ssh to the cancellation by the same signal.
///
/// A terminal signals the whole process group. (chosen: not noticed after a loss, and much longer
/// than a thread of a busy machine waits to run)
const SIGNAL_DELAY: Duration = Duration::from_millis(200);

/// Runs sessions until one completes the transfer, or none could be connected for `retry_for`.
///
/// `retry_for` is evaluated after each loss; zero ends the transfer.
///
/// # Errors
/// The first session's error, unless that session was lost after it connected; else the last error.
pub(crate) fn run(
    retry_for: impl Fn() -> Duration,
    events: &dyn EventSink,
    cancel: &Cancel,
    session: impl Fn(&dyn EventSink, &LostSessions) -> Result<Summary, Error>,
) -> Result<Summary, Error> {
    let lost = LostSessions::default();
    let mut sink = SessionSink { is_first: true, ..SessionSink::new(events) };
    let mut outage: Option<Outage> = None;
    loop {
        let (achieved, began) = (lost.total().achieved(), Instant::now());
        let error = match session(&sink, &lost) {
            Ok(summary) => return Ok(lost.total().complete(summary)),
            Err(error) => error,
        };
        let is_passing = match (sink.is_connected(), &outage) {
            (true, _) => error.is_connection_loss() || error.is_end_of_server(),
            (false, Some(_)) => may_pass(&error),
            (false, None) => false,
        };
        if !is_passing {
            return Err(error);
        }
        if is_cancelled_within(cancel, SIGNAL_DELAY) {
            return Err(Error::interrupted());
        }
        let retry_for = retry_for();
        if retry_for.is_zero() {
            return Err(error);
        }
        // A short session without progress does not reset the outage; a long one may have hashed.
        let is_long = sink.is_connected() && began.elapsed() > PAUSES.1;
        if is_long || lost.total().achieved() > achieved {
            outage = None;
        }
        let outage = outage.get_or_insert_with(|| Outage::new(retry_for, error.clone()));
        let Some(pause) = outage.next_pause() else { return Err(outage.give_up(&error)) };
        let (message, left) = (without_hint(&error), outage.left());
        events.event(Event::Reconnecting { message, pause, left });
        if is_cancelled_within(cancel, pause) {
            return Err(Error::interrupted());
        }
        sink = sink.next();
    }
}

/// True for the error of a connection that may succeed later.
fn may_pass(error: &Error) -> bool {
    let kinds = [ErrorKind::Network, ErrorKind::Timeout, ErrorKind::AgentStart];
    kinds.contains(&error.kind()) || error.is_busy()
}

fn is_cancelled_within(cancel: &Cancel, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    while !cancel.is_cancelled() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::sleep(left.min(CANCEL_CHECK_INTERVAL));
    }
    true
}

/// Returns the message of an error without the advice to run the command again.
pub(super) fn without_hint(error: &Error) -> String {
    let message = error.to_string();
    message.strip_suffix(RERUN_HINT).unwrap_or(&message).to_owned()
}

/// Time without a session.
struct Outage {
    began: Instant,
    until: Instant,
    backoff: Backoff,
    /// Loss of the session.
    loss: Error,
}

impl Outage {
    fn new(retry_for: Duration, loss: Error) -> Self {
        let began = Instant::now();
        let until = began.checked_add(retry_for).unwrap_or(began);
        Self { began, until, backoff: Backoff::new(PAUSES.0, PAUSES.1), loss }
    }

    /// Returns the error of a transfer that was not connected again.
    fn give_up(&self, last: &Error) -> Error {
        let (loss, last) = (without_hint(&self.loss), without_hint(last));
        let seconds = self.began.elapsed().as_secs();
        let again = match last == loss {
            true => format!("could not reconnect within {seconds} s"),
            false => format!("could not reconnect within {seconds} s ({last})"),
        };
        Error::new(self.loss.kind(), format!("{loss}; {again}{RERUN_HINT}"))
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns the next pause; `None` when the time is over.
    fn next_pause(&mut self) -> Option<Duration> {
        let left = self.left();
        (!left.is_zero()).then(|| self.backoff.next_pause().min(left))
    }
}

/// Events of one session, as those of the whole transfer.
struct SessionSink<'e> {
    events: &'e dyn EventSink,
    is_first: bool,
    is_connected: AtomicBool,
    /// Bytes that earlier sessions moved and carried.
    earlier: (Bytes, Bytes),
    /// Last progress reported.
    progress: Mutex<Progress>,
}

impl<'e> SessionSink<'e> {
    fn new(events: &'e dyn EventSink) -> Self {
        let (is_connected, earlier, progress) = Default::default();
        Self { events, is_first: false, is_connected, earlier, progress }
    }

    fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Returns the sink of the next session.
    fn next(self) -> Self {
        let progress = *lock(&self.progress);
        let earlier = (progress.bytes_moved, progress.bytes_carried);
        Self { earlier, progress: self.progress, ..Self::new(self.events) }
    }
}

impl EventSink for SessionSink<'_> {
    fn event(&self, event: Event) {
        match event {
            Event::Progress(mut progress) => {
                // Rates are their differences: they must not fall.
                progress.bytes_moved += self.earlier.0;
                progress.bytes_carried += self.earlier.1;
                *lock(&self.progress) = progress;
                self.events.event(Event::Progress(progress));
            }
            // Already reported by the first session.
            Event::Destination { .. } if !self.is_first => {}
            event => {
                if matches!(event, Event::Connected { .. }) {
                    self.is_connected.store(true, Ordering::Relaxed);
                }
                self.events.event(event);
            }
        }
    }

    fn wants_completed(&self) -> bool {
        self.events.wants_completed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::{NoEvents, Route};
    use bankfull_proto::wire::control::{Cause, Failure};
    use std::cell::Cell;

    fn connected() -> Event {
        let (software, at) = (String::new(), Duration::ZERO);
        Event::Connected { route: Route::Daemon, software, encrypted: true, at }
    }

    fn loss() -> Error {
        Error::new(ErrorKind::Network, "the connection was lost")
    }

    /// Runs sessions that connect or not, and end with these errors; returns the number run.
    fn run_with(retry_for: Duration, ends: &[(bool, Error)]) -> (u32, Result<Summary, Error>) {
        let count = Cell::new(0);
        let result = run(
            || retry_for,
            &NoEvents,
            &Cancel::new(),
            |events, _| {
                let at = count.replace(count.get() + 1);
                match ends.get(at as usize) {
                    Some((connects, error)) => {
                        if *connects {
                            events.event(connected());
                        }
                        Err(error.clone())
                    }
                    None => Ok(Summary::default()),
                }
            },
        );
        (count.get(), result)
    }

    #[test]
    fn session_lost_after_its_start_is_continued() {
        let minutes = Duration::from_secs(300);
        let stopped = Error::from_peer(&Failure::new(Cause::Cancelled, "the server stops"));
        let away = Error::new(ErrorKind::Timeout, "no response");
        let (count, result) = run_with(minutes, &[(true, loss()), (false, away)]);
        assert!(count == 3 && result.is_ok(), "{count}, {result:?}");
        let (count, result) = run_with(minutes, &[(true, stopped)]);
        assert!(count == 2 && result.is_ok(), "{count}, {result:?}");
    }

    #[test]
    fn other_ends_are_final() {
        let minutes = Duration::from_secs(300);
        let refused = Error::new(ErrorKind::Refused, "wrong token");
        let taken_over = Error::from_peer(&Failure::new(Cause::Busy, "a newer session"));
        for ends in [
            vec![(false, loss())],
            vec![(true, refused.clone())],
            vec![(true, taken_over)],
            vec![(true, loss()), (false, refused)],
        ] {
            let (count, result) = run_with(minutes, &ends);
            assert_eq!(
                (count as usize, result.err()),
                (ends.len(), Some(ends[count as usize - 1].1.clone()))
            );
        }
        assert_eq!(run_with(Duration::ZERO, &[(true, loss())]).0, 1);
    }

    #[test]
    fn sessions_without_progress_end_with_the_time() {
        let ends = vec![(true, loss()); 100];
        let (count, result) = run_with(Duration::from_millis(700), &ends);
        assert!(result.is_err() && (2..10).contains(&count), "{count}");
    }

    #[test]
    fn progress_of_sessions_adds_up() {
        let sink = SessionSink::new(&NoEvents);
        let progress = |moved| {
            let mut progress = Progress::default();
            (progress.bytes_moved, progress.bytes_carried) = (Bytes(moved), Bytes(2 * moved));
            Event::Progress(progress)
        };
        sink.event(progress(5));
        let sink = sink.next();
        sink.event(progress(1));
        let sink = sink.next().next();
        sink.event(progress(2));
        let last = *lock(&sink.progress);
        assert_eq!((last.bytes_moved, last.bytes_carried), (Bytes(8), Bytes(16)));
    }
}
