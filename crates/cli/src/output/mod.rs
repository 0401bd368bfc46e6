//! What the command shows: one [`Render`] per form (text for people, errors only, JSON lines), and
//! the [`Reporter`] that feeds it. Nothing here copies, decides or ends the program.
//!
//! The threads that move data never draw. Their events go into a queue, and the latest progress
//! into a slot; one thread owns the [`Render`], empties the queue and draws ten times a second.

mod findings;
mod handles;
mod human;
mod json;
mod meter;
mod progress;
mod quiet;
mod reporter;
mod sources;
mod summary;
mod text;

pub(crate) use handles::Output;
pub(crate) use reporter::Reporter;
pub(crate) use text::{byte_rate, printable, printable_text};

use crate::exit::Exit;
use crate::flags::ShowFlags;
use bankfull::{Error, Event, Fingerprint, GatherSummary, ProbeResult, Progress, Round, Summary};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Version of the JSON lines. It grows when a field changes its meaning or goes away; new fields
/// and events may come at any time.
pub(crate) const SCHEMA: u32 = 1;

/// Failed files that are shown one by one without `-v`. [ours: one screen]
const FAILED_SHOWN: u64 = 20;

/// Those of them that failed for the same reason. [ours: enough to see where they are]
const ALIKE_SHOWN: u64 = 5;

/// What is about to happen.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// A copy.
    Copy {
        /// Operands as typed.
        sources: Vec<OsString>,
        /// The last operand as typed.
        destination: OsString,
        /// Whether nothing will be changed.
        dry_run: bool,
    },
    /// A gathering.
    Gather {
        /// Operands as typed, and those of a list as they stand there.
        sources: Vec<OsString>,
        /// The last operand as typed.
        destination: OsString,
        /// Whether nothing will be changed.
        dry_run: bool,
    },
    /// A look at a path.
    Probe {
        /// The host as typed.
        host: OsString,
        /// From there to here.
        reverse: bool,
        /// How long it is filled.
        time: Duration,
    },
    /// A daemon that listens.
    Serve(Serving),
}

/// What clients must know of a daemon.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// What clients pin.
    pub(crate) fingerprint: Fingerprint,
    /// What it serves.
    pub(crate) root: PathBuf,
    /// Command that a client may type.
    pub(crate) example: String,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum Ending<'a> {
    /// The copy came to its end, with or without failed files.
    Copied(&'a Summary),
    /// The gathering came to its end, with or without failed sources.
    Gathered(&'a GatherSummary),
    /// A path was looked at.
    Probed(&'a ProbeResult),
    /// The daemon served its last client.
    Stopped,
    /// It could not go on.
    Failed(&'a Error),
}

impl Ending<'_> {
    /// The exit code that says so.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Copied(summary) => Exit::of_summary(summary),
            Self::Gathered(summary) => Exit::of_gathering(summary),
            Self::Probed(_) | Self::Stopped => Exit::Done,
            Self::Failed(error) => error.kind().into(),
        }
    }
}

/// One form of output. Called from one thread at a time, in this order: `begin`, any number of the
/// others, `end`.
pub(crate) trait Render: Send {
    /// Shows what is about to happen.
    fn begin(&mut self, beginning: &Beginning);

    /// Shows an event that is no progress.
    fn event(&mut self, event: &Event);

    /// Shows progress; called ten times a second with the time since the first call was due.
    fn tick(&mut self, progress: &Progress, now: Duration);

    /// Shows an event of one of several sources that is no progress.
    fn source_event(&mut self, _source: usize, _event: &Event) {}

    /// Shows how one of several sources ended.
    fn source_done(&mut self, _source: usize, _result: &Result<Summary, Error>) {}

    /// Shows a round of all sources that is over.
    fn round(&mut self, _round: &Round) {}

    /// Shows the progress of several sources, as far as they have any; otherwise as
    /// [`tick`](Self::tick).
    fn tick_sources(&mut self, _sources: &[Option<Progress>], _now: Duration) {}

    /// Shows that a signal asked us to stop.
    fn stopping(&mut self);

    /// Shows how it ended.
    fn end(&mut self, ending: &Ending<'_>);

    /// Whether settled files are of interest: most often there are too many to tell each.
    fn wants_settled(&self) -> bool;

    /// The handles written to.
    fn output(&mut self) -> &mut Output;
}

/// The form that the flags ask for.
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

/// Shows the ending and gives the exit code; output that could not be written counts as an error
/// where all else went well.
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

/// Whether standard error is a terminal that can redraw a line. Nothing is ever coloured, so
/// `NO_COLOR` asks for nothing more.
fn can_draw() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Counts failed files and says which are shown.
#[derive(Debug, Default)]
struct FailedFiles {
    shown: u64,
    /// Those that were shown, and those that were not, by why they failed.
    alike: Vec<Alike>,
    /// Those that were not shown, of other reasons.
    hidden: u64,
}

/// Files that failed for the same reason.
#[derive(Debug)]
struct Alike {
    reason: String,
    shown: u64,
    hidden: u64,
}

impl FailedFiles {
    /// Whether to show the next one, which failed for this reason.
    fn show_next(&mut self, reason: &str) -> bool {
        let has_room = self.shown < FAILED_SHOWN;
        let known = self.alike.iter_mut().find(|alike| alike.reason == reason);
        let show = match known {
            Some(alike) => {
                let show = has_room && alike.shown < ALIKE_SHOWN;
                *(if show { &mut alike.shown } else { &mut alike.hidden }) += 1;
                show
            }
            None if has_room => {
                self.alike.push(Alike { reason: reason.to_owned(), shown: 1, hidden: 0 });
                true
            }
            None => {
                self.hidden += 1;
                false
            }
        };
        self.shown += u64::from(show);
        show
    }

    /// The lines in place of those that were not shown.
    fn rest(&self) -> Vec<String> {
        let more = |hidden: u64, why: &str| {
            (hidden > 0).then(|| format!("and {} more{why}; -v shows all", text::grouped(hidden)))
        };
        let alike = self.alike.iter().map(|alike| (alike.hidden, format!(": {}", alike.reason)));
        let others = (self.hidden, " for other reasons".to_owned());
        alike.chain([others]).filter_map(|(hidden, why)| more(hidden, &why)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_files_that_fail_for_the_same_reason_the_first_are_shown_and_the_others_counted() {
        let mut failed = FailedFiles::default();
        let shown = (0..1030).filter(|_| failed.show_next("the disk is full")).count();
        assert_eq!(shown, 5);
        assert!(failed.show_next("permission denied"));
        assert_eq!(failed.rest(), ["and 1 025 more: the disk is full; -v shows all"]);
    }

    #[test]
    fn failed_files_beyond_the_limit_are_counted_whatever_their_reasons() {
        let mut failed = FailedFiles::default();
        let shown = (0..1030).filter(|n| failed.show_next(&format!("error {n}"))).count();
        assert_eq!(shown, 20);
        assert!(!failed.show_next("error 7"));
        assert_eq!(
            failed.rest(),
            ["and 1 more: error 7; -v shows all", "and 1 010 more for other reasons; -v shows all"]
        );
    }

    #[test]
    fn output_that_is_lost_turns_success_into_a_local_error() {
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
        let error = Error::new(bankfull::ErrorKind::Timeout, "silence");
        assert_eq!(end(json(), &Ending::Failed(&error)), Exit::Timeout);
    }
}
