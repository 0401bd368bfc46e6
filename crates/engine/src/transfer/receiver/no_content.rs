//! Answers to entries without content: symlinks, hard links and special files.

use super::links::LinkOutcome;
use super::want::WantDecider;
use super::want_message::{make_omission, make_want};
use crate::base::error::Error;
use crate::base::event::Outcome;
use crate::stats::counters::add;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{
    Cause, Entry, EntryKind, Failure, MetadataRules, Verdict, Want,
};
use std::ffi::OsStr;

impl WantDecider<'_> {
    /// Checks that the request asked for entries of this kind.
    pub(super) fn check_kind(&self, entry: &Entry) -> Result<(), Error> {
        let metadata = &self.registry.dirs.metadata;
        let needed = match entry.kind {
            EntryKind::HardLink => MetadataRules::HARD_LINKS,
            EntryKind::Special => {
                let special = entry.extra.as_ref().and_then(|extra| extra.special);
                special.map(|special| special.kind.rule()).unwrap_or_default()
            }
            EntryKind::Symlink if metadata.keeps(MetadataRules::NO_SYMLINKS) => {
                MetadataRules::default()
            }
            _ => {
                self.announce_link(entry);
                return Ok(());
            }
        };
        if metadata.keeps(needed) {
            self.announce_link(entry);
            return Ok(());
        }
        let name = String::from_utf8_lossy(&entry.name);
        Err(WireError::Unrequested(format!("the entry {name:?} of this kind")).into())
    }

    /// Records the first name of an inode with several, if hard links are kept.
    fn announce_link(&self, entry: &Entry) {
        let is_kept = self.registry.dirs.metadata.keeps(MetadataRules::HARD_LINKS);
        if is_kept && entry.kind != EntryKind::HardLink {
            entry.link_group().into_iter().for_each(|group| self.registry.links.announce(group));
        }
    }

    /// Creates an entry, again if a directory was in the way and could be removed.
    ///
    /// `created` is what a dry run returns then.
    fn in_room<T>(
        &self,
        (parent, name): (u64, &OsStr),
        created: T,
        create: impl Fn() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match create() {
            Err(failure)
                if failure.cause() == Cause::IsADirectory
                    && self.registry.make_room(parent, name) =>
            {
                if self.dry_run {
                    Ok(created)
                } else {
                    create()
                }
            }
            done => done,
        }
    }

    /// Creates a symlink.
    pub(super) fn on_symlink(&self, entry: &Entry, wants: &mut Vec<Want>, made: &mut Vec<u64>) {
        let registry = &self.registry;
        add(&registry.stats.counts.symlinks, 1);
        let name = registry.dirs.local_name(entry);
        let differences = registry.changes.compare(entry);
        let placed = registry.dirs.parent_of(entry).and_then(|dir| match dir {
            Some(dir) => {
                self.refuse_received(&dir, &name, entry)?;
                self.in_room((entry.parent, &name), true, || {
                    self.placer.create_symlink(&dir, &name, entry)
                })
            }
            None => Ok(true),
        });
        if let Ok(is_created) = placed {
            registry.changes.report(entry, differences, is_created);
        }
        match placed {
            Ok(true) if self.dry_run => {
                let path = registry.dirs.path_of(entry.parent, &name);
                registry.stats.file_completed(|| path, Outcome::WouldCopy, 0, None);
                wants.push(make_want(entry.id, Verdict::WouldSend));
            }
            Ok(true) => {
                add(&registry.stats.counts.symlinks_created, 1);
                made.push(entry.id);
            }
            Ok(false) => wants.push(make_want(entry.id, Verdict::Skip)),
            Err(failure) => {
                let shown = registry.dirs.path_of(entry.parent, &name);
                return self.refuse(entry, shown, failure, wants);
            }
        }
        registry.link_placed(entry, entry.parent, &name);
    }

    /// Makes a further name of an entry, now or once that is in place.
    pub(super) fn on_hard_link(&self, entry: &Entry, wants: &mut Vec<Want>, made: &mut Vec<u64>) {
        let registry = &self.registry;
        add(&registry.stats.counts.hard_links, 1);
        match registry.make_link(entry) {
            Ok(None) => {}
            Ok(Some(LinkOutcome::Made)) => made.push(entry.id),
            Ok(Some(outcome)) => wants.push(registry.link_want(entry, &outcome)),
            Err(failure) => wants.push(registry.link_refusal(entry, failure)),
        }
    }

    /// Creates a special file.
    pub(super) fn on_special(&self, entry: &Entry, wants: &mut Vec<Want>, made: &mut Vec<u64>) {
        let registry = &self.registry;
        let name = registry.dirs.local_name(entry);
        let shown = || registry.dirs.path_of(entry.parent, &name);
        let differences = registry.changes.compare(entry);
        let placed = registry.dirs.parent_of(entry).and_then(|dir| match dir {
            Some(dir) => {
                self.refuse_received(&dir, &name, entry)?;
                self.in_room((entry.parent, &name), Some(true), || {
                    self.placer.create_special(&dir, &name, entry)
                })
            }
            None => Ok(self.placer.may_create(entry).then_some(true)),
        });
        add(&registry.stats.counts.special_files, u64::from(!matches!(placed, Ok(None))));
        if let Ok(Some(is_created)) = placed {
            registry.changes.report(entry, differences, is_created);
        }
        match placed {
            Ok(Some(true)) if self.dry_run => {
                registry.stats.file_completed(shown, Outcome::WouldCopy, 0, None);
                wants.push(make_want(entry.id, Verdict::WouldSend));
            }
            Ok(Some(true)) => {
                add(&registry.stats.counts.special_files_created, 1);
                made.push(entry.id);
            }
            Ok(Some(false)) => wants.push(make_want(entry.id, Verdict::Skip)),
            Ok(None) => {
                wants.push(make_omission(entry.id));
                return registry.link_left_out(entry);
            }
            Err(failure) => return self.refuse(entry, shown(), failure, wants),
        }
        registry.link_placed(entry, entry.parent, &name);
    }
}
