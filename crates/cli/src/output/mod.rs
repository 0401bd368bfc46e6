//! Output of the command: one [`Render`] per format (text, errors only, JSON lines), and the
//! [`Reporter`] that feeds it. Nothing here copies, decides or ends the program.
//!
//! Threads that move data never draw. Their events go into a queue, and the latest progress into a
//! slot; one thread owns the [`Render`], empties the queue and draws ten times per second.

mod daemon;
mod decisions;
mod handles;
mod human;
mod json;
mod probe_result;
mod progress;
mod quiet;
mod rate_meter;
mod reporter;
mod sources;
mod summary;
mod text;

pub(crate) use decisions::decision_text;
pub(crate) use handles::Output;
pub(crate) use probe_result::figures as probe_figures;
pub(crate) use progress::above_progress;
pub(crate) use reporter::Reporter;
pub(crate) use text::{byte_rate, printable, printable_json, printable_text};

use crate::exit::Exit;
use crate::flags::ShowFlags;
use bankfull::{
    Error, Event, FailureFold, Fingerprint, FoldedFailures, GatherSummary, ProbeResult, Progress,
    Round, ServerLimits, Summary,
};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Version of the JSON lines. It increases when a field changes its meaning or is removed; new
/// fields and events may be added at any time.
pub(crate) const SCHEMA: u32 = 1;

/// Different warnings of sources shown without `-v`. (chosen: one screen)
const MAX_WARNINGS_SHOWN: usize = 20;

/// Start of a command, with its operands.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// A copy.
    Copy {
        /// Operands as typed.
        sources: Vec<OsString>,
        /// Last operand as typed.
        destination: OsString,
        /// True if nothing will be changed.
        dry_run: bool,
    },
    /// A gathering.
    Gather {
        /// Operands as typed, and the lines of a list.
        sources: Vec<OsString>,
        /// Last operand as typed.
        destination: OsString,
        /// True if nothing will be changed.
        dry_run: bool,
    },
    /// A path measurement.
    Probe {
        /// Host as typed.
        host: OsString,
        /// True if the data flows from the host to here.
        reverse: bool,
        /// Duration of the test.
        time: Duration,
    },
    /// A listening daemon.
    Serve(Serving),
}

/// Information for clients of a daemon.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Listening address.
    pub(crate) address: SocketAddr,
    /// Fingerprint that clients verify.
    pub(crate) fingerprint: Fingerprint,
    /// Served directory.
    pub(crate) root: PathBuf,
    /// Example command for a client.
    pub(crate) example: String,
    /// Limits of connections.
    pub(crate) limits: ServerLimits,
    /// Warnings about the configuration.
    pub(crate) warnings: Vec<String>,
}

/// End of a command, with its result.
#[derive(Debug)]
pub(crate) enum Ending<'a> {
    /// The copy ran to its end, with or without failed files.
    Copied(&'a Summary),
    /// The gathering ran to its end, with or without failed sources.
    Gathered(&'a GatherSummary),
    /// A path was measured.
    Probed(&'a ProbeResult),
    /// The daemon stopped after its last client.
    Stopped,
    /// The command failed.
    Failed(&'a Error),
}

impl Ending<'_> {
    /// Returns the exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Copied(summary) => Exit::of_summary(summary),
            Self::Gathered(summary) => Exit::of_gathering(summary),
            Self::Probed(_) | Self::Stopped => Exit::Done,
            Self::Failed(error) => error.kind().into(),
        }
    }
}

/// An output format. It is called from one thread at a time, in this order: `begin`, any number of
/// the others, `end`.
pub(crate) trait Render: Send {
    /// Shows the start of the command.
    fn begin(&mut self, beginning: &Beginning);

    /// Shows an event other than progress.
    fn event(&mut self, event: &Event);

    /// Shows progress; called ten times per second with the time since the start of the output.
    fn tick(&mut self, progress: &Progress, now: Duration);

    /// Shows an event, other than progress, of one of several sources.
    fn source_event(&mut self, _source: usize, _event: &Event) {}

    /// Shows the result of one of several sources.
    fn source_done(&mut self, _source: usize, _result: &Result<Summary, Error>) {}

    /// Shows a completed round of all sources.
    fn round(&mut self, _round: &Round) {}

    /// Shows the progress of several sources, like [`tick`](Self::tick); `None`: not started. Also
    /// called before a single transfer has progress, with no sources.
    fn tick_sources(&mut self, _sources: &[Option<Progress>], _now: Duration) {}

    /// Shows that a signal requested a stop.
    fn stopping(&mut self);

    /// Shows the end of the command.
    fn end(&mut self, ending: &Ending<'_>);

    /// True if completed files are shown; usually there are too many.
    fn wants_completed(&self) -> bool;

    /// Returns the handles for writing.
    fn output(&mut self) -> &mut Output;
}

/// Creates the output format of a daemon that the flags select.
///
/// `is_silent` leaves standard error to the log, but for an error that ends the daemon.
pub(crate) fn daemon_render(flags: &ShowFlags, is_silent: bool) -> Box<dyn Render> {
    let output = Output::standard();
    match flags.json {
        true => Box::new(json::Json::new(output, flags.verbose > 0)),
        false => Box::new(daemon::Daemon::new(output, flags.quiet, is_silent)),
    }
}

/// Creates the output format that the flags select.
pub(crate) fn render(flags: &ShowFlags, dry_run: bool) -> Box<dyn Render> {
    let output = Output::standard();
    if flags.json {
        Box::new(json::Json::new(output, flags.verbose > 0 || dry_run))
    } else if flags.quiet {
        Box::new(quiet::Quiet::new(output))
    } else {
        let bar = if dry_run || !can_draw() { progress::hidden() } else { progress::on_stderr() };
        Box::new(human::Human::new(output, bar, flags.verbose, dry_run))
    }
}

/// Shows the end and returns the exit code. A failure to write the output is an error if everything
/// else succeeded.
pub(crate) fn end(mut render: Box<dyn Render>, ending: &Ending<'_>) -> Exit {
    render.end(ending);
    match (ending.exit(), render.output().failure()) {
        (Exit::Done, Some(error)) => {
            render.output().error(&error);
            Exit::Local
        }
        (exit, _) => exit,
    }
}

/// True if standard error is a terminal that can redraw a line. The output never has colours, so
/// `NO_COLOR` changes nothing.
fn can_draw() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Formats the lines that replace the failed files not shown.
fn rest_of_failed(fold: &mut FailureFold) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_files_not_shown_are_counted() {
        let mut fold = FailureFold::default();
        for n in 0..1060 {
            let message = if n < 1030 { "the disk is full" } else { &format!("error {n}") };
            fold.show_next("a".as_ref(), message);
        }
        assert_eq!(
            rest_of_failed(&mut fold),
            [
                "and 1 025 more failed files with the same reason (the disk is full); -v shows all",
                "and 15 more failed files with other reasons; -v shows all",
            ]
        );
    }

    #[test]
    fn lost_output_turns_success_into_a_local_error() {
        struct Full;
        impl std::io::Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let json = || -> Box<dyn Render> {
            Box::new(json::Json::new(Output::new(Box::new(Full), Box::new(std::io::sink())), false))
        };
        let summary = Summary::default();
        assert_eq!(end(json(), &Ending::Copied(&summary)), Exit::Local);
        let error = Error::new(bankfull::ErrorKind::Timeout, "no response");
        assert_eq!(end(json(), &Ending::Failed(&error)), Exit::Timeout);
    }
}
