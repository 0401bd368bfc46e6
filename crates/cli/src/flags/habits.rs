//! Accepted flags of other programs, which select the only behaviour that bankfull has.

use clap::{ArgAction, Args};

/// Heading of these flags in the help.
pub(crate) const HEADING: &str = "Always on (accepted for compatibility)";

/// Further flags for what bankfull leaves out anyway.
const LEFT_OUT: [&str; 28] = [
    "no-z",
    "no-8",
    "no-8-bit-output",
    "no-append",
    "no-blocking-io",
    "no-bwlimit",
    "no-contimeout",
    "no-crtimes",
    "no-N",
    "no-d",
    "no-dirs",
    "no-delay-updates",
    "no-drop-D",
    "no-force",
    "no-fuzzy",
    "no-y",
    "no-iconv",
    "no-inplace",
    "no-insecure-links",
    "no-J",
    "no-omit-link-times",
    "no-m",
    "no-prune-empty-dirs",
    "no-mkpath",
    "no-munge-links",
    "no-old-args",
    "no-super",
    "no-write-devices",
];

/// Flags of rsync without effect.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = HEADING)]
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

    /// Protect names of remote files from shells: always on
    #[arg(short = 's', long, alias = "protect-args", hide_short_help = true)]
    secluded_args: bool,

    /// Copy while directories are still being read: always on
    #[arg(long, aliases = ["i-r", "no-inc-recursive", "no-i-r"], hide_short_help = true)]
    inc_recursive: bool,

    /// Keep the executable bits of files: always on, as all modes are kept
    #[arg(short = 'E', long, conflicts_with = "no_perms", hide_short_help = true)]
    executability: bool,

    /// Leave out what bankfull does not do, such as compression: always on
    #[arg(long, aliases = LEFT_OUT, hide_short_help = true)]
    no_compress: bool,
}
