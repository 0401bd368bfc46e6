//! Flags of `bankfull config`.

use super::{Example, after_help};
use clap::{Args, ValueEnum};

pub(super) const EXAMPLES: &[Example] = &[
    ("bankfull config show", "Show the values in force, and the file of each."),
    ("bankfull config path", "Show the paths of the configuration files."),
];

/// Show the configuration files and their values
///
/// The files have defaults of flags in the tables `[cp]`, `[gather]`, `[probe]` and `[serve]`, and
/// named remotes in `[remote.NAME]`. Flags and environment variables override them.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(EXAMPLES))]
pub(crate) struct ConfigFlags {
    /// View: show, the values in force; path, the paths of the files
    #[arg(value_name = "VIEW", value_enum, hide_possible_values = true)]
    pub(crate) view: ConfigView,

    /// Write one JSON object per line
    ///
    /// Default: text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Views of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigView {
    /// Values in force, with their files.
    Show,
    /// Paths of the files.
    Path,
}
