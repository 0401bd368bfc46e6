//! The log: what is logged, where, and in which format.
//!
//! The library logs through `tracing`; this module installs the subscriber. A client logs nothing
//! without `-vv`, `--log-file` or `BANKFULL_LOG`, as it shows its events. The log of a daemon is
//! its output.

use crate::environment::Environment;
use crate::flags::{LogFormat, ShowFlags};
use crate::output;
use bankfull::{EVENT_LOG_TARGET, Error, ErrorKind, STARTUP_LOG_TARGET};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// Prefix of the targets of this program.
const OWN_TARGET: &str = "bankfull";

/// Target of the lines that a daemon shows on its terminal in any case.
pub(crate) const STARTUP_TARGET: &str = STARTUP_LOG_TARGET;

/// Role of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Shows events on the terminal.
    Client,
    /// Shows only the log.
    Daemon,
}

/// Starts the log that the flags and the environment select.
///
/// # Errors
/// [`ErrorKind::Usage`] for an invalid filter or a format without a log, [`ErrorKind::Local`] if
/// the file cannot be opened.
pub(crate) fn start(flags: &ShowFlags, environment: &Environment, role: Role) -> Result<(), Error> {
    let filter = environment.log.as_deref().map(parse_filter).transpose()?;
    let level = default_level(flags, role);
    let is_wanted = filter.is_some() || flags.log.log_file.is_some() || level.is_some();
    if !is_wanted {
        return match flags.log.log_format {
            None => Ok(()),
            Some(_) => {
                let way_out = if role == Role::Client { "--log-file or -vv" } else { "--log-file" };
                let text = format!("--log-format has no effect without a log: add {way_out}");
                Err(Error::new(ErrorKind::Usage, text))
            }
        };
    }
    let level = level.unwrap_or(LevelFilter::INFO);
    let mut filter = filter.unwrap_or_else(|| own(level));
    let format = flags.log.log_format.unwrap_or(LogFormat::Text);
    let writer = match &flags.log.log_file {
        Some(path) => LogWriter::file(path, format)?,
        None => LogWriter { destination: Destination::Terminal, format },
    };
    if !owns_terminal(flags, role) && matches!(writer.destination, Destination::Terminal) {
        // The command shows these itself.
        let target = if role == Role::Client { EVENT_LOG_TARGET } else { STARTUP_TARGET };
        filter = filter.with_target(target, LevelFilter::OFF);
    }
    install(format, writer, filter)
}

/// True if nothing but the log is to be on standard error: a daemon's log in JSON.
pub(crate) fn owns_terminal(flags: &ShowFlags, role: Role) -> bool {
    let is_json = flags.log.log_format == Some(LogFormat::Json);
    role == Role::Daemon && is_json && flags.log.log_file.is_none()
}

/// Returns the level without a filter in the environment; `None` if nothing is logged.
fn default_level(flags: &ShowFlags, role: Role) -> Option<LevelFilter> {
    let has_file = flags.log.log_file.is_some();
    let by_verbosity = match flags.verbose {
        _ if flags.quiet => LevelFilter::WARN,
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    match role {
        _ if has_file => Some(by_verbosity),
        // Standard output has the events, and standard error only what ends the daemon.
        Role::Daemon if flags.json => None,
        Role::Daemon => Some(by_verbosity),
        Role::Client => (flags.verbose > 1).then_some(LevelFilter::DEBUG),
    }
}

/// Parses `LEVEL`, or `TARGET=LEVEL` separated by commas.
fn parse_filter(text: &str) -> Result<Targets, Error> {
    if let Ok(level) = text.parse::<LevelFilter>() {
        return Ok(own(level));
    }
    let is_level = |part: &str| part.parse::<LevelFilter>().is_ok();
    let is_complete = text.split(',').all(|part| part.contains('=') || is_level(part));
    text.parse().ok().filter(|_| is_complete).ok_or_else(|| {
        let text = format!(
            "BANKFULL_LOG has the invalid value {text:?}: write a level (error, warn, info, debug, \
             trace, off), or TARGET=LEVEL separated by commas"
        );
        Error::new(ErrorKind::Usage, text)
    })
}

/// Selects a level of this program alone.
fn own(level: LevelFilter) -> Targets {
    Targets::new().with_target(OWN_TARGET, level)
}

fn install(format: LogFormat, writer: LogWriter, filter: Targets) -> Result<(), Error> {
    let subscriber = Registry::default().with(layer(format, writer).with_filter(filter));
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|e| Error::new(ErrorKind::Local, format!("cannot start the log: {e}")))
}

/// Returns the `tracing` layer that formats the lines; its default time is UTC.
fn layer<S>(
    format: LogFormat,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
    match format {
        LogFormat::Text => Box::new(lines.with_target(false)),
        LogFormat::Json => {
            Box::new(lines.json().flatten_event(true).with_span_list(false).with_target(true))
        }
    }
}

/// Writer of whole lines. Control characters and bidirectional marks in them become escapes.
#[derive(Debug)]
struct LogWriter {
    destination: Destination,
    format: LogFormat,
}

/// Destination of the log.
#[derive(Debug)]
enum Destination {
    /// Standard error, above the progress line.
    Terminal,
    File {
        file: File,
        name: String,
        /// A failure to write has been shown.
        has_failed: AtomicBool,
    },
}

impl LogWriter {
    /// Opens a file for appending. It is private, since it has the names of files.
    fn file(path: &Path, format: LogFormat) -> Result<Self, Error> {
        let name = output::printable(path);
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = opened.map_err(|e| Error::local(format!("cannot open the log {name}"), &e))?;
        let destination = Destination::File { file, name, has_failed: AtomicBool::new(false) };
        Ok(Self { destination, format })
    }

    fn write_line(&self, line: &[u8]) {
        let Destination::File { file, name, has_failed } = &self.destination else {
            return output::above_progress(line);
        };
        let mut file = file;
        if let Err(error) = file.write_all(line)
            && !has_failed.swap(true, Ordering::Relaxed)
        {
            let error = Error::local(format!("cannot write the log {name}"), &error);
            output::above_progress(format!("bankfull: {error}\n").as_bytes());
        }
    }
}

impl<'w> MakeWriter<'w> for LogWriter {
    type Writer = &'w Self;

    fn make_writer(&'w self) -> &'w Self {
        self
    }
}

/// A log that cannot be written does not stop the program.
impl Write for &LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_line(escaped(line, self.format).as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a line with escapes for control characters within it, and for bidirectional marks.
fn escaped(line: &[u8], format: LogFormat) -> String {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches('\n');
    let mut escaped = match format {
        LogFormat::Text => output::printable_text(line),
        LogFormat::Json => output::printable_json(line),
    };
    escaped.push('\n');
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::LogFlags;
    use std::sync::{Arc, Mutex};

    /// Writer into a buffer.
    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(data);
            Ok(data.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: &str, work: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let made = buffer.clone();
        let layer = layer(format, move || made.clone()).with_filter(parse_filter(filter).unwrap());
        tracing::subscriber::with_default(Registry::default().with(layer), work);
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    fn hostile_line() {
        let span = tracing::info_span!("session", id = "01", peer = "::1");
        let _entered = span.entered();
        tracing::info!(path = "a\n\u{1b}[2J\u{202e}\" b=1", "file failed");
    }

    #[test]
    fn text_line_has_time_level_span_and_escaped_fields() {
        let line = logged(LogFormat::Text, "bankfull_cli=info,bankfull=info", hostile_line);
        assert_eq!(line.lines().count(), 1, "{line}");
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{time}");
        assert_eq!(
            rest.trim(),
            r#"INFO session{id="01" peer="::1"}: file failed path="a\n\u{1b}[2J\u{202e}\" b=1""#
        );
    }

    #[test]
    fn json_line_is_one_object_with_its_span() {
        let line = logged(LogFormat::Json, "debug", hostile_line);
        assert_eq!(line.lines().count(), 1, "{line}");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["level"], "INFO");
        assert_eq!(value["message"], "file failed");
        assert_eq!(value["path"], "a\n\u{1b}[2J\u{202e}\" b=1");
        assert_eq!(value["span"]["peer"], "::1");
        assert!(!line.contains('\u{1b}'), "{line}");
    }

    #[test]
    fn line_is_escaped_in_both_formats() {
        let line = "{\"path\":\"a\u{9b}b\u{202e}\u{7f}c\"}\n";
        let json = escaped(line.as_bytes(), LogFormat::Json);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["path"], "a\u{9b}b\u{202e}\u{7f}c");
        assert_eq!(json, "{\"path\":\"a\\u009bb\\u202e\\u007fc\"}\n");
        assert_eq!(escaped(b"a\nb\n", LogFormat::Text), "a\\nb\n");
    }

    #[test]
    fn filter_selects_levels_and_targets() {
        assert_eq!(logged(LogFormat::Text, "warn", hostile_line), "");
        assert_eq!(logged(LogFormat::Text, "quinn_proto=debug", hostile_line), "");
        assert!(
            logged(LogFormat::Text, "debug", || tracing::info!(target: "rustls", "x")).is_empty()
        );
        let error = parse_filter("loud").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().starts_with("BANKFULL_LOG has the invalid value \"loud\""));
    }

    #[test]
    fn level_follows_role_and_verbosity() {
        let level = |verbose, quiet, json, role| {
            let flags = ShowFlags { verbose, quiet, json, ..ShowFlags::default() };
            default_level(&flags, role)
        };
        assert_eq!(level(1, false, false, Role::Client), None);
        assert_eq!(level(2, false, false, Role::Client), Some(LevelFilter::DEBUG));
        assert_eq!(level(0, false, false, Role::Daemon), Some(LevelFilter::INFO));
        assert_eq!(level(1, false, false, Role::Daemon), Some(LevelFilter::DEBUG));
        assert_eq!(level(0, true, false, Role::Daemon), Some(LevelFilter::WARN));
        assert_eq!(level(0, false, true, Role::Daemon), None);
    }

    #[test]
    fn format_without_a_log_is_refused() {
        let log = LogFlags { log_format: Some(LogFormat::Json), ..LogFlags::default() };
        let flags = ShowFlags { log, ..ShowFlags::default() };
        let error = start(&flags, &Environment::default(), Role::Client).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }

    #[test]
    fn unusable_log_file_is_an_error() {
        let error = LogWriter::file("/nonexistent/log".as_ref(), LogFormat::Text).unwrap_err();
        assert!(error.to_string().starts_with("cannot open the log /nonexistent/log: "), "{error}");
    }
}
