//! Flags about what is copied, with rsync's meaning.

use bankfull::Comparison;
use clap::Args;

/// Flags for what exists at the destination.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "What exists at the destination (as in rsync)")]
pub(crate) struct ComparisonFlags {
    /// Leave files that are newer at the destination as they are
    ///
    /// Whole seconds count. Default: files that differ are replaced.
    #[arg(short, long)]
    update: bool,

    /// Create nothing: update only what exists at the destination
    ///
    /// Default: off.
    #[arg(long, visible_alias = "ignore-non-existing")]
    existing: bool,

    /// Leave files that exist at the destination as they are
    ///
    /// Default: files that differ are replaced.
    #[arg(long)]
    ignore_existing: bool,

    /// Skip files of equal size, whatever their times
    ///
    /// Default: size and modification time must be equal.
    #[arg(long)]
    size_only: bool,

    /// Take times for equal that differ by at most this many seconds
    ///
    /// Nanoseconds do not count then. Default: times must be equal, but for what the file system of
    /// the destination rounds.
    #[arg(long, value_name = "SECONDS")]
    modify_window: Option<u32>,
}

impl ComparisonFlags {
    /// Returns the rules that the flags describe.
    pub(crate) fn comparison(&self) -> Comparison {
        Comparison {
            update: self.update,
            existing_only: self.existing,
            ignore_existing: self.ignore_existing,
            size_only: self.size_only,
            modify_window: self.modify_window,
        }
    }
}
