//! Names beneath a source: each is announced with the directories above it.

use super::found::{FindError, Found, find};
use super::walk::{Bounds, Leaf, Subdir, Walk, WalkedDir};
use crate::base::error;
use crate::base::fs_names::join_path;
use crate::base::part_names;
use crate::file_io::links::{LinkedDir, follow};
use crate::file_io::roots::{ItemNames, SourceItem};
use crate::transfer::dir_filters::DirFilters;
use bankfull_proto::limits::MAX_DIRECTORY_DEPTH;
use bankfull_proto::names::{components, covers, has_contents};
use bankfull_proto::wire::control::{Cause, Failure, WHOLE_SOURCE};
use bankfull_sys::{Dir, FileKind, Stat};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory above a name that is not announced yet.
struct DirAbove {
    name: OsString,
    dir: Arc<Dir>,
    stat: Stat,
    path: PathBuf,
    filters: DirFilters,
    /// Way to open it if it is the referent of a symlink.
    linked: Option<LinkedDir>,
}

/// Walk of names, as far as it has come.
struct NamedWalk {
    /// The source, and directories above the last name.
    open: Vec<WalkedDir>,
    /// Last name of a directory that was announced with what it contains.
    covering: Option<Vec<u8>>,
    is_recursive: bool,
}

/// Failure of a name, with its path.
type NameFailure = (PathBuf, Failure);

impl Walk<'_, '_> {
    /// Announces names beneath a source in their order.
    pub(super) fn walk_names(&self, item: &SourceItem, filters: &DirFilters, names: &ItemNames) {
        let is_recursive = match names {
            ItemNames::Known(names) => names.is_recursive(),
            ItemNames::Requested => self.sender.rules.walk.recursive,
        };
        let names: Box<dyn Iterator<Item = Cow<'_, [u8]>>> = match names {
            ItemNames::Known(names) => Box::new(names.iter().map(Cow::Borrowed)),
            ItemNames::Requested => {
                Box::new(iter::from_fn(|| self.sender.next_name()).map(Cow::Owned))
            }
        };
        let mut names = names.peekable();
        // It is the first one.
        let is_listed = names.peek().is_some_and(|name| **name == *WHOLE_SOURCE);
        let Some(base) = self.enter_base(item, filters, is_listed) else { return };
        let mut walked = NamedWalk { open: vec![base], covering: None, is_recursive };
        for name in names {
            if !self.walk_next(item, filters, &mut walked, &name) {
                return;
            }
        }
        self.leave_to(&mut walked.open, 0);
    }

    /// Announces the next name; false after a stop.
    fn walk_next(
        &self,
        item: &SourceItem,
        filters: &DirFilters,
        walked: &mut NamedWalk,
        name: &[u8],
    ) -> bool {
        if !self.wait_for_room() {
            return false;
        }
        let is_recursive = walked.is_recursive;
        let covering = walked.covering.as_deref().filter(|by| covers(by, name, is_recursive));
        let depth = covering.map(|by| components(by).count());
        let is_new_directory = match components(name).next() {
            None => {
                self.walk_base(item, filters, is_recursive);
                true
            }
            Some(_) => self.walk_name(&mut walked.open, name, (is_recursive, depth)),
        };
        if is_new_directory && depth.is_none() && (is_recursive || has_contents(name)) {
            walked.covering = Some(name.to_vec());
        }
        true
    }

    /// Announces the destination, which keeps its metadata, for what is beneath it.
    ///
    /// Unless all of the source `is_listed`, a receiver deletes nothing at its top.
    fn enter_base(
        &self,
        item: &SourceItem,
        filters: &DirFilters,
        is_listed: bool,
    ) -> Option<WalkedDir> {
        let filters = match filters.enter(OsStr::new(""), &item.dir) {
            Ok(filters) => filters,
            Err(e) => {
                let text = format!("{}: {e}", item.operand.display());
                self.report_failure(item.operand.clone(), Failure::new(Cause::Other, text));
                return None;
            }
        };
        let own = (&*item.dir, OsStr::new(""));
        let id = self.announce_dir(own, &item.stat, (0, OsStr::new("")))?;
        if !is_listed {
            self.leave_out(id, OsStr::new(""));
        }
        let dirs = &self.sender.files.dirs;
        dirs.insert_root(id, Arc::clone(&item.dir), item.operand.clone());
        let follows_links = self.sender.rules.walk.follows_links();
        Some(WalkedDir {
            dir: Arc::clone(&item.dir),
            id,
            path: item.operand.clone(),
            depth: 0,
            unlisted: None,
            subdirs: Vec::new(),
            filters,
            bounds: Bounds { dev: item.stat.dev, dirs_above: 0, bottom: usize::MAX },
            identity: follows_links.then_some((item.stat.dev, item.stat.ino)),
            is_cache: false,
        })
    }

    /// Records that nothing more is announced in directories above a depth.
    fn leave_to(&self, open: &mut Vec<WalkedDir>, count: usize) {
        while open.len() > count {
            if let Some(left) = open.pop() {
                self.leave_dir(left.id);
            }
        }
    }

    /// Announces a name; returns true for a directory.
    ///
    /// One that an earlier name at the depth `covered` has announced must exist.
    fn walk_name(
        &self,
        open: &mut Vec<WalkedDir>,
        name: &[u8],
        (is_recursive, covered): (bool, Option<usize>),
    ) -> bool {
        let mut parts: Vec<&OsStr> = components(name).map(OsStr::from_bytes).collect();
        let Some(last) = parts.pop() else { return false };
        let is_same = |(dir, part): &(&WalkedDir, &&OsStr)| dir.path.file_name() == Some(**part);
        let kept = open.iter().skip(1).zip(&parts).take_while(is_same).count();
        self.leave_to(open, kept + 1);
        let Some(at) = open.last() else { return false };
        let resolved = self.resolve(at, &parts[kept..]).and_then(|above| {
            let (dir, path, filters) = match above.last() {
                Some(dir) => (&dir.dir, &dir.path, &dir.filters),
                None => (&at.dir, &at.path, &at.filters),
            };
            let found = self.look_up(filters, path, (dir, last))?;
            Ok((above, found))
        });
        match resolved {
            Ok((above, Some(_)))
                if covered.is_some_and(|depth| self.is_reached(open, &above, depth)) => {}
            Ok((above, Some(found))) => {
                let is_directory = found.stat.kind == FileKind::Dir;
                for dir in above {
                    let entered = open.last().and_then(|at| self.announce_above(at, dir));
                    // Without one of them, the rest would be written elsewhere.
                    let Some(entered) = entered else { return false };
                    open.push(entered);
                }
                self.announce_found(open, last, found, (is_recursive, has_contents(name)));
                return is_directory;
            }
            Ok((_, None)) => {}
            Err((path, failure)) => self.report_failure(path, failure),
        }
        false
    }

    /// True if the walk of a name at a depth came to directories beneath it.
    fn is_reached(&self, open: &[WalkedDir], above: &[DirAbove], depth: usize) -> bool {
        let names = open.iter().skip(1).filter_map(|dir| dir.path.file_name());
        let names = names.chain(above.iter().map(|dir| dir.name.as_os_str()));
        let filters = open.iter().map(|dir| &dir.filters);
        let filters = filters.chain(above.iter().map(|dir| &dir.filters));
        let is_hidden = filters.zip(names).skip(depth).any(|(rules, name)| rules.hides(name, true));
        let last = open.len() + above.len();
        !is_hidden && last <= self.bottom_beneath(depth)
    }

    /// Walks the source itself, as another announcement of the destination.
    fn walk_base(&self, item: &SourceItem, filters: &DirFilters, is_recursive: bool) {
        let bottom = self.bottom_beneath(0);
        let bottom = if is_recursive { bottom } else { bottom.min(1) };
        let Some(mut base) = self.enter_base(item, filters, bottom > 0) else { return };
        base.bounds.bottom = bottom;
        match base.dir.read_entries() {
            _ if bottom == 0 => {}
            Ok(unlisted) => base.unlisted = Some(unlisted),
            Err(e) => {
                self.leave_out(base.id, OsStr::new(""));
                self.report_error(base.path.clone(), &e);
            }
        }
        self.walk_tree(Some(base));
    }

    /// Opens directories above a name, which are not announced yet.
    fn resolve(&self, at: &WalkedDir, parts: &[&OsStr]) -> Result<Vec<DirAbove>, NameFailure> {
        let mut above: Vec<DirAbove> = Vec::new();
        for name in parts {
            let (parent, shown, filters) = match above.last() {
                Some(dir) => (&dir.dir, &dir.path, &dir.filters),
                None => (&at.dir, &at.path, &at.filters),
            };
            let path = join_path(shown, name);
            let depth = at.depth + above.len() + 1;
            let opened = self.open_above(parent, shown, name);
            let next = match opened.map_err(|e| read_failure(&path, &e)) {
                Ok(_) if depth >= MAX_DIRECTORY_DEPTH => Err(too_deep(&path)),
                Ok((dir, stat, linked)) => match filters.enter(name, &dir) {
                    Ok(filters) => {
                        let (name, dir) = ((*name).to_owned(), Arc::new(dir));
                        Ok(DirAbove { name, dir, stat, path: path.clone(), filters, linked })
                    }
                    Err(e) => Err(Failure::new(Cause::Other, format!("{}: {e}", path.display()))),
                },
                Err(failure) => Err(failure),
            };
            above.push(next.map_err(|failure| (path, failure))?);
        }
        Ok(above)
    }

    /// Opens a directory above a name; a symlink to one is followed.
    fn open_above(
        &self,
        parent: &Dir,
        shown: &Path,
        name: &OsStr,
    ) -> io::Result<(Dir, Stat, Option<LinkedDir>)> {
        let root = &self.sender.rules.root;
        let stat = parent.stat(name)?;
        match stat.kind {
            FileKind::Symlink => {
                let found = follow(root, root.path_to_open(shown), parent, name)?;
                match found.stat.kind {
                    FileKind::Dir => Ok((found.dir.open()?, found.stat, Some(found.dir))),
                    _ => Err(io::ErrorKind::NotADirectory.into()),
                }
            }
            _ => Ok((parent.open_child_dir(name)?, stat, None)),
        }
    }

    /// Looks at the entry of a name; `None` if the rules hide it.
    fn look_up(
        &self,
        filters: &DirFilters,
        above: &Path,
        (dir, name): (&Dir, &OsStr),
    ) -> Result<Option<Found>, NameFailure> {
        let path = join_path(above, name);
        if part_names::is_part_name(name.as_bytes()) {
            self.report_skipped(path, "temporary file of an interrupted copy");
            return Ok(None);
        }
        match find(&self.sender.rules, above, dir, name) {
            Ok(found) if filters.hides(name, found.stat.kind == FileKind::Dir) => Ok(None),
            Ok(found) => Ok(Some(found)),
            Err(_) if filters.hides(name, false) => Ok(None),
            Err(FindError::Stat(e)) => {
                let failure = read_failure(&path, &e);
                Err((path, failure))
            }
            Err(FindError::Link(failure)) => Err((path, failure)),
        }
    }

    /// Announces a directory above a name.
    fn announce_above(&self, at: &WalkedDir, above: DirAbove) -> Option<WalkedDir> {
        let DirAbove { name, dir, stat, path, filters, linked } = above;
        let id = self.announce_dir((&*dir, OsStr::new("")), &stat, (at.id, &name))?;
        self.leave_out(id, OsStr::new(""));
        match linked {
            Some(linked) => self.sender.files.dirs.insert_named(id, at.id, &name, linked),
            None => self.sender.files.dirs.insert(id, at.id, &name),
        }
        Some(WalkedDir {
            dir,
            id,
            path,
            depth: at.depth + 1,
            unlisted: None,
            subdirs: Vec::new(),
            filters,
            bounds: at.bounds,
            identity: at.identity.map(|_| (stat.dev, stat.ino)),
            is_cache: false,
        })
    }

    /// Announces the entry of a name, with what it contains if that is meant.
    fn announce_found(
        &self,
        open: &mut [WalkedDir],
        name: &OsStr,
        found: Found,
        (is_recursive, has_contents): (bool, bool),
    ) {
        let Some(at) = open.last_mut() else { return };
        if found.stat.kind != FileKind::Dir {
            let (key, parent, dirs_above) = (at.id, at.id, at.depth);
            let leaf = Leaf { dir: &at.dir, key, parent, name, dirs_above };
            return self.announce_leaf(&leaf, &found);
        }
        let depth = at.depth + 1;
        at.bounds.bottom = match (is_recursive, has_contents) {
            (true, _) => self.bottom_beneath(depth),
            (false, true) => self.bottom_beneath(depth).min(depth + 1),
            (false, false) => depth,
        };
        at.bounds.dev = found.stat.dev;
        let linked = found.referent.map(|referent| referent.dir);
        let subdir = Subdir { name: name.to_owned(), stat: found.stat, linked };
        let entered = self.enter_subdir(open, &subdir);
        self.walk_tree(entered);
    }
}

fn read_failure(path: &Path, error: &io::Error) -> Failure {
    error::failure(format!("cannot read {}", path.display()), error)
}

fn too_deep(path: &Path) -> Failure {
    let text = format!("{} is nested too deep (limit {MAX_DIRECTORY_DEPTH})", path.display());
    Failure::new(Cause::Usage, text)
}
