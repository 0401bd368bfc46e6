//! Output of the command: one [`Render`] per format (text, errors only, JSON lines), and the
//! [`Reporter`] that feeds it. Nothing here copies, decides or ends the program.
//!
//! Threads that move data never draw. Their events go into a queue, and the latest progress into a
//! slot; one thread owns the [`Render`], empties the queue and draws ten times per second.

mod changes;
mod daemon;
mod decisions;
mod guard;
mod guard_table;
mod handles;
mod human;
mod json;
mod listing;
mod probe_result;
mod progress;
mod queued;
mod quiet;
mod rate_meter;
mod render;
mod reporter;
mod sources;
mod summary;
mod text;

pub(crate) use decisions::decision_text;
pub(crate) use guard::{GuardOutput, mode_name as guard_mode_name};
pub(crate) use handles::Output;
pub(crate) use probe_result::figures as probe_figures;
pub(crate) use progress::above_progress;
pub(crate) use render::{Beginning, Ending, Render, SCHEMA, Serving};
pub(crate) use reporter::Reporter;
pub(crate) use text::{
    byte_rate, printable, printable_json, printable_text, rfc3339, served_text, utc,
};

use crate::exit::Exit;
use crate::flags::{LsFlags, ShowFlags};
use std::io::IsTerminal;

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

/// Creates the output format of a listing that the flags select.
pub(crate) fn listing_render(flags: &LsFlags) -> Box<dyn Render> {
    let output = Output::standard();
    match flags.show.json {
        true => Box::new(json::Json::new(output, false)),
        false => {
            let escapes = std::io::stdout().is_terminal();
            Box::new(listing::Listing::new(output, flags, escapes))
        }
    }
}

/// Entries that a command lists on standard output.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shown {
    /// Entries that would be copied or deleted.
    pub(crate) dry_run: bool,
    /// Each change, instead of those.
    pub(crate) itemizes: bool,
}

impl Shown {
    /// Returns the entries that a command without itemized changes lists.
    pub(crate) fn of_dry_run(dry_run: bool) -> Self {
        Self { dry_run, itemizes: false }
    }
}

/// Creates the output format that the flags select, which writes to `output`.
pub(crate) fn render(output: Output, flags: &ShowFlags, shown: Shown) -> Box<dyn Render> {
    if flags.json {
        Box::new(json::Json::new(output, flags.verbose > 0 || shown.dry_run))
    } else if flags.quiet {
        Box::new(quiet::Quiet::new(output))
    } else {
        let bar =
            if shown.dry_run || !can_draw() { progress::hidden() } else { progress::on_stderr() };
        Box::new(human::Human::new(output, bar, flags.verbose, shown))
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

#[cfg(test)]
mod tests {
    use super::quiet::rest_of_failed;
    use super::*;
    use bankfull::{Error, FailureFold, Summary};

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
