//! Hard links at the destination: further names of entries that the session has put in place.

use super::changes::changed_kind;
use super::dirs::DestinationDirs;
use super::earlier_copy::EarlierCopy;
use super::existing::in_the_way;
use super::incoming::IncomingFile;
use super::link_groups::{FirstName, Group};
use super::lost_metadata::Lost;
use super::part_file::{create_replacing, refuse_received, remove_journal};
use super::registry::FileRegistry;
use super::want_message::{make_refusal, make_want};
use crate::base::error::failure;
use crate::base::event::Outcome;
use crate::base::part_names::PartNames;
use crate::stats::counters::add;
use bankfull_proto::limits::MAX_PATH_BYTES;
use bankfull_proto::sources::split_path;
use bankfull_proto::wire::control::{
    Aborted, Cause, Entry, EntryKind, Failure, Message, Verdict, Want,
};
use bankfull_sys::{Dir, FileKind};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reason of a further name that cannot be made.
const FIRST_FAILED: &str = "the file that it is a hard link to was not copied";

/// Answer to a further name that waited.
enum Answer {
    Finished,
    Want(Want),
}

/// Outcome of a further name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkOutcome {
    Made,
    /// The name exists already.
    Unchanged,
    /// A dry run would make it.
    WouldMake,
    LeftOut,
    /// The name is to be announced with its content.
    ContentRequested,
}

impl FileRegistry<'_> {
    /// Makes the further names that wait for an entry, which is in place.
    pub(crate) fn link_placed(&self, entry: &Entry, dir: u64, name: &OsStr) {
        let Some(group) = entry.link_group() else { return };
        let path = self.dirs.path_of(dir, name);
        let path = path.strip_prefix(self.dirs.path(0)).unwrap_or(&path);
        let path = path.as_os_str().as_bytes().into();
        let first = FirstName { path, kind: changed_kind(entry), size: entry.size };
        self.make_waiting(self.links.place(group, first));
    }

    /// Leaves out the further names of an entry that is left out.
    pub(crate) fn link_left_out(&self, entry: &Entry) {
        if let Some(group) = entry.link_group() {
            self.make_waiting(self.links.settle(group, Group::LeftOut));
        }
    }

    /// Passes over an entry that rules leave out: the next name brings the content.
    pub(crate) fn link_passed(&self, entry: &Entry) {
        if let Some(group) = entry.link_group().filter(|_| entry.kind != EntryKind::HardLink) {
            self.make_waiting(self.links.settle(group, Group::Passed));
        }
    }

    /// Handles a further name that the sender has withdrawn, to announce it with its content.
    pub(crate) fn link_withdrawn(&self, aborted: &Aborted) {
        let Some(group) = self.links.take_asked(aborted.file) else { return };
        self.stats.counts.hard_links.fetch_sub(1, Ordering::Relaxed);
        if !aborted.will_retry {
            self.stats.file_failed(PathBuf::new(), &aborted.failure);
            self.make_waiting(self.links.settle(group, Group::Passed));
        }
    }

    /// Fails the further names of an entry that failed.
    pub(crate) fn link_failed(&self, entry: &Entry) {
        // A further name that fails does so alone.
        if let Some(group) = entry.link_group().filter(|_| entry.kind != EntryKind::HardLink) {
            self.make_waiting(self.links.settle(group, Group::Failed));
        }
    }

    fn make_waiting(&self, names: Vec<Entry>) {
        for entry in names {
            let answer = match self.make_link(&entry) {
                // It waits again, for another first name.
                Ok(None) => continue,
                Ok(Some(LinkOutcome::Made)) => Answer::Finished,
                Ok(Some(outcome)) => Answer::Want(self.link_want(&entry, &outcome)),
                Err(failure) => Answer::Want(self.link_refusal(&entry, failure)),
            };
            let is_final = match answer {
                Answer::Finished => {
                    self.outbox.post_finished(&[entry.id]);
                    true
                }
                Answer::Want(want) => {
                    let is_final = want.verdict.is_final();
                    self.outbox.post(&Message::Wants(vec![want]));
                    is_final
                }
            };
            self.completion.on_completed(usize::from(is_final));
        }
    }

    /// Returns the want for a further name that is not made.
    pub(crate) fn link_want(&self, entry: &Entry, outcome: &LinkOutcome) -> Want {
        match outcome {
            LinkOutcome::WouldMake => {}
            LinkOutcome::ContentRequested => {
                return Want { accepts_early_digest: None, ..make_want(entry.id, Verdict::Send) };
            }
            _ => return make_want(entry.id, Verdict::Skip),
        }
        let path = self.dirs.path_of(entry.parent, &self.dirs.local_name(entry));
        self.stats.file_completed(|| path, Outcome::WouldCopy, 0, None);
        make_want(entry.id, Verdict::WouldSend)
    }

    /// Records a further name that failed; returns its want.
    pub(crate) fn link_refusal(&self, entry: &Entry, failure: Failure) -> Want {
        let path = self.dirs.path_of(entry.parent, &self.dirs.local_name(entry));
        let text = match failure.text.as_str() {
            FIRST_FAILED => format!("cannot create {}: {FIRST_FAILED}", path.display()),
            text => text.to_owned(),
        };
        let failure = Failure::new(failure.cause(), text);
        self.stats.file_failed(path, &failure);
        make_refusal(entry.id, failure)
    }

    /// Makes a further name; `None` if it waits for the first one.
    ///
    /// # Errors
    /// The name cannot be made.
    pub(crate) fn make_link(&self, entry: &Entry) -> Result<Option<LinkOutcome>, Failure> {
        let first = match self.links.state_for(entry) {
            Some(Group::Waiting(_)) => return Ok(None),
            Some(Group::Placed(first)) => first,
            Some(Group::LeftOut) => return Ok(Some(LinkOutcome::LeftOut)),
            Some(Group::Passed) => return Ok(Some(LinkOutcome::ContentRequested)),
            Some(Group::Unknown) => {
                self.dirs.metadata.lost.add(Lost::HardLink, 1);
                return Ok(Some(LinkOutcome::ContentRequested));
            }
            Some(Group::Failed) | None => return Err(Failure::new(Cause::Io, FIRST_FAILED)),
        };
        let differences = self.changes.compare_link(entry, &first);
        let outcome = self.make_link_to(entry, &first.path)?;
        let is_made = outcome != LinkOutcome::Unchanged;
        add(&self.stats.counts.hard_links_created, u64::from(outcome == LinkOutcome::Made));
        self.changes.report_link(entry, &first, differences, is_made);
        Ok(Some(outcome))
    }

    /// Makes a name of the inode that has a path beneath the destination.
    fn make_link_to(&self, entry: &Entry, path: &[u8]) -> Result<LinkOutcome, Failure> {
        let name = self.dirs.local_name(entry);
        let Some(dir) = self.dirs.parent_of(entry)? else {
            return Ok(LinkOutcome::WouldMake);
        };
        let shown = self.dirs.path_of(entry.parent, &name);
        let failed =
            |e: io::Error| failure(format!("cannot create the hard link {}", shown.display()), &e);
        let existing = match dir.stat(&name) {
            Ok(stat) => Some(stat),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        let make_room = || match self.make_room(entry.parent, &name) {
            true => Ok(()),
            false => Err(in_the_way(FileKind::Dir, "hard link", &shown)),
        };
        if self.dry_run && existing.is_some_and(|stat| stat.kind == FileKind::Dir) {
            return make_room().map(|()| LinkOutcome::WouldMake);
        }
        let old = match open_first(&self.dirs, path) {
            Ok(first) => first,
            // What a dry run would have copied.
            Err(_) if self.dry_run => return Ok(LinkOutcome::WouldMake),
            Err(e) => return Err(failed(e)),
        };
        let linked = match old.0.stat(&old.1) {
            Ok(stat) => stat,
            Err(_) if self.dry_run => return Ok(LinkOutcome::WouldMake),
            Err(e) => return Err(failed(e)),
        };
        match existing {
            Some(stat) if (stat.dev, stat.ino) == (linked.dev, linked.ino) => {
                return Ok(LinkOutcome::Unchanged);
            }
            Some(stat) if stat.kind == FileKind::Dir => {
                make_room()?;
                dir.link(&name, &old.0, &old.1).map_err(failed)?;
            }
            Some(stat)
                if (stat.kind, linked.special) == (FileKind::Other, None)
                    && !self.dirs.replaces_special(&stat) =>
            {
                return Err(in_the_way(stat.kind, "hard link", &shown));
            }
            _ if self.dry_run => return Ok(LinkOutcome::WouldMake),
            Some(_) => {
                refuse_received(&dir, &name, &self.session)?;
                self.replace(&dir, &name, Some(entry.parent), &old).map_err(failed)?;
            }
            None => dir.link(&name, &old.0, &old.1).map_err(failed)?,
        }
        Ok(LinkOutcome::Made)
    }

    /// Makes a file a hard link to an earlier copy; a dry run does not.
    ///
    /// `is_unchanged` is true if the existing file needs no backup. Returns false if there may be
    /// no further link to the earlier copy.
    ///
    /// # Errors
    /// The file's directory cannot be opened.
    pub(crate) fn link_earlier(
        &self,
        incoming: &IncomingFile,
        copy: &EarlierCopy,
        is_unchanged: bool,
    ) -> Result<bool, Failure> {
        let (entry, name) = (&incoming.entry, &incoming.name);
        let dir = self.dirs.parent_of(entry)?.filter(|_| !self.dry_run);
        let Some(dir) = dir else { return Ok(true) };
        let old = (Arc::clone(&copy.dir), name.clone());
        let linked = match dir.link(name, &old.0, name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                refuse_received(&dir, name, &self.session)?;
                self.replace(&dir, name, (!is_unchanged).then_some(entry.parent), &old)
            }
            linked => linked,
        };
        if linked.is_ok() {
            add(&self.stats.counts.files_linked, 1);
            add(&self.stats.counts.bytes_linked, entry.size);
        }
        Ok(linked.is_ok())
    }

    /// Replaces an entry by a hard link.
    ///
    /// It is backed up first if the number of its directory is given.
    fn replace(
        &self,
        dir: &Dir,
        name: &OsStr,
        parent: Option<u64>,
        old: &OpenedName,
    ) -> io::Result<()> {
        let names = PartNames::of(name);
        // A journal belongs to its own part file alone.
        remove_journal(dir, &names)?;
        let draft = names.part;
        create_replacing(dir, &draft, || dir.link(&draft, &old.0, &old.1))?;
        let put = match parent {
            Some(parent) => self.dirs.put(dir, &draft, name, parent),
            None => dir.rename(&draft, name),
        };
        // Renaming a name to another one of the same inode leaves both. (rename(2))
        let removed = match dir.unlink(&draft) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
        put.and(removed)
    }
}

/// Name of an inode: its directory, and the name in it.
pub(crate) type OpenedName = (Arc<Dir>, std::ffi::OsString);

fn open_first(dirs: &DestinationDirs, path: &[u8]) -> io::Result<OpenedName> {
    let mut dir = dirs.open(0)?;
    let parts = split_path(path);
    let name = parts.name.ok_or(io::ErrorKind::NotFound)?;
    for piece in pieces(parts.dir) {
        dir = Arc::new(dir.open_beneath(piece)?);
    }
    Ok((dir, OsStr::from_bytes(name).to_owned()))
}

/// Splits a path into pieces that the kernel takes, at most 4095 bytes each.
fn pieces(path: &[u8]) -> Vec<&[u8]> {
    let (mut found, mut left) = (Vec::new(), path);
    while left.len() >= MAX_PATH_BYTES {
        let end = left[..MAX_PATH_BYTES].iter().rposition(|&byte| byte == b'/');
        let (piece, rest) = left.split_at(end.unwrap_or(left.len()));
        found.push(piece);
        left = rest.strip_prefix(b"/").unwrap_or(rest);
    }
    if !left.is_empty() {
        found.push(left);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_path_is_split_between_components() {
        assert!(pieces(b"").is_empty());
        assert_eq!(pieces(b"a/b"), [b"a/b"]);
        let long = vec![[b'd'; 255]; 300].join(&b'/');
        let split = pieces(&long);
        assert!(split.iter().all(|piece| !piece.is_empty() && piece.len() < MAX_PATH_BYTES));
        assert_eq!(split.join(&b'/'), long);
    }
}
