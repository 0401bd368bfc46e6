//! Flags for earlier versions at the destination, and for the sources after the copy.

use bankfull::Backup;
use clap::{ArgAction, Args};
use std::ffi::OsString;
use std::path::PathBuf;

/// Flags for what a copy replaces.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Earlier versions (as in rsync)")]
pub(crate) struct EarlierFlags {
    /// Keep what is replaced or deleted, with the suffix ~
    ///
    /// Default: it is lost.
    #[arg(short, long)]
    backup: bool,

    /// Keep it in this directory instead, under its path; implies --backup
    ///
    /// The directory is relative to the destination, and on its file system.
    #[arg(long, value_name = "DIR")]
    backup_dir: Option<PathBuf>,

    /// Set the suffix of backups
    ///
    /// Default: ~ without --backup-dir, else none.
    #[arg(long, value_name = "SUFFIX")]
    suffix: Option<OsString>,

    /// Make unchanged files hard links to those of an earlier copy; may be repeated
    ///
    /// DIR is relative to the destination, and on its file system. A file is linked if size, time
    /// and all kept metadata are the same.
    #[arg(long, value_name = "DIR", action = ArgAction::Append)]
    pub(crate) link_dest: Vec<PathBuf>,

    /// Remove files and symlinks at the source once the destination has them
    ///
    /// At the end, and only those that have not changed since. All stay after a failure at the
    /// destination, and directories in any case.
    #[arg(long)]
    pub(crate) remove_source_files: bool,
}

impl EarlierFlags {
    /// Returns the place of backups, if they are made.
    pub(crate) fn backup(&self) -> Option<Backup> {
        let is_given = self.backup || self.backup_dir.is_some();
        is_given.then(|| Backup { dir: self.backup_dir.clone(), suffix: self.suffix.clone() })
    }

    /// True if a suffix has no effect.
    pub(crate) fn has_idle_suffix(&self) -> bool {
        self.suffix.is_some() && self.backup().is_none()
    }
}
