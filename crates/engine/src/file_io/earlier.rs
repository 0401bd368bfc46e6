//! Earlier versions at the destination: kept as backups when they are replaced or deleted, and
//! found in directories of earlier copies.

use super::root::PathRoot;
use crate::base::error::{Error, ErrorKind, os_message};
use crate::base::part_names::is_part_name;
use bankfull_proto::sources::split_path;
use bankfull_proto::wire::control::{BackupRules, Cause, EarlierRules, Failure};
use bankfull_sys::{Dir, FileKind, Stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

/// Suffix of backups beside their originals. (rsync(1), cp(1))
const BACKUP_SUFFIX: &str = "~";

/// Attempts to put a backup in a place that another process fills. (chosen: more than chance needs)
const MAX_TRIES: u32 = 10;

/// Earlier versions at the destination.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    pub(crate) backup: Option<Backup>,
    /// Directories of earlier copies, whose unchanged files become hard links.
    pub(crate) link_dest: Vec<Arc<Dir>>,
    /// Warnings for the user.
    pub(crate) warnings: Vec<String>,
}

/// Place of backups.
#[derive(Debug)]
pub(crate) struct Backup {
    /// Directory with the paths of the destination; `None`: beside the originals.
    dir: Option<Arc<Dir>>,
    suffix: OsString,
}

impl Earlier {
    /// Opens the directories of earlier versions, relative to the destination.
    ///
    /// # Errors
    /// A directory that cannot be used, or is on another file system.
    pub(crate) fn open(
        root: &PathRoot,
        destination: &[u8],
        base: Option<&Dir>,
        (rules, dry_run): (&EarlierRules, bool),
    ) -> Result<Self, Error> {
        let mut earlier = Self::default();
        // In a dry run the destination may not exist yet.
        let Some(base) = base else { return Ok(earlier) };
        let device = base.stat_self().map(|stat| stat.dev).ok();
        for dir in rules.link_dest.iter().flatten() {
            let shown = OsStr::from_bytes(&dir.0).to_string_lossy().into_owned();
            match root.open_dir(&beneath(destination, &dir.0)) {
                Ok(dir) if dir.stat_self().map(|stat| stat.dev).ok() != device => {
                    let text = format!(
                        "--link-dest {shown} is on another file system than the destination: \
                         choose a directory beside it"
                    );
                    return Err(Failure::new(Cause::Usage, text).into());
                }
                Ok(dir) => earlier.link_dest.push(Arc::new(dir)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let text = format!("--link-dest {shown} does not exist: everything is copied");
                    earlier.warnings.push(text);
                }
                Err(e) => return Err(unusable("--link-dest", &shown, &e)),
            }
        }
        if let Some(backup) = &rules.backup {
            earlier.backup = Backup::open(root, destination, device, (backup, dry_run))?;
        }
        Ok(earlier)
    }
}

/// Returns the path of a directory that is relative to the destination.
fn beneath(destination: &[u8], dir: &[u8]) -> Vec<u8> {
    match (destination, dir) {
        (_, [b'/', ..]) | (b"", _) => dir.to_vec(),
        _ => [destination, b"/", dir].concat(),
    }
}

fn unusable(flag: &str, shown: &str, error: &io::Error) -> Error {
    let text = format!("cannot use {flag} {shown}: {}", os_message(error));
    let kind = match error.kind() {
        io::ErrorKind::NotADirectory | io::ErrorKind::NotFound => ErrorKind::Usage,
        _ => ErrorKind::Local,
    };
    Error::new(kind, text)
}

/// Creates the last component of a path.
fn make_dir(root: &PathRoot, path: &[u8]) -> io::Result<Dir> {
    let parts = split_path(path);
    let name = parts.name.map(OsStr::from_bytes).ok_or(io::ErrorKind::NotFound)?;
    let parent = root.open_dir(parts.dir)?;
    make_child(&parent, name)
}

fn make_child(parent: &Dir, name: &OsStr) -> io::Result<Dir> {
    match parent.mkdir(name, 0o700) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => parent.open_child_dir(name),
    }
}

impl Backup {
    /// Opens the place of backups; `None` if a dry run would create it.
    fn open(
        root: &PathRoot,
        destination: &[u8],
        device: Option<u64>,
        (rules, dry_run): (&BackupRules, bool),
    ) -> Result<Option<Self>, Error> {
        let given = rules.suffix.as_ref().map(|suffix| OsStr::from_bytes(&suffix.0).to_owned());
        let Some(dir) = &rules.dir else {
            let suffix = given.unwrap_or_else(|| BACKUP_SUFFIX.into());
            return Ok(Some(Self { dir: None, suffix }));
        };
        let shown = OsStr::from_bytes(&dir.0).to_string_lossy().into_owned();
        let path = beneath(destination, &dir.0);
        let opened = match root.open_dir(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && dry_run => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => make_dir(root, &path),
            opened => opened,
        };
        let opened = opened.map_err(|e| unusable("--backup-dir", &shown, &e))?;
        if opened.stat_self().map(|stat| stat.dev).ok() != device {
            let text = format!(
                "--backup-dir {shown} is on another file system than the destination: choose a \
                 directory beside it"
            );
            return Err(Failure::new(Cause::Usage, text).into());
        }
        let suffix = given.unwrap_or_default();
        Ok(Some(Self { dir: Some(Arc::new(opened)), suffix }))
    }

    /// True if backups have a directory of their own.
    pub(crate) fn is_apart(&self) -> bool {
        self.dir.is_some()
    }

    /// True if the entry `name` of a directory holds backups, which are not deleted.
    pub(crate) fn holds(&self, dir: &Dir, name: &OsStr) -> bool {
        let identity = |stat: Stat| (stat.dev, stat.ino);
        match &self.dir {
            None => name.as_bytes().ends_with(self.suffix.as_bytes()),
            Some(backups) => match (dir.stat(name), backups.stat_self()) {
                (Ok(found), Ok(own)) => identity(found) == identity(own),
                _ => false,
            },
        }
    }

    /// Gives an entry a second name as a backup, in place of an earlier one.
    ///
    /// `above` is the path of its directory beneath the destination. Directories have none.
    ///
    /// # Errors
    /// The backup cannot be made; the entry then stays.
    pub(crate) fn keep(&self, dir: &Dir, name: &OsStr, above: &Path) -> io::Result<()> {
        match dir.stat(name) {
            Ok(stat) if stat.kind == FileKind::Dir => return Ok(()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        }
        let kept_name = [name.as_bytes(), self.suffix.as_bytes()].concat();
        // It would take the place of what another session is receiving.
        if is_part_name(&kept_name) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "its backup has a reserved name",
            ));
        }
        let kept_name = OsStr::from_bytes(&kept_name);
        let kept = match &self.dir {
            None => return replace_by_link(dir, kept_name, dir, name),
            Some(root) => root,
        };
        let mut at = Arc::clone(kept);
        for part in above.components() {
            if let Component::Normal(part) = part {
                at = Arc::new(make_child(&at, part)?);
            }
        }
        replace_by_link(&at, kept_name, dir, name)
    }
}

/// Makes a hard link in the place of any file.
fn replace_by_link(to: &Dir, to_name: &OsStr, from: &Dir, name: &OsStr) -> io::Result<()> {
    for _ in 0..MAX_TRIES {
        match to.link(to_name, from, name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            linked => return linked,
        }
        match to.unlink(to_name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    to.link(to_name, from, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backup_takes_the_place_of_an_earlier_one() {
        let here = tempfile::tempdir().unwrap();
        let dir = Dir::open(here.path()).unwrap();
        let write = |name: &str, text: &str| std::fs::write(here.path().join(name), text).unwrap();
        write("f", "new");
        write("f~", "old");
        let beside = Backup { dir: None, suffix: "~".into() };
        beside.keep(&dir, OsStr::new("f"), Path::new("")).unwrap();
        beside.keep(&dir, OsStr::new("none"), Path::new("")).unwrap();
        let read = |name: &str| std::fs::read_to_string(here.path().join(name)).unwrap();
        assert_eq!(read("f~"), "new");
        assert!(beside.holds(&dir, OsStr::new("f~")) && !beside.holds(&dir, OsStr::new("f")));
        std::fs::create_dir(here.path().join("old")).unwrap();
        let old = Arc::new(dir.open_child_dir(OsStr::new("old")).unwrap());
        let apart = Backup { dir: Some(old), suffix: OsString::new() };
        apart.keep(&dir, OsStr::new("f"), Path::new("a/b")).unwrap();
        assert_eq!(read("old/a/b/f"), "new");
        write(".bankfull-0123456789abcdef", "x");
        let reserved = Backup { dir: None, suffix: ".part".into() };
        let name = OsStr::new(".bankfull-0123456789abcdef");
        assert!(reserved.keep(&dir, name, Path::new("")).is_err());
        assert!(apart.holds(&dir, OsStr::new("old")) && !apart.holds(&dir, OsStr::new("f")));
    }
}
