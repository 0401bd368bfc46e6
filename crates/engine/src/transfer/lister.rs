//! Receiver of a listing: it reports the entries that the sender announces, and wants none.

use crate::base::error::Error;
use crate::base::event::{Event, ListedEntry, ListedKind};
use crate::stats::session_stats::SessionStats;
use crate::transfer::receiver::make_want;
use crate::transport::control::{ControlReader, Outbox};
use bankfull_proto::limits::MAX_OUTSTANDING_FILES;
use bankfull_proto::session::{Guard, Role};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{
    Account, AccountKind, Entry, EntryKind, Message, SideSummary, SpecialKind, Verdict,
};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Directories that a sender may leave uncompleted. (chosen: as many as entries of a copy)
const MAX_DIRS: usize = 2 * MAX_OUTSTANDING_FILES as usize;

/// Receiver of a listing.
pub(crate) struct Lister<'a> {
    outbox: Outbox,
    stats: &'a SessionStats<'a>,
    /// True if paths begin with the name of their source: a pattern matches several.
    names_sources: bool,
    /// Directories that are not completed, by number: parent, and name. Paths are not stored, since
    /// those of a hostile sender may be long.
    dirs: HashMap<u64, (u64, Box<[u8]>)>,
    last_id: u64,
    names: HashMap<(AccountKind, u32), OsString>,
}

impl<'a> Lister<'a> {
    pub(crate) fn new(outbox: Outbox, stats: &'a SessionStats<'a>, sources: usize) -> Self {
        let (dirs, last_id, names) = Default::default();
        Self { outbox, stats, names_sources: sources > 1, dirs, last_id, names }
    }

    /// Runs until the sender has finished; returns the sender's report.
    pub(crate) fn run(mut self, reader: &mut ControlReader) -> Result<SideSummary, Error> {
        let mut guard = Guard::new(Role::Receiver);
        loop {
            let message = reader.next()?;
            guard.admit(&message)?;
            match message {
                Message::Entries(entries) => self.on_entries(&entries)?,
                Message::CompletedDirs(dirs) => dirs.iter().for_each(|id| {
                    self.dirs.remove(id);
                }),
                Message::Accounts(accounts) => self.on_accounts(accounts),
                Message::Problem(problem) => self.stats.on_peer_problem(problem),
                Message::Finish(report) => {
                    self.outbox.post(&Message::Done(self.stats.report()));
                    return Ok(report);
                }
                _ => {}
            }
        }
    }

    fn on_accounts(&mut self, accounts: Vec<Account>) {
        for Account { kind, id, name, .. } in accounts {
            let name = name.map(|name| OsString::from_vec(name.0));
            self.names.extend(name.map(|name| ((kind, id), name)));
        }
    }

    fn on_entries(&mut self, entries: &[Entry]) -> Result<(), Error> {
        let mut wants = Vec::new();
        for entry in entries {
            // Ascending numbers: no directory is beneath itself.
            if entry.id <= self.last_id {
                return Err(WireError::BadFileId(entry.id).into());
            }
            self.last_id = entry.id;
            let is_dir = entry.kind == EntryKind::Dir;
            // The contents of a single directory are listed without its name.
            let is_unnamed = is_dir && entry.parent == 0 && !self.names_sources;
            let name = if is_unnamed { &[][..] } else { &entry.name };
            let path = self.path_of(entry.parent, name)?;
            if is_dir {
                let (what, max) = ("the number of directories that are not completed", MAX_DIRS);
                if self.dirs.len() >= max {
                    return Err(WireError::OverLimit { what, max }.into());
                }
                self.dirs.insert(entry.id, (entry.parent, name.into()));
            } else {
                wants.push(make_want(entry.id, Verdict::Skip));
            }
            if !path.as_os_str().is_empty() {
                self.stats.event(Event::Listed(Box::new(self.listed(entry, path))));
            }
        }
        if !wants.is_empty() {
            self.outbox.post(&Message::Wants(wants));
        }
        Ok(())
    }

    /// Returns the path of an entry of a directory, beneath the source.
    fn path_of(&self, dir: u64, name: &[u8]) -> Result<PathBuf, Error> {
        let (mut names, mut at) = (vec![name], dir);
        while at != 0 {
            let Some((parent, name)) = self.dirs.get(&at) else {
                return Err(WireError::Unexpected("an entry of an unknown directory").into());
            };
            names.push(name);
            at = *parent;
        }
        let names = names.into_iter().rev().filter(|name| !name.is_empty());
        Ok(names.map(OsStr::from_bytes).collect())
    }

    fn listed(&self, entry: &Entry, path: PathBuf) -> ListedEntry {
        let account = |kind, id: u32| match self.names.get(&(kind, id)) {
            Some(name) => name.clone(),
            // The superuser has this name everywhere, and is not announced.
            None if id == 0 => "root".into(),
            None => id.to_string().into(),
        };
        let target = OsStr::from_bytes(&entry.target);
        ListedEntry {
            path,
            kind: kind_of(entry),
            mode: entry.mode,
            bytes: entry.size,
            modified: time_of(entry),
            owner: account(AccountKind::User, entry.uid),
            group: account(AccountKind::Group, entry.gid),
            target: (entry.kind == EntryKind::Symlink).then(|| PathBuf::from(target)),
        }
    }
}

fn kind_of(entry: &Entry) -> ListedKind {
    let special = entry.extra.as_ref().and_then(|extra| extra.special);
    match (entry.kind, special.map(|special| special.kind)) {
        (EntryKind::Dir, _) => ListedKind::Dir,
        (EntryKind::Symlink, _) => ListedKind::Symlink,
        (_, Some(SpecialKind::Fifo)) => ListedKind::Fifo,
        (_, Some(SpecialKind::Socket)) => ListedKind::Socket,
        (_, Some(SpecialKind::CharDevice)) => ListedKind::CharDevice,
        (_, Some(SpecialKind::BlockDevice)) => ListedKind::BlockDevice,
        _ => ListedKind::File,
    }
}

/// Returns the modification time; `None` if this host cannot represent it.
fn time_of(entry: &Entry) -> Option<SystemTime> {
    let seconds = Duration::from_secs(entry.mtime_secs.unsigned_abs());
    let whole = match entry.mtime_secs < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
        false => SystemTime::UNIX_EPOCH.checked_add(seconds),
    };
    whole?.checked_add(Duration::from_nanos(entry.mtime_nanos.into()))
}
