//! Announced entries against the request: those that it excludes, and those that it leaves as they
//! are.

use super::dirs::DestinationDirs;
use super::existing::existing_of;
use super::registry::FileRegistry;
use super::requested::RequestedNames;
use super::want_message::{make_left_out, make_want};
use crate::base::error::Error;
use crate::stats::counters::add;
use bankfull_proto::filter::FilterScope;
use bankfull_proto::plan;
use bankfull_proto::selection::allows_entry;
use bankfull_proto::sources::RootNames;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{ComparisonRules, Entry, EntryKind, Verdict, WalkRules, Want};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Rules of the request about the entries that a sender announces.
pub(crate) struct Selection {
    /// Names of the sources, the only entries allowed at the top of the destination.
    pub(crate) root: RootNames,
    /// Filter rules that the sender was asked to apply.
    pub(crate) filters: FilterScope,
    /// Names that were requested.
    pub(crate) names: RequestedNames,
    /// Rules of the walk that the sender was asked to apply.
    pub(crate) walk: WalkRules,
    /// Rules for what exists.
    pub(crate) comparison: ComparisonRules,
}

impl Selection {
    /// Checks that the rules of the request do not exclude an entry.
    pub(super) fn check(&self, entry: &Entry, dirs: &DestinationDirs) -> Result<(), Error> {
        let has_rules = !self.filters.is_empty() || self.walk != WalkRules::default();
        if !has_rules || entry.name.is_empty() {
            return Ok(());
        }
        let path = dirs.path_of(entry.parent, OsStr::from_bytes(&entry.name));
        let path = path.strip_prefix(dirs.path(0)).unwrap_or(&path);
        let bytes = path.as_os_str().as_bytes();
        let is_dir = entry.kind == EntryKind::Dir;
        let dirs_above = bytes.iter().filter(|byte| **byte == b'/').count();
        // Names may be at any depth.
        let depth = match self.walk.has_names() {
            true => 0,
            false => dirs_above + usize::from(self.root.is_contents),
        };
        // Directories above names are announced, whatever the filter rules say.
        let is_filtered = self.filters.surely_excludes(bytes, is_dir)
            && !(is_dir && self.names.are_beneath(bytes));
        let rules = match is_filtered {
            true => "filter rules",
            false if !allows_entry(&self.walk, entry, depth, dirs_above) => "rules of the walk",
            false if !self.names.admit(bytes, is_dir) => "requested names",
            false => return Ok(()),
        };
        let text = format!("{}, which the {rules} exclude", path.display());
        Err(WireError::Unrequested(text).into())
    }

    /// Answers an entry that is left as it is; returns false if it is not.
    pub(super) fn leave_out(
        &self,
        entry: &Entry,
        registry: &FileRegistry<'_>,
        wants: &mut Vec<Want>,
    ) -> bool {
        let dirs = &registry.dirs;
        if !self.comparison.leaves_out() || entry.name.is_empty() || dirs.is_parent_failed(entry) {
            return false;
        }
        let is_beneath = dirs.is_parent_left_out(entry);
        if !is_beneath && !self.is_left_out(entry, dirs) {
            return false;
        }
        let counts = &registry.stats.counts;
        match entry.kind {
            EntryKind::Dir => {
                dirs.add_left_out(entry);
                return true;
            }
            EntryKind::Symlink => add(&counts.symlinks, 1),
            EntryKind::HardLink | EntryKind::Special => {}
            EntryKind::File => {
                add(&counts.files_total, 1);
                add(&counts.bytes_total, entry.known_size());
                let path = || dirs.path_of(entry.parent, &dirs.local_name(entry));
                registry.stats.file_left_out(path, entry.known_size());
            }
        }
        wants.push(match entry.kind {
            EntryKind::File => make_left_out(entry.id),
            _ => make_want(entry.id, Verdict::Skip),
        });
        registry.link_passed(entry);
        true
    }

    /// True if what is in the place of an entry has it left out.
    fn is_left_out(&self, entry: &Entry, dirs: &DestinationDirs) -> bool {
        let existing = match dirs.parent_of(entry) {
            Ok(Some(dir)) => match dir.stat(&dirs.local_name(entry)) {
                Ok(stat) => Some(existing_of(&stat)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(_) => return false,
            },
            Ok(None) => None,
            Err(_) => return false,
        };
        plan::is_left_out(entry, existing.as_ref(), &self.comparison)
    }
}
