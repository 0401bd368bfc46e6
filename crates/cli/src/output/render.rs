//! Output formats: the trait [`Render`], and the beginning and the end of a command.

use super::handles::Output;
use crate::exit::Exit;
use bankfull::{
    Error, Event, Fingerprint, GatherSummary, ProbeResult, Progress, Round, Served, ServerLimits,
    Summary,
};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

/// Version of the JSON lines. It increases when a field changes its meaning or is removed; new
/// fields and events may be added at any time.
pub(crate) const SCHEMA: u32 = 1;

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
    /// A listing.
    List {
        /// Operand as typed.
        place: OsString,
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
    /// Served directories.
    pub(crate) served: Served,
    /// Example command for a client.
    pub(crate) example: String,
    /// Limits of connections.
    pub(crate) limits: ServerLimits,
    /// Warnings about the configuration.
    pub(crate) warnings: Vec<String>,
    /// Address of the metrics, if they are offered.
    pub(crate) metrics: Option<SocketAddr>,
    /// Invite for `bankfull login`, if one is wanted.
    pub(crate) invite: Option<String>,
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
