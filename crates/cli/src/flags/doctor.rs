//! Flags of `bankfull doctor`.

use super::{Example, after_help};
use clap::Args;
use std::path::PathBuf;

pub(super) const EXAMPLES: &[Example] = &[
    ("bankfull doctor", "Show what this host allows, and settings that would help."),
    ("bankfull doctor /srv/data", "The same, and measure how fast a directory is written."),
];

/// Show what this host allows, and the settings that would help
///
/// Checks buffers, congestion controls, io_uring, permissions, limits, the clock, ssh and kernel
/// settings that slow copies down. Each finding names the exact setting and, for the paths of
/// earlier copies, what it would gain. Nothing is changed.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(EXAMPLES))]
pub(crate) struct DoctorFlags {
    /// Measure how fast this directory is written
    ///
    /// A file of 256 MiB is written there and removed. Default: nothing is written.
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Set the state directory, which has the paths of earlier copies
    ///
    /// Default: the environment variable BANKFULL_STATE_DIR, else $XDG_STATE_HOME/bankfull, else
    /// ~/.local/state/bankfull.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Write one JSON object per finding to standard output
    ///
    /// Default: text.
    #[arg(long)]
    pub(crate) json: bool,
}
