//! `--notify`: a command, or a URL, that receives the result of a copy or a gather.

use crate::address::host_name;
use crate::exit::Exit;
use crate::flags::Notify;
use crate::output::{Output, printable, printable_text, rfc3339};
use bankfull::{Cancel, Error, GatherSummary, Summary};
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
    /// Sources of a gather that failed.
    pub(crate) failed_sources: usize,
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
        let (event, failed_sources) = ("copy_ended", 0);
        Self { event, sources, destination, summary, error, failed_sources, exit, elapsed }
    }

    /// Describes a gather.
    pub(crate) fn of_gather(
        (sources, destination): (&'r [OsString], &'r OsStr),
        result: &'r Result<GatherSummary, Error>,
        (exit, elapsed): (Exit, Duration),
    ) -> Self {
        let done = result.as_ref().ok();
        let summary = done.map(|done| &done.total);
        let first = done.and_then(|done| done.failed().next()).map(|(_, error)| error);
        let error = result.as_ref().err().or(first);
        let (event, failed_sources) =
            ("gather_ended", done.map_or(0, |done| done.failed().count()));
        Self { event, sources, destination, summary, error, failed_sources, exit, elapsed }
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
            "limited_by": self.summary.map(|s| s.limited_by).filter(|name| !name.is_empty()),
            "failed_sources": self.failed_sources,
            "message": self.error.map(ToString::to_string),
        })
    }

    /// Sends it.
    ///
    /// # Errors
    /// One line: the receiver cannot be reached, fails, takes too long, or a signal came. Neither
    /// the command nor the path of the URL is in it, as both may have a secret.
    fn send(&self, receiver: &Notify, cancel: &Cancel) -> Result<(), String> {
        let text = self.json(SystemTime::now()).to_string();
        match receiver {
            Notify::Url(url) => post(url, &text),
            Notify::Command(line) => {
                self.run(line, text, cancel).map_err(|why| format!("the command of --notify {why}"))
            }
        }
    }

    fn run(&self, line: &str, text: String, cancel: &Cancel) -> Result<(), String> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::piped()).stdout(io::stderr());
        command.env("BANKFULL_EXIT_CODE", self.exit.code().to_string());
        command.env("BANKFULL_OUTCOME", self.exit.name());
        // Its children end with it.
        command.process_group(0);
        let mut child = command.spawn().map_err(|e| format!("did not start, {e}"))?;
        let input = child.stdin.take();
        // A command need not read it; the thread ends with the pipe.
        let write = move || drop(input.map(|mut input| input.write_all(text.as_bytes())));
        let result = match thread::Builder::new().spawn(write) {
            Ok(_) => wait(&mut child, cancel),
            Err(e) => Err(format!("was ended, as no thread could be started for its input: {e}")),
        };
        if result.is_err() {
            // The command itself may have ended, but its children may still run.
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            let _ = child.wait();
        }
        match result? {
            status if status.success() => Ok(()),
            status => Err(format!("failed, {status}")),
        }
    }
}

/// Sends a notification, and warns if that fails: the copy has its result all the same.
pub(crate) fn send(notification: &Notification<'_>, receiver: &Notify, cancel: &Cancel) {
    if let Err(why) = notification.send(receiver, cancel) {
        Output::standard().message(&format!("warning: {}", printable_text(&why)));
    }
}

/// Waits for a command, until a signal comes.
fn wait(child: &mut Child, cancel: &Cancel) -> Result<ExitStatus, String> {
    let (started, was_cancelled) = (Instant::now(), cancel.is_cancelled());
    while started.elapsed() < COMMAND_TIMEOUT {
        if let Some(status) = child.try_wait().map_err(|e| format!("cannot be watched: {e}"))? {
            return Ok(status);
        }
        if cancel.is_cancelled() && !was_cancelled {
            return Err("was ended by a signal".to_owned());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Err(format!("was ended after {} s", COMMAND_TIMEOUT.as_secs()))
}

/// Posts JSON to a URL.
fn post(url: &str, text: &str) -> Result<(), String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::WebPki)
        .unversioned_rustls_crypto_provider(provider)
        .build();
    // A redirection would become a GET, without the result.
    let config = Agent::config_builder().tls_config(tls).max_redirects(0);
    let agent = Agent::new_with_config(config.timeout_global(Some(URL_TIMEOUT)).build());
    let sent = agent.post(url).header("Content-Type", "application/json").send(text);
    let why = match sent {
        Ok(answer) if answer.status().is_success() => return Ok(()),
        Ok(answer) => format!("http status: {}", answer.status().as_u16()),
        Err(e) => e.to_string(),
    };
    let why = why.strip_prefix("io: ").unwrap_or(&why);
    let why = why.split(" (os error").next().unwrap_or_default();
    let host = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    Err(format!("the notification to {} failed: {why}", host.unwrap_or_default()))
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
            failed_sources: 0,
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
        let cancel = Cancel::new();
        let sent =
            |line: &str| notification(&sources, &error).send(&line.parse().unwrap(), &cancel);
        assert_eq!(sent("exit 0"), Ok(()));
        assert_eq!(sent("test \"$BANKFULL_OUTCOME $BANKFULL_EXIT_CODE\" = 'network 10'"), Ok(()));
        assert_eq!(sent("test $(wc -c) -gt 1000000"), Ok(()));
        let failed = sent("exit 7").unwrap_err();
        assert_eq!(failed, "the command of --notify failed, exit status: 7");
    }

    #[test]
    fn signal_ends_a_command() {
        let error = Error::new(ErrorKind::Network, "x");
        let (sources, cancel) = (["a".into()], Cancel::new());
        let of_signal = cancel.clone();
        let signal = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            of_signal.cancel();
        });
        let command = "exec sleep 1000".parse().unwrap();
        let ended = notification(&sources, &error).send(&command, &cancel);
        assert_eq!(ended.unwrap_err(), "the command of --notify was ended by a signal");
        signal.join().unwrap();
        // After an interrupted copy, the command still runs.
        let command = "sleep 0.1; exit 3".parse().unwrap();
        let failed = notification(&sources, &error).send(&command, &cancel).unwrap_err();
        assert_eq!(failed, "the command of --notify failed, exit status: 3");
    }
}
