//! Differences of an announced entry from the one in its place.

use super::existing::existing_of;
use super::lost_metadata::LostMetadata;
use super::metadata::{MetadataWriter, Target, mtime_of};
use bankfull_proto::acl;
use bankfull_proto::plan::is_same_time;
use bankfull_proto::wire::control::{Differences, Entry, EntryKind, MetadataRules};
use bankfull_sys::{Stat, Timestamp};
use std::io;
use std::os::unix::ffi::OsStrExt;

impl MetadataWriter {
    /// Returns the differences of an entry from one of its kind; `window` is that of its times.
    ///
    /// Metadata that this receiver cannot set is no difference; `lost` counts it.
    ///
    /// # Errors
    /// Attributes that cannot be read.
    pub(super) fn differences(
        &self,
        target: Target<'_>,
        entry: &Entry,
        now: &Stat,
        window: Option<u32>,
        lost: &LostMetadata,
    ) -> io::Result<Differences> {
        let (owner, group) = self.settable_owner(entry, now, lost);
        let owned = Stat { uid: owner.unwrap_or(now.uid), gid: group.unwrap_or(now.gid), ..*now };
        let mode = self.wanted_mode(entry, &owned, Some(now.mode), lost);
        let has_mode = entry.kind != EntryKind::Symlink;
        let is_file = entry.kind == EntryKind::File;
        let found = Differences::default()
            .with(Differences::SIZE, is_file && now.size != entry.size)
            .with(Differences::TIME, self.sets_other_time(entry, now, window))
            .with(Differences::MODE, has_mode && mode != now.mode)
            .with(Differences::OWNER, owner.is_some())
            .with(Differences::GROUP, group.is_some())
            .with(Differences::ATIME, self.sets_other_atime(entry, now));
        if !self.keeps(MetadataRules::XATTRS | MetadataRules::ACLS) {
            return Ok(found);
        }
        let changed = self.xattr_changes(&target.xattrs()?, entry, lost)?;
        let (acls, others): (Vec<_>, Vec<_>) =
            changed.iter().partition(|(name, _)| acl::is_acl(name.as_bytes()));
        let found = found.with(Differences::ACL, !acls.is_empty());
        Ok(found.with(Differences::XATTR, !others.is_empty()))
    }

    /// True if the modification time is set, and differs.
    fn sets_other_time(&self, entry: &Entry, now: &Stat, window: Option<u32>) -> bool {
        let is_dir = entry.kind == EntryKind::Dir;
        let is_left = MetadataRules::NO_TIMES.with(MetadataRules::NO_DIR_TIMES, is_dir);
        let is_same = match window {
            None => now.mtime == mtime_of(entry),
            window => is_same_time(entry, &existing_of(now), window),
        };
        !self.keeps(is_left) && !is_same
    }

    /// True if the access time is set, and differs.
    fn sets_other_atime(&self, entry: &Entry, now: &Stat) -> bool {
        let is_set = self.keeps(MetadataRules::ATIMES)
            && !matches!(entry.kind, EntryKind::Dir | EntryKind::Symlink);
        let extra = entry.extra.as_deref();
        let wanted = extra.and_then(|extra| Some((extra.atime_secs?, extra.atime_nanos?)));
        wanted.is_some_and(|(secs, nanos)| is_set && now.atime != Timestamp { secs, nanos })
    }
}
