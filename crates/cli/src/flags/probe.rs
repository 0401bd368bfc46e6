//! Flags of `bankfull probe`.

use super::cp::{DaemonFlags, SshFlags};
use super::values::{StreamCount, TuneHow, page, seconds, stream_count};
use super::{Example, ShowFlags, after_help};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const EXAMPLES: &[Example] = &[
    ("bankfull probe --accept-new bankfull://store.example", "Measure the path to a daemon."),
    ("bankfull probe --reverse me@host", "Measure the path from a host, over ssh."),
    ("bankfull probe --time 30 --json host", "Measure for 30 seconds, with JSON output."),
];

/// Measure the path to a host
///
/// HOST is `[user@]host` over your own ssh, or `bankfull://host[:port]` at a daemon. Filler data is
/// sent as a copy would send it, and no file is written. The result has the goodput, the capacity
/// of the link, the RTT with and without load, losses, and the window and stream count that fill
/// the path.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(EXAMPLES))]
pub(crate) struct ProbeFlags {
    /// Host to measure the path to
    #[arg(value_name = "HOST")]
    pub(crate) host: OsString,

    /// Set the duration of the test in seconds, from 1 to 3600
    ///
    /// Fractions are allowed.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) time: Duration,

    /// Measure the path from the host to here
    ///
    /// Default: from here to the host.
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Set the number of data streams (1 to 64, or auto)
    ///
    /// auto works as for a copy.
    #[arg(long, value_name = "N", value_parser = stream_count, default_value = "auto")]
    pub(crate) streams: StreamCount,

    /// Tune window, pacing and stream count, as for a copy
    #[arg(long, value_name = "HOW", value_enum, default_value_t = TuneHow::Auto)]
    pub(crate) tune: TuneHow,

    /// Send data without encryption
    ///
    /// Default: encrypted.
    #[arg(long)]
    pub(crate) no_encryption: bool,

    /// Give up after this many seconds without a response
    ///
    /// Fractions are allowed.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// Write an HTML report of the probe
    ///
    /// The page has the figures, rate, RTT and windows over time, and the decisions with their
    /// reasons. The file name must end in .html. Default: no report.
    #[arg(long, value_name = "FILE.html", value_parser = OsStringValueParser::new().try_map(page))]
    pub(crate) report: Option<PathBuf>,

    /// Output flags.
    #[command(flatten)]
    pub(crate) show: ShowFlags,

    /// Daemon flags.
    #[command(flatten)]
    pub(crate) daemon: DaemonFlags,

    /// Ssh flags.
    #[command(flatten)]
    pub(crate) ssh: SshFlags,
}
