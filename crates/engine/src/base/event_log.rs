//! Log lines of events. [`EventLog`] is a sink that logs each event in the current span, and passes
//! it on.
//!
//! Texts and paths of a peer are fields, which the subscriber quotes and escapes; messages are
//! constant. Tokens and keys are in no event.

use super::error::{Error, ErrorKind};
use super::event::{ClientRequest, Event, EventSink, Outcome, Progress, Summary, TuningDecision};
use super::failure_fold::{FailureFold, FoldedFailures};
use super::log_limiter::LogLimiter;
use super::sync::lock;
use bankfull_control::{Bytes, Rate};
use std::borrow::Cow;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::{Level, Span, debug, field, info, info_span, trace, warn};

/// Target of the log lines that repeat events. A program that shows events can leave them out.
pub const EVENT_LOG_TARGET: &str = "bankfull::events";

/// Target of a daemon's start and end, which a program may show in another way.
pub const STARTUP_LOG_TARGET: &str = "bankfull::startup";

/// Characters of a text or path in a log line. (chosen: longer than most paths)
const MAX_FIELD_CHARS: usize = 512;

/// Paths of a request that an audit log has. (chosen: a line of 50 kB at most)
const MAX_PATHS: usize = 100;

/// Peer of a connection, and the limit of the log lines about it.
#[derive(Debug, Clone)]
pub(crate) struct PeerLog {
    limiter: Arc<LogLimiter>,
    peer: IpAddr,
    is_authenticated: Arc<AtomicBool>,
}

impl PeerLog {
    /// Creates the log of a peer that has not authenticated.
    pub(crate) fn new(limiter: Arc<LogLimiter>, peer: IpAddr) -> Self {
        Self { limiter, peer, is_authenticated: Arc::default() }
    }

    /// Marks the peer as authenticated, which gives it a limit of its own.
    pub(crate) fn set_authenticated(&self) {
        self.is_authenticated.store(true, Ordering::Relaxed);
    }

    /// True if one more line may be logged. First logs how many were left out.
    pub(crate) fn admits(&self) -> bool {
        let is_authenticated = self.is_authenticated.load(Ordering::Relaxed);
        let Some(left_out) = self.limiter.admit(self.peer, is_authenticated) else { return false };
        if left_out.peer > 0 {
            warn!(address = %self.peer, lines = left_out.peer, "log lines about a peer left out");
        }
        if left_out.unauthenticated > 0 {
            let lines = left_out.unauthenticated;
            warn!(lines, "log lines about unauthenticated peers left out");
        }
        true
    }
}

/// Sink that logs the events of one transfer.
pub(crate) struct EventLog<'a> {
    next: &'a dyn EventSink,
    /// Limit of the lines; `None` on a client, which logs its own transfer.
    peer: Option<PeerLog>,
    /// Latest progress of a client's transfer.
    progress: Mutex<Progress>,
    failures: Mutex<FailureFold>,
    /// Warnings of the transfer; `None` for a server, which has no end.
    warnings: Option<Mutex<FailureFold>>,
}

impl<'a> EventLog<'a> {
    /// Creates the log of a client's transfer.
    pub(crate) fn new(next: &'a dyn EventSink) -> Self {
        let (progress, failures) = Default::default();
        Self { next, peer: None, progress, failures, warnings: Some(Mutex::default()) }
    }

    /// Creates the log of a server, beside the sessions.
    pub(crate) fn of_server(next: &'a dyn EventSink) -> Self {
        let (progress, failures) = Default::default();
        Self { next, peer: None, progress, failures, warnings: None }
    }

    /// Creates the log of a server's session.
    pub(crate) fn of_peer(next: &'a dyn EventSink, peer: PeerLog) -> Self {
        let mut log = Self::new(next);
        log.peer = Some(peer);
        log
    }

    /// Returns the latest progress.
    pub(crate) fn progress(&self) -> Progress {
        *lock(&self.progress)
    }

    /// True if a line that is shown at the default level may be logged.
    fn admits(&self) -> bool {
        self.peer.as_ref().is_none_or(PeerLog::admits)
    }

    fn log(&self, event: &Event) {
        match event {
            Event::Connected { route, software, encrypted, .. } => {
                let route = route.name();
                let software: &str = software;
                info!(target: EVENT_LOG_TARGET, route, software, encrypted, "connected");
            }
            Event::Destination { source, destination } => {
                let (source, destination) = (path_text(source), path_text(destination));
                debug!(
                    target: EVENT_LOG_TARGET,
                    source = &*source, destination = &*destination, "destination"
                );
            }
            Event::Completed { path, outcome, bytes, .. } => log_completed(path, *outcome, *bytes),
            Event::FileFailed { path, message, .. } => self.log_failure(path, message),
            Event::Tuning(decision) => log_tuning(decision),
            Event::BufferLimit(limit) => debug!(
                target: EVENT_LOG_TARGET,
                controller = "rrda",
                buffer = limit.buffer.name(),
                bytes = limit.size.0,
                reason = &*limit.reason,
                "buffer limit set"
            ),
            Event::Deploying { software, host } => {
                let (software, host) = (&*cut(software), &*cut(host));
                info!(target: EVENT_LOG_TARGET, software, host, "deploying");
            }
            Event::Warning { message } => self.log_warning(message),
            Event::Reconnecting { message, .. } => {
                self.log_warning(&format!("{message}; reconnecting"));
            }
            Event::Progress(progress) => *lock(&self.progress) = *progress,
            // A change has its line when the entry is completed.
            Event::Changed(_)
            | Event::Sample(_)
            | Event::Listed(_)
            | Event::ClientConnected { .. }
            | Event::ClientDone { .. } => {}
        }
    }

    fn log_failure(&self, path: &Path, reason: &str) {
        let is_shown = lock(&self.failures).show_next(path, reason) && self.admits();
        let (path, reason) = (&*path_text(path), &*cut(reason));
        match is_shown {
            true => warn!(target: EVENT_LOG_TARGET, path, reason, "file failed"),
            false => debug!(target: EVENT_LOG_TARGET, path, reason, "file failed"),
        }
    }

    fn log_warning(&self, message: &str) {
        let is_new = |fold: &Mutex<FailureFold>| lock(fold).show_next(Path::new(""), message);
        let is_shown = self.warnings.as_ref().is_none_or(is_new) && self.admits();
        // Not `message`: that name is reserved, and its value is not quoted.
        let text = &*cut(message);
        match is_shown {
            true => warn!(target: EVENT_LOG_TARGET, text, "warning"),
            false => debug!(target: EVENT_LOG_TARGET, text, "warning"),
        }
    }
}

impl EventSink for EventLog<'_> {
    fn event(&self, event: Event) {
        self.log(&event);
        self.next.event(event);
    }

    fn wants_completed(&self) -> bool {
        is_logged(Level::DEBUG) || self.next.wants_completed()
    }
}

/// Logs the number of failures and warnings that were not logged one by one.
impl Drop for EventLog<'_> {
    fn drop(&mut self) {
        for FoldedFailures { files, reason } in lock(&self.failures).take_folded() {
            let reason = &*cut(reason.as_deref().unwrap_or("other reasons"));
            if self.admits() {
                warn!(target: EVENT_LOG_TARGET, files, reason, "more files failed");
            }
        }
        let folded = self.warnings.iter().flat_map(|fold| lock(fold).take_folded());
        let warnings: u64 = folded.map(|warning| warning.files).sum();
        if warnings > 0 && self.admits() {
            warn!(target: EVENT_LOG_TARGET, warnings, "more warnings");
        }
    }
}

/// Span of a session, with the number that both sides log.
pub(crate) fn session_span(session: &[u8; 16], peer: &str) -> Span {
    info_span!("session", id = &*session_number(session), peer)
}

/// Span of a server's connection, which becomes that of a session.
pub(crate) fn connection_span(peer: &str) -> Span {
    info_span!("session", id = field::Empty, peer)
}

/// Turns the current connection's span into that of a session.
pub(crate) fn enter_session(session: &[u8; 16]) {
    Span::current().record("id", &*session_number(session));
}

/// Formats the first bytes of a session's public identifier. (chosen: unique within a day)
fn session_number(session: &[u8; 16]) -> String {
    session[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Direction and paths of a transfer, as its client named them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subject {
    /// `send` or `receive` of this side, `copy` within a host, `list` or `probe`.
    pub(crate) direction: &'static str,
    /// The first paths; long ones are cut.
    pub(crate) paths: Vec<String>,
    /// Number of further paths.
    pub(crate) left_out_paths: usize,
    /// True if sources are removed once they are copied.
    pub(crate) removes_sources: bool,
    /// Name of the client's token, if it has one.
    pub(crate) token: Option<String>,
}

impl Subject {
    /// Describes a transfer of some paths.
    pub(crate) fn new(direction: &'static str, paths: impl IntoIterator<Item = String>) -> Self {
        let mut all = paths.into_iter();
        let paths = all.by_ref().take(MAX_PATHS).map(|path| cut(&path).into_owned()).collect();
        Self { direction, paths, left_out_paths: all.count(), ..Self::default() }
    }

    /// Returns the first path, and the number of the others.
    fn first_path(&self) -> (&str, usize) {
        let first = self.paths.first().map_or("", String::as_str);
        (first, self.paths.len().saturating_sub(1) + self.left_out_paths)
    }

    /// Adds the name of the client's token.
    pub(crate) fn with_token(self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self }
    }

    /// Adds the outcome. `progress` is that of a transfer that failed.
    pub(crate) fn with_outcome(
        self,
        result: &Result<Summary, Error>,
        progress: &Progress,
    ) -> ClientRequest {
        let (bytes, files, elapsed) = match result {
            Ok(done) => (done.bytes, done.files, done.elapsed),
            Err(_) => (progress.bytes_moved, progress.files_done, progress.elapsed),
        };
        ClientRequest {
            token: self.token,
            direction: self.direction,
            paths: self.paths,
            left_out_paths: self.left_out_paths,
            removes_sources: self.removes_sources,
            outcome: outcome_of(result, progress),
            bytes,
            files,
            elapsed,
        }
    }

    /// Logs the start of a transfer.
    pub(crate) fn log_start(&self) {
        let (direction, token) = (self.direction, self.token.as_deref());
        let (path, more_paths) = self.first_path();
        info!(token, direction, path, more_paths, "transfer started");
    }

    /// Logs that a client was refused before its request was read.
    pub(crate) fn log_refused(error: &Error) {
        warn!(reason = &*cut(&error.to_string()), "client refused");
    }

    /// Logs the end of a transfer with its outcome. `progress` is that of a transfer that failed.
    pub(crate) fn log_end(&self, result: &Result<Summary, Error>, progress: &Progress) {
        let (direction, token) = (self.direction, self.token.as_deref());
        let (path, more_paths) = self.first_path();
        let outcome = outcome_of(result, progress);
        match result {
            Ok(done) => info!(
                outcome,
                token,
                direction,
                path,
                more_paths,
                bytes = done.bytes.0,
                seconds = seconds(done.elapsed),
                files = done.files,
                failed_files = done.failed_files,
                skipped_files = done.skipped_files,
                goodput_bps = done.goodput().bits_per_sec(),
                streams = done.streams,
                retransmits = done.retransmits,
                limited_by = done.limited_by,
                "transfer ended"
            ),
            Err(error) => warn!(
                outcome,
                token,
                direction,
                path,
                more_paths,
                bytes = progress.bytes_moved.0,
                seconds = seconds(progress.elapsed),
                files = progress.files_done,
                reason = &*cut(&error.to_string()),
                "transfer ended"
            ),
        }
    }
}

/// Returns the name of an outcome. `progress` is that of a transfer that failed.
fn outcome_of(result: &Result<Summary, Error>, progress: &Progress) -> &'static str {
    match result {
        Ok(done) if done.failed_files > 0 => "partial",
        Ok(_) => "complete",
        Err(error) if error.is_cancellation() => "interrupted",
        Err(error) if error.kind() == ErrorKind::Refused && progress.elapsed.is_zero() => "refused",
        Err(_) => "failed",
    }
}

/// Returns seconds, rounded to milliseconds.
fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1e3
}

/// True if events of a level are logged.
fn is_logged(level: Level) -> bool {
    match level {
        Level::DEBUG => tracing::enabled!(target: EVENT_LOG_TARGET, Level::DEBUG),
        _ => tracing::enabled!(target: EVENT_LOG_TARGET, Level::TRACE),
    }
}

fn log_completed(path: &Path, outcome: Outcome, bytes: Bytes) {
    let level = if outcome == Outcome::Unchanged { Level::TRACE } else { Level::DEBUG };
    if !is_logged(level) {
        return;
    }
    let (path, bytes) = (&*path_text(path), bytes.0);
    match outcome {
        Outcome::Copied => debug!(target: EVENT_LOG_TARGET, path, bytes, "file copied"),
        Outcome::Unchanged => trace!(target: EVENT_LOG_TARGET, path, bytes, "file unchanged"),
        Outcome::LeftOut => trace!(target: EVENT_LOG_TARGET, path, bytes, "file left out"),
        Outcome::WouldCopy => debug!(target: EVENT_LOG_TARGET, path, bytes, "file would be copied"),
        Outcome::Deleted => debug!(target: EVENT_LOG_TARGET, path, "deleted"),
        Outcome::WouldDelete => debug!(target: EVENT_LOG_TARGET, path, "would be deleted"),
    }
}

fn log_tuning(decision: &TuningDecision) {
    debug!(
        target: EVENT_LOG_TARGET,
        controller = decision.controller.name(),
        state = &*decision.state,
        window_bytes = decision.window.map(|window| window.0),
        pacing_bps = decision.pacing.map(Rate::bits_per_sec),
        streams = decision.streams,
        reason = &*cut(&decision.reason),
        "tuning decision"
    );
}

fn path_text(path: &Path) -> String {
    cut(&path.to_string_lossy()).into_owned()
}

/// Cuts a text, so that no line is long.
fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_FIELD_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}
