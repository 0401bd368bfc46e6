//! Plans of announced files, from what is in their place and in earlier copies.

use super::earlier_copy::{EarlierCopy, Sought};
use super::existing::{existing_of, in_the_way};
use super::incoming::{ComparedFile, IncomingFile};
use super::lost_metadata::LostMetadata;
use super::part_file::{refuse_received, remove_part};
use super::place::Placer;
use super::registry::FileRegistry;
use bankfull_proto::plan::{self, Existing, Plan};
use bankfull_proto::wire::control::{ComparisonRules, Entry, Failure, MetadataRules};
use bankfull_sys::{Dir, FileKind, Stat};
use std::io;
use std::sync::Arc;

/// Decides what is done with announced files.
pub(super) struct Planner<'p, 'a> {
    pub(super) registry: &'p FileRegistry<'a>,
    pub(super) placer: &'p Placer,
    pub(super) comparison: &'p ComparisonRules,
}

/// Directory of a file at the destination, and what is in the file's place.
struct Found {
    /// `None` if it does not exist yet in a dry run.
    dir: Option<Arc<Dir>>,
    existing: Option<Stat>,
}

/// Returns an entry with the time of an existing file.
fn with_time_of(entry: &Entry, existing: &Existing) -> Entry {
    let Existing { mtime_secs, mtime_nanos, .. } = *existing;
    Entry { mtime_secs, mtime_nanos, ..entry.clone() }
}

impl Planner<'_, '_> {
    /// Returns the action for a file; one that is skipped has its metadata then.
    ///
    /// # Errors
    /// The reason why the file is refused.
    pub(super) fn plan(&self, incoming: &mut IncomingFile) -> Result<Plan, Failure> {
        let found = self.look(incoming)?;
        let mut plan = self.plan_by_existing(incoming, &found)?;
        if !self.registry.dirs.earlier.link_dest.is_empty() {
            plan = self.plan_by_earlier(incoming, &found, plan)?;
        }
        if let Some(dir) = found.dir.filter(|_| plan == Plan::Skip && !self.registry.dry_run) {
            self.keep(incoming, &dir, found.existing)?;
        }
        Ok(plan)
    }

    /// Looks at the place of a file.
    fn look(&self, incoming: &IncomingFile) -> Result<Found, Failure> {
        let dirs = &self.registry.dirs;
        let dir = dirs.parent_of(&incoming.entry)?;
        let known = dir.as_ref().filter(|_| !dirs.is_parent_created(&incoming.entry));
        let existing = match known.map(|dir| dir.stat(&incoming.name)) {
            Some(Ok(stat)) => Some(stat),
            Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => {
                return Err(self.registry.write_failure(incoming, &e));
            }
            _ => None,
        };
        Ok(Found { dir, existing })
    }

    fn plan_by_existing(&self, incoming: &IncomingFile, at: &Found) -> Result<Plan, Failure> {
        let entry = &incoming.entry;
        let existing = at.existing.as_ref().map(existing_of);
        let mut plan = plan::plan_file(entry, existing.as_ref(), self.comparison);
        if plan == Plan::Receive
            && let Some(stat) = at.existing.as_ref().filter(|_| !self.comparison.by_content)
            && (stat.kind, stat.size) == (FileKind::File, entry.size)
            && self.is_same_time(incoming, at, stat)
        {
            plan = Plan::Skip;
        }
        // A small file would land at once, and the other session fail only at its end.
        let is_new = matches!(plan, Plan::Receive | Plan::Compare) && entry.block_bytes == 0;
        let is_looked_at = !self.registry.dry_run && !self.registry.dirs.is_parent_created(entry);
        if let Some(dir) = at.dir.as_ref().filter(|_| is_new && is_looked_at) {
            refuse_received(dir, &incoming.name, &self.registry.session)?;
        }
        let Some(stat) = at.existing.as_ref().filter(|_| plan == Plan::Refuse) else {
            return Ok(plan);
        };
        let is_replaced = match stat.kind {
            FileKind::Dir if self.registry.dry_run => {
                self.registry.make_room(incoming.dir, &incoming.name)
            }
            FileKind::Dir => self.registry.replaces_dirs(),
            _ => self.registry.dirs.replaces_special(stat),
        };
        match is_replaced {
            true => Ok(Plan::Receive),
            false => Err(in_the_way(stat.kind, "file", &self.registry.path(incoming))),
        }
    }

    /// True if a file has the announced time, but for rounding. A dry run measures no rounding.
    fn is_same_time(&self, incoming: &IncomingFile, at: &Found, stat: &Stat) -> bool {
        let dir = at.dir.as_ref().filter(|_| !self.registry.dry_run);
        let kept = &self.placer.kept_times;
        dir.is_some_and(|dir| kept.is_same(dir, &incoming.name, &incoming.entry, stat))
    }

    /// Makes a file a hard link to an earlier copy, or has both compared.
    ///
    /// A file with several names may be one of an earlier copy: where its metadata differ, another
    /// one takes its place.
    fn plan_by_earlier(
        &self,
        incoming: &mut IncomingFile,
        at: &Found,
        plan: Plan,
    ) -> Result<Plan, Failure> {
        let dirs = &self.registry.dirs;
        let existing = at.existing.as_ref().filter(|stat| stat.kind == FileKind::File);
        let is_same_time = |stat: &Stat| self.is_same_time(incoming, at, stat);
        let sought = Sought {
            entry: &incoming.entry,
            name: &incoming.name,
            existing,
            comparison: self.comparison,
            is_same_time: &is_same_time,
        };
        let is_kept = matches!(plan, Plan::Skip | Plan::Compare);
        let shared = existing.filter(|stat| is_kept && stat.nlink > 1);
        let is_replaced = match (&at.dir, shared) {
            (Some(dir), Some(stat)) => {
                let uncounted = LostMetadata::default();
                // As in rsync, a file of the same content gets the exact time.
                let window = self.comparison.modify_window.filter(|_| plan == Plan::Skip);
                !sought.is_met(dirs, (dir, stat), window, &uncounted)
            }
            _ => false,
        };
        let plan = if is_replaced { Plan::Receive } else { plan };
        let Some(copy) = EarlierCopy::find(dirs, &sought) else {
            return Ok(plan);
        };
        if self.comparison.by_content {
            let window = self.comparison.modify_window;
            let time =
                |stat: &Stat| plan::is_same_time(&incoming.entry, &existing_of(stat), window);
            let has_time =
                existing.is_some_and(time) || dirs.metadata.keeps(MetadataRules::NO_TIMES);
            let is_compared = plan == Plan::Compare;
            incoming.compared = ComparedFile::with_earlier(copy, is_compared, has_time);
            return Ok(Plan::Compare);
        }
        if !copy.is_linked && !self.registry.link_earlier(incoming, &copy, plan == Plan::Skip)? {
            return Ok(plan);
        }
        self.registry.dirs.metadata.lost.add_all(&copy.lost);
        incoming.is_linked = true;
        Ok(Plan::Skip)
    }

    /// Sets the metadata of a file that stays.
    fn keep(
        &self,
        incoming: &IncomingFile,
        dir: &Dir,
        existing: Option<Stat>,
    ) -> Result<(), Failure> {
        let entry = &incoming.entry;
        if entry.block_bytes != 0 && !self.registry.dirs.is_parent_created(entry) {
            remove_part(dir, &incoming.name, &self.registry.session);
        }
        let Some(now) = existing.filter(|_| !incoming.is_linked) else { return Ok(()) };
        let kept = Some(existing_of(&now)).filter(|found| self.keeps_time(entry, found));
        let kept = kept.map(|found| with_time_of(entry, &found));
        self.registry
            .dirs
            .metadata
            .refresh(dir, &incoming.name, kept.as_ref().unwrap_or(entry), now)
            .map_err(|e| self.registry.write_failure(incoming, &e))
    }

    /// True if a time within the window is not set again.
    fn keeps_time(&self, entry: &Entry, existing: &Existing) -> bool {
        self.comparison.modify_window.is_some()
            && plan::is_same_time(entry, existing, self.comparison.modify_window)
    }
}
