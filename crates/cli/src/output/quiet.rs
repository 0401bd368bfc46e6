//! Errors only: failed files, and the error that ended the command.

use super::text::{printable, printable_text};
use super::{Beginning, Ending, FailedFiles, Output, Render, Serving, findings};
use bankfull::{Error, ErrorKind, Event, Progress, Summary};
use std::path::Path;
use std::time::Duration;

/// Output with `--quiet`.
pub(super) struct Quiet {
    output: Output,
    failed: FailedFiles,
    /// Sources of a gathering, as typed.
    sources: Vec<String>,
}

impl Quiet {
    pub(super) fn new(output: Output) -> Self {
        Self { output, failed: FailedFiles::default(), sources: Vec::new() }
    }
}

impl Render for Quiet {
    fn begin(&mut self, beginning: &Beginning) {
        if let Beginning::Serve(serving) = beginning {
            // Clients need the port, which may have been chosen at random.
            self.output.message(&serving_line(serving));
        }
        if let Beginning::Gather { sources, .. } = beginning {
            self.sources = sources.iter().map(|s| printable(s.as_ref())).collect();
        }
    }

    fn event(&mut self, event: &Event) {
        if let Event::FileFailed { path, message, .. } = event
            && self.failed.show_next(&reason(path, message))
        {
            self.output.message(&failed_line(path, message));
        }
    }

    fn source_event(&mut self, _source: usize, event: &Event) {
        self.event(event);
    }

    fn source_done(&mut self, source: usize, result: &Result<Summary, Error>) {
        let name = self.sources.get(source).map_or("", String::as_str);
        if let Some(line) = source_failed_line(name, result) {
            self.output.message(&line);
        }
    }

    fn tick(&mut self, _progress: &Progress, _now: Duration) {}

    fn stopping(&mut self) {}

    fn end(&mut self, ending: &Ending<'_>) {
        for rest in self.failed.rest() {
            self.output.message(&format!("bankfull: {rest}"));
        }
        match ending {
            Ending::Failed(error) => self.output.error(&error.to_string()),
            // The result is what the user requested.
            Ending::Probed(result) => {
                findings::lines(result).iter().for_each(|line| self.output.data_line(line));
            }
            Ending::Copied(_) | Ending::Gathered(_) | Ending::Stopped => {}
        }
    }

    fn wants_completed(&self) -> bool {
        false
    }

    fn output(&mut self) -> &mut Output {
        &mut self.output
    }
}

/// Formats the line of a failed source; `None` for a cancelled one, as the end reports that.
pub(super) fn source_failed_line(name: &str, result: &Result<Summary, Error>) -> Option<String> {
    let error = result.as_ref().err().filter(|error| error.kind() != ErrorKind::Interrupted)?;
    Some(format!("bankfull: {name}: {}", printable_text(&error.to_string())))
}

/// Formats the listening address of a daemon.
pub(super) fn serving_line(serving: &Serving) -> String {
    format!("serving {} on {}", printable(&serving.root), serving.address)
}

/// Formats the line of a failed file; most messages name it already.
pub(super) fn failed_line(path: &Path, message: &str) -> String {
    let message = printable_text(message);
    if is_named(path, &message) {
        format!("bankfull: {message}")
    } else {
        format!("bankfull: {}: {message}", printable(path))
    }
}

/// Returns the reason in the message of a failed file: the part after its name, or the whole
/// message.
pub(super) fn reason(path: &Path, message: &str) -> String {
    let message = printable_text(message);
    let name = path.file_name().map(|name| printable(Path::new(name))).unwrap_or_default();
    let behind = |(at, _): (usize, &str)| {
        let (before, after) = (&message[..at], &message[at + name.len()..]);
        // A word of the sentence may equal the name.
        let is_prefix = before.ends_with(' ') && after.starts_with(':');
        let matches = before.is_empty() || before.ends_with(['/', '"']) || is_prefix;
        let reason = after.trim_start_matches(['"', ':', ' ']);
        (matches && reason.len() < after.len() && !reason.is_empty()).then(|| reason.to_owned())
    };
    // From the end: a directory with the same name may precede the file.
    let found = message.rmatch_indices(&name).filter(|_| !name.is_empty()).find_map(behind);
    found.unwrap_or(message)
}

/// True if a message names a file, by its path on either side. The name is the
/// same there, and follows a slash, or precedes a colon or the event.
fn is_named(path: &Path, message: &str) -> bool {
    let name = path.file_name().map(|name| printable(Path::new(name))).unwrap_or_default();
    let matches = |(at, _): (usize, &str)| {
        let (before, after) = (&message[..at], &message[at + name.len()..]);
        let ends = after.is_empty() || after.starts_with([' ', ':']);
        let happened = [" changed while", " vanished"].iter().any(|event| after.starts_with(event));
        before.ends_with('/') && ends
            || before.ends_with(' ') && after.starts_with(':')
            || before.is_empty() && happened
    };
    message.contains(&printable(path))
        || !name.is_empty() && message.match_indices(&name).any(matches)
}

#[cfg(test)]
mod tests {
    use super::super::handles::testing::buffers;
    use super::*;
    use bankfull::{Error, ErrorKind, Summary};

    #[test]
    fn failed_file_is_named_once() {
        let line = |message| failed_line(Path::new("a/b"), message);
        assert_eq!(line("cannot read a/b: gone"), "bankfull: cannot read a/b: gone");
        for named in
            ["cannot read un/b: gone", "vv/b changed", "b vanished before", "cannot read b: no"]
        {
            assert_eq!(line(named), format!("bankfull: {named}"));
        }
        assert_eq!(line("a big one: gone"), "bankfull: a/b: a big one: gone");
        let message = "a directory named \"a\" is in the way";
        assert_eq!(failed_line(Path::new("d/a"), message), format!("bankfull: d/a: {message}"));
        assert_eq!(line("the disk is full"), "bankfull: a/b: the disk is full");
    }

    #[test]
    fn reason_follows_the_name() {
        let of = |message| reason(Path::new("d/b"), message);
        for named in [
            "cannot write far/d/b: no space left",
            "cannot create a file for \"b\": no space left",
            "b: no space left",
            "no space left",
        ] {
            assert_eq!(of(named), "no space left");
        }
        assert_eq!(of("d/b vanished before it was read"), "vanished before it was read");
        assert_eq!(reason(Path::new("/"), "cannot read /: gone"), "cannot read /: gone");
    }

    #[test]
    fn quiet_shows_only_errors() {
        let (output, out, err) = buffers();
        let mut quiet = Quiet::new(output);
        quiet.event(&Event::Warning { message: "hello".to_owned() });
        quiet.event(&Event::FileFailed {
            path: "a\nb".into(),
            message: "permission denied".to_owned(),
            vanished: false,
        });
        quiet.end(&Ending::Copied(&Summary::default()));
        quiet.end(&Ending::Failed(&Error::new(ErrorKind::Network, "connection lost")));
        assert_eq!(out.text(), "");
        assert_eq!(
            err.lines(),
            ["bankfull: a\\nb: permission denied", "bankfull: connection lost"]
        );
    }
}
