//! Flags of the output, and the end of help texts, which several commands share.

use clap::{ArgAction, Args, ValueEnum};
use std::path::PathBuf;

/// An example command line and its description.
pub(crate) type Example = (&'static str, &'static str);

/// Output flags. Progress and messages go to standard error, data to standard output.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ShowFlags {
    /// Write one JSON object per line to standard output
    ///
    /// The manual page (`bankfull man cp`) describes them. Default: text.
    #[arg(long)]
    pub(crate) json: bool,

    /// Show each step; -vv, the log too
    ///
    /// -v shows the connection and, where there are any, destinations, every copied file and the
    /// tuning decisions. -vv also shows unchanged files, and the log at level debug. Default: a
    /// progress line on a terminal, failed files and a summary.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Show only errors and requested data
    ///
    /// Data is a listing, itemized changes, or the result of a probe.
    ///
    /// Default: off.
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    pub(crate) quiet: bool,

    /// Log flags.
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// Flags of the log, which has a line for each session, failure and warning.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LogFlags {
    /// Append the log to a file
    ///
    /// Lines have the level info and above; with -v, debug; with -vv, trace. The environment
    /// variable BANKFULL_LOG overrides that.
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// Set the format of the log: text or json
    ///
    /// Default: text.
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    pub(crate) log_format: Option<LogFormat>,
}

/// Formats of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Formats the end of a long help text: examples, then every exit code.
pub(super) fn after_help(examples: &[Example]) -> String {
    let examples: Vec<String> =
        examples.iter().map(|(line, what)| format!("  {what}\n    {line}\n")).collect();
    format!("Examples:\n{}\nExit codes:\n{}", examples.concat(), crate::exit::help_table())
}
