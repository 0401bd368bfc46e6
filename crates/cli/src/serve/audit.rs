//! The audit log: a JSON line for each session that a client requested.

use crate::output::rfc3339;
use bankfull::{ClientRequest, EVENT_LOG_TARGET, Error, Event, EventSink, Summary};
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::warn;

/// Maximum length of a reason in a line, in characters. (chosen: that of fields in the log)
const MAX_REASON_CHARS: usize = 300;

/// An audit log.
#[derive(Debug)]
pub(super) struct AuditLog {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Lines that could not be written since the last one that could.
    lost: u64,
    /// The file may end within a line.
    is_torn: bool,
}

impl AuditLog {
    /// Opens the file, to find errors at the start.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn open(path: PathBuf) -> Result<Self, Error> {
        let log = Self { path, state: Mutex::default() };
        match log.file() {
            Ok(_) => Ok(log),
            Err(e) => Err(log.failure(&e)),
        }
    }

    /// Opens the file for one line: it may have been moved away.
    fn file(&self) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)
    }

    fn failure(&self, error: &io::Error) -> Error {
        Error::local(format!("cannot write the audit log {}", self.path.display()), error)
    }

    /// Appends a line; returns a warning if that fails, once until it succeeds again.
    fn append(&self, line: &str, now: Duration) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        if state.is_torn {
            text.push('\n');
        }
        if state.lost > 0 {
            text += &format!("{}\n", json!({ "time": rfc3339(now), "lost_lines": state.lost }));
        }
        text += &format!("{line}\n");
        let written = self.file().and_then(|mut file| {
            let written = file.write_all(text.as_bytes());
            state.is_torn |= written.is_err();
            written
        });
        match written {
            Ok(()) => {
                *state = State::default();
                None
            }
            Err(e) => {
                state.lost += 1;
                let is_first = state.lost == 1;
                is_first.then(|| format!("{}; the daemon goes on without it", self.failure(&e)))
            }
        }
    }
}

/// Returns the line of a session.
fn line(
    peer: &str,
    request: &ClientRequest,
    result: &Result<Summary, Error>,
    now: Duration,
) -> String {
    let reason = result.as_ref().err().map(ToString::to_string);
    // It may repeat a long path of the client.
    let reason = reason.map(|text| text.chars().take(MAX_REASON_CHARS).collect::<String>());
    json!({
        "time": rfc3339(now),
        "peer": peer,
        "token": request.token,
        "direction": request.direction,
        "path": request.path,
        "more_paths": request.more_paths,
        "outcome": request.outcome,
        "bytes": request.bytes.0,
        "files": request.files,
        "failed_files": result.as_ref().map_or(0, |summary| summary.failed_files),
        "seconds": request.elapsed.as_millis() as f64 / 1e3,
        "reason": reason,
    })
    .to_string()
}

/// Sink that writes the audit log, and passes the events on.
pub(super) struct AuditSink<'a> {
    pub(super) log: Option<&'a AuditLog>,
    pub(super) next: &'a dyn EventSink,
}

impl EventSink for AuditSink<'_> {
    fn event(&self, event: Event) {
        if let (Some(log), Event::ClientDone { peer, request: Some(request), result }) =
            (self.log, &event)
        {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            if let Some(message) = log.append(&line(peer, request, result, now), now) {
                warn!(target: EVENT_LOG_TARGET, text = &*message, "warning");
                self.next.event(Event::Warning { message });
            }
        }
        self.next.event(event);
    }

    fn wants_completed(&self) -> bool {
        self.next.wants_completed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn lost_lines_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let log = AuditLog::open(path.clone()).unwrap();
        let append = |text: &str| log.append(text, Duration::ZERO);
        assert_eq!(append("one"), None);
        fs::rename(&path, dir.path().join("kept")).unwrap();
        fs::create_dir(&path).unwrap();
        let warning = append("two").unwrap();
        assert!(warning.contains("cannot write the audit log"), "{warning}");
        assert_eq!(append("three"), None);
        fs::remove_dir(&path).unwrap();
        fs::rename(dir.path().join("kept"), &path).unwrap();
        assert_eq!(append("four"), None);
        assert_eq!(append("five"), None);
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "one\n{\"lost_lines\":2,\"time\":\"1970-01-01T00:00:00Z\"}\nfour\nfive\n"
        );
        assert!(AuditLog::open(dir.path().join("none/audit")).is_err());
    }

    #[test]
    fn torn_line_is_ended_before_the_next_one() {
        let log = AuditLog::open("/dev/full".into()).unwrap();
        let warning = log.append("lost", Duration::ZERO).unwrap();
        assert!(warning.contains("no space left on device; the daemon goes on"), "{warning}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        fs::write(&path, "los").unwrap();
        let log = AuditLog { path: path.clone(), ..log };
        assert_eq!(log.append("two", Duration::ZERO), None);
        let text = fs::read_to_string(path).unwrap();
        assert!(
            text.starts_with("los\n{\"lost_lines\":1,") && text.ends_with("}\ntwo\n"),
            "{text}"
        );
    }
}
