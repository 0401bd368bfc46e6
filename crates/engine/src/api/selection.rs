//! [`Comparison`]: rules about what is copied.

use bankfull_proto::wire::control::ComparisonRules;

/// Rules for what exists at the destination. The default is none: files that differ are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Leaves a file as it is if its modification time is later, in whole seconds.
    pub update: bool,
    /// Creates nothing: files that are missing are left out, and missing directories with all that
    /// is in them.
    pub existing_only: bool,
    /// Leaves files that exist as they are.
    pub ignore_existing: bool,
    /// Skips files of equal size, whatever their times.
    pub size_only: bool,
    /// Difference in seconds up to which modification times are equal. `None`: times must be equal
    /// to the nanosecond, but for what the file system of the destination rounds.
    pub modify_window: Option<u32>,
}

impl Comparison {
    /// Returns the rules of a receiver that does, or does not, compare by content.
    pub(crate) fn rules(self, by_content: bool) -> ComparisonRules {
        let Self { update, existing_only, ignore_existing, size_only, modify_window } = self;
        ComparisonRules {
            by_content,
            update,
            existing_only,
            ignore_existing,
            size_only,
            modify_window,
        }
    }
}
