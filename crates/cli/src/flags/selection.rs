//! Flags about what is copied, with rsync's meaning.

use super::values::{count, file_size, time_window};
use super::when::when;
use bankfull::{Bytes, Comparison, Selection};
use clap::{ArgAction, Args};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

/// Flags for what is copied of the sources.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Selection (as in rsync)")]
pub(crate) struct SelectionFlags {
    /// Copy the targets of symlinks, instead of the links
    ///
    /// A daemon follows links that stay beneath its directory. A dangling link fails, and so does
    /// one to a directory above it. Default: symlinks are copied as symlinks.
    #[arg(short = 'L', long)]
    copy_links: bool,

    /// Copy directories that symlinks point to, instead of these links
    ///
    /// Default: symlinks are copied as symlinks.
    #[arg(short = 'k', long)]
    copy_dirlinks: bool,

    /// Leave out symlinks that point outside the copied tree
    ///
    /// Absolute links are always left out. Default: all symlinks are copied.
    #[arg(long)]
    safe_links: bool,

    /// Leave out files smaller than this, such as 1MB or 64KiB
    ///
    /// Default: none.
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    min_size: Option<Bytes>,

    /// Leave out files larger than this, such as 1GB or 4GiB
    ///
    /// Default: none.
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    max_size: Option<Bytes>,

    /// Leave out files that were not modified after this time
    ///
    /// WHEN is a date (2026-01-31), a date and time with its offset from UTC
    /// (2026-01-31T18:00:00Z, 2026-01-31T18:00:00+01:00), or an age in weeks, days, hours, minutes
    /// or seconds (2w, 7d, 36h, 90m, 30s) by the clock of this host. A date begins at midnight UTC.
    /// Default: none.
    #[arg(long, value_name = "WHEN", value_parser = when)]
    newer_than: Option<SystemTime>,

    /// Leave out what is in directories of other file systems
    ///
    /// Such a directory is created empty. Default: they are copied.
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Leave out what is in cache directories (CACHEDIR.TAG)
    ///
    /// The directory and its tag are copied, as by tar. Default: they are copied whole.
    #[arg(long)]
    exclude_caches: bool,

    /// Leave out what is deeper than N directories beneath a source
    ///
    /// 0: a source directory is created empty. Default: no limit.
    #[arg(long, value_name = "N", value_parser = count::<u32>)]
    max_depth: Option<u32>,

    /// Leave out what ignore files of this name in the tree match, such as .gitignore
    ///
    /// The patterns are git's. The flag may be repeated; of several files in a directory, the one
    /// named last takes precedence. Default: none.
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    ignore_file: Vec<OsString>,

    /// Copy a growing file up to the size that it had when it was found
    ///
    /// Its hash covers what was read. Default: a file that changes while it is read is read once
    /// more, and fails if it changes again.
    #[arg(long)]
    follow_growth: bool,

    /// Keep the paths of the sources at the destination
    ///
    /// Of a path with `/./` in it, only the part after it is kept. The directories above a source
    /// are created with the metadata that they have there. Here `-R` means `--recursive`, as in cp.
    /// Default: only the last component of a path is kept.
    #[arg(long)]
    relative: bool,

    /// Copy the names in a file, one on each line; `-`: standard input
    ///
    /// The names are beneath the one source, and keep their paths. A directory is copied without
    /// its contents, unless its name ends with a slash (what is directly in it) or with `-r` (all).
    /// Lines that begin with `#` or `;` do not count. Default: the source is copied whole.
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,

    /// Separate names in --files-from by NUL instead of newlines
    ///
    /// Default: off.
    #[arg(short = '0', long, requires = "files_from")]
    pub(crate) from0: bool,

    /// Copy listed directories with their contents; without a list, always on
    ///
    /// Default: off with --files-from.
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
}

impl SelectionFlags {
    /// Returns the rules that the flags describe.
    pub(crate) fn selection(&self) -> Selection {
        Selection {
            copy_links: self.copy_links,
            copy_dirlinks: self.copy_dirlinks,
            safe_links: self.safe_links,
            min_size: self.min_size,
            max_size: self.max_size,
            newer_than: self.newer_than,
            one_file_system: self.one_file_system,
            exclude_caches: self.exclude_caches,
            max_depth: self.max_depth,
            ignore_files: self.ignore_file.clone(),
            follow_growth: self.follow_growth,
            relative: self.relative,
        }
    }
}

/// Flags for what exists at the destination.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "What exists at the destination (as in rsync)")]
pub(crate) struct ComparisonFlags {
    /// Leave files that are newer at the destination as they are
    ///
    /// Times are compared in whole seconds. Default: files that differ are replaced.
    #[arg(short, long)]
    update: bool,

    /// Create nothing: update only what exists at the destination
    ///
    /// Default: off.
    #[arg(long, visible_alias = "ignore-non-existing")]
    existing: bool,

    /// Leave files that exist at the destination as they are
    ///
    /// Of any kind but directories, also with --delete.
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
    #[arg(long, short_alias = '@', value_name = "SECONDS", value_parser = time_window)]
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
