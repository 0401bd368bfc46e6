//! The flags of `bankfull probe`.

use super::cp::{DaemonFlags, SshFlags};
use super::values::{StreamCount, seconds, stream_count};
use super::{Example, ShowFlags, after_help};
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;

pub(super) const EXAMPLES: &[Example] = &[
    ("bankfull probe bankfull://store.example", "See what the path to a daemon carries."),
    ("bankfull probe --reverse me@host", "See what the path from a host carries, over ssh."),
    ("bankfull probe --time 30 --json host", "Look for half a minute, for a program."),
];

/// Says what the path to a host carries.
///
/// HOST is `[user@]host` over your own ssh, or `bankfull://host[:port]` at a daemon. Data without
/// meaning is sent as a copy would send it, and no file is written. What is told: the rate, the
/// line's capacity, round trips without and with load, losses, and the window and number of
/// connections that fill the path.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(EXAMPLES))]
pub(crate) struct ProbeFlags {
    /// Host to look at.
    #[arg(value_name = "HOST")]
    pub(crate) host: OsString,

    /// Sets how long the path is filled, in seconds, from 1 to 3600; fractions are allowed.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) time: Duration,

    /// Looks at the path from there to here. Default: from here to there.
    #[arg(long)]
    pub(crate) reverse: bool,

    /// Sets the number of data connections, 1 to 64; auto is as for a copy.
    #[arg(long, value_name = "N", value_parser = stream_count, default_value = "auto")]
    pub(crate) streams: StreamCount,

    /// Sends without encryption. Default: encrypted.
    #[arg(long)]
    pub(crate) no_encryption: bool,

    /// Gives up when nothing was heard from the far side for this long, in seconds; fractions are
    /// allowed.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// What is shown.
    #[command(flatten)]
    pub(crate) show: ShowFlags,

    /// How a daemon is reached.
    #[command(flatten)]
    pub(crate) daemon: DaemonFlags,

    /// How ssh is called.
    #[command(flatten)]
    pub(crate) ssh: SshFlags,
}
