//! Errors only: failed files, and the error that ended the command.

use super::changes::change_line;
use super::text;
use super::text::{printable, printable_text};
use super::{Beginning, Ending, Output, Render, probe_result};
use bankfull::{Error, ErrorKind, Event, FailureFold, FoldedFailures, Progress, Summary};
use std::path::Path;
use std::time::Duration;

/// Output with `--quiet`.
pub(super) struct Quiet {
    output: Output,
    failed: FailureFold,
    /// Sources of a gathering, as typed.
    sources: Vec<String>,
}

impl Quiet {
    pub(super) fn new(output: Output) -> Self {
        Self { output, failed: FailureFold::default(), sources: Vec::new() }
    }
}

impl Render for Quiet {
    fn begin(&mut self, beginning: &Beginning) {
        if let Beginning::Gather { sources, .. } = beginning {
            self.sources = sources.iter().map(|s| printable(s.as_ref())).collect();
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::FileFailed { path, message, .. } if self.failed.show_next(path, message) => {
                self.output.message(&failed_line(path, message));
            }
            // The list is what the user requested.
            Event::Changed(change) => self.output.data_line(&change_line(change)),
            _ => {}
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
        for rest in rest_of_failed(&mut self.failed) {
            self.output.message(&format!("bankfull: {rest}"));
        }
        match ending {
            Ending::Failed(error) => self.output.error(&error.to_string()),
            // The result is what the user requested.
            Ending::Probed(result) => {
                probe_result::lines(result).iter().for_each(|line| self.output.data_line(line));
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

/// Formats the lines that replace the failed files not shown.
pub(super) fn rest_of_failed(fold: &mut FailureFold) -> Vec<String> {
    let line = |folded: FoldedFailures| {
        let more = text::count(folded.files, "more failed file", "more failed files");
        let why = match folded.reason {
            Some(reason) => format!("with the same reason ({reason})"),
            None => "with other reasons".to_owned(),
        };
        format!("and {more} {why}; -v shows all")
    };
    fold.take_folded().into_iter().map(line).collect()
}

/// Formats the line of a failed source; `None` for a cancelled one, as the end reports that.
pub(super) fn source_failed_line(name: &str, result: &Result<Summary, Error>) -> Option<String> {
    let error = result.as_ref().err().filter(|error| error.kind() != ErrorKind::Interrupted)?;
    Some(format!("bankfull: {name}: {}", printable_text(&error.to_string())))
}

/// Formats the line of a failed file; most messages name it already.
pub(super) fn failed_line(path: &Path, message: &str) -> String {
    let message = printable_text(message);
    if is_named(path, &message) || names_source(&message) {
        format!("bankfull: {message}")
    } else {
        format!("bankfull: {}: {message}", printable(path))
    }
}

/// True if a message names the source that cannot be read: it may have another name.
fn names_source(message: &str) -> bool {
    let name = message.strip_prefix("cannot read ");
    name.is_some_and(|name| !name.starts_with("the ") && name.contains(": "))
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
        let renamed = "cannot read /etc/shadow: permission denied";
        assert_eq!(line(renamed), format!("bankfull: {renamed}"));
        assert_eq!(
            line("cannot read the input: gone"),
            "bankfull: a/b: cannot read the input: gone"
        );
        assert_eq!(line("the disk is full"), "bankfull: a/b: the disk is full");
    }

    #[test]
    fn quiet_shows_only_errors() {
        let (output, out, err) = buffers();
        let mut quiet = Quiet::new(output);
        quiet.event(&Event::Warning { message: "hello".to_owned() });
        quiet.event(&Event::FileFailed {
            path: "a\nb".into(),
            message: "permission denied".to_owned(),
            cause: "permission",
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
