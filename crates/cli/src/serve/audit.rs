//! The audit log: a JSON line for each session that a client requested, and for refused clients.
//!
//! A thread writes the lines: a disk that stalls delays no session.

use crate::output::rfc3339;
use bankfull::{ClientRequest, EVENT_LOG_TARGET, Error, ErrorKind, Event, EventSink, Summary};
use rustix::fs::OFlags;
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::warn;

/// Maximum length of a reason in a line, in characters. (chosen: that of fields in the log)
const MAX_REASON_CHARS: usize = 300;

/// Lines that wait for the disk; further ones are lost. (chosen: 50 MB at most)
const MAX_WAITING_LINES: usize = 1000;

/// Time in which waiting lines are written at the end. (chosen: below the time of the end itself)
const END_TIME: Duration = Duration::from_secs(1);

/// Maximum number of refused clients logged per minute; further ones are only counted. (chosen: 20
/// MB a day, so that strangers cannot fill a disk)
const MAX_REFUSED: u64 = 60;
const REFUSED_PERIOD: Duration = Duration::from_secs(60);

/// File of an audit log.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    /// Lines that could not be written since the last one that could.
    lost: u64,
    /// The file may end within a line.
    is_torn: bool,
}

impl AuditFile {
    /// Opens the file, to find errors at the start.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn open(path: PathBuf) -> Result<Self, Error> {
        let mut log = Self { path, lost: 0, is_torn: false };
        match log.file().and_then(|_| log.ends_within_line()) {
            Ok(is_torn) => {
                log.is_torn = is_torn;
                Ok(log)
            }
            Err(e) => Err(log.failure(&e)),
        }
    }

    /// Opens the file for one line: it may have been moved away.
    fn file(&self) -> io::Result<File> {
        // A FIFO without a reader must not block.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(flags).open(&self.path)
    }

    /// True if the last line has no end, as after a crash.
    fn ends_within_line(&self) -> io::Result<bool> {
        let mut file = match File::open(&self.path) {
            Ok(file) if file.metadata()?.is_file() => file,
            // What cannot be read, such as a device, is only written to.
            _ => return Ok(false),
        };
        if file.metadata()?.len() == 0 {
            return Ok(false);
        }
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        Ok(last != *b"\n")
    }

    fn failure(&self, error: &io::Error) -> Error {
        Error::local(format!("cannot write the audit log {}", self.path.display()), error)
    }

    /// Appends a line; returns a warning if that fails, once until it succeeds again.
    fn append(&mut self, line: &str, now: Duration) -> Option<String> {
        let mut text = String::new();
        if self.is_torn {
            text.push('\n');
        }
        if self.lost > 0 {
            text += &format!("{}\n", json!({ "time": rfc3339(now), "lost_lines": self.lost }));
        }
        text += &format!("{line}\n");
        let written = self.file().and_then(|mut file| {
            let written = file.write_all(text.as_bytes());
            self.is_torn |= written.is_err();
            written
        });
        match written {
            Ok(()) => {
                (self.lost, self.is_torn) = (0, false);
                None
            }
            Err(e) => {
                let is_first = self.lost == 0;
                self.lost += 1;
                is_first.then(|| format!("{}; the daemon goes on without it", self.failure(&e)))
            }
        }
    }
}

/// Refused clients of the present minute.
#[derive(Debug, Default)]
struct Refused {
    began: Duration,
    count: u64,
}

impl Refused {
    /// Counts a client. Returns whether it is logged, and how many of the minute before were not.
    fn admit(&mut self, now: Duration) -> (bool, u64) {
        let mut left_out = 0;
        if now.saturating_sub(self.began) >= REFUSED_PERIOD {
            left_out = self.count.saturating_sub(MAX_REFUSED);
            *self = Self { began: now, count: 0 };
        }
        self.count += 1;
        (self.count <= MAX_REFUSED, left_out)
    }
}

/// Audit log of a running daemon. Dropping it writes what waits.
#[derive(Debug)]
pub(super) struct AuditLog {
    lines: Option<SyncSender<(String, Duration)>>,
    /// Lines for which there was no room.
    lost: Arc<AtomicU64>,
    refused: Mutex<Refused>,
    /// Ends with the thread.
    ended: Mutex<Receiver<()>>,
}

impl AuditLog {
    /// Starts the thread, which shows failures to write by `on_warning`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        mut file: AuditFile,
        on_warning: impl Fn(String) + Send + 'static,
    ) -> Result<Self, Error> {
        let (lines, waiting) = sync_channel::<(String, Duration)>(MAX_WAITING_LINES);
        let (end, ended) = sync_channel::<()>(1);
        let lost = Arc::new(AtomicU64::new(0));
        let lost_before = Arc::clone(&lost);
        let write = move || {
            let _end = end;
            for (line, now) in waiting {
                file.lost += lost_before.swap(0, Ordering::Relaxed);
                if let Some(text) = file.append(&line, now) {
                    warn!(target: EVENT_LOG_TARGET, text = &*text, "warning");
                    on_warning(text);
                }
            }
        };
        thread::Builder::new().spawn(write).map_err(|e| Error::thread_start(&e))?;
        Ok(Self { lines: Some(lines), lost, refused: Mutex::default(), ended: Mutex::new(ended) })
    }

    fn add(&self, line: String, now: Duration) {
        let sent = self.lines.as_ref().map(|lines| lines.try_send((line, now)));
        if !matches!(sent, Some(Ok(()))) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds the line of a client that was refused before its request.
    fn add_refused(&self, peer: &str, error: &Error, now: Duration) {
        let (has_line, left_out) =
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).admit(now);
        if has_line {
            self.add(refused_line(peer, error, left_out, now), now);
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.lines = None;
        // A disk that stalls does not delay the end for longer.
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(END_TIME);
    }
}

/// Returns a reason, cut: it may repeat a long path of the client.
fn short(error: &Error) -> String {
    error.to_string().chars().take(MAX_REASON_CHARS).collect()
}

/// Returns the line of a session.
fn line(
    peer: &str,
    request: &ClientRequest,
    result: &Result<Summary, Error>,
    now: Duration,
) -> String {
    json!({
        "time": rfc3339(now),
        "peer": peer,
        "token": request.token,
        "direction": request.direction,
        "paths": request.paths,
        "more_paths": request.left_out_paths,
        "outcome": request.outcome,
        "bytes": request.bytes.0,
        "files": request.files,
        "failed_files": result.as_ref().map_or(0, |summary| summary.failed_files),
        "deleted": result.as_ref().ok().map(|summary| summary.deleted),
        "removes_sources": request.removes_sources,
        "seconds": request.elapsed.as_millis() as f64 / 1e3,
        "reason": result.as_ref().err().map(short),
    })
    .to_string()
}

/// Returns the line of a client that was refused before its request.
fn refused_line(peer: &str, error: &Error, left_out: u64, now: Duration) -> String {
    json!({
        "time": rfc3339(now),
        "peer": peer,
        "outcome": "refused",
        "reason": short(error),
        "refused_without_line": left_out,
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
        if let (Some(log), Event::ClientDone { peer, request, result }) = (self.log, &event) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            match (request, result) {
                (Some(request), result) => log.add(line(peer, request, result, now), now),
                (None, Err(error)) if error.kind() == ErrorKind::Refused => {
                    log.add_refused(peer, error, now);
                }
                // Not a client of this program, or a client that disconnected before its request.
                (None, _) => {}
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
        let mut log = AuditFile::open(path.clone()).unwrap();
        let mut append = |text: &str| log.append(text, Duration::ZERO);
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
        assert!(AuditFile::open(dir.path().join("none/audit")).is_err());
    }

    #[test]
    fn torn_line_is_ended_before_the_next_one() {
        let mut log = AuditFile::open("/dev/full".into()).unwrap();
        let warning = log.append("lost", Duration::ZERO).unwrap();
        assert!(warning.contains("no space left on device; the daemon goes on"), "{warning}");
        assert!(log.is_torn && log.lost == 1);
        // Also one of an earlier daemon.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        for (before, after) in [("los", "los\ntwo\n"), ("one\n", "one\ntwo\n"), ("", "two\n")] {
            fs::write(&path, before).unwrap();
            let mut log = AuditFile::open(path.clone()).unwrap();
            assert_eq!(log.append("two", Duration::ZERO), None);
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn file_that_does_not_take_lines_delays_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let log = AuditLog::start(AuditFile::open(path.clone()).unwrap(), drop).unwrap();
        fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        (0..10).for_each(|_| log.add("line".to_owned(), Duration::ZERO));
        // Ends though it has no reader.
        drop(log);
    }

    #[test]
    fn refused_clients_are_limited_and_counted() {
        let mut refused = Refused::default();
        let at = |seconds: u64| Duration::from_secs(1_000_000 + seconds);
        let lines = (0..100).filter(|_| refused.admit(at(0)).0).count();
        assert_eq!(lines as u64, MAX_REFUSED);
        assert_eq!(refused.admit(at(60)), (true, 40));
        assert_eq!(refused.admit(at(61)), (true, 0));
    }
}
