//! Files in earlier copies of the tree (`--link-dest`) that a file becomes a hard link to.
//!
//! Nothing is ever set on such a file: it belongs to the earlier copy as well.

use super::dirs::DestinationDirs;
use super::existing::existing_of;
use super::lost_metadata::LostMetadata;
use super::metadata::Target;
use bankfull_proto::plan::{Plan, plan_file};
use bankfull_proto::wire::control::{ComparisonRules, Differences, Entry};
use bankfull_sys::{Dir, Stat};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// File of an earlier copy with the size, time and metadata of an announced one.
#[derive(Debug)]
pub(crate) struct EarlierCopy {
    /// Its directory.
    pub(super) dir: Arc<Dir>,
    /// Metadata of the source that this receiver cannot set.
    pub(super) lost: LostMetadata,
    /// True if the file at the destination is a name of it.
    pub(super) is_linked: bool,
}

/// Announced file, and what counts as the same one.
pub(super) struct Sought<'s> {
    pub(super) entry: &'s Entry,
    /// Name at the destination.
    pub(super) name: &'s OsStr,
    /// File that is there.
    pub(super) existing: Option<&'s Stat>,
    pub(super) comparison: &'s ComparisonRules,
    /// Tells times that differ by rounding alone.
    pub(super) is_same_time: &'s dyn Fn(&Stat) -> bool,
}

impl Sought<'_> {
    /// True if setting the metadata of an entry would change nothing but its access time.
    ///
    /// `lost` counts what this receiver cannot set.
    pub(super) fn is_met(
        &self,
        dirs: &DestinationDirs,
        (dir, stat): (&Dir, &Stat),
        window: Option<u32>,
        lost: &LostMetadata,
    ) -> bool {
        let at = Target::Entry(dir, self.name);
        let found = dirs.metadata.differences(at, self.entry, stat, window, lost);
        found.is_ok_and(|found| {
            let found = found.without(Differences::ATIME);
            let is_rounded = found.has(Differences::TIME) && (self.is_same_time)(stat);
            let found = if is_rounded { found.without(Differences::TIME) } else { found };
            found.is_empty()
        })
    }

    /// True if a file counts as unchanged, but for its content if that is compared.
    fn is_unchanged(&self, stat: &Stat) -> bool {
        let mut found = existing_of(stat);
        let mut plan = plan_file(self.entry, Some(&found), self.comparison);
        if plan == Plan::Receive && (self.is_same_time)(stat) {
            let Entry { mtime_secs, mtime_nanos, .. } = *self.entry;
            (found.mtime_secs, found.mtime_nanos) = (mtime_secs, mtime_nanos);
            plan = plan_file(self.entry, Some(&found), self.comparison);
        }
        matches!(plan, Plan::Skip | Plan::Compare)
    }
}

impl EarlierCopy {
    /// Returns the first earlier copy with a file's metadata; its content is not compared.
    pub(super) fn find(dirs: &DestinationDirs, sought: &Sought<'_>) -> Option<Self> {
        let above = dirs.path_beneath(sought.entry.parent);
        dirs.earlier.link_dest.iter().find_map(|basis| {
            let dir = basis.open_beneath(above.as_os_str().as_bytes()).ok()?;
            let stat = dir.stat(sought.name).ok()?;
            // Files that may not be linked are excluded here: after the comparison it is too late
            // to copy them. (proc_sys_fs(5), protected_hardlinks)
            let user = bankfull_sys::effective_uid();
            if sought.comparison.by_content && user != 0 && user != stat.uid {
                return None;
            }
            let lost = LostMetadata::default();
            let window = sought.comparison.modify_window;
            if !sought.is_unchanged(&stat) || !sought.is_met(dirs, (&dir, &stat), window, &lost) {
                return None;
            }
            let identity = |stat: &Stat| (stat.dev, stat.ino);
            let existing = sought.existing.map(identity);
            let is_linked = existing == Some(identity(&stat));
            Some(Self { dir: Arc::new(dir), lost, is_linked })
        })
    }

    /// Opens the file, to read its content.
    pub(super) fn open(&self, name: &OsStr) -> io::Result<File> {
        self.dir.open_file(name)
    }
}
