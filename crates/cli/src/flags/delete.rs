//! Flags for deleting at the destination.

use super::values::count;
use bankfull::Delete;
use clap::Args;

/// Flags for deleting what the source does not have.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Deletion (as in rsync)")]
pub(crate) struct DeleteFlags {
    /// Delete at the destination what the source does not have
    ///
    /// Only in the copied directories, and once everything else has succeeded. What filter rules
    /// exclude stays. Use --dry-run first. Default: nothing is deleted.
    #[arg(long, aliases = ["del", "delete-after", "delete-before", "delete-during", "delete-delay"])]
    delete: bool,

    /// Delete what filter rules exclude, too; implies --delete
    #[arg(long)]
    delete_excluded: bool,

    /// Delete nothing if more than N entries would be deleted
    ///
    /// The exit code is then 25. Default: no limit.
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    max_delete: Option<u64>,

    /// Delete even if entries failed
    ///
    /// Default: nothing is deleted then.
    #[arg(long)]
    ignore_errors: bool,

    /// Delete everything if the source is empty
    ///
    /// Default: nothing is deleted then.
    #[arg(long)]
    allow_empty_source: bool,
}

impl DeleteFlags {
    /// Returns the rules, if something is to be deleted.
    pub(crate) fn delete(&self) -> Option<Delete> {
        (self.delete || self.delete_excluded).then_some(Delete {
            excluded: self.delete_excluded,
            max: self.max_delete,
            ignore_errors: self.ignore_errors,
            empty_source: self.allow_empty_source,
        })
    }

    /// Returns a given flag that has no effect, as there is no --delete.
    pub(crate) fn first_idle(&self) -> Option<&'static str> {
        let idle = [
            (self.max_delete.is_some(), "--max-delete"),
            (self.ignore_errors, "--ignore-errors"),
            (self.allow_empty_source, "--allow-empty-source"),
        ];
        let given = idle.iter().find(|(is_given, _)| *is_given).map(|(_, name)| *name);
        given.filter(|_| self.delete().is_none())
    }
}
