//! Flags of other programs that are accepted, as bankfull does always what they ask for.

use clap::{ArgAction, Args};

/// Flags of rsync without effect.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Always on (accepted for compatibility)")]
pub(crate) struct HabitFlags {
    /// Show progress: always on at a terminal
    #[arg(long, hide_short_help = true)]
    progress: bool,

    /// Show what these flags of rsync name: accepted, without effect
    #[arg(long, value_name = "FLAGS", hide_short_help = true, action = ArgAction::Append)]
    info: Vec<String>,

    /// Show a summary: always on
    #[arg(long, hide_short_help = true)]
    stats: bool,

    /// Show numbers with units: always on; also the letter h in a group, as in -avh
    #[arg(long, hide_short_help = true)]
    human_readable: bool,

    /// Keep what an interrupted copy has received: always on
    #[arg(long, hide_short_help = true)]
    partial: bool,

    /// Keep holes of files: always on
    #[arg(short = 'S', long, hide_short_help = true)]
    sparse: bool,

    /// Send files that differ as a whole: always on
    #[arg(short = 'W', long, hide_short_help = true)]
    whole_file: bool,

    /// Keep names of remote files from shells: always on
    #[arg(short = 's', long, alias = "protect-args", hide_short_help = true)]
    secluded_args: bool,

    /// Copy while directories are still being read: always on
    #[arg(long, aliases = ["i-r", "no-inc-recursive", "no-i-r"], hide_short_help = true)]
    inc_recursive: bool,
}
