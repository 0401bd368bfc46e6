//! Errors only: failed files, and what ended the command.

use super::text::{printable, printable_text};
use super::{Beginning, Ending, FAILED_SHOWN, FailedFiles, Output, Render};
use bankfull::{Event, Progress};
use std::path::Path;
use std::time::Duration;

/// `--quiet`.
pub(super) struct Quiet {
    output: Output,
    failed: FailedFiles,
}

impl Quiet {
    pub(super) fn new(output: Output) -> Self {
        Self { output, failed: FailedFiles::default() }
    }
}

impl Render for Quiet {
    fn begin(&mut self, _beginning: &Beginning) {}

    fn event(&mut self, event: &Event) {
        if let Event::FileFailed { path, message, .. } = event
            && self.failed.show_next(FAILED_SHOWN)
        {
            self.output.message(&failed_line(path, message));
        }
    }

    fn tick(&mut self, _progress: &Progress, _now: Duration) {}

    fn stopping(&mut self) {}

    fn end(&mut self, ending: &Ending<'_>) {
        if let Some(rest) = self.failed.rest() {
            self.output.message(&format!("bankfull: {rest}"));
        }
        if let Ending::Failed(error) = ending {
            self.output.error(&error.to_string());
        }
    }

    fn wants_settled(&self) -> bool {
        false
    }

    fn output(&mut self) -> &mut Output {
        &mut self.output
    }
}

/// The line of a failed file; most messages name it already.
pub(super) fn failed_line(path: &Path, message: &str) -> String {
    let (path, message) = (printable(path), printable_text(message));
    if message.contains(&path) {
        format!("bankfull: {message}")
    } else {
        format!("bankfull: {path}: {message}")
    }
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
        assert_eq!(line("the disk is full"), "bankfull: a/b: the disk is full");
    }

    #[test]
    fn only_errors_are_shown() {
        let (output, out, err) = buffers();
        let mut quiet = Quiet::new(output);
        quiet.event(&Event::Notice { message: "hello".to_owned() });
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
