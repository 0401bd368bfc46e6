//! Flags of `bankfull ls`.

use super::cp::{DaemonFlags, SshFlags};
use super::values::seconds;
use super::{Example, ShowFlags, after_help};
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;

pub(super) const EXAMPLES: &[Example] = &[
    ("bankfull ls bankfull://store/backup", "List a directory of a daemon."),
    ("bankfull ls -lR me@host:data", "List a tree over ssh, with modes, sizes and times."),
];

/// List a file or a directory, here or on another host
///
/// PLACE is a path, `[user@]host:path` over your own ssh, or `bankfull://host[:port]/path` at a
/// daemon. The entries of a directory are listed with a slash behind the names of directories;
/// names that begin with a dot are included.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(EXAMPLES))]
pub(crate) struct LsFlags {
    /// File or directory to list
    ///
    /// Default: the working directory.
    #[arg(value_name = "PLACE", default_value = ".", hide_default_value = true)]
    pub(crate) place: OsString,

    /// Show kind, mode, owner, group, size in bytes and modification time
    ///
    /// Default: names alone.
    #[arg(short, long)]
    pub(crate) long: bool,

    /// List what is in subdirectories, too
    ///
    /// Default: subdirectories are named.
    #[arg(short = 'R', long, visible_short_alias = 'r')]
    pub(crate) recursive: bool,

    /// Give up after this many seconds without a response
    ///
    /// Fractions are allowed.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,

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
