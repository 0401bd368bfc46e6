//! Metadata of source entries beyond modes and times: attributes, accounts, hard links.

use crate::base::accounts::Accounts;
use crate::base::sync::lock;
use crate::model::metadata::Metadata;
use crate::transfer::accounts::account_of;
use bankfull_proto::acl;
use bankfull_proto::filter::{FilterScope, Side};
use bankfull_proto::limits::{MAX_ACCOUNTS, MAX_XATTRS_BYTES};
use bankfull_proto::wire::control::{
    Account, AccountKind, Entry, EntryKind, ExtraMetadata, MetadataRules, Xattr,
};
use bankfull_sys::{Dir, FileKind, Stat, Timestamp, XattrTarget};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Metadata of the entries of a walk.
#[derive(Debug, Default)]
pub(crate) struct SourceMetadata {
    keep: Metadata,
    /// Rules for extended attributes.
    filters: FilterScope,
    accounts: Accounts,
    /// Accounts that the receiver knows of.
    announced: Mutex<HashSet<(AccountKind, u32)>>,
    links: Mutex<LinkGroups>,
    /// True if symlinks are followed: an inode may then have more names than links.
    follows_links: bool,
    /// Entries whose attributes exceed the protocol's limit.
    pub(crate) oversized: AtomicU64,
}

/// Inodes with several names of which some are still to come.
#[derive(Debug, Default)]
struct LinkGroups {
    last: u64,
    /// Groups by device and inode.
    by_inode: HashMap<(u64, u64), LinkGroup>,
}

/// Inode with several names.
#[derive(Debug)]
struct LinkGroup {
    number: u64,
    /// Names to come.
    left: u64,
    /// Size and modification time: another file with this inode number has others.
    version: (u64, Timestamp),
}

/// Name of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkName {
    /// The only one.
    Only,
    /// The first one that is announced, with the number of the group.
    First(u64),
    /// Another one.
    Further(u64),
}

impl SourceMetadata {
    /// Returns the reader of what is kept.
    pub(crate) fn new(keep: Metadata, filters: FilterScope, follows_links: bool) -> Self {
        Self { keep, filters, follows_links, ..Self::default() }
    }

    /// True if a kind of metadata is kept.
    pub(crate) fn keeps(&self, rule: MetadataRules) -> bool {
        self.keep.rules.has(rule)
    }

    /// Returns a mode with the changes that the user asks for.
    pub(crate) fn changed_mode(&self, mode: u32, is_dir: bool) -> u32 {
        self.keep.changes.modes.apply(mode, is_dir)
    }

    /// Adds what is kept to an entry.
    ///
    /// It is `name` in a directory, or the directory itself if the name is empty.
    ///
    /// # Errors
    /// Attributes that cannot be read.
    pub(crate) fn complete(
        &self,
        entry: &mut Entry,
        dir: &Dir,
        name: &OsStr,
        stat: &Stat,
    ) -> io::Result<()> {
        let is_dir = entry.kind == EntryKind::Dir;
        if entry.kind != EntryKind::Symlink {
            entry.mode = self.changed_mode(entry.mode, is_dir);
        }
        let mut extra = ExtraMetadata::default();
        if self.keeps(MetadataRules::ATIMES) && !is_dir {
            extra.atime_secs = Some(stat.atime.secs);
            extra.atime_nanos = Some(stat.atime.nanos);
        }
        if self.keeps(MetadataRules::XATTRS | MetadataRules::ACLS) {
            let target = match name.is_empty() {
                true => XattrTarget::open(dir),
                false => XattrTarget::entry(dir, name)?,
            };
            let xattrs = self.read_xattrs(&target, entry.kind)?;
            extra.xattrs = (!xattrs.is_empty()).then_some(xattrs);
        }
        if extra.xattr_bytes() > MAX_XATTRS_BYTES {
            extra.xattrs = None;
            self.oversized.fetch_add(1, Ordering::Relaxed);
        }
        if extra != ExtraMetadata::default() {
            let whole = entry.extra.get_or_insert_default();
            whole.atime_secs = extra.atime_secs;
            whole.atime_nanos = extra.atime_nanos;
            whole.xattrs = extra.xattrs;
        }
        Ok(())
    }

    fn read_xattrs(&self, target: &XattrTarget<'_>, kind: EntryKind) -> io::Result<Vec<Xattr>> {
        let is_privileged = bankfull_sys::effective_uid() == 0;
        let (attributes, acls) =
            (self.keeps(MetadataRules::XATTRS), self.keeps(MetadataRules::ACLS));
        let mut read = Vec::new();
        for name in target.names()? {
            let is_kept = match acl::is_acl(name.as_bytes()) {
                true => acls && kind != EntryKind::Symlink,
                false => {
                    let name = name.as_bytes();
                    let is_excluded = self.filters.excludes_xattr(name, Side::Sender);
                    attributes && acl::is_copied(name, is_privileged) && !is_excluded
                }
            };
            // Without a value, the attribute was removed after it was listed.
            if is_kept && let Some(value) = target.get(&name)? {
                read.push(Xattr { name: name.as_bytes().to_vec(), value });
            }
        }
        Ok(read)
    }

    /// Returns the accounts of an entry that the receiver does not know of.
    pub(crate) fn new_accounts(&self, entry: &Entry) -> Vec<Account> {
        let mut ids = Vec::new();
        if self.keeps(MetadataRules::OWNER) {
            ids.push((AccountKind::User, entry.uid));
        }
        if self.keeps(MetadataRules::GROUP) {
            ids.push((AccountKind::Group, entry.gid));
        }
        let acls = entry.xattrs().iter().filter(|xattr| acl::is_acl(&xattr.name));
        ids.extend(acls.flat_map(|xattr| acl::ids(&xattr.value)));
        if ids.is_empty() {
            return Vec::new();
        }
        let mut announced = lock(&self.announced);
        ids.retain(|id| announced.len() < MAX_ACCOUNTS && announced.insert(*id));
        drop(announced);
        ids.into_iter().filter_map(|(kind, id)| self.account(kind, id)).collect()
    }

    /// Returns the account of a number; `None` if the number stands for itself.
    fn account(&self, kind: AccountKind, id: u32) -> Option<Account> {
        let map = match kind {
            AccountKind::User => &self.keep.changes.users,
            AccountKind::Group => &self.keep.changes.groups,
        };
        let is_named = !self.keeps(MetadataRules::NUMERIC_IDS);
        let name = is_named.then(|| self.accounts.name_of(kind, id)).flatten();
        account_of(kind, id, name, map, is_named)
    }

    /// Enters a name of an inode, if hard links are kept.
    pub(crate) fn link_name(&self, stat: &Stat) -> LinkName {
        if !self.keeps(MetadataRules::HARD_LINKS) || stat.nlink < 2 || stat.kind == FileKind::Dir {
            return LinkName::Only;
        }
        let mut links = lock(&self.links);
        let (inode, version) = ((stat.dev, stat.ino), (stat.size, stat.mtime));
        match links.by_inode.get_mut(&inode) {
            Some(group) if group.version == version => {
                let number = group.number;
                group.left = group.left.saturating_sub(1);
                if group.left == 0 && !self.follows_links {
                    links.by_inode.remove(&inode);
                }
                LinkName::Further(number)
            }
            // A deleted file may have left its inode number to a new one.
            _ => {
                links.last += 1;
                let group = LinkGroup { number: links.last, left: stat.nlink - 1, version };
                links.by_inode.insert(inode, group);
                LinkName::First(links.last)
            }
        }
    }
}

/// Returns the entry of a further name of an inode.
pub(crate) fn further_name(entry: Entry, group: u64) -> Entry {
    let extra = ExtraMetadata { link_group: Some(group), ..ExtraMetadata::default() };
    let (kind, target, extra) = (EntryKind::HardLink, Vec::new(), Some(Box::new(extra)));
    Entry { kind, size: 0, block_bytes: 0, sparse: false, target, extra, ..entry }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::metadata::MetadataKind;

    #[test]
    fn names_of_an_inode_are_forgotten_with_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| dir.path().join(name));
        std::fs::write(&a, b"x").unwrap();
        std::fs::hard_link(&a, &b).unwrap();
        std::fs::write(&c, b"x").unwrap();
        let opened = Dir::open(dir.path()).unwrap();
        let stat = |name: &str| opened.stat(OsStr::new(name)).unwrap();
        let keep = Metadata::default().keep(MetadataKind::HardLinks, true);
        let links = SourceMetadata::new(keep.clone(), FilterScope::default(), false);
        assert_eq!(links.link_name(&stat("a")), LinkName::First(1));
        assert_eq!(links.link_name(&stat("c")), LinkName::Only);
        assert_eq!(links.link_name(&stat("b")), LinkName::Further(1));
        assert!(lock(&links.links).by_inode.is_empty());
        // Through symlinks, an inode has more names than links.
        let links = SourceMetadata::new(keep, FilterScope::default(), true);
        let further: Vec<_> = (0..4).map(|_| links.link_name(&stat("a"))).collect();
        assert_eq!(further[1..], [LinkName::Further(1); 3]);
        let without = SourceMetadata::default();
        assert_eq!(without.link_name(&stat("a")), LinkName::Only);
    }

    #[test]
    fn reused_inode_number_begins_another_group() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
        std::fs::write(&a, b"x").unwrap();
        std::fs::hard_link(&a, &b).unwrap();
        let stat = Dir::open(dir.path()).unwrap().stat(OsStr::new("a")).unwrap();
        let keep = Metadata::default().keep(MetadataKind::HardLinks, true);
        let links = SourceMetadata::new(keep, FilterScope::default(), false);
        assert_eq!(links.link_name(&stat), LinkName::First(1));
        let later = Stat { size: 2, ..stat };
        assert_eq!(links.link_name(&later), LinkName::First(2));
        assert_eq!(links.link_name(&later), LinkName::Further(2));
    }
}
