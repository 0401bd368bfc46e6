//! Errors only: failed files, and what ended the command.

use super::text::{printable, printable_text};
use super::{Beginning, Ending, FailedFiles, Output, Render, Serving, findings};
use bankfull::{Error, ErrorKind, Event, Progress, Summary};
use std::path::Path;
use std::time::Duration;

/// `--quiet`.
pub(super) struct Quiet {
    output: Output,
    failed: FailedFiles,
    /// The sources of a gathering, as typed.
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
            // Nobody could reach a daemon on a port that it took by itself and never tells.
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
            // They are what was asked for.
            Ending::Probed(found) => {
                findings::lines(found).iter().for_each(|line| self.output.data_line(line));
            }
            Ending::Copied(_) | Ending::Gathered(_) | Ending::Stopped => {}
        }
    }

    fn wants_settled(&self) -> bool {
        false
    }

    fn output(&mut self) -> &mut Output {
        &mut self.output
    }
}

/// The line of a source that has failed; none for one that was stopped, which the end tells.
pub(super) fn source_failed_line(name: &str, result: &Result<Summary, Error>) -> Option<String> {
    let error = result.as_ref().err().filter(|error| error.kind() != ErrorKind::Interrupted)?;
    Some(format!("bankfull: {name}: {}", printable_text(&error.to_string())))
}

/// Where a daemon listens.
pub(super) fn serving_line(serving: &Serving) -> String {
    format!("serving {} on {}", printable(&serving.root), serving.address)
}

/// The line of a failed file; most messages name it already.
pub(super) fn failed_line(path: &Path, message: &str) -> String {
    let message = printable_text(message);
    if is_named(path, &message) {
        format!("bankfull: {message}")
    } else {
        format!("bankfull: {}: {message}", printable(path))
    }
}

/// Why a file failed: its message from behind its name on, where that stands in it, and all of the
/// message else.
pub(super) fn reason(path: &Path, message: &str) -> String {
    let message = printable_text(message);
    let name = path.file_name().map(|name| printable(Path::new(name))).unwrap_or_default();
    let behind = |(at, _): (usize, &str)| {
        let (before, after) = (&message[..at], &message[at + name.len()..]);
        // A word of the sentence may be a name as well.
        let is_told = before.ends_with(' ') && after.starts_with(':');
        let stands = before.is_empty() || before.ends_with(['/', '"']) || is_told;
        let why = after.trim_start_matches(['"', ':', ' ']);
        (stands && why.len() < after.len() && !why.is_empty()).then(|| why.to_owned())
    };
    // From the end: a directory of the same name stands before it.
    let found = message.rmatch_indices(&name).filter(|_| !name.is_empty()).find_map(behind);
    found.unwrap_or(message)
}

/// Whether a message names a file, by this path or by the one that it has on the other side: the
/// name is the same there, and stands behind a slash, before a colon, or before what happened to
/// it.
fn is_named(path: &Path, message: &str) -> bool {
    let name = path.file_name().map(|name| printable(Path::new(name))).unwrap_or_default();
    let stands = |(at, _): (usize, &str)| {
        let (before, after) = (&message[..at], &message[at + name.len()..]);
        let ends = after.is_empty() || after.starts_with([' ', ':']);
        let happened = [" changed while", " vanished"].iter().any(|what| after.starts_with(what));
        before.ends_with('/') && ends
            || before.ends_with(' ') && after.starts_with(':')
            || before.is_empty() && happened
    };
    message.contains(&printable(path))
        || !name.is_empty() && message.match_indices(&name).any(stands)
}

#[cfg(test)]
mod tests {
    use super::super::handles::testing::buffers;
    use super::*;
    use bankfull::{Error, ErrorKind, Summary};

    #[test]
    fn a_failed_file_is_named_once() {
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
    fn a_reason_is_what_stands_behind_the_name() {
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
    fn only_errors_are_shown() {
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
