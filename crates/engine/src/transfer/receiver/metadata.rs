//! Metadata of entries at the destination.

use super::lost_metadata::{Lost, LostMetadata};
use super::settable::SettableAccounts;
use crate::base::accounts::Accounts;
use crate::base::error::Error;
use crate::base::owner_access::OWNER_ACCESS;
use crate::base::sync::lock;
use crate::file_io::roots::MetadataTarget;
use crate::model::metadata::{Metadata, Permits};
use crate::transfer::accounts::account_of;
use bankfull_proto::acl;
use bankfull_proto::filter::{FilterScope, Side};
use bankfull_proto::wire::control::{
    Account, AccountKind, Cause, Entry, EntryKind, Failure, MetadataRules, Special, SpecialKind,
    Xattr,
};
use bankfull_sys::{Dir, SpecialFile, Stat, Timestamp, XattrTarget, is_xattr_unsupported};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;

/// Set-user-ID and set-group-ID bits.
const SET_ID_BITS: u32 = 0o6000;

/// Mode bits that a part file needs.
const OWNER_READ_WRITE: u32 = 0o600;

/// Mode bit without which users other than root cannot set attributes.
const OWNER_WRITE: u32 = 0o200;

/// Entry whose metadata is set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'t> {
    File(&'t File),
    Dir(&'t Dir),
    Entry(&'t Dir, &'t OsStr),
}

/// Writer of metadata at the destination, as far as it is kept and permitted.
#[derive(Debug)]
pub(crate) struct MetadataWriter {
    keep: Metadata,
    filters: FilterScope,
    permits: Permits,
    sender_maps_accounts: bool,
    is_superuser: bool,
    settable: SettableAccounts,
    accounts: Accounts,
    /// Numbers at the receiver, by those of the sender.
    ids: Mutex<HashMap<(AccountKind, u32), u32>>,
    pub(crate) lost: LostMetadata,
}

impl MetadataWriter {
    /// Returns a writer of the metadata that a transfer keeps.
    pub(crate) fn new(target: &MetadataTarget) -> Self {
        let (accounts, ids, lost) = Default::default();
        Self {
            keep: target.keep.clone(),
            filters: target.filters.clone(),
            permits: target.permits,
            sender_maps_accounts: target.sender_maps_accounts,
            is_superuser: bankfull_sys::effective_uid() == 0,
            settable: SettableAccounts::of(target.permits),
            accounts,
            ids,
            lost,
        }
    }

    /// True if a kind of metadata is kept.
    pub(crate) fn keeps(&self, rule: MetadataRules) -> bool {
        self.keep.rules.has(rule)
    }

    /// Looks up the accounts that the sender names, if owners or groups are kept.
    ///
    /// # Errors
    /// A name that the user asked for and this host does not have.
    pub(crate) fn on_accounts(
        &self,
        accounts: Vec<Account>,
        is_stopped: impl Fn() -> bool,
    ) -> Result<(), Error> {
        if !self.keeps(MetadataRules::OWNER | MetadataRules::GROUP | MetadataRules::ACLS) {
            return Ok(());
        }
        for account in accounts {
            // A lookup may start a program.
            if is_stopped() {
                return Ok(());
            }
            let (kind, id) = (account.kind, account.id);
            let name = account.name.as_ref().map(|name| name.0.clone());
            let is_mapped = account.required == Some(true) || account.mapped.is_some();
            // A sender that does not have the user's rules must not map accounts.
            let is_mapped = is_mapped && self.sender_maps_accounts;
            let account = match is_mapped {
                true => Some(account),
                false => self.account(kind, id, name),
            };
            let Some(account) = account else { continue };
            let local = self.resolve(&account)?;
            lock(&self.ids).insert((kind, id), local);
        }
        Ok(())
    }

    /// Applies the changes of this side to an announced entry.
    ///
    /// # Errors
    /// An account that the user asked for and this host does not have.
    pub(crate) fn on_entry(&self, entry: &mut Entry) -> Result<(), Error> {
        let changes = &self.keep.changes;
        if !changes.modes.is_empty() && entry.kind != EntryKind::Symlink {
            entry.mode = changes.modes.apply(entry.mode, entry.kind == EntryKind::Dir);
        }
        for (kind, id) in [(AccountKind::User, entry.uid), (AccountKind::Group, entry.gid)] {
            let map = self.account_map(kind);
            if !map.is_empty() && !lock(&self.ids).contains_key(&(kind, id)) {
                let account = self.account(kind, id, None);
                account.map_or(Ok(id), |account| self.resolve(&account))?;
            }
        }
        Ok(())
    }

    fn account_map(&self, kind: AccountKind) -> &bankfull_proto::account_map::AccountMap {
        match kind {
            AccountKind::User => &self.keep.changes.users,
            AccountKind::Group => &self.keep.changes.groups,
        }
    }

    fn account(&self, kind: AccountKind, id: u32, name: Option<Vec<u8>>) -> Option<Account> {
        let is_named = !self.keeps(MetadataRules::NUMERIC_IDS);
        account_of(kind, id, name, self.account_map(kind), is_named)
    }

    /// Returns the number of an account at the receiver.
    fn resolve(&self, account: &Account) -> Result<u32, Error> {
        if let Some(mapped) = account.mapped {
            return Ok(mapped);
        }
        let Some(name) = &account.name else { return Ok(account.id) };
        // The superuser is the same everywhere.
        if account.id == 0 && account.required.is_none() {
            return Ok(0);
        }
        // A daemon that sets no owners looks up none.
        if !self.permits.owner {
            return Ok(account.id);
        }
        match self.accounts.id_of(account.kind, &name.0) {
            Some(id) => Ok(id),
            None if account.required == Some(true) => {
                let kind = match account.kind {
                    AccountKind::User => "user",
                    AccountKind::Group => "group",
                };
                let name = String::from_utf8_lossy(&name.0).into_owned();
                let text = format!(
                    "the receiver has no {kind} {name:?}: create it there, or give its number"
                );
                Err(Failure::new(Cause::Usage, text).into())
            }
            None => Ok(account.id),
        }
    }

    /// Returns the number of an owner or group at the receiver.
    fn local_id(&self, kind: AccountKind, id: u32) -> u32 {
        if let Some(local) = lock(&self.ids).get(&(kind, id)) {
            return *local;
        }
        let account = self.account(kind, id, None);
        account.and_then(|account| self.resolve(&account).ok()).unwrap_or(id)
    }

    /// Sets all metadata of an entry that is new, or that is complete.
    ///
    /// `earlier` is the mode of the entry that it replaces, if any.
    pub(crate) fn apply(
        &self,
        target: Target<'_>,
        entry: &Entry,
        earlier: Option<u32>,
    ) -> io::Result<()> {
        self.apply_to(target, entry, target.stat()?, earlier)
    }

    fn apply_to(
        &self,
        target: Target<'_>,
        entry: &Entry,
        mut now: Stat,
        earlier: Option<u32>,
    ) -> io::Result<()> {
        let is_changed = self.set_owner(target, entry, &now)?;
        if self.set_xattrs(target, entry, &now)? || is_changed {
            now = target.stat()?;
        }
        if entry.kind != EntryKind::Symlink {
            let mode = self.wanted_mode(entry, &now, earlier, &self.lost);
            if now.mode != mode {
                target.set_mode(mode)?;
            }
        }
        self.set_times(target, entry, &now)
    }

    /// Sets the metadata of an existing entry where it differs from what is there `now`.
    pub(crate) fn refresh(
        &self,
        dir: &Dir,
        name: &OsStr,
        entry: &Entry,
        now: Stat,
    ) -> io::Result<()> {
        let earlier = self.keeps(MetadataRules::NO_MODES).then_some(now.mode);
        self.apply_to(Target::Entry(dir, name), entry, now, earlier)
    }

    /// Sets owner and group if they are kept; true if the entry changed.
    fn set_owner(&self, target: Target<'_>, entry: &Entry, now: &Stat) -> io::Result<bool> {
        let (owner, group) = self.wanted_owner(entry, now);
        let mut is_changed = false;
        for (owner, group, lost) in [(owner, None, Lost::Owner), (None, group, Lost::Group)] {
            if owner.is_none() && group.is_none() {
                continue;
            }
            match self.permits.owner {
                true => match target.set_owner(owner, group) {
                    Ok(()) => is_changed = true,
                    Err(e) if is_not_permitted(&e) => self.lost.add(lost, 1),
                    Err(e) => return Err(e),
                },
                false => self.lost.add(lost, 1),
            }
        }
        Ok(is_changed)
    }

    /// Returns owner and group, those alone that are kept and differ.
    fn wanted_owner(&self, entry: &Entry, now: &Stat) -> (Option<u32>, Option<u32>) {
        let differing = |rule, kind, wanted, now| {
            let wanted = self.keeps(rule).then(|| self.local_id(kind, wanted));
            wanted.filter(|wanted| *wanted != now)
        };
        (
            differing(MetadataRules::OWNER, AccountKind::User, entry.uid, now.uid),
            differing(MetadataRules::GROUP, AccountKind::Group, entry.gid, now.gid),
        )
    }

    /// Returns owner and group, those alone that are kept, differ and can be set.
    ///
    /// `lost` counts the others that differ.
    pub(super) fn settable_owner(
        &self,
        entry: &Entry,
        now: &Stat,
        lost: &LostMetadata,
    ) -> (Option<u32>, Option<u32>) {
        let settable = |kind, id: Option<u32>, what| {
            let is_settable = id.is_none_or(|id| self.settable.has(kind, id));
            if !is_settable {
                lost.add(what, 1);
            }
            id.filter(|_| is_settable)
        };
        let (owner, group) = self.wanted_owner(entry, now);
        (
            settable(AccountKind::User, owner, Lost::Owner),
            settable(AccountKind::Group, group, Lost::Group),
        )
    }

    /// Returns the mode that an entry gets.
    ///
    /// Set-id bits of a file would grant another user's rights unless the owner is the same. The
    /// sticky bit grants nothing, and without it mode 1777 of a directory would permit more.
    /// `lost` counts what is not kept.
    pub(super) fn wanted_mode(
        &self,
        entry: &Entry,
        now: &Stat,
        earlier: Option<u32>,
        lost: &LostMetadata,
    ) -> u32 {
        let is_closed = entry.kind == EntryKind::Dir && !self.permits.closed_dirs;
        let access = if is_closed { OWNER_ACCESS } else { 0 };
        if self.keeps(MetadataRules::NO_MODES) {
            // A new directory inherits set-group-ID. (mkdir(2))
            let inherited = if entry.kind == EntryKind::Dir { now.mode & SET_ID_BITS } else { 0 };
            let new = entry.mode & 0o777 & !bankfull_sys::umask() | access;
            return earlier.unwrap_or(new | inherited);
        }
        let mode = entry.mode & 0o7777 | access;
        match (entry.kind, self.permits.set_id) {
            // Existing bits may be inherited: the kernel passes set-group-ID on to subdirectories.
            (EntryKind::Dir, false) => mode & !SET_ID_BITS | now.mode & SET_ID_BITS,
            (EntryKind::Dir, true) => mode,
            (_, permitted) if mode & SET_ID_BITS != 0 => {
                let owner = self.keeps(MetadataRules::OWNER);
                let uid =
                    if owner { self.local_id(AccountKind::User, entry.uid) } else { entry.uid };
                let group = self.keeps(MetadataRules::GROUP);
                let gid =
                    if group { self.local_id(AccountKind::Group, entry.gid) } else { entry.gid };
                let is_kept = permitted && (uid, gid) == (now.uid, now.gid);
                if !is_kept && owner {
                    lost.add(Lost::SetId, 1);
                }
                if is_kept { mode } else { mode & !SET_ID_BITS }
            }
            _ => mode,
        }
    }

    fn set_times(&self, target: Target<'_>, entry: &Entry, now: &Stat) -> io::Result<()> {
        let is_dir = entry.kind == EntryKind::Dir;
        let is_left = MetadataRules::NO_TIMES.with(MetadataRules::NO_DIR_TIMES, is_dir);
        let mtime = mtime_of(entry);
        if !self.keeps(is_left) && now.mtime != mtime {
            target.set_mtime(mtime)?;
        }
        let extra = entry.extra.as_deref();
        let atime = extra.and_then(|extra| Some((extra.atime_secs?, extra.atime_nanos?)));
        match atime.filter(|_| self.keeps(MetadataRules::ATIMES) && !is_dir) {
            Some((secs, nanos)) if now.atime != (Timestamp { secs, nanos }) => {
                target.set_atime(Timestamp { secs, nanos })
            }
            _ => Ok(()),
        }
    }

    /// Sets attributes and access control lists, and removes others; true if the entry changed.
    fn set_xattrs(&self, target: Target<'_>, entry: &Entry, now: &Stat) -> io::Result<bool> {
        let attributes = target.xattrs()?;
        let changes = self.xattr_changes(&attributes, entry, &self.lost)?;
        if !changes.is_empty() && !self.is_superuser && now.mode & OWNER_WRITE == 0 {
            // Attributes of users need write permission; the mode itself is set right after.
            target.set_mode(now.mode | OWNER_WRITE)?;
        }
        for (name, value) in &changes {
            self.change_xattr(&attributes, name, value.as_deref())?;
        }
        Ok(!changes.is_empty())
    }

    /// Returns the attributes to set, and those to remove; `lost` counts what is not kept.
    pub(super) fn xattr_changes(
        &self,
        attributes: &XattrTarget<'_>,
        entry: &Entry,
        lost: &LostMetadata,
    ) -> io::Result<Vec<(OsString, Option<Vec<u8>>)>> {
        if !self.keeps(MetadataRules::XATTRS | MetadataRules::ACLS) {
            return Ok(Vec::new());
        }
        let mut present = HashMap::new();
        for name in attributes.names()?.into_iter().filter(|name| self.is_replaced(name, entry)) {
            if let Some(value) = attributes.get(&name)? {
                present.insert(name, value);
            }
        }
        let mut changes = Vec::new();
        for xattr in entry.xattrs() {
            let name = OsStr::from_bytes(&xattr.name).to_owned();
            let Some(value) = self.wanted_xattr(xattr, entry, lost) else { continue };
            match present.remove(&name) {
                Some(now) if now == value => {}
                None if !attributes.may_keep(&name) => lost.add(lost_kind(&name), 1),
                _ => changes.push((name, Some(value))),
            }
        }
        changes.extend(present.into_keys().map(|name| (name, None)));
        Ok(changes)
    }

    /// True if an attribute at the destination is replaced or removed.
    fn is_replaced(&self, name: &OsStr, entry: &Entry) -> bool {
        let name = name.as_bytes();
        match acl::is_acl(name) {
            true => self.keeps(MetadataRules::ACLS) && entry.kind != EntryKind::Symlink,
            false => {
                let is_excluded = self.filters.excludes_xattr(name, Side::Receiver);
                self.keeps(MetadataRules::XATTRS) && self.may_set(name) && !is_excluded
            }
        }
    }

    /// True if this receiver sets an attribute that is no access control list.
    fn may_set(&self, name: &[u8]) -> bool {
        acl::is_copied(name, self.is_superuser && self.permits.privileged_xattrs)
    }

    /// Returns the value that an attribute gets; `None` if it is not set.
    fn wanted_xattr(&self, xattr: &Xattr, entry: &Entry, lost: &LostMetadata) -> Option<Vec<u8>> {
        if acl::is_acl(&xattr.name) {
            let is_kept = self.keeps(MetadataRules::ACLS) && entry.kind != EntryKind::Symlink;
            let map = |kind, id| self.local_id(kind, id);
            return is_kept.then(|| acl::with_ids(&xattr.value, map)).flatten();
        }
        if !self.keeps(MetadataRules::XATTRS)
            || self.filters.excludes_xattr(&xattr.name, Side::Receiver)
        {
            return None;
        }
        if !self.may_set(&xattr.name) {
            lost.add(Lost::PrivilegedXattr, 1);
            return None;
        }
        Some(xattr.value.clone())
    }

    fn change_xattr(
        &self,
        attributes: &XattrTarget<'_>,
        name: &OsString,
        value: Option<&[u8]>,
    ) -> io::Result<()> {
        let changed = match value {
            Some(value) => attributes.set(name, value),
            None => attributes.remove(name),
        };
        let lost = lost_kind(name);
        match changed {
            Err(e) if is_too_large(&e) => self.lost.add(Lost::LargeXattr, 1),
            Err(e) if is_xattr_unsupported(&e) || is_not_permitted(&e) => self.lost.add(lost, 1),
            changed => return changed,
        }
        Ok(())
    }

    /// True if this receiver may create a special file; counts it if not.
    ///
    /// A dry run does not try: `is_planned` takes it that only root may create devices.
    pub(crate) fn may_create(&self, special: SpecialFile, is_planned: bool) -> bool {
        let may_devices = self.permits.devices && (self.is_superuser || !is_planned);
        let may = may_devices || !is_device(special);
        if !may {
            self.lost.add(Lost::Device, 1);
        }
        may
    }

    /// True if a device could not be created for lack of privileges, which is counted.
    pub(crate) fn is_lost_device(&self, special: SpecialFile, error: &io::Error) -> bool {
        let is_lost = is_device(special) && is_not_permitted(error);
        if is_lost {
            self.lost.add(Lost::Device, 1);
        }
        is_lost
    }

    /// Describes what was not kept, one line each.
    pub(crate) fn losses(&self) -> Vec<Failure> {
        self.lost.describe(&self.permits)
    }
}

impl<'t> Target<'t> {
    fn stat(self) -> io::Result<Stat> {
        match self {
            Self::File(file) => bankfull_sys::stat_file(file),
            Self::Dir(dir) => dir.stat_self(),
            Self::Entry(dir, name) => dir.stat(name),
        }
    }

    pub(super) fn xattrs(self) -> io::Result<XattrTarget<'t>> {
        match self {
            Self::File(file) => Ok(XattrTarget::open(file)),
            Self::Dir(dir) => Ok(XattrTarget::open(dir)),
            Self::Entry(dir, name) => XattrTarget::entry(dir, name),
        }
    }

    fn set_owner(self, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
        match self {
            Self::File(file) => bankfull_sys::set_owner(file, owner, group),
            Self::Dir(dir) => bankfull_sys::set_owner(dir, owner, group),
            Self::Entry(dir, name) => dir.set_owner(name, owner, group),
        }
    }

    fn set_mode(self, mode: u32) -> io::Result<()> {
        match self {
            Self::File(file) => bankfull_sys::set_mode(file, mode),
            Self::Dir(dir) => dir.set_own_mode(mode),
            Self::Entry(dir, name) => dir.set_mode(name, mode),
        }
    }

    fn set_mtime(self, mtime: Timestamp) -> io::Result<()> {
        match self {
            Self::File(file) => bankfull_sys::set_mtime(file, mtime),
            Self::Dir(dir) => dir.set_own_mtime(mtime),
            Self::Entry(dir, name) => dir.set_mtime(name, mtime),
        }
    }

    fn set_atime(self, atime: Timestamp) -> io::Result<()> {
        match self {
            Self::File(file) => bankfull_sys::set_atime(file, atime),
            Self::Dir(dir) => bankfull_sys::set_atime(dir, atime),
            Self::Entry(dir, name) => dir.set_atime(name, atime),
        }
    }
}

/// Returns the kind of an attribute that is not kept.
fn lost_kind(name: &OsStr) -> Lost {
    if acl::is_acl(name.as_bytes()) { Lost::Acl } else { Lost::Xattr }
}

/// True if the user lacks permission, in general or in this user namespace.
fn is_not_permitted(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
}

/// True if a file system has no room for an attribute.
fn is_too_large(error: &io::Error) -> bool {
    use io::ErrorKind::{ArgumentListTooLong, FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), ArgumentListTooLong | FileTooLarge | QuotaExceeded | StorageFull)
}

/// Opens a part file or journal to read and write, whatever its mode.
///
/// Its final mode is set before its final name: a kill in between leaves it so.
pub(crate) fn open_own_rw(dir: &Dir, name: &OsStr) -> io::Result<File> {
    match dir.open_rw(name) {
        Err(e)
            if e.kind() == io::ErrorKind::PermissionDenied
                && dir.add_mode(name, OWNER_READ_WRITE)? =>
        {
            dir.open_rw(name)
        }
        opened => opened,
    }
}

fn is_device(special: SpecialFile) -> bool {
    matches!(special, SpecialFile::CharDevice(..) | SpecialFile::BlockDevice(..))
}

/// Returns the special file of an entry, if it is one.
pub(crate) fn special_of(entry: &Entry) -> Option<SpecialFile> {
    let Special { kind, major, minor } = entry.extra.as_ref()?.special?;
    Some(match kind {
        SpecialKind::Fifo => SpecialFile::Fifo,
        SpecialKind::Socket => SpecialFile::Socket,
        SpecialKind::CharDevice => SpecialFile::CharDevice(major, minor),
        SpecialKind::BlockDevice => SpecialFile::BlockDevice(major, minor),
    })
}

/// Returns an entry's modification time.
pub(crate) fn mtime_of(entry: &Entry) -> Timestamp {
    Timestamp { secs: entry.mtime_secs, nanos: entry.mtime_nanos }
}
