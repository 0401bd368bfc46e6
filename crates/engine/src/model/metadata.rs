//! Metadata that a transfer keeps, and changes of it.

use bankfull_proto::account_map::AccountMap;
use bankfull_proto::chmod::ModeChanges;
use bankfull_proto::wire::control::MetadataRules;
use bankfull_sys::SpecialFile;

/// Kind of metadata that a transfer may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataKind {
    /// Modes. Kept by default.
    ///
    /// Without them, existing entries keep theirs, and new ones obey the umask.
    Modes,
    /// Modification times. Kept by default.
    Times,
    /// Modification times of directories. Kept by default.
    DirTimes,
    /// Symlinks. Kept by default.
    Symlinks,
    /// Owners, if the receiver may set them.
    Owner,
    /// Groups, if the receiver may set them.
    Group,
    /// Names of owners and groups, which the receiver looks up. Kept by default.
    AccountNames,
    /// Character and block devices.
    Devices,
    /// FIFOs and sockets.
    Specials,
    /// Hard links among the copied entries.
    HardLinks,
    /// Extended attributes.
    Xattrs,
    /// POSIX access control lists.
    Acls,
    /// Access times of all but directories.
    AccessTimes,
    /// Access times at the source: it is read without changing them where that is permitted.
    SourceAccessTimes,
}

/// Metadata that a transfer keeps. Default: modes, modification times and symlinks.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    pub(crate) rules: MetadataRules,
    pub(crate) changes: MetadataChanges,
}

/// Metadata that a peer may have set here; none by default, as at a daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Permits {
    /// Owners and groups.
    pub(crate) owner: bool,
    /// Devices.
    pub(crate) devices: bool,
    /// Extended attributes outside the `user` namespace.
    pub(crate) privileged_xattrs: bool,
    /// Set-user-ID and set-group-ID bits.
    pub(crate) set_id: bool,
    /// Directories that their owner cannot read, as a quota needs to.
    pub(crate) closed_dirs: bool,
}

impl Permits {
    /// All: within a host, over ssh, and for metadata that the user of a pull requests.
    pub(crate) const ALL: Self = Self {
        owner: true,
        devices: true,
        privileged_xattrs: true,
        set_id: true,
        closed_dirs: true,
    };
}

/// Changes that the side of the user makes.
#[derive(Debug, Clone, Default)]
pub(crate) struct MetadataChanges {
    pub(crate) modes: ModeChanges,
    pub(crate) users: AccountMap,
    pub(crate) groups: AccountMap,
}

impl Metadata {
    /// Keeps or drops a kind of metadata.
    #[must_use]
    pub fn keep(mut self, kind: MetadataKind, keep: bool) -> Self {
        let (rule, is_negative) = rule_of(kind);
        let rest = self.rules.without(rule);
        self.rules = rest.with(rule, keep != is_negative);
        self
    }

    /// Changes modes in the notation of chmod(1) with rsync's `D` and `F`, such as `D755,F644`.
    ///
    /// # Errors
    /// The clause that cannot be parsed.
    pub fn chmod(mut self, text: &str) -> Result<Self, String> {
        let changes = ModeChanges::parse(text, bankfull_sys::umask())?;
        self.changes.modes = self.changes.modes.then(changes);
        Ok(self)
    }

    /// Replaces owners by rules of rsync's `--usermap`, such as `alice:bob,1000-1999:www`.
    ///
    /// Owners are then kept.
    ///
    /// # Errors
    /// The rule that cannot be parsed.
    pub fn user_map(mut self, text: &str) -> Result<Self, String> {
        self.changes.users = AccountMap::parse(text)?;
        Ok(self.keep(MetadataKind::Owner, true))
    }

    /// Replaces groups as [`user_map`](Self::user_map) does owners.
    ///
    /// # Errors
    /// The rule that cannot be parsed.
    pub fn group_map(mut self, text: &str) -> Result<Self, String> {
        self.changes.groups = AccountMap::parse(text)?;
        Ok(self.keep(MetadataKind::Group, true))
    }

    /// Replaces all owners and groups by `USER`, `USER:GROUP` or `:GROUP`.
    ///
    /// # Errors
    /// Text of another form.
    pub fn chown(mut self, text: &str) -> Result<Self, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        if user.is_empty() && group.is_empty() {
            return Err(format!("{text:?} names neither a user nor a group: write USER:GROUP"));
        }
        if !user.is_empty() {
            self.changes.users = AccountMap::all_to(user)?;
            self = self.keep(MetadataKind::Owner, true);
        }
        if !group.is_empty() {
            self.changes.groups = AccountMap::all_to(group)?;
            self = self.keep(MetadataKind::Group, true);
        }
        Ok(self)
    }
}

/// Returns the rule of a kind; true if the rule leaves it out.
fn rule_of(kind: MetadataKind) -> (MetadataRules, bool) {
    match kind {
        MetadataKind::Modes => (MetadataRules::NO_MODES, true),
        MetadataKind::Times => (MetadataRules::NO_TIMES, true),
        MetadataKind::DirTimes => (MetadataRules::NO_DIR_TIMES, true),
        MetadataKind::Symlinks => (MetadataRules::NO_SYMLINKS, true),
        MetadataKind::AccountNames => (MetadataRules::NUMERIC_IDS, true),
        MetadataKind::Owner => (MetadataRules::OWNER, false),
        MetadataKind::Group => (MetadataRules::GROUP, false),
        MetadataKind::Devices => (MetadataRules::DEVICES, false),
        MetadataKind::Specials => (MetadataRules::SPECIALS, false),
        MetadataKind::HardLinks => (MetadataRules::HARD_LINKS, false),
        MetadataKind::Xattrs => (MetadataRules::XATTRS, false),
        MetadataKind::Acls => (MetadataRules::ACLS, false),
        MetadataKind::AccessTimes => (MetadataRules::ATIMES, false),
        MetadataKind::SourceAccessTimes => (MetadataRules::OPEN_NOATIME, false),
    }
}

/// Returns the rule that keeps a special file.
pub(crate) fn special_rule(special: SpecialFile) -> MetadataRules {
    match special {
        SpecialFile::Fifo | SpecialFile::Socket => MetadataRules::SPECIALS,
        SpecialFile::CharDevice(..) | SpecialFile::BlockDevice(..) => MetadataRules::DEVICES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_keeps_modes_times_and_symlinks_alone() {
        let metadata = Metadata::default();
        assert!(metadata.rules.is_empty());
        let metadata = metadata.keep(MetadataKind::Modes, false).keep(MetadataKind::Owner, true);
        assert!(metadata.rules.has(MetadataRules::NO_MODES));
        assert!(metadata.rules.has(MetadataRules::OWNER));
        let metadata = metadata.keep(MetadataKind::Modes, true).keep(MetadataKind::Owner, false);
        assert!(metadata.rules.is_empty());
    }

    #[test]
    fn chown_keeps_what_it_replaces() {
        let metadata = Metadata::default().chown("alice:www").unwrap();
        assert!(metadata.rules.has(MetadataRules::OWNER));
        assert!(metadata.rules.has(MetadataRules::GROUP));
        let metadata = Metadata::default().chown(":www").unwrap();
        assert!(!metadata.rules.has(MetadataRules::OWNER));
        assert!(Metadata::default().chown(":").is_err());
    }
}
