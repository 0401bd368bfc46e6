//! `--notify`: a command, or a URL, that receives the result of a copy or a gather.

use crate::address::host_name;
use crate::exit::Exit;
use crate::flags::Notify;
use crate::output::{Output, printable, printable_text, rfc3339};
use bankfull::{Error, GatherSummary, Summary};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{RootCerts, TlsConfig};

/// Time for a URL to respond. (chosen: a script that waits for the copy does not wait long)
const URL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for a command to end. (chosen: a mail server that is slow)
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval at which the end of a command is looked for. (chosen: at once, to a user)
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Number of sources that are named. (chosen: fits a message)
const MAX_NAMED_SOURCES: usize = 100;

/// Result of a copy or a gather.
pub(crate) struct Notification<'r> {
    pub(crate) event: &'static str,
    pub(crate) sources: &'r [OsString],
    pub(crate) destination: &'r OsStr,
    pub(crate) summary: Option<&'r Summary>,
    pub(crate) error: Option<&'r Error>,
    pub(crate) exit: Exit,
    pub(crate) elapsed: Duration,
}

impl<'r> Notification<'r> {
    /// Describes a copy.
    pub(crate) fn of_copy(
        (sources, destination): (&'r [OsString], &'r OsStr),
        result: &'r Result<Summary, Error>,
        (exit, elapsed): (Exit, Duration),
    ) -> Self {
        let (summary, error) = (result.as_ref().ok(), result.as_ref().err());
        Self { event: "copy_ended", sources, destination, summary, error, exit, elapsed }
    }

    /// Describes a gather.
    pub(crate) fn of_gather(
        (sources, destination): (&'r [OsString], &'r OsStr),
        result: &'r Result<GatherSummary, Error>,
        (exit, elapsed): (Exit, Duration),
    ) -> Self {
        let summary = result.as_ref().ok().map(|done| &done.total);
        let error = result.as_ref().err();
        Self { event: "gather_ended", sources, destination, summary, error, exit, elapsed }
    }

    /// Returns it as JSON.
    fn json(&self, now: SystemTime) -> Value {
        let shown = |place: &OsStr| printable(place.as_ref());
        let named = self.sources.iter().take(MAX_NAMED_SOURCES);
        json!({
            "event": self.event,
            "time": rfc3339(now.duration_since(UNIX_EPOCH).unwrap_or_default()),
            "host": host_name(),
            "version": env!("CARGO_PKG_VERSION"),
            "sources": named.map(|source| shown(source)).collect::<Vec<_>>(),
            "more_sources": self.sources.len().saturating_sub(MAX_NAMED_SOURCES),
            "destination": shown(self.destination),
            "outcome": self.exit.name(),
            "exit_code": self.exit.code(),
            "seconds": self.elapsed.as_millis() as f64 / 1e3,
            "bytes": self.summary.map(|summary| summary.bytes.0),
            "files": self.summary.map(|summary| summary.files),
            "failed_files": self.summary.map(|summary| summary.failed_files),
            "limited_by": self.summary.map(|summary| &summary.limited_by),
            "message": self.error.map(ToString::to_string),
        })
    }

    /// Sends it.
    ///
    /// # Errors
    /// One line: the receiver cannot be reached, fails, or takes too long.
    pub(crate) fn send(&self, receiver: &Notify) -> Result<(), String> {
        let text = self.json(SystemTime::now()).to_string();
        match receiver {
            Notify::Url(url) => post(url, &text),
            Notify::Command(line) => {
                self.run(line, text).map_err(|why| format!("the command of --notify {why}: {line}"))
            }
        }
    }

    fn run(&self, line: &str, text: String) -> Result<(), String> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::piped()).stdout(io::stderr());
        command.env("BANKFULL_EXIT_CODE", self.exit.code().to_string());
        command.env("BANKFULL_OUTCOME", self.exit.name());
        let mut child =
            command.process_group(0).spawn().map_err(|e| format!("did not start, {e}"))?;
        if let Some(mut input) = child.stdin.take() {
            // A command need not read it; the thread ends with the pipe.
            thread::spawn(move || drop(input.write_all(text.as_bytes())));
        }
        match wait(&mut child) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("failed, {status}")),
            None => {
                if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
                    // It may have ended meanwhile.
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                Err(format!("was ended after {} s", COMMAND_TIMEOUT.as_secs()))
            }
        }
    }
}

/// Sends a notification, and warns if that fails: the copy has its result all the same.
pub(crate) fn send(notification: &Notification<'_>, receiver: &Notify) {
    if let Err(why) = notification.send(receiver) {
        Output::standard().message(&format!("warning: {}", printable_text(&why)));
    }
}

/// Waits for a command; `None` if that takes too long.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let started = Instant::now();
    while started.elapsed() < COMMAND_TIMEOUT {
        match child.try_wait() {
            Ok(None) => thread::sleep(POLL_INTERVAL),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
    None
}

/// Posts JSON to a URL.
fn post(url: &str, text: &str) -> Result<(), String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::WebPki)
        .unversioned_rustls_crypto_provider(provider)
        .build();
    let config = Agent::config_builder().tls_config(tls).timeout_global(Some(URL_TIMEOUT)).build();
    let sent = Agent::new_with_config(config)
        .post(url)
        .header("Content-Type", "application/json")
        .send(text);
    // The path of a URL may be a secret: only the host is named.
    let host = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    let host = host.unwrap_or_default();
    sent.map(drop).map_err(|e| {
        let text = e.to_string();
        let text = text.strip_prefix("io: ").unwrap_or(&text);
        let text = text.split(" (os error").next().unwrap_or_default();
        format!("the notification to {host} failed: {text}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull::ErrorKind;

    fn notification<'r>(sources: &'r [OsString], error: &'r Error) -> Notification<'r> {
        Notification {
            event: "copy_ended",
            sources,
            destination: OsStr::new("b"),
            summary: None,
            error: Some(error),
            exit: Exit::Network,
            elapsed: Duration::from_millis(1500),
        }
    }

    #[test]
    fn message_names_result_and_first_sources() {
        let error = Error::new(ErrorKind::Network, "the connection was lost");
        let sources: Vec<OsString> = (0..103).map(|n| n.to_string().into()).collect();
        let text = notification(&sources, &error).json(UNIX_EPOCH);
        assert_eq!((&text["outcome"], &text["exit_code"]), (&json!("network"), &json!(10)));
        assert_eq!(text["message"], "the connection was lost");
        assert_eq!((&text["more_sources"], &text["seconds"]), (&json!(3), &json!(1.5)));
        assert_eq!(text["sources"].as_array().unwrap().len(), MAX_NAMED_SOURCES);
        assert!(text["bytes"].is_null());
    }

    #[test]
    fn command_that_reads_nothing_or_fails_is_no_trouble() {
        let error = Error::new(ErrorKind::Network, "x".repeat(1 << 20));
        let sources = ["a".into()];
        let sent = |line: &str| notification(&sources, &error).send(&line.parse().unwrap());
        assert_eq!(sent("exit 0"), Ok(()));
        assert_eq!(sent("test \"$BANKFULL_OUTCOME $BANKFULL_EXIT_CODE\" = 'network 10'"), Ok(()));
        assert_eq!(sent("test $(wc -c) -gt 1000000"), Ok(()));
        let failed = sent("exit 7").unwrap_err();
        assert_eq!(failed, "the command of --notify failed, exit status: 7: exit 7");
    }
}
